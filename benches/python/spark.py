"""The cost of Spark's reads and loads compared with Parquet, in seconds of processor time of the
whole tree of processes.

python benches/python/spark.py [--rows N] [--turns N] [--folder F]

Rows of 16 B random keys and 100 B random values are in a compacted database, and in one sorted
snappy Parquet file per slot. In turns, on two slots: a scan of both columns without output, by
Spark's own Parquet reader, by `siltstone.spark.scan` and by `format("siltstone")`; and as many keys
in another order, passed to a function without work, and to `siltstone.spark.lookup`. JVM and
workers are included, so other processes hardly matter. The best turn counts. The figure of a
look-up is the time above the function without work; `get_many` beside it processes the same batches
in one process. Then the rows, in that other order, are written: as sorted snappy Parquet, and by
`siltstone.spark.bulk_load` in layouts "range" and "runs", each into its own place.

The same for a table with columns: two numbers as key (16 B), and as value two numbers, a double and
a text (100 B as stored), compared with a database of the same stored bytes.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

import siltstone
import siltstone.spark as kv
from siltstone import table

SLOTS = 2
TASKS = 8
"""Key ranges in which rows are written: one task per range."""
BATCH = 10_000
"""Keys per batch: the default of Spark."""
COLUMNS = [
    pa.field("high", pa.int64(), nullable=False),
    pa.field("low", pa.int64(), nullable=False),
    pa.field("first", pa.int64()),
    pa.field("second", pa.int64()),
    pa.field("share", pa.float64()),
    pa.field("text", pa.string()),
]
"""Columns of the table: the first two are its key."""
KEY = ["high", "low"]
TICK = os.sysconf("SC_CLK_TCK")


def processor_seconds() -> float:
    """Processor time of this process and all its descendants, including ended ones."""
    parents: dict[int, int] = {}
    used: dict[int, float] = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        parents[int(entry.name)] = int(fields[1])
        used[int(entry.name)] = sum(map(int, fields[11:15])) / TICK
    ours = {os.getpid()}
    while more := {pid for pid, parent in parents.items() if parent in ours} - ours:
        ours |= more
    return sum(used[pid] for pid in ours)


def measured(work: Callable[[], Any]) -> float:
    """Seconds of processor time of the call."""
    before = processor_seconds()
    work()
    # Delegated work ends a moment later.
    time.sleep(0.3)
    return processor_seconds() - before


def nothing(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Return the batches unchanged."""
    yield from batches


def to_nowhere(frame: Any) -> None:
    """Read all of a frame."""
    frame.write.format("noop").mode("overwrite").save()


def prepared(folder: Path, rows: int) -> None:
    """Create the database, the Parquet files, and the keys in another order."""
    source = random.Random(rows)
    keys = sorted({source.randbytes(16) for _ in range(rows)})
    values = [source.randbytes(100) for _ in keys]
    with siltstone.open(folder / "db") as db:
        for at in range(0, len(keys), BATCH):
            db.put_many(keys[at : at + BATCH], values[at : at + BATCH])
        db.compact()
    (folder / "parquet").mkdir()
    (folder / "keys").mkdir()
    (folder / "shuffled").mkdir()
    asked = source.sample(keys, len(keys))
    share = -(-len(keys) // SLOTS)
    for slot in range(SLOTS):
        part = slice(slot * share, (slot + 1) * share)
        table = pa.table({"key": keys[part], "value": values[part]})
        pq.write_table(table, folder / "parquet" / f"{slot}.parquet")
        pq.write_table(pa.table({"key": asked[part]}), folder / "keys" / f"{slot}.parquet")
        table = pa.table({"key": asked[part], "value": values[part]})
        pq.write_table(table, folder / "shuffled" / f"{slot}.parquet")


def prepared_columns(folder: Path) -> None:
    """The same numbers as rows with columns: a table of them, the files in two orders, and a
    database of the bytes that the table has."""
    for name in ("parquet", "shuffled"):
        (folder / f"{name}-columns").mkdir()
        (folder / f"{name}-bytes").mkdir()
    with table.create(folder / "db-columns", pa.schema(COLUMNS), key=KEY) as db:
        for slot in range(SLOTS):
            for name in ("parquet", "shuffled"):
                given = pq.read_table(folder / name / f"{slot}.parquet")
                rows = as_columns(given)
                keys, values = db.table.schema.encode(rows)
                stored = pa.table({"key": pa.array(keys), "value": pa.array(values)})
                pq.write_table(rows, folder / f"{name}-columns" / f"{slot}.parquet")
                pq.write_table(stored, folder / f"{name}-bytes" / f"{slot}.parquet")
            for at in range(0, rows.num_rows, BATCH):
                db.table.put(rows.slice(at, BATCH))
        db.compact()
    with siltstone.open(folder / "db-bytes") as db:
        for slot in range(SLOTS):
            stored = pq.read_table(folder / "shuffled-bytes" / f"{slot}.parquet")
            for at in range(0, stored.num_rows, BATCH):
                db.write(stored.slice(at, BATCH))
        db.compact()


def as_columns(given: pa.Table) -> pa.Table:
    """Rows of bytes as rows of columns, of about as many bytes."""
    keys = np.frombuffer(b"".join(given["key"].to_pylist()), "<i8").reshape(-1, 2)
    bodies = np.frombuffer(b"".join(given["value"].to_pylist()), "u1").reshape(-1, 100)
    numbers = np.ascontiguousarray(bodies[:, :16]).view("<i8")
    text = pa.array([body.tobytes().hex()[:70] for body in bodies[:, 16:51]])
    columns = [keys[:, 0], keys[:, 1], numbers[:, 0], numbers[:, 1], keys[:, 0] / 3.0, text]
    arrays = [pa.array(column) for column in columns]
    return pa.Table.from_arrays(arrays, schema=pa.schema(COLUMNS))


def session() -> SparkSession:
    """A session with two slots, whose workers are this interpreter."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder = SparkSession.builder.master(f"local[{SLOTS}]")
    return (
        builder.config("spark.ui.enabled", "false").config("spark.log.level", "OFF").getOrCreate()
    )


def steps(spark: SparkSession, folder: Path) -> dict[str, Callable[[], None]]:
    """The measured reads, by name."""
    url = str(folder / "db")
    parquet = spark.read.parquet(str(folder / "parquet"))
    scanned = kv.scan(spark, url, partitions=SLOTS)
    source = spark.read.format("siltstone").option("numPartitions", SLOTS).load(url)
    keys = spark.read.parquet(str(folder / "keys"))
    handed = keys.mapInArrow(nothing, "key binary")
    found = kv.lookup(keys, url, key="key")
    frames = {
        "Parquet": parquet,
        "scan": scanned,
        "format": source,
        "nothing": handed,
        "lookup": found,
    }
    return {name: lambda frame=frame: to_nowhere(frame) for name, frame in frames.items()}


def loads(spark: SparkSession, folder: Path) -> dict[str, Callable[[], None]]:
    """The measured writes, by name."""
    shuffled = spark.read.parquet(str(folder / "shuffled"))

    def parquet() -> None:
        ordered = shuffled.repartitionByRange(TASKS, "key").sortWithinPartitions("key")
        ordered.write.mode("overwrite").parquet(str(folder / "written"))

    def load(layout: str) -> None:
        loaded(shuffled, folder / f"loaded-{layout}", "key", layout)

    return {
        "sorted Parquet": parquet,
        "bulk_load range": partial(load, "range"),
        "bulk_load runs": partial(load, "runs"),
    }


def of_columns(spark: SparkSession, folder: Path) -> dict[str, Callable[[], None]]:
    """The measurements of a table, and of the bytes as which it is stored."""
    found: dict[str, Callable[[], None]] = {}
    for kind, key in (("bytes", "key"), ("columns", KEY)):
        url = str(folder / f"db-{kind}")
        shuffled = spark.read.parquet(str(folder / f"shuffled-{kind}"))
        names = [key] if isinstance(key, str) else key
        keys = shuffled.select(*names)
        source = spark.read.format("siltstone").option("numPartitions", SLOTS).load(url)
        handed = keys.mapInArrow(nothing, keys.schema)
        frames = {
            "Parquet": spark.read.parquet(str(folder / f"parquet-{kind}")),
            "scan": kv.scan(spark, url, partitions=SLOTS),
            "format": source,
            "nothing": handed,
            "lookup": kv.lookup(keys, url, key=key),
        }
        for name, frame in frames.items():
            found[f"{name} of {kind}"] = partial(to_nowhere, frame)
        for layout in ("range", "runs"):
            found[f"bulk_load {layout} of {kind}"] = partial(
                loaded, shuffled, folder / f"loaded-{kind}", key, layout
            )
    return found


def loaded(rows: Any, url: Path, key: Any, layout: str) -> None:
    """Load rows into a new place."""
    shutil.rmtree(url, ignore_errors=True)
    if isinstance(key, str):
        siltstone.open(url).close()
    partitions = TASKS if layout == "range" else None
    done = kv.bulk_load(rows, url, key=key, layout=layout, partitions=partitions)
    assert done.seq is not None


def beside_bytes(best: dict[str, float], micro: float) -> Iterator[str]:
    """The cost of columns, one line each."""
    for kind in ("bytes", "columns"):
        best[f"lookup of {kind}"] -= best[f"nothing of {kind}"]
    for name in ("Parquet", "scan", "format", "lookup", "bulk_load range", "bulk_load runs"):
        of_bytes, of_them = best[f"{name} of bytes"], best[f"{name} of columns"]
        yield (
            f"{name} of columns: {of_them * micro:.2f}, {ratio(of_them, of_bytes)} of their bytes "
            f"({of_bytes * micro:.2f})\n"
        )


def ratio(seconds: float, base: float) -> str:
    """A ratio as it is printed. The system counts processor time in ticks, so a base of less than
    one (a difference of two measurements may be zero or negative) gives no ratio."""
    tick = 1 / os.sysconf("SC_CLK_TCK")
    return f"{seconds / base:.2f} x" if base >= tick else f"no ratio to under {tick:.2f} s"


def alone(folder: Path) -> float:
    """Processor seconds of the look-ups without Spark."""
    keys = pq.read_table(folder / "keys").column("key")
    with siltstone.open_reader(folder / "db") as reader:
        for _ in reader.scan():
            pass
        batches = pa.table({"key": keys}).to_batches(max_chunksize=BATCH)
        before = time.process_time()
        for batch in batches:
            reader.get_many(batch.column(0))
        return time.process_time() - before


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--turns", type=int, default=4)
    parser.add_argument("--folder", type=Path, help="where the files lie; a temporary one")
    asked = parser.parse_args()
    folder = Path(tempfile.mkdtemp(dir=asked.folder))
    try:
        prepared(folder, asked.rows)
        prepared_columns(folder)
        spark = session()
        best: dict[str, float] = {}
        for _ in range(asked.turns):
            works = {**steps(spark, folder), **loads(spark, folder), **of_columns(spark, folder)}
            for name, work in works.items():
                best[name] = min(best.get(name, float("inf")), measured(work))
        kv.release()
        spark.stop()
        get_many = alone(folder)
    finally:
        shutil.rmtree(folder)
    micro = 1e6 / asked.rows
    say = sys.stdout.write
    say(f"{asked.rows:,} rows, microseconds of processor a row, the best of {asked.turns} turns\n")
    for name in ("Parquet", "scan", "format"):
        say(f"{name}: {best[name] * micro:.2f}, {ratio(best[name], best['Parquet'])} Parquet\n")
    above = best["lookup"] - best["nothing"]
    say(
        f"lookup: {above * micro:.2f} above a function that does nothing "
        f"({best['nothing'] * micro:.2f}); get_many alone: {get_many * micro:.2f}\n"
    )
    for name in ("sorted Parquet", "bulk_load range", "bulk_load runs"):
        compared = ratio(best[name], best["sorted Parquet"])
        say(f"{name}: {best[name] * micro:.2f}, {compared} sorted Parquet\n")
    for line in beside_bytes(best, micro):
        say(line)


if __name__ == "__main__":
    main()
