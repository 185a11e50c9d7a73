"""The cost of layers for reads, and of tombstones for a seek.

    python benches/python/layers.py [--rows N] [--folder PATH]

The same rows of 16 + 100 random bytes, warm, first in ten or more L0 tables over four runs, then in
one run: microseconds per `get` of present and of absent keys. Then a seek over a quarter as many
tombstones, flushed and not compacted, compared with RocksDB; milliseconds.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from rocksdict import Options, Rdict

import siltstone

BATCH = 1000
ROUNDS = 7
RUNS = 4
"""Lower runs, of nine layers each."""
LAYERS = 10
"""The lowest number of L0 layers."""
ALONE = {"embedded_compactor": False, "embedded_gc": False}


def median(work: Callable[[], object]) -> float:
    """The median of some rounds, in seconds."""
    taken = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        work()
        taken.append(time.perf_counter() - start)
    return statistics.median(taken)


class Layers:
    """A database in many layers."""

    def __init__(self, folder: Path, rows: int) -> None:
        self.folder = folder
        self.random = random.Random(7)
        self.value = self.random.randbytes(100)
        self.keys: list[bytes] = []
        # 46 layers of about 200 bytes per row, memory included. Each layer is committed alone, so
        # that the number of layers is close to the wanted one.
        self.options: dict[str, float] = {
            "l0_sst_size_bytes": max(1024, rows * 200 // 46),
            "l0_manifest_commit_interval": 0.001,
        }
        with self.open({}) as db:
            while db.stats().sorted_runs < RUNS:
                self.put(db)
                db.flush(memtable=True)
                while db.stats().l0_tables >= LAYERS:
                    time.sleep(0.001)
        with self.open(ALONE) as db:
            while db.stats().l0_tables < LAYERS:
                self.put(db)
                db.flush()

    def open(self, options: dict[str, bool]) -> siltstone.Database:
        return siltstone.open(self.folder, options=self.options | options)

    def put(self, db: siltstone.Database) -> None:
        keys = [self.random.randbytes(16) for _ in range(BATCH)]
        self.keys += keys
        db.put_many(keys, [self.value] * BATCH)

    def measure(self) -> tuple[str, float, float]:
        """The location of the rows, and microseconds per get, present and absent."""
        present = self.random.choices(self.keys, k=50_000)
        absent = [self.random.randbytes(16) for _ in present]
        with self.open(ALONE) as db:
            for _ in db.scan():
                pass

            def ask(keys: list[bytes]) -> Callable[[], object]:
                return lambda: [db.get(key) for key in keys]

            times = [median(ask(keys)) / len(keys) * 1e6 for keys in (present, absent)]
            stats = db.stats()
            where = f"{stats.l0_tables} L0 tables, {stats.sorted_runs} runs"
        return where, times[0], times[1]

    def compact(self) -> None:
        with self.open(ALONE) as db:
            db.compact()


def seeks(folder: Path, tombstones: int) -> tuple[float, float]:
    """Seconds of a seek over tombstones: Siltstone's, RocksDB's."""
    keys = [b"k%09d" % n for n in range(tombstones)]
    peer = Rdict(str(folder / "rocksdict"), Options(raw_mode=True))
    with siltstone.open(folder / "siltstone", options=ALONE) as db:
        db.put_many(keys, [b"x" * 100] * len(keys))
        db.put(b"z", b"1")
    for key in keys:
        peer[key] = b"x" * 100
    peer[b"z"] = b"1"
    peer.flush()
    with siltstone.open(folder / "siltstone", options=ALONE) as db:
        for key in keys:
            db.delete(key)
    for key in keys:
        del peer[key]
    peer.flush()

    def peer_seek() -> None:
        rows = peer.iter()
        rows.seek(b"k")
        assert rows.key() == b"z"

    with siltstone.open(folder / "siltstone", options=ALONE) as db:

        def seek() -> None:
            assert next(iter(db.keys(b"k", limit=1))) == b"z"

        times = median(seek), median(peer_seek)
    peer.close()
    return times


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--folder", type=Path)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=given.folder) as folder:
        layers = Layers(Path(folder) / "layers", given.rows)
        many, present, absent = layers.measure()
        layers.compact()
        one, present_one, absent_one = layers.measure()
        tombstones = given.rows // 4
        own, peer = (seconds * 1e3 for seconds in seeks(Path(folder), tombstones))
    lines = (
        f"{len(layers.keys):,} rows; microseconds a get, present and absent",
        f"{many}: {present:.2f} {absent:.2f}",
        f"{one}: {present_one:.2f} {absent_one:.2f}",
        f"ratio: {present / present_one:.2f} {absent / absent_one:.2f}",
        f"a seek over {tombstones:,} tombstones: {own:.1f} ms, RocksDB {peer:.1f}",
    )
    sys.stdout.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
