"""Checks a database on a full disk, and after there is room again. Run as a program by
``test_full_disk.py``. FOLDER is a small disk of its own.

    full_disk_for_tests.py SCENARIO FOLDER
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa

import siltstone
from siltstone import admin

# The error text of the operating system.
WORDS = "No space left on device"
# Nothing frees space in the background. No wait is long; each is longer than a retry pause.
ALONE = {
    "deadline": 3.0,
    "l0_sst_size_bytes": 1 << 20,
    "max_memtable_bytes": 4 << 20,
    "embedded_compactor": False,
    "embedded_gc": False,
}
VALUE = bytes(range(256)) * 16


def fill(folder: Path, spare: int = 0) -> Path:
    """Makes a file that leaves `spare` bytes of the disk free."""
    ballast = folder / "ballast"
    with ballast.open("wb", buffering=0) as file:
        for size in (1 << 20, 4096, 1):
            try:
                while True:
                    file.write(b"\xff" * size)
            except OSError:
                continue
        file.truncate(max(file.tell() - spare, 0))
    return ballast


def patiently(call: Callable[[], object]) -> None:
    """Calls it again if a deadline passed without an answer of the disk: the machine stalled."""
    for tries in range(5):
        try:
            call()
        except siltstone.Timeout as error:
            if WORDS in str(error) or tries == 4:
                raise
        else:
            return


def put(db: siltstone.Database, numbers: range) -> tuple[list[bytes], siltstone.Error | None]:
    """Puts rows and waits for each. Returns the acknowledged rows and the error that stopped it."""
    done: list[bytes] = []
    for number in numbers:
        key = b"key%06d" % number
        try:
            patiently(lambda key=key: db.put(key, VALUE).wait())
        except siltstone.Error as error:
            return done, error
        done.append(key)
    return done, None


def told(error: BaseException | None) -> None:
    """The error is a deadline that passed, with the text of the store."""
    assert isinstance(error, siltstone.Timeout), repr(error)
    assert WORDS in str(error), str(error)


def check(path: Path, keys: list[bytes]) -> None:
    assert admin.verify(path).ok
    with siltstone.open(path, options=ALONE) as db:
        assert all(value == VALUE for value in db.get_many(keys))


def a_writer_says_why_and_goes_on(folder: Path) -> None:
    path = folder / "db"
    db = siltstone.open(path, options=ALONE)
    before, _ = put(db, range(100))
    ballast = fill(folder, 1 << 20)
    meanwhile, error = put(db, range(100, 100_000))
    told(error)
    for call in (db.flush, db.compact):
        try:
            patiently(call)
        except siltstone.Timeout as again:
            told(again)
        else:
            raise AssertionError("it is full")
    ballast.unlink()
    db.flush()
    # Accepted but unacknowledged rows were never given up.
    after, error = put(db, range(200_000, 200_100))
    assert error is None
    db.compact()
    db.close()
    check(path, [*before, *meanwhile, b"key%06d" % (100 + len(meanwhile)), *after])


def a_close_says_why_and_loses_nothing(folder: Path) -> None:
    path = folder / "db"
    db = siltstone.open(path, options=ALONE)
    before, _ = put(db, range(100))
    ballast = fill(folder)
    db.put(b"late", b"value")
    try:
        db.close()
    except siltstone.Timeout as error:
        told(error)
    else:
        raise AssertionError("it is full")
    ballast.unlink()
    check(path, before)


def a_killed_writer_has_lost_nothing(folder: Path) -> None:
    path = folder / "db"
    ready, say = os.pipe()
    child = os.fork()
    if child == 0:
        db = siltstone.open(path, options=ALONE)
        before, _ = put(db, range(100))
        fill(folder, 1 << 20)
        meanwhile, error = put(db, range(100, 100_000))
        told(error)
        os.write(say, b"%d" % len([*before, *meanwhile]))
        signal.pause()
    count = int(os.read(ready, 100))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    (folder / "ballast").unlink()
    check(path, [b"key%06d" % number for number in range(count)])


def compactors_say_why_and_end(folder: Path) -> None:
    path = folder / "db"
    with siltstone.open(path, options=ALONE) as db:
        # Four tables.
        keys, error = put(db, range(1000))
        assert error is None
    small, soon = ("--option", "l0_compaction_threshold_ssts=1"), ("--option", "deadline=1")
    command = [sys.executable, "-m", "siltstone.cli", "--path", str(path)]

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        # The timeout only ends a test that would never end.
        return subprocess.run(
            [*command, *arguments], check=False, capture_output=True, text=True, timeout=60
        )

    def refused(*arguments: str) -> None:
        ended = run(*arguments)
        # A machine that stalls for the whole deadline keeps the disk from answering.
        for _ in range(4):
            if WORDS not in ended.stderr:
                ended = run(*arguments)
        assert ended.returncode == 1, ended
        assert WORDS in ended.stderr, ended

    for spare in (0, 64 << 10):
        # First not even a claim of the compactor's epoch fits; then it fits, but no table does.
        ballast = fill(folder, spare)
        refused("compact", *small, *soon)
        ballast.unlink()
    ballast = fill(folder)
    refused("run-compactor", *small, *soon)
    ballast.unlink()
    ended = run("compact", *small)
    assert ended.returncode == 0, ended
    assert len(admin.manifest(path)["runs"]) == 1
    check(path, keys)


def a_load_gives_its_scratch_folder_back(folder: Path) -> None:
    """Loads 80 MB of unsorted rows: the database has room, but the scratch files have none."""
    scratch = folder / "scratch"
    scratch.mkdir()
    free = os.statvfs(folder).f_bavail

    def batches(rows: int) -> Iterator[tuple[pa.Array, pa.Array]]:
        for at in range(0, rows, 10_000):
            keys = [b"key%06d" % (number * 7919 % rows) for number in range(at, at + 10_000)]
            yield pa.array(keys), pa.array([VALUE[:500]] * len(keys))

    with siltstone.open("memory://load") as db:
        db.put(b"before", b"it").wait()
        how = {"memory_bytes": 64 << 20, "scratch": scratch}
        refused: siltstone.Error | None = None
        try:
            db.load(batches(160_000), **how)
        except siltstone.Error as error:
            refused = error
        assert WORDS in str(refused), refused
        assert list(scratch.iterdir()) == []
        assert os.statvfs(folder).f_bavail == free
        assert list(db) == [b"before"]
        assert db.load(batches(10_000), **how).rows == 10_000
        assert sum(1 for _ in db) == 10_001


def readers_read_and_tools_say_why(folder: Path) -> None:
    path = folder / "db"
    with siltstone.open(path, options=ALONE) as db:
        keys, error = put(db, range(100))
        assert error is None
    ballast = fill(folder)
    began = time.monotonic()
    with siltstone.open_reader(path, options={"deadline": 20.0}) as reader:
        assert all(value == VALUE for value in reader.get_many(keys))
        reader.refresh()
    assert time.monotonic() - began < 10
    refused: siltstone.Error | None = None
    try:
        siltstone.destroy(path)
    except siltstone.Error as error:
        refused = error
    assert WORDS in str(refused), refused
    assert "free some space and repeat the destroy, or delete the folder" in str(refused)
    ballast.unlink()
    check(path, keys)
    siltstone.destroy(path)


if __name__ == "__main__":
    globals()[sys.argv[1]](Path(sys.argv[2]))
