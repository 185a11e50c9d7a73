"""The parts alone: the cost of each per row, from Python.

    python -m pytest -q -p no:asyncio benches/python/test_parts.py [--rows N]

prints a line for each case: nanoseconds per row, and MB/s of keys and values (16 B and 100 B,
random). A peer's writer of sorted files is compared with ours, on the same rows in the same run.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from siltstone import lsm

KEY_BYTES = 16
VALUE_BYTES = 100
MOST_ROWS = 500_000
ROUNDS = 3


@dataclass(frozen=True)
class Rows:
    """Rows in random order, as Python objects and as Arrow arrays."""

    keys: list[bytes]
    values: list[bytes]

    @property
    def columns(self) -> tuple[pa.Array, pa.Array]:
        """Keys and values as Arrow arrays."""
        return pa.array(self.keys, pa.binary()), pa.array(self.values, pa.binary())

    @property
    def ascending(self) -> Rows:
        """The same rows in order."""
        ordered = sorted(zip(self.keys, self.values, strict=True))
        return Rows([key for key, _ in ordered], [value for _, value in ordered])


@pytest.fixture(scope="module")
def rows(pytestconfig: pytest.Config) -> Rows:
    """The rows of every case."""
    count = min(int(pytestconfig.getoption("rows")), MOST_ROWS)
    made = random.Random(7)
    data = [(made.randbytes(KEY_BYTES), made.randbytes(VALUE_BYTES)) for _ in range(count)]
    return Rows([key for key, _ in data], [value for _, value in data])


@pytest.fixture(scope="module")
def table(rows: Rows, tmp_path_factory: pytest.TempPathFactory) -> Iterator[lsm.SstReader]:
    """A table of all rows, its blocks in memory."""
    path = tmp_path_factory.mktemp("table") / "rows.sst"
    with lsm.SstWriter(path) as writer:
        writer.add_many(*rows.columns)
    with lsm.SstReader(path, options={"block_cache_bytes": 1 << 30}) as reader:
        reader.get_many(rows.keys)
        yield reader


@pytest.fixture
def measure(
    benchmark: Any, request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str]
) -> Callable[[int, Callable[[], Any]], None]:
    """Measure work on this many rows, and print the median."""

    def run(count: int, work: Callable[[], Any]) -> None:
        benchmark.pedantic(work, rounds=ROUNDS, iterations=1)
        nanoseconds = benchmark.stats.stats.median * 1e9 / count
        rate = (KEY_BYTES + VALUE_BYTES) / nanoseconds * 1e3
        with capsys.disabled():
            sys.stdout.write(f"\n{request.node.name:40} {nanoseconds:9.1f} ns/row {rate:8.1f} MB/s")

    return run


@pytest.mark.parametrize("order", ["ascending", "sorting", "spilling"])
@pytest.mark.parametrize("kind", ["sequences", "arrow"])
def test_write(measure: Any, rows: Rows, tmp_path: Path, order: str, kind: str) -> None:
    """Write a table to a file, synced."""
    given = rows.ascending if order == "ascending" else rows
    columns = (given.keys, given.values) if kind == "sequences" else given.columns
    how: dict[str, Any] = {"sort": order != "ascending"}
    if order == "spilling":
        how["sort_memory_bytes"] = max(1 << 20, len(given.keys) * (KEY_BYTES + VALUE_BYTES) // 8)

    def work() -> None:
        with lsm.SstWriter(tmp_path / "rows.sst", **how) as writer:
            writer.add_many(*columns)

    measure(len(given.keys), work)


def test_write_ascending_rocksdict(measure: Any, rows: Rows, tmp_path: Path) -> None:
    """The peer's sorted file, which accepts rows in order one by one; skipped without the peer."""
    peer = pytest.importorskip("rocksdict")
    given = rows.ascending

    def work() -> None:
        writer = peer.SstFileWriter(options=peer.Options(raw_mode=True))
        writer.open(str(tmp_path / "rows.sst"))
        for key, value in zip(given.keys, given.values, strict=True):
            writer[key] = value
        writer.finish()

    measure(len(given.keys), work)


def test_write_ascending_one_by_one(measure: Any, rows: Rows, tmp_path: Path) -> None:
    """One by one, as the peer accepts them."""
    given = rows.ascending

    def work() -> None:
        with lsm.SstWriter(tmp_path / "rows.sst", sort=False) as writer:
            for key, value in zip(given.keys, given.values, strict=True):
                writer.add(key, value)

    measure(len(given.keys), work)


READS: dict[str, Callable[[lsm.SstReader, Rows], Any]] = {
    "get": lambda table, rows: [table.get(key) for key in rows.keys],
    "get_many": lambda table, rows: table.get_many(rows.keys),
    "scan": lambda table, _: sum(1 for _ in table.scan()),
    "to_arrow": lambda table, _: pa.table(table.to_arrow()).num_rows,
    "verify": lambda table, _: table.verify(),
}


@pytest.mark.parametrize("how", READS)
def test_read(measure: Any, rows: Rows, table: lsm.SstReader, how: str) -> None:
    """Read every row of a table once."""
    measure(len(rows.keys), lambda: READS[how](table, rows))


def test_merge_of_eight(measure: Any, rows: Rows, tmp_path: Path) -> None:
    """Merge eight tables into Arrow."""
    keys, values = rows.columns
    for part in range(8):
        with lsm.SstWriter(tmp_path / f"{part}.sst") as writer:
            writer.add_many(keys[part::8], values[part::8])
    tables = [lsm.SstReader(tmp_path / f"{part}.sst") for part in range(8)]
    measure(len(rows.keys), lambda: pa.table(lsm.merge_sorted(tables).to_arrow()).num_rows)


@pytest.mark.parametrize("how", ["put", "put_many", "arrow"])
def test_memtable_insert(measure: Any, rows: Rows, how: str) -> None:
    """Insert random rows into an empty memtable."""
    columns = rows.columns if how == "arrow" else (rows.keys, rows.values)

    def work() -> None:
        memtable = lsm.MemTable()
        if how != "put":
            memtable.put_many(*columns)
            return
        for key, value in zip(*columns, strict=True):
            memtable.put(key, value)

    measure(len(rows.keys), work)


def test_filter_build(measure: Any, rows: Rows) -> None:
    """Build a filter over Arrow keys."""
    keys, _ = rows.columns
    measure(len(rows.keys), lambda: lsm.BloomFilter(keys))


def test_filter_ask(measure: Any, rows: Rows) -> None:
    """Look up Arrow keys, all of them present."""
    keys, _ = rows.columns
    bloom = lsm.BloomFilter(keys)
    measure(len(rows.keys), lambda: bloom.may_contain_many(keys))
