"""Memtables, merges and filters, each alone, compared with Python's dict and sorted."""

from __future__ import annotations

import io
import os
import pickle
import threading
import time
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import siltstone
from siltstone import lsm

KEYS = st.binary(min_size=1, max_size=6)
VALUES = st.binary(max_size=20)


def table(rows, **how) -> lsm.SstReader:
    """A reader of a table of these rows, in memory."""
    file = io.BytesIO()
    with lsm.SstWriter(file, **how) as writer:
        for key, value in rows:
            writer.add(key, value)
    return lsm.SstReader(file.getvalue())


# --- MemTable -----------------------------------------------------------------------------------

OPERATIONS = st.lists(st.tuples(KEYS, st.none() | VALUES), max_size=40)


@given(operations=OPERATIONS, probe=KEYS)
@settings(deadline=None)
def test_a_memtable_keeps_every_version(
    operations: list[tuple[bytes, bytes | None]], probe: bytes
) -> None:
    memtable = lsm.MemTable()
    models: list[dict[bytes, bytes]] = [{}]
    for key, value in operations:
        model = dict(models[-1])
        if value is None:
            assert memtable.delete(key) == len(models)
            model.pop(key, None)
        else:
            assert memtable.put(key, value) == len(models)
            model[key] = value
        models.append(model)
    assert memtable.seq == len(memtable) == len(operations)
    assert list(memtable.scan()) == sorted(models[-1].items())
    for seq, model in enumerate(models):
        snapshot = memtable.snapshot(seq)
        assert snapshot.seq == seq
        assert list(snapshot.scan(reverse=True)) == sorted(model.items(), reverse=True)
        assert snapshot.get(probe) == model.get(probe)
        assert snapshot.get_many([probe]) == [model.get(probe)]
    with pytest.raises(siltstone.Invalid):
        memtable.snapshot(len(operations) + 1)


def test_a_memtable_takes_batches_and_columns() -> None:
    memtable = lsm.MemTable()
    assert memtable.put_many([b"b", b"a"], [b"2", b"1"]) == 2
    assert memtable.put_many(pa.array([b"c"] * 5000), pa.array([b"3"] * 5000)) == 5002
    batch = siltstone.WriteBatch()
    batch.delete(b"a")
    batch.put(b"d", b"4", ttl=3600)
    assert memtable.write(batch) == 5004
    memtable[b"e"] = b"5"
    del memtable[b"b"]
    assert list(memtable.items()) == [(b"c", b"3"), (b"d", b"4"), (b"e", b"5")]
    assert memtable.nbytes > 5000
    with pytest.raises(siltstone.Invalid):
        memtable.put_many([b"x", b""], [b"", b""])
    assert b"x" not in memtable
    memtable.put(b"gone", b"", ttl=0.001)
    time.sleep(0.01)
    assert b"gone" not in memtable


def test_a_memtable_is_read_while_it_is_written() -> None:
    memtable = lsm.MemTable()
    done = threading.Event()

    def write_all() -> None:
        for n in range(0, 20_000, 10):
            memtable.put_many([b"%06d" % (n + i) for i in range(10)], [b""] * 10)
        done.set()

    writer = threading.Thread(target=write_all)
    writer.start()
    while not done.is_set():
        assert len(list(memtable.keys())) % 10 == 0
    writer.join()
    assert len(list(memtable)) == 20_000


# --- Merging ------------------------------------------------------------------------------------


@given(
    parts=st.lists(st.dictionaries(KEYS, st.none() | VALUES, max_size=20), max_size=5),
    kinds=st.lists(st.sampled_from(["table", "memtable", "snapshot"]), min_size=5, max_size=5),
    bounds=st.tuples(st.none() | KEYS, st.none() | KEYS),
    limit=st.none() | st.integers(0, 30),
)
@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_a_merge_is_a_chain_of_dicts(
    parts: list[dict[bytes, bytes | None]],
    kinds: list[str],
    bounds: tuple[bytes | None, bytes | None],
    limit: int | None,
) -> None:
    readers, model = [], {}
    for part, kind in reversed(list(zip(parts, kinds, strict=False))):
        if kind == "table" and part:
            readers.append(part_table(part))
        else:
            readers.append(part_memtable(part, kind))
        model.update(part)
    readers.reverse()
    start, end = bounds
    wanted = [
        (key, value)
        for key, value in sorted(model.items(), key=lambda row: row[0])
        if (start is None or key >= start) and (end is None or key < end)
    ]
    merged = lsm.merge_sorted(readers, start=start, end=end, limit=limit, tombstones=True)
    assert list(merged) == wanted[:limit]
    alive = [row for row in wanted if row[1] is not None][:limit]
    assert list(lsm.merge_sorted(readers, start=start, end=end, limit=limit)) == alive
    arrow = lsm.merge_sorted(readers, start=start, end=end, tombstones=True).to_arrow(batch_rows=3)
    assert pa.table(arrow)["value"].to_pylist() == [value for _, value in wanted]


def part_table(part: dict[bytes, bytes | None]) -> lsm.SstReader:
    file = io.BytesIO()
    with lsm.SstWriter(file, options={"block_bytes": 64}) as writer:
        for key, value in part.items():
            if value is None:
                writer.delete(key)
            else:
                writer.add(key, value)
    return lsm.SstReader(file.getvalue())


def part_memtable(part: dict[bytes, bytes | None], kind: str):
    memtable = lsm.MemTable()
    for key, value in part.items():
        memtable.put(key, b"older")
        if value is None:
            memtable.delete(key)
        else:
            memtable.put(key, value)
    if kind != "snapshot":
        return memtable
    snapshot = memtable.snapshot()
    memtable.put_many([b"later", *part], [b"later"] * (len(part) + 1))
    return snapshot


def test_the_first_named_wins_despite_the_numbers() -> None:
    old, new = lsm.MemTable(), lsm.MemTable()
    for _ in range(9):
        old.put(b"k", b"old")
    new.put(b"k", b"new")
    one = table([(b"k", b"table")])
    assert list(lsm.merge_sorted([new, old])) == [(b"k", b"new")]
    assert list(lsm.merge_sorted([one, new, old])) == [(b"k", b"table")]
    assert list(lsm.merge_sorted([one, one])) == [(b"k", b"table")]
    assert list(lsm.merge_sorted([])) == []
    new.delete(b"k")
    assert list(lsm.merge_sorted([new, one])) == []
    assert list(lsm.merge_sorted([new, one], prefix=b"k", tombstones=True)) == [(b"k", None)]
    for wrong in ([{}], [b"bytes"], 5):
        with pytest.raises(TypeError):
            lsm.merge_sorted(wrong)


def test_many_blocks_are_merged_in_waves() -> None:
    small = {"block_bytes": 128}
    tables = [
        table([(b"%06d" % n, b"%d" % part) for n in range(part, 20_000, 4)], options=small)
        for part in range(4)
    ]
    assert list(lsm.merge_sorted(tables)) == [(b"%06d" % n, b"%d" % (n % 4)) for n in range(20_000)]
    from_the_middle = lsm.merge_sorted(tables, start=b"010000", end=b"010003")
    assert [key for key, _ in from_the_middle] == [b"010000", b"010001", b"010002"]


def test_tables_of_a_database_are_read_and_merged(tmp_path: Path) -> None:
    url = tmp_path / "db"
    for turn in range(3):
        with siltstone.open(url) as db:
            db.put_many([b"%d" % n for n in range(turn, 9)], [b"%d" % turn] * (9 - turn))
            db.delete(b"8")
    tables = sorted((url / "compacted").glob("*.sst"), reverse=True)
    readers = [lsm.SstReader(path) for path in tables]
    assert len(readers) >= 2
    for reader in readers:
        reader.verify()
    with siltstone.open_reader(url) as db:
        assert list(lsm.merge_sorted(readers)) == list(db.scan())


# --- BloomFilter --------------------------------------------------------------------------------


@given(keys=st.lists(st.binary(max_size=10), max_size=50), bits=st.integers(1, 64))
@settings(deadline=None)
def test_a_filter_denies_no_key_that_is_there(keys: list[bytes], bits: int) -> None:
    bloom = lsm.BloomFilter(keys, bits_per_key=bits)
    assert all(key in bloom for key in keys)
    assert bloom.may_contain_many(keys) == [True] * len(keys)
    arrow = bloom.may_contain_many(pa.array([*keys, None], pa.binary()))
    assert arrow.to_pylist() == [True] * len(keys) + [None]
    assert lsm.BloomFilter(pa.array([*keys, None], pa.binary()), bits_per_key=bits).to_bytes() == (
        bloom.to_bytes()
    )
    again = lsm.BloomFilter.from_bytes(bloom.to_bytes())
    assert again.to_bytes() == bloom.to_bytes()
    assert len(bloom.to_bytes()) == bloom.nbytes
    assert pickle.loads(pickle.dumps(bloom)).to_bytes() == bloom.to_bytes()


def test_the_rate_of_false_answers_is_the_one_it_says() -> None:
    for bits, most in ((5, 0.2), (10, 0.02), (20, 0.001)):
        bloom = lsm.BloomFilter([b"%d" % n for n in range(20_000)], bits_per_key=bits)
        false = sum(bloom.may_contain_many([b"no%d" % n for n in range(100_000)])) / 100_000
        assert bloom.false_positive_rate < most
        assert false == pytest.approx(bloom.false_positive_rate, rel=0.3, abs=2e-4)
    assert not any(lsm.BloomFilter([]).may_contain_many([b"a", b"b", b""]))


def test_a_file_that_takes_no_bytes_is_an_error(tmp_path: Path) -> None:
    """A pipe that does not block returns None from `write` once it is full."""
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    with os.fdopen(reading, "rb"), os.fdopen(writing, "wb", buffering=0) as pipe:
        table = lsm.SstWriter(pipe)
        with pytest.raises(BlockingIOError, match="takes no bytes now"):
            for n in range(100_000):
                table.add(b"%06d" % n, os.urandom(100))
            table.finish()


def test_scans_are_sequences_of_keys_and_values(memory_url: str) -> None:
    with siltstone.open(memory_url) as db:
        db.put_many([b"a", b"b"], [b"1", b"2"])
        db.put_many(db.keys(), db.values())
        assert db.get_many(db.keys()) == [b"1", b"2"]
        assert db.get_many(iter(db)) == [b"1", b"2"]
        memtable = lsm.MemTable()
        memtable.put_many(db.keys(), db.values())
        assert list(memtable) == [b"a", b"b"]
        assert all(lsm.BloomFilter(db.keys()).may_contain(one) for one in db)
        assert db.load(db.scan()).rows == 2


def test_bytes_that_are_no_filter() -> None:
    good = lsm.BloomFilter([b"a"]).to_bytes()
    for wrong in (b"", good[:-1], b"\xff" + good[1:], good + b"x"):
        with pytest.raises(siltstone.Corruption):
            lsm.BloomFilter.from_bytes(wrong)
    for bits in (0, 65, -1):
        with pytest.raises(siltstone.Invalid):
            lsm.BloomFilter([], bits_per_key=bits)
