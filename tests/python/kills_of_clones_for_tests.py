"""Kills the processes of a parent and of its clone at random moments, while all of them work,
together with processes that make more clones of both. Run as a program by ``test_kill_clones.py``
and ``make soak``.

    kills_of_clones_for_tests.py FOLDER KILLS SEED

After every `A_FAMILY` kills all processes are killed together. Then:

- on either side every acknowledged write is present, and the present writes are a prefix: each new
  writer recovered at least as many writes as any earlier writer had acknowledged;
- every finished clone shows a prefix that is no shorter than the writes its parent had acknowledged
  before the clone was requested; a half-made clone is continued;
- once the clone is merged and collected it no longer needs its parent, and the parent keeps nothing
  for it; `verify` finds no problem on either side.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import sys
import time
from pathlib import Path

import kills_for_tests as single
import siltstone
from siltstone import admin

A_FAMILY = 60
# The highest number of half-made clones of a maker.
PLACES = 3


def acknowledged(database: single.Database) -> int:
    return max((reign.told[2] for reign in database.reigns), default=0)


def made(path: Path, parent: Path, at_least: int) -> None:
    """Makes or continues a clone, checks it, and destroys it."""
    try:
        siltstone.clone(path, parent=parent)
    except (siltstone.Conflict, siltstone.NotFound):
        # Another maker began it as a clone of the other side, or it is half destroyed.
        at_least = -1
    if at_least >= 0:
        with siltstone.open_reader(path, options={"reader_lease": False}) as reader:
            last = single.prefix(reader)
        assert last >= at_least, f"{path.name} of {parent.name}: {last} of {at_least}"
    siltstone.destroy(path)


def make(parents: list[single.Database], folder: Path, seed: int) -> None:
    """The work of a maker, until it is killed."""
    draw = random.Random(seed)
    while True:
        source = draw.choice(parents)
        place = folder / f"made{draw.randrange(PLACES)}"
        # A clone that a killed maker began shows the data that was durable at that time.
        begun = (place / "manifest").exists()
        at_least = 0 if begun else acknowledged(source)
        made(place, source.path, at_least)


class Side(single.Database):
    """A parent or a clone."""

    ROLES = ("writer", "coordinator", "collector")


class Makers(single.Database):
    """The processes that make clones of both sides."""

    ROLES = ("maker",)

    def __init__(self, sides: list[single.Database], path: Path, *rest) -> None:
        super().__init__(path, *rest)
        self.sides = sides

    def start(self, role: str) -> None:
        seed = self.draw.randrange(1 << 32)
        child = single.fork(make, self.sides, self.path, seed, logs=self.logs)
        self.living[child] = role

    def ended(self, child: int, status: int) -> None:
        # A process killed before it ran has no log.
        log = self.logs / str(child)
        told = log.read_text() if log.exists() else "nothing"
        assert os.WIFSIGNALED(status), f"a maker ended with {status}: {told}"
        super().ended(child, status)


def check(path: Path, recovered: int) -> None:
    """Checks one side after all processes are killed: all writes are present, and `verify` finds no
    problem after a merge."""
    # No compactor runs: L0 always has room.
    alone = {**single.WRITER, **single.ALONE, "l0_max_ssts": 2000}
    with siltstone.open(path, options=alone) as db:
        last = single.prefix(db)
        assert last >= recovered, f"{path.name}: recovered {last} of {recovered}"
        # The first and last key overlap all tables, so that none is moved without a rewrite.
        for key, value in [(b"", b"first"), (b"\xff", b"last")]:
            db.put(key or b"\x00", value)
        db.flush(memtable=True)
        db.delete_range(b"\x00", b"\x01")
        db.delete(b"\xff")
    admin.compact(path, options=single.SMALL)
    for _ in range(3):
        assert admin.gc(path, min_age=0).trouble is None
    report = admin.verify(path)
    assert report.ok, report.problems
    with siltstone.open_reader(path) as reader:
        assert single.prefix(reader) == last


def end(parent: Path, clone: Path, places: Path) -> None:
    """Checks that objects without a user are no longer kept."""
    for place in places.glob("made*"):
        try:
            siltstone.destroy(place)
        except siltstone.NotFound:
            continue
    state = admin.manifest(clone)
    # Leases and pins of killed processes are not released. Until they expire they keep the
    # version that was read, and the objects of the parent that this version names.
    needed = {entry["checkpoint"] for entry in state["ancestors"]}
    pins = (state["leases"], state["since_leases"], state["checkpoints"])
    assert not needed or any(pins)
    for path in (clone, parent):
        # Makers killed early have left pins that expire.
        kept = [one for one in admin.manifest(path)["checkpoints"] if one["expires_at_ms"] is None]
        kept = [one for one in kept if one["id"] not in needed]
        assert not kept, f"{path.name}: {kept}"


class Family:
    """A parent, a clone, their processes, and makers, until the requested number of kills is
    done."""

    def __init__(self, folder: Path, kills: int, draw: random.Random) -> None:
        self.kills, self.draw = kills, draw
        self.sides = [Side(folder / name, kills, draw) for name in ("parent", "clone")]
        self.makers = Makers(self.sides, folder / "places", kills, draw)
        self.all: list[single.Database] = [*self.sides, self.makers]

    def killed(self) -> dict[str, int]:
        """The number of kills by side and role."""
        return {
            f"{one.path.name}_{role}": times
            for one in self.all
            for role, times in one.killed.items()
        }

    def living(self) -> list[tuple[single.Database, int]]:
        return [(one, child) for one in self.all for child in one.living]

    def rest(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while True:
            child, status = os.waitpid(-1, os.WNOHANG)
            if child:
                next(one for one in self.all if child in one.living).ended(child, status)
                continue
            left = until - time.monotonic()
            if left <= 0:
                return
            time.sleep(min(left, 0.005))

    def run(self) -> None:
        self.begin()
        while sum(self.killed().values()) + len(self.living()) < self.kills:
            self.rest(self.draw.expovariate(1 / 0.1))
            one, child = self.draw.choice(self.living())
            if one is not self.makers and self.draw.random() < 0.2:
                # The next process starts before this one is killed, and may end it.
                one.start(one.living[child])
                self.rest(self.draw.random() * 0.05)
            if child in one.living:
                one.kill(child)
        self.end()

    def begin(self) -> None:
        parent, clone = self.sides
        for one in self.all:
            one.logs.mkdir(parents=True)
        self.makers.path.mkdir()
        parent.alone(single.fill, parent.path, self.draw.random() < 0.5)
        parent.alone(siltstone_clone, clone.path, parent.path)
        for one in self.all:
            for role in one.ROLES:
                one.start(role)

    def end(self) -> None:
        for one in self.all:
            one.over = True
        for one, child in self.living():
            one.kill(child)
        parent, clone = self.sides
        for one in (clone, parent):
            last = 0
            for epoch, recovered, later in sorted(r.told for r in one.reigns if r.told[0]):
                assert recovered >= last, f"{one.path.name} {epoch}: {recovered} of {last}"
                last = max(last, later)
            one.alone(check, one.path, last)
        parent.alone(end, parent.path, clone.path, self.makers.path)


def siltstone_clone(path: Path, parent: Path) -> None:
    siltstone.clone(path, parent=parent)


def main(folder: Path, kills: int, seed: int) -> None:
    # SIGTERM to this process ends its children too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    draw, killed, began = random.Random(seed), dict[str, int](), time.monotonic()
    number = writes = 0
    while (left := kills - sum(killed.values())) > 0:
        number += 1
        place = folder / f"{number:04}"
        family = Family(place, max(min(left, A_FAMILY), 14), draw)
        try:
            family.run()
        except BaseException:
            for _, child in family.living():
                os.kill(child, signal.SIGKILL)
            print(f"seed {seed}, {place}, {family.killed()}", flush=True)
            raise
        for role, times in family.killed().items():
            killed[role] = killed.get(role, 0) + times
        writes += sum(acknowledged(side) for side in family.sides)
        told = ", ".join(f"{role}: {times}" for role, times in killed.items())
        seconds = time.monotonic() - began
        print(
            f"{sum(killed.values())} kills ({told}); {writes} writes; {seconds:.0f} s", flush=True
        )
        shutil.rmtree(place)


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
