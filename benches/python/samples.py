"""The measurements: numbers by case and engine, and the texts of the report."""

from __future__ import annotations

import statistics
from collections import defaultdict


class Samples:
    """Samples of one run. Times are nanoseconds per operation."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, str], list[float]] = defaultdict(list)
        self.rows = 0
        """The number of rows of the run."""
        self.limits: dict[str, float] = {}
        """Bounds that are only known during the run, by case."""
        self.states: dict[str, str] = {}
        """The location of the rows, by stage and engine."""

    def add(self, case: str, engine: str, sample: float) -> None:
        """One round of an engine."""
        self._found[case, engine].append(sample)

    def median(self, case: str, engine: str) -> float | None:
        """The median of the rounds; None without rounds."""
        found = self._found.get((case, engine))
        return statistics.median(found) if found else None

    def spread(self, case: str, engine: str) -> tuple[float, float] | None:
        """The fastest and the slowest round."""
        found = self._found.get((case, engine))
        return (min(found), max(found)) if found else None
