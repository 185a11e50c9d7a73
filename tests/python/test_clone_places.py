"""The places of clones: removed, moved or copied by hand; ancestors that no longer exist."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

import siltstone
from pace_for_tests import until
from siltstone import Parent
from siltstone.cli import main

admin = siltstone.admin
ROWS = {f"{n:03}".encode(): b"old" for n in range(100)}


@pytest.fixture
def url(tmp_path: Path) -> str:
    return str(tmp_path / "db")


def fill(url: str, value: bytes = b"old") -> None:
    with siltstone.open(url) as db:
        db.put_many(list(ROWS), [value] * len(ROWS))
        db.compact()


def rows(url: str | Path) -> dict[bytes, bytes]:
    with siltstone.open_reader(url) as reader:
        return dict(reader.items())


@pytest.mark.parametrize("by", ["pin", "identity", "place", "path"])
def test_the_pin_of_a_clone_that_was_removed_by_hand_is_released(url: str, by: str) -> None:
    fill(url)
    siltstone.clone(url + "-clone", parent=url)
    identity = admin.manifest(url + "-clone")["database"]
    shutil.rmtree(url + "-clone")
    with pytest.raises(siltstone.Conflict, match=f"{identity} at file://.*/db-clone.*") as refused:
        siltstone.destroy(url)
    assert "release_clone" in str(refused.value)
    (pin,) = admin.list_checkpoints(url)
    assert pin.metadata == {"clone at": f"file://{url}-clone"}
    with pytest.raises(siltstone.Conflict, match="db-clone"):
        admin.delete_checkpoint(url, pin)
    with pytest.raises(siltstone.Conflict, match="db-clone"):
        admin.refresh_checkpoint(url, pin, lifetime=60)
    names = {"pin": pin, "identity": identity, "place": url + "-clone"}
    named = names.get(by, Path(url + "-clone"))
    assert admin.release_clone(url, named) == [pin]
    with pytest.raises(siltstone.NotFound):
        admin.release_clone(url, named)
    siltstone.destroy(url)


def test_verify_names_clones_that_are_not_at_their_places(url: str, tmp_path: Path) -> None:
    fill(url)
    for name in ("-removed", "-replaced", "-there"):
        siltstone.clone(url + name, parent=url)
    assert admin.verify(url).lost_clones == ()
    shutil.rmtree(url + "-removed")
    shutil.rmtree(url + "-replaced")
    siltstone.open(url + "-replaced").close()
    report = admin.verify(url)
    # All that the parent and the other clone read is there.
    assert report.ok
    places = {lost.place: lost for lost in report.lost_clones}
    assert set(places) == {f"file://{url}-removed", f"file://{url}-replaced"}
    done = CliRunner().invoke(main, ["--path", url, "verify"])
    assert done.exit_code == 0
    for lost in places.values():
        assert f"Warning: the clone {lost.clone} is not at {lost.place}: " in done.stderr
        assert f"`siltstone --path URL release-clone {lost.pin}`" in done.stderr
        assert [str(pin.id) for pin in admin.release_clone(url, lost.pin)] == [lost.pin]
    assert admin.verify(url).lost_clones == ()
    # The folder of both was moved.
    moved = tmp_path / "moved"
    shutil.move(url, moved)
    shutil.move(url + "-there", tmp_path / "moved-there")
    (lost,) = admin.verify(moved).lost_clones
    assert lost.place == f"file://{url}-there"


def test_opening_the_parent_tells_of_clones_that_are_not_at_their_places(
    url: str, caplog: pytest.LogCaptureFixture
) -> None:
    fill(url)
    for name in ("-removed", "-there"):
        siltstone.clone(url + name, parent=url)
    shutil.rmtree(url + "-removed")
    told = f'event=clone_lost .*place="file://{url}-removed"'
    with siltstone.open(url):
        until(lambda: re.search(told, caplog.text))
    assert caplog.text.count("clone_lost") == 1


def test_the_pin_of_a_clone_that_is_there_is_not_released(url: str) -> None:
    fill(url)
    siltstone.clone(url + "-clone", parent=url)
    (pin,) = admin.list_checkpoints(url)
    with pytest.raises(siltstone.Conflict, match="db-clone"):
        admin.release_clone(url, pin)
    assert rows(url + "-clone") == ROWS
    mine = admin.create_checkpoint(url)
    with pytest.raises(siltstone.Invalid, match="delete_checkpoint"):
        admin.release_clone(url, mine)
    admin.delete_checkpoint(url, mine)
    assert admin.release_clone(url, pin, force=True) == [pin]
    siltstone.destroy(url)


def test_another_database_in_the_place_of_a_clone_is_not_the_clone(url: str) -> None:
    fill(url)
    siltstone.clone(url + "-clone", parent=url)
    shutil.rmtree(url + "-clone")
    fill(url + "-clone")
    assert len(admin.release_clone(url, url + "-clone")) == 1


def test_a_copied_parent_is_destroyed_once_its_pins_are_released(url: str) -> None:
    fill(url)
    siltstone.clone(url + "-clone", parent=url)
    shutil.copytree(url, url + "-copy")
    with pytest.raises(siltstone.Conflict, match="db-clone"):
        siltstone.destroy(url + "-copy")
    (pin,) = admin.list_checkpoints(url + "-copy")
    with pytest.raises(siltstone.Conflict, match="copy"):
        admin.release_clone(url + "-copy", pin)
    admin.release_clone(url + "-copy", pin, force=True)
    siltstone.destroy(url + "-copy")
    assert rows(url + "-clone") == ROWS


def test_a_copied_clone_is_refused_by_every_process(url: str) -> None:
    fill(url)
    clone, copy = url + "-clone", url + "-copy"
    siltstone.clone(clone, parent=url)
    shutil.copytree(clone, copy)
    uses: list[Callable[[str], object]] = [
        siltstone.open,
        siltstone.open_reader,
        siltstone.destroy,
        admin.verify,
    ]
    uses += [admin.compact, admin.gc, admin.create_checkpoint]
    for use in uses:
        with pytest.raises(siltstone.Conflict, match="moved or copied") as refused:
            use(copy)
        for place in (clone, copy, url):
            assert f"file://{place}" in str(refused.value)
    with pytest.raises(siltstone.Conflict, match="moved or copied"):
        siltstone.clone(url + "-more", parent=copy)
    assert not Path(url + "-more").exists()
    assert rows(clone) == ROWS


def test_a_copied_clone_that_needs_no_ancestor_is_a_database(url: str) -> None:
    fill(url)
    siltstone.clone(url + "-clone", parent=url)
    with siltstone.open(url + "-clone") as db:
        db.put_many(list(ROWS), [b"new"] * len(ROWS))
        db.compact()
    admin.gc(url + "-clone", min_age=0)
    shutil.copytree(url + "-clone", url + "-copy")
    siltstone.destroy(url + "-clone")
    siltstone.destroy(url)
    assert rows(url + "-copy") == dict.fromkeys(ROWS, b"new")


def test_an_exported_clone_is_a_database_anywhere(url: str) -> None:
    fill(url)
    siltstone.clone(url + "-clone", parent=url)
    admin.export(url + "-clone", url + "-backup")
    admin.import_(url + "-restored", url + "-backup")
    Path(url + "-restored").rename(url + "-moved")
    siltstone.destroy(url + "-clone")
    siltstone.destroy(url)
    assert rows(url + "-moved") == ROWS


def test_a_renamed_folder_of_parent_and_clone_is_told_and_linked(url: str, tmp_path: Path) -> None:
    fill(f"{url}/parent")
    siltstone.clone(f"{url}/clone", parent=f"{url}/parent")
    renamed = tmp_path / "renamed"
    Path(url).rename(renamed)
    with pytest.raises(siltstone.Conflict, match="symbolic link") as refused:
        rows(renamed / "clone")
    assert f"{url}/parent" in str(refused.value)
    assert f"{url}/clone" in str(refused.value)
    Path(url).symlink_to(renamed)
    assert rows(renamed / "clone") == ROWS
    assert rows(f"{url}/clone") == ROWS


def scan(handle: siltstone.Database | siltstone.Reader) -> None:
    next(iter(handle.scan()))


@pytest.mark.parametrize("read", [lambda handle: handle.get(b"001"), scan])
@pytest.mark.parametrize("use", ["open", "open_reader", "at a checkpoint"])
def test_a_missing_table_of_an_ancestor_names_itself_and_the_place(
    url: str, use: str, read: Callable[..., object]
) -> None:
    fill(url)
    siltstone.clone(url + "-clone", parent=url)
    kept = admin.create_checkpoint(url + "-clone")
    Path(url).rename(url + "-moved")
    with pytest.raises(siltstone.Error) as refused:
        if use == "open":
            with siltstone.open(url + "-clone") as db:
                read(db)
        else:
            at = kept if use == "at a checkpoint" else None
            with siltstone.open_reader(url + "-clone", checkpoint=at) as reader:
                read(reader)
    assert f"file://{url}" in str(refused.value), refused.value
    assert "compacted/" in str(refused.value), refused.value


def test_a_parent_that_was_moved_is_told_and_can_be_put_back(url: str) -> None:
    fill(url)
    clone = url + "-clone"
    siltstone.clone(clone, parent=url)
    shutil.move(url, url + "-moved")
    text = f"not at its place: .*put it back.*parent: file://{url},"
    told = {"match": text}
    with siltstone.open(clone) as db:
        db[b"001"] = b"new"
        db.flush(memtable=True)
        for read in (lambda: db.get(b"002"), lambda: scan(db), db.compact):
            with pytest.raises(siltstone.NotFound, **told):
                read()
    with siltstone.open_reader(clone) as reader:
        for read in (lambda: reader.get(b"002"), lambda: scan(reader)):
            with pytest.raises(siltstone.NotFound, **told):
                read()
    assert "not at its place" in admin.verify(clone).problems[0].what
    fill(url, b"another database")
    with siltstone.open_reader(clone) as reader, pytest.raises(siltstone.NotFound, **told):
        reader.get(b"002")
    shutil.rmtree(url)
    shutil.move(url + "-moved", url)
    assert rows(clone) == {**ROWS, b"001": b"new"}
    assert admin.verify(clone).ok


def test_a_clone_is_cloned_after_its_ancestor_was_destroyed_softly(url: str) -> None:
    fill(url)
    siltstone.clone(url + "-child", parent=url)
    siltstone.destroy(url, soft=True)
    siltstone.clone(url + "-grandchild", parent=url + "-child")
    admin.gc(url, min_age=0)
    admin.compact(url + "-child")
    admin.gc(url + "-child", min_age=0)
    assert rows(url + "-grandchild") == ROWS
    with pytest.raises(siltstone.Conflict, match="db-grandchild"):
        siltstone.destroy(url)
    with pytest.raises(siltstone.NotFound, match="destroyed"):
        siltstone.clone(url + "-late", parent=url)


def test_a_database_and_its_restored_backup_are_not_united(url: str) -> None:
    fill(url)
    admin.export(url, url + "-backup")
    admin.import_(url + "-restored", url + "-backup")
    restored = url + "-restored"
    with pytest.raises(siltstone.Invalid, match="restored backup") as refused:
        siltstone.clone(
            url + "-union", parent=[Parent(restored, end=b"05"), Parent(url, start=b"05")]
        )
    assert f"file://{url}" in str(refused.value)
    assert f"file://{restored}" in str(refused.value)
    assert not any(file.is_file() for file in Path(url + "-union").rglob("*"))
    assert not admin.list_checkpoints(url)
    assert not admin.list_checkpoints(restored)
