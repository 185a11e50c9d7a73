"""Spark and tables with columns: either reads the values of every type that the other writes."""

from __future__ import annotations

import math
import os
import random
import re
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import siltstone
import siltstone.spark as kv
from pace_for_tests import finished
from siltstone import table
from siltstone.spark._columns import struct_of
from spark_versions_for_tests import (
    SOURCES,
    STREAM_SINKS,
    STREAM_SOURCES,
    frame_of_table,
    since,
    version,
)

pytest_plugins = ["spark_for_tests"]
pytestmark = pytest.mark.slow

NAN, INF = float("nan"), float("inf")
# Every type that both Spark and a table have, with edge values.
TYPES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "a_boolean": (pa.bool_(), [True, False]),
    "a_byte": (pa.int8(), [-128, 0, 127]),
    "a_short": (pa.int16(), [-32768, 0, 32767]),
    "an_int": (pa.int32(), [-(2**31), 0, 2**31 - 1]),
    "a_long": (pa.int64(), [-(2**63), 0, 2**63 - 1]),
    "a_float": (pa.float32(), [-INF, -1.5, -0.0, 0.0, INF, NAN]),
    "a_double": (pa.float64(), [-INF, -5e-324, -0.0, 0.0, 1e300, INF, NAN]),
    "a_decimal": (pa.decimal128(9, 2), [Decimal("-9.99"), Decimal("0.00"), Decimal("12.30")]),
    "a_large": (pa.decimal128(38, 0), [Decimal(-(10**37)), Decimal(0), Decimal(10**37)]),
    "a_date": (pa.date32(), [date(1, 1, 1), date(1969, 12, 31), date(2026, 1, 31)]),
    "an_instant": (
        pa.timestamp("us", "UTC"),
        [datetime(1960, 1, 1, 0, 0, 0, 1, UTC), datetime(2026, 3, 29, 1, 30, tzinfo=UTC)],
    ),
    "a_clock": (
        pa.timestamp("us"),
        [datetime(1, 1, 1), datetime(2026, 3, 29, 2, 30)],  # noqa: DTZ001 - clock times
    ),
    "a_text": (pa.string(), ["", "\0", "a", "a\0", "ab", "ä", "\U0001f600"]),
    "some_bytes": (pa.binary(), [b"", b"\0", b"a", b"a\0", b"\xff\0"]),
}
COLUMN_FUNCTIONS = since(4, 1, "column functions over several columns of Arrow")
KEY = ["a_double", "a_text desc nulls first", "a_decimal", "an_instant", "number"]
ROWS = 400


@pytest.fixture
def random_rows() -> pa.Table:
    """Rows of every type, in random order, with many nulls; `number` identifies a row."""
    draw = random.Random(45)
    columns = {
        name: pa.array([draw.choice([None, *values]) for _ in range(ROWS)], of)
        for name, (of, values) in TYPES.items()
    }
    numbers = list(range(ROWS))
    draw.shuffle(numbers)
    return pa.table({**columns, "number": pa.array(numbers, pa.int64())})


def frame_of(spark, rows: pa.Table):
    """Without a schema Spark would take clock times for instants."""
    if version() < (4, 0):
        return frame_of_table(spark, rows)
    return spark.createDataFrame(rows, struct_of(rows.schema))


@pytest.fixture
def flights(url: str):
    """A table with a writer, and its rows."""
    columns = pa.schema(
        [
            pa.field("country", pa.string(), nullable=False),
            pa.field("day", pa.date32(), nullable=False),
            pa.field("visits", pa.int64()),
            pa.field("note", pa.string()),
        ]
    )
    with table.create(url, columns, key=["country", "day desc"]) as db:
        db.table.put(visits())
        db.flush()
        yield db, url
    kv.release()


@pytest.fixture
def closed(flights) -> str:
    """The table without a writer: a commit from elsewhere takes the job in."""
    db, url = flights
    db.close()
    return url


def row_of(url: str, country: str, day: date) -> dict[str, Any] | None:
    with siltstone.open_reader(url) as reader:
        return reader.table.get({"country": country, "day": day})


DAYS = [date(2026, 1, 1) + timedelta(days=n) for n in range(30)]
COUNTRIES = ["AT", "BR", "DE", "DEU", "FR"]


def visits() -> list[dict[str, Any]]:
    return [
        {"country": country, "day": day, "visits": at * 100 + n, "note": None if n % 7 else "week"}
        for at, country in enumerate(COUNTRIES)
        for n, day in enumerate(DAYS)
    ]


def same(one: Any, other: Any) -> bool:
    """Compares by bits, because a float has two zeros and several NaNs."""
    if isinstance(one, float) and isinstance(other, float):
        if math.isnan(one) or math.isnan(other):
            return math.isnan(one) and math.isnan(other)
        return one == other and math.copysign(1, one) == math.copysign(1, other)
    return one == other


def of_key(name: str, value: Any) -> Any:
    """The expected value of a column of the key: -0.0 becomes 0.0."""
    return 0.0 if name == "a_double" and value == 0 else value


@pytest.mark.parametrize("layout", ["range", "runs"])
def test_every_type_comes_back(spark, url, random_rows, layout) -> None:
    """The load makes the table from the frame; keys sort as Spark sorts the columns."""
    frame = frame_of(spark, random_rows)
    done = kv.bulk_load(
        frame.repartition(3), url, key=KEY, layout=layout, duplicates="any", target_sst_bytes=9_000
    )
    assert done.rows == ROWS
    with siltstone.open_reader(url) as reader:
        assert reader.table.key == [spoken.partition(" ")[0] for spoken in KEY]
        stored = pa.table(reader.table.scan())
    by = ", ".join(KEY)
    frame.createOrReplaceTempView("random_rows")
    wanted = spark.sql(f"select number from random_rows order by {by}").collect()
    assert stored["number"].to_pylist() == [row.number for row in wanted]
    given = {row["number"]: row for row in random_rows.to_pylist()}
    ways = {"rows": stored.to_pylist()}
    if version() >= (4, 0):
        ways["scan"] = kv.scan(spark, url, partitions=3).toArrow().to_pylist()
        ways["format"] = spark.read.format("siltstone").load(url).toArrow().to_pylist()
    for way, rows in ways.items():
        assert len(rows) == ROWS, way
        for row in rows:
            for name, value in given[row["number"]].items():
                assert same(row[name], of_key(name, value)), (way, name, row[name], value)
    kv.release()


def test_types_are_those_of_spark(spark, url, random_rows) -> None:
    """In a session with another time zone than the table's: instants stay the same."""
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    try:
        frame = frame_of(spark, random_rows)
        kv.bulk_load(frame, url, key=["number"])
        scanned = kv.scan(spark, url)
        assert sorted(scanned.dtypes) == sorted(frame.dtypes)
        again = scanned
        if version() >= (4, 0):
            again = spark.read.format("siltstone").load(url)
        assert again.dtypes == scanned.dtypes
        # Compared by Spark itself, in both directions.
        assert scanned.select(*frame.columns).exceptAll(frame).count() == 0
        assert frame.exceptAll(again.select(*frame.columns)).count() == 0
    finally:
        spark.conf.unset("spark.sql.session.timeZone")
    with siltstone.open_reader(url) as reader:
        stored = pa.table(reader.table.scan()).to_pylist()
    given = {row["number"]: row["an_instant"] for row in random_rows.to_pylist()}
    assert {row["number"]: row["an_instant"] for row in stored} == given
    kv.release()


def test_types_that_spark_has_not(spark, url) -> None:
    """Larger types replace unsigned numbers; values written back must fit, or an error is
    raised."""
    columns = {
        "id": pa.array([1, 2], pa.uint32()),
        "small": pa.array([255, 0], pa.uint8()),
        "huge": pa.array([2**64 - 1, None], pa.uint64()),
        "second": pa.array([0, 1], pa.timestamp("s", "Europe/Berlin")),
        "fixed": pa.array([b"ab", b"\0\0"], pa.binary(2)),
    }
    data = pa.table(columns)
    with table.create(url, data.schema, key=["id"]) as db:
        db.table.put(data)
    frame = kv.scan(spark, url)
    assert [kind for _, kind in frame.dtypes] == [
        "bigint",
        "smallint",
        "decimal(20,0)",
        "timestamp",
        "binary",
    ]
    assert [row.huge for row in frame.collect()] == [Decimal(2**64 - 1), None]
    kv.bulk_load(
        frame.selectExpr("id + 10 AS id", "small", "huge", "second", "fixed"), url, key="id"
    )
    with siltstone.open_reader(url) as reader:
        rows = pa.table(reader.table.scan())
    assert rows.slice(2).drop(["id"]) == rows.slice(0, 2).drop(["id"])
    with pytest.raises(siltstone.Invalid, match="'small'"):
        kv.bulk_load(frame.withColumn("small", frame.small - 1), url, key="id")
    with table.create(url + "-ns", pa.schema([("at", pa.timestamp("ns"))]), key=["at"]):
        pass
    with pytest.raises(siltstone.Unsupported, match="'at'"):
        kv.scan(spark, url + "-ns")
    assert kv.scan(spark, url + "-ns", as_bytes=True).count() == 0
    kv.release()


def test_a_load_and_what_it_does_about_rows(spark, flights) -> None:
    db, url = flights
    frame = frame_of_table(
        spark,
        pa.table(
            {
                "country": ["DE", "DE", "CH"],
                "day": [DAYS[0], DAYS[0], DAYS[0]],
                "visits": [7, 8, 9],
                "at": [2, 1, 1],
            }
        ),
    )
    load = {"key": ["country", "day"], "db": db, "value": "visits"}
    twice = r"several rows of the frame have the key \('DE', .*duplicates is \"error\""
    with pytest.raises(siltstone.Invalid, match=twice):
        kv.bulk_load(frame, url, **load)
    kv.bulk_load(frame, url, duplicates=("max", "at"), txn=("typed", 1), **load)
    key = {"country": "DE", "day": DAYS[0]}
    assert db.table.get(key) == {**key, "visits": 7, "note": None}
    assert kv.bulk_load(frame, url, duplicates="any", txn=("typed", 1), **load).repeated
    one = frame.where("country = 'CH'")
    kv.bulk_load(one, url, mode="replace_range", replace={"country": "CH"}, **load)
    outside = r"a row with country = 'CH', day = datetime\.date\(.*\) lies outside of the range"
    for replace in ({"country": "DE"}, (None, "AT"), ("DE", None)):
        with pytest.raises(siltstone.Invalid, match=outside):
            kv.bulk_load(one, url, mode="replace_range", replace=replace, **load)
    assert len(list(db.keys())) == len(visits()) + 1
    load["key"] = ["country", "day desc"]
    presorted = frame_of_table(spark, pa.Table.from_pylist(visits()))
    presorted = presorted.repartitionByRange(3, "country", presorted.day.desc())
    kv.bulk_load(presorted, url, mode="overwrite", layout="presorted", key=load["key"], db=db)
    assert pa.table(db.table.scan()).sort_by([("visits", "ascending")]).to_pylist() == visits()


def test_operations_and_deletes(spark, flights) -> None:
    db, url = flights
    said = pa.table(
        {
            "country": ["AT", "AT", "XX"],
            "day": DAYS[:3],
            "visits": pa.array([None, 70, None], pa.int64()),
            "note": ["gone", "kept", "never there"],
            "what": ["delete", "u", "DELETE"],
        }
    )
    kv.bulk_load(
        frame_of_table(spark, said), url, key=["country", "day"], op="what", layout="runs", db=db
    )
    assert db.table.get({"country": "AT", "day": DAYS[0]}) is None
    assert db.table.get({"country": "AT", "day": DAYS[1]})["visits"] == 70
    goes = frame_of_table(spark, pa.table({"when": DAYS, "where": ["FR"] * 30}))
    assert kv.delete(goes, url, key=["where", "when"], db=db).rows == 30
    assert pa.table(db.table.scan({"country": "FR"})).num_rows == 0
    assert len(list(db.keys())) == len(visits()) - 31


def test_columns_that_do_not_fit_are_told_and_nothing_is_added(spark, flights) -> None:
    db, url = flights
    before = list(db.items())
    good = frame_of_table(spark, pa.Table.from_pylist(visits()[:3]))
    key = ["country", "day"]
    refused = {
        "'visits' is of type string, and 'visits' of the table is of type bigint": (
            good.withColumn("visits", good.visits.cast("string")),
            {"key": key},
        ),
        "'visits' is of type int, ": (
            good.withColumn("visits", good.visits.cast("int")),
            {"key": key},
        ),
        "widen_column": (
            good.withColumn("visits", good.visits.cast("decimal(38,0)")),
            {"key": key},
        ),
        "'day' is of type timestamp": (
            good.withColumn("day", good.day.cast("timestamp")),
            {"key": key},
        ),
        "no column 'extra'": (good.selectExpr("*", "1 AS extra"), {"key": key}),
        "no column 'day'": (good.drop("day"), {"key": key}),
        "a key cannot be changed": (good, {"key": ["day", "country"]}),
        "key is ['country', 'day asc nulls last']": (
            good,
            {"key": ["country", "day asc nulls last"]},
        ),
        "of type bigint, and op is string": (good, {"key": key, "op": "visits"}),
        "no column 'what' for op": (good, {"key": key, "op": "what"}),
        "schema says not null (column: country": (
            good.selectExpr("nullif(country, 'AT') AS country", "day"),
            {"key": key},
        ),
    }
    for text, (frame, how) in refused.items():
        with pytest.raises(siltstone.Invalid, match=re.escape(text)):
            kv.bulk_load(frame, url, db=db, **how)
    intervals = spark.sql("SELECT 1 AS id, INTERVAL '1' DAY AS many")
    with pytest.raises(siltstone.Invalid, match="'many' is of type interval day"):
        kv.bulk_load(intervals, url + "-new", key=["id"])
    siltstone.open(url + "-bytes").close()
    with pytest.raises(siltstone.Invalid, match="only bytes"):
        kv.bulk_load(good, url + "-bytes", key=key)
    assert list(db.items()) == before
    assert siltstone.admin.manifest(url)["pending_ingests"] == 0


def test_columns_grow_by_commits_alone(spark, flights) -> None:
    db, url = flights
    key = {"country": "AT", "day": DAYS[0]}
    wide = frame_of_table(
        spark,
        pa.table(
            {
                "country": ["AT"],
                "day": DAYS[:1],
                "visits": pa.array([5], pa.int64()),
                "price": pa.array([1.5], pa.float64()),
            }
        ),
    )
    with pytest.raises(siltstone.Invalid, match=r"db\.table\.add_column"):
        kv.bulk_load(wide, url, key=list(key), db=db)
    old = kv.scan(spark, url)
    db.table.add_column(pa.field("price", pa.float64()))
    kv.bulk_load(wide, url, key=list(key), db=db)
    assert db.table.get(key) == {**key, "visits": 5, "note": None, "price": 1.5}
    assert old.columns == ["country", "day", "visits", "note"]
    assert old.count() == len(visits())
    new = kv.scan(spark, url, where={"country": "AT"}, columns=["price"])
    assert sorted(row.price is None for row in new.collect()) == [False] + [True] * 29


def test_parts_of_a_table(spark, flights) -> None:
    _, url = flights
    part = kv.scan(
        spark, url, where={"country": "DE"}, start=DAYS[20], end=DAYS[10], columns=["visits", "day"]
    )
    assert part.dtypes == [("visits", "bigint"), ("day", "date")]
    assert [row.day for row in part.collect()] == DAYS[20:10:-1]
    assert kv.scan(spark, url, columns=["country"], partitions=4).distinct().count() == 5
    raw = kv.scan(spark, url, as_bytes=True)
    assert raw.dtypes == [("key", "binary"), ("value", "binary")]
    assert raw.count() == len(visits())
    refused = {
        "no column 'nights'": {"columns": ["nights"]},
        "each once": {"columns": ["day", "day"]},
        "prefix is for keys that are bytes": {"prefix": b"DE"},
        "first columns": {"where": {"day": DAYS[0]}},
    }
    for text, how in refused.items():
        with pytest.raises(siltstone.Invalid, match=text):
            kv.scan(spark, url, **how)


def test_look_ups_equal_sparks_own_join(spark, flights) -> None:
    _, url = flights
    draw = random.Random(7)
    asked = pa.table(
        {
            "c": [draw.choice([None, "XX", *COUNTRIES]) for _ in range(200)],
            "d": [draw.choice([None, date(1999, 1, 1), *DAYS]) for _ in range(200)],
            "n": range(200),
        }
    )
    frame = frame_of_table(spark, asked).repartition(3)
    theirs = kv.scan(spark, url).selectExpr("country AS c", "day AS d", "visits AS v", "note AS o")
    expected = frame.join(theirs, ["c", "d"], "left").select("n", "v", "o")
    found = kv.lookup(frame, url, key=["c", "d"])
    assert found.columns == ["c", "d", "n", "visits", "note"]
    assert found.select("n", "visits", "note").exceptAll(expected).count() == 0
    inner = kv.lookup(
        frame, url, key=["c", "d"], select={"visits": "many", "country": "where"}, how="inner"
    )
    assert inner.columns == ["c", "d", "n", "many", "where"]
    assert inner.count() == expected.where("v IS NOT NULL").count()
    assert inner.where("c <> where").count() == 0
    for text, how in {
        "name one for each": {"key": ["c"]},
        "'n' is of type bigint, and 'day'": {"key": ["c", "n"]},
        "a column 'n' already": {"key": ["c", "d"], "select": {"visits": "n"}},
        "no column 'nights'": {"key": ["c", "d"], "select": ["nights"]},
    }.items():
        with pytest.raises(siltstone.Invalid, match=text):
            kv.lookup(frame, url, **how)


@COLUMN_FUNCTIONS
def test_a_column_function_gives_a_struct(spark, flights) -> None:
    _, url = flights
    function = kv.get(url, columns=["note", "visits"])
    asked = {"c": ["DE", "XX", None], "d": [DAYS[1], DAYS[1], DAYS[1]]}
    found = frame_of_table(spark, pa.table(asked)).select(function("c", "d").alias("row"))
    first, *absent = [one.row for one in found.collect()]
    assert (first.note, first.visits, absent) == (None, 201, [None, None])
    spark.udf.register("visits_of", function)
    row = spark.sql("SELECT visits_of('DE', date'2026-01-02') AS row").first().row
    assert (row.note, row.visits) == (None, 201)


def test_nulls_of_a_key_are_found(spark, url) -> None:
    """In a nullable column of the key, null is a value, as for `<=>`."""
    data = spark.sql("SELECT nullif(id, 1) AS k, string(id) AS v FROM range(3)")
    kv.bulk_load(data, url, key=["k"])
    found = kv.lookup(data.select("k"), url, key="k")
    assert {row.k: row.v for row in found.collect()} == {None: "1", 0: "0", 2: "2"}
    kv.release()


# --- the data source ------------------------------------------------------------------------------


@SOURCES
def test_the_format_has_the_columns(spark, closed) -> None:
    url = closed
    whole = spark.read.format("siltstone").option("numPartitions", 3).load(url)
    assert whole.dtypes == kv.scan(spark, url).dtypes
    assert whole.exceptAll(kv.scan(spark, url)).count() == 0
    some = spark.read.format("siltstone").schema("visits bigint, country string").load(url)
    assert some.columns == ["visits", "country"]
    assert some.where("country = 'FR'").agg({"visits": "sum"}).first()[0] == sum(range(400, 430))
    raw = spark.read.format("siltstone").option("asBytes", "true").load(url)
    assert raw.columns == ["key", "value"]
    with siltstone.open_reader(url) as reader:
        stored = dict(reader.items())
    assert {bytes(row.key): bytes(row.value) for row in raw.collect()} == stored
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW visits USING siltstone OPTIONS (path '{url}')")
    assert spark.sql("SELECT count(*) FROM visits WHERE note = 'week'").first()[0] == 25
    spark.sql("INSERT INTO visits VALUES ('ZZ', date'2026-01-01', 1, NULL)")
    assert row_of(url, "ZZ", DAYS[0])["visits"] == 1
    for text, how in {
        "the column of the table is of type bigint": {"schema": "visits int"},
        "no column 'nights'": {"schema": "nights int"},
        "prefix is for keys that are bytes": {"prefix": "DE"},
    }.items():
        with pytest.raises(Exception, match=text):
            spark.read.load(url, format="siltstone", **how).count()


@SOURCES
def test_the_format_writes_columns(spark, closed) -> None:
    url = closed
    rows = [{**row, "visits": 1} for row in visits()[:3]]
    frame = frame_of_table(spark, pa.Table.from_pylist(rows).drop(["note"]))
    frame.selectExpr("*", "'put' AS what").write.format("siltstone").option(
        "opColumn", "what"
    ).mode("append").save(url)
    assert row_of(url, "AT", DAYS[0])["visits"] == 1
    refused = {
        "'visits' is of type string": frame.withColumn("visits", frame.visits.cast("string")).write,
        "written by their names": frame.write.option("keyColumn", "country"),
        "no column 'extra'": frame.selectExpr("*", "1 AS extra").write,
    }
    for text, writing in refused.items():
        with pytest.raises(Exception, match=re.escape(text)):
            writing.format("siltstone").mode("append").save(url)
    raw = kv.scan(spark, url, as_bytes=True)
    raw.write.format("siltstone").option("asBytes", "true").mode("overwrite").save(url)
    assert kv.scan(spark, url).count() == len(visits())


# --- streams --------------------------------------------------------------------------------------


def add_file(source: Path, number: int, rows: list[dict[str, Any]]) -> None:
    source.mkdir(exist_ok=True)
    schema = pa.schema([("country", pa.string()), ("day", pa.date32()), ("visits", pa.int64())])
    path = source / f"{number}.parquet"
    pq.write_table(pa.Table.from_pylist(rows, schema=schema), path)
    # Spark reads the files in the order of their times.
    os.utime(path, (1_000_000_000 + number, 1_000_000_000 + number))


@pytest.mark.parametrize("way", [pytest.param("format", marks=STREAM_SINKS), "foreachBatch"])
def test_a_stream_of_rows_is_there_once(spark, closed, tmp_path, way) -> None:
    url = closed
    source, checkpoint = tmp_path / "source", tmp_path / "checkpoint"

    def run() -> None:
        stream = spark.readStream.schema("country string, day date, visits bigint")
        writing = stream.option("maxFilesPerTrigger", 1).parquet(str(source)).writeStream
        if way == "format":
            writing = writing.format("siltstone").option("path", url)
        else:
            writing = writing.foreachBatch(kv.upsert(url, key=["country", "day"]))
        writing = writing.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
        finished(writing.start())

    def at(n: int) -> dict[str, Any]:
        return {"country": "SE", "day": DAYS[n]}

    def found(*days: int) -> list[int]:
        return [row_of(url, "SE", DAYS[n])["visits"] for n in days]

    for number in range(2):
        add_file(source, number, [{**at(number), "visits": number}, {**at(9), "visits": number}])
    run()
    assert found(0, 1, 9) == [0, 1, 1]
    with siltstone.open(url) as db:
        db.table.put([{**at(9), "visits": 70}])
    # As after a crash between the commit here and Spark's own: the batch is planned again.
    (checkpoint / "commits" / "1").unlink()
    (checkpoint / "commits" / ".1.crc").unlink(missing_ok=True)
    add_file(source, 2, [{**at(2), "visits": 2}])
    run()
    assert found(0, 1, 2, 9) == [0, 1, 2, 70]


@STREAM_SOURCES
def test_changes_have_the_columns(spark, url, tmp_path) -> None:
    columns = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("name", pa.string())])
    out, checkpoint = str(tmp_path / "out"), str(tmp_path / "checkpoint")

    def follow() -> None:
        stream = spark.readStream.format("siltstone").option("readChangeFeed", "true")
        stream = stream.option("startingAt", "oldest").option("consumer", "lake").load(url)
        writing = stream.writeStream.format("parquet").option("checkpointLocation", checkpoint)
        finished(writing.trigger(availableNow=True).start(out))

    with table.create(url, columns, key=["id"]) as db:
        follow()
        db.table.put([{"id": 1, "name": "one"}, {"id": 2, "name": None}]).wait()
        db.table.delete([{"id": 1}]).wait()
        start, end = db.table.schema.range(None, 2, 5)
        db.delete_range(start, end).wait()
        follow()
        found = {
            "stream": spark.read.parquet(out).orderBy("seq"),
            "frame": kv.changes(spark, url),
        }
        for way, frame in found.items():
            assert frame.columns == ["kind", "id", "name", "seq", "time", "range"], way
            rows = [(row.kind, row.id, row.name) for row in frame.collect()]
            wanted = [
                ("put", 1, "one"),
                ("put", 2, None),
                ("delete", 1, None),
                ("delete_range", None, None),
            ]
            assert rows == wanted, way
            ranges = [row.range for row in frame.collect()]
            assert ranges[:3] == [None] * 3
            assert (bytes(ranges[3].start), bytes(ranges[3].end)) == (start, end)
        raw = kv.changes(spark, url, as_bytes=True)
        assert raw.columns == ["kind", "key", "value", "seq", "time"]
    with table.create(url + "-kind", pa.schema([("kind", pa.string())]), key=["kind"]):
        pass
    with pytest.raises(siltstone.Invalid, match="column 'kind'"):
        kv.changes(spark, url + "-kind")


@STREAM_SOURCES
def test_changes_of_replaced_ranges(spark, url, tmp_path) -> None:
    """The bounds of a range are no keys of the table: a delete of one would end the feed."""
    out, checkpoint = str(tmp_path / "out"), str(tmp_path / "checkpoint")

    def follow() -> None:
        stream = spark.readStream.format("siltstone").option("readChangeFeed", "true")
        stream = stream.option("startingAt", "oldest").option("consumer", "lake").load(url)
        writing = stream.writeStream.format("parquet").option("checkpointLocation", checkpoint)
        finished(writing.trigger(availableNow=True).start(out))

    kv.bulk_load(spark.sql("select 'x' a, int(id) b from range(3)"), url, key=["a", "b"])
    follow()
    row = spark.sql("select 'x' a, 9 b")
    begun = siltstone.changes.latest(url)
    kv.delete(url, where={"a": "x"})
    kv.bulk_load(row, url, key=["a", "b"], mode="replace_range", replace={"a": "x"})
    kv.bulk_load(row, url, key=["a", "b"], mode="overwrite")
    follow()
    wanted = [("delete_range", None, None), *[("delete_range", None, None), ("put", "x", 9)] * 2]
    found = [(one.kind, one.a, one.b) for one in kv.changes(spark, url, since=begun).collect()]
    assert found == wanted
    streamed = spark.read.parquet(out).orderBy("seq").collect()
    assert [(one.kind, one.a, one.b) for one in streamed][-5:] == wanted
