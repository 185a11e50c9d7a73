"""Every bound of `docs/operations.md` that a test can reach: the error at the bound, and how to
continue."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import siltstone
from siltstone import admin, changes, ingest


@pytest.fixture
def url(memory_url: str) -> str:
    with siltstone.open(memory_url) as db:
        db.put(b"key", b"value").wait()
        db.flush(memtable=True)
    return memory_url


def asked_for(url: str, key: bytes, **named) -> ingest.IngestRequest:
    job = ingest.Job(url, **named)
    with job.writer(0) as writer:
        writer.add(key, b"value")
    return job.commit([writer.finish()])


def test_checkpoints(url: str) -> None:
    made = [admin.create_checkpoint(url) for _ in range(1024)]
    with pytest.raises(siltstone.Invalid, match="delete some"):
        admin.create_checkpoint(url)
    # Readers, writers and verification still work.
    with siltstone.open_reader(url) as reader:
        assert reader[b"key"] == b"value"
    with siltstone.open(url) as db:
        db.put(b"more", b"value").wait()
    assert admin.verify(url).ok
    admin.delete_checkpoint(url, made[0])
    admin.create_checkpoint(url)


def test_jobs_that_wait(url: str) -> None:
    for number in range(256):
        ingest.submit(asked_for(url, b"%03d" % number), wait=False)
    one_more = asked_for(url, b"one more")
    with pytest.raises(siltstone.Unavailable, match="ask again later"):
        ingest.submit(one_more, wait=False)
    # A waiting submitter takes the jobs in by itself if there is no writer.
    assert ingest.submit(one_more).state == "adopted"
    with siltstone.open_reader(url) as reader:
        assert sum(1 for _ in reader) == 258


def test_consumers_of_the_feed(url: str) -> None:
    with siltstone.open(url) as db:
        for number in range(256):
            db.changes(consumer=f"c{number}", since="latest", lifetime=3600)
        with pytest.raises(siltstone.Invalid, match="forget some"):
            db.changes(consumer="one more", since="latest", lifetime=3600)
        changes.forget(url, "c0")
        db.changes(consumer="one more", since="latest", lifetime=3600)


def test_a_batch(url: str) -> None:
    with siltstone.open(url, options={"max_batch_bytes": "1MiB"}) as db:
        with pytest.raises(siltstone.Invalid, match="max_batch_bytes"):
            db.put(b"key", bytes(2 << 20))
        db.put(b"key", bytes(1 << 19)).wait()


@pytest.mark.slow
def test_a_column_of_two_gib(tmp_path: Path) -> None:
    """Values of more than 2 GiB in all, which no column of binary holds."""
    value, keys = bytes(720 << 20), [b"a", b"b", b"c"]

    def check(batches: Iterable[object]) -> None:
        """More than one batch, and each value once."""
        found = [pa.record_batch(batch) for batch in batches]
        assert len(found) > 1
        rows = pa.Table.from_batches(found)
        assert rows["key"].to_pylist() == keys
        assert pc.binary_length(rows["value"]).to_pylist() == [len(value)] * len(keys)

    with siltstone.open(tmp_path / "db", options={"max_batch_bytes": "1GiB"}) as db:
        feed = db.changes(since="latest", consumer="c", lifetime="1h", most_bytes=4 << 30)
        for key in keys:
            db.put(key, value)
        db.flush(memtable=True)
        check(iter(lambda: feed.read(bytes=4 << 30), None))
        check(pa.RecordBatchReader.from_stream(db.scan().to_arrow()))
        values = db.get_many(pa.array(keys))
        assert values.type == pa.large_binary()
        assert pc.binary_length(values).to_pylist() == [len(value)] * len(keys)
