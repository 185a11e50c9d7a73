"""Administration: works without a writer."""

from __future__ import annotations

from typing import Any, NoReturn

from siltstone import _native
from siltstone.opening import StoreOptionsSource, Url, _not_built, _store, _text

__all__ = [
    "compact",
    "create_checkpoint",
    "delete_checkpoint",
    "export",
    "gc",
    "import_",
    "list_checkpoints",
    "manifest",
    "probe",
    "refresh_checkpoint",
    "restore",
    "run_compactor",
    "run_gc",
    "verify",
]


def manifest(
    url: Url, id: int | None = None, *, store_options: StoreOptionsSource | None = None
) -> dict[str, Any]:
    """The manifest `id`, or the newest: the whole state of a database, as dicts and lists.

    :raises NotFound: there is no database here, or no manifest of that number (any more).
    :raises Invalid, Denied, Unavailable, Corruption, Unsupported: as their texts say.
    """
    return _native.manifest(_text(url), id, _store(store_options))


def create_checkpoint(url: Url, **_: object) -> NoReturn:
    """Not built yet. :raises Unsupported: always."""
    raise _not_built("admin.create_checkpoint")


def refresh_checkpoint(url: Url, id: object, **_: object) -> NoReturn:
    """Not built yet. :raises Unsupported: always."""
    raise _not_built("admin.refresh_checkpoint")


def delete_checkpoint(url: Url, id: object, **_: object) -> NoReturn:
    """Not built yet. :raises Unsupported: always."""
    raise _not_built("admin.delete_checkpoint")


def list_checkpoints(url: Url, **_: object) -> NoReturn:
    """Not built yet. :raises Unsupported: always."""
    raise _not_built("admin.list_checkpoints")


def run_compactor(url: Url, **_: object) -> NoReturn:
    """Not built yet. :raises Unsupported: always."""
    raise _not_built("admin.run_compactor")


def run_gc(url: Url, **_: object) -> NoReturn:
    """Not built yet. :raises Unsupported: always."""
    raise _not_built("admin.run_gc")


def compact(url: Url, **_: object) -> NoReturn:
    """Not built yet. :raises Unsupported: always."""
    raise _not_built("admin.compact")


def gc(url: Url, **_: object) -> NoReturn:
    """Not built yet. :raises Unsupported: always."""
    raise _not_built("admin.gc")


def probe(url: Url, **_: object) -> NoReturn:
    """Not built yet. :raises Unsupported: always."""
    raise _not_built("admin.probe")


def verify(url: Url, **_: object) -> NoReturn:
    """Not built yet. :raises Unsupported: always."""
    raise _not_built("admin.verify")


def restore(url: Url, checkpoint: object, **_: object) -> NoReturn:
    """Not built yet. :raises Unsupported: always."""
    raise _not_built("admin.restore")


def export(url: Url, to: Url, **_: object) -> NoReturn:
    """Not built yet. :raises Unsupported: always."""
    raise _not_built("admin.export")


def import_(url: Url, **_: object) -> NoReturn:
    """Not built yet. :raises Unsupported: always."""
    raise _not_built("admin.import_")
