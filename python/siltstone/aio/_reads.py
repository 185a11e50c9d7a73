"""The reads that the handles of `siltstone.aio` share."""

from __future__ import annotations

from collections.abc import Iterable
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn, Self, TypeVar, overload

from siltstone._entry import Entry
from siltstone._native import Pending
from siltstone.aio._scan import Scan
from siltstone.stats import Size

if TYPE_CHECKING:
    from siltstone._native import _Array, _ArrowStreamLike, _Bytes

_T = TypeVar("_T")


def opened(handle: _T, kind: type[_T], way: str) -> _T:
    """Checks that a handle is one that the function `way` has opened.

    :raises TypeError: otherwise, such as for the URL of a database.
    """
    if not isinstance(handle, kind):
        raise TypeError(f"a handle is made by opening the database: await siltstone.aio.{way}(url)")
    return handle


class _Reads:
    """The methods that Database, Reader, Snapshot and Transaction share. They can be called from
    any event loop."""

    __slots__ = ("__weakref__", "_handle")

    _handle: Any

    @overload
    async def get(self, key: _Bytes, default: None = None) -> bytes | None: ...
    @overload
    async def get(self, key: _Bytes, default: _T) -> bytes | _T: ...
    async def get(self, key: _Bytes, default: Any = None) -> Any:
        """Returns the value of `key`, or `default` if the key is absent. Waits only if the data is
        not in memory.

        :raises Invalid: if the key is empty or too long.
        :raises Closed, Fenced, Unavailable, Timeout, Denied, Corruption: see
            `siltstone.exceptions`.
        """
        answer = self._handle._begin_get(key, default)
        if isinstance(answer, Pending):
            answer = await answer
        return answer

    async def contains(self, key: _Bytes) -> bool:
        """Whether `key` exists: the counterpart of `key in db`, which cannot be awaited. The value
        is not copied.

        :raises Invalid: if the key is empty or too long.
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
        """Returns the values of `keys`, in the order of `keys`, all from one state of the database;
        None for an absent key.

        For an Arrow array of binary or text the result is an Arrow array of binary (of large
        binary if the values exceed 2 GiB), of the same library if that is pyarrow or arro3. A null
        key gives a null.

        :raises TypeError: if `keys` is a single key, or an element is not a key; the text names its
            row.
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
        """Iterates (``async for``) over the keys and values of `[start, end)`, or of the keys with
        `prefix`, in the state at the time of the call.

        :param reverse: iterate from the greatest key to the smallest.
        :param limit: maximum number of rows.
        :raises Invalid: if `prefix` is given together with a bound, or `limit` is negative.
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
        """As `scan`, but yields only the keys."""
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
        """As `scan`, but yields only the values."""
        return Scan(self._handle, "values", start, end, prefix, reverse, limit)

    async def approximate_size(
        self,
        start: _Bytes | None = None,
        end: _Bytes | None = None,
        *,
        prefix: _Bytes | None = None,
    ) -> Size:
        """Estimates the stored size of `[start, end)`, or of the keys with `prefix`, from metadata
        alone: no block is read. A table at an edge of the range costs one request if its index is
        not in memory.

        The estimate counts stored data: it includes older versions and deleted or expired rows
        until a compaction drops them and, in memory, writes after a snapshot. Bytes are the
        compressed bytes of blocks, and the bytes of memtables. The estimate is never too low, and
        too high by at most two blocks for each layer (`read_amplification` of `stats()` is the
        number of layers). The rows of a table at an edge are estimated in proportion to its bytes;
        all other rows are exact.

        :raises Invalid: if `prefix` is given together with a bound.
        :raises Closed, Fenced, Unavailable, Timeout, Denied, Corruption: as for `get`.
        """
        answer: Size | Pending[Size] = self._handle._begin_size(start, end, prefix)
        if isinstance(answer, Pending):
            answer = await answer
        return answer

    async def close(self) -> None:
        """Closes the handle. `close()` is idempotent."""
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
        """HTML for notebooks, or None if there is only a text form."""
        shown = getattr(self._handle, "_repr_html_", None)
        return shown() if shown else None

    def __reduce__(self) -> NoReturn:
        name = type(self).__name__
        raise TypeError(
            f"a siltstone.aio.{name} cannot be pickled: opening anew must be awaited; send the URL,"
            " or a siltstone.Reader"
        )


class _Warms(_Reads):
    """Handles of one state, or of the newest one: Database, Reader and Snapshot."""

    __slots__ = ()

    async def get_entry(self, key: _Bytes) -> Entry | None:
        """Returns the value of `key` with its expiry and the sequence number of its write, if that
        is still known. Returns None if the key is absent.

        :raises Invalid: if the key is empty or too long.
        :raises Closed, Fenced, Unavailable, Timeout, Denied, Corruption: see
            `siltstone.exceptions`.
        """
        answer: Entry | Pending[Entry | None] | None = self._handle._begin_get_entry(key)
        if isinstance(answer, Pending):
            answer = await answer
        return answer

    async def warm(
        self,
        start: _Bytes | None = None,
        end: _Bytes | None = None,
        *,
        prefix: _Bytes | None = None,
    ) -> int:
        """Reads the blocks of `[start, end)`, or of the keys with `prefix`, into the block cache
        ahead of their first use, and returns the bytes of the keys and values that it read. It
        stops when the cache is three quarters full.

        :raises Invalid: if `prefix` is given together with a bound.
        :raises Closed, Fenced, Unavailable, Timeout, Denied, Corruption: as for `get`.
        """
        read: int = await self._handle._begin_warm(start, end, prefix)
        return read
