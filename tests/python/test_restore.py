"""Restoring a checkpoint, and finding the version of a given time."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner

import siltstone
from pace_for_tests import until
from siltstone.cli import main

admin = siltstone.admin


@pytest.fixture(params=["folder", "memory"])
def place(request: pytest.FixtureRequest, url: str, memory_url: str) -> str:
    """A place for a new database."""
    return url if request.param == "folder" else memory_url


def filled(url: str) -> siltstone.Checkpoint:
    """Writes rows in tables and rows only in the log, a checkpoint of both, and changes to be
    undone."""
    with siltstone.open(url) as db:
        for row in range(50):
            db[b"table%02d" % row] = b"kept"
        db.flush(memtable=True)
        db[b"log"] = b"kept"
        kept = db.checkpoint(name="before")
        db[b"log"] = b"undone"
        db.delete_range(b"table", b"tablf")
        db[b"new"] = b"undone"
        db.compact()
        db[b"newer"] = b"undone"
        db.flush()
    return kept


def check(url: str) -> None:
    with siltstone.open_reader(url) as reader:
        rows = dict(reader.items())
    assert rows == {b"table%02d" % row: b"kept" for row in range(50)} | {b"log": b"kept"}


@pytest.mark.parametrize(
    "spelling", [lambda kept: kept, lambda kept: str(kept.id), lambda _: "before"]
)
def test_later_writes_are_undone(place: str, spelling) -> None:
    kept = filled(place)
    admin.restore(place, spelling(kept))
    check(place)
    with siltstone.open(place) as db:
        assert db.get(b"new") is None
        db[b"after"] = b"row"
    with siltstone.open_reader(place) as reader:
        assert reader[b"after"] == b"row"
        assert reader[b"log"] == b"kept"
    assert admin.verify(place).ok
    admin.gc(place, min_age=0)
    assert admin.verify(place).ok


def test_a_restore_can_be_undone_and_repeated(place: str) -> None:
    kept = filled(place)
    later = admin.create_checkpoint(place, name="later")
    for _ in range(2):
        admin.restore(place, kept)
        check(place)
        with siltstone.open(place) as db:
            db.compact()
        admin.gc(place, min_age=0)
        admin.restore(place, later)
        with siltstone.open_reader(place) as reader:
            assert dict(reader.items()) == {
                b"log": b"undone",
                b"new": b"undone",
                b"newer": b"undone",
            }


def test_the_writer_ends_and_numbers_go_on(place: str) -> None:
    filled(place)
    old = siltstone.open(place)
    last = old.put(b"more", b"undone").seq
    old.flush()
    admin.restore(place, "before")
    with pytest.raises(siltstone.Fenced, match="restored the database"):
        old[b"late"] = b"row"
        old.flush()
    with siltstone.open(place) as db:
        assert db.put(b"k", b"v").seq > last


def test_readers_do_not_go_back_in_silence(place: str) -> None:
    kept = filled(place)
    follows = {"readers.follow_restores": True}
    with (
        siltstone.open_reader(place) as following,
        siltstone.open_reader(place, options=follows) as going_on,
        siltstone.open_reader(place, checkpoint=kept) as pinned,
    ):
        assert following[b"new"] == b"undone"
        admin.restore(place, kept)
        with pytest.raises(siltstone.Expired, match="restored"):
            following.refresh()
        with pytest.raises(siltstone.Expired, match="restored"):
            following.get(b"log")
        going_on.refresh()
        assert going_on.get(b"new") is None
        assert going_on[b"log"] == b"kept"
        assert pinned[b"log"] == b"kept"


def test_an_absent_checkpoint_is_refused(place: str) -> None:
    with pytest.raises(siltstone.NotFound):
        admin.restore(place, "before")
    kept = filled(place)
    admin.delete_checkpoint(place, kept)
    for gone in (kept, "before"):
        with pytest.raises(siltstone.Expired):
            admin.restore(place, gone)
    with siltstone.open_reader(place) as reader:
        assert reader[b"new"] == b"undone"


def test_versions_and_times(place: str) -> None:
    began = datetime.now(UTC)
    with siltstone.open(place) as db:
        first = db.put(b"a", b"1").seq
        db.flush(memtable=True)
        time.sleep(0.02)
        between = datetime.now(UTC)
        time.sleep(0.02)
        last = db.put(b"a", b"2").seq
        db.flush()
        assert admin.seq_at(place, between) == first
        assert admin.seq_at(place, datetime.now(UTC) + timedelta(seconds=1)) == last
        db.flush(memtable=True)
        assert admin.seq_at(place, between) == first
        found = admin.versions(place)
    assert [one.id for one in found] == sorted(one.id for one in found)
    assert found[-1].seq == last
    assert {0, first, last} <= {one.seq for one in found}
    assert began - timedelta(minutes=1) < found[0].time < datetime.now(UTC) + timedelta(minutes=1)
    at = next(one for one in found if one.seq == first)
    with siltstone.open_reader(place, version=at.id) as reader:
        assert reader[b"a"] == b"1"
    with pytest.raises(TypeError):
        admin.seq_at(place, datetime.now())  # noqa: DTZ005
    with pytest.raises(siltstone.NotFound):
        admin.versions("memory://nothing")


def test_a_damaged_version_is_not_listed(url: str, caplog: pytest.LogCaptureFixture) -> None:
    with siltstone.open(url) as db:
        for day in (b"1", b"2", b"3"):
            db[b"day"] = day
            db.flush(memtable=True)
    whole = admin.versions(url)
    damaged = whole[len(whole) // 2]
    manifest = Path(url.removeprefix("file://"), "manifest", f"{damaged.id:020}.manifest")
    manifest.write_bytes(manifest.read_bytes()[:-1])
    with caplog.at_level(logging.WARNING, "siltstone.admin"):
        assert admin.versions(url) == [one for one in whole if one.id != damaged.id]
    until(lambda: f"manifest={damaged.id}" in caplog.text)
    assert admin.seq_at(url, datetime.now(UTC) + timedelta(seconds=1)) == whole[-1].seq


def run(*arguments: str):
    return CliRunner().invoke(main, list(arguments))


def answered(url: str, answer: bytes) -> subprocess.CompletedProcess[bytes]:
    """The command on a terminal where the user types this answer."""
    ours, theirs = os.openpty()
    try:
        os.write(ours, answer + b"\n")
        command = [sys.executable, "-m", "siltstone.cli", "--path", url]
        command += ["restore", "--checkpoint", "before"]
        return subprocess.run(command, stdin=theirs, capture_output=True, check=False)
    finally:
        os.close(ours)
        os.close(theirs)


def test_the_command_asks_on_a_terminal(tmp_path: Path) -> None:
    url = str(tmp_path / "db")
    filled(url)
    refused = answered(url, b"n")
    assert refused.returncode == 1
    assert b"Undo all writes" in refused.stderr
    with siltstone.open_reader(url) as reader:
        assert reader[b"log"] == b"undone"
    assert answered(url, b"y").returncode == 0
    check(url)


def test_the_commands(url: str) -> None:
    kept = filled(url)
    listed = run("--path", url, "versions", "--json")
    assert json.loads(listed.output.splitlines()[-1])["seq"] > 50
    assert len(run("--path", url, "versions").output.splitlines()) > 3
    done = run("--path", url, "restore", "--checkpoint", "before", "--json")
    assert json.loads(done.output) == {"restored": url, "checkpoint": "before"}
    check(url)
    admin.delete_checkpoint(url, kept)
    gone = run("--path", url, "restore", "--checkpoint", str(kept.id))
    assert gone.exit_code == 1
    assert "Expired" in gone.output
