"""Siltstone for asyncio: the surface of `siltstone`, awaited.

    async with siltstone.aio.open("s3://bucket/db") as db:
        commit = await db.put(b"key", b"value")     # accepted: visible at once
        await commit                                # durable
        value = await db.get(b"key")
        async for key, value in db.scan(prefix=b"k"):
            print(key, value)

A call that memory can answer completes where it is awaited: no future, no thread, no turn of the
event loop. A call that waits wakes the loop once. Nothing runs in an executor. Cancelling a wait
never cancels a write that was accepted.

Handles are used from any number of event loops, each in its thread. There are no item operators,
since `db[key]` cannot be awaited; a forked child opens its own.
"""

from __future__ import annotations

from collections.abc import (
    AsyncIterator,
    Callable,
    Coroutine,
    Generator,
    Iterable,
    Iterator,
    Mapping,
)
from operator import length_hint
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, NoReturn, Protocol, Self, TypeVar, final, overload

from siltstone import _native, opening
from siltstone._native import ArrowArray, AsyncScan, Pending
from siltstone._native import AsyncCommit as Commit
from siltstone.exceptions import Invalid
from siltstone.opening import (
    StoreOptionsSource,
    Url,
    _check_reader,
    _check_writer,
    _close_in_workers,
    _reader_arguments,
    _store,
    _text,
)
from siltstone.options import Options, named_options
from siltstone.stats import Stats

if TYPE_CHECKING:
    from siltstone._native import _Array, _ArrowData, _ArrowStreamLike, _Bytes, _Seconds

__all__ = [
    "Commit",
    "Database",
    "Opening",
    "Reader",
    "RecordBatches",
    "Scan",
    "Snapshot",
    "WriteBatch",
    "clone",
    "destroy",
    "open",
    "open_reader",
]

_T = TypeVar("_T")
_Row = TypeVar("_Row", bytes, tuple[bytes, bytes])


class _Closes(Protocol):
    async def close(self) -> None: ...


_Handle = TypeVar("_Handle", bound=_Closes)


@final
class Opening(Generic[_Handle]):
    """A handle that is being opened: ``db = await …``, or ``async with … as db``, which closes it
    at the end."""

    __slots__ = ("_begin", "_handle")

    def __init__(self, begin: Callable[[], Coroutine[Any, Any, _Handle]]) -> None:
        self._begin = begin
        self._handle: _Handle | None = None

    def __await__(self) -> Generator[Any, None, _Handle]:
        return self._begin().__await__()

    async def __aenter__(self) -> _Handle:
        self._handle = handle = await self._begin()
        return handle

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._handle is not None:
            await self._handle.close()


class _Scans(Protocol):
    """What a scan is begun with."""

    def _begin_scan(
        self,
        yields: str,
        start: _Bytes | None,
        end: _Bytes | None,
        prefix: _Bytes | None,
        reverse: bool,
        limit: int | None,
    ) -> AsyncScan[Any]: ...


class _Reads:
    """What Database, Reader and Snapshot have in common. From any event loop."""

    __slots__ = ("__weakref__", "_handle")

    _handle: Any

    async def get(self, key: _Bytes, default: _T = None) -> bytes | _T:  # type: ignore[assignment]
        """The value of `key`, or `default`. Waits only for what memory lacks.

        :raises Invalid: an empty or oversized key.
        :raises Closed, Fenced, Unavailable, Timeout, Denied, Corruption: as their texts say.
        """
        answer = self._handle._begin_get(key, default)
        if isinstance(answer, Pending):
            answer = await answer
        return answer  # type: ignore[no-any-return]

    @overload
    async def get_many(self, keys: _Array) -> _Array: ...
    @overload
    async def get_many(self, keys: Iterable[_Bytes]) -> list[bytes | None]: ...
    @overload
    async def get_many(self, keys: _ArrowStreamLike) -> Any: ...
    async def get_many(self, keys: Any) -> Any:
        """The values of `keys`, in their order, all of one moment; None where a key is absent.

        An Arrow array of binary or text gives an Arrow array of binary, of the same library where
        that is pyarrow or arro3. A null key gives a null.
        """
        answer = self._handle._begin_get_many(keys)
        if isinstance(answer, Pending):
            answer = await answer
        return answer

    def scan(
        self,
        start: _Bytes | None = None,
        end: _Bytes | None = None,
        *,
        prefix: _Bytes | None = None,
        reverse: bool = False,
        limit: int | None = None,
    ) -> Scan[tuple[bytes, bytes]]:
        """Iterates (``async for``) over keys and values of `[start, end)`, or of the keys with
        `prefix`, as they are now.

        :param reverse: from the greatest key down.
        :param limit: at most so many rows.
        :raises Invalid: `prefix` together with a bound; a negative limit.
        """
        return Scan(self._handle, "items", start, end, prefix, reverse, limit)

    def items(
        self,
        start: _Bytes | None = None,
        end: _Bytes | None = None,
        *,
        prefix: _Bytes | None = None,
        reverse: bool = False,
        limit: int | None = None,
    ) -> Scan[tuple[bytes, bytes]]:
        """As `scan`."""
        return Scan(self._handle, "items", start, end, prefix, reverse, limit)

    def keys(
        self,
        start: _Bytes | None = None,
        end: _Bytes | None = None,
        *,
        prefix: _Bytes | None = None,
        reverse: bool = False,
        limit: int | None = None,
    ) -> Scan[bytes]:
        """As `scan`, of the keys alone."""
        return Scan(self._handle, "keys", start, end, prefix, reverse, limit)

    def values(
        self,
        start: _Bytes | None = None,
        end: _Bytes | None = None,
        *,
        prefix: _Bytes | None = None,
        reverse: bool = False,
        limit: int | None = None,
    ) -> Scan[bytes]:
        """As `scan`, of the values alone."""
        return Scan(self._handle, "values", start, end, prefix, reverse, limit)

    async def close(self) -> None:
        """Ends the handle. Doing it twice is fine."""
        pending = self._handle._begin_close()
        if pending is not None:
            await pending

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    def __repr__(self) -> str:
        return repr(self._handle).replace("<siltstone.", "<siltstone.aio.", 1)

    def __reduce__(self) -> NoReturn:
        name = type(self).__name__
        raise TypeError(
            f"a siltstone.aio.{name} cannot be pickled: opening anew must be awaited; send the URL,"
            " or a siltstone.Reader"
        )


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

    async def put(
        self,
        key: _Bytes,
        value: _Bytes,
        *,
        ttl: _Seconds | None = None,
        if_absent: bool = False,
        if_seq: int | None = None,
    ) -> Commit:
        """Sets `key` to `value`: accepted, and visible to this handle, when it returns. Durable
        when the Commit has been awaited. Waits only while `max_memtable_bytes` are unflushed; one
        that is cancelled in that wait may have been accepted or not.

        :param ttl: the key is gone after this long.
        :param if_absent: not built yet.
        :param if_seq: not built yet.
        :raises Invalid: an empty or oversized key or value, a ttl that is not above 0.
        :raises Closed, Fenced, Timeout, Unavailable: as their texts say.
        """
        answer = self._handle._begin_put(key, value, ttl, if_absent, if_seq)
        if isinstance(answer, Pending):
            answer = await answer
        return answer

    async def delete(self, key: _Bytes) -> Commit:
        """Deletes `key`; that it was absent is no error."""
        answer = self._handle._begin_delete(key)
        if isinstance(answer, Pending):
            answer = await answer
        return answer

    @overload
    async def put_many(self, keys: Iterable[_Bytes], values: Iterable[_Bytes]) -> Commit: ...
    @overload
    async def put_many(self, keys: _ArrowData, values: _ArrowData) -> Commit: ...
    async def put_many(self, keys: Any, values: Any) -> Commit:
        """Sets every key to the value beside it, as one atomic batch: sequences of bytes, or two
        Arrow arrays of binary or text.

        :raises Invalid: lengths that differ, nulls, more than `max_batch_bytes`.
        """
        answer = self._handle._begin_put_many(keys, values)
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

    async def flush(self) -> None:
        """Returns when every write issued before it is durable."""
        await self._handle._begin_flush()

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

    async def merge(self, *arguments: Any, **named: Any) -> NoReturn:
        """Not built yet: raises Unsupported."""
        self._handle.merge(*arguments, **named)

    async def delete_range(self, *arguments: Any, **named: Any) -> NoReturn:
        """Not built yet: raises Unsupported."""
        self._handle.delete_range(*arguments, **named)

    async def transaction(self, *arguments: Any, **named: Any) -> NoReturn:
        """Not built yet: raises Unsupported."""
        self._handle.transaction(*arguments, **named)

    async def checkpoint(self, *arguments: Any, **named: Any) -> NoReturn:
        """Not built yet: raises Unsupported."""
        self._handle.checkpoint(*arguments, **named)

    async def load(self, *arguments: Any, **named: Any) -> NoReturn:
        """Not built yet: raises Unsupported."""
        self._handle.load(*arguments, **named)

    async def ingest(self, *arguments: Any, **named: Any) -> NoReturn:
        """Not built yet: raises Unsupported."""
        self._handle.ingest(*arguments, **named)

    async def compact(self, *arguments: Any, **named: Any) -> NoReturn:
        """Not built yet: raises Unsupported."""
        self._handle.compact(*arguments, **named)


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

    async def refresh(self) -> None:
        """Looks for newer data now, rather than at the next `manifest_poll_interval`."""
        await self._handle._begin_refresh()

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
    def seq(self) -> int:
        """The last sequence number it sees."""
        return self._handle.seq

    async def close(self) -> None:
        """Lets go of what it holds. Scans that it made go on."""
        self._handle.close()


@final
class Scan(AsyncIterator[_Row]):
    """A one-shot iteration, pinned when it was made: ``async for row in db.scan()``. Rows come from
    the store in batches that grow, up to 1,024 rows or 1 MiB. One task at a time.

    One that is left early holds what it reads until it is closed or forgotten; ``async with``
    closes it.
    """

    __slots__ = ("__weakref__", "_rows", "_scan", "_waits")

    def __init__(
        self,
        source: _Scans,
        yields: str,
        start: _Bytes | None,
        end: _Bytes | None,
        prefix: _Bytes | None,
        reverse: bool,
        limit: int | None,
    ) -> None:
        self._scan: AsyncScan[_Row] = source._begin_scan(yields, start, end, prefix, reverse, limit)
        self._rows: Iterator[_Row] = iter(())
        self._waits = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> _Row:
        for row in self._rows:
            return row
        with _Alone(self):
            rows = self._scan.begin_rows()
            if isinstance(rows, Pending):
                rows = await rows
        self._rows = iter(rows)
        for row in self._rows:
            return row
        raise StopAsyncIteration

    def to_arrow(self, batch_rows: int | None = None) -> RecordBatches:
        """The rows not yet iterated, as Arrow record batches with the columns `key` and `value`,
        one by one (``async for``).

        :param batch_rows: rows of a batch at most (65,536 by default). Batches also end at 64 MiB.
        :raises Invalid: rows were read but not yet iterated; `batch_rows` below 1.
        """
        if length_hint(self._rows):
            raise Invalid("rows of this scan were iterated already; begin another scan for Arrow")
        return RecordBatches(self, batch_rows)

    async def close(self) -> None:
        """Lets go of what the scan holds; it yields nothing more."""
        self._rows = iter(())
        pending = self._scan.begin_close()
        if pending is not None:
            await pending

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    def __repr__(self) -> str:
        return repr(self._scan)


class _Alone:
    """Refuses a second task while one waits for a scan."""

    __slots__ = ("_scan",)

    def __init__(self, scan: Scan[Any]) -> None:
        self._scan = scan

    def __enter__(self) -> None:
        if self._scan._waits:
            raise Invalid("a scan is used by one task at a time")
        self._scan._waits = True

    def __exit__(self, *_: object) -> None:
        self._scan._waits = False


@final
class RecordBatches(AsyncIterator[ArrowArray]):
    """The rows of a scan as Arrow record batches: each is an array of structs that whatever speaks
    the Arrow PyCapsule interface takes as a record batch, as `pyarrow.record_batch(batch)` does."""

    __slots__ = ("_batch_rows", "_scan")

    def __init__(self, scan: Scan[Any], batch_rows: int | None) -> None:
        self._scan = scan
        self._batch_rows = scan._scan.batch_rows(batch_rows)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ArrowArray:
        with _Alone(self._scan):
            batch = await self._scan._scan.begin_batch(self._batch_rows)
        if batch is None:
            raise StopAsyncIteration
        return batch


@final
class WriteBatch:
    """Operations for one atomic commit, in their order. Collecting them waits for nothing, so that
    only the commit is awaited. One task at a time."""

    __slots__ = ("_batch", "_commit", "_database", "_ended")

    def __init__(self) -> None:
        self._batch = _native.WriteBatch()
        self._database: Database | None = None
        self._commit: Commit | None = None
        self._ended = False

    def put(self, key: _Bytes, value: _Bytes, *, ttl: _Seconds | None = None) -> None:
        """Sets `key` to `value`.

        :param ttl: the key is gone after this long, counted from now.
        :raises Invalid: an empty or oversized key or value, a ttl that is not above 0.
        """
        self._open().put(key, value, ttl=ttl)

    def delete(self, key: _Bytes) -> None:
        """Deletes `key`; that it was absent is no error."""
        self._open().delete(key)

    def clear(self) -> None:
        """Forgets every operation."""
        self._open().clear()

    def merge(self, *arguments: Any, **named: Any) -> NoReturn:
        """Not built yet: raises Unsupported."""
        self._batch.merge(*arguments, **named)

    def delete_range(self, *arguments: Any, **named: Any) -> NoReturn:
        """Not built yet: raises Unsupported."""
        self._batch.delete_range(*arguments, **named)

    @property
    def nbytes(self) -> int:
        """Bytes of the operations, encoded: what `max_batch_bytes` counts."""
        return self._batch.nbytes

    @property
    def commit(self) -> Commit | None:
        """The Commit, once the ``async with`` block of a batch from `Database.batch()` ended
        well."""
        return self._commit

    def __len__(self) -> int:
        return len(self._batch)

    def __bool__(self) -> bool:
        return True

    async def __aenter__(self) -> Self:
        if self._database is None:
            raise Invalid("only a batch from Database.batch() commits at the end of its block")
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        again, self._ended = self._ended, True
        if kind is None and not again and self._database is not None:
            self._commit = await self._database.write(self)

    def _open(self) -> _native.WriteBatch:
        if self._ended:
            raise Invalid("the batch's block has ended; make another batch")
        return self._batch

    def __repr__(self) -> str:
        return f"<siltstone.aio.WriteBatch of {len(self._batch)}>"


def open(
    url: Url,
    *,
    create: bool = True,
    take_over: bool = True,
    options: Options | Mapping[str, Any] | None = None,
    store_options: StoreOptionsSource | None = None,
    merge_operator: object = None,
) -> Opening[Database]:
    """Opens the database at `url` for writing: ``async with siltstone.aio.open(…) as db``, or
    ``db = await siltstone.aio.open(…)``. Arguments and errors are those of `siltstone.open`.

    When the wait is cancelled after the database was opened, it is closed in the background.
    """

    async def begin() -> Database:
        _check_writer(merge_operator)
        pending = _native.begin_open(
            _text(url),
            create,
            take_over,
            named_options(options),
            _store(store_options),
        )
        _close_in_workers()
        return Database(await pending)

    return Opening(begin)


def open_reader(
    url: Url,
    *,
    checkpoint: object = None,
    version: int | None = None,
    options: Options | Mapping[str, Any] | None = None,
    store_options: StoreOptionsSource | None = None,
    merge_operator: object = None,
) -> Opening[Reader]:
    """Opens a reader of the database at `url`. Arguments and errors are those of
    `siltstone.open_reader`."""

    async def begin() -> Reader:
        _check_reader(checkpoint, version, merge_operator)
        place, store, provider = _reader_arguments(url, store_options)
        pending = _native.begin_open_reader(place, named_options(options), store, provider)
        return Reader(await pending)

    return Opening(begin)


async def clone(
    url: Url,
    *,
    parent: Url,
    checkpoint: object = None,
    store_options: StoreOptionsSource | None = None,
) -> None:
    """Not built yet: makes a writable copy that shares its parent's tables.

    :raises Unsupported: always.
    """
    opening.clone(url, parent=parent, checkpoint=checkpoint, store_options=store_options)


async def destroy(
    url: Url, *, soft: bool = False, store_options: StoreOptionsSource | None = None
) -> None:
    """Not built yet: deletes a database.

    :raises Unsupported: always.
    """
    opening.destroy(url, soft=soft, store_options=store_options)
