"""The checks that a store has to pass, each with a database of its own.

A check raises AssertionError with the reason, and returns the figures of its run otherwise.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import siltstone
from servers import RunningStore
from siltstone import admin
from writer import KEYS

Figures = dict[str, Any]
WRITER = Path(__file__).with_name("writer.py")
# Seconds after which a check counts as stuck.
PATIENCE = 180.0
# Sizes so small that few operations cross every boundary: memtable, block, table.
SMALL = {"l0_sst_size_bytes": 4096, "block_bytes": 256, "flush_interval": 0}


def probe(store: RunningStore, effort: int) -> Figures:
    """Examines the properties of the store, as `siltstone probe URL` does."""
    report = admin.probe(
        store.url("probe"),
        rounds=5 * effort,
        largest_object=(1 + effort // 4) << 20,
        store_options=store.options,
    )
    needed = [one for one in report.properties.values() if one.needed]
    bad = [f"{one.name} {one.result}: {one.reason}" for one in needed if one.result != "passed"]
    assert report.ok, bad
    assert not report.left, report.left
    results = {name: one.result for name, one in report.properties.items()}
    return {"properties": results, "largest_object": report.largest_object}


class Model:
    """A database, and a dict with its expected contents."""

    def __init__(self, store: RunningStore, draw: random.Random) -> None:
        self.store, self.draw, self.expected = store, draw, dict[bytes, bytes]()
        self.url = store.url("model")
        self.reopened = 0
        self.open()

    def open(self) -> None:
        how = {**SMALL, "max_parallel_writes": self.draw.choice([1, 8])}
        self.db = siltstone.open(self.url, options=how, store_options=self.store.options)

    def key(self) -> bytes:
        return b"%03d" % self.draw.randrange(300)

    def step(self) -> None:
        """One random operation."""
        draw, db = self.draw, self.db
        kind = draw.choices(
            ["put", "delete", "range", "batch", "get", "scan", "flush", "compact", "reopen"],
            [40, 10, 3, 15, 10, 8, 6, 1, 4],
        )[0]
        if kind == "put":
            key, value = self.key(), draw.randbytes(draw.randrange(300))
            db.put(key, value)
            self.expected[key] = value
        elif kind == "delete":
            key = self.key()
            db.delete(key)
            self.expected.pop(key, None)
        elif kind == "range":
            start, end = sorted([self.key(), self.key() + b"x"])
            db.delete_range(start, end)
            self.expected = {k: v for k, v in self.expected.items() if not start <= k < end}
        elif kind == "batch":
            rows = {self.key(): draw.randbytes(draw.randrange(100)) for _ in range(5)}
            with db.batch() as batch:
                for key, value in rows.items():
                    batch.put(key, value)
            self.expected.update(rows)
        elif kind == "get":
            keys = [self.key() for _ in range(10)]
            assert db.get_many(keys) == [self.expected.get(key) for key in keys]
        elif kind == "scan":
            start, end = sorted([self.key(), self.key() + b"x"])
            inside = {k: v for k, v in sorted(self.expected.items()) if start <= k < end}
            assert dict(db.scan(start, end)) == inside
        elif kind == "flush":
            db.flush()
        elif kind == "compact":
            db.compact()
        else:
            self.reopen()

    def reopen(self) -> None:
        """Closes, reads all of it by a reader, and opens again."""
        self.db.close()
        with siltstone.open_reader(self.url, store_options=self.store.options) as reader:
            assert dict(reader.scan()) == self.expected
        self.reopened += 1
        self.open()
        assert dict(self.db.scan()) == self.expected


def model(store: RunningStore, effort: int, seed: int) -> Figures:
    """Random puts, deletes, scans and openings, compared with a dict; then a collection."""
    operations = 50 * effort
    run = Model(store, random.Random(seed))
    for _ in range(operations):
        run.step()
    run.reopen()
    run.db.close()
    settle(store, run.url)
    return {"operations": operations, "reopened": run.reopened}


def settle(store: RunningStore, url: str) -> None:
    """Collects, and checks every byte."""
    assert admin.gc(url, store_options=store.options, min_age=0).trouble is None
    report = admin.verify(url, store_options=store.options)
    assert report.ok, report.problems


def prefix(db: siltstone.Database | siltstone.Reader) -> int:
    """Checks that the present writes are a prefix, each of them whole. Returns the last one."""
    last = int(db.get(b"counter", b"0"))
    expected = {b"key%04d" % (n % KEYS): n for n in range(max(1, last - KEYS + 1), last + 1)}
    found = {key: int(value.partition(b".")[0]) for key, value in db.scan(prefix=b"key")}
    assert found == expected, f"not the first {last} writes"
    return last


class Writer:
    """A writer process, and the events that it reported."""

    def __init__(self, store: RunningStore, url: str, seed: int, *more: str) -> None:
        self.child = subprocess.Popen(
            [sys.executable, str(WRITER), url, str(seed), *more],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "SILTSTONE_STORE_OPTIONS": json.dumps(store.options)},
        )
        self.events: queue.Queue[list[str]] = queue.Queue()
        self.errors: list[str] = []
        self.threads = [
            threading.Thread(target=self.read_events),
            threading.Thread(target=self.read_errors),
        ]
        for thread in self.threads:
            thread.start()

    def read_events(self) -> None:
        assert self.child.stdout is not None
        for line in self.child.stdout:
            # A kill may cut the last line.
            if line.endswith("\n"):
                self.events.put(line.split())

    def read_errors(self) -> None:
        assert self.child.stderr is not None
        self.errors.extend(self.child.stderr)

    def next(self) -> list[str]:
        """The next event. The process must be alive until it comes."""
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            with contextlib.suppress(queue.Empty):
                return self.events.get(timeout=0.2)
            if self.child.poll() is not None and self.events.empty():
                raise AssertionError(f"the writer ended: {''.join(self.errors)}")
        raise AssertionError("the writer reported nothing")

    def kill(self) -> list[list[str]]:
        """Kills the process. Returns the events that were not read."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.child.pid, signal.SIGKILL)
        self.child.wait()
        for thread in self.threads:
            thread.join()
        for pipe in (self.child.stdout, self.child.stderr):
            assert pipe is not None
            pipe.close()
        return list(self.events.queue)


class Ledger:
    """The events of all writers of a database, by epoch."""

    def __init__(self) -> None:
        self.recovered: dict[int, int] = {}
        self.acknowledged: dict[int, int] = {}
        self.fenced = 0

    def add(self, event: list[str]) -> None:
        kind, epoch = event[0], int(event[1])
        if kind == "began":
            assert epoch not in self.recovered, f"two writers have epoch {epoch}"
            self.recovered[epoch] = int(event[2])
        elif kind == "ack":
            self.acknowledged[epoch] = int(event[2])
        else:
            self.fenced += 1

    @property
    def last(self) -> int:
        """The last acknowledged write."""
        return max(self.acknowledged.values(), default=0)

    def check(self) -> None:
        """Each writer recovered all that earlier ones acknowledged, at any time: a writer that
        acknowledges after it was fenced would show here."""
        earlier = 0
        for epoch, recovered in sorted(self.recovered.items()):
            assert recovered >= earlier, f"epoch {epoch} recovered {recovered} of {earlier}"
            earlier = max(earlier, self.acknowledged.get(epoch, 0))


def recovered(store: RunningStore, url: str, ledger: Ledger) -> None:
    """Checks the database without any writer: as a reader and after an opening."""
    ledger.check()
    with siltstone.open_reader(url, store_options=store.options) as reader:
        assert prefix(reader) >= ledger.last, "an acknowledged write was lost"
    with siltstone.open(url, take_over=True, store_options=store.options) as db:
        assert prefix(db) >= ledger.last, "an acknowledged write was lost"


def kills(store: RunningStore, effort: int, seed: int) -> Figures:
    """Kills one writer after the other, at random moments."""
    draw, url, ledger = random.Random(seed), store.url("kills"), Ledger()
    siltstone.open(url, store_options=store.options).close()
    for kill in range(effort):
        writer = Writer(store, url, draw.randrange(1 << 32))
        try:
            for _ in range(draw.randrange(1, 100)):
                ledger.add(writer.next())
            time.sleep(draw.random() * 0.02)
        finally:
            left = writer.kill()
        for event in left:
            ledger.add(event)
        if kill % 4 == 0 or kill == effort - 1:
            recovered(store, url, ledger)
    settle(store, url)
    return {"kills": effort, "acknowledged": ledger.last}


def fencing(store: RunningStore, effort: int, seed: int) -> Figures:
    """Two writers that take over from each other as soon as they are fenced."""
    draw, url, ledger = random.Random(seed), store.url("fencing"), Ledger()
    siltstone.open(url, store_options=store.options).close()
    writers = [Writer(store, url, draw.randrange(1 << 32), "--again") for _ in range(2)]
    end = time.monotonic() + PATIENCE
    try:
        while ledger.fenced < effort or not ledger.last:
            for writer in writers:
                for event in pending(writer):
                    ledger.add(event)
            assert time.monotonic() < end, f"{ledger.fenced} of {effort} takeovers"
            time.sleep(0.02)
    finally:
        left = [event for writer in writers for event in writer.kill()]
    for event in left:
        ledger.add(event)
    recovered(store, url, ledger)
    settle(store, url)
    return {"takeovers": ledger.fenced, "acknowledged": ledger.last}


def pending(writer: Writer) -> Iterator[list[str]]:
    """The events so far. The process must be alive."""
    with contextlib.suppress(queue.Empty):
        while True:
            yield writer.events.get_nowait()
    assert writer.child.poll() is None, f"the writer ended: {''.join(writer.errors)}"
