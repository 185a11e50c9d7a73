"""Destroying a database: hard, soft, refused; from the blocking interface, from asyncio and from
the command line; and the next database at the same place."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from click.testing import CliRunner

import siltstone
import siltstone.aio
from siltstone.cli import main

admin = siltstone.admin


def objects(url: str) -> list[str]:
    """The files in the folder except boundaries, files of the store itself, and empty fences."""
    found = (path for path in Path(url).rglob("*") if path.is_file())
    names = (str(path.relative_to(url)) for path in found if path.stat().st_size > 300)
    return sorted(name for name in names if "boundary" not in name and not name.startswith("."))


@pytest.fixture(params=["folder", "memory"])
def place(request: pytest.FixtureRequest, url: str, memory_url: str) -> str:
    """A place for a new database."""
    return url if request.param == "folder" else memory_url


def filled(url: str, word: bytes = b"old") -> siltstone.Database:
    db = siltstone.open(url)
    for row in range(50):
        db[word + b"%d" % row] = b"stone"
    db.flush(memtable=True)
    db[word + b" in the log"] = b"stone"
    db.flush()
    return db


def test_the_writer_ends_and_the_place_is_used_again(place: str) -> None:
    old = filled(place)
    siltstone.destroy(place)
    with pytest.raises((siltstone.Fenced, siltstone.NotFound)):
        old[b"late"] = b"row"
        old.flush()
    with pytest.raises(siltstone.NotFound, match="no database here"):
        siltstone.open(place, create=False)
    with pytest.raises(siltstone.NotFound, match="no database here"):
        siltstone.open_reader(place)
    with pytest.raises(siltstone.NotFound, match="no database here"):
        siltstone.destroy(place)
    with filled(place, b"new") as db:
        assert db.get(b"old1") is None
    with siltstone.open_reader(place) as reader:
        assert len(list(reader)) == 51
        assert reader[b"new1"] == b"stone"
    assert admin.verify(place).ok
    for _ in range(3):
        siltstone.destroy(place)
        siltstone.open(place).close()


def test_a_folder_is_emptied(url: str) -> None:
    filled(url).close()
    assert len(objects(url)) > 3
    siltstone.destroy(url)
    assert objects(url) == []


def test_a_reader_ends(place: str) -> None:
    filled(place).close()
    with siltstone.open_reader(place) as reader:
        assert reader[b"old1"] == b"stone"
        siltstone.destroy(place)
        with pytest.raises(siltstone.NotFound):
            reader.refresh()


def test_the_dependents_are_named(place: str) -> None:
    with filled(place) as db:
        kept = db.checkpoint(name="nightly")
        with pytest.raises(siltstone.Conflict, match="nightly") as refused:
            siltstone.destroy(place)
        assert str(kept.id.hex) in str(refused.value).replace("-", "")
        db[b"still"] = b"open"
        db.flush()
    admin.delete_checkpoint(place, kept)
    siltstone.destroy(place)


def test_a_soft_one_waits_and_says_the_way_out(url: str) -> None:
    filled(url).close()
    kept = admin.create_checkpoint(url)
    siltstone.destroy(url, soft=True)
    for refused in (
        lambda: siltstone.open(url),
        lambda: siltstone.open_reader(url),
        lambda: siltstone.open_reader(url, checkpoint=kept),
        lambda: admin.create_checkpoint(url),
        lambda: admin.compact(url),
    ):
        with pytest.raises(siltstone.NotFound, match="without soft"):
            refused()
    siltstone.destroy(url, soft=True)
    with pytest.raises(siltstone.Conflict):
        siltstone.destroy(url)
    assert admin.gc(url, db_delete_grace=0).total.deleted == 0
    admin.delete_checkpoint(url, kept)
    assert admin.gc(url).total.deleted == 0, "a day of grace"
    dry = admin.gc(url, dry_run=True, db_delete_grace=0)
    assert len(dry.objects) > 3
    assert admin.gc(url, db_delete_grace=0).total.deleted >= len(dry.objects)
    assert objects(url) == []
    with pytest.raises(siltstone.NotFound):
        admin.gc(url)
    filled(url, b"new").close()


def test_a_hard_one_after_a_soft_one_does_not_wait(place: str) -> None:
    filled(place).close()
    siltstone.destroy(place, soft=True)
    siltstone.destroy(place)
    filled(place, b"new").close()


def test_it_can_be_awaited(place: str) -> None:
    filled(place).close()

    async def work() -> None:
        await siltstone.aio.destroy(place, soft=True)
        await siltstone.aio.destroy(place)
        with pytest.raises(siltstone.NotFound):
            await siltstone.aio.destroy(place)

    asyncio.run(work())


def test_nothing_to_destroy(place: str) -> None:
    for soft in (False, True):
        with pytest.raises(siltstone.NotFound):
            siltstone.destroy(place, soft=soft)
    with pytest.raises(TypeError):
        siltstone.destroy(7)


def run(*arguments: str, **named: object):
    return CliRunner().invoke(main, list(arguments), **named)


def test_the_command_asks(url: str) -> None:
    filled(url).close()
    refused = run("--path", url, "destroy")
    assert refused.exit_code == 2
    assert "--yes" in refused.output
    with siltstone.open_reader(url) as reader:
        assert reader[b"old1"] == b"stone"
    soft = run("--path", url, "destroy", "--soft", "--yes", "--json")
    assert json.loads(soft.output) == {"destroyed": url, "soft": True}
    assert run("--path", url, "destroy", "--yes").exit_code == 0
    assert objects(url) == []
    gone = run("--path", url, "destroy", "--yes")
    assert gone.exit_code == 1
    assert "NotFound" in gone.output


def test_reads_of_an_open_writer_say_that_the_database_is_destroyed(url: str) -> None:
    """Before the fix, they said that the handle was closed."""
    db = siltstone.open(url, options={"block_cache_bytes": 0})
    db.put_many([b"%05d" % n for n in range(5000)], [b"v" * 1000] * 5000)
    db.flush(memtable=True)
    siltstone.destroy(url)
    for read in (lambda: db.get(b"04000"), lambda: list(db.scan(b"04000"))):
        with pytest.raises(siltstone.NotFound, match=r"destroyed|no database"):
            read()
    with pytest.raises((siltstone.NotFound, siltstone.Fenced)):
        db.close()
