"""Every role of a parent and of its clone killed at random moments, together with makers of more
clones.

``SILTSTONE_KILLS`` sets the number of kills (60 by default).
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import kill_runs_for_tests as kill_runs

KILLS = int(os.environ.get("SILTSTONE_KILLS", "60"))


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_kills_on_both_sides_lose_nothing_on_either(tmp_path: Path) -> None:
    killed = kill_runs.killed("kills_of_clones_for_tests.py", tmp_path, KILLS, r"(\w+_\w+)")
    assert sum(map(int, killed.values())) >= KILLS
    roles = {"writer", "coordinator", "collector"}
    sides = {f"{side}_{role}" for side in ("parent", "clone") for role in roles}
    assert set(killed) == sides | {"places_maker"}
    assert "0" not in killed.values()
