"""Cases that need their own process: replay, open, import, memory."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from cases import Case
from plan import turns
from samples import Samples
from work import Work

HERE = Path(__file__).parent


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """The turns in their order, which pytest keeps."""
    found = [turn for turn in turns(metafunc.config) if not turn[0].prepare]
    ids = [f"{case.name}-{at}-{name}" for case, at, name in found]
    metafunc.parametrize(("case", "at", "name"), found, ids=ids)


def program(*arguments: object, killed: bool = False) -> Any:
    """Run a program of `apart` and return the last value that it printed."""
    done = subprocess.run(
        [sys.executable, HERE / "apart.py", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    if done.returncode != (-9 if killed else 0):
        raise RuntimeError(f"{arguments}: exit {done.returncode}\n{done.stderr}")
    return json.loads(done.stdout)


def test_program(work: Work, samples: Samples, case: Case, at: int, name: str) -> None:
    """One round of one engine."""
    work.enter("apart")
    samples.add(case.id, name, MEASURES[case.name](work, samples, name, at))


def _import(work: Work, _samples: Samples, name: str, _at: int) -> float:
    engine = work.engines[name]
    return float(program("import", engine.imported or engine.module))


def _open(work: Work, _samples: Samples, name: str, at: int) -> float:
    folder = work.folder / f"small-{name}"
    if at == 0:
        program("fill", name, folder, 1000)
    return float(program("open", name, folder)["open"])


def _replay(work: Work, _samples: Samples, name: str, at: int) -> float:
    made = work.folder / f"killed-{name}"
    # The capacity of memtables: more rows would be flushed on the way, and not replayed.
    rows = max(100, min(450_000, work.rows * 45 // 100))
    if at == 0:
        program("kill", name, made, rows, killed=True)
    # Opening changes the state that a killed process left: each round gets a copy, at the same
    # path, which a database may have recorded.
    kept = made.with_suffix(".kept")
    if at == 0:
        made.rename(kept)
    shutil.rmtree(made, ignore_errors=True)
    shutil.copytree(kept, made)
    return float(program("open", name, made, rows)["ready"])


def _memory(work: Work, samples: Samples, _name: str, _at: int) -> float:
    found = program("memory", work.folder / "memory", work.rows)
    samples.limits["memory/apart"] = float(found["budget"])
    return float(found["growth"])


MEASURES = {"import": _import, "open": _open, "replay": _replay, "memory": _memory}
