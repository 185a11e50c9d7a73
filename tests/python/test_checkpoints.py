"""Explicit checkpoints: from the writer, from other processes, from the command line; in all forms
of an id, in other processes, by pickle."""

from __future__ import annotations

import asyncio
import copy
import dataclasses
import json
import pickle
import time
import uuid
from datetime import UTC, datetime, timedelta

import pytest
from click.testing import CliRunner

import siltstone
import siltstone.aio
from siltstone.cli import main

admin = siltstone.admin


@pytest.fixture
def db(url: str):
    """An open database with one row, which the writer changes later."""
    with siltstone.open(url) as handle:
        handle[b"layer"] = b"stone"
        yield handle


def test_a_checkpoint_stays_while_the_writer_goes_on(db, url: str) -> None:
    before = datetime.now(UTC)
    kept = db.checkpoint(name="before", metadata={"why": "a test"}, lifetime=timedelta(days=7))
    db[b"layer"] = b"sand"
    db.compact()
    assert isinstance(kept, siltstone.Checkpoint)
    assert isinstance(kept.id, uuid.UUID)
    assert kept.id.version == 4
    assert (kept.name, kept.metadata, kept.source) == ("before", {"why": "a test"}, None)
    assert abs((kept.created - before).total_seconds()) < 60
    assert kept.expires == kept.created + timedelta(days=7)
    spellings = [kept, kept.id, str(kept.id), kept.id.hex, str(kept.id).upper(), "before"]
    for checkpoint in spellings:
        with siltstone.open_reader(url, checkpoint=checkpoint) as reader:
            assert reader[b"layer"] == b"stone"
            assert reader.checkpoint == kept
    assert db[b"layer"] == b"sand"
    with siltstone.open_reader(url) as following:
        assert following.checkpoint is None


def test_a_checkpoint_is_a_plain_value(db) -> None:
    kept = db.checkpoint()
    assert (kept.expires, kept.name, kept.metadata) == (None, None, {})
    for other in (pickle.loads(pickle.dumps(kept)), copy.deepcopy(kept)):
        assert other == kept
    with pytest.raises(dataclasses.FrozenInstanceError):
        kept.name = "x"
    assert json.loads(json.dumps(kept.to_dict()))["id"] == str(kept.id)


def test_scopes(url: str) -> None:
    with siltstone.open(url, options={"flush_interval": 3600.0}) as db:
        db[b"a"] = b"1"
        durable = db.checkpoint(scope="durable")
        everything = db.checkpoint()
        with siltstone.open_reader(url, checkpoint=durable) as reader:
            assert b"a" not in reader
        with siltstone.open_reader(url, checkpoint=everything) as reader:
            assert reader[b"a"] == b"1"
        with pytest.raises(siltstone.Invalid, match="scope"):
            db.checkpoint(scope="some")


def test_from_outside(db, url: str) -> None:
    db.flush()
    made = admin.create_checkpoint(url, name="nightly", lifetime=60.0)
    db[b"layer"] = b"sand"
    db.flush()
    copied = admin.create_checkpoint(url, source="nightly")
    assert copied.source == made.id
    for checkpoint in (made, copied):
        with siltstone.open_reader(url, checkpoint=checkpoint) as reader:
            assert reader[b"layer"] == b"stone"
    assert admin.list_checkpoints(url) == [made, copied]
    assert admin.list_checkpoints(url, name="nightly") == [made]
    assert len(admin.list_checkpoints(url, processes=True)) == 3
    renewed = admin.refresh_checkpoint(url, "nightly")
    assert (renewed.id, renewed.expires) == (made.id, None)
    admin.delete_checkpoint(url, made)
    with pytest.raises(siltstone.Expired, match="gone"):
        siltstone.open_reader(url, checkpoint=made)
    with pytest.raises(siltstone.Expired, match="no checkpoint has this name"):
        admin.delete_checkpoint(url, "nightly")


def test_mistakes_are_told_by_name(db, url: str) -> None:
    db.checkpoint(name="taken")
    with pytest.raises(siltstone.Conflict, match="name already"):
        admin.create_checkpoint(url, name="taken")
    with pytest.raises(siltstone.Invalid, match="does not read as an id"):
        db.checkpoint(name=uuid.uuid4().hex)
    with pytest.raises(siltstone.Invalid, match="lifetime"):
        db.checkpoint(lifetime=-1)
    with pytest.raises(siltstone.Invalid, match="lifetime is not a duration"):
        db.checkpoint(lifetime="a week")
    with pytest.raises(TypeError, match="lifetime is a timedelta"):
        db.checkpoint(lifetime=[7])
    with pytest.raises(TypeError, match="metadata is a dict of str"):
        db.checkpoint(metadata={"n": 1})
    with pytest.raises(TypeError, match=r"Checkpoint, a uuid\.UUID or text, not int"):
        siltstone.open_reader(url, checkpoint=7)
    with pytest.raises(siltstone.Invalid, match="not both"):
        siltstone.open_reader(url, checkpoint="taken", version=1)
    with pytest.raises(TypeError, match="version must be a whole number, not str"):
        siltstone.open_reader(url, version="1")
    with pytest.raises(siltstone.NotFound):
        admin.create_checkpoint(url + "-else")
    assert len(admin.list_checkpoints(url)) == 1


def test_a_version_is_read_while_it_is_kept(db, url: str) -> None:
    db.compact()
    version = admin.manifest(url)["id"]
    db[b"layer"] = b"sand"
    db.flush()
    with siltstone.open_reader(url, version=version) as reader:
        assert reader[b"layer"] == b"stone"
        assert reader.checkpoint is None
        assert f"at version {version}" in repr(reader)
        assert pickle.loads(pickle.dumps(reader))[b"layer"] == b"stone"
    with pytest.raises(siltstone.NotFound, match="deleted or never existed"):
        siltstone.open_reader(url, version=version + 100)


def test_a_reader_takes_its_checkpoint_along(db, url: str, python) -> None:
    kept = db.checkpoint(name="daily", metadata={"job": "7"}, lifetime=3600)
    reader = siltstone.open_reader(url, checkpoint="daily")
    pickled = pickle.dumps(reader)
    # The name belongs to another checkpoint after this.
    admin.delete_checkpoint(url, kept)
    db[b"layer"] = b"sand"
    again = db.checkpoint(name="daily")
    assert reader.checkpoint == kept
    with siltstone.open_reader(url, checkpoint=again) as newer:
        assert newer[b"layer"] == b"sand"
        travelled = pickle.loads(pickle.dumps(newer))
        assert travelled.checkpoint == again
        assert travelled[b"layer"] == b"sand"
    # Nothing was collected yet: the tables and the log exist, but the checkpoint does not.
    with pytest.raises(siltstone.Expired):
        pickle.loads(pickled)


def test_a_thousand_readers_travel_for_a_get_each(db, url: str) -> None:
    db.flush(memtable=True)
    kept = db.checkpoint()
    newest = admin.manifest(url)["id"]
    with siltstone.open_reader(url, checkpoint=kept) as first:
        pickled = pickle.dumps(first)
    for _ in range(1000):
        with pickle.loads(pickled) as reader:
            asked = reader.stats()
            # The reader gets the manifest of the checkpoint, and nothing else until a block is
            # read.
            assert (asked.get_requests, asked.put_requests, asked.list_requests) == (1, 0, 0)
            assert reader.checkpoint == kept
    with pickle.loads(pickled) as reader:
        assert reader[b"layer"] == b"stone"
    assert admin.manifest(url)["id"] == newest


def test_asyncio(url: str) -> None:
    async def story() -> None:
        async with siltstone.aio.open(url) as db:
            await db.put(b"layer", b"stone")
            kept = await db.checkpoint(name="before", lifetime=60)
            await db.put(b"layer", b"sand")
            async with siltstone.aio.open_reader(url, checkpoint="before") as reader:
                assert await reader.get(b"layer") == b"stone"
                assert reader.checkpoint == kept
            with pytest.raises(siltstone.Conflict):
                await db.checkpoint(name="before")

    asyncio.run(story())


def test_the_command_line(db, url: str) -> None:
    def run(*arguments: str) -> str:
        done = CliRunner().invoke(main, ["--path", url, *arguments])
        assert done.exit_code == 0, done.stderr
        return done.stdout

    db.flush()
    made = uuid.UUID(run("create-checkpoint", "-l", "7days 30min 10s", "--name", "week").strip())
    [listed] = admin.list_checkpoints(url)
    assert (listed.id, listed.name) == (made, "week")
    assert listed.expires - listed.created == timedelta(days=7, minutes=30, seconds=10)
    source = json.loads(run("create-checkpoint", "-s", "week", "--metadata", "a=b=c", "--json"))
    assert (source["source"], source["metadata"]) == (str(made), {"a": "b=c"})
    assert uuid.UUID(run("refresh-checkpoint", "-i", "week", "--lifetime", "1 years").strip())
    assert admin.list_checkpoints(url, name="week")[0].expires > datetime.now(UTC) + timedelta(300)
    rows = run("list-checkpoints").splitlines()
    assert [row.split("\t")[0] for row in rows] == [str(made), source["id"]]
    assert len(run("list-checkpoints", "--all").splitlines()) == 3
    assert json.loads(run("list-checkpoints", "--name", "week", "--json"))["id"] == str(made)
    assert run("delete-checkpoint", "--id", str(made).upper()) == ""
    done = CliRunner().invoke(main, ["--path", url, "delete-checkpoint", "-i", "week"])
    assert (done.exit_code, done.stdout) == (1, "")
    assert "no checkpoint has this name" in done.stderr
    done = CliRunner().invoke(main, ["--path", url, "create-checkpoint", "--metadata", "x"])
    assert done.exit_code == 1
    assert "NAME=VALUE" in done.stderr


@pytest.mark.parametrize("by_handle", [True, False])
def test_the_name_of_an_expired_checkpoint_is_free(url: str, by_handle: bool) -> None:
    """Before the fix, the name was taken until a collector had removed the checkpoint."""
    with siltstone.open(url) as db:
        make = db.checkpoint if by_handle else lambda **how: admin.create_checkpoint(url, **how)
        make(name="nightly", lifetime=0.1)
        old = db.checkpoint(name="weekly", lifetime=3600)
        time.sleep(0.2)
        made = make(name="nightly", lifetime=3600)
        assert {one.id for one in admin.list_checkpoints(url)} >= {made.id, old.id}
        assert [one.id for one in admin.list_checkpoints(url, name="nightly")] == [made.id]
        with pytest.raises(siltstone.Conflict, match="has that name already"):
            make(name="nightly")
