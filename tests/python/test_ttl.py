"""Values that expire, in every kind of read, after flush, compaction and reopening."""

from __future__ import annotations

import asyncio
import time
import uuid
from datetime import timedelta

import pyarrow as pa
import pytest

import siltstone
import siltstone.aio
from pace_for_tests import in_time

SMALL = {"l0_sst_size_bytes": 1024, "block_bytes": 64, "flush_interval": 0}
SHORT = 0.15
"""Seconds: long enough for a write and a read on a machine that does not stall."""


@pytest.fixture
def url() -> str:
    return f"memory://{uuid.uuid4().hex}"


def everything(db: siltstone.Database | siltstone.Reader | siltstone.Snapshot) -> dict:
    rows = dict(db.items())
    assert dict(reversed(list(db.scan(reverse=True)))) == rows
    table = pa.table(db.scan().to_arrow())
    columns = (table["key"].to_pylist(), table["value"].to_pylist())
    assert dict(zip(*columns, strict=True)) == rows
    keys = [b"a", b"b", b"c", b"d", b"e"]
    assert db.get_many(keys) == [rows.get(key) for key in keys]
    assert db.get_many(pa.array(keys, pa.binary())).to_pylist() == [rows.get(k) for k in keys]
    assert [db.get(key) for key in keys] == [rows.get(key) for key in keys]
    return rows


@pytest.mark.parametrize("how", ["memory", "tables", "compacted", "reopened"])
def test_nothing_is_seen_after_its_end_and_nothing_revives(url: str, how: str) -> None:
    db = siltstone.open(url, options=SMALL)
    db[b"a"] = b"old"
    db[b"b"] = b"old"
    if how == "compacted":
        db.compact()
    whole = {b"a": b"short", b"b": b"long", b"c": b"1", b"d": b"stays", b"e": b"5"}

    def written(ttl: float) -> tuple[siltstone.Snapshot, siltstone.Scan, float]:
        db.put(b"a", b"short", ttl=ttl)
        db.put(b"b", b"long", ttl=timedelta(hours=1))
        db.put_many([b"c", b"d"], [b"1", b"2"], ttl=ttl)
        with db.batch() as batch:
            batch.put(b"d", b"stays")
            batch.put(b"e", b"5", ttl=ttl)
        return db.snapshot(), db.scan(), ttl

    snapshot, scan, ttl = in_time(written, SHORT)
    if how in {"tables", "reopened"}:
        for n in range(40):
            db[b"fill%d" % n] = b"x" * 60
            del db[b"fill%d" % n]
    assert everything(snapshot) == whole
    time.sleep(ttl + 0.05)
    if how == "compacted":
        db.compact()
    if how == "reopened":
        db.close()
        db = siltstone.open(url, options=SMALL)
    left = {b"b": b"long", b"d": b"stays"}
    assert everything(db) == left
    # A snapshot and a scan use the time of their creation.
    assert everything(snapshot) == whole
    assert dict(scan) == whole
    db.flush()
    with siltstone.open_reader(url, options=SMALL) as reader:
        assert everything(reader) == left
    snapshot.close()
    db.compact()
    assert everything(db) == left
    db.put(b"a", b"again")
    assert db[b"a"] == b"again"
    db.close()


def test_a_compaction_drops_what_has_ended(url: str) -> None:
    with siltstone.open(url, options=SMALL) as db:
        db.put_many([b"%04d" % n for n in range(500)], [b"v" * 50] * 500, ttl=SHORT)
        db[b"z"] = b"stays"
        db.compact()
        time.sleep(SHORT + 0.05)
        db.compact()
        assert db.stats().table_rows == 1
        assert dict(db) == {b"z": b"stays"}


def test_a_put_without_an_end_takes_it_away(url: str) -> None:
    with siltstone.open(url) as db:
        db.put(b"k", b"1", ttl=SHORT)
        db.put(b"k", b"2")
        time.sleep(SHORT + 0.05)
        assert db[b"k"] == b"2"


def test_operands_end_with_what_they_stand_on(url: str) -> None:
    with siltstone.open(url, merge_operator="append") as db:

        def folded(ttl: float) -> float:
            db[b"k"] = b"base"
            db.merge(b"k", b"+short", ttl=ttl)
            db.merge(b"k", b"+long")
            assert db[b"k"] == b"base+short+long"
            db.put(b"l", b"base", ttl=ttl)
            db.merge(b"l", b"+long")
            db.compact()
            assert db[b"l"] == b"base+long"
            return ttl

        time.sleep(in_time(folded, SHORT) + 0.05)
        # An expired operand is a tombstone: it also hides the values below it.
        assert dict(db) == {b"k": b"+long", b"l": b"+long"}
        db.compact()
        assert dict(db) == {b"k": b"+long", b"l": b"+long"}


@pytest.mark.parametrize("ttl", [0, -1, timedelta(0), timedelta(seconds=-1), float("nan")])
def test_an_end_that_is_no_end_is_refused(url: str, ttl: float) -> None:
    with siltstone.open(url, merge_operator="append") as db:
        for write in (
            lambda: db.put(b"k", b"v", ttl=ttl),
            lambda: db.put_many([b"k"], [b"v"], ttl=ttl),
            lambda: db.merge(b"k", b"v", ttl=ttl),
            lambda: siltstone.WriteBatch().put(b"k", b"v", ttl=ttl),
            lambda: siltstone.WriteBatch().merge(b"k", b"v", ttl=ttl),
        ):
            with pytest.raises(ValueError, match="ttl"):
                write()
        with pytest.raises(TypeError, match="ttl"):
            db.put(b"k", b"v", ttl=[1])  # type: ignore[arg-type]
        assert list(db) == []


def test_it_is_awaited(url: str) -> None:
    async def work() -> None:
        async with siltstone.aio.open(url) as db:
            ttl, took = SHORT / 2, SHORT
            while took >= ttl / 2:
                ttl, begun = 2 * ttl, time.monotonic()
                await db.put(b"a", b"1", ttl=ttl)
                await db.put_many([b"b"], [b"2"], ttl=ttl)
                await db.put_many([b"c"], [b"3"])
                there = await db.get_many([b"a", b"b", b"c"])
                took = time.monotonic() - begun
            assert there == [b"1", b"2", b"3"]
            await asyncio.sleep(ttl + 0.05)
            assert await db.get_many([b"a", b"b", b"c"]) == [None, None, b"3"]
            assert [row async for row in db.scan()] == [(b"c", b"3")]

    asyncio.run(work())
