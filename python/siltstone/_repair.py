"""Repair of a database that cannot be opened; `siltstone.admin` exports it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any
from uuid import UUID

from siltstone import _display, _native
from siltstone._open import StoreOptionsSource, Url, _store, _text, hidden

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
    """A damaged object that prevents opening or compaction."""

    object: str
    """Name of the object below the root of the database."""
    what: str
    """Description of the damage."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class RepairReport:
    """The damage that prevents opening or compacting a database, and the data that a repair
    loses."""

    database: str
    """Identity of the database."""
    needed: bool
    """Whether damage prevents opening the database or its compaction."""
    done: bool
    """Whether the repair was done. If not, the other fields say what a repair would do."""
    damage: tuple[Damage, ...]
    """The damaged objects that prevent opening or compaction."""
    manifest_id: int
    """Number of the manifest from which the database continues. After a repair: the manifest that
    the repair committed."""
    manifests_void: int
    """Number of later manifests that cannot be read. Information that only they held is lost."""
    seq_kept: int
    """All rows up to this sequence number are kept."""
    seq_lost: int | None
    """The last sequence number that is known to be lost; None if none is known."""
    rows_lost: int
    """Number of operations that are known to be lost. If `objects_unknown` is not 0, more may be
    lost."""
    objects_cut_off: int
    """Objects of the log that are cut off: the damaged object and all later ones."""
    bytes_cut_off: int
    """Their size in bytes."""
    objects_unknown: int
    """Objects of the log that are missing or cannot be read, so that the number of their rows is
    unknown. At least 1 if the separate store of the log was emptied or replaced, because nothing
    tells then how many objects it had."""
    checkpoints_dropped: tuple[UUID, ...]
    """Checkpoints that were dropped because the state that they pin is lost. Known after the
    repair."""
    tables_stay: bool
    """Whether collectors keep unreferenced tables until `collect_after_repair` is called."""
    tables_unnamed: int
    """Number of unreferenced tables, if later manifests are skipped. Rows that only these tables
    hold are lost, unless the log still has them."""
    bytes_unnamed: int
    """Their size in bytes."""
    aside: str | None
    """Folder with copies of the skipped objects, below the root of the database; None if there are
    none."""

    def __repr__(self) -> str:
        word = "repaired" if self.done else "to be repaired" if self.needed else "nothing to repair"
        return _display.line("admin.RepairReport", word, **self._key_numbers())

    def _key_numbers(self) -> dict[str, object]:
        return {
            "damage": len(self.damage),
            "seq_kept": self.seq_kept,
            "rows_lost": lost_in_words(self),
            "objects_unknown": self.objects_unknown,
        }

    def _repr_html_(self) -> str:
        """HTML for notebooks: the key figures and the damage."""
        rows: list[tuple[object, object]] = [("done", self.done), *self._key_numbers().items()]
        rows += [(one.object, one.what) for one in self.damage]
        return _display.page("siltstone.admin.RepairReport", rows)

    def to_dict(self) -> dict[str, Any]:
        """The fields in plain types."""
        return asdict(self)


def lost_in_words(report: RepairReport) -> str:
    """The number of operations that a repair loses, as far as it is known."""
    if not report.objects_unknown:
        return str(report.rows_lost)
    return f"at least {report.rows_lost}" if report.rows_lost else "unknown"


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class GiveUpReport:
    """An unreadable table, and the data that is lost when it is given up."""

    database: str
    """Identity of the database."""
    object: str
    """Name of the object of the table, below the root of the database that holds it."""
    damage: str
    """Description of the damage."""
    done: bool
    """Whether the table was given up. If not, the other fields say what giving it up would do."""
    layers: tuple[str, ...]
    """The layers that contain the table. More than one if the database is a union of clones that
    hold parts of it."""
    first_key: bytes
    """Smallest key that the table may have held."""
    last_key: bytes
    """Largest key that the table may have held."""
    rows_lost: int
    """Number of values and merge operands in the table. If only a part of the table is visible, the
    whole table is counted."""
    tombstones: int
    """Number of deletes in the table. Rows that they deleted do not reappear."""
    rows_hidden: int
    """Upper bound of the rows of older tables that are lost too. The table may have deleted or
    overwritten any row between its first and its last key, so all older rows there are deleted."""
    checkpoints_dropped: tuple[UUID, ...]
    """Checkpoints that hold the table, and are dropped with it."""
    clones: tuple[str, ...]
    """Identities of clones that read the table from here. Give it up in each of them too."""
    manifest_id: int
    """Number of the manifest that holds the table. After giving it up: the manifest that the call
    committed."""
    aside: str | None
    """Folder with a copy of the damaged object, below the root of the database; None if there was
    none."""

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
        """HTML for notebooks: the damage and the key figures."""
        rows: list[tuple[object, object]] = [("done", self.done), (self.object, self.damage)]
        return _display.page("siltstone.admin.GiveUpReport", [*rows, *self._key_numbers().items()])

    def to_dict(self) -> dict[str, Any]:
        """The fields in plain types; keys are bytes."""
        return asdict(self)


def repair(
    url: Url,
    *,
    dry_run: bool = True,
    take_over: bool = False,
    store_options: StoreOptionsSource | None = None,
) -> RepairReport:
    """Reports the damage that prevents opening or compacting a database and the data that a repair
    loses. With ``dry_run=False`` it repairs the database.

    A damaged or missing object of the log cuts the log off at that object: earlier rows are kept,
    and the rows of that object and of all later ones are lost. The result is a state that the
    database had before. Damaged newest manifests are skipped: the database continues from the
    newest manifest that can be read and has all its tables, either an earlier one or one that a
    checkpoint pins. A damaged record of compaction jobs costs only the work of unfinished jobs. If
    the separate store of the log (`wal_url`) was emptied or replaced, the database continues from
    its tables: all rows that were not flushed are lost, and their number is unknown.

    All skipped objects are first copied below ``damaged/``, which collectors ignore. The repair
    deletes nothing. It does not read tables: `verify` reads them, and `give_up_table` gives one up.
    If you have a backup or older versions in the bucket, put the damaged objects back instead: that
    loses no data.

    :param dry_run: only report; change nothing.
    :param take_over: repair even if a writer is known to be alive; that writer is fenced
        (`Fenced`).
    :returns: the damage and the loss. Check `needed`.
    :raises NotFound: if there is no database at `url`.
    :raises Conflict: if the database changes during the call: call again. Without `dry_run` also if
        no damage prevents opening or compaction, or a writer is alive.
    :raises Corruption: if no manifest is left to continue from.
    :raises Fenced: if another process opened the database for writing during the call.
    :raises Denied, Unavailable, Timeout, Unsupported: see `siltstone.exceptions`. The call can be
        repeated.
    """
    store_options = hidden(store_options)
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
    """Reports what is lost when an unreadable table is given up. With ``dry_run=False`` it gives
    the table up.

    A read that meets such a table ends with `Corruption` or `NotFound`, and so does compaction. If
    you have a backup or older versions in the bucket, put the object back instead: that loses no
    data.

    The call copies the rest of the object below ``damaged/`` and replaces the table with a delete
    of its key range, because otherwise rows that the table had deleted or overwritten would
    reappear. Rows of older tables between its first and last key are therefore lost too. Newer rows
    and the log are kept. Checkpoints that hold the table are dropped.

    :param table: name of the object of the table, such as
        ``compacted/01ARZ3NDEKTSV4RRFFQ69G5FAV.sst``, or only its id.
    :param dry_run: only report; change nothing.
    :param take_over: act even if a writer is known to be alive; that writer is fenced (`Fenced`).
    :returns: the key range, the number of rows, and the checkpoints and clones that hold the table.
    :raises NotFound: if there is no database at `url`, or its current state has no such table.
    :raises Conflict: if all rows of the table can be read: it is not given up, and compaction
        rewrites it if other parts are damaged. Also if a writer is alive, or if the layers change
        during the call: call again.
    :raises Corruption: if other damage prevents opening: `repair` the database first.
    :raises Fenced: if another process opened the database for writing during the call.
    :raises Invalid: if `table` is not the name of a table.
    :raises Denied, Unavailable, Timeout, Unsupported: see `siltstone.exceptions`. The call can be
        repeated.
    """
    store_options = hidden(store_options)
    found = _native.give_up_table(_text(url), _store(store_options), table, dry_run, take_over)
    dropped = tuple(UUID(each) for each in found.pop("checkpoints_dropped"))
    return GiveUpReport(checkpoints_dropped=dropped, **found)


def collect_after_repair(url: Url, *, store_options: StoreOptionsSource | None = None) -> None:
    """Allows collectors again to delete unreferenced tables. After a repair that skipped a
    manifest, collectors keep them, because the skipped manifest may have been the only reference.
    Verify the clones of the database first: the pin of a clone may have been recorded only there.
    Export a clone whose pin is gone, and go on with the copy.

    :raises NotFound: if there is no database at `url`.
    :raises Denied, Unavailable, Timeout, Corruption: see `siltstone.exceptions`. The call can be
        repeated.
    """
    store_options = hidden(store_options)
    _native.collect_after_repair(_text(url), _store(store_options))
