"""The cost of the start: the import, and opening a small database."""

from __future__ import annotations

import statistics

# Each of these costs more than the package itself. It is loaded only by code that needs it.
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
    # The documented limit is 0.1 s; the rest is for slower or busy machines.
    assert min(seconds) < 0.25, seconds


def test_opening_a_small_database_is_quick(python, url: str) -> None:
    status, out, err = python(OPEN, url)
    assert status == 0, err
    seconds = [float(line) for line in out.split()]
    print(f"open: {statistics.median(seconds):.4f} s")
    # The documented limit is 0.02 s; the rest is for slower machines. Only the fastest try counts,
    # because a busy machine only adds time.
    assert min(seconds) < 0.1, seconds
