"""Commits per second of read-modify-write transactions over few keys, compared with slatedb's
package.

    python benches/python/transactions.py [--seconds 5] [--rounds 5] [--keys 64]

A transaction reads two keys, writes both, and commits; one that was overtaken is run again, and
only committed ones count. Both stores are in memory, so that only the engines are measured, and no
commit is awaited to be durable. The engines take turns, round by round, and the medians are printed
with their ratio: for sequential tasks, for 16 concurrent tasks of one event loop, and (only for
Siltstone's blocking interface) for one and for four threads. Then the cost of a read-only
transaction, compared with a snapshot.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import statistics
import sys
import threading
import time
import uuid
from collections.abc import Awaitable, Callable
from typing import Any

import siltstone
from siltstone import aio

TASKS = 16
THREADS = 4


def pairs(keys: int) -> Callable[[], list[bytes]]:
    """Choose two keys."""
    names = [b"hot%04d" % i for i in range(keys)]
    choose = random.Random(7).sample
    return lambda: choose(names, 2)


def changed(value: bytes | None) -> bytes:
    """The value to write for the value read."""
    return b"%08d" % (int(value or b"0") + 1)


async def slatedb(keys: int, seconds: float, tasks: int) -> float:
    """Commits a second of slatedb's package."""
    from slatedb import uniffi as api  # noqa: PLC0415

    store = api.ObjectStore.resolve("memory:///")
    db = await api.DbBuilder(uuid.uuid4().hex, store).build()
    choose, level = pairs(keys), api.IsolationLevel.SERIALIZABLE_SNAPSHOT

    async def commit() -> bool:
        tx = await db.begin(level)
        for key in choose():
            await tx.put(key, changed(await tx.get(key)))
        try:
            await tx.commit()
        except api.Error.Transaction:
            return False
        return True

    rate = await _rate(commit, seconds, tasks)
    await db.shutdown()
    return rate


async def awaited(keys: int, seconds: float, tasks: int) -> float:
    """Commits a second of `siltstone.aio`."""
    async with aio.open(f"memory://{uuid.uuid4().hex}") as db:
        choose = pairs(keys)

        async def commit() -> bool:
            tx = await db.transaction()
            for key in choose():
                await tx.put(key, changed(await tx.get(key)))
            try:
                await tx.commit()
            except siltstone.Conflict:
                return False
            return True

        return await _rate(commit, seconds, tasks)


async def _rate(commit: Callable[[], Awaitable[bool]], seconds: float, tasks: int) -> float:
    """How often per second `commit` returns True, with this many tasks."""
    until = time.perf_counter() + seconds

    async def work() -> int:
        done = 0
        while time.perf_counter() < until:
            done += await commit()
            if tasks > 1:
                await asyncio.sleep(0)
        return done

    return sum(await asyncio.gather(*(work() for _ in range(tasks)))) / seconds


def waited(keys: int, seconds: float, threads: int) -> float:
    """Commits a second of `siltstone`."""
    with siltstone.open(f"memory://{uuid.uuid4().hex}") as db:
        until = time.perf_counter() + seconds
        counts: list[int] = []

        def work() -> None:
            done, choose = 0, pairs(keys)
            while time.perf_counter() < until:
                tx = db.transaction()
                for key in choose():
                    tx.put(key, changed(tx.get(key)))
                try:
                    tx.commit()
                except siltstone.Conflict:
                    continue
                done += 1
            counts.append(done)

        workers = [threading.Thread(target=work) for _ in range(threads)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        return sum(counts) / seconds


def reads(keys: int, views: int = 20_000) -> tuple[float, float]:
    """Microseconds of a view that reads ten keys and ends: a snapshot, a transaction."""
    with siltstone.open(f"memory://{uuid.uuid4().hex}") as db:
        names = [b"hot%04d" % i for i in range(keys)]
        db.put_many(names, names)
        some = names[:10]

        def took(begin: Callable[[], Any]) -> float:
            start = time.perf_counter()
            for _ in range(views):
                view = begin()
                for key in some:
                    view.get(key)
                view.close()
            return (time.perf_counter() - start) / views * 1e6

        rounds = [(took(db.snapshot), took(db.transaction)) for _ in range(7)]
        return tuple(statistics.median(each) for each in zip(*rounds, strict=True))


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=5.0, help="of one measurement")
    parser.add_argument("--rounds", type=int, default=5, help="that the engines take in turns")
    parser.add_argument("--keys", type=int, default=64, help="that all transactions share")
    given = parser.parse_args()
    measures: dict[str, Callable[[], float]] = {}
    for tasks in (1, TASKS):
        for name, rate in (("slatedb", slatedb), ("siltstone.aio", awaited)):
            measures[f"{name}, {tasks} tasks"] = lambda rate=rate, tasks=tasks: asyncio.run(
                rate(given.keys, given.seconds, tasks)
            )
    for threads in (1, THREADS):
        measures[f"siltstone, {threads} threads"] = lambda threads=threads: waited(
            given.keys, given.seconds, threads
        )
    figures: dict[str, list[float]] = {name: [] for name in measures}
    for _ in range(given.rounds):
        for name, measure in measures.items():
            figures[name].append(measure())
    peer = statistics.median(figures["slatedb, 1 tasks"])
    for name, found in figures.items():
        rate = statistics.median(found)
        sys.stdout.write(f"{name:24} {rate:10,.0f} commits/s {rate / peer:7.1f} x\n")
    snapshot, transaction = reads(given.keys)
    sys.stdout.write(f"ten reads in a snapshot {snapshot:.2f} us, ")
    sys.stdout.write(f"in a transaction {transaction:.2f} us\n")


if __name__ == "__main__":
    main()
