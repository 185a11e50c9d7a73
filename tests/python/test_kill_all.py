"""Every role of one database killed at random moments, while all of them work.

``SILTSTONE_KILLS`` sets the number of kills (100 by default).
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import kill_runs_for_tests as kill_runs

KILLS = int(os.environ.get("SILTSTONE_KILLS", "100"))


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_kills_of_every_role_lose_nothing_and_leave_nothing(tmp_path: Path) -> None:
    killed = kill_runs.killed("kills_for_tests.py", tmp_path, KILLS)
    assert sum(map(int, killed.values())) >= KILLS
    assert set(killed) == {"writer", "coordinator", "worker", "collector"}
    assert "0" not in killed.values()
