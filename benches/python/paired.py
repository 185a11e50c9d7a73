"""Compare two builds of the package in pairs of rounds that alternate within a second.

    python benches/python/paired.py BEFORE AFTER [--processes 8] [--cases get,scan] [--rows N]

`BEFORE` and `AFTER` are folders with an installed package (`pip install --target FOLDER WHEEL`).
Each build runs in a process of its own, over the same rows. One line is printed for each case of
the comparison: the median of the ratios of the pairs (above 1: the later build is faster), and its
interval of 95 %. The exit status is 1 if a whole interval is below 0.97.

The speed of a shared machine drifts by tens of per cent within minutes, and single pairs spread by
as much. The interval of the median narrows with the root of the number of pairs. Where a process
gets its memory makes some reads a few per cent faster or slower for its whole life, so the pairs
come from several processes, each with the rounds of a process of the comparison.
"""

from __future__ import annotations

import argparse
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from cases import CASES, Case
from samples import Samples
from test_programs import MEASURES
from work import Work

LEAST = 0.97
"""The lowest ratio that a change may have in a row of the comparison."""
NAME = "siltstone"


class Build:
    """A process that measures the rounds of one build."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def ask(self, request: str) -> float:
        """Send a request and wait for its answer."""
        to, back = self._process.stdin, self._process.stdout
        if to is None or back is None:
            raise RuntimeError("the process has no pipes")
        to.write(request + "\n")
        to.flush()
        if not (answer := back.readline()):
            raise RuntimeError("the process of a build has ended; its error is above")
        return float(answer)


@contextmanager
def started(package: Path, folder: Path, rows: int) -> Iterator[Build]:
    """A process with the package in a folder; it ends with the block."""
    if not (package / NAME).is_dir():
        raise SystemExit(f"{package} has no package: pip install --target {package} WHEEL")
    folder.mkdir()
    options = ("--serve", folder, "--rows", rows)
    process = subprocess.Popen(
        [sys.executable, __file__, str(package), str(package), *map(str, options)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(package.resolve())},
    )
    try:
        yield Build(process)
    finally:
        process.communicate()


def serve(folder: Path, rows: int) -> None:
    """Answer requests from standard input: `CASE ROUND` prepares a round, an empty line runs it."""
    work = Work(folder, rows, [NAME])
    cases = {case.id: case for case in CASES}
    run: Callable[[], float] = float
    for request in sys.stdin:
        if request.strip():
            name, at = request.split()
            work.enter(cases[name].stage)
            run = prepared(work, cases[name], int(at))
            work.settle()
            answer = 0.0
        else:
            answer = run()
        sys.stdout.write(f"{answer}\n")
        sys.stdout.flush()
    work.close()


def prepared(work: Work, case: Case, at: int) -> Callable[[], float]:
    """A round as a function that returns its time, in nanoseconds."""
    if case.prepare is None:
        return lambda: MEASURES[case.name](work, Samples(), NAME, at)
    call, _ = case.prepare(work, work.engines[NAME], at, case.rounds)

    def run() -> float:
        start = time.perf_counter_ns()
        call()
        return float(time.perf_counter_ns() - start)

    return run


def measure(before: Build, after: Build, case: Case) -> list[float]:
    """The ratios of the pairs of a case. The build that begins alternates."""
    ratios = []
    for at in range(case.rounds):
        builds = (before, after) if at % 2 == 0 else (after, before)
        for build in builds:
            build.ask(f"{case.id} {at}")
        times = {build: build.ask("") for build in builds}
        ratios.append(times[before] / times[after])
    return ratios


def interval(ratios: list[float]) -> tuple[float, float, float]:
    """The median and its interval of 95 %, by the ranks of the sign test, which assumes nothing of
    the distribution."""
    ordered, count = sorted(ratios), len(ratios)
    half = 0.98 * math.sqrt(count)
    low = max(0, math.floor(count / 2 - half))
    high = min(count - 1, math.ceil(count / 2 + half))
    return ordered[count // 2], ordered[low], ordered[high]


def main() -> int:
    """The command."""
    text, _, rest = (__doc__ or "").partition("\n\n")
    parser = argparse.ArgumentParser(
        description=text, epilog=rest, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("before", type=Path, help="folder of the earlier package")
    parser.add_argument("after", type=Path, help="folder of the later package")
    parser.add_argument("--processes", type=int, default=8, help="processes of each build (8)")
    parser.add_argument("--rows", type=int, default=1_000_000, help="rows (1,000,000)")
    parser.add_argument("--cases", default="", help="parts of case/stage, separated by commas")
    parser.add_argument("--serve", type=Path, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.serve:
        serve(asked.serve, asked.rows)
        return 0
    wanted = [word for word in asked.cases.split(",") if word]
    cases = [case for case in CASES if case.unit == "ns"]
    cases = [case for case in cases if not wanted or any(word in case.id for word in wanted)]
    ratios: dict[str, list[float]] = {case.id: [] for case in cases}
    for turn in range(asked.processes):
        with (
            tempfile.TemporaryDirectory(prefix="paired") as made,
            started(asked.before, Path(made) / "before", asked.rows) as before,
            started(asked.after, Path(made) / "after", asked.rows) as after,
        ):
            for case in cases:
                ratios[case.id] += measure(before, after, case)
        sys.stderr.write(f"processes {turn + 1} of {asked.processes} are done\n")
    slower = 0
    for name, found in ratios.items():
        median, low, high = interval(found)
        slower += high < LEAST
        sys.stdout.write(f"{name:26} {median:6.3f}  [{low:.3f}, {high:.3f}]\n")
    return int(slower > 0)


if __name__ == "__main__":
    raise SystemExit(main())
