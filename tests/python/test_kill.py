"""Processes killed during their work: every acknowledged write is present, and the present writes
are a prefix.

``SILTSTONE_KILLS`` sets the number of kills (15 by default).
"""

from __future__ import annotations

import os
import random
import signal
import struct
import subprocess
import sys

import pytest

import siltstone

KILLS = int(os.environ.get("SILTSTONE_KILLS", "15"))

# The n-th write sets one key and, in the same batch, the counter. So the counter tells which writes
# were recovered, and which of them wrote each key last. Every acknowledged write is reported
# through the pipe before the next wait.
WRITER = """
import os, random, struct, sys, siltstone
url, first, seed, pipe = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
draw = random.Random(seed)
options = {"l0_sst_size_bytes": 16384, "flush_interval": draw.choice([0, 0.001, 0.05]),
           "max_parallel_writes": draw.choice([1, 4, 16])}
db = siltstone.open(url, options=options)
window = []
for n in range(first, 1 << 40):
    with db.batch() as batch:
        batch.put(b"key%04d" % (n % 997), b"%d" % n + b"." * draw.randrange(200))
        batch.put(b"counter", b"%d" % n)
    window.append((n, batch.commit))
    if len(window) > draw.randrange(1, 64):
        n, commit = window.pop(0)
        commit.wait()
        os.write(pipe, struct.pack("<Q", n))
"""


def run_and_kill(url: str, first: int, seed: int) -> int:
    """Writes from `first` on until killed. Returns the last acknowledged write, 0 if there is
    none."""
    draw = random.Random(seed)
    receive, send = os.pipe()
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, url, str(first), str(seed), str(send)],
        pass_fds=[send],
        stderr=subprocess.PIPE,
    ) as child:
        os.close(send)
        acknowledged, left = 0, draw.randrange(1, 400)
        with os.fdopen(receive, "rb", buffering=0) as pipe:
            while left > 0 and (report := pipe.read(8)):
                (acknowledged,) = struct.unpack("<Q", report)
                left -= 1
            os.kill(child.pid, signal.SIGKILL)
            # The reports from before the kill.
            while report := pipe.read(8):
                (acknowledged,) = struct.unpack("<Q", report)
        error = child.stderr.read().decode()
    assert left == 0, error
    return acknowledged


def check(db: siltstone.Database | siltstone.Reader, acknowledged: int) -> int:
    """Checks that the present writes are a prefix, each of them whole. Returns the last one."""
    last = int(db.get(b"counter", b"0"))
    assert last >= acknowledged, "an acknowledged write was lost"
    expected = {}
    for n in range(max(1, last - 996), last + 1):
        expected[b"key%04d" % (n % 997)] = n
    found = {key: int(value.partition(b".")[0]) for key, value in db.scan(prefix=b"key")}
    assert found == expected
    assert db.get_many(sorted(expected)) == list(db.values(prefix=b"key"))
    return last


@pytest.mark.slow
def test_kills_lose_nothing_that_was_acknowledged(url: str) -> None:
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}")
    last = acknowledged = 0
    siltstone.open(url).close()
    for kill in range(KILLS):
        acknowledged = max(acknowledged, run_and_kill(url, last + 1, seed + kill))
        with siltstone.open_reader(url) as reader:
            seen = check(reader, acknowledged)
        with siltstone.open(url) as db:
            last = check(db, max(acknowledged, seen))
    assert last >= acknowledged > 0
