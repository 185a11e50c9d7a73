"""Batches of writes, for one atomic commit that is awaited."""

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
    """Operations for one atomic commit, in their order. Collecting them waits for nothing, so that
    only the commit is awaited. One task at a time."""

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

        :param ttl: the key is gone after this long, counted from now.
        :param expire_at: the key is gone from then on: an aware datetime, in place of `ttl`.
            One that has passed hides what was there.
        :raises Invalid: an empty or oversized key or value, a ttl that is not above 0, or endless.
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
        """Adds a merge operand to `key`. The commit is Invalid without a merge operator.

        :param ttl: as for `put`.
        :param expire_at: as for `put`.
        """
        self._open().merge(key, operand, ttl=ttl, expire_at=expire_at)

    def delete(self, key: _Bytes) -> None:
        """Deletes `key`; that it was absent is no error."""
        self._open().delete(key)

    def delete_range(
        self,
        start: _Bytes | None = None,
        end: _Bytes | None = None,
        *,
        prefix: _Bytes | None = None,
    ) -> None:
        """Deletes every key of `[start, end)`, or every key with `prefix`; what the batch does
        after it stays. Without a start it begins with the first key, without an end it goes on to
        the last, and counts as two operations.

        :raises Invalid: no argument, `prefix` together with a bound; an empty or oversized bound or
            prefix, a start that is not below the end.
        """
        self._open().delete_range(start, end, prefix=prefix)

    def clear(self) -> None:
        """Forgets every operation."""
        self._open().clear()

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
        if self._ended:
            state = "discarded" if self._commit is None else "committed"
            return f"<siltstone.aio.WriteBatch, {state}>"
        return repr(self._batch).replace("<siltstone.", "<siltstone.aio.", 1)
