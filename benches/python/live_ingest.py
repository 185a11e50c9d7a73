"""The effect of an ingest of many tables on puts and reads of a live database.

    python benches/python/live_ingest.py [--rows N] [--tables N] [--jobs N] [--calm SECONDS]
        [--folder PATH] [--json]

Jobs are staged before. One thread repeatedly puts a row and reads another, first without other
work, then while the jobs are adopted, one after the other, and installed. Required with 1,000
tables per job: no put takes more than 50 ms longer at the 99th percentile, and a read takes at most
1.5 times as long, by the median.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import threading
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import pyarrow as pa

import siltstone
from siltstone import ingest

VALUE = b"v" * 100
BATCH_ROWS = 1 << 16


@dataclass(frozen=True)
class Live:
    """The results."""

    tables: int
    rows: int
    ingest_seconds: float
    puts_calm: int
    puts_meanwhile: int
    put_p99_ms_calm: float
    put_p99_ms_meanwhile: float
    put_longest_ms_meanwhile: float
    read_us_calm: float
    read_us_meanwhile: float
    read_ratio: float


def key(number: int) -> bytes:
    """A key that exists from the beginning."""
    return b"row/%012d" % number


class Caller(threading.Thread):
    """Puts and reads until it is stopped."""

    def __init__(self, db: siltstone.Database, rows: int) -> None:
        super().__init__()
        self.db, self.rows, self.over = db, rows, threading.Event()
        self.calls: list[tuple[int, int, int]] = []
        """The start of a put, its end, and the end of the read after it."""

    def run(self) -> None:
        clock, source = time.perf_counter_ns, random.Random(7)
        put, get, note = self.db.put, self.db.get, self.calls.append
        while not self.over.is_set():
            keys = [key(source.randrange(self.rows)) for _ in range(200)]
            for one, other in zip(keys[::2], keys[1::2], strict=True):
                began = clock()
                put(one, VALUE)
                ended = clock()
                get(other)
                note((began, ended, clock()))
            # As in a service, and so that the log does not dominate the measurement.
            time.sleep(0.001)


def staged(url: Path, number: int, rows: int, tables: int) -> ingest.IngestRequest:
    """A job with this many tables, beside the existing data."""
    job = ingest.Job(url)
    row_bytes = len(key(0)) + 1 + len(VALUE)
    with job.writer("all", table_bytes=rows // tables * row_bytes) as writer:
        for at in range(0, rows, BATCH_ROWS):
            keys = [b"job/%d/%012d" % (number, n) for n in range(at, min(at + BATCH_ROWS, rows))]
            writer.add_many(pa.array(keys), pa.array([VALUE] * len(keys)))
    return job.commit([writer.finish()])


def measure(given: argparse.Namespace, folder: Path) -> Live:
    """Measure without, and then with the ingest."""
    with siltstone.open(folder) as db:
        there = pa.table(
            {
                "key": [key(number) for number in range(given.rows)],
                "value": [VALUE] * given.rows,
            }
        )
        db.load(there, sorted=True)
        db.flush(memtable=True)
        jobs = [staged(folder, n, given.rows, given.tables) for n in range(given.jobs)]
        caller = Caller(db, given.rows)
        caller.start()
        try:
            time.sleep(given.calm)
            while not caller.calls:
                time.sleep(0.001)
            began = time.perf_counter_ns()
            for job in jobs:
                db.ingest(job).wait()
                db.flush(memtable=True)
            ended = time.perf_counter_ns()
        finally:
            caller.over.set()
            caller.join()
    calm = [call for call in caller.calls if call[2] < began]
    # A call that was running at that time counts.
    meanwhile = [call for call in caller.calls if call[2] >= began and call[0] <= ended]
    puts = [sorted((end - begin) / 1e6 for begin, end, _ in calls) for calls in (calm, meanwhile)]
    reads = [sorted((end - begin) / 1e3 for _, begin, end in calls) for calls in (calm, meanwhile)]
    medians = [each[len(each) // 2] for each in reads]
    return Live(
        tables=jobs[0].tables,
        rows=given.rows,
        ingest_seconds=(ended - began) / 1e9,
        puts_calm=len(calm),
        puts_meanwhile=len(meanwhile),
        put_p99_ms_calm=puts[0][len(calm) * 99 // 100],
        put_p99_ms_meanwhile=puts[1][len(meanwhile) * 99 // 100],
        put_longest_ms_meanwhile=puts[1][-1],
        read_us_calm=medians[0],
        read_us_meanwhile=medians[1],
        read_ratio=medians[1] / medians[0],
    )


def main() -> None:
    """The program."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, default=500_000)
    parser.add_argument("--tables", type=int, default=1000)
    parser.add_argument("--jobs", type=int, default=5)
    parser.add_argument("--calm", type=float, default=5.0)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="live", dir=given.folder) as folder:
        found = asdict(measure(given, Path(folder)))
    if given.json:
        sys.stdout.write(json.dumps(found) + "\n")
    else:
        sys.stdout.writelines(f"{name}\t{value:,.3f}\n" for name, value in found.items())


if __name__ == "__main__":
    main()
