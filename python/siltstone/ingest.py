"""Ingest jobs: tables that any processes sort become part of a live database by one commit.

    import siltstone
    from siltstone import ingest

    siltstone.open("example.db").close()
    job = ingest.Job("example.db")          # picklable: hand it to workers of any kind

    def task(number):                       # in a worker; repeat it as you like
        with job.writer(number) as writer:
            for n in range(1000):
                writer.add(b"%d/%d" % (number, n), b"value")
        return writer.finish()              # small, picklable

    request = job.commit([task(0), task(1)])
    ingest.submit(request)                  # or, where the writer is: db.ingest(request)

A job may be asked for until its deadline, seven days on unless said otherwise. What is never asked
for is collected after that; what was is taken in once, however often it is asked for. With
``txn=(app, version)`` that holds for good: a version of an application that was taken in is
answered with the job that brought it, and a lower one is a Conflict.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from os import PathLike
from typing import Any, Literal, SupportsIndex

from siltstone import _native
from siltstone._checkpoints import moment
from siltstone._importable import resolve
from siltstone._native import PartWriter
from siltstone._open import (
    StoreOptionsSource,
    Url,
    _open_for_a_moment,
    _reader_arguments,
    _store,
    _text,
)
from siltstone.exceptions import Closed, Conflict, Fenced, Invalid, Timeout, Unavailable
from siltstone.options import Options, Seconds

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
_PlainJob = tuple[str, str, str | None, tuple[str, int] | None, _PlainRange | None, bool, int]
_WEEK = timedelta(days=7)
_TABLE_BYTES = 64 << 20
_LOOK_FOR = timedelta(minutes=10)


@dataclass(frozen=True, slots=True)
class Part:
    """What one task has staged: from `PartWriter.finish`. Small, and it pickles."""

    job: str
    """The job."""
    part: int | str
    """Its name within the job: of two parts of one name the first counts."""
    rows: int
    """Rows, deletes included."""
    bytes: int
    """Bytes of its tables."""
    tables: int
    """How many tables it has."""
    data: Any = field(repr=False)
    """What `Job.commit` takes of it."""


@dataclass(frozen=True, slots=True)
class IngestRequest:
    """A job that is closed: whoever has this may ask for it, any number of times. It pickles."""

    url: str
    """The database."""
    job: str
    """The job."""
    rows: int
    """Rows that it brings, deletes included."""
    bytes: int
    """Bytes of its tables."""
    tables: int
    """How many tables it has."""
    _job: _PlainJob = field(repr=False)
    _attempt: str = field(repr=False)

    def to_plain(self) -> tuple[_PlainJob, str, int, int, int]:
        """As plain values: the job, what closed it, and its figures."""
        return (self._job, self._attempt, self.tables, self.rows, self.bytes)


@dataclass(frozen=True, slots=True)
class IngestStatus:
    """How a job stands."""

    state: Literal["open", "pending", "adopted", "refused", "aborted", "ended", "forgotten"]
    """"open": nobody has asked for it; "pending": it waits for the writer; "adopted": it is part of
    the database; "refused" by the writer; "aborted"; "forgotten": its deadline is over, or 4,096
    others have ended since, or a later version of its application was taken in, or that was
    forgotten, and what became of it is not known any more; "ended" in a way that this version has
    no word for."""
    seq: int | None = None
    """Where it is part of the database, unless a later version of its application has passed it
    meanwhile: its last sequence number."""
    reason: str | None = None
    """Why it was refused."""

    def to_dict(self) -> dict[str, Any]:
        """As plain values, for JSON."""
        return {"state": self.state, "seq": self.seq, "reason": self.reason}


@dataclass(frozen=True)
class StagedJob:
    """A job that has something in its folder."""

    id: str
    """The job, as `Job.id` has it."""
    deadline: datetime
    """Until when it may be asked for."""
    objects: int
    """Objects of its folder: parts, and what closed it."""
    bytes: int
    """Their bytes."""
    last_stored: datetime | None
    """When the last of them was stored, by the store's clock."""
    status: IngestStatus
    """How the job stands. One that is "open" was asked for by nobody: its tasks are at work, or
    whoever staged it was killed."""

    def to_dict(self) -> dict[str, Any]:
        """As plain values, for JSON."""
        return {
            "job": self.id,
            "deadline": self.deadline.isoformat(),
            "objects": self.objects,
            "bytes": self.bytes,
            "last_stored": None if self.last_stored is None else self.last_stored.isoformat(),
            **self.status.to_dict(),
        }


class Job:
    """An ingest job for the database at `url`. It pickles: the URL travels, store options come from
    the environment at the other end, or from the provider that it was made with.

    :param txn: the application and its version: taken in once for good, and only upwards.
    :param lifetime: for how long it may be asked for, at least: a timedelta, seconds, or text.
        Later it is refused as soon as a collector has seen that its time is over, and the staged
        tables are deleted.
    :param replace: a range of keys, `(start, end)`, None for no bound: what is in it when the job
        is taken in is gone, and the job's rows are there, in one step. `(None, None)` overwrites
        the whole database, of which no row is read or rewritten for it; a job without rows is the
        delete of its range. Rows outside of the range are refused by `commit`.
    :param behind: the rows come behind all that is there when the job is taken in, as if they had
        been written first: they fill keys that nobody has written. What was deleted stays deleted,
        and what has expired stays gone. The database must have been made for it
        (``siltstone.open(url, allow_ingest_behind=True)``). Of several such jobs the first counts.
        Change feeds do not tell of them. Not together with `replace`.
    :raises NotFound: there is no database.
    :raises Invalid: a range whose start is not below its end, or whose bounds are no keys.
    :raises Unsupported: `behind`, and the database was made without `allow_ingest_behind`.
    :raises Denied, Unavailable: as their texts say.
    """

    __slots__ = ("_job", "_provider", "_store_options", "deadline", "url")

    url: str
    """The database."""
    deadline: datetime
    """Until when it may be asked for, at least."""

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
        _checked(txn)
        match replace:
            case None | (_, _):
                pass
            case _:
                raise TypeError(f"replace: a pair of a start and an end, not {replace!r}")
        if behind and replace is not None:
            raise Invalid("a job that comes behind all that is there replaces nothing: make two")
        self.url, self._store_options, self._provider = _reader_arguments(url, store_options)
        begun = _native.ingest_begin(self.url, self._store_options, lifetime, txn, replace, behind)
        self._job: _PlainJob = begun[0]
        self.deadline = moment(begun[1])

    @property
    def id(self) -> str:
        """Its identity, a ULID."""
        return self._job[0]

    @property
    def txn(self) -> tuple[str, int] | None:
        """The application and its version."""
        return self._job[3]

    @property
    def replace(self) -> tuple[bytes | None, bytes | None] | None:
        """What it replaces: the first key, and the first one behind it; None for the last key."""
        return self._job[4]

    @property
    def behind(self) -> bool:
        """Whether it comes behind all that is there."""
        return self._job[5]

    def for_txn(self, txn: tuple[str, int] | None) -> Job:
        """The same job, asked for as another version of an application: for whoever learns of that
        after the job began. Parts of either are parts of both.

        :raises Invalid: a version below 0, an application without a name.
        """
        _checked(txn)
        other = object.__new__(Job)
        other.url, other.deadline = self.url, self.deadline
        other._store_options, other._provider = self._store_options, self._provider
        plain: Any = (*self._job[:3], txn, *self._job[4:])
        other._job = plain
        return other

    def writer(
        self,
        part: int | str,
        *,
        options: Options | Mapping[str, Any] | None = None,
        duplicates: Literal["error", "last"] = "error",
        sort_memory_bytes: int | None = None,
        scratch: str | PathLike[str] | None = None,
        table_bytes: int = _TABLE_BYTES,
    ) -> PartWriter:
        """A writer of one part, in whatever process: it sorts, and uploads tables.

        :param part: a name for the part within the job: whoever repeats a task uses the same.
        :param options: `block_bytes`, `compression` and `filter_bits_per_key`; the others have no
            effect.
        :param duplicates: "error", or "last": of rows with one key the one added last counts.
        :param sort_memory_bytes: memory for sorting (1 MiB to 64 GiB; 128 MiB by default); what is
            more goes through files in `scratch`.
        :param scratch: an existing local folder (by default that of `tempfile`).
        :param table_bytes: bytes of rows from which on another table is begun.
        """
        part = _named(part)
        if table_bytes < 1:
            raise Invalid(f"table_bytes is at least 1, not {table_bytes}")
        given = (options, duplicates, sort_memory_bytes, scratch, table_bytes)
        return _native.ingest_writer(self.url, self._store_options, self._job, part, *given)

    def load(
        self,
        part: int | str,
        data: Any,
        *,
        options: Options | Mapping[str, Any] | None = None,
        sorted: bool = False,
        duplicates: Literal["error", "last"] = "error",
        memory_bytes: int | None = None,
        scratch: str | PathLike[str] | None = None,
        on_progress: Callable[[int, int], object] | None = None,
    ) -> Part:
        """One part of any amount of Arrow data, made on all cores of this machine: what
        `Database.load` does, in whatever process. Arguments and errors are those of it, and:

        :param part: a name for the part within the job: whoever repeats a task uses the same.
        :param options: `block_bytes`, `compression` and `filter_bits_per_key`; the others have no
            effect.
        """
        part = _named(part)
        order = (sorted, duplicates)
        rows, size, tables, data, _ = _native.ingest_load(
            self.url,
            self._store_options,
            self._job,
            data,
            options,
            order,
            memory_bytes,
            scratch,
            on_progress,
        )
        return Part(self.id, part, rows, size, tables, data)

    def commit(self, parts: Iterable[Part]) -> IngestRequest:
        """Closes the job: it brings these parts, and never others. Of equal keys in several parts
        that of the last one counts. Where somebody has closed it before, what they gave counts.

        :raises Invalid: no rows, unless it replaces a range; rows outside of that; parts of another
            job.
        :raises Conflict: the job was aborted, or closed as another version of an application.
        """
        first: dict[int | str, Part] = {}
        for part in parts:
            if not isinstance(part, Part):
                kind = type(part).__name__
                raise TypeError(f"a part is what PartWriter.finish and Job.load give, not {kind}")
            first.setdefault(part.part, part)
        if any(part.job != self.id for part in first.values()):
            raise Invalid("a part is another job's")
        data = [part.data for part in first.values() if part.tables]
        plain, attempt, tables, rows, size = _native.ingest_commit(
            self.url, self._store_options, self._job, data
        )
        return IngestRequest(self.url, self.id, rows, size, tables, plain, attempt)

    def abort(self) -> IngestStatus:
        """Gives the job up, unless it was asked for: then the answer says how it stands."""
        return IngestStatus(*_native.ingest_abort(self.url, self._store_options, self._job))

    def to_plain(self) -> _PlainJob:
        """As plain values: what it is, and for whom."""
        return self._job

    def __getstate__(self) -> tuple[str, _PlainJob, datetime, str | None]:
        if self._provider is not None:
            resolve(self._provider)
        return (self.url, self._job, self.deadline, self._provider)

    def __setstate__(self, state: tuple[str, _PlainJob, datetime, str | None]) -> None:
        self.url, self._job, self.deadline, self._provider = state
        self._store_options = _store(self._provider)

    def __repr__(self) -> str:
        return f"<siltstone.ingest.Job {self.id} for {self.url}>"


def _checked(txn: tuple[str, int] | None) -> None:
    """That it is an application and its version.

    :raises TypeError: no pair of a name and a number.
    :raises Invalid: a name that is empty; a version below 0, or of more than 64 bits.
    """
    if txn is None:
        return
    match txn:
        case (str(), SupportsIndex() as number) if not isinstance(number, bool):
            version = number.__index__()
        case _:
            raise TypeError(f"txn: a pair of the application's name and its version, not {txn!r}")
    if not txn[0] or not 0 <= version < 1 << 64:
        raise Invalid(f"txn is {txn!r}: the application's name, and a version from 0 on")


def _named(part: SupportsIndex | str) -> int | str:
    """What names a part: 1, 1.0 and True would be one.

    :raises TypeError: neither a whole number nor text.
    """
    if isinstance(part, str):
        return part
    if isinstance(part, bool) or not isinstance(part, SupportsIndex):
        raise TypeError(f"part: a number or a text that names it, not {part!r}")
    return part.__index__()


def _plain(request: Any) -> tuple[_PlainJob, str, int, int, int]:
    """What the compiled part takes.

    :raises TypeError: for what is no request.
    """
    if not isinstance(request, IngestRequest):
        kind = type(request).__name__
        text = f"request: expected what Job.commit gives, not {kind}"
        raise TypeError(text)
    return request.to_plain()


def submit(
    request: IngestRequest,
    *,
    wait: bool = True,
    take_over: bool | None = None,
    timeout: Seconds = _LOOK_FOR,
    store_options: StoreOptionsSource | None = None,
) -> IngestStatus:
    """Asks for a job, from any process, any number of times: the writer takes it in, wherever it
    is. Where the last writer has closed, this opens the database, takes the job in, and closes it.

    :param wait: until the job is taken in or refused; otherwise it may be "pending" still.
    :param take_over: what to do about a writer that did not close. By default one that died in a
        local folder is ended, since a lock tells that it is dead; in an object store nothing tells,
        and it is left alone, unless it was this very function in another process, or one that
        Spark calls: those are ended after two seconds. True ends whoever it is: one that lives on
        is fenced. False leaves a writer alone everywhere.
    :param timeout: for how long it waits.
    :raises Conflict: the job is for another database or a state that a restore has undone; its
        deadline is over, and a collector has seen that; it was aborted; a later version of its
        application was taken in, or that was forgotten after the job began.
    :raises Timeout: it stays asked for, and the writer takes it in when there is one.
    :raises Unavailable: without `wait`, where no more jobs may wait: ask again later.
    :raises NotFound, Denied: as their texts say.
    """
    plain, store = _plain(request), _store(store_options)
    if timeout is None:
        raise TypeError("timeout: a duration; wait=False does not wait")

    def asked(seconds: float | None) -> IngestStatus:
        return IngestStatus(*_native.ingest_submit(request.url, store, plain, seconds))

    if not wait:
        return asked(None)
    until = time.monotonic() + _native.seconds_of_duration(timeout, "timeout")
    # Whoever opened the database for a moment, and did not close it, may be at work: it has time.
    ends_others = False
    while True:
        # Where there is no room, whoever opens the database makes some.
        with suppress(Unavailable):
            stands = asked(None)
            if stands.state != "pending":
                return stands
        barred = _take_in(request, take_over, store_options, ends_others=ends_others)
        ends_others = True
        left = until - time.monotonic()
        if left <= 0:
            raise Timeout(
                "submit: the job was not taken in within the time-out; it stays asked for, and the "
                "next writer takes it in"
                + (f" (this call may not open the database: {barred})" if barred else "")
                + ". If the last writer died, take_over=True ends it"
            )
        with suppress(Timeout):
            return asked(min(left, _LOOK_AGAIN))


_LOOK_AGAIN = 2.0
"""Seconds after which `submit` tries again to take the job in by itself."""


_TELL_OF_WRITERS = ("file", "memory")
"""Stores that know whether a writer is alive."""


def _take_in(
    request: IngestRequest,
    take_over: bool | None,
    store_options: StoreOptionsSource | None,
    *,
    ends_others: bool,
) -> str | None:
    """Opens the database for a moment, to take the job in; why that was not possible.

    :param ends_others: whether this ends another that did just this and did not close.
    """
    scheme, found, _ = request.url.partition("://")
    if take_over is None and found and scheme.lower() not in _TELL_OF_WRITERS:
        take_over = False
    try:
        with _open_for_a_moment(
            request.url, take_over, ends_others=ends_others, store_options=store_options
        ) as db:
            db.ingest(request).wait()
    except (Closed, Conflict, Fenced, Invalid, Unavailable) as error:
        # A writer lives, or did not close, or came at the same time: it is left to that one. Or the
        # job was refused, as the next answer has it.
        return str(error)
    return None


def status(
    url: Url, request: IngestRequest | Job | str, *, store_options: StoreOptionsSource | None = None
) -> IngestStatus:
    """How a job stands, asked by anyone, as the manifest has it: one that the writer has taken into
    its log, and readers see, is "pending" until the next flush installs it.

    :param request: the request, the job, or the job's id, which is all that is known then: where
        what the job staged is collected, one that a later version of its application has passed
        is "open" by its id.
    :raises Conflict: a request or a job of another database.
    :raises NotFound, Denied, Unavailable: as their texts say.
    """
    place = (_text(url), _store(store_options))
    if isinstance(request, str):
        return IngestStatus(*_native.ingest_status(*place, request))
    job = request.to_plain() if isinstance(request, Job) else _plain(request)[0]
    return IngestStatus(*_native.ingest_status_of(*place, job))


def jobs(url: Url, *, store_options: StoreOptionsSource | None = None) -> list[StagedJob]:
    """Every job that has something in its folder, the earliest deadline first: those that were
    never asked for, those that wait for the writer, and those whose tables are part of the database
    or are still to be collected.

    :raises NotFound: there is no database.
    :raises Denied, Unavailable: as their texts say.
    """

    def moment(millis: int) -> datetime:
        return datetime.fromtimestamp(millis / 1000, UTC)

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
    """Takes a job back that nobody asked for, such as one whose tasks were killed: nobody can ask
    for it any more, and what it staged goes with the next round of a collector. One that is asked
    for, or part of the database, stays so, and the answer says how it stands.

    :param job: the job, or its id.
    :raises NotFound: no database, or no such job.
    :raises Denied, Unavailable: as their texts say.
    """
    named = job if isinstance(job, str) else job.id
    return IngestStatus(*_native.ingest_withdraw(_text(url), _store(store_options), named))


def forget_app(url: Url, app: str, *, store_options: StoreOptionsSource | None = None) -> None:
    """Forgets the last version of an application, which may begin anew then, with jobs that begin
    from now on: those that began before are refused, since nothing tells any more which of them
    are part of the database.

    :raises Conflict: a job of it waits.
    :raises NotFound, Denied, Unavailable: as their texts say.
    """
    _native.ingest_forget(_text(url), _store(store_options), app)
