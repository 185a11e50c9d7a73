"""The data, and the stages of a run.

    puts     an empty database an engine, for the writes of one row
    arrow    an empty one again, for batches that come as Arrow
    load     an empty one again, filled in batches: what all reads go to
    left     as the load left it
    tables   after closing and opening again, everything in tables, warmed by one full pass
    mixed    the same, and written to
    ordered  an empty database an engine, for batches in the order of the keys
    apart    nothing open: programs of their own

All engines enter a stage together, when the first case requests it. Keys are random, values are
random bytes (incompressible), both from one seed: they are the same for every engine.
"""

from __future__ import annotations

import random
import shutil
import time
from pathlib import Path

import pyarrow as pa

from engines import Engine, Rows, engines
from ycsb import Step, Zipf, steps

READ_STAGES = ("left", "tables")
HELD_STAGES = (*READ_STAGES, "mixed")
"""Stages during which engines keep the resources of reads."""
KEY_BYTES = 16
VALUE_BYTES = 100
VALUES = 1 << 16
BATCH = 1000
ORDERED_ROWS = 1_000_000
"""The highest number of rows of the ordered load: the cost of a batch does not depend on it."""
LOAD_SHARE = 0.05
"""Share of the rows that is loaded into an engine with a share below 1: its reads get faster."""
QUIET_SECONDS = 0.01


class Work:
    """Rows, engines and their current stage."""

    def __init__(self, folder: Path, rows: int, names: list[str]) -> None:
        source = random.Random(4)
        self.folder, self.rows, self.random = folder, rows, source
        self.keys = [source.randbytes(KEY_BYTES) for _ in range(rows)]
        pool = [source.randbytes(VALUE_BYTES) for _ in range(min(VALUES, rows))]
        self.values = [pool[i % len(pool)] for i in range(rows)]
        kinds = engines()
        self.engines: dict[str, Engine] = {name: kinds[name]() for name in names}
        self.stage = ""
        self.loaded = dict.fromkeys(names, 0)
        self.states: dict[str, str] = {}
        self._zipfs: dict[int, Zipf] = {}
        self._ordered: list[tuple[bytes, bytes]] = []
        self._middles: dict[int, list[tuple[bytes, bytes]]] = {}

    # --- the inputs of the cases ------------------------------------------------------------------

    def share(self, engine: Engine, count: int, least: int = 1) -> int:
        """The number of operations, of `count`, for an engine."""
        return max(min(least, count), int(count * engine.share))

    def target(self, engine: Engine) -> int:
        """The number of rows with which an engine is loaded."""
        return self.rows if engine.share == 1 else max(1, int(self.rows * LOAD_SHARE))

    def slice(self, start: int, count: int) -> Rows:
        """This many rows from a position on, in the order of the load, which is random."""
        return self.keys[start : start + count], self.values[start : start + count]

    def batches(self, start: int, count: int) -> list[Rows]:
        """The same in batches of `BATCH`."""
        ends = range(start, start + count, BATCH)
        return [self.slice(at, min(BATCH, start + count - at)) for at in ends]

    def arrow(self, start: int, count: int) -> list[pa.RecordBatch]:
        """The same as record batches."""
        return [
            pa.record_batch(
                {"key": pa.array(keys, pa.binary()), "value": pa.array(values, pa.binary())}
            )
            for keys, values in self.batches(start, count)
        ]

    def present(self, engine: Engine, count: int) -> list[bytes]:
        """Random keys that the engine contains."""
        keys = self.keys
        return [keys[at] for at in self.random.choices(range(self.target(engine)), k=count)]

    def absent(self, count: int) -> list[bytes]:
        """Random keys that no engine contains."""
        return [self.random.randbytes(KEY_BYTES) for _ in range(count)]

    def ordered(self, start: int, count: int) -> list[Rows]:
        """Rows of a load in the order of their keys, in batches of `BATCH`."""
        if not self._ordered:
            loaded = min(self.rows, ORDERED_ROWS)
            self._ordered = sorted(zip(self.keys[:loaded], self.values[:loaded], strict=True))
        rows = self._ordered[start : start + count]
        batches = (rows[at : at + BATCH] for at in range(0, len(rows), BATCH))
        return [([key for key, _ in batch], [value for _, value in batch]) for batch in batches]

    def mixed(self, engine: Engine, workload: str, count: int) -> list[Step]:
        """Steps of one of YCSB's workloads over the rows that the engine contains."""
        target = self.target(engine)
        zipf = self._zipfs.setdefault(target, Zipf(target, self.random))
        return steps(workload, self.keys, self.values, zipf, count)

    # --- stages ----------------------------------------------------------------------------------

    def enter(self, stage: str) -> None:
        """Move all engines to a stage; stages only go forward."""
        if stage == self.stage:
            return
        if stage == "tables":
            self.enter("left")
            self._into_tables()
        elif stage == "left":
            self.enter("load")
            self._finish_load()
        elif stage == "mixed":
            self.enter("tables")
        else:
            self.close()
            if stage != "apart":
                self._open()
        self.stage = stage
        if stage in READ_STAGES:
            for engine in self.engines.values():
                engine.begin_reads()
                if stage == "tables":
                    engine.scan_all(self.target(engine))
                self.check(engine)

    def _open(self) -> None:
        for engine in self.engines.values():
            engine.open(self.folder / engine.name)

    def _finish_load(self) -> None:
        for engine in self.engines.values():
            done, target = self.loaded[engine.name], self.target(engine)
            engine.put_many(self.batches(done, target - done))
            self.loaded[engine.name] = target

    def _into_tables(self) -> None:
        for engine in self.engines.values():
            engine.end_reads()
            engine.into_tables()
            engine.close()
        self._open()

    def close(self) -> None:
        """Close and delete everything that is open."""
        if self.stage in ("", "apart"):
            return
        for engine in self.engines.values():
            if self.stage in HELD_STAGES:
                engine.end_reads()
            engine.close()
            shutil.rmtree(self.folder / engine.name)
        self.stage = ""

    def check(self, engine: Engine) -> None:
        """Check that the engine contains its rows, and record where it keeps them.

        :raises ValueError: if it does not.
        """
        target = self.target(engine)
        places = self.random.sample(range(target), min(target, 200))
        keys = [self.keys[place] for place in places]
        held = engine.values([*keys, *self.absent(10)])
        expected = self._middle(target)
        if (
            held != [*[self.values[place] for place in places], *[None] * 10]
            or engine.rows(expected[0][0], 50) != expected
            or engine.scan_all(target) != target
        ):
            raise ValueError(f"{engine.name} does not hold what it was given ({self.stage})")
        self.states[f"{self.stage}/{engine.name}"] = engine.state()

    def _middle(self, target: int) -> list[tuple[bytes, bytes]]:
        """Rows from the middle of the first `target` ones, in the order of their keys."""
        if target not in self._middles:
            ordered = sorted(zip(*self.slice(0, target), strict=True))
            self._middles[target] = ordered[target // 2 : target // 2 + 50]
        return self._middles[target]

    def settle(self) -> None:
        """Wait, at most two seconds, until no background thread works, so that remaining work of
        one engine is not charged to the next one's round."""
        until = time.monotonic() + 2
        while time.monotonic() < until:
            before = time.process_time()
            time.sleep(QUIET_SECONDS)
            if time.process_time() - before < QUIET_SECONDS / 10:
                return
