"""Arguments and options of Spark's calls that are refused before anything is written."""

from __future__ import annotations

import re

import pytest

import siltstone
import siltstone.spark as kv
from siltstone import admin, ingest
from spark_versions_for_tests import CLASSIC, SOURCES, STREAM_SOURCES

pytest_plugins = ["spark_for_tests"]
pytestmark = pytest.mark.slow

WRITES = {
    "bulk_load": lambda df, url, **how: kv.bulk_load(df, url, key="key", mode="overwrite", **how),
    "delete": lambda df, url, **how: kv.delete(df, url, key="key", **how),
    "delete range": lambda _, url, **how: kv.delete(url, prefix="k", **how),
    "merge": lambda df, url, **how: kv.merge(df, url, key="key", **how),
    "upsert": lambda df, url, **how: kv.upsert(url, key="key", txn_app="app", **how)(df, 0),
}


def rows(spark):
    return spark.sql("SELECT 'k' AS key, 'loaded' AS value")


@pytest.fixture
def closed(url: str) -> str:
    with siltstone.open(url) as db:
        db[b"k"] = b"kept"
    return url


def content(url: str) -> dict[bytes, bytes]:
    with siltstone.open_reader(url) as reader:
        return dict(reader.scan())


@pytest.mark.parametrize("way", WRITES)
def test_an_invalid_argument_adds_nothing(spark, closed, way) -> None:
    """A job that was submitted before the check would be applied by a later writer."""
    refused = [
        (TypeError, {"take_over": "no"}),
        (TypeError, {"take_over": 1}),
        (siltstone.Invalid, {"timeout": "10 mins x"}),
        (siltstone.Invalid, {"timeout": -1}),
        (TypeError, {"db": closed}),
    ]
    if way != "upsert":
        refused.append((TypeError, {"wait": "no"}))
    for error, argument in refused:
        with pytest.raises(error, match=next(iter(argument))):
            WRITES[way](rows(spark), closed, **argument)
    handle = siltstone.open(closed)
    handle.close()
    with pytest.raises(siltstone.Closed):
        WRITES[way](rows(spark), closed, db=handle)
    assert ingest.jobs(closed) == []
    siltstone.open(closed).close()
    assert content(closed) == {b"k": b"kept"}


def test_upsert_refuses_arguments_before_the_stream(closed) -> None:
    for argument in ({"take_over": "x"}, {"timeout": "x"}, {"db": "x"}):
        with pytest.raises((TypeError, siltstone.Invalid), match=next(iter(argument))):
            kv.upsert(closed, key="key", **argument)


def test_update_columns_refuses_arguments_before_its_tasks(spark, url) -> None:
    frame = spark.sql("SELECT 1 AS id, 'a' AS note")
    kv.bulk_load(frame, url, key=["id"])
    before = len(ingest.jobs(url))
    for argument in ({"take_over": "x"}, {"timeout": "x"}, {"db": "x"}, {"wait": 0}):
        with pytest.raises((TypeError, siltstone.Invalid), match=next(iter(argument))):
            kv.update_columns(frame, url, key=["id"], **argument)
    assert len(ingest.jobs(url)) == before


@pytest.mark.parametrize("way", ["bulk_load", "merge", "upsert"])
def test_the_writer_of_another_database_leaves_nothing(spark, url, way) -> None:
    with siltstone.open(url + "-other") as other:
        with pytest.raises(siltstone.Conflict, match="another database"):
            WRITES[way](rows(spark), url, db=other)
        with pytest.raises(siltstone.NotFound):
            admin.manifest(url)
        siltstone.open(url).close()
        with pytest.raises(siltstone.Conflict, match="another database"):
            WRITES[way](rows(spark), url, db=other)
    assert {job.status.state for job in ingest.jobs(url)} <= {"aborted"}
    assert content(url) == {}


@pytest.mark.parametrize("argument", [{"timeout": "x"}, {"take_over": 0}, {"db": "x"}])
def test_an_invalid_argument_creates_no_database(spark, url, argument) -> None:
    for way in ("bulk_load", "merge", "upsert"):
        with pytest.raises((TypeError, siltstone.Invalid), match=next(iter(argument))):
            WRITES[way](rows(spark), url, **argument)
        with pytest.raises(siltstone.NotFound):
            admin.manifest(url)


@SOURCES
def test_an_unknown_option_names_the_nearest(spark, url) -> None:
    kv.bulk_load(rows(spark), url, key="key")
    for given, meant in {"keyColum": "keyColumn", "numPartition": "numPartitions"}.items():
        kind = "format" if given == "numPartition" else "save"
        with pytest.raises(Exception, match=re.escape(f"(did you mean '{meant}'?)")):
            if kind == "save":
                writer = rows(spark).write.format("siltstone").mode("append")
                writer.option(given, "key").save(url)
            else:
                spark.read.format("siltstone").option(given, "2").load(url)


@STREAM_SOURCES
def test_a_stream_refuses_an_unknown_start_when_it_is_made(spark, closed) -> None:
    stream = spark.readStream.format("siltstone").option("readChangeFeed", "true")
    with pytest.raises(Exception, match=r"startingAt is 'lates': latest, oldest, snapshot, or a t"):
        stream.option("startingAt", "lates").load(closed)
    token = siltstone.changes.latest(closed)
    assert stream.option("startingAt", token).load(closed).isStreaming


@CLASSIC
def test_a_session_that_was_stopped_is_named(spark, closed) -> None:
    """The last test of this file: it stops the session."""
    frame = rows(spark)
    spark.stop()
    for call in (
        lambda: kv.scan(spark, closed),
        lambda: kv.count(closed, spark=spark),
        lambda: kv.bulk_load(frame, closed, key="key"),
        lambda: kv.lookup(frame, closed, key="key"),
    ):
        with pytest.raises(siltstone.Invalid, match="session of Spark was stopped"):
            call()
