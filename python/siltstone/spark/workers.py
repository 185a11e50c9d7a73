"""What runs in Spark's workers: readers that are opened once in a process, and batches of Arrow.

Spark imports this module in each worker, by its name: functions of a module travel as names, so
what they keep is kept for all tasks of the worker.
"""

from __future__ import annotations

import os
import pickle
from collections import OrderedDict
from collections.abc import Iterator, Sequence

import pyarrow as pa

import siltstone
from siltstone.spark.columns import asked, decoded, schema_of, spread
from siltstone.spark.ranges import Range

__all__ = [
    "look_up",
    "look_up_rows",
    "read_ranges",
    "reader_of",
    "rows",
    "rows_found",
    "table_rows",
    "values_of",
]

KEPT = 4
"""Readers of a worker: each is one state of one database, with caches of its own."""
BATCH_ROWS = 32_768
"""Rows of a batch: what Spark's own conversions are fastest with."""

_readers: OrderedDict[tuple[int, bytes], siltstone.Reader] = OrderedDict()


def reader_of(pickled: bytes) -> siltstone.Reader:
    """This process's reader of a state: opened once, kept for all tasks that come."""
    key = (os.getpid(), pickled)
    reader = _readers.get(key)
    if reader is None:
        reader = _readers[key] = pickle.loads(pickled)  # noqa: S301 - made by `pins`, sent by Spark
        while len(_readers) > KEPT:
            # Its scans go on: who still reads holds it.
            _readers.popitem(last=False)
    _readers.move_to_end(key)
    return reader


def read_ranges(
    numbers: Iterator[pa.RecordBatch],
    reader: bytes,
    ranges: Sequence[Range],
    fields: pa.Schema,
    table: str | None,
) -> Iterator[pa.RecordBatch]:
    """The rows of the ranges whose numbers come: a function for `mapInArrow`."""
    for batch in numbers:
        for number in batch.column(0).to_pylist():
            start, end = ranges[number]
            if table is None:
                yield from rows(reader_of(reader), start, end, fields)
            else:
                yield from table_rows(reader_of(reader), start, end, table, fields)


def rows(
    reader: siltstone.Reader, start: bytes | None, end: bytes | None, schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """The rows of a range as batches of exactly `schema`: columns of type `binary`."""
    stream = pa.RecordBatchReader.from_stream(reader.scan(start, end).to_arrow(BATCH_ROWS))
    for batch in stream:
        arrays = [as_binary(batch.column(name)) for name in schema.names]
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def table_rows(
    reader: siltstone.Reader, start: bytes | None, end: bytes | None, table: str, fields: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """The rows of a table's range as batches of exactly `fields`; no other columns are decoded."""
    stream = reader.scan(start, end).to_arrow(BATCH_ROWS)
    columns = schema_of(table).decode_stream(stream, columns=fields.names)
    for batch in pa.RecordBatchReader.from_stream(columns):
        yield decoded(batch, fields)


def as_binary(array: pa.Array) -> pa.Array:
    """The type that Spark's `binary` has: 32-bit offsets."""
    return array if array.type == pa.binary() else array.cast(pa.binary())


def values_of(reader: siltstone.Reader, keys: pa.Array) -> pa.Array:
    """The values of an array of keys, binary or text; null where there is none."""
    if not pa.types.is_binary(keys.type):
        keys = as_binary(keys)
    return as_binary(reader.get_many(keys))


def look_up(
    batches: Iterator[pa.RecordBatch], reader: bytes, key: str, value: str, keeps_absent: bool
) -> Iterator[pa.RecordBatch]:
    """The batches with values beside their keys: a function for `mapInArrow`."""
    open_reader = reader_of(reader)
    for batch in batches:
        values = values_of(open_reader, batch.column(key))
        arrays, names = [*batch.columns, values], [*batch.schema.names, value]
        found = pa.RecordBatch.from_arrays(arrays, names=names)
        yield found if keeps_absent else found.filter(values.is_valid())


def rows_found(
    reader: siltstone.Reader, table: str, key: Sequence[pa.Array], fields: pa.Schema
) -> tuple[list[pa.Array], pa.Array]:
    """Columns of the rows of these keys, and which keys were found: null in every column where none
    was.

    :param key: an array for each column of the key.
    """
    keys, kept = asked(table, key)
    values = reader.get_many(keys)
    there = values.is_valid()
    batch = pa.record_batch(schema_of(table).decode(keys, values, columns=fields.names))
    columns = decoded(batch, fields).columns
    if kept is None:
        return columns, there
    return [spread(column, kept) for column in columns], spread(there, kept).fill_null(False)


def look_up_rows(
    batches: Iterator[pa.RecordBatch],
    reader: bytes,
    table: str,
    key: Sequence[str],
    found: tuple[pa.Schema, Sequence[str]],
    keeps_absent: bool,
) -> Iterator[pa.RecordBatch]:
    """As `look_up`, of a table.

    :param found: the columns that are added, and how they are called then.
    """
    fields, names = found
    open_reader = reader_of(reader)
    for batch in batches:
        keys = [batch.column(name) for name in key]
        columns, there = rows_found(open_reader, table, keys, fields)
        arrays, called = [*batch.columns, *columns], [*batch.schema.names, *names]
        whole = pa.RecordBatch.from_arrays(arrays, names=called)
        yield whole if keeps_absent else whole.filter(there)
