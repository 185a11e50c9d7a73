"""Transactions, conditional writes, and `pop`, in both interfaces."""

from __future__ import annotations

import asyncio
import gc
import pickle
import threading
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest

import siltstone
from aio_for_tests import CountingLoop, at_once, rows, run
from siltstone import aio

BOTH = pytest.mark.parametrize("isolation", ["serializable", "snapshot"])


def test_a_block_commits_when_it_ends_well(db: siltstone.Database) -> None:
    db[b"a"] = b"1"
    with db.transaction() as tx:
        assert tx[b"a"] == b"1"
        tx[b"a"] = b"2"
        tx.put(b"b", b"1", ttl=60)
        del tx[b"absent"]
        assert tx.get(b"a") == b"2"
        assert b"b" in tx
        assert db.get(b"a") == b"1"
        assert b"b" not in db
        assert tx.committed is None
    assert dict(db.scan()) == {b"a": b"2", b"b": b"1"}
    assert tx.committed is not None
    tx.committed.wait()
    with pytest.raises(siltstone.Closed, match="committed"):
        tx.put(b"c", b"1")
    with pytest.raises(siltstone.Closed, match="committed"):
        tx.get(b"a")
    with pytest.raises(siltstone.Closed, match="committed"):
        tx.commit()


def test_an_exception_rolls_back(db: siltstone.Database) -> None:
    with pytest.raises(ZeroDivisionError), db.transaction() as tx:
        tx[b"a"] = b"1"
        1 / 0
    assert db.get(b"a") is None
    with pytest.raises(siltstone.Closed, match="rolled back"):
        tx.get(b"a")
    tx = db.transaction()
    tx[b"a"] = b"1"
    tx.rollback()
    tx.rollback()
    tx.close()
    with db.transaction() as tx:
        tx[b"a"] = b"1"
        tx.rollback()
    assert db.get(b"a") is None


def test_commit_by_hand(db: siltstone.Database) -> None:
    tx = db.transaction()
    tx[b"a"] = b"1"
    commit = tx.commit()
    assert commit.seq == tx.committed.seq == tx.seq + 1
    reads = db.transaction()
    assert reads[b"a"] == b"1"
    assert reads.commit() is None
    assert reads.committed is None
    with db.transaction() as tx:
        tx[b"a"] = b"2"
        tx.commit()
    assert db[b"a"] == b"2"


@BOTH
def test_a_conflict_names_the_key(db: siltstone.Database, isolation: str) -> None:
    key = b"a\xff'"
    tx = db.transaction(isolation)
    assert tx.isolation == isolation
    tx.get(key)
    tx[key] = b"mine"
    db[key] = b"theirs"
    with pytest.raises(siltstone.Conflict) as caught:
        tx.commit()
    assert caught.value.operation == "commit"
    assert caught.value.context == {"key": r"a\xff\'"}
    assert eval(f"b'{caught.value.context['key']}'") == key
    assert db[key] == b"theirs"
    with pytest.raises(siltstone.Closed, match="conflict"):
        tx.commit()
    with pytest.raises(siltstone.Conflict), db.transaction(isolation) as tx:
        tx.get(key)
        tx[key] = b"mine"
        db[key] = b"again"
    assert db[key] == b"again"


def test_isolations(db: siltstone.Database) -> None:
    """Ada and Ben each go off call because the other is on call: only snapshot isolation allows
    it."""
    for isolation in ("serializable", "snapshot"):
        db.put_many([b"call/ada", b"call/ben"], [b"on", b"on"])
        ada, ben = db.transaction(isolation), db.transaction(isolation)
        for tx, own in ((ada, b"call/ada"), (ben, b"call/ben")):
            assert len(list(tx.scan(prefix=b"call/"))) == 2
            tx.delete(own)
        ada.commit()
        if isolation == "snapshot":
            ben.commit()
        else:
            with pytest.raises(siltstone.Conflict):
                ben.commit()
    for wrong in ("read committed", "Serializable", ""):
        with pytest.raises(siltstone.Invalid, match="isolation"):
            db.transaction(wrong)
    with pytest.raises(TypeError):
        db.transaction(1)


def test_reads_see_own_writes(memory_url: str) -> None:
    with siltstone.open(memory_url, merge_operator="append") as db:
        keys = [b"%03d" % i for i in range(100)]
        db.put_many(keys, [b"base"] * 100)
        db.flush()
        with db.transaction() as tx:
            tx[b"000"] = b"own"
            tx.merge(b"001", b"+")
            tx.delete(b"002")
            tx.delete_range(b"010", b"020")
            tx[b"015"] = b"again"
            db[b"003"] = b"unseen"
            seen = {key: b"base" for key in keys if not b"010" <= key < b"020"}
            seen |= {b"000": b"own", b"001": b"base+", b"015": b"again"}
            del seen[b"002"]
            assert dict(tx.scan()) == seen
            assert list(tx.keys(reverse=True)) == sorted(seen, reverse=True)
            assert list(tx.values(b"000", b"002")) == [b"own", b"base+"]
            assert list(tx) == sorted(seen)
            assert tx.get_many(keys) == [seen.get(key) for key in keys]
            arrow = tx.get_many(pa.array(keys, pa.binary()))
            assert arrow.to_pylist() == [seen.get(key) for key in keys]
            table = pa.table(tx.scan())
            columns = (table[name].to_pylist() for name in ("key", "value"))
            assert dict(zip(*columns, strict=True)) == seen
            tx.rollback()


def test_savepoints(db: siltstone.Database) -> None:
    with db.transaction() as tx:
        tx[b"a"] = b"1"
        first = tx.savepoint()
        tx[b"a"] = b"2"
        second = tx.savepoint()
        tx[b"b"] = b"2"
        tx.rollback_to(second)
        assert tx.get(b"b") is None
        tx.rollback_to(first)
        assert tx[b"a"] == b"1"
        with pytest.raises(siltstone.Invalid, match="savepoint"):
            tx.rollback_to(second)
        with db.transaction() as other, pytest.raises(siltstone.Invalid, match="savepoint"):
            other.rollback_to(first)
    assert dict(db.scan()) == {b"a": b"1"}


def test_phantoms(db: siltstone.Database) -> None:
    """Only the part of a scan that was read counts, and little is read ahead."""
    db.put_many([b"%02d" % i for i in range(50)], [b""] * 50)
    with pytest.raises(siltstone.Conflict), db.transaction() as tx:
        tx[b"result"] = b"%d" % sum(1 for _ in tx.scan(b"10", b"20"))
        db[b"105"] = b""
    with db.transaction() as tx:
        assert next(iter(tx.keys())) == b"00"
        tx[b"result"] = b"1"
        db[b"03"] = b"other"
    with pytest.raises(siltstone.Conflict), db.transaction() as tx:
        next(iter(tx.keys()))
        tx[b"result"] = b"2"
        db[b"00"] = b"other"
    with pytest.raises(siltstone.Conflict), db.transaction() as tx:
        assert tx.get_many([b"absent"]) == [None]
        tx[b"result"] = b"2"
        db[b"absent"] = b""


def test_retry(db: siltstone.Database) -> None:
    def add(tx: siltstone.Transaction) -> int:
        count = int(tx.get(b"count", b"0")) + 1
        tx[b"count"] = b"%d" % count
        return count

    with ThreadPoolExecutor(4) as pool:
        counts = list(pool.map(lambda _: siltstone.retry(db, add, attempts=1000), range(2000)))
    assert sorted(counts) == list(range(1, 2001))
    assert db[b"count"] == b"2000"

    tries: list[int] = []

    def overtaken(tx: siltstone.Transaction) -> None:
        tries.append(1)
        add(tx)
        db[b"count"] = b"0"

    with pytest.raises(siltstone.Conflict) as caught:
        siltstone.retry(db, overtaken, attempts=4)
    assert len(tries) == 4
    assert "4 attempts" in caught.value.__notes__[0]
    with pytest.raises(ZeroDivisionError):
        siltstone.retry(db, lambda _: 1 / 0)
    for wrong in (0, -1):
        with pytest.raises(siltstone.Invalid, match="attempts"):
            siltstone.retry(db, add, attempts=wrong)


def test_conditions(db: siltstone.Database) -> None:
    db.put(b"k", b"1", if_absent=True).wait()
    for refused in (
        lambda: db.put(b"k", b"2", if_absent=True),
        lambda: db.put(b"k", b"2", if_value=b"0"),
        lambda: db.put(b"absent", b"2", if_value=b"0"),
        lambda: db.delete(b"k", if_value=b"0"),
    ):
        with pytest.raises(siltstone.Conflict) as caught:
            refused()
        assert caught.value.context["key"] in ("k", "absent")
    db.put(b"k", b"2", if_value=b"1", ttl=60)
    db.delete(b"k", if_value=bytearray(b"2"))
    assert db.get(b"k") is None
    db.put(b"k", b"", if_absent=True)
    db.put(b"k", b"3", if_value=b"")
    # The result of `get` may be passed on: None is an absent key.
    with pytest.raises(siltstone.Conflict):
        db.put(b"k", b"4", if_value=None)
    with pytest.raises(siltstone.Conflict):
        db.delete(b"k", if_value=None)
    db.put(b"absent before", b"1", if_value=db.get(b"absent before"))
    db.put(b"absent before", b"2", if_value=db.get(b"absent before"))
    assert db.pop(b"absent before") == b"2"
    with pytest.raises(siltstone.Invalid, match="if_absent or if_value"):
        db.put(b"k", b"4", if_absent=True, if_value=b"3")
    with pytest.raises(TypeError):
        db.put(b"k", b"4", if_value="3")


def test_pop(db: siltstone.Database) -> None:
    db[b"k"] = b"1"
    assert db.pop(b"k") == b"1"
    assert b"k" not in db
    with pytest.raises(KeyError) as caught:
        db.pop(b"k")
    assert caught.value.args == (b"k",)
    assert db.pop(b"k", None) is None
    assert db.pop(b"k", default=7) == 7
    with pytest.raises(siltstone.Invalid):
        db.pop(b"")

    db.put_many([b"%04d" % i for i in range(1000)], [b"v"] * 1000)
    with ThreadPoolExecutor(4) as pool:
        got = pool.map(lambda n: db.pop(b"%04d" % (n // 4), None), range(4000))
    assert sum(value is not None for value in got) == 1000


def test_blocks_outside_memory_are_waited_for(cold: siltstone.Database) -> None:
    with cold.transaction() as tx:
        assert tx[b"key00007"] == b"value00007"
        tx[b"key00007"] = b"new"
    assert cold.pop(b"key00008") == b"value00008"
    cold.put(b"key00009", b"new", if_value=b"value00009")
    with pytest.raises(siltstone.Conflict):
        cold.put(b"key00010", b"new", if_absent=True)
    assert cold.get_many([b"key00007", b"key00008", b"key00009"]) == [b"new", None, b"new"]


def test_open_transactions_are_released(db: siltstone.Database) -> None:
    """A dropped transaction: nothing is written, and later ones are not affected."""
    tx = db.transaction()
    tx[b"a"] = b"1"
    scan = tx.scan()
    del tx
    gc.collect()
    assert list(scan) == [(b"a", b"1")]
    assert db.get(b"a") is None


def test_ends(memory_url: str) -> None:
    with siltstone.open(memory_url) as db:
        db[b"a"] = b"1"
        tx = db.transaction()
        tx[b"b"] = b"1"
    assert tx[b"a"] == b"1"
    with pytest.raises(siltstone.Closed):
        tx.commit()
    with pytest.raises(siltstone.Closed):
        db.transaction()
    with pytest.raises(siltstone.Closed):
        db.pop(b"a")
    with pytest.raises(siltstone.Closed):
        db.put(b"a", b"1", if_absent=True)


def test_a_transaction_keeps_its_database_open(memory_url: str) -> None:
    tx = siltstone.open(memory_url).transaction()
    gc.collect()
    tx[b"a"] = b"1"
    assert tx.commit() is not None
    with pytest.raises(siltstone.Conflict):
        siltstone.open(memory_url, take_over=False)


def test_shown(db: siltstone.Database) -> None:
    tx = db.transaction("snapshot")
    assert repr(tx) == f"<siltstone.Transaction snapshot, seq={tx.seq}, open>"
    savepoint = tx.savepoint()
    tx.rollback()
    assert repr(tx).endswith("rolled back>")
    for one in (tx, savepoint):
        with pytest.raises(TypeError, match="pickled"):
            pickle.dumps(one)
    with pytest.raises(TypeError, match="no len"):
        len(tx)


def test_a_window_that_is_full_says_so(memory_url: str) -> None:
    with siltstone.open(
        memory_url, options={"writes": {"transaction_window_bytes": 262_144}}
    ) as db:
        tx = db.transaction()
        tx.get(b"k")
        for start in range(0, 20_000, 1000):
            keys = [b"%08d" % i for i in range(start, start + 1000)]
            db.put_many(keys, [b""] * 1000)
        tx[b"k"] = b"1"
        with pytest.raises(siltstone.Conflict, match="transaction_window_bytes"):
            tx.commit()


def test_asyncio(memory_url: str) -> None:
    async def work() -> None:
        async with aio.open(memory_url, merge_operator="append") as db:
            await db.put(b"a", b"1")
            async with db.transaction() as tx:
                assert await tx.get(b"a") == b"1"
                await tx.put(b"a", b"2")
                await tx.merge(b"m", b"+")
                await tx.put(b"gone", b"1")
                savepoint = await tx.savepoint()
                await tx.delete(b"a")
                await tx.delete_range(b"g", b"h")
                await tx.rollback_to(savepoint)
                assert await rows(tx.scan(reverse=True)) == [
                    (b"m", b"+"),
                    (b"gone", b"1"),
                    (b"a", b"2"),
                ]
                assert await tx.get_many([b"a", b"x"]) == [b"2", None]
                assert await db.get(b"a") == b"1"
            await tx.committed
            assert await db.get(b"a") == b"2"
            tx = await db.transaction("snapshot")
            assert tx.isolation == "snapshot"
            assert await tx.commit() is None
            with pytest.raises(ZeroDivisionError):
                async with db.transaction() as tx:
                    await tx.put(b"a", b"3")
                    1 / 0
            with pytest.raises(siltstone.Closed, match="rolled back"):
                await tx.get(b"a")
            with pytest.raises(siltstone.Conflict):
                async with db.transaction() as tx:
                    await tx.get(b"a")
                    await tx.put(b"a", b"3")
                    await db.put(b"a", b"4")
            with pytest.raises(siltstone.Invalid):
                await db.transaction("none")

            await db.put(b"k", b"1", if_absent=True)
            with pytest.raises(siltstone.Conflict):
                await db.put(b"k", b"1", if_absent=True)
            with pytest.raises(siltstone.Conflict):
                await db.delete(b"k", if_value=b"2")
            with pytest.raises(siltstone.Conflict):
                await db.put(b"k", b"2", if_value=None)
            await db.put(b"k", b"2", if_value=b"1")
            assert await db.pop(b"k") == b"2"
            assert await db.pop(b"k", None) is None
            with pytest.raises(KeyError):
                await db.pop(b"k")

    run(work())


def test_asyncio_retry(memory_url: str) -> None:
    async def work() -> None:
        async with aio.open(memory_url) as db:

            async def add(tx: aio.Transaction) -> int:
                count = int(await tx.get(b"count", b"0")) + 1
                await asyncio.sleep(0)
                await tx.put(b"count", b"%d" % count)
                return count

            tasks = [aio.retry(db, add, attempts=200) for _ in range(20)]
            assert sorted(await asyncio.gather(*tasks)) == list(range(1, 21))

            async def overtaken(tx: aio.Transaction) -> None:
                await add(tx)
                await db.put(b"count", b"0")

            with pytest.raises(siltstone.Conflict) as caught:
                await aio.retry(db, overtaken, 3)
            assert "3 attempts" in caught.value.__notes__[0]

    run(work())


def test_answers_from_memory_need_no_loop(memory_url: str) -> None:
    with siltstone.open(memory_url) as handle:
        db = aio.Database(handle)

        async def transact() -> None:
            async with db.transaction() as tx:
                await tx.put(b"a", b"1")
                await tx.get(b"a")

        at_once(transact())
        at_once(db.put(b"b", b"1", if_absent=True))
        assert at_once(db.pop(b"b")) == b"1"


def test_a_cancelled_task_has_written_all_or_nothing(memory_url: str) -> None:
    """A task cancelled in its block is rolled back. A task cancelled while its commit waits for
    room writes nothing, as long as there was no room."""
    full = {"max_memtable_bytes": 65_536, "l0_sst_size_bytes": 65_536}

    async def work() -> None:
        async with aio.open(memory_url, options=full) as db:
            began = asyncio.Event()

            async def block() -> None:
                async with db.transaction() as tx:
                    await tx.put(b"a", b"1")
                    began.set()
                    await asyncio.Event().wait()

            task = asyncio.create_task(block())
            await began.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert await db.get(b"a") is None

            for size in range(50):
                tx = await db.transaction()
                keys = [b"large%02d" % size, b"also%02d" % size]
                for key in keys:
                    await tx.put(key, bytes(20_000))
                task = asyncio.ensure_future(tx.commit())
                await asyncio.sleep(0)
                task.cancel()
                await asyncio.wait([task])
                await tx.rollback()
                there = [value is not None for value in await db.get_many(keys)]
                assert there in ([True, True], [False, False])
                if not task.cancelled() and task.exception() is None:
                    assert there == [True, True]

    run(work(), CountingLoop)


def test_threads_share_a_handle_not_their_writes(db: siltstone.Database) -> None:
    """Accounts whose sum never changes, as seen by readers at any time."""
    accounts = [b"account/%d" % i for i in range(8)]
    db.put_many(accounts, [b"100"] * 8)
    stop = threading.Event()
    wrong: list[int] = []

    def transfer(number: int) -> None:
        for step in range(400):
            source, target = accounts[(number + step) % 8], accounts[(number * 3 + step * 5) % 8]

            def move(tx: siltstone.Transaction, pair=(source, target)) -> None:
                if pair[0] != pair[1]:
                    left, right = (int(value) for value in tx.get_many(pair))
                    tx[pair[0]] = b"%d" % (left - 1)
                    tx[pair[1]] = b"%d" % (right + 1)

            siltstone.retry(db, move, attempts=1000)

    def audit() -> None:
        while not stop.is_set():
            for view in (db.snapshot(), db.transaction()):
                total = sum(int(value) for value in view.values(prefix=b"account/"))
                if total != 800:
                    wrong.append(total)
                view.close()

    auditor = threading.Thread(target=audit)
    auditor.start()
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(transfer, range(4)))
    stop.set()
    auditor.join()
    assert wrong == []
    assert sum(int(value) for value in db.get_many(accounts)) == 800


def test_get_entry(memory_url: str) -> None:
    options = {"l0_sst_size_bytes": 1024, "block_cache_bytes": 0}
    with siltstone.open(memory_url, options=options, merge_operator="append") as db:
        assert db.get_entry(b"absent") is None
        before = datetime.now(UTC)
        commit = db.put(b"k", b"1", ttl=60)
        entry = db.get_entry(b"k")
        assert (entry.key, entry.value, entry.seq) == (b"k", b"1", commit.seq)
        assert abs(entry.expires - before - timedelta(seconds=60)) < timedelta(seconds=10)
        assert entry.expires.tzinfo is UTC
        commit = db.merge(b"k", b"2")
        assert db.get_entry(b"k") == siltstone.Entry(b"k", b"12", None, commit.seq)
        db.delete(b"k")
        assert db.get_entry(b"k") is None
        commit = db.put(b"k", b"3")
        db.delete_range(b"a", b"b")
        entries = [db.get_entry(b"k")]
        db.put_many([b"a%03d" % i for i in range(100)], [bytes(100)] * 100)
        entries.append(db.get_entry(b"k"))
        assert entries == [siltstone.Entry(b"k", b"3", None, commit.seq)] * 2
        # Compaction to the last run removes the number, because no reader needs it.
        db.compact()
        assert db.get_entry(b"k") == siltstone.Entry(b"k", b"3", None, None)
        assert pickle.loads(pickle.dumps(entries[0])) == entries[0]
        with pytest.raises(siltstone.Invalid):
            db.get_entry(b"")

        async def work() -> None:
            awaited = aio.Database(db)
            assert await awaited.get_entry(b"k") == db.get_entry(b"k")
            assert await awaited.get_entry(b"absent") is None

        run(work())


def test_retry_takes_no_asynchronous_function(memory_url: str) -> None:
    async def work(transaction: siltstone.Transaction) -> None:
        transaction[b"key"] = b"value"

    with siltstone.open(memory_url) as db, pytest.raises(TypeError, match=r"siltstone\.aio\.retry"):
        siltstone.retry(db, work)


def test_asyncio_retry_takes_only_what_is_asynchronous(memory_url: str) -> None:
    async def work(transaction: siltstone.aio.Transaction) -> None:
        await transaction.put(b"k", b"v")

    async def refused() -> None:
        async with aio.open(memory_url) as db:
            with pytest.raises(TypeError, match=r"not asynchronous: define it with `async def`"):
                await aio.retry(db, lambda _: 1)
            with pytest.raises(TypeError, match=r"of siltstone\.aio: use siltstone\.aio\.retry"):
                siltstone.retry(db, lambda _: 1)
            assert await aio.retry(db, lambda transaction: work(transaction)) is None
            assert await db.get(b"k") == b"v"

    run(refused())
    with siltstone.open(memory_url) as db, pytest.raises(TypeError, match=r"use siltstone\.retry"):
        run(aio.retry(db, work))


def test_retry_takes_no_generator(memory_url: str) -> None:
    """The call of a generator function runs none of its code, and the write would be lost."""

    def work(transaction: siltstone.Transaction) -> Iterator[bytes]:
        transaction[b"key"] = b"value"
        yield b"key"

    async def works(transaction: aio.Transaction) -> AsyncIterator[bytes]:
        await transaction.put(b"key", b"value")
        yield b"key"

    async def awaited() -> None:
        async with aio.open(memory_url) as db:
            for wrong in (work, works):
                with pytest.raises(TypeError, match=r"is a generator.* return a list"):
                    await aio.retry(db, wrong)

    with siltstone.open(memory_url) as db:
        for wrong in (work, works):
            with pytest.raises(TypeError, match=r"is a generator.* return a list"):
                siltstone.retry(db, wrong)
        assert siltstone.retry(db, lambda transaction: list(work(transaction))) == [b"key"]
    run(awaited())
