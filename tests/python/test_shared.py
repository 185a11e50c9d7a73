"""`open(…, shared=True)`: all openers of a process share one handle, which the last close
closes."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import siltstone
import siltstone.aio
from pace_for_tests import PATIENCE, until


@pytest.fixture
def url() -> str:
    return f"memory://{uuid.uuid4().hex}"


def epoch(db: siltstone.Database) -> int:
    return db.stats().epoch


def test_openers_have_one_handle_and_each_closes_its_own(url: str) -> None:
    first = siltstone.open(url, shared=True)
    second = siltstone.open(url, shared=True)
    assert epoch(first) == epoch(second)
    first[b"a"] = b"1"
    assert second[b"a"] == b"1"
    commit = first.put(b"b", b"2")
    first.close()
    # All writes are durable, as after any close.
    assert commit.durable
    assert second.closed_by is None
    assert second[b"b"] == b"2"
    # A second close of the same handle does not count.
    first.close()
    first.close()
    for call in (lambda: first[b"a"], lambda: first.put(b"c", b"3"), first.stats, first.batch):
        with pytest.raises(siltstone.Closed):
            call()
    assert isinstance(first.closed_by, siltstone.Closed)
    assert "closed" in repr(first)
    assert "open" in repr(second)
    with siltstone.open(url, shared=True) as third:
        assert epoch(third) == epoch(second)
    assert second[b"a"] == b"1"
    was = epoch(second)
    second.close()
    assert siltstone.admin.manifest(url)["closed_cleanly"]
    with siltstone.open(url, shared=True) as again:
        assert epoch(again) > was
        assert dict(again) == {b"a": b"1", b"b": b"2"}


def test_snapshots_and_scans_outlive_the_share(url: str) -> None:
    with siltstone.open(url, shared=True) as other:
        with siltstone.open(url, shared=True) as db:
            db[b"a"] = b"1"
            snapshot, scan = db.snapshot(), db.scan()
        other[b"a"] = b"2"
        assert snapshot[b"a"] == b"1"
        assert list(scan) == [(b"a", b"1")]


def test_an_unshared_second_handle_is_refused_as_ever(url: str) -> None:
    shared = siltstone.open(url, shared=True)
    with pytest.raises(siltstone.Conflict, match="this process"):
        siltstone.open(url)
    with siltstone.open(url, take_over=True) as alone:
        with pytest.raises(siltstone.Fenced):
            shared.put(b"a", b"0").wait()
        with pytest.raises(siltstone.Conflict, match="this process"):
            siltstone.open(url, shared=True)
        alone[b"a"] = b"1"
    with pytest.raises(siltstone.Fenced):
        shared.close()


def test_a_fenced_handle_is_not_joined(url: str) -> None:
    first = siltstone.open(url, shared=True)
    siltstone.open(url, take_over=True).close()
    with pytest.raises(siltstone.Fenced):
        first.put(b"a", b"1").wait()
    assert isinstance(first.closed_by, siltstone.Fenced)
    second = siltstone.open(url, shared=True)
    third = siltstone.open(url, shared=True)
    assert epoch(second) == epoch(third)
    with pytest.raises(siltstone.Fenced):
        first.close()
    third[b"a"] = b"1"
    third.close()
    assert second[b"a"] == b"1"
    second.close()


def test_given_options_must_equal_those_of_the_handle(url: str) -> None:
    options = {"flush_interval": 0.5, "max_parallel_writes": 3}
    with siltstone.open(url, shared=True, options=options, merge_operator="append") as db:
        for same in (None, {}, {"flush_interval": 0.5}, siltstone.Options(max_parallel_writes=3)):
            with siltstone.open(url, shared=True, options=same) as joined:
                assert epoch(joined) == epoch(db)
        # A default value counts as given if it is given explicitly.
        with siltstone.open(url, shared=True, options={"read_durable_only": False}):
            pass
        with pytest.raises(siltstone.Invalid, match="flush_interval") as refused:
            siltstone.open(url, shared=True, options={"flush_interval": 0.25})
        assert refused.value.context["option"] == "flush_interval"
        assert "0.25" in refused.value.context["given"]
        assert "0.5" in refused.value.context["open"]
        with pytest.raises(siltstone.Invalid, match="merge_operator"):
            siltstone.open(url, shared=True, merge_operator="sum_i64")
        with siltstone.open(url, shared=True, merge_operator="append") as joined:
            joined.merge(b"a", b"1")
        assert db[b"a"] == b"1"
    with siltstone.open(url, shared=True):
        pass


def test_folders_are_told_apart_by_where_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "db").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "db")
    monkeypatch.chdir(tmp_path)
    with siltstone.open(tmp_path / "db", shared=True) as db:
        for same in ("db", "./db/", tmp_path / "link", (tmp_path / "db").as_uri()):
            with siltstone.open(same, shared=True) as joined:
                assert epoch(joined) == epoch(db)
                joined[b"a"] = b"1"
        with siltstone.open(tmp_path / "other", shared=True) as other:
            assert list(other) == []
            assert epoch(db) == 1
        assert list(db) == [b"a"]


def test_threads_that_open_and_close_at_once(url: str) -> None:
    barrier = threading.Barrier(8)

    def work(number: int) -> None:
        barrier.wait(PATIENCE)
        for turn in range(25):
            with siltstone.open(url, shared=True) as db:
                db[b"%d/%d" % (number, turn)] = b"v"
                assert db[b"%d/%d" % (number, turn)] == b"v"

    with ThreadPoolExecutor(8) as pool:
        for done in [pool.submit(work, number) for number in range(8)]:
            done.result()
    with siltstone.open(url) as db:
        assert len(list(db)) == 200


def test_a_forgotten_share_is_given_back(url: str) -> None:
    kept = siltstone.open(url, shared=True)
    siltstone.open(url, shared=True)[b"a"] = b"1"
    gc.collect()
    assert kept[b"a"] == b"1"
    was = epoch(kept)
    del kept
    gc.collect()
    # The database is opened again, or joined before it was released: both must be correct.
    with siltstone.open(url, shared=True) as db:
        assert epoch(db) >= was
        assert db[b"a"] == b"1"

    def alone() -> siltstone.Database | None:
        # The share that was dropped is given back in the background.
        try:
            return siltstone.open(url)
        except siltstone.Conflict:
            return None

    with until(alone) as db:
        assert db[b"a"] == b"1"


def test_both_surfaces_share(url: str) -> None:
    async def work() -> None:
        with siltstone.open(url, shared=True) as waits:
            async with siltstone.aio.open(url, shared=True) as db:
                await db.put(b"a", b"1")
                assert waits[b"a"] == b"1"
                assert (await db.stats()).epoch == epoch(waits)
                assert db.closed_by is None
            assert isinstance(db.closed_by, siltstone.Closed)
            with pytest.raises(siltstone.Closed):
                await db.get(b"a")
            await db.close()
            assert waits[b"a"] == b"1"
        opened = [siltstone.aio.open(url, shared=True) for _ in range(5)]
        handles = await asyncio.gather(*opened)
        assert len({(await db.stats()).epoch for db in handles}) == 1
        await asyncio.gather(*(db.close() for db in handles))

    asyncio.run(work())
    assert siltstone.admin.manifest(url)["closed_cleanly"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_child_has_handles_of_its_own(tmp_path: Path) -> None:
    with siltstone.open(tmp_path / "db", shared=True) as db:
        db[b"a"] = b"1"
        child = os.fork()
        if child == 0:
            status = 1
            try:
                closed = isinstance(db.closed_by, siltstone.Closed)
                # The parent is alive, and is another process for the child.
                with pytest.raises(siltstone.Conflict):
                    siltstone.open(tmp_path / "db", shared=True)
                with siltstone.open(tmp_path / "own", shared=True) as own:
                    own[b"b"] = b"2"
                status = 0 if closed else 2
            finally:
                os._exit(status)
        assert os.waitpid(child, 0)[1] == 0
        db[b"c"] = b"3"
        assert list(db) == [b"a", b"c"]


EXIT = """
import atexit, sys, siltstone
one = siltstone.open(sys.argv[1], shared=True)
two = siltstone.open(sys.argv[1], shared=True)
atexit.register(lambda: print(type(one.closed_by).__name__, one.close(), two.close()))
one[b"a"] = b"1"
two.close()
"""


def test_the_interpreters_end_closes_it(python, tmp_path: Path) -> None:
    status, _, errors = python(EXIT, str(tmp_path / "db"))
    assert status == 0, errors
    with siltstone.open(tmp_path / "db", take_over=False) as db:
        assert db[b"a"] == b"1"
