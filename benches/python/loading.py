"""Bulk loads compared with the peers' best: Arrow input, everything in tables and durable at the
end.

    python benches/python/loading.py [--rows N] [--orders sorted,shuffled] [--rounds N]
        [--engines siltstone,rocksdict,lmdb] [--memory BYTES] [--folder PATH] [--json]

Rows have 16 + 100 bytes. Each engine in turn loads the same rows into its own folder, round after
round; the best round counts.

===========  ===================================================================================
siltstone    `Database.load`: sorted or not, synced to the disk, nothing held back
rocksdict    a file by `SstFileWriter`, ingested; rows in no order are sorted by pyarrow before
lmdb         one transaction of `putmulti`, appending, not synced; sorted before likewise
===========  ===================================================================================

Above ``--table`` rows the data is not held in memory: batches are generated on demand, Siltstone
runs alone, and the peak memory of the process is reported as well.
"""

from __future__ import annotations

import argparse
import functools
import json
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from engines import Lmdb, Rocksdict

KEY_BYTES = 16
VALUE_BYTES = 100
BATCH_ROWS = 1 << 16
# Odd, so that products with it do not repeat below 2^64: the keys are shuffled.
SCATTER = 0x9E3779B97F4A7C15
TABLE_ROWS = 4_000_000


@dataclass(frozen=True)
class Loaded:
    """The result of one engine with one order of rows."""

    engine: str
    order: str
    rows: int
    rows_per_second: float
    seconds: dict[str, float]
    peak_bytes: int


@functools.cache
def _offsets(width: int) -> pa.Buffer:
    return pa.py_buffer(np.arange(0, (BATCH_ROWS + 1) * width, width, dtype=np.int32))


def _strings(data: memoryview, count: int, width: int) -> pa.Array:
    buffers = [None, _offsets(width), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.binary(), count, buffers)


def batches(rows: int, order: str) -> Iterator[tuple[pa.Array, pa.Array]]:
    """The rows, generated on demand at little cost: the same ones each time."""
    source = np.random.default_rng(7)
    values = memoryview(source.bytes(BATCH_ROWS * VALUE_BYTES))
    for at in range(0, rows, BATCH_ROWS):
        numbers = np.arange(at, min(at + BATCH_ROWS, rows), dtype=np.uint64)
        heads = numbers if order == "sorted" else numbers * np.uint64(SCATTER)
        keys = np.empty((len(numbers), 2), dtype=">u8")
        keys[:, 0], keys[:, 1] = heads, numbers
        count = len(numbers)
        yield _strings(keys.data, count, KEY_BYTES), _strings(values, count, VALUE_BYTES)


def table(rows: int, order: str) -> pa.Table:
    """All rows at once."""
    made = [pa.record_batch(list(pair), ["key", "value"]) for pair in batches(rows, order)]
    return pa.Table.from_batches(made)


def _sorted(data: pa.Table, order: str) -> Iterator[tuple[list[bytes], list[bytes]]]:
    if order != "sorted":
        data = data.sort_by("key")
    for batch in data.to_batches(BATCH_ROWS):
        yield batch.column("key").to_pylist(), batch.column("value").to_pylist()


def siltstone_load(
    data: pa.Table | Iterator[tuple[pa.Array, pa.Array]], order: str, folder: Path, memory: int
) -> dict[str, float]:
    """The recommended way; opening and closing are included."""
    import siltstone  # noqa: PLC0415

    with siltstone.open(folder / "db") as db:
        done = db.load(data, sorted=order == "sorted", memory_bytes=memory, scratch=folder)
    return done.seconds


def rocksdict_load(data: pa.Table, order: str, folder: Path) -> None:
    """A file of sorted rows, moved into the database."""
    import rocksdict  # noqa: PLC0415

    engine = Rocksdict()
    engine.open(folder / "db")
    options = rocksdict.Options(raw_mode=True)
    options.set_compression_type(rocksdict.DBCompressionType.none())
    writer = rocksdict.SstFileWriter(options)
    path = str(folder / "rows.sst")
    writer.open(path)
    put = writer.__setitem__
    for keys, values in _sorted(data, order):
        for key, value in zip(keys, values, strict=True):
            put(key, value)
    writer.finish()
    how = rocksdict.IngestExternalFileOptions()
    how.set_move_files(True)
    engine.db.ingest_external_file([path], how)
    engine.close()


def lmdb_load(data: pa.Table, order: str, folder: Path) -> None:
    """One transaction that appends."""
    engine = Lmdb()
    engine.open(folder / "db")
    with engine.environment.begin(write=True) as transaction:
        cursor = transaction.cursor()
        for keys, values in _sorted(data, order):
            cursor.putmulti(zip(keys, values, strict=True), append=True)
    engine.close()


def _peak() -> int:
    """The peak memory of this process, in bytes."""
    for line in Path("/proc/self/status").read_text().splitlines():
        name, _, value = line.partition(":")
        if name == "VmHWM":
            return int(value.split()[0]) << 10
    raise ValueError("the kernel does not say VmHWM")


def timed(
    load: Callable[[Path], dict[str, float] | None], parent: Path | None
) -> tuple[float, dict[str, float]]:
    """Seconds in total, and by phase if they are reported."""
    folder = Path(tempfile.mkdtemp(prefix="loading", dir=parent))
    try:
        began = time.perf_counter()
        phases = load(folder)
        return time.perf_counter() - began, phases or {}
    finally:
        shutil.rmtree(folder)


def turn(
    name: str, order: str, given: argparse.Namespace, data: pa.Table | None
) -> tuple[float, dict[str, float]]:
    """One engine, once."""

    def load(folder: Path) -> dict[str, float] | None:
        if data is None:
            return siltstone_load(batches(given.rows, order), order, folder, given.memory)
        if name == "siltstone":
            return siltstone_load(data, order, folder, given.memory)
        return (rocksdict_load if name == "rocksdict" else lmdb_load)(data, order, folder)

    return timed(load, given.folder)


def compare(given: argparse.Namespace) -> list[Loaded]:
    """Every engine, round after round, with every order."""
    found: list[Loaded] = []
    for order in given.orders.split(","):
        is_held = given.rows <= given.table
        data = table(given.rows, order) if is_held else None
        names = given.engines.split(",") if is_held else ["siltstone"]
        best: dict[str, tuple[float, dict[str, float]]] = {}
        for _ in range(given.rounds):
            for name in names:
                took = turn(name, order, given, data)
                best[name] = min(best.get(name, took), took, key=lambda each: each[0])
        for name, (seconds, phases) in best.items():
            rate = given.rows / seconds
            found.append(Loaded(name, order, given.rows, rate, phases, _peak()))
    return found


def shown(found: list[Loaded]) -> str:
    """The results as a table."""
    lines = ["| order | engine | rows | rows/s | ratio | phases | most memory MiB |"]
    lines.append("| --- | --- | ---: | ---: | ---: | --- | ---: |")
    for one in found:
        ours = next(each for each in found if each.order == one.order)
        ratio = ours.rows_per_second / one.rows_per_second
        phases = ", ".join(f"{name} {took:.2f} s" for name, took in one.seconds.items())
        lines.append(
            f"| {one.order} | {one.engine} | {one.rows:,} | {one.rows_per_second:,.0f} | "
            f"{ratio:.2f} | {phases} | {one.peak_bytes >> 20:,} |"
        )
    return "\n".join(lines)


def main() -> None:
    """The program."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--orders", default="sorted,shuffled")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--engines", default="siltstone,rocksdict,lmdb")
    parser.add_argument("--memory", type=int, default=1 << 30)
    parser.add_argument("--table", type=int, default=TABLE_ROWS)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--json", action="store_true")
    found = compare(parser.parse_args())
    as_json = "--json" in sys.argv
    text = json.dumps([asdict(one) for one in found]) if as_json else shown(found)
    sys.stdout.write(text + "\n")


if __name__ == "__main__":
    main()
