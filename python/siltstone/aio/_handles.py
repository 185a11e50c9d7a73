"""The handles Database, Reader, Snapshot and Transaction. Each call begins in the compiled module,
which returns a result or a `Pending` to await."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from os import PathLike
from types import EllipsisType, TracebackType
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar, final, overload

from siltstone import _native
from siltstone._checkpoints import Checkpoint, CheckpointLike, asked_for
from siltstone._load_result import LoadResult
from siltstone._native import AsyncCommit as Commit
from siltstone._native import Pending
from siltstone.aio._batch import WriteBatch
from siltstone.aio._changes import Changes
from siltstone.aio._opening import Opening
from siltstone.aio._reads import _Reads, _Warms, opened
from siltstone.aio._table import Table
from siltstone.aio._worker_thread import in_thread
from siltstone.changes import Before, Since, _asked
from siltstone.exceptions import Error
from siltstone.options import Bytes
from siltstone.stats import Stats

if TYPE_CHECKING:
    from siltstone._native import (
        Savepoint,
        _ArrowData,
        _Bytes,
        _Seconds,
    )
    from siltstone.ingest import IngestRequest

__all__ = ["Database", "Reader", "Snapshot", "Transaction"]

_T = TypeVar("_T")


# The result of `pop` for an absent key without a default.
_ABSENT: Final = object()


@final
class Database(_Warms):
    """The writer of a database, from `siltstone.aio.open`. A database has one writer.

    Its own reads see every accepted write, durable or not. An interpreter that exits normally
    closes open handles. In a forked child every call raises Closed.
    """

    __slots__ = ()

    _handle: _native.Database

    def __init__(self, handle: _native.Database) -> None:
        self._handle = opened(handle, _native.Database, "open")

    @property
    def table(self) -> Table:
        """The typed view of the rows, for a database that `siltstone.table.create` made.

        :raises Invalid: if the database has no columns.
        """
        return Table(self)

    async def put(
        self,
        key: _Bytes,
        value: _Bytes,
        *,
        ttl: _Seconds | None = None,
        expire_at: datetime | None = None,
        if_absent: bool = False,
        if_value: _Bytes | EllipsisType | None = ...,
    ) -> Commit:
        """Sets `key` to `value`. When the call returns, the write is accepted and visible to this
        handle. It is durable when the Commit has been awaited. The call waits only while
        `max_memtable_bytes` are unflushed. If that wait is cancelled, the write may or may not have
        been accepted.

        :param ttl: time to live; the key expires after it. Rounded up to milliseconds.
        :param expire_at: an aware datetime, instead of `ttl`: the key expires at this time. A time
            in the past hides the previous value.
        :param if_absent: write only if the key is absent.
        :param if_value: write only if the key has this value; None, as `get` returns it, means
            that it must be absent.
        :raises Conflict: if the condition does not hold; `context["key"]` names the key.
        :raises Invalid: if the key is empty, or either is too long, or `ttl` is not positive and
            finite.
        :raises Closed, Fenced, Timeout, Unavailable: see `siltstone.exceptions`.
        """
        answer = self._handle._begin_put(key, value, ttl, expire_at, if_absent, if_value)
        if isinstance(answer, Pending):
            answer = await answer
        return answer

    async def merge(
        self,
        key: _Bytes,
        operand: _Bytes,
        *,
        ttl: _Seconds | None = None,
        expire_at: datetime | None = None,
    ) -> Commit:
        """Adds a merge operand to `key`. Reads fold it into the value with the merge operator that
        the database was opened with.

        :param ttl: time to live. After it the operand expires, together with the value that it was
            added to.
        :param expire_at: as for `put`.
        :raises Invalid: if the database was opened without a merge operator, or the operator does
            not accept the operand; as for `put`.
        """
        answer = self._handle._begin_merge(key, operand, ttl, expire_at)
        if isinstance(answer, Pending):
            answer = await answer
        return answer

    async def delete(self, key: _Bytes, *, if_value: _Bytes | EllipsisType | None = ...) -> Commit:
        """Deletes `key`. Deleting an absent key succeeds.

        :param if_value: delete only if the key has this value; None means that it must be absent.
        :raises Conflict: if the condition does not hold; `context["key"]` names the key.
        """
        answer = self._handle._begin_delete(key, if_value)
        if isinstance(answer, Pending):
            answer = await answer
        return answer

    @overload
    async def pop(self, key: _Bytes) -> bytes: ...
    @overload
    async def pop(self, key: _Bytes, default: _T) -> bytes | _T: ...
    async def pop(self, key: _Bytes, default: Any = _ABSENT) -> Any:
        """Deletes `key` and returns its value. If several callers pop the key concurrently, one of
        them gets the value. If the wait is cancelled, the key may or may not have been deleted.

        :param default: result for an absent key; without it an absent key raises KeyError.
        :raises Closed, Fenced, Timeout, Unavailable: see `siltstone.exceptions`.
        """
        answer = self._handle._begin_pop(key, default)
        if isinstance(answer, Pending):
            answer = await answer
        if answer is _ABSENT:
            raise KeyError(bytes(key))
        return answer

    async def delete_range(
        self,
        start: _Bytes | None = None,
        end: _Bytes | None = None,
        *,
        prefix: _Bytes | None = None,
    ) -> Commit:
        """Deletes all keys of `[start, end)`, or all keys with `prefix`, with one entry,
        independent of their number. Later writes are not affected. Without `start` the range begins
        at the first key; without `end` it ends after the last. Compactions do not read tables that
        the range covers completely.

        :raises Invalid: if no argument is given, `prefix` is given together with a bound, a bound
            or the prefix is empty or too long, or `start` is not below `end`.
        """
        answer = self._handle._begin_delete_range(start, end, prefix)
        if isinstance(answer, Pending):
            answer = await answer
        return answer

    @overload
    async def put_many(
        self,
        keys: Iterable[_Bytes],
        values: Iterable[_Bytes],
        *,
        ttl: _Seconds | None = None,
        expire_at: datetime | None = None,
    ) -> Commit: ...
    @overload
    async def put_many(
        self,
        keys: _ArrowData,
        values: _ArrowData,
        *,
        ttl: _Seconds | None = None,
        expire_at: datetime | None = None,
    ) -> Commit: ...
    async def put_many(
        self,
        keys: Any,
        values: Any,
        *,
        ttl: _Seconds | None = None,
        expire_at: datetime | None = None,
    ) -> Commit:
        """Sets each key to the value at the same position, in one atomic batch. Keys and values are
        sequences of bytes, or two Arrow arrays of binary or text.

        :param ttl: as for `put`, for all rows.
        :param expire_at: as for `put`, for all rows.
        :raises Invalid: if the lengths differ, an array has nulls, or the batch is larger than
            `max_batch_bytes`; as for `put`.
        :raises TypeError: if an argument is a single key or value, or an element has the wrong
            type; the text names its row.
        """
        answer = self._handle._begin_put_many(keys, values, ttl, expire_at)
        if isinstance(answer, Pending):
            answer = await answer
        return answer

    async def write(self, batch: WriteBatch | _native.WriteBatch | _ArrowData) -> Commit:
        """Commits a batch, or an Arrow table or record batch with the columns `key` and `value`, as
        one atomic batch.

        :raises Invalid: if a column is missing, a column has nulls, or the batch is larger than
            `max_batch_bytes`.
        """
        data = batch._batch if isinstance(batch, WriteBatch) else batch
        answer = self._handle._begin_write(data)
        if isinstance(answer, Pending):
            answer = await answer
        return answer

    def batch(self) -> WriteBatch:
        """Returns a batch for an ``async with`` block. The batch is committed at the end of the
        block, and discarded if the block raises. Afterwards `batch.commit` is the Commit."""
        batch = WriteBatch()
        batch._database = self
        return batch

    async def flush(self, *, memtable: bool = False) -> None:
        """Returns when every earlier write is durable.

        :param memtable: also write the memtable to tables, so that the next opening has nothing to
            replay.
        """
        await self._handle._begin_flush(memtable)

    @property
    def closed_by(self) -> Error | None:
        """The exception that calls of a closed handle raise. None while the handle is open."""
        return self._handle.closed_by

    async def compact(self) -> None:
        """As `siltstone.Database.compact`. Cancelling the wait does not stop the compaction."""
        await self._handle._begin_compact()

    def snapshot(self) -> Opening[Snapshot]:
        """Returns a fixed view of the database, in the state when it is awaited."""

        async def begin() -> Snapshot:
            return Snapshot(self._handle.snapshot())

        return Opening(begin)

    async def stats(self) -> Stats:
        """As `siltstone.Database.stats`."""
        return self._handle.stats()

    async def metrics(self) -> dict[str, float]:
        """Returns the figures of `stats` by name."""
        return self._handle.metrics()

    async def close(self) -> None:
        """Makes all writes durable, records a clean close, and ends the handle. `close()` is
        idempotent. It continues if the wait is cancelled."""
        await self._handle._begin_close()

    def transaction(
        self, isolation: Literal["serializable", "snapshot"] = "serializable"
    ) -> Opening[Transaction]:
        """Begins a transaction: ``async with db.transaction() as tx``, which commits at the end of
        the block.

        :param isolation: as for `siltstone.Database.transaction`.
        :raises Invalid: if `isolation` has another value.
        """

        async def begin() -> Transaction:
            return Transaction(self._handle.transaction(isolation))

        return Opening(begin)

    async def checkpoint(
        self,
        *,
        scope: Literal["all", "durable"] = "all",
        force_flush: bool = True,
        lifetime: _Seconds | None = None,
        source: CheckpointLike | None = None,
        name: str | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> Checkpoint:
        """Creates a checkpoint. Arguments and errors are those of `siltstone.Database.checkpoint`.
        The call continues if the wait is cancelled."""
        asked = asked_for(scope, force_flush, lifetime, source, name, metadata)
        return await self._handle._begin_checkpoint(asked)

    async def load(
        self,
        data: Any,
        *,
        sorted: bool = False,
        duplicates: Literal["error", "last"] = "error",
        memory_bytes: Bytes | None = None,
        scratch: str | PathLike[str] | None = None,
        on_progress: Callable[[int, int], object] | None = None,
    ) -> LoadResult:
        """Loads any amount of Arrow data. Arguments and errors are those of
        `siltstone.Database.load`. The load runs in its own thread, which reads `data` and calls
        `on_progress`. Cancelling the wait ends the load, and no row is loaded, unless all tables
        were uploaded already."""
        given_up = threading.Event()

        def told(done: int, total: int) -> None:
            if given_up.is_set():
                raise asyncio.CancelledError
            if on_progress is not None:
                on_progress(done, total)

        try:
            return await in_thread(
                lambda: self._handle.load(
                    data,
                    sorted=sorted,
                    duplicates=duplicates,
                    memory_bytes=memory_bytes,
                    scratch=scratch,
                    on_progress=told,
                )
            )
        finally:
            given_up.set()

    async def ingest(self, request: IngestRequest) -> Commit:
        """Adopts an ingest job. Argument and errors are those of `siltstone.Database.ingest`. The
        call continues if the wait is cancelled."""
        return await self._handle._begin_ingest(request)

    async def changes(
        self,
        *,
        since: Since = None,
        consumer: str | None = None,
        until: str | None = None,
        lifetime: _Seconds | None = None,
        most_bytes: Bytes | None = None,
        before: Before = None,
    ) -> Changes:
        """Returns the change feed: all durable changes in commit order. Arguments and errors are
        those of `siltstone.changes.begin`."""
        asked = _asked(since, consumer, until, lifetime, most_bytes, before)
        return Changes(await self._handle._begin_feed(asked))


@final
class Reader(_Warms):
    """A reader, from `siltstone.aio.open_reader`. It sees whole writes in commit order, as soon as
    they are durable.

    In a forked child its first call reopens it, and blocks the event loop meanwhile.
    """

    __slots__ = ()

    _handle: _native.Reader

    def __init__(self, handle: _native.Reader) -> None:
        self._handle = opened(handle, _native.Reader, "open_reader")

    @property
    def table(self) -> Table:
        """The typed view of the rows, for a database that `siltstone.table.create` made.

        :raises Invalid: if the database has no columns.
        """
        return Table(self)

    async def refresh(self) -> None:
        """Looks for newer data now, without waiting for the next `manifest_poll_interval`."""
        await self._handle._begin_refresh()

    async def changes(
        self,
        *,
        since: Since = None,
        consumer: str | None = None,
        until: str | None = None,
        lifetime: _Seconds | None = None,
        most_bytes: Bytes | None = None,
        before: Before = None,
    ) -> Changes:
        """Returns the change feed: all durable changes in commit order. Arguments and errors are
        those of `siltstone.changes.begin`."""
        asked = _asked(since, consumer, until, lifetime, most_bytes, before)
        return Changes(await self._handle._begin_feed(asked))

    @property
    def checkpoint(self) -> Checkpoint | None:
        """The checkpoint that the reader was opened at; None for a following reader and for a
        reader at a version."""
        return self._handle.checkpoint

    async def stats(self) -> Stats:
        """As `siltstone.Database.stats`."""
        return self._handle.stats()

    async def metrics(self) -> dict[str, float]:
        """Returns the figures of `stats` by name."""
        return self._handle.metrics()


@final
class Snapshot(_Warms):
    """A fixed view of a writer's database. It keeps the data that it reads until it is closed, even
    after the database is closed."""

    __slots__ = ()

    _handle: _native.Snapshot

    def __init__(self, handle: _native.Snapshot) -> None:
        self._handle = handle

    @property
    def table(self) -> Table:
        """The typed view of the rows, for a database that `siltstone.table.create` made.

        :raises Invalid: if the database has no columns.
        """
        return Table(self)

    @property
    def seq(self) -> int:
        """The last sequence number that the snapshot sees."""
        return self._handle.seq

    async def close(self) -> None:
        """Releases the data that the snapshot keeps. Open scans of the snapshot continue."""
        self._handle.close()


@final
class Transaction(_Reads):
    """A transaction, from `Database.transaction`: ``async with db.transaction() as tx``. It commits
    at the end of the block, and rolls back if the block raises or its task is cancelled."""

    __slots__ = ("_commit",)

    _handle: _native.Transaction

    def __init__(self, handle: _native.Transaction) -> None:
        self._handle = handle
        self._commit: Commit | None = None

    @property
    def seq(self) -> int:
        """The last sequence number of other writes that the transaction sees."""
        return self._handle.seq

    @property
    def isolation(self) -> str:
        """The isolation level: "serializable" or "snapshot"."""
        return self._handle.isolation

    @property
    def committed(self) -> Commit | None:
        """The Commit, after a commit with at least one write; otherwise None."""
        return self._commit

    async def put(
        self,
        key: _Bytes,
        value: _Bytes,
        *,
        ttl: _Seconds | None = None,
        expire_at: datetime | None = None,
    ) -> None:
        """Sets `key` to `value`.

        :param ttl: time to live, counted from now; the key expires after it.
        :param expire_at: an aware datetime, instead of `ttl`: the key expires at this time. A time
            in the past hides the previous value.
        :raises Invalid: if the key is empty, or either is too long, or `ttl` is not positive and
            finite.
        :raises Closed: if the transaction is over.
        """
        self._handle.put(key, value, ttl=ttl, expire_at=expire_at)

    async def merge(
        self,
        key: _Bytes,
        operand: _Bytes,
        *,
        ttl: _Seconds | None = None,
        expire_at: datetime | None = None,
    ) -> None:
        """Adds a merge operand to `key`.

        :param ttl: as for `put`.
        :param expire_at: as for `put`.
        :raises Invalid: if the database was opened without a merge operator, or the operator does
            not accept the operand; as for `put`.
        """
        self._handle.merge(key, operand, ttl=ttl, expire_at=expire_at)

    async def delete(self, key: _Bytes) -> None:
        """Deletes `key`. Deleting an absent key succeeds."""
        self._handle.delete(key)

    async def delete_range(
        self,
        start: _Bytes | None = None,
        end: _Bytes | None = None,
        *,
        prefix: _Bytes | None = None,
    ) -> None:
        """Deletes all keys of `[start, end)`, or all keys with `prefix`. Later writes of the
        transaction are not affected. Without `start` the range begins at the first key. Without
        `end` it ends after the last key, and counts as two operations.

        :raises Invalid: if no argument is given, `prefix` is given together with a bound, a bound
            or the prefix is empty or too long, or `start` is not below `end`.
        """
        self._handle.delete_range(start, end, prefix=prefix)

    async def savepoint(self) -> Savepoint:
        """Returns a savepoint for `rollback_to`.

        :raises Closed: if the transaction is over.
        """
        return self._handle.savepoint()

    async def rollback_to(self, savepoint: Savepoint) -> None:
        """Discards all writes since the savepoint. Reads since the savepoint still count for
        conflicts, because later writes may depend on them. The savepoint can be used again; later
        savepoints are discarded.

        :raises Invalid: if the savepoint belongs to another transaction, or was discarded.
        """
        self._handle.rollback_to(savepoint)

    async def commit(self) -> Commit | None:
        """Commits all writes: they become visible at once, and are durable when the Commit has been
        awaited. Returns None if the transaction has no writes. The call waits only while
        `max_memtable_bytes` are unflushed. If that wait is cancelled, either all writes are
        committed or none.

        :raises Conflict: if another commit changed data that the transaction depends on;
            `context["key"]` names the key. The transaction is over: run it again, or use
            `siltstone.aio.retry`.
        :raises Invalid: if the writes are larger than `max_batch_bytes`.
        :raises Closed, Fenced, Timeout, Unavailable: see `siltstone.exceptions`.
        """
        answer = self._handle._begin_commit()
        if isinstance(answer, Pending):
            answer = await answer
        self._commit = answer
        return answer

    async def rollback(self) -> None:
        """Discards all writes and ends the transaction. A second call, or a call after the commit,
        has no effect."""
        self._handle.rollback()

    async def close(self) -> None:
        """As `rollback`."""
        self._handle.rollback()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if kind is None and self._handle._ended is None:
                await self.commit()
        finally:
            # No effect after a commit.
            self._handle.rollback()
