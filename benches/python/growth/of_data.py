"""Dimensions of the data: rows, size of a value, columns, open databases, threads."""

from __future__ import annotations

import shutil
import threading
from collections import deque
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa

import peers
import siltstone
from dimension import STEADY, Costs, Dimension
from fit import CONSTANT, LINEAR, LOGARITHMIC
from meter import Meter
from rows import ALONE, batches, counted, key, open_alone, some, value
from siltstone import table

LOOK_UPS = 2000
SCANS = 200
SCANNED = 50
LOAD_BYTES = 64 << 20
LOAD_BUDGET = 4 * LOAD_BYTES
"""Rows of a load, and the tables that both cores and their uploads hold."""
CACHE_BYTES = 64 << 20
COPY_SECONDS = 1e-9
"""A byte that is copied takes up to a nanosecond, depending on the cache that holds it and on
whether the allocator has to ask the system."""
DISK_SECONDS = 5e-9
"""A byte that is durable takes up to five, depending on the cache of the disk."""


def consume(rows: Any) -> None:
    """Run an iterator to its end."""
    deque(rows, maxlen=0)


def scans(handle: Any, starts: list[bytes], limit: int = SCANNED) -> None:
    """Short scans."""
    for start in starts:
        consume(handle.scan(start, limit=limit))


def gets(handle: Any, keys: list[bytes]) -> None:
    """Look-ups, one call each."""
    for one in keys:
        handle.get(one)


class Rows(Dimension):
    name, text = "rows", "rows of 16 + 100 bytes in one sorted run"
    sizes = (10_000, 56_000, 316_000, 1_780_000, 10_000_000)
    quick = (1000, 4000, 16_000)
    costs: ClassVar = {
        "load": Costs(time=LINEAR, memory=CONSTANT, memory_budget=LOAD_BUDGET),
        "open": Costs(time=CONSTANT, memory=CONSTANT, requests=CONSTANT, bytes=CONSTANT),
        "get": Costs(time=LOGARITHMIC, requests=CONSTANT, bytes=CONSTANT),
        "scan of 50 rows": Costs(time=LOGARITHMIC, requests=CONSTANT, bytes=CONSTANT),
        "full scan": Costs(
            time=LINEAR, memory=CONSTANT, bytes=LINEAR, memory_budget=2 * CACHE_BYTES
        ),
        "checkpoint": Costs(time=CONSTANT, requests=CONSTANT, bytes=CONSTANT),
        "clone": Costs(time=CONSTANT),
    }
    peers = ("rocksdict", "lmdb")
    most_for_peers = 1_780_000

    def prepare(self, folder: Path) -> None:
        with open_alone(folder / "warm") as db:  # the runtime's threads and pools exist afterwards
            db.load(batches(100), sorted=True)

    def measure(self, meter: Meter, folder: Path) -> None:
        with open_alone(folder / "db") as db:
            meter.take(
                "load",
                lambda: db.load(batches(self.size), sorted=True, memory_bytes=LOAD_BYTES),
                repeats=0,
            )
            db.compact()
        meter.open("open", lambda: open_alone(folder / "db"), repeats=5)
        keys = some(self.size, LOOK_UPS)
        with open_alone(folder / "db", block_cache_bytes=CACHE_BYTES) as db:
            meter.take("full scan", lambda: consume(db.scan()), repeats=2)
            meter.take("get", lambda: gets(db, keys), calls=LOOK_UPS)
            meter.take("scan of 50 rows", lambda: scans(db, keys[:SCANS]), calls=SCANS)
            meter.take("checkpoint", db.checkpoint, of=db)
        for at in range(3):
            clone = folder / f"clone{at}"
            meter.take(
                "clone", lambda clone=clone: siltstone.clone(clone, parent=folder / "db"), repeats=0
            )
        for name, call, calls in (
            ("get", lambda handle: gets(handle, keys[:SCANS]), SCANS),
            ("scan of 50 rows", lambda handle: scans(handle, keys[:SCANS]), SCANS),
            ("full scan", lambda handle: consume(handle.scan()), 1),
        ):
            with counted(folder / "db") as reader:
                meter.count(name, lambda call=call, one=reader: call(one), reader, calls)

    def measure_peer(self, meter: Meter, engine: str, folder: Path) -> None:
        keys = some(self.size, LOOK_UPS)
        with peers.opened(engine, folder) as peer:
            meter.take("load", lambda: peers.fill(peer, self.size), repeats=0)
            peer.into_tables()
            with peers.reading(peer):
                meter.take("full scan", lambda: peer.scan_all(self.size), repeats=2)
                meter.take("get", lambda: peer.get(keys), calls=LOOK_UPS)
                starts = keys[:SCANS]
                meter.take("scan of 50 rows", lambda: peer.scan(starts, SCANNED), calls=SCANS)


class ValueSize(Dimension):
    name, text = "value size", "bytes of one value"
    sizes = (16, 1000, 50_000, 2_500_000, 100_000_000)
    quick = (16, 1000, 50_000)
    costs: ClassVar = {
        "durable put": Costs(
            time=LINEAR,
            memory=LINEAR,
            requests=CONSTANT,
            bytes=LINEAR,
            seconds_per_unit=DISK_SECONDS,
        ),
        "get": Costs(
            time=LINEAR,
            memory=LINEAR,
            requests=CONSTANT,
            bytes=LINEAR,
            seconds_per_unit=COPY_SECONDS,
        ),
        "scan of 1 row": Costs(
            time=LINEAR,
            requests=CONSTANT,
            bytes=LINEAR,
            most_bytes_per_unit=1.25,
            seconds_per_unit=COPY_SECONDS,
        ),
    }
    peers = ("rocksdict", "lmdb")
    options: ClassVar = {"max_batch_bytes": 256 << 20, "max_memtable_bytes": 1 << 30}
    held = 3
    """Values in the database, so that a scan can read too much."""

    def prepare(self, folder: Path) -> None:
        with open_alone(folder / "db", **self.options) as db:
            for number in range(self.held):
                db.put(key(number), value(self.size)).wait()

    def measure(self, meter: Meter, folder: Path) -> None:
        data = value(self.size)
        with open_alone(folder / "puts", **self.options) as db:
            meter.take("durable put", lambda: db.put(key(0), data).wait(), of=db, repeats=3)
        with open_alone(folder / "db", **self.options) as db:
            meter.take("get", lambda: db.get(key(1)), repeats=20)
            meter.take("scan of 1 row", lambda: scans(db, [key(0)], 1), repeats=20)
        with counted(folder / "db", **self.options) as reader:
            meter.count("scan of 1 row", lambda: scans(reader, [key(0)], 1), reader)
        with counted(folder / "db", **self.options) as reader:
            meter.count("get", lambda: reader.get(key(1)), reader)

    def measure_peer(self, meter: Meter, engine: str, folder: Path) -> None:
        data = value(self.size)
        with peers.opened(engine, folder) as peer:
            for number in range(self.held):
                peer.put(([key(number)], [data]))
            peer.into_tables()
            with peers.reading(peer):
                meter.take("get", lambda: peer.get([key(1)]), repeats=20)
                meter.take("scan of 1 row", lambda: peer.scan([key(0)], 1), repeats=20)


class Columns(Dimension):
    name, text = "columns of a table", "columns of int64 beside the key"
    sizes = (1, 6, 32, 180, 1000)
    quick = (1, 8, 64)
    costs: ClassVar = {
        "put of 100 rows": Costs(time=LINEAR, memory=LINEAR),
        "get": Costs(time=LINEAR, requests=CONSTANT),
        "scan of 100 rows": Costs(time=LINEAR, memory=LINEAR),
        "scan of one column": Costs(time=LINEAR),
        "open": Costs(time=LINEAR, requests=CONSTANT, bytes=LINEAR),
    }
    rows = 100

    def _data(self) -> pa.Table:
        numbers = pa.array(range(self.rows), pa.int64())
        return pa.table({"id": numbers} | {f"c{at}": numbers for at in range(self.size)})

    def prepare(self, folder: Path) -> None:
        fields = [pa.field("id", pa.int64(), nullable=False)]
        fields += [pa.field(f"c{at}", pa.int64()) for at in range(self.size)]
        with table.create(folder / "db", pa.schema(fields), key=["id"], options=ALONE) as db:
            db.table.put(self._data())

    def measure(self, meter: Meter, folder: Path) -> None:
        data = self._data()
        meter.open("open", lambda: open_alone(folder / "db"), repeats=5)
        with open_alone(folder / "db") as db:
            seen = db.table
            meter.take("put of 100 rows", lambda: seen.put(data), repeats=10)
            meter.take("get", lambda: seen.get({"id": 7}), of=db, repeats=50)
            meter.take("scan of 100 rows", lambda: pa.table(seen.scan()), repeats=10)
            one = ["c0"]
            meter.take("scan of one column", lambda: pa.table(seen.scan(columns=one)), repeats=10)


class Databases(Dimension):
    name, text = "open databases", "databases that a process has open"
    sizes = (1, 6, 32, 180, 1000)
    quick = (1, 8, 32)
    costs: ClassVar = {
        "open all": Costs(time=LINEAR, memory=LINEAR),
        "open one more": STEADY,
        "put and get": Costs(time=CONSTANT, requests=CONSTANT),
        "durable put": Costs(time=CONSTANT, requests=CONSTANT, bytes=CONSTANT),
    }
    peers = ("rocksdict", "lmdb")
    most_for_peers = 180

    def prepare(self, folder: Path) -> None:
        (folder / "all").mkdir()

    def measure(self, meter: Meter, folder: Path) -> None:
        def opened() -> list[siltstone.Database]:
            return [siltstone.open(folder / "all" / str(at)) for at in range(self.size)]

        handles = meter.take("open all", opened, repeats=0)
        more = folder / "more"
        meter.open(
            "open one more",
            lambda: open_alone(more),
            before=lambda: shutil.rmtree(more, ignore_errors=True),
            repeats=5,
        )
        first, data = handles[0], value()

        def both() -> None:
            for _ in range(100):
                first.put(key(0), data)
                first.get(key(0))

        meter.take("put and get", both, of=first, calls=100)
        meter.take("durable put", lambda: first.put(key(1), data).wait(), of=first, repeats=20)
        for handle in handles:
            handle.close()

    def measure_peer(self, meter: Meter, engine: str, folder: Path) -> None:
        def opened() -> list[Any]:
            return [peers.of(engine, folder / str(at)) for at in range(self.size)]

        handles = meter.take("open all", opened, repeats=0)
        for handle in handles:
            handle.close()


class Threads(Dimension):
    name, text = "threads", "threads of Python that share a handle"
    sizes = (1, 6, 32, 180, 1000)
    quick = (1, 4, 16)
    costs: ClassVar = {
        # Python makes and ends each thread.
        "20,000 gets in all": Costs(time=LINEAR, memory=LINEAR),
        "a durable put each": Costs(time=LINEAR, requests=LINEAR, bytes=LINEAR),
    }
    peers = ("rocksdict",)
    reads = 20_000
    rows = 100_000

    def prepare(self, folder: Path) -> None:
        with open_alone(folder / "db") as db:
            db.load(batches(self.rows), sorted=True)

    def measure(self, meter: Meter, folder: Path) -> None:
        keys = some(self.rows, self.reads // self.size)
        data = value()
        with open_alone(folder / "db") as db:
            gets(db, keys)
            meter.take("20,000 gets in all", lambda: together(self.size, lambda: gets(db, keys)))
            meter.take(
                "a durable put each",
                lambda: together(self.size, lambda: db.put(key(0), data).wait()),
                of=db,
            )

    def measure_peer(self, meter: Meter, engine: str, folder: Path) -> None:
        keys = some(self.rows, self.reads // self.size)
        with peers.opened(engine, folder) as peer:
            peers.fill(peer, self.rows)
            peer.into_tables()
            with peers.reading(peer):
                meter.take(
                    "20,000 gets in all", lambda: together(self.size, lambda: peer.get(keys))
                )


def together(threads: int, call: Any) -> None:
    """Run a call in so many threads, and wait for all."""
    running = [threading.Thread(target=call) for _ in range(threads)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()


DIMENSIONS = (Rows, ValueSize, Columns, Databases, Threads)
