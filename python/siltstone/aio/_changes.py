"""The change feed, awaited."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Self, final

from siltstone import _native
from siltstone._checkpoints import Checkpoint
from siltstone._native import ArrowArray
from siltstone.changes import BYTES, ROWS, _counted

__all__ = ["Changes"]


@final
class Changes(AsyncIterator[ArrowArray]):
    """A reading position in the feed: `siltstone.changes.Changes`, awaited. ``async for`` ends at
    the end of what is durable, and may be begun again: then it goes on. A read that is cancelled
    loses nothing: the next one gives the same. One read is under way at a time."""

    __slots__ = ("_feed", "batch_bytes", "batch_rows")

    def __init__(self, feed: _native.Feed) -> None:
        self._feed = feed
        self.batch_rows = ROWS
        self.batch_bytes = BYTES

    async def read(self, rows: int | None = None, bytes: int | None = None) -> ArrowArray | None:
        """The next changes. Arguments and errors are those of `siltstone.changes.Changes.read`."""
        most = (_counted(rows, self.batch_rows), _counted(bytes, self.batch_bytes))
        return await self._feed._begin_read(*most)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ArrowArray:
        batch = await self.read()
        if batch is None:
            raise StopAsyncIteration
        return batch

    async def acknowledge(self, token: str | None = None) -> None:
        """Says that everything up to `token` was dealt with (None: all that was read). Errors are
        those of `siltstone.changes.Changes.acknowledge`."""
        await self._feed._begin_acknowledge(token)

    @property
    def token(self) -> str:
        """Where it stands."""
        return self._feed.token

    @property
    def seq(self) -> int:
        """The last sequence number that was passed on whole."""
        return self._feed.seq

    @property
    def checkpoint(self) -> Checkpoint | None:
        """What it goes on from, where it began with a snapshot: open a reader there."""
        return self._feed.checkpoint

    @property
    def consumer(self) -> str | None:
        """The name of its consumer."""
        return self._feed.consumer

    def __repr__(self) -> str:
        of = "" if self.consumer is None else f" of {self.consumer!r}"
        return f"<siltstone.aio.Changes{of} behind {self.seq}>"
