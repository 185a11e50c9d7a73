"""Code that runs in Spark's workers: readers that a process keeps, and Arrow batches.

Spark pickles functions of a module by name, and each worker imports this module once. So readers
that are kept here serve all tasks of the worker.
"""

from __future__ import annotations

import os
import pickle
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

import siltstone
from siltstone.exceptions import Invalid
from siltstone.spark._columns import (
    COLUMNS,
    arrow_fields,
    lookup_keys,
    match,
    scatter,
    spark_fields,
    text_of,
    within_length,
)
from siltstone.spark._declared_types import declared_as
from siltstone.spark._decoding import TableDecoder, narrowed
from siltstone.spark._key_prefixes import prefix_ranges
from siltstone.spark._ranges import Range

__all__ = [
    "COUNTED",
    "FIRST_ROWS",
    "count_ranges",
    "counted",
    "large_values_of",
    "look_up",
    "look_up_prefix",
    "look_up_rows",
    "pieces",
    "read_ranges",
    "reader_of",
    "rows",
    "rows_found",
    "table_rows",
    "values_of",
]

KEPT = 4
"""Readers that a worker keeps. Each is one state of one database, with caches of its own."""
ANSWER_BYTES = 64 << 20
"""Approximate bytes of values in one piece of a look-up's batch."""
MOST_BYTES = 8 * ANSWER_BYTES
"""Most bytes of a piece with more than one row: Arrow and the JVM hold several copies of it."""
FIRST_ROWS, GROWTH = 256, 8
"""Rows of the first piece, before the size of values is known, and the growth of pieces."""
BATCH_ROWS = 32_768
"""Rows of a batch: the size at which Spark converts batches fastest."""
AGAIN = "make the frame again, by the same call, and it has the new type"
"""The remedy for a frame that is older than a column's type."""
COUNTED = "rows bigint"
"""The schema of `count_ranges`."""

_readers: OrderedDict[tuple[int, bytes], siltstone.Reader] = OrderedDict()


def reader_of(pickled: bytes) -> siltstone.Reader:
    """This process's reader of a state: opened once, and kept for later tasks."""
    key = (os.getpid(), pickled)
    reader = _readers.get(key)
    if reader is None:
        reader = _readers[key] = pickle.loads(pickled)  # noqa: S301 - sent by the driver
        while len(_readers) > KEPT:
            # A scan that is running holds its reader.
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
    """The rows of the ranges with the given numbers: a function for `mapInArrow`."""
    for batch in numbers:
        for number in batch.column(0).to_pylist():
            start, end = ranges[number]
            if table is None:
                yield from rows(reader_of(reader), start, end, fields)
            else:
                yield from table_rows(reader_of(reader), start, end, table, fields)


def count_ranges(
    numbers: Iterator[pa.RecordBatch], reader: bytes, ranges: Sequence[Range]
) -> Iterator[pa.RecordBatch]:
    """The number of rows of each range with a given number: a function for `mapInArrow`."""
    for batch in numbers:
        for number in batch.column(0).to_pylist():
            found = counted(reader_of(reader), *ranges[number])
            yield pa.RecordBatch.from_pydict({"rows": pa.array([found], pa.int64())})


def counted(reader: siltstone.Reader, start: bytes | None, end: bytes | None) -> int:
    """How many rows a range has. No row is decoded."""
    return sum(batch.num_rows for batch in _scanned(reader, start, end))


def rows(
    reader: siltstone.Reader,
    start: bytes | None,
    end: bytes | None,
    schema: pa.Schema,
    limit: int | None = None,
) -> Iterator[pa.RecordBatch]:
    """The rows of a range as batches of exactly `schema`: columns of type `binary`, or `string` for
    bytes that are UTF-8.

    :raises Invalid: bytes that are not UTF-8, for a column of type `string`.
    """
    for batch in _scanned(reader, start, end, limit):
        arrays = [_read_as(batch, field) for field in schema]
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def _read_as(batch: pa.RecordBatch, field: pa.Field) -> pa.Array:
    array = as_binary(batch.column(str(match(field.name, COLUMNS))))
    if field.type == pa.binary():
        return array
    try:
        return array.cast(field.type)
    except pa.ArrowInvalid:
        raise Invalid(
            f"the schema asks for {field.name!r} as string, and the database has bytes there that "
            f"are not UTF-8: ask for {field.name} BINARY"
        ) from None


def table_rows(
    reader: siltstone.Reader,
    start: bytes | None,
    end: bytes | None,
    table: str,
    fields: pa.Schema,
    limit: int | None = None,
) -> Iterator[pa.RecordBatch]:
    """The rows of a table's range as batches of exactly `fields`; no other columns are decoded."""
    names = [str(match(name, arrow_fields(table).names)) for name in fields.names]
    stored = spark_fields(table, names)
    decoder = TableDecoder(table, names, partial(text_of, reader))
    for batch in _scanned(reader, start, end, limit):
        found = decoder.decode(batch.column("key"), batch.column("value"))
        yield declared_as(narrowed(found, stored, table, AGAIN).columns, fields)


def _scanned(
    reader: siltstone.Reader, start: bytes | None, end: bytes | None, limit: int | None = None
) -> Iterator[pa.RecordBatch]:
    """The rows of a range, as keys and values.

    :raises siltstone.Error: the error of the scan. Arrow's streams carry only the text of an error.
    """
    scan = reader.scan(start, end, limit=limit)
    stream = pa.RecordBatchReader.from_stream(scan.to_arrow(BATCH_ROWS))
    first = start
    while True:
        try:
            batch = stream.read_next_batch()
        except StopIteration:
            return
        except (pa.ArrowException, OSError) as error:
            # Read the same rows by a call that raises the error itself.
            for _ in reader.scan(first, end):
                pass
            raise siltstone.Unavailable(f"a scan failed, and may succeed again: {error}") from error
        if batch.num_rows:
            first = batch.column("key")[-1].as_py()
        yield batch


def as_binary(array: pa.Array) -> pa.Array:
    """The array with the type of Spark's `binary`, which has 32-bit offsets.

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
    """The values of an array of keys, binary or text; null for an absent key."""
    return as_binary(large_values_of(reader, keys))


def large_values_of(reader: siltstone.Reader, keys: pa.Array) -> pa.Array:
    """As `values_of`, of any size."""
    if not pa.types.is_binary(keys.type):
        keys = as_binary(keys)
    fit = within_length(keys)
    if fit is not None:
        # One key that cannot exist must not fail the look-up of the others.
        keys = pc.if_else(fit, keys, pa.scalar(None, keys.type))
    return pa.array(reader.get_many(keys))


def pieces(
    batch: pa.RecordBatch, values_of_rows: Callable[[pa.RecordBatch], pa.Array], most: list[int]
) -> Iterator[tuple[pa.RecordBatch, pa.Array]]:
    """The rows of a batch with their values, in pieces far below the 2 GiB that a batch for Spark
    may have.

    :param most: one number, the rows of a piece. It follows the size of the values, from batch to
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
            matching = max(1, ANSWER_BYTES * rows // max(values.nbytes, 1))
            most[0] = min(matching, max(rows, most[0]) * GROWTH)
        if rows > 1 and values.nbytes > MOST_BYTES:
            left.append(piece)
            most[0] = min(most[0], rows - 1)
            continue
        yield piece, values


def look_up(
    batches: Iterator[pa.RecordBatch], reader: bytes, key: str, value: str, keeps_absent: bool
) -> Iterator[pa.RecordBatch]:
    """The batches with the values of their keys: a function for `mapInArrow`."""
    open_reader, most = reader_of(reader), [FIRST_ROWS]
    for batch in batches:
        cut = pieces(batch, lambda rows: large_values_of(open_reader, rows.column(key)), most)
        for piece, large in cut:
            values = as_binary(large)
            arrays, names = [*piece.columns, values], [*piece.schema.names, value]
            found = pa.RecordBatch.from_arrays(arrays, names=names)
            yield found if keeps_absent else found.filter(values.is_valid())


def rows_found(
    reader: siltstone.Reader, table: str, key: Sequence[pa.Array], fields: pa.Schema
) -> tuple[list[pa.Array], pa.Array]:
    """Columns of the rows of these keys, and which keys exist. An absent key has nulls.

    :param key: an array for each column of the key.
    """
    keys, kept = lookup_keys(table, key)
    decoder = TableDecoder(table, fields.names, partial(text_of, reader))
    return _decoded(decoder, table, keys, kept, pa.array(reader.get_many(keys)), fields)


def _decoded(
    decoder: TableDecoder,
    table: str,
    keys: pa.Array,
    kept: pa.Array | None,
    values: pa.Array,
    fields: pa.Schema,
) -> tuple[list[pa.Array], pa.Array]:
    there = values.is_valid()
    columns = narrowed(decoder.decode(keys, values), fields, table, AGAIN).columns
    if kept is None:
        return columns, there
    return [scatter(column, kept) for column in columns], scatter(there, kept).fill_null(False)


def look_up_rows(
    batches: Iterator[pa.RecordBatch],
    reader: bytes,
    table: str,
    key: Sequence[str],
    found: tuple[pa.Schema, Sequence[str]],
    keeps_absent: bool,
) -> Iterator[pa.RecordBatch]:
    """As `look_up`, for a table.

    :param found: the columns to add, and their names in the result.
    """
    fields, names = found
    open_reader, most = reader_of(reader), [FIRST_ROWS]
    decoder = TableDecoder(table, fields.names, partial(text_of, open_reader))

    def keys_of(rows: pa.RecordBatch) -> tuple[pa.Array, pa.Array | None]:
        return lookup_keys(table, [rows.column(name) for name in key])

    for batch in batches:
        cut = pieces(batch, lambda rows: pa.array(open_reader.get_many(keys_of(rows)[0])), most)
        for piece, values in cut:
            columns, there = _decoded(decoder, table, *keys_of(piece), values, fields)
            arrays, called = [*piece.columns, *columns], [*piece.schema.names, *names]
            whole = pa.RecordBatch.from_arrays(arrays, names=called)
            yield whole if keeps_absent else whole.filter(there)


def look_up_prefix(
    batches: Iterator[pa.RecordBatch],
    reader: bytes,
    table: str | None,
    key: Sequence[str],
    found: tuple[pa.Schema, Sequence[str]],
    keeps_absent: bool,
    limit: int | None,
) -> Iterator[pa.RecordBatch]:
    """The batches joined with all rows under a leading part of the key: a function for
    `mapInArrow`. Each distinct part of a batch is scanned once.

    :param key: columns of the batch that hold the part.
    :param found: the columns to add, and their names in the result.
    :param limit: the most rows for each row of the batch; None: all.
    """
    fields, names = found
    open_reader = reader_of(reader)
    for batch in batches:
        asking: dict[Range | None, list[int]] = {}
        parts = [batch.column(name) for name in key]
        if table is None:
            parts = [as_binary(parts[0])]
        for row, part in enumerate(prefix_ranges(table, parts)):
            asking.setdefault(part, []).append(row)
        joined = _Joined(batch, fields, names)
        for part, rows in asking.items():
            has_match = False
            for matches in _matches(open_reader, part, table, fields, limit):
                has_match = has_match or matches.num_rows > 0
                for row in rows:
                    yield from joined.add(row, matches)
            if keeps_absent and not has_match:
                nothing = [pa.nulls(1, field.type) for field in fields]
                for row in rows:
                    yield from joined.add(row, pa.RecordBatch.from_arrays(nothing, schema=fields))
        yield from joined.rest()


def _matches(
    reader: siltstone.Reader,
    part: Range | None,
    table: str | None,
    fields: pa.Schema,
    limit: int | None,
) -> Iterator[pa.RecordBatch]:
    if part is None:
        return iter(())
    if table is None:
        return rows(reader, *part, fields, limit)
    return table_rows(reader, *part, table, fields, limit)


class _Joined:
    """Collects joined rows into batches of about `BATCH_ROWS` rows or `ANSWER_BYTES` bytes."""

    def __init__(self, batch: pa.RecordBatch, fields: pa.Schema, names: Sequence[str]) -> None:
        self.batch = batch
        self.fields = fields
        self.names = [*batch.schema.names, *names]
        self.row_bytes = batch.nbytes / max(batch.num_rows, 1)
        self._clear()

    def _clear(self) -> None:
        self.left: list[int] = []
        self.right: list[pa.RecordBatch] = []
        self.bytes = 0.0

    def add(self, row: int, matches: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Joins one row with its matches. Yields a batch when enough is collected."""
        self.left += [row] * matches.num_rows
        self.right.append(matches)
        self.bytes += matches.nbytes + matches.num_rows * self.row_bytes
        if len(self.left) >= BATCH_ROWS or self.bytes >= ANSWER_BYTES:
            yield from self.rest()

    def rest(self) -> Iterator[pa.RecordBatch]:
        """Yields the collected rows."""
        if self.left:
            asked_rows = self.batch.take(pa.array(self.left, pa.int64()))
            right = pa.Table.from_batches(self.right, self.fields).combine_chunks()
            columns = [column.combine_chunks() for column in right.columns]
            arrays = [*asked_rows.columns, *(_one_array(column) for column in columns)]
            yield pa.RecordBatch.from_arrays(arrays, names=self.names)
        self._clear()


def _one_array(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """A column as one array: `combine_chunks` returns a chunked array in some versions."""
    return pa.concat_arrays(column.chunks) if isinstance(column, pa.ChunkedArray) else column
