"""The driver's part of a load: it begins an ingest job, closes it, and submits it to the writer.

A load is one ingest job, so all of its rows become visible in one commit, or none do. The driver
aborts a job that it has not submitted. It never aborts a job that it has submitted.
"""

from __future__ import annotations

import logging
import pickle
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from dataclasses import replace as replaced
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa

import siltstone
from siltstone import ingest
from siltstone._arguments import timeout_of
from siltstone._open import StoreOptionsSource, Url
from siltstone.exceptions import Conflict, Error, Invalid, NotFound, Timeout
from siltstone.ingest import _check_txn
from siltstone.options import Seconds
from siltstone.spark._arguments import check_writer
from siltstone.spark._jobs import Parts, described, map_batches, task
from siltstone.spark._matching import Duplicates, reachable
from siltstone.spark._staging import MESSAGE, Staged, Staging, check_disjoint, stage

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = [
    "LAYOUTS",
    "MODES",
    "PATIENCE",
    "LoadResult",
    "Submission",
    "Txn",
    "abandoned",
    "abort",
    "check_mode",
    "closed",
    "duplicates_of",
    "has_rows",
    "is_recorded",
    "load",
    "log_skipped",
    "new_job",
    "recorded",
    "run",
    "submitted",
]

LOG = logging.getLogger("siltstone.spark")
LAYOUTS = ("range", "runs", "presorted")
MODES = ("append", "overwrite", "replace_range", "errorifexists", "error", "ignore")
UNUSED_KEY = b"\xffsiltstone: a version without rows 4ef5a1c07d1b49e2a3c85d0f6b927e18"
"""A key that no database holds. The job of a version without rows deletes it, because the engine
refuses a job that changes nothing. All such jobs delete the same key, so that one compaction drops
their range deletes."""
PATIENCE = timedelta(minutes=10)
"""How long a load waits for the writer by default."""

Txn = tuple[str, int]


@dataclass(frozen=True)
class LoadResult:
    """The result of a load."""

    rows: int
    """Rows that were written, deletes included."""
    bytes: int
    """Bytes of the tables of the load."""
    ssts: int
    """Number of tables of the load."""
    seq: int | None
    """The last sequence number of the load. None if there were neither rows nor `txn`, or if the
    call did not wait for the writer."""
    job: str | None
    """The ingest job, for `siltstone.ingest.status`. None if no job was submitted."""
    repeated: bool = False
    """Whether the database had `txn` already. Nothing was added then."""
    seconds: dict[str, float] = field(default_factory=dict)
    """Seconds by phase. "stage": the tasks. "commit": closing and submitting the job, and the wait
    for the writer."""


@dataclass(frozen=True)
class Submission:
    """How a load is committed. The fields are the parameters of `bulk_load`."""

    url: Url
    layout: str
    mode: str
    replace: tuple[bytes | None, bytes | None] | None
    txn: Txn | None
    wait: bool
    timeout: Seconds
    db: siltstone.Database | None
    take_over: bool | None
    store_options: StoreOptionsSource | None

    def __post_init__(self) -> None:
        # Before the version is compared with a recorded one, and before any task.
        _check_txn(self.txn)
        timeout_of(self.timeout, self.wait, self.take_over)
        check_writer(self.db)

    def new_job(self) -> ingest.Job:
        """An ingest job for this load."""
        return new_job(self.url, self.mode, self.replace, self.txn, self.store_options)

    def submit(self, job: ingest.Job, request: ingest.IngestRequest) -> LoadResult:
        """Submits the job."""
        given = (self.wait, self.timeout, self.db, self.take_over, self.store_options)
        return submitted(job, request, *given)


def load(tasks: Callable[[ingest.Job], Sequence[Staged]], submission: Submission) -> LoadResult:
    """Stages rows and submits their job, unless the database has the version already.

    :param tasks: runs the tasks that stage the rows of a job. It is called only if the rows are
        needed.
    """
    seconds: dict[str, float] = {}
    if (known := repetition(submission)) is not None:
        return known
    job = submission.new_job()
    with abandoned(job):
        with _timed(seconds, "stage"):
            found = tasks(job)
        with _timed(seconds, "commit"):
            request = closed(job, found, submission.layout, submission.mode, records=True)
    if request is None:
        return LoadResult(0, 0, 0, None, None, seconds=seconds)
    with _timed(seconds, "commit"):
        done = submission.submit(job, request)
    return replaced(done, seconds=seconds)


def repetition(submission: Submission) -> LoadResult | None:
    """The result for a version that the database has already. None if it has not.

    :raises Conflict: the database has a higher version of the application.
    """
    if submission.txn is None:
        return None
    seq = recorded(submission.url, submission.txn, submission.store_options)
    return None if seq is None else LoadResult(0, 0, 0, seq, None, repeated=True)


def duplicates_of(duplicates: Duplicates | None, layout: str) -> Duplicates:
    """The rule for rows that have the same key.

    :raises Invalid: an unknown layout or rule, or a rule that the layout cannot apply.
    """
    if layout not in LAYOUTS:
        raise Invalid(f"layout is {layout!r}: one of {', '.join(LAYOUTS)}")
    chosen = ("any" if layout == "runs" else "error") if duplicates is None else duplicates
    pair = isinstance(chosen, tuple) and chosen[:-1] == ("max",)
    if chosen not in ("error", "any") and not pair:
        raise Invalid(f'duplicates is {duplicates!r}: "error", "any", or ("max", column)')
    if layout == "runs" and chosen != "any":
        raise Invalid(
            f"duplicates is {duplicates!r}, and layout 'runs' cannot apply it: rows with one key "
            "lie in several tasks. Layout 'range' brings them into one task"
        )
    return chosen


def new_job(
    url: Url,
    mode: str,
    replace: tuple[bytes | None, bytes | None] | None,
    txn: Txn | None,
    store_options: StoreOptionsSource | None,
) -> ingest.Job:
    """Begins the ingest job of a load.

    :raises Invalid: an unknown mode, a range with a mode that has none, a `memory://` database.
    :raises Unsupported, NotFound, Denied, Unavailable: as `siltstone.ingest.Job`.
    """
    check_mode(mode, replace)
    reachable(url)
    ranged: Any = (None, None) if mode == "overwrite" else replace
    return ingest.Job(url, txn=txn, replace=ranged, store_options=store_options)


def check_mode(mode: str, replace: Any) -> None:
    """Checks that the mode exists, and that it has a range if it needs one.

    :raises Invalid: otherwise.
    """
    if mode not in MODES:
        raise Invalid(f"mode is {mode!r}: one of {', '.join(MODES)}")
    if (replace is not None) != (mode == "replace_range"):
        raise Invalid("replace is the range of mode 'replace_range'; no other mode takes it")


def recorded(url: Url, txn: Txn, store_options: StoreOptionsSource | None) -> int | None:
    """The sequence number of this version of an application, if the database has it.

    :raises Conflict: the database has a higher version.
    :raises NotFound, Denied, Unavailable: as `siltstone.admin.manifest`.
    """
    found = _last_of(url, txn[0], store_options)
    if found is None or found["version"] < txn[1]:
        return None
    if found["version"] > txn[1]:
        raise Conflict(
            f"version {found['version']} of the application {txn[0]!r} is part of the database, "
            f"and this is version {txn[1]}: versions only grow"
        )
    return int(found["seq"])


def is_recorded(url: Url, txn: Txn, store_options: StoreOptionsSource | None) -> bool:
    """Whether the database has this version of an application. A missing database has none."""
    try:
        return recorded(url, txn, store_options) is not None
    except NotFound:
        return False


def log_skipped(url: Url, txn: Txn, rows: int) -> None:
    """Logs that a batch was skipped because the database has its number already. That number does
    not tell a repeated batch from the batch of another stream.

    :param txn: the application that the caller named, and the number of the batch.
    """
    if rows:
        LOG.warning(
            "batch %s of the application %r is part of %s already, so its %s rows were skipped. "
            "This is right for a batch that is repeated after a failure. Otherwise another stream, "
            "or the same stream with another checkpoint folder, has the same application: give "
            "this one another name by txnAppId (txn_app), and write the rows again",
            *txn[::-1],
            url,
            rows,
        )


def _last_of(url: Url, app: str, store_options: StoreOptionsSource | None) -> dict[str, Any] | None:
    """The last version of an application, with its job and its sequence number."""
    apps = siltstone.admin.manifest(url, store_options=store_options)["ingest_apps"]
    return next((one for one in apps if one["app"] == app), None)


@contextmanager
def _timed(seconds: dict[str, float], phase: str) -> Iterator[None]:
    """Adds the duration of the block to a phase."""
    begun = time.perf_counter()
    try:
        yield
    finally:
        seconds[phase] = seconds.get(phase, 0.0) + time.perf_counter() - begun


@contextmanager
def abandoned(job: ingest.Job) -> Iterator[None]:
    """Aborts a job that is not submitted yet if the block fails."""
    try:
        yield
    except BaseException:
        abort(job)
        raise


def abort(job: ingest.Job) -> None:
    """Aborts a job whose tables are not needed. An error is logged: the caller has a result or an
    error of its own, and a collector deletes the job after its deadline anyway."""
    try:
        job.abort()
    except Error as error:
        LOG.warning(
            "the ingest job %s of %s was not aborted; a collector deletes its tables after %s: %s",
            job.id,
            job.url,
            job.deadline,
            error,
        )


def run(
    frame: DataFrame,
    staging: Staging,
    function: Callable[..., Iterator[pa.RecordBatch]] = stage,
    action: str = "load",
) -> list[Staged]:
    """Runs the tasks that stage the rows of a frame; returns one result for each task.

    :param action: what is done to the database, for the names of the job and of its plan.
    :raises Error: the error of this package in a task.
    """
    spark = frame.sparkSession
    parts = Parts(spark, staging.job.id)
    named = replaced(staging, reported=parts.sum)
    work = task(f"siltstone_{action}", function, staging=named)
    try:
        with described(spark, f"siltstone: {action} {staging.job.url}", parts):
            answers = map_batches(frame, work, MESSAGE).collect()
    finally:
        parts.forget()
    return [pickle.loads(bytes(row["message"])) for row in answers]  # noqa: S301 - of our own tasks


def has_rows(found: Sequence[Staged]) -> bool:
    """Whether a task staged rows or found a problem in its rows."""
    return any(one.part is not None or one.problem is not None for one in found)


def closed(
    job: ingest.Job, found: Sequence[Staged], layout: str, mode: str, *, records: bool
) -> ingest.IngestRequest | None:
    """Closes a job with the results of its tasks. None if there is nothing to submit.

    :param records: whether a version without rows is recorded. Without the record, a program that
        is run again would apply the same version to a newer state. The batches of a stream need no
        record: Spark repeats a batch only until it has stored that the batch is done, always before
        the next batch, and an attempt without rows changed nothing. So each batch still takes
        effect once and in order, and batches without rows cost no commit.
    :raises Invalid: a problem that a task found in its rows; key ranges of tasks that overlap
        although the layout forbids that.
    """
    for one in found:
        if one.problem is not None:
            raise one.problem
    if layout != "runs":
        check_disjoint(found, layout)
    ordered = sorted(found, key=lambda one: one.number)
    parts = [one.part for one in ordered if one.part is not None]
    # A job without rows still deletes the range that it replaces.
    if parts or mode in ("overwrite", "replace_range"):
        return job.commit(parts)
    if records and job.txn is not None:
        unused = (UNUSED_KEY, UNUSED_KEY + b"\0")
        return job._changed(job.txn, unused).commit([])  # noqa: SLF001 - only loads need it
    return None


def submitted(
    job: ingest.Job,
    request: ingest.IngestRequest,
    wait: bool,
    timeout: Seconds,
    db: siltstone.Database | None,
    take_over: bool | None,
    store_options: StoreOptionsSource | None,
) -> LoadResult:
    """Submits a closed job.

    :raises Conflict: the writer refused the job, or it was aborted.
    :raises Timeout: no writer has taken the job in within the time-out.
    """
    try:
        if db is not None:
            commit = _taken_by(db, job, request)
            commit.wait()
            seq: int | None = commit.seq
        else:
            status = ingest.submit(
                request,
                wait=wait,
                take_over=take_over,
                timeout=timeout,
                store_options=store_options,
            )
            if status.state not in ("adopted", "pending"):
                why = f": {status.reason}" if status.reason else ""
                raise Conflict(f"the load, job {request.job}, was {status.state}{why}")
            seq = status.seq
    except Timeout as late:
        text = (
            f"{late}. The load is staged and submitted: the writer of the database takes it in. "
            f"siltstone.ingest.status({request.url!r}, {request.job!r}) tells whether it has. A "
            "writer that died never takes it in: take_over=True (option takeOver) ends that writer "
            "and takes the load in, and so does the next program that opens the database for "
            "writing"
        )
        late.args = (text,)
        raise
    if job.txn is not None and _has_other_job(job, job.txn, seq, store_options):
        # The tables of this job are not needed. A collector deletes them once it is aborted.
        abort(job)
        return LoadResult(0, 0, 0, seq, request.job, repeated=True)
    return LoadResult(request.rows, request.bytes, request.tables, seq, request.job)


def _taken_by(
    db: siltstone.Database, job: ingest.Job, request: ingest.IngestRequest
) -> siltstone.Commit:
    """Gives a closed job to the writer in this process. A job that it refuses is aborted, because
    no later call can submit it: its tables would stay until its deadline.

    :raises Conflict: the writer refused the job, such as one for another database.
    """
    try:
        return db.ingest(request)
    except Conflict:
        abort(job)
        raise


def _has_other_job(
    job: ingest.Job, txn: Txn, seq: int | None, store_options: StoreOptionsSource | None
) -> bool:
    """Whether another job brought this version, or is submitted and will bring it.

    :param seq: None if the version waits for the writer.
    """
    if seq is None:
        own = ingest.status(job.url, job.id, store_options=store_options)
        if own.state == "open":
            return True
    last = _last_of(job.url, txn[0], store_options)
    return last is not None and last["version"] == txn[1] and last["job"] != job.id
