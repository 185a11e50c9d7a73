"""Export and import for asyncio."""

from __future__ import annotations

from siltstone import _native
from siltstone._checkpoints import CheckpointLike
from siltstone._export import ExportReport, _places
from siltstone._open import StoreOptionsSource, Url, hidden

__all__ = ["export", "import_"]


async def export(
    url: Url,
    to: Url,
    *,
    checkpoint: CheckpointLike | None = None,
    store_options: StoreOptionsSource | None = None,
    to_store_options: StoreOptionsSource | None = None,
) -> ExportReport:
    """As `siltstone.admin.export`: exports a state of the database at `url` to a mirror at `to`.
    The call continues if the wait is cancelled."""
    store_options = hidden(store_options)
    to_store_options = hidden(to_store_options)
    source, target = _places(url, store_options, to, to_store_options)
    return ExportReport(*await _native.begin_export(source, target, checkpoint, False))


async def import_(
    url: Url,
    from_: Url,
    *,
    checkpoint: CheckpointLike | None = None,
    store_options: StoreOptionsSource | None = None,
    from_store_options: StoreOptionsSource | None = None,
) -> ExportReport:
    """As `siltstone.admin.import_`: imports the mirror or database at `from_` to `url`. The call
    continues if the wait is cancelled."""
    store_options = hidden(store_options)
    from_store_options = hidden(from_store_options)
    target, source = _places(url, store_options, from_, from_store_options)
    return ExportReport(*await _native.begin_export(source, target, checkpoint, True))
