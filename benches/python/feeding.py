"""The speed at which a consumer reads the change feed to Arrow.

    python benches/python/feeding.py [--rows N] [--turns N] [--folder PATH]

Rows of 16 B keys and 100 B values are put in batches, and others are added by one ingest; a
consumer retains both. Then one process reads all of them, turn by turn, from the same token: rows
per second, one Python thread, the best turn. The target is a million.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

import pyarrow as pa

import siltstone
from siltstone import changes

BATCH_ROWS = 10_000
VALUE = b"v" * 100


def pairs(first: int, rows: int) -> pa.Table:
    """This many rows in key order."""
    keys = [b"%016d" % number for number in range(first, first + rows)]
    return pa.table({"key": keys, "value": [VALUE] * rows})


def read(url: Path, since: str, until: str, rows: int) -> float:
    """Rows per second of one read."""
    began = time.perf_counter()
    found = sum(len(batch) for batch in changes.read(url, since, until))
    took = time.perf_counter() - began
    if found != rows:
        raise RuntimeError(f"{found:,} changes were told, not {rows:,}")
    return rows / took


def main() -> None:
    """Measure, and print a line for each kind."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--folder", type=Path, help="an existing one; a temporary one by default")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=asked.folder) as scratch:
        url = Path(scratch) / "db"
        with siltstone.open(url) as db:
            start = changes.begin(url, since="latest", consumer="bench").token
            for first in range(0, asked.rows, BATCH_ROWS):
                db.write(pairs(first, BATCH_ROWS))
            db.flush()
            middle = changes.latest(url)
            db.load(pairs(asked.rows, asked.rows), sorted=True)
            db.flush()
            end = changes.latest(url)
        for what, since, until in (("put", start, middle), ("loaded", middle, end)):
            best = max(read(url, since, until, asked.rows) for _ in range(asked.turns))
            sys.stdout.write(f"{what}: {asked.rows:,} rows, {best:,.0f} rows a second\n")


if __name__ == "__main__":
    main()
