"""A failed write removes the database that it created, and never one that others use."""

from __future__ import annotations

import pickle

import pyarrow as pa
import pytest

import siltstone
import siltstone.spark as kv
from siltstone import admin, ingest
from siltstone.spark._creation import created_by, removed_on_failure
from siltstone.spark._matching import _create_bytes
from spark_versions_for_tests import SOURCES

pytest_plugins = ["spark_for_tests"]
pytestmark = pytest.mark.slow


def created(url: str):
    found = created_by(lambda: _create_bytes(url, None), url, None)
    assert found is not None
    return pickle.loads(pickle.dumps(found))


def is_absent(url: str) -> bool:
    with pytest.raises(siltstone.NotFound):
        admin.versions(url)
    return True


def doubled(spark):
    """Rows that a load refuses: each key occurs twice."""
    return spark.range(20).selectExpr("concat('k/', id % 10) AS key", "string(id) AS value")


def failing(spark):
    """Rows whose computation fails in a task."""
    return spark.range(20).selectExpr(
        "concat('k/', id) AS key", "IF(id = 7, raise_error('broken'), string(id)) AS value"
    )


# --- without a session ----------------------------------------------------------------------------


def test_an_empty_database_is_removed_and_can_be_created_again(url) -> None:
    one = created(url)
    job = ingest.Job(url)
    job.abort()
    assert one.undo()
    assert is_absent(url)
    assert not one.undo()
    two = created(url)
    assert not one.undo()
    assert two.undo()


def test_a_database_that_existed_is_not_removed(url) -> None:
    siltstone.open(url).close()
    assert created_by(lambda: _create_bytes(url, None), url, None) is None
    with pytest.raises(siltstone.Invalid), removed_on_failure() as creations:
        assert creations == []
        raise siltstone.Invalid("the write failed")
    assert admin.versions(url)


@pytest.mark.parametrize("flushed", [False, True])
def test_a_database_that_has_a_row_is_not_removed(url, flushed) -> None:
    one = created(url)
    with siltstone.open(url) as db:
        assert not one.undo()
        db[b"a"] = b"1"
        if flushed:
            db.flush(memtable=True)
        assert not one.undo()
    assert not one.undo()
    with siltstone.open_reader(url) as reader:
        assert reader[b"a"] == b"1"


def test_a_database_with_a_load_under_way_is_not_removed(url) -> None:
    one = created(url)
    job = ingest.Job(url)
    writer = job.writer(0)
    writer.put_or_delete_many(pa.array([b"a"]), pa.array([b"1"]))
    part = writer.finish()
    assert not one.undo()
    request = job.commit([part])
    assert not one.undo()
    ingest.submit(request, wait=False)
    assert not one.undo()
    ingest.submit(request)
    assert not one.undo()
    with siltstone.open_reader(url) as reader:
        assert reader[b"a"] == b"1"


def test_a_removal_that_fails_is_logged(url, monkeypatch, caplog) -> None:
    one = created(url)

    def refuses(*_, **__):
        raise siltstone.Denied("no right to delete")

    monkeypatch.setattr("siltstone.spark._creation.destroy", refuses)
    with pytest.raises(KeyError), removed_on_failure() as creations:
        creations.append(one)
        raise KeyError("the write failed")
    assert "no right to delete" in caplog.text
    assert admin.versions(url)


class Died(BaseException):
    """Ends a load as a kill of its process does: without any cleaning up."""


@SOURCES
def test_an_empty_database_of_a_killed_load_is_named(spark, url, monkeypatch, caplog) -> None:
    rows = spark.range(20).selectExpr("id", "string(id) AS note")

    def dies(*_, **__):
        raise Died

    with monkeypatch.context() as patch:
        patch.setattr("siltstone.spark._load.run", dies)
        patch.setattr("siltstone.spark._creation.Creation.undo", lambda _: False)
        patch.setattr("siltstone.spark._commit.abort", lambda _: None)
        with pytest.raises(Died):
            kv.bulk_load(rows, url, key=["id"], mode="ignore", txn=("load", 1))
    for mode in ("errorifexists", "error"):
        with pytest.raises(siltstone.Conflict, match=r"holds nothing.*Mode append.*destroy"):
            kv.bulk_load(rows, url, key=["id"], mode=mode)
    writer = rows.write.format("siltstone").mode("append").option("keyColumn", "id")
    with pytest.raises(Exception, match=r"holds nothing.*Mode append.*destroy"):
        writer.option("saveMode", "errorifexists").save(url)
    assert kv.bulk_load(rows, url, key=["id"], mode="ignore").rows == 0
    assert "holds nothing" in caplog.text
    caplog.clear()
    assert kv.bulk_load(rows, url, key=["id"], txn=("load", 1)).rows == 20
    assert kv.bulk_load(rows, url, key=["id"], mode="ignore").rows == 0
    with pytest.raises(siltstone.Conflict) as refused:
        kv.bulk_load(rows, url, key=["id"], mode="error")
    assert "holds nothing" not in f"{caplog.text}{refused.value}"


# --- through Spark --------------------------------------------------------------------------------


def test_a_load_that_fails_leaves_no_database(spark, url) -> None:
    calls = (
        lambda: kv.bulk_load(doubled(spark), url, key="key"),
        lambda: kv.bulk_load(failing(spark), url, key="key", mode="errorifexists"),
        lambda: kv.bulk_load(doubled(spark), url, key=["key"], duplicates=("max", "absent")),
        lambda: kv.merge(doubled(spark), url, key="key"),
        lambda: kv.upsert(url, key="key", txn_app="app")(failing(spark), 0),
    )
    for call in calls:
        with pytest.raises(Exception, match=r"."):
            call()
        assert is_absent(url)
    assert kv.bulk_load(doubled(spark), url, key="key", duplicates="any").rows == 10
    with pytest.raises(siltstone.Invalid):
        kv.bulk_load(doubled(spark), url, key="key")
    assert kv.count(url) == 10


@SOURCES
def test_a_save_that_fails_leaves_no_database(spark, url) -> None:
    for frame in (failing(spark), doubled(spark)):
        writer = frame.repartition(1).write.format("siltstone").mode("append")
        with pytest.raises(Exception, match=r"."):
            writer.option("duplicates", "error").option("layout", "presorted").save(url)
        assert is_absent(url)
    with pytest.raises(Exception, match="txnAppId"):
        doubled(spark).write.format("siltstone").mode("append").option("txnAppId", "a").save(url)
    assert is_absent(url)
