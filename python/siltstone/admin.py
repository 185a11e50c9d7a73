"""Administration of databases.

Every function takes the URL or path of a database, and works without an open writer and beside one.
Errors that any request can raise (`Denied`, `Unavailable`, `Timeout`, `Corruption`, `Unsupported`)
are described in `siltstone.exceptions`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from siltstone import _display, _native
from siltstone._checkpoints import Checkpoint, CheckpointLike, asked_for, moment
from siltstone._export import ExportReport, export, import_, promote
from siltstone._gc import Collected, GcObject, GcReport, Stays, gc, run_gc
from siltstone._history import HistoryEvent, history
from siltstone._numbers import count_of
from siltstone._open import StoreOptionsSource, Url, _store, _text, hidden
from siltstone._probe import StoreProperty, StoreReport, probe
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
    "HistoryEvent",
    "LostClone",
    "Merged",
    "Orphan",
    "Problem",
    "RepairReport",
    "Report",
    "Stays",
    "StoreProperty",
    "StoreReport",
    "Version",
    "collect_after_repair",
    "compact",
    "create_checkpoint",
    "delete_checkpoint",
    "export",
    "gc",
    "give_up_table",
    "history",
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
    """Returns a manifest, the whole state of a database, as dicts and lists.

    :param id: number of the manifest; None: the newest.
    :raises NotFound: if there is no database at `url`, or the manifest does not exist or was
        collected.
    :raises Invalid, Denied, Unavailable, Corruption, Unsupported: see `siltstone.exceptions`.
    """
    store_options = hidden(store_options)
    number = None if id is None else count_of(id, "id")
    return _native.manifest(_text(url), number, _store(store_options))


def create_checkpoint(
    url: Url,
    *,
    lifetime: Seconds | None = None,
    source: CheckpointLike | None = None,
    name: str | None = None,
    metadata: Mapping[str, str] | None = None,
    store_options: StoreOptionsSource | None = None,
) -> Checkpoint:
    """Creates a checkpoint of everything that is durable, in tables or in the WAL. A writer may be
    open at the same time.

    :param lifetime: time after which the checkpoint may be collected (a timedelta, seconds, or text
        such as "2h"). None: it lives until it is deleted.
    :param source: another checkpoint. The new one keeps the state of that checkpoint instead of the
        current state.
    :param name: name of the checkpoint, unique in the database.
    :param metadata: text values to attach, by name.
    :raises NotFound: if there is no database at `url`.
    :raises Expired: if the source has expired or does not exist.
    :raises Conflict: if another checkpoint has the name.
    :raises Invalid, Denied, Unavailable, Timeout, Corruption: see `siltstone.exceptions`. If the
        outcome is unknown, the error names the id of the checkpoint.
    """
    store_options = hidden(store_options)
    asked = asked_for("durable", True, lifetime, source, name, metadata)
    return _native.create_checkpoint(_text(url), _store(store_options), asked)


def refresh_checkpoint(
    url: Url,
    id: CheckpointLike,
    *,
    lifetime: Seconds | None = None,
    store_options: StoreOptionsSource | None = None,
) -> Checkpoint:
    """Sets the lifetime of a checkpoint, counted from now. An expired checkpoint that was not
    collected yet can be refreshed too.

    :param id: the checkpoint, its id, or its name.
    :param lifetime: a timedelta, seconds, or text such as "2h"; None: it lives until it is deleted.
    :returns: the checkpoint, with its new expiry.
    :raises NotFound: if there is no database at `url`.
    :raises Expired: if the checkpoint does not exist.
    :raises Conflict: if the checkpoint belongs to a writer.
    :raises Invalid, Denied, Unavailable, Timeout, Corruption: see `siltstone.exceptions`.
    """
    store_options = hidden(store_options)
    return _native.refresh_checkpoint(_text(url), _store(store_options), id, lifetime)


def delete_checkpoint(
    url: Url, id: CheckpointLike, *, store_options: StoreOptionsSource | None = None
) -> None:
    """Deletes a checkpoint. The garbage collector then deletes the objects that only this
    checkpoint needed.

    :param id: the checkpoint, its id, or its name.
    :raises NotFound: if there is no database at `url`.
    :raises Expired: if the checkpoint does not exist.
    :raises Conflict: if the checkpoint belongs to a writer, or pins a clone: see `release_clone`.
    :raises Denied, Unavailable, Timeout, Corruption: see `siltstone.exceptions`.
    """
    store_options = hidden(store_options)
    _native.delete_checkpoint(_text(url), _store(store_options), id)


def release_clone(
    url: Url,
    clone: CheckpointLike | os.PathLike[str],
    *,
    force: bool = False,
    store_options: StoreOptionsSource | None = None,
) -> list[Checkpoint]:
    """Releases the pin of a clone that no longer exists from this database, its parent.

    A clone that is destroyed releases its pins itself. A clone whose folder was removed by hand
    cannot: its pin prevents `destroy` of the parent and keeps tables there.

    A pin records the place of its clone (`metadata["clone at"]`). The pin is released if that place
    has no database or another database, or if the clone there no longer needs the pin.

    :param clone: identity of the clone, its place, or its pin: a checkpoint of this database whose
        `owner` is "clone".
    :param force: release the pin without a check. A clone that still exists loses the tables that
        it reads from this database. Required for pins without a place, which version 0.1 made, and
        in a copy of a parent, whose clones read the original.
    :returns: the checkpoints that were released.
    :raises NotFound: if there is no database at `url`, or no such pin.
    :raises Conflict: if the clone is at its place, or the pin records no place.
    :raises Invalid: if the checkpoint does not pin a clone.
    :raises Unsupported: if the place of the clone cannot be reached from here: set the store option
        `clone_parents`.
    :raises Denied, Unavailable, Timeout, Corruption: see `siltstone.exceptions`.
    """
    store_options = hidden(store_options)
    which = os.fspath(clone) if isinstance(clone, os.PathLike) else clone
    return _native.release_clone(_text(url), _store(store_options), which, force)


def list_checkpoints(
    url: Url,
    *,
    name: str | None = None,
    processes: bool = False,
    store_options: StoreOptionsSource | None = None,
) -> list[Checkpoint]:
    """Lists the checkpoints of users and of clones, oldest first. An expired checkpoint is listed
    until it is collected.

    :param name: list only the checkpoint with this name.
    :param processes: also list the checkpoints that the writer and readers create and delete for
        their own reads.
    :raises NotFound: if there is no database at `url`.
    :raises Denied, Unavailable, Timeout, Corruption: see `siltstone.exceptions`.
    """
    store_options = hidden(store_options)
    found = _native.list_checkpoints(_text(url), _store(store_options))
    return [
        one
        for one in found
        if (processes or one.owner in {"user", "clone"}) and name in {None, one.name}
    ]


@dataclass(frozen=True, slots=True)
class Problem:
    """A problem that `verify` found in an object."""

    object: str
    """Name of the object below the root of the database."""
    offset: int | None
    """Offset of the problem in bytes; None if unknown."""
    what: str
    """Description of the problem."""

    def __str__(self) -> str:
        place = "" if self.offset is None else f" at byte {self.offset}"
        return f"{self.object}{place}: {self.what}"


@dataclass(frozen=True, slots=True)
class Orphan:
    """An unreferenced object. It is garbage, not a problem."""

    object: str
    """Name of the object below the root of the database."""
    bytes: int
    """Length of the object in bytes."""


@dataclass(frozen=True, slots=True)
class LostClone:
    """A clone that is not at the place which its pin records: it was removed or moved by hand. Its
    pin retains tables of this database and prevents `destroy`, until `release_clone` releases it.
    It is not a problem for reads."""

    clone: str
    """Identity of the clone."""
    place: str
    """The place at which it was."""
    pin: str
    """Identity of its pin, a checkpoint of this database."""

    def __str__(self) -> str:
        return (
            f"the clone {self.clone} is not at {self.place}: if it was removed, release its pin "
            f"with release_clone({self.pin!r}); if it was moved, move it back"
        )


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Report:
    """The result of `verify`."""

    database: str
    """Identity of the database; all zeros if the newest manifest cannot be read."""
    manifest_id: int
    """Number of the newest manifest, which was verified."""
    manifests: int
    """Manifests that were read: the chain, and those that checkpoints pin."""
    checkpoints: int
    """Checkpoints, expired ones included."""
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
    sealed_objects: int
    """Encrypted objects of which only the form was checked, because no key was given."""
    orphans: tuple[Orphan, ...]
    """Unreferenced objects."""
    lost_clones: tuple[LostClone, ...]
    """Clones that are not at their places, and whose pins remain. They do not affect `ok`."""
    problems: tuple[Problem, ...]
    """The problems, at most 1,000 of them."""
    problem_count: int
    """Number of all problems, including those that are not listed."""

    @property
    def ok(self) -> bool:
        """Whether everything was checked and there is no problem. False for an encrypted database
        that is verified without its key."""
        return self.problem_count == 0 and self.sealed_objects == 0

    def __repr__(self) -> str:
        word = "ok" if self.ok else f"{self.sealed_objects} encrypted objects checked in form only"
        if self.problems:
            word = f"{self.problem_count} problems, first: {self.problems[0]}"
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
        """HTML for notebooks: `ok`, the key figures and the problems."""
        rows: list[tuple[object, object]] = [("ok", self.ok), *self._key_numbers().items()]
        rows += [("problem", problem) for problem in self.problems]
        rows += [("lost clone", clone) for clone in self.lost_clones]
        return _display.page("siltstone.admin.Report", rows)

    def to_dict(self) -> dict[str, Any]:
        """The fields and `ok`, in plain types."""
        return {"ok": self.ok, **asdict(self)}


def verify(
    url: Url,
    *,
    store_options: StoreOptionsSource | None = None,
    on_progress: Callable[[int, int], object] | None = None,
) -> Report:
    """Reads and checks every byte of the database. If the report is `ok`, the writer and every
    reader, checkpoint, consumer of the change feed and clone can read all of their data.

    `verify` checks:

    - the chain of manifests: each manifest decodes, none is missing, and counters never decrease
    - boundary objects
    - every table: the checksums of blocks and of the whole object, the order of keys, bounds,
      counts against properties, and every key against the filter
    - the WAL from the replay point on, and the parts that checkpoints pin and consumers retain:
      every object decodes, epochs and sequence numbers are in order, no object is missing, and the
      objects and tables of ingest jobs exist
    - of a clone, its tables in ancestors and the pins that keep them
    - of a parent, whether its clones are at the places that their pins record
    - of an encrypted database, without the store option `encryption_key`: its data keys, and that
      each object has the form of an encrypted one and names a data key that exists; the report
      counts these objects (`sealed_objects`) and is not `ok`

    It works beside a writer and changes nothing. Its memory is bounded, independent of the size of
    the database.

    :param on_progress: called a few times a second with the bytes read and the bytes to read, as
        far as known.
    :returns: counts, orphans, lost clones and problems. Damage raises no exception: check `ok`.
    :raises NotFound: if there is no database at `url`.
    :raises Invalid, Denied, Unavailable, Timeout: see `siltstone.exceptions`.
    """
    store_options = hidden(store_options)
    found = _native.verify(_text(url), _store(store_options), on_progress)
    problems = tuple(Problem(*each) for each in found.pop("problems"))
    orphans = tuple(Orphan(*each) for each in found.pop("orphans"))
    lost = (
        LostClone(clone, place, str(UUID(pin))) for clone, place, pin in found.pop("lost_clones")
    )
    return Report(problems=problems, orphans=orphans, lost_clones=tuple(lost), **found)


def restore(
    url: Url, checkpoint: CheckpointLike, *, store_options: StoreOptionsSource | None = None
) -> None:
    """Restores the database to a checkpoint. No table is copied.

    An open writer is fenced first (`Fenced`). All writes since the checkpoint are undone.
    Checkpoints are kept, later ones too: to be able to undo the restore, create a checkpoint before
    it. A following reader ends with Expired, unless it was opened with the option
    `readers.follow_restores`. A reader at a checkpoint is not affected.

    :param checkpoint: the checkpoint, its id, or its name.
    :raises NotFound: if there is no database at `url`.
    :raises Expired: if the checkpoint does not exist.
    :raises Fenced: if another process opened the database for writing during the call.
    :raises Denied, Unavailable, Timeout, Corruption, Unsupported: see `siltstone.exceptions`. If
        the outcome is unknown, the error says so, and the call can be repeated.
    """
    store_options = hidden(store_options)
    _native.restore(_text(url), _store(store_options), checkpoint)


@dataclass(frozen=True, slots=True)
class Version:
    """A state of the database that is still kept. ``open_reader(url, version=…)`` reads it."""

    id: int
    """Number of the manifest."""
    time: datetime
    """Time at which the store wrote the manifest."""
    seq: int
    """Last sequence number in the tables of the version."""

    def to_dict(self) -> dict[str, Any]:
        """The fields as plain values for JSON; the time is text in ISO 8601."""
        return {"id": self.id, "time": self.time.isoformat(), "seq": self.seq}


def versions(url: Url, *, store_options: StoreOptionsSource | None = None) -> list[Version]:
    """Lists the versions that are kept, oldest first. A checkpoint keeps its version. The garbage
    collector deletes other versions after its grace period.

    :raises NotFound: if there is no database at `url`.
    :raises Denied, Unavailable, Timeout, Corruption, Unsupported: see `siltstone.exceptions`.
    """
    store_options = hidden(store_options)
    found = _native.versions(_text(url), _store(store_options))
    return [Version(id, moment(millis), seq) for id, millis, seq in found]


def seq_at(url: Url, time: datetime, *, store_options: StoreOptionsSource | None = None) -> int:
    """Returns the last sequence number that was committed at or before `time`.

    The result is exact while the log covers `time`. For an earlier time it is the last sequence
    number in the tables of the newest version that holds no later write.

    :param time: an aware datetime.
    :raises TypeError: if `time` has no time zone.
    :raises NotFound: if there is no database at `url`.
    :raises Expired: if no kept log or version is that old.
    :raises Denied, Unavailable, Timeout, Corruption, Unsupported: see `siltstone.exceptions`.
    """
    store_options = hidden(store_options)
    if not isinstance(time, datetime) or time.utcoffset() is None:
        raise TypeError("time must be a datetime with a time zone, such as datetime.now(UTC)")
    millis = max(0, (time - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1))
    return _native.seq_at(_text(url), _store(store_options), millis)
