"""The cost and the savings of compression: the same rows with and without each codec, in turns.

python benches/python/compression.py [--rows N] [--turns N] [--codecs none,lz4,zstd] [--folder F]

Keys of 16 random bytes; values of about 100 B as programs write them, JSON of an order: names
repeat, numbers do not. Figures are of the whole process, background threads included: seconds of
processor time, which depend little on other processes, and seconds of wall time. The best turn
counts. `get, cache small` reads with a block cache of 32 MiB, as a worker of a cluster has: nearly
every look-up decompresses a block. `--folder s3://…` measures an object store.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa

import siltstone
from space import size
from work import BATCH, KEY_BYTES

SMALL_CACHE = 32 << 20
CITIES = ["Accra", "Bergen", "Cork", "Denver", "Essen", "Faro", "Gdansk", "Hanoi", "Izmir"]
STATES = ["ordered", "packed", "sent", "delivered", "returned"]

Figures = dict[str, tuple[float, float]]
"""By step: seconds of processor time and of wall time."""


def value(source: random.Random) -> bytes:
    """One order."""
    order = {
        "id": source.getrandbits(40),
        "city": source.choice(CITIES),
        "state": source.choice(STATES),
        "cents": source.randrange(1_000_000),
        "at": 1_790_000_000 + source.randrange(10_000_000),
        "items": source.randrange(1, 9),
    }
    return json.dumps(order).encode()


def timed(work: Callable[[], Any]) -> tuple[float, float]:
    """Seconds of processor time and of wall time."""
    processor, clock = time.process_time(), time.perf_counter()
    work()
    return time.process_time() - processor, time.perf_counter() - clock


def turn(folder: str, codec: str, rows: list[tuple[bytes, bytes]], gets: list[bytes]) -> Figures:
    """Load, compact and read one database."""
    figures: Figures = {}
    batches = [
        ([key for key, _ in part], [value for _, value in part])
        for part in (rows[at : at + BATCH] for at in range(0, len(rows), BATCH))
    ]
    options = {"compression": codec}

    def load() -> None:
        for keys, values in batches:
            db.put_many(keys, values)
        db.flush(memtable=True)

    def get() -> None:
        for key in gets:
            db.get(key)

    def scan() -> None:
        pa.RecordBatchReader.from_stream(db.scan().to_arrow()).read_all()

    with siltstone.open(folder, options=options) as db:
        figures["load"] = timed(load)
        figures["compact"] = timed(db.compact)
    with siltstone.open(folder, options=options) as db:
        figures["scan, cold"] = timed(scan)
        figures["scan"] = timed(scan)
        figures["get"] = timed(get)
    with siltstone.open(folder, options={**options, "block_cache_bytes": SMALL_CACHE}) as db:
        figures["get, cache small"] = timed(get)
    return figures


def table(codecs: list[str], best: dict[str, Figures], sizes: dict[str, int]) -> str:
    """One row per step: seconds of each codec, and the ratio to the first codec."""
    first = codecs[0]
    head = ["step", "of", *codecs, *(f"{first} / {codec}" for codec in codecs[1:])]
    lines = [" | ".join(head), " | ".join("--" for _ in head)]
    for step in best[first]:
        for which, name in enumerate(("processor", "clock")):
            seconds = [best[codec][step][which] for codec in codecs]
            ratios = [seconds[0] / other for other in seconds[1:]]
            shown = [*(f"{one:.3f} s" for one in seconds), *(f"{ratio:.2f}" for ratio in ratios)]
            lines.append(" | ".join([step, name, *shown]))
    if sizes:
        mib = [sizes[codec] / (1 << 20) for codec in codecs]
        shown = [*(f"{one:.1f} MiB" for one in mib), *(f"{mib[0] / one:.2f}" for one in mib[1:])]
        lines.append(" | ".join(["tables", "disk", *shown]))
    return "\n".join(lines)


def main() -> None:
    """Run all turns and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--gets", type=int, default=100_000)
    parser.add_argument("--codecs", default="none,lz4,zstd")
    parser.add_argument("--folder", help="where databases are made; a temporary folder by default")
    given = parser.parse_args()
    source = random.Random(11)
    rows = [(source.randbytes(KEY_BYTES), value(source)) for _ in range(given.rows)]
    gets = [source.choice(rows)[0] for _ in range(min(given.gets, given.rows))]
    codecs = given.codecs.split(",")
    best: dict[str, Figures] = {}
    sizes: dict[str, int] = {}
    home = given.folder or tempfile.mkdtemp(prefix="compression-")
    try:
        for number in range(given.turns):
            for codec in codecs if number % 2 == 0 else reversed(codecs):
                folder = f"{home}/{codec}-{number}"
                found = turn(folder, codec, rows, gets)
                kept = best.setdefault(codec, found)
                for step, seconds in found.items():
                    kept[step] = min(kept[step], seconds)
                if "://" not in home:
                    sizes[codec] = size(Path(folder))["compacted"]
                    shutil.rmtree(folder)
    finally:
        if given.folder is None:
            shutil.rmtree(home)
    sys.stdout.write(table(codecs, best, sizes) + "\n")


if __name__ == "__main__":
    main()
