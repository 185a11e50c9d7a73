"""Garbage collection without a writer; `siltstone.admin` exports it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from typing import Any

from siltstone import _display, _native
from siltstone._open import StoreOptionsSource, Url, _store, _text, hidden
from siltstone.options import Seconds

__all__ = ["Collected", "GcObject", "GcReport", "Stays", "gc", "run_gc"]


@dataclass(frozen=True, slots=True)
class Collected:
    """Counts for the objects of one class in a round of the collector."""

    deleted: int = 0
    """Objects deleted, or in a dry run the objects to delete."""
    bytes: int = 0
    """Their size in bytes."""
    failed: int = 0
    """Deletes that failed; the next round tries them again."""
    denied: int = 0
    """Deletes that the store refused."""
    young: int = 0
    """Unreferenced objects that are younger than the grace period."""
    alive: int = 0
    """Objects that are in use."""


@dataclass(frozen=True, slots=True)
class Stays:
    """Objects of one class that are kept for one reason."""

    of: str
    """Class of the objects, as in `GcReport.classes`."""
    why: str
    """Reason why they are kept."""
    objects: int
    """Number of objects."""
    bytes: int
    """Their size in bytes."""


@dataclass(frozen=True, slots=True)
class GcObject:
    """An object that a dry run lists for deletion."""

    object: str
    """Name of the object below the root of the database."""
    bytes: int
    """Length of the object in bytes."""
    age: float
    """Seconds since the object was stored."""
    why: str
    """Reason why the object is garbage."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class GcReport:
    """The result of one round of the collector. A dry run deletes nothing and reports what a round
    would do."""

    database: str
    """Identity of the database."""
    manifest_id: int
    """Number of the newest manifest, which the round used."""
    dry_run: bool
    """Whether the round was a dry run, which changes nothing."""
    overtaken: bool
    """Whether the round ended early because another collector was ahead of it."""
    revoked: int
    """Expired checkpoints that were revoked."""
    unleased: int
    """Versions of readers whose leases had expired."""
    swept_uploads: int
    """Unfinished uploads of dead processes that were removed (local folders only)."""
    swept_bytes: int
    """Their size in bytes."""
    classes: dict[str, Collected]
    """Counts by class: `manifests`, `wal`, `tables`, `records` (of compaction jobs), `boundaries`,
    `others`. A class without objects is missing."""
    stays: tuple[Stays, ...]
    """Objects that are kept, by class and reason."""
    objects: tuple[GcObject, ...]
    """The objects to delete; only in a dry run."""
    trouble: str | None
    """Text of the first failed delete, or None."""

    @property
    def total(self) -> Collected:
        """The sums over all classes."""
        sums = [sum(column) for column in zip(*map(_counts, self.classes.values()), strict=True)]
        return Collected(*sums)

    def __repr__(self) -> str:
        total, words = self.total, ["dry run"] * self.dry_run + ["overtaken"] * self.overtaken
        words += [f"trouble: {self.trouble}"] if self.trouble else []
        deleted = f"{total.deleted} ({_display.binary(total.bytes)})"
        figures = {"young": total.young, "alive": total.alive, "failed": total.failed}
        return _display.line("admin.GcReport", *words, deleted=deleted, **figures)

    def _repr_html_(self) -> str:
        """HTML for notebooks: a row for each class."""
        did = "would delete" if self.dry_run else "deleted"
        heads = ("class", did, "bytes", "failed", "denied", "young", "alive")
        classes = {**self.classes, "total": self.total}
        rows = ((name, *_counts(one)) for name, one in classes.items())
        trouble = f"; trouble: {self.trouble}" if self.trouble else ""
        title = f"siltstone.admin.GcReport of manifest {self.manifest_id}{trouble}"
        return _display.grid(title, heads, rows)

    def to_dict(self) -> dict[str, Any]:
        """The fields in plain types, and the sums as `total`."""
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
    """Runs one collection: deletes unreferenced objects. It is safe beside a writer, readers,
    compactors and other collectors.

    :param dry_run: delete nothing; the report lists the objects to delete, with reasons.
    :param min_age: grace period in seconds, 300 by default. Objects that were stored or superseded
        more recently, by the clock of the store, are kept. With 0, a reader without a lease or
        checkpoint may lose the tables that it reads; other readers and the writer are not affected.
    :param db_delete_grace: seconds before a softly destroyed database is deleted, 86,400 by
        default. The collector then deletes all of it as soon as no checkpoint and no lease is left.
    :param on_progress: called a few times a second with the number of objects deleted and the
        number of objects to delete. The latter is 0 until all objects are listed.
    :raises NotFound: if there is no database at `url`.
    :raises Denied: if boundary objects cannot be written. A denied delete raises no exception: it
        is counted, and the round continues.
    :raises Invalid, Unavailable, Timeout, Corruption: see `siltstone.exceptions`.
    """
    store_options = hidden(store_options)
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
    """Runs a garbage collector for one or more databases until no database is left. Ctrl-C stops it
    safely at any moment. An error in one database does not stop the collection of the others; the
    collector tries again after pauses that double.

    :param min_age: as for `gc`.
    :param db_delete_grace: as for `gc`.
    :param interval: seconds between two checks of a database, 300 by default. A check of an
        unchanged database costs five requests. A round costs about twenty requests and the deletes.
    :param store_options: options for the stores of all databases.
    :param on_round: called with the URL and the report after each round.
    :param on_error: called with the URL and the exception after a failed round.
    :param on_end: called with the URL and the reason when the collection of a database ends: the
        database was destroyed, or did not exist.
    :raises Invalid: if a URL or an option is not valid.
    """
    store_options = hidden(store_options)
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
