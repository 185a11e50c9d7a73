"""The cases: the operation, its count, its stage, and its required bounds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa

from engines import Engine
from work import BATCH, ORDERED_ROWS, Work

GROUP = 100
BEYOND_ROWS = 5_000_000
"""More rows than any engine's cache holds: 600 MB. Siltstone's cache has 512 MiB."""
SHORT_SCAN = 50

Round = tuple[Callable[[], object], int]
"""The timed call, and the number of its operations."""
Prepare = Callable[[Work, Engine, int, int], Round]
"""Makes a round of an engine from the number of the round and the number of rounds."""


@dataclass(frozen=True)
class Bound:
    """`factor` times as fast as the best of `peers`; or at most `limit` in the case's unit."""

    peers: tuple[str, ...] = ()
    factor: float = 0.0
    limit: float | None = None


@dataclass(frozen=True)
class Case:
    """One row of the table."""

    name: str
    text: str
    stage: str
    rounds: int
    prepare: Prepare | None
    """None: the case is a separate program, see `apart`."""
    bounds: tuple[Bound, ...] = ()
    beyond: tuple[Bound, ...] = ()
    """Bounds that replace `bounds` if the rows exceed the cache ([`BEYOND_ROWS`])."""
    compared_with: str = ""
    """The case whose times of the peers are shown next to this one's."""

    unit: str = "ns"
    """The unit of its samples: nanoseconds, or bytes."""

    @property
    def id(self) -> str:
        """Its name in tables of samples."""
        return f"{self.name}/{self.stage}"


LOCAL = ("rocksdict", "lmdb")
ALL = ("slatedb", *LOCAL)


def _put(work: Work, engine: Engine, at: int, rounds: int) -> Round:
    length = work.rows // (2 * rounds)
    count = work.share(engine, length, 100)
    rows = work.slice(at * length, count)
    return lambda: engine.put(rows), count


def _write(work: Work, engine: Engine, at: int, rounds: int) -> Round:
    length = work.rows // (2 * rounds)
    if length > BATCH:
        length = length // BATCH * BATCH
    count = work.share(engine, length, BATCH)
    batches = work.arrow(at * length, count)
    return lambda: engine.write_arrow(batches), sum(batch.num_rows for batch in batches)


def _put_many(work: Work, engine: Engine, at: int, rounds: int) -> Round:
    target = work.target(engine)
    start, end = target * at // rounds, target * (at + 1) // rounds
    batches = work.batches(start, end - start)
    work.loaded[engine.name] = end
    return lambda: engine.put_many(batches), end - start


def _put_ordered(work: Work, engine: Engine, at: int, rounds: int) -> Round:
    length = min(work.rows, ORDERED_ROWS) // rounds
    batches = work.ordered(at * length, work.share(engine, length, BATCH))
    return lambda: engine.put_many(batches), sum(len(keys) for keys, _ in batches)


def _get(work: Work, engine: Engine, _at: int, _rounds: int) -> Round:
    keys = work.present(engine, work.share(engine, min(work.rows, 20_000), 50))
    return lambda: engine.get(keys), len(keys)


def _get_absent(work: Work, engine: Engine, _at: int, _rounds: int) -> Round:
    keys = work.absent(work.share(engine, min(work.rows, 20_000), 50))
    return lambda: engine.get(keys), len(keys)


def _groups(work: Work, engine: Engine) -> list[list[bytes]]:
    count = work.share(engine, min(work.rows // GROUP, 200), 2)
    return [work.present(engine, GROUP) for _ in range(count)]


def _get_many(work: Work, engine: Engine, _at: int, _rounds: int) -> Round:
    groups = _groups(work, engine)
    return lambda: engine.get_many(groups), len(groups) * GROUP


def _get_many_arrow(work: Work, engine: Engine, _at: int, _rounds: int) -> Round:
    groups = [pa.array(keys, pa.binary()) for keys in _groups(work, engine)]
    return lambda: engine.get_many_arrow(groups), len(groups) * GROUP


def _scan(work: Work, engine: Engine, _at: int, _rounds: int) -> Round:
    starts = work.present(engine, work.share(engine, min(work.rows // 10, 1000), 10))
    return lambda: engine.scan(starts, SHORT_SCAN), len(starts)


def _scan_all(work: Work, engine: Engine, _at: int, _rounds: int) -> Round:
    count = work.target(engine)
    return lambda: engine.scan_all(count), count


def _scan_all_arrow(work: Work, engine: Engine, _at: int, _rounds: int) -> Round:
    count = work.target(engine)
    return lambda: engine.scan_all_arrow(count), count


def _ycsb(workload: str, most: int) -> Prepare:
    def prepare(work: Work, engine: Engine, _at: int, _rounds: int) -> Round:
        steps = work.mixed(engine, workload, work.share(engine, min(work.rows, most), 50))
        return lambda: engine.mixed(steps), len(steps)

    return prepare


def _reads(stage: str) -> list[Case]:
    warm = stage == "tables"
    get = (Bound(("slatedb",), 100), Bound(("rocksdict",), 1.5), Bound(("lmdb",), 0.8))
    many, short = (Bound(ALL, 2),), (Bound(ALL, 1),)
    beyond = (Bound(("rocksdict",), 1.2),) if warm else ()
    many_beyond = (*beyond, Bound(("lmdb",), 0.8)) if warm else ()
    tuples, arrow = (Bound(ALL, 0.9),), (Bound(ALL, 4),)
    return [
        Case("get", "get, present", stage, 7, _get, get if warm else (), beyond),
        Case(
            *("get_absent", "get, absent", stage, 7, _get_absent),
            (Bound(("rocksdict",), 0.8),) if warm else (),
        ),
        Case("get_many", "get_many of 100, a key", stage, 7, _get_many, many, many_beyond),
        Case(
            *("get_many_arrow", "get_many of 100 as Arrow, a key", stage, 7, _get_many_arrow),
            many,
        ),
        Case("scan", "scan of 50 rows, a scan", stage, 7, _scan, short),
        Case("scan_all", "full scan as tuples, a row", stage, 3, _scan_all, tuples),
        Case(
            *("scan_all_arrow", "full scan as Arrow, a row", stage, 3, _scan_all_arrow, arrow),
            compared_with="scan_all",
        ),
    ]


WRITES = (Bound(LOCAL, 1.5),)

CASES = [
    Case("put", "put, one row", "puts", 5, _put, (Bound(("slatedb",), 50), Bound(LOCAL, 1))),
    Case("write_arrow", "write of 1,000 rows as Arrow, a row", "arrow", 5, _write, WRITES),
    Case("put_many", "put_many of 1,000 rows, a row", "load", 5, _put_many, WRITES),
    *_reads("left"),
    *_reads("tables"),
    # In this order: the scans of E read the updates of A.
    Case("ycsb_c", "YCSB C, a read", "mixed", 7, _ycsb("C", 20_000)),
    Case(
        *("ycsb_b", "YCSB B, an operation", "mixed", 7, _ycsb("B", 20_000)),
        (Bound(("rocksdict",), 1.2),),
    ),
    Case("ycsb_a", "YCSB A, an operation", "mixed", 5, _ycsb("A", 80_000)),
    Case("ycsb_e", "YCSB E, an operation", "mixed", 5, _ycsb("E", 4000), (Bound(ALL, 1),)),
    Case(
        *("put_ordered", "put_many of 1,000 rows in order, a row", "ordered", 5, _put_ordered),
        (Bound(LOCAL, 1),),
    ),
    Case(
        *("replay", "open with 450,000 rows in the WAL", "apart", 3, None),
        (Bound(("slatedb",), 2), Bound(("rocksdict",), 2)),
    ),
    Case("open", "open of 1,000 rows", "apart", 7, None, (Bound(limit=20e6),)),
    Case("import", "import in a new process", "apart", 7, None, (Bound(limit=100e6),)),
    Case("memory", "growth of the process, all workloads", "apart", 1, None, unit="bytes"),
]
"""In the order of the stages."""
