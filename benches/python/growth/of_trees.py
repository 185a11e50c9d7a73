"""Dimensions of the tree: tables, layers, versions, operands, deletes, snapshots."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import peers
from dimension import Costs, Dimension
from fit import CONSTANT, LINEAR, LOGARITHMIC, N_LOG_N
from meter import Meter
from of_data import consume, gets, scans
from rows import batches, counted, key, open_alone, some, value

LOOK_UPS = 500
SCANS = 50
FEW = 5
UNIT = 1 << 16
"""Bytes of the smallest table that compaction writes."""


def put_all(db: Any, keys: list[bytes], data: bytes) -> None:
    """Put rows in batches."""
    for at in range(0, len(keys), 1000):
        part = keys[at : at + 1000]
        db.put_many(part, [data] * len(part))


class Tables(Dimension):
    name, text = "tables", "tables of 64 KiB in one sorted run"
    sizes = (4, 22, 126, 710, 4000)
    quick = (4, 16, 64)
    costs: ClassVar = {
        "open": Costs(time=LINEAR, memory=LINEAR, requests=CONSTANT, bytes=LINEAR),
        "get": Costs(time=LOGARITHMIC, requests=CONSTANT, bytes=CONSTANT),
        "scan of 5 rows": Costs(time=LOGARITHMIC, requests=CONSTANT, bytes=CONSTANT),
        "flush of one row": Costs(time=LINEAR, requests=CONSTANT, bytes=LINEAR),
    }
    rows_per_table = UNIT // 116

    def prepare(self, folder: Path) -> None:
        with open_alone(folder / "db", target_sst_bytes=UNIT) as db:
            # Two layers of the same keys: a single one would not be merged into small tables.
            for _ in range(2):
                for batch in batches(self.size * self.rows_per_table):
                    db.write(batch)
                db.flush(memtable=True)
            db.compact()
            assert self.size / 2 <= db.stats().tables <= self.size * 2

    def measure(self, meter: Meter, folder: Path) -> None:
        keys = some(self.size * self.rows_per_table, LOOK_UPS)
        meter.open("open", lambda: open_alone(folder / "db"), repeats=5)
        with counted(folder / "db") as reader:
            meter.count("get", lambda: gets(reader, keys[:SCANS]), reader, SCANS)
        with counted(folder / "db") as reader:
            meter.count("scan of 5 rows", lambda: scans(reader, keys[:SCANS], FEW), reader, SCANS)
        with open_alone(folder / "db") as db:
            meter.take("get", lambda: gets(db, keys), calls=LOOK_UPS)
            meter.take("scan of 5 rows", lambda: scans(db, keys, FEW), calls=LOOK_UPS)
            data = value()

            def flushed() -> None:
                db.put(key(0), data)
                db.flush(memtable=True)

            meter.take("flush of one row", flushed, of=db)


class Layers(Dimension):
    name, text = "runs", "layers that share keys: tables of L0 and sorted runs"
    sizes = (1, 6, 32, 180, 1000)
    quick = (1, 4, 16)
    costs: ClassVar = {
        "open": Costs(time=LINEAR, memory=LINEAR, requests=CONSTANT, bytes=LINEAR),
        "get": Costs(time=LINEAR, requests=LINEAR, bytes=LINEAR),
        "get of an absent key": Costs(time=LINEAR, requests=LINEAR, bytes=LINEAR),
        # A merge of n cursors takes the smallest of n keys for each row.
        "scan of 50 rows": Costs(time=N_LOG_N, requests=LINEAR, bytes=LINEAR),
        "compact": Costs(time=LINEAR, memory=LINEAR, requests=LINEAR, bytes=LINEAR),
    }
    options: ClassVar = {"l0_max_ssts": 2000, "l0_compaction_threshold_ssts": 1000}
    rows = 200
    """Rows of a layer. Its keys are spread over those of all others."""

    def _keys(self, layer: int) -> list[bytes]:
        return [key(row * self.size + layer) for row in range(self.rows)]

    def prepare(self, folder: Path) -> None:
        data = value()
        with open_alone(folder / "db", l0_manifest_commit_interval=0, **self.options) as db:
            for layer in range(self.size):
                put_all(db, self._keys(layer), data)
                db.flush(memtable=True)

    def measure(self, meter: Meter, folder: Path) -> None:
        keys = some(self.size * self.rows, LOOK_UPS)
        absent = [one + b"x" for one in keys]
        meter.open("open", lambda: open_alone(folder / "db", **self.options), repeats=5)
        few = (
            ("get", lambda handle: gets(handle, keys[:SCANS])),
            ("get of an absent key", lambda handle: gets(handle, absent[:SCANS])),
            ("scan of 50 rows", lambda handle: scans(handle, keys[:SCANS])),
        )
        for name, call in few:
            with counted(folder / "db") as reader:
                meter.count(name, lambda call=call, reader=reader: call(reader), reader, SCANS)
        with open_alone(folder / "db", **self.options) as db:
            for name, call in few:
                meter.take(name, lambda call=call, db=db: call(db), calls=SCANS)
            meter.take("compact", db.compact, of=db, repeats=0)


class Versions(Dimension):
    name, text = "versions of a key", "puts of one key, none of them flushed"
    sizes = (100, 560, 3160, 17_800, 100_000)
    quick = (100, 400, 1600)
    costs: ClassVar = {
        "put": Costs(time=CONSTANT),
        "get": Costs(time=LOGARITHMIC),
        "scan over the key": Costs(time=LOGARITHMIC),
        "flush": Costs(time=LINEAR, memory=LINEAR, bytes=LINEAR),
    }
    peers = ("rocksdict", "lmdb")

    def prepare(self, folder: Path) -> None:
        """All of it is measured."""

    def measure(self, meter: Meter, folder: Path) -> None:
        data, hot = value(16), key(1)
        with open_alone(folder / "db") as db:
            put_all(db, [key(0), key(2)], data)

            def puts() -> None:
                for _ in range(self.size):
                    db.put(hot, data)

            meter.take("put", puts, calls=self.size, repeats=0)
            meter.take("get", lambda: gets(db, [hot] * LOOK_UPS), calls=LOOK_UPS)
            meter.take("scan over the key", lambda: scans(db, [key(0)] * SCANS, 3), calls=SCANS)
            db.flush()
            meter.take("flush", lambda: db.flush(memtable=True), of=db, repeats=0)

    def measure_peer(self, meter: Meter, engine: str, folder: Path) -> None:
        data, hot = value(16), key(1)
        with peers.opened(engine, folder) as peer:
            peer.put(([key(0), key(2)], [data] * 2))
            rows = [hot] * self.size, [data] * self.size
            meter.take("put", lambda: peer.put(rows), calls=self.size, repeats=0)
            with peers.reading(peer):
                meter.take("get", lambda: peer.get([hot] * LOOK_UPS), calls=LOOK_UPS)
                starts = [key(0)] * SCANS
                meter.take("scan over the key", lambda: peer.scan(starts, 3), calls=SCANS)


class Operands(Dimension):
    name, text = "merge operands", "operands of one key, not yet folded by a compaction"
    sizes = (100, 560, 3160, 17_800, 100_000)
    quick = (100, 400, 1600)
    costs: ClassVar = {
        "merge": Costs(time=CONSTANT),
        "get": Costs(time=LINEAR, memory=LINEAR),
        "get of another key": Costs(time=CONSTANT),
        "flush": Costs(time=LINEAR, memory=LINEAR, bytes=LINEAR),
        "get after a compaction": Costs(time=CONSTANT),
    }

    def prepare(self, folder: Path) -> None:
        """All of it is measured."""

    def measure(self, meter: Meter, folder: Path) -> None:
        one, hot = (1).to_bytes(8, "little"), key(1)
        with open_alone(folder / "db", merge_operator="sum_i64") as db:
            db.put(key(0), one)

            def merges() -> None:
                for _ in range(self.size):
                    db.merge(hot, one)

            meter.take("merge", merges, calls=self.size, repeats=0)
            meter.take("get", lambda: db.get(hot))
            others = [key(0)] * LOOK_UPS
            meter.take("get of another key", lambda: gets(db, others), calls=LOOK_UPS)
            db.flush()
            meter.take("flush", lambda: db.flush(memtable=True), of=db, repeats=0)
            db.compact()
            folded = [hot] * LOOK_UPS
            meter.take("get after a compaction", lambda: gets(db, folded), calls=LOOK_UPS)


class RangeDeletes(Dimension):
    name, text = "range deletes", "disjoint range deletes, each over one of the older rows"
    sizes = (30, 170, 950, 5300, 30_000)
    quick = (30, 100, 300)
    costs: ClassVar = {
        "delete_range": Costs(time=LOGARITHMIC),
        **{
            f"{what}, {where}": Costs(time=promise)
            for where in ("in memory", "in a table")
            for what, promise in (
                ("get in a range", LOGARITHMIC),
                ("get out of the ranges", LOGARITHMIC),
                ("scan of 50 rows out of the ranges", LOGARITHMIC),
                ("seek over all ranges", LINEAR),
            )
        },
        "flush": Costs(time=LINEAR, memory=LINEAR, bytes=LINEAR),
    }
    beyond = 1000
    """Rows behind the ranges."""

    def prepare(self, folder: Path) -> None:
        with open_alone(folder / "db") as db:
            put_all(db, [key(n) for n in range(self.size * 2 + self.beyond)], value())
            db.flush(memtable=True)

    def _reads(self, meter: Meter, db: Any, where: str) -> None:
        inside = [key(2 * (n * 7919 % self.size)) for n in range(LOOK_UPS)]
        outside = [key(2 * self.size + n) for n in range(LOOK_UPS)]
        starts = outside[:SCANS]
        for what, call, calls in (
            ("get in a range", lambda: gets(db, inside), LOOK_UPS),
            ("get out of the ranges", lambda: gets(db, outside), LOOK_UPS),
            ("scan of 50 rows out of the ranges", lambda: scans(db, starts), SCANS),
            ("seek over all ranges", lambda: consume(db.keys(key(0), key(2 * self.size))), 1),
        ):
            meter.take(f"{what}, {where}", call, calls=calls)

    def measure(self, meter: Meter, folder: Path) -> None:
        with open_alone(folder / "db") as db:

            def deletes() -> None:
                for n in range(self.size):
                    db.delete_range(key(2 * n), key(2 * n + 1))

            meter.take("delete_range", deletes, calls=self.size, repeats=0)
            self._reads(meter, db, "in memory")
            db.flush()
            meter.take("flush", lambda: db.flush(memtable=True), of=db, repeats=0)
            self._reads(meter, db, "in a table")


class Tombstones(Dimension):
    name, text = "tombstones before a seek", "deleted rows in front of the next row, flushed"
    sizes = (100, 560, 3160, 17_800, 100_000)
    quick = (100, 400, 1600)
    costs: ClassVar = {
        "seek": Costs(time=LINEAR, memory=CONSTANT, requests=LINEAR, bytes=LINEAR),
        "seek after a compaction": Costs(time=CONSTANT, requests=CONSTANT, bytes=CONSTANT),
        "get of the next row": Costs(time=LOGARITHMIC),
    }
    peers = ("rocksdict", "lmdb")

    def prepare(self, folder: Path) -> None:
        keys = [key(n) for n in range(self.size)]
        with open_alone(folder / "db") as db:
            put_all(db, [*keys, key(self.size)], value())
            db.flush(memtable=True)
            for one in keys:
                db.delete(one)
            db.flush(memtable=True)

    def measure(self, meter: Meter, folder: Path) -> None:
        with counted(folder / "db") as reader:
            meter.count("seek", lambda: scans(reader, [key(0)], 1), reader)
        last = [key(self.size)] * LOOK_UPS
        with open_alone(folder / "db") as db:
            meter.take("seek", lambda: scans(db, [key(0)], 1), repeats=20)
            meter.take("get of the next row", lambda: gets(db, last), calls=LOOK_UPS)
            db.compact()
            meter.take("seek after a compaction", lambda: scans(db, [key(0)], 1), repeats=20)
        with counted(folder / "db") as reader:
            meter.count("seek after a compaction", lambda: scans(reader, [key(0)], 1), reader)

    def measure_peer(self, meter: Meter, engine: str, folder: Path) -> None:
        keys = [key(n) for n in range(self.size)]
        with peers.opened(engine, folder) as peer:
            peer.put_many([([*keys, key(self.size)], [value()] * (self.size + 1))])
            peers.delete(peer, keys)
            with peers.reading(peer):
                meter.take("seek", lambda: peer.scan([key(0)], 1), repeats=20)
                last = [key(self.size)] * LOOK_UPS
                meter.take("get of the next row", lambda: peer.get(last), calls=LOOK_UPS)


class Snapshots(Dimension):
    name, text = "snapshots", "open snapshots, a write between each two"
    sizes = (10, 56, 316, 1780, 10_000)
    quick = (10, 40, 160)
    costs: ClassVar = {
        "snapshot": Costs(time=LOGARITHMIC),
        "put": Costs(time=LOGARITHMIC),
        "get": Costs(time=LOGARITHMIC),
        "get from the oldest": Costs(time=LOGARITHMIC),
        "flush": Costs(time=LINEAR, memory=LINEAR, bytes=LINEAR),
    }

    def prepare(self, folder: Path) -> None:
        """All of it is measured."""

    def measure(self, meter: Meter, folder: Path) -> None:
        data = value()
        with open_alone(folder / "db") as db:
            put_all(db, [key(n) for n in range(1000)], data)
            held = []

            def snapshots() -> None:
                for n in range(self.size):
                    db.put(key(n % 1000), data)
                    held.append(db.snapshot())

            meter.take("snapshot", snapshots, calls=self.size, repeats=0)
            keys = some(1000, LOOK_UPS)
            meter.take("put", lambda: [db.put(one, data) for one in keys], calls=LOOK_UPS)
            meter.take("get", lambda: gets(db, keys), calls=LOOK_UPS)
            meter.take("get from the oldest", lambda: gets(held[0], keys), calls=LOOK_UPS)
            db.flush()
            meter.take("flush", lambda: db.flush(memtable=True), of=db, repeats=0)
            for one in held:
                one.close()


DIMENSIONS = (Tables, Layers, Versions, Operands, RangeDeletes, Tombstones, Snapshots)
