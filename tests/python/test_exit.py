"""What happens when an interpreter ends with something open."""

from __future__ import annotations

import gc

import pytest

import siltstone
from pace_for_tests import until

WRITES = """
import sys, threading, siltstone
db = siltstone.open(sys.argv[1], options={"flush_interval": float(sys.argv[2])})
reader = siltstone.open_reader(sys.argv[1])
for i in range(500):
    commit = db.put(b"%04d" % i, b"v" * 200)
"""

# Threads that wait, read and write while the interpreter goes.
DAEMONS = """
def wait():
    while True:
        db.put(b"daemon", b"x").wait()
def read():
    while True:
        db.get_many([b"%04d" % i for i in range(100)])
        list(db.scan(limit=100))
        reader.refresh()
for work in (wait, wait, read):
    threading.Thread(target=work, daemon=True).start()
import time
time.sleep(0.02)
"""

ENDS = {
    "end": "",
    "sys.exit": "sys.exit(0)",
    "daemons": DAEMONS,
    "snapshot and scan": "s = db.snapshot(); t = s.scan(); next(t); c = db.scan().to_arrow()",
    "commit waits": "commit.wait()",
    "forgotten": "del db, commit",
}


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("interval", ["3600", "0"])
def test_an_interpreter_that_ends_flushes_and_closes(python, url, end, interval) -> None:
    for _ in range(3):
        status, _, err = python(WRITES + ENDS[end], url, interval)
        assert status == 0, err
        assert "panicked" not in err, err
        assert "Fatal" not in err, err
        if end != "daemons":
            assert err == ""
        # Closed cleanly: nobody has to be fenced.
        with siltstone.open(url, take_over=False) as db:
            assert sum(1 for _ in db.scan(b"0", b"1")) == 500


def test_an_exception_ends_it_the_same_way(python, url) -> None:
    status, _, err = python(WRITES + "1 / 0", url, "3600")
    assert status == 1
    assert "ZeroDivisionError" in err
    with siltstone.open(url, take_over=False) as db:
        assert sum(1 for _ in db) == 500


def test_a_database_that_was_forgotten_is_closed(url: str) -> None:
    db = siltstone.open(url, options={"flush_interval": 3600})
    db[b"a"] = b"1"
    del db
    gc.collect()
    until(lambda: siltstone.admin.manifest(url)["closed_cleanly"])
    with siltstone.open(url, take_over=False) as db:
        assert db[b"a"] == b"1"


def test_a_close_that_fails_at_exit_is_told(python, url) -> None:
    program = """
import sys, siltstone
old = siltstone.open(sys.argv[1])
old[b"a"] = b"1"
new = siltstone.open(sys.argv[1])
"""
    status, _, err = python(program, url)
    assert status == 0
    assert "Fenced" in err


def test_nothing_is_opened_after_the_end(python, url) -> None:
    program = """
import atexit, sys
def late():
    for call in (lambda: siltstone.open(sys.argv[1]), lambda: db.get(b"a")):
        try:
            call()
        except siltstone.Closed:
            print("Closed")
atexit.register(late)
import siltstone
db = siltstone.open(sys.argv[1])
"""
    status, out, err = python(program, url)
    assert status == 0, err
    assert out.split() == ["Closed", "Closed"]


def test_importing_starts_no_thread(python) -> None:
    program = """
import os, siltstone
print(len(os.listdir("/proc/self/task")) if os.path.isdir("/proc/self/task") else 1)
"""
    status, out, err = python(program)
    assert status == 0, err
    assert out.strip() == "1"
