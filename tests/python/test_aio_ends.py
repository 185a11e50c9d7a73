"""`siltstone.aio` when a writer, loop, task, thread or process ends."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import itertools
import os
import signal
import subprocess
import sys
import threading
import time
import weakref

import pytest

import siltstone
from aio_for_tests import LOOPS, SLOW, rows, run
from pace_for_tests import PATIENCE, quickest, until
from siltstone import aio


async def fenced_over_waits(url: str) -> bool:
    """Returns False if the machine stalled until the awaited commits were durable."""
    old = await aio.open(url, options=SLOW)
    await (await old.put(b"first", b"v"))
    commits = [await old.put(b"%d" % i, b"v") for i in range(10)]
    waits = [asyncio.create_task(commit.wait()) for commit in commits]
    await asyncio.sleep(0)
    async with aio.open(url, take_over=True) as new:
        ended = await asyncio.gather(*waits, return_exceptions=True)
        in_time = None not in ended
        assert not in_time or [type(error) for error in ended] == [siltstone.Fenced] * 10
        # A handle with nothing to send notices the fence at its next request.
        with pytest.raises(siltstone.Fenced):
            await (await old.put(b"x", b"y"))
        with pytest.raises(siltstone.Fenced):
            await old.put(b"x", b"y")
        with pytest.raises(siltstone.Fenced):
            await old.get(b"first")
        with pytest.raises(siltstone.Fenced):
            await old.flush()
        assert await new.get(b"first") == b"v"
    with pytest.raises(siltstone.Fenced):
        await old.close()
    return in_time


def test_a_writer_that_is_fenced_tells_those_who_wait(tmp_path) -> None:
    made = (str(tmp_path / str(number)) for number in itertools.count())
    until(lambda: run(fenced_over_waits(next(made))))


def test_a_closed_handle_is_closed_for_all_who_wait(url: str) -> None:
    options = {**SLOW, "max_memtable_bytes": 4096, "l0_sst_size_bytes": 2048, "deadline": 60}

    async def work() -> None:
        db = await aio.open(url, options=options)
        await (await db.put(b"first", b"v"))

        async def fill(i: int) -> None:
            await db.put(b"%03d" % i, b"v" * 1000)

        # There is room for eight of them a second, so a stall of the machine does not end them all.
        fills = [asyncio.create_task(fill(i)) for i in range(1000)]
        # All tasks have begun: some were accepted at once, the others wait for room.
        await asyncio.sleep(0)
        await asyncio.sleep(0)
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


def left_waiting(db: aio.Database, factory) -> list[weakref.ref]:
    """The tasks of a loop that was closed while they waited. The list is empty if the machine
    stalled until some of them had ended."""
    loop = factory()

    async def wait(i: int) -> None:
        commit = await db.put(b"%d" % i, b"v")
        await commit

    tasks = [loop.create_task(wait(i)) for i in range(5)]
    loop.run_until_complete(asyncio.sleep(0.01))
    waiting = not any(task.done() for task in tasks)
    if not waiting:
        loop.run_until_complete(asyncio.gather(*tasks))
    for task in tasks:
        # Otherwise asyncio logs that they were pending.
        task._log_destroy_pending = False
    loop.close()
    return [weakref.ref(task) for task in tasks] if waiting else []


@pytest.mark.parametrize("factory", LOOPS)
def test_a_loop_that_is_closed_over_waits_is_forgotten(url: str, factory) -> None:
    with siltstone.open(url, options=SLOW) as handle:
        handle.put(b"first", b"v").wait()
        db, gone = aio.Database(handle), []
        for _ in range(3):
            gone += until(lambda: left_waiting(db, factory))
        # This wakes loops that no longer exist.
        handle.put(b"x", b"y").wait()
        gc.collect()
        assert [task() for task in gone] == [None] * 15
        assert run(db.get(b"0")) == b"v"


def test_an_abandoned_task_keeps_waiting_while_its_loop_lives(url: str) -> None:
    """The loop holds the waiting task; there may be no other reference to it."""
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
            each.join(PATIENCE)
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
waiting = threading.Event()
async def forever():
    while True:
        tasks = [asyncio.create_task(wait()) for _ in range(10)]
        await asyncio.sleep(0)
        waiting.set()
        await asyncio.gather(*tasks)
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
waiting.wait()
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


INTERRUPTED = """
def tell():
    waiting.wait()
    print("ready", flush=True)
threading.Thread(target=tell).start()
asyncio.run(forever())
"""


def interrupted(url: str) -> float:
    """Seconds from Ctrl-C to the end of a process with waiting tasks."""
    program = PENDING + INTERRUPTED
    child = subprocess.Popen(
        [sys.executable, "-c", program, url],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert child.stdout.readline() == "ready\n"
        asked = time.monotonic()
        child.send_signal(signal.SIGINT)
        _, err = child.communicate(timeout=PATIENCE)
        took = time.monotonic() - asked
    finally:
        child.kill()
    assert "KeyboardInterrupt" in err, err
    assert child.returncode in (130, -signal.SIGINT), err
    return took


def test_ctrl_c_ends_a_wait(tmp_path) -> None:
    made = (str(tmp_path / str(number)) for number in itertools.count())
    # The wait takes one second; the rest is the close at exit.
    quickest(lambda: interrupted(next(made)), 3)


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

        # Waits of the parent's loop are in progress at the fork.
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


async def entered_twice(url: str) -> None:
    opening = aio.open_reader(url)

    async def work(seconds: float) -> aio.Reader:
        async with opening as reader:
            await asyncio.sleep(seconds)
            assert await reader.get(b"a") == b"1"
        return reader

    for reader in await asyncio.gather(work(0.05), work(0.2)):
        with pytest.raises(siltstone.Closed):
            await reader.get(b"a")
    async with opening as outer:
        async with opening as inner:
            assert await inner.get(b"a") == b"1"
        assert await outer.get(b"a") == b"1"


def test_an_opening_that_two_tasks_enter_closes_the_handle_of_each_block(url: str) -> None:
    with siltstone.open(url) as db:
        db[b"a"] = b"1"
    run(entered_twice(url))


class InterruptedLoop(asyncio.SelectorEventLoop):
    """Raises KeyboardInterrupt once where a wait is completed, as a signal may."""

    armed = False

    def call_soon(self, callback, *args, context=None):  # type: ignore[no-untyped-def]
        if self.armed:
            self.armed = False
            raise KeyboardInterrupt
        return super().call_soon(callback, *args, context=context)


def test_a_loop_that_was_interrupted_completes_later_waits(url: str) -> None:
    """Before, no later wait of the loop was completed: a close after Ctrl-C hung."""
    loop = InterruptedLoop()

    async def begin() -> aio.Database:
        return await aio.open(url, options={"flush_interval": 0.3})

    async def main(db: aio.Database) -> None:
        for number in range(5):
            commit = await db.put(b"%d" % number, b"v")
            waits.append(asyncio.ensure_future(commit.wait()))
        await asyncio.sleep(0)
        loop.armed = True
        await asyncio.sleep(PATIENCE)

    waits: list[asyncio.Future[None]] = []
    db = loop.run_until_complete(begin())
    with pytest.raises(KeyboardInterrupt):
        loop.run_until_complete(main(db))
    loop.run_until_complete(asyncio.wait_for(db.close(), PATIENCE))
    assert sum(wait.done() for wait in waits) >= 4
    for task in asyncio.all_tasks(loop):
        task.cancel()
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()
