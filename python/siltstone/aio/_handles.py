"""The handles: Database, Reader, Snapshot, Transaction. Each call begins in the compiled part,
which answers or gives a `Pending` to await."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from os import PathLike
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar, final, overload

from siltstone import _native
from siltstone._checkpoints import Checkpoint, CheckpointLike, asked_for
from siltstone._entry import Entry
from siltstone._load_result import LoadResult
from siltstone._native import AsyncCommit as Commit
from siltstone._native import Pending
from siltstone.aio._batch import WriteBatch
from siltstone.aio._changes import Changes
from siltstone.aio._pending_handle import Opening
from siltstone.aio._reads import _Reads
from siltstone.aio._table import Table
from siltstone.aio._worker_thread import in_thread
from siltstone.changes import Since, _asked
from siltstone.exceptions import Error
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


# What `pop` gives where a key is absent and nothing else was asked for.
_ABSENT: Final = object()


@final
class Database(_Reads):
    """The one writer of a database, from `siltstone.aio.open`.

    Its own reads see what it has accepted, durable or not. An interpreter that exits normally
    closes what is open. In a forked child every call raises Closed.
    """

    __slots__ = ()

    _handle: _native.Database

    def __init__(self, handle: _native.Database) -> None:
        self._handle = handle

    @property
    def table(self) -> Table:
        """The rows by columns, for a database that `siltstone.table.create` made.

        :raises Invalid: a database of bytes, without columns.
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
        if_value: _Bytes | None = None,
    ) -> Commit:
        """Sets `key` to `value`: accepted, and visible to this handle, when it returns. Durable
        when the Commit has been awaited. Waits only while `max_memtable_bytes` are unflushed; one
        that is cancelled in that wait may have been accepted or not.

        :param ttl: the key is gone after this long, rounded up to milliseconds.
        :param expire_at: the key is gone from then on: an aware datetime, in place of `ttl`.
            One that has passed hides what was there.
        :param if_absent: only where the key is absent.
        :param if_value: only where the key has this value.
        :raises Conflict: it is not so; `context["key"]` names the key.
        :raises Invalid: an empty or oversized key or value, a ttl that is not above 0, or endless.
        :raises Closed, Fenced, Timeout, Unavailable: as their texts say.
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
        """Adds a merge operand to `key`: reads fold it into the value by the merge operator.

        :param ttl: after this long the operand is gone, and with it what it was added to.
        :param expire_at: as for `put`.
        :raises Invalid: no merge operator was brought; an operand that it does not take; as `put`.
        """
        answer = self._handle._begin_merge(key, operand, ttl, expire_at)
        if isinstance(answer, Pending):
            answer = await answer
        return answer

    async def delete(self, key: _Bytes, *, if_value: _Bytes | None = None) -> Commit:
        """Deletes `key`; that it was absent is no error.

        :param if_value: only where the key has this value.
        :raises Conflict: it has not; `context["key"]` names the key.
        """
        answer = self._handle._begin_delete(key, if_value)
        if isinstance(answer, Pending):
            answer = await answer
        return answer

    async def get_entry(self, key: _Bytes) -> Entry | None:
        """The value of `key`, when it ends, and the sequence number of its write where that is
        still known; None where the key is absent.

        :raises Invalid: an empty or oversized key.
        :raises Closed, Fenced, Unavailable, Timeout, Denied, Corruption: as their texts say.
        """
        answer = self._handle._begin_get_entry(key)
        if isinstance(answer, Pending):
            answer = await answer
        return answer

    @overload
    async def pop(self, key: _Bytes) -> bytes: ...
    @overload
    async def pop(self, key: _Bytes, default: _T) -> bytes | _T: ...
    async def pop(self, key: _Bytes, default: Any = _ABSENT) -> Any:
        """Deletes `key` and gives what was there: of several callers at once one gets it. One that
        is cancelled while it waits may have deleted it or not.

        :param default: for a key that is absent; without one that is a KeyError.
        :raises Closed, Fenced, Timeout, Unavailable: as their texts say.
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
        """Deletes every key of `[start, end)`, or every key with `prefix`, by one entry, however
        many there are: what is written later stays. Without a start it begins with the first key,
        without an end it goes on to the last. Compactions leave tables that it covers unread.

        :raises Invalid: no argument, `prefix` together with a bound; an empty or oversized bound or
            prefix, a start that is not below the end.
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
        """Sets every key to the value beside it, as one atomic batch: sequences of bytes, or two
        Arrow arrays of binary or text.

        :param ttl: as for `put`, of all of them.
        :param expire_at: as for `put`.
        :raises Invalid: lengths that differ, nulls, more than `max_batch_bytes`; as `put`.
        :raises TypeError: one key or value in place of a list; what is none, naming its row.
        """
        answer = self._handle._begin_put_many(keys, values, ttl, expire_at)
        if isinstance(answer, Pending):
            answer = await answer
        return answer

    async def write(self, batch: WriteBatch | _native.WriteBatch | _ArrowData) -> Commit:
        """Commits a batch, or an Arrow table or record batch with the columns `key` and `value`, as
        one atomic batch.

        :raises Invalid: missing columns, nulls, more than `max_batch_bytes`.
        """
        data = batch._batch if isinstance(batch, WriteBatch) else batch
        answer = self._handle._begin_write(data)
        if isinstance(answer, Pending):
            answer = await answer
        return answer

    def batch(self) -> WriteBatch:
        """A batch for an ``async with`` block: committed when the block ends well, discarded on an
        exception. Then `batch.commit` is the Commit."""
        batch = WriteBatch()
        batch._database = self
        return batch

    async def flush(self, *, memtable: bool = False) -> None:
        """Returns when every write issued before it is durable.

        :param memtable: also in tables, so that the next opening has nothing to replay.
        """
        await self._handle._begin_flush(memtable)

    @property
    def closed_by(self) -> Error | None:
        """Why the handle is closed: the exception that its calls raise. None while it is open."""
        return self._handle.closed_by

    async def compact(self) -> None:
        """As `siltstone.Database.compact`. Cancelling the wait does not stop it."""
        await self._handle._begin_compact()

    def snapshot(self) -> Opening[Snapshot]:
        """A fixed view of the database as it is when this is awaited."""

        async def begin() -> Snapshot:
            return Snapshot(self._handle.snapshot())

        return Opening(begin)

    async def stats(self) -> Stats:
        """What the handle holds and has done."""
        return self._handle.stats()

    async def metrics(self) -> dict[str, float]:
        """The figures of `stats` by name."""
        return self._handle.metrics()

    async def close(self) -> None:
        """Makes everything durable, records a clean close, and ends the handle. Doing it twice is
        fine. It goes on when the wait is cancelled."""
        await self._handle._begin_close()

    def transaction(
        self, isolation: Literal["serializable", "snapshot"] = "serializable"
    ) -> Opening[Transaction]:
        """Begins a transaction: ``async with db.transaction() as tx``, which commits when the block
        ends well.

        :param isolation: as for `siltstone.Database.transaction`.
        :raises Invalid: another isolation.
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
        """Makes a checkpoint. Arguments and errors are those of `siltstone.Database.checkpoint`.
        It goes on when the wait is cancelled."""
        asked = asked_for(scope, force_flush, lifetime, source, name, metadata)
        return await self._handle._begin_checkpoint(asked)

    async def load(
        self,
        data: Any,
        *,
        sorted: bool = False,
        duplicates: Literal["error", "last"] = "error",
        memory_bytes: int | None = None,
        scratch: str | PathLike[str] | None = None,
        on_progress: Callable[[int, int], object] | None = None,
    ) -> LoadResult:
        """Loads any amount of Arrow data. Arguments and errors are those of
        `siltstone.Database.load`. It runs in a thread of its own, by which `data` is read and
        `on_progress` called. When the wait is cancelled it ends, and nothing is loaded, unless all
        was uploaded already."""
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
        """Makes an ingest job part of the database. Argument and errors are those of
        `siltstone.Database.ingest`. It goes on when the wait is cancelled."""
        return await self._handle._begin_ingest(request)

    async def changes(
        self,
        *,
        since: Since = None,
        consumer: str | None = None,
        until: str | None = None,
        lifetime: _Seconds | None = None,
        most_bytes: int | None = None,
    ) -> Changes:
        """The change feed: what was committed, in the order of its commits, as far as it is
        durable. Arguments and errors are those of `siltstone.changes.begin`."""
        asked = _asked(since, consumer, until, lifetime, most_bytes)
        return Changes(await self._handle._begin_feed(asked))


@final
class Reader(_Reads):
    """A reader, from `siltstone.aio.open_reader`: sees whole writes in commit order, as far as they
    are durable.

    In a forked child its first call opens it anew, and blocks the event loop while it does.
    """

    __slots__ = ()

    _handle: _native.Reader

    def __init__(self, handle: _native.Reader) -> None:
        self._handle = handle

    @property
    def table(self) -> Table:
        """The rows by columns, for a database that `siltstone.table.create` made.

        :raises Invalid: a database of bytes, without columns.
        """
        return Table(self)

    async def refresh(self) -> None:
        """Looks for newer data now, rather than at the next `manifest_poll_interval`."""
        await self._handle._begin_refresh()

    async def changes(
        self,
        *,
        since: Since = None,
        consumer: str | None = None,
        until: str | None = None,
        lifetime: _Seconds | None = None,
        most_bytes: int | None = None,
    ) -> Changes:
        """The change feed: what was committed, in the order of its commits, as far as it is
        durable. Arguments and errors are those of `siltstone.changes.begin`."""
        asked = _asked(since, consumer, until, lifetime, most_bytes)
        return Changes(await self._handle._begin_feed(asked))

    @property
    def checkpoint(self) -> Checkpoint | None:
        """The checkpoint that it was opened at; None for one that follows, or stays at a
        version."""
        return self._handle.checkpoint

    async def stats(self) -> Stats:
        """What the handle holds and has done."""
        return self._handle.stats()

    async def metrics(self) -> dict[str, float]:
        """The figures of `stats` by name."""
        return self._handle.metrics()


@final
class Snapshot(_Reads):
    """A fixed view of a writer's database. It holds what it reads until it is closed, and goes on
    after the database is closed."""

    __slots__ = ()

    _handle: _native.Snapshot

    def __init__(self, handle: _native.Snapshot) -> None:
        self._handle = handle

    @property
    def table(self) -> Table:
        """The rows by columns, for a database that `siltstone.table.create` made.

        :raises Invalid: a database of bytes, without columns.
        """
        return Table(self)

    @property
    def seq(self) -> int:
        """The last sequence number it sees."""
        return self._handle.seq

    async def close(self) -> None:
        """Lets go of what it holds. Scans that it made go on."""
        self._handle.close()


@final
class Transaction(_Reads):
    """A transaction, from `Database.transaction`: ``async with db.transaction() as tx``. It commits
    when the block ends well, and rolls back on an exception, a cancelled task's among them."""

    __slots__ = ("_commit",)

    _handle: _native.Transaction

    def __init__(self, handle: _native.Transaction) -> None:
        self._handle = handle
        self._commit: Commit | None = None

    @property
    def seq(self) -> int:
        """The last sequence number of others that it sees."""
        return self._handle.seq

    @property
    def isolation(self) -> str:
        """What its commit depends on: "serializable" or "snapshot"."""
        return self._handle.isolation

    @property
    def committed(self) -> Commit | None:
        """The Commit, once it was committed and had written something."""
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

        :param ttl: the key is gone after this long, counted from now.
        :param expire_at: the key is gone from then on: an aware datetime, in place of `ttl`.
            One that has passed hides what was there.
        :raises Invalid: an empty or oversized key or value, a ttl that is not above 0, or endless.
        :raises Closed: the transaction is over.
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
        :raises Invalid: no merge operator was brought; an operand that it does not take; as `put`.
        """
        self._handle.merge(key, operand, ttl=ttl, expire_at=expire_at)

    async def delete(self, key: _Bytes) -> None:
        """Deletes `key`; that it was absent is no error."""
        self._handle.delete(key)

    async def delete_range(
        self,
        start: _Bytes | None = None,
        end: _Bytes | None = None,
        *,
        prefix: _Bytes | None = None,
    ) -> None:
        """Deletes every key of `[start, end)`, or every key with `prefix`; what the transaction
        does after it stays. Without a start it begins with the first key, without an end it goes
        on to the last, and counts as two operations.

        :raises Invalid: no argument, `prefix` together with a bound; an empty or oversized bound or
            prefix, a start that is not below the end.
        """
        self._handle.delete_range(start, end, prefix=prefix)

    async def savepoint(self) -> Savepoint:
        """A moment that `rollback_to` can go back to.

        :raises Closed: the transaction is over.
        """
        return self._handle.savepoint()

    async def rollback_to(self, savepoint: Savepoint) -> None:
        """Forgets what was written since the savepoint. What was read since still counts. The
        savepoint stays, later ones go.

        :raises Invalid: a savepoint of another transaction, or one that went with an earlier one.
        """
        self._handle.rollback_to(savepoint)

    async def commit(self) -> Commit | None:
        """Commits: everything that was written becomes visible at once; durable when the Commit has
        been awaited. None where nothing was written. Waits only while `max_memtable_bytes` are
        unflushed; one that is cancelled in that wait has committed all of it, or nothing.

        :raises Conflict: another commit changed what it depends on; `context["key"]` names the key.
            The transaction is over: run it again, or have `siltstone.aio.retry` do it.
        :raises Invalid: more than `max_batch_bytes` were written.
        :raises Closed, Fenced, Timeout, Unavailable: as their texts say.
        """
        answer = self._handle._begin_commit()
        if isinstance(answer, Pending):
            answer = await answer
        self._commit = answer
        return answer

    async def rollback(self) -> None:
        """Forgets everything that was written, and ends the transaction. Doing it twice, or after a
        commit, changes nothing."""
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
            # Changes nothing after a commit.
            self._handle.rollback()
