"""Compaction without a writer; `siltstone.admin` has it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from siltstone import _native
from siltstone._open import StoreOptionsSource, Url, _store, _text
from siltstone.merging import MergeOperatorSource, described
from siltstone.options import Options, named_options
from siltstone.stats import Compaction

__all__ = ["Compaction", "Merged", "compact", "run_compactor"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Merged:
    """A range of somebody's compaction that a worker has merged."""

    job: str
    """Identity of the compaction."""
    range: int
    """Which of its ranges, from 0."""
    seconds: float
    """How long it took here."""
    line: str
    """All of it in a line: what the logger `siltstone.compaction` says."""


OnEvent = Callable[[Compaction | Merged | Exception], object]
"""Hears what a compactor did, and what it tries again."""


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
    """Merges all tables of the database at `url` into one sorted run; returns when that is done.

    It needs no writer and disturbs none: rows that the writer has not flushed yet stay where they
    are, and what a snapshot of its may still read is kept. A compactor that runs beside it is
    stopped: the writer's own goes on after the writer's next flush, one that runs in a process of
    its own ends with `Fenced`. What an earlier compactor left unfinished is ended first.

    :param options: `Options`, or a dict of the same names: those about compaction and tables count.
    :param merge_operator: as for `open`.
    :param workers: how many workers are expected in other processes (`run_compactor`): the ranges
        that this one does not merge itself are left to them.
    :param on_event: called with each `Compaction` that ends, and with errors that are tried again.
    :param on_progress: called a few times a second with the bytes read and the bytes to read: an
        estimate, as some tables may go unread.
    :returns: what was done, in order; empty when nothing was to gain.
    :raises NotFound: there is no database here.
    :raises Fenced: another compactor has taken over. What was finished is where it goes on.
    :raises Invalid, Denied, Unavailable, Timeout, Corruption, Unsupported: as their texts say.
    """
    operator = described(merge_operator)
    if workers < 0:
        raise ValueError("workers is how many others are expected")
    done: list[Compaction] = []

    def noted(what: Compaction | Merged | Exception) -> None:
        if isinstance(what, Compaction):
            done.append(what)
        if on_event is not None:
            on_event(what)

    named, store = named_options(options), _store(store_options)
    _native.compact(_text(url), named, store, operator, workers, _teller(noted, on_progress))
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
    """Compacts the database at `url` in this process, until it is interrupted.

    Open the writer with ``embedded_compactor=False``: of two compactors the one that starts later
    stops the other, and never the writer. Interrupted, it leaves what it has finished to the next
    one. Every compaction is a line of the logger ``siltstone.compaction``.

    With ``workers=N`` it is a coordinator: compactions are cut into ranges for N workers besides
    itself. A worker (``worker=True``, in any number of other processes) plans nothing; it merges
    ranges that a coordinator has left open, and takes those of workers that stalled for
    `compactors.worker_timeout`. Workers may come, go and die at any moment.

    :param options: `Options`, or a dict of the same names: those about compaction and tables count.
    :param merge_operator: as for `open`; workers need it, too.
    :param workers: how many workers are expected in other processes.
    :param worker: work for a compactor that runs elsewhere.
    :param on_event: called with each `Compaction` or `Merged` range that ends, and with errors that
        are tried again. What it raises ends the call.
    :raises NotFound: there is no database here, or it was destroyed.
    :raises Fenced: another compactor has taken over.
    :raises Invalid, Denied, Unavailable, Timeout, Corruption, Unsupported: as their texts say.
    """
    operator = described(merge_operator)
    if workers < 0 or (worker and workers):
        raise ValueError("workers is how many others a coordinator expects; a worker expects none")
    named, store = named_options(options), _store(store_options)
    _native.run_compactor(_text(url), named, store, operator, (workers, worker), _teller(on_event))
