"""Spark reads a database at one checkpoint."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pyarrow as pa
import pytest

import providers_for_tests
import siltstone
import siltstone.spark as kv
from siltstone.spark import _pins
from spark_versions_for_tests import SOURCES, frame_of_table, tasks_of

pytest_plugins = ["spark_for_tests"]
pytestmark = pytest.mark.slow

ROWS = {b"key/%04d" % n: b"value %d" % n for n in range(2000)}


@pytest.fixture
def written(url: str):
    """A database with rows in tables and in the log; its writer stays open."""
    with siltstone.open(url) as db:
        keys = list(ROWS)
        db.put_many(keys[:1500], [ROWS[key] for key in keys[:1500]])
        db.flush(memtable=True)
        db.put_many(keys[1500:], [ROWS[key] for key in keys[1500:]]).wait()
        yield db, url
    kv.release()


def rows(frame) -> list[tuple[bytes, ...]]:
    return [tuple(bytes(value) for value in row) for row in frame.collect()]


@pytest.mark.parametrize("partitions", [None, 1, 3, 16])
def test_a_scan_is_the_database(spark, written, partitions) -> None:
    frame = kv.scan(spark, written[1], partitions=partitions)
    assert frame.dtypes == [("key", "binary"), ("value", "binary")]
    assert rows(frame) == list(ROWS.items())
    assert 1 <= tasks_of(frame) <= (partitions or 2)
    assert partitions in (None, 1) or tasks_of(frame) > 1


def test_a_scan_of_a_part(spark, written) -> None:
    url = written[1]
    some = kv.scan(spark, url, start=b"key/0100", end=b"key/0200", columns=["key"], partitions=4)
    assert rows(some) == [(key,) for key in list(ROWS)[100:200]]
    assert kv.scan(spark, url, prefix=b"key/19").count() == 100
    assert kv.scan(spark, url, prefix=b"nothing").count() == 0


def test_jobs_read_one_state_while_the_writer_goes_on(spark, written) -> None:
    db, url = written
    frame = kv.scan(spark, url, partitions=4)
    found = kv.lookup(frame.select("key"), url, key="key", select={"value": "found"})
    for _ in range(3):
        db.put_many(list(ROWS), [b"later"] * len(ROWS))
        db.flush(memtable=True)
        db.compact()
        siltstone.admin.gc(url, min_age=0)
    assert rows(frame) == list(ROWS.items())
    assert frame.join(found, "key").where("value <=> found").count() == len(ROWS)
    assert kv.scan(spark, url).where("value = binary('later')").count() == len(ROWS)


def test_a_look_up_equals_sparks_own_join(spark, written) -> None:
    url = written[1]
    texts = [f"key/{n:04}" if n % 5 else None for n in range(1900, 2100)]
    asked = frame_of_table(spark, pa.table({"k": texts, "n": range(200)})).repartition(3)
    table = kv.scan(spark, url).selectExpr("string(key) AS k", "value AS expected")
    left = kv.lookup(asked, url, key="k").join(table, "k", "left")
    assert left.count() == 200
    assert left.where("NOT value <=> expected").count() == 0
    inner = kv.lookup(asked, url, key="k", how="inner")
    assert inner.count() == 80
    assert inner.where("value IS NULL").count() == 0
    assert inner.columns == ["k", "n", "value"]


def test_a_column_function(spark, written) -> None:
    value = kv.get(written[1])
    asked = frame_of_table(spark, pa.table({"k": [b"key/0007", b"absent", None]}))
    answers = [row.v for row in asked.select(value("k").alias("v")).collect()]
    assert [answer and bytes(answer) for answer in answers] == [b"value 7", None, None]
    spark.udf.register("value_of", value)
    told = spark.sql("SELECT string(value_of(binary('key/0042'))) AS v").first()
    assert told.v == "value 42"


def test_keys_that_cannot_exist_are_not_there(spark, written) -> None:
    db, url = written
    texts = ["key/0007", "", None, "x" * 65_536]
    asked = frame_of_table(spark, pa.table({"k": texts, "n": range(4)})).coalesce(1)
    found = kv.lookup(asked, url, key="k").orderBy("n").collect()
    assert [row.value and bytes(row.value) for row in found] == [b"value 7", None, None, None]
    value = kv.get(url)
    answers = [row.v for row in asked.select(value("k").alias("v")).collect()]
    assert [answer and bytes(answer) for answer in answers] == [b"value 7", None, None, None]
    assert kv.delete(asked.where("k IS NOT NULL"), url, key="k", db=db).rows == 1
    assert kv.delete(asked.where("k = ''"), url, key="k", db=db).rows == 0
    assert len(list(db.keys())) == len(ROWS) - 1


def test_workers_open_a_state_once_and_write_nothing(spark, written) -> None:
    url = written[1]
    frame = kv.scan(spark, url, partitions=16)
    before = siltstone.admin.manifest(url)["id"]
    asked = frame.select("key").repartition(8)
    for _ in range(3):
        assert kv.lookup(asked, url, key="key", checkpoint=kept(url)).count() == len(ROWS)
    assert frame.count() == len(ROWS)
    assert siltstone.admin.manifest(url)["id"] == before
    opened = asked.mapInArrow(processes, "process bigint, readers bigint").distinct().collect()
    assert {row.readers for row in opened} <= {1, 2, 3, 4}


def kept(url: str):
    """The checkpoint that was made for Spark."""
    (one,) = [
        one
        for one in siltstone.admin.list_checkpoints(url, processes=True)
        if one.metadata.get("made_by") == "siltstone.spark"
    ]
    return one


def processes(batches):
    """Yields the number of readers that each worker keeps."""
    from siltstone.spark import _tasks  # noqa: PLC0415 - the module of the worker

    for _ in batches:
        counted = {"process": [os.getpid()], "readers": [len(_tasks._readers)]}
        yield pa.RecordBatch.from_pydict(counted)


def test_pinned_versions_are_released(spark, written) -> None:
    url = written[1]
    frame = kv.scan(spark, url)
    one = kept(url)
    assert one.expires is not None
    assert kv.release() == 1
    assert kv.release() == 0
    with pytest.raises(siltstone.Expired, match=one.id.hex):
        siltstone.open_reader(url, checkpoint=one)
    siltstone.admin.gc(url, min_age=0)
    assert frame.columns == ["key", "value"]
    mine = siltstone.admin.create_checkpoint(url, name="mine")
    assert kv.scan(spark, url, checkpoint="mine").count() == len(ROWS)
    assert kv.release() == 0
    siltstone.admin.delete_checkpoint(url, mine)


def made_for_spark(url: str) -> int:
    checkpoints = siltstone.admin.list_checkpoints(url, processes=True)
    return sum(one.metadata.get("made_by") == "siltstone.spark" for one in checkpoints)


def test_frames_of_one_state_share_a_pin_and_a_driver_has_sixteen(spark, written) -> None:
    db, url = written
    for _ in range(5):
        _pins.pinned_reader(url, None)[0].close()
        assert spark.read.format("siltstone").load(url).count() == len(ROWS)
    assert made_for_spark(url) == 1
    for n in range(20):
        db.put(b"zz", b"%d" % n).wait()
        _pins.pinned_reader(url, None)[0].close()
        assert made_for_spark(url) <= 16
    # The pin of `load()` is shared, lasts for a day, and outlives these.
    assert kv.release() == 16
    assert made_for_spark(url) <= 1


def test_calls_that_return_no_frame_end_no_frame(spark, written, tmp_path) -> None:
    db, url = written
    frame = kv.scan(spark, url)
    assert made_for_spark(url) == 1
    for n in range(17):
        db.put(b"zz", b"%d" % n).wait()
        assert kv.count(url) == len(ROWS) + 1
    merged = frame_of_table(spark, pa.table({"key": [b"zz"], "value": [b"merged"]}))
    kv.merge(merged, url, key="key", db=db)
    exported = kv.export_parquet(spark, url, str(tmp_path / "files"))
    assert exported.rows == len(ROWS) + 1
    with pytest.raises(siltstone.Invalid, match="exclude each other"):
        kv.count(url, start=b"a", prefix=b"b")
    assert made_for_spark(url) == 1, "a call leaves its checkpoint"
    db.compact()
    siltstone.admin.gc(url, min_age=0)
    assert rows(frame) == list(ROWS.items())
    assert kv.release() == 1


def test_a_failing_provider_keeps_no_other_task(written, monkeypatch) -> None:
    url = written[1]
    monkeypatch.setenv("TEST_PROVIDER", "there")
    _pins.pinned_reader(url, None, store_options=providers_for_tests.of_a_variable)[0].close()
    # The put makes another state, so the next call needs its own pin.
    written[0].put(b"zz", b"new").wait()
    _pins.pinned_reader(url, None)[0].close()
    monkeypatch.delenv("TEST_PROVIDER")
    assert kv.release() == 2
    siltstone.admin.delete_checkpoint(url, kept(url))


def test_unknown_options_are_refused(spark, written) -> None:
    url = written[1]
    frame = spark.range(3)
    keyed = frame_of_table(spark, pa.table({"key": [b"a"], "value": [b"b"]}))
    refused = {
        "partitions must be from 1": lambda: kv.scan(spark, url, partitions=0),
        "exclude each other": lambda: kv.scan(spark, url, prefix=b"a", end=b"b"),
        "some of key, value": lambda: kv.scan(spark, url, columns=["ky"]),
        "there is no column 'key'": lambda: kv.lookup(frame, url, key="key"),
        "is of type bigint": lambda: kv.lookup(frame, url, key="id"),
        "a column 'value' already": lambda: kv.lookup(keyed, url, key="key"),
        "how is 'outer'": lambda: kv.lookup(keyed.select("key"), url, key="key", how="outer"),
        "has one column, value": lambda: kv.lookup(keyed, url, key="key", select=["price"]),
        "Spark's workers are others": lambda: kv.scan(spark, "memory://here"),
    }
    for text, call in refused.items():
        with pytest.raises(siltstone.Invalid, match=re.escape(text)):
            call()
    # The pin of the state stays for the next frame of the same state.
    assert kv.release() <= 1


def test_the_doctor_asks_every_slot(spark, written, tmp_path: Path) -> None:
    found = kv.doctor(spark, written[1])
    assert found.problems == ()
    assert 1 <= len(found.slots) <= 8
    for slot in found.slots:
        assert slot.siltstone == siltstone.__version__
        assert slot.store == "ok"
    assert "no problems" in str(found)
    missing = kv.doctor(spark, tmp_path / "nothing")
    assert all("NotFound" in problem for problem in missing.problems)
    assert len(missing.problems) == len(missing.slots)


def test_tables_are_verified_in_tasks(spark, written, tmp_path: Path) -> None:
    db, url = written
    db.flush(memtable=True)
    trial = str(tmp_path / "trial")
    siltstone.clone(trial, parent=url)
    for place in (url, trial):
        found = kv.verify(spark, place)
        assert found.ok, found.problems
        assert (found.tables, found.entries) == (2, len(ROWS))
    tables = sorted(Path(url, "compacted").glob("*.sst"))
    damaged = bytearray(tables[0].read_bytes())
    damaged[len(damaged) // 3] ^= 1
    tables[0].write_bytes(damaged)
    tables[1].unlink()
    found = kv.verify(spark, url)
    assert not found.ok
    told = {Path(one.object).name: one.what.split(":")[0] for one in found.problems}
    assert told == {tables[0].name: "Corruption", tables[1].name: "NotFound"}
    empty = str(tmp_path / "empty")
    siltstone.open(empty).close()
    assert kv.verify(spark, empty).tables == 0


# --- format("siltstone") --------------------------------------------------------------------------


@SOURCES
def test_the_source_is_found_by_its_name(spark, written) -> None:
    db, url = written
    frame = spark.read.format("siltstone").option("numPartitions", 3).load(url)
    db.put(b"key/0000", b"later").wait()
    assert rows(frame) == list(ROWS.items())
    assert tasks_of(frame) == 3
    again = spark.read.format("siltstone").load(url)
    assert again.where("key = binary('key/0000')").first().value == b"later"
    narrow = spark.read.format("siltstone").schema("key binary").option("prefix", "key/01")
    assert rows(narrow.load(url)) == [(key,) for key in list(ROWS)[100:200]]
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW kv USING siltstone OPTIONS (path '{url}')")
    assert spark.sql("SELECT count(*) AS n FROM kv").first().n == len(ROWS)


@SOURCES
@pytest.mark.parametrize("pushed", [False, True])
def test_filters_of_the_key(spark, written, pushed) -> None:
    url = written[1]
    spark.conf.set("spark.sql.python.filterPushdown.enabled", str(pushed).lower())
    frame = spark.read.format("siltstone").load(url)
    conditions = {
        "key = binary('key/0100')": 1,
        "key >= binary('key/0100') AND key < binary('key/0110')": 10,
        "key > binary('key/0100') AND key <= binary('key/0110')": 10,
        "key > binary('key/1000') AND key < binary('key/0110')": 0,
        "key = binary('key/0100') OR key = binary('key/0101')": 2,
        "key IN (binary('key/0100'), binary('key/0101'), binary('no'))": 2,
        "key IS NULL": 0,
        "key != binary('key/0100')": len(ROWS) - 1,
        "value = binary('value 7')": 1,
    }
    for condition, count in conditions.items():
        assert frame.where(condition).count() == count, condition
        assert len(frame.where(condition).collect()) == count, condition
        assert frame.count() == len(ROWS), condition
    spark.conf.unset("spark.sql.python.filterPushdown.enabled")


@SOURCES
def test_a_state_of_the_past(spark, written) -> None:
    db, url = written
    siltstone.admin.create_checkpoint(url, name="before")
    db.put_many(list(ROWS), [b"later"] * len(ROWS))
    db.flush(memtable=True)
    source = spark.read.format("siltstone")
    assert rows(source.option("checkpoint", "before").load(url)) == list(ROWS.items())
    last = siltstone.admin.versions(url)[-1]
    at = spark.read.format("siltstone").option("versionAsOf", last.id).load(url)
    assert {bytes(row.value) for row in at.collect()} == {b"later"}
    at = spark.read.format("siltstone").option("timestampAsOf", last.time.isoformat()).load(url)
    assert at.count() == len(ROWS)


@SOURCES
def test_options_are_refused_by_name(spark, written) -> None:
    url = written[1]
    refused = {
        "no option 'numpartition'": {"numPartition": "3"},
        "numPartitions is 'many'": {"numPartitions": "many"},
        "exclude each other: a frame": {"checkpoint": "a", "versionAsOf": "1"},
        "with its zone": {"timestampAsOf": "2026-01-01"},
        "two hexadecimal digits": {"start": "hex:1"},
    }
    for text, options in refused.items():
        with pytest.raises(Exception, match=re.escape(text)):
            spark.read.format("siltstone").options(**options).load(url)
    with pytest.raises(Exception, match="no database is named"):
        spark.read.format("siltstone").load().count()
    with pytest.raises(Exception, match="value:int"):
        spark.read.format("siltstone").schema("value int").load(url).count()


def test_store_options_travel_by_name(spark, written) -> None:
    named = "providers_for_tests:nothing"
    frame = kv.scan(spark, written[1], store_options=named)
    assert (
        kv.lookup(frame.select("key"), written[1], key="key", store_options=named).count() == 2000
    )


@SOURCES
def test_a_source_names_its_store_options(spark, written) -> None:
    source = spark.read.format("siltstone").option("storeOptions", "providers_for_tests:nothing")
    assert source.load(written[1]).count() == 2000
    with pytest.raises(Exception, match="cannot be imported"):
        spark.read.format("siltstone").option("storeOptions", "no_such:one").load(written[1])
    given = '{"secret_access_key": "cAnArY0123456789", "region": "r"}'
    for call in (
        lambda: spark.read.format("siltstone").option("storeOptions", given).load(written[1]),
        lambda: kv.scan(spark, written[1], store_options=given),
        lambda: kv.bulk_load(spark.range(1), written[1], key="id", store_options=given),
    ):
        with pytest.raises(Exception, match="name of a function") as caught:
            call()
        assert "cAnArY0123456789" not in str(caught.value)
