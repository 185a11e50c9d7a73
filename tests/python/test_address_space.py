"""With a limited address space (`ulimit -v`, Spark's `spark.executor.pyspark.memory`) reads map the
files that fit and read the others: the process does not run out of addresses."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import siltstone

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="limits as Linux has them")

ROWS, VALUE = 100_000, 2_000
"""A database of 200 MB, in tables of up to 64 MB."""

READS = """
import resource, sys, siltstone
_, url, spare, cache = sys.argv

def limit():
    lines = open("/proc/self/status").read()
    size = int(lines.split("VmSize:")[1].split()[0]) << 10
    resource.setrlimit(resource.RLIMIT_AS, (size + (int(spare) << 20),) * 2)

small = {"block_cache_bytes": int(cache), "metadata_cache_bytes": 8 << 20}
limit()
with siltstone.open_reader(url, options=small) as reader:
    for first in range(0, 100_000, 5_000):
        keys = [b"%06d" % (n * 7919 % 100_000) for n in range(first, first + 5_000)]
        assert all(value is not None for value in reader.get_many(keys))
    assert sum(1 for _ in reader.scan()) == 100_000
    print(reader.stats().mapped_bytes)
"""


@pytest.fixture(scope="module")
def full(tmp_path_factory) -> str:
    url = str(tmp_path_factory.mktemp("limits") / "db")
    with siltstone.open(url, options={"compression": "none"}) as db:
        for first in range(0, ROWS, 1_000):
            keys = [b"%06d" % n for n in range(first, first + 1_000)]
            db.put_many(keys, [b"x" * VALUE] * 1_000)
    assert sum(path.stat().st_size for path in Path(url, "compacted").iterdir()) > 190_000_000
    return url


def mapped(url: str, spare_mib: int, cache: int = 4 << 20) -> int:
    """Bytes that a process maps if it has this much address space left."""
    program = [sys.executable, "-c", READS, url, str(spare_mib), str(cache)]
    # Otherwise glibc reserves 64 MiB of addresses per thread, and there is one thread per core.
    environment = os.environ | {"MALLOC_ARENA_MAX": "1"}
    done = subprocess.run(
        program, capture_output=True, text=True, timeout=120, check=False, env=environment
    )
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


def test_little_address_space_is_not_spent_on_maps(full: str) -> None:
    assert mapped(full, 300) == 0


def test_enough_address_space_is_mapped_in_part(full: str) -> None:
    some = mapped(full, 420)
    assert 0 < some < 190_000_000


def test_a_cache_larger_than_the_address_space_is_no_abort_at_open(full: str) -> None:
    """The memory of the cache is allocated on use."""
    mapped(full, 900, cache=1 << 40)


LARGE_VALUES = """
import resource, sys, siltstone
_, url, call = sys.argv
MIB = 1 << 20

def limit(spare):
    lines = open("/proc/self/status").read()
    size = int(lines.split("VmSize:")[1].split()[0]) << 10
    most = (size + spare) if spare else resource.RLIM_INFINITY
    resource.setrlimit(resource.RLIMIT_AS, (most, resource.RLIM_INFINITY))

calls = {
    "put": lambda db: db.put(b"k", value),
    "batch": lambda db: db.put_many([b"%d" % n for n in range(9)], [value] * 9),
    "get": lambda db: db.get(b"k"),
    "get_many": lambda db: db.get_many([b"k"]),
    "scan": lambda db: list(db.scan()),
    "entry": lambda db: db.get_entry(b"k"),
    "pop": lambda db: db.pop(b"k"),
}
value = bytes(100 * MIB)
# With this deadline, a request that is repeated does not end before the test stops the process.
options = {"max_batch_bytes": 1 << 30, "compression": "none", "deadline": 3600}
with siltstone.open(url, options=options) as db:
    # Memory that an earlier write has released is used again, so a write is the first large one.
    first = b"small" if call in ("put", "batch") else value
    db.put(b"k", first)
    db.flush(memtable=call.endswith("table"))
    db.get(b"k")
    limit(20 * MIB)
    try:
        calls[call.removesuffix("-table")](db)
        print("no error")
    except siltstone.Unavailable as error:
        print(error)
    limit(None)
    db.put(b"z", b"1").wait()
    assert db.get(b"k") == first
"""


@pytest.mark.parametrize(
    "call",
    ["put", "batch", "get", "get_many", "scan", "entry", "pop", "get-table", "scan-table"],
)
def test_a_value_that_memory_cannot_hold_is_an_error_that_names_the_limit(
    tmp_path: Path, call: str
) -> None:
    program = [sys.executable, "-c", LARGE_VALUES, str(tmp_path / "db"), call]
    environment = os.environ | {"MALLOC_ARENA_MAX": "1"}
    done = subprocess.run(
        program, capture_output=True, text=True, timeout=120, check=False, env=environment
    )
    assert done.returncode == 0, done.stderr
    assert "no memory for" in done.stdout
    assert "ulimit -v" in done.stdout
