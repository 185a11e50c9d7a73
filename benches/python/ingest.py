"""Sustained ingest compared with peers, with compaction running: speed, latency, bytes written and
bytes left.

    python benches/python/ingest.py [--rows N] [--batch N] [--distinct N] [--order random|key]
        [--engines siltstone,slatedb,rocksdict] [--scheduler NAME] [--folder PATH] [--json]

Each engine in turn writes the same rows of 16 + 100 random bytes into its own folder, one batch per
call (`--batch 1`: one put per row), and closes. `--distinct` keys are overwritten repeatedly; by
default every row has its own key.

================  =============================================================================
rows a second     over the time inside the calls; making the rows is not counted
p99.9, longest    of the calls
written           bytes that the process gave to write() by bytes of rows, log included, until
                  after the close
tables            of Siltstone: bytes of tables written by bytes flushed
left              bytes of the folder after the close by bytes of the distinct rows
space             of Siltstone: the most that its estimate of space amplification came to in the
                  second half of the calls
================  =============================================================================
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from engines import Engine, Siltstone, engines

KEY_BYTES = 16
PIECE = 1 << 20
"""Number of keys that are drawn at a time."""
VALUE_BYTES = 100
ROW_BYTES = KEY_BYTES + VALUE_BYTES
VALUES = 1 << 14
LOOK_EVERY = 10
"""Calls between two measurements of the used space."""
PEERS = ("siltstone", "slatedb", "rocksdict")
# Share of the rows for an engine that is an order of magnitude slower.
SHARES = {"slatedb": 0.1}


@dataclass(frozen=True)
class Ingest:
    """The result of one engine."""

    engine: str
    rows: int
    rows_per_second: float
    p50_ms: float
    p999_ms: float
    longest_ms: float
    written: float
    tables: float | None
    left: float
    space: float | None
    state: str


class Rows:
    """The rows, generated on demand: the same ones for every engine."""

    def __init__(self, rows: int, distinct: int, order: str) -> None:
        source = random.Random(7)
        self.pool = [source.randbytes(VALUE_BYTES) for _ in range(min(VALUES, rows))]
        self.distinct, self.keys = distinct, b""
        self.in_order = order == "key"
        if not self.in_order:
            # In pieces: one call returns at most 2^28 bytes.
            sizes = (min(PIECE, distinct - at) for at in range(0, distinct, PIECE))
            self.keys = b"".join(source.randbytes(size * KEY_BYTES) for size in sizes)

    def batch(self, start: int, count: int) -> tuple[list[bytes], list[bytes]]:
        """This many rows from a position on."""
        numbers = [number % self.distinct for number in range(start, start + count)]
        if self.in_order:
            keys = [number.to_bytes(KEY_BYTES, "big") for number in numbers]
        else:
            keys = [self.keys[n * KEY_BYTES : (n + 1) * KEY_BYTES] for n in numbers]
        values = [self.pool[n % len(self.pool)] for n in range(start, start + count)]
        return keys, values


class WithScheduler(Siltstone):
    """Siltstone with a selectable scheduler."""

    scheduler = "tiered"

    def open(self, path: Path) -> None:
        import siltstone  # noqa: PLC0415

        self.db = siltstone.open(path, options={"compaction_scheduler": self.scheduler})


def ingest(engine: Engine, folder: Path, rows: Rows, count: int, batch: int) -> Ingest:
    """Write `count` rows."""
    path = folder / engine.name
    # Some engines do not finish.
    path.mkdir()
    before = _written()
    engine.open(path)
    calls: list[int] = []
    space = 0.0
    clock = time.perf_counter_ns
    for start in range(0, count, batch):
        made = [rows.batch(start, min(batch, count - start))]
        began = clock()
        if batch == 1:
            engine.put(made[0])
        else:
            engine.put_many(made)
        calls.append(clock() - began)
        if isinstance(engine, Siltstone) and 2 * start >= count and len(calls) % LOOK_EVERY == 0:
            space = max(space, engine.db.stats().space_amplification)
    began = clock()
    engine.log()
    total = sum(calls) + clock() - began
    state, tables = engine.state(), None
    if isinstance(engine, Siltstone):
        tables = engine.db.stats().write_amplification
    engine.close()
    calls.sort()
    return Ingest(
        engine=engine.name,
        rows=count,
        rows_per_second=count / (total / 1e9),
        p50_ms=_at(calls, 0.5),
        p999_ms=_at(calls, 0.999),
        longest_ms=_at(calls, 1.0),
        written=(_written() - before) / (count * ROW_BYTES),
        tables=tables,
        space=space or None,
        left=_size(path) / (min(count, rows.distinct) * ROW_BYTES),
        state=state,
    )


def _at(ordered: list[int], part: float) -> float:
    return ordered[min(len(ordered) - 1, int(len(ordered) * part))] / 1e6


def _written() -> int:
    """Bytes that this process has passed to write()."""
    for line in Path("/proc/self/io").read_text().splitlines():
        name, value = line.split(": ")
        if name == "wchar":
            return int(value)
    raise ValueError("the kernel does not say wchar")


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def table(found: list[Ingest]) -> str:
    """The results as a table."""
    head = "| engine | rows | rows/s | ratio | p50 ms | p99.9 ms | longest ms | written | tables |"
    lines = [head + " left | space |", "| --- |" + " ---: |" * 10]
    for one in found:
        ratio = found[0].rows_per_second / one.rows_per_second
        tables = "" if one.tables is None else f"{one.tables:.2f}"
        space = "" if one.space is None else f"{one.space:.2f}"
        lines.append(
            f"| {one.engine} | {one.rows:,} | {one.rows_per_second:,.0f} | {ratio:.2f} | "
            f"{one.p50_ms:.3f} | {one.p999_ms:.3f} | {one.longest_ms:.1f} | {one.written:.2f} | "
            f"{tables} | {one.left:.2f} | {space} |"
        )
    return "\n".join(lines)


def main() -> None:
    """The program."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--batch", type=int, default=1000)
    parser.add_argument("--distinct", type=int, default=0)
    parser.add_argument("--order", choices=["random", "key"], default="random")
    parser.add_argument("--engines", default=",".join(PEERS))
    parser.add_argument("--scheduler", default="tiered")
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    rows = Rows(given.rows, given.distinct or given.rows, given.order)
    WithScheduler.scheduler = given.scheduler
    kinds = {**engines(), "siltstone": WithScheduler}
    found = []
    with tempfile.TemporaryDirectory(prefix="ingest", dir=given.folder) as folder:
        for name in given.engines.split(","):
            if name in kinds:
                count = max(given.batch, int(given.rows * SHARES.get(name, 1.0)))
                found.append(ingest(kinds[name](), Path(folder), rows, count, given.batch))
    if given.json:
        sys.stdout.write(json.dumps([asdict(one) for one in found]) + "\n")
    else:
        sys.stdout.write(table(found) + "\n")
        states = [f"{one.engine}: {one.state}\n" for one in found if one.state]
        sys.stdout.writelines(states)


if __name__ == "__main__":
    main()
