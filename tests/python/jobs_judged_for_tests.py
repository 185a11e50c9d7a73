"""The judge of `kills_of_jobs_for_tests.py`: what jobs and puts write, and whether all that was
told and seen can have been.

The n-th batch of the writer puts its number into some of the cells (`cells_put`). A job writes its
own into some of them too, and rows that are its alone, by which one sees that it is there. One that
replaces a zone has those within it, so that the last one to do that is seen.

A *look* is all rows at one moment. `Judge` asks for one order of all batches and jobs such that
every look is what a beginning of it leaves in the cells, and that has whatever anybody was told: a
job that was adopted twice, is half there or was lost fits into none. Of each job it knows between
which batches it may stand, and which jobs stand before it; every look and every answer makes that
narrower.
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

ZONES = 4
CELLS = 48
# Half of the cells of a zone are put again and again, the others rarely.
OFTEN = CELLS // 2
RARELY = 16
# Rows of each part that are the job's alone, in several places.
WITNESSES = 3

Cell = int | tuple[int, int] | None
"""What a cell holds: the number of a batch; a job, and which of its parts; nothing."""


def zone_of(cell: int) -> int:
    return cell * ZONES // CELLS


def cells_of(zone: int) -> range:
    return range(zone * CELLS // ZONES, (zone + 1) * CELLS // ZONES)


def key_of(cell: int) -> bytes:
    return b"cell/%d/%02d" % (zone_of(cell), cell)


def bounds(zone: int) -> tuple[bytes, bytes]:
    """The keys of a zone: its cells, and the witnesses of whoever replaces it."""
    return b"cell/%d/" % zone, b"cell/%d0" % zone


def cells_put(batch: int) -> tuple[int, ...]:
    """The cells that a batch puts."""
    often = 2 * (batch % OFTEN)
    rarely = (2 * (batch // RARELY % OFTEN) + 1,) if batch % RARELY == 0 else ()
    return (often, *rarely)


def last_put(cell: int, batch: int) -> int:
    """The last batch up to this one that puts a cell; 0: none does."""
    step = RARELY if cell % 2 else 1
    turn = batch // step
    return max(turn - (turn - cell // 2) % OFTEN, 0) * step


@dataclass(frozen=True)
class Plan:
    """What a job brings."""

    number: int
    parts: tuple[tuple[int, ...], ...]
    """The cells of each."""
    zone: int | None = None
    """What it replaces."""
    txn: tuple[str, int] | None = None

    def rows(self, part: int, attempt: int) -> dict[bytes, bytes]:
        """Of one part, by one of the tasks that may build it."""
        said = (self.number, part, attempt, len(self.parts))
        value = b"job %d %d %d %d " % said + b"." * (attempt % 200)
        place = b"" if self.zone is None else bounds(self.zone)[0]
        own = [b"%sown/%d/%d/%d" % (place, n, self.number, part) for n in range(WITNESSES)]
        return dict.fromkeys([*own, *map(key_of, self.parts[part])], value)

    def winner(self, cell: int) -> int | None:
        """The part whose row counts: the last one that has the cell."""
        return max((n for n, part in enumerate(self.parts) if cell in part), default=None)

    def covers(self, cell: int) -> bool:
        """Whether what was in the cell before is gone."""
        return zone_of(cell) == self.zone or self.winner(cell) is not None

    def to_plain(self) -> list[Any]:
        return [self.number, self.parts, self.zone, self.txn]

    @classmethod
    def of_plain(cls, plain: list[Any]) -> Plan:
        number, parts, zone, txn = plain
        return cls(number, tuple(map(tuple, parts)), zone, txn and (txn[0], txn[1]))


@dataclass(frozen=True)
class Look:
    """All rows at one moment."""

    batch: int
    """The last one that is there."""
    jobs: frozenset[int]
    """Those that are there."""
    cells: tuple[Cell, ...]
    wrong: tuple[str, ...] = ()
    """What can never be, by the rows alone."""
    least: int = field(default=0, compare=False)
    """A batch that was acknowledged before."""

    def to_plain(self) -> list[Any]:
        return [self.batch, sorted(self.jobs), self.cells, self.wrong, self.least]

    @classmethod
    def of_plain(cls, plain: list[Any]) -> Look:
        batch, jobs, cells, wrong, least = plain
        held = (tuple(cell) if isinstance(cell, list) else cell for cell in cells)
        return cls(batch, frozenset(jobs), tuple(held), tuple(wrong), least)


def look_of(rows: dict[bytes, bytes], least: int = 0) -> Look:
    """What is there; of each job all, and of each part by one task, or it is wrong."""
    batch = int(rows.get(b"batch", b"put 0").split()[1])
    wrong: list[str] = []
    cells: list[Cell] = [None] * CELLS
    # By job: how many parts it has, and of each witness by which task it is.
    parts: dict[int, int] = {}
    found: dict[int, dict[tuple[int, int], int]] = {}
    held: list[tuple[int, int, int]] = []
    for key, value in rows.items():
        if key == b"batch":
            continue
        kind, *numbers = value.split(b" .")[0].split()
        first, *rest = map(int, numbers)
        if b"own/" in key:
            part, attempt, parts[first] = rest
            place = int(key.split(b"own/")[1].split(b"/")[0])
            found.setdefault(first, {})[part, place] = attempt
            continue
        cell = int(key.rsplit(b"/")[-1])
        cells[cell] = first if kind == b"put" else (first, rest[0])
        if kind == b"job":
            held.append((first, rest[0], rest[1]))
    for job, witnesses in found.items():
        whole = {(part, place) for part in range(parts[job]) for place in range(WITNESSES)}
        tasks = {(part, attempt) for (part, _), attempt in witnesses.items()}
        if set(witnesses) != whole or len(tasks) != parts[job]:
            wrong.append(f"job {job} is there in part: {witnesses}, of {parts[job]} parts")
    for job, part, attempt in held:
        if found.get(job, {}).get((part, 0)) != attempt:
            wrong.append(
                f"a cell holds job {job}, of whose part {part} by task {attempt} no more is"
            )
    return Look(batch, frozenset(found), tuple(cells), tuple(wrong), least)


@dataclass
class Told:
    """What the processes saw, and were told."""

    looks: list[Look] = field(default_factory=list)
    """The last one is of the end, when all was taken in."""
    seqs: list[tuple[int, int]] = field(default_factory=list)
    """Sequence numbers of batches that were acknowledged, ascending."""
    acknowledged: int = 0
    """The last of those batches."""
    asked: dict[int, int] = field(default_factory=dict)
    """By job: a batch that was acknowledged before anybody asked for it."""
    requested: set[int] = field(default_factory=set)
    """Jobs whose request was accepted."""
    adopted: list[tuple[int, int, int]] = field(default_factory=list)
    """A job, the last batch that anybody had begun when it was said to be adopted, and the sequence
    number."""
    aborted: set[int] = field(default_factory=set)
    refused: dict[int, str] = field(default_factory=dict)

    def add(self, how: str, job: int, state: str, seq: int | None, until: int) -> None:
        """An answer of `submit`, `status` or `abort`."""
        if state == "refused":
            self.refused[job] = how
        elif state == "aborted":
            self.aborted.add(job)
        elif state in ("pending", "adopted") or how == "submit":
            # A `submit` that ends was accepted, also where what became of it is forgotten since.
            self.requested.add(job)
        if state == "adopted" and seq is not None:
            self.adopted.append((job, until, seq))


class Judge:
    """What is known of the place of each job: not below a batch, not above one, behind others."""

    def __init__(self, plans: dict[int, Plan], told: Told) -> None:
        self.plans, self.told, self.last = plans, told, told.looks[-1]
        self.wrong: list[str] = []
        self.seen = set[int]().union(*(look.jobs for look in told.looks))
        self.versions: dict[tuple[str, int], int] = {}
        for job in self.seen:
            txn = plans[job].txn
            if txn is not None and (other := self.versions.setdefault(txn, job)) != job:
                self.wrong.append(f"{txn} was brought by two jobs: {job}, {other}")
        # Who was promised; for a version whichever job brought it.
        promised = told.requested | {job for job, _, _ in told.adopted}
        self.promised = {found for job in promised if (found := self.brought(job)) is not None}
        self.there = sorted(self.seen | self.promised)
        self.bit = {job: 1 << n for n, job in enumerate(self.there)}
        self.low = {job: told.asked.get(job, 0) for job in self.there}
        self.high = dict.fromkeys(self.there, self.last.batch)
        self.before = dict.fromkeys(self.there, 0)
        self.covering = [
            self.mask(j for j in self.there if plans[j].covers(c)) for c in range(CELLS)
        ]

    def brought(self, job: int) -> int | None:
        txn = self.plans[job].txn
        return job if txn is None else self.versions.get(txn)

    def mask(self, jobs: Iterable[int]) -> int:
        return sum(self.bit[job] for job in jobs)

    def members(self, mask: int) -> Iterator[int]:
        while mask:
            lowest = mask & -mask
            yield self.there[lowest.bit_length() - 1]
            mask ^= lowest

    # --- What narrows it --------------------------------------------------------------------------

    def above(self, job: int, batch: int) -> None:
        self.low[job] = max(self.low[job], batch)

    def below(self, job: int, batch: int) -> None:
        self.high[job] = min(self.high[job], batch)

    def behind(self, job: int, mask: int) -> None:
        self.before[job] |= mask & ~self.bit[job]

    def judged(self) -> list[str]:
        self.check_promises()
        for look in self.told.looks:
            self.read(look)
        self.read_answers()
        self.read_versions()
        for look in self.told.looks:
            self.read_hidden(look)
        self.order()
        return self.wrong

    def check_promises(self) -> None:
        told, last = self.told, self.last
        self.wrong += [f"job {job} was refused: {how}" for job, how in told.refused.items()]
        if last.batch < told.acknowledged:
            text = f"batch {told.acknowledged} was acknowledged, and the last one is {last.batch}"
            self.wrong.append(text)
        for job in told.requested | {job for job, _, _ in told.adopted}:
            if self.brought(job) is None:
                self.wrong.append(f"{self.plans[job].txn} was accepted, and no job of it is there")
        holders = self.holders(last)
        for job in self.there:
            if job not in last.jobs and self.plans[job].zone not in holders:
                self.wrong.append(f"job {job} was accepted, or seen, and is lost")
        for job in self.seen:
            if job not in told.asked:
                self.wrong.append(f"job {job} is there, and nobody asked for it")
        for job in told.aborted & self.seen:
            self.wrong.append(f"job {job} is there, and was aborted")

    def holders(self, look: Look) -> dict[int | None, int]:
        """By zone: the last job that replaced it."""
        zoned = {self.plans[job].zone: job for job in look.jobs}
        zoned.pop(None, None)
        return zoned

    def read(self, look: Look) -> None:
        """Those that are there stand before its end, and before all others."""
        self.wrong += look.wrong
        if look.batch < look.least:
            self.wrong.append(f"{look.least} was acknowledged, and a look ended at {look.batch}")
        holders, there = self.holders(look), self.mask(look.jobs)
        for job in self.there:
            zone = self.plans[job].zone
            if job in look.jobs:
                self.below(job, look.batch)
                if zone is not None and holders[zone] != job:
                    self.wrong.append(f"both of {job} and {holders[zone]} replaced a zone")
            elif zone not in holders:
                self.above(job, look.batch)
                self.behind(job, there)
        for cell in range(CELLS):
            self.read_cell(look, cell, there & self.covering[cell], holders.get(zone_of(cell)))

    def read_cell(self, look: Look, cell: int, over: int, holder: int | None) -> None:
        """Whoever is seen in a cell stands behind all others that are there."""
        held, put = look.cells[cell], last_put(cell, look.batch)
        if isinstance(held, int):
            if held != put:
                self.wrong.append(f"cell {cell} has batch {held} at {look.batch}: {put} was lost")
            for job in self.members(over):
                self.below(job, put - 1)
            return
        if held is None:
            if holder is None:
                if put or over:
                    self.wrong.append(f"cell {cell} has nothing at {look.batch}, {put} was lost")
                return
            on_top, part = holder, None
        else:
            on_top, part = held
        if not over & self.bit.get(on_top, 0) or self.plans[on_top].winner(cell) != part:
            self.wrong.append(f"cell {cell} has {held} at {look.batch}, which cannot be")
            return
        self.above(on_top, put)
        self.behind(on_top, over)

    def read_answers(self) -> None:
        """Each is at one place, between the batches whose numbers are known."""
        places: dict[int, int] = {}
        for told, until, seq in self.told.adopted:
            job = self.brought(told)
            if job is None:
                continue
            self.below(job, until)
            if places.setdefault(job, seq) != seq:
                self.wrong.append(f"job {job} is at two places: {seq}, {places[job]}")
        for job, seq in places.items():
            at = bisect(self.told.seqs, (seq, 0))
            if at > 0:
                self.above(job, self.told.seqs[at - 1][1])
            if at < len(self.told.seqs):
                self.below(job, self.told.seqs[at][1] - 1)
        self.ascend(sorted(places, key=lambda job: places[job]))

    def read_versions(self) -> None:
        for app in {app for app, _ in self.versions}:
            mine = sorted(txn for txn in self.versions if txn[0] == app)
            self.ascend([self.versions[txn] for txn in mine])

    def ascend(self, jobs: list[int]) -> None:
        for earlier, later in pairwise(jobs):
            self.behind(later, self.bit[earlier])

    def read_hidden(self, look: Look) -> None:
        """Whoever must be there and is not was replaced."""
        holders = self.holders(look)
        for job in self.there:
            holder = holders.get(self.plans[job].zone)
            if holder in (None, job):
                continue
            if look is self.last or self.high[job] < look.batch:
                self.behind(holder, self.bit[job])

    # --- Whether there is one ---------------------------------------------------------------------

    def order(self) -> None:
        """As early as it can be, each in its turn."""
        at: dict[int, int] = {}
        left = set(self.there)
        while left:
            waiting = self.mask(left)
            free = [job for job in left if not self.before[job] & waiting]
            if not free:
                self.wrong.append(f"there is no order of the jobs {sorted(left)[:20]}")
                return
            for job in free:
                earlier = (at[other] for other in self.members(self.before[job]))
                at[job] = max(self.low[job], *earlier, 0)
                if at[job] > self.high[job]:
                    low, high = at[job], self.high[job]
                    text = f"job {job} stands behind batch {low}, and before batch {high + 1}"
                    self.wrong.append(text)
            left.difference_update(free)
