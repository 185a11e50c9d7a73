"""Measures the operations of one size of one dimension: time, memory, requests and bytes.

The first call of an operation is cold: it is watched for memory and counted by `stats()` of the
handle. Later calls are timed, and the shortest one counts. An operation that changes what it
measures is called once, or gets new inputs before each call. The meter never mixes the two: a
watched call is timed only if it is the only one.
"""

from __future__ import annotations

import gc
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

from fit import BYTES, KINDS, MEMORY, REQUESTS, TIME

STATUS = Path("/proc/self/status")
WATCH_SECONDS = 0.001
"""Time between two looks at the memory."""
REPEAT_SECONDS = 1.5
"""No repeat begins after this time."""
COUNTED = ("get_requests", "put_requests", "upload_chunks", "list_requests", "delete_requests")


def resident_bytes() -> int:
    """Memory of the process without mapped files; 0 where the system does not tell."""
    if sys.platform == "linux":
        for line in STATUS.read_text().splitlines():
            if line.startswith("RssAnon:"):
                return int(line.split()[1]) * 1024
    return 0


class Watch:
    """The highest memory of the process during a block, above that at its beginning."""

    def __enter__(self) -> Self:
        gc.collect()
        self.before = self.highest = resident_bytes()
        self.ends = threading.Event()
        self.thread = threading.Thread(target=self._watch)
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.ends.set()
        self.thread.join()
        self.highest = max(self.highest, resident_bytes())

    def _watch(self) -> None:
        while not self.ends.wait(WATCH_SECONDS):
            self.highest = max(self.highest, resident_bytes())

    @property
    def grown(self) -> int:
        """The growth in bytes."""
        return self.highest - self.before


def counts(handle: Any) -> dict[str, float]:
    """Requests and bytes of a handle so far."""
    stats = handle.stats()
    return {
        REQUESTS.name: sum(getattr(stats, name) for name in COUNTED),
        BYTES.name: stats.bytes_read + stats.bytes_written,
    }


class Meter:
    """The figures of one size."""

    def __init__(self) -> None:
        self.figures: dict[str, dict[str, float]] = {}

    def record(self, operation: str, kind: str, amount: float) -> None:
        """Add a figure; of several the smallest counts."""
        assert kind in KINDS
        figures = self.figures.setdefault(operation, {})
        figures[kind] = min(amount, figures.get(kind, amount))

    def take(
        self,
        operation: str,
        call: Callable[[], Any],
        *,
        of: Any = None,
        calls: int = 1,
        repeats: int = 5,
    ) -> Any:
        """Measure a call that performs the operation `calls` times; return the first result.

        :param of: the handle whose requests are counted.
        :param repeats: number of timed calls after the first; 0 times the first call itself.
        """
        before = counts(of) if of is not None else {}
        with Watch() as watch:
            start = time.perf_counter()
            result = call()
            took = time.perf_counter() - start
        self.record(operation, MEMORY.name, watch.grown)
        if of is not None:
            for kind, amount in counts(of).items():
                self.record(operation, kind, (amount - before[kind]) / calls)
        if repeats == 0:
            self.record(operation, TIME.name, took / calls)
        until = time.perf_counter() + REPEAT_SECONDS
        for at in range(repeats):
            if at and time.perf_counter() > until:
                break
            start = time.perf_counter()
            call()
            self.record(operation, TIME.name, (time.perf_counter() - start) / calls)
        return result

    def count(self, operation: str, call: Callable[[], Any], of: Any, calls: int = 1) -> None:
        """Count the requests and bytes of a call, and measure nothing else."""
        before = counts(of)
        call()
        for kind, amount in counts(of).items():
            self.record(operation, kind, (amount - before[kind]) / calls)

    def open(
        self,
        operation: str,
        opens: Callable[[], Any],
        *,
        before: Callable[[], object] | None = None,
        repeats: int = 3,
    ) -> None:
        """Measure calls that open a handle, and close each. Its requests are those of the opening.

        :param before: what must be done before each call, which is not measured.
        """
        for at in range(repeats):
            if before is not None:
                before()
            with Watch() as watch:
                start = time.perf_counter()
                handle = opens()
                took = time.perf_counter() - start
            self.record(operation, TIME.name, took)
            if at == 0:
                self.record(operation, MEMORY.name, watch.grown)
                for kind, amount in counts(handle).items():
                    self.record(operation, kind, amount)
            with suppress(AttributeError):
                handle.close()
