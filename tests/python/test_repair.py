"""Databases that do not open, and their contents after a repair."""

from __future__ import annotations

import json
import pathlib
import shutil
import subprocess
import sys
import uuid

import pytest
from click.testing import CliRunner

import siltstone
from siltstone import ingest
from siltstone.cli import main

admin = siltstone.admin

# Writes five rows, each in its own object of the log, and exits without a close.
DIES = """
import os, sys, siltstone
db = siltstone.open(sys.argv[1])
for row in range(5):
    db.put(b"row%d" % row, b"value").wait()
os._exit(0)
"""


@pytest.fixture
def place(url: str) -> str:
    """A folder whose writer died with five rows that are only in the log."""
    subprocess.run([sys.executable, "-c", DIES, url], check=True)
    return url


def log(place: str) -> list[pathlib.Path]:
    """The objects of the log, the fence first."""
    return sorted(pathlib.Path(place, "wal").glob("*.sst"))


def flip(path: pathlib.Path) -> None:
    """Flips one bit of a file."""
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def rows(place: str) -> list[bytes]:
    with siltstone.open(place, create=False) as db:
        return list(db)


def test_a_database_that_opens_is_refused(place: str) -> None:
    told = admin.repair(place)
    assert not told.needed
    assert not told.damage
    assert repr(told).startswith("<siltstone.admin.RepairReport nothing to repair")
    with pytest.raises(siltstone.Conflict, match="nothing to repair"):
        admin.repair(place, dry_run=False)
    assert len(rows(place)) == 5


@pytest.mark.parametrize("at", range(5))
def test_the_log_is_cut_off(place: str, at: int) -> None:
    flip(log(place)[1 + at])
    with pytest.raises(siltstone.Corruption):
        siltstone.open(place)
    told = admin.repair(place)
    assert told.needed
    assert not told.done
    assert told.aside is None
    assert (told.seq_kept, told.rows_lost, told.objects_unknown) == (at, 4 - at, 1)
    assert told.damage[0].object.startswith("wal/")
    done = admin.repair(place, dry_run=False)
    assert done.done
    assert done.seq_kept == at
    copies = sorted(pathlib.Path(place, done.aside).iterdir())
    cut_off = log(place)[1 + at : 1 + at + len(copies)]
    assert [copy.read_bytes() for copy in copies] == [one.read_bytes() for one in cut_off]
    assert rows(place) == [b"row%d" % row for row in range(at)]
    assert admin.verify(place).ok
    admin.gc(place, min_age=0)
    assert admin.verify(place).ok
    assert pathlib.Path(place, done.aside).is_dir()


def test_the_newest_manifest(place: str) -> None:
    newest = max(pathlib.Path(place, "manifest").glob("*.manifest"))
    newest.write_bytes(newest.read_bytes()[:40])
    with pytest.raises(siltstone.Corruption):
        siltstone.open(place)
    done = admin.repair(place, dry_run=False)
    assert done.manifests_void == 1
    assert done.tables_stay
    assert newest.name in {copy.name for copy in pathlib.Path(place, done.aside).iterdir()}
    assert len(rows(place)) == 5
    assert admin.verify(place).ok
    admin.collect_after_repair(place)
    admin.collect_after_repair(place)
    assert admin.verify(place).ok


def test_a_live_writer_is_told_and_fenced(url: str) -> None:
    db = siltstone.open(url)
    for row in range(3):
        db.put(b"row%d" % row, b"value").wait()
    flip(log(url)[2])
    assert admin.repair(url).needed
    with pytest.raises(siltstone.Conflict, match="open for writing"):
        admin.repair(url, dry_run=False)
    admin.repair(url, dry_run=False, take_over=True)
    with pytest.raises((siltstone.Fenced, siltstone.Closed)):
        db.put(b"undead", b"value").wait()
    assert rows(url) == [b"row0"]


def test_a_destroyed_place_leaves_no_copies(place: str) -> None:
    flip(log(place)[3])
    done = admin.repair(place, dry_run=False)
    siltstone.destroy(place)
    assert not list(pathlib.Path(place, done.aside).glob("*"))


def test_nothing_there(url: str) -> None:
    with pytest.raises(siltstone.NotFound):
        admin.repair(url)


def run(*arguments: str, **how):
    return CliRunner().invoke(main, list(arguments), **how)


def test_the_command_tells_and_acts_when_told(place: str) -> None:
    flip(log(place)[3])
    told = run("--path", place, "repair")
    assert told.exit_code == 1
    assert "kept up to sequence number\t2" in told.output
    assert "--yes" in told.output
    as_json = json.loads(run("--path", place, "repair", "--json").stdout)
    assert as_json["needed"]
    assert not as_json["done"]
    done = run("--path", place, "repair", "--yes")
    assert done.exit_code == 0, done.output
    assert "copies\tdamaged/" in done.output
    assert rows(place) == [b"row0", b"row1"]
    again = run("--path", place, "repair", "--yes", "--json")
    assert again.exit_code == 0
    assert not json.loads(again.stdout)["needed"]


def test_the_command_asks_on_a_terminal(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    flip(log(place)[3])
    monkeypatch.setattr("siltstone.cli._repair._answers", lambda: True)
    assert run("--path", place, "repair", input="n\n").exit_code == 1
    done = run("--path", place, "repair", input="y\n")
    assert done.exit_code == 0, done.output
    assert rows(place) == [b"row0", b"row1"]


def test_the_command_lets_tables_go(place: str) -> None:
    assert run("--path", place, "repair", "--collect").exit_code == 0
    assert json.loads(run("--path", place, "repair", "--collect", "--json").stdout)


def test_reports_are_plain(place: str) -> None:
    flip(log(place)[2])
    plain = admin.repair(place).to_dict()
    assert json.loads(json.dumps(plain, default=str))["damage"][0]["object"].startswith("wal/")
    assert uuid.UUID(plain["database"]) or plain["database"]
    assert "wal/" in admin.repair(place)._repr_html_()


@pytest.fixture
def broken(tmp_path: pathlib.Path) -> tuple[str, str]:
    """A folder, and the name of a table in it with a damaged block, under newer rows."""
    place = str(tmp_path / "tables")
    with siltstone.open(place) as db:
        for row in range(500):
            db[b"row%03d" % row] = b"value %d" % row * 9
        db.compact()
        db[b"row100"] = b"newer"
        del db[b"row101"]
        db.flush(memtable=True)
    table = max(pathlib.Path(place, "compacted").glob("*.sst"), key=lambda one: one.stat().st_size)
    data = bytearray(table.read_bytes())
    data[200] ^= 1
    table.write_bytes(data)
    return place, f"compacted/{table.name}"


def test_a_table_is_given_up_by_name(broken: tuple[str, str]) -> None:
    place, name = broken
    kept = admin.create_checkpoint(place, name="nightly")
    assert admin.verify(place).problems[0].object == name
    told = admin.give_up_table(place, name)
    assert not told.done
    assert (told.object, told.first_key, told.last_key) == (name, b"row000", b"row499")
    assert (told.rows_lost, told.rows_hidden) == (500, 0)
    assert told.checkpoints_dropped == (kept.id,)
    assert repr(told).startswith("<siltstone.admin.GiveUpReport to be given up")
    assert name in told._repr_html_()
    assert not admin.verify(place).ok, "it was only told"
    by_id = pathlib.Path(name).stem
    done = admin.give_up_table(place, by_id, dry_run=False)
    assert done.done
    assert done.manifest_id > told.manifest_id
    assert [copy.name for copy in pathlib.Path(place, done.aside).iterdir()] == [by_id + ".sst"]
    assert admin.list_checkpoints(place) == []
    assert admin.verify(place).ok
    with siltstone.open(place) as db:
        assert dict(db.scan()) == {b"row100": b"newer"}
        db[b"row101"] = b"again"
        db.compact()
    admin.gc(place, min_age=0)
    with siltstone.open_reader(place) as reader:
        assert list(reader) == [b"row100", b"row101"]
    assert admin.verify(place).ok
    with pytest.raises(siltstone.NotFound, match="has no such table"):
        admin.give_up_table(place, name)


def test_tables_that_read_well_are_not_given_up(place: str) -> None:
    with siltstone.open(place) as db:
        db.flush(memtable=True)
    (table,) = pathlib.Path(place, "compacted").glob("*.sst")
    with pytest.raises(siltstone.Conflict, match="no repair is needed"):
        admin.give_up_table(place, table.stem)
    with pytest.raises(siltstone.Invalid, match="not the name of a table"):
        admin.give_up_table(place, "row0")
    with siltstone.open(place), pytest.raises(siltstone.Conflict, match="no repair is needed"):
        admin.give_up_table(place, table.stem, dry_run=False)


def test_a_live_writer_keeps_its_tables(broken: tuple[str, str]) -> None:
    place, name = broken
    db = siltstone.open(place)
    with pytest.raises(siltstone.Conflict, match="open for writing"):
        admin.give_up_table(place, name, dry_run=False)
    assert admin.give_up_table(place, name, dry_run=False, take_over=True).done
    with pytest.raises((siltstone.Fenced, siltstone.Closed)):
        db.put(b"undead", b"value").wait()
    with pytest.raises(siltstone.Fenced):
        db.close()
    assert rows(place) == [b"row100"]


def test_the_command_gives_up_a_table(broken: tuple[str, str]) -> None:
    place, name = broken
    told = run("--path", place, "repair", "--give-up-table", name)
    assert told.exit_code == 1
    assert "rows lost\t500" in told.output
    assert "--yes" in told.output
    both = run("--path", place, "repair", "--give-up-table", name, "--collect")
    assert both.exit_code == 2
    done = run("--path", place, "repair", "--give-up-table", name, "--yes", "--json")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["done"]
    assert rows(place) == [b"row100"]


@pytest.mark.parametrize("lost", ["damaged", "deleted"])
def test_a_job_whose_request_is_lost_is_requested_again(url: str, lost: str) -> None:
    """The log has the job, and the manifest that showed its request is gone."""
    with siltstone.open(url) as db:
        db.put(b"a", b"1")
        db.flush(memtable=True)
        job = ingest.Job(url)
        with job.writer(0) as writer:
            writer.add(b"j", b"v")
        db.ingest(job.commit([writer.finish()])).wait()
        crashed = shutil.copytree(url, f"{url}-crashed")
    newest = max(pathlib.Path(crashed, "manifest").glob("*.manifest"))
    if lost == "damaged":
        flip(newest)
        assert admin.repair(crashed, dry_run=False).rows_lost == 0
    else:
        newest.unlink()
    for _ in range(2):
        with siltstone.open(crashed, create=False) as db:
            assert list(db) == [b"a", b"j"]
            db.put(b"a", b"2").wait()
            db.flush(memtable=True)
    assert admin.verify(crashed).ok


def test_a_clone_whose_pin_a_repair_has_lost_is_exported_before_collection(url: str) -> None:
    small = {"l0_sst_size_bytes": 4096}
    with siltstone.open(url, options=small) as db:
        db.put_many([b"a%03d" % n for n in range(100)], [b"1"] * 100)
        db.flush(memtable=True)
    siltstone.clone(url + "-clone", parent=url)
    manifests = sorted(pathlib.Path(url, "manifest").glob("0*.manifest"))
    for path in manifests[-2:]:
        path.write_bytes(b"damaged")
    assert admin.repair(url, dry_run=False).done
    with siltstone.open(url, options=small) as db:
        db.put_many([b"a%03d" % n for n in range(100)], [b"2"] * 100)
        db.flush(memtable=True)
        db.compact()
    (problem,) = admin.verify(url + "-clone").problems
    assert "export the clone" in problem.what
    admin.export(url + "-clone", url + "-copy")
    admin.collect_after_repair(url)
    admin.gc(url, min_age=0)
    with siltstone.open_reader(url + "-copy") as reader:
        assert set(reader.values()) == {b"1"}
    assert admin.verify(url + "-copy").ok
