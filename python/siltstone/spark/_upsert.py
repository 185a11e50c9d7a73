"""Writing the batches of a stream by `foreachBatch`, each exactly once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

import siltstone
from siltstone._open import StoreOptionsSource, Url
from siltstone.exceptions import Invalid
from siltstone.options import Seconds
from siltstone.spark._arguments import expiry
from siltstone.spark._calls import Call, application, named_application, numbered, query_of
from siltstone.spark._columns import resolving_as
from siltstone.spark._commit import (
    PATIENCE,
    Submission,
    abandoned,
    closed,
    duplicates_of,
    has_rows,
    is_recorded,
    log_skipped,
    run,
)
from siltstone.spark._creation import removed_on_failure
from siltstone.spark._equal_keys import check_keys_differ
from siltstone.spark._load import ONE_ROW, rows_for, staging_of
from siltstone.spark._matching import Duplicates, Key
from siltstone.spark._staging import Staged

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["upsert"]


def upsert(
    url: Url,
    *,
    key: Key,
    value: str | Sequence[str] | None = None,
    op: str | None = None,
    duplicates: Duplicates | None = None,
    ttl: Seconds | None = None,
    expire_at: datetime | str | None = None,
    txn_app: str | None = None,
    as_bytes: bool = False,
    timeout: Seconds = PATIENCE,
    db: siltstone.Database | None = None,
    take_over: bool | None = None,
    store_options: StoreOptionsSource | None = None,
) -> Callable[[DataFrame, int], None]:
    """Returns a function for `foreachBatch` that writes each batch of a stream exactly once. The
    query's id and the batch's id identify a batch after failures and restarts.

    ``stream.writeStream.foreachBatch(upsert(url, key="k")).outputMode("update").start()``

    A function of your own may make several such calls for one batch. Their order identifies them,
    so a repeated batch must make the same calls, one after another. A call that fails may be made
    again with the same frame. After a failure a call with another frame is applied, too, and a
    warning is logged: a repeated batch in which nothing fails applies it a second time. A batch
    without rows changes nothing.

    :param key, value, op, as_bytes: as for `bulk_load`, which also describes what is created if
        there is no database.
    :param duplicates: as for `bulk_load`; None: "any", without a shuffle. The other rules shuffle
        each batch by key ranges.
    :param ttl: time to live of all rows, counted from the call that writes their batch.
    :param expire_at: as for `bulk_load`.
    :param txn_app: a name for the stream, which is recorded with the query's id. Calls that run at
        the same time need different names, and so do two streams: if another query has written the
        batch's number or a higher one under the name, the call raises Conflict. By Spark Connect,
        which does not tell the query's id, the name alone identifies the stream: a batch whose
        number is recorded is skipped, and a warning is logged if it has rows.
    :param timeout, db, take_over, store_options: as for `bulk_load`.
    :raises Invalid: as `bulk_load`: here for the arguments, in the stream for its rows, and for two
        calls that write one batch at the same time.
    :raises Conflict: in the stream: another query has written the number under the name.
    :raises TypeError: `expire_at` has no time zone.
    """
    layout = "runs" if duplicates in (None, "any") else "range"
    chosen = duplicates_of(duplicates, layout)
    expiry(ttl, expire_at)
    more = (None, True, timeout, db, take_over, store_options)
    submission = Submission(url, layout, "append", None, *more)
    writer = _BatchWriter(submission, key, value, op, chosen, ttl, expire_at, txn_app, as_bytes)

    def batch(df: DataFrame, batch_id: int) -> None:
        arguments = (key, value, op, duplicates, ttl, expire_at, as_bytes)
        with numbered(df, batch_id, url, txn_app, arguments) as call:
            writer.write(df, batch_id, call)

    return batch


@dataclass(frozen=True)
class _BatchWriter:
    """Writes batches. The fields are the parameters of `upsert`."""

    submission: Submission
    key: Key
    value: str | Sequence[str] | None
    op: str | None
    duplicates: Duplicates
    ttl: Seconds | None
    expire_at: datetime | str | None
    app: str | None
    as_bytes: bool

    def write(self, df: DataFrame, batch_id: int, call: Call) -> None:
        """Writes a batch, unless the database has it already.

        :param call: the identity of this call within the batch.
        """
        submission = self.submission
        url, provider = submission.url, submission.store_options
        named = None
        if self.app is not None:
            named = named_application(url, self.app, query_of(df), call, batch_id, provider)
            if is_recorded(url, (named, batch_id), provider):
                self._log_skipped(named, batch_id, call, df)
                return
        with resolving_as(df.sparkSession), removed_on_failure() as creations:
            columns = (self.key, self.value, self.op)
            column, moment = expiry(self.ttl, self.expire_at)
            more = (self.duplicates, self.as_bytes, provider, creations)
            rows = rows_for(df, url, columns, *more, expire_at=column)
            job = submission.new_job()
            with abandoned(job):
                staging = staging_of(rows, self.duplicates, job=job, expires=moment)
                found = run(rows.arranged(submission.layout, None), staging, action="upsert")
                check_keys_differ(rows, found, ONE_ROW)
                if has_rows(found):
                    app = named or application(_query_of(found), call)
                    job = job.for_txn((app, batch_id))
                request = closed(job, found, submission.layout, submission.mode, records=False)
            # A database that this batch created is removed unless the job may be submitted.
            done = None if request is None else submission.submit(job, request)
        # A job without rows has staged nothing, so there is nothing to abort.
        if request is not None and done is not None and done.repeated and named is not None:
            self._log_skipped(named, batch_id, call, df, request.rows)

    def _log_skipped(
        self, named: str, batch_id: int, call: Call, df: DataFrame, rows: int | None = None
    ) -> None:
        """Logs that a batch was skipped, if its query is unknown. Otherwise it is a repetition."""
        if self.app is not None and named == application(self.app, call):
            url = self.submission.url
            log_skipped(url, (named, batch_id), df.count() if rows is None else rows)


def _query_of(found: Sequence[Staged]) -> str:
    """The id of the query that the batch belongs to. Only tasks know it.

    :raises Invalid: the frame is no batch of a query.
    """
    query = next((one.query for one in found if one.query), None)
    if query is None:
        raise Invalid(
            "this is no batch of a stream, as far as its tasks know: name the application by "
            "txn_app, or use bulk_load"
        )
    return query
