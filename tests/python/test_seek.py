"""`Scan.seek`: skips forward within the range, in the direction of the scan."""

from __future__ import annotations

import asyncio
import uuid
from bisect import bisect_left, bisect_right

import hypothesis.strategies as st
import pyarrow as pa
import pytest
from hypothesis import given, settings

import siltstone
import siltstone.aio
import siltstone.lsm

SMALL = {"l0_sst_size_bytes": 2048, "block_bytes": 128, "block_cache_bytes": 0}


@pytest.fixture
def url() -> str:
    return f"memory://{uuid.uuid4().hex}"


def key(n: int) -> bytes:
    return b"%05d" % n


def fill(db: siltstone.Database, rows: int) -> None:
    db.put_many([key(n) for n in range(rows)], [b"v%d" % n for n in range(rows)])


@pytest.mark.parametrize("read", [1, 17, 113, 150, 300])
def test_rows_that_were_read_ahead_do_not_come_after_a_seek(url: str, read: int) -> None:
    with siltstone.open(url) as db:
        fill(db, 1000)
        scan = db.keys()
        assert [next(scan) for _ in range(read)] == [key(n) for n in range(read)]
        scan.seek(key(500))
        assert list(scan) == [key(n) for n in range(500, 1000)]


def test_it_goes_on_at_the_key_or_behind_it(url: str) -> None:
    with siltstone.open(url, options=SMALL) as db:
        fill(db, 1000)
        del db[key(500)]
        scan = db.scan(key(10), key(900))
        assert next(scan) == (key(10), b"v10")
        scan.seek(key(400))
        assert next(scan) == (key(400), b"v400")
        scan.seek(key(500))
        assert next(scan) == (key(501), b"v501")
        scan.seek(key(600) + b"\x00")
        assert next(scan) == (key(601), b"v601")
        # Rows that were already returned do not come again.
        scan.seek(key(20))
        scan.seek(key(601))
        assert next(scan) == (key(602), b"v602")
        scan.seek(b"")
        assert next(scan)[0] == key(603)
        scan.seek(key(899))
        assert list(scan) == [(key(899), b"v899")]
        scan.seek(key(800))
        assert list(scan) == []
        beyond = db.scan(key(10), key(900))
        beyond.seek(key(900))
        assert list(beyond) == []
        before = db.keys(key(10), key(900))
        before.seek(key(2))
        assert next(before) == key(10)


def test_backward_it_goes_down(url: str) -> None:
    with siltstone.open(url, options=SMALL) as db:
        fill(db, 1000)
        scan = db.keys(key(10), key(900), reverse=True)
        scan.seek(key(950))
        assert next(scan) == key(899)
        scan.seek(key(700))
        assert next(scan) == key(700)
        scan.seek(key(800))
        assert next(scan) == key(699)
        scan.seek(key(500) + b"\x00")
        assert next(scan) == key(500)
        scan.seek(key(10))
        assert list(scan) == [key(10)]
        scan = db.keys(key(10), reverse=True)
        scan.seek(key(9))
        assert list(scan) == []


def test_it_reads_the_moment_of_the_scan(url: str) -> None:
    with siltstone.open(url, options=SMALL) as db:
        fill(db, 1000)
        scan = db.values()
        assert next(scan) == b"v0"
        db.delete_range(start=b"\x00")
        db.compact()
        scan.seek(key(100))
        assert next(scan) == b"v100"
        scan.seek(key(900))
        assert list(scan) == [b"v%d" % n for n in range(900, 1000)]
        limited = db.values(limit=5)
        with pytest.raises(siltstone.Invalid, match="limit"):
            limited.seek(key(1))
        assert list(limited) == []
        with pytest.raises(TypeError, match="encode"):
            scan.seek("a")  # type: ignore[arg-type]


def test_nothing_that_is_passed_over_is_read(url: str) -> None:
    with siltstone.open(url, options={**SMALL, "l0_sst_size_bytes": 1 << 20}) as db:
        fill(db, 20_000)
        db.compact()
    with siltstone.open(url, options=SMALL) as db:
        scan = db.keys()
        next(scan)
        before = db.stats().bytes_read
        scan.seek(key(19_990))
        assert len(list(scan)) == 10
        assert db.stats().bytes_read - before < 40_000


def test_arrow_begins_where_a_scan_was_sent(url: str) -> None:
    with siltstone.open(url, options=SMALL) as db:
        fill(db, 300)
        scan = db.scan()
        scan.seek(key(250))
        table = pa.table(scan.to_arrow())
        assert table["key"].to_pylist() == [key(n) for n in range(250, 300)]
        # After the scan was handed over or closed, no row comes.
        scan.seek(key(280))
        assert list(scan) == []
        closed = db.scan()
        closed.close()
        closed.seek(key(1))
        assert list(closed) == []


def test_merges_of_parts_go_on_too() -> None:
    newer, older = siltstone.lsm.MemTable(), siltstone.lsm.MemTable()
    older.put_many([key(n) for n in range(500)], [b"old"] * 500)
    newer.put_many([key(n) for n in range(0, 500, 2)], [b"new"] * 250)
    scan = siltstone.lsm.merge_sorted([newer, older])
    assert next(scan) == (key(0), b"new")
    scan.seek(key(333))
    assert next(scan) == (key(333), b"old")
    scan.seek(key(1))
    assert next(scan) == (key(334), b"new")
    scan.seek(key(999))
    assert list(scan) == []


KEYS = st.binary(min_size=1, max_size=2)
STEPS = st.lists(
    st.one_of(st.tuples(st.just("next"), st.integers(1, 90)), st.tuples(st.just("seek"), KEYS)),
    max_size=12,
)


class Model:
    """The expected rows as a list, with a position."""

    def __init__(self, rows: list[bytes], reverse: bool) -> None:
        self.rows = rows[::-1] if reverse else rows
        self.at, self.reverse = 0, reverse

    def next(self, count: int) -> list[bytes]:
        given = self.rows[self.at : self.at + count]
        self.at += len(given)
        return given

    def seek(self, key: bytes) -> None:
        if self.reverse:
            at = len(self.rows) - bisect_right(self.rows[::-1], key)
        else:
            at = bisect_left(self.rows, key)
        self.at = max(self.at, at)


MADE = {
    "scan": lambda one: (one, b"=" + one),
    "keys": lambda one: one,
    "values": lambda one: b"=" + one,
}


def written(db: siltstone.Database, keys: set[bytes], later: set[bytes], tables: bool) -> None:
    """Writes keys with their values, some in a second layer, between deleted ones."""
    both = sorted(keys)
    db.put_many(both, [b"=" + one for one in both])
    if tables:
        db.flush(memtable=True)
    for one in later:
        if one in keys:
            db[one] = b"=" + one
        else:
            del db[one]


@st.composite
def scans(draw) -> tuple:
    """Draws rows to write, a scan of them, and its model."""
    keys, later = draw(st.sets(KEYS, max_size=120)), draw(st.sets(KEYS, max_size=20))
    start, end = draw(st.none() | KEYS), draw(st.none() | KEYS)
    reverse = draw(st.booleans())
    above = sorted(one for one in keys if start is None or start <= one)
    inside = [one for one in above if end is None or one < end]
    return keys, later, {"start": start, "end": end, "reverse": reverse}, Model(inside, reverse)


@settings(max_examples=120, deadline=None)
@given(case=scans(), steps=STEPS, yields=st.sampled_from(sorted(MADE)), tables=st.booleans())
def test_seeks_are_those_of_a_list(case: tuple, steps: list, yields: str, tables: bool) -> None:
    keys, later, how, model = case
    made = MADE[yields]
    with siltstone.open(f"memory://{uuid.uuid4().hex}", options=SMALL) as db:
        written(db, keys, later, tables)
        scan = getattr(db, yields)(**how)
        db.delete_range(start=b"\x00")
        for what, argument in steps:
            if what == "seek":
                scan.seek(argument)
                model.seek(argument)
            else:
                given = [row for _, row in zip(range(argument), scan, strict=False)]
                assert given == [made(one) for one in model.next(argument)]
        assert list(scan) == [made(one) for one in model.next(1000)]


@settings(max_examples=80, deadline=None)
@given(case=scans(), steps=STEPS, yields=st.sampled_from(sorted(MADE)), tables=st.booleans())
def test_awaited_seeks_are_those_of_a_list(
    case: tuple, steps: list, yields: str, tables: bool
) -> None:
    keys, later, how, model = case
    made = MADE[yields]

    async def walk(db: siltstone.aio.Database) -> None:
        scan = getattr(db, yields)(**how)
        await db.delete_range(start=b"\x00")
        for what, argument in steps:
            if what == "seek":
                await scan.seek(argument)
                model.seek(argument)
                continue
            expected = [made(one) for one in model.next(argument)]
            assert [await anext(scan) for _ in expected] == expected
        assert [row async for row in scan] == [made(one) for one in model.next(1000)]

    with siltstone.open(f"memory://{uuid.uuid4().hex}", options=SMALL) as db:
        written(db, keys, later, tables)
        asyncio.run(walk(siltstone.aio.Database(db)))


def test_it_is_awaited(url: str) -> None:
    async def work() -> None:
        async with siltstone.aio.open(url, options=SMALL) as db:
            await db.put_many([key(n) for n in range(1000)], [b"v"] * 1000)
            await db.flush(memtable=True)
            scan = db.keys()
            assert await anext(scan) == key(0)
            await scan.seek(key(7))
            assert await anext(scan) == key(7)
            await scan.seek(key(700))
            assert await anext(scan) == key(700)
            await scan.seek(key(1))
            assert await anext(scan) == key(701)
            scan = db.scan()
            await scan.seek(key(990))
            batches = [pa.record_batch(batch) async for batch in scan.to_arrow(4)]
            keys = [one for batch in batches for one in batch["key"].to_pylist()]
            assert keys == [key(n) for n in range(990, 1000)]
            await scan.seek(key(1))
            assert [row async for row in scan] == []
            with pytest.raises(siltstone.Invalid, match="limit"):
                await db.keys(limit=3).seek(key(1))

    asyncio.run(work())
