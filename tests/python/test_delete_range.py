"""Range deletes: what each kind of read hides, after flush, compaction, snapshots and reopening."""

from __future__ import annotations

import asyncio
import uuid
from pathlib import Path

import hypothesis.strategies as st
import pyarrow as pa
import pytest
from hypothesis import given, settings

import siltstone
import siltstone.aio
import siltstone.lsm

SMALL = {
    "l0_sst_size_bytes": 2048,
    "block_bytes": 64,
    "flush_interval": 0,
    "min_move_bytes": 0,
}


@pytest.fixture
def url() -> str:
    return f"memory://{uuid.uuid4().hex}"


def key(n: int) -> bytes:
    return b"key%04d" % n


def fill(db: siltstone.Database, keys: range, value: bytes = b"v" * 20) -> None:
    db.put_many([key(n) for n in keys], [value] * len(keys))


def numbers(handle: siltstone.Database | siltstone.Reader | siltstone.Snapshot) -> set[int]:
    """The keys, after checking that every kind of read returns the same."""
    keys = list(handle)
    assert list(handle.keys(reverse=True)) == keys[::-1]
    assert pa.table(handle.scan().to_arrow())["key"].to_pylist() == keys
    there = set(keys)
    asked = [key(n) for n in range(320)]
    assert [value is not None for value in handle.get_many(asked)] == [k in there for k in asked]
    assert [k for k in asked[::7] if k in handle] == [k for k in asked[::7] if k in there]
    return {int(k[3:]) for k in keys}


@pytest.mark.parametrize("where", ["memory", "tables", "run"])
def test_it_hides_what_is_older_and_nothing_else(url: str, where: str) -> None:
    with siltstone.open(url, options=SMALL) as db:
        fill(db, range(300))
        if where == "run":
            db.compact()
        snapshot = db.snapshot()
        commit = db.delete_range(key(50), key(250))
        assert commit.seq == snapshot.seq + 1
        fill(db, range(100, 110), b"again")
        left = set(range(300)) - set(range(50, 250)) | set(range(100, 110))
        assert numbers(db) == left
        if where == "tables":
            fill(db, range(300, 320), b"x" * 200)
            left |= set(range(300, 320))
        assert numbers(db) == left
        assert numbers(snapshot) == set(range(300))
        db.flush()
        with siltstone.open_reader(url, options=SMALL) as reader:
            assert numbers(reader) == left
        db.compact()
        assert numbers(db) == left
        assert numbers(snapshot) == set(range(300))
        snapshot.close()
    for _ in range(2):
        with siltstone.open(url, options=SMALL) as db:
            assert numbers(db) == left
            db.compact()
            assert db.stats().table_rows == len(left)
            assert numbers(db) == left
    assert siltstone.admin.verify(url).problems == ()


def test_bounds_are_half_open_and_checked(url: str) -> None:
    with siltstone.open(url) as db:
        fill(db, range(3))
        db.delete_range(key(0), key(1))
        assert numbers(db) == {1, 2}
        db.delete_range(key(1), key(1) + b"\x00")
        assert numbers(db) == {2}
        for start, end in ((b"b", b"a"), (b"a", b"a"), (b"", b"a"), (b"a", b"")):
            for refused in (db.delete_range, siltstone.WriteBatch().delete_range):
                with pytest.raises(ValueError, match=r"start|key"):
                    refused(start, end)
        with pytest.raises(TypeError):
            db.delete_range("a", "b")  # type: ignore[arg-type]
        assert numbers(db) == {2}


def test_a_batch_keeps_its_order(url: str) -> None:
    with siltstone.open(url, merge_operator="append") as db:
        db[b"a"] = b"old"
        with db.batch() as batch:
            batch.put(b"b", b"before")
            batch.delete_range(b"a", b"z")
            batch.put(b"c", b"after")
            batch.merge(b"a", b"+1")
        assert dict(db) == {b"a": b"+1", b"c": b"after"}
        assert batch.commit is not None
        assert batch.commit.seq == 5


def test_it_survives_a_writer_that_is_taken_over(tmp_path: Path) -> None:
    db = siltstone.open(tmp_path)
    fill(db, range(100))
    db.delete_range(key(10), key(90)).wait()
    db[key(20)] = b"later"
    db.flush()
    left = set(range(10)) | {20} | set(range(90, 100))
    with siltstone.open(tmp_path, take_over=True) as again:
        assert numbers(again) == left
    with pytest.raises(siltstone.Fenced):
        db.close()


def test_many_that_overlap(url: str) -> None:
    with siltstone.open(url, options=SMALL) as db:
        model: set[int] = set()
        for n in range(200):
            fill(db, range(n, n + 5))
            model |= set(range(n, n + 5))
            start = n * 7 % 150
            db.delete_range(key(start), key(start + n % 40 + 1))
            model -= set(range(start, start + n % 40 + 1))
            if n % 50 == 49:
                assert numbers(db) == model
                db.compact()
                assert numbers(db) == model
        assert numbers(db) == model


def test_a_reader_that_follows_sees_no_less_and_no_more(url: str) -> None:
    with siltstone.open(url, options=SMALL) as db:
        fill(db, range(50))
        db.flush()
        with siltstone.open_reader(url, options=SMALL) as reader:
            for round_ in range(6):
                db.delete_range(key(10), key(40))
                db.flush()
                reader.refresh()
                assert numbers(reader) == set(range(50)) - set(range(10, 40))
                fill(db, range(10, 40), b"%d" % round_)
                # The row is newer than the range delete; later it has number 0 in the last run.
                db.compact()
                reader.refresh()
                assert numbers(reader) == set(range(50))
                assert reader[key(20)] == b"%d" % round_


def test_tables_of_range_deletes_alone(url: str) -> None:
    with siltstone.open(url, options=SMALL) as db:
        fill(db, range(100))
        db.compact()
    with siltstone.open(url, options=SMALL) as db:
        db.delete_range(key(0), key(50))
    with siltstone.open(url, options=SMALL) as db:
        assert numbers(db) == set(range(50, 100))
        assert siltstone.admin.verify(url).problems == ()
        db.compact()
        assert numbers(db) == set(range(50, 100))
        db.delete_range(key(0), b"z")
        db.compact()
        assert numbers(db) == set()
        assert db.stats().table_rows == 0


def test_it_is_awaited(url: str) -> None:
    async def work() -> None:
        async with siltstone.aio.open(url) as db:
            await db.put_many([b"a", b"b", b"c"], [b"1", b"2", b"3"])
            await (await db.delete_range(b"a", b"b"))
            async with db.batch() as batch:
                batch.delete_range(b"c", b"d")
                batch.put(b"c", b"4")
            assert [row async for row in db.scan()] == [(b"b", b"2"), (b"c", b"4")]
            with pytest.raises(siltstone.Invalid):
                await db.delete_range(b"b", b"a")

    asyncio.run(work())


def test_tables_that_it_covers_go_unread(url: str) -> None:
    options = {**SMALL, "embedded_compactor": False, "l0_sst_size_bytes": 65536}
    with siltstone.open(url, options=options) as db:
        for part in range(3):
            fill(db, range(part * 100, part * 100 + 100), b"v" * 600)
    with siltstone.open(url, options=options) as db:
        tables = db.stats().l0_tables
        db.delete_range(b"key", key(250))
        db.compact()
        entry = db.stats().compaction_log[-1]
        assert tables >= 3
        assert entry.dropped >= tables - 1
        assert numbers(db) == set(range(250, 300))
        # The snapshot reads below the next range delete: no version may be dropped then.
        with db.snapshot() as snapshot:
            db.delete_range(b"key", b"l")
            db.compact()
            assert numbers(snapshot) == set(range(250, 300))
        assert numbers(db) == set()


def test_the_parts_hide_what_it_deletes_and_do_not_merge_it() -> None:
    memtable = siltstone.lsm.MemTable()
    memtable.put(b"a", b"1")
    batch = siltstone.WriteBatch()
    batch.delete_range(b"a", b"b")
    batch.put(b"c", b"2")
    memtable.write(batch)
    assert memtable.get(b"a") is None
    assert list(memtable.scan()) == [(b"c", b"2")]
    with pytest.raises(siltstone.Unsupported, match="range deletes"):
        list(siltstone.lsm.merge_sorted([memtable]))


LONGEST = b"\xff" * 65_535
"""The greatest possible key."""


def bounds(manifest: dict) -> list[bytes]:
    """The last keys of all tables."""
    layers = [*manifest["l0"], *manifest["runs"]]
    return [table["last_key"] for layer in layers for table in layer["tables"]]


@pytest.mark.parametrize("where", ["memory", "frozen", "tables", "run", "reopened"])
def test_an_open_end_deletes_to_the_last_key(url: str, where: str) -> None:
    there = [b"\x00", b"a", b"m", b"m\x00", b"z" * 100, b"\xff", b"\xff" * 300]
    for case, longest in enumerate(((), (LONGEST,), (b"n" * 65_535,))):
        place = f"{url}-{case}"
        db = siltstone.open(place, options=SMALL)
        db.put_many([*there, *longest], [b"v"] * (len(there) + len(longest)))
        if where == "frozen":
            fill(db, range(100))
            db.delete_range(prefix=b"key")
        if where == "tables":
            db.flush(memtable=True)
        if where == "run":
            db.compact()
        if where == "reopened":
            db.close()
            db = siltstone.open(place, options=SMALL)
        snapshot = db.snapshot()
        commit = db.delete_range(b"m")
        db[b"p"] = b"later"
        assert commit.seq > snapshot.seq
        left = {b"\x00": b"v", b"a": b"v", b"p": b"later"}
        assert dict(db) == left
        assert set(snapshot) == {*there, *longest}
        snapshot.close()
        db.close()
        with siltstone.open(place, options=SMALL) as db:
            assert dict(db) == left
            db.compact()
            assert dict(db) == left
            assert db.stats().table_rows == len(left)
        assert siltstone.admin.verify(place).problems == ()


def test_open_starts_and_prefixes(url: str) -> None:
    there = [b"\x00", b"\x00\x00", b"a", b"ab", b"ac", b"b", b"\xfe", b"\xff", b"\xff\xff\x07"]
    cases = {
        (("end", b"ab"),): lambda key: key < b"ab",
        (("start", b"ab"),): lambda key: key >= b"ab",
        (("start", b"\x00"),): lambda _: True,
        (("end", LONGEST),): lambda key: key < LONGEST,
        (("prefix", b"a"),): lambda key: key.startswith(b"a"),
        (("prefix", b"\xff"),): lambda key: key.startswith(b"\xff"),
        (("prefix", b"\xff\xff"),): lambda key: key.startswith(b"\xff\xff"),
        (("prefix", b"\x00"),): lambda key: key.startswith(b"\x00"),
        (("prefix", b"nothing"),): lambda _: False,
    }
    with siltstone.open(url, options=SMALL) as db:
        for arguments, gone in cases.items():
            db.put_many(there, [b"v"] * len(there))
            with db.snapshot() as before:
                db.delete_range(**dict(arguments))
                assert list(db) == [key for key in there if not gone(key)]
                batch = siltstone.WriteBatch()
                batch.delete_range(**dict(arguments))
                batch.put(b"after", b"v")
                db.put_many(there, [b"v"] * len(there))
                db.write(batch)
                left = {key for key in there if not gone(key)} | {b"after"}
                assert set(db) == left
                assert set(before) >= set(there)
            db.delete(b"after")
        db.delete_range(start=b"\x00")
        assert list(db) == []
    with siltstone.open(f"{url}-new") as db:
        # The range is empty: nothing is written.
        seq = db.put(b"a", b"v").seq
        assert db.delete_range(start=b"b").seq == seq


def test_deleting_everything_must_be_explicit(url: str) -> None:
    with siltstone.open(url) as db:
        db[b"a"] = b"v"
        for delete in (db.delete_range, siltstone.WriteBatch().delete_range):
            with pytest.raises(siltstone.Invalid, match=r"start=b'\\x00'"):
                delete()
            with pytest.raises(siltstone.Invalid, match=r"start=b'\\x00'"):
                delete(prefix=b"")
            for bound in ({"start": b"a"}, {"end": b"b"}):
                with pytest.raises(siltstone.Invalid, match="either prefix"):
                    delete(**bound, prefix=b"a")
            for wrong in ({"start": b""}, {"end": b""}, {"prefix": b"x" * 65_536}):
                with pytest.raises(siltstone.Invalid):
                    delete(**wrong)
            with pytest.raises(TypeError):
                delete(prefix="a")
        assert list(db) == [b"a"]


def test_an_open_end_leaves_bounds_as_narrow_as_they_are(url: str) -> None:
    with siltstone.open(url, options={**SMALL, "embedded_compactor": False}) as db:
        fill(db, range(10))
        batch = siltstone.WriteBatch()
        batch.put(b"last", b"v")
        batch.delete_range(start=key(5))
        db.write(batch)
        db.delete_range(start=b"key")
        db.flush(memtable=True)
        last = bounds(siltstone.admin.manifest(url))
        assert last
        assert max(last) <= b"last\x00"
        assert list(db) == []


def test_open_ends_are_awaited(url: str) -> None:
    async def work() -> None:
        async with siltstone.aio.open(url) as db:
            await db.put_many([b"a", b"b", b"c"], [b"1", b"2", b"3"])
            await (await db.delete_range(b"c"))
            await (await db.delete_range(end=b"b"))
            async with db.batch() as batch:
                batch.delete_range(prefix=b"b")
                batch.put(b"z", b"4")
            assert [row async for row in db.scan()] == [(b"z", b"4")]
            with pytest.raises(siltstone.Invalid):
                await db.delete_range()

    asyncio.run(work())


def test_a_memtable_alone_takes_an_open_end() -> None:
    memtable = siltstone.lsm.MemTable()
    batch = siltstone.WriteBatch()
    batch.put(b"a", b"1")
    batch.put(b"b", b"1")
    batch.delete_range(start=b"b")
    memtable.write(batch)
    assert list(memtable) == [b"a"]


BYTES = st.sampled_from([b"\x00", b"a", b"ab", b"b", b"\xff", b"\xff\xff", LONGEST]) | st.binary(
    min_size=1, max_size=3
)


@settings(max_examples=60, deadline=None)
@given(
    steps=st.lists(
        st.one_of(
            st.tuples(st.just("put"), BYTES),
            st.tuples(st.just("from"), BYTES),
            st.tuples(st.just("below"), BYTES.filter(lambda key: key > b"\x00")),
            st.tuples(st.just("prefix"), BYTES),
            st.tuples(st.just("batch"), BYTES),
            st.tuples(st.sampled_from(["tables", "compact", "reopen"]), st.none()),
        ),
        max_size=30,
    )
)
def test_open_ends_against_a_model(steps: list) -> None:
    url = f"memory://{uuid.uuid4().hex}"
    db = siltstone.open(url, options=SMALL)
    model: set[bytes] = set()
    for what, key in steps:
        if what == "put":
            db[key] = b"v"
            model.add(key)
        elif what == "from":
            db.delete_range(key)
            model = {one for one in model if one < key}
        elif what == "below":
            db.delete_range(end=key)
            model = {one for one in model if one >= key}
        elif what == "prefix":
            db.delete_range(prefix=key)
            model = {one for one in model if not one.startswith(key)}
        elif what == "batch":
            with db.batch() as batch:
                batch.put(key + b"\x01" if len(key) < 9 else key, b"v")
                batch.delete_range(key)
                batch.put(b"c", b"v")
            model = {one for one in model if one < key} | {b"c"}
        elif what == "tables":
            db.flush(memtable=True)
        elif what == "compact":
            db.compact()
        else:
            db.close()
            db = siltstone.open(url, options=SMALL)
        assert set(db) == model
    db.close()
    assert siltstone.admin.verify(url).problems == ()


def test_transactions_have_open_ends_too(url: str) -> None:
    async def asynchronous() -> None:
        async with siltstone.aio.open(url) as db, db.transaction() as tx:
            await tx.delete_range(prefix=b"b")
            assert [row async for row in tx.scan()] == []

    with siltstone.open(url) as db:
        db.put_many([b"a1", b"b1", b"b2", b"c1", b"d1"], [b"v"] * 5)
        with db.transaction() as tx:
            tx.delete_range(prefix=b"a")
            tx.delete_range(start=b"c")
            tx.put(b"d2", b"v")
            assert list(tx) == [b"b1", b"b2", b"d2"]
            with pytest.raises(siltstone.Invalid, match="start, an end or a prefix"):
                tx.delete_range()
        assert list(db) == [b"b1", b"b2", b"d2"]
        with pytest.raises(siltstone.Conflict), db.transaction() as tx:
            assert tx.get(b"z") is None
            tx.put(b"a", b"v")
            db.delete_range(start=b"c")
        assert list(db) == [b"b1", b"b2"]
    asyncio.run(asynchronous())
