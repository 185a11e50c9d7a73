"""Values that expire at a given time, an aware datetime."""

from __future__ import annotations

import asyncio
import uuid
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest

import siltstone
import siltstone.aio
import siltstone.lsm

SMALL = {"l0_sst_size_bytes": 1024, "block_bytes": 64}
PASSED = datetime(2020, 1, 1, tzinfo=UTC)
AHEAD = datetime(2999, 1, 1, tzinfo=UTC)
NAIVE = datetime(2999, 1, 1)  # noqa: DTZ001


@pytest.fixture
def url() -> str:
    return f"memory://{uuid.uuid4().hex}"


def test_every_way_to_write_takes_it(url: str) -> None:
    with siltstone.open(url, options=SMALL, merge_operator="append") as db:
        for name in (b"put", b"merge", b"many", b"batch", b"batch-merge"):
            db[name] = b"old"
            db[name + b"-stays"] = b"old"
        db.put(b"put", b"new", expire_at=PASSED)
        db.merge(b"merge", b"+new", expire_at=PASSED)
        db.put_many([b"many"], [b"new"], expire_at=PASSED)
        db.put(b"put-stays", b"new", expire_at=AHEAD)
        db.merge(b"merge-stays", b"+new", expire_at=AHEAD)
        db.put_many([b"many-stays"], [b"new"], expire_at=AHEAD)
        with db.batch() as batch:
            batch.put(b"batch", b"new", expire_at=PASSED)
            batch.merge(b"batch-merge", b"+new", expire_at=PASSED)
            batch.put(b"batch-stays", b"new", expire_at=AHEAD)
            batch.merge(b"batch-merge-stays", b"+new", expire_at=AHEAD)
        left = {
            b"put-stays": b"new",
            b"merge-stays": b"old+new",
            b"many-stays": b"new",
            b"batch-stays": b"new",
            b"batch-merge-stays": b"old+new",
        }
        # An expired value still hides older ones: no older value comes back.
        assert dict(db) == left
        db.compact()
        assert dict(db) == left
    with siltstone.open(url, options=SMALL) as db:
        assert dict(db) == left


def test_it_is_awaited_too(url: str) -> None:
    async def work() -> None:
        async with siltstone.aio.open(url, merge_operator="append") as db:
            await db.put_many([b"a", b"b", b"c", b"d"], [b"old"] * 4)
            await db.put(b"a", b"new", expire_at=PASSED)
            await db.merge(b"b", b"+new", expire_at=PASSED)
            await db.put_many([b"c"], [b"new"], expire_at=PASSED)
            async with db.batch() as batch:
                batch.put(b"d", b"new", expire_at=PASSED)
                batch.merge(b"e", b"new", expire_at=AHEAD)
            assert [row async for row in db.scan()] == [(b"e", b"new")]
            with pytest.raises(TypeError, match="time zone"):
                await db.put(b"a", b"b", expire_at=NAIVE)
            with pytest.raises(siltstone.Invalid, match="either ttl or expire_at"):
                await db.merge(b"a", b"b", expire_at=AHEAD, ttl=1)

    asyncio.run(work())


def test_transactions_take_it(url: str) -> None:
    with siltstone.open(url, merge_operator="append") as db:
        db.put_many([b"a", b"b"], [b"old"] * 2)
        with db.transaction() as tx:
            tx.put(b"a", b"new", expire_at=PASSED)
            tx.merge(b"b", b"+new", expire_at=AHEAD)
            tx.put(b"c", b"new", expire_at=AHEAD)
            assert list(tx.items()) == [(b"b", b"old+new"), (b"c", b"new")]
        assert list(db.items()) == [(b"b", b"old+new"), (b"c", b"new")]
        entry = db.get_entry(b"c")
        assert entry is not None
        assert entry.expires == AHEAD


def test_every_handle_that_reads_a_state_tells_it(url: str) -> None:
    """A snapshot, a reader and a reader at a checkpoint have `get_entry` as the writer does."""
    with siltstone.open(url) as db:
        seq = db.put(b"a", b"1", expire_at=AHEAD).seq
        db[b"b"] = b"2"
        db.flush(memtable=True)
        with db.snapshot() as snapshot:
            db.put(b"a", b"later")
            entry = siltstone.Entry(b"a", b"1", AHEAD, seq)
            assert snapshot.get_entry(b"a") == entry
            assert db.get_entry(b"a").expires is None
            assert snapshot.get_entry(b"c") is None
        db.flush()
        assert (db.stats().tables, db.stats().expiring_tables) == (1, 1)
        checkpoint = db.checkpoint()
    for reader in (
        siltstone.open_reader(url),
        siltstone.open_reader(url, checkpoint=checkpoint),
        siltstone.open_reader(url, options={"readers.max_staleness": "1ms"}),
    ):
        with reader:
            assert reader.get_entry(b"a").value == b"later"
            assert reader.get_entry(b"b").expires is None
            assert reader.get_entry(b"c") is None
            with pytest.raises(siltstone.Invalid):
                reader.get_entry(b"")
    with pytest.raises(siltstone.Closed):
        reader.get_entry(b"a")

    async def awaited() -> None:
        async with siltstone.aio.open_reader(url, checkpoint=checkpoint) as reader:
            assert (await reader.get_entry(b"a")).value == b"later"

    asyncio.run(awaited())


def test_parts_take_it(tmp_path: Path) -> None:
    table = siltstone.lsm.MemTable()
    table.put(b"a", b"1", expire_at=PASSED)
    table.put(b"b", b"1", expire_at=AHEAD)
    assert list(table) == [b"b"]
    with siltstone.lsm.SstWriter(tmp_path / "rows.sst") as writer:
        writer.add(b"a", b"1", expire_at=PASSED)
        writer.add_many([b"b"], [b"1"], expire_at=AHEAD)
        writer.add_many([b"c"], [b"1"], expire_at=PASSED)
    with siltstone.lsm.SstReader(tmp_path / "rows.sst") as rows:
        assert list(rows) == [b"b"]


def test_a_datetime_without_a_zone_is_refused_with_the_fix(url: str) -> None:
    with siltstone.open(url, merge_operator="append") as db:
        batch = siltstone.WriteBatch()
        for call in (
            lambda at: db.put(b"k", b"v", expire_at=at),
            lambda at: db.merge(b"k", b"v", expire_at=at),
            lambda at: db.put_many([b"k"], [b"v"], expire_at=at),
            lambda at: batch.put(b"k", b"v", expire_at=at),
            lambda at: batch.merge(b"k", b"v", expire_at=at),
            lambda at: db.transaction().put(b"k", b"v", expire_at=at),
        ):
            with pytest.raises(TypeError, match=r"timezone\.utc"):
                call(NAIVE)
            for wrong in (AHEAD.timestamp(), AHEAD.date(), timedelta(1), "2999-01-01"):
                with pytest.raises(TypeError, match="aware datetime"):
                    call(wrong)
        tx = db.transaction()
        for call in (db.put, db.merge, batch.put, batch.merge, tx.put, tx.merge):
            with pytest.raises(siltstone.Invalid, match="either ttl or expire_at"):
                call(b"k", b"v", ttl=1, expire_at=AHEAD)
        tx.rollback()
        assert len(batch) == 0
        assert list(db) == []


def test_it_is_the_same_moment_in_every_zone_and_rounded_up(tmp_path: Path) -> None:
    east = timezone(timedelta(hours=5, minutes=45))
    whole = datetime(2040, 2, 29, 12, tzinfo=UTC)
    cases = {
        whole: 0,
        whole.astimezone(east): 0,
        whole + timedelta(microseconds=1): 1,
        whole + timedelta(milliseconds=1): 1,
        whole + timedelta(milliseconds=122, microseconds=999): 123,
        datetime(1960, 1, 1, tzinfo=UTC): None,
        datetime.max.replace(tzinfo=UTC): None,
    }
    for number, (at, milli) in enumerate(cases.items()):
        path = tmp_path / f"{number}.sst"
        with siltstone.lsm.SstWriter(path) as writer:
            writer.add(b"k", b"v", expire_at=at)
        ends = writer.finish().last_expiry
        assert ends is not None
        if milli is not None:
            assert ends == whole + timedelta(milliseconds=milli)
        with siltstone.lsm.SstReader(path) as rows:
            assert (b"k" in rows) == (at > PASSED)
