"""Siltstone for asyncio: the counterpart of `siltstone` with awaitable calls.

    import asyncio
    import siltstone.aio

    async def main() -> None:
        async with siltstone.aio.open("memory://asyncio") as db:
            commit = await db.put(b"key", b"value")     # accepted: visible at once
            await commit                                # durable
            assert await db.get(b"key") == b"value"
            async for key, value in db.scan(prefix=b"k"):
                print(key, value)

    asyncio.run(main())

A call that needs only data in memory completes without a future, a thread or a turn of the event
loop. A call that waits wakes the loop once. No call runs in an executor. Cancelling a wait never
cancels an accepted write.

A handle can be used from any number of event loops, each in its own thread. There are no item
operators, because `db[key]` cannot be awaited. A forked child must open its own handles.
"""

from __future__ import annotations

from siltstone._native import AsyncCommit as Commit
from siltstone._native import Savepoint
from siltstone.aio._batch import WriteBatch
from siltstone.aio._changes import Changes
from siltstone.aio._export import export, import_
from siltstone.aio._handles import Database, Reader, Snapshot, Transaction
from siltstone.aio._open import clone, destroy, open, open_reader
from siltstone.aio._opening import Opening
from siltstone.aio._scan import RecordBatches, Scan
from siltstone.aio._transaction_retry import retry

__all__ = [
    "Changes",
    "Commit",
    "Database",
    "Opening",
    "Reader",
    "RecordBatches",
    "Savepoint",
    "Scan",
    "Snapshot",
    "Transaction",
    "WriteBatch",
    "clone",
    "destroy",
    "export",
    "import_",
    "open",
    "open_reader",
    "retry",
]
