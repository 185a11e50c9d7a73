"""Closing a handle releases its files and maps at once, while the handle object still exists."""

from __future__ import annotations

import sys
from pathlib import Path

import pyarrow as pa
import pytest

import siltstone
from siltstone import admin

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")

ROWS = 5_000
# A reader that looks for newer data while it closes would hold a file for a moment longer.
MAPPED = {"block_cache_bytes": 0, "manifest_poll_interval": 240}
"""Without a block cache, reads use maps of the table files."""
TABLES = {"l0_sst_size_bytes": 1 << 20, "embedded_compactor": False}


def held(folder: str) -> list[str]:
    """The files in `folder` that this process has open or mapped."""
    found = []
    for descriptor in Path("/proc/self/fd").iterdir():
        try:
            found.append(str(descriptor.readlink()))
        except FileNotFoundError:
            continue
    for line in Path("/proc/self/maps").read_text().splitlines():
        parts = line.split(maxsplit=5)
        if len(parts) == 6:
            found.append(f"map of {parts[5]}")
    return [name for name in found if folder in name]


def fill(url: str) -> None:
    with siltstone.open(url, options=TABLES) as db:
        for first in range(0, ROWS, 1_000):
            keys = [b"%05d" % n for n in range(first, first + 1_000)]
            db.put_many(keys, [b"x" * 500] * 1_000)
        db.flush(memtable=True)


def read_and_leave(handle: siltstone.Database | siltstone.Reader) -> None:
    """Reads in every way; each scan is left before its end."""
    assert handle[b"00007"] == b"x" * 500
    assert len(list(handle.get_many([b"%05d" % n for n in range(ROWS)]))) == ROWS
    next(iter(handle.scan()))
    next(iter(handle.scan(reverse=True)))
    pa.RecordBatchReader.from_stream(handle.scan().to_arrow(batch_rows=10)).read_next_batch()


def test_a_writers_close_gives_everything_back(url: str) -> None:
    fill(url)
    db = siltstone.open(url, options=MAPPED | TABLES)
    db[b"00000"] = b"new"
    read_and_leave(db)
    kinds = {"map of" in name for name in held(url)}
    assert kinds == {True, False}, "both files and maps are in use before"
    db.close()
    assert held(url) == []
    # The figures of a closed handle stay, except those of resources that were released.
    figures = db.stats()
    assert (figures.mapped_bytes, figures.block_cache_bytes, figures.metadata_bytes) == (0, 0, 0)
    assert figures.tables > 0


def test_a_close_that_fails_gives_everything_back(url: str) -> None:
    fill(url)
    db = siltstone.open(url, options=MAPPED | TABLES)
    read_and_leave(db)
    with siltstone.open(url, take_over=True) as other:
        other[b"a"] = b"b"
    assert held(url) != []
    with pytest.raises(siltstone.Fenced):
        db.put(b"c", b"d").wait()
    with pytest.raises(siltstone.Fenced):
        db.close()
    assert held(url) == []


@pytest.mark.parametrize("at", ["newest", "checkpoint", "version"])
def test_a_readers_close_gives_everything_back(url: str, at: str) -> None:
    fill(url)
    made = admin.create_checkpoint(url)
    where = {"newest": {}, "checkpoint": {"checkpoint": made.id}}
    where["version"] = {"version": made.manifest_id}
    reader = siltstone.open_reader(url, options=MAPPED, **where[at])
    read_and_leave(reader)
    kinds = {"map of" in name for name in held(url)}
    assert kinds == {True, False}
    reader.close()
    assert held(url) == []


def test_another_handle_keeps_its_own(url: str) -> None:
    fill(url)
    first, second = (siltstone.open_reader(url, options=MAPPED) for _ in range(2))
    read_and_leave(first)
    read_and_leave(second)
    first.close()
    assert held(url) != []
    read_and_leave(second)
    second.close()
    assert held(url) == []


def test_a_clones_close_gives_its_parents_files_back(tmp_path: Path) -> None:
    parent, clone = str(tmp_path / "parent"), str(tmp_path / "clone")
    fill(parent)
    siltstone.clone(clone, parent=parent)
    reader = siltstone.open_reader(clone, options=MAPPED)
    read_and_leave(reader)
    assert any("map of" in name for name in held(parent))
    reader.close()
    assert held(str(tmp_path)) == []


def test_scans_and_snapshots_outlive_a_close(url: str) -> None:
    """Both keep the data they read, and no file of the folder. Their end releases the rest."""
    fill(url)
    db = siltstone.open(url, options=MAPPED | TABLES)
    scan, snapshot = iter(db.scan()), db.snapshot()
    rows = [next(scan)]
    db.close()
    assert [name for name in held(url) if not name.startswith("map of")] == []
    assert snapshot[b"00007"] == b"x" * 500
    assert len(list(snapshot.scan())) == ROWS
    rows.extend(scan)
    assert [key for key, _ in rows] == [b"%05d" % n for n in range(ROWS)]
    assert [name for name in held(url) if not name.startswith("map of")] == []
    snapshot.close()
    del scan, snapshot
    assert held(url) == []


def test_values_keep_what_they_view(url: str) -> None:
    fill(url)
    reader = siltstone.open_reader(url, options=MAPPED)
    values = pa.array(reader.get_many([b"%05d" % n for n in range(ROWS)]))
    reader.close()
    assert values.to_pylist() == [b"x" * 500] * ROWS
    del values
    assert held(url) == []
