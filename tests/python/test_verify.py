"""Verification: an undamaged database passes, and damage is found and named."""

from __future__ import annotations

import json
import random
import shutil
import threading
from pathlib import Path

import pytest
from click.testing import CliRunner

import siltstone
from siltstone.admin import Problem, Report, verify
from siltstone.cli import main

SMALL = {"block_bytes": 512, "l0_sst_size_bytes": 64 << 10}


@pytest.fixture
def made(url: str) -> Path:
    """A database with several tables that each hold a part of the rows, and a WAL with newer
    rows."""
    for round in range(3):
        # Every close writes a table.
        with siltstone.open(url, options=SMALL) as db:
            keys = [b"key%05d" % (i * (round + 1)) for i in range(1000)]
            db.put_many(keys, [b"value %d %d" % (round, i) for i in range(1000)])
            db.delete(b"key00003")
            db.put(b"short-lived", b"x", ttl=3600.0)
    # A writer that does not close leaves its writes in the WAL.
    db = siltstone.open(url, options={"l0_sst_size_bytes": 64 << 20})
    db.put_many([b"late%03d" % i for i in range(100)], [b"v"] * 100)
    db.flush()
    with siltstone.open(url, take_over=True, options=SMALL) as newer:
        newer.put(b"newer", b"x").wait()
        root = Path(url)
        copy = root.with_name("copy")
        # The copy is taken while the writer is open, so it looks as after a crash.
        for path in sorted(root.rglob("*")):
            folder = path.relative_to(root).parts[0]
            if path.is_file() and folder in {"manifest", "wal", "compacted"}:
                target = copy / path.relative_to(root)
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(path.read_bytes())
    with pytest.raises(siltstone.Fenced):
        db.close()
    return copy


def flip(path: Path, bit: int) -> None:
    """Flips one bit of a file."""
    data = bytearray(path.read_bytes())
    data[bit // 8] ^= 1 << bit % 8
    path.write_bytes(data)


def objects(root: Path, folder: str) -> list[Path]:
    """The objects of a folder, oldest first."""
    return sorted(path for path in (root / folder).iterdir() if path.is_file())


def test_an_undamaged_database_passes(made: Path) -> None:
    report = verify(made)
    assert isinstance(report, Report)
    assert report.ok, report.problems
    assert report.problems == ()
    assert report.problem_count == 0
    assert report.tables >= 3
    assert report.blocks > report.tables
    assert report.entries >= 3000
    assert report.tombstones >= 1
    assert report.manifests >= 4
    assert report.wal_objects >= 1
    assert report.operations >= 101
    assert report.fences >= 1
    state = siltstone.admin.manifest(made)
    assert report.manifest_id == state["id"]
    assert report.database == state["database"]
    tables = [table for layer in state["l0"] for table in layer["tables"]]
    assert report.tables == len(tables)
    assert report.entries == sum(table["entries"] for table in tables)
    assert report.bytes_read >= sum(table["object_bytes"] for table in tables)


def test_an_open_database_can_be_verified(memory_url: str) -> None:
    with siltstone.open(memory_url, options=SMALL) as db:
        assert verify(memory_url).ok
        for i in range(2000):
            db.put(b"key%05d" % i, b"v" * 50)
            if i % 500 == 0:
                report = verify(memory_url)
                assert report.ok, report.problems


def test_nothing_here(url: str) -> None:
    with pytest.raises(siltstone.NotFound):
        verify(url)


@pytest.mark.parametrize("folder", ["manifest", "wal", "compacted"])
def test_a_flipped_bit_is_found_and_named(made: Path, folder: str) -> None:
    rng = random.Random(7)
    replay_from = siltstone.admin.manifest(made)["replay_from"]
    named = [
        path for path in objects(made, folder) if folder != "wal" or int(path.stem) >= replay_from
    ]
    assert named
    for path in named:
        for bit in rng.sample(range(path.stat().st_size * 8), 12):
            flip(path, bit)
            report = verify(made)
            assert not report.ok, f"bit {bit} of {path.name}"
            assert report.problem_count >= 1
            places = {problem.object for problem in report.problems}
            assert f"{folder}/{path.name}" in places, report.problems
            flip(path, bit)
    assert verify(made).ok


def test_a_damaged_block_is_named_by_its_offset(made: Path) -> None:
    path = max(objects(made, "compacted"), key=lambda path: path.stat().st_size)
    flip(path, 8 * 72 + 100)
    flip(path, 8 * 5000)
    problems = verify(made).problems
    offsets = [problem.offset for problem in problems]
    assert offsets[0] == 72
    assert len(offsets) == 2
    assert 4000 < offsets[1] <= 5000
    assert all(problem.object == f"compacted/{path.name}" for problem in problems)
    assert str(problems[0]).startswith(f"compacted/{path.name} at byte 72: ")


def test_a_missing_table_is_found(made: Path) -> None:
    path = objects(made, "compacted")[0]
    path.unlink()
    report = verify(made)
    assert not report.ok
    assert f"compacted/{path.name}" in {problem.object for problem in report.problems}


def test_a_missing_fence_is_found(made: Path) -> None:
    """The fence that ended an unclosed writer is kept for ever, and so is the fence with which that
    writer began: the manifest names both."""
    closed = made.with_name("db")
    assert verify(closed).ok
    missed = []
    for path in objects(closed, "wal"):
        data = path.read_bytes()
        path.unlink()
        problems = verify(closed).problems
        missed += [problem.object for problem in problems if "missing" in problem.what]
        path.write_bytes(data)
    assert len(missed) == 2
    assert all(name.startswith("wal/") for name in missed)


def test_a_manifest_missing_from_the_chain_is_found(made: Path) -> None:
    path = objects(made, "manifest")[1]
    path.unlink()
    problem, *rest = verify(made).problems
    assert problem.object == f"manifest/{path.name}"
    assert "missing" in problem.what
    assert rest == []


def test_a_newest_manifest_that_is_gone_is_found(url: str) -> None:
    """The boundary before it shows that there was a manifest, so the place is not empty."""
    with siltstone.open(url) as db:
        db[b"key"] = b"value"
    siltstone.admin.gc(url, min_age=0)
    for path in objects(Path(url), "manifest"):
        path.unlink()
    report = verify(url)
    assert not report.ok
    assert [problem.object for problem in report.problems] == [f"manifest/{path.name}"]


def test_nothing_is_missing_beside_a_writer(url: str) -> None:
    small = {"l0_sst_size_bytes": 4096, "l0_compaction_threshold_ssts": 3}
    with siltstone.open(url, options=small) as db:
        db[b"first"] = b"value"

        def write() -> None:
            for n in range(200):
                db[b"%02d" % (n % 20)] = b"x" * 100
                db.flush(memtable=True)

        writer = threading.Thread(target=write)
        writer.start()
        problems, times = [], 0
        while writer.is_alive():
            problems += verify(url).problems
            times += 1
        writer.join()
    assert problems == []
    assert times > 3


def test_a_pin_that_is_gone_is_found_in_the_clone(url: str) -> None:
    with siltstone.open(url) as db:
        db[b"key"] = b"value"
    shutil.copytree(url, url + "-saved")
    siltstone.clone(url + "-clone", parent=url)
    assert verify(url + "-clone").ok
    shutil.rmtree(url)
    shutil.move(url + "-saved", url)
    (problem,) = verify(url + "-clone").problems
    assert "pin" in problem.what
    assert url in problem.what


def test_an_unreferenced_table_is_an_orphan(made: Path) -> None:
    stranger = made / "compacted" / "01ARZ3NDEKTSV4RRFFQ69G5FAV.sst"
    stranger.write_bytes(b"left over")
    report = verify(made)
    assert report.ok, report.problems
    assert (f"compacted/{stranger.name}", 9) in {(o.object, o.bytes) for o in report.orphans}


def test_bytes_after_the_end_are_found(made: Path) -> None:
    path = objects(made, "compacted")[0]
    with path.open("ab") as file:
        file.write(b"\0")
    (problem,) = verify(made).problems
    assert problem.object == f"compacted/{path.name}"
    assert "bytes" in problem.what


def test_progress_is_told(made: Path) -> None:
    told: list[tuple[int, int]] = []
    report = verify(made, on_progress=lambda done, total: told.append((done, total)))
    # A quick run may end before the first report. The reported bytes never exceed the bytes read.
    assert all(0 <= done <= report.bytes_read for done, _ in told)


def test_the_command_line(made: Path) -> None:
    def run(*arguments: str) -> tuple[int, str, str]:
        done = CliRunner().invoke(main, ["--path", str(made), "verify", *arguments])
        assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
        return done.exit_code, done.stdout, done.stderr

    status, out, err = run()
    assert (status, err) == (0, "")
    rows = dict(line.split("\t") for line in out.splitlines())
    assert rows["ok"] == "True"
    assert rows["problem_count"] == "0"
    status, out, _ = run("--json")
    assert status == 0
    assert json.loads(out)["ok"] is True

    damaged = objects(made, "compacted")[:2]
    for path in damaged:
        flip(path, 8 * 80)
    status, out, err = run()
    assert status == 1
    lines = err.splitlines()
    assert len(lines) == 2
    for line, path in zip(lines, damaged, strict=True):
        assert line.startswith(f"Error: compacted/{path.name} at byte 72: ")
    status, out, err = run("--json")
    assert (status, err) == (1, "")
    found = json.loads(out)
    assert found["ok"] is False
    assert found["problem_count"] == 2
    assert {problem["object"] for problem in found["problems"]} == {
        f"compacted/{path.name}" for path in damaged
    }


def test_a_problem_reads_well() -> None:
    assert str(Problem("wal/1", None, "is missing")) == "wal/1: is missing"
    assert str(Problem("wal/1", 72, "is damaged")) == "wal/1 at byte 72: is damaged"
