"""The compiled part, as it is typed and documented. A test compares it with the built module.

Keys are 1 to 65,535 bytes, values under 4 GiB; both are `bytes` or any C-contiguous buffer (copied
unless `bytes`). A `str` is a TypeError. Durations are `timedelta` or seconds as a float.

Every call that waits gives the interpreter lock up, ends by the handle's `deadline` with `Timeout`,
and is interrupted by Ctrl-C.
"""

from collections.abc import Iterable, Iterator
from datetime import timedelta
from types import TracebackType
from typing import Any, Generic, NoReturn, Protocol, Self, TypeAlias, TypeVar, final, overload

from siltstone.stats import Stats

__all__ = [
    "ArrowArray",
    "ArrowStream",
    "Commit",
    "Database",
    "Reader",
    "Scan",
    "Snapshot",
    "WriteBatch",
    "__version__",
    "at_exit",
    "check_options",
    "error_kinds",
    "error_of_kind",
    "manifest",
    "open",
    "open_reader",
    "option_table",
    "stat_table",
]

__version__: str

class _Buffer(Protocol):
    def __buffer__(self, flags: int, /) -> memoryview: ...

class _ArrowArrayLike(Protocol):
    def __arrow_c_array__(self, requested_schema: Any = None) -> Any: ...

class _ArrowStreamLike(Protocol):
    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any: ...

_Bytes: TypeAlias = bytes | _Buffer
_Seconds: TypeAlias = timedelta | float
_ArrowData: TypeAlias = _ArrowArrayLike | _ArrowStreamLike
_T = TypeVar("_T")
_Array = TypeVar("_Array", bound=_ArrowArrayLike)
_Row = TypeVar("_Row", bytes, tuple[bytes, bytes])

class _Reads:
    """What Database, Reader and Snapshot have in common. From any thread."""

    @overload
    def get(self, key: _Bytes, default: None = None) -> bytes | None:
        """The value of `key`, or `default`.

        :raises Invalid: an empty or oversized key.
        :raises Closed, Fenced, Unavailable, Timeout, Denied, Corruption: as their texts say.
        """
    @overload
    def get(self, key: _Bytes, default: _T) -> bytes | _T: ...
    def __getitem__(self, key: _Bytes, /) -> bytes:
        """As `get`; KeyError when `key` is absent."""
    def __contains__(self, key: _Bytes, /) -> bool:
        """Whether `key` is there. Its value is not copied."""
    @overload
    def get_many(self, keys: _Array) -> _Array:
        """The values of `keys`, in their order, all of one moment; None where a key is absent.

        An Arrow array of binary or text gives an Arrow array of binary, of the same library where
        that is pyarrow or arro3. A null key gives a null.
        """
    @overload
    def get_many(self, keys: Iterable[_Bytes]) -> list[bytes | None]: ...
    @overload
    def get_many(self, keys: _ArrowStreamLike) -> Any: ...
    def scan(
        self,
        start: _Bytes | None = None,
        end: _Bytes | None = None,
        *,
        prefix: _Bytes | None = None,
        reverse: bool = False,
        limit: int | None = None,
    ) -> Scan[tuple[bytes, bytes]]:
        """Iterates over keys and values of `[start, end)`, or of the keys with `prefix`, as they
        are now.

        :param reverse: from the greatest key down.
        :param limit: at most so many rows.
        :raises Invalid: `prefix` together with a bound; a negative limit.
        """
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
    def __iter__(self) -> Scan[bytes]:
        """Iterates over all keys, as a mapping does."""
    def __len__(self) -> NoReturn:
        """TypeError: counting would mean reading every key."""
    def __bool__(self) -> bool:
        """True, always: a handle is not a count."""

@final
class Database(_Reads):
    """The one writer of a database, from `siltstone.open`.

    Its own reads see what it has accepted, durable or not. As a context manager it closes at the
    end; an interpreter that exits normally closes what is open. It does not pickle; in a forked
    child every call raises Closed.
    """

    def put(
        self,
        key: _Bytes,
        value: _Bytes,
        *,
        ttl: _Seconds | None = None,
        if_absent: bool = False,
        if_seq: int | None = None,
    ) -> Commit:
        """Sets `key` to `value`. Visible to this handle at once, durable within `flush_interval`,
        or when somebody waits for the Commit. Waits only while `max_memtable_bytes` are unflushed.

        :param ttl: the key is gone after this long.
        :param if_absent: not built yet.
        :param if_seq: not built yet.
        :raises Invalid: an empty or oversized key or value, a ttl that is not above 0.
        :raises Closed, Fenced, Timeout, Unavailable: as their texts say.
        """
    def __setitem__(self, key: _Bytes, value: _Bytes, /) -> None:
        """As `put`, without the Commit."""
    def delete(self, key: _Bytes) -> Commit:
        """Deletes `key`; that it was absent is no error."""
    def __delitem__(self, key: _Bytes, /) -> None:
        """As `delete`: that `key` was absent is no error, since finding out would mean a read."""
    @overload
    def put_many(self, keys: Iterable[_Bytes], values: Iterable[_Bytes]) -> Commit:
        """Sets every key to the value beside it, as one atomic batch: sequences of bytes, or two
        Arrow arrays of binary or text.

        :raises Invalid: lengths that differ, nulls, more than `max_batch_bytes`.
        """
    @overload
    def put_many(self, keys: _ArrowData, values: _ArrowData) -> Commit: ...
    def write(self, batch: WriteBatch | _ArrowData) -> Commit:
        """Commits a batch, or an Arrow table or record batch with the columns `key` and `value`, as
        one atomic batch.

        :raises Invalid: missing columns, nulls, more than `max_batch_bytes`.
        """
    def batch(self) -> WriteBatch:
        """A batch for a `with` block: committed when the block ends well, discarded on an
        exception. Then `batch.commit` is the Commit."""
    def flush(self) -> None:
        """Returns when every write issued before it is durable."""
    def snapshot(self) -> Snapshot:
        """A fixed view of the database as it is now."""
    def stats(self) -> Stats:
        """What the handle holds and has done since it was opened: `Stats`. Asks nothing of the
        store; cheap enough for every second.

        :raises Closed: in a forked child (a reader: when it was closed).
        """
    def metrics(self) -> dict[str, float]:
        """The figures of `stats` by name, as floats: what a monitoring system takes. Units stand in
        `Stats`; names with `_bytes`, `_seconds`, `_requests`, `_rows` carry them."""
    def close(self) -> None:
        """Makes everything durable, records a clean close, and ends the handle. Doing it twice is
        fine."""
    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None: ...
    def merge(self, *_arguments: Any, **_named: Any) -> NoReturn:
        """Not built yet: raises Unsupported."""
    def delete_range(self, *_arguments: Any, **_named: Any) -> NoReturn:
        """Not built yet: raises Unsupported."""
    def transaction(self, *_arguments: Any, **_named: Any) -> NoReturn:
        """Not built yet: raises Unsupported."""
    def checkpoint(self, *_arguments: Any, **_named: Any) -> NoReturn:
        """Not built yet: raises Unsupported."""
    def load(self, *_arguments: Any, **_named: Any) -> NoReturn:
        """Not built yet: raises Unsupported."""
    def ingest(self, *_arguments: Any, **_named: Any) -> NoReturn:
        """Not built yet: raises Unsupported."""
    def compact(self, *_arguments: Any, **_named: Any) -> NoReturn:
        """Not built yet: raises Unsupported."""
    def __reduce__(self) -> NoReturn: ...

@final
class Reader(_Reads):
    """A reader, from `siltstone.open_reader`: sees whole writes in commit order, as far as they are
    durable.

    It pickles, and opens itself anew after a fork. URL and options travel; store options come from
    the environment at the other end, or from the provider that it was opened with.
    """

    def refresh(self) -> None:
        """Looks for newer data now, rather than at the next `manifest_poll_interval`."""
    def stats(self) -> Stats:
        """What the handle holds and has done since it was opened: `Stats`. Asks nothing of the
        store; cheap enough for every second.

        :raises Closed: in a forked child (a reader: when it was closed).
        """
    def metrics(self) -> dict[str, float]:
        """The figures of `stats` by name, as floats: what a monitoring system takes. Units stand in
        `Stats`; names with `_bytes`, `_seconds`, `_requests`, `_rows` carry them."""
    def close(self) -> None:
        """Ends the handle. Doing it twice is fine."""
    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None: ...
    def __reduce__(self) -> tuple[Any, tuple[str, dict[str, Any]]]: ...

@final
class Snapshot(_Reads):
    """A fixed view of a writer's database. It holds what it reads until it is closed, and goes on
    after the database is closed."""

    @property
    def seq(self) -> int:
        """The last sequence number it sees."""
    def close(self) -> None:
        """Lets go of what it holds. Scans that it made go on."""
    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None: ...
    def __reduce__(self) -> NoReturn: ...

@final
class Scan(Iterator[_Row], Generic[_Row]):
    """A one-shot iteration, pinned when it was made. One thread at a time."""

    def __iter__(self) -> Self: ...
    def __next__(self) -> _Row: ...
    def to_arrow(self, batch_rows: int | None = None) -> ArrowStream:
        """The rows not yet iterated, as Arrow record batches with the columns `key` and `value`.

        :param batch_rows: rows of a batch at most (65,536 by default). Batches also end at 64 MiB.
        :raises Invalid: rows were read but not yet iterated; `batch_rows` below 1.
        """
    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any: ...
    def close(self) -> None:
        """Lets go of what the scan holds; it yields nothing more."""
    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None: ...
    def __class_getitem__(cls, _item: Any) -> Any: ...

@final
class ArrowStream:
    """The rows of a scan as a stream of Arrow record batches. It can be read once, by whatever
    understands the Arrow PyCapsule interface: pyarrow, polars, duckdb, pandas, arro3."""

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any: ...
    def __arrow_c_schema__(self) -> Any: ...

@final
class ArrowArray:
    """An Arrow array of binary, for whatever understands the Arrow PyCapsule interface."""

    def __arrow_c_array__(self, requested_schema: Any = None) -> Any: ...
    def __len__(self) -> int: ...

@final
class Commit:
    """A write that was accepted. Dropping it cancels nothing."""

    @property
    def seq(self) -> int:
        """Sequence number of the write's last operation: its place in the one history."""
    @property
    def durable(self) -> bool:
        """Whether the write is durable by now."""
    def wait(self, timeout: _Seconds | None = None) -> None:
        """Returns once the write is durable; has it sent at once if it was not.

        :param timeout: None: the handle's deadline.
        :raises Timeout: the write goes on, and may still become durable.
        :raises Fenced, Closed: it will not be acknowledged.
        :raises Denied: the store refuses the credentials; the write is tried again.
        """

@final
class WriteBatch:
    """Operations for one atomic commit, in their order. One thread at a time."""

    def __new__(cls) -> Self: ...
    def put(self, key: _Bytes, value: _Bytes, *, ttl: _Seconds | None = None) -> None:
        """Sets `key` to `value`.

        :param ttl: the key is gone after this long, counted from now.
        :raises Invalid: an empty or oversized key or value, a ttl that is not above 0.
        """
    def delete(self, key: _Bytes) -> None:
        """Deletes `key`; that it was absent is no error."""
    def clear(self) -> None:
        """Forgets every operation."""
    @property
    def nbytes(self) -> int:
        """Bytes of the operations, encoded: what `max_batch_bytes` counts."""
    @property
    def commit(self) -> Commit | None:
        """The Commit, once the `with` block of a batch from `Database.batch()` ended well."""
    def __len__(self) -> int:
        """Operations."""
    def __bool__(self) -> bool: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None: ...
    def merge(self, *_arguments: Any, **_named: Any) -> NoReturn:
        """Not built yet: raises Unsupported."""
    def delete_range(self, *_arguments: Any, **_named: Any) -> NoReturn:
        """Not built yet: raises Unsupported."""

def open(
    url: str,
    create: bool,
    take_over: bool,
    named: dict[str, Any],
    store_options: dict[str, str | int | bool],
) -> Database: ...
def open_reader(
    url: str,
    named: dict[str, Any],
    store_options: dict[str, str | int | bool],
    provider: str | None = None,
) -> Reader: ...
def manifest(
    url: str, id: int | None, store_options: dict[str, str | int | bool]
) -> dict[str, Any]: ...
def check_options(named: dict[str, Any]) -> dict[str, Any]:
    """`named`, checked and in plain types."""

def option_table() -> list[tuple[str, str, Any, str, str]]:
    """One tuple an option: name, kind, default, range in words, meaning."""

def stat_table() -> list[tuple[str, str, str, str]]:
    """One tuple a figure: name, group, unit, meaning. Each is a field of `siltstone.Stats`."""

def error_kinds() -> list[str]:
    """The names of all error kinds: each is a class of `siltstone.exceptions`."""

def error_of_kind(kind: str, text: str) -> BaseException:
    """The exception that an engine error of this kind becomes."""

def at_exit() -> None:
    """Closes everything that is open and ends the runtime; nothing can be opened after."""
