"""One large database, by one engine: every step once, with its time, memory and disk space.

python benches/python/large.py [--engine NAME] [--rows N] [--folder FOLDER] [--option NAME=VALUE]

Rows of 16 B keys and 100 B values that cannot be compressed. They arrive in no order, in batches of
10,000, each one commit. Then every engine brings them where it reads them best, and is opened
again for the reads: each asks for other keys, chosen at random, 100,000 times (scans: 20,000). The
memory of a step is the largest of the process so far, without the pages of mapped files.

Siltstone also makes a checkpoint and a clone, collects, and is read by Spark: all rows counted,
and all values summed up by length.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from engines import Engine, engines
from machine import commit, processor

KEY_BYTES, VALUE_BYTES = 16, 100
BATCH = 10_000
STEP = 7_368_787
"""A prime: multiples of it, modulo the number of rows, reach every row once in no order."""
READS, SCANS = 100_000, 20_000
IDLE_SECONDS = 1.0
"""Without a compaction for this long, there is none to come."""
MIB = 1 << 20


def batches(rows: int) -> Iterator[pa.RecordBatch]:
    """All rows, in the order in which they arrive."""
    chance = np.random.default_rng(1)
    for first in range(0, rows, BATCH):
        numbers = np.arange(first, min(first + BATCH, rows), dtype=np.int64) * STEP % rows
        keys = keys_of(numbers)
        values = chance.integers(0, 256, len(numbers) * VALUE_BYTES, dtype=np.uint8)
        yield pa.record_batch(
            [fixed(keys, KEY_BYTES), fixed(values, VALUE_BYTES)], names=["key", "value"]
        )


def keys_of(numbers: np.ndarray) -> np.ndarray:
    """The decimal digits of the numbers, 16 bytes each."""
    powers = 10 ** np.arange(KEY_BYTES - 1, -1, -1, dtype=np.int64)
    return (numbers[:, None] // powers % 10 + ord("0")).astype(np.uint8)


def fixed(data: np.ndarray, length: int) -> pa.Array:
    """An array of binary over bytes of one length a row."""
    offsets = np.arange(0, data.size + 1, length, dtype=np.int32)
    buffers = [None, pa.py_buffer(offsets.tobytes()), pa.py_buffer(data.tobytes())]
    return pa.Array.from_buffers(pa.binary(), data.size // length, buffers)


def memory() -> int:
    """Anonymous memory of the process, in bytes."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) << 10
    raise ValueError("the kernel does not say RssAnon")


def disk(folder: Path) -> int:
    """Bytes that the files take on the disk. A sparse file takes less than its length."""
    sizes = 0
    for path, _, names in os.walk(folder):
        for name in names:
            try:
                sizes += (Path(path) / name).stat().st_blocks * 512
            except FileNotFoundError:
                continue
    return sizes


class Steps:
    """Runs steps and prints what each took."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.most = folder, 0
        self.over = threading.Event()
        threading.Thread(target=self.sample, daemon=True).start()

    def sample(self) -> None:
        while not self.over.wait(0.05):
            self.most = max(self.most, memory())

    def take(self, name: str, work: Callable[[], Any], count: int = 1) -> Any:
        begun = time.perf_counter()
        result = work()
        took = time.perf_counter() - begun
        each = f", {took / count * 1e6:.2f} us each" if count > 1 else ""
        print(  # noqa: T201
            f"{name}: {took:.3f} s{each}; memory {self.most / MIB:.0f} MiB; "
            f"disk {disk(self.folder) / MIB:.0f} MiB",
            flush=True,
        )
        return result


def wait_until_compacted(engine: Engine) -> None:
    """Until Siltstone's own compaction has nothing to do; others have compacted by themselves."""
    if engine.name != "siltstone":
        return
    engine.db.flush(memtable=True)
    last_seen = time.monotonic()
    while time.monotonic() < last_seen + IDLE_SECONDS:
        if engine.db.stats().compactions_running:
            last_seen = time.monotonic()
        time.sleep(0.1)


def reads(steps: Steps, engine: Engine, rows: int) -> None:
    chance = random.Random(2)

    def keys(count: int) -> list[bytes]:
        return [b"%016d" % chance.randrange(rows) for _ in range(count)]

    some = keys(READS)
    groups = [keys(100) for _ in range(READS // 100)]
    absent = [key + b"x" for key in keys(READS)]
    starts = keys(SCANS)
    engine.begin_reads()
    steps.take("get, present", lambda: engine.get(some), READS)
    steps.take("get, absent", lambda: engine.get(absent), READS)
    steps.take("get_many of 100, a key", lambda: engine.get_many(groups), READS)
    steps.take("scan of 50 rows", lambda: engine.scan(starts, 50), SCANS)
    found = steps.take("full scan, Arrow where there is", lambda: engine.scan_all_arrow(rows), rows)
    if found != rows:
        raise SystemExit(f"the scan found {found} of {rows} rows")
    engine.end_reads()


def siltstone_alone(steps: Steps, url: Path, rows: int) -> None:
    """Measures operations that only Siltstone has."""
    import siltstone  # noqa: PLC0415
    from siltstone import admin  # noqa: PLC0415

    with siltstone.open(url) as db:
        kept = steps.take("checkpoint", lambda: db.checkpoint(name="all"))
    clone = url.parent / "clone"
    steps.take("clone", lambda: siltstone.clone(clone, parent=url, checkpoint=kept))
    with siltstone.open(clone) as db:
        steps.take("a durable put in the clone", lambda: db.put(b"new", b"row").wait())
    steps.take("collect", lambda: admin.gc(url, min_age=0))
    verified = steps.take("verify", lambda: admin.verify(url))
    if verified.problem_count:
        raise SystemExit(f"verify found {verified.problem_count} problems")

    from pyspark.sql import SparkSession  # noqa: PLC0415
    from pyspark.sql import functions as f  # noqa: PLC0415

    from siltstone import spark as kv  # noqa: PLC0415

    spark = SparkSession.builder.master("local[2]").getOrCreate()
    spark.range(1).count()
    counted = steps.take("Spark: count", lambda: kv.count(str(url), spark=spark))
    frame = kv.scan(spark, str(url))
    total = steps.take(
        "Spark: lengths of all values",
        lambda: frame.agg(f.sum(f.length("value"))).first()[0],
    )
    spark.stop()
    if (counted, total) != (rows, rows * VALUE_BYTES):
        raise SystemExit(f"Spark found {counted} rows with {total} bytes")


def main() -> None:
    ask = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    ask.add_argument("--engine", default="siltstone", choices=sorted(engines()))
    ask.add_argument("--rows", type=int, default=100_000_000)
    ask.add_argument("--folder", type=Path, help="where the database is made")
    ask.add_argument("--option", action="append", default=[], help="NAME=VALUE, of Siltstone")
    given = ask.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="large-", dir=given.folder))
    told = " ".join([f"{given.rows:,} rows", *given.option])
    print(f"{given.engine}, {told}, {processor()}, commit {commit()}")  # noqa: T201
    engine = engines()[given.engine]()
    engine.map_bytes = 64 << 30
    engine.options = dict(option.split("=", 1) for option in given.option)
    steps = Steps(folder)
    try:
        engine.open(folder / "db")
        steps.take("write", lambda: engine.write_arrow(batches(given.rows)), given.rows)
        steps.take("compact", lambda: (engine.into_tables(), wait_until_compacted(engine)))
        steps.take("close", engine.close)
        steps.take("open", lambda: engine.open(folder / "db"))
        reads(steps, engine, given.rows)
        engine.close()
        if engine.name == "siltstone":
            siltstone_alone(steps, folder / "db", given.rows)
    finally:
        steps.over.set()
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
