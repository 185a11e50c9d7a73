"""Dimensions of the log: objects at open, and consumers of the feed that are behind."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import ClassVar

import siltstone
from dimension import Costs, Dimension
from fit import CONSTANT, LINEAR
from meter import Meter
from of_data import consume
from rows import ALONE, key, open_alone, value
from siltstone import changes

STILL = {"manifest_poll_interval": 3600.0}


def log(db: siltstone.Database, objects: int) -> None:
    """Write so many log objects, one row each."""
    data = value()
    for number in range(objects):
        db.put(key(number), data).wait()


def log_and_end(folder: Path, objects: int) -> None:
    """The same in a process that ends without closing."""
    command = [sys.executable, __file__, str(folder), str(objects)]
    subprocess.run(command, check=True, timeout=300)


class LogObjects(Dimension):
    name, text = "log objects at open", "objects of the log behind the last flush"
    # A writer flushes after 4,096 objects, so there are hardly ever more.
    sizes = (4, 22, 126, 710, 4000)
    quick = (4, 16, 64)
    costs: ClassVar = {
        "open": Costs(time=LINEAR, memory=LINEAR, requests=LINEAR, bytes=LINEAR),
        "open a reader": Costs(time=LINEAR, memory=LINEAR, requests=LINEAR, bytes=LINEAR),
        "reopen after a clean close": Costs(time=CONSTANT, requests=CONSTANT, bytes=CONSTANT),
    }

    def prepare(self, folder: Path) -> None:
        log_and_end(folder / "db", self.size)
        shutil.copytree(folder / "db", folder / "kept")

    def measure(self, meter: Meter, folder: Path) -> None:
        place = folder / "db"
        meter.open("open a reader", lambda: siltstone.open_reader(place, options=ALONE))

        def again() -> None:
            # Opening ends the log: each opening gets a copy, at the same path.
            shutil.rmtree(place)
            shutil.copytree(folder / "kept", place)

        meter.open("open", lambda: open_alone(place), before=again, repeats=2)
        meter.open("reopen after a clean close", lambda: open_alone(place), repeats=5)


class FeedBehind(Dimension):
    name, text = "feed behind", "commits, one log object each, that a consumer has not read"
    sizes = (5, 30, 170, 950, 5000)
    quick = (5, 20, 80)
    costs: ClassVar = {
        "first batch of 4 rows": Costs(time=CONSTANT, memory=CONSTANT),
        "catch up": Costs(time=LINEAR, memory=CONSTANT),
        "catch up in batches of 4 rows": Costs(time=LINEAR),
        "acknowledge all": Costs(time=CONSTANT),
        # A local folder lists all objects of the log; an object store begins at a name.
        "latest": Costs(time=LINEAR),
    }

    def prepare(self, folder: Path) -> None:
        self.db = open_alone(folder / "db", **STILL)
        self.db.changes(consumer="held", since="latest", lifetime="1d")
        log(self.db, self.size)

    def measure(self, meter: Meter, folder: Path) -> None:
        url = folder / "db"

        def feed() -> changes.Changes:
            return changes.begin(url, consumer="held")

        def by_four() -> None:
            whole = feed()
            while whole.read(rows=4) is not None:
                pass

        meter.take("first batch of 4 rows", lambda: feed().read(rows=4), repeats=3)
        meter.take("catch up", lambda: consume(feed()), repeats=3)
        if self.size <= self.sizes[-2]:
            meter.take("catch up in batches of 4 rows", by_four, repeats=1)
        meter.take("latest", lambda: changes.latest(url), repeats=3)
        last = feed()
        consume(last)
        meter.take("acknowledge all", last.acknowledge, repeats=0)
        self.db.close()


DIMENSIONS = (LogObjects, FeedBehind)

if __name__ == "__main__":
    log(open_alone(Path(sys.argv[1]), **STILL), int(sys.argv[2]))
    os._exit(0)
