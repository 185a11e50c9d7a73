"""A reader's checkpoint: its own, a given one, or none."""

from __future__ import annotations

import pickle
from datetime import timedelta
from typing import Any

import pytest

import siltstone


def of_readers(url: str) -> list[dict[str, Any]]:
    """Checkpoints of readers that are present."""
    checkpoints = siltstone.admin.manifest(url)["checkpoints"]
    return [one for one in checkpoints if one["owner"] == "reader"]


@pytest.fixture
def written(tmp_path: Any) -> str:
    """A database with one row in a table and one in the log."""
    url = str(tmp_path / "db")
    with siltstone.open(url) as db:
        db.put(b"a", b"1")
    with siltstone.open(url) as db:
        db.put(b"b", b"2").wait()
    return url


def test_an_open_reader_keeps_a_checkpoint_and_gives_it_back(written: str) -> None:
    with siltstone.open_reader(written) as reader:
        assert len(of_readers(written)) == 1
        assert reader.get(b"a") == b"1"
    assert of_readers(written) == []


def test_a_reader_without_a_checkpoint_writes_nothing(written: str) -> None:
    before = siltstone.admin.manifest(written)["id"]
    with siltstone.open_reader(written, options={"reader_checkpoint": False}) as reader:
        assert reader.get(b"b") == b"2"
    assert siltstone.admin.manifest(written)["id"] == before


def test_a_given_checkpoint_is_read_as_it_is(written: str) -> None:
    with siltstone.open_reader(written):
        [kept] = of_readers(written)
        with siltstone.open_reader(written, checkpoint=kept["id"]) as given:
            with siltstone.open(written) as db:
                db.put(b"a", b"newer")
            given.refresh()
            assert dict(given.scan()) == {b"a": b"1", b"b": b"2"}
            copy = pickle.loads(pickle.dumps(given))
            assert dict(copy.scan()) == {b"a": b"1", b"b": b"2"}
            copy.close()
    with pytest.raises(siltstone.Expired, match=kept["id"]):
        siltstone.open_reader(written, checkpoint=kept["id"])
    with pytest.raises(siltstone.Expired, match="no checkpoint has this name"):
        siltstone.open_reader(written, checkpoint="yesterday")


def test_a_lifetime_that_a_poll_could_miss_is_refused(written: str) -> None:
    options = siltstone.Options(manifest_poll_interval=1, checkpoint_lifetime=timedelta(seconds=2))
    with pytest.raises(siltstone.Invalid, match=r"checkpoint_lifetime.*manifest_poll_interval"):
        siltstone.open_reader(written, options=options)
    siltstone.open(written, options=options).close()
