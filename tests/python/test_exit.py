"""The end of an interpreter with open handles, commits and scans."""

from __future__ import annotations

import asyncio
import gc

import pytest

import siltstone
from pace_for_tests import until
from siltstone import aio

WRITES = """
import sys, threading, siltstone
db = siltstone.open(sys.argv[1], options={"flush_interval": float(sys.argv[2])})
reader = siltstone.open_reader(sys.argv[1])
for i in range(500):
    commit = db.put(b"%04d" % i, b"v" * 200)
"""

# Threads that wait, read and write while the interpreter ends.
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
        # The close was clean: no writer has to be fenced.
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
# It sends nothing by itself, so it learns of the other one when it closes.
old = siltstone.open(sys.argv[1], options={"flush_interval": 3600})
old[b"a"] = b"1"
new = siltstone.open(sys.argv[1], take_over=True)
"""
    status, _, err = python(program, url)
    assert status == 0
    assert "Fenced" in err
    # One line that names the error and the database.
    assert err.startswith(f"closing {url} when the interpreter ended failed: "), err
    assert err.count("\n") == 1, err


def test_a_close_that_was_told_is_not_told_again_at_exit(python, url) -> None:
    program = """
import sys, siltstone
db = siltstone.open(sys.argv[1], options={"flush_interval": 3600})
db[b"a"] = b"1"
new = siltstone.open(sys.argv[1], take_over=True)
for _ in range(3):
    try:
        db.close()
    except siltstone.Fenced as error:
        print(error)
"""
    status, out, err = python(program, url)
    assert (status, err) == (0, "")
    first, second, third = out.splitlines()
    assert first == second == third


def test_every_close_after_one_that_failed_tells_the_same(url: str) -> None:
    """Before the fix, the second close (in a `with` block, the close at its end) returned without
    an error."""
    old = siltstone.open(url)
    old.put(b"a", b"1").wait()
    with siltstone.open(url, take_over=True):
        told = set()
        for _ in range(3):
            with pytest.raises(siltstone.Fenced) as raised:
                old.close()
            told.add(str(raised.value))
        with pytest.raises(siltstone.Fenced):
            asyncio.run(aio.Database(old).close())
        assert len(told) == 1
    with siltstone.open(url) as well:
        pass
    well.close()
    asyncio.run(aio.Database(well).close())


FORGOTTEN = """
import sys, siltstone
db = siltstone.open(sys.argv[1], options={"flush_interval": 3600})
db.put(b"a", b"1").wait()
"""


def test_a_cell_that_runs_a_second_time_is_quiet(python, url) -> None:
    """The first handle is fenced, and has no reference left. It has lost no write."""
    program = FORGOTTEN + "db = siltstone.open(sys.argv[1], take_over=True)\n"
    status, _, err = python(program, url)
    assert (status, err) == (0, "")
    # The fence is logged at level INFO.
    told = "import logging\nlogging.basicConfig(level=logging.INFO)\n" + program
    status, _, err = python(told, url)
    assert status == 0, err
    assert f"INFO:siltstone.close:closing {url} after its last user had gone failed: " in err
    assert "every write had been acknowledged: Fenced: " in err


def test_a_forgotten_handle_that_may_have_lost_writes_says_so(python, url) -> None:
    program = (
        FORGOTTEN
        + """
db[b"b"] = db[b"c"] = b"2"
db = siltstone.open(sys.argv[1], take_over=True)
"""
    )
    status, _, err = python(program, url)
    assert status == 0, err
    assert err.startswith(f"closing {url} after its last user had gone failed: "), err
    assert "2 operations were not acknowledged" in err
    assert "Fenced" in err
    assert err.count("\n") == 1, err


def test_after_the_exit_hook_a_close_is_quiet(python, url) -> None:
    """Hooks registered before ours run after it: the handles are closed by then."""
    program = """
import asyncio, atexit, sys
def late():
    for close in (db.close, db.close, reader.close, reader.close):
        print(close())
    with db:
        pass
    print(asyncio.run(aio.Database(db).close()))
    print(asyncio.run(aio.Reader(other).close()))
atexit.register(late)
import siltstone
from siltstone import aio
db = siltstone.open(sys.argv[1])
db[b"a"] = b"1"
reader, other = (siltstone.open_reader(sys.argv[1]) for _ in range(2))
"""
    status, out, err = python(program, url)
    assert (status, err) == (0, "")
    assert out.split() == ["None"] * 6
    with siltstone.open(url, take_over=False) as db:
        assert db[b"a"] == b"1"


def test_a_close_that_failed_at_exit_tells_it_to_later_hooks(python, url) -> None:
    program = """
import atexit, sys
def late():
    try:
        db.close()
    except siltstone.Fenced:
        print("Fenced")
atexit.register(late)
import siltstone
db = siltstone.open(sys.argv[1])
new = siltstone.open(sys.argv[1], take_over=True)
"""
    status, out, _ = python(program, url)
    assert (status, out.split()) == (0, ["Fenced"])


LATE = """
import os, sys, siltstone
class Keeper:
    # All that the destructor of a global needs is stored in the object: it must import nothing.
    def __init__(self):
        self.db = siltstone.open(sys.argv[1])
        self.db[b"a"] = b"1"
        self.reader = siltstone.open_reader(sys.argv[1])
        self.closed, self.write, self.sys = siltstone.Closed, os.write, sys
    def __del__(self):
        said = ["late" if self.sys.meta_path is None else "early"]
        calls = {
            "get": lambda: self.db.get(b"a"),
            "item": lambda: self.db[b"a"],
            "get_many": lambda: self.db.get_many([b"a"]),
            "scan": lambda: self.db.scan(),
            "put": lambda: self.db.put(b"a", b"2"),
            "delete": lambda: self.db.delete(b"a"),
            "flush": lambda: self.db.flush(),
            "snapshot": lambda: self.db.snapshot(),
            "read": lambda: self.reader.get(b"a"),
            "refresh": lambda: self.reader.refresh(),
            "stats": lambda: self.db.stats(),
            "close": lambda: self.db.close(),
            "close the reader": lambda: self.reader.close(),
        }
        for name, call in calls.items():
            try:
                call()
                said.append(name)
            except self.closed:
                said.append(name + ": Closed")
            except BaseException as error:
                said.append(f"{name}: {error!r}")
        self.write(1, "\\n".join(said).encode())
keeper = Keeper()
"""


def test_a_late_destructor_meets_closed_and_nothing_else(python, url) -> None:
    """Before the fix, each call ended in `ImportError: sys.meta_path is None`."""
    status, out, err = python(LATE, url)
    assert (status, err) == (0, "")
    late, *said = out.split("\n")
    assert late == "late"
    refused = ["get", "item", "get_many", "scan", "put", "delete", "flush", "snapshot", "read"]
    expected = [f"{call}: Closed" for call in [*refused, "refresh"]]
    assert said == [*expected, "stats", "close", "close the reader"]


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
