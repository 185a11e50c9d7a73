"""Spark reads the changes of a database with the values before them."""

from __future__ import annotations

import pyarrow as pa
import pytest

import siltstone
import siltstone.spark as kv
from siltstone import table
from spark_versions_for_tests import STREAM_SOURCES

pytest_plugins = ["spark_for_tests"]
pytestmark = pytest.mark.slow

COLUMNS = pa.schema([("id", pa.int64()), ("name", pa.string()), ("n", pa.int32())])


def test_the_changes_of_bytes_have_a_binary_column(spark, url) -> None:
    with siltstone.open(url) as db:
        db.put_many([b"a", b"b"], [b"1", b"2"])
        start = db.checkpoint()
        db[b"a"] = b"3"
        db[b"c"] = b"4"
        del db[b"b"]
        db.delete_range(b"c", b"d")
        db.flush()
    expected = [("put", b"1"), ("put", None), ("delete", b"2"), ("delete_range", None)]
    for since in (start, start.id, str(start.id), start.id.hex):
        frame = kv.changes(spark, url, since=since, before=True)
        assert frame.dtypes[-1] == ("before", "binary")
        found = [(row.kind, row.before and bytes(row.before)) for row in frame.collect()]
        assert found == expected
    later = siltstone.changes.begin(url, since=start)
    later.read(1)
    frame = kv.changes(spark, url, since=later.token, before=start)
    assert [row.before and bytes(row.before) for row in frame.collect()] == [None, b"2", None]
    assert "before" not in kv.changes(spark, url, since=start).columns
    with pytest.raises(siltstone.Invalid, match="create a checkpoint"):
        kv.changes(spark, url, before=True)


def test_the_changes_of_a_table_have_a_struct(spark, url) -> None:
    rows = pa.Table.from_pylist(
        [{"id": 1, "name": "x", "n": 10}, {"id": 2, "name": None, "n": 20}], schema=COLUMNS
    )
    with table.create(url, COLUMNS, key=["id"]) as db:
        db.table.put(rows)
        start = db.checkpoint()
        db.table.put([{"id": 1, "name": "y", "n": 11}])
        db.table.put([{"id": 4, "name": "new", "n": 40}])
        db.table.delete([{"id": 2}])
        db.table.put([{"id": 2, "name": "again", "n": 21}])
        db.delete_range(*db.table.schema.range(None, 1, 9))
        db.flush()
    frame = kv.changes(spark, url, since=start, before=True)
    assert frame.dtypes[-1] == ("before", "struct<name:string,n:int>")
    found = [(row.kind, row.id, row.before and tuple(row.before)) for row in frame.collect()]
    assert found == [
        ("put", 1, ("x", 10)),
        ("put", 4, None),
        ("delete", 2, (None, 20)),
        ("put", 2, None),
        ("delete_range", None, None),
    ]
    joined = frame.where("kind = 'delete' AND before.n = 20").selectExpr("id", "before.name")
    assert [tuple(row) for row in joined.collect()] == [(2, None)]


def test_a_table_with_only_a_key(spark, url) -> None:
    columns = pa.schema([("a", pa.int64()), ("b", pa.string())])
    with table.create(url, columns, key=["a", "b"]) as db:
        db.table.put([{"a": 1, "b": "x"}])
        start = db.checkpoint()
        db.table.put([{"a": 1, "b": "x"}])
        db.table.put([{"a": 2, "b": "y"}])
        db.flush()
    frame = kv.changes(spark, url, since=start, before=True)
    found = [row.before and tuple(row.before) for row in frame.collect()]
    assert found == [(1, "x"), None]


def test_a_column_of_that_name_is_refused(spark, url) -> None:
    columns = pa.schema([("id", pa.int64()), ("Before", pa.string())])
    with table.create(url, columns, key=["id"]) as db:
        start = db.checkpoint()
        db.table.put([{"id": 1, "Before": "x"}])
        db.flush()
    with pytest.raises(siltstone.Invalid, match="column 'Before'"):
        kv.changes(spark, url, since=start, before=True)
    frame = kv.changes(spark, url, since=start)
    assert [row.Before for row in frame.collect()] == ["x"]
    frame = kv.changes(spark, url, since=start, before=True, as_bytes=True)
    assert [row.before for row in frame.collect()] == [None]


def test_the_images_keep_the_columns_of_the_frame(spark, url) -> None:
    with table.create(url, COLUMNS, key=["id"]) as db:
        db.table.put([{"id": 1, "name": "x", "n": 10}])
        start = db.checkpoint()
        frame = kv.changes(spark, url, since=start, until=None, before=True)
        db.table.put([{"id": 1, "name": "y", "n": 11}])
        db.flush()
        db.table.add_column(pa.field("more", pa.string()))
        db.table.put([{"id": 1, "name": "z", "n": 12, "more": "m"}])
        db.table.delete([{"id": 1}])
        db.flush()
    again = kv.changes(spark, url, since=start, before=True)
    assert frame.count() == 0
    found = [row.before and tuple(row.before) for row in again.collect()]
    assert found == [("x", 10, None), ("y", 11, None), ("z", 12, "m")]


@STREAM_SOURCES
def test_a_stream_names_the_frame(spark, url) -> None:
    with siltstone.open(url) as db:
        db.put(b"k", b"v").wait()
    stream = spark.readStream.format("siltstone").option("readChangeFeed", "true")
    with pytest.raises(Exception, match=r"siltstone\.spark\.changes"):
        stream.option("beforeImages", "true").load(url)
