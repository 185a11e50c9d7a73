"""A compactor without a writer; `siltstone.admin` exports it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from siltstone import _native
from siltstone._numbers import count_of
from siltstone._open import StoreOptionsSource, Url, _store, _text, hidden
from siltstone.exceptions import Fenced, Invalid
from siltstone.merging import MergeOperatorSource, described
from siltstone.options import Options, named_options
from siltstone.stats import Compaction

__all__ = ["Compaction", "Merged", "compact", "run_compactor"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Merged:
    """A range of a compaction that a worker has merged."""

    job: str
    """Id of the compaction."""
    range: int
    """Number of the range, from 0."""
    seconds: float
    """Time that the merge took in this process, in seconds."""
    line: str
    """All fields in one line, as in the logger `siltstone.compaction`."""


OnEvent = Callable[[Compaction | Merged | Exception], object]
"""Called with each completed compaction or range, and with each error before it is tried again."""


def _teller(
    on_event: OnEvent | None, on_progress: Callable[[int, int], object] | None = None
) -> Callable[[str, Any], None]:
    def told(kind: str, what: Any) -> None:
        if kind == "bytes":
            if on_progress is not None:
                on_progress(*what)
        elif on_event is not None:
            on_event(Merged(**what) if kind == "merged" else what)

    return told


def compact(
    url: Url,
    *,
    options: Options | Mapping[str, Any] | None = None,
    store_options: StoreOptionsSource | None = None,
    merge_operator: MergeOperatorSource | None = None,
    workers: int = 0,
    on_event: OnEvent | None = None,
    on_progress: Callable[[int, int], object] | None = None,
) -> list[Compaction]:
    """Runs a major compaction: merges all tables of the database at `url` into one sorted run, and
    returns when that is done.

    It needs no writer and disturbs none: rows that the writer has not flushed are not affected, and
    rows that a snapshot of the writer may read are kept. It stops another compactor of the
    database: the embedded compactor of the writer continues after the next flush, and a compactor
    in another process ends with `Fenced`. If a compactor starts just after this one and so stops
    it, this one begins once more. It first completes the compactions that an earlier compactor left
    unfinished.

    :param options: `Options`, or a dict of the same names. Options about compaction and tables
        apply.
    :param merge_operator: as for `open`.
    :param workers: number of workers in other processes (`run_compactor(worker=True)`) that share
        the work.
    :param on_event: called with each completed `Compaction`, and with each error that is tried
        again.
    :param on_progress: called a few times a second with the bytes read and the bytes to read. The
        latter is an estimate, because some tables may not be read.
    :returns: the compactions, in order; an empty list if there was nothing to merge.
    :raises NotFound: if there is no database at `url`.
    :raises Fenced: if other compactors have taken over twice. They continue from the completed
        work.
    :raises Invalid, Denied, Unavailable, Timeout, Corruption, Unsupported: see
        `siltstone.exceptions`.
    """
    store_options = hidden(store_options)
    operator = described(merge_operator)
    count = count_of(workers, "workers")
    done: list[Compaction] = []

    def noted(what: Compaction | Merged | Exception) -> None:
        if isinstance(what, Compaction):
            done.append(what)
        if on_event is not None:
            on_event(what)

    named, store = named_options(options), _store(store_options)
    asked = (_text(url), named, store, operator, count, _teller(noted, on_progress))
    try:
        _native.compact(*asked)
    except Fenced:
        # The embedded compactor of a writer starts at a flush, which may be just now.
        _native.compact(*asked)
    return done


def run_compactor(
    url: Url,
    *,
    options: Options | Mapping[str, Any] | None = None,
    store_options: StoreOptionsSource | None = None,
    merge_operator: MergeOperatorSource | None = None,
    workers: int = 0,
    worker: bool = False,
    on_event: OnEvent | None = None,
) -> None:
    """Runs a compactor for the database at `url` in this process, until it is interrupted.

    Open the writer with ``embedded_compactor=False``: a compactor that starts stops an earlier one,
    but never the writer. An interrupted compactor leaves its completed work to the next one. The
    logger ``siltstone.compaction`` has one line for each compaction.

    With ``workers=N`` it is a coordinator: it divides compactions into ranges for itself and N
    workers. A worker (``worker=True``, in any number of other processes) plans no compactions. It
    merges ranges of a coordinator, and takes over ranges of workers that made no progress for
    `compactors.worker_timeout`. Workers can start, stop and crash at any moment.

    :param options: `Options`, or a dict of the same names. Options about compaction and tables
        apply.
    :param merge_operator: as for `open`; workers need it too.
    :param workers: number of workers in other processes.
    :param worker: run as a worker of a coordinator in another process.
    :param on_event: called with each completed `Compaction` or `Merged` range, and with each error
        that is tried again. An exception that it raises ends the call.
    :raises NotFound: if there is no database at `url`, or it was destroyed.
    :raises Fenced: if another compactor has taken over.
    :raises Invalid, Denied, Unavailable, Timeout, Corruption, Unsupported: see
        `siltstone.exceptions`.
    """
    store_options = hidden(store_options)
    operator = described(merge_operator)
    count = count_of(workers, "workers")
    if worker and count:
        raise Invalid("a worker has no workers of its own: give workers=0 with worker=True")
    named, store = named_options(options), _store(store_options)
    _native.run_compactor(_text(url), named, store, operator, (count, worker), _teller(on_event))
