"""Export and import: a state of a database, copied to a place where it opens by itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass

from siltstone import _display, _native
from siltstone._checkpoints import CheckpointLike
from siltstone._open import StoreOptionsSource, Url, _store, _text

__all__ = ["ExportReport", "export", "import_", "promote"]

_Place = tuple[str, dict[str, str | int | bool]]
# Names of one kind of store.
_KINDS = {"s3a": "s3", "azure": "az", "abfs": "az"}


@dataclass(frozen=True, slots=True, repr=False)
class ExportReport:
    """What an export came to."""

    tables_moved: int
    """Tables that are new in the copy, those included that an interrupted call had moved."""
    tables_shared: int
    """Tables that were there already."""
    bytes: int
    """Bytes of tables that this call moved."""

    def __repr__(self) -> str:
        return _display.line(
            "admin.ExportReport",
            tables_moved=self.tables_moved,
            tables_shared=self.tables_shared,
            bytes=_display.binary(self.bytes),
        )

    def to_dict(self) -> dict[str, int]:
        """The same in plain types."""
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
    """Copies a state of the database at `url` to a mirror at `to`: another folder, bucket, or kind
    of store.

    The mirror opens by itself, for readers, checkpoints and clones, and needs nothing of the
    source, its ancestors or its log. It takes no writes until it is promoted. A second export to
    the same place moves only what is new, and replaces the mirror's state in one step. Interrupted,
    the same call goes on. What the mirror needs no longer, `gc` on it deletes.

    Works beside a writer. Within one bucket the store copies by itself; elsewhere the bytes go
    through this process, and are checked.

    :param checkpoint: the state to copy: a checkpoint, its id, or its name; None: everything that
        is durable now.
    :param to_store_options: those of `to`; None: `store_options`, where both are the same kind of
        store.
    :param on_progress: called a few times a second with the bytes moved and the bytes to move.
    :raises NotFound: there is no database at `url`.
    :raises Expired: the checkpoint is gone.
    :raises Conflict: what stands at `to` is no mirror of this database, or was promoted; or a newer
        export to it has taken over.
    :raises Corruption: a table of the source is damaged.
    :raises Invalid, Denied, Unavailable, Timeout, Unsupported: as their texts say; where the
        outcome is not known they say so, and the call can be repeated.
    """
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
    """Makes a database at `url` out of what lies at `from_`, a mirror or any other database, and
    copies all of it: an `export` to `url`, promoted at its end. A repeated call goes on where the
    last one stopped. Where the same import has ended and nothing was written to `url` since, a
    repeated call copies nothing and succeeds.

    :param from_store_options: those of `from_`; None: `store_options`, where both are the same kind
        of store.
    :raises NotFound: there is no database at `from_`.
    :raises Conflict: something stands at `url` that no import of this database has begun, or the
        imported database was written to since.
    :raises Expired, Corruption, Invalid, Denied, Unavailable, Timeout, Unsupported: as for
        `export`.
    """
    target, source = _places(url, store_options, from_, from_store_options)
    return ExportReport(*_native.export(source, target, checkpoint, True, on_progress))


def promote(url: Url, *, store_options: StoreOptionsSource | None = None) -> None:
    """Makes the mirror at `url` a database like others: it takes writes from now on, and no exports
    any more. A repeated call succeeds as long as nothing was written to it.

    :raises NotFound: there is no database here.
    :raises Conflict: it is no mirror, or no export to it has ended yet.
    :raises Denied, Unavailable, Timeout, Corruption, Unsupported: as their texts say.
    """
    _native.promote(_text(url), _store(store_options))


def _places(
    url: Url,
    options: StoreOptionsSource | None,
    other: Url,
    other_options: StoreOptionsSource | None,
) -> tuple[_Place, _Place]:
    """Two places, with the options of their stores."""
    here, there = _text(url), _text(other)
    if other_options is None and _kind(here) == _kind(there):
        other_options = options
    return (here, _store(options)), (there, _store(other_options))


def _kind(url: str) -> str:
    scheme = url.partition("://")[0].lower() if "://" in url else ""
    return _KINDS.get(scheme, scheme)
