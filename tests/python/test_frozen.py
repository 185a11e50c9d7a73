"""A database from the time when version 1 of the formats was frozen stays readable forever.

`tests/golden/database` holds everything that a database can: tables of every codec, runs and L0,
every kind of entry, a log whose writer was killed, a reader's checkpoint, a record of compaction
jobs. `SILTSTONE_REWRITE_GOLDEN=1` makes it again. That is only right for a new version of the
formats, and the old folder must be kept beside it.
"""

import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import siltstone

GOLDEN = Path(__file__).parent.parent / "golden"
DATABASE = GOLDEN / "database"
ROWS = GOLDEN / "database.json"
FROZEN = GOLDEN / "frozen.txt"

MAKE = """
import json, os, sys
import siltstone
folder, rows = sys.argv[1:]
quiet = dict(embedded_compactor=False, embedded_gc=False, l0_sst_size_bytes=1 << 20,
             block_bytes=512, readers={"checkpoint_lifetime": 31536000.0}, target_sst_bytes=65536)
century = 100 * 365 * 86400.0
key = "user/{:05d}".format

def opened(codec):
    return siltstone.open(folder, options=quiet | {"compression": codec}, merge_operator="append")

with opened("none") as db:
    for n in range(3000):
        db.put(key(n).encode(), b"first %d" % (n * n))
with opened("lz4") as db:
    for n in range(0, 3000, 7):
        db.put(key(n).encode(), b"second " + b"x" * (n % 90))
with opened("lz4") as db:
    db.compact()
    for n in range(0, 3000, 11):
        db.delete(key(n).encode())
with opened("zstd") as db:
    for n in range(0, 3000, 13):
        db.merge(key(n).encode(), b" and %d" % n)
    db.put(b"expired", b"gone", ttl=0.001)
    db.put(b"lasting", b"still there", ttl=century)
db = opened("none")
db.delete_range(b"user/01000", b"user/01100")
db.put(b"user/01050", b"after the range")
db.close()
db = opened("none")
reader = siltstone.open_reader(folder, options={"readers.checkpoint_lifetime": 31536000.0},
                               merge_operator="append")
for n in range(40):
    with db.batch() as batch:
        batch.put(b"log/%02d" % n, b"in the log")
        batch.merge(b"log/total", b"+")
    if n % 10 == 9:
        batch.commit.wait()
db.put(b"empty", b"")
db.delete_range(b"user/02000", b"user/02010")
db.delete(b"user/02100").wait()
with open(rows, "w") as out:
    json.dump([[k.hex(), v.hex()] for k, v in db.scan()], out)
os._exit(0)
"""


def make() -> None:
    shutil.rmtree(DATABASE, ignore_errors=True)
    made = [sys.executable, "-c", MAKE, str(DATABASE), str(ROWS)]
    subprocess.run(made, check=True, timeout=120)
    FROZEN.write_text("".join(f"{name} {digest}\n" for name, digest in digests().items()))


def digests() -> dict[str, str]:
    """The digests of all golden files except the list itself."""
    files = sorted(path for path in GOLDEN.rglob("*") if path.is_file() and path != FROZEN)
    return {
        str(path.relative_to(GOLDEN)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in files
    }


@pytest.fixture(scope="module", autouse=True)
def rewritten() -> None:
    if os.environ.get("SILTSTONE_REWRITE_GOLDEN") == "1":
        make()


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    return shutil.copytree(DATABASE, tmp_path / "database")


def expected() -> list[tuple[bytes, bytes]]:
    rows = json.loads(ROWS.read_text())
    return [(bytes.fromhex(key), bytes.fromhex(value)) for key, value in rows]


def check(source: Any) -> None:
    rows = expected()
    assert list(source.scan()) == rows
    assert list(source.scan(reverse=True)) == rows[::-1]
    assert source.get_many([key for key, _ in rows]) == [value for _, value in rows]
    for gone in (b"expired", b"user/00011", b"user/01001", b"user/02005", b"user/02100"):
        assert source.get(gone) is None


def test_the_golden_files_are_final() -> None:
    frozen = dict(line.split() for line in FROZEN.read_text().splitlines())
    present = digests()
    missing = frozen.keys() - present.keys()
    assert not missing, f"version 1 of the formats is frozen: {missing} must stay"
    changed = [name for name in frozen if frozen[name] != present[name]]
    assert not changed, f"version 1 of the formats is frozen: {changed} must not change"


def test_the_golden_database_holds_everything(copy: Path) -> None:
    manifest = siltstone.admin.manifest(copy)
    assert manifest["l0"]
    assert manifest["runs"]
    assert manifest["checkpoints"]
    assert list((copy / "wal").iterdir())
    assert list((copy / "compactions").iterdir())
    assert len(expected()) > 2000


def test_an_old_database_is_read_and_verified(copy: Path) -> None:
    report = siltstone.admin.verify(copy)
    assert report.ok, report
    options = {"reader_lease": False}
    with siltstone.open_reader(copy, options=options, merge_operator="append") as reader:
        check(reader)


def test_an_old_database_is_written_on(copy: Path) -> None:
    with siltstone.open(copy, merge_operator="append") as db:
        check(db)
        db.compact()
        check(db)
        db.put(b"user/99999", b"new").wait()
    with siltstone.open(copy, merge_operator="append") as db:
        assert db.get(b"user/99999") == b"new"
    assert siltstone.admin.verify(copy).ok
