"""Calls leave nothing behind, regardless of their number.

A separate program repeats one round: open, a mix of every kind of call, close. Between the rounds
no object of ours is alive, so the allocated memory must be the same as before: exactly, except for
noise that does not grow. Three counts are taken after every round:

- malloc's bytes in use, for the interpreter and the extension (engine, Arrow). With one arena,
  because glibc counts no other, and without thread caches, because both allocators count them as in
  use;
- objects that Python's garbage collector knows, and blocks of the interpreter's allocator;
- references to objects of the test that were passed to and returned from every call.

`SILTSTONE_LEAK_OPERATIONS` sets the number of calls (`make soak`: ten million).
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import pickle
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from array import array
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

import siltstone
from siltstone import _native

OPERATIONS = int(os.environ.get("SILTSTONE_LEAK_OPERATIONS", "300000"))
ROUND = 15_000
"""Calls of one round: few enough that 300,000 calls are twenty rounds."""
EXACT = {
    "MALLOC_ARENA_MAX": "1",
    "GLIBC_TUNABLES": "glibc.malloc.tcache_count=0",
    "_RJEM_MALLOC_CONF": "tcache:false",
}
"""Settings with which glibc's allocator, and the extension's, count to the byte."""

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="counts with glibc"),
    pytest.mark.slow,
]


def test_nothing_is_left_behind() -> None:
    counted = counted_by_a_program(OPERATIONS)
    assert sum(counted["calls"]) >= OPERATIONS
    print({name: (found[1], found[-1]) for name, found in counted.items()})
    judge(counted)


def test_a_leak_would_be_seen() -> None:
    """The test itself keeps one commit in ten: as much as a leak in one call of seventy."""
    with pytest.raises(AssertionError, match="grew"):
        judge(counted_by_a_program(8 * ROUND, "keep"))


def counted_by_a_program(*arguments: object) -> dict[str, list[int]]:
    done = subprocess.run(
        [sys.executable, __file__, *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **EXACT, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def judge(counted: dict[str, list[int]]) -> None:
    """Compares the last quarter of the rounds with the first, without the warm-up round.

    The lowest count of each quarter is used, because the task of a closed reader ends only at its
    next poll.
    """
    assert len(set(counted["references"][1:])) == 1, counted["references"]
    quarter = len(counted["calls"]) // 4
    for name, allowed in (("objects", 50), ("blocks", 100), ("malloc", 100_000)):
        found = counted[name]
        grown = min(found[-quarter:]) - min(found[1 : quarter + 1])
        assert grown <= allowed, f"{name} grew by {grown}: {found}"
    # Memory that the allocators keep for later is bounded too.
    resident = counted["resident"]
    grown = statistics.median(resident[-quarter:]) - resident[quarter]
    assert grown <= 16 << 20, f"the process grew by {grown}: {resident}"


KEPT: list[object] = []


def main(operations: int, *, keep: bool) -> None:
    """Makes the calls, and prints the counts after each round."""
    # Arrays, because the numbers in a list would be objects that grow in number.
    counted = {name: array("q") for name in COUNTS}
    folder = Path(tempfile.mkdtemp(prefix="siltstone-leaks-"))
    made = 0
    try:
        while made < operations:
            mix = Mix(folder / "db", keep=keep)
            calls = mix.run()
            made += calls
            mix.close()
            del mix
            shutil.rmtree(folder / "db")
            gc.collect()
            count(counted, calls)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(json.dumps({name: list(found) for name, found in counted.items()}))


COUNTS = ("calls", "references", "objects", "blocks", "malloc", "resident")

SENTINELS: list[object] = [
    b"a sentinel as a key",
    b"a sentinel as a value" * 5,
    bytearray(b"a sentinel as a buffer"),
    object(),
    [b"%08d" % i for i in range(40)],
]


def count(counted: dict[str, array[int]], calls: int) -> None:
    """Adds the counts of one round.

    The interpreter's cache of methods is emptied first. It has 4,096 entries, each of which keeps
    the name that was looked up alive. The extension looks many up by new strings, so the cache
    fills up at random over hundreds of thousands of calls.
    """
    sys._clear_type_cache()
    resident = int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
    references = sum(sys.getrefcount(sentinel) for sentinel in SENTINELS)
    objects, blocks = len(gc.get_objects()), sys.getallocatedblocks()
    now = (calls, references, objects, blocks, settled(), resident)
    for name, value in zip(COUNTS, now, strict=True):
        counted[name].append(value)


def settled() -> int:
    """The lowest number of bytes in use within a fifth of a second.

    The task of a closed handle ends when its thread is next scheduled. On a busy machine that is
    some ten milliseconds later, and until then the task holds a memtable.
    """
    least = malloc_in_use()
    for _ in range(20):
        time.sleep(0.01)
        least = min(least, malloc_in_use())
    return least


class Mallinfo(ctypes.Structure):
    """glibc's ``struct mallinfo2``."""

    _fields_ = [
        (name, ctypes.c_size_t)
        for name in (
            *("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks"),
            *("uordblks", "fordblks", "keepcost"),
        )
    ]


MALLINFO = ctypes.CDLL(None).mallinfo2 if sys.platform == "linux" else Mallinfo
MALLINFO.restype = Mallinfo


def malloc_in_use() -> int:
    """Bytes that malloc has handed out, from its arena and as maps for large requests.

    The bytes of the extension's own allocator are added.
    """
    info = MALLINFO()
    return int(info.uordblks + info.hblkhd) + _native.memory_in_use()


class Mix:
    """One round: a database, a reader of it, and every kind of call on them."""

    def __init__(self, path: Path, *, keep: bool) -> None:
        self.keep = keep
        self.errors = siltstone
        self.path = str(path)
        options = siltstone.Options(l0_sst_size_bytes=1 << 20, flush_interval=0.02)
        self.db = siltstone.open(self.path, options=options)
        self.key, self.value, self.buffer, self.default, self.keys = SENTINELS
        self.db.put_many(self.keys, [self.value] * len(self.keys)).wait()
        self.reader = siltstone.open_reader(self.path, options={"manifest_poll_interval": 0.05})
        self.arrow = pa.array(self.keys, pa.binary())
        # Every batch writes the same rows: a reader may open between any two of them.
        self.arrow_values = pa.array([self.value] * len(self.keys), pa.binary())

    def close(self) -> None:
        self.db.flush()
        self.reader.close()
        self.db.close()
        self.refused(lambda: self.db.get(self.key), self.errors.Closed)

    def run(self) -> int:
        """Makes about `ROUND` calls. Returns their number."""
        light = [(call, 150) for call in (self.write, self.read)]
        mix = [*light, (self.wrong, 30), (self.many, 20), (self.scans, 20), (self.handles, 4)]
        made = 0
        while made < ROUND:
            for call, times in mix:
                for i in range(times):
                    made += call(i)
        return made

    def write(self, i: int) -> int:
        db = self.db
        commit = db.put(self.key, self.value)
        assert commit.seq > 0
        commit.durable, repr(commit)
        if self.keep and i % 10 == 0:
            KEPT.append(commit)
        db[b"%04d" % (i % 50)] = self.buffer
        db.put(self.buffer, memoryview(self.buffer)[:3])
        db.delete(b"%04d" % (i % 50))
        del db[self.buffer]
        return 7

    def read(self, i: int) -> int:
        db, reader = self.db, self.reader
        assert db.get(self.key, self.default) is not self.default
        assert db.get(b"absent", self.default) is self.default
        assert db[self.keys[i % 40]] == self.value
        assert self.keys[0] in db
        assert b"absent" not in db
        assert reader.get(self.keys[i % 40]) == self.value
        assert reader.get(b"absent", self.default) is self.default
        return 7

    def wrong(self, _: int) -> int:
        db, errors = self.db, self.errors
        self.refused(lambda: db.get("text"), TypeError)
        self.refused(lambda: db.put(b"", self.value), errors.Invalid)
        self.refused(lambda: db.put(self.key, None), TypeError)
        self.refused(lambda: db[b"absent"], KeyError)
        self.refused(lambda: db.get_many([self.key, self.default]), TypeError)
        self.refused(lambda: db.put_many([self.key], []), errors.Invalid)
        self.refused(lambda: errors.Options(flush_interval=-1), errors.Invalid)
        return 7

    def refused(self, call: Callable[[], object], kind: type[Exception]) -> None:
        try:
            call()
        except kind:
            return
        raise AssertionError(f"{kind.__name__} was expected")

    def many(self, _: int) -> int:
        db, keys, reader = self.db, self.keys, self.reader
        assert db.get_many(keys)[0] == self.value
        assert db.get_many([b"absent", *keys])[0] is None
        assert reader.get_many(keys[:3]) == [self.value] * 3
        assert len(db.get_many(self.arrow)) == len(keys)
        db.put_many(keys, [self.value] * len(keys))
        db.put_many(self.arrow, self.arrow_values)
        with db.batch() as batch:
            batch.put(self.key, self.value)
            batch.delete(self.buffer)
        assert batch.commit.seq > 0
        batch = db.batch()
        batch.put(self.key, self.value)
        db.write(batch)
        self.refused(self.batch_that_fails, ZeroDivisionError)
        db.put_many(keys, [self.value] * len(keys))
        return 13

    def batch_that_fails(self) -> None:
        with self.db.batch() as batch:
            batch.put(self.key, self.value)
            raise ZeroDivisionError

    def scans(self, _: int) -> int:
        db = self.db
        assert len(list(db.scan(limit=20))) == 20
        left = db.scan()
        next(left)
        with db.scan(self.keys[3], self.keys[9], reverse=True) as scan:
            assert len(list(scan)) == 6
        assert len(list(db.keys(prefix=b"000000"))) == 40
        assert next(iter(db.values(self.keys[1]))) == self.value
        assert len(list(self.reader.items(limit=10))) == 10
        table = pa.RecordBatchReader.from_stream(db.scan().to_arrow()).read_all()
        assert table.num_rows >= 40
        dropped = db.scan().to_arrow()
        del dropped
        return 9

    def handles(self, _: int) -> int:
        db = self.db
        with db.snapshot() as snapshot:
            assert snapshot.get(self.keys[0]) == self.value
            left = snapshot.scan()
            next(left)
        dropped = db.snapshot()
        assert dropped.get_many(self.keys)[0] == self.value
        del dropped
        db.put(self.key, self.value).wait()
        self.reader.refresh()
        assert db.stats().epoch == 1
        assert db.metrics()["epoch"] == 1.0
        again = pickle.loads(pickle.dumps(self.reader))
        assert again.get(self.keys[0]) == self.value
        again.close()
        options = self.errors.Options(flush_interval=0.5)
        assert pickle.loads(pickle.dumps(options)) == options
        return 16


if __name__ == "__main__":
    main(int(sys.argv[1]), keep="keep" in sys.argv)
