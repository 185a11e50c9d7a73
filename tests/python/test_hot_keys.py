"""Keys with many versions: counters with many operands, and old snapshots of rewritten keys. A read
costs at most one pass, and its result equals that of a model."""

from __future__ import annotations

import itertools
import random
import struct
import threading
import time
from datetime import timedelta

import pyarrow as pa
import pytest

import siltstone
from pace_for_tests import quickest
from siltstone.merging import MergeOperator

ONE = struct.pack("<q", 1)
DEFERRED = {"flush_interval": 3600}


def number(value: bytes | None) -> int:
    return struct.unpack("<q", value or bytes(8))[0]


def seconds(call, times: int = 3) -> float:
    """The shortest time of several calls."""
    taken = []
    for _ in range(times):
        begun = time.perf_counter()
        call()
        taken.append(time.perf_counter() - begun)
    return min(taken)


def counter(url: str, increments: int):
    db = siltstone.open(url, merge_operator="sum_i64", options=DEFERRED)
    for _ in range(increments):
        db.merge(b"hot", ONE)
    return db


READS = {
    "get": lambda db: number(db.get(b"hot")),
    "in": lambda db: b"hot" in db and number(db[b"hot"]),
    "get_many": lambda db: number(db.get_many([b"hot"])[0]),
    "arrow": lambda db: number(db.get_many(pa.array([b"hot", b"cold"]))[0].as_py()),
    "entry": lambda db: number(db.get_entry(b"hot").value),
    "scan": lambda db: number(next(iter(db.scan(prefix=b"hot")))[1]),
}


@pytest.mark.parametrize("name", READS)
def test_a_counter_is_read_in_one_pass(memory_url: str, name: str) -> None:
    read, turns = READS[name], itertools.count()

    def growth() -> float:
        url = f"{memory_url}-{next(turns)}"
        with counter(url + "-few", 4_000) as few, counter(url + "-many", 64_000) as many:
            # Only the first read of each key: later reads find operands that are already folded.
            short, long = seconds(lambda: read(few), 1), seconds(lambda: read(many), 1)
            assert (read(few), read(many)) == (4_000, 64_000)
        return long / max(short, 0.001)

    # Sixteen times the operands: 256 times the time if each operand searched again from the top.
    quickest(growth, 64)


def test_a_counter_that_was_read_is_read_quickly_again(memory_url: str) -> None:
    with counter(memory_url, 64_000) as db:
        first = seconds(lambda: db.get(b"hot"), 1)
        again = []
        for n in range(1_000):
            db.merge(b"hot", ONE)
            again.append(seconds(lambda: db.get(b"hot"), 1))
            assert number(db.get(b"hot")) == 64_001 + n
    assert sorted(again)[500] < max(first / 20, 0.00005)


def test_transactions_read_their_own_counters_in_one_pass(memory_url: str) -> None:
    turns = itertools.count()

    def read(operands: int) -> float:
        with (
            siltstone.open(f"{memory_url}-{next(turns)}", merge_operator="sum_i64") as db,
            db.transaction() as txn,
        ):
            for _ in range(operands):
                txn.merge(b"hot", ONE)
            taken = seconds(lambda: txn.get(b"hot"), 1)
            assert number(txn.get(b"hot")) == operands
            return taken

    quickest(lambda: read(64_000) / max(read(4_000), 0.001), 64)


def test_other_threads_run_while_a_long_counter_is_read(memory_url: str) -> None:
    slow = MergeOperator("slow", lambda _key, _base, operands: b"%d" % len(operands))
    turns = itertools.count()

    def longest_pause() -> float:
        url = f"{memory_url}-{next(turns)}"
        with siltstone.open(url, merge_operator=slow, options=DEFERRED) as db:
            for _ in range(200_000):
                db.merge(b"hot", b"x")
            ticks, stop = [], threading.Event()

            def tick() -> None:
                while not stop.wait(0.001):
                    ticks.append(time.perf_counter())

            thread = threading.Thread(target=tick)
            thread.start()
            assert db.get(b"hot") == b"200000"
            stop.set()
            thread.join()
        return max((after - before for before, after in itertools.pairwise(ticks)), default=0)

    quickest(longest_pause, 1)


@pytest.mark.parametrize("kind", ["put", "merge"])
def test_an_old_snapshot_reads_a_rewritten_key_quickly(memory_url: str, kind: str) -> None:
    def read(versions: int) -> float:
        with siltstone.open(
            memory_url + str(versions), merge_operator="sum_i64", options=DEFERRED
        ) as db:
            db[b"key"] = ONE
            with db.snapshot() as snapshot:
                for _ in range(versions):
                    getattr(db, kind)(b"key", ONE)
                assert number(snapshot.get(b"key")) == 1
                assert number(snapshot.get_many([b"key"])[0]) == 1
                return seconds(lambda: snapshot.get(b"key"), 20)

    assert read(128_000) < 20 * max(read(1_000), 0.00002)


@pytest.mark.parametrize("seed", range(6))
def test_folds_that_are_kept_change_no_answer(memory_url: str, seed: int) -> None:
    chosen = random.Random(seed)
    model, snapshots = 0, []
    with siltstone.open(memory_url, merge_operator="sum_i64", options=DEFERRED) as db:
        for step in range(6_000):
            what = chosen.random()
            if what < 0.9:
                db.merge(b"hot", struct.pack("<q", step))
                model += step
            elif what < 0.901:
                db.put(b"hot", struct.pack("<q", step))
                model = step
            elif what < 0.902:
                db.delete(b"hot")
                model = 0
            elif what < 0.903:
                db.delete_range(b"h", b"i")
                model = 0
            elif what < 0.904:
                # An expired operand deletes the versions below it.
                db.merge(b"hot", ONE, ttl=timedelta(microseconds=1))
                model = 0
                time.sleep(0.002)
            elif what < 0.905:
                db.flush(memtable=True)
            elif what < 0.91:
                snapshots.append((db.snapshot(), model))
            else:
                assert number(db.get(b"hot")) == model
        for snapshot, then in snapshots:
            with snapshot:
                assert number(snapshot.get(b"hot")) == then
                assert number(snapshot.get_many([b"hot"])[0]) == then


@pytest.mark.parametrize("flushed", [False, True], ids=["memtable", "table"])
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("old", [False, True], ids=["now", "old snapshot"])
def test_range_deletes_elsewhere_cost_a_scan_nothing(
    memory_url: str, old: bool, reverse: bool, flushed: bool
) -> None:
    with siltstone.open(memory_url, options=DEFERRED | {"embedded_compactor": False}) as db:
        db.put_many([b"m%06d" % i for i in range(1_000)], [b"v"] * 1_000)
        snapshot = db.snapshot()
        for i in range(10_000):
            key = b"%s%06d" % (b"ar"[i % 2 :][:1], 10 * i)
            db.delete_range(key, key + b"5")
        db.delete_range(b"m000400", b"m000500")
        if flushed:
            db.flush(memtable=True)

        def first() -> bytes:
            source = snapshot if old else db
            return next(iter(source.scan(b"m000400", b"z", limit=1, reverse=reverse)))[0]

        assert first() == (b"m000999" if reverse else b"m000400" if old else b"m000500")
        assert seconds(first, 50) < 0.001
        snapshot.close()
