"""The change feed for asyncio."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Self, final

from siltstone import _native
from siltstone._checkpoints import Checkpoint
from siltstone._native import ArrowArray
from siltstone.changes import BYTES, ROWS, _most
from siltstone.options import Bytes

__all__ = ["Changes"]


@final
class Changes(AsyncIterator[ArrowArray]):
    """A position in the feed: the counterpart of `siltstone.changes.Changes`. ``async for`` ends
    after the last durable change. A later iteration continues there. A cancelled read loses no
    change: the next read returns the same. One read can be active at a time."""

    __slots__ = ("_feed", "batch_bytes", "batch_rows")

    def __init__(self, feed: _native.Feed) -> None:
        self._feed = feed
        self.batch_rows = ROWS
        self.batch_bytes = BYTES

    async def read(self, rows: int | None = None, bytes: Bytes | None = None) -> ArrowArray | None:
        """Returns the next changes. Arguments and errors are those of
        `siltstone.changes.Changes.read`."""
        return await self._feed._begin_read(*_most(self, rows, bytes))

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ArrowArray:
        batch = await self.read()
        if batch is None:
            raise StopAsyncIteration
        return batch

    async def acknowledge(self, token: str | None = None) -> None:
        """Acknowledges all changes up to `token`; None: all changes that were read. Errors are
        those of `siltstone.changes.Changes.acknowledge`."""
        await self._feed._begin_acknowledge(token)

    @property
    def token(self) -> str:
        """Token of the current position."""
        return self._feed.token

    @property
    def seq(self) -> int:
        """Last sequence number that was returned completely."""
        return self._feed.seq

    @property
    def checkpoint(self) -> Checkpoint | None:
        """The checkpoint of a feed that began with "snapshot"; open a reader at it to read the
        initial state."""
        return self._feed.checkpoint

    @property
    def consumer(self) -> str | None:
        """Name of the consumer, or None."""
        return self._feed.consumer

    def __repr__(self) -> str:
        of = "" if self.consumer is None else f" of {self.consumer!r}"
        return f"<siltstone.aio.Changes{of} behind {self.seq}>"
