"""Frames as users have them: columns without a type, categories, the index of pandas, other widths
and units; streams that fail; durations in each form."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import siltstone
from aio_for_tests import run
from siltstone import aio

KEYS = pa.field("k", pa.int64(), nullable=False)
COLUMNS = pa.schema(
    [
        KEYS,
        pa.field("n", pa.int64()),
        pa.field("small", pa.int16()),
        pa.field("s", pa.string()),
        pa.field("t", pa.timestamp("us")),
        pa.field("b", pa.binary()),
        pa.field("d", pa.decimal128(10, 2)),
        pa.field("f", pa.float64()),
        pa.field("yes", pa.bool_()),
    ]
)


@pytest.fixture
def visits(memory_url: str):
    with siltstone.table.create(memory_url, COLUMNS, key=["k"]) as db:
        yield db.table


def stored(table) -> list[dict]:
    rows = pa.table(table.scan()).to_pylist()
    return [{name: value for name, value in row.items() if value is not None} for row in rows]


FITTING = {
    "arrow nulls": (lambda: pa.table({"k": [1], "s": pa.nulls(1)}), {}),
    "pandas nulls": (lambda: pd.DataFrame({"k": [1], "s": [None]}), {}),
    "polars nulls": (lambda: pl.DataFrame({"k": [1], "s": [None], "n": [7]}), {"n": 7}),
    "dictionary": (
        lambda: pa.table({"k": [1], "s": pa.array(["x"]).dictionary_encode()}),
        {"s": "x"},
    ),
    "pandas category": (
        lambda: pd.DataFrame({"k": [1], "s": pd.Categorical(["x"])}),
        {"s": "x"},
    ),
    "polars category": (
        lambda: pl.DataFrame({"k": [1], "s": pl.Series(["x"], dtype=pl.Categorical)}),
        {"s": "x"},
    ),
    "filtered pandas": (
        lambda: pd.DataFrame({"k": [0, 1], "s": ["w", "x"]}).query("k > 0"),
        {"s": "x"},
    ),
    "smaller integer": (lambda: pa.table({"k": [1], "n": pa.array([7], pa.int32())}), {"n": 7}),
    "unsigned": (lambda: pa.table({"k": pa.array([1], pa.uint8()), "n": [7]}), {"n": 7}),
    "wider integer": (lambda: pa.table({"k": [1], "small": [7]}), {"small": 7}),
    "milliseconds": (
        lambda: pa.table({"k": [1], "t": pa.array([7], pa.timestamp("ms"))}),
        {"t": pd.Timestamp("1970-01-01 00:00:00.007").to_pydatetime()},
    ),
    "nanoseconds": (
        lambda: pa.table({"k": [1], "t": pa.array([7_000], pa.timestamp("ns"))}),
        {"t": pd.Timestamp("1970-01-01 00:00:00.000007").to_pydatetime()},
    ),
    "text as bytes": (lambda: pa.table({"k": [1], "b": ["x"]}), {"b": b"x"}),
    "fixed bytes": (
        lambda: pa.table({"k": [1], "b": pa.array([b"xy"], pa.binary(2))}),
        {"b": b"xy"},
    ),
    "decimal of another scale": (
        lambda: pa.table({"k": [1], "d": pa.array([Decimal("1.5")], pa.decimal128(5, 1))}),
        {"d": Decimal("1.50")},
    ),
    "float32": (lambda: pa.table({"k": [1], "f": pa.array([0.5], pa.float32())}), {"f": 0.5}),
}


@pytest.mark.parametrize("name", FITTING)
@pytest.mark.parametrize("method", ["put", "load"])
def test_a_frame_that_loses_nothing_is_taken(visits, method: str, name: str) -> None:
    frame, rest = FITTING[name]
    getattr(visits, method)(frame())
    assert stored(visits) == [{"k": 1, **rest}]


LOSING = {
    "integer": (lambda: pa.table({"k": [1, 2], "small": [7, 40_000]}), "small"),
    "negative": (lambda: pa.table({"k": pa.array([2**63], pa.uint64())}), "k"),
    "nanoseconds": (
        lambda: pa.table({"k": [1], "t": pa.array([7_001], pa.timestamp("ns"))}),
        "t",
    ),
    "digits": (
        lambda: pa.table({"k": [1], "d": pa.array([Decimal("1.555")], pa.decimal128(5, 3))}),
        "d",
    ),
    "float as integer": (lambda: pa.table({"k": [1], "n": [0.5]}), "n"),
    "other column": (lambda: pa.table({"k": [1], "extra": [1]}), "extra"),
}


@pytest.mark.parametrize("name", LOSING)
@pytest.mark.parametrize("method", ["put", "load"])
def test_a_frame_that_would_lose_something_is_refused_by_column(
    visits, method: str, name: str
) -> None:
    frame, column = LOSING[name]
    with pytest.raises(siltstone.Invalid, match=f"column: {column}"):
        getattr(visits, method)(frame())
    assert stored(visits) == []


# --- pandas ---------------------------------------------------------------------------------------

NAN = float("nan")
DAY = pd.Timestamp("2026-01-02")
MISSING = {
    "integers": ("n", [7.0, NAN], [7, None]),
    "integers without a gap": ("n", [7.0, -8.0], [7, -8]),
    "narrow integers": ("small", np.array([7, NAN], "float32"), [7, None]),
    "the largest exact integer": ("n", [2.0**53 - 1, NAN], [2**53 - 1, None]),
    "nullable integers": ("n", pd.array([7, None], "Int64"), [7, None]),
    "nullable narrow integers": ("n", pd.array([7, pd.NA], "UInt8"), [7, None]),
    "nullable floats": ("n", pd.array([7.0, None], "Float64"), [7, None]),
    "integers of pyarrow": ("n", pd.array([7, None], "int64[pyarrow]"), [7, None]),
    "objects": ("n", pd.Series([7, pd.NA], dtype=object), [7, None]),
    "nullable text": ("s", pd.array(["x", pd.NA], "string"), ["x", None]),
    "text": ("s", ["x", NAN], ["x", None]),
    "nullable booleans": ("yes", pd.array([True, None], "boolean"), [True, None]),
    "booleans": ("yes", [True, None], [True, None]),
    "times": ("t", [DAY, pd.NaT], [DAY.to_pydatetime(), None]),
    "decimals": ("d", [Decimal("1.5"), NAN], [Decimal("1.50"), None]),
    "long decimals": ("d", [Decimal("1.5" + "0" * 40), None], [Decimal("1.50"), None]),
    "floats": ("f", [0.5, NAN], [0.5, None]),
    "nothing for integers": ("n", [NAN, NAN], [None, None]),
    "nothing for text": ("s", [NAN, NAN], [None, None]),
    "nothing for times": ("t", [NAN, NAN], [None, None]),
    "nothing for booleans": ("yes", pd.array([None, None], "boolean"), [None, None]),
}


@pytest.mark.parametrize("name", MISSING)
@pytest.mark.parametrize("method", ["put", "load", "load in pieces", "aio put", "aio load"])
def test_missing_values_of_pandas_are_nulls(visits, method: str, name: str) -> None:
    column, values, expected = MISSING[name]
    frame = pd.DataFrame({"k": [1, 2], column: values})
    if method == "load in pieces":
        visits.load(iter([frame.iloc[:1], frame.iloc[1:]]))
    elif method.startswith("aio"):
        handle = aio.Database(visits._handle).table
        run(getattr(handle, method.removeprefix("aio "))(frame))
    else:
        getattr(visits, method)(frame)
    assert pa.table(visits.scan(columns=[column]))[column].to_pylist() == expected


WRONG = {
    "fraction": ("n", [7.5, NAN], "truncated"),
    "too large": ("small", [40_000.0, NAN], "truncated"),
    "endless": ("n", [float("inf"), NAN], "stands for several whole numbers"),
    "inexact": ("n", [NAN, 2.0**53], r"stands for several .*column: n, row: 1"),
    "inexact 32 bits": ("n", np.array([-(2.0**24)], "float32"), "stands for several"),
    "many digits": ("d", [Decimal("1" * 40)], "does not fit"),
    "float for text": ("s", [0.5, NAN], "another type"),
}


@pytest.mark.parametrize("name", WRONG)
@pytest.mark.parametrize("method", ["put", "load"])
def test_a_frame_of_pandas_that_would_change_is_refused_by_column(
    visits, method: str, name: str
) -> None:
    column, values, text = WRONG[name]
    frame = pd.DataFrame({"k": range(len(values)), column: values})
    with pytest.raises(siltstone.Invalid, match=text) as refused:
        getattr(visits, method)(frame)
    assert refused.value.context["column"] == column
    assert f"column: {column}" in str(refused.value)
    assert stored(visits) == []


def test_keys_in_a_frame_of_pandas_may_be_floats(visits) -> None:
    visits.put([{"k": 1, "s": "x"}, {"k": 2, "s": "y"}])
    keys = pd.DataFrame({"k": [2.0, 3.0]})
    assert pa.record_batch(visits.get_many(keys))["s"].to_pylist() == ["y", None]
    encoded = siltstone.table.encode_key(visits.schema, keys)
    same = siltstone.table.encode_key(visits.schema, [{"k": 2}, {"k": 3}])
    assert pa.array(encoded) == pa.array(same)
    visits.delete(keys)
    assert stored(visits) == [{"k": 1, "s": "x"}]
    missing = pd.DataFrame({"k": [1.0, NAN], "s": ["x", "y"]})
    with pytest.raises(siltstone.Invalid, match="schema says not null") as refused:
        visits.put(missing)
    assert refused.value.context["column"] == "k"


@pytest.mark.parametrize("missing", [pd.NA, pd.NaT])
@pytest.mark.parametrize("column", ["n", "small", "s", "t", "b", "d", "f", "yes"])
def test_a_missing_value_of_pandas_in_a_dict_is_null(visits, column: str, missing) -> None:
    visits.put([{"k": 1, column: missing}])
    assert visits.get({"k": 1})[column] is None
    with pytest.raises(siltstone.Invalid, match="schema says not null"):
        visits.put([{"k": missing}])


def test_numbers_of_numpy_in_a_dict_are_values(visits) -> None:
    visits.put([{"k": np.int64(1), "n": np.uint8(7), "f": np.float32(0.5), "yes": np.bool_(True)}])
    assert stored(visits) == [{"k": 1, "n": 7, "f": 0.5, "yes": True}]


def test_a_type_that_no_table_has_is_refused_by_column(visits) -> None:
    decimals = pa.array([Decimal("1.5")], pa.decimal256(50, 2))
    with pytest.raises(siltstone.Unsupported, match="column: d"):
        visits.put(pa.table({"k": [1], "d": decimals}))


def test_a_frame_that_pyarrow_refuses_is_refused_as_before(visits) -> None:
    for frame in (
        pd.DataFrame({"k": [1, 2], "s": ["x", 7]}),
        pd.DataFrame([[1, "x", "y"]], columns=["k", "s", "s"]),
    ):
        with pytest.raises(TypeError, match=r"^DataFrame: expected a table"):
            visits.put(frame)


def test_keys_of_another_width_are_found(visits) -> None:
    visits.put([{"k": 1, "s": "x"}])
    asked = pa.table({"k": pa.array([1, 2], pa.int8())})
    assert pa.table(visits.get_many(asked))["s"].to_pylist() == ["x", None]


@pytest.mark.parametrize(
    "row", [{"n": 7}, {"K": 1, "n": 7}, {}], ids=["missing", "misspelt", "empty"]
)
@pytest.mark.parametrize("method", ["put", "delete", "load"])
def test_a_dict_without_a_column_of_the_key_is_refused(memory_url: str, method: str, row) -> None:
    columns = pa.schema([("k", pa.int64()), ("n", pa.int64())])
    with siltstone.table.create(memory_url, columns, key=["k"]) as db:
        db.table.put([{"k": None, "n": 1}])
        with pytest.raises(siltstone.Invalid, match="column: k"):
            getattr(db.table, method)([{"k": 5}, row])
        assert stored(db.table) == [{"n": 1}]


@pytest.mark.parametrize("method", ["write", "load"])
@pytest.mark.parametrize(
    "spare", [[None], [[None]], [{"a": None}]], ids=["nulls", "list of nulls", "struct of nulls"]
)
def test_a_column_of_polars_that_is_not_stored_may_have_no_type(db, method: str, spare) -> None:
    frame = pl.DataFrame({"key": [b"k"], "spare": spare, "value": [b"v"]})
    getattr(db, method)(frame)
    assert db[b"k"] == b"v"


@pytest.mark.parametrize("method", ["write", "load"])
@pytest.mark.parametrize("library", [pl.DataFrame, pa.table], ids=["polars", "pyarrow"])
def test_a_column_of_nulls_is_refused_by_name(db, method: str, library) -> None:
    for column in ["key", "value"]:
        with pytest.raises(siltstone.Invalid, match=f"{column} 0 is null"):
            getattr(db, method)(library({"key": [b"k"], "value": [b"v"], column: [None]}))
    with pytest.raises(siltstone.Invalid, match="is null"):
        getattr(db, method)(library({"key": [None], "value": [None]}))


@pytest.mark.parametrize("array", [lambda: pl.Series([None, None]), lambda: pa.nulls(2)])
def test_keys_without_a_type_are_not_found(db, array) -> None:
    found = db.get_many(array())
    assert (found.to_list() if isinstance(found, pl.Series) else found.to_pylist()) == [None] * 2


def test_polars_gets_the_columns_it_asks_for(db) -> None:
    db[b"a"] = b"1"
    found = db.get_many(pl.Series([b"a", b"b"]))
    assert isinstance(found, pl.Series)
    assert found.to_list() == [b"1", None]


LAZY = pl.LazyFrame({"k": [1], "key": [b"a"], "value": [b"1"]})


def test_a_lazy_frame_of_bytes_is_to_be_collected(db) -> None:
    for call in (
        lambda: db.load(LAZY),
        lambda: db.load([LAZY]),
        lambda: db.get_many(LAZY),
        lambda: db.put_many(LAZY, LAZY),
    ):
        with pytest.raises(TypeError, match=r"LazyFrame.*pass frame\.collect\(\)"):
            call()
    assert list(db) == []
    db.load(LAZY.collect())
    assert db[b"a"] == b"1"


def test_a_lazy_frame_of_a_table_is_to_be_collected(visits) -> None:
    for method in ("put", "load", "delete", "get_many"):
        with pytest.raises(TypeError, match=r"LazyFrame.*pass frame\.collect\(\)"):
            getattr(visits, method)(LAZY.select("k"))
        getattr(visits, method)(LAZY.select("k").collect())
    with pytest.raises(TypeError, match=r"not one dict: \[\{…\}\]"):
        visits.load({"k": [1]})


@pytest.mark.parametrize("library", [pl.DataFrame, pa.table, pd.DataFrame])
def test_a_frame_is_not_a_column_of_keys(db, library) -> None:
    frame = library({"key": [b"a"], "value": [b"1"]})
    for call in (lambda: db.get_many(frame), lambda: db.put_many(frame, frame)):
        with pytest.raises(TypeError, match=r"keys: .*pass one of them, as in frame\[\"key\"\]"):
            call()
    db.put_many(frame["key"], frame["value"])
    assert db[b"a"] == b"1"


def test_dictionaries_are_taken_everywhere(db) -> None:
    keys = pa.array(["a", "b", "a"]).dictionary_encode()
    values = pa.array([b"x", b"y", b"x"]).dictionary_encode()
    db.put_many(keys, values)
    db.load(pa.table({"key": pa.array(["c"]).dictionary_encode(), "value": ["z"]}))
    db.load([(pa.array(["d"]).dictionary_encode(), pa.array(["z"]))])
    db.write(pd.DataFrame({"key": pd.Categorical(["e"]), "value": ["z"]}))
    assert db.get_many(keys).to_pylist() == [b"x", b"y", b"x"]
    assert [key for key, _ in db.scan()] == [b"a", b"b", b"c", b"d", b"e"]


@pytest.mark.parametrize("method", ["write", "load"])
def test_an_error_of_the_callers_stream_is_the_cause_of_ours(db, method: str) -> None:
    schema = pa.schema([("key", pa.binary()), ("value", pa.binary())])

    def batches():
        yield pa.record_batch({"key": [b"k"], "value": [b"v"]}, schema=schema)
        raise ValueError("the caller's disk is full")

    stream = pa.RecordBatchReader.from_batches(schema, batches())
    with pytest.raises(siltstone.Invalid, match="caller's disk is full") as raised:
        getattr(db, method)(stream)
    assert isinstance(raised.value.__cause__, ValueError)
    assert list(db) == []


def test_an_interrupt_of_the_callers_stream_stays_one(db) -> None:
    schema = pa.schema([("key", pa.binary()), ("value", pa.binary())])

    def batches():
        yield pa.record_batch({"key": [b"k"], "value": [b"v"]}, schema=schema)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        db.load(pa.RecordBatchReader.from_batches(schema, batches()))


@pytest.mark.parametrize("two_hours", ["2h", "120min", 7200, 7200.0, timedelta(hours=2)])
def test_a_duration_has_several_forms(db, two_hours) -> None:
    db.put(b"k", b"v", ttl=two_hours).wait(two_hours)
    batch = siltstone.WriteBatch()
    batch.put(b"l", b"v", ttl=two_hours)
    db.write(batch)
    db.checkpoint(lifetime=two_hours)
    left = [db.get_entry(key).expires - datetime.now(UTC) for key in (b"k", b"l")]
    assert all(timedelta(minutes=119) < time <= timedelta(hours=2) for time in left)


@pytest.mark.parametrize("text", ["2 fortnights", "", "h", "-1h"])
def test_a_text_that_is_no_duration_is_refused_by_name(db, text: str) -> None:
    with pytest.raises(siltstone.Invalid, match=r"ttl|time to live"):
        db.put(b"k", b"v", ttl=text)


def nested(kind: str, rows: int) -> tuple[pa.Array, list]:
    """A column whose slices the import of Arrow data does not take."""
    value, of_type = {
        "struct": (lambda n: {"a": {"x": n}}, pa.struct([("a", pa.struct([("x", pa.int64())]))])),
        "fixed list": (
            lambda n: [{"x": n}, None],
            pa.list_(pa.struct([("x", pa.int64())]), 2),
        ),
        "list": (
            lambda n: [{"a": {"x": n}}] * n,
            pa.list_(pa.struct([("a", pa.struct([("x", pa.int64())]))])),
        ),
    }[kind]
    values = [value(n) if n % 3 else None for n in range(rows)]
    return pa.array(values, of_type), values


@pytest.mark.parametrize("kind", ["struct", "fixed list", "list"])
def test_slices_of_structs_in_structs_are_taken(memory_url: str, kind: str) -> None:
    meta, values = nested(kind, 8)
    data = pa.table({"k": pa.array(range(8), pa.int64()), "meta": meta})
    stored_type = pa.list_(meta.type.value_type) if kind == "fixed list" else meta.type
    columns = pa.schema([KEYS, ("meta", stored_type)])
    with siltstone.table.create(memory_url, columns, key=["k"]) as db:
        sliced = data.slice(5, 2)
        for rows in (
            sliced,
            sliced.to_batches()[0],
            sliced.to_reader(),
            sliced.to_pandas(types_mapper=pd.ArrowDtype),
        ):
            db.table.put(rows)
            assert pa.table(db.table.scan())["meta"].to_pylist() == values[5:7]
            db.table.delete(sliced)
        db.table.load(data.to_batches(max_chunksize=1))
        assert pa.table(db.table.scan())["meta"].to_pylist() == values


@pytest.mark.parametrize("kind", ["struct", "fixed list", "list"])
def test_slices_beside_keys_and_values_are_taken(db, kind: str) -> None:
    meta, _ = nested(kind, 4)
    data = pa.table({"key": [b"0", b"1", b"2", b"3"], "value": [b"v"] * 4, "meta": meta})
    db.write(data.slice(2, 1))
    db.write(data.slice(3).to_batches()[0])
    assert list(db) == [b"2", b"3"]
    db.load(data.to_batches(max_chunksize=1))
    assert len(list(db)) == 4


class Foreign:
    """Arrow data of a library whose columns are not copied."""

    def __init__(self, data: pa.Table) -> None:
        self.data = data

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.data.__arrow_c_stream__(requested_schema)


def test_slices_of_another_library_are_refused(db) -> None:
    """The import panics, and a panic in Python is no Exception."""
    meta, _ = nested("struct", 3)
    data = pa.table({"key": [b"0", b"1", b"2"], "value": [b"v"] * 3, "meta": meta})
    foreign = Foreign(data.slice(1))
    for call in (lambda: db.write(foreign), lambda: db.load(foreign)):
        with pytest.raises(siltstone.Invalid, match=r"pass pyarrow\.table"):
            call()
    with pytest.raises(siltstone.Invalid, match=r"pass pyarrow\.table"):
        db.get_many(Foreign(data.slice(1)["meta"]))
    assert list(db) == []
    db.write(pa.table(foreign))
    assert list(db) == [b"1", b"2"]
