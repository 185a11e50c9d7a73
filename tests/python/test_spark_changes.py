"""Spark follows a database: its change feed as a stream, and as a frame."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import siltstone
import siltstone.spark as kv
from pace_for_tests import finished
from siltstone import changes as feed
from spark_versions_for_tests import STREAM_SOURCES

pytest_plugins = ["spark_for_tests"]
pytestmark = pytest.mark.slow


def follow(spark, url: str, place: Path, **options: str) -> None:
    """Streams all available changes into a folder of Parquet files."""
    stream = spark.readStream.format("siltstone").option("readChangeFeed", "true")
    writing = stream.options(**options).load(url).writeStream.format("parquet")
    writing = writing.option("checkpointLocation", str(place / "checkpoint"))
    query = writing.trigger(availableNow=True).start(str(place / "out"))
    finished(query)


def found(spark, place: Path) -> list[tuple[str, bytes]]:
    rows = spark.read.parquet(str(place / "out")).orderBy("seq").collect()
    return [(row.kind, bytes(row.key)) for row in rows]


@STREAM_SOURCES
def test_a_stream_follows_a_database(spark, url, tmp_path: Path) -> None:
    keys = [b"k%d" % n for n in range(6)]
    wanted = {"startingAt": "oldest", "consumer": "lake", "maxRowsPerTrigger": "2"}
    with siltstone.open(url) as db:
        # The consumer holds the log from this call on.
        follow(spark, url, tmp_path, **wanted)
        for key in keys[:4]:
            db.put(key, b"v").wait()
    follow(spark, url, tmp_path, **wanted)
    assert found(spark, tmp_path) == [("put", key) for key in keys[:4]]
    with siltstone.open(url) as db:
        db.delete(keys[0]).wait()
        db.put(keys[4], b"v").wait()
    dies(tmp_path)
    follow(spark, url, tmp_path, **wanted)
    expected = [*[("put", key) for key in keys[:4]], ("delete", keys[0]), ("put", keys[4])]
    assert found(spark, tmp_path) == expected
    (held,) = feed.consumers(url)
    assert held.name == "lake"
    assert siltstone.admin.manifest(url)["checkpoints"] == []
    frame = kv.changes(spark, url)
    rows = [(row.kind, bytes(row.key), row.value and bytes(row.value)) for row in frame.collect()]
    assert rows[-2:] == [("delete", keys[0], None), ("put", keys[4], b"v")]
    assert frame.dtypes[-1] == ("time", "timestamp")


@STREAM_SOURCES
def test_a_batch_has_both_bounds(spark, url, tmp_path: Path) -> None:
    with siltstone.open(url) as db:
        for turn in range(6):
            db.put_many([b"%d/%d" % (turn, n) for n in range(10)], [b"v" * 1000] * 10).wait()
    sizes = []
    for rows, size in (("50", "15000"), ("15", "1000000")):
        stream = spark.readStream.format("siltstone").option("readChangeFeed", "true")
        bounds = {"maxRowsPerTrigger": rows, "maxBytesPerTrigger": size}
        frame = stream.options(startingAt="oldest", **bounds).load(url)
        place = tmp_path / rows
        writing = frame.writeStream.format("parquet").option("checkpointLocation", f"{place}-c")
        finished(writing.trigger(availableNow=True).start(str(place)))
        assert spark.read.parquet(str(place)).count() == 60
        sizes.append(len(list((place / "_spark_metadata").glob("[0-9]*"))))
    # A batch ends with the commit that reaches a bound: two commits of ten rows here.
    assert sizes == [3, 3]


def dies(place: Path) -> None:
    """Restores the state before Spark noted its last batch, as after a crash: it is planned
    again."""
    noted = place / "checkpoint" / "commits"
    last = max((one.name for one in noted.glob("[0-9]*")), key=int)
    (noted / last).unlink()
    (noted / f".{last}.crc").unlink(missing_ok=True)


@STREAM_SOURCES
def test_a_stream_begins_with_everything_there_is(spark, url, tmp_path: Path) -> None:
    """The rows of a checkpoint, then the changes after it: no gap, and no duplicate."""
    wanted = {"startingAt": "snapshot", "consumer": "lake", "maxRowsPerTrigger": "2"}
    keys = [b"k%03d" % n for n in range(100)]
    with siltstone.open(url) as db:
        for key in keys:
            db.put(key, b"before")
        db.delete(keys[0])
        db.flush(memtable=True)
        follow(spark, url, tmp_path, **wanted)
        db.put(keys[1], b"after").wait()
        db.delete(keys[2]).wait()
    rows = spark.read.parquet(str(tmp_path / "out")).collect()
    assert {(row.kind, bytes(row.key), bytes(row.value)) for row in rows} == {
        ("put", key, b"before") for key in keys[1:]
    }
    (seq,) = {row.seq for row in rows}
    assert seq >= len(keys)
    # The query dies before it noted the snapshot, and begins again after rows have changed.
    dies(tmp_path)
    follow(spark, url, tmp_path, **wanted)
    rows = spark.read.parquet(str(tmp_path / "out")).orderBy("seq").collect()
    found = [(row.kind, bytes(row.key), row.value and bytes(row.value)) for row in rows]
    assert found[99:] == [("put", keys[1], b"after"), ("delete", keys[2], None)]
    assert sorted(found[:99]) == [("put", key, b"before") for key in keys[1:]]
    assert siltstone.admin.manifest(url)["checkpoints"] == []
    with pytest.raises(Exception, match="a consumer keeps them"):
        follow(spark, url, tmp_path / "other", startingAt="snapshot")


@STREAM_SOURCES
def test_the_first_batch_is_the_same_again(url) -> None:
    """After a crash Spark asks again for the start of a query, and "latest" is later by then."""
    # Spark 3.5 lacks the classes that this import needs.
    from siltstone.spark._stream import followed, stream_reader  # noqa: PLC0415

    asked = {"path": url, "readchangefeed": "true", "startingat": "latest", "consumer": "lake"}

    def read(start: dict, end: dict) -> list[bytes]:
        reader = stream_reader(followed(asked))
        parts = reader.partitions(start, end)
        batches = [batch for part in parts for batch in reader.read(part)]
        return [key for batch in batches for key in batch.column("key").to_pylist()]

    with siltstone.open(url) as db:
        db.put(b"before", b"v").wait()
        reader = stream_reader(followed(asked))
        begins = reader.initialOffset()
        assert reader.initialOffset() == begins
        db.put(b"one", b"v").wait()
        end = reader.latestOffset(begins, reader.getDefaultReadLimit())
        assert reader.latestOffset(end, reader.getDefaultReadLimit()) == end
        assert read(begins, end) == [b"one"]
        db.put(b"two", b"v").wait()
        # The query died before the batch was stored: the first offset is unknown now.
        after = stream_reader(followed(asked))
        later = after.initialOffset()
        assert later != begins
        assert read(later, end) == [b"one"]
        last = after.latestOffset(end, after.getDefaultReadLimit())
        assert read(end, last) == [b"two"]


@STREAM_SOURCES
def test_invalid_starts_of_a_stream(spark, url) -> None:
    siltstone.open(url).close()
    refused = {
        "readChangeFeed": {},
        "no option 'prefix' where a stream is read": {"readChangeFeed": "true", "prefix": "a"},
        "failOnDataLoss is 'maybe'": {"readChangeFeed": "true", "failOnDataLoss": "maybe"},
    }
    for text, options in refused.items():
        stream = spark.readStream.format("siltstone").options(**options)
        with pytest.raises(Exception, match=text):
            query = stream.load(url).writeStream.format("noop").start()
            query.processAllAvailable()
    for query in spark.streams.active:
        query.stop()


def test_changes_as_a_frame(spark, url) -> None:
    with siltstone.open(url) as db:
        begun = feed.begin(url, since="oldest", consumer="job")
        db.put(b"a", b"1").wait()
        db.delete(b"a").wait()
    frame = kv.changes(spark, url, since=begun.token)
    found = [(row.kind, bytes(row.key), row.value and bytes(row.value)) for row in frame.collect()]
    assert found == [("put", b"a", b"1"), ("delete", b"a", None)]
    assert dict(frame.dtypes)["time"] == "timestamp"


@STREAM_SOURCES
def test_a_stream_goes_on_as_the_schema_changes(spark, url, tmp_path: Path) -> None:
    """The columns of a query are fixed. It reads widened columns, and never loses an added one."""
    columns = pa.schema([pa.field("v", pa.int32()), pa.field("id", pa.int64())])
    stream = spark.readStream.format("siltstone").option("readChangeFeed", "true")
    seen: list = []

    def begun():
        writing = stream.option("startingAt", "oldest").load(url).writeStream
        writing = writing.option("checkpointLocation", str(tmp_path / "checkpoint"))
        return writing.foreachBatch(lambda rows, _: seen.extend(rows.collect())).start()

    with siltstone.table.create(url, columns, key=["id"]) as db:
        db.table.put([{"id": 1, "v": 1}]).wait()
        query, frame = begun(), kv.changes(spark, url)
        query.processAllAvailable()
        db.table.widen_column(pa.field("v", pa.int64()))
        db.table.put([{"id": 2, "v": 2}]).wait()
        db.table.delete([{"id": 1}]).wait()
        query.processAllAvailable()
        rows = [(row.kind, row.id, row.v) for row in seen]
        assert rows == [("put", 1, 1), ("put", 2, 2), ("delete", 1, None)]
        db.table.add_column(pa.field("w", pa.string()))
        db.table.put([{"id": 3, "v": 3, "w": "x"}]).wait()
        with pytest.raises(Exception, match="restart the query"):
            query.processAllAvailable()
        query = begun()
        query.processAllAvailable()
        query.stop()
        assert (seen[-1].id, seen[-1].w, len(seen)) == (3, "x", 4)
        assert frame.count() == 1
        assert kv.changes(spark, url).count() == 4
