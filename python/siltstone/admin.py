"""Administration: works without a writer."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, NoReturn

from siltstone import _display, _native
from siltstone._checkpoints import Checkpoint, CheckpointLike, asked_for, moment
from siltstone._export import ExportReport, export, import_, promote
from siltstone._gc import Collected, GcObject, GcReport, Stays, gc, run_gc
from siltstone._open import StoreOptionsSource, Url, _not_built, _store, _text
from siltstone._repair import (
    Damage,
    GiveUpReport,
    RepairReport,
    collect_after_repair,
    give_up_table,
    repair,
)
from siltstone._standalone_compactor import Compaction, Merged, compact, run_compactor
from siltstone.options import Seconds

__all__ = [
    "Checkpoint",
    "Collected",
    "Compaction",
    "Damage",
    "ExportReport",
    "GcObject",
    "GcReport",
    "GiveUpReport",
    "Merged",
    "Orphan",
    "Problem",
    "RepairReport",
    "Report",
    "Stays",
    "Version",
    "collect_after_repair",
    "compact",
    "create_checkpoint",
    "delete_checkpoint",
    "export",
    "gc",
    "give_up_table",
    "import_",
    "list_checkpoints",
    "manifest",
    "probe",
    "promote",
    "refresh_checkpoint",
    "release_clone",
    "repair",
    "restore",
    "run_compactor",
    "run_gc",
    "seq_at",
    "verify",
    "versions",
]


def manifest(
    url: Url, id: int | None = None, *, store_options: StoreOptionsSource | None = None
) -> dict[str, Any]:
    """The manifest `id`, or the newest: the whole state of a database, as dicts and lists.

    :raises NotFound: there is no database here, or no manifest of that number (any more).
    :raises Invalid, Denied, Unavailable, Corruption, Unsupported: as their texts say.
    """
    return _native.manifest(_text(url), id, _store(store_options))


def create_checkpoint(
    url: Url,
    *,
    lifetime: Seconds | None = None,
    source: CheckpointLike | None = None,
    name: str | None = None,
    metadata: Mapping[str, str] | None = None,
    store_options: StoreOptionsSource | None = None,
) -> Checkpoint:
    """Makes a checkpoint beside a writer, or without one: of everything that is durable, in tables
    or in the WAL.

    :param lifetime: after this long it may be collected (a timedelta, seconds, or text such as
        "2h"); None: it lives until it is deleted.
    :param source: another checkpoint, whose state this one is to keep as well, instead of the
        present one.
    :param name: to find it by; unique in the database.
    :param metadata: facts to attach, of text.
    :raises NotFound: there is no database here.
    :raises Expired: the source is gone, or its time is over.
    :raises Conflict: another checkpoint has the name.
    :raises Invalid, Denied, Unavailable, Timeout, Corruption: as their texts say; where the outcome
        is not known they name the id.
    """
    asked = asked_for("durable", True, lifetime, source, name, metadata)
    return _native.create_checkpoint(_text(url), _store(store_options), asked)


def refresh_checkpoint(
    url: Url,
    id: CheckpointLike,
    *,
    lifetime: Seconds | None = None,
    store_options: StoreOptionsSource | None = None,
) -> Checkpoint:
    """Lets a checkpoint live for `lifetime` from now on, also one whose time is over and that was
    not collected yet.

    :param id: the checkpoint, its id, or its name.
    :param lifetime: a timedelta, seconds, or text such as "2h"; None: it lives until it is deleted.
    :raises NotFound: there is no database here.
    :raises Expired: the checkpoint is gone.
    :raises Conflict: it is a writer's own.
    :raises Invalid, Denied, Unavailable, Timeout, Corruption: as their texts say.
    """
    return _native.refresh_checkpoint(_text(url), _store(store_options), id, lifetime)


def delete_checkpoint(
    url: Url, id: CheckpointLike, *, store_options: StoreOptionsSource | None = None
) -> None:
    """Deletes a checkpoint: what nothing else needs is collected from then on.

    :param id: the checkpoint, its id, or its name.
    :raises NotFound: there is no database here.
    :raises Expired: the checkpoint is gone already.
    :raises Conflict: it is a writer's own.
    :raises Denied, Unavailable, Timeout, Corruption: as their texts say.
    """
    _native.delete_checkpoint(_text(url), _store(store_options), id)


def release_clone(
    url: Url,
    clone: CheckpointLike | os.PathLike[str],
    *,
    force: bool = False,
    store_options: StoreOptionsSource | None = None,
) -> list[Checkpoint]:
    """Releases what a clone pins in this database, its parent, once the clone is gone.

    A clone that is destroyed releases its pins by itself. A clone whose folder was removed by hand
    cannot, and its pin bars `destroy` of the parent and keeps tables there.

    A pin names the place of its clone (`metadata["clone at"]`). It is released if there is no
    database at that place, or another one, or if the clone there does not need the pin any more.

    :param clone: the identity of the clone, its place, or its pin: a checkpoint of this database
        whose `owner` is "clone".
    :param force: release the pin without looking. A clone that still exists loses the tables that
        it reads from this database. Needed for pins that name no place, which version 0.1 made,
        and in a copy of a parent, whose clones read the original.
    :returns: the checkpoints that were released.
    :raises NotFound: there is no database here, or no such pin.
    :raises Conflict: the clone is at its place, or the pin names no place.
    :raises Invalid: the checkpoint is not a clone's.
    :raises Unsupported: the clone's place is not reachable from here: see the store option
        `clone_parents`.
    :raises Denied, Unavailable, Timeout, Corruption: as their texts say.
    """
    which = os.fspath(clone) if isinstance(clone, os.PathLike) else clone
    return _native.release_clone(_text(url), _store(store_options), which, force)


def list_checkpoints(
    url: Url,
    *,
    name: str | None = None,
    processes: bool = False,
    store_options: StoreOptionsSource | None = None,
) -> list[Checkpoint]:
    """The checkpoints that somebody made, and those of clones, in the order of their making.
    Expired ones are there until they are collected.

    :param name: only the one with this name.
    :param processes: those as well that the writer and the readers keep for their own reads; they
        come and go by themselves.
    :raises NotFound: there is no database here.
    :raises Denied, Unavailable, Timeout, Corruption: as their texts say.
    """
    found = _native.list_checkpoints(_text(url), _store(store_options))
    return [
        one
        for one in found
        if (processes or one.owner in {"user", "clone"}) and name in {None, one.name}
    ]


def probe(url: Url, **_: object) -> NoReturn:
    """Not built yet. :raises Unsupported: always."""
    raise _not_built("admin.probe")


@dataclass(frozen=True, slots=True)
class Problem:
    """Something wrong in an object."""

    object: str
    """Its name below the database's root."""
    offset: int | None
    """From which byte of it on, where that is known."""
    what: str
    """What is wrong."""

    def __str__(self) -> str:
        place = "" if self.offset is None else f" at byte {self.offset}"
        return f"{self.object}{place}: {self.what}"


@dataclass(frozen=True, slots=True)
class Orphan:
    """An object that nothing names: no problem, only garbage."""

    object: str
    """Its name below the database's root."""
    bytes: int
    """Its length."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Report:
    """What `verify` found."""

    database: str
    """Identity of the database; all zeros when the newest manifest cannot be read."""
    manifest_id: int
    """The newest manifest, which was gone by."""
    manifests: int
    """Manifests that were read: the chain, and what checkpoints pin."""
    checkpoints: int
    """Present checkpoints, expired ones included."""
    boundaries: int
    """Boundary objects."""
    tables: int
    """Tables."""
    blocks: int
    """Data blocks in the tables."""
    entries: int
    """Entries in the tables: rows, older versions and tombstones."""
    tombstones: int
    """Tombstones among them."""
    wal_objects: int
    """WAL objects from the replay point on, fences included."""
    fences: int
    """Fences among them."""
    batches: int
    """Batches in the WAL."""
    operations: int
    """Operations in the batches."""
    bytes_read: int
    """Bytes that were read."""
    orphans: tuple[Orphan, ...]
    """Objects that nothing names."""
    problems: tuple[Problem, ...]
    """What is wrong, at most 1,000 of them."""
    problem_count: int
    """How many problems there are, those not listed included."""

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong."""
        return self.problem_count == 0

    def __repr__(self) -> str:
        word = "ok" if self.ok else f"{self.problem_count} problems, first: {self.problems[0]}"
        return _display.line("admin.Report", word, **self._key_numbers())

    def _key_numbers(self) -> dict[str, object]:
        return {
            "manifest_id": self.manifest_id,
            "tables": self.tables,
            "entries": self.entries,
            "wal_objects": self.wal_objects,
            "bytes_read": _display.binary(self.bytes_read),
            "orphans": len(self.orphans),
        }

    def _repr_html_(self) -> str:
        """What a notebook shows: whether all is well, the first numbers, and what is wrong."""
        rows: list[tuple[object, object]] = [("ok", self.ok), *self._key_numbers().items()]
        rows += [("problem", problem) for problem in self.problems]
        return _display.page("siltstone.admin.Report", rows)

    def to_dict(self) -> dict[str, Any]:
        """The same in plain types, and `ok`."""
        return {"ok": self.ok, **asdict(self)}


def verify(
    url: Url,
    *,
    store_options: StoreOptionsSource | None = None,
    on_progress: Callable[[int, int], object] | None = None,
) -> Report:
    """Reads and checks every byte of the database. Where the report is `ok`, every open, reader,
    checkpoint, consumer of the change feed and clone can read everything that is theirs.

    The chain of manifests: each decodes, none is missing, what only grows does. Boundaries. Every
    table: checksums of blocks and of the whole object, the order of keys, bounds, counts against
    properties, every key against the filter. The WAL from the replay point on, what checkpoints
    pin of it and what consumers hold: every object decodes, epochs and sequence numbers are in
    order, none is missing, and the objects and tables of ingest jobs in it are there. Of a clone
    also its tables in ancestors, and the pins that keep them. Works beside a writer, and changes
    nothing; memory stays bounded whatever the size of the database.

    :param on_progress: called a few times a second with the bytes read and the bytes to read, as
        far as that is known.
    :returns: counts, orphans, and what is wrong. Damage does not raise: look at `ok`.
    :raises NotFound: there is no database here.
    :raises Invalid, Denied, Unavailable, Timeout: as their texts say.
    """
    found = _native.verify(_text(url), _store(store_options), on_progress)
    problems = tuple(Problem(*each) for each in found.pop("problems"))
    orphans = tuple(Orphan(*each) for each in found.pop("orphans"))
    return Report(problems=problems, orphans=orphans, **found)


def restore(
    url: Url, checkpoint: CheckpointLike, *, store_options: StoreOptionsSource | None = None
) -> None:
    """Makes a checkpoint the current state of the database again. No table is copied.

    Whoever writes to it is ended first (`Fenced`); what was written since the checkpoint is undone,
    for whoever opens it from now on. Checkpoints stay, later ones too: make one before, and the
    restore can be undone. Readers that follow end with Expired, unless they were opened with the
    option `readers.follow_restores`; readers at a checkpoint go on.

    :param checkpoint: the checkpoint, its id, or its name.
    :raises NotFound: there is no database here.
    :raises Expired: the checkpoint is gone.
    :raises Fenced: somebody opened the database for writing meanwhile.
    :raises Denied, Unavailable, Timeout, Corruption, Unsupported: as their texts say; where the
        outcome is not known they say so, and the call can be repeated.
    """
    _native.restore(_text(url), _store(store_options), checkpoint)


@dataclass(frozen=True, slots=True)
class Version:
    """A state of the database that is still kept: ``open_reader(url, version=…)`` reads it."""

    id: int
    """The number of its manifest."""
    time: datetime
    """When the store took the manifest."""
    seq: int
    """The last sequence number in its tables."""

    def to_dict(self) -> dict[str, Any]:
        """As plain values, for JSON: the time as text of ISO 8601."""
        return {"id": self.id, "time": self.time.isoformat(), "seq": self.seq}


def versions(url: Url, *, store_options: StoreOptionsSource | None = None) -> list[Version]:
    """The versions that are kept, oldest first. Only a checkpoint keeps one for good; the others go
    with the collector's grace period.

    :raises NotFound: there is no database here.
    :raises Denied, Unavailable, Timeout, Corruption, Unsupported: as their texts say.
    """
    found = _native.versions(_text(url), _store(store_options))
    return [Version(id, moment(millis), seq) for id, millis, seq in found]


def seq_at(url: Url, time: datetime, *, store_options: StoreOptionsSource | None = None) -> int:
    """The last sequence number that was committed by `time`: exactly, as far back as the log
    reaches; before that, the last one in the tables of the newest version that is all that old.

    :param time: an aware datetime.
    :raises TypeError: for a datetime without a time zone.
    :raises NotFound: there is no database here.
    :raises Expired: nothing that is kept reaches back so far.
    :raises Denied, Unavailable, Timeout, Corruption, Unsupported: as their texts say.
    """
    if not isinstance(time, datetime) or time.utcoffset() is None:
        raise TypeError("time is a datetime with a time zone: datetime.now(UTC)")
    millis = max(0, (time - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1))
    return _native.seq_at(_text(url), _store(store_options), millis)
