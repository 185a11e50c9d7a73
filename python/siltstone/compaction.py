"""Compaction in units: planned and committed by one process, merged by any others.

    from concurrent.futures import ProcessPoolExecutor

    import siltstone
    from siltstone import compaction

    siltstone.open("example.db").close()
    with compaction.plan("example.db") as plan, ProcessPoolExecutor() as pool:
        for result in pool.map(compaction.Unit.run, plan.units):
            plan.commit([result])          # what is recorded stays, whoever dies

A unit is the rest of a range of keys: some seconds of work, small, and picklable. It may be run any
number of times, in whatever processes; of copies the first result counts. Whoever is killed in
between loses nothing that was committed: plan again, and there is less to do. Outputs that nobody
recorded are collected.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

from siltstone import _native
from siltstone._importable import resolve
from siltstone._open import StoreOptionsSource, Url, _reader_arguments, _store
from siltstone._standalone_compactor import Compaction, Merged, OnEvent, _teller
from siltstone.exceptions import Invalid
from siltstone.merging import MergeOperatorSource, described
from siltstone.options import Options, named_options

__all__ = ["Plan", "Unit", "UnitResult", "plan"]

_PlainUnit = tuple[str, int, str | None]
_Data = bytes | None

UNIT_BYTES = 256 << 20
"""What some seconds of a core merge."""


@dataclass(frozen=True, slots=True)
class UnitResult:
    """What a unit made. Small, and it pickles."""

    job: str
    """The compaction."""
    range: int
    """Which of its ranges, from 0."""
    tables: int
    """Tables that it wrote; 0 also where nobody needed them any more."""
    rows: int
    """Their rows, older versions and tombstones included."""
    bytes: int
    """Their bytes."""
    _unit: _PlainUnit = field(repr=False)
    _data: _Data = field(repr=False)

    def to_plain(self) -> tuple[_PlainUnit, _Data]:
        """As plain values: the unit, and what the plan takes."""
        return (self._unit, self._data)


@dataclass(frozen=True, slots=True)
class Unit:
    """A range of keys that one process is to merge. It pickles: the URL, options and the merge
    operator travel, store options come from the environment at the other end, or from the provider
    that the plan was made with."""

    url: str
    """The database."""
    job: str
    """The compaction."""
    range: int
    """Which of its ranges, from 0."""
    start: bytes
    """The first key of the range."""
    end: bytes | None
    """The first key behind it; None: there is no bound."""
    _after: str | None = field(repr=False)
    _named: dict[str, Any] = field(repr=False)
    _provider: str | None = field(repr=False)
    _merge_operator: MergeOperatorSource | None = field(repr=False)

    def run(self, *, store_options: StoreOptionsSource | None = None) -> UnitResult:
        """Merges it, here and now, and uploads tables that nobody names until the plan commits
        them. Where its range is finished already, or its compaction over, it does nothing.

        :param store_options: as for `siltstone.open`; None: of the plan's provider, or of the
            environment.
        :raises Denied, Unavailable, Timeout, Corruption, Unsupported: as their texts say. Run it
            again.
        """
        given = self._provider if store_options is None else store_options
        unit = (self.job, self.range, self._after)
        data, tables, rows, size = _native.run_unit(
            self.url,
            self._named,
            _store(given),
            described(self._merge_operator),
            unit,
            _teller(None),
        )
        return UnitResult(self.job, self.range, tables, rows, size, unit, data)


class Plan:
    """A compaction under way: from `plan`. It has the compactor's epoch, so another compactor is
    stopped, and it compacts what is flushed meanwhile; close it when its units are committed, or
    given up. One that is dropped counts as killed."""

    __slots__ = ("_done", "_held", "_merge_operator", "_named", "_provider", "url")

    url: str
    """The database."""

    def __init__(
        self,
        url: str,
        held: _native.UnitPlan,
        done: list[Compaction],
        travels: tuple[dict[str, Any], str | None, MergeOperatorSource | None],
    ) -> None:
        self.url = url
        self._held = held
        self._done = done
        self._named, self._provider, self._merge_operator = travels

    @property
    def units(self) -> list[Unit]:
        """What is left to merge; nothing, once all is committed, or where nothing was to gain."""
        if self._provider is not None:
            resolve(self._provider)
        travels = (self._named, self._provider, self._merge_operator)
        return [
            Unit(self.url, job, place, start, end, after, *travels)
            for (job, place, after), start, end in self._held.units()
        ]

    @property
    def resumed(self) -> bool:
        """Whether it goes on with what an earlier plan, or another compactor, had begun: what came
        since is for another plan."""
        return self._held.resumed

    @property
    def compactions(self) -> tuple[Compaction, ...]:
        """What was done so far, that of the units last, once it is committed."""
        return tuple(self._done)

    def commit(self, results: Iterable[UnitResult]) -> bool:
        """Records what units made, of which nothing is lost then; with the last one, commits. Any
        order, any number of times: what is not needed is passed over.

        :returns: whether all is committed.
        :raises Fenced: another compactor has taken over, and goes on from what is recorded.
        :raises Conflict: a restore has moved the database away from the plan, which ends without
            effect.
        :raises Timeout: nothing was recorded for ten times `compactors.worker_timeout`, and the
            plan rests, so that another compactor may go on. Plan again, and give that plan the
            results.
        :raises Closed: the plan is closed.
        :raises Invalid: a result of something else.
        :raises Denied, Unavailable: as their texts say; try again.
        """
        plain = []
        for result in results:
            if not isinstance(result, UnitResult):
                raise TypeError(f"a result is what Unit.run gives, not {type(result).__name__}")
            plain.append(result.to_plain())
        return self._held.commit(plain)

    def close(self) -> None:
        """Gives the compactor's epoch up: an embedded compactor that was stopped goes on. What is
        recorded and not committed is where the next compactor begins."""
        self._held.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<siltstone.compaction.Plan for {self.url}>"


def plan(
    url: Url,
    *,
    unit_bytes: int = UNIT_BYTES,
    options: Options | Mapping[str, Any] | None = None,
    store_options: StoreOptionsSource | None = None,
    merge_operator: MergeOperatorSource | None = None,
    on_event: OnEvent | None = None,
) -> Plan:
    """Plans to merge all tables of the database at `url` into one sorted run, in units for other
    processes. As `siltstone.admin.compact` it needs no writer and disturbs none, and stops another
    compactor until the plan is closed.

    What an earlier compactor left unfinished comes first: where that is less than a unit it is
    merged here, otherwise it is the plan, which then says `resumed`: plan again for the rest.

    :param unit_bytes: about how many bytes of tables a unit reads.
    :param options: `Options`, or a dict of the same names: those about compaction and tables count.
    :param store_options: as for `siltstone.open`; a provider travels with the units, by its name.
    :param merge_operator: as for `siltstone.open`; it travels.
    :param on_event: called with each `Compaction` that ends, and with errors that are tried again,
        during calls of the plan.
    :raises NotFound: there is no database here.
    :raises Fenced: another compactor has taken over.
    :raises Invalid: `unit_bytes` below 1.
    :raises Denied, Unavailable, Timeout, Corruption, Unsupported: as their texts say.
    """
    if unit_bytes < 1:
        raise Invalid(f"unit_bytes is {unit_bytes}: a unit reads some bytes")
    done: list[Compaction] = []

    def noted(what: Compaction | Merged | Exception) -> None:
        if isinstance(what, Compaction):
            done.append(what)
        if on_event is not None:
            on_event(what)

    place, store, provider = _reader_arguments(url, store_options)
    named = named_options(options)
    operator = described(merge_operator)
    held = _native.plan_compaction(place, named, store, operator, unit_bytes, _teller(noted))
    return Plan(place, held, done, (named, provider, merge_operator))
