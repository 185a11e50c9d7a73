"""Writing by the data source `format("siltstone")`: its options and its writers.

Spark makes the writer of a batch once, in a process of its own. It sends that writer to the tasks
and to the process that commits or aborts, so all of them have the same job. Spark makes the writer
of a stream again for each batch, and again to commit it, so the job travels in the messages there.
"""

from __future__ import annotations

import itertools
import logging
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import datasource
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import BinaryType, NullType, StringType, StructType, TimestampType

from siltstone import ingest
from siltstone.exceptions import Invalid, NotFound, Unsupported
from siltstone.spark._arguments import expiry
from siltstone.spark._bounds import check_bounded
from siltstone.spark._calls import Call, named_application
from siltstone.spark._columns import case_sensitivity, match, schema_of
from siltstone.spark._commit import (
    PATIENCE,
    LoadResult,
    abort,
    closed,
    duplicates_of,
    has_rows,
    log_skipped,
    new_job,
    recorded,
    submitted,
)
from siltstone.spark._creation import Creation, exists, log_ignored, removed_on_failure
from siltstone.spark._matching import (
    check_columns,
    expiry_column,
    is_key,
    table_at,
    table_or_create,
)
from siltstone.spark._options import (
    CREATE_VIEW,
    byte_count,
    duration,
    flag,
    number,
    parse_options,
    range_between,
)
from siltstone.spark._staging import Staged, Staging, staged

__all__ = ["OPTIONS", "Message", "batch_writer", "stream_writer"]

OPTIONS = {
    "path": "URL of the database",
    "keyColumn": "the key column; key. If there is no database, the columns of a new table's key: "
    "country, day desc",
    "valueColumn": "the value column; value",
    "opColumn": "the column that says put, delete or merge for each row; none",
    "saveMode": "append; errorifexists or ignore: write only if there is no database",
    "layout": "runs; presorted: the partitions are key ranges, as after repartitionByRange",
    "duplicates": "error or any, for rows with the same key; any for layout runs",
    "replaceStart": "the first key of a range whose other rows are deleted; for a table a value of "
    "the key's first column",
    "replaceEnd": "the exclusive end of that range; for a table likewise",
    "ttl": "time to live of all rows, counted from the write; for a stream from its batch",
    "expireAt": "the column of times at which rows expire; null: never",
    "targetSstBytes": "size of the rows after which a task starts another table",
    "txnAppId": "the application that this write is a version of; a name for a stream",
    "txnVersion": "the version: one that the database has adds nothing; a stream's is the batch id",
    "asBytes": "true: keys and values of a table are encoded already",
    "caseSensitive": "true: column names are compared with their case",
    "timeout": "seconds to wait for the writer",
    "takeOver": "true: end a writer that did not close, and take the rows in from here",
    "storeOptions": "the function that gives store options, as module:function",
}
"""The options by the names that users write. Spark converts them to lower case."""
WANTED = {"op": ((StringType,), "a string"), "expire_at": ((TimestampType,), "a timestamp")}
"""The types of columns of a database of bytes by role. Other roles are keys and values."""
LOG = logging.getLogger("siltstone.spark")
RESERVED_OPTIONS = ("checkpointLocation", "queryName")
"""Options of a stream that are Spark's own."""
IGNORED_OPTIONS = ("numPartitions", "checkpointLifetime", "filterPushdown")
"""Options of reading that do not change which rows are read. A view that is inserted into may have
them."""
NARROWING_OPTIONS = ("checkpoint", "versionAsOf", "timestampAsOf", "prefix", "start", "end")
"""Options of reading that choose rows. A view that has one is read-only."""
SAVE_MODES = ("append", "errorifexists", "error", "ignore")
COMMITS_STREAMS = "pyspark.sql.worker.python_streaming_sink_runner"
"""The main module of the process in which Spark commits the batches of a stream (4.1 to 4.3). It is
not documented. In a process of another version the writer begins a job that it does not use; the
job expires, and nothing else differs."""

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceStreamArrowWriter as _StreamBase
else:
    # Since Spark 4.1.
    _StreamBase = getattr(datasource, "DataSourceStreamArrowWriter", object)


@dataclass(frozen=True)
class Sink:
    """The description of a write: plain values, for the processes that plan and the tasks."""

    url: str
    columns: Mapping[str, str]
    layout: str
    duplicates: str
    target_sst_bytes: int | None
    app: str | None
    version: int | None
    timeout: float
    take_over: bool | None
    store_options: str | None
    overwrite: bool
    replace: tuple[bytes | None, bytes | None] | None
    table: str | None
    """The schema of the table whose columns are written; None: keys and values."""
    brought: Mapping[str, str]
    """The frame's columns by the names that `staged` uses: for a table its own."""
    expires: datetime | None
    """The time at which all rows expire."""
    skips: bool = False
    """Whether nothing is written, because there is a database and the save mode is "ignore"."""
    creations: Sequence[Creation] = ()
    """The database that this write created. It is removed if the write fails."""

    @property
    def mode(self) -> str:
        """The mode as `bulk_load` names it."""
        if self.replace is not None:
            return "replace_range"
        return "overwrite" if self.overwrite else "append"

    def job(self, txn: tuple[str, int] | None) -> ingest.Job:
        """Begins a job."""
        return new_job(self.url, self.mode, self.replace, txn, self.store_options)

    def staging(self, job: ingest.Job) -> Staging:
        """The description of its tasks."""
        kept = "error" if self.duplicates == "error" else "last"
        return Staging(
            job,
            kept,
            self.target_sst_bytes,
            names=self.columns,
            schema=self.table,
            expires=self.expires,
        )

    def undo_creation(self) -> None:
        """Removes the database that this write created, after its job was aborted."""
        for creation in self.creations:
            creation.undo()


@dataclass
class Message(WriterCommitMessage):
    """The message of a task to the process that commits; `staged` is None if no row was written."""

    staged: Staged | None
    job: ingest.Job | None = None
    creations: Sequence[Creation] = ()


def sink_of(
    options: Mapping[str, str],
    schema: StructType,
    overwrite: bool,
    creations: list[Creation],
) -> Sink:
    """The sink that the options describe.

    :param creations: gets what this call creates.

    :raises Invalid: an unknown option or value; columns that do not match.
    :raises Conflict: there is a database, and the save mode is "errorifexists".
    """
    _check_whole(options)
    passed_over = (*RESERVED_OPTIONS, *IGNORED_OPTIONS)
    given = parse_options(options, OPTIONS, "a frame is written", passed_over)
    if "path" not in given:
        raise Invalid(
            f'no database is named: .save("s3://bucket/db"), or option("path", …). {CREATE_VIEW}'
        )
    layout = given.get("layout", "runs")
    if layout == "range":
        raise Invalid(
            "a data source cannot shuffle: df.repartitionByRange(n, key) and layout 'presorted', "
            "or siltstone.spark.bulk_load, which does both"
        )
    duplicates = duplicates_of(given.get("duplicates"), layout)
    version = number(given, "txnVersion", least=0)
    size = byte_count(given, "targetSstBytes")
    timeout = duration(given, "timeout") or PATIENCE.total_seconds()
    take_over = flag(given, "takeOver") or None
    bounded = {"replaceStart", "replaceEnd"} & set(given)
    if overwrite and bounded:
        raise Invalid(
            "mode overwrite replaces all there is; with replaceStart and replaceEnd it is append"
        )
    _, expires = expiry(given.get("ttl"), given.get("expireAt"))
    skips = _is_skipped(given, overwrite)
    with case_sensitivity(flag(given, "caseSensitive")):
        table, columns, brought = (None, {}, {}) if skips else _columns(given, schema, creations)
    replaced = range_between(given, "replaceStart", "replaceEnd", table) if bounded else None
    if replaced is not None:
        check_bounded(
            replaced, " and ".join(f"{name} is {given[name]!r}" for name in sorted(bounded))
        )
    return Sink(
        given["path"],
        columns,
        layout,
        str(duplicates),
        size,
        given.get("txnAppId"),
        version,
        timeout,
        take_over,
        given.get("storeOptions"),
        overwrite,
        replaced,
        table,
        brought,
        expires,
        skips,
        tuple(creations),
    )


def _check_whole(options: Mapping[str, str]) -> None:
    """Checks that no option chooses rows to read. The rows that are written may not be among them.

    :raises Invalid: one does.
    """
    names = {name.casefold() for name in options}
    found = next((name for name in NARROWING_OPTIONS if name.casefold() in names), None)
    if found is not None:
        raise Invalid(
            f"there is no option {found!r} where a frame is written: a view with it is read-only, "
            "because it shows one state or one range of the database. Insert through a view "
            "without it"
        )


def _is_skipped(given: Mapping[str, str], overwrite: bool) -> bool:
    """Whether the save mode is "ignore", and there is a database.

    :raises Invalid: an unknown save mode, or one beside mode overwrite.
    :raises Conflict: there is a database, and the save mode is "errorifexists".
    """
    mode = given.get("saveMode", "append").casefold()
    if mode not in SAVE_MODES:
        raise Invalid(f"saveMode is {mode!r}: one of {', '.join(SAVE_MODES)}")
    if mode == "append":
        return False
    if overwrite:
        raise Invalid(f"saveMode is {mode!r}, and the mode is overwrite: give one of them")
    url, provider = given["path"], given.get("storeOptions")
    try:
        table_at(url, None, False, provider)
    except NotFound:
        return False
    if mode == "ignore":
        log_ignored(url, provider)
        return True
    app, version = given.get("txnAppId"), number(given, "txnVersion", least=0)
    if app is not None and version is not None and recorded(url, (app, version), provider):
        # This write created the database.
        return True
    raise exists(url, f"saveMode is {mode!r}", provider)


def _columns(
    given: Mapping[str, str], schema: StructType, creations: list[Creation]
) -> tuple[str | None, Mapping[str, str], Mapping[str, str]]:
    """The schema of the table, the roles of its columns, and the frame's columns by the names that
    `staged` uses. If there is no database, it is created.

    :raises Invalid: the columns do not match.
    """
    place, as_bytes = given["path"], flag(given, "asBytes")
    provider, op, ends = (given.get(name) for name in ("storeOptions", "opColumn", "expireAt"))
    key = [name.strip() for name in given.get("keyColumn", "key").split(",")]
    try:
        table = table_at(place, None, as_bytes, provider)
    except NotFound:
        if len(key) == 1 and "keyColumn" not in given:
            # Without keyColumn only a database of bytes is created.
            _bytes_columns(given, schema)
        spoken = key[0] if len(key) == 1 else key
        value = given.get("valueColumn")
        more = ((op, ends), as_bytes, provider, creations)
        table = table_or_create(schema, place, spoken, value, *more, saved=True)
    if table is None:
        columns = _bytes_columns(given, schema)
        return None, columns, columns
    if "valueColumn" in given or ("keyColumn" in given and not is_key(table, key)):
        raise Invalid(
            "keyColumn and valueColumn are for databases of bytes: a table's columns are written "
            f"by their names, and its key is {', '.join(schema_of(table).key)}"
        )
    kinds = {field.name: field.dataType.simpleString() for field in schema.fields}
    if ends is not None:
        ends = expiry_column(kinds, ends)
    brought = check_columns(table, kinds, op, None, (ends,))
    theirs = {} if op is None else {"op": str(match(op, kinds))}
    if ends is not None:
        theirs["expire_at"] = ends
    columns = {"key": ", ".join(schema_of(table).key)}
    for role, name in theirs.items():
        columns[role] = next((ours for ours, own in brought.items() if own == name), name)
        brought.setdefault(columns[role], name)
    return table, columns, brought


def _bytes_columns(given: Mapping[str, str], schema: StructType) -> Mapping[str, str]:
    """The key, value, operation and expiry columns, as the frame spells them.

    :raises Invalid: one is missing or of another type; the frame has other columns.
    """
    kinds = {field.name: field.dataType for field in schema.fields}
    named = {
        "key": given.get("keyColumn", "key"),
        "value": given.get("valueColumn", "value"),
        **({"op": given["opColumn"]} if "opColumn" in given else {}),
        **({"expire_at": given["expireAt"]} if "expireAt" in given else {}),
    }
    columns: dict[str, str] = {}
    for role, spoken in named.items():
        name = match(spoken, kinds)
        if name is None:
            raise Invalid(
                f"there is no column {spoken!r} for {role}; there are {', '.join(kinds)}. "
                "keyColumn, valueColumn, opColumn and expireAt name others; if there is no "
                "database, keyColumn also names the key of a table that is created"
            )
        columns[role] = name
        wanted, kind = WANTED.get(role, ((BinaryType, StringType, NullType), "binary or a string"))
        if not isinstance(kinds[name], wanted):
            raise Invalid(
                f"the column {name!r} is of type {kinds[name].simpleString()}, and {role} is "
                f"{kind}; cast it"
            )
    others = sorted(set(kinds) - set(columns.values()))
    if others:
        raise Invalid(
            f"the columns {', '.join(others)} cannot be stored: a database without a schema has "
            "keys and values. Select these two, or create a table: name its key by keyColumn at a "
            "new path, or call siltstone.table.create"
        )
    return columns


def renamed(batches: Iterator[pa.RecordBatch], sink: Sink) -> Iterator[pa.RecordBatch]:
    """The batches with the column names that `staged` uses."""
    for batch in batches:
        arrays = [batch.column(name) for name in sink.brought.values()]
        yield pa.RecordBatch.from_arrays(arrays, names=list(sink.brought))


class BatchWriter(DataSourceArrowWriter):
    """Writes a frame as one ingest job. There is no job if nothing is to be written."""

    def __init__(self, sink: Sink) -> None:
        self.sink = sink
        if (sink.app is None) != (sink.version is None):
            raise Invalid("txnAppId and txnVersion go together")
        txn = None if sink.app is None or sink.version is None else (sink.app, sink.version)
        known = txn is not None and recorded(sink.url, txn, sink.store_options) is not None
        if txn is not None and known:
            # Correct for a program that is run again; a mistake for a second INSERT into one view.
            LOG.warning(
                "txnVersion %s of %r is part of %s already: nothing is written",
                *txn[::-1],
                sink.url,
            )
        self.job = None if known or sink.skips else sink.job(txn)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Message:
        """Stages the rows of a task."""
        if self.job is None:
            for _ in iterator:
                pass
            return Message(None)
        rows = renamed(iterator, self.sink)
        return Message(staged(rows, self.sink.staging(self.job)))

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Closes and submits the job. If this fails, Spark calls `abort` with the same messages,
        although the job may be submitted by then."""
        if self.job is not None:
            _submit(self.sink, self.job, _results(messages), records=True)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:  # noqa: ARG002
        """Aborts the job, unless the manifest shows that it was submitted. Removes the database if
        this write created it and nothing was written."""
        if self.job is not None:
            abort(self.job)
        self.sink.undo_creation()


def _results(messages: Sequence[WriterCommitMessage | None]) -> list[Staged]:
    return [one.staged for one in messages if isinstance(one, Message) and one.staged is not None]


def _submit(
    sink: Sink, job: ingest.Job, found: Sequence[Staged], *, records: bool
) -> LoadResult | None:
    """Closes and submits a job. None: there is nothing to submit.

    :param records: as for `closed`.
    """
    request = closed(job, found, sink.layout, sink.mode, records=records)
    if request is None:
        return None
    return submitted(job, request, True, sink.timeout, None, sink.take_over, sink.store_options)


def batch_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> BatchWriter:
    """The writer of a frame.

    :raises Invalid: the options, or the frame's columns.
    :raises Conflict: the database has a higher version of the application; there is a database,
        and the save mode is "errorifexists".
    :raises Unsupported, NotFound, Denied, Unavailable: as `siltstone.ingest.Job`.
    """
    with removed_on_failure() as creations:
        return BatchWriter(sink_of(options, schema, overwrite, creations))


class StreamWriter(_StreamBase):
    """Writes each batch of a stream as one ingest job."""

    def __init__(self, sink: Sink, job: ingest.Job | None) -> None:
        self.sink = sink
        self.job = job

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Message:
        """Stages the rows of a task."""
        if self.job is None:
            raise Invalid(
                "Spark asked a writer without an ingest job to write rows; this is an error of "
                "siltstone.spark: report it"
            )
        rows = renamed(iterator, self.sink)
        found = staged(rows, self.sink.staging(self.job))
        return Message(found, self.job, self.sink.creations)

    def commit(
        self,
        messages: Sequence[WriterCommitMessage | None],
        batchId: int,  # noqa: N803 - Spark's name
    ) -> None:
        """Closes the batch's job and submits it as a version of the query."""
        job, query = _batch_of(messages)
        if job is None:
            return
        found, name, app = _results(messages), self.sink.app, query
        if name is not None and has_rows(found):
            given = (query, Call(), batchId, self.sink.store_options)
            app = named_application(self.sink.url, name, *given)
        app = app or name
        if app is None:
            raise Invalid("no task of the batch knows its query: name it by txnAppId")
        done = _submit(self.sink, job.for_txn((app, batchId)), found, records=False)
        # The id of a query belongs to its checkpoint folder: its batches are never another's.
        if done is not None and done.repeated and app == name:
            rows = sum(one.part.rows for one in found if one.part is not None)
            log_skipped(self.sink.url, (app, batchId), rows)

    def abort(
        self,
        messages: Sequence[WriterCommitMessage | None],
        batchId: int,  # noqa: ARG002, N803 - Spark's name
    ) -> None:
        """Aborts the batch's job, unless it was submitted. Removes the database if this batch
        created it and nothing was written."""
        job, _ = _batch_of(messages)
        if job is not None:
            abort(job)
        sent = (one.creations for one in messages if isinstance(one, Message))
        for creation in {*self.sink.creations, *itertools.chain.from_iterable(sent)}:
            creation.undo()


def stream_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> StreamWriter:
    """The writer of the batches of a stream, since Spark 4.1.

    :raises Invalid, Unsupported, NotFound, Denied, Unavailable: as `batch_writer`.
    """
    if not hasattr(datasource, "DataSourceStreamArrowWriter"):
        raise Unsupported(
            "format('siltstone') writes streams from Spark 4.1 on; before that "
            "foreachBatch(siltstone.spark.upsert(url, key=…)) does"
        )
    if any(name.casefold() == "savemode" for name in options):
        raise Invalid("saveMode is for frames: a stream always appends")
    with removed_on_failure() as creations:
        sink = sink_of(options, schema, overwrite, creations)
        if sink.version is not None:
            raise Invalid("the version of a stream's batch is its id: txnVersion is for frames")
        # Spark makes one writer for the tasks, and another one, in another process, to commit.
        job = None if COMMITS_STREAMS in sys.modules else sink.job(None)
        return StreamWriter(sink, job)


def _batch_of(
    messages: Sequence[WriterCommitMessage | None],
) -> tuple[ingest.Job | None, str | None]:
    """The job and the query of a batch, from the messages of its tasks."""
    sent = [one for one in messages if isinstance(one, Message)]
    job = next((one.job for one in sent if one.job is not None), None)
    query = next((one.staged.query for one in sent if one.staged and one.staged.query), None)
    return job, query
