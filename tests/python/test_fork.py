"""Allowed and refused uses of the parent's handles in a forked child."""

from __future__ import annotations

import gc
import multiprocessing
import os
import sys
import threading

import pytest

import siltstone
from pace_for_tests import PATIENCE

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here"),
    # Newer Pythons warn that the threads of the runtime do not exist in the child. The test needs
    # that.
    pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning"),
]


def in_child(work) -> str:
    """The result of `work` in a forked child."""
    receive, send = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            answer = work()
        except BaseException as error:
            answer = f"{type(error).__name__}: {error}"
        os.write(send, answer.encode())
        os._exit(0)
    os.close(send)
    with os.fdopen(receive) as pipe:
        answer = pipe.read()
    assert os.waitpid(child, 0)[1] == 0
    return answer


def test_the_writers_handles_are_closed_in_the_child(url: str) -> None:
    with siltstone.open(url) as db:
        commit = db.put(b"a", b"1")
        snapshot, scan, batch = db.snapshot(), db.scan(), db.batch()
        batch.put(b"b", b"1")
        stream = db.scan().to_arrow()

        def use() -> str:
            raised = []
            for call in (
                lambda: db.get(b"a"),
                lambda: db.put(b"a", b"2"),
                lambda: db.scan(),
                lambda: db.get_many([b"a"] * 100),
                lambda: db.flush(),
                lambda: db.stats(),
                lambda: db.close(),
                lambda: snapshot.get(b"a"),
                lambda: next(scan),
                lambda: commit.wait(),
                lambda: commit.durable,
                lambda: batch.__exit__(None, None, None),
            ):
                try:
                    call()
                    raised.append("nothing")
                except siltstone.Closed as error:
                    raised.append("fork" if "fork" in str(error) else str(error))
            repr(db), repr(commit), repr(snapshot)
            return " ".join(raised)

        answer = in_child(use).split(" ", 6)
        assert answer[:6] == ["fork"] * 6
        assert answer[6].startswith("only the process that opened the database can close it fork")
        assert answer[6].split()[-5:] == ["fork"] * 5
        assert db[b"a"] == b"1"
        db.put(b"b", b"2").wait()
        assert stream is not None


def test_a_child_leaves_the_blocks_of_its_parent(url: str) -> None:
    """By sys.exit, whose status is that of the child."""
    child = 0
    try:
        with siltstone.open(url) as db:
            with db.transaction():
                child = os.fork()
                if child == 0:
                    sys.exit(7)
                assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
            db[b"a"] = b"1"
            assert db[b"a"] == b"1"
    except BaseException as leaving:
        if child:
            raise
        os._exit(leaving.code if isinstance(leaving, SystemExit) else 1)


def test_handles_can_be_dropped_in_the_child(url: str) -> None:
    db = siltstone.open(url)
    handles = [db, db.put(b"a", b"1"), db.snapshot(), db.scan(), siltstone.open_reader(url)]

    def drop() -> str:
        nonlocal db
        del db
        handles.clear()
        gc.collect()
        return "dropped"

    assert in_child(drop) == "dropped"
    assert db.get(b"a") == b"1"
    db.close()


def test_a_reader_opens_itself_anew_in_the_child(url: str) -> None:
    with siltstone.open(url) as db, siltstone.open_reader(url) as reader:
        db.put(b"a", b"1").wait()
        reader.refresh()

        def read() -> str:
            first = reader.get(b"a"), reader.get_many([b"a", b"b"]), list(reader.items())
            reader.refresh()
            return repr(first)

        assert in_child(read) == repr((b"1", [b"1", None], [(b"a", b"1")]))
        assert reader[b"a"] == b"1"


def test_the_child_opens_its_own(url: str, tmp_path) -> None:
    other = str(tmp_path / "other")
    with siltstone.open(url) as db:
        db[b"a"] = b"1"

        def work() -> str:
            with siltstone.open(other) as mine:
                mine.put(b"x", b"y").wait()
                return repr(mine[b"x"])

        assert in_child(work) == "b'y'"
        with siltstone.open(other, take_over=False) as mine:
            assert mine[b"x"] == b"y"


def test_forks_of_forks(url: str) -> None:
    siltstone.open(url).close()
    reader = siltstone.open_reader(url)

    def child() -> str:
        assert reader.get(b"a") is None
        return in_child(lambda: repr(reader.get(b"a")))

    assert in_child(child) == "None"
    reader.close()


def test_forked_while_threads_are_at_work(url: str) -> None:
    """Locks of the engine are held at the moment of the fork, again and again."""
    with siltstone.open(url) as db:
        stop = threading.Event()

        def write() -> None:
            i = 0
            while not stop.is_set():
                db.put(b"%d" % i, b"v" * 100)
                db.get_many([b"%d" % j for j in range(i, i + 50)])
                i += 1

        threads = [threading.Thread(target=write) for _ in range(2)]
        for thread in threads:
            thread.start()
        with siltstone.open_reader(url) as reader:
            for _ in range(10):
                assert in_child(lambda: repr(reader.get(b"absent"))) == "None"
        stop.set()
        for thread in threads:
            thread.join()


def work_in_pool(url: str) -> bytes | None:
    with siltstone.open_reader(url) as reader:
        return reader.get(b"a")


def write_and_leave(url: str) -> None:
    db = siltstone.open(url, options={"flush_interval": 3600})
    db[b"left"] = b"open"


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_pools_of_processes(url: str, method: str) -> None:
    with siltstone.open(url) as db:
        db.put(b"a", b"1").wait()
        with multiprocessing.get_context(method).Pool(2) as pool:
            assert pool.map(work_in_pool, [url] * 4) == [b"1"] * 4


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_worker_that_leaves_normally_flushes(url: str, method: str) -> None:
    worker = multiprocessing.get_context(method).Process(target=write_and_leave, args=(url,))
    worker.start()
    worker.join(PATIENCE)
    assert worker.exitcode == 0
    with siltstone.open(url, take_over=False) as db:
        assert db[b"left"] == b"open"
