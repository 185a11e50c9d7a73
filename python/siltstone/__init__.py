"""Siltstone: an embedded, ordered key-value store that lives in an object store.

    import siltstone

    with siltstone.open("s3://bucket/db") as db:
        db[b"layer"] = b"stone"             # visible at once, durable soon
        db.put(b"key", b"value").wait()     # durable
        for key, value in db.scan(prefix=b"la"):
            print(key, value)

A database has one writer and any number of readers, each in its own process. There is no server.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from siltstone import _log_forwarding  # noqa: F401 - so that no opening waits for its import
from siltstone._checkpoints import Checkpoint
from siltstone._clone_parents import Parent
from siltstone._entry import Entry
from siltstone._load_result import LoadResult
from siltstone._native import (
    ArrowArray,
    ArrowStream,
    Commit,
    Database,
    Reader,
    Savepoint,
    Scan,
    Snapshot,
    Transaction,
    WriteBatch,
    __version__,
)
from siltstone._open import clone, destroy, open, open_reader
from siltstone._transaction_retry import retry
from siltstone.exceptions import (
    Closed,
    Conflict,
    Corruption,
    Denied,
    Error,
    Expired,
    Fenced,
    Internal,
    Invalid,
    NotFound,
    Timeout,
    Unavailable,
    Unsupported,
)
from siltstone.merging import MergeOperator
from siltstone.options import Compactors, Gc, Options, Readers, Windows, Writes
from siltstone.stats import Size, Stats

if TYPE_CHECKING:
    from siltstone import admin, aio, changes, compaction, ingest, keys, lsm, table

__all__ = [
    "ArrowArray",
    "ArrowStream",
    "Checkpoint",
    "Closed",
    "Commit",
    "Compactors",
    "Conflict",
    "Corruption",
    "Database",
    "Denied",
    "Entry",
    "Error",
    "Expired",
    "Fenced",
    "Gc",
    "Internal",
    "Invalid",
    "LoadResult",
    "MergeOperator",
    "NotFound",
    "Options",
    "Parent",
    "Reader",
    "Readers",
    "Savepoint",
    "Scan",
    "Size",
    "Snapshot",
    "Stats",
    "Timeout",
    "Transaction",
    "Unavailable",
    "Unsupported",
    "Windows",
    "WriteBatch",
    "Writes",
    "__version__",
    "admin",
    "aio",
    "changes",
    "clone",
    "compaction",
    "destroy",
    "ingest",
    "keys",
    "lsm",
    "open",
    "open_reader",
    "retry",
    "table",
]

_LATER = ("admin", "aio", "changes", "compaction", "ingest", "keys", "lsm", "table")
"""Modules that are imported on first use, so that a program that does not use them starts faster.
"""


def __getattr__(name: str) -> Any:
    if name in _LATER:
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_LATER})
