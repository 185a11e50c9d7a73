"""Shared by the tests of `siltstone.aio`: a loop that counts, and ways to run coroutines on it."""

from __future__ import annotations

import asyncio
import contextlib

try:
    import uvloop
except ImportError:
    uvloop = None

LOOPS = [asyncio.SelectorEventLoop, *([uvloop.Loop] if uvloop else [])]

# At most one WAL object a second, and only if a caller waits: the second wait takes long.
SLOW = {"flush_interval": 3600, "max_wal_puts_per_second": 2}


class CountingLoop(asyncio.SelectorEventLoop):
    """Counts its wakes from other threads, and the futures made on it."""

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
    """Counts the wakes within a block. `fresh` makes a loop whose count starts at 0."""
    loop = asyncio.get_running_loop()
    before = loop.wakes
    counted: list[int] = []
    yield counted
    counted.append(loop.wakes - before)


def run(coroutine, loop_factory=CountingLoop):
    """Like `asyncio.run`, on a loop of this kind."""
    with asyncio.Runner(loop_factory=loop_factory) as runner:
        return runner.run(coroutine)


def at_once(coroutine):
    """The result of a coroutine that never waits, without any event loop."""
    try:
        coroutine.send(None)
    except StopIteration as done:
        return done.value
    raise AssertionError("it waits")


async def rows(scan) -> list:
    return [row async for row in scan]
