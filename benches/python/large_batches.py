"""Batches that bypass the memtable (`skip_memtable_bytes`, RFC 0044), and the same ones through it.

    python benches/python/large_batches.py [--batches N] [--rows N] [--rounds N] [--folder PATH]
        [--json]

Rows have 16 + 100 bytes, shuffled; each batch is one Arrow table written at once. Both ways
alternate: each writes all batches into its own folder, round after round, until everything is
durable and in tables; the best round counts. Between batches a row is put and awaited, as by
another user of the handle. The output is rows per second, bytes written to the disk per byte of the
rows, and the latency of the puts.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

import siltstone

KEY_BYTES = 16
VALUE_BYTES = 100
WAYS = {"through the memtable": None, "past it": "1MiB"}


@dataclass(frozen=True)
class Written:
    """The result of one way."""

    way: str
    rows: int
    rows_per_second: float
    written_per_byte: float
    put_ms_median: float
    put_ms_longest: float
    large_batches: int


def tables(batches: int, rows: int) -> list[pa.Table]:
    """The batches, all with different keys."""
    source = np.random.default_rng(7)

    def column(width: int) -> pa.Array:
        data = pa.py_buffer(source.bytes(rows * width))
        offsets = pa.py_buffer(np.arange(0, (rows + 1) * width, width, dtype=np.int32))
        return pa.Array.from_buffers(pa.binary(), rows, [None, offsets, data])

    made = [{"key": column(KEY_BYTES), "value": column(VALUE_BYTES)} for _ in range(batches)]
    return [pa.table(columns) for columns in made]


def written_bytes() -> int:
    """Bytes that this process has written to the disk."""
    lines = Path("/proc/self/io").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("write_bytes"))


def measure(way: str, batches: list[pa.Table], folder: Path) -> Written:
    """One round; the additional writes of a compaction are excluded for both."""
    options = {"embedded_compactor": False, "l0_max_ssts": 2000}
    if WAYS[way] is not None:
        options["writes"] = {"skip_memtable_bytes": WAYS[way]}
    rows = sum(batch.num_rows for batch in batches)
    before, puts = written_bytes(), []
    with siltstone.open(folder, options=options) as db:
        began = time.perf_counter()
        for number, batch in enumerate(batches):
            db.write(batch)
            put = time.perf_counter()
            db.put(b"other%08d" % number, b"v" * VALUE_BYTES).wait()
            puts.append((time.perf_counter() - put) * 1e3)
        db.flush(memtable=True)
        took = time.perf_counter() - began
        large = db.stats().large_batches
    puts.sort()
    return Written(
        way=way,
        rows=rows,
        rows_per_second=rows / took,
        written_per_byte=(written_bytes() - before) / (rows * (KEY_BYTES + VALUE_BYTES)),
        put_ms_median=puts[len(puts) // 2],
        put_ms_longest=puts[-1],
        large_batches=large,
    )


def main() -> None:
    """The program."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--batches", type=int, default=20)
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    batches = tables(given.batches, given.rows)
    best: dict[str, Written] = {}
    for _ in range(given.rounds):
        for way in WAYS:
            with tempfile.TemporaryDirectory(prefix="large", dir=given.folder) as folder:
                found = measure(way, batches, Path(folder) / "db")
            if way not in best or found.rows_per_second > best[way].rows_per_second:
                best[way] = found
    if given.json:
        sys.stdout.write(json.dumps([asdict(found) for found in best.values()]) + "\n")
        return
    for found in best.values():
        sys.stdout.write(f"{found.way}\n")
        for name, value in asdict(found).items():
            if name != "way":
                sys.stdout.write(f"  {name}\t{value:,.3f}\n")


if __name__ == "__main__":
    main()
