"""Scans of a database at one checkpoint: as a DataFrame, as a view for SQL, and as a count."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

import siltstone
from siltstone._checkpoints import CheckpointLike
from siltstone._numbers import count_of
from siltstone._open import StoreOptionsSource, Url
from siltstone.exceptions import Invalid
from siltstone.merging import MergeOperatorSource
from siltstone.options import Options
from siltstone.spark._arguments import MOST_TASKS, check_session
from siltstone.spark._bounds import key_range
from siltstone.spark._columns import (
    COLUMNS,
    arrow_fields,
    match,
    resolving_as,
    spark_fields,
    struct_of,
    text_of,
)
from siltstone.spark._estimates import numbers, row_bytes
from siltstone.spark._jobs import described, task
from siltstone.spark._pins import kept_for_a_call, reading
from siltstone.spark._ranges import Range, cuts, ranges
from siltstone.spark._tasks import COUNTED, count_ranges, counted, read_ranges

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["count", "estimated_bytes", "fields_of", "scan", "slots", "split", "view"]

RANGE_BYTES = 128 << 20
"""Bytes that a task reads at least, if there are more than enough for every slot: this takes
seconds."""
MOST_RANGES = 10_000
ROW_BYTES = 16
"""Bytes of a row in Spark at least, however well it is compressed in the database."""


def scan(
    spark: SparkSession,
    url: Url,
    *,
    checkpoint: CheckpointLike | None = None,
    where: Mapping[str, Any] | None = None,
    start: Any = None,
    end: Any = None,
    prefix: bytes | str | None = None,
    columns: Sequence[str] | None = None,
    partitions: int | None = None,
    as_bytes: bool = False,
    options: Options | Mapping[str, Any] | None = None,
    store_options: StoreOptionsSource | None = None,
    merge_operator: MergeOperatorSource | None = None,
) -> DataFrame:
    """Returns the rows of a database, or of a range of keys, as a DataFrame. A table has its own
    columns, a database of bytes has `key` and `value`, both binary.

    All tasks of all jobs over this frame, and over frames derived from it, read one state: that of
    `checkpoint`, or the state that is durable now. Each task reads a range of keys in their order.
    Spark does not know this order.

    Spark does not say which columns a query uses, so each query decodes all columns of the frame.
    Name those that are needed. ``scan(…).count()`` and `count` count rows without decoding any;
    ``SELECT count(*)`` decodes the columns of the frame.

    :param checkpoint: a `Checkpoint`, its id, or its name. None: one is made and kept until this
        process ends or calls `release()`.
    :param where: for a table, values of the first columns of its key.
    :param start: the first key; None: from the first one. For a table, a value of the first key
        column that `where` does not name, in the order of the key.
    :param end: the exclusive end of the keys; None: to the last one. For a table likewise.
    :param prefix: the prefix of the keys, in place of `start` and `end`; not for a table. A bound
        may be text, as in the options of the data source: UTF-8, or digits after ``hex:``; for a
        table a number, a date or a time as in SQL.
    :param columns: the columns to read, in this order; no others are decoded. None: all.
    :param partitions: number of tasks; None: as many as there are slots, and more if a task would
        read more than 128 MiB.
    :param as_bytes: read a table's keys and values as they are stored, as a database of bytes.
    :param options: of the readers in the workers: `siltstone.Options`, or a dict. Their caches are
        small by default, because a machine runs one worker for each core.
    :param store_options: store options: best the function that returns them, or its name. A dict
        stays in this process, and workers then use their environment.
    :param merge_operator: as for `siltstone.open_reader`; it is sent to the workers.
    :raises Invalid: `prefix` beside a bound, an unknown column, less than one partition, a
        `memory://` database; `where` for a database of bytes, or for columns that are not the first
        ones of the key.
    :raises Unsupported: a column of a type that Spark cannot hold without loss.
    :raises NotFound, Expired, Denied, Unavailable, Corruption: as `siltstone.open_reader`.
    """
    check_session(spark)
    if partitions is not None:
        partitions = count_of(partitions, "partitions", 1, MOST_TASKS)
    state = reading(url, checkpoint, options, store_options, merge_operator)
    with resolving_as(spark), state as (reader, held):
        table = None if as_bytes else text_of(reader)
        first, last = key_range(table, where, start, end, prefix)
        fields = fields_of(table, columns)
        pieces = split(reader, first, last, partitions or (lambda: slots(spark)))
        size = estimated_bytes(reader, first, last, fields, table)
    state_of_tasks: dict[str, Any] = {"reader": held.reader, "ranges": pieces}
    read = task("siltstone_scan", read_ranges, **state_of_tasks, fields=fields, table=table)
    frame = numbers(spark, len(pieces), size).mapInArrow(read, struct_of(fields))

    def counted_rows() -> int:
        level = frame.storageLevel
        if level.useMemory or level.useDisk:
            # A count of a cached frame fills the cache.
            return int(type(frame).count(frame))
        return _counted_in_tasks(spark, f"siltstone: count {url}", **state_of_tasks)

    # Only this frame counts so, not frames derived from it.
    frame.count = counted_rows  # type: ignore[method-assign]
    return frame


def view(
    spark: SparkSession,
    name: str,
    url: Url,
    *,
    checkpoint: CheckpointLike | None = None,
    where: Mapping[str, Any] | None = None,
    start: Any = None,
    end: Any = None,
    prefix: bytes | str | None = None,
    columns: Sequence[str] | None = None,
    partitions: int | None = None,
    as_bytes: bool = False,
    options: Options | Mapping[str, Any] | None = None,
    store_options: StoreOptionsSource | None = None,
    merge_operator: MergeOperatorSource | None = None,
) -> DataFrame:
    """Creates or replaces a temporary view for SQL over some columns and a range of a database, and
    returns it as a DataFrame.

    ``view(spark, "visits", url, columns=["day", "n"], where={"country": "DE"})``

    Spark passes neither columns nor filters to a data source in Python, so a view of ``USING
    siltstone`` decodes all its columns and reads all rows for each query. This view decodes the
    columns that it names, and reads one range. It reads one state, as `scan` does: create it again
    for a newer one. It is read only; ``INSERT INTO`` needs a view of ``USING siltstone``.

    :param name: the name of the view.
    :param checkpoint, where, start, end, prefix, columns, partitions, as_bytes, options,
        store_options, merge_operator: as for `scan`.
    :raises Invalid, Unsupported, NotFound, Expired, Denied, Unavailable, Corruption: as `scan`.
    """
    check_session(spark)
    frame = scan(
        spark,
        url,
        checkpoint=checkpoint,
        where=where,
        start=start,
        end=end,
        prefix=prefix,
        columns=columns,
        partitions=partitions,
        as_bytes=as_bytes,
        options=options,
        store_options=store_options,
        merge_operator=merge_operator,
    )
    frame.createOrReplaceTempView(name)
    return frame


def count(
    url: Url,
    *,
    spark: SparkSession | None = None,
    checkpoint: CheckpointLike | None = None,
    where: Mapping[str, Any] | None = None,
    start: Any = None,
    end: Any = None,
    prefix: bytes | str | None = None,
    as_bytes: bool = False,
    options: Options | Mapping[str, Any] | None = None,
    store_options: StoreOptionsSource | None = None,
    merge_operator: MergeOperatorSource | None = None,
) -> int:
    """Counts the rows of a database, or of a range of keys, at one state. No row is decoded.

    :param spark: the session whose tasks count. None: the active session, or this process if there
        is none.
    :param checkpoint, where, start, end, prefix, as_bytes, options, store_options, merge_operator:
        as for `scan`.
    :raises Invalid, NotFound, Expired, Denied, Unavailable, Corruption: as `scan`.
    """
    from pyspark.sql import SparkSession as Sessions  # noqa: PLC0415 - pyspark is an extra

    spark = spark or Sessions.getActiveSession()
    if spark is not None:
        check_session(spark)
    with kept_for_a_call(url, checkpoint, store_options) as at:
        state = reading(url, at, options, store_options, merge_operator)
        with state as (reader, held):
            table = None if as_bytes else text_of(reader)
            first, last = key_range(table, where, start, end, prefix)
            if spark is None:
                return counted(reader, first, last)
            session = spark
            pieces = split(reader, first, last, lambda: slots(session))
        return _counted_in_tasks(session, f"siltstone: count {url}", held.reader, pieces)


def _counted_in_tasks(
    spark: SparkSession, description: str, reader: bytes, ranges: Sequence[Range]
) -> int:
    """The number of rows of the ranges, counted by tasks."""
    tasks = task("siltstone_count", count_ranges, reader=reader, ranges=ranges)
    frame = spark.range(0, len(ranges), 1, len(ranges)).mapInArrow(tasks, COUNTED)
    with described(spark, description):
        return sum(int(row["rows"]) for row in frame.collect())


def estimated_bytes(
    reader: siltstone.Reader,
    start: bytes | None,
    end: bytes | None,
    fields: pa.Schema,
    table: str | None,
) -> float:
    """Bytes of some columns of a range, from metadata."""
    whole = reader.approximate_size(start, end)
    everything = fields_of(None, None) if table is None else arrow_fields(table)
    share = min(1.0, row_bytes(fields) / row_bytes(everything))
    return max(whole.bytes * share, whole.rows * ROW_BYTES)


def fields_of(table: str | None, columns: Sequence[str] | None) -> pa.Schema:
    """The columns that are read.

    :raises Invalid: there is no such column. :raises Unsupported: Spark cannot hold one.
    """
    if table is not None:
        return spark_fields(table, columns)
    return pa.schema([pa.field(name, pa.binary()) for name in _columns(columns)])


def split(
    reader: siltstone.Reader,
    start: bytes | None,
    end: bytes | None,
    parts: int | Callable[[], int],
) -> list[Range]:
    """Splits ``[start, end)`` into ranges of about the same size; at least one.

    :param parts: the number of ranges. Or a function for the number of tasks that run at once: the
        number of ranges then also follows the size.
    """
    first = next(iter(reader.scan(start, end, limit=1)), None)
    last = next(iter(reader.scan(start, end, reverse=True, limit=1)), None)
    if first is None or last is None:
        return [(start, end)]
    whole = reader.approximate_size(start, end).bytes
    if callable(parts):
        parts = min(max(math.ceil(whole / RANGE_BYTES), parts()), MOST_RANGES)

    def below(key: bytes) -> float:
        return reader.approximate_size(first[0], key).bytes if key > first[0] else 0

    return ranges(cuts(below, first[0], last[0], parts), start, end)


def slots(spark: SparkSession) -> int:
    """How many tasks run at once: the number of partitions that Spark gives a range by default."""
    from pyspark.sql import functions as sf  # noqa: PLC0415 - the package does without pyspark

    tasks = spark.range(MOST_RANGES).select(sf.spark_partition_id().alias("task"))
    return int(tasks.agg(sf.max("task").alias("last")).collect()[0]["last"]) + 1


def _columns(columns: Sequence[str] | None) -> list[str]:
    """The chosen columns of a database of bytes."""
    if columns is None:
        return list(COLUMNS)
    found = [match(name, COLUMNS) for name in columns]
    known = [name for name in found if name is not None]
    if isinstance(columns, str) or None in found or not found or len(set(found)) < len(found):
        raise Invalid(f"columns is {columns!r}: a list of some of {', '.join(COLUMNS)}, each once")
    return known
