"""The disk space of a database while it is overwritten at full speed.

python benches/python/space.py [--seconds N] [--live MIB] [--folder FOLDER] [--option NAME=VALUE]
    [--followers N]

Rows of 16 B keys and 100 B values, as many as the live bytes; each pass overwrites all of them in a
different order. The folder's size is sampled every 100 ms, staged files included, after all rows
have been written once. Required with default options: at every moment less than twice the live
bytes plus 1 GiB. Live bytes are those of keys and values.

With `--followers`, readers in processes of their own follow the writer and retain what they read by
leases (RFC 0048). Required then, at every moment: less than twice the live bytes plus the bytes of
the objects that the writer has created in the last 35 s: a reader may retain a state for 30 s, and
the collector runs every few seconds.

The cost of the collector is the difference to a run with `--option embedded_gc=false`, in turns.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import siltstone
from work import BATCH, KEY_BYTES, VALUE_BYTES

SAMPLE_SECONDS = 0.1
MIB = 1 << 20
SLACK = 1024 * MIB
RETAINED_SECONDS = 35
STRIDE = 7_919
"""A prime: steps of this size, from a different start in each pass, reach every row once."""


def files(folder: Path) -> dict[str, int]:
    """The size of each file, by its path under the root."""
    sizes: dict[str, int] = {}
    for path, _, names in os.walk(folder):
        under = Path(path).relative_to(folder)
        for name in names:
            try:
                sizes[str(under / name)] = (Path(path) / name).stat().st_size
            except FileNotFoundError:
                continue
    return sizes


def size(folder: Path) -> dict[str, int]:
    """The bytes of all files, by their folder under the root."""
    return by_part(files(folder))


def by_part(sizes: dict[str, int]) -> dict[str, int]:
    parts: collections.Counter[str] = collections.Counter()
    for path, bytes_ in sizes.items():
        folders = Path(path).parts[:-1]
        parts[folders[0] if folders else ""] += bytes_
    return dict(parts)


class Sampler:
    """Samples a folder until it is stopped. Keeps the largest sample, and the one that takes the
    largest part of its bound with followers."""

    def __init__(self, folder: Path, live: int) -> None:
        self.folder, self.live, self.samples = folder, live, 0
        self.most: dict[str, int] = {}
        self.worst, self.worst_bytes, self.worst_bound = 0.0, 0, 0
        self.is_loaded = threading.Event()
        """From then on the samples count. Before it the sampler only learns what is created."""
        self.known: set[str] = set()
        self.created: collections.deque[tuple[float, int]] = collections.deque()
        """When objects were seen first, and their bytes. Those that live for less than two samples
        may be missed, which lowers the bound."""
        self.end = threading.Event()
        self.thread = threading.Thread(target=self.run)

    def run(self) -> None:
        while not self.end.wait(SAMPLE_SECONDS):
            self.look(files(self.folder), time.monotonic())

    def look(self, sizes: dict[str, int], now: float) -> None:
        objects = {path for path in sizes if not path.startswith(".")}
        self.created.append((now, sum(sizes[path] for path in objects - self.known)))
        self.known |= objects
        while self.created[0][0] < now - RETAINED_SECONDS:
            self.created.popleft()
        if not self.is_loaded.is_set():
            return
        self.samples += 1
        parts, total = by_part(sizes), sum(sizes.values())
        if total > sum(self.most.values()):
            self.most = parts
        bound = 2 * self.live + sum(bytes_ for _, bytes_ in self.created)
        if total / bound > self.worst:
            self.worst, self.worst_bytes, self.worst_bound = total / bound, total, bound

    def stop(self) -> None:
        self.end.set()
        self.thread.join()


@contextlib.contextmanager
def following(url: Path, count: int) -> Iterator[None]:
    """Readers in processes of their own, each of which reads a row every second."""
    program = "import sys; from space import follow; follow(sys.argv[1])"
    command = [sys.executable, "-c", program, str(url)]
    readers = [
        subprocess.Popen(command, cwd=Path(__file__).parent, stdin=subprocess.PIPE)
        for _ in range(count)
    ]
    try:
        yield
        ended = [reader.poll() for reader in readers]
    finally:
        for reader in readers:
            reader.communicate()
    if any(code is not None for code in ended) or any(reader.returncode for reader in readers):
        raise SystemExit("a follower ended early: see its error above")


def follow(url: str) -> None:
    """Follows the database until standard input ends, and fails where the reader falls behind."""
    over = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), over.set()), daemon=True).start()
    with siltstone.open_reader(url) as reader:
        while not over.wait(1):
            reader.get(b"%0*d" % (KEY_BYTES, 0))


def overwrite(db: siltstone.Database, rows: int, turn: int, until: float | None) -> int:
    """Write every row once, or as many as there is time for; return their number."""
    value = os.urandom(VALUE_BYTES * 64)
    done = 0
    for first in range(0, rows, BATCH):
        batch = siltstone.WriteBatch()
        for number in range(first, min(first + BATCH, rows)):
            at = (number * STRIDE + turn) % rows
            start = (number * 31 + turn) % (VALUE_BYTES * 63)
            batch.put(b"%0*d" % (KEY_BYTES, at), value[start : start + VALUE_BYTES])
        db.write(batch)
        done += min(BATCH, rows - first)
        if until is not None and time.monotonic() >= until:
            break
    return done


def option(text: str) -> tuple[str, object]:
    name, _, value = text.partition("=")
    switches = {"true": True, "false": False}
    return name, switches.get(value, value)


def main() -> None:
    ask = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    ask.add_argument("--seconds", type=float, default=600, help="of overwrites")
    ask.add_argument("--live", type=int, default=1024, help="MiB of live rows")
    ask.add_argument("--folder", type=Path, help="where the database is made")
    ask.add_argument("--followers", type=int, default=0, help="readers in processes of their own")
    ask.add_argument("--option", type=option, action="append", default=[], help="name=value")
    given = ask.parse_args()
    rows = given.live * MIB // (KEY_BYTES + VALUE_BYTES)
    live = rows * (KEY_BYTES + VALUE_BYTES)
    folder = Path(tempfile.mkdtemp(prefix="space-", dir=given.folder))
    try:
        with siltstone.open(folder / "db", options=dict(given.option)) as db:
            sampler = Sampler(folder / "db", live)
            sampler.thread.start()
            overwrite(db, rows, 0, None)
            db.flush()
            with following(folder / "db", given.followers):
                sampler.is_loaded.set()
                began, written, turn = time.monotonic(), 0, 0
                until = began + given.seconds
                while time.monotonic() < until:
                    turn += 1
                    written += overwrite(db, rows, turn, until)
                db.flush()
                seconds = time.monotonic() - began
                sampler.stop()
        left = sum(files(folder / "db").values())
    finally:
        shutil.rmtree(folder)
    most = sum(sampler.most.values())
    rate = written * (KEY_BYTES + VALUE_BYTES) / seconds / 1e6
    parts = ", ".join(f"{name} {bytes_ / MIB:.0f}" for name, bytes_ in sorted(sampler.most.items()))
    lines = [
        f"{rate:.1f} MB/s over {seconds:.0f} s: {turn} passes over {live / MIB:.0f} MiB",
        f"at most {most / MIB:.0f} MiB ({parts}), of {sampler.samples} samples",
        f"of twice the live bytes and 1 GiB: {most / (2 * live + SLACK):.3f}",
        f"of twice the live bytes and what {RETAINED_SECONDS} s created: {sampler.worst:.3f}",
        f"  there {sampler.worst_bytes / MIB:.0f} of {sampler.worst_bound / MIB:.0f} MiB",
        f"after close: {left / MIB:.0f} MiB, {left / live:.2f} times the live bytes",
    ]
    print("\n".join(lines))  # noqa: T201
    if given.followers and sampler.worst >= 1:
        raise SystemExit("the folder was larger than it may be beside followers")


if __name__ == "__main__":
    main()
