"""`siltstone.aio`: the same answers as the surface that waits, and how seldom it wakes a loop."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import inspect
import os
import signal
import subprocess
import sys
import threading
import time
import uuid
import weakref

import hypothesis.strategies as st
import pyarrow as pa
import pytest
from hypothesis import given, settings

import siltstone
from siltstone import aio

try:
    import uvloop
except ImportError:
    uvloop = None

LOOPS = [asyncio.SelectorEventLoop, *([uvloop.Loop] if uvloop else [])]

# A WAL object a second at most, and none unless somebody waits: the second wait lasts.
SLOW = {"flush_interval": 3600, "max_wal_puts_per_second": 2}


class CountingLoop(asyncio.SelectorEventLoop):
    """Counts what wakes it from other threads, and the futures made on it."""

    def __init__(self) -> None:
        super().__init__()
        self.wakes = 0
        self.futures = 0

    def call_soon_threadsafe(self, callback, *args, context=None):
        self.wakes += 1
        return super().call_soon_threadsafe(callback, *args, context=context)

    def add_reader(self, descriptor, callback, *args):
        def counted() -> None:
            self.wakes += 1
            callback(*args)

        return super().add_reader(descriptor, counted)

    def create_future(self):
        self.futures += 1
        return super().create_future()

    def run_in_executor(self, *_arguments):
        raise AssertionError("nothing runs in an executor")


@contextlib.contextmanager
def counting():
    """Counts the wakes of a block: the loop, whose count starts at 0 with each `fresh`."""
    loop = asyncio.get_running_loop()
    before = loop.wakes
    counted: list[int] = []
    yield counted
    counted.append(loop.wakes - before)


def run(coroutine, loop_factory=CountingLoop):
    """What `asyncio.run` does, on a loop of this kind."""
    with asyncio.Runner(loop_factory=loop_factory) as runner:
        return runner.run(coroutine)


def at_once(coroutine):
    """The answer of a coroutine that never waits, without any event loop."""
    try:
        coroutine.send(None)
    except StopIteration as done:
        return done.value
    raise AssertionError("it waits")


async def rows(scan) -> list:
    return [row async for row in scan]


# --- Calls that need not wait ---------------------------------------------------------------------


def test_what_memory_answers_needs_no_event_loop(memory_url: str) -> None:
    with siltstone.open(memory_url) as handle:
        db = aio.Database(handle)
        commit = at_once(db.put(b"a", b"1"))
        assert at_once(db.put(b"b", b"2", ttl=60)).seq == commit.seq + 1
        assert at_once(db.get(b"a")) == b"1"
        assert at_once(db.get(b"x")) is None
        assert at_once(db.get(b"x", 7)) == 7
        assert at_once(db.get_many([b"a", b"x"])) == [b"1", None]
        assert at_once(db.get_many([b"a"] * 100)) == [b"1"] * 100
        at_once(db.delete(b"b"))
        at_once(db.put_many([b"c", b"d"], [b"3", b"4"]))
        assert at_once(db.write(pa.table({"key": [b"e"], "value": [b"5"]}))).seq == commit.seq + 5
        everything = [(b"a", b"1"), (b"c", b"3"), (b"d", b"4"), (b"e", b"5")]
        assert at_once(rows(db.scan())) == everything
        assert at_once(rows(db.keys(reverse=True, limit=1))) == [b"e"]
        snapshot = at_once(db.snapshot()._begin())
        assert at_once(rows(snapshot.items())) == everything
        assert at_once(db.stats()).visible_seq == snapshot.seq
        assert at_once(db.metrics())["visible_seq"] == snapshot.seq
        handle.flush()
        at_once(db.flush())
        assert commit.durable
        at_once(commit.wait())

        async def waited() -> None:
            await commit

        at_once(waited())


def test_what_memory_answers_touches_no_event_loop(memory_url: str) -> None:
    with siltstone.open(memory_url) as handle:
        handle.put_many([b"%05d" % i for i in range(5000)], [b"v"] * 5000)
        handle.flush()

        async def work() -> None:
            loop, db = asyncio.get_running_loop(), aio.Database(handle)
            futures = loop.futures
            with counting() as wakes:
                for i in range(100):
                    assert await db.get(b"%05d" % i) == b"v"
                assert len(await rows(db.scan())) == 5000
                await db.flush()
            assert (wakes, loop.futures - futures) == ([0], 0)
            tasks = [asyncio.create_task(db.put(b"%d" % i, b"v")) for i in range(1000)]
            with counting() as wakes:
                await asyncio.gather(*tasks)
            assert wakes == [0]

        run(work())


# --- Calls that wait ------------------------------------------------------------------------------


def test_a_call_that_waits_wakes_the_loop_once(url: str) -> None:
    small = {"block_bytes": 256, "block_cache_bytes": 0}
    keys = [b"key%05d" % i for i in range(2000)]

    async def work() -> None:
        total = 0

        async def once(call):
            """At most one wake: none when the work was quicker than the first look at it."""
            nonlocal total
            with counting() as wakes:
                answer = await call()
            assert wakes[0] <= 1, call
            total += wakes[0]
            return answer

        async def opened(opening):
            return await opening

        db = await once(lambda: opened(aio.open(url, options=small)))
        await db.put_many(keys, keys)
        await once(db.close)
        for _ in range(5):
            async with aio.open(url, options=small) as db:
                commit = await db.put(b"x", b"y")
                for call, expected in (
                    (lambda: db.get(b"key00007"), b"key00007"),
                    (lambda: db.get(b"key01000x"), None),
                    (lambda: db.get(b"key01000", 3), b"key01000"),
                    (lambda: db.get_many(keys[500:700]), keys[500:700]),
                    (commit.wait, None),
                    (lambda: rows(db.keys(keys[300], limit=3)), keys[300:303]),
                ):
                    assert await once(call) == expected
                commit = await db.put(b"x", b"z")
                await once(db.flush)
                assert commit.durable
                reader = await once(lambda: opened(aio.open_reader(url, options=small)))
                await once(reader.refresh)
                assert await reader.get(b"x") == b"z"
                await once(reader.close)
        assert total > 20

    run(work())


def test_a_scan_wakes_once_a_refill_and_a_stream_once_a_batch(cold) -> None:
    async def work() -> None:
        db = aio.Database(cold)
        with counting() as wakes:
            keys = await rows(db.keys())
        assert keys == [b"key%05d" % i for i in range(2000)]
        refills = cold.stats().get_requests
        assert 1 <= wakes[0] <= refills
        with counting() as wakes:
            batches = [pa.record_batch(batch) async for batch in db.scan().to_arrow(600)]
        assert [batch.num_rows for batch in batches] == [600, 600, 600, 200]
        assert wakes[0] <= len(batches) + 1
        table = pa.Table.from_batches(batches)
        assert table.schema.names == ["key", "value"]
        assert table["key"].to_pylist() == keys

    run(work())


def test_commits_that_become_durable_together_wake_the_loop_together(url: str) -> None:
    async def work() -> None:
        async with aio.open(url, options={"flush_interval": 3600}) as db:
            await (await db.put(b"first", b"v"))

            async def durably(i: int) -> None:
                await (await db.put(b"%04d" % i, b"v"))

            before = (await db.stats()).put_requests
            with counting() as wakes:
                await asyncio.gather(*(durably(i) for i in range(1000)))
            objects = (await db.stats()).put_requests - before
            assert 1 <= wakes[0] <= objects
            # They share objects; how many there are depends on how quick the store is.
            assert objects < 500
            assert len(await rows(db.keys())) == 1001

    run(work())


def test_waits_for_one_object_wake_exactly_once(url: str) -> None:
    async def work() -> None:
        async with aio.open(url, options=SLOW) as db:
            await (await db.put(b"first", b"v"))
            # The rate holds the next object back until all of these wait for it.
            commits = [await db.put(b"%04d" % i, b"v") for i in range(1000)]
            with counting() as wakes:
                await asyncio.gather(*commits)
            assert wakes == [1]
            assert all(commit.durable for commit in commits)

    run(work())


@pytest.mark.parametrize("factory", LOOPS)
def test_a_thousand_puts_are_awaited_together(url: str, factory) -> None:
    async def work() -> None:
        async with aio.open(url) as db:
            commits = await asyncio.gather(*(db.put(b"%04d" % i, b"%d" % i) for i in range(1000)))
            await asyncio.gather(*commits, *(db.flush() for _ in range(10)))
            assert all(commit.durable for commit in commits)
            assert [commit.seq for commit in commits] == sorted(c.seq for c in commits)

    run(work(), factory)
    with siltstone.open(url, take_over=False) as db:
        assert list(db.items()) == [(b"%04d" % i, b"%d" % i) for i in range(1000)]


@pytest.mark.parametrize("factory", LOOPS)
def test_a_put_that_waits_for_room_does_not_block_the_loop(url: str, factory) -> None:
    options = {**SLOW, "max_memtable_bytes": 8192, "l0_sst_size_bytes": 4096, "deadline": 60}

    async def work() -> None:
        async with aio.open(url, options=options) as db:
            turns = 0

            async def tick() -> None:
                nonlocal turns
                while True:
                    await asyncio.sleep(0.005)
                    turns += 1

            ticker = asyncio.create_task(tick())
            for i in range(60):
                await db.put(b"%02d" % i, b"v" * 500)
            batch = siltstone.WriteBatch()
            batch.put(b"batch", b"v" * 1000)
            for _ in range(10):
                await db.write(batch)
                await db.delete(b"00")
            ticker.cancel()
            assert (await db.stats()).pressured_writes > 0
            assert turns > 20
            assert len(await rows(db.keys())) == 60

    run(work(), factory)


# --- Cancelling -----------------------------------------------------------------------------------


@pytest.mark.parametrize("factory", LOOPS)
def test_cancelling_a_wait_cancels_no_write(url: str, factory) -> None:
    async def work() -> None:
        async with aio.open(url, options=SLOW) as db:
            await (await db.put(b"first", b"v"))
            commit = await db.put(b"a", b"1")
            task = asyncio.create_task(commit.wait())
            await asyncio.sleep(0.01)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.01):
                    await commit
            with pytest.raises(siltstone.Timeout):
                await commit.wait(0.01)
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(commit, 0.01)
            assert not commit.durable
            assert await db.get(b"a") == b"1"
            await commit

    run(work(), factory)
    with siltstone.open(url, take_over=False) as db:
        assert db[b"a"] == b"1"


def test_a_scan_goes_on_after_a_cancelled_refill(cold) -> None:
    async def work() -> None:
        db = aio.Database(cold)
        scan, found, cancelled = db.keys(), [], 0
        while True:
            task = asyncio.create_task(anext(scan, None))
            # Now and then before it began, while it waits, or when it is over.
            for _ in range(len(found) % 5):
                await asyncio.sleep(0)
            task.cancel()
            try:
                key = await task
            except asyncio.CancelledError:
                cancelled += 1
                if cancelled > 2000:
                    break
                key = await anext(scan, None)
            if key is None:
                break
            found.append(key)
        assert cancelled > 100
        assert found == [b"key%05d" % i for i in range(2000)][: len(found)]
        assert len(found) == 2000

    run(work())


def test_a_cancelled_open_leaves_nothing_open(url: str) -> None:
    async def work() -> None:
        for turns in range(30):
            opening = asyncio.ensure_future(aio.open(url))
            for _ in range(turns):
                await asyncio.sleep(0.0005)
            opening.cancel()
            with contextlib.suppress(asyncio.CancelledError, siltstone.Fenced):
                await (await opening).close()
        async with aio.open(url) as db:
            await (await db.put(b"a", b"1"))

    run(work())
    with siltstone.open(url, take_over=False) as db:
        assert dict(db) == {b"a": b"1"}


@pytest.mark.parametrize("again", range(5))
def test_a_cancelled_close_goes_on_and_a_second_one_joins_it(url: str, again: int) -> None:
    """The second returned before the clean close was recorded: whoever opened then met Conflict."""

    async def work() -> None:
        db = await aio.open(url, options={"flush_interval": 3600})
        await db.put(b"a", b"1")
        closing = asyncio.create_task(db.close())
        for _ in range(1 + again):
            await asyncio.sleep(0)
        closing.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await closing
        await db.close()

    run(work())
    with siltstone.open(url, take_over=False) as db:
        assert db[b"a"] == b"1"


# --- Ends -----------------------------------------------------------------------------------------


def test_a_writer_that_is_fenced_tells_those_who_wait(url: str) -> None:
    async def work() -> None:
        old = await aio.open(url, options=SLOW)
        await (await old.put(b"first", b"v"))
        commits = [await old.put(b"%d" % i, b"v") for i in range(10)]
        waits = [asyncio.create_task(commit.wait()) for commit in commits]
        await asyncio.sleep(0)
        async with aio.open(url) as new:
            ended = await asyncio.gather(*waits, return_exceptions=True)
            assert [type(error) for error in ended] == [siltstone.Fenced] * 10
            with pytest.raises(siltstone.Fenced):
                await old.put(b"x", b"y")
            with pytest.raises(siltstone.Fenced):
                await old.get(b"first")
            with pytest.raises(siltstone.Fenced):
                await old.flush()
            assert await new.get(b"first") == b"v"
        with pytest.raises(siltstone.Fenced):
            await old.close()

    run(work())


def test_a_closed_handle_is_closed_for_all_who_wait(url: str) -> None:
    options = {**SLOW, "max_memtable_bytes": 4096, "l0_sst_size_bytes": 2048, "deadline": 60}

    async def work() -> None:
        db = await aio.open(url, options=options)
        await (await db.put(b"first", b"v"))

        async def fill(i: int) -> None:
            await db.put(b"%03d" % i, b"v" * 1000)

        fills = [asyncio.create_task(fill(i)) for i in range(50)]
        await asyncio.sleep(0.05)
        assert not all(task.done() for task in fills)
        await db.close()
        ended = await asyncio.gather(*fills, return_exceptions=True)
        assert {type(end) for end in ended} == {type(None), siltstone.Closed}
        for call in (
            lambda: db.get(b"a"),
            lambda: db.get_many([b"a"]),
            lambda: db.put(b"a", b"b"),
            lambda: db.flush(),
            lambda: db.snapshot(),
        ):
            with pytest.raises(siltstone.Closed):
                await call()
        with pytest.raises(siltstone.Closed):
            db.scan()
        await db.close()
        written = ended.count(None)
        async with aio.open(url, take_over=False) as again:
            assert len(await rows(again.keys())) == 1 + written

    run(work())


@pytest.mark.parametrize("factory", LOOPS)
def test_a_loop_that_is_closed_over_waits_is_forgotten(url: str, factory) -> None:
    with siltstone.open(url, options=SLOW) as handle:
        handle.put(b"first", b"v").wait()
        db, gone = aio.Database(handle), []
        for i in range(3):
            loop = factory()

            async def wait(i: int = i) -> None:
                commit = await db.put(b"%d" % i, b"v")
                await commit

            tasks = [loop.create_task(wait()) for _ in range(5)]
            loop.run_until_complete(asyncio.sleep(0.01))
            assert not any(task.done() for task in tasks)
            for task in tasks:
                # Otherwise asyncio tells that they were pending.
                task._log_destroy_pending = False
            gone += [weakref.ref(task) for task in tasks]
            loop.close()
            del loop, tasks, task
        # Wakes of loops that are no more.
        handle.put(b"x", b"y").wait()
        gc.collect()
        assert [task() for task in gone] == [None] * 15
        assert run(db.get(b"0")) == b"v"


def test_an_abandoned_task_keeps_waiting_while_its_loop_lives(url: str) -> None:
    """The loop holds whoever waits: nobody else may."""
    with siltstone.open(url, options=SLOW) as handle:
        handle.put(b"first", b"v").wait()
        db, done = aio.Database(handle), []

        async def wait() -> None:
            await (await db.put(b"a", b"v"))
            done.append(True)

        async def work() -> None:
            asyncio.create_task(wait())  # noqa: RUF006
            await asyncio.sleep(0)
            gc.collect()
            await asyncio.sleep(0)
            gc.collect()
            await (await db.put(b"b", b"v"))
            await asyncio.sleep(0)

        run(work())
        assert done == [True]


def test_nothing_is_left_of_waits_that_ended(url: str) -> None:
    with siltstone.open(url) as handle:
        db = aio.Database(handle)

        async def work() -> None:
            for _ in range(200):
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(0):
                        await (await db.put(b"a", b"1"))
            await db.flush()

        run(work())
        gc.collect()
        before = len(gc.get_objects())
        run(work())
        gc.collect()
        assert len(gc.get_objects()) <= before + 50


def test_several_loops_in_several_threads_share_a_database(url: str) -> None:
    with siltstone.open(url) as handle:
        db, failures = aio.Database(handle), []

        async def work(name: int) -> None:
            for i in range(50):
                key = b"%d-%d" % (name, i)
                commits = await asyncio.gather(*(db.put(key, b"%d" % j) for j in range(5)))
                await commits[-1]
                assert await db.get(key) == b"4"
                assert (await db.get_many([key, b"none"])) == [b"4", None]

        def thread(name: int) -> None:
            try:
                run(work(name), LOOPS[name % len(LOOPS)])
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=thread, args=(name,)) for name in range(4)]
        for each in threads:
            each.start()
        for each in threads:
            each.join(60)
        assert failures == []
        assert sum(1 for _ in handle) == 200


PENDING = """
import asyncio, sys, threading, siltstone
from siltstone import aio
handle = siltstone.open(sys.argv[1], options={"flush_interval": 3600,
                                              "max_wal_puts_per_second": 2})
handle.put(b"first", b"v").wait()
db = aio.Database(handle)
async def wait():
    await (await db.put(b"a", b"1"))
async def forever():
    while True:
        await asyncio.gather(*(wait() for _ in range(10)))
        [row async for row in db.scan()]
"""

EXITS = {
    "a loop left as it is": """
loop = asyncio.new_event_loop()
task = loop.create_task(wait())
task._log_destroy_pending = False
loop.run_until_complete(asyncio.sleep(0.01))
""",
    "a loop closed": """
loop = asyncio.new_event_loop()
task = loop.create_task(wait())
task._log_destroy_pending = False
loop.run_until_complete(asyncio.sleep(0.01))
loop.close()
""",
    "a run that ends": """
async def main():
    task = asyncio.create_task(wait())
    await asyncio.sleep(0.01)
asyncio.run(main())
""",
    "sys.exit in a task": """
async def main():
    task = asyncio.create_task(wait())
    await asyncio.sleep(0.01)
    sys.exit(0)
asyncio.run(main())
""",
    "a daemon": """
def work():
    try:
        asyncio.run(forever())
    except siltstone.Closed:
        pass
threading.Thread(target=work, daemon=True).start()
import time
time.sleep(0.1)
""",
}


@pytest.mark.parametrize("end", EXITS)
def test_an_interpreter_that_ends_over_waits_closes_the_database(python, url, end) -> None:
    for _ in range(2):
        status, _, err = python(PENDING + EXITS[end], url)
        assert status == 0, err
        assert "panicked" not in err, err
        assert "Fatal" not in err, err
        with siltstone.open(url, take_over=False) as db:
            assert db[b"a"] == b"1"


def test_ctrl_c_ends_a_wait(url: str) -> None:
    program = PENDING + 'print("ready", flush=True)\nasyncio.run(forever())\n'
    child = subprocess.Popen(
        [sys.executable, "-c", program, url],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert child.stdout.readline() == "ready\n"
        time.sleep(0.3)
        asked = time.monotonic()
        child.send_signal(signal.SIGINT)
        _, err = child.communicate(timeout=20)
        took = time.monotonic() - asked
    finally:
        child.kill()
    assert "KeyboardInterrupt" in err, err
    assert child.returncode in (130, -signal.SIGINT), err
    # One second for the wait; what else there is, is closing the database at exit.
    assert took < 3, err


# --- Processes ------------------------------------------------------------------------------------


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_child_opens_its_own(url: str, tmp_path) -> None:
    other = str(tmp_path / "other")
    with siltstone.open(url) as handle, siltstone.open_reader(url) as follows:
        db, reader = aio.Database(handle), aio.Reader(follows)

        async def warm() -> None:
            commit = await db.put(b"a", b"1")
            await commit
            await reader.refresh()

        async def child() -> str:
            raised = []
            for call in (
                lambda: db.get(b"a"),
                lambda: db.put(b"a", b"2"),
                lambda: db.flush(),
                lambda: db.close(),
            ):
                try:
                    await call()
                except siltstone.Closed:
                    raised.append("Closed")
            raised.append(repr(await reader.get(b"a")))
            async with aio.open(other) as mine:
                await (await mine.put(b"x", b"y"))
                raised.append(repr(await mine.get(b"x")))
            return " ".join(raised)

        # Waits of the parent's loop are under way while it forks.
        loop = asyncio.new_event_loop()
        loop.run_until_complete(warm())
        task = loop.create_task(warm())
        loop.run_until_complete(asyncio.sleep(0))
        receive, send = os.pipe()
        pid = os.fork()
        if pid == 0:
            try:
                answer = asyncio.run(child())
            except BaseException as error:
                answer = repr(error)
            os.write(send, answer.encode())
            os._exit(0)
        os.close(send)
        with os.fdopen(receive) as pipe:
            assert pipe.read() == "Closed Closed Closed Closed b'1' b'y'"
        assert os.waitpid(pid, 0)[1] == 0
        loop.run_until_complete(task)
        loop.close()


@pytest.mark.parametrize("name", ["Database", "Reader", "Snapshot"])
def test_handles_do_not_pickle(url: str, name: str) -> None:
    with siltstone.open(url) as db:
        handle = {
            "Database": lambda: aio.Database(db),
            "Reader": lambda: aio.Reader(siltstone.open_reader(url)),
            "Snapshot": lambda: aio.Snapshot(db.snapshot()),
        }[name]()
        with pytest.raises(TypeError, match="cannot be pickled"):
            handle.__reduce__()


# --- The same surface, the same answers -----------------------------------------------------------

ITEM_OPERATORS = {"__getitem__", "__setitem__", "__delitem__", "__contains__", "__len__"}


@pytest.mark.parametrize("name", ["Database", "Reader", "Snapshot", "Commit", "WriteBatch", "Scan"])
def test_the_surface_is_that_of_siltstone(name: str) -> None:
    built, awaited = getattr(siltstone, name), getattr(aio, name)
    public = {member for member in dir(built) if not member.startswith("_")}
    assert {member for member in dir(awaited) if not member.startswith("_")} == public
    for member in public:
        ours = getattr(awaited, member)
        if not callable(ours):
            continue
        theirs = inspect.signature(getattr(built, member)).parameters.values()
        named = {each.name for each in theirs if each.kind not in (each.VAR_KEYWORD, 2)}
        mine = inspect.signature(ours).parameters.values()
        assert {each.name for each in mine if each.kind not in (each.VAR_KEYWORD, 2)} == named
    for member in ITEM_OPERATORS - {"__len__"}:
        assert not hasattr(awaited, member)


@pytest.mark.parametrize("name", ["open", "open_reader", "clone", "destroy"])
def test_functions_take_the_same_arguments(name: str) -> None:
    theirs = inspect.signature(getattr(siltstone, name)).parameters
    assert inspect.signature(getattr(aio, name)).parameters == theirs


def test_what_is_not_built_raises_the_same(memory_url: str) -> None:
    async def work() -> None:
        async with aio.open(memory_url) as db:
            for call in (
                lambda: db.merge(b"a", b"1"),
                lambda: db.delete_range(b"a", b"b"),
                lambda: db.transaction(),
                lambda: db.checkpoint(name="x"),
                lambda: db.load([]),
                lambda: db.ingest(1),
                lambda: db.compact(),
                lambda: db.put(b"a", b"b", if_absent=True),
                lambda: db.put(b"a", b"b", if_seq=1),
                lambda: aio.clone("x", parent="y"),
                lambda: aio.destroy("x"),
                lambda: aio.open("x", merge_operator="max"),
                lambda: aio.open_reader("x", version=1),
            ):
                with pytest.raises(siltstone.Unsupported):
                    await call()
            for refused in ("merge", "delete_range"):
                with pytest.raises(siltstone.Unsupported):
                    getattr(aio.WriteBatch(), refused)(b"a", b"b")

    run(work())


def test_mistakes_raise_the_same(memory_url: str) -> None:
    async def work() -> None:
        async with aio.open(memory_url) as db:
            for call, kind in (
                (lambda: db.put("a", b"b"), TypeError),
                (lambda: db.put(b"", b"b"), siltstone.Invalid),
                (lambda: db.put(b"a", b"b", ttl=0), siltstone.Invalid),
                (lambda: db.get(b""), siltstone.Invalid),
                (lambda: db.get_many([1]), TypeError),
                (lambda: db.put_many([b"a"], []), siltstone.Invalid),
                (lambda: db.write([]), TypeError),
                (lambda: aio.open(memory_url, options={"nonsense": 1}), siltstone.Invalid),
                (lambda: aio.open(7), TypeError),
                (lambda: aio.open("memory://absent", create=False), siltstone.NotFound),
            ):
                with pytest.raises(kind):
                    await call()
            with pytest.raises(siltstone.Invalid):
                db.scan(b"a", prefix=b"b")
            with pytest.raises(siltstone.Invalid):
                db.scan().to_arrow(0)
            commit = await db.put(b"a", b"b")
            with pytest.raises(siltstone.Invalid):
                await commit.wait(-1)

    run(work())


def test_a_batch_commits_when_its_block_ends_well(memory_url: str) -> None:
    async def work() -> None:
        async with aio.open(memory_url) as db:
            async with db.batch() as batch:
                batch.put(b"a", b"1")
                batch.put(b"b", b"1", ttl=60)
                batch.delete(b"c")
                assert len(batch) == 3
                assert batch.nbytes > 0
                assert batch.commit is None
                assert await db.get(b"a") is None
            await batch.commit
            assert await db.get(b"a") == b"1"
            with pytest.raises(siltstone.Invalid, match="ended"):
                batch.put(b"d", b"1")
            with pytest.raises(ZeroDivisionError):
                async with db.batch() as batch:
                    batch.put(b"d", b"1")
                    1 / 0
            assert batch.commit is None
            assert await rows(db.keys()) == [b"a", b"b"]
            own = aio.WriteBatch()
            own.put(b"e", b"1")
            await db.write(own)
            own.clear()
            assert len(own) == 0
            with pytest.raises(siltstone.Invalid):
                async with own:
                    pass
            assert await rows(db.keys()) == [b"a", b"b", b"e"]

    run(work())


def test_scans_are_one_shot_pinned_and_can_be_left(memory_url: str) -> None:
    async def work() -> None:
        async with aio.open(memory_url) as db:
            await db.put_many([b"%02d" % i for i in range(50)], [b"v"] * 50)
            scan = db.keys()
            await db.put(b"99", b"v")
            async for key in scan:
                if key == b"10":
                    break
            with pytest.raises(siltstone.Invalid, match="iterated"):
                scan.to_arrow()
            assert await rows(scan) == [b"%02d" % i for i in range(11, 50)]
            assert await rows(scan) == []
            async with db.values(limit=3) as scan:
                assert await anext(scan) == b"v"
            assert await rows(scan) == []
            async with db.snapshot() as snapshot:
                await db.delete(b"00")
                assert await snapshot.get(b"00") == b"v"
                assert await anext(snapshot.items()) == (b"00", b"v")
            with pytest.raises(siltstone.Closed):
                await snapshot.get(b"00")
            assert [row async for row in db.scan(limit=0).to_arrow()] == []

    run(work())


def test_two_tasks_cannot_share_a_scan(url: str) -> None:
    class Slow:
        """A scan whose rows wait for something."""

        def __init__(self, commit) -> None:
            self.commit = commit

        def begin_rows(self):
            return self.commit.wait()

    async def work() -> None:
        async with aio.open(url, options=SLOW) as db:
            await (await db.put(b"a", b"v"))
            commit = await db.put(b"b", b"v")
            scan = db.keys()
            quick, scan._scan = scan._scan, Slow(commit)
            first = asyncio.create_task(anext(scan))
            await asyncio.sleep(0)
            with pytest.raises(siltstone.Invalid, match="one task"):
                await anext(scan)
            first.cancel()
            with pytest.raises(asyncio.CancelledError):
                await first
            scan._scan = quick
            assert await rows(scan) == [b"a", b"b"]

    run(work())


def test_a_pending_call_is_a_coroutine_awaited_once(url: str) -> None:
    async def work() -> None:
        async with aio.open(url, options={"flush_interval": 3600}) as db:
            commit = await db.put(b"a", b"1")
            pending = commit.wait()
            assert asyncio.iscoroutine(pending)
            await asyncio.create_task(pending)
            with pytest.raises(RuntimeError, match="once"):
                await pending
            commit = await db.put(b"a", b"2")
            unused = commit.wait()
            unused.close()
            with pytest.raises(RuntimeError, match="once"):
                await unused
            with pytest.raises(KeyError):
                commit.wait().throw(KeyError("x"))
        with pytest.raises(RuntimeError, match="no running event loop"):
            threading_less(commit)

    def threading_less(commit) -> None:
        raised: list[BaseException] = []

        def call() -> None:
            with siltstone.open(url, options={"flush_interval": 3600}) as handle:
                pending = at_once(aio.Database(handle).put(b"b", b"1")).wait()
                try:
                    pending.send(None)
                except RuntimeError as error:
                    raised.append(error)

        thread = threading.Thread(target=call)
        thread.start()
        thread.join()
        raise raised[0]

    run(work())


KEYS = st.sampled_from([b"a", b"aa", b"ab", b"b", b"\x00", b"\xff"]) | st.binary(
    min_size=1, max_size=2
)
BOUNDS = st.none() | st.binary(max_size=2)


@settings(max_examples=60, deadline=None)
@given(
    writes=st.lists(st.tuples(KEYS, st.none() | st.binary(max_size=20)), max_size=60),
    asked=st.lists(KEYS, max_size=30),
    start=BOUNDS,
    end=BOUNDS,
    reverse=st.booleans(),
    limit=st.none() | st.integers(0, 20),
    warm=st.booleans(),
)
def test_answers_are_those_of_the_surface_that_waits(
    writes, asked, start, end, reverse, limit, warm
) -> None:
    url = f"memory://{uuid.uuid4().hex}"
    cache = {} if warm else {"block_cache_bytes": 0}
    options = {"l0_sst_size_bytes": 1024, "block_bytes": 64, **cache}
    model: dict[bytes, bytes] = {}

    async def work() -> None:
        async with aio.open(url, options=options) as db:
            for key, value in writes:
                if value is None:
                    await db.delete(key)
                    model.pop(key, None)
                else:
                    await db.put(key, value)
                    model[key] = value
        async with aio.open(url, options=options) as db, aio.open_reader(url) as reader:
            with siltstone.open_reader(url) as waits:
                named = {"reverse": reverse, "limit": limit}
                for source in (db, reader):
                    assert [await source.get(key) for key in asked] == [
                        model.get(key) for key in asked
                    ]
                    assert await source.get_many(asked) == waits.get_many(asked)
                    arrow = await source.get_many(pa.array(asked, pa.binary()))
                    assert arrow.to_pylist() == waits.get_many(asked)
                    for verb in ("scan", "items", "keys", "values"):
                        expected = list(getattr(waits, verb)(start, end, **named))
                        assert await rows(getattr(source, verb)(start, end, **named)) == expected
                    batches = [
                        pa.record_batch(batch)
                        async for batch in source.scan(start, end, **named).to_arrow(7)
                    ]
                    keys = [key for batch in batches for key in batch["key"].to_pylist()]
                    assert keys == list(waits.keys(start, end, **named))
                assert dict(await rows(db.items())) == model

    run(work())
