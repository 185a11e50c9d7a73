"""The rows that batches and jobs of `kills_of_jobs_for_tests.py` write, and the content of a look
at all rows.

The n-th batch of the writer puts its number into some of the cells (`cells_put`). A job also writes
its number into some cells, or deletes them. It also writes witnesses: rows of its own, which show
that the job is present. A job that replaces a zone has its witnesses within the zone, so that only
the last such job is seen. A job that clears a span of cells has no row at all: only the missing
rows show it. A job that comes behind all existing data fills cells that are otherwise empty; the
first of such jobs wins.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

ZONES = 5
CELLS = 60
# Half of the cells that batches put are put often, the others rarely.
PUT = 48
OFTEN = PUT // 2
RARELY = 16
# The number of witnesses of each part, in several places.
WITNESSES = 3

Cell = int | tuple[int, int] | None
"""The content of a cell: the number of a batch, a job and one of its parts, or nothing."""


def zone_of(cell: int) -> int:
    return cell * ZONES // CELLS


def cells_of(zone: int) -> range:
    return range(zone * CELLS // ZONES, (zone + 1) * CELLS // ZONES)


def key_of(cell: int) -> bytes:
    return b"cell/%d/%02d" % (zone_of(cell), cell)


def bounds(zone: int) -> tuple[bytes, bytes]:
    """The keys of a zone: its cells, and the witnesses of a job that replaces it."""
    return b"cell/%d/" % zone, b"cell/%d0" % zone


def bounds_of(span: range) -> tuple[bytes, bytes]:
    """The keys of a span of cells, which is within one zone or covers whole zones."""
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
    """The last batch up to `batch` that puts a cell; 0 if there is none."""
    if cell >= PUT:
        return 0
    step = RARELY if cell % 2 else 1
    turn = batch // step
    return max(turn - (turn - cell // 2) % OFTEN, 0) * step


@dataclass(frozen=True)
class Plan:
    """The content of a job."""

    number: int
    parts: tuple[tuple[int, ...], ...] = ()
    """The cells of each part."""
    zone: int | None = None
    """The zone that it replaces."""
    txn: tuple[str, int] | None = None
    deletes: frozenset[tuple[int, int]] = frozenset()
    """Pairs of a part and one of its cells, which it deletes instead of putting it."""
    span: tuple[int, int] | None = None
    """The cells that it clears, from the first up to the second number. Such a job has no parts."""
    fills: bool = False
    """Whether it comes behind all existing data."""

    def rows(self, part: int, attempt: int) -> dict[bytes, bytes | None]:
        """The rows of one part, built by one of several attempts; None is a delete."""
        said = (self.number, part, attempt, len(self.parts))
        value = b"job %d %d %d %d " % said + b"." * (attempt % 200)
        place = b"" if self.zone is None else bounds(self.zone)[0]
        own = [b"%sown/%d/%d/%d" % (place, n, self.number, part) for n in range(WITNESSES)]
        rows: dict[bytes, bytes | None] = dict.fromkeys(own, value)
        for cell in self.parts[part]:
            rows[key_of(cell)] = None if (part, cell) in self.deletes else value
        return rows

    def replaces(self) -> tuple[bytes, bytes] | None:
        """The range of keys that it removes."""
        if self.span is not None:
            return bounds_of(range(*self.span))
        return None if self.zone is None else bounds(self.zone)

    def winner(self, cell: int) -> int | None:
        """The part whose row counts: the last part with this cell."""
        return max((n for n, part in enumerate(self.parts) if cell in part), default=None)

    def leaves(self, cell: int) -> Cell:
        """The content of a covered cell after the job."""
        part = self.winner(cell)
        return None if part is None or (part, cell) in self.deletes else (self.number, part)

    def covers(self, cell: int) -> bool:
        """Whether the earlier content of the cell is gone after the job."""
        if self.fills:
            return False
        if self.span is not None:
            return cell in range(*self.span)
        return zone_of(cell) == self.zone or self.winner(cell) is not None

    def hides(self, zone: int | None) -> bool:
        """Whether it clears all of a zone, which hides any job that replaced the zone before."""
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
    """The last batch that is present."""
    jobs: frozenset[int]
    """The jobs that are present."""
    cells: tuple[Cell, ...]
    wrong: tuple[str, ...] = ()
    """Problems that show in the rows alone."""
    least: int = field(default=0, compare=False)
    """A batch that was acknowledged before the look."""

    def to_plain(self) -> list[Any]:
        return [self.batch, sorted(self.jobs), self.cells, self.wrong, self.least]

    @classmethod
    def of_plain(cls, plain: list[Any]) -> Look:
        batch, jobs, cells, wrong, least = plain
        held = (tuple(cell) if isinstance(cell, list) else cell for cell in cells)
        return cls(batch, frozenset(jobs), tuple(held), tuple(wrong), least)


def look_of(rows: dict[bytes, bytes], least: int = 0) -> Look:
    """The look at some rows. A job must be present whole, and each part from one attempt."""
    batch = int(rows.get(b"batch", b"put 0").split()[1])
    wrong: list[str] = []
    cells: list[Cell] = [None] * CELLS
    # `parts`: the number of parts by job. `found`: the attempt of each witness by job.
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
