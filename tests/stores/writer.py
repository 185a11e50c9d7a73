"""A writer that another program kills or fences: writes one batch after the other, and reports.

    writer.py URL SEED [--again]

The store options are JSON in ``SILTSTONE_STORE_OPTIONS``. Each line of output is an event:

    began EPOCH LAST    the writer is open; LAST is the last write that it recovered
    ack EPOCH NUMBER    the store has acknowledged this write and all before it
    fenced EPOCH        another writer has taken over

The n-th write sets one of 997 keys and, in the same batch, the counter. So the counter tells which
writes were recovered, and which of them wrote each key last. With ``--again`` the writer opens the
database again after it was fenced, and ends otherwise.
"""

from __future__ import annotations

import json
import os
import random
import sys
import time
from collections import deque

import siltstone

KEYS = 997


def tell(*words: object) -> None:
    """Writes a line at once, so that it survives a kill."""
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


def reign(url: str, draw: random.Random, store_options: dict[str, str]) -> None:
    """Writes until another writer takes over."""
    options = {
        "l0_sst_size_bytes": 16384,
        "flush_interval": draw.choice([0, 0.001, 0.02]),
        "max_parallel_writes": draw.choice([1, 4, 16]),
    }
    window = draw.randrange(1, 32)
    epoch = 0
    try:
        # Without `with`: a fenced handle has nothing to close.
        db = siltstone.open(url, take_over=True, options=options, store_options=store_options)
        epoch, last = db.stats().epoch, int(db.get(b"counter", b"0"))
        tell("began", epoch, last)
        waiting = deque()
        for number in range(last + 1, 1 << 40):
            with db.batch() as batch:
                batch.put(b"key%04d" % (number % KEYS), b"%d" % number + b"." * draw.randrange(200))
                batch.put(b"counter", b"%d" % number)
            waiting.append((number, batch.commit))
            if len(waiting) > window:
                number_, commit = waiting.popleft()
                commit.wait()
                tell("ack", epoch, number_)
    except siltstone.Fenced:
        tell("fenced", epoch)


def main() -> None:
    """Runs the writer as the module says."""
    url, seed, *more = sys.argv[1:]
    draw = random.Random(int(seed))
    store_options = json.loads(os.environ["SILTSTONE_STORE_OPTIONS"])
    reign(url, draw, store_options)
    while more:
        time.sleep(draw.random() * 0.2)
        reign(url, draw, store_options)


if __name__ == "__main__":
    main()
