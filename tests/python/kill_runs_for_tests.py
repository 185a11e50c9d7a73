"""Runs a program that kills processes at random moments, and parses its report."""

from __future__ import annotations

import random
import re
import subprocess
import sys
from pathlib import Path


def killed(program: str, folder: Path, kills: int, role: str = r"(\w+)s") -> dict[str, str]:
    """How often each role was killed, from the last line of output; `role` is the pattern of a role
    name.

    The program runs in its own process, which opens nothing and so can fork as often as it likes.
    """
    seed = random.SystemRandom().randrange(1 << 32)
    path = Path(__file__).parent / program
    command = [sys.executable, str(path), str(folder), str(kills), str(seed)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as child:
        told = []
        for line in child.stdout:
            told.append(line)
            print(line, end="", flush=True)
    assert child.returncode == 0, "".join(told)
    return dict(re.findall(rf"{role}: (\d+)", told[-1]))
