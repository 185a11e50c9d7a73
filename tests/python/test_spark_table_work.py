"""Columns and counts, range deletes, merges, exports, and look-ups by prefix."""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import siltstone
import siltstone.spark as kv
from siltstone import table
from spark_versions_for_tests import SOURCES, frame_of_table, version

pytest_plugins = ["spark_for_tests"]
pytestmark = pytest.mark.slow


@pytest.fixture
def orders(spark, url: str) -> str:
    """A table of 20 rows: ten of DE, ten of FR."""
    frame = spark.range(20).selectExpr(
        "IF(id < 10, 'DE', 'FR') AS country", "id", "'old' AS note", "nullif(id * 2, -1) AS n"
    )
    kv.bulk_load(frame, url, key=["country", "id"])
    return url


@pytest.fixture
def pairs(spark, url: str) -> str:
    """A database of 20 rows of bytes, under two prefixes."""
    place = url + "-pairs"
    rows = spark.range(20).selectExpr(
        "concat(IF(id < 10, 'a/', 'b/'), id) AS key", "string(id) AS value"
    )
    kv.bulk_load(rows, place, key="key")
    return place


def row(url: str, country: str, id: int):
    with siltstone.open_reader(url) as reader:
        return reader.table.get({"country": country, "id": id})


# --- columns and counts ---------------------------------------------------------------------------


def test_a_view_reads_its_columns_and_its_range(spark, orders) -> None:
    frame = kv.view(spark, "visits", orders, columns=["n", "id"], where={"country": "DE"})
    assert frame.columns == ["n", "id"]
    assert spark.sql("SELECT sum(n) AS s, count(*) AS c FROM visits").first()[:] == (90, 10)
    kv.view(spark, "visits", orders, columns=["id"])
    assert spark.table("visits").count() == 20
    with pytest.raises(siltstone.Invalid, match="absent"):
        kv.view(spark, "visits", orders, columns=["absent"])


def test_rows_are_counted(spark, orders, pairs) -> None:
    assert kv.count(orders) == 20
    assert kv.count(orders, spark=spark, where={"country": "DE"}) == 10
    assert kv.count(orders, where={"country": "DE"}, start=5) == 5
    assert kv.count(pairs, prefix=b"a/") == 10
    with pytest.raises(siltstone.Invalid):
        kv.count(pairs, where={"country": "DE"})
    with pytest.raises(siltstone.NotFound, match="bulk_load"):
        kv.count(orders + "-absent")


@SOURCES
def test_columns_that_are_not_asked_for_are_not_decoded(spark, url) -> None:
    # Spark cannot hold nanoseconds, so reading this column would fail.
    schema = pa.schema([("id", pa.int64()), ("note", pa.string()), ("at", pa.timestamp("ns"))])
    with table.create(url, schema, key=["id"]) as db:
        db.table.put([{"id": 1, "note": "x", "at": None}]).wait()
    assert kv.count(url) == 1
    assert kv.view(spark, "timed", url, columns=["note"]).count() == 1
    frame = spark.read.format("siltstone").schema("note string").load(url)
    assert frame.first().note == "x"
    spark.sql(
        "CREATE OR REPLACE TEMPORARY VIEW timed (note STRING) "
        f"USING siltstone OPTIONS (path '{url}')"
    )
    assert spark.sql("SELECT note FROM timed").first().note == "x"
    with pytest.raises(siltstone.Unsupported):
        kv.scan(spark, url)


# --- deletes and merges ---------------------------------------------------------------------------


def test_a_range_is_deleted_once(spark, orders, pairs) -> None:
    done = kv.delete(orders, where={"country": "DE"}, start=5, txn=("clean", 1))
    assert done.seq is not None
    assert not done.repeated
    assert kv.count(orders) == 15
    late = spark.sql("SELECT 'DE' AS country, 7L AS id, 'late' AS note, 1L AS n")
    kv.bulk_load(late, orders, key=["country", "id"])
    assert kv.delete(orders, where={"country": "DE"}, txn=("clean", 1)).repeated
    assert kv.count(orders) == 16
    kv.delete(pairs, prefix=b"a/")
    assert kv.count(pairs) == 10
    kv.delete(pairs, start=b"b/15")
    assert kv.count(pairs) == 5


def test_a_key_with_its_orders_is_looked_up_and_deleted(spark, url) -> None:
    rows = spark.range(4).selectExpr("'DE' AS country", "id", "'x' AS note")
    key = ["country", "id desc"]
    kv.bulk_load(rows, url, key=key)
    found = kv.lookup(rows.select("country", "id"), url, key=key, how="inner")
    assert found.count() == 4
    with pytest.raises(siltstone.Invalid, match="no column 'id asc'"):
        kv.delete(rows, url, key=["country", "id asc"])
    kv.delete(rows.where("id < 3"), url, key=key)
    assert kv.count(url) == 1


def test_a_narrower_column_is_told_to_be_cast(spark, url) -> None:
    """The table needs no wider column."""
    columns = {"n": ("int", "smallint"), "x": ("double", "float")}
    columns["d"] = ("decimal(9,2)", "decimal(8,2)")
    wide = [f"cast(id AS {kind}) AS {name}" for name, (kind, _) in columns.items()]
    kv.bulk_load(spark.range(1).selectExpr("id", *wide), url, key=["id"])
    for name, (kind, narrow) in columns.items():
        frame = spark.range(1).selectExpr("id", f"cast(id AS {narrow}) AS {name}")
        with pytest.raises(siltstone.Invalid, match=re.escape(f"cast it to {kind}")) as told:
            kv.update_columns(frame, url, key=["id"])
        assert "widen" not in str(told.value)
    for kind in ("bigint", "decimal(9,3)"):
        frame = spark.range(1).selectExpr("id", f"cast(id AS {kind}) AS n")
        with pytest.raises(siltstone.Invalid, match="widen_column"):
            kv.update_columns(frame, url, key=["id"])


def test_a_delete_without_a_bound_is_refused(spark, orders) -> None:
    frame = spark.sql("SELECT 'DE' AS country, 1L AS id")
    for call in (
        lambda: kv.delete(orders),
        lambda: kv.delete(orders, key="id"),
        lambda: kv.delete(frame, orders, key=["country", "id"], where={"country": "DE"}),
        lambda: kv.delete(frame, orders),
        lambda: kv.delete(orders, where={"id": 1}),
        lambda: kv.delete(orders, prefix=b"a"),
    ):
        with pytest.raises(siltstone.Invalid):
            call()
    assert kv.count(orders) == 20
    with pytest.raises(siltstone.NotFound, match="bulk_load"):
        kv.delete(orders + "-absent", prefix=b"a")


def test_bounds_that_bound_nothing_are_refused(spark, orders, pairs) -> None:
    row = spark.sql("SELECT 'DE' AS country, 1L AS id, 'new' AS note, 1L AS n")
    pair = spark.sql("SELECT 'a/1' AS key, 'new' AS value")
    into = {"key": ["country", "id"], "mode": "replace_range"}
    for call in (
        lambda: kv.delete(orders, where={}),
        lambda: kv.delete(pairs, prefix=b""),
        lambda: kv.delete(pairs, start=b""),
        lambda: kv.delete(orders, start=b"", as_bytes=True),
        lambda: kv.bulk_load(row, orders, replace={}, **into),
        lambda: kv.bulk_load(row, orders, replace=(None, None), **into),
        lambda: kv.bulk_load(pair, pairs, key="key", mode="replace_range", replace=(None, None)),
        lambda: kv.bulk_load(pair, pairs, key="key", mode="replace_range", replace=(b"", None)),
    ):
        with pytest.raises(siltstone.Invalid, match="mode 'overwrite'"):
            call()
    assert (kv.count(orders), kv.count(pairs)) == (20, 20)
    # The way to delete every row on purpose.
    kv.bulk_load(row.limit(0), orders, key=["country", "id"], mode="overwrite")
    assert kv.count(orders) == 0


@SOURCES
def test_a_row_outside_of_the_replaced_range_is_shown(spark, orders, pairs) -> None:
    pair = spark.sql("SELECT 'a/1' AS key, 'new' AS value")
    with pytest.raises(siltstone.Invalid, match="the key b'a/1' lies outside of the range"):
        kv.bulk_load(pair, pairs, key="key", mode="replace_range", replace=("a/2", "b"))
    row = spark.sql("SELECT 'DE' AS country, 1L AS id, 'new' AS note, 1L AS n")
    writer = row.write.format("siltstone").mode("append")
    with pytest.raises(Exception, match="a row with country = 'DE', id = 1 lies outside"):
        writer.option("replaceStart", "FR").save(orders)
    assert (kv.count(orders), kv.count(pairs)) == (20, 20)


@SOURCES
def test_options_that_bound_nothing_are_refused(spark, pairs) -> None:
    pair = spark.sql("SELECT 'a/1' AS key, 'new' AS value").write.format("siltstone")
    with pytest.raises(Exception, match="mode 'overwrite'"):
        pair.mode("append").option("replaceStart", "").save(pairs)
    assert kv.count(pairs) == 20


def test_bounds_of_another_type_are_invalid(spark, orders, pairs, url) -> None:
    columns = pa.schema([("at", pa.timestamp("us", "UTC")), ("n", pa.int64())])
    timed = url + "-timed"
    table.create(timed, columns, key=["at", "n"]).close()
    naive = datetime(2026, 1, 1)  # noqa: DTZ001 - a value of another type
    for call in (
        lambda: kv.count(orders, where={"country": 5}),
        lambda: kv.count(orders, where={"country": "DE", "id": True}),
        lambda: kv.count(orders, where={"country": "DE", "id": "five"}),
        lambda: kv.count(orders, where={"country": "DE"}, start=1.5),
        lambda: kv.count(orders, end=b"DE"),
        lambda: kv.count(timed, where={"at": naive}),
        lambda: kv.count(timed, start=naive),
        lambda: kv.count(pairs, start=5),
        lambda: kv.count(pairs, prefix=5),
        lambda: kv.count(pairs, prefix="hex:0"),
        lambda: kv.scan(spark, orders, where={"country": 5}),
        lambda: kv.delete(orders, where={"country": 5}),
    ):
        with pytest.raises(siltstone.Invalid):
            call()
    row = spark.sql("SELECT 'DE' AS country, 1L AS id, 'new' AS note, 1L AS n")
    into = {"key": ["country", "id"], "mode": "replace_range"}
    for replace in ({"country": 5}, (5, 6), ("DE",), "DE"):
        with pytest.raises(siltstone.Invalid):
            kv.bulk_load(row, orders, replace=replace, **into)


def test_bounds_may_be_text(spark, orders, pairs) -> None:
    assert kv.count(orders, where={"country": "DE"}, start="3", end="5") == 2
    assert kv.count(orders, where={"country": "DE", "id": "3"}) == 1
    assert kv.count(pairs, prefix="a/") == 10
    assert kv.count(pairs, start="hex:622f", end="b/15") == 5
    assert kv.scan(spark, pairs, prefix="a/").count() == 10
    kv.delete(pairs, prefix="a/")
    assert kv.count(pairs) == 10


def changed(spark):
    return spark.sql(
        "SELECT * FROM VALUES ('DE', 1L, 'new', 7L), ('DE', 50L, 'new', 8L) "
        "AS (country, id, note, n)"
    )


def merged(spark, url: str, **named):
    named = {"key": ["country", "id"], **named}
    return kv.merge(changed(spark), url, **named)


@pytest.mark.parametrize(
    ("named", "matched", "absent"),
    [
        ({}, ("new", 7), ("new", 8)),
        ({"when_matched": ["note"]}, ("new", 2), ("new", 8)),
        ({"when_matched": ["NOTE"], "when_not_matched": None}, ("new", 2), None),
        ({"when_matched": "delete"}, None, ("new", 8)),
        ({"when_matched": "delete", "when_not_matched": None}, None, None),
        ({"when_matched": None}, ("old", 2), ("new", 8)),
    ],
)
def test_a_merge_updates_deletes_and_inserts(spark, orders, named, matched, absent) -> None:
    merged(spark, orders, **named)
    for id, expected in ((1, matched), (50, absent)):
        found = row(orders, "DE", id)
        assert (None if found is None else (found["note"], found["n"])) == expected
    assert row(orders, "DE", 2)["note"] == "old"


def test_a_merge_is_applied_once(spark, orders) -> None:
    assert merged(spark, orders, when_matched="delete", txn=("merge", 1)).rows == 2
    # A second application would insert the row that the first one deleted.
    assert merged(spark, orders, when_matched="delete", txn=("merge", 1)).repeated
    assert row(orders, "DE", 1) is None
    with pytest.raises(siltstone.Conflict):
        merged(spark, orders, txn=("merge", 0))


def test_a_merge_keeps_columns_that_the_frame_lacks(spark, orders) -> None:
    kv.merge(changed(spark).drop("n"), orders, key=["country", "id"])
    assert row(orders, "DE", 1) == {"country": "DE", "id": 1, "note": "new", "n": 2}
    assert row(orders, "DE", 50) == {"country": "DE", "id": 50, "note": "new", "n": None}


def test_a_merge_without_inserts_needs_the_columns_that_it_updates(spark, url, pairs) -> None:
    columns = pa.schema(
        [("id", pa.int64()), pa.field("note", pa.string(), nullable=False), ("n", pa.int64())]
    )
    with table.create(url, columns, key=["id"]) as db:
        db.table.put([{"id": id, "note": "old", "n": id} for id in range(3)]).wait()
    some = {"key": ["id"], "when_not_matched": None}
    keys = spark.sql("SELECT * FROM VALUES (0L), (9L) AS (id)")
    assert kv.merge(keys, url, when_matched="delete", **some).rows == 1
    update = spark.sql("SELECT * FROM VALUES (1L, 11L), (9L, 19L) AS (id, n)")
    assert kv.merge(update, url, **some).rows == 1
    assert [tuple(one) for one in kv.scan(spark, url).collect()] == [(1, "old", 11), (2, "old", 2)]
    with pytest.raises(siltstone.Invalid, match="nothing to set"):
        kv.merge(keys, url, **some)
    with pytest.raises(siltstone.Invalid, match="no column 'note'"):
        kv.merge(update, url, key=["id"])
    gone = spark.sql("SELECT * FROM VALUES ('a/1'), (''), ('c') AS (key)")
    kv.merge(gone, pairs, key="key", when_matched="delete", when_not_matched=None)
    assert kv.count(pairs) == 19
    with pytest.raises(siltstone.Invalid, match="nothing to set"):
        kv.merge(gone, pairs, key="key", when_not_matched=None)


def test_rows_of_one_key_are_named_with_a_remedy_of_merges(spark, orders, pairs) -> None:
    twice = changed(spark).where("id = 1").union(changed(spark))
    remedy = r"the key \('DE', 1\).*dropDuplicates\(\['country', 'id'\]\)"
    with pytest.raises(siltstone.Invalid, match=remedy):
        kv.merge(twice, orders, key=["country", "id"])
    with pytest.raises(siltstone.Invalid, match=remedy):
        kv.update_columns(twice, orders, key=["country", "id"])
    frame = spark.sql("SELECT * FROM VALUES ('a/1', 'x'), ('a/1', 'y') AS (k, value)")
    frame = frame.withColumnRenamed("k", "key")
    with pytest.raises(siltstone.Invalid, match=r"the key \('a/1',\).*dropDuplicates"):
        kv.merge(frame, pairs, key="key")
    kv.merge(twice.dropDuplicates(["country", "id"]), orders, key=["country", "id"])


def test_a_merge_refuses_what_it_cannot_do(spark, orders) -> None:
    twice = changed(spark).union(changed(spark))
    for call in (
        lambda: kv.merge(twice, orders, key=["country", "id"]),
        lambda: merged(spark, orders, when_matched="other"),
        lambda: merged(spark, orders, when_not_matched="other"),
        lambda: merged(spark, orders, when_matched=None, when_not_matched=None),
        lambda: merged(spark, orders, when_matched=["id"]),
        lambda: merged(spark, orders, when_matched=["absent"]),
    ):
        with pytest.raises(siltstone.Invalid):
            call()
    assert kv.count(orders) == 20
    assert row(orders, "DE", 1)["note"] == "old"


def test_a_merge_into_bytes_and_into_nothing(spark, pairs, url) -> None:
    frame = spark.sql("SELECT * FROM VALUES ('a/1', 'new'), ('c/1', 'new') AS (key, value)")
    kv.merge(frame, pairs, key="key", when_not_matched=None)
    with siltstone.open_reader(pairs) as reader:
        assert reader.get_many([b"a/1", b"a/2", b"c/1"]) == [b"new", b"2", None]
    with pytest.raises(siltstone.NotFound):
        kv.merge(frame, url + "-new", key="key", when_not_matched=None)
    kv.merge(frame, url + "-new", key="key")
    assert kv.count(url + "-new") == 2


# --- exports --------------------------------------------------------------------------------------


def test_a_checkpoint_is_exported_to_parquet(spark, orders, tmp_path) -> None:
    place = siltstone.admin.create_checkpoint(orders, lifetime=600)
    kv.delete(orders, where={"country": "DE"})
    path = str(tmp_path / "out")
    done = kv.export_parquet(spark, orders, path, checkpoint=place)
    assert (done.path, done.rows) == (path, 20)
    assert spark.read.parquet(path).select("n").agg({"n": "sum"}).first()[0] == 380
    for mode in ({}, {"mode": "error"}, {"mode": "errorIfExists"}):
        with pytest.raises(Exception, match=r"PATH_ALREADY_EXISTS|already exists"):
            kv.export_parquet(spark, orders, path, **mode)
    now = kv.export_parquet(spark, orders, path, mode="overwrite", columns=["n"])
    assert now.rows == 10
    assert spark.read.parquet(path).columns == ["n"]


def test_an_ignored_export_counts_the_rows_that_it_writes(spark, orders, tmp_path) -> None:
    path = str(tmp_path / "out")
    assert kv.export_parquet(spark, orders, path, mode="ignore").rows == 20
    for mode in ("ignore", "IGNORE"):
        assert kv.export_parquet(spark, orders, path, mode=mode).rows == 0
    assert spark.read.parquet(path).count() == 20
    with pytest.raises(Exception, match="codec"):
        kv.export_parquet(spark, orders, path + "2", mode="ignore", compression="no_codec")


@pytest.mark.parametrize(
    "txn", ["name", ("A", "7"), ("A", 7.0), ("A", True), ["A", 7], (7, 7), ("A",), ("A", None)]
)
def test_a_txn_of_another_type_is_refused(spark, orders, txn) -> None:
    kv.delete(orders, where={"country": "FR"}, txn=("A", 6))
    frame = spark.range(1).selectExpr("'DE' AS country", "id")
    key = ["country", "id"]
    calls = [
        lambda: kv.bulk_load(frame, orders, key=key, txn=txn),
        lambda: kv.delete(frame, orders, key=key, txn=txn),
        lambda: kv.delete(orders, where={"country": "DE"}, txn=txn),
        lambda: kv.merge(frame, orders, key=key, txn=txn),
        lambda: kv.update_columns(frame.selectExpr("*", "1L AS n"), orders, key=key, txn=txn),
    ]
    for call in calls:
        with pytest.raises(TypeError, match="txn must be a pair"):
            call()
    assert kv.count(orders) == 10


def test_none_for_a_key_column_without_nulls_is_named(spark, url) -> None:
    fields = [pa.field("i", pa.int32(), nullable=False), ("j", pa.int32()), ("v", pa.string())]
    with table.create(url, pa.schema(fields), key=["i", "j"]) as db:
        db.table.put([{"i": 1, "j": None, "v": "x"}, {"i": 1, "j": 2, "v": "y"}]).wait()
    assert kv.scan(spark, url, where={"i": 1, "j": None}).count() == 1
    for call in (
        lambda: kv.scan(spark, url, where={"I": None}),
        lambda: kv.delete(url, where={"i": None}),
        lambda: kv.count(url, where={"i": None}),
    ):
        with pytest.raises(siltstone.Invalid, match="'i' has no nulls"):
            call()
    with pytest.raises(siltstone.Invalid, match="no column 'zz'; the key is i, j"):
        kv.count(url, where={"zz": 1})


def test_bounds_are_refused_and_not_rounded(spark, url) -> None:
    fields = [("d", pa.decimal128(10, 2)), ("t", pa.timestamp("us", "UTC")), ("n", pa.int64())]
    with table.create(url, pa.schema(fields), key=["d", "t", "n"]) as db:
        db.table.put([{"d": Decimal("1.50"), "t": NEW_YEAR, "n": 1}]).wait()
    whole = {"d": "1.5", "t": "2026-01-01T00:00:00.0000000Z"}
    assert kv.count(url, where=whole) == 1
    assert kv.count(url, where={**whole, "t": "2026-01-01T00:00:00.000000+00:00"}) == 1
    refused = {
        "d": ("NaN", "Infinity", "1.505", "x"),
        "t": ("2026-01-01T00:00:00.0000009Z", "2026-01-01T00:00:00,1234567Z"),
    }
    for column, texts in refused.items():
        for text in texts:
            with pytest.raises(siltstone.Invalid) as error:
                kv.count(url, where={**whole, column: text})
            if text != "1.505":
                assert "give a value of that type" in str(error.value)
    with pytest.raises(siltstone.Invalid, match="only finite numbers"):
        kv.count(url, where={"d": Decimal("NaN")})


NEW_YEAR, INSTANT = datetime(2026, 1, 1, tzinfo=UTC), pa.timestamp("us", "UTC")
KEYS_THAT_DO_NOT_FIT = [
    (pa.uint8(), [7, 300, None, -1], pa.int16()),
    (pa.uint64(), [Decimal(7), Decimal(2**64), None, Decimal(-1)], pa.decimal128(20, 0)),
    (pa.timestamp("ms", "UTC"), [NEW_YEAR, NEW_YEAR.replace(microsecond=1)], INSTANT),
    (pa.binary(4), [b"abcd", b"a", b"", None, b"abcde"], pa.binary()),
]


@pytest.mark.parametrize(("kind", "keys", "theirs"), KEYS_THAT_DO_NOT_FIT)
def test_values_that_a_key_column_cannot_hold_match_nothing(spark, url, kind, keys, theirs) -> None:
    fields = [pa.field("k", kind, nullable=False), ("i", pa.int64()), ("v", pa.string())]
    with table.create(url, pa.schema(fields), key=["k", "i"]) as db:
        first = int(keys[0]) if isinstance(keys[0], Decimal) else keys[0]
        db.table.put([{"k": first, "i": 1, "v": "x"}]).wait()
    rows = {"a": pa.array(keys[::-1], theirs), "b": pa.array([1] * len(keys), pa.int64())}
    asked = frame_of_table(spark, pa.table(rows)).coalesce(1)
    expected = [None] * (len(keys) - 1) + ["x"]
    for key in (["a", "b"], ["a"]):
        found = kv.lookup(asked, url, key=key, prefix=len(key) == 1)
        assert sorted((row.v for row in found.collect()), key=str) == sorted(expected, key=str)
    loaded = asked.where("a IS NOT NULL").selectExpr("a AS k", "b AS i", "'new' AS v")
    for write in (kv.bulk_load, kv.merge):
        with pytest.raises(siltstone.Invalid, match="'k'"):
            write(loaded, url, key=["k", "i"])
    present = asked.where("a IS NOT NULL")
    assert kv.delete(present, url, key=["a", "b"]).rows == 1
    assert kv.count(url) == 0


def test_rows_whose_key_is_too_long_are_not_there(spark, orders) -> None:
    asked = spark.sql(
        "SELECT * FROM VALUES (repeat('x', 70000), 1L), ('DE', 1L), (repeat('\\\\0', 40000), 2L) "
        "AS (land, number)"
    ).coalesce(1)
    found = kv.lookup(asked, orders, key=["land", "number"]).collect()
    assert [row.note for row in found] == [None, "old", None]
    assert kv.delete(asked, orders, key=["land", "number"]).rows == 1
    assert kv.count(orders) == 19


def test_text_that_is_not_utf8_is_no_key(spark, orders) -> None:
    """Spark's strings may hold any bytes."""
    asked = spark.sql(
        "SELECT * FROM VALUES (cast(X'FF' AS STRING), 1L), ('DE', 1L), (cast(X'44FF45' AS STRING), "
        "2L) AS (land, number)"
    ).coalesce(1)
    found = kv.lookup(asked, orders, key=["land", "number"]).collect()
    assert [row.note for row in found] == [None, "old", None]
    under = kv.lookup(asked.select("land"), orders, key="land", prefix=True, how="inner")
    assert under.count() == 10
    if version() >= (4, 1):
        row = kv.get(orders)
        answers = asked.select(row("land", "number").alias("row")).collect()
        assert [None if one.row is None else one.row.note for one in answers] == [None, "old", None]
        stored = kv.encode_key(orders)
        keys = asked.select(stored("land", "number").alias("key")).collect()
        assert [one.key is None for one in keys] == [True, False, True]
    assert kv.delete(asked, orders, key=["land", "number"]).rows == 1
    for write in (kv.bulk_load, kv.merge):
        with pytest.raises(siltstone.Invalid, match=r"no UTF-8.*make_valid_utf8"):
            write(
                asked.selectExpr("land AS country", "number AS id"), orders, key=["country", "id"]
            )
    noted = spark.sql("SELECT 'DE' AS country, 1L AS id, cast(X'FF' AS STRING) AS note")
    with pytest.raises(siltstone.Invalid, match=r"no UTF-8.*make_valid_utf8"):
        kv.bulk_load(noted, orders, key=["country", "id"])
    assert kv.count(orders) == 19


def test_rows_under_a_date_that_python_has_not_are_joined(spark, url) -> None:
    days = "('-0044-03-15'), ('2026-01-01'), ('10000-01-01'), (NULL)"
    rows = spark.sql(
        "SELECT date(k) AS day, timestamp(k) AS time, n, string(k) AS note "
        f"FROM VALUES {days} AS (k) CROSS JOIN (SELECT id AS n FROM range(2))"
    )
    kv.bulk_load(rows, url, key=["day desc", "time", "n"])
    others = spark.sql(f"SELECT date(k) AS d, k FROM VALUES {days}, ('-0400-01-01') AS (k)")
    found = kv.lookup(others, url, key="d", prefix=True).select("k", "n", "note").collect()
    assert len(found) == 9
    for row in found:
        there = row.k != "-0400-01-01" and row.k is not None
        assert (row.note == row.k) if there else row.note is None
    assert sorted(str(row.n) for row in found if row.k is None) == ["0", "1"]
    instants = others.selectExpr("d", "timestamp(k) AS t", "k")
    found = kv.lookup(instants, url, key=["d", "t"], prefix=True, how="inner")
    assert found.count() == 8


# --- look-ups -------------------------------------------------------------------------------------


def test_rows_under_a_leading_part_of_the_key_are_joined(spark, orders) -> None:
    asked = spark.sql("SELECT * FROM VALUES ('DE', 1), ('XX', 2), ('DE', 3) AS (land, number)")
    found = kv.lookup(asked, orders, key=["land"], prefix=True)
    assert found.columns == ["land", "number", "id", "note", "n"]
    rows = sorted((row.number, -1 if row.id is None else row.id) for row in found.collect())
    assert rows == sorted([(2, -1)] + [(number, id) for number in (1, 3) for id in range(10)])
    inner = kv.lookup(
        asked, orders, key="land", prefix=True, how="inner", limit=2, select={"id": "order"}
    )
    assert sorted(row[:] for row in inner.collect()) == [
        ("DE", 1, 0), ("DE", 1, 1), ("DE", 3, 0), ("DE", 3, 1)
    ]  # fmt: skip
    with pytest.raises(siltstone.Invalid, match="limit"):
        kv.lookup(asked, orders, key="land", limit=2)
    with pytest.raises(siltstone.Invalid, match="limit"):
        kv.lookup(asked, orders, key="land", prefix=True, limit=0)


def test_rows_under_a_prefix_of_bytes_are_joined(spark, pairs) -> None:
    asked = frame_of_table(spark, pa.table({"part": ["a/", None, "z"], "n": [1, 2, 3]}))
    found = kv.lookup(asked, pairs, key="part", prefix=True)
    assert found.columns == ["part", "n", "key", "value"]
    assert found.count() == 12
    assert kv.lookup(asked, pairs, key="part", prefix=True, how="inner").count() == 10
    named = kv.lookup(asked, pairs, key="part", prefix=True, select={"key": "full"}, limit=1)
    assert {row.n: row.full is None for row in named.collect()} == {1: False, 2: True, 3: True}


def test_a_lookup_follows_the_writer(spark, orders) -> None:
    asked = spark.sql("SELECT 'DE' AS country, 1L AS id")
    found = kv.lookup(asked, orders, key=["country", "id"], max_staleness=0.05)
    pinned = kv.lookup(asked, orders, key=["country", "id"])
    assert found.first().note == "old"
    merged(spark, orders)
    time.sleep(0.2)
    assert found.first().note == "new"
    assert pinned.first().note == "old"
    with pytest.raises(siltstone.Invalid, match="max_staleness"):
        kv.lookup(asked, orders, key=["country", "id"], max_staleness=1, checkpoint="x")


@pytest.mark.parametrize("prefix", [False, True])
def test_a_lookup_that_follows_keeps_its_columns(spark, url, prefix) -> None:
    fields = [pa.field(name, kind) for name, kind in KINDS.items()]
    columns = {"id": 1, "small": 5, "real": 0.5, "text": "a"}
    with siltstone.table.create(url, pa.schema(fields), key=["id"]) as db:
        db.table.put([columns]).wait()
        asked = spark.sql("SELECT 1L AS asked")
        found = kv.lookup(asked, url, key="asked", prefix=prefix, max_staleness=0.05)
        before = found.first()
        db.table.add_column(pa.field("added", pa.string()))
        for name, wider in {"small": pa.int64(), "real": pa.float64(), "text": pa.binary()}.items():
            db.table.widen_column(pa.field(name, wider))
        db.table.put([{**columns, "text": b"a", "added": "x"}]).wait()
        time.sleep(0.2)
        assert found.first() == before
        for name, value in {"small": 1 << 40, "real": 0.1, "text": b"\xff"}.items():
            db.table.put([{**columns, "text": b"a", name: value}]).wait()
            time.sleep(0.2)
            with pytest.raises(siltstone.Invalid, match="make the frame again"), kv.worker_errors():
                found.collect()
        again = kv.lookup(asked, url, key="asked", prefix=prefix, max_staleness=0.05)
        assert bytes(again.first().text) == b"\xff"


KINDS = {"id": pa.int64(), "small": pa.int32(), "real": pa.float32(), "text": pa.string()}


def test_a_lookup_names_columns_that_spark_cannot_pass(spark, orders) -> None:
    refused = {
        "two columns 'X'": "1 AS x, 2 AS X",
        "'x' is of type interval month": "INTERVAL '1' MONTH AS x",
        "'x' is of type array<interval year>": "array(INTERVAL '1' YEAR) AS x",
        "'x' is of type interval, .*cast it to string": "make_interval(1) AS x",
    }
    for text, column in refused.items():
        for more in ({"key": "country", "prefix": True}, {"key": ["country", "order"]}):
            frame = spark.sql(f"SELECT 'DE' AS country, 1L AS `order`, {column}")
            with pytest.raises(siltstone.Invalid, match=text):
                kv.lookup(frame, orders, **more)
    days = spark.sql(
        "SELECT 'DE' AS c, 1L AS i, INTERVAL '1' DAY AS x, named_struct('interval', 1)"
    )
    assert kv.lookup(days, orders, key=["c", "i"]).count() == 1


def test_columns_with_dots_are_loaded_looked_up_and_merged(spark: Any, tmp_path: Path):
    """PySpark takes a dot in a name for a field of a struct."""
    url = str(tmp_path / "dots.db")
    rows = spark.createDataFrame([(1, "x"), (2, "y")], ["a.id", "a`text"])
    kv.bulk_load(rows, url, key="a.id")
    asked = spark.createDataFrame([(2,), (3,)], ["a.id"])
    found = kv.lookup(asked, url, key="a.id", how="left").collect()
    assert sorted(tuple(row) for row in found) == [(2, "y"), (3, None)]
    kv.merge(spark.createDataFrame([(3, "z")], ["a.id", "a`text"]), url, key="a.id")
    assert sorted(tuple(row) for row in kv.scan(spark, url).collect()) == [
        (1, "x"),
        (2, "y"),
        (3, "z"),
    ]


def test_wrong_kinds_of_arguments_are_named(spark: Any, tmp_path: Path):
    url = str(tmp_path / "kinds.db")
    frame = spark.createDataFrame([("DE", 1)], ["country", "n"])
    kv.bulk_load(frame, url, key="country")
    with pytest.raises(TypeError, match="the first argument is the SparkSession, not str"):
        kv.scan(url, spark)
    with pytest.raises(TypeError, match="a DataFrame of Spark, not pandas"):
        kv.bulk_load(frame.toPandas(), url, key="country")
    with pytest.raises(siltstone.exceptions.Invalid, match="use filter"):
        kv.scan(spark, url, where="country = 'DE'")  # type: ignore[arg-type]
