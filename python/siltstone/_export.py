"""Export, import and promotion of mirrors; `siltstone.admin` exports them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass

from siltstone import _display, _native
from siltstone._checkpoints import CheckpointLike
from siltstone._open import StoreOptionsSource, Url, _Hidden, _store, _text, hidden

__all__ = ["ExportReport", "export", "import_", "promote"]

_Place = tuple[str, dict[str, str | int | bool]]
# Options that every kind of store takes.
_COMMON = ("encryption_key",)
# Alternative names of one kind of store.
_KINDS = {"s3a": "s3", "azure": "az", "abfs": "az"}


@dataclass(frozen=True, slots=True, repr=False)
class ExportReport:
    """The result of an export or import."""

    tables_moved: int
    """Tables that are new in the copy, including those that an interrupted call copied."""
    tables_shared: int
    """Tables that the copy already had."""
    bytes: int
    """Bytes of tables that this call copied."""

    def __repr__(self) -> str:
        return _display.line(
            "admin.ExportReport",
            tables_moved=self.tables_moved,
            tables_shared=self.tables_shared,
            bytes=_display.binary(self.bytes),
        )

    def to_dict(self) -> dict[str, int]:
        """The fields in plain types."""
        return asdict(self)


def export(
    url: Url,
    to: Url,
    *,
    checkpoint: CheckpointLike | None = None,
    store_options: StoreOptionsSource | None = None,
    to_store_options: StoreOptionsSource | None = None,
    on_progress: Callable[[int, int], object] | None = None,
) -> ExportReport:
    """Exports a state of the database at `url` to a mirror at `to`: another folder, another bucket,
    or another kind of store.

    The mirror depends neither on the source nor on its ancestors or its log. Readers, checkpoints
    and clones work on it. It is read-only until it is promoted. A second export to the same place
    copies only new tables, and replaces the state of the mirror in one step. Repeat an interrupted
    call to resume it. `gc` on the mirror deletes the objects that it no longer needs.

    The export works beside a writer. Within one bucket the store copies the tables; otherwise the
    bytes go through this process, which checks them.

    :param checkpoint: the checkpoint to copy, given as itself, its id, or its name; None: the state
        that is durable now.
    :param to_store_options: store options of `to`. None: `store_options`, or only its
        `encryption_key` if the stores are of different kinds. A copy of an encrypted database with
        other options, without a key, is readable without one; the log warns.
    :param on_progress: called a few times a second with the bytes copied and the bytes to copy.
    :raises NotFound: if there is no database at `url`.
    :raises Expired: if the checkpoint does not exist.
    :raises Conflict: if `to` holds something other than a mirror of this database, if the mirror
        was promoted, or if a newer export to it has taken over.
    :raises Corruption: if a table of the source is damaged.
    :raises Invalid, Denied, Unavailable, Timeout, Unsupported: see `siltstone.exceptions`. If the
        outcome is unknown, the error says so, and the call can be repeated.
    """
    store_options = hidden(store_options)
    to_store_options = hidden(to_store_options)
    source, target = _places(url, store_options, to, to_store_options)
    return ExportReport(*_native.export(source, target, checkpoint, False, on_progress))


def import_(
    url: Url,
    from_: Url,
    *,
    checkpoint: CheckpointLike | None = None,
    store_options: StoreOptionsSource | None = None,
    from_store_options: StoreOptionsSource | None = None,
    on_progress: Callable[[int, int], object] | None = None,
) -> ExportReport:
    """Imports the mirror or database at `from_` as a new database at `url`: an `export` to `url`
    that copies all tables and is promoted at its end. Repeat an interrupted call to resume it. If
    the same import was completed and `url` was not written to since, a repeated call copies nothing
    and succeeds.

    :param checkpoint: as for `export`.
    :param from_store_options: store options of `from_`. None: `store_options`, or only its
        `encryption_key` if the stores are of different kinds.
    :param on_progress: as for `export`.
    :raises NotFound: if there is no database at `from_`.
    :raises Conflict: if `url` holds something other than an import of this database, or the
        imported database was written to since.
    :raises Expired, Corruption, Invalid, Denied, Unavailable, Timeout, Unsupported: as for
        `export`.
    """
    store_options = hidden(store_options)
    from_store_options = hidden(from_store_options)
    target, source = _places(url, store_options, from_, from_store_options)
    return ExportReport(*_native.export(source, target, checkpoint, True, on_progress))


def promote(url: Url, *, store_options: StoreOptionsSource | None = None) -> None:
    """Promotes the mirror at `url` to a writable database. A promoted mirror accepts writes and
    refuses further exports. A repeated call succeeds until the database is written to.

    :raises NotFound: if there is no database at `url`.
    :raises Conflict: if it is not a mirror, or no export to it has completed.
    :raises Denied, Unavailable, Timeout, Corruption, Unsupported: see `siltstone.exceptions`.
    """
    store_options = hidden(store_options)
    _native.promote(_text(url), _store(store_options))


def _places(
    url: Url,
    options: StoreOptionsSource | None,
    other: Url,
    other_options: StoreOptionsSource | None,
) -> tuple[_Place, _Place]:
    """Returns both places with the options of their stores."""
    here, there = _text(url), _text(other)
    own = _store(options)
    if other_options is not None:
        return (here, own), (there, _store(other_options))
    if _kind(here) == _kind(there):
        return (here, own), (there, _store(options))
    # A copy of encrypted data is encrypted too, in every kind of store.
    return (here, own), (there, _Hidden({name: own[name] for name in _COMMON if name in own}))


def _kind(url: str) -> str:
    scheme = url.partition("://")[0].lower() if "://" in url else ""
    return _KINDS.get(scheme, scheme)
