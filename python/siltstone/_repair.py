"""Making a database that does not open openable again."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any
from uuid import UUID

from siltstone import _display, _native
from siltstone._open import StoreOptionsSource, Url, _store, _text

__all__ = [
    "Damage",
    "GiveUpReport",
    "RepairReport",
    "collect_after_repair",
    "give_up_table",
    "repair",
]


@dataclass(frozen=True, slots=True)
class Damage:
    """An object that bars opening."""

    object: str
    """Its name below the database's root."""
    what: str
    """What is wrong with it."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class RepairReport:
    """What bars opening a database, and what a repair gives up."""

    database: str
    """Identity of the database."""
    needed: bool
    """Whether anything bars opening it."""
    done: bool
    """Whether that was mended; otherwise the rest is what would be done."""
    damage: tuple[Damage, ...]
    """What bars it."""
    manifest_id: int
    """The manifest that is gone on from; once it was done, the one that goes on."""
    manifests_void: int
    """Later manifests that nobody can read: what only they said is lost."""
    seq_kept: int
    """Every row up to this sequence number is kept."""
    seq_lost: int | None
    """The last sequence number that is known to be lost; None where none is known."""
    rows_lost: int
    """Operations that are known to be lost."""
    objects_cut_off: int
    """Objects of the log that are cut off: the damaged one, and all behind it."""
    bytes_cut_off: int
    """Their bytes."""
    objects_unknown: int
    """Objects of the log that may have held rows which nobody can count: they are missing, or
    cannot be read."""
    checkpoints_dropped: tuple[UUID, ...]
    """Checkpoints that went, since what they pinned is gone. Known once it was done."""
    tables_stay: bool
    """Whether collectors leave tables that nobody names alone, until `collect_after_repair`."""
    tables_unnamed: int
    """Tables that no manifest names, where later manifests are passed over. Rows that only these
    tables hold are lost, unless the log has them still."""
    bytes_unnamed: int
    """Their bytes."""
    aside: str | None
    """The folder below the database's root where copies of what was passed over are."""

    def __repr__(self) -> str:
        word = "repaired" if self.done else "to be repaired" if self.needed else "nothing to repair"
        return _display.line("admin.RepairReport", word, **self._key_numbers())

    def _key_numbers(self) -> dict[str, object]:
        return {
            "damage": len(self.damage),
            "seq_kept": self.seq_kept,
            "rows_lost": self.rows_lost,
            "objects_unknown": self.objects_unknown,
        }

    def _repr_html_(self) -> str:
        """What a notebook shows: the first numbers, and what is wrong."""
        rows: list[tuple[object, object]] = [("done", self.done), *self._key_numbers().items()]
        rows += [(one.object, one.what) for one in self.damage]
        return _display.page("siltstone.admin.RepairReport", rows)

    def to_dict(self) -> dict[str, Any]:
        """The same in plain types."""
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class GiveUpReport:
    """A table that nobody can read, and what goes with it."""

    database: str
    """Identity of the database."""
    object: str
    """The table's object, by its name below the root of the database that holds it."""
    damage: str
    """What is wrong with it."""
    done: bool
    """Whether it was given up; otherwise the rest is what would be done."""
    layers: tuple[str, ...]
    """The layers that it is in: more than one where a clone was united of parts of it."""
    first_key: bytes
    """The smallest key that it may have held."""
    last_key: bytes
    """The largest key that it may have held."""
    rows_lost: int
    """Values and operands that it held. Of a table that is in sight in part, all of it."""
    tombstones: int
    """Deletes that it held. What they had deleted does not return."""
    rows_hidden: int
    """Rows of older tables that share keys with it. Which of them it had deleted or overwritten
    nobody can tell any more, so those between its first and its last key go as well: so many at
    most."""
    checkpoints_dropped: tuple[UUID, ...]
    """Checkpoints that hold it too, and go with it."""
    clones: tuple[str, ...]
    """Identities of clones that read it from here: it has to be given up in each of them too."""
    manifest_id: int
    """The manifest that this was seen in; once it was done, the one that goes on."""
    aside: str | None
    """The folder below the database's root where the copy is of what was there of it."""

    def __repr__(self) -> str:
        word = "given up" if self.done else "to be given up"
        return _display.line("admin.GiveUpReport", word, **self._key_numbers())

    def _key_numbers(self) -> dict[str, Any]:
        return {
            "first_key": self.first_key,
            "last_key": self.last_key,
            "rows_lost": self.rows_lost,
            "rows_hidden": self.rows_hidden,
        }

    def _repr_html_(self) -> str:
        """What a notebook shows: what is wrong, and the first numbers."""
        rows: list[tuple[object, object]] = [("done", self.done), (self.object, self.damage)]
        return _display.page("siltstone.admin.GiveUpReport", [*rows, *self._key_numbers().items()])

    def to_dict(self) -> dict[str, Any]:
        """The same in plain types; keys stay bytes."""
        return asdict(self)


def repair(
    url: Url,
    *,
    dry_run: bool = True,
    take_over: bool = False,
    store_options: StoreOptionsSource | None = None,
) -> RepairReport:
    """Tells what bars opening a database, and what would be lost by going on without it; with
    ``dry_run=False`` goes on without it.

    A damaged or missing object of the log cuts the log off there: rows before it are kept, it and
    all behind it are lost, so what is left is a state that once was. Damaged newest manifests are
    passed over: the newest manifest that can be read and has all its tables goes on, which is the
    one before them, or one that a checkpoint pins. Whatever is passed over is copied below
    ``damaged/`` first, where no collector looks, and nothing is deleted. Tables are not looked at:
    `verify` reads them, and `give_up_table` goes on without one. Put damaged objects back from a
    backup, or the bucket's older versions, where you can: that loses nothing.

    :param dry_run: only tell; nothing is changed.
    :param take_over: act also where a writer is known to be alive; it is ended (`Fenced`).
    :returns: what bars opening, and what is lost. Look at `needed`.
    :raises NotFound: there is no database here.
    :raises Conflict: not in a dry run: nothing bars opening, or a writer is alive. Always: somebody
        changes the database meanwhile; look again.
    :raises Corruption: no manifest is left to go on from.
    :raises Fenced: somebody opened the database for writing meanwhile.
    :raises Denied, Unavailable, Timeout, Unsupported: as their texts say; the call can be repeated.
    """
    found = _native.repair(_text(url), _store(store_options), dry_run, take_over)
    damage = tuple(Damage(*each) for each in found.pop("damage"))
    dropped = tuple(UUID(each) for each in found.pop("checkpoints_dropped"))
    return RepairReport(damage=damage, checkpoints_dropped=dropped, **found)


def give_up_table(
    url: Url,
    table: str,
    *,
    dry_run: bool = True,
    take_over: bool = False,
    store_options: StoreOptionsSource | None = None,
) -> GiveUpReport:
    """Tells what would be lost with a table that nobody can read, which `verify` names; with
    ``dry_run=False`` commits a state without it.

    Reading ends with `Corruption` or `NotFound` wherever it meets such a table, and compaction does
    too. Put it back from a backup, or the bucket's older versions, where you can: that loses
    nothing. Otherwise this copies what is there of it below ``damaged/`` and puts a delete of its
    keys in its place, since what it had deleted or overwritten would return: so rows of older
    tables between its first and last key go with it. Newer rows stay, and so does the log.
    Checkpoints that hold it go.

    :param table: the name of its object, such as
        ``compacted/01ARZ3NDEKTSV4RRFFQ69G5FAV.sst``, or the part of that which is its own.
    :param dry_run: only tell; nothing is changed.
    :param take_over: act also where a writer is known to be alive; it is ended (`Fenced`).
    :returns: which keys, how many rows, and who else holds it.
    :raises NotFound: there is no database here, or its current state names no such table.
    :raises Conflict: every row of the table can be read: nothing is given up then, and where
        something else of it is wrong, compaction writes it anew. Or a writer is alive; or somebody
        changes the layers meanwhile: look again.
    :raises Corruption: something else bars opening: `repair` it first.
    :raises Fenced: somebody opened the database for writing meanwhile.
    :raises Invalid: that is no name of a table.
    :raises Denied, Unavailable, Timeout, Unsupported: as their texts say; the call can be repeated.
    """
    found = _native.give_up_table(_text(url), _store(store_options), table, dry_run, take_over)
    dropped = tuple(UUID(each) for each in found.pop("checkpoints_dropped"))
    return GiveUpReport(checkpoints_dropped=dropped, **found)


def collect_after_repair(url: Url, *, store_options: StoreOptionsSource | None = None) -> None:
    """Lets collectors take tables that nobody names again. Since a repair passed over a manifest
    they stay: that one may have been the only one to name them.

    :raises NotFound: there is no database here.
    :raises Denied, Unavailable, Timeout, Corruption: as their texts say; the call can be repeated.
    """
    _native.collect_after_repair(_text(url), _store(store_options))
