"""Values of dicts as cells of a table: no value is rounded or converted in silence."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import siltstone
from siltstone import table


def of(kind: pa.DataType) -> table.TableSchema:
    """A table with one value column `v`."""
    return table.TableSchema(pa.schema([("k", pa.int8()), ("v", kind)]), key=["k"])


def stored(schema: table.TableSchema, value: Any) -> Any:
    """The value after it was encoded and decoded."""
    return pa.record_batch(schema.decode(*schema.encode([{"k": 1, "v": value}])))["v"].to_pylist()[
        0
    ]


def test_integers_of_numpy_are_not_rounded_in_keys(memory_url: str) -> None:
    columns = pa.schema([pa.field("k", pa.float64(), nullable=False), pa.field("v", pa.int64())])
    with table.create(memory_url, columns, key=["k"]) as db:
        with pytest.raises(siltstone.Invalid, match="no float of the column is exactly"):
            db.table.put([{"k": 2**53, "v": 1}, {"k": np.int64(2**53 + 1), "v": 2}])
        db.table.put([{"k": 2**53, "v": 1}, {"k": np.int64(2**53 + 2), "v": 2}])
        assert db.table.get({"k": np.uint64(2**53 + 2)})["v"] == 2


@pytest.mark.parametrize("wrong", [np.int64(2**53 + 1), np.uint64(2**63 + 1)])
def test_integers_of_numpy_are_not_rounded_in_values(wrong: np.integer) -> None:
    for kind, value in (
        (pa.float64(), wrong),
        (pa.list_(pa.float64()), [0.5, wrong]),
        (pa.struct([("f", pa.float64())]), {"f": wrong}),
        (pa.map_(pa.string(), pa.float64()), {"a": wrong}),
    ):
        with pytest.raises(siltstone.Invalid, match="no float of the column is exactly"):
            stored(of(kind), value)


def test_numbers_that_a_float_equals_are_taken() -> None:
    wide = of(pa.float64())
    for value in (
        np.int64(2**53),
        np.uint64(2**63),
        np.float16(0.5),
        np.float32(0.1),
        np.array(0.5),
        7,
    ):
        assert stored(wide, value) == value
    assert stored(wide, Fraction(1, 2)) == 0.5
    assert math.isnan(stored(wide, np.float32("nan")))


def test_a_float_of_a_key_is_not_rounded(memory_url: str) -> None:
    columns = pa.schema([pa.field("k", pa.float32(), nullable=False), ("v", pa.float32())])
    with table.create(memory_url, columns, key=["k"]) as db:
        for wrong in (16777217.0, 0.1):
            for call in (
                lambda wrong=wrong: db.table.put([{"k": 16777216.0}, {"k": wrong}]),
                lambda wrong=wrong: db.table.get({"k": wrong}),
                lambda wrong=wrong: db.table.get_many([{"k": wrong}]),
                lambda wrong=wrong: db.table.delete([{"k": wrong}]),
                lambda wrong=wrong: db.table.scan({"k": wrong}),
                lambda wrong=wrong: db.table.scan(start=wrong),
            ):
                with pytest.raises(siltstone.Invalid, match="no 32-bit float equals") as refused:
                    call()
                assert refused.value.context["column"] == "k"
        good = [16777216.0, np.float32(0.1), float(np.float32(0.2)), math.inf, math.nan, 7]
        # In a value column the nearest float is stored.
        db.table.put([{"k": k, "v": 0.1} for k in good])
        assert len(pa.table(db.table.scan())) == len(good)
        assert db.table.get({"k": np.float32(0.1)})["v"] == np.float32(0.1)


NOT_NULL = pa.field("item", pa.int32(), nullable=False)


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (pa.list_(pa.struct([pa.field("a", pa.int32(), nullable=False)])), [{"a": 1}, None]),
        (pa.list_(pa.list_(NOT_NULL)), [[1, 2], None, []]),
        (pa.list_(pa.map_(pa.string(), pa.int8())), [[("a", 1)], None, []]),
        (pa.list_(pa.list_(pa.struct([NOT_NULL]))), [[{"item": 1}], []]),
        (pa.struct([("l", pa.list_(pa.list_(NOT_NULL)))]), {"l": [[1]]}),
        (pa.map_(pa.string(), pa.list_(pa.struct([NOT_NULL]))), [("a", [{"item": 1}])]),
    ],
)
def test_items_of_a_list_may_have_parts_that_are_not_nullable(kind, value) -> None:
    schema = of(kind)
    for given in (value, None):
        assert stored(schema, given) == given


def test_a_null_in_a_part_that_is_not_nullable_is_refused() -> None:
    for kind, value in (
        (pa.list_(pa.struct([pa.field("a", pa.int32(), nullable=False)])), [{"a": None}]),
        (pa.list_(pa.list_(NOT_NULL)), [[None]]),
    ):
        with pytest.raises(siltstone.Invalid, match="has a null where its schema says not null"):
            stored(of(kind), value)


@pytest.mark.parametrize("kind", [pa.string(), pa.binary()])
def test_an_empty_key_is_refused_with_the_way_on(memory_url: str, kind: pa.DataType) -> None:
    empty = "" if kind == pa.string() else b""
    columns = pa.schema([pa.field("name", kind, nullable=False), ("n", pa.int8())])
    rows = [{"name": empty, "n": 1}]
    with table.create(memory_url, columns, key=["name"]) as db:
        for call in (
            lambda: db.table.put(rows),
            lambda: db.table.put(pa.Table.from_pylist(rows, columns)),
            lambda: db.table.get(rows[0]),
            lambda: db.table.get_many(rows),
            lambda: db.table.delete(rows),
        ):
            with pytest.raises(siltstone.Invalid, match='with the key "name desc"') as refused:
                call()
            assert refused.value.context["column"] == "name"
            assert refused.value.context["row"] == "0"
    # Each way on.
    nullable = pa.schema([("name", kind), ("n", pa.int8())])
    for number, (with_empty, key) in enumerate(
        [(nullable, ["name"]), (columns, ["name desc"]), (columns, ["name", "n"])]
    ):
        with table.create(f"{memory_url}-{number}", with_empty, key=key) as db:
            db.table.put(rows)
            assert db.table.get(rows[0]) == rows[0]


@pytest.mark.parametrize("value", [True, np.bool_(True)])
@pytest.mark.parametrize(
    "kind", [pa.int8(), pa.int64(), pa.uint32(), pa.float32(), pa.float64(), pa.decimal128(5, 1)]
)
def test_a_boolean_is_no_number(kind: pa.DataType, value) -> None:
    with pytest.raises(TypeError, match=r"column v is .* it takes a number"):
        stored(of(kind), value)
    with pytest.raises(TypeError, match=r"column v\.item is .* it takes a number"):
        stored(of(pa.list_(kind)), [value])
    assert stored(of(pa.bool_()), value) is True


def test_of_two_entries_of_a_map_a_dict_shows_the_last(memory_url: str) -> None:
    """As docs/howto-tables.md says."""
    columns = pa.schema([("k", pa.int8()), ("m", pa.map_(pa.string(), pa.int8()))])
    twice = pa.table({"k": pa.array([1], pa.int8()), "m": [[("a", 1), ("a", 2)]]}, schema=columns)
    with table.create(memory_url, columns, key=["k"]) as db:
        db.table.put(twice)
        assert db.table.get({"k": 1})["m"] == {"a": 2}
        assert pa.table(db.table.scan())["m"].to_pylist() == [[("a", 1), ("a", 2)]]
