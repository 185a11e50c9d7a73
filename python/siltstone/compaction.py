"""Compaction in units: one process plans and commits, and any processes merge.

    from concurrent.futures import ProcessPoolExecutor

    import siltstone
    from siltstone import compaction

    siltstone.open("example.db").close()
    with compaction.plan("example.db") as plan, ProcessPoolExecutor() as pool:
        for result in pool.map(compaction.Unit.run, plan.units):
            plan.commit([result])          # a recorded result survives a crash

A unit is a range of keys: a few seconds of work, small, and picklable. It can run any number of
times, in any process; the first result counts. A crash loses no committed result: plan again, and
less work is left. Output tables that were not recorded are collected.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

from siltstone import _native
from siltstone._importable import resolve
from siltstone._numbers import size_of
from siltstone._open import StoreOptionsSource, Url, _reader_arguments, _store, hidden
from siltstone._standalone_compactor import Compaction, Merged, OnEvent, _teller
from siltstone.merging import MergeOperatorSource, described
from siltstone.options import Bytes, Options, named_options

__all__ = ["Plan", "Unit", "UnitResult", "plan"]

_PlainUnit = tuple[str, int, str | None]
_Data = bytes | None

UNIT_BYTES = 256 << 20
"""Default size of a unit in bytes: a few seconds of work for one core."""


@dataclass(frozen=True, slots=True)
class UnitResult:
    """The result of a unit. It is small and can be pickled."""

    job: str
    """Id of the compaction."""
    range: int
    """Number of the range, from 0."""
    tables: int
    """Number of tables that it wrote; also 0 if the result was not needed any more."""
    rows: int
    """Rows in the tables, including older versions and tombstones."""
    bytes: int
    """Size of the tables in bytes."""
    _unit: _PlainUnit = field(repr=False)
    _data: _Data = field(repr=False)

    def to_plain(self) -> tuple[_PlainUnit, _Data]:
        """Returns plain values: the unit, and the data for the plan."""
        return (self._unit, self._data)


@dataclass(frozen=True, slots=True)
class Unit:
    """A range of keys for one process to merge. It can be pickled. The pickle carries the URL, the
    options and the merge operator. Store options come from the environment where it is unpickled,
    or from the provider that the plan was made with."""

    url: str
    """URL of the database."""
    job: str
    """Id of the compaction."""
    range: int
    """Number of the range, from 0."""
    start: bytes
    """First key of the range."""
    end: bytes | None
    """Exclusive end of the range; None: no bound."""
    _after: str | None = field(repr=False)
    _named: dict[str, Any] = field(repr=False)
    _provider: str | None = field(repr=False)
    _merge_operator: MergeOperatorSource | None = field(repr=False)

    def run(self, *, store_options: StoreOptionsSource | None = None) -> UnitResult:
        """Merges the range in this process and uploads its tables. The tables are unreferenced
        until the plan commits them. If the range is finished already, or the compaction is over,
        the call does nothing.

        :param store_options: as for `siltstone.open`; None: those of the provider of the plan, or
            of the environment.
        :raises Denied, Unavailable, Timeout, Corruption, Unsupported: see `siltstone.exceptions`.
            The unit can be run again.
        """
        store_options = hidden(store_options)
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
    """An open compaction, from `plan`. It holds the epoch of the compactor, so that other
    compactors are stopped, and it also compacts data that is flushed meanwhile. Close it after its
    units are committed or given up. A plan that is dropped without `close` counts as crashed."""

    __slots__ = ("_done", "_held", "_merge_operator", "_named", "_provider", "url")

    url: str
    """URL of the database."""

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
        """The remaining units. Empty if all are committed, or if there was nothing to merge."""
        if self._provider is not None:
            resolve(self._provider)
        travels = (self._named, self._provider, self._merge_operator)
        return [
            Unit(self.url, job, place, start, end, after, *travels)
            for (job, place, after), start, end in self._held.units()
        ]

    @property
    def resumed(self) -> bool:
        """Whether the plan continues a compaction that an earlier plan or another compactor began.
        Newer data needs another plan."""
        return self._held.resumed

    @property
    def compactions(self) -> tuple[Compaction, ...]:
        """The completed compactions. The compaction of the units is the last one, after it is
        committed."""
        return tuple(self._done)

    def commit(self, results: Iterable[UnitResult]) -> bool:
        """Records results of units, which are then durable. With the last result it commits the
        compaction. Results can be given in any order and any number of times; results that are not
        needed are ignored.

        :returns: whether the compaction is committed.
        :raises Fenced: if another compactor has taken over. It continues from the recorded results.
        :raises Conflict: if a restore has changed the database. The plan ends without effect.
        :raises Timeout: if no result was recorded for ten times `compactors.worker_timeout`. The
            plan rests, so that another compactor may continue. Plan again, and give the results to
            that plan.
        :raises Closed: if the plan is closed.
        :raises TypeError: if a result is not a `UnitResult`.
        :raises Invalid: if a result does not belong to the plan.
        :raises Denied, Unavailable: see `siltstone.exceptions`. The call can be repeated.
        """
        plain = []
        for result in results:
            if not isinstance(result, UnitResult):
                raise TypeError(
                    f"expected a UnitResult, as Unit.run returns, not {type(result).__name__}"
                )
            plain.append(result.to_plain())
        return self._held.commit(plain)

    def close(self) -> None:
        """Releases the epoch of the compactor, so that a stopped embedded compactor continues. The
        next compactor continues from recorded results that are not committed."""
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
    unit_bytes: Bytes = UNIT_BYTES,
    options: Options | Mapping[str, Any] | None = None,
    store_options: StoreOptionsSource | None = None,
    merge_operator: MergeOperatorSource | None = None,
    on_event: OnEvent | None = None,
) -> Plan:
    """Plans a major compaction of the database at `url` in units for other processes. Like
    `siltstone.admin.compact` it needs no writer and disturbs none. It stops other compactors until
    the plan is closed.

    A compaction that an earlier compactor left unfinished comes first. If less than a unit of it is
    left, this call completes it. Otherwise it is the plan, which then has `resumed` set: plan again
    for the rest.

    :param unit_bytes: approximate size of the tables that a unit reads, in bytes or as text such as
        "1GiB".
    :param options: `Options`, or a dict of the same names. Options about compaction and tables
        apply.
    :param store_options: as for `siltstone.open`. A unit carries the name of a provider.
    :param merge_operator: as for `siltstone.open`. A unit carries it.
    :param on_event: called, during calls of the plan, with each completed `Compaction` and with
        each error that is tried again.
    :raises NotFound: if there is no database at `url`.
    :raises Fenced: if another compactor has taken over.
    :raises Invalid: if `unit_bytes` is below 1.
    :raises Denied, Unavailable, Timeout, Corruption, Unsupported: see `siltstone.exceptions`.
    """
    store_options = hidden(store_options)
    most = size_of(unit_bytes, "unit_bytes", 1)
    done: list[Compaction] = []

    def noted(what: Compaction | Merged | Exception) -> None:
        if isinstance(what, Compaction):
            done.append(what)
        if on_event is not None:
            on_event(what)

    place, store, provider = _reader_arguments(url, store_options)
    named = named_options(options)
    operator = described(merge_operator)
    held = _native.plan_compaction(place, named, store, operator, most, _teller(noted))
    return Plan(place, held, done, (named, provider, merge_operator))
