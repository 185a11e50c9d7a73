"""An export compared with a bare copy of the same bytes, in turns.

python benches/python/exporting.py [--mib N] [--rounds N] [--folder FOLDER]

The bare copy lets the system copy the files of the tables, four at a time, and syncs each, as an
export does; it checks nothing. (With reads and writes of 8 MiB from Python it takes twice as long.)
Required: an export of a gigabyte runs at 80 % of that speed; an incremental one copies at most the
changed tables and 1 MB.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import siltstone
from work import KEY_BYTES

MIB = 1 << 20
AT_ONCE = 4
VALUE_BYTES = 4096
ROWS_A_BATCH = 256
ALONE = {"embedded_compactor": False, "l0_max_ssts": 64}
"""Without compaction, so that both ways copy the same tables."""


def fill(db: siltstone.Database, first: int, rows: int) -> None:
    """Rows with incompressible values."""
    for start in range(first, first + rows, ROWS_A_BATCH):
        batch = siltstone.WriteBatch()
        for number in range(start, min(start + ROWS_A_BATCH, first + rows)):
            batch.put(b"%0*d" % (KEY_BYTES, number), os.urandom(VALUE_BYTES))
        db.write(batch)


def copied(source: Path, target: Path) -> None:
    """Copy one file and sync it."""
    shutil.copyfile(source, target)
    handle = os.open(target, os.O_RDONLY)
    os.fsync(handle)
    os.close(handle)


def bare(source: Path, target: Path) -> float:
    """Seconds to copy every table of a database."""
    target.mkdir()
    begun = time.perf_counter()
    tables = sorted((source / "compacted").iterdir())
    with ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(lambda table: copied(table, target / table.name), tables))
    handle = os.open(target, os.O_RDONLY)
    os.fsync(handle)
    os.close(handle)
    return time.perf_counter() - begun


def exported(source: Path, target: Path) -> float:
    """Seconds to export it."""
    begun = time.perf_counter()
    siltstone.admin.export(source, target)
    return time.perf_counter() - begun


def main() -> None:
    ask = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    ask.add_argument("--mib", type=int, default=1024, help="MiB of rows")
    ask.add_argument("--rounds", type=int, default=5, help="of each")
    ask.add_argument("--folder", type=Path, help="where everything is made")
    given = ask.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="exporting-", dir=given.folder))
    source = folder / "source"
    rows = given.mib * MIB // (KEY_BYTES + VALUE_BYTES)
    took: dict[str, list[float]] = {"bare": [], "export": []}
    try:
        with siltstone.open(source, options=ALONE) as db:
            fill(db, 0, rows)
            db.flush(memtable=True)
        siltstone.admin.gc(source, min_age=0)
        held = sum(table.stat().st_size for table in (source / "compacted").iterdir())
        for turn in range(given.rounds):
            for name, way in (("bare", bare), ("export", exported)):
                target = folder / f"{name}-{turn}"
                took[name].append(way(source, target))
                shutil.rmtree(target)
        mirror = folder / "mirror"
        siltstone.admin.export(source, mirror)
        with siltstone.open(source, options=ALONE) as db:
            fill(db, 0, rows // 100)
            db.flush(memtable=True)
        begun = time.perf_counter()
        later = siltstone.admin.export(source, mirror)
        seconds = time.perf_counter() - begun
    finally:
        shutil.rmtree(folder)
    rates = {name: held / statistics.median(each) / 1e6 for name, each in took.items()}
    lines = [
        f"{held / MIB:.0f} MiB: bare {rates['bare']:.0f} MB/s, export {rates['export']:.0f} MB/s",
        f"of the bare copy: {rates['export'] / rates['bare']:.2f}",
        f"a hundredth changed: {later.bytes / MIB:.1f} MiB in {seconds:.2f} s, {later}",
    ]
    print("\n".join(lines))  # noqa: T201


if __name__ == "__main__":
    main()
