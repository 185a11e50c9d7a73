"""What it costs to begin: the import, and opening a small database."""

from __future__ import annotations

import statistics

# Each costs more than the package itself, and is loaded by what uses it.
HEAVY = ("asyncio", "click", "multiprocessing", "numpy", "pandas", "pyarrow", "rich", "socket")

IMPORT = """
import sys, time
before, begun = set(sys.modules), time.process_time()
import siltstone
print(time.process_time() - begun, *sorted(set(sys.modules) - before))
"""

OPEN = """
import sys, time, siltstone
with siltstone.open(sys.argv[1]) as db:
    db.put_many([b"%05d" % i for i in range(10_000)], [b"v" * 100] * 10_000)
best, tries = 9.0, 0
while tries < 5 or (best >= 0.1 and tries < 100):
    begun = time.perf_counter()
    with siltstone.open(sys.argv[1]) as db:
        spent = time.perf_counter() - begun
        print(spent)
    best, tries = min(best, spent), tries + 1
"""


def test_the_import_loads_nothing_heavy_and_is_quick(python) -> None:
    seconds = []
    for _ in range(5):
        status, out, err = python(IMPORT)
        assert status == 0, err
        spent, *loaded = out.split()
        assert not {name.split(".")[0] for name in loaded} & set(HEAVY)
        seconds.append(float(spent))
    # 0.1 s is promised; the rest is for machines that are slower, or busy.
    assert min(seconds) < 0.25, seconds


def test_opening_a_small_database_is_quick(python, url: str) -> None:
    status, out, err = python(OPEN, url)
    assert status == 0, err
    seconds = [float(line) for line in out.split()]
    print(f"open: {statistics.median(seconds):.4f} s")
    # 0.02 s is promised; the rest is for machines that are slower. The quickest counts, of as many
    # as it takes: a busy machine only adds.
    assert min(seconds) < 0.1, seconds
