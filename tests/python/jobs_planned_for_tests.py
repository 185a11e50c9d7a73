"""What batches and jobs of `kills_of_jobs_for_tests.py` write, and what one look at all rows shows
of it.

The n-th batch of the writer puts its number into some of the cells (`cells_put`). A job writes its
own into some of them too, or deletes them, and rows that are its alone, by which one sees that it
is there. One that replaces a zone has those within it, so that the last one to do that is seen. One
that clears a span of cells has no row at all: what was there is gone, and nothing else tells of it.
One that comes behind all that is there fills cells that nobody else has, of such jobs the first.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

ZONES = 5
CELLS = 60
# Of those that batches put, half are put again and again, the others rarely.
PUT = 48
OFTEN = PUT // 2
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


def bounds_of(span: range) -> tuple[bytes, bytes]:
    """The keys of some cells: of a part of a zone those alone, otherwise of whole zones."""
    first, last = zone_of(span[0]), zone_of(span[-1])
    if (span.start, span.stop) == (cells_of(first).start, cells_of(last).stop):
        return bounds(first)[0], bounds(last)[1]
    assert first == last, "a part of a zone, or whole ones"
    return key_of(span[0]), key_of(span[-1]) + b"\0"


def cells_put(batch: int) -> tuple[int, ...]:
    """The cells that a batch puts."""
    often = 2 * (batch % OFTEN)
    rarely = (2 * (batch // RARELY % OFTEN) + 1,) if batch % RARELY == 0 else ()
    return (often, *rarely)


def last_put(cell: int, batch: int) -> int:
    """The last batch up to this one that puts a cell; 0: none does."""
    if cell >= PUT:
        return 0
    step = RARELY if cell % 2 else 1
    turn = batch // step
    return max(turn - (turn - cell // 2) % OFTEN, 0) * step


@dataclass(frozen=True)
class Plan:
    """What a job brings."""

    number: int
    parts: tuple[tuple[int, ...], ...] = ()
    """The cells of each."""
    zone: int | None = None
    """What it replaces."""
    txn: tuple[str, int] | None = None
    deletes: frozenset[tuple[int, int]] = frozenset()
    """Parts, and cells of theirs, that are deleted and not put."""
    span: tuple[int, int] | None = None
    """The cells that it clears, from one up to another: it has no parts."""
    fills: bool = False
    """Whether it comes behind all that is there."""

    def rows(self, part: int, attempt: int) -> dict[bytes, bytes | None]:
        """Of one part, by one of the tasks that may build it; None deletes."""
        said = (self.number, part, attempt, len(self.parts))
        value = b"job %d %d %d %d " % said + b"." * (attempt % 200)
        place = b"" if self.zone is None else bounds(self.zone)[0]
        own = [b"%sown/%d/%d/%d" % (place, n, self.number, part) for n in range(WITNESSES)]
        rows: dict[bytes, bytes | None] = dict.fromkeys(own, value)
        for cell in self.parts[part]:
            rows[key_of(cell)] = None if (part, cell) in self.deletes else value
        return rows

    def replaces(self) -> tuple[bytes, bytes] | None:
        """The range of keys of which it leaves nothing."""
        if self.span is not None:
            return bounds_of(range(*self.span))
        return None if self.zone is None else bounds(self.zone)

    def winner(self, cell: int) -> int | None:
        """The part whose row counts: the last one that has the cell."""
        return max((n for n, part in enumerate(self.parts) if cell in part), default=None)

    def leaves(self, cell: int) -> Cell:
        """What is in a cell that it covers."""
        part = self.winner(cell)
        return None if part is None or (part, cell) in self.deletes else (self.number, part)

    def covers(self, cell: int) -> bool:
        """Whether what was in the cell before is gone."""
        if self.fills:
            return False
        if self.span is not None:
            return cell in range(*self.span)
        return zone_of(cell) == self.zone or self.winner(cell) is not None

    def hides(self, zone: int | None) -> bool:
        """Whether it clears all of a zone, and so whoever replaced that before is not seen."""
        if self.span is None or zone is None:
            return False
        cells, span = cells_of(zone), range(*self.span)
        return cells[0] in span and cells[-1] in span

    def to_plain(self) -> list[Any]:
        what = (self.number, self.parts, self.zone, self.txn, sorted(self.deletes), self.span)
        return [*what, self.fills]

    @classmethod
    def of_plain(cls, plain: list[Any]) -> Plan:
        number, parts, zone, txn, deletes, span, fills = plain
        gone = frozenset((part, cell) for part, cell in deletes)
        rest = (txn and (txn[0], txn[1]), gone, span and (span[0], span[1]), fills)
        return cls(number, tuple(map(tuple, parts)), zone, *rest)


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
