"""Scans for asyncio: batches of rows, and of Arrow rows."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from operator import length_hint
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeVar, final

from siltstone._native import ArrowArray, AsyncScan, Pending
from siltstone.exceptions import Invalid

if TYPE_CHECKING:
    from siltstone._native import _Bytes

__all__ = ["RecordBatches", "Scan"]

_READ_AS_ARROW = "was read as Arrow data"

_Row = TypeVar("_Row", bytes, tuple[bytes, bytes])


class _Scans(Protocol):
    """A handle that can begin a scan."""

    def _begin_scan(
        self,
        yields: str,
        start: _Bytes | None,
        end: _Bytes | None,
        prefix: _Bytes | None,
        reverse: bool,
        limit: int | None,
    ) -> AsyncScan[Any]: ...


@final
class Scan(AsyncIterator[_Row]):
    """An iterator that can be used once, over the state at the time of its creation: ``async for
    row in db.scan()``. Rows are fetched in batches that grow up to 1,024 rows or 1 MiB. Use it in
    one task at a time.

    A scan that is not read to the end keeps its data until it is closed or collected by Python;
    ``async with`` closes it.
    """

    __slots__ = ("__weakref__", "_ended", "_gave_rows", "_rows", "_scan", "_waits")

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
        # How the scan ended: a second use would take the missing rows for an empty range.
        self._ended: str | None = None
        self._gave_rows = False

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
            self._gave_rows = True
            return row
        if self._gave_rows:
            self._ended = self._ended or "was iterated to its end"
        raise StopAsyncIteration

    async def seek(self, key: _Bytes) -> None:
        """Skips the rows before `key` in the direction of the scan: the next row is the first
        remaining row at or after it. A scan never goes back: a key that it has passed has no
        effect, and a key beyond its range ends the scan. Skipped rows are not read, except those
        that were read ahead.

        :raises Invalid: if the scan has a limit.
        """
        with _Alone(self):
            rows = list(self._rows)
            self._rows = iter(rows)
            left = self._scan.begin_seek(key, len(rows))
            if isinstance(left, Pending):
                left = await left
        self._rows = iter(rows[len(rows) - left :])

    def to_arrow(self, batch_rows: int | None = None) -> RecordBatches:
        """Returns the remaining rows as Arrow record batches with the columns `key` and `value`,
        one by one (``async for``).

        :param batch_rows: maximum number of rows in a batch, 65,536 by default. A batch also ends
            at 64 MiB.
        :raises Invalid: if rows were read but not yet iterated, if the scan was iterated to its
            end, read as Arrow data or closed, or if `batch_rows` is below 1.
        """
        if self._ended is not None:
            raise _read_once(self._ended)
        if length_hint(self._rows):
            raise Invalid("rows of this scan were iterated already; begin another scan for Arrow")
        return RecordBatches(self, batch_rows)

    async def close(self) -> None:
        """Releases the data that the scan keeps. The scan yields no more rows."""
        self._rows = iter(())
        self._ended = "was closed"
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


def _read_once(ended: str) -> Invalid:
    return Invalid(f"this scan {ended}, and a scan is read once: begin another scan")


class _Alone:
    """Refuses a second task while a task waits for the scan."""

    __slots__ = ("_scan",)

    def __init__(self, scan: Scan[Any]) -> None:
        self._scan = scan

    def __enter__(self) -> None:
        if self._scan._waits:
            raise Invalid("another task uses this scan; open one for each task")
        self._scan._waits = True

    def __exit__(self, *_: object) -> None:
        self._scan._waits = False


@final
class RecordBatches(AsyncIterator[ArrowArray]):
    """The rows of a scan as Arrow record batches. Each is an array of structs. Any library with the
    Arrow PyCapsule interface reads it as a record batch, for example with
    `pyarrow.record_batch(batch)`."""

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
            self._scan._ended = self._scan._ended or _READ_AS_ARROW
            raise StopAsyncIteration
        return batch

    def __repr__(self) -> str:
        return f"<siltstone.aio.RecordBatches of {self._scan!r}>"
