"""Tests that the collector frees a real file system that is full, and that writers continue.

The file system is a tmpfs in a mount namespace of the child process, and ends with that process.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

MOUNT = ["unshare", "--user", "--map-root-user", "--mount"]
SIZE_MIB = 48

CHILD = """
import os, subprocess, sys
import siltstone
from siltstone import admin

folder = sys.argv[1]
subprocess.run(["mount", "-t", "tmpfs", "-o", "size=%sm", "tmpfs", folder], check=True)
database, filler = folder + "/db", folder + "/filler"

def used():
    at = os.statvfs(folder)
    return (at.f_blocks - at.f_bfree) * at.f_frsize

def fill():
    with open(filler, "wb", buffering=0) as file:
        try:
            while file.write(bytes(4096)):
                pass
        except OSError:
            pass

def overwrite(db, round, rows):
    for number in range(rows):
        db.put(b"key%%06d" %% number, os.urandom(1000))
    db[b"round"] = b"%%d" %% round
    db.flush()

small = {
    "l0_sst_size_bytes": "1MiB", "max_memtable_bytes": "4MiB", "max_space_amplification": 1.5
}
"""

BY_HAND = """
with siltstone.open(database, options={**small, "embedded_gc": False}) as db:
    for round in range(4):
        overwrite(db, round, 1500)
    db.compact()
# Once a round has stored its boundaries, the next round can delete more.
assert admin.gc(database, min_age=0).trouble is None
with siltstone.open(database, options={**small, "embedded_gc": False}) as db:
    for round in range(4, 6):
        overwrite(db, round, 1500)
    db.compact()
name = next(one for one in sorted(os.listdir(database + "/compacted")))
orphan = name.replace(name[:26], "00000000000000000000000009")
with open(database + "/compacted/" + orphan, "wb") as file:
    file.write(bytes(65536))
fill()
full = used()
report = admin.gc(database, min_age=0)
print(report.total.deleted, full - used())
assert report.total.deleted > 10 and full - used() > 2_000_000
assert admin.verify(database).problem_count == 0
"""

WITHOUT_A_BLOCK = """
for part in range(3):
    with siltstone.open(database, options={**small, "embedded_gc": False}) as db:
        for round in range(3 * part, 3 * part + 3):
            overwrite(db, round, 1500)
        db.compact()
    fill()
    full = used()
    # Every object is referenced, or is garbage above the boundaries, so the collector has to write
    # new boundaries before it can delete anything.
    report = admin.gc(database, min_age=0)
    assert report.trouble is None
    assert report.total.deleted > 10 and full - used() > 2_000_000
    os.remove(filler)
    reserve = [name for name in os.listdir(database + "/.staging") if name.startswith("reserve")]
    assert len(reserve) == 4
    assert admin.verify(database).problem_count == 0
"""

BY_ITSELF = """
with siltstone.open(database, options=small) as db:
    for round in range(30):
        overwrite(db, round, 5000)
    assert db[b"round"] == b"29"
with siltstone.open(database, options=small) as db:
    assert db[b"round"] == b"29"
assert admin.verify(database).problem_count == 0
"""

AT_CLOSE = """
with siltstone.open(database, options={**small, "flush_interval": 60, "deadline": 20}) as db:
    for round in range(2):
        overwrite(db, round, 700)
    # Two tables and their log become one table, so little that the collector keeps the garbage.
    # After this no job runs that could meet the full disk before the close does, and free space
    # that the filler then takes from the close.
    db.compact()
    assert used() > 3_000_000
    for number in range(300):
        db.put(b"last%06d" % number, os.urandom(1000))
    fill()
    os.truncate(filler, os.path.getsize(filler) - 65536)
os.remove(filler)
with siltstone.open(database, options=small) as db:
    assert db[b"round"] == b"1" and len(list(db.scan(prefix=b"last"))) == 300
assert admin.verify(database).problem_count == 0
"""


def run(folder: Path, program: str) -> None:
    mounts = [*MOUNT, "mount", "-t", "tmpfs", "tmpfs", folder]
    can = subprocess.run(mounts, capture_output=True, check=False)
    if can.returncode != 0:
        pytest.skip(f"cannot mount a file system: {can.stderr.decode().strip()}")
    code = CHILD % SIZE_MIB + program
    child = [*MOUNT, sys.executable, "-c", code, folder]
    done = subprocess.run(child, capture_output=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr.decode()


def test_a_round_frees_a_disk_without_a_free_block(tmp_path: Path) -> None:
    """The collector deletes unreferenced tables without a write. Boundaries have room then."""
    run(tmp_path, BY_HAND)


def test_a_round_needs_no_free_block_for_its_boundaries(tmp_path: Path) -> None:
    """A writer sets blocks aside for the boundaries, and the round replaces the blocks it used."""
    run(tmp_path, WITHOUT_A_BLOCK)


def test_writing_goes_on_where_garbage_has_filled_the_disk(tmp_path: Path) -> None:
    """A writer overwrites 150 MB on 48 MB. All garbage is within the grace period."""
    run(tmp_path, BY_ITSELF)


def test_a_close_finds_room_for_what_it_writes(tmp_path: Path) -> None:
    """The disk fills up after the last accepted write. There is room for a boundary but not for the
    log, and only garbage within the grace period can be freed."""
    run(tmp_path, AT_CLOSE)
