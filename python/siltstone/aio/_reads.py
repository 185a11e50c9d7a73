"""What the handles of `siltstone.aio` have in common: their reads."""

from __future__ import annotations

from collections.abc import Iterable
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn, Self, TypeVar, overload

from siltstone._native import Pending
from siltstone.aio._scan import Scan
from siltstone.stats import Size

if TYPE_CHECKING:
    from siltstone._native import _Array, _ArrowStreamLike, _Bytes

_T = TypeVar("_T")


class _Reads:
    """What Database, Reader, Snapshot and Transaction have in common. From any event loop."""

    __slots__ = ("__weakref__", "_handle")

    _handle: Any

    @overload
    async def get(self, key: _Bytes, default: None = None) -> bytes | None: ...
    @overload
    async def get(self, key: _Bytes, default: _T) -> bytes | _T: ...
    async def get(self, key: _Bytes, default: Any = None) -> Any:
        """The value of `key`, or `default`. Waits only for what memory lacks.

        :raises Invalid: an empty or oversized key.
        :raises Closed, Fenced, Unavailable, Timeout, Denied, Corruption: as their texts say.
        """
        answer = self._handle._begin_get(key, default)
        if isinstance(answer, Pending):
            answer = await answer
        return answer

    async def contains(self, key: _Bytes) -> bool:
        """Whether `key` is there: `key in db`, which cannot be awaited. Its value is not copied.

        :raises Invalid: an empty or oversized key.
        """
        answer: bool | Pending[bool] = self._handle._begin_contains(key)
        if isinstance(answer, Pending):
            answer = await answer
        return answer

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

    async def approximate_size(
        self,
        start: _Bytes | None = None,
        end: _Bytes | None = None,
        *,
        prefix: _Bytes | None = None,
    ) -> Size:
        """About how much `[start, end)` holds, or what has `prefix`, by metadata alone: no
        block is read. A table at an edge of the range costs one request where its index is
        not in memory.

        It is what is stored that counts: older versions, what was deleted or has expired,
        until a compaction drops them, and in memory what came after a snapshot. Bytes are
        those of blocks, as they are compressed, and of memtables: at most two blocks a
        layer (`read_amplification` of `stats()` counts layers) too many, never too few.
        Rows of a table at an edge are taken as spread evenly over its bytes; all others are
        exact.

        :raises Invalid: `prefix` together with a bound.
        :raises Closed, Fenced, Unavailable, Timeout, Denied, Corruption: as `get`.
        """
        answer: Size | Pending[Size] = self._handle._begin_size(start, end, prefix)
        if isinstance(answer, Pending):
            answer = await answer
        return answer

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

    def _repr_html_(self) -> str | None:
        """What a notebook shows; None where the text does."""
        shown = getattr(self._handle, "_repr_html_", None)
        return shown() if shown else None

    def __reduce__(self) -> NoReturn:
        name = type(self).__name__
        raise TypeError(
            f"a siltstone.aio.{name} cannot be pickled: opening anew must be awaited; send the URL,"
            " or a siltstone.Reader"
        )
