"""Opening databases."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import Any

from siltstone import _native
from siltstone._native import Database, Reader
from siltstone.exceptions import Unsupported
from siltstone.options import Options, named_options

__all__ = ["clone", "destroy", "open", "open_reader"]

Url = str | os.PathLike[str]
"""``s3://bucket/path``, ``gs://…``, ``az://…``, ``file:///…``, ``memory://name`` (shared in the
process), or a path of a local folder."""
StoreOptions = Mapping[str, str | int | bool]
"""Credentials, endpoint, region, as the object store's client names them. Environment variables
work too. They are never shown in texts, logs or pickles."""


def open(
    url: Url,
    *,
    create: bool = True,
    take_over: bool = True,
    options: Options | Mapping[str, Any] | None = None,
    store_options: StoreOptions | None = None,
    merge_operator: object = None,
) -> Database:
    """Opens the database at `url` for writing. A database has one writer: this handle.

    :param create: make the database where there is none; otherwise that is NotFound.
    :param take_over: fence a writer that did not close cleanly; otherwise that is Conflict, naming
        its epoch.
    :param options: `Options`, or a dict of the same names.
    :param store_options: what the store is reached with.
    :param merge_operator: not built yet.
    :raises NotFound: there is no database and `create` is off.
    :raises Conflict: the last writer did not close cleanly and `take_over` is off.
    :raises Invalid: the URL, an option, or a setting that the database was made with.
    :raises Denied, Unavailable, Corruption, Unsupported: as their texts say.
    """
    if merge_operator is not None:
        raise _not_built("open(merge_operator=…)")
    named = named_options(options)
    database = _native.open(_text(url), create, take_over, named, _store(store_options))
    _close_in_workers()
    return database


def open_reader(
    url: Url,
    *,
    checkpoint: object = None,
    version: int | None = None,
    options: Options | Mapping[str, Any] | None = None,
    store_options: StoreOptions | None = None,
    merge_operator: object = None,
) -> Reader:
    """Opens a reader of the database at `url`: any number of them, in any process.

    It sees whole writes in commit order, as far as they are durable, and follows the writer every
    `manifest_poll_interval`.

    :param checkpoint: not built yet.
    :param version: not built yet.
    :param options: as for `open`; those about writing have no effect.
    :param store_options: as for `open`.
    :param merge_operator: not built yet.
    :raises NotFound: there is no database.
    :raises Invalid, Denied, Unavailable, Corruption, Unsupported: as their texts say.
    """
    if checkpoint is not None:
        raise _not_built("open_reader(checkpoint=…)")
    if version is not None:
        raise _not_built("open_reader(version=…)")
    if merge_operator is not None:
        raise _not_built("open_reader(merge_operator=…)")
    return _native.open_reader(_text(url), named_options(options), _store(store_options))


def reopen_reader(url: str, named: dict[str, Any]) -> Reader:
    """What an unpickled reader calls: store options come from this process's environment."""
    return _native.open_reader(url, named, {})


def clone(
    url: Url,
    *,
    parent: Url,
    checkpoint: object = None,
    store_options: StoreOptions | None = None,
) -> None:
    """Not built yet: makes a writable copy that shares its parent's tables.

    :raises Unsupported: always.
    """
    raise _not_built("clone")


def destroy(url: Url, *, soft: bool = False, store_options: StoreOptions | None = None) -> None:
    """Not built yet: deletes a database.

    :raises Unsupported: always.
    """
    raise _not_built("destroy")


def _not_built(feature: str) -> Unsupported:
    text = f"{feature} is not built yet in this version of Siltstone"
    return Unsupported(text, context={"feature": feature})


def _text(url: Url) -> str:
    text = os.fspath(url)
    if not isinstance(text, str):
        raise TypeError(f"a URL or path is str or os.PathLike[str], not {type(url).__name__}")
    return text


def _store(options: StoreOptions | None) -> dict[str, str | int | bool]:
    if options is None:
        return {}
    if not isinstance(options, Mapping):
        raise TypeError(f"store_options takes a dict, not {type(options).__name__}")
    return dict(options)


_hooked_workers: set[int] = set()


def _close_in_workers() -> None:
    """Has `multiprocessing` close what is open: its forked workers skip `atexit`."""
    util = sys.modules.get("multiprocessing.util")
    if util is not None and os.getpid() not in _hooked_workers:
        _hooked_workers.add(os.getpid())
        util.Finalize(None, _native.at_exit, exitpriority=100)
