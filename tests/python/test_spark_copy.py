"""docs/spark-copy.md: a Parquet or Delta copy equals its table after a random history."""

from __future__ import annotations

import importlib.util
import os
import random
from datetime import date, timedelta
from decimal import Decimal
from importlib import metadata
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import siltstone
import siltstone.spark as kv
from pace_for_tests import finished
from siltstone import changes, table
from spark_versions_for_tests import (
    CLASSIC,
    STREAM_SINKS,
    STREAM_SOURCES,
    frame_of_table,
    version,
)
from test_docs import ROOT, examples

pytest_plugins = ["spark_for_tests"]
pytestmark = [pytest.mark.slow, STREAM_SINKS]

PAGE = ROOT / "docs" / "spark-copy.md"
SEED = int(os.environ.get("SILTSTONE_COPY_SEED", "0"))
HAS_DELTA = importlib.util.find_spec("delta") is not None
COLUMNS = pa.schema(
    [
        pa.field("country", pa.string()),
        pa.field("day", pa.date32(), nullable=False),
        pa.field("n", pa.int64()),
        pa.field("price", pa.decimal128(9, 2)),
        pa.field("tags", pa.list_(pa.string())),
    ]
)
KEY = ["country desc nulls last", "day"]
COUNTRIES = ["", "DE", "D\0", "É", None]
FIRST = date(1969, 12, 30)


@pytest.fixture(scope="module")
def session_settings() -> dict[str, str]:
    """Sessions with Delta, if it is installed."""
    zone = {"spark.sql.session.timeZone": "Asia/Kolkata"}
    if not HAS_DELTA:
        return zone
    artifact = "delta-spark_{}.{}_2.13".format(*version())
    return zone | {
        "spark.jars.packages": f"io.delta:{artifact}:{metadata.version('delta-spark')}",
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    }


def recipe(spark, url: str, folder: Path) -> dict[str, Any]:
    """The names of the page, with its functions. The other blocks do not run."""
    names: dict[str, Any] = {"spark": spark, "url": url, "key": ["country", "day"]}
    blocks = examples(PAGE.read_text())
    head = "\n".join(line for line in blocks[0].splitlines() if "import " in line)
    for block in [head, *(block for block in blocks if "def " in block)]:
        exec(compile(block, PAGE.name, "exec"), names)
    names |= {"lake": folder / "lake", "delta": str(folder / "delta")}
    return names


class History:
    """Random changes of a table, by all ways of writing one."""

    def __init__(self, spark, url: str, seed: int) -> None:
        self.spark, self.url, self.random = spark, url, random.Random(seed)
        table.create(url, COLUMNS, key=KEY).close()

    def rows(self, most: int, names: tuple[str, ...] = tuple(COLUMNS.names)) -> pa.Table:
        """Rows with different keys."""
        draw = self.random
        keys = {(draw.choice(COUNTRIES), draw.randrange(5)) for _ in range(draw.randint(1, most))}
        ordered = sorted(keys, key=repr)
        found = {
            "country": [country for country, _ in ordered],
            "day": [FIRST + timedelta(days=day) for _, day in ordered],
            "n": [draw.choice([None, draw.randrange(100)]) for _ in keys],
            "price": [Decimal(draw.randrange(-500, 500)) / 100 for _ in keys],
            "tags": [draw.choice([None, [], ["a", None]]) for _ in keys],
        }
        return pa.table(found, schema=COLUMNS).select(list(names))

    def frame(self, most: int, *names: str) -> Any:
        rows = self.rows(most, names or tuple(COLUMNS.names))
        return frame_of_table(self.spark, rows)

    def change(self) -> None:
        """One random change. Those without Spark are quick, and frequent."""
        draw = self.random
        quick = [self.put, self.put, self.put, self.delete, self.put, self.delete_range]
        slow = [self.load, self.merge, self.update, self.replace, self.overwrite, self.delete_keys]
        draw.choice([*quick * 3, *slow])()

    def put(self) -> None:
        with siltstone.open(self.url) as db:
            db.table.put(self.rows(6)).wait()

    def delete(self) -> None:
        with siltstone.open(self.url) as db:
            db.table.delete(self.rows(4).select(["country", "day"])).wait()

    def delete_range(self) -> None:
        draw = self.random
        country = draw.choice(COUNTRIES)
        if draw.random() < 0.5:
            kv.delete(self.url, where={"country": country})
            return
        bound = draw.choice(["start", "end"])
        day = FIRST + timedelta(days=draw.randrange(5))
        kv.delete(self.url, where={"country": country}, **{bound: day})

    def load(self) -> None:
        kv.bulk_load(self.frame(8), self.url, key=KEY, layout="runs")

    def merge(self) -> None:
        kv.merge(self.frame(8), self.url, key=KEY)

    def update(self) -> None:
        kv.update_columns(self.frame(8, "country", "day", "n"), self.url, key=KEY)

    def delete_keys(self) -> None:
        kv.delete(self.frame(4, "country", "day"), self.url, key=["country", "day"])

    def replace(self) -> None:
        rows = self.frame(9).where("country = 'DE'")
        kv.bulk_load(rows, self.url, key=KEY, mode="replace_range", replace={"country": "DE"})

    def overwrite(self) -> None:
        kv.bulk_load(self.frame(12), self.url, key=KEY, mode="overwrite", layout="runs")


def check(spark, url: str, copy) -> None:
    """Checks that a copy has the rows of the table."""
    columns = kv.scan(spark, url).columns
    found = sorted(map(repr, copy.select(columns).collect()))
    assert found == sorted(map(repr, kv.scan(spark, url).collect()))


class Away(Exception):
    """A planted failure."""


def test_a_parquet_copy_follows_batch_by_batch(spark, url, tmp_path: Path) -> None:
    names, history = recipe(spark, url, tmp_path), History(spark, url, SEED)
    publish = names["publish"]

    def failing(version: int, token: str) -> None:
        raise Away

    for _ in range(3):
        history.put()
    names["export"]()
    for step in range(4):
        for _ in range(history.random.randint(1, 5)):
            history.change()
        if step == 2:
            with siltstone.open(url) as db:
                db.table.add_column(pa.field("note", pa.string()))
                db.table.put([{"country": "new", "day": FIRST, "note": "x"}]).wait()
        if step % 2:
            # The driver dies between the rows of a batch and their publication.
            names["publish"] = failing
            with pytest.raises(Away):
                names["follow"](3)
            names["publish"] = publish
        names["follow"](history.random.choice([3, 1000]))
        version, token = names["newest"]()
        assert token == changes.latest(url)
        check(spark, url, spark.read.parquet(names["rows_of"](version)))


@STREAM_SOURCES
@CLASSIC
def test_a_parquet_copy_follows_a_stream(spark, url, tmp_path: Path) -> None:
    names, history = recipe(spark, url, tmp_path), History(spark, url, SEED + 1)
    history.put()
    names["export"]()
    _, names["start"] = names["newest"]()
    write = names["write_batch"]
    for step in range(3):
        for _ in range(3):
            history.change()
        if step % 2:

            def dying(batch, number) -> None:
                write(batch, number)
                raise Away

            # The driver dies between the publication of a batch and Spark's record of it.
            names["write_batch"] = dying
            with pytest.raises(Exception, match="Away"):
                names["stream"]()
            names["write_batch"] = write
        names["stream"]()
        check(spark, url, spark.read.parquet(names["rows_of"](names["newest"]()[0])))


@STREAM_SOURCES
@CLASSIC
@pytest.mark.skipif(not HAS_DELTA, reason="delta-spark is missing")
def test_a_delta_copy_follows_a_stream(spark, url, tmp_path: Path) -> None:
    names, history = recipe(spark, url, tmp_path), History(spark, url, SEED + 2)
    history.put()
    token = names["export_to_delta"]()
    write = names["merge_into_delta"]

    def follow(function) -> None:
        feed = spark.readStream.format("siltstone").option("readChangeFeed", "true")
        feed = feed.options(startingAt=token, consumer="delta").load(url)
        writing = feed.writeStream.foreachBatch(function)
        writing = writing.option("checkpointLocation", str(tmp_path / "checkpoint"))
        finished(writing.trigger(availableNow=True).start())

    def dying(batch, number) -> None:
        write(batch, number)
        raise Away

    for step in range(3):
        for _ in range(4):
            history.change()
        if step % 2:
            with pytest.raises(Exception, match="Away"):
                follow(dying)
        follow(write)
        check(spark, url, spark.read.format("delta").load(names["delta"]))


def test_a_copy_of_operands_follows(spark, url, tmp_path: Path) -> None:
    names, draw = recipe(spark, url, tmp_path), random.Random(SEED)
    with siltstone.open(url, merge_operator="sum_i64") as db:
        db.merge(b"k1", (1).to_bytes(8, "little")).wait()
        feed = db.changes(since="snapshot", consumer="lake")
        copy = kv.scan(spark, url, checkpoint=feed.checkpoint)
        for _ in range(60):
            key, other = (b"k%d" % draw.randrange(6) for _ in range(2))
            number = draw.randrange(-(1 << 63), 1 << 63).to_bytes(8, "little", signed=True)
            act = draw.choice(["merge", "merge", "merge", "put", "delete", "range"])
            if act == "range":
                db.delete_range(min(key, other), max(key, other) + b"\0")
            else:
                getattr(db, act)(*((key,) if act == "delete" else (key, number)))
        db.flush()
        wanted = dict(db.scan())
    copied = names["applied_bytes"](copy, kv.changes(spark, url, since=feed.token)).collect()
    assert {bytes(row.key): bytes(row.value) for row in copied} == wanted
    assert len(copied) == len(wanted)


def test_encoded_keys_are_those_of_the_table(spark, url) -> None:
    history = History(spark, url, SEED)
    rows = history.rows(20)
    stored = kv.encode_key(url)
    spark.udf.register("stored_key", stored)
    frame = frame_of_table(spark, rows)
    found = frame.select(stored("country", "day").alias("k")).collect()
    with siltstone.open_reader(url) as reader:
        wanted = pa.array(table.encode_key(reader.table.schema, rows)).to_pylist()
    assert [bytes(row.k) for row in found] == wanted
    frame.createOrReplaceTempView("rows_of_encode_key")
    told = spark.sql("SELECT stored_key(country, day) AS k FROM rows_of_encode_key").collect()
    assert [bytes(row.k) for row in told] == wanted
    nothing = spark.sql("SELECT 'DE' AS country, CAST(null AS date) AS day")
    assert nothing.select(stored("country", "day").alias("k")).first().k is None
    for columns, text in (
        (["country"], "1 columns were given"),
        (["day", "country"], "cast it to string"),
        (["country", "country"], "cast it to date"),
    ):
        with pytest.raises(Exception, match=text):
            frame.select(stored(*columns)).collect()


def test_the_key_of_a_database_of_bytes_is_its_column(spark, url) -> None:
    siltstone.open(url).close()
    frame = spark.sql("SELECT 'a' AS k, CAST('b' AS binary) AS b")
    stored = kv.encode_key(url)
    row = frame.select(stored("k").alias("k"), stored(frame.b).alias("b")).first()
    assert (bytes(row.k), bytes(row.b)) == (b"a", b"b")
    with pytest.raises(siltstone.NotFound):
        kv.encode_key(url + "-missing")
