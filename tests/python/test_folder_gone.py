"""The folder of a database is removed or replaced by another one while a writer has it open."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import siltstone
from pace_for_tests import until

OTHER = """
import sys, siltstone
with siltstone.open(sys.argv[1]) as db:
    for n in range(50):
        db.put(b"other%02d" % n, b"v").wait()
"""


def opened(url: str) -> siltstone.Database:
    """A writer whose folder is complete: it makes spare files in the background."""
    db = siltstone.open(url)
    until((Path(url) / ".staging" / "reserve-3").exists)
    return db


def test_a_removed_folder_ends_its_writer_and_stays_removed(url: str) -> None:
    db = opened(url)
    db.put(b"a", b"1").wait()
    shutil.rmtree(url)
    with pytest.raises(siltstone.NotFound, match=r"folder was removed.* open the database again"):
        db.put(b"b", b"2").wait()
    # The writer ends at once: the next call raises the reason, without a wait.
    with pytest.raises(siltstone.NotFound, match="folder was removed"):
        db.put(b"c", b"3")
    with pytest.raises(siltstone.NotFound, match="folder was removed"):
        db.close()
    assert not Path(url).exists()
    with siltstone.open(url) as again:
        assert dict(again) == {}


def test_another_database_in_its_place_loses_nothing(url: str) -> None:
    """A handle forgotten in a notebook: the folder is removed, and made again by another
    process."""
    db = opened(url)
    for n in range(50):
        db.put(b"old%02d" % n, b"v").wait()
    shutil.rmtree(url)
    subprocess.run([sys.executable, "-c", OTHER, url], check=True)
    objects = sorted(path for path in Path(url).rglob("*") if path.is_file())
    with pytest.raises(siltstone.NotFound, match="another one is in its place"):
        db.put(b"late", b"v").wait()
    with pytest.raises(siltstone.NotFound):
        db.close()
    assert sorted(path for path in Path(url).rglob("*") if path.is_file()) == objects
    assert siltstone.admin.verify(url).ok
    with siltstone.open_reader(url) as reader:
        assert sorted(reader) == [b"other%02d" % n for n in range(50)]
    with siltstone.open(url) as again:
        assert len(dict(again)) == 50


def test_opening_again_in_its_place_is_no_second_writer(url: str) -> None:
    """A mistake in a notebook: `rmtree` and `open`, without `close`, in one process."""
    db = opened(url)
    db.put(b"old", b"1").wait()
    shutil.rmtree(url)
    with siltstone.open(url) as again:
        again.put(b"new", b"2").wait()
        with pytest.raises(siltstone.NotFound):
            db.put(b"late", b"3").wait()
        assert dict(again) == {b"new": b"2"}
    with pytest.raises(siltstone.NotFound):
        db.close()
    with siltstone.open_reader(url) as reader:
        assert dict(reader) == {b"new": b"2"}


def test_a_reader_says_that_the_folder_is_gone(url: str) -> None:
    with opened(url) as db:
        db.put(b"a", b"1").wait()
    with siltstone.open_reader(url, options={"reader_lease": False}) as reader:
        shutil.rmtree(url)
        with pytest.raises(siltstone.NotFound, match="folder was removed"):
            reader.refresh()
    assert not Path(url).exists()


@pytest.mark.parametrize("at_checkpoint", [False, True])
def test_a_scan_says_that_the_folder_is_gone(url: str, at_checkpoint: bool) -> None:
    """Before the fix, the scan of a reader raised Expired and named leases."""
    with siltstone.open(url) as db:
        db.put_many([b"%05d" % n for n in range(5000)], [b"v" * 1000] * 5000)
        db.flush(memtable=True)
    checkpoint = siltstone.admin.create_checkpoint(url) if at_checkpoint else None
    options = {"block_cache_bytes": 0}
    with siltstone.open_reader(url, checkpoint=checkpoint, options=options) as reader:
        scan = reader.scan(b"04000")
        shutil.rmtree(url)
        with pytest.raises(siltstone.NotFound, match=r"no database|removed"):
            list(scan)


def test_a_cleared_folder_takes_nothing_more(url: str) -> None:
    """`rm -r db/*` leaves the folder itself."""
    db = opened(url)
    db.put(b"a", b"1").wait()
    for path in Path(url).iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    with pytest.raises(siltstone.NotFound, match="a part of the database's folder was removed"):
        db.put(b"b", b"2").wait()
    with pytest.raises(siltstone.NotFound):
        db.close()
    assert [path.name for path in Path(url).iterdir() if path.name != ".staging"] == []
