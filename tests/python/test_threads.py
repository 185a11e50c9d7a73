"""Many threads on one handle, and handles that allow one thread at a time."""

from __future__ import annotations

import random
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

import siltstone
from pace_for_tests import PATIENCE


def test_one_database_from_many_threads(url: str) -> None:
    def work(thread: int) -> list[int]:
        seqs = []
        for i in range(300):
            key = b"%d-%04d" % (thread, i)
            seqs.append(db.put(key, key).seq)
            assert db[key] == key
            if i % 50 == 0:
                db.flush()
                assert len(list(db.scan(prefix=b"%d-" % thread))) == i + 1
                assert db.get_many([b"%d-%04d" % (thread, j) for j in range(i + 1)])[-1] == key
        return seqs

    with siltstone.open(url, options={"l0_sst_size_bytes": 4096}) as db:
        with ThreadPoolExecutor(8) as pool:
            seqs = [seq for seqs in pool.map(work, range(8)) for seq in seqs]
        assert sorted(seqs) == list(range(1, 2401))
        assert sum(1 for _ in db) == 2400


def test_a_batch_is_never_seen_in_part(db) -> None:
    stop = threading.Event()

    def write() -> None:
        i = 0
        while not stop.is_set():
            db.put_many([b"a", b"b"], [b"%d" % i] * 2)
            i += 1

    with ThreadPoolExecutor(1) as pool:
        written = pool.submit(write)
        for _ in range(200):
            first, second = db.get_many([b"a", b"b"])
            assert first == second
            rows = dict(db.scan())
            assert rows.get(b"a") == rows.get(b"b")
        stop.set()
        written.result()


def test_one_scan_in_two_threads_tears_nothing(db) -> None:
    db.put_many([b"%06d" % i for i in range(20_000)], [b"v"] * 20_000)
    scan = db.scan()
    seen: list[bytes] = []
    refused = []

    def pull() -> None:
        while True:
            try:
                seen.append(next(scan)[0])
            except siltstone.Invalid as error:
                refused.append(str(error))
            except StopIteration:
                return

    threads = [threading.Thread(target=pull) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(seen) == [b"%06d" % i for i in range(20_000)]
    assert all("one thread" in text for text in refused)


def test_waiting_lets_other_threads_run(cold) -> None:
    """A thread that waits for durable writes does not hold the interpreter."""
    ticks = 0
    stop = threading.Event()

    def tick() -> None:
        nonlocal ticks
        while not stop.is_set():
            ticks += 1

    thread = threading.Thread(target=tick)
    thread.start()
    for i in range(50):
        cold.put(b"%d" % i, b"v").wait()
    stop.set()
    thread.join()
    assert ticks > 50


def test_other_threads_run_while_a_scan_passes_deleted_rows(memory_url: str) -> None:
    ticks: list[float] = []
    stop = threading.Event()

    def tick() -> None:
        while not stop.wait(0.001):
            ticks.append(time.perf_counter())

    def ticks_within_a_scan(number: int) -> bool:
        with siltstone.open(f"{memory_url}{number}", options={"flush_interval": 3600}) as db:
            batch = siltstone.WriteBatch()
            batch.put(b"last", b"v")
            for n in range(300_000):
                batch.delete(b"%07d" % n)
            db.write(batch)
            start = time.perf_counter()
            assert next(db.scan()) == (b"last", b"v")
            end = time.perf_counter()
        # A call that keeps the interpreter gives others a turn at its edges at most.
        quarter = (end - start) / 4
        return any(start + quarter < at < end - quarter for at in ticks)

    thread = threading.Thread(target=tick)
    thread.start()
    # A machine with other work may wake the other thread late, and rarely even in a call that
    # releases the interpreter for a moment only.
    seen = tried = 0
    while seen < 5 and tried < 20:
        seen += ticks_within_a_scan(tried)
        tried += 1
    stop.set()
    thread.join()
    assert seen == 5, tried


def test_closing_wakes_those_who_wait(memory_url: str) -> None:
    db = siltstone.open(memory_url)
    outcomes = []

    def write() -> None:
        try:
            while True:
                db.put(b"k", b"v").wait()
        except siltstone.Closed:
            outcomes.append("Closed")

    threads = [threading.Thread(target=write) for _ in range(4)]
    for thread in threads:
        thread.start()
    db.close()
    for thread in threads:
        thread.join(PATIENCE)
    assert outcomes == ["Closed"] * 4


def test_many_open_scans(db) -> None:
    db.put_many([b"%04d" % i for i in range(1100)], [b"v"] * 1100)
    scans = [db.scan(b"%04d" % i) for i in range(1000)]
    assert [next(scan)[0] for scan in scans] == [b"%04d" % i for i in range(1000)]
    assert db.stats().snapshots == 1000
    del scans
    assert db.stats().snapshots == 0


def test_a_scan_whose_last_rows_are_at_hand_holds_nothing(db) -> None:
    db.put_many([b"%04d" % i for i in range(100)], [b"v"] * 100)
    scans = [db.scan(limit=3), db.scan(b"0097"), db.scan(reverse=True, limit=3), db.scan(limit=50)]
    assert db.stats().snapshots == 4
    first = [next(scan)[0] for scan in scans]
    assert first == [b"0000", b"0097", b"0099", b"0000"]
    assert db.stats().snapshots == 0
    db.put_many([b"%04d" % i for i in range(100)], [b"new"] * 100)
    # Each scan returns the rows of its start, and has the same end.
    assert [list(scan) for scan in scans] == [
        [(b"0001", b"v"), (b"0002", b"v")],
        [(b"0098", b"v"), (b"0099", b"v")],
        [(b"0098", b"v"), (b"0097", b"v")],
        [(b"%04d" % i, b"v") for i in range(1, 50)],
    ]
    for scan in scans:
        with pytest.raises(siltstone.Invalid, match="iterated to its end"):
            scan.to_arrow()


def test_every_kind_of_handle_is_shared_by_threads_that_switch_all_the_time(url: str) -> None:
    """Correct even if threads switch all the time."""
    keys = [b"%03d" % i for i in range(100)]

    def work(seed: int) -> int:
        chosen = random.Random(seed)
        calls = 0
        for _ in range(150):
            key = chosen.choice(keys)
            commit = db.put(key, key)
            commits.append(commit)
            assert chosen.choice(commits).seq > 0
            for handle in (db, reader, snapshot):
                assert handle.get(key) == key
                assert handle.get_many([key, b"absent"]) == [key, None]
                assert [found for found, _ in handle.scan(key, limit=1)] == [key]
            try:
                batch.put(key, key)
                next(scan)
            except (siltstone.Invalid, StopIteration):
                pass
            calls += 1
        return calls

    interval = sys.getswitchinterval()
    try:
        sys.setswitchinterval(1e-6)
        with siltstone.open(url) as db:
            db.put_many(keys, keys).wait()
            commits = [db.put(keys[0], keys[0])]
            with (
                siltstone.open_reader(url, options={"manifest_poll_interval": 0.1}) as reader,
                db.snapshot() as snapshot,
                db.batch() as batch,
                db.scan() as scan,
                ThreadPoolExecutor(6) as pool,
            ):
                assert list(pool.map(work, range(6))) == [150] * 6
            assert batch.commit.seq > max(commit.seq for commit in commits)
            assert list(db) == keys
    finally:
        sys.setswitchinterval(interval)
