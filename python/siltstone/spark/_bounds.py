"""Ranges of encoded keys, made from the bounds that callers name."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import pyarrow as pa

from siltstone.exceptions import Invalid
from siltstone.spark._arguments import check_where
from siltstone.spark._bound_values import bytes_of, value_of
from siltstone.spark._columns import arrow_fields, schema_of, spelled_where
from siltstone.spark._ranges import Range

__all__ = ["bounds", "bytes_range", "check_bounded", "key_range", "table_range"]


def key_range(
    table: str | None,
    where: Mapping[str, Any] | None = None,
    start: Any = None,
    end: Any = None,
    prefix: bytes | str | None = None,
) -> Range:
    """The range of keys for the arguments of `scan`. A text is taken as the options of the data
    source take it.

    :param table: the schema of the table; None: a database of bytes.
    :raises Invalid: `where` for a database of bytes, `prefix` for a table or beside a bound, values
        of another type than the column.
    """
    check_where(where)
    if table is None:
        if where is not None:
            raise Invalid(f"where is {where!r}, and the database has no columns, only bytes")
        return bytes_range(start, end, prefix)
    if prefix is not None:
        raise Invalid(
            "prefix is for keys that are bytes; where names values of a table's first key columns"
        )
    return table_range(table, where, start, end)


def table_range(
    table: str, where: Mapping[str, Any] | None = None, start: Any = None, end: Any = None
) -> Range:
    """The range of keys of a table between values of the next key column after those of `where`.

    :raises Invalid: values of another type than the column; columns of `where` that are not the
        first ones of the key.
    """
    schema = schema_of(table)
    equal = None
    if where is not None:
        equal = {
            name: _value(table, name, value, f"where[{name!r}]")
            for name, value in spelled_where(table, where).items()
        }
    after = [name for name in schema.key if name not in (equal or {})]
    if after:
        start, end = _value(table, after[0], start, "start"), _value(table, after[0], end, "end")
    try:
        return schema.range(equal, start, end)
    except TypeError as error:
        text = str(error).removeprefix("rows[0]: ")
        raise Invalid(f"a bound is no value of its column: {text}") from None


def _value(table: str, column: str, given: Any, argument: str) -> Any:
    """A value of a column of the key. A text stands for a value of another type.

    :raises Invalid: the text is no value of the column; a truth value for a number; a decimal that
        is no finite number; None in `where` for a column without nulls.
    """
    fields = arrow_fields(table)
    if given is None and argument.startswith("where") and not fields.field(column).nullable:
        raise Invalid(
            f"{argument} is None, and the column {column!r} has no nulls: no row can match"
        )
    kind = fields.field(column).type
    if isinstance(given, str):
        return value_of(table, column, given, argument)
    if isinstance(given, bool) and not pa.types.is_boolean(kind):
        # Python takes a truth value for a number.
        raise Invalid(f"{argument} is {given!r}, and the column {column!r} is of type {kind}")
    if isinstance(given, Decimal) and not given.is_finite():
        raise Invalid(f"{argument} is {given!r}, and the column {column!r} has only finite numbers")
    return given


def bytes_range(start: Any, end: Any, prefix: Any = None) -> Range:
    """As `bounds`, for bounds that are bytes or text.

    :raises Invalid: a bound is neither; as `bounds`.
    """
    named = {"start": start, "end": end, "prefix": prefix}
    return bounds(*(_bytes(given, name) for name, given in named.items()))


def _bytes(given: Any, argument: str) -> bytes | None:
    if isinstance(given, str):
        return bytes_of(given, argument)
    if given is None or isinstance(given, bytes | bytearray | memoryview):
        return None if given is None else bytes(given)
    raise Invalid(
        f"{argument} is {given!r}, and the database has no columns: its keys are bytes, or text, "
        "which stands for its UTF-8"
    )


def bounds(start: bytes | None, end: bytes | None, prefix: bytes | None) -> Range:
    """The range of a prefix, or from `start` to `end`.

    :raises Invalid: both are given.
    """
    if prefix is None:
        return start, end
    if start is not None or end is not None:
        raise Invalid("prefix and start or end exclude each other")
    # The end is the next byte string of that length. Trailing 0xFF bytes carry to the left.
    kept = prefix.rstrip(b"\xff")
    return prefix, kept[:-1] + bytes([kept[-1] + 1]) if kept else None


def check_bounded(found: Range, what: str) -> None:
    """Checks that a range whose rows are deleted has a bound, because an argument such as an empty
    dict must not delete a whole database.

    :param what: the arguments that name the range, for the error text.
    :raises Invalid: the range has all keys.
    """
    start, end = found
    if not start and end is None:
        raise Invalid(
            f"the range has no bound ({what}), so every row would be deleted. To delete every row "
            "on purpose, call siltstone.spark.bulk_load with mode 'overwrite'; its frame may be "
            "empty"
        )
