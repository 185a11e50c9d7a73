"""Clones: from the package, by asyncio, from the command line; in folders and in memory; while both
sides write, compact and collect."""

from __future__ import annotations

import asyncio
import json
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

import siltstone
import siltstone.aio
from siltstone.cli import main

admin = siltstone.admin
ROWS = {f"{n:03}".encode(): b"old" for n in range(100)}


@pytest.fixture(params=["folder", "memory"])
def places(request: pytest.FixtureRequest, tmp_path: Path, memory_url: str):
    """The places of the databases of one test, by name."""
    if request.param == "folder":
        return lambda name: str(tmp_path / f"a place of {name}")
    return lambda name: f"{memory_url}-{name}"


def fill(url: str, value: bytes = b"old") -> None:
    with siltstone.open(url) as db:
        db.put_many(list(ROWS), [value] * len(ROWS))
        db.flush(memtable=True)
        db[b"000"] = value


def rows(url: str) -> dict[bytes, bytes]:
    with siltstone.open_reader(url) as reader:
        return dict(reader.items())


def test_each_goes_its_own_way(places) -> None:
    fill(places("parent"))
    with siltstone.open(places("parent")) as parent:
        parent[b"new"] = b"1"
        parent.flush()
        siltstone.clone(places("clone"), parent=places("parent"))
        parent[b"later"] = b"2"
        with siltstone.open(places("clone")) as clone:
            assert dict(clone.items()) == {**ROWS, b"new": b"1"}
            clone.delete_range(b"0", b"1")
            assert dict(clone.items()) == {b"new": b"1"}
        assert dict(parent.items()) == {**ROWS, b"new": b"1", b"later": b"2"}
    assert rows(places("clone")) == {b"new": b"1"}


def test_a_paused_scan_outlives_both_sides(places) -> None:
    fill(places("parent"))
    siltstone.clone(places("clone"), parent=places("parent"))
    with siltstone.open(places("clone")) as clone:
        scan = iter(clone.scan())
        first = next(scan)
        for value in (b"new", b"newer"):
            fill(places("parent"), value)
            clone.put_many(list(ROWS), [value] * len(ROWS))
            for url in (places("parent"), places("clone")):
                if url == places("parent"):
                    admin.compact(url)
                else:
                    clone.compact()
                admin.gc(url, min_age=0)
        assert dict([first, *scan]) == ROWS


def test_a_checkpoint_by_each_spelling(places) -> None:
    fill(places("parent"))
    kept = admin.create_checkpoint(places("parent"), name="then")
    fill(places("parent"), b"new")
    for number, spelling in enumerate([kept, kept.id, str(kept.id), "then"]):
        url = places(f"clone {number}")
        siltstone.clone(url, parent=places("parent"), checkpoint=spelling)
        assert rows(url) == ROWS
    with pytest.raises(siltstone.Expired):
        siltstone.clone(places("none"), parent=places("parent"), checkpoint="never")


def test_pins_are_the_clones(places) -> None:
    fill(places("parent"))
    siltstone.clone(places("clone"), parent=places("parent"))
    (pin,) = admin.list_checkpoints(places("parent"))
    assert (pin.owner, pin.expires) == ("clone", None)
    identity = admin.manifest(places("clone"))["database"]
    with pytest.raises(siltstone.Conflict, match=identity):
        admin.delete_checkpoint(places("parent"), pin)
    with pytest.raises(siltstone.Conflict, match=identity):
        admin.refresh_checkpoint(places("parent"), pin, lifetime=1)
    assert [one["database"] for one in admin.manifest(places("clone"))["ancestors"]] == [
        admin.manifest(places("parent"))["database"]
    ]
    admin.compact(places("clone"))
    admin.gc(places("clone"), min_age=0)
    assert admin.list_checkpoints(places("parent")) == []
    assert admin.manifest(places("clone"))["ancestors"] == []
    assert admin.verify(places("clone")).problem_count == 0
    assert rows(places("clone")) == ROWS


def test_refusals_have_words(places, tmp_path: Path) -> None:
    fill(places("parent"))
    fill(places("other"))
    with pytest.raises(siltstone.NotFound):
        siltstone.clone(places("clone"), parent=places("nowhere"))
    with pytest.raises(siltstone.Conflict, match="is at the target"):
        siltstone.clone(places("other"), parent=places("parent"))
    far = "memory://far" if "://" not in places("x") else str(tmp_path / "far")
    with pytest.raises(siltstone.Unsupported, match="one bucket"):
        siltstone.clone(far, parent=places("parent"))
    siltstone.clone(places("clone"), parent=places("parent"))
    siltstone.clone(places("clone"), parent=places("parent"))
    fill(places("clone"))
    with pytest.raises(siltstone.Conflict, match="written to"):
        siltstone.clone(places("clone"), parent=places("parent"))
    with pytest.raises(siltstone.Invalid, match="overlap"):
        siltstone.clone(places("x"), parent=[places("parent"), (places("other"), None)])
    with pytest.raises(siltstone.Invalid, match="end"):
        siltstone.clone(places("x"), parent=places("parent"), start=b"b", end=b"a")


def test_a_database_is_split_in_two(places) -> None:
    """Rows, range deletes across the cut, and later changes of each half."""
    fill(places("parent"))
    with siltstone.open(places("parent")) as db:
        db.delete_range(b"030", b"070")
        db.put_many([b"040", b"060"], [b"new"] * 2)
        whole = dict(db.items())
    siltstone.clone(places("low"), parent=places("parent"), end=b"050")
    asyncio.run(siltstone.aio.clone(places("high"), parent=places("parent"), start=b"050"))
    with pytest.raises(siltstone.Conflict):
        siltstone.clone(places("low"), parent=places("parent"), end=b"051")
    low = {key: value for key, value in whole.items() if key < b"050"}
    high = {key: value for key, value in whole.items() if key >= b"050"}
    for _ in range(2):
        assert rows(places("low")) == low
        assert rows(places("high")) == high
        for half, cut in (("low", b"055"), ("high", b"045")):
            with siltstone.open(places(half)) as db:
                assert db.get(cut) is None
                db.compact()
            assert admin.verify(places(half)).problem_count == 0
    with siltstone.open(places("low")) as db:
        db[b"055"] = b"its own"
        assert db[b"055"] == b"its own"
    assert rows(places("parent")) == whole
    assert rows(places("high")) == high


def test_awaited(places) -> None:
    fill(places("parent"))
    asyncio.run(siltstone.aio.clone(places("clone"), parent=places("parent")))
    assert rows(places("clone")) == ROWS


def test_from_the_command_line(tmp_path: Path) -> None:
    parent, clone, old = (str(tmp_path / name) for name in ("parent", "clone", "old"))
    fill(parent)
    admin.create_checkpoint(parent, name="then")
    fill(parent, b"new")

    def run(*words: str) -> str:
        done = CliRunner().invoke(main, list(words), catch_exceptions=False)
        assert done.exit_code == 0, done.output
        return done.output

    assert run("--path", clone, "clone", "--parent", parent) == ""
    told = run("--path", old, "clone", "--parent", parent, "--checkpoint", "then", "--json")
    assert json.loads(told) == {
        "clone": old,
        "parents": [{"parent": parent, "checkpoint": "then"}],
    }
    assert (rows(clone)[b"050"], rows(old)[b"050"]) == (b"new", b"old")
    cut = str(tmp_path / "cut")
    part = ("--start", b"020".hex(), "--end", b"022".hex(), "--hex")
    assert run("--path", cut, "clone", "--parent", parent, *part) == ""
    assert list(rows(cut)) == [b"020", b"021"]
    refused = CliRunner().invoke(main, ["--path", old, "clone", "--parent", clone])
    assert refused.exit_code == 1
    shutil.rmtree(clone)
    pins = [one for one in admin.list_checkpoints(parent) if one.owner == "clone"]
    (pin,) = (one for one in pins if one.metadata["clone at"].endswith("/clone"))
    assert run("--path", parent, "release-clone", clone) == f"{pin.id}\n"
    refused = CliRunner().invoke(main, ["--path", parent, "release-clone", old])
    assert refused.exit_code == 1
    told = json.loads(run("--path", parent, "release-clone", old, "--force", "--json"))
    assert told["clone"].endswith("/old")
