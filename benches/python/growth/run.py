"""How each cost grows, and whether each promise is kept (`make bench-growth`).

    run.py [--quick] [--only NAME …] [--output FILE] [--note TEXT] [--minutes N] [--folder PATH]

Each size of each dimension runs in a process of its own, within a time limit. A figure of time that
breaks its promise is measured once more, and the smaller amount of each size counts: a program of
the machine that ran meanwhile is no growth. Exit status 1: a promise is broken, or a point is
missing; both are named. A quick run measures small sizes and judges nothing. With `--only` the rows
of the other dimensions stay in the file of `--output`, and its note says what was measured again.
"""

from __future__ import annotations

import argparse
import datetime as dt
import importlib.util
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import peers
from dimension import Dimension
from dimensions import ALL
from results import OWN, Points, Row, read, rows, write

HERE = Path(__file__).resolve().parent
sys.path.append(str(HERE.parent))
from machine import commit, processor  # noqa: E402 - beside the folder of this program

POINT_SECONDS = 240
MINUTES = 40
AGAIN = "Measured again after"


def say(text: str) -> None:
    """A line of the run."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def output_of(command: list[str], seconds: float) -> str:
    """The output of a process; if it takes too long it is ended, with those that it started.

    :raises RuntimeError: if it failed or took too long.
    """
    # The process leads a session, so that Spark's Java ends with it.
    pipe = subprocess.PIPE
    with subprocess.Popen(
        command, stdout=pipe, stderr=pipe, text=True, start_new_session=True
    ) as process:
        try:
            output, errors = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired as expired:
            os.killpg(process.pid, signal.SIGKILL)
            raise RuntimeError(f"took longer than {seconds:g} s") from expired
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            raise
    if process.returncode != 0:
        raise RuntimeError(errors.strip().rpartition("\n")[2] or f"exit {process.returncode}")
    return output


def point(name: str, size: int, engine: str, folder: Path, seconds: float) -> Any:
    """The figures of one size.

    :raises RuntimeError: if it failed or took too long.
    """
    folder.mkdir()
    command = [sys.executable, str(HERE / "point.py"), name, str(size), engine, str(folder)]
    try:
        output = output_of(command, seconds)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return json.loads(output.strip().rpartition("\n")[2])


class Run:
    """One run over some dimensions."""

    def __init__(self, folder: Path, *, quick: bool, minutes: float) -> None:
        self.folder, self.quick = folder, quick
        self.until = time.monotonic() + minutes * 60
        self.found: list[Row] = []
        self.missing: list[str] = []
        self.number = 0

    def dimension(self, kind: type[Dimension]) -> None:
        """Measure one dimension, and its peers."""
        for engine in (OWN, *(peer for peer in kind.peers if peers.installed(peer))):
            sizes = [
                size
                for size in (kind.quick if self.quick else kind.sizes)
                if engine == OWN or size <= kind.most_for_peers
            ]
            begun = time.monotonic()
            points: Points = {}
            self.measure(kind, engine, sizes, points)
            found = list(rows(kind, engine, points))
            again = any(row.is_broken and row.kind == "time" for row in found)
            if again and not self.quick and len(points) == len(sizes):
                self.measure(kind, engine, sizes, points)
                found = list(rows(kind, engine, points))
            self.found += found
            say(f"{kind.name}, {engine}: {time.monotonic() - begun:.0f} s")

    def measure(self, kind: type[Dimension], engine: str, sizes: list[int], points: Points) -> None:
        """Measure all sizes; of figures that exist the smaller amounts stay."""
        for size in sizes:
            self.number += 1
            seconds = min(POINT_SECONDS, self.until - time.monotonic())
            place = self.folder / f"{self.number}"
            try:
                if seconds <= 0:
                    raise RuntimeError("the time of the run is over")  # noqa: TRY301
                figures = point(kind.name, size, engine, place, seconds)
            except RuntimeError as error:
                self.missing.append(f"{kind.name}, {engine}, {size:,}: {error}")
                say(f"missing: {self.missing[-1]}")
                continue
            held = points.setdefault(size, {})
            for operation, amounts in figures.items():
                known = held.setdefault(operation, {})
                for name, amount in amounts.items():
                    known[name] = min(amount, known.get(name, amount))


def packages() -> dict[str, str]:
    """The versions of what is compared."""
    found = {}
    for name in (OWN, "rocksdict", "lmdb", "pyspark"):
        if importlib.util.find_spec(name) is None:
            continue
        try:
            found[name] = version(name)
        except PackageNotFoundError:  # built in place, not installed
            found[name] = str(importlib.import_module(name).__version__)
    return found


def facts(note: str, built: str, seconds: float) -> dict[str, Any]:
    """The machine, the versions, and the time."""
    return {
        "note": note,
        "commit": built or commit(),
        "machine": f"{os.cpu_count()} cores, {processor()}",
        "load": round(os.getloadavg()[2], 1),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "packages": packages(),
        "time": f"{dt.datetime.now(tz=dt.UTC):%Y-%m-%d %H:%M} UTC",
        "minutes": round(seconds / 60, 1),
    }


def save(path: Path, about: dict[str, Any], found: list[Row], only: list[str]) -> None:
    """Write the results; those of dimensions that were not to be measured stay."""
    kept: list[Row] = []
    if only and path.exists():
        before, rows_before = read(path)
        kept = [row for row in rows_before if row.dimension not in only]
        again = sorted({row.dimension for row in found})
        if kept:
            texts = [before["note"].partition(AGAIN)[0].strip(), about["note"]]
            texts.append(
                f"{AGAIN} {before['time']} (commit {before['commit']}): {', '.join(again)}."
            )
            about = about | {"note": " ".join(text for text in texts if text)}
    order = list(ALL)
    write(path, about, sorted([*kept, *found], key=lambda row: order.index(row.dimension)))


def chosen(only: list[str]) -> list[type[Dimension]]:
    """The dimensions that were asked for, as far as their modules are installed."""
    unknown = set(only) - set(ALL)
    if unknown:
        raise SystemExit(f"no dimension {', '.join(sorted(unknown))}; there are {', '.join(ALL)}")
    wanted = [kind for name, kind in ALL.items() if not only or name in only]
    for kind in wanted:
        if kind.needs and importlib.util.find_spec(kind.needs) is None:
            say(f"left out: {kind.name}, {kind.needs} is not installed")
    return [kind for kind in wanted if not kind.needs or importlib.util.find_spec(kind.needs)]


def main() -> int:
    """Measure, write, and judge."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="small sizes; nothing is judged")
    parser.add_argument("--only", nargs="*", default=[], metavar="NAME", help="dimensions")
    parser.add_argument("--output", type=Path, help="write the results to this file")
    parser.add_argument("--note", default="", help="a note for the results")
    parser.add_argument("--commit", default="", help="the commit of the extension, if another")
    parser.add_argument("--minutes", type=float, default=MINUTES, help="time limit of the run")
    parser.add_argument("--folder", type=Path, help="where the databases lie; a temporary one")
    given = parser.parse_args()
    begun = time.monotonic()
    folder = Path(tempfile.mkdtemp(prefix="growth", dir=given.folder))
    run = Run(folder, quick=given.quick, minutes=given.minutes)
    try:
        for kind in chosen(given.only):
            run.dimension(kind)
            if given.output:  # after each, so that an interrupted run keeps what it measured
                seconds = time.monotonic() - begun
                about = facts(given.note, given.commit, seconds)
                save(given.output, about, run.found, given.only)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if given.quick:
        for row in run.found:
            say(str(row))
        return bool(run.missing)
    broken = [row for row in run.found if row.is_broken]
    for row in broken:
        say(f"broken promise: {row}")
    for text in run.missing:
        say(f"missing: {text}")
    say(f"{len(run.found)} figures, {len(broken)} broken promises, {len(run.missing)} missing")
    return bool(broken or run.missing)


if __name__ == "__main__":
    sys.exit(main())
