"""Frames of pandas as rows of a table. pandas has no missing value for whole numbers: it turns a
column of them into floats once a value is missing, and a column without values is of floats too. A
conversion must not change a value."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from siltstone.exceptions import Invalid

if TYPE_CHECKING:
    from siltstone._native import TableSchema

__all__ = ["fitted"]

_EXACT_BITS = {32: 24, 64: 53}
"""Bits of the whole numbers that a float of this many bits holds exactly."""


def fitted(schema: TableSchema, rows: Any) -> Any:
    """Returns a DataFrame of pandas as an Arrow table with the types of the schema, where no value
    is lost. Other rows are returned unchanged.

    :raises Invalid: if a value of a column is not one of the column's type.
    :raises TypeError: for a LazyFrame of polars.
    """
    polars = sys.modules.get("polars")
    if polars is not None and isinstance(rows, polars.LazyFrame):
        raise TypeError("a LazyFrame has no rows before it is collected: pass frame.collect()")
    pandas = sys.modules.get("pandas")
    if pandas is None or not isinstance(rows, pandas.DataFrame):
        return rows
    import pyarrow as pa  # noqa: PLC0415 - pandas converts with pyarrow, which is not required here

    try:
        table = pa.table(rows)
    except (pa.ArrowException, TypeError, ValueError):
        # The compiled module raises the error of a frame that is no Arrow data.
        return rows
    wanted = {field.name: field.type for field in pa.schema(schema)}
    for place, name in enumerate(table.column_names):
        column = table.column(place)
        if name in wanted and column.type != wanted[name]:
            table = table.set_column(place, name, _fitted(name, column, wanted[name]))
    return table


def _fitted(name: str, column: Any, wanted: Any) -> Any:
    """Returns the column as `wanted`, if pandas has changed its type; else unchanged."""
    import pyarrow as pa  # noqa: PLC0415

    given = column.type
    if pa.types.is_decimal256(given) and pa.types.is_decimal128(wanted):
        return _cast(name, column, wanted)
    if not pa.types.is_floating(given) or given.bit_width not in _EXACT_BITS:
        return column
    if column.null_count == len(column):
        return pa.chunked_array([pa.nulls(len(column), wanted)])
    if pa.types.is_integer(wanted):
        _check_exact(name, column)
        return _cast(name, column, wanted)
    return column


def _check_exact(name: str, column: Any) -> None:
    """Checks that each number is the one that pandas was given.

    :raises Invalid: if a float is so large that it stands for several whole numbers.
    """
    import pyarrow.compute as pc  # noqa: PLC0415

    bits = _EXACT_BITS[column.type.bit_width]
    large = pc.greater_equal(pc.abs(column), float(1 << bits))
    row = pc.index(large, value=True).as_py()
    if row >= 0:
        text = (
            f"a float from 2^{bits} on stands for several whole numbers, and the column is one of "
            "whole numbers: use the dtype Int64 in the frame"
        )
        raise _refused(text, column=name, row=row)


def _cast(name: str, column: Any, wanted: Any) -> Any:
    """Casts the column.

    :raises Invalid: if a value would change.
    """
    import pyarrow as pa  # noqa: PLC0415

    try:
        return column.cast(wanted)
    except pa.ArrowInvalid as error:
        text = "a value is not one of its column's type"
        raise _refused(text, column=name, schema=wanted, why=error) from None


def _refused(text: str, **facts: object) -> Invalid:
    context = {name: str(fact) for name, fact in facts.items()}
    shown = ", ".join(f"{name}: {fact}" for name, fact in context.items())
    return Invalid(f"{text} ({shown})", context=context)
