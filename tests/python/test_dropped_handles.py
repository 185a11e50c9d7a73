"""A handle that is dropped without `close` is closed in the background. The next open waits."""

from __future__ import annotations

from pathlib import Path

import pytest

import siltstone
from aio_for_tests import run
from siltstone import aio

ROUNDS = 40


@pytest.fixture(params=["folder", "memory"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return str(tmp_path / "db") if request.param == "folder" else f"memory://{tmp_path.name}"


def save(url: str, key: bytes, **how: object) -> None:
    db = siltstone.open(url, **how)
    db[key] = b"v"


@pytest.mark.parametrize("take_over", [None, False, True])
def test_the_next_open_loses_no_accepted_write(place: str, take_over: bool | None) -> None:
    for row in range(ROUNDS):
        save(place, b"%03d" % row, take_over=take_over)
    with siltstone.open(place) as db:
        assert len(list(db)) == ROUNDS


def test_another_spelling_of_the_folder_waits_too(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "link").symlink_to(tmp_path)
    spellings = [str(tmp_path / "db"), "db", (tmp_path / "db").as_uri(), "link/db"]
    for row in range(ROUNDS):
        save(spellings[row % 4], b"%03d" % row)
    with siltstone.open("db") as db:
        assert len(list(db)) == ROUNDS


async def saved_and_read(place: str) -> None:
    for row in range(ROUNDS):
        save(place, b"%03d" % row)
        async with aio.open(place) as db:
            assert await db.get(b"%03d" % row) == b"v"


def test_a_shared_open_waits(place: str) -> None:
    for row in range(ROUNDS):
        save(place, b"%03d" % row, shared=row % 2 == 0)
    with siltstone.open(place) as db:
        assert len(list(db)) == ROUNDS


def test_an_open_of_asyncio_waits(place: str) -> None:
    run(saved_and_read(place))
