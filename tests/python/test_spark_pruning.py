"""Filters of Spark's become ranges of keys that hold every row which passes."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from siltstone import table
from siltstone.spark.pruning import narrowed, range_of

COLUMNS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "number": (pa.int32(), [-(2**31), -1, 0, 7, 2**31 - 1]),
    "double": (pa.float64(), [float("-inf"), -1.5, 0.0, 1.5, float("inf")]),
    "text": (pa.string(), ["", "\0", "a", "a\0", "ab", "b", "\U0001f600"]),
    "raw": (pa.binary(), [b"", b"\0", b"a", b"a\xff", b"\xff"]),
    "cents": (pa.decimal128(9, 2), [Decimal("-0.01"), Decimal("0.00"), Decimal("12.30")]),
    "day": (pa.date32(), [date(1969, 12, 31), date(2026, 1, 31)]),
    "instant": (pa.timestamp("us", "UTC"), [datetime(2026, 1, n, tzinfo=UTC) for n in (1, 2, 3)]),
}
WAYS = ["", " desc"]
NULLS = [*WAYS, " nulls last", " desc nulls first"]
COMPARED = {
    "EqualTo": lambda one, value: one == value,
    "LessThan": lambda one, value: one < value,
    "LessThanOrEqual": lambda one, value: one <= value,
    "GreaterThan": lambda one, value: one > value,
    "GreaterThanOrEqual": lambda one, value: one >= value,
    "In": lambda one, values: one in values,
    "StringStartsWith": lambda one, value: one.startswith(value),
}


@dataclass(frozen=True)
class Filter:
    """As Spark's, of any version."""

    attribute: tuple[str, ...]
    value: Any = None

    def passes(self, row: dict[str, Any]) -> bool:
        one, name = row[self.attribute[0]], type(self).__name__
        if name == "IsNull":
            return one is None
        if name == "IsNotNull":
            return one is not None
        if name == "EqualNullSafe":
            return one == self.value
        return one is not None and COMPARED[name](one, self.value)


KINDS = {
    name: type(name, (Filter,), {}) for name in [*COMPARED, "EqualNullSafe", "IsNull", "IsNotNull"]
}


@st.composite
def filters(draw: st.DrawFn, columns: list[str]) -> Filter:
    column = draw(st.sampled_from(columns))
    values = st.sampled_from(COLUMNS[column][1])
    kind = draw(st.sampled_from([k for k in KINDS if k != "StringStartsWith" or column == "text"]))
    if kind in ("IsNull", "IsNotNull"):
        return KINDS[kind]((column,))
    if kind == "In":
        return KINDS[kind]((column,), draw(st.lists(values, max_size=3)))
    if kind == "EqualNullSafe":
        values |= st.none()
    return KINDS[kind]((column,), draw(values))


@settings(max_examples=600, deadline=None)
@given(st.data())
def test_a_range_holds_all_that_passes(data: st.DataObject) -> None:
    key = data.draw(st.lists(st.sampled_from(list(COLUMNS)), min_size=1, max_size=3, unique=True))
    fields = [pa.field(n, COLUMNS[n][0], nullable=data.draw(st.booleans())) for n in key]
    free = {field.name: field.nullable for field in fields}
    ways = [n + data.draw(st.sampled_from(NULLS if free[n] else WAYS)) for n in key]
    schema = table.TableSchema(pa.schema(fields), key=ways)
    row = st.fixed_dictionaries(
        {n: st.sampled_from(([None] if free[n] else []) + COLUMNS[n][1]) for n in key}
    )
    rows = data.draw(st.lists(row, min_size=1, max_size=12))
    asked = data.draw(st.lists(filters(key), max_size=4))
    start, end = range_of(schema.text, asked)
    for one in rows:
        if all(value in ("", b"") for value in one.values()):
            continue  # perhaps a key of no bytes, which is none
        packed = schema.key_of(one)
        inside = (start is None or start <= packed) and (end is None or packed < end)
        assert inside or not all(each.passes(one) for each in asked), (one, start, end)


def of(filters: list[Filter], *key: str) -> list[str]:
    """The texts and days that are read for these filters, of a table of some."""
    columns = pa.schema([("text", pa.string()), ("day", pa.date32())])
    schema = table.TableSchema(columns, key=list(key))
    days = COLUMNS["day"][1]
    rows = [{"text": t, "day": d} for t in [None, "a", "ab", "b", "ba"] for d in [None, *days]]
    start, end = range_of(schema.text, filters)
    found = []
    for row in rows:
        packed = schema.key_of(row)
        if (start is None or start <= packed) and (end is None or packed < end):
            found.append(f"{row['text']} {row['day'] and row['day'].year}")
    return found


def test_a_range_holds_little_else() -> None:
    text, day = ("text",), ("day",)
    late = COLUMNS["day"][1][1]
    equal = KINDS["EqualTo"](text, "a")
    for way in ("text", "text desc"):
        assert of([equal], way, "day") == ["a None", "a 1969", "a 2026"]
        assert of([equal, KINDS["LessThan"](day, late)], way, "day") == ["a None", "a 1969"]
        assert of([equal, KINDS["LessThan"](day, late)], way, "day desc") == ["a None", "a 1969"]
        assert of([equal, KINDS["GreaterThanOrEqual"](day, late)], way, "day") == ["a 2026"]
        assert of([equal, KINDS["IsNull"](day)], way, "day") == ["a None"]
        starts = of([KINDS["StringStartsWith"](text, "b")], way, "day")
        assert starts == ["b None", "b 1969", "b 2026", "ba None", "ba 1969", "ba 2026"]
        between = of([KINDS["In"](text, ["a", "b", None])], way, "day")
        assert len(between) == 9
    # The last column is raw where it ascends.
    assert len(of([KINDS["StringStartsWith"](text, "b")], "text")) == 6
    # What is not of the key's first columns says nothing, and neither does what is no value.
    assert len(of([KINDS["EqualTo"](day, late)], "text", "day")) == 15
    assert len(of([KINDS["EqualTo"](text, 7)], "text", "day")) == 15
    assert len(of([KINDS["EqualTo"](("text", "inner"), "a")], "text", "day")) == 15


def test_ranges_meet() -> None:
    assert narrowed((b"b", None), (None, b"d")) == (b"b", b"d")
    assert narrowed((b"b", b"c"), (b"a", b"d")) == (b"b", b"c")
    assert narrowed((b"c", None), (None, b"a")) == (b"c", b"c")


def test_a_last_value_has_no_end() -> None:
    """No bytes are behind those of the largest number: nothing ends there."""
    fields = [pa.field("number", pa.int32(), nullable=False), pa.field("text", pa.string())]
    schema = table.TableSchema(pa.schema(fields), key=["number", "text"])
    least = schema.key_of({"number": 0, "text": None})
    largest = 2**31 - 1
    assert range_of(schema.text, [KINDS["In"](("number",), [largest, 0])])[1] is None
    assert range_of(schema.text, [KINDS["LessThanOrEqual"](("number",), largest)]) == (None, None)
    assert range_of(schema.text, [KINDS["In"](("number",), [0, 7])])[0] == least[:4]
