"""`Database.mapping`: a MutableMapping with codecs, and the reason why a handle is closed."""

from __future__ import annotations

import asyncio
import json
import shelve
import subprocess
import sys
import uuid
from collections.abc import MutableMapping

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

import siltstone
import siltstone.aio

JSON = (lambda value: json.dumps(value).encode(), json.loads)
NUMBER = (lambda number: number.to_bytes(8, "big"), lambda key: int.from_bytes(key, "big"))


@pytest.fixture
def url() -> str:
    return f"memory://{uuid.uuid4().hex}"


def test_codecs(url: str) -> None:
    with siltstone.open(url) as db:
        text = db.mapping(key=str, value=str)
        assert isinstance(text, MutableMapping)
        text["größe"] = "drei"
        assert db["größe".encode()] == b"drei"
        assert text["größe"] == "drei"
        assert "größe" in text
        assert list(text.items()) == [("größe", "drei")]
        with pytest.raises(TypeError, match="str"):
            text[b"a"] = "x"  # type: ignore[index]
        text.clear()
        numbers = db.mapping(key=NUMBER, value=JSON)
        for n in (300, 2, 1):
            numbers[n] = {"n": [n]}
        assert list(numbers) == [1, 2, 300]
        assert list(reversed(numbers)) == [300, 2, 1]
        assert next(iter(numbers.values())) == {"n": [1]}
        assert numbers.pop(2) == {"n": [2]}
        assert len(numbers) == 2
        plain = db.mapping()
        assert list(plain) == [(1).to_bytes(8, "big"), (300).to_bytes(8, "big")]
        for wrong in (int, (str.encode,), "utf-8", (1, 2)):
            for name in ("key", "value"):
                with pytest.raises(TypeError, match=f"{name} is bytes, str, or two functions"):
                    db.mapping(**{name: wrong})


def test_it_is_a_whole_mapping(url: str) -> None:
    with siltstone.open(url) as db:
        mapping = db.mapping(key=str, value=JSON)
        assert not mapping
        with pytest.raises(KeyError, match="absent"):
            mapping["absent"]
        with pytest.raises(KeyError, match="absent"):
            del mapping["absent"]
        with pytest.raises(KeyError):
            mapping.popitem()
        assert mapping.get("absent", 7) == 7
        assert mapping.pop("absent", None) is None
        assert mapping.setdefault("a", [1]) == [1]
        mapping.update({"b": 2}, c=3)
        assert mapping
        assert mapping == {"a": [1], "b": 2, "c": 3}
        assert mapping.keys() == {"a", "b", "c"}
        assert mapping.keys() & {"a", "z"} == {"a"}
        assert ("b", 2) in mapping.items()
        assert 3 in mapping.values()
        assert len(mapping) == len(mapping.keys()) == len(mapping.items()) == 3
        assert mapping.popitem() == ("a", [1])
        assert "Mapping" in repr(mapping)
        mapping.clear()
        assert dict(mapping) == {}
        mapping.clear()
    with pytest.raises(siltstone.Closed):
        mapping["a"] = 1


def test_a_mapping_keeps_values_that_are_not_durable_yet(url: str) -> None:
    """With `read_durable_only`, reads do not show them."""
    options = {"read_durable_only": True, "flush_interval": 3600}
    with siltstone.open(url, options=options) as db:
        mapping = db.mapping(key=str, value=str)
        mapping["a"] = "first"
        assert mapping.setdefault("a", "second") == "first"
        mapping["b"] = "1"
        assert mapping.pop("b") == "1"
        mapping["c"] = "1"
        del mapping["c"]
        for call in (lambda: mapping.pop("b"), lambda: mapping.__delitem__("c")):
            with pytest.raises(KeyError):
                call()
        assert mapping.pop("b", "none") == "none"
        assert mapping.setdefault("d", "new") == "new"
        db.flush()
        assert dict(mapping) == {"a": "first", "d": "new"}


def test_shelve_works_over_it(url: str) -> None:
    with siltstone.open(url) as db:
        with shelve.Shelf(db.mapping()) as shelf:
            shelf["a"] = {"deep": [1, 2]}
            shelf["b"] = 2.5
            assert len(shelf) == 2
            assert sorted(shelf) == ["a", "b"]
            del shelf["b"]
        # Closing the shelf makes its rows durable, but leaves the database open.
        assert db.stats().durable_seq == db.stats().visible_seq
        assert db.closed_by is None
    with siltstone.open(url) as db, shelve.Shelf(db.mapping(), writeback=True) as shelf:
        shelf["a"]["deep"].append(3)
        shelf.sync()
        with shelve.Shelf(db.mapping()) as other:
            assert dict(other) == {"a": {"deep": [1, 2, 3]}}


class AsADict(RuleBasedStateMachine):
    """A mapping behaves like a dict."""

    def __init__(self) -> None:
        super().__init__()
        options = {"l0_sst_size_bytes": 1024, "block_bytes": 64}
        self.db = siltstone.open(f"memory://{uuid.uuid4().hex}", options=options)
        self.mapping = self.db.mapping(key=str, value=JSON)
        self.model: dict[str, object] = {}

    keys = st.sampled_from(["a", "b", "ab", "ä", "\U0001f9f1"])

    @rule(key=keys, value=st.integers() | st.text(max_size=20))
    def put(self, key: str, value: object) -> None:
        self.mapping[key] = value
        self.model[key] = value

    @rule(key=keys)
    def remove(self, key: str) -> None:
        outcomes = []
        for each in (self.mapping, self.model):
            try:
                outcomes.append(each.pop(key))
            except KeyError as error:
                outcomes.append(error.args)
        assert outcomes[0] == outcomes[1]

    @rule(key=keys, value=st.integers())
    def default(self, key: str, value: int) -> None:
        assert self.mapping.setdefault(key, value) == self.model.setdefault(key, value)

    @rule()
    def clear(self) -> None:
        self.mapping.clear()
        self.model.clear()

    @rule()
    def compact(self) -> None:
        self.db.compact()

    @invariant()
    def same(self) -> None:
        assert dict(self.mapping) == self.model
        assert len(self.mapping) == len(self.model)
        assert list(self.mapping) == sorted(self.model, key=str.encode)
        assert dict(self.mapping.items()) == self.model

    def teardown(self) -> None:
        self.db.close()


AsADict.TestCase.settings = settings(max_examples=30, stateful_step_count=20, deadline=None)
test_it_is_as_a_dict = AsADict.TestCase

TYPED = """
from typing import assert_type
import siltstone
import siltstone.mapping

def encode(number: int) -> bytes:
    return number.to_bytes()
def decode(key: bytes) -> int:
    return key[0]
CODEC = (encode, decode)

def typed(db: siltstone.Database) -> None:
    assert_type(db.mapping()[b"a"], bytes)
    assert_type(db.mapping(key=str)["a"], bytes)
    assert_type(db.mapping(key=str, value=str)["a"], str)
    assert_type(db.mapping(value=str)[b"a"], str)
    assert_type(db.mapping(key=CODEC), siltstone.mapping.Mapping[int, bytes])
    assert_type(db.mapping(key=str, value=CODEC)["a"], int)
    assert_type(db.closed_by, siltstone.Error | None)
    assert_type(db.approximate_size(), siltstone.Size)
    assert_type(siltstone.aio.open("x"), siltstone.aio.Opening[siltstone.aio.Database])
"""


def test_its_types_are_those_of_its_codecs(tmp_path) -> None:
    (tmp_path / "typed.py").write_text(TYPED)
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file=", "typed.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_why_a_handle_is_closed(url: str) -> None:
    db = siltstone.open(url)
    assert db.closed_by is None
    with siltstone.open(url, take_over=True) as other:
        with pytest.raises(siltstone.Fenced):
            db.put(b"a", b"1").wait()
        assert isinstance(db.closed_by, siltstone.Fenced)
        assert other.closed_by is None
    with pytest.raises(siltstone.Fenced):
        db.close()
    assert isinstance(db.closed_by, siltstone.Fenced)
    assert isinstance(other.closed_by, siltstone.Closed)
    with pytest.raises(siltstone.Closed) as raised:
        other.get(b"a")
    assert str(raised.value) == str(other.closed_by)


def test_it_is_told_of_awaited_handles_too(url: str) -> None:
    async def work() -> None:
        async with siltstone.aio.open(url) as db:
            assert db.closed_by is None
        assert isinstance(db.closed_by, siltstone.Closed)

    asyncio.run(work())


def test_contains_is_awaited(url: str) -> None:
    async def work() -> None:
        async with siltstone.aio.open(url, options={"block_cache_bytes": 0}) as db:
            await db.put(b"a", b"1")
            assert await db.contains(b"a") is True
            assert await db.contains(b"b") is False
            with pytest.raises(siltstone.Invalid):
                await db.contains(b"")
            async with db.snapshot() as snapshot:
                await db.delete(b"a")
                assert await snapshot.contains(b"a")
                assert not await db.contains(b"a")
            await db.put(b"c", b"1")
        async with siltstone.aio.open_reader(url, options={"block_cache_bytes": 0}) as reader:
            assert await reader.contains(b"c")
            assert not await reader.contains(b"a")

    asyncio.run(work())


def test_flush_can_mean_tables(url: str) -> None:
    with siltstone.open(url) as db:
        db[b"a"] = b"1"
        db.flush()
        assert db.stats().l0_tables == 0
        db.flush(memtable=True)
        assert db.stats().l0_tables == 1
        assert db.stats().memtable_entries == 0
        db.flush(memtable=True)
        assert db.stats().l0_tables == 1

    async def work() -> None:
        async with siltstone.aio.open(url) as db:
            await db.put(b"b", b"1")
            await db.flush(memtable=True)
            assert (await db.stats()).memtable_entries == 0
            with pytest.raises(TypeError):
                await db.flush(True)  # type: ignore[misc]

    asyncio.run(work())


LAZY = """
import sys, siltstone
assert "siltstone.aio" not in sys.modules and "asyncio" not in sys.modules
assert {"aio", "keys", "lsm", "open"} <= set(dir(siltstone))
assert "siltstone.aio" not in sys.modules
assert siltstone.aio.open and siltstone.lsm.SstWriter
assert sys.modules["siltstone.aio"] is siltstone.aio
try:
    siltstone.nothing
except AttributeError as error:
    print(error)
"""


def test_the_other_modules_are_bound_and_not_imported(python) -> None:
    status, out, errors = python(LAZY)
    assert status == 0, errors
    assert out == "module 'siltstone' has no attribute 'nothing'\n"
