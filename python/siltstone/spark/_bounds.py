"""Ranges of encoded keys, made from the bounds that callers name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from siltstone.exceptions import Invalid
from siltstone.spark._arguments import check_where
from siltstone.spark._columns import schema_of, spelled_where
from siltstone.spark._ranges import Range

__all__ = ["bounds", "check_bounded", "key_range"]


def key_range(
    table: str | None,
    where: Mapping[str, Any] | None = None,
    start: Any = None,
    end: Any = None,
    prefix: bytes | None = None,
) -> Range:
    """The range of keys for the arguments of `scan`.

    :param table: the schema of the table; None: a database of bytes.
    :raises Invalid: `where` for a database of bytes, `prefix` for a table or beside a bound, values
        of another type than the column.
    """
    check_where(where)
    if table is None:
        if where is not None:
            raise Invalid(f"where is {where!r}, and the database has no columns, only bytes")
        return bounds(start, end, prefix)
    if prefix is not None:
        raise Invalid(
            "prefix is for keys that are bytes; where names values of a table's first key columns"
        )
    equal = None if where is None else spelled_where(table, where)
    return schema_of(table).range(equal, start, end)


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
    """Checks that a range whose rows are deleted has a bound. An argument such as an empty dict
    must not delete a whole database.

    :param what: the arguments that name the range, for the error text.
    :raises Invalid: the range has all keys.
    """
    start, end = found
    if not start and end is None:
        raise Invalid(
            f"{what}: this bounds no side of the range, and would delete every row. To delete "
            "every row on purpose, call siltstone.spark.bulk_load with mode 'overwrite'; the frame "
            "may be empty"
        )
