"""The compiled part, as it is typed and documented. A test compares it with the built module.

Keys are 1 to 65,535 bytes; key and value fit into a batch (`max_batch_bytes`: 64 MiB by default, at
most 1 GiB). Both are `bytes` or any C-contiguous buffer (copied unless `bytes`). A `str` is a
TypeError. Durations are `timedelta`, seconds as a
float, or text with a unit, such as "2h".

Every call that waits gives the interpreter lock up, ends by the handle's `deadline` with `Timeout`,
and is interrupted by Ctrl-C.
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
from types import TracebackType
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
from siltstone.changes import Changes, Since
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
    "versions",
]

__version__: str

_ReadAt: TypeAlias = str | int | dict[str, Any] | None
_PlainRange: TypeAlias = tuple[bytes | None, bytes | None]
_PlainUnit: TypeAlias = tuple[str, int, str | None]
_PlainJob: TypeAlias = tuple[
    str, str, str | None, tuple[str, int] | None, _PlainRange | None, bool, int
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
_Described: TypeAlias = str | tuple[str, Any, Any] | None
_ArrowData: TypeAlias = _ArrowArrayLike | _ArrowStreamLike
_T = TypeVar("_T")
_V = TypeVar("_V")
_Codec: TypeAlias = tuple[Callable[[_T], bytes], Callable[[bytes], _T]]
_Array = TypeVar("_Array", bound=_ArrowArrayLike)
_Row = TypeVar("_Row", bytes, tuple[bytes, bytes], tuple[bytes, bytes | None])

_T_co = TypeVar("_T_co", covariant=True)

class _Lookups:
    """What everything that is read by key has in common. From any thread."""

    @overload
    def get(self, key: _Bytes, default: None = None) -> bytes | None:
        """The value of `key`, or `default`.

        :raises Invalid: an empty or oversized key.
        :raises Closed, Fenced: the handle is of no use any more.
        :raises Unavailable, Timeout, Denied, Corruption: as their texts say.
        """
    @overload
    def get(self, key: _Bytes, default: _T) -> bytes | _T: ...
    def __getitem__(self, key: _Bytes, /) -> bytes:
        """As `get`; KeyError when `key` is absent."""
    def __contains__(self, key: _Bytes, /) -> bool:
        """Whether `key` is there. Its value is not copied."""
    @overload
    def get_many(self, keys: _Array) -> _Array:
        """The values of `keys`, in their order, all of one moment; None where a key is
        absent.

        An Arrow array of binary or text gives an Arrow array of binary, of the same
        library where that is pyarrow or arro3. A null key gives a null.

        :raises TypeError: one key in place of a list; what is no key, naming its row.
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
        """Iterates over keys and values of `[start, end)`, or of the keys with `prefix`,
        as they are now.

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
    def __bool__(self) -> bool:
        """True, always: a handle is not a count."""

class _Reads(_Lookups):
    """What Database, Reader, Snapshot and Transaction have in common."""

    def __len__(self) -> NoReturn:
        """TypeError: counting would mean reading every key."""
    def approximate_size(
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
    # What siltstone.aio calls: an answer, or a Pending where it must wait.
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

@final
class Database(_Reads):
    """The one writer of a database, from `siltstone.open`.

    Its own reads see what it has accepted, durable or not. As a context manager it closes at the
    end; an interpreter that exits normally closes what is open. It does not pickle; in a forked
    child every call raises Closed.
    """
    @property
    def table(self) -> Table:
        """The rows by columns, for a database that `siltstone.table.create` made.

        :raises Invalid: a database of bytes, without columns.
        :raises Closed, Fenced: as their texts say.
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
        if_value: _Bytes | None = None,
    ) -> Commit:
        """Sets `key` to `value`. Visible to this handle at once, durable within `flush_interval`,
        or when somebody waits for the Commit. Waits only while `max_memtable_bytes` are unflushed.

        :param ttl: the key is gone after this long, rounded up to milliseconds.
        :param expire_at: the key is gone from then on: an aware datetime, in place of `ttl`.
            One that has passed hides what was there.
        :param if_absent: only where the key is absent.
        :param if_value: only where the key has this value.
        :raises Conflict: it is not so; `context["key"]` names the key.
        :raises Invalid: an empty or oversized key or value, a ttl that is not above 0, or endless.
        :raises Closed, Fenced, Timeout, Unavailable: as their texts say.
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
        """Adds a merge operand to `key`: reads fold it into the value by the merge operator that
        the database was opened with.

        :param ttl: after this long the operand is gone, and with it what it was added to.
        :param expire_at: as for `put`.
        :raises Invalid: no merge operator was brought; an operand that it does not take; as `put`.
        """
    def delete(self, key: _Bytes, *, if_value: _Bytes | None = None) -> Commit:
        """Deletes `key`; that it was absent is no error.

        :param if_value: only where the key has this value.
        :raises Conflict: it has not; `context["key"]` names the key.
        """
    def get_entry(self, key: _Bytes) -> Entry | None:
        """The value of `key`, when it ends, and the sequence number of its write where that is
        still known; None where the key is absent.

        :raises Invalid: an empty or oversized key.
        :raises Closed, Fenced, Unavailable, Timeout, Denied, Corruption: as their texts say.
        """
    def pop(self, key: _Bytes, default: _T = ...) -> bytes | _T:
        """Deletes `key` and gives what was there: of several callers at once one gets it.

        :param default: for a key that is absent; without one that is a KeyError.
        :raises Closed, Fenced, Timeout, Unavailable: as their texts say.
        """
    def __delitem__(self, key: _Bytes, /) -> None:
        """As `delete`: that `key` was absent is no error, since finding out would mean a read."""
    def delete_range(
        self,
        start: _Bytes | None = None,
        end: _Bytes | None = None,
        *,
        prefix: _Bytes | None = None,
    ) -> Commit:
        """Deletes every key of `[start, end)`, or every key with `prefix`, by one entry, however
        many there are: what is written later stays. Without a start it begins with the first key,
        without an end it goes on to the last. Compactions leave tables that it covers unread.

        :raises Invalid: no argument, `prefix` together with a bound; an empty or oversized bound or
            prefix, a start that is not below the end.
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
        """Sets every key to the value beside it, as one atomic batch: sequences of bytes, or two
        Arrow arrays of binary or text.

        :param ttl: as for `put`, of all of them.
        :param expire_at: as for `put`.
        :raises Invalid: lengths that differ, nulls, more than `max_batch_bytes`; as `put`.
        :raises TypeError: one key or value in place of a list; what is none, naming its row.
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
        """Commits a batch, or an Arrow table or record batch with the columns `key` and `value`, as
        one atomic batch.

        :raises Invalid: missing columns, nulls, more than `max_batch_bytes`.
        """
    def batch(self) -> WriteBatch:
        """A batch for a `with` block: committed when the block ends well, discarded on an
        exception. Then `batch.commit` is the Commit."""
    def flush(self, *, memtable: bool = False) -> None:
        """Returns when every write issued before it is durable.

        :param memtable: also in tables, so that the next opening has nothing to replay.
        """
    @property
    def closed_by(self) -> Error | None:
        """Why the handle is closed: the exception that its calls raise. None while it is open."""
    def compact(self) -> None:
        """Merges everything into one sorted run, and returns when that is done: a major compaction.
        What was overwritten, deleted or has expired is gone from the new tables, unless a snapshot
        still needs it. Interrupting it loses nothing: the next compaction goes on where it was.

        :raises Fenced: another compactor has taken over; this handle goes on reading and writing.
        """
    def snapshot(self) -> Snapshot:
        """A fixed view of the database as it is now."""
    @overload
    def mapping(
        self, *, key: type[bytes] | None = None, value: type[bytes] | None = None
    ) -> _Mapping[bytes, bytes]:
        """The database as a `MutableMapping`, for whatever takes a `dict`: `shelve.Shelf` does. Its
        `len` counts, by a scan of all keys.

        :param key: what keys are: `bytes`, `str` (UTF-8), or two functions, to bytes and back. The
            order of iteration is that of the bytes.
        :param value: what values are, likewise.
        :raises TypeError: what is no codec.
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
        """What the handle holds and has done since it was opened: `Stats`. Asks nothing of the
        store; cheap enough for every second.

        :raises Closed: in a forked child (a reader: when it was closed).
        """
    def metrics(self) -> dict[str, float]:
        """The figures of `stats` by name, as floats: what a monitoring system takes. Units stand in
        `Stats`; names with `_bytes`, `_seconds`, `_requests`, `_rows` carry them."""
    def close(self) -> None:
        """Makes everything durable, records a clean close, and ends the handle. Once begun it goes
        on, also where the wait is interrupted. Doing it twice is fine: every close of a handle
        waits for the same end and tells the same.

        :raises Fenced, Timeout, Denied, Unavailable: the handle is closed all the same, and what
            was acknowledged is durable; the next opening recovers the rest as far as it can.
        """
    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None: ...
    def _repr_html_(self) -> str:
        """What a notebook shows: where it is, in which state, and its first figures."""
    def transaction(
        self, isolation: Literal["serializable", "snapshot"] = "serializable"
    ) -> Transaction:
        """Begins a transaction: for a `with` block, which commits it when it ends well.

        :param isolation: "serializable": its commit is Conflict where anything that it has read was
            changed meanwhile, what it looked for and did not find included. "snapshot": where a key
            that it writes was written meanwhile; two transactions may each change what the other
            one has read (write skew).
        :raises Invalid: another isolation.
        :raises Closed, Fenced: the handle is of no use any more.
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
        """Makes a checkpoint: a state of the database that any process can read, with
        `open_reader(url, checkpoint=…)`, while this one writes on, until the checkpoint is deleted
        or its time is over. No table is copied.

        :param scope: "all": with every write that was accepted before the call; "durable": with
            those that are durable by now, which is quicker.
        :param force_flush: whether scope "all" sends what is not durable yet at once, or waits
            until `flush_interval` has done it.
        :param lifetime: after this long it may be collected (a timedelta, seconds, or text such as
            "2h"); None: it lives until it is deleted.
        :param source: another checkpoint, whose state this one is to keep as well, instead of the
            present one.
        :param name: to find it by; unique in the database.
        :param metadata: facts to attach, of text.
        :raises Expired: the source is gone, or its time is over.
        :raises Conflict: another checkpoint has the name.
        :raises Invalid, Closed, Fenced, Unavailable, Timeout: as their texts say; where the
            outcome is not known they name the id.
        """
    def load(
        self,
        data: Any,
        *,
        sorted: bool = False,
        duplicates: Literal["error", "last"] = "error",
        memory_bytes: int | None = None,
        scratch: str | PathLike[str] | None = None,
        on_progress: Callable[[int, int], object] | None = None,
    ) -> LoadResult:
        """Loads any amount of Arrow data: sorted, made into tables on all cores, and visible all at
        once, at one place of the history. When this returns it is durable.

        :param data: what has `__arrow_c_stream__` or `__arrow_c_array__`, with the columns `key`
            and `value` of binary or text: a pyarrow table or reader, a data frame of polars or
            pandas, a relation of duckdb; or an iterable of such data, or of pairs of Arrow arrays.
        :param sorted: rows come in ascending order of their keys. Otherwise they are sorted.
        :param duplicates: "error", or "last": of rows with one key the one that came last counts.
        :param memory_bytes: memory for rows (64 MiB or more; 1 GiB by default), beside what `data`
            holds itself; what is more is sorted through files in `scratch`.
        :param scratch: an existing local folder (by default that of `tempfile`).
        :param on_progress: called a few times a second, and at the end, with the bytes done and the
            bytes to do, as far as known. Each row counts twice: when it is read, and when it is in
            a table. An exception that it raises before the end ends the load.
        :return: `LoadResult`. What was there before stays where the rows have other keys.
        :raises Invalid: missing columns; a null; a row out of order, naming it, counted from 0;
            rows with one key, naming the key and both rows. Nothing is loaded then.
        :raises TypeError: data or columns of another kind.
        :raises Timeout: all is uploaded; this writer, or the next, makes it visible.
        :raises Closed, Fenced, Denied, Unavailable: as their texts say.
        """
    def ingest(self, request: IngestRequest) -> Commit:
        """Makes an ingest job part of the database: all of its rows at once, at one place of the
        history, visible to this handle's reads when this returns and durable with the Commit.
        Asked again it answers the same.

        :param request: what `siltstone.ingest.Job.commit` gave, in whatever process.
        :raises Conflict: the job is for another database or a state that a restore has undone; its
            deadline is over; it was aborted; a later version of its application was taken in.
        :raises Invalid: tables of it are missing.
        :raises Timeout: it stays asked for, and this writer, or the next, takes it in.
        :raises Closed, Fenced, Denied, Unavailable: as their texts say.
        """
    def changes(
        self,
        *,
        since: Since = None,
        consumer: str | None = None,
        until: str | None = None,
        lifetime: _Seconds | None = None,
        most_bytes: int | None = None,
    ) -> Changes:
        """The change feed: what was committed, in the order of its commits, as far as it is
        durable: a `siltstone.changes.Changes`, which iterates over Arrow record batches.
        Arguments and errors are those of `siltstone.changes.begin`.
        """
    # What siltstone.aio calls.
    def _begin_put(
        self,
        key: _Bytes,
        value: _Bytes,
        ttl: _Seconds | None,
        expire_at: datetime | None,
        if_absent: bool,
        if_value: _Bytes | None,
    ) -> AsyncCommit | Pending[AsyncCommit]: ...
    def _begin_delete(
        self, key: _Bytes, if_value: _Bytes | None
    ) -> AsyncCommit | Pending[AsyncCommit]: ...
    def _begin_get_entry(self, key: _Bytes) -> Entry | Pending[Entry | None] | None: ...
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
class Reader(_Reads):
    """A reader, from `siltstone.open_reader`: sees whole writes in commit order, as far as they are
    durable.

    It pickles, and opens itself anew after a fork. URL and options travel; store options come from
    the environment at the other end, or from the provider that it was opened with.
    """
    @property
    def table(self) -> Table:
        """The rows by columns, for a database that `siltstone.table.create` made.

        :raises Invalid: a database of bytes, without columns.
        :raises Closed, Fenced: as their texts say.
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
        most_bytes: int | None = None,
    ) -> Changes:
        """The change feed: what was committed, in the order of its commits, as far as it is
        durable: a `siltstone.changes.Changes`, which iterates over Arrow record batches.
        Arguments and errors are those of `siltstone.changes.begin`.
        """
    def refresh(self) -> None:
        """Looks for newer data now, rather than at the next `manifest_poll_interval`."""
    @property
    def checkpoint(self) -> Checkpoint | None:
        """The checkpoint that it was opened at; None for one that follows, or stays at a
        version."""
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
    # What siltstone.aio calls.
    def _begin_feed(self, asked: dict[str, Any]) -> Pending[Feed]: ...
    def _begin_refresh(self) -> Pending[None]: ...
    def _begin_close(self) -> Pending[None] | None: ...
    def __reduce__(self) -> tuple[Any, tuple[str, dict[str, Any]]]: ...

@final
class Snapshot(_Reads):
    """A fixed view of a writer's database. It holds what it reads until it is closed, and goes on
    after the database is closed."""
    @property
    def table(self) -> Table:
        """The rows by columns, for a database that `siltstone.table.create` made.

        :raises Invalid: a database of bytes, without columns.
        :raises Closed, Fenced: as their texts say.
        """
    def _schema(self) -> str | None: ...
    def _newest_schema(self) -> str | None: ...
    def _begin_newest_schema(self) -> Pending[str | None]: ...
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
class TableSchema:
    """The columns of a table: those of its key, in their order, then those of its value. It encodes
    and decodes by itself, without a database, and pickles, so that tasks anywhere can.

    :param schema: pyarrow's, or whatever else speaks Arrow's.
    :param key: the columns of the key, each perhaps with words about its order:
        ``"day desc nulls last"``. What may hold nulls takes a byte more in a key; make it not
        nullable in `schema` where there are none.
    :raises Invalid: no key; a column that there is not, or twice; words that are none.
    :raises Unsupported: a type that no column has; the text says what to cast it to.
    """

    def __new__(cls, schema: Any, *, key: list[str]) -> Self: ...
    @classmethod
    def parse(cls, text: str) -> TableSchema:
        """The schema that a text says: `text` of another.

        :raises Corruption: no schema. :raises Unsupported: one of a later version.
        """
    @property
    def text(self) -> str:
        """All of it as two lines, as the manifest has it."""
    @property
    def key(self) -> list[str]:
        """The names of the key's columns, in their order."""
    @property
    def directions(self) -> list[tuple[bool, bool]]:
        """How each column of the key is ordered: whether it is descending, and whether nulls come
        last."""
    @property
    def names(self) -> list[str]:
        """The names of all columns: the key's, then the value's."""
    @property
    def generation(self) -> int:
        """How often the columns of values have changed, from 1 on."""
    def encode(self, rows: Any) -> tuple[ArrowArray, ArrowArray]:
        """The keys and the values of these rows, as two Arrow arrays of binary. Columns are found
        by name; one of the value that may hold nulls may be missing.

        :param rows: Arrow data (a table, a batch, a frame), or a list of dicts.
        :raises Invalid: a column that is missing, or that the table has not, or of another type; a
            null where there is none; rows of over 2 GiB.
        """
    def encode_key(self, rows: Any) -> ArrowArray:
        """The keys of these rows, as an Arrow array of binary; other columns than the key's are not
        looked at.

        :raises Invalid: as `encode`.
        """
    def encode_stream(self, data: Any) -> TableStream:
        """Rows of the table, as a stream of record batches with the columns `key` and `value`. It
        can be read once.

        :param data: Arrow data, which may be a stream, or a list of dicts.
        """
    def decode(self, keys: Any, values: Any, *, columns: list[str] | None = None) -> ArrowArray:
        """The rows of these keys and values, as an Arrow record batch. A null value is a row that
        is not there: it is null in every column.

        :param columns: names of those that are wanted, in this order; no others are decoded.
        :raises Corruption: bytes that `encode` never makes.
        :raises Unsupported: values of a later generation than this schema knows.
        """
    def decode_batch(self, batch: Any, *, columns: list[str] | None = None) -> ArrowArray:
        """As `decode`, of a record batch with the columns `key` and `value`."""
    def decode_key(self, keys: Any) -> ArrowArray:
        """The key's columns of these keys, as an Arrow record batch.

        :raises Corruption: bytes that `encode_key` never makes.
        """
    def decode_stream(self, stream: Any, *, columns: list[str] | None = None) -> TableStream:
        """A stream of Arrow data with the columns `key` and `value`, as record batches of the
        table: what decodes a scan, a batch at a time. It can be read once.

        :param columns: as for `decode`.
        """
    def row(self, key: bytes, value: bytes) -> dict[str, Any]:
        """The row of a key and its value, as a dict.

        :raises Corruption, Unsupported: as `decode`.
        """
    def key_of(self, row: dict[str, Any]) -> bytes:
        """The key of one row, a dict.

        :raises Invalid: as `encode`.
        """
    def deletes(self, rows: Any) -> WriteBatch:
        """A batch that deletes the rows of these keys.

        :param rows: Arrow data, or a list of dicts; other columns than the key's are not looked at.
        :raises Invalid: as `encode`.
        """
    def range(
        self, equal: dict[str, Any] | None = None, start: Any = None, end: Any = None
    ) -> tuple[bytes | None, bytes | None]:
        """Where the keys begin, and before which they end: what `scan` takes as `start` and `end`.

        :param equal: what the key's first columns are equal to.
        :param start: the next column is at this or behind it, in the order of the key.
        :param end: the next column is before this, in the order of the key.
        :raises Invalid: columns that are not the key's first ones; a bound behind the last one.
        """
    def with_column(self, field: Any) -> TableSchema:
        """The schema with a column more, at the end of the value's, which may hold nulls: what is
        there already has null in it.

        :param field: an Arrow field.
        :raises Invalid: a name that is there; a field that is not nullable.
        """
    def with_wider(self, field: Any) -> TableSchema:
        """The schema with a column of the value in a type that holds all its values.

        :param field: an Arrow field with the column's name.
        :raises Invalid: no such column; a type that does not hold all of its values.
        """
    def with_nulls(self, column: str) -> TableSchema:
        """The schema with a column of the value that may hold nulls from now on.

        :raises Invalid: no such column; one that may already.
        """
    def has(self, field: Any) -> bool:
        """Whether there is a column of the name and the type of an Arrow field."""
    def nullable(self, column: str) -> bool:
        """Whether a column may hold nulls.

        :raises Invalid: no such column.
        """
    def __arrow_c_schema__(self) -> object: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...
    def __reduce__(self) -> tuple[Any, ...]: ...

@final
class TableStream:
    """Record batches that can be read once, by whatever understands the Arrow PyCapsule interface:
    pyarrow, polars, duckdb, pandas, arro3."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...
    def __arrow_c_schema__(self) -> object: ...

def open_table(
    url: str,
    schema: TableSchema,
    manner: tuple[bool, bool | None, bool, bool, bool | None],
    named: dict[str, Any],
    store_options: dict[str, Any],
    merge_operator: Any,
) -> Database: ...

@final
class Transaction(_Reads):
    """A transaction, from `Database.transaction`. Its reads see the database as it was when it
    began, under its own writes; nobody else sees these until it commits, all at once. It waits for
    nobody: where another commit came between it raises Conflict, and is over. As a context manager
    it commits when the block ends well, and rolls back on an exception.
    """

    @property
    def seq(self) -> int:
        """The last sequence number of others that it sees."""
    @property
    def isolation(self) -> str:
        """What its commit depends on: "serializable" or "snapshot"."""
    @property
    def committed(self) -> Commit | None:
        """The Commit, once it was committed and had written something."""
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
        :raises Closed: the transaction is over.
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
        :raises Invalid: no merge operator was brought; an operand that it does not take; as `put`.
        """
    def delete(self, key: _Bytes) -> None:
        """Deletes `key`; that it was absent is no error."""
    def delete_range(
        self,
        start: _Bytes | None = None,
        end: _Bytes | None = None,
        *,
        prefix: _Bytes | None = None,
    ) -> None:
        """Deletes every key of `[start, end)`, or every key with `prefix`; what the transaction
        does after it stays. Without a start it begins with the first key, without an end it goes
        on to the last, and counts as two operations.

        :raises Invalid: no argument, `prefix` together with a bound; an empty or oversized bound or
            prefix, a start that is not below the end.
        """
    def __setitem__(self, key: _Bytes, value: _Bytes, /) -> None: ...
    def __delitem__(self, key: _Bytes, /) -> None: ...
    def savepoint(self) -> Savepoint:
        """A moment that `rollback_to` can go back to.

        :raises Closed: the transaction is over.
        """
    def rollback_to(self, savepoint: Savepoint) -> None:
        """Forgets what was written since the savepoint. What was read since still counts: it may
        have decided what is written now. The savepoint stays, later ones go.

        :raises Invalid: a savepoint of another transaction, or one that went with an earlier one.
        """
    def commit(self) -> Commit | None:
        """Commits: everything that was written becomes visible at once, and durable as after a put.
        None where nothing was written. Waits only while `max_memtable_bytes` are unflushed; a wait
        that is interrupted has committed nothing, and leaves the transaction open.

        :raises Conflict: another commit changed what it depends on; `context["key"]` names the key
            (escaped as in a bytes literal). The transaction is over: run it again, or have
            `siltstone.retry` do it.
        :raises Invalid: more than `max_batch_bytes` were written.
        :raises Closed: the transaction is over, or the database was closed.
        :raises Fenced, Timeout, Unavailable: as their texts say.
        """
    def rollback(self) -> None:
        """Forgets everything that was written, and ends the transaction. Doing it twice, or after a
        commit, changes nothing."""
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
    # What siltstone.aio calls.
    def _begin_commit(self) -> AsyncCommit | Pending[AsyncCommit | None] | None: ...
    @property
    def _ended(self) -> str | None: ...

@final
class Savepoint:
    """A moment of a transaction that `rollback_to` goes back to."""

    def __reduce__(self) -> NoReturn: ...

@final
class Scan(Iterator[_Row], Generic[_Row]):
    """A one-shot iteration, pinned when it was made. One thread at a time."""

    def __iter__(self) -> Self: ...
    def __next__(self) -> _Row: ...
    def seek(self, key: _Bytes) -> None:
        """Passes over the rows that come before `key` in the scan's direction: the next row is the
        first at or behind it that was not given yet. A scan never goes back, so a key that it has
        passed changes nothing; one beyond its range ends it. Nothing that is passed over is read,
        but for what was read ahead.

        :raises Invalid: a scan with a limit.
        """
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
    """An Arrow array, for whatever understands the Arrow PyCapsule interface."""

    def __arrow_c_array__(self, requested_schema: Any = None) -> Any: ...
    def __len__(self) -> int: ...

@final
class Feed:
    """A feed at work: what `siltstone.changes.Changes` reads."""

    def read(self, rows: int, bytes: int) -> ArrowArray | None:
        """The next changes as an array of structs; None where there are none."""
    def rows(self, rows: int, bytes: int) -> list[tuple[str, bytes, bytes | None, int, int]] | None:
        """As `read`, as tuples of kind, key, value, sequence number and milliseconds since the
        epoch, for whoever has no library that reads Arrow."""
    def _begin_read(self, rows: int, bytes: int) -> Pending[ArrowArray | None]: ...
    def acknowledge(self, token: str | None = None) -> None:
        """What was dealt with is not held any more."""
    def _begin_acknowledge(self, token: str | None = None) -> Pending[None]: ...
    @property
    def token(self) -> str:
        """Where it stands."""
    @property
    def seq(self) -> int:
        """The last sequence number that it has passed on whole."""
    @property
    def checkpoint(self) -> Checkpoint | None:
        """The checkpoint that it goes on from."""
    @property
    def consumer(self) -> str | None:
        """The name of its consumer."""

@final
class UnitPlan:
    """A compaction whose units other processes merge: what `siltstone.compaction.Plan` holds."""

    def units(self) -> list[tuple[_PlainUnit, bytes, bytes | None]]:
        """What is left, each with the first key of its range and the first one behind it."""
    @property
    def resumed(self) -> bool:
        """Whether it goes on with what another compactor had begun."""
    def commit(self, results: list[tuple[_PlainUnit, bytes | None]]) -> bool:
        """Records results; whether all is committed."""
    def close(self) -> None:
        """Gives the epoch up."""

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
    def delete(self, key: _Bytes) -> None:
        """Deletes `key`; that it was absent is no error."""
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

@final
class Pending(Coroutine[Any, Any, _T_co]):
    """A call of `siltstone.aio` that waits. Awaited once; `asyncio.create_task` takes it too.
    Dropping it, as a cancelled task does, ends the wait."""

    def __await__(self) -> Generator[Any, None, _T_co]: ...
    def __iter__(self) -> Self: ...
    def __next__(self) -> Any: ...
    def send(self, _value: Any) -> Any:
        """One step of the wait."""
    def throw(self, kind: Any, value: Any = None, _trace: Any = None) -> Any:
        """Ends the wait with an exception."""
    def close(self) -> None:
        """Ends the wait."""

@final
class Port:
    """How an event loop hears of what completed: one a loop, which owns it. It has no use of its
    own."""

    def _drain(self) -> None: ...

@final
class AsyncCommit(Awaitable[None]):
    """A write that was accepted. Awaited, it is durable. Dropping it cancels nothing."""

    @property
    def seq(self) -> int:
        """Sequence number of the write's last operation: its place in the one history."""
    @property
    def durable(self) -> bool:
        """Whether the write is durable by now."""
    def __await__(self) -> Generator[Any]: ...
    def wait(self, timeout: _Seconds | None = None) -> Pending[None]:
        """Awaited, returns once the write is durable; has it sent at once if it was not.

        :param timeout: None: the handle's deadline.
        :raises Timeout: the write goes on, and may still become durable.
        :raises Fenced, Closed: it will not be acknowledged.
        :raises Denied: the store refuses the credentials; the write is tried again.
        """

@final
class AsyncScan(Generic[_Row]):
    """Batches of the rows of a `siltstone.aio.Scan`."""

    def begin_seek(self, key: _Bytes, unread: int) -> int | Pending[int]:
        """Passes over rows; answers how many of the `unread` last given rows are left."""
    def begin_rows(self) -> list[_Row] | Pending[list[_Row]]:
        """The next rows, none at the end."""
    def batch_rows(self, wanted: int | None) -> int:
        """Rows of a record batch, where the caller asks for `wanted`."""
    def begin_batch(self, rows: int) -> Pending[ArrowArray | None]:
        """The next rows as an Arrow array of structs, None at the end."""
    def begin_close(self) -> Pending[None] | None:
        """Lets go of what the scan holds."""
    def __class_getitem__(cls, _item: Any) -> Any: ...

def begin_clone(
    url: str,
    parents: list[tuple[str, CheckpointLike | None, bytes | None, bytes | None]],
    range: tuple[bytes | None, bytes | None],
    store_options: dict[str, str | int | bool],
) -> Pending[None]:
    """`clone`, to be awaited."""

def begin_destroy(
    url: str, soft: bool, store_options: dict[str, str | int | bool]
) -> Pending[None]:
    """`destroy`, to be awaited."""

def begin_export(
    source: tuple[str, dict[str, str | int | bool]],
    target: tuple[str, dict[str, str | int | bool]],
    checkpoint: CheckpointLike | None,
    is_import: bool,
) -> Pending[tuple[int, int, int]]:
    """`export`, to be awaited."""

def begin_open(
    url: str,
    manner: tuple[bool, bool | None, bool, bool, bool | None],
    named: dict[str, Any],
    store_options: dict[str, str | int | bool],
    merge_operator: _Described,
) -> Pending[Database]:
    """`open`, to be awaited."""

def begin_open_reader(
    url: str,
    named: dict[str, Any],
    store_options: dict[str, str | int | bool],
    provider: str | None,
    at: _ReadAt,
    operator: _Described,
    described: MergeOperatorSource | None,
) -> Pending[Reader]:
    """`open_reader`, to be awaited."""

@final
class MemTable(_Lookups):
    """A sorted buffer of writes in memory, with a history of its own: the first operation has
    sequence number 1. Every version is kept. Any thread reads, one at a time writes.

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
        """Sets `key` to `value`, and answers the sequence number.

        :param ttl: the key is gone after this long, counted from now.
        :param expire_at: the key is gone from then on: an aware datetime, in place of `ttl`.
            One that has passed hides what was there.
        :raises Invalid: an empty or oversized key or value; a ttl that is not above 0, or endless.
        """
    def delete(self, key: _Bytes) -> int:
        """Deletes `key`, and answers the sequence number of the tombstone."""
    def put_many(
        self, keys: Iterable[_Bytes] | _ArrowData, values: Iterable[_Bytes] | _ArrowData
    ) -> int:
        """Sets every key to the value beside it, all at once, and answers the last sequence number.

        :raises Invalid: lengths that differ, nulls, and as `put`; nothing is written then.
        """
    def write(self, batch: WriteBatch) -> int:
        """Writes the operations of a batch, all at once, and answers the last sequence number."""
    def __setitem__(self, key: _Bytes, value: _Bytes, /) -> None: ...
    def __delitem__(self, key: _Bytes, /) -> None: ...
    def snapshot(self, seq: int | None = None) -> MemTableSnapshot:
        """What was there when `seq` was the last operation; what is there now for None.

        :raises Invalid: a number that was not given out yet.
        """
    @property
    def seq(self) -> int:
        """The last sequence number; 0 while empty."""
    @property
    def nbytes(self) -> int:
        """Bytes of memory it takes, about."""
    def __len__(self) -> int:
        """Entries: every version, tombstones included."""

@final
class MemTableSnapshot(_Lookups):
    """What a `MemTable` held at one moment. It keeps the memtable's memory."""

    @property
    def seq(self) -> int:
        """The last sequence number it sees."""
    def __len__(self) -> NoReturn:
        """TypeError: counting would mean reading every key."""

@final
class PartWriter:
    """Stages one part of an ingest job, in any process: from `Job.writer`. One thread at a time.

    A context manager: leaving it completes the part, leaving it by an exception discards it.
    """

    def add(
        self,
        key: _Bytes,
        value: _Bytes,
        *,
        ttl: _Seconds | None = None,
        expire_at: datetime | None = None,
    ) -> None:
        """Adds a row, in any order.

        :param ttl: the row is gone after this long, counted from now.
        :param expire_at: the row is gone from then on: an aware datetime, in place of `ttl`.
        :raises Invalid: an empty or oversized key or value. The writer is as before then.
        :raises Denied, Unavailable: as their texts say. The writer is of no use then.
        """
    def delete(self, key: _Bytes) -> None:
        """Adds a tombstone: a row that says that `key` is gone."""
    def add_many(
        self,
        keys: Iterable[_Bytes] | _ArrowData,
        values: Iterable[_Bytes] | _ArrowData,
        *,
        ttl: _Seconds | None = None,
        expire_at: datetime | None = None,
    ) -> None:
        """Adds every key with the value beside it: iterables, or two Arrow arrays of byte strings.

        :raises Invalid: lengths that differ, nulls, and as `add`. After an error that came with
            some of the rows added the part can only be discarded.
        """
    def put_or_delete_many(self, keys: _ArrowData, values: _ArrowData) -> None:
        """Adds every key with the value beside it, and a tombstone where that is null: two Arrow
        arrays of byte strings.

        :raises Invalid: lengths that differ, null keys, and as `add`. After an error that came with
            some of the rows added the part can only be discarded.
        """
    def write(self, data: _ArrowData) -> None:
        """Adds every row of an Arrow table, record batch or stream with the columns `key` and
        `value`.

        :raises Invalid: missing columns, with nothing added; nulls, and as `add`. After an error
            that came with some of the rows added the part can only be discarded.
        :raises TypeError: no Arrow data.
        """
    def finish(self) -> Part:
        """Completes the part: its tables are sorted, whole and durable. The answer is small, and
        pickles; who closes the job needs it. Doing it twice is fine.

        :raises Invalid: rows with one key, naming both, counted from 0, unless `duplicates` is
            "last".
        :raises Denied, Unavailable: as their texts say. There is no part then.
        """
    def discard(self) -> None:
        """Gives the part up, unless it is finished. What was uploaded of it is collected with the
        job."""
    @property
    def rows(self) -> int:
        """How many rows were added."""
    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None: ...

@final
class SstWriter:
    """Writes one sorted table into a file of its own. One thread at a time.

    A context manager: leaving it completes the table, leaving it by an exception discards it. What
    is at the target stays until then, and is replaced whole; nothing half-written is left there.

    :param target: a path; a URL whose path is the object's (`s3://bucket/rows.sst`); or a
        binary file object, which keeps what a discarded table wrote to it, and stays open.
    :param options: `block_bytes`, `compression` and `filter_bits_per_key`, as
        `siltstone.Options` or a dict; the others have no effect.
    :param store_options: what the store is reached with.
    :param sort: rows come in any order. Otherwise they must ascend, and take no memory.
    :param duplicates: "error", or "last": of rows with one key the one added last counts.
    :param sort_memory_bytes: memory for sorting (1 MiB to 64 GiB; 128 MiB by default); what
        is more goes through files in `scratch`, and takes its size there once more.
    :param scratch: an existing local folder (by default that of `tempfile`).
    :raises NotFound: the folder of the file does not exist.
    :raises Invalid: a target or an option.
    :raises Denied, Unavailable: as their texts say.
    """

    def __new__(
        cls,
        target: str | PathLike[str] | _Writable,
        *,
        options: Options | Mapping[str, Any] | None = None,
        store_options: StoreOptionsSource | None = None,
        sort: bool = True,
        duplicates: str = "error",
        sort_memory_bytes: int | None = None,
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

        :param ttl: the row is gone after this long, counted from now.
        :param expire_at: the row is gone from then on: an aware datetime, in place of `ttl`.
            One that has passed hides what was there.
        :raises Invalid: an empty or oversized key or value; a row out of order where `sort` is off,
            naming both rows, counted from 0. The writer is as before then.
        :raises Denied, Unavailable: as their texts say. The writer is of no use then.
        """
    def delete(self, key: _Bytes) -> None:
        """Adds a tombstone: a row that says that `key` is gone, wherever the table is merged."""
    def add_many(
        self,
        keys: Iterable[_Bytes] | _ArrowData,
        values: Iterable[_Bytes] | _ArrowData,
        *,
        ttl: _Seconds | None = None,
        expire_at: datetime | None = None,
    ) -> None:
        """Adds every key with the value beside it: iterables, or two Arrow arrays of byte strings.

        :raises Invalid: lengths that differ, nulls, and as `add`. After an error that came with
            some of the rows added the table can only be discarded.
        """
    def write(self, data: _ArrowData) -> None:
        """Adds every row of an Arrow table, record batch or stream with the columns `key` and
        `value`.

        :raises Invalid: missing columns, with nothing added; nulls, and as `add`. After an error
            that came with some of the rows added the table can only be discarded.
        :raises TypeError: no Arrow data.
        """
    def finish(self) -> SstInfo:
        """Completes the table, and answers what it is. Doing it twice is fine.

        :raises Invalid: no rows; rows with one key, naming both, counted from 0.
        :raises Denied, Unavailable: as their texts say. There is no table then.
        """
    def discard(self) -> None:
        """Gives the table up, unless it is finished."""
    @property
    def rows(self) -> int:
        """How many rows were added; once it is finished, how many are in the table."""
    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None: ...

@final
class SstReader(_Lookups):
    """Reads a table in a file of its own: one of `SstWriter` or of a database. From any thread.
    Opening it reads its length, its filter and its index.

    It pickles (URL and options travel, store options come from the environment or the provider at
    the other end), and opens itself anew after a fork.

    :param source: a path, a URL whose path is the object's, or the file's bytes.
    :param options: `block_cache_bytes` and `deadline`; the others have no effect.
    :param store_options: what the store is reached with.
    :raises NotFound: there is no such file.
    :raises Corruption: it is no table, or a damaged one.
    :raises Unsupported, Denied, Unavailable, Timeout: as their texts say.
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
        """What the table says of itself."""
    @property
    def rows(self) -> int:
        """Entries of all kinds and versions, tombstones included."""
    @property
    def first_key(self) -> bytes:
        """The smallest key."""
    @property
    def last_key(self) -> bytes:
        """The largest key."""
    def verify(self) -> int:
        """Reads every byte and checks all of it; answers how many bytes there were.

        :raises Corruption: saying what is wrong.
        """
    def to_arrow(self, batch_rows: int | None = None) -> ArrowStream:
        """All rows as Arrow record batches, as `Scan.to_arrow`."""
    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any: ...
    def close(self) -> None:
        """Lets go of the table. Scans that it made go on."""
    def __len__(self) -> int:
        """Rows that reads see; TypeError where that takes reading (versions, expiry)."""
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
    """Says which keys are certainly not in a set: the filter that tables carry. Immutable.

    :param keys: of the set. Nulls of an Arrow array are passed over.
    :param bits_per_key: 1 to 64; 10 by default, which says "perhaps" to about 1 % of the keys that
        are not there.
    """

    def __new__(
        cls, keys: Iterable[_Bytes] | _ArrowData, *, bits_per_key: int | None = None
    ) -> Self: ...
    @staticmethod
    def from_bytes(data: _Bytes) -> BloomFilter:
        """The filter that `to_bytes` gave.

        :raises Corruption: bytes that are none.
        """
    def to_bytes(self) -> bytes:
        """The stored form, which tables carry too."""
    def may_contain(self, key: _Bytes) -> bool:
        """Whether `key` may have been added; False is certain."""
    def __contains__(self, key: _Bytes, /) -> bool: ...
    @overload
    def may_contain_many(self, keys: _Array) -> _Array:
        """`may_contain` of every key, in their order.

        An Arrow array of keys gives an Arrow array of bool, with a null for a null.
        """
    @overload
    def may_contain_many(self, keys: Iterable[_Bytes]) -> list[bool]: ...
    @overload
    def may_contain_many(self, keys: _ArrowStreamLike) -> Any: ...
    @property
    def nbytes(self) -> int:
        """Bytes of the stored form."""
    @property
    def false_positive_rate(self) -> float:
        """How often it says "perhaps" to a key that was not added, by the bits that are set."""
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
    """Reads several tables and memtables as one, in key order. Of a key that is in more than one
    the reader that was named first counts: name the newest first.

    :param tombstones: give keys that were deleted, or have expired, with None for their value;
        otherwise they are left out. In Arrow such a value is null.
    :raises Unsupported: tables that hold merge operands.
    :raises Corruption, Unavailable, Timeout, Denied: while it is read.
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
    """Makes a key of `parts`. The order of keys is the order of their tuples, part by part, and
    `unpack` gives the parts back.

    =====================  ===============================================================
    ``None``               before everything else
    ``bool``               False, True
    ``int``                by value; up to 255 bytes, so below 2 ** 2040, either way
    ``float``              by value; -0.0 is 0.0; NaN is the largest, and all NaN are one
    ``Decimal``            by value, so 1.5 and 1.50 are one; NaN is the largest
    ``date``               by day
    ``datetime``           by instant, to the microsecond; it must be aware
    ``str``                by code points
    ``bytes``              by their bytes; a bytearray or a memoryview will do
    ``UUID``               by its bytes
    =====================  ===============================================================

    Types come before values, in this order: every int before every float. So ``1``, ``1.0``,
    ``True`` and ``Decimal(1)`` are four parts; give a place of your keys one type.

    :raises Invalid: no parts, more than 65,535 bytes, a signalling NaN, an int that is too large.
    :raises TypeError: a part of another type; a datetime without a time zone.
    """

def unpack(key: _Bytes, /) -> tuple[_KeyPart, ...]:
    """The parts that `key` was made of by `pack`. Equal, but not always alike: a Decimal comes back
    as `Decimal.normalize` has it, a datetime in UTC, a bytearray as bytes, a number of NumPy's as
    an int or a float.

    :raises Corruption: a key that `pack` never makes.
    """

def prefix_range(*parts: _KeyPart | bytearray | memoryview) -> tuple[bytes, bytes]:
    """Where the keys begin and end whose first parts are `parts`: what `scan`, `delete_range` and
    `approximate_size` take as `start` and `end`. Without parts it is every key that `pack` makes.

    A part is whole: ``prefix_range("DE")`` has ``("DE", 7)`` and ``("DE",)``, and not ``("DEN",)``.

    :raises Invalid, TypeError: as `pack`.
    """

def open(
    url: str,
    manner: tuple[bool, bool | None, bool, bool, bool | None],
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
    """Makes a clone of parents: of each its URL, a checkpoint, the first key and the key to stop
    before."""

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
    """Pins what is durable now, or what `source` pins, by a checkpoint that all jobs of `holder`,
    its metadata, share."""

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
    """Releases the pins of a clone that is gone, and gives them."""

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
    app: tuple[str, int] | None,
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
    waits: _Seconds | None,
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
def seconds_of_duration(object: _Seconds, name: str) -> float:
    """The seconds of a duration in any of the forms that arguments take, for the Python part."""

def seq_at(url: str, store_options: dict[str, str | int | bool], millis: int) -> int: ...
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
    """Copies a state; tables that moved, tables that were there, bytes."""

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
    """What the plan takes, and the tables, rows and bytes of it."""

def check_group(group: str, named: dict[str, Any]) -> dict[str, Any]:
    """The options `named` of a group, each checked and in plain types."""

def check_options(named: dict[str, Any]) -> dict[str, Any]:
    """`named`, checked and in plain types, groups as dicts."""

def option_table() -> list[tuple[str, str, Any, str, str]]:
    """One tuple an option, also of groups: name, kind, default, range in words, meaning."""

def stat_table() -> list[tuple[str, str, str, str, bool]]:
    """One tuple a figure: name, group, unit, meaning, and whether it only grows. Each is a field of
    `siltstone.Stats`."""

def error_kinds() -> list[str]:
    """The names of all error kinds: each is a class of `siltstone.exceptions`."""

def error_of_kind(kind: str, text: str) -> BaseException:
    """The exception that an engine error of this kind becomes."""

def next_lines() -> list[tuple[str, int, str]] | None:
    """Logger, level and text of what the engine has said; waits for the next line. None once the
    runtime has ended."""

def memory_in_use() -> int:
    """Bytes that the extension's own allocator has given out; for tests."""

def at_exit() -> None:
    """Closes everything that is open and ends the runtime; nothing can be opened after."""
