"""Batches of writes for asyncio."""

from __future__ import annotations

from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING, Self, final

from siltstone import _native
from siltstone._native import AsyncCommit as Commit
from siltstone.exceptions import Invalid

if TYPE_CHECKING:
    from siltstone._native import _Bytes, _Seconds
    from siltstone.aio._handles import Database

__all__ = ["WriteBatch"]


@final
class WriteBatch:
    """Operations for one atomic commit, in order. Only the commit is awaited. Use it in one task at
    a time."""

    __slots__ = ("_batch", "_commit", "_database", "_ended")

    def __init__(self) -> None:
        self._batch = _native.WriteBatch()
        self._database: Database | None = None
        self._commit: Commit | None = None
        self._ended = False

    def put(
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
        """
        self._open().put(key, value, ttl=ttl, expire_at=expire_at)

    def merge(
        self,
        key: _Bytes,
        operand: _Bytes,
        *,
        ttl: _Seconds | None = None,
        expire_at: datetime | None = None,
    ) -> None:
        """Adds a merge operand to `key`. The commit raises Invalid if the database was opened
        without a merge operator.

        :param ttl: as for `put`.
        :param expire_at: as for `put`.
        """
        self._open().merge(key, operand, ttl=ttl, expire_at=expire_at)

    def delete(self, key: _Bytes) -> None:
        """Deletes `key`. Deleting an absent key succeeds."""
        self._open().delete(key)

    def delete_range(
        self,
        start: _Bytes | None = None,
        end: _Bytes | None = None,
        *,
        prefix: _Bytes | None = None,
    ) -> None:
        """Deletes all keys of `[start, end)`, or all keys with `prefix`. Later operations of the
        batch are not affected. Without `start` the range begins at the first key. Without `end` it
        ends after the last key, and counts as two operations.

        :raises Invalid: if no argument is given, `prefix` is given together with a bound, a bound
            or the prefix is empty or too long, or `start` is not below `end`.
        """
        self._open().delete_range(start, end, prefix=prefix)

    def clear(self) -> None:
        """Removes all operations."""
        self._open().clear()

    @property
    def nbytes(self) -> int:
        """Size of the encoded operations in bytes, which `max_batch_bytes` limits."""
        return self._batch.nbytes

    @property
    def commit(self) -> Commit | None:
        """The Commit, after the ``async with`` block of a batch from `Database.batch()`; otherwise
        None."""
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
        if self._ended:
            state = "discarded" if self._commit is None else "committed"
            return f"<siltstone.aio.WriteBatch, {state}>"
        return repr(self._batch).replace("<siltstone.", "<siltstone.aio.", 1)
