"""`siltstone.table`: rows by columns. Random rows are compared with pyarrow and with lists."""

from __future__ import annotations

import asyncio
import math
import pickle
import uuid
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import hypothesis.strategies as st
import pyarrow as pa
import pyarrow.compute
import pytest
from hypothesis import given, settings

import siltstone
from siltstone import aio, table

MICRO = timedelta(microseconds=1)
COLUMNS = pa.schema(
    [
        pa.field("country", pa.string(), nullable=False),
        pa.field("day", pa.date32()),
        pa.field("amount", pa.int32()),
        pa.field("note", pa.string()),
    ]
)
KEY = ["country", "day desc"]
CLOCK = datetime(2026, 1, 1, tzinfo=UTC).replace(tzinfo=None)
"""A clock time without a zone."""
DAY = date(2026, 1, 31)


def made(url: str, **more: Any) -> siltstone.Database:
    return table.create(url, COLUMNS, key=KEY, **more)


def rows(stream: Any) -> list[dict[str, Any]]:
    return pa.table(stream).to_pylist()


SOME = [
    {"country": "DE", "day": DAY, "amount": 7, "note": "a"},
    {"country": "DE", "day": date(2026, 1, 30), "amount": None, "note": None},
    {"country": "DE", "day": None, "amount": -1, "note": ""},
    {"country": "DEN", "day": DAY, "amount": 5, "note": "b"},
    {"country": "FR", "day": DAY, "amount": 6, "note": "c"},
]


NESTED = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("tags", pa.list_(pa.string())),
        pa.field(
            "at", pa.struct([pa.field("x", pa.int32(), nullable=False), ("day", pa.date32())])
        ),
        pa.field("counts", pa.map_(pa.string(), pa.list_(pa.decimal128(9, 2)))),
    ]
)


def test_lists_structs_and_maps_are_values(tmp_path) -> None:
    rows = [
        {
            "id": 1,
            "tags": ["a", None, "b"],
            "at": {"x": 5, "day": date(2026, 1, 2)},
            "counts": {"k": [Decimal("1.50"), None], "none": None},
        },
        {"id": 2, "tags": [], "at": {"x": 6, "day": None}, "counts": {}},
        {"id": 3, "tags": None, "at": None, "counts": None},
    ]
    with table.create(tmp_path, NESTED, key=["id"]) as db:
        db.table.put(rows).wait()
        assert [db.table.get({"id": n}) for n in (1, 2, 3)] == rows
        found = pa.table(db.table.scan())
        assert found.schema.field("at").type == NESTED.field("at").type
        assert pa.table(db.table.scan(columns=["tags"]))["tags"].to_pylist() == [
            row["tags"] for row in rows
        ]
        # As Arrow: another order of fields, large lists and strings, fixed lists, other numbers.
        at = pa.array([{"day": None, "x": 9}], pa.struct([("day", pa.null()), ("x", pa.int64())]))
        tags = pa.array([["c"]], pa.large_list(pa.large_string()))
        db.table.put(pa.table({"id": [4], "at": at, "tags": tags}))
        db.table.put(
            pa.table({"id": [5], "tags": pa.array([["p", "q"]], pa.list_(pa.string(), 2))})
        )
        db.flush(memtable=True)
        assert db.table.get({"id": 4})["at"] == {"x": 9, "day": None}
        assert db.table.get({"id": 4})["tags"] == ["c"]
        assert db.table.get({"id": 5})["tags"] == ["p", "q"]
        # The rows of a scan can be put again.
        db.table.put(pa.table(db.table.scan())).wait()
        db.table.add_column(pa.field("more", pa.list_(pa.int8())))
        assert db.table.get({"id": 1}) == {**rows[0], "more": None}
    with siltstone.open(tmp_path) as db:
        assert db.table.get({"id": 1})["counts"]["k"][0] == Decimal("1.50")


@pytest.mark.parametrize(
    ("row", "error", "text"),
    [
        ({"tags": "abc"}, TypeError, r"column tags is list<string>, which str is not"),
        ({"tags": [1]}, TypeError, r"tags\.item"),
        ({"at": {"day": None}}, siltstone.Invalid, r"not null"),
        ({"at": {"x": 1, "z": 2}}, siltstone.Invalid, r"no field 'z'"),
        ({"at": {"x": 2**40}}, siltstone.Invalid, r"at\.x"),
        ({"counts": {None: []}}, siltstone.Invalid, r"key of a map is None"),
        ({"counts": [1]}, TypeError, r"pairs of key and value"),
    ],
)
def test_wrong_nested_values_are_named(tmp_path, row, error, text) -> None:
    with table.create(tmp_path, NESTED, key=["id"]) as db:
        with pytest.raises(error, match=text):
            db.table.put([{"id": 1, **row}])
        assert db.table.get({"id": 1}) is None
        with pytest.raises(siltstone.Unsupported, match="key is not nested"):
            table.create(tmp_path / "other", NESTED, key=["tags"])


def test_rows_by_columns(memory_url: str) -> None:
    with made(memory_url) as db:
        visits = db.table
        assert visits.key == ["country", "day"]
        assert pa.schema(visits.schema) == COLUMNS
        visits.put(SOME[2:]).wait()
        visits.put(pa.Table.from_pylist(SOME[:2], schema=COLUMNS))
        assert rows(visits.scan()) == SOME
        assert visits.get({"country": "DE", "day": DAY}) == SOME[0]
        assert visits.get({"country": "DE", "day": None}) == SOME[2]
        assert visits.get({"country": "XX", "day": DAY}) is None
        visits.delete([{"country": "DEN", "day": DAY}])
        assert [row["country"] for row in rows(visits.scan())] == ["DE", "DE", "DE", "FR"]
        # Read as bytes it is an ordinary database.
        assert len(list(db.keys())) == 4
        assert next(iter(db.keys())).startswith(b"DE\0\0")


def test_a_row_of_plain_bytes_is_named(memory_url: str) -> None:
    """It was put past the table: the error says which one it is, and how to remove it."""
    with made(memory_url) as db:
        db.table.put(SOME)
        for plain in (b"raw", next(iter(db.keys()))):
            db.put(plain, b"raw")
            with pytest.raises(pa.ArrowInvalid) as caught:
                rows(db.table.scan())
            assert "db.delete" in str(caught.value)
            assert "as_bytes" not in str(caught.value), "only Spark has such an option"
            assert repr(plain)[2:-1] in str(caught.value)
            db.delete(plain)
        assert rows(db.table.scan()) == SOME[1:]


def test_one_row_is_no_list_of_rows(memory_url: str) -> None:
    with made(memory_url) as db:
        for call in (db.table.put, db.table.delete, db.table.get_many):
            with pytest.raises(
                TypeError, match="rows is a list of dicts, or Arrow data, not one dict"
            ):
                call(SOME[0])
        with pytest.raises(TypeError, match="not one NoneType"):
            db.table.put(None)
        with pytest.raises(TypeError, match="an Arrow field, not str"):
            db.table.add_column("note")
    with pytest.raises(TypeError, match="an Arrow schema, not dict"):
        table.create(memory_url + "-dict", {"country": "string"}, key=["country"])
    with pytest.raises(siltstone.Invalid, match="a column that is not there"):
        table.create(memory_url + "-key", COLUMNS, key=["nope"])


def test_many_keys_give_a_row_each(memory_url: str) -> None:
    with made(memory_url) as db:
        db.table.put(SOME)
        asked = pa.table({"country": ["FR", "XX", "DE"], "day": pa.array([DAY] * 3, pa.date32())})
        found = db.table.get_many(asked)
        assert isinstance(found, pa.RecordBatch)
        nothing = dict.fromkeys(COLUMNS.names)
        assert found.to_pylist() == [SOME[4], nothing, SOME[0]]
        some = db.table.get_many(asked, columns=["note", "country"])
        assert some.to_pylist()[2] == {"note": "a", "country": "DE"}
        assert some.schema.names == ["note", "country"]
        dicts = db.table.get_many([{"country": "FR", "day": DAY}])
        assert pa.record_batch(dicts).to_pylist() == [SOME[4]]


def test_equality_and_a_range(memory_url: str) -> None:
    with made(memory_url) as db:
        db.table.put(SOME)

        def scan(*args: Any, **named: Any) -> list[dict[str, Any]]:
            return rows(db.table.scan(*args, **named))

        assert scan({"country": "DE"}) == SOME[:3]
        assert scan({"country": "DE", "day": DAY}) == SOME[:1]
        assert scan({"country": "DE"}, start=date(2026, 1, 30)) == SOME[1:3]
        assert scan({"country": "DE"}, end=date(2026, 1, 30)) == SOME[:1]
        assert scan(start="DEN") == SOME[3:]
        assert scan(end="DEN") == SOME[:3]
        assert scan(start="F", end="E") == []
        assert scan({"country": "DE"}, reverse=True, limit=1) == SOME[2:3]
        assert scan(columns=["amount"], limit=1) == [{"amount": 7}]
        assert scan(columns=["day"], limit=1) == [{"day": DAY}]
        assert scan(batch_rows=1) == SOME
        for wrong in ({"day": DAY}, {"amount": 7}, {"country": "DE", "amount": 7}):
            with pytest.raises(siltstone.Invalid):
                db.table.scan(wrong)
        with pytest.raises(siltstone.Invalid, match="behind"):
            db.table.scan({"country": "DE", "day": DAY}, start=1)
        with pytest.raises(TypeError, match="day"):
            db.table.scan({"country": "DE"}, start="2026")


def test_mistakes_are_told(memory_url: str) -> None:
    with made(memory_url) as db:
        whole = SOME[0]
        for wrong, kind, told in (
            ({"day": DAY}, siltstone.Invalid, "country"),
            ({**whole, "country": None}, siltstone.Invalid, "country"),
            ({**whole, "more": 1}, siltstone.Invalid, "more"),
            ({**whole, "amount": "7"}, TypeError, "amount"),
            ({**whole, "amount": 2**40}, siltstone.Invalid, "amount"),
            ({**whole, "day": datetime(2026, 1, 31, tzinfo=UTC)}, TypeError, "day"),
            (7, TypeError, "dict"),
        ):
            with pytest.raises(kind, match=told):
                db.table.put([wrong])
        with pytest.raises(siltstone.Invalid, match="cast"):
            db.table.put(pa.table({"country": ["DE"], "day": [DAY], "amount": [0.5]}))
        assert rows(db.table.scan()) == []
        db[b"DE\0\0\x01"] = b"put as bytes"
        with pytest.raises(Exception, match="column"):
            rows(db.table.scan())
    with siltstone.open(f"{memory_url}-bytes") as db, pytest.raises(siltstone.Invalid):
        _ = db.table
    for key in (["country", "country"], ["amounts"], [], ["country up"]):
        with pytest.raises(siltstone.Invalid):
            table.create("memory://never", COLUMNS, key=key)
    for key in (None, "country"):
        with pytest.raises(TypeError):
            table.create("memory://never", COLUMNS, key=key)


def test_another_schema_is_refused(memory_url: str) -> None:
    made(memory_url).close()
    made(memory_url).close()
    for columns, key in (
        (COLUMNS, ["country", "day"]),
        (COLUMNS, ["day", "country"]),
        (COLUMNS.remove(3), KEY),
        (COLUMNS.append(pa.field("more", pa.int8())), KEY),
        (COLUMNS.set(2, pa.field("amount", pa.int64())), KEY),
    ):
        with pytest.raises(siltstone.Invalid, match="other columns"):
            table.create(memory_url, columns, key=key)
    siltstone.open(f"{memory_url}/bytes").close()
    with pytest.raises(siltstone.Invalid, match="without columns"):
        made(f"{memory_url}/bytes")


def test_readers_and_snapshots_read(url: str) -> None:
    with made(url) as db:
        db.table.put(SOME).wait()
        still = {"manifest_poll_interval": 240}
        with db.snapshot() as snapshot, siltstone.open_reader(url, options=still) as reader:
            db.table.delete(SOME)
            for handle in (snapshot, reader):
                assert rows(handle.table.scan({"country": "DE"})) == SOME[:3]
                assert handle.table.get(SOME[4]) == SOME[4]
                with pytest.raises(TypeError, match="only reads"):
                    handle.table.put(SOME)
        assert rows(db.table.scan()) == []


def test_columns_are_added_and_widened(url: str) -> None:
    with made(url) as db, siltstone.open_reader(url) as reader:
        known = reader.table
        assert known.schema.generation == 1
        db.table.put(SOME[:1])
        db.table.widen_column(pa.field("amount", pa.int64()))
        more = pa.field("more", pa.float64())
        db.table.add_column(more)
        # Changes that already exist have no effect.
        db.table.add_column(more)
        db.table.widen_column(pa.field("amount", pa.int64()))
        db.table.allow_nulls("amount")
        assert db.table.schema.generation == 3
        new = {"country": "A", "day": None, "amount": 2**40, "note": None, "more": 0.5}
        db.table.put([new]).wait()
        assert rows(db.table.scan()) == [new, {**SOME[0], "more": None}]
        # A reader with the older schema looks for a newer one once.
        reader.refresh()
        assert known.get(new) == new
        assert known.schema.generation == 3
        assert rows(known.scan(columns=["more"])) == [{"more": 0.5}, {"more": None}]
        for wrong in (
            lambda: db.table.add_column(pa.field("note", pa.int8())),
            lambda: db.table.add_column(pa.field("day", pa.int8())),
            lambda: db.table.add_column(pa.field("x", pa.int8(), nullable=False)),
            lambda: db.table.widen_column(pa.field("amount", pa.int32())),
            lambda: db.table.widen_column(pa.field("country", pa.binary())),
            lambda: db.table.allow_nulls("nothing"),
        ):
            with pytest.raises(siltstone.Invalid):
                wrong()
        for of_key in (
            lambda: db.table.allow_nulls("country"),
            lambda: db.table.widen_column(pa.field("country", pa.binary())),
        ):
            with pytest.raises(siltstone.Invalid, match=r"part of the key.* create a table with"):
                of_key()
    # The current columns open it, the former ones do not.
    today = pa.schema(
        [COLUMNS.field(0), COLUMNS.field(1), pa.field("amount", pa.int64()), COLUMNS.field(3), more]
    )
    with table.create(url, today, key=KEY) as db:
        assert db.table.schema.generation == 3
    with pytest.raises(siltstone.Invalid):
        made(url)


def test_rows_of_later_columns_say_so(url: str) -> None:
    with made(url) as db, siltstone.open_reader(url) as reader:
        behind, old = reader.table, reader.table.schema
        db.table.add_column(pa.field("more", pa.int8()))
        db.table.put([{**SOME[0], "more": 3}]).wait()
        reader.refresh()
        assert old.generation == 1
        with pytest.raises(Exception, match="read the schema again"):
            rows(old.decode_stream(reader.scan().to_arrow()))
        with pytest.raises(siltstone.Unsupported, match="read the schema again"):
            old.row(*next(iter(reader.scan())))
        behind.refresh()
        assert behind.schema.generation == 2
        assert rows(behind.scan(columns=["more"])) == [{"more": 3}]


def test_the_schema_pickles_and_works_alone(memory_url: str) -> None:
    schema = pickle.loads(pickle.dumps(table.TableSchema(COLUMNS, key=KEY)))
    assert schema == table.TableSchema(COLUMNS, key=KEY)
    assert hash(schema) == hash(table.TableSchema.parse(schema.text))
    batch = pa.RecordBatch.from_pylist(SOME, schema=COLUMNS)
    keys, values = table.encode(schema, batch)
    assert pa.array(keys) == pa.array(table.encode_key(schema, batch))
    assert pa.record_batch(table.decode(schema, keys, values)) == batch
    assert pa.record_batch(table.decode_key(schema, keys)) == batch.select(["country", "day"])
    pairs = pa.table(schema.encode_stream(pa.Table.from_batches([batch, batch])))
    assert pairs.column_names == ["key", "value"]
    assert pa.table(schema.decode_stream(pairs, columns=["note"]))["note"].to_pylist() == [
        row["note"] for row in SOME + SOME
    ]
    with made(memory_url) as db:
        db.write(pa.table(schema.encode_stream(batch)))
        assert rows(db.table.scan()) == SOME


def test_rows_are_loaded_by_one_commit(memory_url: str) -> None:
    with made(memory_url) as db:
        found = db.table.load(pa.Table.from_pylist(SOME[::-1], schema=COLUMNS))
        assert found.rows == len(SOME)
        assert rows(db.table.scan()) == SOME
        newer = [{**row, "amount": n} for n, row in enumerate(SOME)]
        db.table.load(iter(newer), sorted=True)
        assert rows(db.table.scan()) == newer
        with pytest.raises(siltstone.Invalid):
            db.table.load(SOME[::-1], sorted=True)
        assert rows(db.table.scan()) == newer


def test_awaited(memory_url: str) -> None:
    async def work() -> None:
        async with aio.open(memory_url, create=False) as db:
            visits = db.table
            await (await visits.put(SOME))
            assert await visits.get(SOME[0]) == SOME[0]
            assert await visits.get({"country": "X", "day": None}) is None
            found = await visits.get_many(pa.Table.from_pylist(SOME[:2], schema=COLUMNS))
            assert found.to_pylist() == SOME[:2]
            batches = [pa.record_batch(each) async for each in visits.scan({"country": "DE"})]
            assert pa.Table.from_batches(batches).to_pylist() == SOME[:3]
            await visits.delete(SOME[1:])
            await visits.add_column(pa.field("more", pa.int8()))
            only = [pa.record_batch(each) async for each in visits.scan(columns=["more"])]
            assert pa.Table.from_batches(only).to_pylist() == [{"more": None}]
            async with db.snapshot() as snapshot:
                assert (await snapshot.table.get(SOME[0]))["amount"] == 7
                with pytest.raises(TypeError, match="only reads"):
                    await snapshot.table.put(SOME)

    made(memory_url).close()
    asyncio.run(work())


# Every key type of Spark, and a strategy for its values.
INTS = {bits: st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) for bits in (8, 16, 32, 64)}
NUMBERS = st.decimals(
    allow_nan=False, allow_infinity=False, places=2, min_value=-999, max_value=999
)
TYPES: list[tuple[pa.DataType, st.SearchStrategy[Any]]] = [
    (pa.bool_(), st.booleans()),
    (pa.int8(), INTS[8]),
    (pa.int16(), INTS[16]),
    (pa.int32(), INTS[32]),
    (pa.int64(), INTS[64]),
    # -0.0 is 0.0 in a key, and pyarrow sorts NaN with the nulls: both are tested separately.
    (pa.float32(), st.floats(width=32, allow_nan=False).map(lambda x: x + 0.0)),
    (pa.float64(), st.floats(allow_nan=False).map(lambda x: x + 0.0)),
    (pa.decimal128(9, 2), NUMBERS),
    (pa.decimal128(20, 2), NUMBERS),
    (pa.date32(), st.dates()),
    (pa.timestamp("us", "UTC"), st.datetimes(timezones=st.just(UTC))),
    (pa.timestamp("us"), st.datetimes()),
    (pa.string(), st.text(max_size=4)),
    (pa.binary(), st.binary(max_size=4)),
]


@st.composite
def typed(draw: st.DrawFn) -> tuple[pa.Table, list[str], list[tuple[str, str, str]]]:
    """Rows of some types, their key, and their order in pyarrow's terms."""
    width, height = draw(st.integers(1, 4)), draw(st.integers(1, 12))
    columns, key, order = [], [], []
    for number in range(width):
        of, values = draw(st.sampled_from(TYPES))
        descending, last = draw(st.booleans()), draw(st.booleans())
        cells = draw(st.lists(st.none() | values, min_size=height, max_size=height))
        columns.append(pa.array(cells, of))
        words = f"{' desc' if descending else ''} nulls {'last' if last else 'first'}"
        key.append(f"c{number}{words}")
        order.append(
            (
                f"c{number}",
                "descending" if descending else "ascending",
                "at_end" if last else "at_start",
            )
        )
    columns.append(pa.array(range(height), pa.int64()))
    names = [f"c{number}" for number in range(width)] + ["row"]
    return pa.table(columns, names), key, order


def sorted_by(rows: pa.Table, order: list[tuple[str, str, str]]) -> list[int]:
    """The positions of the rows in pyarrow's order."""
    places: list[int] = pa.compute.sort_indices(rows, sort_keys=order).to_pylist()
    return places


@settings(max_examples=150, deadline=None)
@given(typed())
def test_the_order_of_keys_is_that_of_pyarrow(drawn: Any) -> None:
    rows, key, order = drawn
    schema = table.TableSchema(rows.schema, key=key)
    try:
        packed = pa.array(schema.encode_key(rows)).to_pylist()
    except siltstone.Invalid:
        # A key of one empty raw string is refused.
        assert len(key) == 1
        return
    by_bytes = sorted(range(rows.num_rows), key=lambda place: packed[place])
    for mine, theirs in zip(by_bytes, sorted_by(rows, order), strict=True):
        # Rows with equal keys may be in any order.
        assert packed[mine] == packed[theirs]
    again = pa.record_batch(schema.decode(*schema.encode(rows)))
    assert again.to_pylist() == rows.to_pylist()


@settings(max_examples=40, deadline=None)
@given(typed())
def test_dicts_are_what_arrow_is(drawn: Any) -> None:
    rows, key, _ = drawn
    schema = table.TableSchema(rows.schema, key=key)
    try:
        keys, values = schema.encode(rows)
    except siltstone.Invalid:
        return
    dicts = rows.to_pylist()
    by_dicts = schema.encode(dicts)
    assert pa.array(by_dicts[0]) == pa.array(keys)
    assert pa.array(by_dicts[1]) == pa.array(values)
    for row, pair in zip(dicts, zip(pa.array(keys), pa.array(values), strict=True), strict=True):
        assert schema.row(*(one.as_py() for one in pair)) == row


def test_floats_have_one_zero_and_a_last_nan() -> None:
    values = [float("-inf"), -1.5, -0.0, 0.0, 2.0, float("inf"), float("nan")]
    schema = table.TableSchema(pa.schema([pa.field("x", pa.float64())]), key=["x"])
    packed = pa.array(schema.encode_key(pa.table({"x": values}))).to_pylist()
    assert packed == sorted(packed)
    assert packed[2] == packed[3]
    (last,) = pa.record_batch(schema.decode_key(packed_array(packed[-1:]))).to_pylist()
    assert math.isnan(last["x"])


def packed_array(keys: list[bytes]) -> pa.Array:
    return pa.array(keys, pa.binary())


def test_values_that_columns_do_not_hold_are_refused() -> None:
    fields = {
        "n": pa.decimal128(4, 2),
        "s": pa.timestamp("s"),
        "z": pa.timestamp("us", "UTC"),
        "f": pa.binary(2),
    }
    columns = pa.schema([pa.field("k", pa.int8()), *(pa.field(n, t) for n, t in fields.items())])
    schema = table.TableSchema(columns, key=["k"])
    good = {
        "k": 1,
        "n": Decimal("1.5"),
        "s": CLOCK,
        "f": b"ab",
        "z": datetime(2026, 1, 1, tzinfo=UTC),
    }
    assert pa.record_batch(schema.decode(*schema.encode([good]))).to_pylist() == [good]
    for name, wrong in (
        ("n", Decimal("1.555")),
        ("n", Decimal(100)),
        ("n", Decimal("NaN")),
        ("n", 1.5),
        ("s", CLOCK + MICRO),
        ("s", datetime(2026, 1, 1, tzinfo=UTC)),
        ("z", CLOCK),
        ("f", b"abc"),
    ):
        with pytest.raises((siltstone.Invalid, TypeError), match=name):
            schema.encode([{**good, name: wrong}])


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=24), st.binary(max_size=24))
def test_arbitrary_bytes_are_rows_or_refused(key: bytes, value: bytes) -> None:
    schema = table.TableSchema(COLUMNS, key=KEY)
    try:
        schema.row(key, value)
        schema.decode(packed_array([key]), packed_array([value]))
    except (siltstone.Corruption, siltstone.Unsupported, siltstone.Invalid):
        pass


def test_two_that_add_a_column_at_once_agree(memory_url: str) -> None:
    """Each adds its own column and a common one: every column exists once."""
    with made(memory_url) as db:
        first, second = db.table, db.table
        first.add_column(pa.field("same", pa.int8()))
        second.add_column(pa.field("same", pa.int8()))
        second.add_column(pa.field(f"own{uuid.uuid4().hex}", pa.int8()))
        first.add_column(pa.field("first", pa.int8()))
        assert db.table.schema.generation == 4
        assert len(set(db.table.schema.names)) == 7


def test_text_that_is_none_is_refused(memory_url) -> None:
    """A cast without checks makes such text. Before the fix it was stored, and could not be
    read."""
    fields = [pa.field("k", pa.string(), nullable=False), pa.field("v", pa.string())]
    wrong = pa.array([b"fine", b"\xff", None]).cast(pa.string(), safe=False)
    halves = pa.array([b"\xc3", b"\xa4", b"\xc3\xa4"]).cast(pa.string(), safe=False)
    with table.create(memory_url, pa.schema(fields), key=["k"]) as db:
        for kind in [pa.string(), pa.large_string(), pa.string_view()]:
            for bad, row in [(wrong, 1), (halves, 0)]:
                values = pa.array(["a", "b", "c"])
                column = bad.cast(pa.binary()).cast(kind, safe=False) if kind != bad.type else bad
                for rows in (
                    {"k": values, "v": column},
                    {"k": column.slice(0, 2), "v": values[:2]},
                ):
                    told = rf"no UTF-8.*row: {row}"
                    with pytest.raises(siltstone.Invalid, match=told):
                        db.table.put(pa.table(rows))
                    with pytest.raises(siltstone.Invalid, match=told):
                        db.table.load(pa.table(rows))
        # Under a null, any bytes are allowed.
        bytes_of = pa.array([b"a", b"\xff", b"\xc3\xa4"]).buffers()
        valid = pa.py_buffer(bytes([0b101]))
        masked = pa.Array.from_buffers(pa.string(), 3, [valid, *bytes_of[1:]])
        db.table.put(pa.table({"k": ["a", "b", "c"], "v": masked}))
        assert pa.table(db.table.scan()).column("v").to_pylist() == ["a", None, "ä"]


def test_a_load_raises_what_a_put_does(memory_url) -> None:
    fields = [pa.field("k", pa.int32(), nullable=False), pa.field("v", pa.string())]
    with table.create(memory_url, pa.schema(fields), key=["k"]) as db:
        wrong = [
            {"k": pa.array([2**40], pa.int64())},
            {"k": pa.array([None], pa.int32())},
            {"k": pa.array([1], pa.int32()), "other": [1]},
        ]
        for rows in wrong:
            for call in (db.table.put, db.table.load):
                with pytest.raises(siltstone.Invalid, match="column"):
                    call(pa.table(rows))
        half = pa.table({"k": pa.array([1], pa.int32()), "v": pa.array([1], pa.duration("us"))})
        with pytest.raises(siltstone.Unsupported):
            db.table.load(half)
        for data in (pa.array([1]), (pa.array([b"a"]), pa.array([b"b"]))):
            with pytest.raises(TypeError, match="columns"):
                db.load(data)
        with pytest.raises(TypeError, match="by columns"):
            db.table.get("k")
        with pytest.raises(siltstone.Invalid, match="lacks a column of the key"):
            db.table.put([{"v": "a"}])


def test_a_load_takes_its_rows_as_they_come(memory_url) -> None:
    fields = [pa.field("k", pa.int64(), nullable=False), pa.field("v", pa.string())]
    count = 20_000
    with table.create(memory_url, pa.schema(fields), key=["k"]) as db:
        assert db.table.load({"k": n, "v": "dict"} for n in range(count)).rows == count
        of = [pa.record_batch({"k": pa.array([-n]), "v": [str(n)]}) for n in (1, 2)]
        mixed = iter(
            [of[0], {"k": -3, "v": None}, {"k": -4, "v": "4"}, pa.Table.from_batches(of[1:])]
        )
        assert db.table.load(mixed).rows == 4
        assert db.table.load([]).rows == 0
        head = pa.table(db.table.scan(limit=5)).to_pydict()
        assert head == {"k": [-4, -3, -2, -1, 0], "v": ["4", None, "2", "1", "dict"]}
        assert sum(1 for _ in db) == count + 4
        with pytest.raises(siltstone.Invalid, match="lacks a column of the key"):
            db.table.load(iter([of[0], {"k": -5}, {"v": "no key"}]))
        assert sum(1 for _ in db) == count + 4
        with pytest.raises(TypeError, match="a list of names"):
            db.table.scan(columns="kv")
        with pytest.raises(TypeError):
            db.table.load(iter([5]))
        # Columns of a table are not key and value columns, for any number of columns.
        for columns in (None, ["k"], ["v"]):
            for given in (db.table.scan(columns=columns), [db.table.scan(columns=columns)]):
                with pytest.raises(siltstone.Invalid, match="the column key is missing"):
                    db.load(given)

    async def work() -> None:
        async with aio.open(memory_url) as db:
            loaded = await db.table.load({"k": n, "v": "new"} for n in range(3))
            assert loaded.rows == 3
            assert (await db.table.get({"k": 2}))["v"] == "new"

    asyncio.run(work())


def test_two_columns_of_one_name_are_refused() -> None:
    twice = pa.schema([("k", pa.int8()), ("k", pa.string()), ("v", pa.string())])
    with pytest.raises(siltstone.Invalid, match="one name"):
        table.TableSchema(twice, key=["k"])


def test_a_number_beyond_32_bits_is_refused() -> None:
    schema = table.TableSchema(pa.schema([("k", pa.float32())]), key=["k"])
    schema.encode_key([{"k": 0.5}, {"k": math.inf}, {"k": math.nan}, {"k": 2.0**127}])
    with pytest.raises(siltstone.Invalid, match="32 bits"):
        schema.encode_key([{"k": 1e39}])


def test_a_number_that_no_float_equals_is_refused() -> None:
    wide = table.TableSchema(pa.schema([("k", pa.int8()), ("f", pa.float64())]), key=["k"])
    narrow = table.TableSchema(pa.schema([("k", pa.int8()), ("f", pa.float32())]), key=["k"])
    within = [5, 2**60, Decimal("0.5"), 0.1, math.nan]
    assert len(pa.array(wide.encode([{"k": n, "f": of} for n, of in enumerate(within)])[0])) == 5
    narrow.encode([{"k": 1, "f": 0.1}, {"k": 2, "f": 2**24}])
    for schema, wrong in (
        (wide, 2**53 + 1),
        (wide, Decimal("0.1")),
        (wide, 10**400),
        (narrow, 2**24 + 1),
    ):
        with pytest.raises(siltstone.Invalid) as raised:
            schema.encode([{"k": 1, "f": wrong}])
        assert raised.value.context["column"] == "f"


def test_a_number_is_no_timestamp() -> None:
    schema = table.TableSchema(
        pa.schema([("k", pa.int8()), ("t", pa.timestamp("us", "UTC"))]), key=["k"]
    )
    for wrong in (5, 5.0, True):
        with pytest.raises(TypeError, match=r"column t is .*: it takes a datetime"):
            schema.encode([{"k": 1, "t": wrong}])
    # As Arrow data of numbers.
    with pytest.raises(siltstone.Invalid):
        schema.encode(pa.table({"k": pa.array([1], pa.int8()), "t": [5]}))


def test_pairs_of_a_map_have_different_keys() -> None:
    schema = table.TableSchema(
        pa.schema([("k", pa.int8()), ("m", pa.map_(pa.binary(), pa.int8()))]), key=["k"]
    )
    schema.encode([{"k": 1, "m": [(b"a", 1), (b"b", 2)]}])
    for pairs in ([(b"a", 1), (b"a", 2)], [(b"a", 1), (bytearray(b"a"), 1)]):
        with pytest.raises(siltstone.Invalid, match="two pairs of a map have the key") as raised:
            schema.encode([{"k": 1, "m": pairs}])
        assert raised.value.context["column"] == "m"


@pytest.mark.parametrize("kind", ["list", "struct", "map", "dictionary"])
def test_types_that_are_nested_very_deep_are_refused(memory_url: str, kind: str) -> None:
    """The import of Arrow types calls itself, and would overflow the stack."""
    around = {
        "list": pa.list_,
        "struct": lambda within: pa.struct([("f", within)]),
        "map": lambda within: pa.map_(pa.string(), within),
        "dictionary": lambda within: pa.dictionary(pa.int8(), within),
    }
    deep = pa.int8()
    for _ in range(2500):
        deep = around[kind](deep)
    schema = table.TableSchema(pa.schema([("k", pa.int8()), ("v", pa.int8())]), key=["k"])
    calls = [
        lambda: table.TableSchema(pa.schema([("k", pa.int8()), ("v", deep)]), key=["k"]),
        lambda: schema.with_column(pa.field("w", deep)),
        lambda: schema.has(pa.field("v", deep)),
    ]
    if kind != "dictionary":
        nulls = pa.nulls(1, deep)
        rows = pa.record_batch({"k": pa.array([1], pa.int8()), "v": nulls})
        reader = pa.RecordBatchReader.from_batches(rows.schema, [rows])
        calls += [lambda: schema.encode(rows), lambda: schema.encode(reader)]
        with (
            siltstone.open(memory_url) as db,
            pytest.raises(siltstone.Invalid, match="nested too deep"),
        ):
            db.put_many(nulls, nulls)
    for call in calls:
        with pytest.raises(siltstone.Invalid, match="nested too deep"):
            call()
    with pytest.raises(siltstone.Corruption, match="nested less deep"):
        table.TableSchema.parse(f"keys 1 (k int8)\nvalues 1 generation 1 (v {'list<' * 10**5})")


def test_create_opens_a_table_to_which_columns_were_added(url: str) -> None:
    """Before the fix, a program that opens its table by `create` did not start any more after
    another had added a column."""
    columns = pa.schema([pa.field("k", pa.int32(), nullable=False), pa.field("v", pa.int32())])
    with table.create(url, columns, key=["k"]) as db:
        db.table.add_column(pa.field("more", pa.string()))
    with table.create(url, columns, key=["k"]) as db:
        db.table.put([{"k": 1, "v": 2}])
        assert db.table.get({"k": 1}) == {"k": 1, "v": 2, "more": None}
        db.table.widen_column(pa.field("v", pa.int64()))
    with pytest.raises(siltstone.Invalid, match="made with other columns"):
        table.create(url, columns, key=["k"])
