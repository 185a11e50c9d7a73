"""Two published versions of a large data set through Spark: the first one is loaded, the difference
to the second is applied as puts and deletes, and the change feed is compared with that difference.

python benches/python/published.py [--from VERSION] [--to VERSION] [--folder F]

The data are the translations and formats of all languages that Unicode publishes as JSON, in
packages of the npm registry: each leaf is a row, whose key is its path. ``npm pack`` fetches them
into the folder once.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf

import siltstone
import siltstone.spark as kv
from siltstone import changes
from spark import processor_seconds

PACKAGES = (
    "cldr-annotations-full",
    "cldr-dates-full",
    "cldr-localenames-full",
    "cldr-misc-full",
    "cldr-numbers-full",
    "cldr-units-full",
)
ROWS_OF_A_FILE = 500_000
SCHEMA = pa.schema({"key": pa.binary(), "value": pa.binary()})


def main() -> None:
    """Run all steps of the module's description; print a line per step."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--from", dest="old", default="46.0.0")
    arguments.add_argument("--to", dest="new", default="48.0.0")
    arguments.add_argument("--folder", type=Path)
    given = arguments.parse_args()
    with tempfile.TemporaryDirectory(prefix="siltstone-published-") as scratch:
        folder = given.folder or Path(scratch)
        for version in (given.old, given.new):
            fetch(folder / version, version)
        spark = session()
        try:
            run(spark, folder, given.old, given.new, Path(scratch, "db"))
        finally:
            spark.stop()


def fetch(folder: Path, version: str) -> None:
    """The rows of a version, as Parquet files."""
    rows = folder / "rows"
    if rows.exists():
        return
    packed = folder / "packed"
    packed.mkdir(parents=True, exist_ok=True)
    for package in PACKAGES:
        command = ["npm", "pack", "--silent", f"{package}@{version}"]
        subprocess.run(command, cwd=packed, check=True, stdout=subprocess.DEVNULL)
    written = folder / "writing"
    shutil.rmtree(written, ignore_errors=True)
    written.mkdir()
    batch: dict[bytes, bytes] = {}
    number = 0
    for archive in sorted(packed.glob("*.tgz")):
        for key, value in leaves_of(archive):
            batch[key] = value
            if len(batch) == ROWS_OF_A_FILE:
                write(batch, written / f"{number}.parquet")
                batch, number = {}, number + 1
    write(batch, written / f"{number}.parquet")
    written.rename(rows)


def write(batch: dict[bytes, bytes], place: Path) -> None:
    """One file of rows."""
    columns = {"key": list(batch), "value": list(batch.values())}
    pq.write_table(pa.table(columns, schema=SCHEMA), place)


def leaves_of(archive: Path) -> Iterator[tuple[bytes, bytes]]:
    """Every leaf of every file of a language; the version itself is not a leaf."""
    package = archive.name.rsplit("-", 1)[0]
    with tarfile.open(archive) as files:
        for member in files:
            name = member.name.removeprefix("package/")
            if not name.endswith(".json") or "/" not in str(Path(name).parent):
                continue
            read = files.extractfile(member)
            if read is not None:
                yield from leaves(f"{package}/{name.removesuffix('.json')}", json.load(read))


def leaves(path: str, found: Any) -> Iterator[tuple[bytes, bytes]]:
    """The leaves of a tree, by their paths."""
    if isinstance(found, dict | list):
        pairs = found.items() if isinstance(found, dict) else enumerate(found)
        for name, below in pairs:
            if name != "version":
                yield from leaves(f"{path}/{name}", below)
    else:
        yield path.encode(), str(found).encode()


def session() -> SparkSession:
    """Two slots, and memory for the difference."""
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    settings = {
        "spark.driver.memory": "3g",
        "spark.log.level": "ERROR",
        "spark.sql.shuffle.partitions": "8",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    builder = SparkSession.builder.master("local[2]")
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def run(spark: SparkSession, folder: Path, old: str, new: str, place: Path) -> None:
    """All steps, on a database that is created here."""
    url = str(place)
    siltstone.open(url).close()
    before = spark.read.parquet(str(folder / old / "rows"))
    after = spark.read.parquet(str(folder / new / "rows"))
    step(f"load {old}", lambda: kv.bulk_load(before, url, key="key", txn=("cldr", 1)).rows)
    # From here on the log is retained.
    token = changes.begin(url, since="latest", consumer="bench").token
    joined = before.withColumnRenamed("value", "was").join(after, "key", "full")
    differs = joined.where("NOT was <=> value")
    wanted = differs.selectExpr("key", "value", "if(value IS NULL, 'delete', 'put') AS kind")
    wanted = wanted.persist()
    deletes = wanted.where("kind = 'delete'").count()
    step(
        f"difference to {new}",
        lambda: kv.bulk_load(wanted, url, key="key", op="kind", txn=("cldr", 2)).rows,
    )
    step("the same once more", lambda: again(wanted, url))
    step("change feed = difference", lambda: same(kv.changes(spark, url, since=token), wanted))
    step(f"scan = {new}", lambda: same(kv.scan(spark, url), after))
    step("look-ups of what differs", lambda: looked_up(wanted, url))
    say(f"{deletes:,} of the difference are deletes")
    kv.release()


def again(wanted: Any, url: str) -> int:
    """The version exists."""
    if not kv.bulk_load(wanted, url, key="key", op="kind", txn=("cldr", 2)).repeated:
        raise AssertionError("a version was loaded twice")
    return 0


def same(found: Any, wanted: Any) -> int:
    """The number of rows of two equal frames with distinct keys.

    :raises AssertionError: if they differ.
    """
    others = [name for name in wanted.columns if name != "key"]
    expected = wanted.select("key", *(sf.col(name).alias(f"its_{name}") for name in others))
    differs = ~sf.lit(True)
    for name in others:
        differs |= ~sf.col(name).eqNullSafe(sf.col(f"its_{name}"))
    both = found.select("key", *others).join(expected, "key", "full")
    total, wrong = both.agg(sf.count("*"), sf.count_if(differs)).first() or (0, 0)
    rows = int(wanted.count())
    if wrong or total != rows:
        raise AssertionError(f"{total} rows for {rows}, and {wrong} of them differ")
    return rows


def looked_up(wanted: Any, url: str) -> int:
    """Check that each changed key has its new value, or none.

    :raises AssertionError: if one has not.
    """
    found = kv.lookup(wanted, url, key="key", select={"value": "found"})
    wrong = found.where("NOT found <=> value").count()
    if wrong:
        raise AssertionError(f"{wrong} look-ups were wrong")
    return int(wanted.count())


def step(what: str, work: Callable[[], int]) -> None:
    """Run a step, and print its number of rows and its times."""
    begun, used = time.perf_counter(), processor_seconds()
    rows = work()
    took, cost = time.perf_counter() - begun, processor_seconds() - used
    say(f"{what}: {rows:,} rows in {took:.1f} s, {cost:.1f} s of processor")


def say(text: str) -> None:
    """Print a line immediately."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
