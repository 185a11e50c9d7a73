"""Spark follows a database: its change feed as a stream, and as a frame."""

from __future__ import annotations

from pathlib import Path

import pytest

import siltstone
import siltstone.spark as kv
from siltstone import changes as feed

pytest_plugins = ["spark_for_tests"]
pytestmark = pytest.mark.slow


def follow(spark, url: str, place: Path, **options: str) -> None:
    """Everything that is there, into a folder of Parquet files."""
    stream = spark.readStream.format("siltstone").option("readChangeFeed", "true")
    writing = stream.options(**options).load(url).writeStream.format("parquet")
    writing = writing.option("checkpointLocation", str(place / "checkpoint"))
    query = writing.trigger(availableNow=True).start(str(place / "out"))
    assert query.awaitTermination(120)


def found(spark, place: Path) -> list[tuple[str, bytes]]:
    rows = spark.read.parquet(str(place / "out")).orderBy("seq").collect()
    return [(row.kind, bytes(row.key)) for row in rows]


def test_a_stream_follows_a_database(spark, url, tmp_path: Path) -> None:
    keys = [b"k%d" % n for n in range(6)]
    wanted = {"startingAt": "oldest", "consumer": "lake", "maxRowsPerTrigger": "2"}
    with siltstone.open(url) as db:
        # From here on the log is held.
        follow(spark, url, tmp_path, **wanted)
        for key in keys[:4]:
            db.put(key, b"v").wait()
    follow(spark, url, tmp_path, **wanted)
    assert found(spark, tmp_path) == [("put", key) for key in keys[:4]]
    with siltstone.open(url) as db:
        db.delete(keys[0]).wait()
        db.put(keys[4], b"v").wait()
    # As after a death before Spark noted its last batch: it is planned again, alike.
    noted = tmp_path / "checkpoint" / "commits"
    last = max((one.name for one in noted.glob("[0-9]*")), key=int)
    (noted / last).unlink()
    (noted / f".{last}.crc").unlink(missing_ok=True)
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


def test_what_a_stream_cannot_begin_with(spark, url) -> None:
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
