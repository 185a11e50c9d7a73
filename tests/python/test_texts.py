"""Texts of errors: they name the argument, the row and the remedy, and have no Rust notation."""

from __future__ import annotations

import asyncio
import contextlib
import io
import re
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import siltstone
from siltstone import admin, aio, lsm

# Formats that `{:?}` produces: `Some(3)`, `Manifest { id: 1 }`, `ObjectName::Wal(1)`, `5..10`,
# "text" in double quotes, `[1, 2]`.
DEBUG = re.compile(
    r"\b(Some|None|Ok|Err)\(|\b[A-Z]\w+ \{|\b\w+::\w+|\d\.\.\d|\"|\b[A-Z]\w*\([^)]*\)|\[[^()\[]*\]"
)


def raised(call: Callable[[], Any]) -> BaseException:
    with pytest.raises(Exception) as caught:
        call()
    return caught.value


# --- Arguments and rows ---------------------------------------------------------------------------


@pytest.mark.parametrize("one", [b"abc", "abc", bytearray(b"abc"), memoryview(b"abc")])
def test_one_key_is_no_list_of_keys(db, one: object) -> None:
    memtable, writer = lsm.MemTable(), lsm.SstWriter(io.BytesIO())
    bloom = lsm.BloomFilter([b"a"])

    async def awaited() -> None:
        await aio.Database(db).get_many(one)

    for call, name in (
        (lambda: db.get_many(one), "key"),
        (lambda: db.snapshot().get_many(one), "key"),
        (lambda: db.put_many(one, [b"1", b"2", b"3"]), "key"),
        (lambda: db.put_many([b"1", b"2", b"3"], one), "value"),
        (lambda: asyncio.run(awaited()), "key"),
        (lambda: memtable.put_many(one, [b"1", b"2", b"3"]), "key"),
        (lambda: writer.add_many([b"1", b"2", b"3"], one), "value"),
        (lambda: lsm.BloomFilter(one), "key"),
        (lambda: bloom.may_contain_many(one), "key"),
    ):
        error = raised(call)
        assert type(error) is TypeError
        assert f"pass a list of {name}s, as in [{name}]" in str(error)
        assert type(one).__name__ in str(error)
    assert list(db) == []


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda db: db.get_many([b"a", b"b", "c"]), "keys[2]: expected bytes, not str"),
        (lambda db: db.get_many((b"a", 1)), "keys[1]: expected bytes or a buffer, not int"),
        (lambda db: db.get_many([b"a"] * 50 + [None]), "keys[50]: expected bytes or a buffer"),
        (lambda db: db.put_many([b"a", "b"], [b"1", b"2"]), "keys[1]: expected bytes, not str"),
        (lambda db: db.put_many([b"a", b"b"], [b"1", None]), "values[1]: expected bytes or"),
        (lambda db: db.put_many(iter([7]), iter([b"1"])), "keys[0]: expected bytes or a buffer"),
        (lambda db: db.put_many(pa.array([1]), pa.array([b"1"])), "keys: an Arrow column"),
        (lambda db: db.put_many(pa.array([b"1"]), pa.array([1])), "values: an Arrow column"),
        (lambda db: db.get_many(pa.array([1])), "keys: an Arrow column"),
        (lambda db: db.write(pa.table({"key": [1], "value": [b"1"]})), "key: an Arrow column"),
        (lambda db: db.write(pa.table({"key": [b"1"], "value": [1]})), "value: an Arrow column"),
        (lambda db: db.write([b"a"]), "batch: expected a WriteBatch"),
        (lambda db: db.put("k", b"v"), "'key'"),
        (lambda db: db.put(b"k", 1), "'value'"),
        (lambda db: db.get(1), "'key'"),
        (lambda db: db.delete(1), "'key'"),
        (lambda db: db.merge(b"k", "v"), "'operand'"),
        (lambda db: db.delete_range("a", b"b"), "'start'"),
        (lambda db: db.delete_range(b"a", "b"), "'end'"),
        (lambda db: db.scan("a"), "'start'"),
        (lambda db: db.scan(end="a"), "'end'"),
        (lambda db: db.scan(prefix="a"), "'prefix'"),
        (lambda db: db.scan(limit="a"), "limit"),
        (lambda _: siltstone.WriteBatch().put(b"k", "v"), "'value'"),
        (lambda _: lsm.MemTable().put_many([b"a", "b"], [b"", b""]), "keys[1]: expected bytes"),
        (lambda _: lsm.SstWriter(io.BytesIO()).add_many([b"a"], ["b"]), "values[0]: expected"),
        (lambda _: lsm.BloomFilter([b"a", "b"]), "keys[1]: expected bytes"),
    ],
)
def test_a_wrong_type_is_named_with_its_argument_and_row(db, call, said: str) -> None:
    error = raised(lambda: call(db))
    assert isinstance(error, TypeError)
    # A traceback prints notes below the text.
    assert said in "\n".join([str(error), *getattr(error, "__notes__", [])])
    assert list(db) == []


def test_a_wrong_row_is_named_too(db) -> None:
    for call in (
        lambda: db.put_many([b"a", b""], [b"1", b"2"]),
        lambda: db.put_many(pa.array([b"a", b""]), pa.array([b"1", b"2"])),
        lambda: db.write(pa.table({"key": [b"a", b""], "value": [b"1", b"2"]})),
    ):
        error = raised(call)
        assert isinstance(error, siltstone.Invalid)
        assert error.context["row"] == "1"


def test_an_error_of_a_buffer_comes_through(db) -> None:
    with pytest.raises(BufferError, match=r"keys\[1\]: the buffer is not C-contiguous"):
        db.get_many([b"a", memoryview(b"abcdef")[::2]])


# --- Time to live ---------------------------------------------------------------------------------

REFUSED = [0, 0.0, -1, -1e-9, timedelta(0), timedelta(seconds=-1), *map(float, ("nan", "inf"))]
REFUSED += [1e17, 1e300]
TAKEN = [1e-10, 0.001, 1, 3600.5, timedelta(microseconds=1), timedelta.max, 1e15]


def ways(db: siltstone.Database) -> list[Callable[[Any], object]]:
    """Every way to give a value an expiry."""
    awaited = aio.Database(db)
    own = aio.WriteBatch()
    return [
        lambda ttl: db.put(b"k", b"v", ttl=ttl),
        lambda ttl: db.merge(b"k", b"v", ttl=ttl),
        lambda ttl: db.put_many([b"k"], [b"v"], ttl=ttl),
        lambda ttl: siltstone.WriteBatch().put(b"k", b"v", ttl=ttl),
        lambda ttl: siltstone.WriteBatch().merge(b"k", b"v", ttl=ttl),
        lambda ttl: own.put(b"k", b"v", ttl=ttl),
        lambda ttl: own.merge(b"k", b"v", ttl=ttl),
        lambda ttl: asyncio.run(awaited.put(b"k", b"v", ttl=ttl)),
        lambda ttl: asyncio.run(awaited.merge(b"k", b"v", ttl=ttl)),
        lambda ttl: asyncio.run(awaited.put_many([b"k"], [b"v"], ttl=ttl)),
        lambda ttl: lsm.MemTable().put(b"k", b"v", ttl=ttl),
        lambda ttl: lsm.SstWriter(io.BytesIO()).add(b"k", b"v", ttl=ttl),
        lambda ttl: lsm.SstWriter(io.BytesIO()).add_many([b"k"], [b"v"], ttl=ttl),
    ]


@pytest.mark.parametrize("ttl", REFUSED)
def test_every_way_to_write_refuses_the_same_ends(memory_url: str, ttl: Any) -> None:
    with siltstone.open(memory_url, merge_operator="append") as db:
        said = set()
        for way in ways(db):
            error = raised(lambda way=way: way(ttl))
            assert type(error) is siltstone.Invalid
            said.add(str(error))
        assert len(said) == 1
        assert "(ttl)" in said.pop()
        assert list(db) == []


@pytest.mark.parametrize("ttl", TAKEN)
def test_every_way_to_write_takes_the_same_ends(memory_url: str, ttl: Any) -> None:
    with siltstone.open(memory_url, merge_operator="append") as db:
        for way in ways(db):
            way(ttl)


# --- Paths ----------------------------------------------------------------------------------------


def everything(place: Any) -> list[Callable[[], object]]:
    """Every call with the path of a database as an argument."""

    async def opened() -> None:
        await aio.open(place)

    async def read() -> None:
        await aio.open_reader(place)

    return [
        lambda: siltstone.open(place),
        lambda: siltstone.open_reader(place),
        lambda: asyncio.run(opened()),
        lambda: asyncio.run(read()),
        lambda: admin.manifest(place),
        lambda: admin.verify(place),
        lambda: admin.gc(place),
        lambda: admin.run_gc([place]),
        lambda: admin.compact(place),
        lambda: admin.run_compactor(place),
    ]


def test_a_tilde_is_the_home_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "house"))
    monkeypatch.chdir(tmp_path)
    with siltstone.open("~/db") as db:
        db.put(b"a", b"1").wait()
        assert repr(db) == f"<siltstone.Database '{tmp_path}/house/db', open>"
        with siltstone.open_reader(Path("~") / "db") as reader:
            assert reader[b"a"] == b"1"
    assert (tmp_path / "house" / "db" / "manifest").is_dir()
    assert [path.name for path in tmp_path.iterdir()] == ["house"]
    assert admin.verify("~/db").ok
    with lsm.SstWriter("~/rows.sst") as writer:
        writer.add(b"a", b"1")
    assert lsm.SstReader("~/rows.sst")[b"a"] == b"1"
    # "./~" is taken literally: a folder in the working folder.
    siltstone.open("./~").close()
    assert (tmp_path / "~" / "manifest").is_dir()
    error = raised(lambda: siltstone.open("~no-user-of-that-name/db"))
    assert isinstance(error, siltstone.Invalid)
    assert "./~name" in str(error)


def test_memory_has_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for call in everything(":memory:"):
        error = raised(call)
        assert isinstance(error, siltstone.Invalid)
        assert "memory://name" in str(error)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "url", ["s3:/bucket/db", "S3:/bucket/db", "s3:b", "memory:name", "file:some.db", "gs:bucket"]
)
def test_a_url_without_its_slashes_makes_no_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str
) -> None:
    monkeypatch.chdir(tmp_path)
    for call in everything(url):
        error = raised(call)
        assert isinstance(error, siltstone.Invalid)
        scheme = url.split(":", maxsplit=1)[0].lower()
        assert f"two slashes behind its scheme: {scheme}://" in str(error)
    assert list(tmp_path.iterdir()) == []
    siltstone.open(f"./{url}").close()


def test_a_path_is_also_a_url_as_hadoop_writes_it(tmp_path: Path) -> None:
    siltstone.open(f"file:{tmp_path}/db").close()
    assert [path.name for path in tmp_path.iterdir()] == ["db"]


def test_an_empty_path_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for call in everything(""):
        error = raised(call)
        assert isinstance(error, siltstone.Invalid)
        assert "empty" in str(error)
    assert list(tmp_path.iterdir()) == []


def test_a_file_is_no_database(tmp_path: Path) -> None:
    file = tmp_path / "rows.csv"
    file.write_text("a,b")
    for call in everything(file):
        error = raised(call)
        assert isinstance(error, siltstone.Invalid)
        assert "is a file" in str(error)
        assert error.context["path"] == str(file)
    assert file.read_text() == "a,b"


# --- No Rust notation -----------------------------------------------------------------------------


def damaged(folder: Path) -> list[Callable[[], object]]:
    """Reads of a database after each object in turn is cut, changed or swapped."""
    url = folder / "damaged"
    for _ in range(2):
        with siltstone.open(url, options={"block_bytes": 256}) as db:
            db.put_many([b"%04d" % n for n in range(500)], [b"v" * 20] * 500)
    objects = sorted(path for path in url.rglob("*") if path.is_file())
    calls: list[Callable[[], object]] = []

    def read() -> None:
        with contextlib.suppress(siltstone.Closed), siltstone.open_reader(url) as reader:
            list(reader.scan())

    def with_bytes(path: Path, data: bytes) -> None:
        before = path.read_bytes()
        path.chmod(0o644)
        path.write_bytes(data)
        try:
            problems = admin.verify(url).problems
            with contextlib.ExitStack() as stack:
                stack.callback(path.write_bytes, before)
                read()
            if problems:
                raise siltstone.Corruption("; ".join(map(str, problems)))
            raise siltstone.Corruption("nothing to see")
        finally:
            path.write_bytes(before)

    for path in objects:
        whole = path.read_bytes()
        other = next(one for one in objects if one.parent != path.parent).read_bytes()
        middle = len(whole) // 2
        flipped = whole[:middle] + bytes([whole[middle] ^ 255]) + whole[middle + 1 :]
        swapped = (whole[:-1], whole[:10], b"", other, flipped, whole + b"x")
        calls += [lambda path=path, data=data: with_bytes(path, data) for data in swapped]
    return calls


def wrong_places_and_settings(folder: Path) -> list[Callable[[], object]]:
    absent = folder / "absent"
    wrong_options: list[dict[str, Any]] = [
        {"flush_interval": "soon"},
        {"flush_interval": None},
        {"flush_bytes": 0},
        {"flush_bytes": "1MB"},
        {"max_parallel_writes": True},
        {"compression": "brotli"},
        {"deadline": 0},
        {"flush_intervall": 1},
        {"disk_cache_bytes": 2},
        {"compaction_scheduler": "leveled"},
        {"max_space_amplification": 0.5},
        {"target_sst_bytes": 10},
        {"max_memtable_bytes": 4096, "l0_sst_size_bytes": 1 << 20},
    ]
    silent = {"manifest_poll_interval": 1, "readers.checkpoint_lifetime": 2}
    return [
        *(lambda named=named: siltstone.open(absent, options=named) for named in wrong_options),
        lambda: siltstone.open_reader(folder / "other", options=silent),
        lambda: siltstone.open(absent, create=False),
        lambda: siltstone.open_reader(absent),
        lambda: siltstone.open_reader(absent, checkpoint="yesterday"),
        lambda: siltstone.open_reader(absent, version=1),
        lambda: siltstone.open_reader(folder / "other", checkpoint="0" * 32),
        lambda: siltstone.open(folder / "other", merge_operator="max").merge(b"k", 1),
        lambda: siltstone.open(folder / "other", merge_operator="min"),
        lambda: siltstone.open(folder / "other", merge_operator=7),
        lambda: siltstone.open("ftp://host/path"),
        lambda: siltstone.open("s3://"),
        lambda: siltstone.open("s3://bucket/a//b"),
        lambda: siltstone.open("s3://bucket/a?b"),
        lambda: siltstone.open("file://host/path"),
        lambda: siltstone.open("file:///a%zz"),
        lambda: siltstone.open(absent, store_options={"region": "r"}),
        lambda: siltstone.open("s3://bucket/db", store_options={"no_such": "x"}),
        lambda: siltstone.open("s3://bucket/db", store_options={"region": [1]}),
        lambda: siltstone.open("s3://bucket/db", store_options={"endpoint": "http://[broken"}),
        lambda: siltstone.open(
            "s3://bucket/db",
            options={"deadline": 0.3},
            store_options={
                "endpoint": "https://127.0.0.1:1",
                "region": "r",
                "access_key_id": "a",
                "secret_access_key": "s",
            },
        ),
        lambda: admin.manifest(absent),
        lambda: admin.manifest(folder / "other", 999),
        lambda: admin.verify(absent),
        lambda: admin.gc(absent),
        lambda: admin.compact(absent),
    ]


def wrong_calls(db: siltstone.Database) -> list[Callable[[], object]]:
    table = lsm.SstWriter(io.BytesIO(), sort=False)
    table.add(b"b", b"")
    return [
        lambda: db.put(b"", b""),
        lambda: db.put(b"k" * 65_536, b""),
        lambda: db.put(b"k", bytes(65 << 20)),
        lambda: db.merge(b"k", b"v"),
        lambda: db.delete_range(b"b", b"a"),
        lambda: db.scan(b"a", prefix=b"a"),
        lambda: db.scan(limit=-1),
        lambda: db.scan().to_arrow(0),
        lambda: db.put(b"k", b"v", ttl=1e18),
        lambda: db.put(b"k", b"v").wait(-1),
        lambda: db.put(b"absent", b"v", if_value=b"w"),
        lambda: db.put(b"k", b"v", if_absent=True, if_value=b"w"),
        lambda: db.write(pa.table({"k": [b"a"], "w": [b"b"]})),
        lambda: db.write(pa.table({"key": [b"a", None], "value": [b"", b""]})),
        lambda: db.put_many([b"a"], []),
        lambda: db.transaction("none"),
        lambda: db.checkpoint(scope="none"),
        lambda: siltstone.WriteBatch().__enter__(),
        lambda: table.add(b"a", b""),
        lambda: lsm.SstWriter(io.BytesIO()).finish(),
        lambda: lsm.SstWriter(io.BytesIO(), duplicates="first"),
        lambda: lsm.SstWriter(io.BytesIO(), sort_memory_bytes=5),
        lambda: lsm.SstWriter("s3://bucket"),
        lambda: lsm.SstReader(b"no table"),
        lambda: lsm.SstReader(b"no table" * 100),
        lambda: lsm.BloomFilter.from_bytes(b"x"),
        lambda: lsm.BloomFilter([], bits_per_key=65),
        lambda: lsm.MemTable().snapshot(7),
    ]


def test_no_text_shows_how_rust_writes_its_values(db, tmp_path: Path) -> None:
    siltstone.open(tmp_path / "other").close()
    odd, seen = [], 0
    for call in [*wrong_places_and_settings(tmp_path), *wrong_calls(db), *damaged(tmp_path)]:
        error = raised(call)
        seen += 1
        facts = getattr(error, "context", {})
        for text in (str(error), *facts.values()):
            # Remove brackets that come from the URL of the test itself, and its path.
            plain = text.replace("http://[broken", "").replace(str(tmp_path), "")
            if DEBUG.search(plain):
                odd.append(f"{type(error).__name__}: {text}")
    assert seen > 100
    assert odd == []


def test_debug_text_is_found() -> None:
    for text in ('given: Text("soon")', "range: 5..10", "ObjectName::Wal(3)", "Some(3)", "[1, 2]"):
        assert DEBUG.search(text), text
    for text in ("deadline: 30s", "bytes 5 to 10", "0 keys and 2 values", "1 to 65,535 bytes"):
        assert not DEBUG.search(text), text


# --- Remedies that need `open` --------------------------------------------------------------------


def test_making_one_is_offered_only_where_one_can(tmp_path: Path) -> None:
    absent = tmp_path / "absent"
    assert "create" in str(raised(lambda: siltstone.open(absent, create=False)))
    for call in (
        lambda: siltstone.open_reader(absent),
        lambda: admin.manifest(absent),
        lambda: admin.verify(absent),
        lambda: admin.gc(absent),
        lambda: admin.compact(absent),
        lambda: admin.run_compactor(absent),
    ):
        error = raised(call)
        assert isinstance(error, siltstone.NotFound)
        assert "create" not in str(error)
    assert list(tmp_path.iterdir()) == []
