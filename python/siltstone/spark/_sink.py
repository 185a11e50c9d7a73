"""Writing by the data source `format("siltstone")`: what its options mean, and its writers.

Spark makes a batch's writer once, in a process of its own, and sends that to the tasks and to the
process that commits or aborts: so its job is the same for all of them. A stream's it makes anew for
each batch, and once more to commit it: there the job comes with the messages.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import datasource
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import BinaryType, StringType, StructType

from siltstone import ingest
from siltstone.exceptions import Invalid, NotFound, Unsupported
from siltstone.spark._columns import match, schema_of
from siltstone.spark._load import (
    PATIENCE,
    asked,
    closed,
    duplicates_of,
    new_job,
    recorded,
)
from siltstone.spark._matching import check_columns, is_key, table_at, table_made
from siltstone.spark._options import WAY, flag, number, range_between, span, understood
from siltstone.spark._staging import Staged, Staging, staged

__all__ = ["Message", "batch_writer", "stream_writer"]

OPTIONS = {
    "path": "the database",
    "keyColumn": "the column of keys; key. Where no database stands, the columns of a table's key: "
    "country, day desc",
    "valueColumn": "the column of values; value",
    "opColumn": "the column that says put or delete of each row; none",
    "layout": "runs, or presorted: partitions are ranges of keys, as after repartitionByRange",
    "duplicates": "error or any, of rows with one key; any with layout runs",
    "replaceStart": "the first key of a range of which nothing else stays; of a table a value of "
    "the key's first column",
    "replaceEnd": "the key before which that range stops; of a table likewise",
    "targetSstBytes": "bytes of rows from which on a task begins another table",
    "txnAppId": "the application that this is a version of",
    "txnVersion": "the version: one that the database has adds nothing; of a stream the batch's id",
    "asBytes": "true: keys and values of a table are encoded already",
    "timeout": "seconds to wait for the writer",
    "takeOver": "true: end a writer that did not close, and take the rows in from here",
    "storeOptions": "the function that gives store options, as module:function",
}
"""By the names that users write; Spark lowers them on the way."""
LOG = logging.getLogger("siltstone.spark")
SPARKS_OWN = ("checkpointLocation", "queryName")
"""What a stream's options hold for Spark itself."""

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceStreamArrowWriter as _StreamBase
else:
    # Of Spark 4.1.
    _StreamBase = getattr(datasource, "DataSourceStreamArrowWriter", object)


@dataclass(frozen=True)
class Sink:
    """What is written where: plain values, for the process that plans and those that work."""

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
    """The frame's columns by the names that `staged` knows: of a table its own."""

    @property
    def mode(self) -> str:
        """As `bulk_load` calls it."""
        if self.replace is not None:
            return "replace_range"
        return "overwrite" if self.overwrite else "append"

    def job(self, txn: tuple[str, int] | None) -> ingest.Job:
        """A job for it."""
        return new_job(self.url, self.mode, self.replace, txn, self.store_options)

    def staging(self, job: ingest.Job) -> Staging:
        """What its tasks need."""
        kept = "error" if self.duplicates == "error" else "last"
        return Staging(job, kept, self.target_sst_bytes, {}, self.columns, self.table)


@dataclass
class Message(WriterCommitMessage):
    """What a task tells whoever commits; None: all of it was written before."""

    staged: Staged | None
    job: ingest.Job | None = None


def sink_of(options: Mapping[str, str], schema: StructType, overwrite: bool) -> Sink:
    """What these options say.

    :raises Invalid: an option that there is not, or what it does not take; a frame that does not
        fit.
    """
    asked_for = understood(options, OPTIONS, "a frame is written", SPARKS_OWN)
    if "path" not in asked_for:
        raise Invalid(f'into which database? .save("s3://bucket/db"), or option("path", …). {WAY}')
    layout = asked_for.get("layout", "runs")
    if layout == "range":
        raise Invalid(
            "a data source cannot shuffle: df.repartitionByRange(n, key) and layout 'presorted', "
            "or siltstone.spark.bulk_load, which does both"
        )
    duplicates = duplicates_of(asked_for.get("duplicates"), layout)
    version = number(asked_for, "txnVersion", int, least=0)
    size = number(asked_for, "targetSstBytes", int, least=1)
    timeout = span(asked_for, "timeout") or PATIENCE.total_seconds()
    take_over = flag(asked_for, "takeOver") or None
    bounded = {"replaceStart", "replaceEnd"} & set(asked_for)
    if overwrite and bounded:
        raise Invalid(
            "mode overwrite replaces all there is; with replaceStart and replaceEnd it is append"
        )
    table, columns, brought = _columns(asked_for, schema)
    replaced = range_between(asked_for, "replaceStart", "replaceEnd", table) if bounded else None
    return Sink(
        asked_for["path"],
        columns,
        layout,
        str(duplicates),
        size,
        asked_for.get("txnAppId"),
        version,
        timeout,
        take_over,
        asked_for.get("storeOptions"),
        overwrite,
        replaced,
        table,
        brought,
    )


def _columns(
    asked_for: Mapping[str, str], schema: StructType
) -> tuple[str | None, Mapping[str, str], Mapping[str, str]]:
    """The table whose rows come, what its columns are for, and the frame's columns by the names
    that `staged` knows. Where no database stands, one is created.

    :raises Invalid: they do not fit.
    """
    place, as_bytes = asked_for["path"], flag(asked_for, "asBytes")
    provider, op = asked_for.get("storeOptions"), asked_for.get("opColumn")
    key = [name.strip() for name in asked_for.get("keyColumn", "key").split(",")]
    try:
        table = table_at(place, None, as_bytes, provider)
    except NotFound:
        if len(key) == 1 and "keyColumn" not in asked_for:
            # Without the words for a table's key the rows are keys and values, or nothing is made.
            _bytes_columns(asked_for, schema)
        spoken = key[0] if len(key) == 1 else key
        value = asked_for.get("valueColumn")
        table = table_made(schema, place, spoken, value, (op,), as_bytes, provider)
    if table is None:
        columns = _bytes_columns(asked_for, schema)
        return None, columns, columns
    if "valueColumn" in asked_for or ("keyColumn" in asked_for and not is_key(table, key)):
        raise Invalid(
            "keyColumn and valueColumn are of databases of bytes: a table's columns are written by "
            f"their names, and its key is {', '.join(schema_of(table).key)}"
        )
    kinds = {field.name: field.dataType.simpleString() for field in schema.fields}
    brought = check_columns(table, kinds, op)
    columns = {"key": ", ".join(schema_of(table).key)}
    if op is not None:
        theirs = str(match(op, kinds))
        columns["op"] = next((ours for ours, name in brought.items() if name == theirs), theirs)
        brought.setdefault(columns["op"], theirs)
    return table, columns, brought


def _bytes_columns(asked_for: Mapping[str, str], schema: StructType) -> Mapping[str, str]:
    """The columns of keys, values and operations, as the frame spells them.

    :raises Invalid: there are none; others are there, too; one is of another type.
    """
    kinds = {field.name: field.dataType for field in schema.fields}
    named = {
        "key": asked_for.get("keyColumn", "key"),
        "value": asked_for.get("valueColumn", "value"),
        **({"op": asked_for["opColumn"]} if "opColumn" in asked_for else {}),
    }
    columns: dict[str, str] = {}
    for role, spoken in named.items():
        name = match(spoken, kinds)
        if name is None:
            raise Invalid(
                f"there is no column {spoken!r} for {role}; there are {', '.join(kinds)}. "
                "keyColumn, valueColumn and opColumn name others"
            )
        columns[role] = name
        wanted = (StringType,) if role == "op" else (BinaryType, StringType)
        if not isinstance(kinds[name], wanted):
            raise Invalid(
                f"the column {name!r} is of type {kinds[name].simpleString()}, and {role} is "
                f"{'a string' if role == 'op' else 'binary or a string'}; cast it"
            )
    others = sorted(set(kinds) - set(columns.values()))
    if others:
        raise Invalid(
            f"nothing becomes of the columns {', '.join(others)}: a database without a schema has "
            "keys and values; select these two, or make a table by siltstone.table.create"
        )
    return columns


def renamed(batches: Iterator[pa.RecordBatch], sink: Sink) -> Iterator[pa.RecordBatch]:
    """The batches with the names that `staged` knows."""
    for batch in batches:
        arrays = [batch.column(name) for name in sink.brought.values()]
        yield pa.RecordBatch.from_arrays(arrays, names=list(sink.brought))


class BatchWriter(DataSourceArrowWriter):
    """One ingest job."""

    def __init__(self, sink: Sink) -> None:
        self.sink = sink
        if (sink.app is None) != (sink.version is None):
            raise Invalid("txnAppId and txnVersion go together")
        txn = None if sink.app is None or sink.version is None else (sink.app, sink.version)
        known = txn is not None and recorded(sink.url, txn, sink.store_options) is not None
        if txn is not None and known:
            # Right for a program that is run again, and a mistake for a second INSERT of one view.
            LOG.warning(
                "txnVersion %s of %r is part of %s already: nothing is written",
                *txn[::-1],
                sink.url,
            )
        self.job = None if known else sink.job(txn)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Message:
        """In a task: stages its rows."""
        if self.job is None:
            for _ in iterator:
                pass
            return Message(None)
        rows = renamed(iterator, self.sink)
        return Message(staged(rows, self.sink.staging(self.job)))

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Closes the job and asks for it. Where this fails Spark calls `abort`, with the same
        messages, although the job may be asked for by then."""
        if self.job is not None:
            _take_in(self.sink, self.job, _told(messages))

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:  # noqa: ARG002
        """Gives the job up, unless it was asked for: the manifest says which."""
        if self.job is not None:
            self.job.abort()


def _told(messages: Sequence[WriterCommitMessage | None]) -> list[Staged]:
    return [one.staged for one in messages if isinstance(one, Message) and one.staged is not None]


def _take_in(sink: Sink, job: ingest.Job, found: Sequence[Staged]) -> None:
    request = closed(job, found, sink.layout, sink.mode)
    if request is not None:
        asked(job, request, True, sink.timeout, None, sink.take_over, sink.store_options)


def batch_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> BatchWriter:
    """What writes a frame.

    :raises Invalid: the options, or the frame's columns.
    :raises Conflict: a higher version of the application is part of the database.
    :raises Unsupported, NotFound, Denied, Unavailable: as their texts say.
    """
    return BatchWriter(sink_of(options, schema, overwrite))


class StreamWriter(_StreamBase):
    """One ingest job a batch."""

    def __init__(self, sink: Sink, job: ingest.Job | None) -> None:
        self.sink = sink
        self.job = job

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Message:
        """In a task: stages its rows."""
        if self.job is None:
            raise Invalid("the writer that commits is not the one that writes")
        rows = renamed(iterator, self.sink)
        return Message(staged(rows, self.sink.staging(self.job)), self.job)

    def commit(
        self,
        messages: Sequence[WriterCommitMessage | None],
        batchId: int,  # noqa: N803 - Spark's name
    ) -> None:
        """Closes the batch's job and asks for it, as the query's version."""
        job, query = _batch_of(messages)
        if job is None:
            return
        app = self.sink.app or query
        if app is None:
            raise Invalid("no task of the batch knows its query: name it by txnAppId")
        _take_in(self.sink, job.for_txn((app, batchId)), _told(messages))

    def abort(
        self,
        messages: Sequence[WriterCommitMessage | None],
        batchId: int,  # noqa: ARG002, N803 - Spark's name
    ) -> None:
        """Gives the batch's job up, unless it was asked for."""
        job, _ = _batch_of(messages)
        if job is not None:
            job.abort()


def stream_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> StreamWriter:
    """What writes the batches of a stream: from Spark 4.1 on.

    :raises Invalid, Unsupported, NotFound, Denied, Unavailable: as `batch_writer`.
    """
    if not hasattr(datasource, "DataSourceStreamArrowWriter"):
        raise Unsupported(
            "format('siltstone') writes streams from Spark 4.1 on; before that "
            "foreachBatch(siltstone.spark.upsert(url, key=…)) does"
        )
    sink = sink_of(options, schema, overwrite)
    if sink.version is not None:
        raise Invalid("the version of a stream's batch is its id: txnVersion is for frames")
    # One writer is made for the tasks, another one, in another process, to commit.
    commits = "pyspark.sql.worker.python_streaming_sink_runner" in sys.modules
    job = None if commits else sink.job(None)
    return StreamWriter(sink, job)


def _batch_of(
    messages: Sequence[WriterCommitMessage | None],
) -> tuple[ingest.Job | None, str | None]:
    """The job and the query of a batch, as its tasks knew them."""
    told = [one for one in messages if isinstance(one, Message)]
    job = next((one.job for one in told if one.job is not None), None)
    query = next((one.staged.query for one in told if one.staged and one.staged.query), None)
    return job, query
