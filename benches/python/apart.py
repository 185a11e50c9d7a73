"""Programs that need their own process; each prints one line of JSON.

apart.py import MODULE               nanoseconds of the import
apart.py fill ENGINE FOLDER ROWS     writes rows and closes
apart.py kill ENGINE FOLDER ROWS     writes rows into the log and is killed
apart.py open ENGINE FOLDER [ROWS]   nanoseconds until open, and until a row is read
apart.py memory FOLDER ROWS          growth of Siltstone's process over all workloads, in bytes
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import signal
import sys
import time
from pathlib import Path


def _import(module: str) -> object:
    start = time.perf_counter_ns()
    importlib.import_module(module)
    return time.perf_counter_ns() - start


def _fill(name: str, folder: str, rows: str) -> object:
    from work import Work  # noqa: PLC0415

    work = Work(Path(folder).parent, int(rows), [name])
    engine = work.engines[name]
    engine.open(Path(folder))
    engine.put_many(work.batches(0, int(rows)))
    engine.close()
    return "closed"


def _kill(name: str, folder: str, rows: str) -> object:
    from work import Work  # noqa: PLC0415

    work = Work(Path(folder).parent, int(rows), [name])
    engine = work.engines[name]
    engine.open(Path(folder))
    engine.put_many(work.batches(0, int(rows)))
    engine.log()
    print('"killed"', flush=True)  # noqa: T201
    os.kill(os.getpid(), signal.SIGKILL)
    return None


def _open(name: str, folder: str, rows: str = "1000") -> object:
    from work import Work  # noqa: PLC0415

    work = Work(Path(folder).parent, int(rows), [name])
    engine = work.engines[name]
    importlib.import_module(engine.imported or engine.module)
    start = time.perf_counter_ns()
    engine.open(Path(folder))
    opened = time.perf_counter_ns()
    engine.begin_reads()
    held = engine.values([work.keys[-1]])
    ready = time.perf_counter_ns()
    if held != [work.values[-1]]:
        raise ValueError(f"{name} lost its last row")
    state = engine.state()
    engine.end_reads()
    engine.close()
    return {"open": opened - start, "ready": ready - start, "state": state}


def _memory(folder: str, rows: str) -> object:
    import siltstone  # noqa: PLC0415
    from cases import CASES  # noqa: PLC0415
    from work import Work  # noqa: PLC0415

    work = Work(Path(folder), int(rows), ["siltstone"])
    work.folder.mkdir()
    options = siltstone.Options()
    budget = (
        options.max_memtable_bytes + options.block_cache_bytes + options.metadata_cache_bytes
    ) + (64 << 20)
    gc.collect()
    # From here on the kernel's high-water mark covers only the workloads.
    Path("/proc/self/clear_refs").write_text("5")
    before = _resident("VmRSS")
    engine, mapped = work.engines["siltstone"], 0
    for case in CASES:
        if case.prepare:
            work.enter(case.stage)
            run, _ = case.prepare(work, engine, 0, 1)
            run()
            # Pages of the system's cache, which count as resident if they are mapped.
            mapped = max(mapped, engine.mapped())
    work.close()
    return {"growth": _resident("VmHWM") - before, "budget": budget + mapped}


def _resident(field: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) << 10
    raise ValueError(f"the kernel does not say {field}")


PROGRAMS = {"import": _import, "fill": _fill, "kill": _kill, "open": _open, "memory": _memory}

if __name__ == "__main__":
    print(json.dumps(PROGRAMS[sys.argv[1]](*sys.argv[2:])))  # noqa: T201
