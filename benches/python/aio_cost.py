"""The overhead of `siltstone.aio` per call, compared with the blocking interface and a thread pool.

    python benches/python/aio_cost.py

Medians in microseconds: of a call that memory answers, of a wait for durability on the memory store
(which measures the hand-over between threads), and of that wait while another Python thread
computes; then the durable puts per second of 64 waiters.
"""

from __future__ import annotations

import asyncio
import contextlib
import statistics
import sys
import threading
import time
import uuid
from collections.abc import Awaitable, Callable

import siltstone
from siltstone import aio

CALLS = 100_000
WAITS = 2_000
ROUNDS = 20


def waited(call: Callable[[], object], times: int) -> float:
    """Median microseconds of a call."""
    took = []
    for _ in range(times):
        begun = time.perf_counter()
        call()
        took.append(time.perf_counter() - begun)
    return statistics.median(took) * 1e6


async def awaited(call: Callable[[], Awaitable[object]], times: int) -> float:
    """Median microseconds of an awaited call."""
    took = []
    for _ in range(times):
        begun = time.perf_counter()
        await call()
        took.append(time.perf_counter() - begun)
    return statistics.median(took) * 1e6


class Busy:
    """Another thread that computes during a block."""

    def __enter__(self) -> None:
        self.stop = False
        self.thread = threading.Thread(target=self.work)
        self.thread.start()

    def work(self) -> None:
        """Holds the interpreter lock as long as possible."""
        while not self.stop:
            sum(range(1000))

    def __exit__(self, *_: object) -> None:
        self.stop = True
        self.thread.join()


def tell(line: str) -> None:
    """Print a line."""
    sys.stdout.write(line + "\n")


async def main() -> None:
    """Print the table."""
    with siltstone.open(f"memory://{uuid.uuid4().hex}") as plain:
        db, loop = aio.Database(plain), asyncio.get_running_loop()
        plain[b"key"] = b"value"

        async def durable() -> None:
            await (await db.put(b"key", b"value"))

        async def pooled() -> None:
            await loop.run_in_executor(None, plain.put(b"key", b"value").wait)

        def show(name: str, plainly: float, awaits: float, pool: float | None = None) -> None:
            other = f"{pool:12.2f}" if pool is not None else ""
            tell(f"{name:32}{plainly:12.2f}{awaits:12.2f}{other}")

        tell(f"{'microseconds':32}{'siltstone':>12}{'aio':>12}{'executor':>12}")
        show(
            "get that memory answers",
            waited(lambda: plain.get(b"key"), CALLS),
            await awaited(lambda: db.get(b"key"), CALLS),
        )
        show(
            "put that is accepted",
            waited(lambda: plain.put(b"key", b"value"), CALLS),
            await awaited(lambda: db.put(b"key", b"value"), CALLS),
        )
        for name, times, busy in (
            ("durable put", WAITS, False),
            ("the same, beside a busy thread", WAITS // 20, True),
        ):
            with Busy() if busy else contextlib.nullcontext():
                show(
                    name,
                    waited(lambda: plain.put(b"key", b"value").wait(), times),
                    await awaited(durable, times),
                    await awaited(pooled, times),
                )
        for name, call in (("aio", durable), ("executor", pooled)):
            begun = time.perf_counter()
            for _ in range(ROUNDS):
                await asyncio.gather(*(call() for _ in range(64)))
            rate = ROUNDS * 64 / (time.perf_counter() - begun)
            tell(f"64 waiters, {name}: {rate:,.0f} durable puts/s")


if __name__ == "__main__":
    asyncio.run(main())
