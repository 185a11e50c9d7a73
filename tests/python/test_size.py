"""`approximate_size`: the approximate size of a range, without reading a block."""

from __future__ import annotations

import asyncio
import uuid
from itertools import pairwise
from pathlib import Path

import pytest

import siltstone
import siltstone.aio
from siltstone import Size

BLOCK = 1024
OPTIONS = {
    "block_bytes": BLOCK,
    "l0_sst_size_bytes": 64 << 10,
    "compression": "none",
    "embedded_compactor": False,
}
VALUE = b"v" * 100
PER_BLOCK = BLOCK / len(VALUE)
"""The highest number of rows in a block: keys take room as well."""


@pytest.fixture
def url() -> str:
    return f"memory://{uuid.uuid4().hex}"


def key(n: int) -> bytes:
    return b"key%06d" % n


def fill(db: siltstone.Database, rows: range) -> None:
    db.put_many([key(n) for n in rows], [VALUE] * len(rows))


def layers(db: siltstone.Database | siltstone.Reader) -> int:
    return db.stats().read_amplification


RANGES = [(0, 6000), (0, 1), (5999, 6000), (100, 5000), (1000, 1001), (2500, 2600), (5000, 7000)]


@pytest.mark.parametrize("where", ["memory", "tables", "run"])
def test_it_is_near_what_is_there(url: str, where: str) -> None:
    options = {**OPTIONS, "l0_sst_size_bytes": 8 << 20} if where == "memory" else OPTIONS
    with siltstone.open(url, options=options) as db:
        fill(db, range(6000))
        if where != "memory":
            db.flush(memtable=True)
        if where == "run":
            db.compact()
        row = len(VALUE) + len(key(0))
        off = 0 if where == "memory" else 2 * layers(db)
        for start, end in RANGES:
            rows = len(range(6000)[start:end])
            size = db.approximate_size(key(start), key(end))
            assert abs(size.rows - rows) <= off * PER_BLOCK, (start, end)
            if where == "memory":
                assert size.bytes >= rows * row
            else:
                # Never too small, and at most two blocks per layer too large.
                assert rows * row <= size.bytes * 1.05
                assert size.bytes <= rows * row * 1.1 + off * BLOCK * 1.2, (start, end)
        assert db.approximate_size().rows == 6000
        assert db.approximate_size(prefix=b"key") == db.approximate_size()
        assert db.approximate_size(prefix=b"key0001").rows == pytest.approx(100, abs=off * 10)
        assert db.approximate_size(end=key(10)) == db.approximate_size(key(0), key(10))
        for nothing in ((b"l", None), (None, b"a"), (key(5), key(5)), (key(7), key(5))):
            assert db.approximate_size(*nothing) == Size(bytes=0, rows=0)


def test_parts_add_up_to_no_less_than_the_whole(url: str) -> None:
    with siltstone.open(url, options=OPTIONS) as db:
        for first in range(0, 6000, 100):
            fill(db, range(first, first + 100))
        db.flush(memtable=True)
        whole, edges = db.approximate_size(), [key(n) for n in range(0, 6001, 500)]
        parts = [db.approximate_size(start, end) for start, end in pairwise(edges)]
        assert whole.bytes <= sum(part.bytes for part in parts)
        assert sum(part.bytes for part in parts) <= whole.bytes + len(parts) * 2 * BLOCK * 1.2
        assert whole.rows <= sum(part.rows for part in parts) <= whole.rows * 1.3


def test_stored_rows_count_until_they_are_compacted(url: str) -> None:
    with siltstone.open(url, options=OPTIONS) as db:
        for _ in range(3):
            fill(db, range(1000))
            db.flush(memtable=True)
        db.delete_range(key(500))
        assert db.approximate_size().rows == pytest.approx(3000, abs=10)
        db.compact()
        assert db.approximate_size().rows == 500
        assert db.approximate_size(key(500)).rows == 0


def test_no_block_is_read(tmp_path: Path) -> None:
    with siltstone.open(tmp_path, options=OPTIONS) as db:
        for first in range(0, 20_000, 4000):
            fill(db, range(first, first + 4000))
            db.flush(memtable=True)
        assert db.stats().l0_tables == 5
    # A reader that looks for newer data meanwhile would send requests, too.
    still = {**OPTIONS, "reader_lease": False, "manifest_poll_interval": 3600}
    with siltstone.open_reader(tmp_path, options=still) as reader:
        before = reader.stats()
        reader.approximate_size()
        reader.approximate_size(key(0))
        assert reader.stats().get_requests == before.get_requests
        reader.approximate_size(key(4321), key(16_789))
        after = reader.stats()
        # One index at each end of the range.
        assert after.get_requests - before.get_requests == 2
        assert after.bytes_read - before.bytes_read < 64 << 10
        for n in range(4000, 8000, 100):
            reader.approximate_size(key(n + 1), key(n + 12_000))
        assert reader.stats().get_requests == after.get_requests
        assert reader.stats().block_cache_misses == before.block_cache_misses


def test_reader_and_snapshot_answer_for_what_they_see(url: str) -> None:
    with siltstone.open(url, options=OPTIONS) as db:
        fill(db, range(1000))
        with db.snapshot() as snapshot:
            db.flush(memtable=True)
            fill(db, range(1000, 5000))
            db.flush(memtable=True)
            assert snapshot.approximate_size(key(1000)).rows == 0
            assert snapshot.approximate_size(prefix=b"key").rows == 1000
        with siltstone.open_reader(url, options=OPTIONS) as reader:
            assert reader.approximate_size(key(1000)).rows == pytest.approx(4000, abs=20)
            db.compact()
            reader.refresh()
            assert reader.approximate_size(key(0), key(1000)).rows == pytest.approx(1000, abs=20)
    with pytest.raises(siltstone.Closed):
        db.approximate_size()


def test_it_is_awaited(url: str) -> None:
    async def work() -> None:
        async with siltstone.aio.open(url, options=OPTIONS) as db:
            await db.put_many([key(n) for n in range(5000)], [VALUE] * 5000)
            await db.flush(memtable=True)
        async with siltstone.aio.open(url, options=OPTIONS) as db:
            size = await db.approximate_size(key(1000), key(2000))
            assert size.rows == pytest.approx(1000, abs=20)
            assert await db.approximate_size(key(1000), key(2000)) == size
            async with db.snapshot() as snapshot:
                assert await snapshot.approximate_size() == await db.approximate_size()
        async with siltstone.aio.open_reader(url) as reader:
            assert await reader.approximate_size(key(1000), key(2000)) == size
            with pytest.raises(siltstone.Invalid, match="either prefix"):
                await reader.approximate_size(b"a", prefix=b"b")

    asyncio.run(work())


def test_a_transaction_measures_what_it_sees(url: str) -> None:
    async def asynchronous() -> Size:
        async with siltstone.aio.open(url) as db, db.transaction() as tx:
            return await tx.approximate_size()

    with siltstone.open(url, options=OPTIONS) as db:
        fill(db, range(1000))
        db.flush(memtable=True)
        with db.transaction() as tx:
            before = tx.approximate_size()
            assert before == db.approximate_size()
            fill(db, range(1000, 2000))
            db.flush(memtable=True)
            assert tx.approximate_size() == before
            assert db.approximate_size() != before
            tx.put(b"own", b"x" * 500)
            own = tx.approximate_size()
            assert own.rows == before.rows + 1
            assert own.bytes >= before.bytes + 500
            assert tx.approximate_size(prefix=b"own").rows == 1
            tx.rollback()
        after = db.approximate_size()
    assert asyncio.run(asynchronous()) == after
