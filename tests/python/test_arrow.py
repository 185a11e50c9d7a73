"""Arrow input and output, with and without pyarrow."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import siltstone
from pace_for_tests import until

BINARY = [
    pa.binary(),
    pa.large_binary(),
    pa.binary_view(),
    pa.string(),
    pa.large_string(),
    pa.string_view(),
]


def rows(count: int) -> tuple[list[bytes], list[bytes]]:
    return [b"key%06d" % i for i in range(count)], [b"value%d" % i for i in range(count)]


@pytest.fixture
def full(db):
    keys, values = rows(5000)
    db.put_many(keys, values)
    return db


def test_a_scan_is_a_table(full) -> None:
    keys, values = rows(5000)
    table = pa.table(full.scan().to_arrow())
    assert table.schema.names == ["key", "value"]
    assert table.schema.types == [pa.binary(), pa.binary()]
    assert table["key"].to_pylist() == keys
    assert table["value"].to_pylist() == values
    table.validate(full=True)
    assert pa.table(full.scan()).equals(table)
    assert pa.table(full.keys()).equals(table)


def test_a_cold_scan_is_a_table(cold) -> None:
    table = pa.table(cold.scan(prefix=b"key01").to_arrow(batch_rows=77))
    assert table["key"].to_pylist() == [b"key%05d" % i for i in range(1000, 2000)]
    assert table["value"].to_pylist() == [b"value%05d" % i for i in range(1000, 2000)]
    backward = pa.table(cold.scan(reverse=True).to_arrow())
    assert backward["key"].to_pylist() == [b"key%05d" % i for i in range(1999, -1, -1)]


@pytest.mark.parametrize("batch_rows", [1, 7, 1000, 5000, 2**40])
def test_batches_hold_as_many_rows_as_asked(full, batch_rows: int) -> None:
    reader = pa.RecordBatchReader.from_stream(full.scan(limit=2000).to_arrow(batch_rows))
    sizes = [batch.num_rows for batch in reader]
    assert sum(sizes) == 2000
    assert all(size == min(batch_rows, 2000) for size in sizes[:-1])
    assert all(sizes)


@pytest.fixture
def long_url(tmp_path) -> str:
    """A database of several parts (8 MiB of tables each), with the newest rows in the memtable."""
    url = str(tmp_path / "long")
    with siltstone.open(url) as db:
        keys = [b"%08d" % i for i in range(0, 240_000, 2)]
        db.put_many(keys, [b"old" * 50] * len(keys))
    with siltstone.open(url) as db:
        keys = [b"%08d" % i for i in range(1, 240_000, 2)]
        db.put_many(keys, [b"new" * 50] * len(keys))
    return url


def test_a_long_scan_read_by_threads_gives_rows_in_order(long_url: str) -> None:
    with siltstone.open(long_url) as db:
        db.put_many([b"%08d" % i for i in range(0, 240_000, 7)], [b"x"] * 34_286)
        db.delete(b"00000008")
        reader = pa.RecordBatchReader.from_stream(db.scan().to_arrow(batch_rows=10_000))
        db.put(b"00000008", b"too late for the scan")
        batches = list(reader)
        table = pa.Table.from_batches(batches)
        assert max(batch.num_rows for batch in batches) <= 10_000
        expected = [row for row in db.items() if row[0] != b"00000008"]
        assert table["key"].to_pylist() == [key for key, _ in expected]
        assert table["value"].to_pylist() == [value for _, value in expected]
        ranged = pa.table(db.scan(b"00010000", b"00230000").to_arrow())
        keys = [key for key, _ in expected if b"00010000" <= key < b"00230000"]
        assert ranged["key"].to_pylist() == keys


def test_a_long_scan_may_be_left_in_the_middle(long_url: str) -> None:
    for _ in range(20):
        with siltstone.open_reader(long_url) as reader:
            stream = pa.RecordBatchReader.from_stream(reader.scan().to_arrow(batch_rows=1000))
            assert next(stream).num_rows == 1000
            del stream
    # The thread of a dropped stream ends with its next batch.
    until(lambda: scan_threads() == 0)


def scan_threads() -> int:
    names = [task.joinpath("comm") for task in Path("/proc/self/task").iterdir()]
    return sum(name.read_text() == "siltstone-scan\n" for name in names if name.exists())


def test_batches_are_cut_by_bytes_too(memory_url: str) -> None:
    with siltstone.open(memory_url) as db:
        for i in range(20):
            db[b"%02d" % i] = bytes([i]) * (8 << 20)
        reader = pa.RecordBatchReader.from_stream(db.scan().to_arrow())
        sizes = [batch.nbytes for batch in reader]
    assert len(sizes) >= 2
    assert max(sizes) <= (64 << 20) + (8 << 20) + 4096


def test_an_empty_scan_is_an_empty_table(db) -> None:
    table = pa.table(db.scan().to_arrow())
    assert table.num_rows == 0
    assert table.schema.names == ["key", "value"]
    assert pa.schema(db.scan().to_arrow()).names == ["key", "value"]
    used = db.scan()
    assert list(used) == []
    assert pa.table(used).num_rows == 0


def test_a_requested_schema_is_honoured(full) -> None:
    wide = pa.schema([("key", pa.large_binary()), ("value", pa.large_binary())])
    stream = full.scan().to_arrow()
    reader = pa.RecordBatchReader.from_stream(stream, schema=wide)
    assert reader.schema.types == [pa.large_binary(), pa.large_binary()]
    assert reader.read_all().num_rows == 5000


def test_arrays_outlive_the_database(memory_url: str) -> None:
    with siltstone.open(memory_url) as db:
        db[b"a"] = b"1"
        table = pa.table(db.scan().to_arrow())
        values = db.get_many(pa.array([b"a", b"b"]))
    assert table.to_pylist() == [{"key": b"a", "value": b"1"}]
    assert values.to_pylist() == [b"1", None]


@pytest.mark.parametrize("kind", BINARY, ids=str)
def test_get_many_takes_arrays_and_answers_with_one(full, kind) -> None:
    asked = ["key000001", "absent", None, "key004999", "key000001"]
    values = full.get_many(pa.array(asked, pa.string()).cast(kind))
    assert isinstance(values, pa.BinaryArray)
    assert values.to_pylist() == [b"value1", None, None, b"value4999", b"value1"]
    values.validate(full=True)


def test_get_many_takes_slices_chunks_and_fixed_sizes(full) -> None:
    keys, _ = rows(100)
    array = pa.array(keys)
    assert full.get_many(array[10:20]).to_pylist() == [b"value%d" % i for i in range(10, 20)]
    chunked = pa.chunked_array([keys[:3], keys[3:50]])
    assert full.get_many(chunked).to_pylist() == [b"value%d" % i for i in range(50)]
    fixed = pa.array(keys, pa.binary(9))
    assert full.get_many(fixed[5:7]).to_pylist() == [b"value5", b"value6"]
    assert full.get_many(pa.array([], pa.binary())).to_pylist() == []
    assert full.get_many(pa.array([None, None], pa.binary())).to_pylist() == [None, None]


@pytest.mark.parametrize("kind", BINARY, ids=str)
def test_tables_are_written_as_one_batch(db, kind) -> None:
    keys = pa.array(["a", "b", "c"]).cast(kind)
    values = pa.array(["1", "", "3"]).cast(kind)
    table = pa.table({"value": values, "other": [1, 2, 3], "key": keys})
    first = db.write(table)
    assert dict(db) == {b"a": b"1", b"b": b"", b"c": b"3"}
    second = db.write(table.to_batches()[0])
    assert second.seq == first.seq + 3
    db.put_many(keys, values).wait()
    assert dict(db) == {b"a": b"1", b"b": b"", b"c": b"3"}


def test_streams_and_chunks_are_written(db) -> None:
    keys, values = rows(1000)
    table = pa.table({"key": keys, "value": values})
    db.write(pa.concat_tables([table[:300], table[300:]]).to_reader())
    assert pa.table(db.scan()).equals(table)
    chunks = (
        pa.chunked_array([keys[:10], keys[10:]]),
        pa.chunked_array([values[:700], values[700:]]),
    )
    db.put_many(*chunks)
    assert pa.table(db.scan()).equals(table)


def test_rows_of_a_scan_can_be_written(full, memory_url: str) -> None:
    with siltstone.open(memory_url + "-copy") as copy:
        copy.write(full.scan())
        assert pa.table(copy.scan()).equals(pa.table(full.scan()))


@pytest.mark.parametrize(
    ("data", "error", "text"),
    [
        (pa.table({"key": [b"a"]}), siltstone.Invalid, "value"),
        (pa.table({"k": [b"a"], "value": [b"a"]}), siltstone.Invalid, "key"),
        (
            pa.table({"key": [b"a", None], "value": [b"a", b"b"]}),
            siltstone.Invalid,
            "key 1 is null",
        ),
        (
            pa.table({"key": [b"a"], "value": pa.array([None], pa.binary())}),
            siltstone.Invalid,
            "null",
        ),
        (pa.table({"key": [1], "value": [b"a"]}), TypeError, "Int64"),
        (pa.table({"key": [b""], "value": [b"a"]}), siltstone.Invalid, "key"),
    ],
)
def test_data_that_is_no_batch_is_refused_whole(db, data, error, text) -> None:
    with pytest.raises(error, match=text):
        db.write(data)
    assert list(db) == []


def test_columns_that_do_not_fit_are_refused(db) -> None:
    with pytest.raises(siltstone.Invalid, match="2 keys and 1 values"):
        db.put_many(pa.array([b"a", b"b"]), pa.array([b"1"]))
    with pytest.raises(TypeError, match="both"):
        db.put_many(pa.array([b"a"]), [b"1"])
    with pytest.raises(TypeError, match="Int64"):
        db.get_many(pa.array([1, 2]))
    with pytest.raises(siltstone.Invalid, match="null"):
        db.put_many(pa.array([b"a"]), pa.array([None], pa.binary()))
    assert list(db) == []


def test_a_column_that_is_there_twice_is_refused(db) -> None:
    twice = pa.Table.from_arrays([pa.array([b"a"])] * 3, names=["key", "value", "key"])
    for take in (db.write, db.load):
        with pytest.raises(siltstone.Invalid, match="two columns have the name key"):
            take(twice)
    assert list(db) == []


def test_too_much_for_one_batch_points_to_load(memory_url: str) -> None:
    with siltstone.open(memory_url, options={"max_batch_bytes": 4096}) as db:
        table = pa.table({"key": [b"%d" % i for i in range(1000)], "value": [b"v" * 10] * 1000})
        with pytest.raises(ValueError, match="load"):
            db.write(table)
        assert list(db) == []


def test_damaged_blocks_reach_the_consumer_as_an_error(url: str, tmp_path) -> None:
    with siltstone.open(url, options={"block_bytes": 256}) as db:
        db.put_many(*rows(2000))
    (table,) = (tmp_path / "db" / "compacted").glob("*.sst")
    damaged = bytearray(table.read_bytes())
    damaged[len(damaged) // 3] ^= 0xFF
    table.chmod(0o644)
    table.write_bytes(damaged)
    with siltstone.open_reader(url) as reader:
        with pytest.raises(siltstone.Corruption):
            list(reader.scan())
        with pytest.raises((OSError, pa.ArrowException), match=r"(?i)checksum|corrupt"):
            pa.table(reader.scan())


def test_it_all_works_without_pyarrow(python) -> None:
    status, out, err = python(
        """
import sys
sys.modules["pyarrow"] = None  # importing it fails
import arro3.core as arro3
import siltstone
with siltstone.open("memory://x") as db:
    keys = arro3.Array([b"a", b"b", b"c"], arro3.DataType.binary())
    values = arro3.Array([b"1", b"2", b"3"], arro3.DataType.binary())
    db.put_many(keys, values)
    db.write(arro3.RecordBatch.from_pydict({"key": keys, "value": values}))
    table = arro3.Table.from_arrow(db.scan())
    print(table.num_rows, table.schema.names, bytes(table["value"][2].as_py()))
    answer = db.get_many(arro3.Array([b"b", b"x"], arro3.DataType.binary()))
    print(type(answer).__module__.split(".")[0], answer.to_pylist())

    class Foreign:
        def __init__(self, array): self.array = array
        def __arrow_c_array__(self, requested_schema=None):
            return self.array.__arrow_c_array__(requested_schema)

    answer = db.get_many(Foreign(keys))
    print(type(answer).__name__, len(answer), arro3.Array.from_arrow(answer).to_pylist())
"""
    )
    assert status == 0, err
    assert out.splitlines() == [
        "3 ['key', 'value'] b'3'",
        "arro3 [b'2', None]",
        "ArrowArray 3 [b'1', b'2', b'3']",
    ]


def test_columns_of_pandas_are_keys_and_values(db) -> None:
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame({"key": ["a", "b"], "value": ["1", "2"]})
    db.put_many(frame["key"], frame["value"])
    asked = [
        frame["key"],
        frame["key"].astype("category"),
        frame["key"].astype("string"),
        pd.Index(["a", "b"]),
        pd.Series([b"a", b"b"]),
    ]
    for keys in asked:
        assert pa.array(db.get_many(keys)).to_pylist() == [b"1", b"2"], keys
    assert pa.array(db.get_many(pd.Series([b"a", None]))).to_pylist() == [b"1", None]


def test_a_failing_stream_of_keys_is_invalid(db) -> None:
    class Failing:
        """A stream of another library, which fails after its schema."""

        def __arrow_c_stream__(self, requested=None):
            batches = (1 // 0 for _ in range(1))
            schema = pa.schema([("key", pa.binary())])
            reader = pa.RecordBatchReader.from_batches(schema, batches)
            return reader.__arrow_c_stream__(requested)

    for call in (db.get_many, lambda keys: db.put_many(keys, pa.array([b"1"]))):
        with pytest.raises(siltstone.Invalid, match=r"by zero$"):
            call(Failing())
