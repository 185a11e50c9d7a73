"""Every role of a parent and of its clone killed at random moments, beside makers of more clones.

``SILTSTONE_KILLS`` says how often (60 by default).
"""

from __future__ import annotations

import os
import random
import re
import subprocess
import sys
from pathlib import Path

import pytest

KILLS = int(os.environ.get("SILTSTONE_KILLS", "60"))
PROGRAM = Path(__file__).parent / "kills_of_clones_for_tests.py"


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_kills_on_both_sides_lose_nothing_on_either(tmp_path: Path) -> None:
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
    killed = dict(re.findall(r"(\w+_\w+): (\d+)", told[-1]))
    assert sum(map(int, killed.values())) >= KILLS
    roles = {"writer", "coordinator", "collector"}
    sides = {f"{side}_{role}" for side in ("parent", "clone") for role in roles}
    assert set(killed) == sides | {"places_maker"}
    assert "0" not in killed.values()
