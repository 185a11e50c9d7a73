"""All dimensions by name, in the order of the page."""

from __future__ import annotations

import of_data
import of_jobs
import of_logs
import of_states
import of_trees
from dimension import Dimension

ALL: dict[str, type[Dimension]] = {
    one.name: one
    for module in (of_data, of_trees, of_logs, of_states, of_jobs)
    for one in module.DIMENSIONS
}
