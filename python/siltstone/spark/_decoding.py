"""Decoding rows of a table whose schema may have changed since a frame was made.

Columns can be added and widened while a frame follows the writer. The frame keeps its columns and
their types. A value that its old type cannot hold is an error, never another value.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from siltstone.exceptions import Invalid, Unsupported
from siltstone.spark._columns import arrow_fields, cast, schema_of

__all__ = ["TableDecoder", "narrowed"]


class TableDecoder:
    """Decodes columns of a table's rows by the schema of the frame, and by a newer one once a row
    needs it."""

    def __init__(self, table: str, names: Sequence[str], newest: Callable[[], str | None]) -> None:
        """
        :param table: the schema of the frame.
        :param names: the columns to decode, all of them in that schema.
        :param newest: reads the schema of the database again.
        """
        self.table = table
        self.names = list(names)
        self.newest = newest

    def decode(self, keys: pa.Array, values: pa.Array) -> pa.RecordBatch:
        """The columns of these rows, with the types of the schema that decoded them.

        :raises Unsupported: a row is of a later schema than `newest` returns.
        """
        try:
            return self._decoded(keys, values)
        except Unsupported as error:
            # Other values that are not supported stay so with each schema.
            if "generation" not in error.context:
                raise
            newest = self.newest()
            if newest is None or newest == self.table:
                raise
            self.table = newest
        return self._decoded(keys, values)

    def _decoded(self, keys: pa.Array, values: pa.Array) -> pa.RecordBatch:
        columns = schema_of(self.table).decode(keys, values, columns=self.names)
        return pa.record_batch(columns)


def narrowed(batch: pa.RecordBatch, fields: pa.Schema, table: str, remedy: str) -> pa.RecordBatch:
    """The batch with exactly `fields`, which are those of the frame in the batch's order.

    :param table: the schema of the frame.
    :param remedy: how the caller gets the new types.
    :raises Invalid: a column was widened, and a value does not fit the type that it had.
    """
    arrays = []
    for column, field in zip(batch.columns, fields, strict=True):
        before = arrow_fields(table).field(field.name).type
        array = column
        if column.type not in (before, field.type):
            array = _narrowed(column, before, field.name, remedy)
        arrays.append(cast(array, field.type, field.name))
    return pa.RecordBatch.from_arrays(arrays, schema=fields)


def _narrowed(column: pa.Array, before: pa.DataType, name: str, remedy: str) -> pa.Array:
    try:
        array = column.cast(before)
    except pa.ArrowInvalid:
        array = None
    # Arrow rounds a float without an error.
    if array is not None and pa.types.is_floating(before):
        same = pc.or_(pc.equal(array.cast(column.type), column), pc.is_nan(column))
        array = array if pc.all(same, min_count=0).as_py() else None
    if array is None:
        raise Invalid(
            f"the column {name!r} was widened from {before} to {column.type}, and a value does not "
            f"fit {before}: {remedy}"
        )
    return array
