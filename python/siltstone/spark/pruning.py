"""Filters on the first columns of a table's key as one range of keys.

The range holds every row that the filters let through, and may hold others: Spark looks again.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from siltstone.exceptions import Error
from siltstone.spark.columns import arrow_fields, schema_of
from siltstone.spark.frames import bounds
from siltstone.spark.ranges import Range

__all__ = ["narrowed", "range_of"]

MARK = 2
"""Bytes of a string's end mark within a key (RFC 0032)."""


def narrowed(one: Range, other: Range) -> Range:
    """What lies in both."""
    starts = [start for start, _ in (one, other) if start is not None]
    ends = [end for _, end in (one, other) if end is not None]
    start, end = max(starts, default=None), min(ends, default=None)
    if start is not None and end is not None and end < start:
        end = start
    return start, end


def range_of(table: str, filters: Iterable[Any]) -> Range:
    """The keys of the rows that pass all these filters of Spark's are of this range."""
    by_column: dict[str, list[Any]] = {}
    for one in filters:
        path: tuple[str, ...] = getattr(one, "attribute", ())
        if len(path) == 1:
            by_column.setdefault(path[0], []).append(one)
    equal: dict[str, Any] = {}
    found: Range = (None, None)
    for place, column in enumerate(schema_of(table).key):
        column_filters = by_column.get(column, [])
        for one in column_filters:
            found = narrowed(found, _of_one(table, equal, place, one))
        values = [value for one in column_filters for value in _equal(one)]
        if not values:
            break
        equal[column] = values[0]
    return found


def _equal(one: Any) -> list[Any]:
    """The value that the column has, where it can have but one."""
    kind = type(one).__name__
    if kind in ("EqualTo", "EqualNullSafe"):
        return [one.value]
    if kind == "IsNull":
        return [None]
    if kind == "In" and len(set(one.value)) == 1:
        return [one.value[0]]
    return []


def _of_one(table: str, equal: dict[str, Any], place: int, one: Any) -> Range:
    """The range of one filter on the column at `place` of the key, behind columns that are `equal`;
    everything, where it says nothing or its value is no value of the column's."""
    try:
        return _bounded(table, equal, place, one)
    except (Error, TypeError, OverflowError):
        # A literal that the column does not hold: Spark knows what it compares to.
        return None, None


def _bounded(table: str, equal: dict[str, Any], place: int, one: Any) -> Range:
    schema = schema_of(table)
    column = schema.key[place]
    descending, _ = schema.directions[place]

    def only(value: Any) -> Range:
        return schema.range({**equal, column: value})

    kind = type(one).__name__
    found = _equal(one)
    if found:
        return only(found[0])
    if kind == "In" and one.value:
        each = [only(value) for value in one.value if value is not None]
        starts = [start for start, _ in each if start is not None]
        ends = [end for _, end in each if end is not None]
        return min(starts, default=None), max(ends) if len(ends) == len(each) else None
    if kind in ("LessThan", "LessThanOrEqual", "GreaterThan", "GreaterThanOrEqual"):
        low, high = only(one.value)
        takes_it = kind.endswith("OrEqual")
        # In the order of the key, what is below lies behind where it descends.
        if kind.startswith("Greater") != descending:
            return (low if takes_it else high), None
        return None, (high if takes_it else low)
    if kind == "StringStartsWith" and one.value:
        start, _ = only(one.value)
        raw = place == len(schema.key) - 1 and not descending
        is_text = arrow_fields(table).field(column).type == "string"
        if start is not None and is_text:
            return bounds(None, None, start if raw else start[:-MARK])
    return None, None
