"""Facts that Spark gets beside rows: the size of a frame, and the error that ended a task."""

from __future__ import annotations

import os
import re
import sys
import time
from pathlib import Path

import pyarrow as pa
import pytest

import siltstone
import siltstone.spark as kv
from siltstone import table
from siltstone.spark import _tasks
from spark_versions_for_tests import CLASSIC, SOURCES, frame_of_table

pytest_plugins = ["spark_for_tests"]
pytestmark = pytest.mark.slow


def filled(url: str, rows: int, size: int) -> None:
    with siltstone.open(url, options={"compression": "none"}) as db:
        for start in range(0, rows, 1000):
            keys = [b"%05d" % n for n in range(start, min(rows, start + 1000))]
            db.put_many(keys, [os.urandom(size) for _ in keys])
        db.compact()


def estimated(frame) -> int:
    """Spark's estimate of the size of a frame in bytes."""
    return int(str(frame._jdf.queryExecution().optimizedPlan().stats().sizeInBytes()))


@CLASSIC
def test_spark_takes_a_scan_for_its_size(spark, url) -> None:
    filled(url, 60_000, 300)
    frame = kv.scan(spark, url)
    assert 18e6 <= estimated(frame) <= 30e6
    assert 18e5 <= estimated(kv.scan(spark, url, prefix=b"0")) <= 8e6
    assert estimated(kv.scan(spark, url, columns=["key"])) < estimated(frame)
    assert estimated(kv.scan(spark, url, prefix=b"none")) < 1e6
    assert frame.count() == 60_000
    assert [kv.scan(spark, url, partitions=n).count() for n in (1, 7)] == [60_000] * 2
    assert estimated(kv.changes(spark, url)) > 100e6


def test_a_join_with_a_large_scan_is_no_broadcast(spark, url, capsys) -> None:
    filled(url, 60_000, 300)
    asked = spark.range(5_000_000).selectExpr("binary(string(id)) AS key")
    for frame in (kv.scan(spark, url), kv.changes(spark, url)):
        asked.join(frame, "key").explain()
        assert "Broadcast" not in capsys.readouterr().out
    asked.join(kv.scan(spark, url, prefix=b"00001"), "key").explain()
    assert "Broadcast" in capsys.readouterr().out


@pytest.mark.parametrize("adaptive", ["true", "false"])
@pytest.mark.parametrize(("rows", "size"), [(300, 100_000), (60_000, 300)])
def test_a_join_with_a_large_lookup_is_no_broadcast(
    spark, url, capsys, adaptive, rows, size
) -> None:
    """The plan of a look-up counts the rows that it finds, not only the keys."""
    filled(url, rows, size)
    big = spark.range(20_000_000).selectExpr("binary(lpad(id, 5, '0')) AS item", "id AS other")
    asked = spark.range(rows).selectExpr("binary(lpad(id, 5, '0')) AS item")
    one = frame_of_table(spark, pa.table({"part": ["0"]}))
    chosen = {"key": "item", "value": "value"}
    parts = kv.lookup(one, url, key="part", prefix=True, select=chosen)
    spark.conf.set("spark.sql.adaptive.enabled", adaptive)
    try:
        for frame in (kv.lookup(asked, url, key="item"), parts):
            joined = big.join(frame, "item")
            joined.explain()
            assert "Broadcast" not in capsys.readouterr().out
            assert frame.count() == min(rows, 10_000 if frame is parts else rows)
            found = joined.where("other < 5").selectExpr("length(value) AS size").collect()
            assert [row["size"] for row in found] == [size] * 5
        few = kv.lookup(asked.limit(3), url, key="item")
        first = kv.lookup(one, url, key="part", prefix=True, select=chosen, limit=2)
        for frame, expected in ((few, 3), (first, 2)):
            big.join(frame, "item").explain()
            # The values of a few keys are known to be small only if all are.
            assert ("Broadcast" in capsys.readouterr().out) == (size == 300)
            assert frame.count() == expected
    finally:
        spark.conf.unset("spark.sql.adaptive.enabled")


def test_a_small_lookup_is_broadcast(spark, url, capsys) -> None:
    filled(url, 100, 100)
    big = spark.range(20_000_000).selectExpr("binary(lpad(id, 5, '0')) AS item", "id AS other")
    asked = spark.range(100).selectExpr("binary(lpad(id, 5, '0')) AS item", "'0' AS `the.part`")
    for frame in (
        kv.lookup(asked, url, key="item"),
        kv.lookup(asked, url, key="the.part", prefix=True, select={"value": "found"}),
    ):
        big.join(frame, "item").explain()
        assert "Broadcast" in capsys.readouterr().out
    assert frame.count() == 10_000


@SOURCES
def test_a_join_with_a_small_data_source_needs_a_hint(spark, url, capsys) -> None:
    """The guide says so. If this fails, data sources report a size, and the guide can change."""
    from pyspark.sql import functions as sf  # noqa: PLC0415

    filled(url, 10, 10)
    big = spark.range(20_000_000).selectExpr("binary(string(id)) AS key")
    frame = spark.read.format("siltstone").load(url)
    for right, is_broadcast in (
        (frame, False),
        (sf.broadcast(frame), True),
        (kv.view(spark, "small", url), True),
        (spark.table("small"), True),
    ):
        big.join(right, "key").explain()
        assert ("Broadcast" in capsys.readouterr().out) == is_broadcast


def damage(url: str) -> None:
    """Damages a block of each large table."""
    for path in Path(url).rglob("*.sst"):
        if path.stat().st_size > 250_000:
            with path.open("r+b") as file:
                file.seek(200_000)
                file.write(b"damage")


def of_table(url: str) -> None:
    schema = pa.schema([("id", pa.int64()), ("v", pa.binary())])
    with table.create(url, schema, key=["id"], options={"compression": "none"}) as db:
        db.table.put(pa.table({"id": range(5000), "v": [os.urandom(100) for _ in range(5000)]}))
        db.compact()


@SOURCES
@pytest.mark.parametrize("kind", ["bytes", "table"])
def test_damage_is_corruption(spark, url, kind) -> None:
    if kind == "bytes":
        filled(url, 5000, 100)
    else:
        of_table(url)
    damage(url)
    value = "value" if kind == "bytes" else "v"
    sums = f"sum(length({value}))"
    source = spark.read.format("siltstone").load(url)
    asked = source.schema.fields[0].name
    keys = spark.range(5000).selectExpr("lpad(id, 5, '0') AS key" if kind == "bytes" else "id")
    for frame in (
        kv.scan(spark, url),
        source,
        kv.lookup(keys, url, key=asked, select={value: "found"}).selectExpr(f"found AS {value}"),
    ):
        with pytest.raises(Exception, match=r"siltstone\.exceptions\.Corruption"):
            frame.selectExpr(sums).collect()
    with siltstone.open_reader(url) as reader, pytest.raises(siltstone.Corruption):
        list(_tasks.rows(reader, None, None, pa.schema([("key", pa.binary())])))


def test_rows_that_no_table_has_are_told_as_they_are(spark, url) -> None:
    of_table(url)
    with siltstone.open(url) as db:
        db.put(b"no key of the table, and longer", b"\xff no row").wait()
    with pytest.raises(Exception, match=r"siltstone\.exceptions\.(Corruption|Unsupported)"):
        kv.scan(spark, url).collect()


def test_large_answers_come_in_pieces(monkeypatch, url) -> None:
    monkeypatch.setattr(_tasks, "ANSWER_BYTES", 10_000)
    monkeypatch.setattr(_tasks, "MOST_BYTES", 40_000)
    keys = [b"%04d" % n for n in range(2000)]
    sizes = [0 if n < 1000 else 3000 if n < 1500 else 10 for n in range(2000)]
    values = [b"x" * size for size in sizes]
    with siltstone.open(url) as db:
        db.put_many(keys, values)
    asked = [*keys, None, b"absent", keys[1200]]
    batch = pa.record_batch({"n": pa.array(range(2003)), "k": pa.array(asked, pa.binary())})
    expected = [*values, None, None, values[1200]]
    import pickle  # noqa: PLC0415

    with siltstone.open_reader(url) as reader:
        pickled = pickle.dumps(reader)
        for keeps in (True, False):
            found = list(_tasks.look_up(iter([batch, batch]), pickled, "k", "v", keeps))
            rows = [(n, v) for one in found for n, v in zip(one["n"], one["v"], strict=True)]
            wanted = [(n, v) for n, v in enumerate(expected) if keeps or v is not None] * 2
            assert [(n.as_py(), v.as_py()) for n, v in rows] == wanted
            assert max(one["v"].nbytes for one in found) < 60_000


def test_large_answers_of_a_table_come_in_pieces(monkeypatch, url) -> None:
    monkeypatch.setattr(_tasks, "ANSWER_BYTES", 10_000)
    monkeypatch.setattr(_tasks, "MOST_BYTES", 40_000)
    fields = [pa.field("id", pa.int64(), nullable=False), ("v", pa.string())]
    with table.create(url, pa.schema(fields), key=["id"]) as db:
        db.table.put([{"id": n, "v": "x" * (n % 3000)} for n in range(3000)])
        text = db.table.schema
        assert text is not None
    import pickle  # noqa: PLC0415

    from siltstone.spark._columns import spark_fields, text_of  # noqa: PLC0415

    asked = [*range(2990, 3010), None, *range(1000)]
    batch = pa.record_batch({"k": pa.array(asked, pa.int64())})
    with siltstone.open_reader(url) as reader:
        schema = text_of(reader)
        assert schema is not None
        found = (spark_fields(schema, ["v"], True), ["v"])
        answers = list(
            _tasks.look_up_rows(iter([batch]), pickle.dumps(reader), schema, ["k"], found, True)
        )
    rows = [(k, v) for one in answers for k, v in zip(*one.to_pydict().values(), strict=True)]
    wanted = [(k, None if k is None or k >= 3000 else "x" * (k % 3000)) for k in asked]
    assert rows == wanted
    assert len(answers) > 10


@pytest.mark.parametrize("kind", ["bytes", "table"])
@pytest.mark.parametrize("action", ["update", "delete", "keep"])
def test_a_merge_reads_large_values_in_pieces(monkeypatch, url, kind, action) -> None:
    monkeypatch.setattr(_tasks, "ANSWER_BYTES", 10_000)
    monkeypatch.setattr(_tasks, "MOST_BYTES", 40_000)
    sizes = {n: n % 3000 for n in range(0, 6000, 2)}
    if kind == "table":
        fields = [pa.field("id", pa.int64(), nullable=False), ("v", pa.string()), ("w", pa.int8())]
        with table.create(url, pa.schema(fields), key=["id"]) as db:
            db.table.put([{"id": n, "v": "x" * size, "w": 1} for n, size in sizes.items()])
        batch = pa.record_batch({"id": range(6000), "w": pa.array([2] * 6000, pa.int8())})
        names, updated = {"op": "op"}, ["w"]
    else:
        with siltstone.open(url) as db:
            db.put_many([b"%04d" % n for n in sizes], [b"x" * size for size in sizes.values()])
        batch = pa.record_batch({"key": [b"%04d" % n for n in range(6000)], "value": [b"y"] * 6000})
        names, updated = {"op": "op"}, ["value"]
    found, largest = _merged_rows(url, batch, action, names, updated)
    there = [n in sizes for n in range(6000)]
    assert largest < 60_000
    if action == "keep":
        assert len(found) == 3000
        assert all(row["op"] == "put" for row in found)
    elif action == "delete":
        assert [row["op"] == "delete" for row in found] == there
    elif kind == "bytes":
        assert {row["value"] for row in found} == {b"y"}
    else:
        assert [row["w"] for row in found] == [2] * 6000
        lengths = [None if row["v"] is None else len(row["v"]) for row in found]
        assert lengths == [sizes.get(n) for n in range(6000)]


def _merged_rows(url, batch, action, names, updated):
    """The rows that a merge writes, and the most bytes of one of its batches."""
    import pickle  # noqa: PLC0415

    from siltstone.spark import _merge  # noqa: PLC0415
    from siltstone.spark._columns import text_of  # noqa: PLC0415

    with siltstone.open_reader(url) as reader:
        fields = updated if action == "update" else None
        merging = _merge._Merging(
            pickle.dumps(reader), text_of(reader), fields, action == "delete", True
        )
        answers = list(_merge.merged(iter([batch, batch.slice(0, 0)]), merging, names))
    return [row for one in answers for row in one.to_pylist()], max(one.nbytes for one in answers)


def test_a_row_that_expires_while_it_is_merged_is_absent(url: str, monkeypatch) -> None:
    import pickle  # noqa: PLC0415

    from siltstone.spark import _merge  # noqa: PLC0415

    with siltstone.open(url) as db:
        db.put(b"brief", b"old", ttl=0.5)
        db.put(b"long", b"old", ttl=3600)
    large_values_of = _merge.large_values_of

    def read_and_wait(reader, keys):
        found = large_values_of(reader, keys)
        time.sleep(0.8)
        return found

    monkeypatch.setattr(_merge, "large_values_of", read_and_wait)
    batch = pa.record_batch({"key": pa.array([b"brief", b"long"]), "value": pa.array([b"new"] * 2)})
    names = {"op": "op", "expire_at": "expire_at"}
    with siltstone.open_reader(url) as reader:
        merging = _merge._Merging(pickle.dumps(reader), None, ["value"], False, False, True)
        (rows,) = _merge.merged(iter([batch]), merging, names)
    # This merge inserts nothing, so a row that is gone is dropped.
    (row,) = rows.to_pylist()
    assert (row["key"], row["value"]) == (b"long", b"new")
    assert row["expire_at"] is not None


def test_a_function_of_a_column_says_what_is_too_large() -> None:
    if sys.maxsize < 1 << 40:
        pytest.skip("64 bits")
    large = pa.array([b"x" * (1 << 20)], pa.large_binary()).take(pa.array([0] * 2100))
    with pytest.raises(siltstone.Invalid, match=re.escape("siltstone.spark.lookup splits")):
        _tasks.as_binary(large)
