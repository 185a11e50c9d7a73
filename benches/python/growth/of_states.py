"""Dimensions of kept states: checkpoints, leases, followers, clones."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import ClassVar

import siltstone
from dimension import Costs, Dimension
from fit import CONSTANT, LINEAR, LOGARITHMIC
from meter import Meter
from of_data import gets
from rows import ALONE, key, open_alone, value
from siltstone import admin

LOOK_UPS = 500


class Checkpoints(Dimension):
    name, text = "checkpoints", "checkpoints, a flushed write between each two"
    sizes = (1, 6, 32, 180, 1000)
    quick = (2, 8, 32)
    costs: ClassVar = {
        "checkpoint": Costs(time=LINEAR, memory=LINEAR, requests=CONSTANT, bytes=LINEAR),
        "list_checkpoints": Costs(time=LINEAR),
        "open": Costs(time=LINEAR, requests=CONSTANT, bytes=LINEAR),
        # The newest manifest, which lists all checkpoints, has the place of the first.
        "open a reader at the first": Costs(time=LINEAR, requests=CONSTANT),
        "durable put": Costs(time=CONSTANT, requests=CONSTANT, bytes=CONSTANT),
        "flush": Costs(time=LINEAR, requests=CONSTANT, bytes=LINEAR),
        "collect": Costs(time=LINEAR, memory=LINEAR),
        "delete_checkpoint": Costs(time=LINEAR),
    }
    options: ClassVar = {"l0_max_ssts": 2000, "l0_compaction_threshold_ssts": 1000}

    def prepare(self, folder: Path) -> None:
        data = value()
        with open_alone(folder / "db", l0_manifest_commit_interval=0, **self.options) as db:
            for at in range(self.size):
                db.put(key(at), data)
                db.flush(memtable=True)
                db.checkpoint(name=f"c{at}")
            db.compact()

    def measure(self, meter: Meter, folder: Path) -> None:
        url, data = folder / "db", value()
        meter.open("open", lambda: open_alone(url, **self.options), repeats=5)
        with open_alone(url, **self.options) as db:
            meter.take("durable put", lambda: db.put(key(0), data).wait(), of=db, repeats=10)

            def flushed() -> None:
                db.put(key(0), data)
                db.flush(memtable=True)

            meter.take("flush", flushed, of=db)
            made = []
            meter.take("checkpoint", lambda: made.append(db.checkpoint()), of=db)
            for one in made:
                meter.take(
                    "delete_checkpoint",
                    lambda one=one: admin.delete_checkpoint(url, one.id),
                    repeats=0,
                )
            meter.take("list_checkpoints", lambda: admin.list_checkpoints(url))
            meter.open(
                "open a reader at the first",
                lambda: siltstone.open_reader(url, checkpoint="c0", options=ALONE),
            )
            meter.take("collect", lambda: admin.gc(url), repeats=2)


class Leases(Dimension):
    name, text = "leases", "readers that were opened at states of their own, in one process"
    sizes = (1, 5, 25, 125, 625)
    quick = (1, 4, 16)
    # Readers share leases, so their number is bounded, and the manifest does not grow with them.
    # A local folder lists the log objects and tables that are kept for them.
    costs: ClassVar = {
        "open a reader": Costs(time=LINEAR, memory=CONSTANT, requests=CONSTANT, bytes=CONSTANT),
        "durable put": Costs(time=CONSTANT, requests=CONSTANT, bytes=CONSTANT),
        "flush": Costs(time=CONSTANT, requests=CONSTANT, bytes=CONSTANT),
        "collect": Costs(time=LINEAR, memory=LINEAR),
    }
    options: ClassVar = {"l0_max_ssts": 2000, "l0_compaction_threshold_ssts": 1000}

    def prepare(self, folder: Path) -> None:
        data = value()
        self.db = open_alone(folder / "db", l0_manifest_commit_interval=0, **self.options)
        self.readers = []
        for at in range(self.size):
            self.db.put(key(at), data)
            self.db.flush(memtable=True)
            options = ALONE | Followers.still
            self.readers.append(siltstone.open_reader(folder / "db", options=options))
        self.db.compact()

    def measure(self, meter: Meter, folder: Path) -> None:
        db, url, data = self.db, folder / "db", value()
        options = ALONE | Followers.still
        meter.open("open a reader", lambda: siltstone.open_reader(url, options=options), repeats=5)
        meter.take("durable put", lambda: db.put(key(0), data).wait(), of=db, repeats=10)

        def flushed() -> None:
            db.put(key(0), data)
            db.flush(memtable=True)

        meter.take("flush", flushed, of=db)
        meter.take("collect", lambda: admin.gc(url), repeats=2)
        for reader in self.readers:
            reader.close()
        db.close()


class Followers(Dimension):
    name, text = "followers", "readers that follow one writer, in one process"
    sizes = (1, 5, 25, 125, 625)
    quick = (1, 4, 16)
    costs: ClassVar = {
        "open a reader": Costs(time=CONSTANT, memory=CONSTANT, requests=CONSTANT),
        "durable put": Costs(time=CONSTANT, requests=CONSTANT, bytes=CONSTANT),
        "refresh of one": Costs(time=CONSTANT, requests=CONSTANT, bytes=CONSTANT),
        "refresh of all": Costs(time=LINEAR, memory=LINEAR),
        "flush": Costs(time=CONSTANT, requests=CONSTANT, bytes=CONSTANT),
    }
    still: ClassVar = {"manifest_poll_interval": 60.0}
    """Followers that look by themselves would do so during a measurement."""

    def prepare(self, folder: Path) -> None:
        self.db = open_alone(folder / "db", **self.still)
        self.db.put(key(0), value())
        self.db.flush(memtable=True)
        options = ALONE | self.still
        self.readers = [
            siltstone.open_reader(folder / "db", options=options) for _ in range(self.size)
        ]

    def measure(self, meter: Meter, folder: Path) -> None:
        db, url, data = self.db, folder / "db", value()
        first, options = self.readers[0], ALONE | self.still
        meter.open("open a reader", lambda: siltstone.open_reader(url, options=options))
        meter.take("durable put", lambda: db.put(key(0), data).wait(), of=db, repeats=10)

        def one() -> None:
            db.put(key(0), data).wait()
            first.refresh()

        meter.take("refresh of one", one, of=first)

        def every() -> None:
            db.put(key(0), data).wait()
            for reader in self.readers:
                reader.refresh()

        meter.take("refresh of all", every)

        def flushed() -> None:
            db.put(key(0), data)
            db.flush(memtable=True)

        meter.take("flush", flushed, of=db)
        for reader in self.readers:
            reader.close()
        db.close()


class DeepClones(Dimension):
    name, text = "clones, deep", "clones, each of the one before it, with a write of its own"
    # Less than two decades: each clone is recorded in all of its ancestors, so a chain of n takes
    # n * n commits to make.
    sizes = (1, 3, 8, 20, 50)
    quick = (1, 3, 8)
    costs: ClassVar = {
        "clone": Costs(time=LINEAR, memory=LINEAR),
        "open": Costs(time=LINEAR, memory=LINEAR, requests=CONSTANT, bytes=LINEAR),
        "get": Costs(time=LINEAR),
        "flush": Costs(time=LINEAR, requests=CONSTANT, bytes=LINEAR),
        "collect": Costs(time=LINEAR, memory=LINEAR),
    }
    options: ClassVar = {"l0_max_ssts": 2000, "l0_compaction_threshold_ssts": 1000}

    def prepare(self, folder: Path) -> None:
        places = [folder / f"db{at}" for at in range(self.size + 1)]
        with open_alone(places[0]) as db:
            db.put(key(0), value())
        for parent, place in pairwise(places):
            siltstone.clone(place, parent=parent)
            with open_alone(place, **self.options) as db:
                db.put(place.name.encode(), value())

    def measure(self, meter: Meter, folder: Path) -> None:
        url, data = folder / f"db{self.size}", value()
        for at in range(3):
            place = folder / f"more{at}"
            meter.take("clone", lambda place=place: siltstone.clone(place, parent=url), repeats=0)
        meter.open("open", lambda: open_alone(url, **self.options), repeats=5)
        with open_alone(url, **self.options) as db:
            meter.take("get", lambda: gets(db, [key(0)] * LOOK_UPS), calls=LOOK_UPS)

            def flushed() -> None:
                db.put(key(0), data)
                db.flush(memtable=True)

            meter.take("flush", flushed, of=db)
            meter.take("collect", lambda: admin.gc(url), repeats=2)


class WideClones(Dimension):
    name, text = "clones, wide", "clones of one database"
    sizes = (2, 8, 32, 128, 512)
    quick = (2, 8, 24)
    costs: ClassVar = {
        "clone": Costs(time=LINEAR, memory=LINEAR),
        "open the parent": Costs(time=LINEAR, requests=CONSTANT, bytes=LINEAR),
        "open a clone": Costs(time=CONSTANT, requests=CONSTANT, bytes=CONSTANT),
        "flush of the parent": Costs(time=LINEAR, requests=CONSTANT, bytes=LINEAR),
        "collect the parent": Costs(time=LINEAR, memory=LINEAR),
        "get": Costs(time=LOGARITHMIC),
    }

    def prepare(self, folder: Path) -> None:
        with open_alone(folder / "db") as db:
            db.put(key(0), value())
        for at in range(self.size):
            siltstone.clone(folder / f"clone{at}", parent=folder / "db")

    def measure(self, meter: Meter, folder: Path) -> None:
        url, data = folder / "db", value()
        for at in range(3):
            place = folder / f"more{at}"
            meter.take("clone", lambda place=place: siltstone.clone(place, parent=url), repeats=0)
        meter.open("open the parent", lambda: open_alone(url), repeats=5)
        meter.open("open a clone", lambda: open_alone(folder / "clone0"), repeats=5)
        with open_alone(url) as db:
            meter.take("get", lambda: gets(db, [key(0)] * LOOK_UPS), calls=LOOK_UPS)

            def flushed() -> None:
                db.put(key(0), data)
                db.flush(memtable=True)

            meter.take("flush of the parent", flushed, of=db)
            meter.take("collect the parent", lambda: admin.gc(url), repeats=2)


DIMENSIONS = (Checkpoints, Leases, Followers, DeepClones, WideClones)
