"""The disk space of a database while it is overwritten at full speed.

python benches/python/space.py [--seconds N] [--live MIB] [--folder FOLDER] [--option NAME=VALUE]

Rows of 16 B keys and 100 B values, as many as the live bytes; each pass overwrites all of them in a
different order. The folder's size is sampled every 100 ms, staged files included, after all rows
have been written once. Required with default options: at every moment less than twice the live
bytes plus 1 GiB. Live bytes are those of keys and values.

The cost of the collector is the difference to a run with `--option embedded_gc=false`, in turns.
"""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
import threading
import time
from pathlib import Path

import siltstone
from work import BATCH, KEY_BYTES, VALUE_BYTES

SAMPLE_SECONDS = 0.1
MIB = 1 << 20
SLACK = 1024 * MIB
STRIDE = 7_919
"""A prime: steps of this size, from a different start in each pass, reach every row once."""


def size(folder: Path) -> dict[str, int]:
    """The bytes of all files, by their folder under the root."""
    sizes: dict[str, int] = {}
    for path, _, names in os.walk(folder):
        part = Path(path).relative_to(folder).parts[:1]
        for name in names:
            try:
                found = (Path(path) / name).stat().st_size
            except FileNotFoundError:
                continue
            key = part[0] if part else ""
            sizes[key] = sizes.get(key, 0) + found
    return sizes


class Sampler:
    """Samples a folder until it is stopped, and keeps the largest sample."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.samples = folder, 0
        self.most: dict[str, int] = {}
        self.end = threading.Event()
        self.thread = threading.Thread(target=self.run)

    def run(self) -> None:
        while not self.end.wait(SAMPLE_SECONDS):
            now = size(self.folder)
            self.samples += 1
            if sum(now.values()) > sum(self.most.values()):
                self.most = now

    def stop(self) -> None:
        self.end.set()
        self.thread.join()


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
    ask.add_argument("--option", type=option, action="append", default=[], help="name=value")
    given = ask.parse_args()
    rows = given.live * MIB // (KEY_BYTES + VALUE_BYTES)
    live = rows * (KEY_BYTES + VALUE_BYTES)
    folder = Path(tempfile.mkdtemp(prefix="space-", dir=given.folder))
    try:
        with siltstone.open(folder / "db", options=dict(given.option)) as db:
            overwrite(db, rows, 0, None)
            db.flush()
            sampler = Sampler(folder / "db")
            sampler.thread.start()
            began, written, turn = time.monotonic(), 0, 0
            until = began + given.seconds
            while time.monotonic() < until:
                turn += 1
                written += overwrite(db, rows, turn, until)
            db.flush()
            seconds = time.monotonic() - began
            sampler.stop()
        left = sum(size(folder / "db").values())
    finally:
        shutil.rmtree(folder)
    most = sum(sampler.most.values())
    rate = written * (KEY_BYTES + VALUE_BYTES) / seconds / 1e6
    parts = ", ".join(f"{name} {bytes_ / MIB:.0f}" for name, bytes_ in sorted(sampler.most.items()))
    lines = [
        f"{rate:.1f} MB/s over {seconds:.0f} s: {turn} passes over {live / MIB:.0f} MiB",
        f"at most {most / MIB:.0f} MiB ({parts}), of {sampler.samples} samples",
        f"of twice the live bytes and 1 GiB: {most / (2 * live + SLACK):.3f}",
        f"after close: {left / MIB:.0f} MiB, {left / live:.2f} times the live bytes",
    ]
    print("\n".join(lines))  # noqa: T201


if __name__ == "__main__":
    main()
