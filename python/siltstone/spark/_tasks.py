"""What runs in Spark's workers: readers that are opened once in a process, and batches of Arrow.

Spark imports this module in each worker, by its name: functions of a module travel as names, so
what they keep is kept for all tasks of the worker.
"""

from __future__ import annotations

import os
import pickle
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence

import pyarrow as pa

import siltstone
from siltstone.exceptions import Invalid
from siltstone.spark._columns import (
    COLUMNS,
    arrow_fields,
    asked,
    decoded,
    match,
    schema_of,
    spread,
)
from siltstone.spark._ranges import Range

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
ANSWER_BYTES = 64 << 20
"""Values of a piece of a look-up's batch, about."""
MOST_BYTES = 8 * ANSWER_BYTES
"""And at most, unless one row has more: Arrow and the JVM hold some copies of it."""
FIRST_ROWS, GROWTH = 256, 8
"""Rows of the first piece, before the size of values is known, and by what pieces grow."""
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
    for batch in _scanned(reader, start, end):
        arrays = [as_binary(batch.column(str(match(name, COLUMNS)))) for name in schema.names]
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def table_rows(
    reader: siltstone.Reader, start: bytes | None, end: bytes | None, table: str, fields: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """The rows of a table's range as batches of exactly `fields`; no other columns are decoded."""
    names = [str(match(name, arrow_fields(table).names)) for name in fields.names]
    for batch in _scanned(reader, start, end):
        columns = schema_of(table).decode(batch.column("key"), batch.column("value"), columns=names)
        yield decoded(pa.record_batch(columns), fields)


def _scanned(
    reader: siltstone.Reader, start: bytes | None, end: bytes | None
) -> Iterator[pa.RecordBatch]:
    """The rows of a range, as keys and values.

    :raises siltstone.Error: what goes wrong; Arrow's streams carry the text of an error alone.
    """
    stream = pa.RecordBatchReader.from_stream(reader.scan(start, end).to_arrow(BATCH_ROWS))
    first = start
    while True:
        try:
            batch = stream.read_next_batch()
        except StopIteration:
            return
        except (pa.ArrowException, OSError) as error:
            # The same rows, by a call that raises the error itself.
            for _ in reader.scan(first, end):
                pass
            raise siltstone.Unavailable(f"a scan failed, and may succeed again: {error}") from error
        if batch.num_rows:
            first = batch.column("key")[-1].as_py()
        yield batch


def as_binary(array: pa.Array) -> pa.Array:
    """The type that Spark's `binary` has: 32-bit offsets.

    :raises Invalid: more than 2 GiB of bytes.
    """
    if array.type == pa.binary():
        return array
    try:
        return array.cast(pa.binary())
    except pa.ArrowInvalid:
        raise Invalid(
            f"the values of one batch of {len(array)} keys have {array.nbytes} bytes, and Spark "
            "takes less than 2 GiB: siltstone.spark.lookup splits such a batch, and a lower "
            "spark.sql.execution.arrow.maxRecordsPerBatch makes smaller ones"
        ) from None


def values_of(reader: siltstone.Reader, keys: pa.Array) -> pa.Array:
    """The values of an array of keys, binary or text; null where there is none."""
    return as_binary(_values_of(reader, keys))


def _values_of(reader: siltstone.Reader, keys: pa.Array) -> pa.Array:
    """As `values_of`, of whatever size."""
    if not pa.types.is_binary(keys.type):
        keys = as_binary(keys)
    return pa.array(reader.get_many(keys))


def _pieces(
    batch: pa.RecordBatch, values_of_rows: Callable[[pa.RecordBatch], pa.Array], most: list[int]
) -> Iterator[tuple[pa.RecordBatch, pa.Array]]:
    """The rows of a batch with their values, by pieces that stay far below the 2 GiB that a batch
    for Spark has at most.

    :param most: one number, the rows of a piece: it follows the size of the values, from batch to
        batch.
    """
    left = [batch]
    while left:
        piece = left.pop()
        rows = piece.num_rows
        if rows > most[0]:
            left += [piece.slice(most[0]), piece.slice(0, most[0])]
            continue
        values = values_of_rows(piece)
        if rows:
            fitting = max(1, ANSWER_BYTES * rows // max(values.nbytes, 1))
            most[0] = min(fitting, max(rows, most[0]) * GROWTH)
        if rows > 1 and values.nbytes > MOST_BYTES:
            left.append(piece)
            most[0] = min(most[0], rows - 1)
            continue
        yield piece, values


def look_up(
    batches: Iterator[pa.RecordBatch], reader: bytes, key: str, value: str, keeps_absent: bool
) -> Iterator[pa.RecordBatch]:
    """The batches with values beside their keys: a function for `mapInArrow`."""
    open_reader, most = reader_of(reader), [FIRST_ROWS]
    for batch in batches:
        pieces = _pieces(batch, lambda rows: _values_of(open_reader, rows.column(key)), most)
        for piece, large in pieces:
            values = as_binary(large)
            arrays, names = [*piece.columns, values], [*piece.schema.names, value]
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
    return _decoded(table, keys, kept, pa.array(reader.get_many(keys)), fields)


def _decoded(
    table: str, keys: pa.Array, kept: pa.Array | None, values: pa.Array, fields: pa.Schema
) -> tuple[list[pa.Array], pa.Array]:
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
    open_reader, most = reader_of(reader), [FIRST_ROWS]

    def keys_of(rows: pa.RecordBatch) -> tuple[pa.Array, pa.Array | None]:
        return asked(table, [rows.column(name) for name in key])

    for batch in batches:
        pieces = _pieces(batch, lambda rows: pa.array(open_reader.get_many(keys_of(rows)[0])), most)
        for piece, values in pieces:
            columns, there = _decoded(table, *keys_of(piece), values, fields)
            arrays, called = [*piece.columns, *columns], [*piece.schema.names, *names]
            whole = pa.RecordBatch.from_arrays(arrays, names=called)
            yield whole if keeps_absent else whole.filter(there)
