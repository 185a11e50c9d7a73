"""Ingest jobs: any number of processes sort rows into tables, and one commit adds them to a live
database.

    import siltstone
    from siltstone import ingest

    siltstone.open("example.db").close()
    job = ingest.Job("example.db")          # picklable: send it to workers of any kind

    def task(number):                       # in a worker; it can be repeated
        with job.writer(number) as writer:
            for n in range(1000):
                writer.add(b"%d/%d" % (number, n), b"value")
        return writer.finish()              # small, picklable

    request = job.commit([task(0), task(1)])
    ingest.submit(request)                  # or, in the process of the writer: db.ingest(request)

A job can be submitted until its deadline, by default seven days after its creation. A job that was
not submitted by then is collected. A submitted job is adopted once, however often it is submitted.
With ``txn=(app, version)`` this holds permanently: submitting an adopted version of an application
again returns the status of the job that brought it, and a lower version raises Conflict.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from os import PathLike
from typing import Any, Literal, SupportsIndex

from siltstone import _native
from siltstone._arguments import timeout_of
from siltstone._checkpoints import moment
from siltstone._importable import resolve
from siltstone._native import PartWriter
from siltstone._numbers import size_of
from siltstone._open import (
    StoreOptionsSource,
    Url,
    _open_for_a_moment,
    _reader_arguments,
    _store,
    _text,
    hidden,
)
from siltstone.exceptions import Closed, Conflict, Fenced, Invalid, Timeout, Unavailable
from siltstone.options import Bytes, Options, Seconds

__all__ = [
    "IngestRequest",
    "IngestStatus",
    "Job",
    "Part",
    "PartWriter",
    "StagedJob",
    "forget_app",
    "jobs",
    "status",
    "submit",
    "withdraw",
]

_PlainRange = tuple[bytes | None, bytes | None]
_PlainJob = tuple[
    str, str, str | None, tuple[str, int] | None, _PlainRange | None, bool, int, str | None, bool
]
_WEEK = timedelta(days=7)
_TABLE_BYTES = 64 << 20
_LOOK_FOR = timedelta(minutes=10)


@dataclass(frozen=True, slots=True)
class Part:
    """The staged data of one task, from `PartWriter.finish`. It is small and can be pickled."""

    job: str
    """Id of the job."""
    part: int | str
    """Name of the part within the job. If several parts have one name, the first counts."""
    rows: int
    """Number of rows, including deletes."""
    bytes: int
    """Size of the tables in bytes."""
    tables: int
    """Number of tables."""
    data: Any = field(repr=False)
    """Internal data for `Job.commit`."""


@dataclass(frozen=True, slots=True)
class IngestRequest:
    """A closed job. Any process can submit it, any number of times. It can be pickled."""

    url: str
    """URL of the database."""
    job: str
    """Id of the job."""
    rows: int
    """Number of rows, including deletes."""
    bytes: int
    """Size of the tables in bytes."""
    tables: int
    """Number of tables."""
    _job: _PlainJob = field(repr=False)
    _attempt: str = field(repr=False)

    def to_plain(self) -> tuple[_PlainJob, str, int, int, int]:
        """Returns plain values: the job, the attempt that closed it, and its counts."""
        return (self._job, self._attempt, self.tables, self.rows, self.bytes)


@dataclass(frozen=True, slots=True)
class IngestStatus:
    """The state of a job."""

    state: Literal["open", "pending", "adopted", "refused", "aborted", "ended", "forgotten"]
    """"open": not submitted. "pending": it waits for the writer. "adopted": it is part of the
    database. "refused": the writer refused it. "aborted": it was aborted or withdrawn. "forgotten":
    its outcome is no longer known, because its deadline has passed, 4,096 later jobs have ended, a
    later version of its application was adopted, or its application was forgotten. "ended": it
    ended in a way that this version of Siltstone does not know."""
    seq: int | None = None
    """Last sequence number of an adopted job; None if a later version of its application was
    adopted since."""
    reason: str | None = None
    """Reason of a refusal."""

    def to_dict(self) -> dict[str, Any]:
        """The fields as plain values for JSON."""
        return {"state": self.state, "seq": self.seq, "reason": self.reason}


@dataclass(frozen=True)
class StagedJob:
    """A job with objects in its folder."""

    id: str
    """Id of the job, as `Job.id`."""
    deadline: datetime
    """Time until which the job can be submitted."""
    objects: int
    """Number of objects in its folder: parts, and the record that closed it."""
    bytes: int
    """Size of the objects in bytes."""
    last_stored: datetime | None
    """Time at which the last object was stored, by the clock of the store."""
    status: IngestStatus
    """State of the job. An "open" job was not submitted: its tasks are running, or its process was
    killed."""

    def to_dict(self) -> dict[str, Any]:
        """The fields as plain values for JSON."""
        return {
            "job": self.id,
            "deadline": self.deadline.isoformat(),
            "objects": self.objects,
            "bytes": self.bytes,
            "last_stored": None if self.last_stored is None else self.last_stored.isoformat(),
            **self.status.to_dict(),
        }


class Job:
    """An ingest job for the database at `url`. It can be pickled. The pickle carries the URL; store
    options come from the environment where it is unpickled, or from the provider that the job was
    created with.

    :param txn: name of an application and its version. A version is adopted once, permanently, and
        versions only increase.
    :param lifetime: minimum time for which the job can be submitted: a timedelta, seconds, or text.
        Later it is refused once a collector has seen that the deadline has passed, and its staged
        tables are deleted.
    :param replace: a range of keys `(start, end)` to replace, None for no bound. When the job is
        adopted, its rows replace all existing rows of the range in one step. `(None, None)`
        overwrites the whole database without reading or rewriting rows. A job without rows deletes
        the range. `commit` refuses rows outside of the range.
    :param behind: add the rows as older than all rows that exist when the job is adopted, so that
        they fill only keys that were never written. Deleted and expired rows stay deleted. The
        database must have been created with ``siltstone.open(url, allow_ingest_behind=True)``. Of
        several such jobs the first wins. Change feeds do not contain them. It cannot be combined
        with `replace`.
    :raises NotFound: if there is no database.
    :raises Invalid: if the start of the range is not below its end, or a bound is not a valid key.
    :raises Unsupported: if `behind` is True and the database was created without
        `allow_ingest_behind`.
    :raises Denied, Unavailable: see `siltstone.exceptions`.
    """

    __slots__ = ("_job", "_provider", "_store_options", "deadline", "url")

    url: str
    """URL of the database."""
    deadline: datetime
    """Time until which the job can be submitted, at least."""

    def __init__(
        self,
        url: Url,
        *,
        txn: tuple[str, int] | None = None,
        lifetime: Seconds = _WEEK,
        replace: tuple[bytes | None, bytes | None] | None = None,
        behind: bool = False,
        store_options: StoreOptionsSource | None = None,
    ) -> None:
        store_options = hidden(store_options)
        _check_txn(txn)
        match replace:
            case None | (_, _):
                pass
            case _:
                raise TypeError(f"replace must be a pair (start, end), not {replace!r}")
        if behind and replace is not None:
            raise Invalid("behind and replace exclude each other: create two jobs")
        self.url, self._store_options, self._provider = _reader_arguments(url, store_options)
        begun = _native.ingest_begin(self.url, self._store_options, lifetime, txn, replace, behind)
        self._job: _PlainJob = begun[0]
        self.deadline = moment(begun[1])

    @property
    def id(self) -> str:
        """Id of the job, a ULID."""
        return self._job[0]

    @property
    def txn(self) -> tuple[str, int] | None:
        """The application and its version, or None."""
        return self._job[3]

    @property
    def replace(self) -> tuple[bytes | None, bytes | None] | None:
        """The replaced range: the first key and the exclusive end; None for no bound. None if the
        job replaces no range."""
        return self._job[4]

    @property
    def behind(self) -> bool:
        """Whether the rows are added as older than all existing rows."""
        return self._job[5]

    def for_txn(self, txn: tuple[str, int] | None) -> Job:
        """Returns the same job for another version of an application, for callers that learn the
        version after the job began. Parts of either job are parts of both.

        :raises Invalid: if the version is below 0, or the application has no name.
        """
        _check_txn(txn)
        return self._changed(txn, self.replace)

    def _changed(self, txn: tuple[str, int] | None, replace: _PlainRange | None) -> Job:
        """Returns the same job for a version of an application, with a range to replace."""
        other = object.__new__(Job)
        other.url, other.deadline = self.url, self.deadline
        other._store_options, other._provider = self._store_options, self._provider
        other._job = (*self._job[:3], txn, replace, *self._job[5:])
        return other

    def writer(
        self,
        part: int | str,
        *,
        options: Options | Mapping[str, Any] | None = None,
        duplicates: Literal["error", "last"] = "error",
        sort_memory_bytes: Bytes | None = None,
        scratch: str | PathLike[str] | None = None,
        table_bytes: Bytes = _TABLE_BYTES,
    ) -> PartWriter:
        """Returns a writer for one part, in any process. The writer sorts rows and uploads tables.

        :param part: name of the part within the job. A repeated task uses the same name.
        :param options: `block_bytes`, `compression` and `filter_bits_per_key`. Other options have
            no effect.
        :param duplicates: "error": raise Invalid for rows with equal keys. "last": keep the last of
            them.
        :param sort_memory_bytes: memory for sorting, in bytes or as text such as "1GiB" (1 MiB to
            64 GiB; 128 MiB by default). Larger data is sorted through files in `scratch`.
        :param scratch: an existing local folder (by default that of `tempfile`).
        :param table_bytes: size of the rows, in bytes or as text such as "64MiB", after which the
            writer begins another table.
        :raises TypeError: if `part` is neither a whole number nor text.
        :raises Invalid: if `table_bytes` is below 1, or another argument is not valid.
        """
        part = _named(part)
        memory = sort_memory_bytes
        memory = None if memory is None else size_of(memory, "sort_memory_bytes")
        given = (options, duplicates, memory, scratch, size_of(table_bytes, "table_bytes", 1))
        return _native.ingest_writer(self.url, self._store_options, self._job, part, *given)

    def load(
        self,
        part: int | str,
        data: Any,
        *,
        options: Options | Mapping[str, Any] | None = None,
        sorted: bool = False,
        duplicates: Literal["error", "last"] = "error",
        memory_bytes: Bytes | None = None,
        scratch: str | PathLike[str] | None = None,
        on_progress: Callable[[int, int], object] | None = None,
    ) -> Part:
        """Builds one part from any amount of Arrow data, on all cores of this machine, in any
        process. Other arguments and errors are those of `Database.load`.

        :param part: name of the part within the job. A repeated task uses the same name.
        :param options: `block_bytes`, `compression` and `filter_bits_per_key`. Other options have
            no effect.
        """
        part = _named(part)
        order = (sorted, duplicates)
        memory = None if memory_bytes is None else size_of(memory_bytes, "memory_bytes")
        rows, size, tables, data, _ = _native.ingest_load(
            self.url,
            self._store_options,
            self._job,
            data,
            options,
            order,
            memory,
            scratch,
            on_progress,
        )
        return Part(self.id, part, rows, size, tables, data)

    def commit(self, parts: Iterable[Part]) -> IngestRequest:
        """Closes the job with these parts. No other part can be added later. If several parts have
        a key, the last part wins. If the job was closed before, the parts of that call count.

        :raises Invalid: if there are no rows and the job replaces no range, if a row is outside of
            the range, or if a part belongs to another job.
        :raises Conflict: if the job was aborted, or was closed for another version of an
            application.
        """
        first: dict[int | str, Part] = {}
        for part in parts:
            if not isinstance(part, Part):
                kind = type(part).__name__
                raise TypeError(
                    f"a part must be the result of PartWriter.finish or Job.load, not {kind}"
                )
            first.setdefault(part.part, part)
        if any(part.job != self.id for part in first.values()):
            raise Invalid("a part belongs to another job; commit each job with its own parts")
        data = [part.data for part in first.values() if part.tables]
        plain, attempt, tables, rows, size = _native.ingest_commit(
            self.url, self._store_options, self._job, data
        )
        return IngestRequest(self.url, self.id, rows, size, tables, plain, attempt)

    def abort(self) -> IngestStatus:
        """Aborts the job, unless it was submitted. Returns its state."""
        return IngestStatus(*_native.ingest_abort(self.url, self._store_options, self._job))

    def to_plain(self) -> _PlainJob:
        """Returns the job as plain values."""
        return self._job

    def __getstate__(self) -> tuple[str, _PlainJob, datetime, str | None]:
        if self._provider is not None:
            resolve(self._provider)
        return (self.url, self._job, self.deadline, self._provider)

    def __setstate__(self, state: tuple[str, _PlainJob, datetime, str | None]) -> None:
        self.url, self._job, self.deadline, self._provider = state
        self._store_options = _store(self._provider)

    def __repr__(self) -> str:
        if not hasattr(self, "_job"):
            return "<siltstone.ingest.Job, not begun>"
        return f"<siltstone.ingest.Job {self.id} for {self.url}>"


def _check_txn(txn: tuple[str, int] | None) -> None:
    """Checks an application and its version.

    :raises TypeError: if `txn` is not a pair of a name and a number.
    :raises Invalid: if the name is empty, or the version is below 0 or has more than 64 bits.
    """
    if txn is None:
        return
    match txn:
        case (str(), SupportsIndex() as number) if isinstance(txn, tuple) and not isinstance(
            number, bool
        ):
            version = number.__index__()
        case _:
            raise TypeError(f"txn must be a pair (application name, version), not {txn!r}")
    if not txn[0] or not 0 <= version < 1 << 64:
        raise Invalid(
            f"txn is {txn!r}: give a name that is not empty, and a version from 0 to 2**64 - 1"
        )


def _named(part: SupportsIndex | str) -> int | str:
    """Returns the name of a part. Only whole numbers and text are accepted, because 1, 1.0 and True
    are equal.

    :raises TypeError: if `part` is neither a whole number nor text.
    """
    if isinstance(part, str):
        return part
    if isinstance(part, bool) or not isinstance(part, SupportsIndex):
        raise TypeError(f"part must be a whole number or text, not {part!r}")
    return part.__index__()


def _plain(request: Any) -> tuple[_PlainJob, str, int, int, int]:
    """Converts a request for the compiled module.

    :raises TypeError: if `request` is not an IngestRequest.
    """
    if not isinstance(request, IngestRequest):
        raise TypeError(f"request must be the result of Job.commit, not {type(request).__name__}")
    return request.to_plain()


def submit(
    request: IngestRequest,
    *,
    wait: bool = True,
    take_over: bool | None = None,
    timeout: Seconds = _LOOK_FOR,
    store_options: StoreOptionsSource | None = None,
) -> IngestStatus:
    """Submits a job, from any process, any number of times. An open writer adopts it, in whichever
    process it runs. If the last writer has closed, this call opens the database, adopts the job,
    and closes the database.

    :param wait: wait until the job is adopted or refused. Otherwise the result may be "pending".
    :param take_over: what to do about a writer that did not close. None: fence it if it is known to
        be dead, which only a local folder can tell, by a lock. In an object store leave it alone,
        unless it is another `submit` or a writer of the Spark package: fence these after two
        seconds. True: fence it, alive or not. False: leave it alone everywhere.
    :param timeout: maximum wait, 10 minutes by default.
    :returns: the state of the job.
    :raises Conflict: if the job is for another database or for a state that a restore has undone,
        if a collector has seen that its deadline has passed, if it was aborted, if a later version
        of its application was adopted, or if the application was forgotten after the job began.
    :raises Timeout: if the job is not adopted in time. The text says whether it remains submitted:
        then the next writer adopts it. If there was no room for it in time, submit it again.
    :raises Unavailable: without `wait`, if the maximum number of jobs is waiting: submit again
        later.
    :raises TypeError: if `wait` or `take_over` is of another type; nothing was submitted.
    :raises NotFound, Denied: see `siltstone.exceptions`.
    """
    store_options = hidden(store_options)
    plain, store = _plain(request), _store(store_options)
    until = time.monotonic() + timeout_of(timeout, wait, take_over)

    def step() -> float:
        return min(max(until - time.monotonic(), _LEAST_STEP), _LONGEST_STEP)

    def asked(most: float, *, waits: bool = False) -> IngestStatus:
        return IngestStatus(*_native.ingest_submit(request.url, store, plain, most, waits))

    if not wait:
        return asked(step())
    # Another process may be adopting jobs right now. It gets time before it is fenced.
    ends_others = False
    while True:
        refused = None
        try:
            if (stands := asked(step())).state != "pending":
                return stands
        except Unavailable as error:
            refused = error  # If the queue of jobs is full, opening the database makes room.
        barred = _take_in(request, take_over, store_options, step(), ends_others=ends_others)
        ends_others = True
        left = until - time.monotonic()
        if left <= 0:
            if barred is None:
                # This call has adopted the job.
                return asked(_LONGEST_STEP)
            raise _not_adopted(refused, barred)
        with suppress(Timeout):
            return asked(min(left, _LOOK_AGAIN), waits=True)


def _not_adopted(refused: Unavailable | None, barred: str | None) -> Timeout:
    fate = "it remains submitted, and the next writer adopts it"
    if refused is not None:
        known = "it may be submitted" if isinstance(refused, Timeout) else "it is not submitted"
        fate = f"{known}, so submit it again: it is adopted once ({refused})"
    why = f" (this call could not open the database: {barred})" if barred else ""
    return Timeout(
        f"submit: the job was not adopted within the timeout; {fate}{why}. If the last writer "
        "died, fence it by opening with take_over=True"
    )


_LOOK_AGAIN = 2.0
"""Seconds after which `submit` tries again to open the database itself."""
_LEAST_STEP, _LONGEST_STEP = 2.0, 30.0
"""Bounds of the time for one step of `submit`, in seconds: enough for a store that answers."""
_TELL_OF_WRITERS = ("file", "memory")
"""Kinds of stores that know whether a writer is alive."""


def _take_in(
    request: IngestRequest,
    take_over: bool | None,
    store_options: StoreOptionsSource | None,
    deadline: float,
    *,
    ends_others: bool,
) -> str | None:
    """Opens the database for a moment to adopt the job. Returns the reason if that was not
    possible, else None.

    :param ends_others: whether to fence another process that does the same and did not close.
    """
    scheme, found, _ = request.url.partition("://")
    if take_over is None and found and scheme.lower() not in _TELL_OF_WRITERS:
        take_over = False
    try:
        with _open_for_a_moment(
            request.url, take_over, deadline, ends_others=ends_others, store_options=store_options
        ) as db:
            db.ingest(request).wait()
    except (Closed, Conflict, Fenced, Invalid, Unavailable) as error:
        # Another writer is alive, did not close, or opened at the same time: it adopts the job. Or
        # the job was refused, and the next status says so.
        return str(error)
    return None


def status(
    url: Url, request: IngestRequest | Job | str, *, store_options: StoreOptionsSource | None = None
) -> IngestStatus:
    """Returns the state of a job, from any process, as recorded in the manifest. A job that the
    writer has adopted into its log, and that readers already see, is "pending" until the next
    flush.

    :param request: the request, the job, or the id of the job.
    :raises Conflict: if the request or the job is for another database.
    :raises NotFound: if there is no database, or no trace of a job with the id: it has staged
        nothing yet, or its staged data is collected and its outcome no longer recorded by its id.
    :raises Denied, Unavailable: see `siltstone.exceptions`.
    """
    store_options = hidden(store_options)
    place = (_text(url), _store(store_options))
    if isinstance(request, str):
        return IngestStatus(*_native.ingest_status(*place, request))
    job = request.to_plain() if isinstance(request, Job) else _plain(request)[0]
    return IngestStatus(*_native.ingest_status_of(*place, job))


def jobs(url: Url, *, store_options: StoreOptionsSource | None = None) -> list[StagedJob]:
    """Lists all jobs with objects in their folder, the earliest deadline first: jobs that were not
    submitted, jobs that wait for the writer, and jobs that were adopted or ended and are not
    collected yet.

    :raises NotFound: if there is no database.
    :raises Denied, Unavailable: see `siltstone.exceptions`.
    """
    store_options = hidden(store_options)

    listed = _native.ingest_jobs(_text(url), _store(store_options))
    return [
        StagedJob(
            job,
            moment(until),
            objects,
            size,
            None if last is None else moment(last),
            IngestStatus(*stands),
        )
        for job, until, objects, size, last, stands in listed
    ]


def withdraw(
    url: Url, job: StagedJob | Job | str, *, store_options: StoreOptionsSource | None = None
) -> IngestStatus:
    """Withdraws a job that was not submitted, such as one whose tasks were killed. It can no longer
    be submitted, and the next round of a collector deletes its staged data. A job that is pending
    or adopted is not changed. Returns the state of the job.

    :param job: the job, or its id.
    :raises NotFound: if there is no database, or no such job.
    :raises Denied, Unavailable: see `siltstone.exceptions`.
    """
    store_options = hidden(store_options)
    named = job if isinstance(job, str) else job.id
    return IngestStatus(*_native.ingest_withdraw(_text(url), _store(store_options), named))


def forget_app(url: Url, app: str, *, store_options: StoreOptionsSource | None = None) -> None:
    """Forgets the last adopted version of an application, so that its versions can begin anew with
    jobs that are created afterwards. Earlier jobs of the application are refused, because it is no
    longer known which of them were adopted.

    :raises Conflict: if a job of the application is pending.
    :raises NotFound, Denied, Unavailable: see `siltstone.exceptions`.
    """
    store_options = hidden(store_options)
    _native.ingest_forget(_text(url), _store(store_options), app)
