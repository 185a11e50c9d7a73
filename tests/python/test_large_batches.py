"""Batches that skip the memtable (`skip_memtable_bytes`): their tables are written before they are
accepted."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

import siltstone
from aio_for_tests import run
from siltstone import aio

OPTIONS = {"writes": {"skip_memtable_bytes": "4KiB"}}


def key(n: int) -> bytes:
    return b"key%04d" % n


def large(value: bytes, rows: int = 200) -> siltstone.WriteBatch:
    batch = siltstone.WriteBatch()
    for n in range(rows):
        batch.put(key(n), value * 10)
    return batch


def test_a_large_batch_is_visible_in_its_place_and_stays(tmp_path) -> None:
    with siltstone.open(tmp_path, options=OPTIONS) as db:
        db[key(3)] = b"before"
        db.write(large(b"one")).wait()
        db[key(5)] = b"after"
        assert (db[key(3)], db[key(5)]) == (b"one" * 10, b"after")
        assert db.stats().large_batches == 1
        assert db.stats().memtable_bytes < 4096
        arrow = pa.table({"key": [key(7)] * 400, "value": [b"%04d" % n for n in range(400)]})
        db.write(arrow)
        assert db[key(7)] == b"0399"
        db.put_many([key(n) for n in range(200, 400)], [b"many" * 10] * 200)
        assert db.stats().large_batches == 3
        assert len(list(db.scan())) == 400
    with siltstone.open_reader(tmp_path) as reader:
        assert (reader[key(7)], reader[key(399)]) == (b"0399", b"many" * 10)


def test_small_ones_operands_and_range_deletes_go_through_the_memtable(tmp_path) -> None:
    with siltstone.open(tmp_path, merge_operator="append", options=OPTIONS) as db:
        db.write(large(b"small", 10))
        batch = large(b"one")
        batch.delete_range(key(10), key(20))
        db.write(batch)
        batch = large(b"two")
        batch.merge(key(199), b"more")
        db.write(batch)
        assert db.stats().large_batches == 0
        assert len(list(db.scan())) == 200
        assert db[key(199)] == b"two" * 10 + b"more"


def test_a_batch_from_asyncio(tmp_path) -> None:
    async def work() -> None:
        async with aio.open(tmp_path, options=OPTIONS) as db:
            commit = await db.write(large(b"one"))
            await commit.wait()
            assert await db.get(key(199)) == b"one" * 10

    run(work())


@pytest.mark.parametrize("waits", [True, False])
def test_one_that_was_killed_has_all_of_it_or_nothing(tmp_path, waits: bool) -> None:
    child = f"""
import os, sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
from test_large_batches import OPTIONS, large
import siltstone
db = siltstone.open({str(tmp_path)!r}, options=OPTIONS)
commit = db.write(large(b"one"))
{"commit.wait()" if waits else ""}
os._exit(9)
"""
    assert subprocess.run([sys.executable, "-c", child], check=False).returncode == 9
    with siltstone.open(tmp_path) as db:
        found = len(list(db.scan()))
        assert found == 200 if waits else found in (0, 200)
        db.compact()
        assert len(list(db.scan())) == found
