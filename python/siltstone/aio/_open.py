"""The functions that open, clone and destroy databases, for asyncio."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from siltstone import _native
from siltstone._checkpoints import CheckpointLike, read_at
from siltstone._clone_parents import ParentsLike
from siltstone._open import (
    OpenMode,
    StoreOptionsSource,
    Url,
    _close_in_workers,
    _parents,
    _reader_arguments,
    _store,
    _text,
    hidden,
)
from siltstone.aio._handles import Database, Reader
from siltstone.aio._opening import Opening
from siltstone.merging import MergeOperatorSource, described
from siltstone.options import Options, named_options

__all__ = ["clone", "destroy", "open", "open_reader"]


def open(
    url: Url,
    *,
    create: bool = True,
    take_over: bool | None = None,
    shared: bool = False,
    allow_ingest_behind: bool = False,
    options: Options | Mapping[str, Any] | None = None,
    store_options: StoreOptionsSource | None = None,
    merge_operator: MergeOperatorSource | None = None,
) -> Opening[Database]:
    """Opens the database at `url` for writing: ``async with siltstone.aio.open(…) as db``, or ``db
    = await siltstone.aio.open(…)``. Arguments and errors are those of `siltstone.open`.

    If the wait is cancelled after the database was opened, it is closed in the background.
    """
    store_options = hidden(store_options)

    async def begin() -> Database:
        pending = _native.begin_open(
            _text(url),
            OpenMode(create, take_over, shared, allow_ingest_behind),
            named_options(options),
            _store(store_options),
            described(merge_operator),
        )
        _close_in_workers()
        return Database(await pending)

    return Opening(begin)


def open_reader(
    url: Url,
    *,
    checkpoint: CheckpointLike | None = None,
    version: int | None = None,
    options: Options | Mapping[str, Any] | None = None,
    store_options: StoreOptionsSource | None = None,
    merge_operator: MergeOperatorSource | None = None,
) -> Opening[Reader]:
    """Opens a reader of the database at `url`. Arguments and errors are those of
    `siltstone.open_reader`."""
    store_options = hidden(store_options)

    async def begin() -> Reader:
        at = read_at(checkpoint, version)
        operator = described(merge_operator)
        place, store, provider = _reader_arguments(url, store_options)
        named = named_options(options)
        pending = _native.begin_open_reader(
            place, named, store, provider, at, operator, merge_operator
        )
        return Reader(await pending)

    return Opening(begin)


async def clone(
    url: Url,
    *,
    parent: ParentsLike,
    checkpoint: CheckpointLike | None = None,
    start: bytes | None = None,
    end: bytes | None = None,
    store_options: StoreOptionsSource | None = None,
) -> None:
    """As `siltstone.clone`: creates a clone of one or more databases at `url`. If the wait is
    cancelled, the call continues in the background. A repeated call completes the same clone."""
    store_options = hidden(store_options)
    parents = _parents(parent, checkpoint)
    await _native.begin_clone(_text(url), parents, (start, end), _store(store_options))


async def destroy(
    url: Url, *, soft: bool = False, store_options: StoreOptionsSource | None = None
) -> None:
    """Destroys a database. Arguments and errors are those of `siltstone.destroy`. The call
    continues if the wait is cancelled."""
    store_options = hidden(store_options)
    await _native.begin_destroy(_text(url), soft, _store(store_options))
