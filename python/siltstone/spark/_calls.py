"""The numbers of the calls that write a micro-batch, so that each is applied exactly once.

Several calls may write one batch, and a repeated batch makes the same calls in the same order, as
long as the same ones fail. The transaction of a call is therefore the query, the batch, the number
of the call in the batch, and the numbers of the calls before it that failed. Without the failures,
a call that took effect after one would have the number of another call in a repeated batch in which
nothing fails, and that call would be skipped. Nothing here may depend on the rows, because a
repeated batch may have them in another order.
"""

from __future__ import annotations

import logging
import os
import re
import threading
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import siltstone
from siltstone._open import StoreOptionsSource, Url, place_of
from siltstone.exceptions import Conflict, Invalid, NotFound

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["Call", "application", "named_application", "numbered", "query_of", "run_of", "spelled"]

LOG = logging.getLogger("siltstone.spark")
BATCH_PROCESS = "SPARK_CONNECT_LOCAL_URL"
"""The environment variable of a process in which Spark Connect calls `foreachBatch` (4.0 to 4.3).
It is not documented. Without it each call is taken for one outside of a run: several calls for one
batch then need a `txn_app` each."""
QUERY = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
"""The id of a query."""
KEPT = 1024
"""Streams whose newest batch is remembered: one for each database and application."""


@dataclass(frozen=True)
class Call:
    """The identity of a call within its batch."""

    number: int = 0
    after: tuple[int, ...] = ()
    """The numbers of the calls before it that failed and were not repeated at once."""


@dataclass
class _Batch:
    """The calls of one batch that were made."""

    number: int
    calls: int = 0
    at_work: bool = False
    failed: list[tuple[DataFrame, Any, int]] = field(default_factory=list)
    """Failed calls, by frame and arguments. A call that repeats one gets its number."""
    passed: set[int] = field(default_factory=set)
    """The numbers of failed calls that the calls after them count as failed."""


_lock = threading.Lock()
_batches: OrderedDict[tuple[str, str, str | None], _Batch] = OrderedDict()
"""The newest batch of each run of a query, by run, database and application."""


def application(name: str, call: Call) -> str:
    """The name of the application for a call. The first call of a batch has the plain name, the
    second one ``name#2``, or ``name~1#2`` after a first one that failed."""
    failures = ",".join(str(number + 1) for number in call.after)
    name = f"{name}~{failures}" if failures else name
    return name if call.number == 0 else f"{name}#{call.number + 1}"


def named_application(
    url: Url,
    name: str,
    query: str | None,
    call: Call,
    number: int,
    store_options: StoreOptionsSource | None,
) -> str:
    """The name of the application for a call of a stream that the user named: ``name@query``. So
    the database never takes the batch of another query for a repetition, and each query skips its
    own batches alone.

    :param query: the id of the query; None: unknown, as by Connect. The name is the user's then.
    :param number: the number of the batch.
    :raises Conflict: another query has written a batch of this name with the number or a higher
        one.
    """
    if query is None:
        return application(name, call)
    mine, plain = application(f"{name}@{query}", call), application(name, call)
    try:
        apps = siltstone.admin.manifest(url, store_options=store_options)["ingest_apps"]
    except NotFound:
        return mine
    for one in apps:
        if one["app"] == plain and one["version"] >= number:
            # A version before this rule, or a stream by Connect, recorded it without a query.
            return plain
        if one["version"] >= number and one["app"] != mine and _is_named(one["app"], name, call):
            raise Conflict(
                f"another query, {one['app']!r}, has written batch {one['version']} under the name "
                f"{name!r}, and this is batch {number} of the query {query}: two streams need two "
                "names (txn_app, txnAppId). If this is the same stream with a new checkpoint "
                f"folder, let it begin again by siltstone.ingest.forget_app(url, {one['app']!r})"
            )
    return mine


def _is_named(app: str, name: str, call: Call) -> bool:
    """Whether an application is this call of a query that has the name."""
    begins, ends = f"{name}@", application("", call)
    if not (app.startswith(begins) and app.endswith(ends)):
        return False
    return QUERY.fullmatch(app[len(begins) : len(app) - len(ends)]) is not None


def query_of(df: DataFrame) -> str | None:
    """The id of the query that passes `df` to `foreachBatch`; None outside of one, and by Connect.
    It belongs to the checkpoint folder of the query."""
    context = getattr(df.sparkSession, "sparkContext", None)
    found = None if context is None else context.getLocalProperty("sql.streaming.queryId")
    return found or None


def run_of(df: DataFrame) -> str | None:
    """The identity of the run of a query that passes `df` to `foreachBatch`; None outside of one. A
    query that is started again has another run, which repeats all calls of its last batch."""
    session: Any = df.sparkSession
    # A session by Connect has no context: asking for it raises an AttributeError.
    context = getattr(session, "sparkContext", None)
    if context is not None:
        query = query_of(df)
        return f"{query}/{_run_id(session, context, query)}" if query else None
    # By Connect a process runs the batches of one run, in a session of that run.
    return session.session_id if BATCH_PROCESS in os.environ else None


def _run_id(session: Any, context: Any, query: str) -> str:
    """The id of the run of a query, in one of its batches.

    :raises Invalid: the caller has set a job group, and the query is not one of the first session.
    """
    # The session of a batch is a copy, which knows no query.
    first = session.builder.getOrCreate()
    run = next((one.runId for one in first.streams.active if str(one.id) == query), None)
    if run is not None:
        return str(run)
    # Spark sets the job group to the id of the run, but the function of a batch may set another.
    group = context.getLocalProperty("spark.jobGroup.id") or ""
    if QUERY.fullmatch(group) is None:
        raise Invalid(
            f"the job group is {group!r}, so the run of the stream is unknown: call setJobGroup "
            "after the writes of the batch, or start the stream in the first session"
        )
    return group


@contextmanager
def numbered(
    df: DataFrame, batch_id: int, url: Url, app: str | None, arguments: Any
) -> Iterator[Call]:
    """The identity of a call within its batch, for the block that makes the call.

    A call that failed keeps its number: when the same frame is written again, that call repeats it.
    A call with another frame after a failure may repeat the failed call or be the next one. It gets
    an identity that only a repeated batch with the same failures has. If the repeated batch has no
    such failure, the rows of this call are written a second time. They are never skipped in place
    of the rows of another call.

    Outside of a stream's run each call is the first: there a second call repeats the batch.

    :param app: the application that the caller names, if any.
    :param arguments: the arguments of the call besides its frame.
    :raises Invalid: another call for the same batch is running. Their order would be random, and
        different when the batch is repeated.
    """
    run = run_of(df)
    if run is None:
        yield Call()
        return
    batch, call = _begun(df, batch_id, (run, spelled(url), app), arguments)
    if call.after:
        LOG.warning(
            "call %s for batch %s of %s follows a call that failed, and has another frame or other "
            "arguments. If the batch is repeated and that call succeeds then, this call is applied "
            "a second time. Write the frame of the failed call again, or let the batch fail, so "
            "that each call is applied once",
            call.number + 1,
            batch_id,
            url,
        )
    try:
        yield call
    except BaseException:
        with _lock:
            batch.failed.append((df, arguments, call.number))
            batch.passed.add(call.number)
            if call.number != batch.calls - 1:
                # The failure of a late repetition is another event than the first failure.
                batch.passed.add(batch.calls)
                batch.calls += 1
        raise
    finally:
        with _lock:
            batch.at_work = False


def spelled(url: Url) -> str:
    """One text for each database, for all spellings of its folder. With two texts the second call
    would get the number of the first."""
    text = place_of(url).removeprefix("file://")
    return text.rstrip("/") if "://" in text else str(Path(text).resolve())


def _begun(
    df: DataFrame, batch_id: int, stream: tuple[str, str, str | None], arguments: Any
) -> tuple[_Batch, Call]:
    with _lock:
        batch = _batches.get(stream)
        if batch is None or batch.number != batch_id:
            batch = _batches[stream] = _Batch(batch_id)
            while len(_batches) > KEPT:
                _batches.popitem(last=False)
        _batches.move_to_end(stream)
        if batch.at_work:
            raise Invalid(
                f"two calls write batch {batch_id} at once, and only their order identifies them "
                "when the batch is repeated: make one call after another, or name each by txn_app"
            )
        batch.at_work = True
        failed = list(batch.failed)
    try:
        again = next((one for one in failed if _same(one, df, arguments)), None)
    except BaseException:
        with _lock:
            batch.at_work = False
        raise
    with _lock:
        if again is None:
            number, batch.calls = batch.calls, batch.calls + 1
        else:
            batch.failed.remove(again)
            number = again[2]
            if number == batch.calls - 1:
                # No other call was made since the failure. The calls that follow are therefore
                # those of a batch in which nothing failed.
                batch.passed.discard(number)
        return batch, Call(number, tuple(sorted(one for one in batch.passed if one < number)))


def _same(failed: tuple[DataFrame, Any, int], df: DataFrame, arguments: Any) -> bool:
    """Whether a call repeats one that failed."""
    return failed[1] == arguments and (failed[0] is df or failed[0].sameSemantics(df))
