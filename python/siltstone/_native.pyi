"""The compiled module: types and documentation. A test compares it with the built module.

Keys have 1 to 65,535 bytes. A key and its value must fit into a batch (`max_batch_bytes`: 64 MiB by
default, at most 1 GiB). Both are `bytes` or any C-contiguous buffer, which is copied unless it is
`bytes`. A `str` raises TypeError. A duration is a `timedelta`, seconds as a float, or text with a
unit, such as "2h".

A call that waits releases the interpreter lock, raises `Timeout` after the `deadline` of the
handle, and can be interrupted with Ctrl-C.
"""

from collections.abc import (
    Awaitable,
    Callable,
    Coroutine,
    Generator,
    Iterable,
    Iterator,
    Mapping,
)
from datetime import datetime, timedelta
from os import PathLike
from types import EllipsisType, TracebackType
from typing import (
    Any,
    Generic,
    Literal,
    NoReturn,
    Protocol,
    Self,
    TypeAlias,
    TypeVar,
    final,
    overload,
)

from siltstone._checkpoints import Checkpoint, CheckpointLike
from siltstone._entry import Entry
from siltstone._load_result import LoadResult
from siltstone._open import StoreOptionsSource
from siltstone.changes import Before, Changes, Since
from siltstone.exceptions import Error
from siltstone.ingest import IngestRequest, Part
from siltstone.keys import Part as _KeyPart
from siltstone.lsm import SstInfo
from siltstone.mapping import Mapping as _Mapping
from siltstone.merging import MergeOperatorSource
from siltstone.options import Options
from siltstone.stats import Size, Stats
from siltstone.table import Table

__all__ = [
    "ArrowArray",
    "ArrowStream",
    "AsyncCommit",
    "AsyncScan",
    "BloomFilter",
    "Commit",
    "Database",
    "Feed",
    "MemTable",
    "MemTableSnapshot",
    "PartWriter",
    "Pending",
    "Port",
    "Reader",
    "Savepoint",
    "Scan",
    "Snapshot",
    "SstReader",
    "SstWriter",
    "TableSchema",
    "TableStream",
    "Transaction",
    "UnitPlan",
    "WriteBatch",
    "__version__",
    "at_exit",
    "begin_clone",
    "begin_destroy",
    "begin_export",
    "begin_open",
    "begin_open_reader",
    "bytes_of_text",
    "check_group",
    "check_options",
    "clone",
    "collect_after_repair",
    "compact",
    "create_checkpoint",
    "delete_checkpoint",
    "destroy",
    "error_kinds",
    "error_of_kind",
    "export",
    "feed_begin",
    "feed_consumers",
    "feed_forget",
    "feed_latest",
    "gc",
    "give_up_table",
    "ingest_abort",
    "ingest_begin",
    "ingest_commit",
    "ingest_forget",
    "ingest_jobs",
    "ingest_load",
    "ingest_status",
    "ingest_status_of",
    "ingest_submit",
    "ingest_withdraw",
    "ingest_writer",
    "list_checkpoints",
    "manifest",
    "memory_in_use",
    "merge_sorted",
    "next_lines",
    "open",
    "open_reader",
    "open_table",
    "operator_names",
    "option_table",
    "pack",
    "pin_shared",
    "plan_compaction",
    "prefix_range",
    "probe",
    "promote",
    "refresh_checkpoint",
    "release_clone",
    "repair",
    "restore",
    "run_compactor",
    "run_gc",
    "run_unit",
    "seconds_of_duration",
    "seq_at",
    "stat_table",
    "unpack",
    "verify",
    "version_states",
    "versions",
]

__version__: str

_ReadAt: TypeAlias = str | int | dict[str, Any] | None
_PlainRange: TypeAlias = tuple[bytes | None, bytes | None]
_PlainUnit: TypeAlias = tuple[str, int, str | None]
_PlainJob: TypeAlias = tuple[
    str, str, str | None, tuple[str, int] | None, _PlainRange | None, bool, int, str | None, bool
]
_PlainRequest: TypeAlias = tuple[_PlainJob, str, int, int, int]
_PlainStanding: TypeAlias = tuple[Any, int | None, str | None]

class _Buffer(Protocol):
    def __buffer__(self, flags: int, /) -> memoryview: ...

class _Writable(Protocol):
    def write(self, data: bytes, /) -> Any: ...

class _ArrowArrayLike(Protocol):
    def __arrow_c_array__(self, requested_schema: Any = None) -> Any: ...

class _ArrowStreamLike(Protocol):
    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any: ...

_Bytes: TypeAlias = bytes | _Buffer
_Seconds: TypeAlias = timedelta | float | str
_Size: TypeAlias = int | str
_Described: TypeAlias = str | tuple[str, Any, Any] | None
_ArrowData: TypeAlias = _ArrowArrayLike | _ArrowStreamLike
_T = TypeVar("_T")
_V = TypeVar("_V")
_Codec: TypeAlias = tuple[Callable[[_T], bytes], Callable[[bytes], _T]]
_Array = TypeVar("_Array", bound=_ArrowArrayLike)
_Row = TypeVar("_Row", bytes, tuple[bytes, bytes], tuple[bytes, bytes | None])

_T_co = TypeVar("_T_co", covariant=True)

class _Lookups:
    """Lookups by key, which all readable classes have. They can be called from any thread."""

    @overload
    def get(self, key: _Bytes, default: None = None) -> bytes | None:
        """Returns the value of `key`, or `default` if the key is absent.

        :raises Invalid: if the key is empty or too long.
        :raises Closed, Fenced: if the handle can no longer be used.
        :raises Unavailable, Timeout, Denied, Corruption: see `siltstone.exceptions`.
        """
    @overload
    def get(self, key: _Bytes, default: _T) -> bytes | _T: ...
    def __getitem__(self, key: _Bytes, /) -> bytes:
        """As `get`, but raises KeyError if `key` is absent."""
    def __contains__(self, key: _Bytes, /) -> bool:
        """Whether `key` exists. The value is not copied."""
    @overload
    def get_many(self, keys: _Array) -> _Array:
        """Returns the values of `keys`, in the order of `keys`, all from one state of the
        database; None for an absent key.

        For an Arrow array of binary or text the result is an Arrow array of binary
        (of large binary if the values exceed 2 GiB), of the same library if that is
        pyarrow or arro3. A null key gives a null.

        :raises TypeError: if `keys` is a single key, or an element is not a key; the text
            names its row.
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
        """Iterates over the keys and values of `[start, end)`, or of the keys with `prefix`,
        in the state at the time of the call.

        :param reverse: iterate from the greatest key to the smallest.
        :param limit: maximum number of rows.
        :raises Invalid: if `prefix` is given together with a bound, or `limit` is negative.
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
        """As `scan`, but yields only the keys."""
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
    def __iter__(self) -> Scan[bytes]:
        """Iterates over all keys, like a mapping."""
    def __bool__(self) -> bool:
        """Always True: a handle is not a count."""

class _Reads(_Lookups):
    """The methods that Database, Reader, Snapshot and Transaction share."""

    def __len__(self) -> NoReturn:
        """Raises TypeError: counting would read every key."""
    def approximate_size(
        self,
        start: _Bytes | None = None,
        end: _Bytes | None = None,
        *,
        prefix: _Bytes | None = None,
    ) -> Size:
        """Estimates the stored size of `[start, end)`, or of the keys with `prefix`, from
        metadata alone: no block is read. A table at an edge of the range costs one request
        if its index is not in memory.

        The estimate counts stored data: it includes older versions and deleted or expired
        rows until a compaction drops them and, in memory, writes after a snapshot. Bytes
        are the compressed bytes of blocks, and the bytes of memtables. The estimate is
        never too low, and too high by at most two blocks for each layer
        (`read_amplification` of `stats()` is the number of layers). The rows of a table at
        an edge are estimated in proportion to its bytes; all other rows are exact.

        :raises Invalid: if `prefix` is given together with a bound.
        :raises Closed, Fenced, Unavailable, Timeout, Denied, Corruption: as for `get`.
        """
    # Called by siltstone.aio: each returns the result, or a Pending if it must wait.
    def _begin_size(
        self, start: _Bytes | None, end: _Bytes | None, prefix: _Bytes | None
    ) -> Size | Pending[Size]: ...
    def _begin_get(self, key: _Bytes, default: _T) -> bytes | _T | Pending[bytes | _T]: ...
    def _begin_contains(self, key: _Bytes) -> bool | Pending[bool]: ...
    def _begin_get_many(self, keys: Any) -> Any: ...
    def _begin_scan(
        self,
        yields: str,
        start: _Bytes | None,
        end: _Bytes | None,
        prefix: _Bytes | None,
        reverse: bool,
        limit: int | None,
    ) -> AsyncScan[Any]: ...

class _Warms(_Reads):
    """The methods that Database, Reader and Snapshot share."""

    def get_entry(self, key: _Bytes) -> Entry | None:
        """Returns the value of `key` with its expiry and the sequence number of its write, if
        that is still known. Returns None if the key is absent.

        :raises Invalid: if the key is empty or too long.
        :raises Closed, Fenced, Unavailable, Timeout, Denied, Corruption: see
            `siltstone.exceptions`.
        """
    def warm(
        self,
        start: _Bytes | None = None,
        end: _Bytes | None = None,
        *,
        prefix: _Bytes | None = None,
    ) -> int:
        """Reads the blocks of `[start, end)`, or of the keys with `prefix`, into the block
        cache ahead of their first use, and returns the bytes of the keys and values that it
        read. It stops when the cache is three quarters full: point reads have the rest. A
        table that the system maps from a local folder is left to the page cache.

        :raises Invalid: if `prefix` is given together with a bound.
        :raises Closed, Fenced, Unavailable, Timeout, Denied, Corruption: as for `get`.
        """
    # Called by siltstone.aio.
    def _begin_get_entry(self, key: _Bytes) -> Entry | Pending[Entry | None] | None: ...
    def _begin_warm(
        self, start: _Bytes | None, end: _Bytes | None, prefix: _Bytes | None
    ) -> Pending[int]: ...

@final
class Database(_Warms):
    """The writer of a database, from `siltstone.open`. A database has one writer.

    Its own reads see every accepted write, durable or not. As a context manager it closes at the
    end of the block. An interpreter that exits normally closes open handles. A Database cannot be
    pickled. In a forked child every call raises Closed.
    """
    @property
    def table(self) -> Table:
        """The typed view of the rows, for a database that `siltstone.table.create` made.

        :raises Invalid: if the database has no columns.
        :raises Closed, Fenced: see `siltstone.exceptions`.
        """
    def _schema(self) -> str | None: ...
    def _newest_schema(self) -> str | None: ...
    def _begin_newest_schema(self) -> Pending[str | None]: ...
    def _evolve(self, from_: str, to: str) -> None: ...
    def _begin_evolve(self, from_: str, to: str) -> Pending[None]: ...
    def put(
        self,
        key: _Bytes,
        value: _Bytes,
        *,
        ttl: _Seconds | None = None,
        expire_at: datetime | None = None,
        if_absent: bool = False,
        if_value: _Bytes | None = ...,
    ) -> Commit:
        """Sets `key` to `value`. The write is visible to this handle at once. It is durable within
        `flush_interval`, or as soon as a caller waits for the Commit; with `writes.wal_enabled` off
        once its memtable is flushed. The call waits only while `max_memtable_bytes` are unflushed.

        :param ttl: time to live; the key expires after it. Rounded up to milliseconds.
        :param expire_at: an aware datetime, instead of `ttl`: the key expires at this time. A time
            in the past hides the previous value.
        :param if_absent: write only if the key is absent.
        :param if_value: write only if the key has this value; None, as `get` returns it, means
            that it must be absent.
        :raises Conflict: if the condition does not hold; `context["key"]` names the key.
        :raises Invalid: if the key is empty, or either is too long, or `ttl` is not positive and
            finite.
        :raises Closed, Fenced, Timeout, Unavailable: see `siltstone.exceptions`.
        """
    def __setitem__(self, key: _Bytes, value: _Bytes, /) -> None:
        """As `put`, without the Commit."""
    def merge(
        self,
        key: _Bytes,
        operand: _Bytes,
        *,
        ttl: _Seconds | None = None,
        expire_at: datetime | None = None,
    ) -> Commit:
        """Adds a merge operand to `key`. Reads fold it into the value with the merge operator that
        the database was opened with.

        :param ttl: time to live. After it the operand expires, together with the value that it was
            added to.
        :param expire_at: as for `put`.
        :raises Invalid: if the database was opened without a merge operator, or the operator does
            not accept the operand; as for `put`.
        """
    def delete(self, key: _Bytes, *, if_value: _Bytes | None = ...) -> Commit:
        """Deletes `key`. Deleting an absent key succeeds.

        :param if_value: delete only if the key has this value; None means that it must be absent.
        :raises Conflict: if the condition does not hold; `context["key"]` names the key.
        """
    def pop(self, key: _Bytes, default: _T = ...) -> bytes | _T:
        """Deletes `key` and returns its value. If several callers pop the key concurrently, one of
        them gets the value.

        :param default: result for an absent key; without it an absent key raises KeyError.
        :raises Closed, Fenced, Timeout, Unavailable: see `siltstone.exceptions`.
        """
    def __delitem__(self, key: _Bytes, /) -> None:
        """As `delete`. An absent key raises no KeyError, because the check would cost a read."""
    def delete_range(
        self,
        start: _Bytes | None = None,
        end: _Bytes | None = None,
        *,
        prefix: _Bytes | None = None,
    ) -> Commit:
        """Deletes all keys of `[start, end)`, or all keys with `prefix`, with one entry,
        independent of their number. Later writes are not affected. Without `start` the range begins
        at the first key; without `end` it ends after the last. Compactions do not read tables that
        the range covers completely.

        :raises Invalid: if no argument is given, `prefix` is given together with a bound, a bound
            or the prefix is empty or too long, or `start` is not below `end`.
        """
    @overload
    def put_many(
        self,
        keys: Iterable[_Bytes],
        values: Iterable[_Bytes],
        *,
        ttl: _Seconds | None = None,
        expire_at: datetime | None = None,
    ) -> Commit:
        """Sets each key to the value at the same position, in one atomic batch. Keys and values are
        sequences of bytes, or two Arrow arrays of binary or text.

        :param ttl: as for `put`, for all rows.
        :param expire_at: as for `put`, for all rows.
        :raises Invalid: if the lengths differ, an array has nulls, or the batch is larger than
            `max_batch_bytes`; as for `put`.
        :raises TypeError: if an argument is a single key or value, a set or a mapping, or an
            element has the wrong type; the text names its row.
        """
    @overload
    def put_many(
        self,
        keys: _ArrowData,
        values: _ArrowData,
        *,
        ttl: _Seconds | None = None,
        expire_at: datetime | None = None,
    ) -> Commit: ...
    def write(self, batch: WriteBatch | _ArrowData) -> Commit:
        """Commits a WriteBatch, or an Arrow table or record batch with the columns `key` and
        `value`, as one atomic batch.

        :raises Invalid: if a column is missing, a column has nulls, or the batch is larger than
            `max_batch_bytes`.
        """
    def batch(self) -> WriteBatch:
        """Returns a batch for a `with` block. The batch is committed at the end of the block, and
        discarded if the block raises. Afterwards `batch.commit` is the Commit."""
    def flush(self, *, memtable: bool = False) -> None:
        """Returns when every earlier write is durable. With `writes.wal_enabled` off this flushes
        the memtable.

        :param memtable: also write the memtable to tables, so that the next opening has nothing to
            replay.
        """
    @property
    def closed_by(self) -> Error | None:
        """The exception that calls of a closed handle raise. None while the handle is open."""
    def compact(self) -> None:
        """Runs a major compaction: merges all tables into one sorted run, and returns when that is
        done. The new tables contain no overwritten, deleted or expired rows, except those that a
        snapshot needs. An interrupted compaction loses no work: the next compaction resumes it.

        :raises Fenced: if another compactor has taken over. This handle can still read and write.
        """
    def snapshot(self) -> Snapshot:
        """Returns a fixed view of the current state of the database."""
    @overload
    def mapping(
        self, *, key: type[bytes] | None = None, value: type[bytes] | None = None
    ) -> _Mapping[bytes, bytes]:
        """Returns the database as a `MutableMapping`, for code that takes a `dict`, like
        `shelve.Shelf`. Its `len` scans and counts all keys.

        :param key: codec of the keys: `bytes`, `str` (UTF-8), or a pair of functions (encode to
            bytes, decode from bytes). The order of iteration is the order of the bytes.
        :param value: codec of the values, likewise.
        :raises TypeError: if a codec is none of these.
        """
    @overload
    def mapping(
        self, *, key: type[str], value: type[bytes] | None = None
    ) -> _Mapping[str, bytes]: ...
    @overload
    def mapping(self, *, key: type[str], value: type[str]) -> _Mapping[str, str]: ...
    @overload
    def mapping(
        self, *, key: type[bytes] | None = None, value: type[str]
    ) -> _Mapping[bytes, str]: ...
    @overload
    def mapping(
        self, *, key: _Codec[_T], value: type[bytes] | None = None
    ) -> _Mapping[_T, bytes]: ...
    @overload
    def mapping(self, *, key: _Codec[_T], value: type[str]) -> _Mapping[_T, str]: ...
    @overload
    def mapping(
        self, *, key: type[bytes] | None = None, value: _Codec[_V]
    ) -> _Mapping[bytes, _V]: ...
    @overload
    def mapping(self, *, key: type[str], value: _Codec[_V]) -> _Mapping[str, _V]: ...
    @overload
    def mapping(self, *, key: _Codec[_T], value: _Codec[_V]) -> _Mapping[_T, _V]: ...
    def stats(self) -> Stats:
        """Returns `Stats`: the state of the handle, and counts since it was opened. The call makes
        no request to the store, and is cheap enough for once a second.

        :raises Closed: in a forked child, and from a reader after it was closed.
        """
    def metrics(self) -> dict[str, float]:
        """Returns the figures of `stats` by name, as floats, for monitoring systems. `Stats`
        documents the units; the name endings `_bytes`, `_seconds`, `_requests` and `_rows` name
        them too."""
    def close(self) -> None:
        """Makes all writes durable, records a clean close, and ends the handle. A close that has
        begun continues even if the wait is interrupted. `close()` is idempotent: repeated calls
        wait for the same close, and return or raise the same result.

        :raises Fenced, Timeout, Denied, Unavailable: if the close failed. The handle is closed
            anyway. Acknowledged writes are durable, and the next opening recovers as many of the
            other writes as possible.
        """
    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None: ...
    def _repr_html_(self) -> str:
        """HTML for notebooks: the place, the state, and the key figures."""
    def transaction(
        self, isolation: Literal["serializable", "snapshot"] = "serializable"
    ) -> Transaction:
        """Begins a transaction. Use it in a `with` block, which commits at the end.

        :param isolation: "serializable": the commit raises Conflict if another commit changed any
            data that the transaction has read, including keys that it looked for and did not find.
            "snapshot": the commit raises Conflict if another commit wrote a key that the
            transaction writes. Two transactions may then each change data that the other has read
            (write skew).
        :raises Invalid: if `isolation` has another value.
        :raises Closed, Fenced: if the handle can no longer be used.
        """
    def checkpoint(
        self,
        *,
        scope: Literal["all", "durable"] = "all",
        force_flush: bool = True,
        lifetime: _Seconds | None = None,
        source: CheckpointLike | None = None,
        name: str | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> Checkpoint:
        """Creates a checkpoint: a state of the database that any process can read with
        `open_reader(url, checkpoint=…)`, until the checkpoint is deleted or expires. The writer
        continues to write. No table is copied.

        :param scope: "all": include every write that was accepted before the call. "durable":
            include only writes that are already durable, which is faster.
        :param force_flush: with scope "all", whether to make pending writes durable at once, or to
            wait for the next `flush_interval`.
        :param lifetime: time after which the checkpoint may be collected (a timedelta, seconds, or
            text such as "2h"). None: it lives until it is deleted.
        :param source: another checkpoint. The new one keeps the state of that checkpoint instead of
            the current state.
        :param name: name of the checkpoint, unique in the database.
        :param metadata: text values to attach, by name.
        :raises Expired: if the source has expired or does not exist.
        :raises Conflict: if another checkpoint has the name.
        :raises Invalid, Closed, Fenced, Unavailable, Timeout: see `siltstone.exceptions`. If the
            outcome is unknown, the error names the id of the checkpoint.
        """
    def load(
        self,
        data: Any,
        *,
        sorted: bool = False,
        duplicates: Literal["error", "last"] = "error",
        memory_bytes: _Size | None = None,
        scratch: str | PathLike[str] | None = None,
        on_progress: Callable[[int, int], object] | None = None,
    ) -> LoadResult:
        """Loads any amount of Arrow data: sorts it, builds tables on all cores, and makes all rows
        visible and durable in one commit, at one position in the history.

        :param data: an object with `__arrow_c_stream__` or `__arrow_c_array__` and the columns
            `key` and `value` of binary or text, such as a pyarrow table or reader, a data frame of
            polars or pandas, or a relation of duckdb; or an iterable of such data, or of pairs of
            Arrow arrays.
        :param sorted: the rows are in ascending order of their keys. Otherwise they are sorted.
        :param duplicates: "error": raise Invalid for rows with equal keys. "last": keep the last of
            them.
        :param memory_bytes: memory for rows, in bytes or as text such as "2GiB" (at least 64 MiB,
            1 GiB by default), in addition to the memory of `data` itself. Larger data is sorted
            through files in `scratch`.
        :param scratch: an existing local folder (by default that of `tempfile`).
        :param on_progress: called a few times a second, when all rows are read, and at the end,
            with the bytes done and the bytes to do, as far as known. Each row counts twice: when it
            is read, and when it is in a table. An exception that it raises before the last call,
            which follows the commit, ends the load.
        :return: `LoadResult`. Existing rows with other keys are kept.
        :raises Invalid: if a column is missing, a value is null, a row is out of order (the text
            names the row, counted from 0), or rows have equal keys (the text names the key and both
            rows). No row is loaded.
        :raises TypeError: if the data or a column has an unsupported type.
        :raises Timeout: if all tables are uploaded but the commit did not end in time. The text
            says whether this writer, or the next, completes it.
        :raises Closed, Fenced, Denied, Unavailable: see `siltstone.exceptions`.
        """
    def ingest(self, request: IngestRequest) -> Commit:
        """Adopts an ingest job: all of its rows in one commit, at one position in the history. The
        rows are visible to this handle when the call returns, and durable with the Commit. Repeated
        calls for the same job return the same result.

        :param request: the result of `siltstone.ingest.Job.commit`, from any process.
        :raises Conflict: if the job is for another database or for a state that a restore has
            undone, if a collector has seen that its deadline has passed, if it was aborted, or if a
            later version of its application was adopted.
        :raises Invalid: if tables of the job are missing.
        :raises Timeout: if the adoption did not end in time. The text says whether the job is
            submitted: then this writer, or the next, adopts it.
        :raises Closed, Fenced, Denied, Unavailable: see `siltstone.exceptions`.
        """
    def changes(
        self,
        *,
        since: Since = None,
        consumer: str | None = None,
        until: str | None = None,
        lifetime: _Seconds | None = None,
        most_bytes: _Size | None = None,
        before: Before = None,
    ) -> Changes:
        """Returns the change feed, a `siltstone.changes.Changes`: all durable changes in
        commit order, as an iterator over Arrow record batches. Arguments and errors are
        those of `siltstone.changes.begin`."""
    # Called by siltstone.aio.
    def _begin_put(
        self,
        key: _Bytes,
        value: _Bytes,
        ttl: _Seconds | None,
        expire_at: datetime | None,
        if_absent: bool,
        if_value: _Bytes | EllipsisType | None,
    ) -> AsyncCommit | Pending[AsyncCommit]: ...
    def _begin_delete(
        self, key: _Bytes, if_value: _Bytes | EllipsisType | None
    ) -> AsyncCommit | Pending[AsyncCommit]: ...
    def _begin_pop(self, key: _Bytes, default: _T) -> bytes | _T | Pending[bytes | _T]: ...
    def _begin_merge(
        self, key: _Bytes, operand: _Bytes, ttl: _Seconds | None, expire_at: datetime | None
    ) -> AsyncCommit | Pending[AsyncCommit]: ...
    def _begin_delete_range(
        self, start: _Bytes | None, end: _Bytes | None, prefix: _Bytes | None
    ) -> AsyncCommit | Pending[AsyncCommit]: ...
    def _begin_put_many(
        self, keys: Any, values: Any, ttl: _Seconds | None, expire_at: datetime | None
    ) -> AsyncCommit | Pending[AsyncCommit]: ...
    def _begin_write(self, batch: Any) -> AsyncCommit | Pending[AsyncCommit]: ...
    def _begin_flush(self, memtable: bool) -> Pending[None]: ...
    def _begin_compact(self) -> Pending[None]: ...
    def _begin_feed(self, asked: dict[str, Any]) -> Pending[Feed]: ...
    def _begin_ingest(self, request: IngestRequest) -> Pending[AsyncCommit]: ...
    def _begin_checkpoint(self, asked: dict[str, Any]) -> Pending[Checkpoint]: ...
    def _begin_close(self) -> Pending[None]: ...
    def __reduce__(self) -> NoReturn: ...

@final
class Reader(_Warms):
    """A reader, from `siltstone.open_reader`. It sees whole writes in commit order, as soon as they
    are durable.

    A reader can be pickled, and reopens itself after a fork. The pickle carries the URL and the
    options. Store options come from the environment where it is unpickled, or from the provider
    that the reader was opened with.
    """
    @property
    def table(self) -> Table:
        """The typed view of the rows, for a database that `siltstone.table.create` made.

        :raises Invalid: if the database has no columns.
        :raises Closed, Fenced: see `siltstone.exceptions`.
        """
    def _schema(self) -> str | None: ...
    def _newest_schema(self) -> str | None: ...
    def _begin_newest_schema(self) -> Pending[str | None]: ...
    def changes(
        self,
        *,
        since: Since = None,
        consumer: str | None = None,
        until: str | None = None,
        lifetime: _Seconds | None = None,
        most_bytes: _Size | None = None,
        before: Before = None,
    ) -> Changes:
        """Returns the change feed, a `siltstone.changes.Changes`: all durable changes in
        commit order, as an iterator over Arrow record batches. Arguments and errors are
        those of `siltstone.changes.begin`."""
    def refresh(self) -> None:
        """Looks for newer data now, without waiting for the next `manifest_poll_interval`."""
    @property
    def checkpoint(self) -> Checkpoint | None:
        """The checkpoint that the reader was opened at; None for a following reader and for a
        reader at a version."""
    def stats(self) -> Stats:
        """Returns `Stats`: the state of the handle, and counts since it was opened. The call makes
        no request to the store, and is cheap enough for once a second.

        :raises Closed: in a forked child, and from a reader after it was closed.
        """
    def metrics(self) -> dict[str, float]:
        """Returns the figures of `stats` by name, as floats, for monitoring systems. `Stats`
        documents the units; the name endings `_bytes`, `_seconds`, `_requests` and `_rows` name
        them too."""
    def close(self) -> None:
        """Closes the handle. `close()` is idempotent."""
    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None: ...
    # Called by siltstone.aio.
    def _begin_feed(self, asked: dict[str, Any]) -> Pending[Feed]: ...
    def _begin_refresh(self) -> Pending[None]: ...
    def _begin_close(self) -> Pending[None] | None: ...
    def __reduce__(self) -> tuple[Any, tuple[str, dict[str, Any]]]: ...

@final
class Snapshot(_Warms):
    """A fixed view of a writer's database. It keeps the data that it reads until it or the database
    is closed. After the database was closed, reads raise Expired once a collector has deleted a
    table that they need."""
    @property
    def table(self) -> Table:
        """The typed view of the rows, for a database that `siltstone.table.create` made.

        :raises Invalid: if the database has no columns.
        :raises Closed, Fenced: see `siltstone.exceptions`.
        """
    def _schema(self) -> str | None: ...
    def _newest_schema(self) -> str | None: ...
    def _begin_newest_schema(self) -> Pending[str | None]: ...
    @property
    def seq(self) -> int:
        """The last sequence number that the snapshot sees."""
    def close(self) -> None:
        """Releases the data that the snapshot keeps. Open scans of the snapshot continue."""
    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None: ...
    def __reduce__(self) -> NoReturn: ...

@final
class TableSchema:
    """The columns of a table: first the key columns, in order, then the value columns. It encodes
    and decodes rows without a database, and can be pickled for use in other processes.

    :param schema: a pyarrow schema, or any object with the Arrow schema interface.
    :param key: the key columns, each optionally with its order: ``"day desc nulls last"``. A
        nullable key column takes one more byte in each key; declare it not nullable in `schema` if
        it has no nulls.
    :raises Invalid: if there is no key, a column does not exist or is given twice, or the order is
        not valid.
    :raises Unsupported: if a column has an unsupported type; the text names a type to cast it to.
    """

    def __new__(cls, schema: Any, *, key: list[str]) -> Self: ...
    @classmethod
    def parse(cls, text: str) -> TableSchema:
        """Parses a schema from its `text`.

        :raises Corruption: if the text is not a schema.
        :raises Unsupported: if the schema is of a later version.
        """
    @property
    def text(self) -> str:
        """The schema as two lines of text, as the manifest stores it."""
    @property
    def key(self) -> list[str]:
        """The names of the key columns, in order."""
    @property
    def directions(self) -> list[tuple[bool, bool]]:
        """The order of each key column: whether it is descending, and whether nulls come last."""
    @property
    def names(self) -> list[str]:
        """The names of all columns: the key columns, then the value columns."""
    @property
    def generation(self) -> int:
        """The generation of the value columns: 1, plus the number of changes to them."""
    def encode(self, rows: Any) -> tuple[ArrowArray, ArrowArray]:
        """Encodes rows to keys and values, two Arrow arrays of binary. Columns are found by name. A
        nullable value column may be missing.

        :param rows: Arrow data (a table, a batch, a data frame), or a list of dicts.
        :raises Invalid: if a column is missing, unknown, or of another type, if a column that is
            not nullable has a null, or if a row is larger than 2 GiB.
        """
    def encode_key(self, rows: Any) -> ArrowArray:
        """Encodes the keys of rows to an Arrow array of binary. Columns other than the key columns
        are ignored.

        :raises Invalid: as for `encode`.
        """
    def encode_stream(self, data: Any) -> TableStream:
        """Encodes rows to a stream of record batches with the columns `key` and `value`. The stream
        can be read once.

        :param data: Arrow data, including a stream, or a list of dicts.
        """
    def decode(self, keys: Any, values: Any, *, columns: list[str] | None = None) -> ArrowArray:
        """Decodes keys and values to rows, an Arrow record batch. A null value means an absent row:
        it is null in every column.

        :param columns: names of the columns to decode, in this order; None: all columns.
        :raises Corruption: if the bytes were not made by `encode`.
        :raises Unsupported: if the values are of a later generation than this schema.
        """
    def decode_batch(self, batch: Any, *, columns: list[str] | None = None) -> ArrowArray:
        """As `decode`, for a record batch with the columns `key` and `value`."""
    def decode_key(self, keys: Any) -> ArrowArray:
        """Decodes keys to the key columns, an Arrow record batch.

        :raises Corruption: if the bytes were not made by `encode_key`.
        """
    def decode_stream(self, stream: Any, *, columns: list[str] | None = None) -> TableStream:
        """Decodes a stream of Arrow data with the columns `key` and `value`, such as a scan, to
        record batches of the table, one batch at a time. The result can be read once.

        :param columns: as for `decode`.
        """
    def row(self, key: bytes, value: bytes) -> dict[str, Any]:
        """Decodes a key and its value to a row, a dict.

        :raises Corruption, Unsupported: as for `decode`.
        """
    def key_of(self, row: dict[str, Any]) -> bytes:
        """Encodes the key of one row, a dict.

        :raises Invalid: as for `encode`.
        """
    def deletes(self, rows: Any) -> WriteBatch:
        """Returns a batch that deletes the rows with these keys.

        :param rows: Arrow data, or a list of dicts; columns other than the key columns are ignored.
        :raises Invalid: as for `encode`.
        """
    def range(
        self, equal: dict[str, Any] | None = None, start: Any = None, end: Any = None
    ) -> tuple[bytes | None, bytes | None]:
        """Returns the first key of a range and its exclusive end, for `start` and `end` of `scan`.

        :param equal: values of the first key columns.
        :param start: lower bound of the next key column, inclusive, in the order of the key.
        :param end: upper bound of the next key column, exclusive, in the order of the key.
        :raises Invalid: if the columns are not the first key columns, or a bound follows the last
            one.
        """
    def with_column(self, field: Any) -> TableSchema:
        """Returns the schema with a new nullable column at the end of the value columns. Existing
        rows have null in it.

        :param field: an Arrow field.
        :raises Invalid: if a column with the name exists, or the field is not nullable.
        """
    def with_wider(self, field: Any) -> TableSchema:
        """Returns the schema with a value column changed to a type that holds all of its values.

        :param field: an Arrow field with the name of the column.
        :raises Invalid: if there is no such column, it belongs to the key, or the type does not
            hold all of its values.
        """
    def with_nulls(self, column: str) -> TableSchema:
        """Returns the schema with a value column made nullable.

        :raises Invalid: if there is no such column, it belongs to the key, or it is nullable
            already.
        """
    def has(self, field: Any) -> bool:
        """Whether a column has the name and the type of an Arrow field."""
    def nullable(self, column: str) -> bool:
        """Whether a column is nullable.

        :raises Invalid: if there is no such column.
        """
    def __arrow_c_schema__(self) -> object: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...
    def __reduce__(self) -> tuple[Any, ...]: ...

@final
class TableStream:
    """Record batches that can be read once, by any library with the Arrow PyCapsule interface:
    pyarrow, polars, duckdb, pandas, arro3."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...
    def __arrow_c_schema__(self) -> object: ...

def open_table(
    url: str,
    schema: TableSchema,
    mode: tuple[bool, bool | None, bool, bool, bool | None],
    named: dict[str, Any],
    store_options: dict[str, Any],
    merge_operator: Any,
) -> Database: ...

@final
class Transaction(_Reads):
    """A transaction, from `Database.transaction`. Its reads see the database as of its begin,
    together with its own writes. Other handles see its writes only after the commit, all at once. A
    transaction takes no locks: if another commit conflicts, its commit raises Conflict, and the
    transaction is over. As a context manager it commits at the end of the block, and rolls back if
    the block raises."""

    @property
    def seq(self) -> int:
        """The last sequence number of other writes that the transaction sees."""
    @property
    def isolation(self) -> str:
        """The isolation level: "serializable" or "snapshot"."""
    @property
    def committed(self) -> Commit | None:
        """The Commit, after a commit with at least one write; otherwise None."""
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
        :raises Closed: if the transaction is over.
        """
    def merge(
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
        :raises Invalid: if the database was opened without a merge operator, or the operator does
            not accept the operand; as for `put`.
        """
    def delete(self, key: _Bytes) -> None:
        """Deletes `key`. Deleting an absent key succeeds."""
    def delete_range(
        self,
        start: _Bytes | None = None,
        end: _Bytes | None = None,
        *,
        prefix: _Bytes | None = None,
    ) -> None:
        """Deletes all keys of `[start, end)`, or all keys with `prefix`. Later writes of the
        transaction are not affected. Without `start` the range begins at the first key. Without
        `end` it ends after the last key, and counts as two operations.

        :raises Invalid: if no argument is given, `prefix` is given together with a bound, a bound
            or the prefix is empty or too long, or `start` is not below `end`.
        """
    def __setitem__(self, key: _Bytes, value: _Bytes, /) -> None: ...
    def __delitem__(self, key: _Bytes, /) -> None: ...
    def savepoint(self) -> Savepoint:
        """Returns a savepoint for `rollback_to`.

        :raises Closed: if the transaction is over.
        """
    def rollback_to(self, savepoint: Savepoint) -> None:
        """Discards all writes since the savepoint. Reads since the savepoint still count for
        conflicts, because later writes may depend on them. The savepoint can be used again; later
        savepoints are discarded.

        :raises Invalid: if the savepoint belongs to another transaction, or was discarded.
        """
    def commit(self) -> Commit | None:
        """Commits all writes: they become visible at once, and durable like those of a put. Returns
        None if the transaction has no writes. The call waits only while `max_memtable_bytes` are
        unflushed. An interrupted wait commits nothing and leaves the transaction open.

        :raises Conflict: if another commit changed data that the transaction depends on;
            `context["key"]` names the key (escaped as in a bytes literal). The transaction is over:
            run it again, or use `siltstone.retry`.
        :raises Invalid: if the writes are larger than `max_batch_bytes`.
        :raises Closed: if the transaction is over, or the database was closed.
        :raises Fenced, Timeout, Unavailable: see `siltstone.exceptions`.
        """
    def rollback(self) -> None:
        """Discards all writes and ends the transaction. A second call, or a call after the commit,
        has no effect."""
    def close(self) -> None:
        """As `rollback`."""
    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None: ...
    def __reduce__(self) -> NoReturn: ...
    # Called by siltstone.aio.
    def _begin_commit(self) -> AsyncCommit | Pending[AsyncCommit | None] | None: ...
    @property
    def _ended(self) -> str | None: ...

@final
class Savepoint:
    """A position in a transaction, for `rollback_to`."""

    def __reduce__(self) -> NoReturn: ...

@final
class Scan(Iterator[_Row], Generic[_Row]):
    """An iterator that can be used once, over the state at the time of its creation. Use it in one
    thread at a time."""

    def __iter__(self) -> Self: ...
    def __next__(self) -> _Row: ...
    def seek(self, key: _Bytes) -> None:
        """Skips the rows before `key` in the direction of the scan: the next row is the first
        remaining row at or after it. A scan never goes back: a key that it has passed has no
        effect, and a key beyond its range ends the scan. Skipped rows are not read, except those
        that were read ahead.

        :raises Invalid: if the scan has a limit.
        """
    def to_arrow(self, batch_rows: int | None = None) -> ArrowStream:
        """Returns the remaining rows as Arrow record batches with the columns `key` and `value`.

        :param batch_rows: maximum number of rows in a batch, 65,536 by default. A batch also ends
            at 64 MiB.
        :raises Invalid: if rows were read but not yet iterated, if the scan was iterated to its
            end, read as Arrow data or closed, or if `batch_rows` is below 1.
        """
    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any: ...
    def __arrow_c_schema__(self) -> Any:
        """Lets a library look at the columns, as duckdb does, without reading the scan."""
    def close(self) -> None:
        """Releases the data that the scan keeps. The scan yields no more rows."""
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
    """The rows of a scan as a stream of Arrow record batches. It can be read once, by any library
    with the Arrow PyCapsule interface: pyarrow, polars, duckdb, pandas, arro3."""

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any: ...
    def __arrow_c_schema__(self) -> Any: ...

@final
class ArrowArray:
    """An Arrow array, for any library with the Arrow PyCapsule interface."""

    def __arrow_c_array__(self, requested_schema: Any = None) -> Any: ...
    def __len__(self) -> int: ...

@final
class Feed:
    """An open change feed, which `siltstone.changes.Changes` reads."""

    def read(self, rows: int, bytes: int) -> ArrowArray | None:
        """Returns the next changes as an array of structs; None if there are none."""
    def rows(
        self, rows: int, bytes: int
    ) -> list[tuple[str, bytes, bytes | None, int, int, bytes | None]] | None:
        """As `read`, but returns tuples of kind, key, value, sequence number, milliseconds since
        the epoch, and value before, for callers without an Arrow library."""
    def _begin_read(self, rows: int, bytes: int) -> Pending[ArrowArray | None]: ...
    def acknowledge(self, token: str | None = None) -> None:
        """Acknowledges changes, so that the log before them is no longer retained."""
    def _begin_acknowledge(self, token: str | None = None) -> Pending[None]: ...
    @property
    def token(self) -> str:
        """The token of the current position."""
    @property
    def seq(self) -> int:
        """The last sequence number that was returned completely."""
    @property
    def checkpoint(self) -> Checkpoint | None:
        """The checkpoint from which the feed continues."""
    @property
    def consumer(self) -> str | None:
        """The name of the consumer."""

@final
class UnitPlan:
    """A compaction whose units are merged by other processes; `siltstone.compaction.Plan` uses
    it."""

    def units(self) -> list[tuple[_PlainUnit, bytes, bytes | None]]:
        """The remaining units, each with the first key of its range and its exclusive end."""
    @property
    def resumed(self) -> bool:
        """Whether it continues a compaction that another compactor began."""
    def commit(self, results: list[tuple[_PlainUnit, bytes | None]]) -> bool:
        """Records results. Returns whether all units are committed."""
    def close(self) -> None:
        """Releases the epoch of the compactor."""

@final
class Commit:
    """An accepted write. Dropping a Commit cancels nothing."""

    @property
    def seq(self) -> int:
        """Sequence number of the last operation of the write: its position in the history."""
    @property
    def durable(self) -> bool:
        """Whether the write is durable."""
    def wait(self, timeout: _Seconds | None = None) -> None:
        """Returns once the write is durable. If it is not durable yet, the writer sends it at once;
        with `writes.wal_enabled` off it flushes the memtable.

        :param timeout: maximum wait; None: the deadline of the handle.
        :raises Timeout: if the write is not durable in time. It continues, and may still become
            durable.
        :raises Fenced, Closed: if the write will not be acknowledged.
        :raises Denied: if the store refuses the credentials. The write is tried again.
        """

@final
class WriteBatch:
    """Operations for one atomic commit, in order. Use it in one thread at a time."""

    def __new__(cls) -> Self: ...
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
    def delete(self, key: _Bytes) -> None:
        """Deletes `key`. Deleting an absent key succeeds."""
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
    def clear(self) -> None:
        """Removes all operations."""
    @property
    def nbytes(self) -> int:
        """Size of the encoded operations in bytes, which `max_batch_bytes` limits."""
    @property
    def commit(self) -> Commit | None:
        """The Commit, after the `with` block of a batch from `Database.batch()`; otherwise None."""
    def __len__(self) -> int:
        """Number of operations."""
    def __bool__(self) -> bool: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None: ...

@final
class Pending(Coroutine[Any, Any, _T_co]):
    """A call of `siltstone.aio` that waits. It can be awaited once; `asyncio.create_task` accepts
    it too. Dropping it, as a cancelled task does, ends the wait."""

    def __await__(self) -> Generator[Any, None, _T_co]: ...
    def __iter__(self) -> Self: ...
    def __next__(self) -> Any: ...
    def send(self, _value: Any) -> Any:
        """Runs one step of the wait."""
    def throw(self, kind: Any, value: Any = None, _trace: Any = None) -> Any:
        """Ends the wait with an exception."""
    def close(self) -> None:
        """Ends the wait."""

@final
class Port:
    """Wakes an event loop when calls complete. Each loop owns one port. It is internal to
    `siltstone.aio`."""

    def _drain(self) -> None: ...

@final
class AsyncCommit(Awaitable[None]):
    """An accepted write. Awaiting it waits until the write is durable. Dropping it cancels
    nothing."""

    @property
    def seq(self) -> int:
        """Sequence number of the last operation of the write: its position in the history."""
    @property
    def durable(self) -> bool:
        """Whether the write is durable."""
    def __await__(self) -> Generator[Any]: ...
    def wait(self, timeout: _Seconds | None = None) -> Pending[None]:
        """When awaited, returns once the write is durable. If it is not durable yet, the writer
        sends it at once.

        :param timeout: maximum wait; None: the deadline of the handle.
        :raises Timeout: if the write is not durable in time. It continues, and may still become
            durable.
        :raises Fenced, Closed: if the write will not be acknowledged.
        :raises Denied: if the store refuses the credentials. The write is tried again.
        """

@final
class AsyncScan(Generic[_Row]):
    """Batches of rows, which `siltstone.aio.Scan` reads."""

    def begin_seek(self, key: _Bytes, unread: int) -> int | Pending[int]:
        """Skips rows. Returns how many of the last `unread` rows remain."""
    def begin_rows(self) -> list[_Row] | Pending[list[_Row]]:
        """The next rows; an empty list at the end."""
    def batch_rows(self, wanted: int | None) -> int:
        """Number of rows in a record batch, if the caller asks for `wanted`."""
    def begin_batch(self, rows: int) -> Pending[ArrowArray | None]:
        """The next rows as an Arrow array of structs; None at the end."""
    def begin_close(self) -> Pending[None] | None:
        """Releases the data that the scan keeps."""
    def __class_getitem__(cls, _item: Any) -> Any: ...

def begin_clone(
    url: str,
    parents: list[tuple[str, CheckpointLike | None, bytes | None, bytes | None]],
    range: tuple[bytes | None, bytes | None],
    store_options: dict[str, str | int | bool],
) -> Pending[None]:
    """As `clone`, but returns an awaitable."""

def begin_destroy(
    url: str, soft: bool, store_options: dict[str, str | int | bool]
) -> Pending[None]:
    """As `destroy`, but returns an awaitable."""

def begin_export(
    source: tuple[str, dict[str, str | int | bool]],
    target: tuple[str, dict[str, str | int | bool]],
    checkpoint: CheckpointLike | None,
    is_import: bool,
) -> Pending[tuple[int, int, int]]:
    """As `export`, but returns an awaitable."""

def begin_open(
    url: str,
    mode: tuple[bool, bool | None, bool, bool, bool | None],
    named: dict[str, Any],
    store_options: dict[str, str | int | bool],
    merge_operator: _Described,
) -> Pending[Database]:
    """As `open`, but returns an awaitable."""

def begin_open_reader(
    url: str,
    named: dict[str, Any],
    store_options: dict[str, str | int | bool],
    provider: str | None,
    at: _ReadAt,
    operator: _Described,
    described: MergeOperatorSource | None,
) -> Pending[Reader]:
    """As `open_reader`, but returns an awaitable."""

@final
class MemTable(_Lookups):
    """A sorted buffer of writes in memory, with its own history: the first operation has sequence
    number 1. It keeps every version. Any number of threads can read; one thread at a time can
    write.

    Reads see the newest version of each key.
    """

    def __new__(cls) -> Self: ...
    def put(
        self,
        key: _Bytes,
        value: _Bytes,
        *,
        ttl: _Seconds | None = None,
        expire_at: datetime | None = None,
    ) -> int:
        """Sets `key` to `value`, and returns the sequence number.

        :param ttl: time to live, counted from now; the key expires after it.
        :param expire_at: an aware datetime, instead of `ttl`: the key expires at this time. A time
            in the past hides the previous value.
        :raises Invalid: if the key is empty, or either is too long, or `ttl` is not positive and
            finite.
        """
    def delete(self, key: _Bytes) -> int:
        """Deletes `key`, and returns the sequence number of the tombstone."""
    def put_many(
        self, keys: Iterable[_Bytes] | _ArrowData, values: Iterable[_Bytes] | _ArrowData
    ) -> int:
        """Sets each key to the value at the same position, atomically, and returns the last
        sequence number.

        :raises Invalid: if the lengths differ or an array has nulls; as for `put`. Nothing is
            written.
        """
    def write(self, batch: WriteBatch) -> int:
        """Applies the operations of a batch, atomically, and returns the last sequence number."""
    def __setitem__(self, key: _Bytes, value: _Bytes, /) -> None: ...
    def __delitem__(self, key: _Bytes, /) -> None: ...
    def snapshot(self, seq: int | None = None) -> MemTableSnapshot:
        """Returns a view of the state after the operation `seq`; None: the current state.

        :raises Invalid: if no operation has this sequence number yet.
        """
    @property
    def seq(self) -> int:
        """The last sequence number; 0 if the memtable is empty."""
    @property
    def nbytes(self) -> int:
        """Approximate size in memory, in bytes."""
    def __len__(self) -> int:
        """Number of entries: all versions, including tombstones."""

@final
class MemTableSnapshot(_Lookups):
    """The state of a `MemTable` at one sequence number. It keeps the memory of the memtable."""

    @property
    def seq(self) -> int:
        """The last sequence number that the snapshot sees."""
    def __len__(self) -> NoReturn:
        """Raises TypeError: counting would read every key."""

@final
class PartWriter:
    """Stages one part of an ingest job, in any process; from `Job.writer`. Use it in one thread at
    a time.

    As a context manager it completes the part at the end of the block, and discards it if the block
    raises.
    """

    def add(
        self,
        key: _Bytes,
        value: _Bytes,
        *,
        ttl: _Seconds | None = None,
        expire_at: datetime | None = None,
    ) -> None:
        """Adds a row. Rows can be added in any order.

        :param ttl: time to live, counted from now; the row expires after it.
        :param expire_at: an aware datetime, instead of `ttl`: the row expires at this time.
        :raises Invalid: if the key is empty, or either is too long. The writer is unchanged.
        :raises Denied, Unavailable: see `siltstone.exceptions`. The writer cannot be used any more.
        """
    def merge(
        self,
        key: _Bytes,
        operand: _Bytes,
        *,
        ttl: _Seconds | None = None,
        expire_at: datetime | None = None,
    ) -> None:
        """Adds a merge operand: the ingest merges it into the value of `key`. Combine the operands
        of each key first: a part takes one row for each key, and the parts of a job with operands
        may not overlap.

        :param ttl, expire_at: as for `add`. The operand expires together with the value that it was
            merged into.
        :raises Invalid: if the database had no merge operator when the job began, or the operator
            does not accept the operand; if `duplicates` is "last" or the job is `behind`; as for
            `add`. The writer is unchanged.
        :raises Denied, Unavailable: as for `add`.
        """
    def merge_many(
        self,
        keys: Iterable[_Bytes] | _ArrowData,
        operands: Iterable[_Bytes] | _ArrowData,
        *,
        ttl: _Seconds | None = None,
        expire_at: datetime | None = None,
    ) -> None:
        """Adds each merge operand to the key at the same position. Keys and operands are iterables,
        or two Arrow arrays of binary or text.

        :raises Invalid: if the lengths differ or an array has nulls; as for `merge`. After an error
            that was raised when some rows were added, the part can only be discarded.
        """
    def delete(self, key: _Bytes) -> None:
        """Adds a tombstone: the ingest deletes `key`."""
    def add_many(
        self,
        keys: Iterable[_Bytes] | _ArrowData,
        values: Iterable[_Bytes] | _ArrowData,
        *,
        ttl: _Seconds | None = None,
        expire_at: datetime | None = None,
    ) -> None:
        """Adds each key with the value at the same position. Keys and values are iterables, or two
        Arrow arrays of binary or text.

        :raises Invalid: if the lengths differ or an array has nulls; as for `add`. After an error
            that was raised when some rows were added, the part can only be discarded.
        """
    def put_or_delete_many(self, keys: _ArrowData, values: _ArrowData) -> None:
        """Adds each key with the value at the same position, and a tombstone for a null value. Keys
        and values are two Arrow arrays of binary or text.

        :raises Invalid: if the lengths differ or a key is null; as for `add`. After an error that
            was raised when some rows were added, the part can only be discarded.
        """
    def write(self, data: _ArrowData) -> None:
        """Adds all rows of an Arrow table, record batch or stream with the columns `key` and
        `value`.

        :raises Invalid: if a column is missing, in which case no row is added; if a column has
            nulls; as for `add`. After an error that was raised when some rows were added, the part
            can only be discarded.
        :raises TypeError: if `data` is not Arrow data.
        """
    def finish(self) -> Part:
        """Completes the part: its tables are sorted, complete and durable. The result is small and
        can be pickled; `Job.commit` needs it. Repeated calls return the same result.

        :raises Invalid: if rows have equal keys and `duplicates` is not "last"; the text names both
            rows, counted from 0.
        :raises Denied, Unavailable: see `siltstone.exceptions`. There is no part.
        """
    def discard(self) -> None:
        """Discards the part, unless it is finished. Uploaded tables are collected with the job."""
    @property
    def rows(self) -> int:
        """Number of added rows."""
    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None: ...

@final
class SstWriter:
    """Writes a sorted table to a file. Use it in one thread at a time.

    As a context manager it completes the table at the end of the block, and discards it if the
    block raises. The target is replaced atomically when the table is complete; until then it is
    unchanged.

    :param target: a path, a URL whose path is the object (`s3://bucket/rows.sst`), or a binary file
        object. A file object stays open, and keeps the bytes of a discarded table.
    :param options: `block_bytes`, `compression` and `filter_bits_per_key`, as `siltstone.Options`
        or a dict. Other options have no effect.
    :param store_options: options of the object store.
    :param sort: accept rows in any order. Otherwise they must be in ascending order, and take no
        memory.
    :param duplicates: "error": raise Invalid for rows with equal keys. "last": keep the last of
        them.
    :param sort_memory_bytes: memory for sorting, in bytes or as text such as "1GiB" (1 MiB to
        64 GiB; 128 MiB by default). Larger data is sorted through files in `scratch`, which take
        the size of the data once more.
    :param scratch: an existing local folder (by default that of `tempfile`).
    :raises NotFound: if the folder of the file does not exist.
    :raises Invalid: if the target or an option is not valid.
    :raises Denied, Unavailable: see `siltstone.exceptions`.
    """

    def __new__(
        cls,
        target: str | PathLike[str] | _Writable,
        *,
        options: Options | Mapping[str, Any] | None = None,
        store_options: StoreOptionsSource | None = None,
        sort: bool = True,
        duplicates: str = "error",
        sort_memory_bytes: _Size | None = None,
        scratch: str | PathLike[str] | None = None,
    ) -> Self: ...
    def add(
        self,
        key: _Bytes,
        value: _Bytes,
        *,
        ttl: _Seconds | None = None,
        expire_at: datetime | None = None,
    ) -> None:
        """Adds a row.

        :param ttl: time to live, counted from now; the row expires after it.
        :param expire_at: an aware datetime, instead of `ttl`: the row expires at this time. A time
            in the past hides the previous value.
        :raises Invalid: if the key is empty, or either is too long, or if `sort` is off and the row
            is out of order (the text names both rows, counted from 0). The writer is unchanged.
        :raises Denied, Unavailable: see `siltstone.exceptions`. The writer cannot be used any more.
        """
    def delete(self, key: _Bytes) -> None:
        """Adds a tombstone: the table deletes `key` wherever it is merged."""
    def add_many(
        self,
        keys: Iterable[_Bytes] | _ArrowData,
        values: Iterable[_Bytes] | _ArrowData,
        *,
        ttl: _Seconds | None = None,
        expire_at: datetime | None = None,
    ) -> None:
        """Adds each key with the value at the same position. Keys and values are iterables, or two
        Arrow arrays of binary or text.

        :raises Invalid: if the lengths differ or an array has nulls; as for `add`. After an error
            that was raised when some rows were added, the table can only be discarded.
        """
    def write(self, data: _ArrowData) -> None:
        """Adds all rows of an Arrow table, record batch or stream with the columns `key` and
        `value`.

        :raises Invalid: if a column is missing, in which case no row is added; if a column has
            nulls; as for `add`. After an error that was raised when some rows were added, the table
            can only be discarded.
        :raises TypeError: if `data` is not Arrow data.
        """
    def finish(self) -> SstInfo:
        """Completes the table and returns its description. Repeated calls return the same result.

        :raises Invalid: if there are no rows, or rows have equal keys; the text names both rows,
            counted from 0.
        :raises Denied, Unavailable: see `siltstone.exceptions`. There is no table.
        """
    def discard(self) -> None:
        """Discards the table, unless it is finished."""
    @property
    def rows(self) -> int:
        """Number of added rows; after `finish`, number of rows in the table."""
    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None: ...

@final
class SstReader(_Lookups):
    """Reads a table in a file, made by `SstWriter` or by a database. It can be used from any
    thread. Opening it reads its length, its filter and its index.

    It can be pickled, and reopens itself after a fork. The pickle carries the URL and the options.
    Store options come from the environment where it is unpickled, or from the provider.

    :param source: a path, a URL whose path is the object, or the bytes of the file.
    :param options: `block_cache_bytes` and `deadline`. Other options have no effect.
    :param store_options: options of the object store.
    :raises NotFound: if the file does not exist.
    :raises Corruption: if the file is not a table, or is damaged.
    :raises Unsupported, Denied, Unavailable, Timeout: see `siltstone.exceptions`.
    """

    def __new__(
        cls,
        source: str | PathLike[str] | _Bytes,
        *,
        options: Options | Mapping[str, Any] | None = None,
        store_options: StoreOptionsSource | None = None,
    ) -> Self: ...
    @property
    def info(self) -> SstInfo:
        """The description of the table."""
    @property
    def rows(self) -> int:
        """Number of entries of all kinds and versions, including tombstones."""
    @property
    def first_key(self) -> bytes:
        """The smallest key."""
    @property
    def last_key(self) -> bytes:
        """The largest key."""
    def verify(self) -> int:
        """Reads and checks every byte. Returns the number of bytes.

        :raises Corruption: if the table is damaged; the text describes the damage.
        """
    def to_arrow(self, batch_rows: int | None = None) -> ArrowStream:
        """All rows as Arrow record batches, like `Scan.to_arrow`."""
    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any: ...
    def close(self) -> None:
        """Closes the table. Open scans of the table continue."""
    def __len__(self) -> int:
        """Number of visible rows. TypeError if counting requires reading (versions, expiry)."""
    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None: ...
    def __reduce__(self) -> tuple[Any, ...]: ...

@final
class BloomFilter:
    """The filter that tables carry: it tells which keys are certainly not in a set. It is
    immutable.

    :param keys: the keys of the set. Nulls of an Arrow array are ignored.
    :param bits_per_key: 1 to 64; 10 by default, which gives a false positive rate of about 1 %.
    """

    def __new__(
        cls, keys: Iterable[_Bytes] | _ArrowData, *, bits_per_key: int | None = None
    ) -> Self: ...
    @staticmethod
    def from_bytes(data: _Bytes) -> BloomFilter:
        """Returns the filter from the result of `to_bytes`.

        :raises Corruption: if the bytes are not a filter.
        """
    def to_bytes(self) -> bytes:
        """The stored form, which tables also contain."""
    def may_contain(self, key: _Bytes) -> bool:
        """Whether `key` may be in the set. False is certain."""
    def __contains__(self, key: _Bytes, /) -> bool: ...
    @overload
    def may_contain_many(self, keys: _Array) -> _Array:
        """`may_contain` for each key, in the order of `keys`.

        For an Arrow array of keys the result is an Arrow array of bool, with a null for a null.
        """
    @overload
    def may_contain_many(self, keys: Iterable[_Bytes]) -> list[bool]: ...
    @overload
    def may_contain_many(self, keys: _ArrowStreamLike) -> Any: ...
    @property
    def nbytes(self) -> int:
        """Size of the stored form in bytes."""
    @property
    def false_positive_rate(self) -> float:
        """Expected rate of false positives, computed from the bits that are set."""
    def __reduce__(self) -> tuple[Any, tuple[bytes]]: ...

@overload
def merge_sorted(
    readers: Iterable[SstReader | MemTable | MemTableSnapshot],
    *,
    start: _Bytes | None = None,
    end: _Bytes | None = None,
    prefix: _Bytes | None = None,
    limit: int | None = None,
    tombstones: Literal[False] = False,
) -> Scan[tuple[bytes, bytes]]:
    """Reads several tables and memtables as one, in key order. If several readers have a key, the
    first reader in the list wins: list the newest first.

    :param tombstones: also yield deleted and expired keys, with None as the value (null in Arrow).
        Otherwise they are left out.
    :raises Unsupported: if a table has merge operands.
    :raises Corruption, Unavailable, Timeout, Denied: while the rows are read.
    """

@overload
def merge_sorted(
    readers: Iterable[SstReader | MemTable | MemTableSnapshot],
    *,
    start: _Bytes | None = None,
    end: _Bytes | None = None,
    prefix: _Bytes | None = None,
    limit: int | None = None,
    tombstones: bool,
) -> Scan[tuple[bytes, bytes | None]]: ...
def pack(*parts: _KeyPart | bytearray | memoryview) -> bytes:
    """Packs `parts` into a key. Keys have the order of their tuples, part by part, and `unpack`
    returns the parts.

    =====================  ===============================================================
    ``None``               before everything else
    ``bool``               False, True
    ``int``                by value; up to 255 bytes, so below 2 ** 2040 in magnitude
    ``float``              by value; -0.0 is 0.0; NaN is the largest, and all NaN are equal
    ``Decimal``            by value, so 1.5 equals 1.50; NaN is the largest
    ``date``               by day
    ``datetime``           by instant, to the microsecond; it must be aware
    ``str``                by code points
    ``bytes``              by their bytes; a bytearray or a memoryview is accepted too
    ``UUID``               by its bytes
    =====================  ===============================================================

    Types are ordered before values, in the order of this table: every int sorts before every float.
    ``1``, ``1.0``, ``True`` and ``Decimal(1)`` are therefore four different parts; use one type for
    each position of your keys.

    :raises Invalid: if there are no parts, the key is longer than 65,535 bytes, a part is a
        signalling NaN, or an int is too large.
    :raises TypeError: if a part has another type, or a datetime has no time zone.
    """

def unpack(key: _Bytes, /) -> tuple[_KeyPart, ...]:
    """Returns the parts from which `pack` made `key`. They are equal to the packed parts, but not
    always identical: a Decimal is normalized as by `Decimal.normalize`, a datetime is in UTC, a
    bytearray becomes bytes, and a NumPy number becomes an int or a float.

    :raises Corruption: if `key` was not made by `pack`.
    """

def prefix_range(*parts: _KeyPart | bytearray | memoryview) -> tuple[bytes, bytes]:
    """Returns the first key and the exclusive end of all keys that begin with `parts`, for `start`
    and `end` of `scan`, `delete_range` and `approximate_size`. Without parts the range covers all
    keys that `pack` makes.

    Only whole parts match: ``prefix_range("DE")`` covers ``("DE", 7)`` and ``("DE",)``, but not
    ``("DEN",)``.

    :raises Invalid, TypeError: as for `pack`.
    """

def open(
    url: str,
    mode: tuple[bool, bool | None, bool, bool, bool | None],
    named: dict[str, Any],
    store_options: dict[str, str | int | bool],
    merge_operator: _Described,
) -> Database: ...
def open_reader(
    url: str,
    named: dict[str, Any],
    store_options: dict[str, str | int | bool],
    provider: str | None,
    at: _ReadAt,
    operator: _Described,
    described: MergeOperatorSource | None,
) -> Reader: ...
def clone(
    url: str,
    parents: list[tuple[str, CheckpointLike | None, bytes | None, bytes | None]],
    range: tuple[bytes | None, bytes | None],
    store_options: dict[str, str | int | bool],
) -> None:
    """Creates a clone. Each parent is its URL, a checkpoint, the first key and the exclusive end
    key."""

def create_checkpoint(
    url: str, store_options: dict[str, str | int | bool], asked: dict[str, Any]
) -> Checkpoint: ...
def pin_shared(
    url: str,
    store_options: dict[str, str | int | bool],
    holder: list[tuple[str, str]],
    lifetime: _Seconds,
    source: CheckpointLike | None,
) -> Checkpoint:
    """Pins the durable state, or the state of `source`, with a checkpoint that all jobs with the
    metadata `holder` share."""

def refresh_checkpoint(
    url: str,
    store_options: dict[str, str | int | bool],
    which: CheckpointLike,
    lifetime: _Seconds | None,
) -> Checkpoint: ...
def delete_checkpoint(
    url: str, store_options: dict[str, str | int | bool], which: CheckpointLike
) -> None: ...
def release_clone(
    url: str, store_options: dict[str, str | int | bool], which: CheckpointLike, force: bool
) -> list[Checkpoint]:
    """Releases the pins of a clone that is gone, and returns them."""

def feed_begin(
    url: str, store_options: dict[str, str | int | bool], asked: dict[str, Any]
) -> Feed: ...
def feed_consumers(
    url: str, store_options: dict[str, str | int | bool]
) -> list[tuple[str, int, int, int | None, int | None]]: ...
def feed_forget(url: str, store_options: dict[str, str | int | bool], name: str) -> None: ...
def feed_latest(url: str, store_options: dict[str, str | int | bool]) -> str: ...
def ingest_abort(
    url: str, store_options: dict[str, str | int | bool], job: _PlainJob
) -> _PlainStanding: ...
def ingest_begin(
    url: str,
    store_options: dict[str, str | int | bool],
    lifetime: _Seconds,
    txn: tuple[str, int] | None,
    replace: tuple[_Bytes | None, _Bytes | None] | None,
    behind: bool,
) -> tuple[_PlainJob, int]: ...
def ingest_commit(
    url: str, store_options: dict[str, str | int | bool], job: _PlainJob, parts: list[bytes]
) -> _PlainRequest: ...
def ingest_forget(url: str, store_options: dict[str, str | int | bool], app: str) -> None: ...
def ingest_jobs(
    url: str, store_options: dict[str, str | int | bool]
) -> list[tuple[str, int, int, int, int | None, _PlainStanding]]: ...
def ingest_load(
    url: str,
    store_options: dict[str, str | int | bool],
    job: _PlainJob,
    data: Any,
    options: Options | Mapping[str, Any] | None,
    order: tuple[bool, str],
    memory_bytes: int | None,
    scratch: str | PathLike[str] | None,
    progress: Callable[[int, int], object] | None,
) -> tuple[int, int, int, bytes, dict[str, float]]: ...
def ingest_status(
    url: str, store_options: dict[str, str | int | bool], job: str
) -> _PlainStanding: ...
def ingest_status_of(
    url: str, store_options: dict[str, str | int | bool], job: _PlainJob
) -> _PlainStanding: ...
def ingest_submit(
    url: str,
    store_options: dict[str, str | int | bool],
    request: _PlainRequest,
    limit: _Seconds,
    waits: bool,
) -> _PlainStanding: ...
def ingest_withdraw(
    url: str, store_options: dict[str, str | int | bool], job: str
) -> _PlainStanding: ...
def ingest_writer(
    url: str,
    store_options: dict[str, str | int | bool],
    job: _PlainJob,
    part: Any,
    options: Options | Mapping[str, Any] | None,
    duplicates: str,
    sort_memory_bytes: int | None,
    scratch: str | PathLike[str] | None,
    table_bytes: int,
) -> PartWriter: ...
def restore(
    url: str, store_options: dict[str, str | int | bool], which: CheckpointLike
) -> None: ...
def repair(
    url: str, store_options: dict[str, str | int | bool], dry_run: bool, take_over: bool
) -> dict[str, Any]: ...
def give_up_table(
    url: str,
    store_options: dict[str, str | int | bool],
    table: str,
    dry_run: bool,
    take_over: bool,
) -> dict[str, Any]: ...
def collect_after_repair(url: str, store_options: dict[str, str | int | bool]) -> None: ...
def bytes_of_text(text: str, name: str) -> int:
    """Converts a size as text (``"512MiB"``, ``"4096"``) to bytes, for the Python modules."""

def seconds_of_duration(object: _Seconds, name: str) -> float:
    """Converts a duration in any accepted form to seconds, for the Python modules."""

def seq_at(url: str, store_options: dict[str, str | int | bool], millis: int) -> int: ...
def version_states(
    url: str,
    store_options: dict[str, str | int | bool],
    since: int | None,
    told: Callable[[int, int, dict[str, tuple[int, int]], list[dict[str, Any]], int], object],
) -> None:
    """Calls `told` with number, Unix milliseconds, tables, applications and log of each version."""

def versions(
    url: str, store_options: dict[str, str | int | bool]
) -> list[tuple[int, int, int]]: ...
def export(
    source: tuple[str, dict[str, str | int | bool]],
    target: tuple[str, dict[str, str | int | bool]],
    checkpoint: CheckpointLike | None,
    is_import: bool,
    progress: Callable[[int, int], object] | None,
) -> tuple[int, int, int]:
    """Copies a state. Returns the tables moved, the tables shared, and the bytes."""

def promote(url: str, store_options: dict[str, str | int | bool]) -> None: ...
def destroy(url: str, soft: bool, store_options: dict[str, str | int | bool]) -> None: ...
def list_checkpoints(url: str, store_options: dict[str, str | int | bool]) -> list[Checkpoint]: ...
def operator_names() -> list[str]:
    """The names of the built-in merge operators."""

def manifest(
    url: str, id: int | None, store_options: dict[str, str | int | bool]
) -> dict[str, Any]: ...
def verify(
    url: str,
    store_options: dict[str, str | int | bool],
    progress: Callable[[int, int], object] | None,
) -> dict[str, Any]: ...
def probe(
    url: str,
    store_options: dict[str, str | int | bool],
    rounds: int,
    largest_object: int,
    progress: Callable[[int, int], object] | None,
) -> dict[str, Any]: ...
def gc(
    url: str,
    store_options: dict[str, str | int | bool],
    dry_run: bool,
    min_age: _Seconds | None,
    db_delete_grace: _Seconds | None,
    progress: Callable[[int, int], object] | None,
) -> dict[str, Any]: ...
def run_gc(
    urls: list[str],
    store_options: dict[str, str | int | bool],
    min_age: _Seconds | None,
    db_delete_grace: _Seconds | None,
    interval: _Seconds | None,
    tell: Callable[[str, dict[str, Any] | Exception | str], object],
) -> None: ...
def compact(
    url: str,
    named: dict[str, Any],
    store_options: dict[str, str | int | bool],
    merge_operator: _Described,
    workers: int,
    told: Callable[[str, Any], object],
) -> bool: ...
def run_compactor(
    url: str,
    named: dict[str, Any],
    store_options: dict[str, str | int | bool],
    merge_operator: _Described,
    workers: tuple[int, bool],
    told: Callable[[str, Any], object],
) -> None: ...
def plan_compaction(
    url: str,
    named: dict[str, Any],
    store_options: dict[str, str | int | bool],
    merge_operator: _Described,
    unit_bytes: int,
    told: Callable[[str, Any], object],
) -> UnitPlan: ...
def run_unit(
    url: str,
    named: dict[str, Any],
    store_options: dict[str, str | int | bool],
    merge_operator: _Described,
    unit: _PlainUnit,
    told: Callable[[str, Any], object],
) -> tuple[bytes | None, int, int, int]:
    """Returns the data for the plan, and the numbers of tables, rows and bytes."""

def check_group(group: str, named: dict[str, Any]) -> dict[str, Any]:
    """Checks the options `named` of a group, and returns them in plain types."""

def check_options(named: dict[str, Any]) -> dict[str, Any]:
    """Checks `named`, and returns it in plain types, with groups as dicts."""

def option_table() -> list[tuple[str, str, Any, str, str]]:
    """One tuple for each option, including those of groups: name, kind, default, range in words,
    meaning."""

def stat_table() -> list[tuple[str, str, str, str, bool]]:
    """One tuple for each figure: name, group, unit, meaning, and whether it only grows. Each is a
    field of `siltstone.Stats`."""

def error_kinds() -> list[str]:
    """The names of all error kinds. Each is a class of `siltstone.exceptions`."""

def error_of_kind(kind: str, text: str) -> BaseException:
    """Returns the exception for an engine error of this kind."""

def next_lines() -> list[tuple[str, int, str]] | None:
    """Waits for the next log lines of the engine, and returns logger, level and text of each. None
    after the runtime has ended."""

def memory_in_use() -> int:
    """Bytes allocated by the allocator of the extension; for tests."""

def at_exit() -> None:
    """Closes all open handles and ends the runtime. Nothing can be opened afterwards."""
