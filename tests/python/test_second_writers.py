"""Which processes may open a database for writing at the same time."""

from __future__ import annotations

import gc
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import siltstone
from siltstone import aio

WORKER = """
import os, sys, siltstone
print("ready", flush=True)
sys.stdin.readline()
try:
    db = siltstone.open(sys.argv[1])
except siltstone.Conflict as conflict:
    print("conflict", conflict.context["process"], conflict.context["host"], flush=True)
    sys.exit()
for n in range(25):
    db.put(b"%d-%d" % (os.getpid(), n), b"v").wait()
print("wrote", os.getpid(), flush=True)
sys.stdin.readline()
"""

FORKED = """
import os, signal, sys, siltstone
db = siltstone.open(sys.argv[1])
db.put(b"a", b"1").wait()
child = os.fork()
if child == 0:
    signal.pause()
print(child, flush=True)
for line in sys.stdin:
    if line == "close\\n":
        db.close()
        print("closed", flush=True)
"""


@contextmanager
def running(program: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A process that is killed at the end if it still runs."""
    process = subprocess.Popen(
        [sys.executable, "-c", program, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def told(process: subprocess.Popen[str]) -> list[str]:
    """The next line of output, split into words."""
    assert process.stdout is not None
    return process.stdout.readline().split()


def tell(process: subprocess.Popen[str], line: str) -> None:
    """Sends a line to the process."""
    assert process.stdin is not None
    process.stdin.write(line + "\n")
    process.stdin.flush()


def test_one_of_four_processes_writes_and_three_are_told_which(url: str) -> None:
    with (
        running(WORKER, url) as one,
        running(WORKER, url) as two,
        running(WORKER, url) as three,
        running(WORKER, url) as four,
    ):
        workers = [one, two, three, four]
        assert [told(worker) for worker in workers] == [["ready"]] * 4
        for worker in workers:
            tell(worker, "go")
        answers = [told(worker) for worker in workers]
        wrote = [answer[0] == "wrote" for answer in answers]
        assert wrote.count(True) == 1, answers
        writer = workers[wrote.index(True)]
        refused = ["conflict", str(writer.pid), socket.gethostname()]
        assert sorted(answers) == sorted([["wrote", str(writer.pid)], *[refused] * 3])

        with pytest.raises(siltstone.Conflict, match=f"process {writer.pid} on") as conflict:
            siltstone.open(url)
        for way_out in ("open_reader", "take_over=True"):
            assert way_out in str(conflict.value)
        # A killed writer blocks no other writer, from the first moment.
        writer.kill()
        writer.wait()
        with siltstone.open(url) as db:
            assert sorted(db) == sorted(b"%d-%d" % (writer.pid, n) for n in range(25))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="nothing tells of a dead process")
def test_a_forked_child_holds_nothing_for_its_parent(url: str) -> None:
    """The child has its parent's lock file open, and never uses it."""
    for ends in ("killed", "closed"):
        with running(FORKED, url) as parent:
            child = int(told(parent)[0])
            try:
                with pytest.raises(siltstone.Conflict, match=f"process {parent.pid} on"):
                    siltstone.open(url)
                if ends == "killed":
                    parent.kill()
                    parent.wait()
                else:
                    tell(parent, "close")
                    assert told(parent) == ["closed"]
                with siltstone.open(url) as db:
                    assert db[b"a"] == b"1"
            finally:
                os.kill(child, signal.SIGKILL)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_child_is_another_process(url: str) -> None:
    with siltstone.open(url) as db:
        receive, send = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                # Dropping the handle in the child does not close it in the parent.
                del db
                gc.collect()
                siltstone.open(url)
            except BaseException as error:
                os.write(send, f"{type(error).__name__} {error}".encode())
            os._exit(0)
        os.close(send)
        with os.fdopen(receive) as pipe:
            answer = pipe.read()
        os.waitpid(child, 0)
        assert answer.startswith("Conflict")
        assert f"process {os.getpid()} on" in answer
        with pytest.raises(siltstone.Conflict, match="this process"):
            siltstone.open(url)
        db.put(b"a", b"1").wait()


def test_one_process_opens_once_by_any_path(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = tmp_path / "link"
    link.symlink_to(tmp_path)
    monkeypatch.chdir(tmp_path)
    with siltstone.open(url) as db:
        for path in (url, Path(url), f"file://{url}", link / "db", "db"):
            with pytest.raises(siltstone.Conflict, match="this process"):
                siltstone.open(path)
        db.put(b"a", b"1").wait()


@pytest.mark.parametrize("kind", ["folder", "memory"])
def test_every_end_of_a_handle_makes_way(kind: str, url: str, memory_url: str) -> None:
    place = url if kind == "folder" else memory_url
    for _ in range(20):
        siltstone.open(place).close()
    dropped = siltstone.open(place)
    del dropped
    gc.collect()
    fenced = siltstone.open(place)
    with siltstone.open(place, take_over=True) as newer:
        with pytest.raises(siltstone.Fenced, match="one writer at a time, and open_reader reads"):
            fenced.put(b"a", b"1").wait()
        # Closing a writer that was fenced does not release the lock of the newer one.
        with pytest.raises(siltstone.Fenced):
            fenced.close()
        with pytest.raises(siltstone.Conflict):
            siltstone.open(place)
        newer.put(b"a", b"2").wait()
    fenced = siltstone.open(place)
    newer = siltstone.open(place, take_over=True)
    newer.close()
    # The older one does not know yet that it is fenced, and does not block another writer.
    siltstone.open(place).close()
    with pytest.raises(siltstone.Fenced):
        fenced.close()


def test_an_opening_that_fails_makes_way(url: str) -> None:
    siltstone.open(url, merge_operator="max").close()
    with pytest.raises(siltstone.Invalid):
        siltstone.open(url, merge_operator="append")
    with pytest.raises(siltstone.NotFound):
        siltstone.open(url + "2", create=False)
    assert not Path(url + "2").exists()
    siltstone.open(url).close()


def test_false_refuses_what_did_not_close(url: str) -> None:
    with running(WORKER, url) as worker:
        assert told(worker) == ["ready"]
        tell(worker, "go")
        assert told(worker)[0] == "wrote"
        with pytest.raises(siltstone.Conflict, match=f"process {worker.pid} on"):
            siltstone.open(url, take_over=False)
        worker.kill()
        worker.wait()
    with pytest.raises(siltstone.Conflict, match="epoch 1 did not close"):
        siltstone.open(url, take_over=False)
    siltstone.open(url).close()
    siltstone.open(url, take_over=False).close()


def test_true_ends_a_process_that_hangs(url: str) -> None:
    with running(WORKER, url) as worker:
        assert told(worker) == ["ready"]
        tell(worker, "go")
        assert told(worker)[0] == "wrote"
        os.kill(worker.pid, signal.SIGSTOP)
        with siltstone.open(url, take_over=True) as db:
            db.put(b"a", b"1").wait()
            assert len(list(db)) == 26
        # The stopped process still exists, but is no longer the writer.
        siltstone.open(url).close()


def test_awaited_openings_are_refused_alike(url: str) -> None:
    async def work() -> None:
        db = await aio.open(url)
        with pytest.raises(siltstone.Conflict, match="this process"):
            await aio.open(url)
        async with aio.open(url, take_over=True) as newer:
            await (await newer.put(b"a", b"1"))
        with pytest.raises(siltstone.Fenced):
            await (await db.put(b"a", b"2"))
        with pytest.raises(siltstone.Fenced):
            await db.close()

    import asyncio  # noqa: PLC0415

    asyncio.run(work())


def test_the_mark_is_no_part_of_the_database(url: str) -> None:
    with siltstone.open(url) as db:
        db.put(b"a", b"1").wait()
        assert (Path(url) / ".writer").exists()
        # Readers, collectors and verification work beside the writer.
        with siltstone.open_reader(url) as reader:
            assert reader[b"a"] == b"1"
        siltstone.admin.gc(url, min_age=0)
        assert siltstone.admin.verify(url).ok
        assert siltstone.admin.verify(url).orphans == ()
        with pytest.raises(siltstone.Conflict):
            siltstone.open(url)
    siltstone.admin.gc(url, min_age=0)
    assert siltstone.admin.verify(url).ok
    siltstone.open(url).close()
