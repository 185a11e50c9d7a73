"""The change feed of a database, as a stream of Spark and as a frame.

An offset is a token of the feed. From a token on, any process reads the same rows in the same
order. So a batch that Spark plans again is the same batch, without any other state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING
from uuid import UUID

import pyarrow as pa
import pyarrow.compute as pc

from siltstone import changes as feed
from siltstone._checkpoints import Checkpoint
from siltstone._open import StoreOptionsSource, Url, _reader_arguments
from siltstone.exceptions import Invalid, Unsupported
from siltstone.spark._arguments import check_session
from siltstone.spark._columns import (
    arrow_fields,
    scatter,
    schema_of,
    schema_text,
    spark_fields,
    struct_of,
)
from siltstone.spark._decoding import TableDecoder, narrowed
from siltstone.spark._estimates import UNKNOWN, numbers
from siltstone.spark._jobs import task
from siltstone.spark._matching import table_at

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from siltstone._native import ArrowArray

__all__ = ["COLUMNS", "batches", "changes", "columns_of"]

COLUMNS = "kind string, key binary, value binary, seq bigint, time timestamp"
"""As those of `siltstone.Database.changes`."""
AGAIN = (
    "restart the query, which continues where it was and has the new columns and types; for a "
    "frame, call siltstone.spark.changes again"
)
"""The remedy for a reader of changes that is older than the schema."""
BESIDE = ("kind", "seq", "time", "range")
"""Columns of a change beside those of a table."""
BEFORE = "before"
"""The column of before-images."""
RANGE = pa.struct([("start", pa.binary()), ("end", pa.binary())])
SCHEMA = pa.schema(
    [
        pa.field("kind", pa.string()),
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("seq", pa.int64()),
        pa.field("time", pa.timestamp("us", tz="UTC")),
    ]
)


def changes(
    spark: SparkSession,
    url: Url,
    *,
    since: str | Checkpoint | UUID = "oldest",
    until: str | None = None,
    before: feed.Before = None,
    as_bytes: bool = False,
    store_options: StoreOptionsSource | None = None,
) -> DataFrame:
    """Returns the changes of a database, in the order of its commits, as a DataFrame: kind ("put",
    "delete", "merge", "delete_range"), key, value, seq and time. One task reads it, because a feed
    is one sequence. For a table its columns replace key and value. A delete has only the columns of
    the key. A range delete has none, but `range`: a struct of its first key and its exclusive end,
    as they are stored. `encode_key` gives the stored key of a row, to compare. As a stream:
    ``spark.readStream.format("siltstone").option("readChangeFeed", "true")``.

    :param since: a token (`siltstone.Changes.token`), "oldest": the oldest change that is kept, or
        a checkpoint or the text of its id: after its state.
    :param until: a token to stop at; None: the end of the changes that are durable now.
    :param before: a column ``before`` with the value that the key had right before each change,
        null if it had none. For a table it is a struct of the columns that are not part of the key,
        or of the key if there are no others. True: `since` is a checkpoint. A checkpoint: at or
        before `since`. The operands of an operator that is not built in have no such values.
    :param as_bytes: read a table's keys and values as they are stored.
    :param store_options: as for `scan`.
    :raises Expired: here or in the task: the next changes are not kept any more. A consumer keeps
        them: ``siltstone.changes.begin(url, consumer="audit", since=since)``.
    :raises Invalid, NotFound, Denied, Unavailable: as `siltstone.changes.begin`; Invalid for a
        table with a column of a name that a change has, and for `before` without a checkpoint.
    :raises Unsupported: as `scan`; in the task, merges into a table, and rows of a schema that has
        more columns than the table had when this was called.
    """
    check_session(spark)
    table = table_at(url, None, as_bytes, store_options)
    place, _, provider = _reader_arguments(url, store_options)
    end = feed.latest(place, store_options=store_options) if until is None else until
    begins, base = _start_of(since), _base_of(since, before)
    read = task(
        "siltstone_changes",
        _of_numbers,
        url=place,
        since=begins,
        until=end,
        before=base,
        provider=provider,
        table=table,
    )
    return numbers(spark, 1, UNKNOWN).mapInArrow(read, columns_of(table, base is not None))


def _start_of(since: str | Checkpoint | UUID) -> str | UUID:
    """A start as a task gets it: the id of a checkpoint as a UUID, any other start as its text."""
    if isinstance(since, Checkpoint):
        return since.id
    if isinstance(since, UUID):
        return since
    try:
        return UUID(since)
    except ValueError:
        return since


def _base_of(since: str | Checkpoint | UUID, before: feed.Before) -> UUID | str | None:
    """The checkpoint of the before-images; None: there are none.

    :raises Invalid: the feed does not begin at a checkpoint.
    """
    if before is None or before is False:
        return None
    if before is not True:
        return before.id if isinstance(before, Checkpoint) else before
    begins = _start_of(since)
    if isinstance(begins, str):
        raise Invalid(
            "before-images need the state at the start: create a checkpoint and pass it as since, "
            "or pass one at or before the start as before"
        )
    return begins


def _of_numbers(
    numbers: Iterator[pa.RecordBatch],
    url: str,
    since: str | UUID,
    until: str,
    before: UUID | str | None,
    provider: str | None,
    table: str | None,
) -> Iterator[pa.RecordBatch]:
    for _ in numbers:
        newest = partial(schema_text, url, provider)
        found = feed.read(url, since, until, before=before, store_options=provider)
        yield from batches(found, table, newest)


def columns_of(table: str | None, with_before: bool = False) -> StructType | str:
    """The columns of changes.

    :param with_before: whether there is a column of before-images.
    :raises Invalid: a table with a column of a name that a change has.
    :raises Unsupported: a column that Spark cannot hold.
    """
    if table is None:
        return f"{COLUMNS}, {BEFORE} binary" if with_before else COLUMNS
    from pyspark.sql import types  # noqa: PLC0415 - the package does without pyspark

    fields = spark_fields(table, None, nullable=True)
    beside = (*BESIDE, BEFORE) if with_before else BESIDE
    taken = [name for name in fields.names if name.casefold() in beside]
    if taken:
        raise Invalid(
            f"the table has a column {taken[0]!r}, and each change has one of that name; read the "
            "changes as bytes (as_bytes=True, asBytes) and decode them by siltstone.table.decode"
        )
    bound = [types.StructField(name, types.BinaryType()) for name in ("start", "end")]
    images = struct_of(spark_fields(table, value_columns(table), nullable=True))
    return types.StructType(
        [
            types.StructField("kind", types.StringType()),
            *struct_of(fields).fields,
            types.StructField("seq", types.LongType()),
            types.StructField("time", types.TimestampType()),
            types.StructField("range", types.StructType(bound)),
            *([types.StructField(BEFORE, images)] if with_before else []),
        ]
    )


def value_columns(table: str) -> list[str]:
    """The columns that are not part of the key; those of the key if there are no others."""
    keys, names = schema_of(table).key, arrow_fields(table).names
    return [one for one in names if one not in keys] or list(keys)


def batches(
    following: Iterator[ArrowArray], table: str | None, newest: Callable[[], str | None]
) -> Iterator[pa.RecordBatch]:
    """The batches of a feed, with exactly `SCHEMA`; for a table with `columns_of`. A feed with
    before-images has one more column.

    :param newest: reads the schema of the table again.
    """
    decoder = None
    if table is not None:
        # The columns of the key are decoded apart, because a delete has no others.
        decoder = TableDecoder(table, value_columns(table), newest)
    for changed in following:
        batch = pa.record_batch(changed)
        arrays = [batch.column(field.name).cast(field.type) for field in SCHEMA]
        rows = pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)
        images = batch.column(BEFORE) if BEFORE in batch.schema.names else None
        if decoder is not None and table is not None:
            rows = _rows(batch, decoder, table)
            images = None if images is None else _images(batch, decoder, table)
        if images is not None:
            columns = dict(zip(rows.schema.names, rows.columns, strict=True))
            rows = pa.record_batch(columns | {BEFORE: images})
        yield rows


def _rows(batch: pa.RecordBatch, decoder: TableDecoder, table: str) -> pa.RecordBatch:
    """Changes with the columns of a table.

    :param table: the schema of the frame. A row of a newer schema with the same columns is decoded.
    :raises Unsupported: a row of a schema with another column. The frame has no place for its
        values, and would lose them without an error.
    """
    fields = spark_fields(table, None, nullable=True)
    kinds = batch.column("kind").cast(pa.string())
    if pc.any(pc.equal(kinds, "merge"), min_count=0).as_py():
        raise Unsupported(
            "a merge operand is no row of the table; read the changes as bytes (as_bytes=True, "
            "asBytes)"
        )
    ranged = pc.equal(kinds, "delete_range")
    rows = narrowed(
        _decoded(batch.filter(pc.invert(ranged)), decoder, fields.names), fields, table, AGAIN
    )
    added = [name for name in arrow_fields(decoder.table).names if name not in fields.names]
    if added:
        raise Unsupported(
            f"the table has a new column, {', '.join(added)}, since the changes are read, and a "
            f"change has it: {AGAIN}"
        )
    has_rows = pc.invert(ranged)
    columns = [scatter(column, has_rows) for column in rows.columns]
    of_change = {
        field.name: batch.column(field.name).cast(field.type)
        for field in SCHEMA
        if field.name in ("key", "value", "seq", "time")
    }
    ranges = pa.StructArray.from_arrays(
        [of_change["key"], of_change["value"]], fields=list(RANGE), mask=has_rows
    )
    arrays = [kinds, *columns, of_change["seq"], of_change["time"], ranges]
    named = [SCHEMA.field("kind"), *fields, SCHEMA.field("seq"), SCHEMA.field("time")]
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema([*named, ("range", RANGE)]))


def _decoded(batch: pa.RecordBatch, decoder: TableDecoder, names: list[str]) -> pa.RecordBatch:
    """These columns of puts and deletes. A delete has only those of the key."""
    keys, values = batch.column("key"), batch.column("value")
    of_value = decoder.decode(keys, values)
    of_key = pa.record_batch(schema_of(decoder.table).decode_key(keys))
    columns = dict(zip(of_value.schema.names, of_value.columns, strict=True))
    columns |= dict(zip(of_key.schema.names, of_key.columns, strict=True))
    return pa.RecordBatch.from_arrays([columns[name] for name in names], names=names)


def _images(batch: pa.RecordBatch, decoder: TableDecoder, table: str) -> pa.Array:
    """The before-images of changes of a table: structs of `value_columns`, null where a key had no
    value.

    :raises Invalid: a column was widened, and a value does not fit the type that it had.
    """
    fields = spark_fields(table, value_columns(table), nullable=True)
    has_image = batch.column(BEFORE).is_valid()
    rows = batch.filter(has_image)
    found = decoder.decode(rows.column("key"), rows.column(BEFORE)).select(fields.names)
    columns = narrowed(found, fields, table, AGAIN).columns
    return pa.StructArray.from_arrays(
        [scatter(column, has_image) for column in columns],
        fields=list(fields),
        mask=pc.invert(has_image),
    )
