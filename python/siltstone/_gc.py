"""Garbage collection without a writer."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from typing import Any

from siltstone import _display, _native
from siltstone._open import StoreOptionsSource, Url, _store, _text
from siltstone.options import Seconds

__all__ = ["Collected", "GcObject", "GcReport", "Stays", "gc", "run_gc"]


@dataclass(frozen=True, slots=True)
class Collected:
    """What became of the objects of one class."""

    deleted: int = 0
    """Objects deleted; in a dry run, those that would be."""
    bytes: int = 0
    """Their bytes."""
    failed: int = 0
    """Deletes that failed; the next round meets them again."""
    denied: int = 0
    """Deletes that the store refused."""
    young: int = 0
    """Objects that will go once the grace period is over."""
    alive: int = 0
    """Objects that somebody needs."""


@dataclass(frozen=True, slots=True)
class Stays:
    """Objects of one class that stay for one reason."""

    of: str
    """Their class, as in `GcReport.classes`."""
    why: str
    """Why they stay."""
    objects: int
    """How many."""
    bytes: int
    """Their bytes."""


@dataclass(frozen=True, slots=True)
class GcObject:
    """An object that a dry run would delete."""

    object: str
    """Its name below the database's root."""
    bytes: int
    """Its length."""
    age: float
    """Seconds since it was stored."""
    why: str
    """Why it is dead."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class GcReport:
    """What one round of the collector did; of a dry run, what it would do."""

    database: str
    """Identity of the database."""
    manifest_id: int
    """The newest manifest, which the round went by."""
    dry_run: bool
    """Whether nothing was changed."""
    overtaken: bool
    """Whether the round ended early, since another collector was ahead of it."""
    revoked: int
    """Expired checkpoints that were revoked."""
    unleased: int
    """Versions of readers whose leases had run out."""
    swept_uploads: int
    """Unfinished uploads of processes that died (local folders)."""
    swept_bytes: int
    """Their bytes."""
    classes: dict[str, Collected]
    """By class: `manifests`, `wal`, `tables`, `records` (of compaction jobs), `boundaries`,
    `others`. Classes of which there is nothing are missing."""
    stays: tuple[Stays, ...]
    """What stays, and why."""
    objects: tuple[GcObject, ...]
    """What would go, of a dry run."""
    trouble: str | None
    """The first delete that did not succeed, in words."""

    @property
    def total(self) -> Collected:
        """Sums over all classes."""
        sums = [sum(column) for column in zip(*map(_counts, self.classes.values()), strict=True)]
        return Collected(*sums)

    def __repr__(self) -> str:
        total, words = self.total, ["dry run"] * self.dry_run + ["overtaken"] * self.overtaken
        words += [f"trouble: {self.trouble}"] if self.trouble else []
        deleted = f"{total.deleted} ({_display.binary(total.bytes)})"
        figures = {"young": total.young, "alive": total.alive, "failed": total.failed}
        return _display.line("admin.GcReport", *words, deleted=deleted, **figures)

    def _repr_html_(self) -> str:
        """What a notebook shows: a row for each class."""
        did = "would delete" if self.dry_run else "deleted"
        heads = ("class", did, "bytes", "failed", "denied", "young", "alive")
        classes = {**self.classes, "total": self.total}
        rows = ((name, *_counts(one)) for name, one in classes.items())
        trouble = f"; trouble: {self.trouble}" if self.trouble else ""
        title = f"siltstone.admin.GcReport of manifest {self.manifest_id}{trouble}"
        return _display.grid(title, heads, rows)

    def to_dict(self) -> dict[str, Any]:
        """The same in plain types, and the sums as `total`."""
        return {**asdict(self), "total": asdict(self.total)}


def _counts(one: Collected) -> tuple[int, ...]:
    return (one.deleted, one.bytes, one.failed, one.denied, one.young, one.alive)


def _report(found: dict[str, Any]) -> GcReport:
    classes = {name: Collected(*counts) for name, counts in found.pop("classes").items()}
    stays = tuple(Stays(*each) for each in found.pop("stays"))
    objects = tuple(GcObject(*each) for each in found.pop("objects"))
    return GcReport(classes=classes, stays=stays, objects=objects, **found)


def gc(
    url: Url,
    *,
    dry_run: bool = False,
    min_age: Seconds | None = None,
    db_delete_grace: Seconds | None = None,
    store_options: StoreOptionsSource | None = None,
    on_progress: Callable[[int, int], object] | None = None,
) -> GcReport:
    """Deletes, once, what nobody names any more. Works beside a writer, readers, compactors and
    other collectors, and harms none of them.

    :param dry_run: change nothing; the report lists what would go, and why.
    :param min_age: grace period, in seconds: what was stored, or superseded, later than this ago by
        the store's clock stays. By default 300. With 0, readers that keep no checkpoint may lose
        the tables they read, and nobody else notices.
    :param db_delete_grace: seconds for which a database that was destroyed softly is left as it is,
        86,400 by default. Then, and once no checkpoint and no lease is left, all of it goes.
    :param on_progress: called a few times a second with the number of objects deleted and the
        number of objects to delete. The latter is 0 until all objects are listed.
    :raises NotFound: there is no database here.
    :raises Denied: boundaries cannot be written. A delete that is denied does not raise: it is
        counted, and the others go on.
    :raises Invalid, Unavailable, Timeout, Corruption: as their texts say.
    """
    grace = db_delete_grace
    return _report(
        _native.gc(_text(url), _store(store_options), dry_run, min_age, grace, on_progress)
    )


def run_gc(
    urls: Url | Iterable[Url],
    *,
    min_age: Seconds | None = None,
    db_delete_grace: Seconds | None = None,
    interval: Seconds | None = None,
    store_options: StoreOptionsSource | None = None,
    on_round: Callable[[str, GcReport], object] | None = None,
    on_error: Callable[[str, Exception], object] | None = None,
    on_end: Callable[[str, str], object] | None = None,
) -> None:
    """Collects garbage in one database or many, until each is gone. Ctrl-C stops it, at any moment,
    without harm. Trouble with one database stops none of the others; it is looked at again after
    pauses that double.

    :param min_age: as of `gc`.
    :param db_delete_grace: as of `gc`.
    :param interval: seconds between two looks at a database, 300 by default. A look at one in which
        nothing has changed is five requests, a round some twenty and the deletes.
    :param store_options: for all of them.
    :param on_round: called with the URL and the report of each round.
    :param on_error: called with the URL and the exception when a round failed.
    :param on_end: called with the URL and the reason when there is nothing more to do there: the
        database is gone, or there never was one.
    :raises Invalid: a URL, or an option.
    """
    given = [urls] if isinstance(urls, str | os.PathLike) else list(urls)

    def tell(url: str, event: dict[str, Any] | Exception | str) -> None:
        if isinstance(event, dict):
            if on_round is not None:
                on_round(url, _report(event))
        elif isinstance(event, str):
            if on_end is not None:
                on_end(url, event)
        elif on_error is not None:
            on_error(url, event)

    texts = [_text(url) for url in given]
    _native.run_gc(texts, _store(store_options), min_age, db_delete_grace, interval, tell)
