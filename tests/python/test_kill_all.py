"""Every role of one database killed at random moments, all of them at work at once.

``SILTSTONE_KILLS`` says how often (100 by default).
"""

from __future__ import annotations

import os
import random
import re
import subprocess
import sys
from pathlib import Path

import pytest

KILLS = int(os.environ.get("SILTSTONE_KILLS", "100"))
PROGRAM = Path(__file__).parent / "kills_for_tests.py"


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_kills_of_every_role_lose_nothing_and_leave_nothing(tmp_path: Path) -> None:
    """In a process of its own, which opens nothing and so can be forked as often as it likes."""
    seed = random.SystemRandom().randrange(1 << 32)
    command = [sys.executable, str(PROGRAM), str(tmp_path), str(KILLS), str(seed)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as child:
        told = []
        for line in child.stdout:
            told.append(line)
            print(line, end="", flush=True)
    assert child.returncode == 0, "".join(told)
    killed = dict(re.findall(r"(\w+)s: (\d+)", told[-1]))
    assert sum(map(int, killed.values())) >= KILLS
    assert set(killed) == {"writer", "coordinator", "worker", "collector"}
    assert "0" not in killed.values()
