"""Misuse: each row raises the given class with a helpful text, and changes nothing."""

from __future__ import annotations

import math
import time
from datetime import timedelta

import pyarrow as pa
import pytest

import siltstone
from aio_for_tests import run
from siltstone import _native, aio


@pytest.mark.parametrize("kind", _native.error_kinds())
def test_every_kind_of_error_has_its_class(kind: str) -> None:
    error = _native.error_of_kind(kind, "some text")
    assert type(error) is getattr(siltstone, kind)
    assert isinstance(error, siltstone.Error)
    assert error.operation == "example"
    assert error.context == {"kind": kind}
    assert str(error) == f"example: some text (kind: {kind})"


def test_no_class_is_without_a_kind() -> None:
    classes = {name for name in siltstone.exceptions.__all__ if name != "Error"}
    assert classes == set(_native.error_kinds())


@pytest.mark.parametrize(
    ("error", "bases"),
    [
        (siltstone.Timeout, (siltstone.Unavailable, TimeoutError)),
        (siltstone.Invalid, (ValueError,)),
        (siltstone.NotFound, (FileNotFoundError,)),
        (siltstone.Denied, (PermissionError,)),
    ],
)
def test_errors_are_what_python_expects(error, bases) -> None:
    assert all(issubclass(error, base) for base in bases)


def sized(length: int) -> bytes:
    return bytes(length)


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        # Limits, enforced before anything is queued.
        (lambda db: db.put(b"", b"v"), siltstone.Invalid, "key"),
        (lambda db: db.put(sized(65_536), b"v"), siltstone.Invalid, "65535|65,535"),
        (lambda db: db.get(b""), siltstone.Invalid, "key"),
        (lambda db: db.get_many([b"a", b""]), siltstone.Invalid, "key"),
        (lambda db: db.delete(b""), siltstone.Invalid, "key"),
        (lambda db: db.put_many([b"a", b""], [b"1", b"2"]), siltstone.Invalid, "key"),
        (lambda db: db.put(b"k", sized(65 << 20)), siltstone.Invalid, "max_batch_bytes"),
        (
            lambda db: db.put_many([b"%d" % i for i in range(66)], [sized(1 << 20)] * 66),
            siltstone.Invalid,
            "load",
        ),
        (lambda db: db.put_many([b"a"], []), siltstone.Invalid, "1 keys and 0 values"),
        (lambda db: db.put_many([], [b"a", b"b"]), siltstone.Invalid, "0 keys and 2 values"),
        # Ranges.
        (lambda db: db.scan(b"a", prefix=b"a"), siltstone.Invalid, "prefix"),
        (lambda db: db.scan(limit=-1), siltstone.Invalid, "limit"),
        (lambda db: db.scan(limit=2**64), siltstone.Invalid, "limit"),
        (lambda db: db.scan(limit=1.5), TypeError, "limit"),
        (lambda db: db.scan("a"), TypeError, "encode"),
        (lambda db: db.scan().to_arrow(0), siltstone.Invalid, "batch_rows"),
        # Types.
        (lambda db: db.put("k", b"v"), TypeError, "encode"),
        (lambda db: db.put(b"k", "v"), TypeError, "encode"),
        (lambda db: db.put(b"k", None), TypeError, "NoneType"),
        (lambda db: db.put(1, b"v"), TypeError, "int"),
        (lambda db: db.put(b"k"), TypeError, "value"),
        (lambda db: db.get("k"), TypeError, "encode"),
        (lambda db: db["k"], TypeError, "encode"),
        (lambda db: "k" in db, TypeError, "encode"),
        (lambda db: db.get_many(["k"]), TypeError, "encode"),
        (lambda db: db.get_many(b"keys"), TypeError, "list of keys"),
        (lambda db: db.get_many(7), TypeError, "iter"),
        (lambda db: db.put(b"k", memoryview(b"abcdef")[::2]), BufferError, "contiguous"),
        (lambda db: db.put(b"k", b"v", ttl=0), siltstone.Invalid, "ttl"),
        (lambda db: db.put(b"k", b"v", ttl=-1), siltstone.Invalid, "ttl"),
        (lambda db: db.put(b"k", b"v", ttl=math.nan), siltstone.Invalid, "ttl"),
        (lambda db: db.put(b"k", b"v", ttl=math.inf), siltstone.Invalid, "ttl"),
        (lambda db: db.put(b"k", b"v", ttl=1e300), siltstone.Invalid, "ttl|time to live"),
        (lambda db: db.put(b"k", b"v", ttl=1e18), siltstone.Invalid, "time to live"),
        (lambda db: db.put(b"k", b"v", ttl="soon"), siltstone.Invalid, "ttl"),
        (lambda db: db.put(b"k", b"v", ttl=[1]), TypeError, "ttl"),
        (lambda db: db.put(b"k", b"v", ttl=True), TypeError, "ttl"),
        (lambda db: db.put(b"k", b"v", ttl=timedelta(-1)), siltstone.Invalid, "ttl"),
        (lambda db: db.put(b"k", b"v").wait(-1), siltstone.Invalid, "timeout"),
        (lambda db: db.put(b"k", b"v").wait("soon"), siltstone.Invalid, "timeout"),
        (lambda db: db.put(b"k", b"v").wait([1]), TypeError, "timeout"),
        (lambda db: db.write(b"batch"), TypeError, "WriteBatch"),
        (lambda db: db.write([(b"a", b"b")]), TypeError, "WriteBatch"),
        (lambda _: siltstone.WriteBatch().put("k", b"v"), TypeError, "encode"),
        (lambda _: siltstone.WriteBatch().put(b"", b"v"), siltstone.Invalid, "key"),
        (lambda _: siltstone.WriteBatch().put(b"k", b"v", ttl=0), siltstone.Invalid, "ttl"),
        (lambda _: siltstone.WriteBatch().__enter__(), siltstone.Invalid, "Database.batch"),
    ],
)
def test_misuse_is_told(db, call, error, text) -> None:
    db[b"before"] = b"1"
    with pytest.raises(error, match=text):
        call(db)
    # No misuse wrote anything, except the commits whose wait was misused.
    assert [key for key in db if key != b"k"] == [b"before"]
    db[b"after"] = b"2"
    assert db[b"after"] == b"2"


def test_limits_are_reached_not_only_passed(db) -> None:
    longest = sized(65_535)
    db[longest] = b"v"
    assert db[longest] == b"v"
    commit = db.write(siltstone.WriteBatch())
    commit.wait()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("flush_interval", -1),
        ("flush_interval", math.nan),
        ("flush_interval", math.inf),
        ("flush_interval", "1KiB"),
        ("flush_interval", "soon"),
        ("flush_interval", True),
        ("flush_interval", None),
        ("flush_interval", b"1"),
        ("flush_interval", timedelta(seconds=-1)),
        ("flush_bytes", 0),
        ("flush_bytes", -1),
        ("flush_bytes", 2**64),
        ("flush_bytes", 1.5),
        ("flush_bytes", "1.5B"),
        ("flush_bytes", "1MB"),
        ("flush_bytes", True),
        ("max_parallel_writes", 0),
        ("max_parallel_writes", 65),
        ("compression", "brotli"),
        ("compression", 1),
        ("read_durable_only", 1),
        ("deadline", 0),
        ("deadline", object()),
    ],
)
def test_wrong_options_name_themselves_and_their_range(memory_url, name, value) -> None:
    for wrong in (
        lambda: siltstone.Options(**{name: value}),
        lambda: siltstone.open(memory_url, options={name: value}),
        lambda: siltstone.open_reader(memory_url, options={name: value}),
    ):
        with pytest.raises(siltstone.Invalid, match=name) as caught:
            wrong()
        if name != "compression":
            assert "range" in str(caught.value)


def test_numbers_may_have_their_units() -> None:
    sizes = siltstone.Options(l0_sst_size_bytes="1MiB", target_sst_bytes="1MiB", flush_bytes="4096")
    assert dict(sizes) == {
        "l0_sst_size_bytes": 1 << 20,
        "target_sst_bytes": 1 << 20,
        "flush_bytes": 4096,
    }
    assert siltstone.Options(flush_interval="20ms").flush_interval == pytest.approx(0.02)


def test_unknown_options_are_refused_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"flush_intervall.*flush_interval"):
        siltstone.Options(flush_intervall=1)
    with pytest.raises(siltstone.Invalid, match=r"store option.*wal_url"):
        siltstone.Options(wal_url="memory://x")
    with pytest.raises(siltstone.Invalid, match=r"writes\.wal_enabled"):
        siltstone.Options(wal_enabled=False)
    assert siltstone.Options(writes={"wal_enabled": False}).writes.wal_enabled is False
    with pytest.raises(siltstone.Invalid, match="max_memtable_bytes"):
        siltstone.Options(max_memtable_bytes=4096, l0_sst_size_bytes=1 << 20)


@pytest.mark.parametrize(
    ("group", "name", "value", "said"),
    [
        ("windows", "by", "row", r"windows\.by takes key or expiry"),
        ("windows", "length", "12MiB", r"windows\.length takes 0.001 to 3200000000 seconds"),
        ("windows", "keep", 0, r"windows\.keep takes 1 to 1000000000, or none"),
        ("windows", "keep", 2**64, r"windows\.keep.*1 to 1000000000, or none"),
        ("windows", "max_runs", None, r"windows\.max_runs takes 1 to 1000"),
        ("windows", "prefix_bytes", {}, r"windows\.prefix_bytes.*1 to 1024"),
        ("windows", "size", 1, r"windows\.size.*windows\.length"),
        ("compactors", "worker_timeout", "0s", r"compactors\.worker_timeout.*0.01 to"),
        ("gc", "interval", 0, r"gc\.interval.*0.001 to"),
        ("gc", "min_age", -1, r"gc\.min_age.*0 to"),
        ("gc", "max_garbage_bytes", 1.5, r"gc\.max_garbage_bytes.*0 to"),
    ],
)
def test_wrong_options_of_a_group_name_themselves_and_their_range(
    memory_url: str, group: str, name: str, value: object, said: str
) -> None:
    groups = {"windows": siltstone.Windows, "gc": siltstone.Gc}
    own = {**groups, "compactors": siltstone.Compactors}[group]
    for wrong in (
        lambda: own(**{name: value}),
        lambda: siltstone.Options(**{group: {name: value}}),
        lambda: siltstone.Options(**{f"{group}.{name}": value}),
        lambda: siltstone.open(memory_url, options={group: {name: value}}),
    ):
        with pytest.raises(siltstone.Invalid, match=said):
            wrong()


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("window", r"windows\.length"),
        ("window_by", r"windows\.by"),
        ("window_prefix_bytes", r"windows\.prefix_bytes"),
        ("keep_windows", r"windows\.keep"),
        ("window_max_runs", r"windows\.max_runs"),
        ("gc_interval", r"gc\.interval"),
        ("compactor_poll_interval", r"compactors\.poll_interval"),
        ("worker_timeout", r"compactors\.worker_timeout"),
        ("checkpoint_lifetime", r"readers\.checkpoint_lifetime"),
        ("min_age", r"gc\.min_age"),
        ("max_garbage_bytes", r"gc\.max_garbage_bytes"),
    ],
)
def test_options_that_moved_name_their_place(memory_url: str, name: str, place: str) -> None:
    with pytest.raises(ValueError, match=f"{name} has moved: it is {place} now"):
        siltstone.Options(**{name: 1})
    with pytest.raises(siltstone.Invalid, match=f"it is {place} now"):
        siltstone.open(memory_url, options={name: 2**64})


def test_a_group_of_options_takes_a_mapping() -> None:
    for wrong in (5, None, "by=key", [("by", "key")]):
        with pytest.raises(ValueError, match=r"windows is a group of options.*windows\.by"):
            siltstone.Options(windows=wrong)
    with pytest.raises(ValueError, match="needs compaction_scheduler = time_window"):
        siltstone.Options(windows=siltstone.Windows(keep=3))


@pytest.mark.parametrize("options", [5, "flush_interval=1", [("flush_bytes", 1)]])
def test_options_are_a_mapping(memory_url: str, options) -> None:
    with pytest.raises(TypeError, match="options"):
        siltstone.open(memory_url, options=options)


def test_closed_handles_raise_closed(memory_url: str) -> None:
    db = siltstone.open(memory_url)
    db.put(b"a", b"1")
    batch, scan = db.batch(), db.scan()
    commit = db.put(b"b", b"2")
    db.close()
    db.close()
    for call in (
        lambda: db.get(b"a"),
        lambda: db[b"a"],
        lambda: b"a" in db,
        lambda: db.get_many([b"a"]),
        lambda: db.put(b"a", b"1"),
        lambda: db.delete(b"a"),
        lambda: db.scan(),
        lambda: iter(db),
        lambda: db.flush(),
        lambda: db.snapshot(),
        lambda: db.write(siltstone.WriteBatch()),
        lambda: db.put_many([b"a"], [b"1"]),
    ):
        with pytest.raises(siltstone.Closed):
            call()
    with pytest.raises(siltstone.Closed), batch:
        batch.put(b"c", b"3")
    assert commit.durable
    commit.wait()
    assert list(scan) == [(b"a", b"1")]


def test_a_closed_reader_raises_closed(memory_url: str) -> None:
    siltstone.open(memory_url).close()
    reader = siltstone.open_reader(memory_url)
    reader.close()
    reader.close()
    for call in (reader.stats, reader.refresh, reader.scan, lambda: reader.get(b"a")):
        with pytest.raises(siltstone.Closed):
            call()


def test_a_fenced_writer_says_so(memory_url: str) -> None:
    old = siltstone.open(memory_url)
    old.put(b"a", b"1").wait()
    with siltstone.open(memory_url, take_over=True) as new:
        new.put(b"a", b"2").wait()
        with pytest.raises(siltstone.Fenced):
            old.put(b"a", b"3").wait()
        with pytest.raises(siltstone.Fenced):
            old.put(b"a", b"4")
        assert new[b"a"] == b"2"
        with pytest.raises(siltstone.Fenced):
            old.close()


def test_take_over_has_to_be_allowed(memory_url: str) -> None:
    with siltstone.open(memory_url) as db:
        db.put(b"a", b"1").wait()
        for take_over in (None, False):
            with pytest.raises(siltstone.Conflict, match="this process"):
                siltstone.open(memory_url, take_over=take_over)
        db.put(b"b", b"1").wait()
    with siltstone.open(memory_url, take_over=False) as db:
        assert list(db) == [b"a", b"b"]


def test_an_absent_database_is_not_found(url: str) -> None:
    for call in (
        lambda: siltstone.open(url, create=False),
        lambda: siltstone.open_reader(url),
        lambda: siltstone.admin.manifest(url),
    ):
        with pytest.raises(FileNotFoundError):
            call()
    siltstone.open(url).close()
    with pytest.raises(siltstone.NotFound, match="999"):
        siltstone.admin.manifest(url, 999)


@pytest.mark.parametrize(
    "wrong",
    ["ftp://host/path", "s3://", "memory://", "a\0b", "file://host/path"],
)
def test_urls_that_name_no_store_are_invalid(wrong: str) -> None:
    with pytest.raises(ValueError):
        siltstone.open(wrong)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("n" * 300, "not valid"),
        ("file/db", "through a file"),
        ("file", "this is a file"),
        ("a\0b", "NUL"),
        ("loop", "loop of symbolic links"),
        ("loop/db", "loop of symbolic links"),
        ("dangling", "not valid"),
        ("dangling/db", "not valid"),
        ("\udcff", "UTF-8"),
    ],
)
def test_a_path_that_cannot_be_is_invalid_at_once(tmp_path, name: str, text: str) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "dangling").symlink_to("nowhere")
    path = f"{tmp_path}/{name}"
    began = time.monotonic()
    for call in (siltstone.open, siltstone.open_reader, siltstone.admin.list_checkpoints):
        # A link to nothing is an absent database until one is created there.
        kind = siltstone.NotFound if "dangling" in name and call is not siltstone.open else None
        with pytest.raises(kind or siltstone.Invalid) as raised:
            call(path)
        if kind is None:
            assert text in str(raised.value)
            assert str(tmp_path) in raised.value.context["path"]
    assert time.monotonic() - began < 10


@pytest.mark.parametrize("wrong", [None, 5, b"bytes"])
def test_a_url_is_text(wrong) -> None:
    with pytest.raises(TypeError, match=r"^url: "):
        siltstone.open(wrong)


def test_names_of_any_kind_are_a_folder(tmp_path) -> None:
    for name in ("with space", "ümlaut", "new\nline", "%2e%2e", "a" * 200):
        with siltstone.open(tmp_path / name) as db:
            db[b"k"] = b"v"
        assert (tmp_path / name).is_dir()
        with siltstone.open(tmp_path / name, create=False) as db:
            assert db[b"k"] == b"v"


class Raising:
    """A sequence that raises in the middle."""

    def __len__(self) -> int:
        raise ZeroDivisionError

    def __iter__(self):
        yield b"a"
        raise ZeroDivisionError


def test_errors_of_the_callers_iterators_come_through(db) -> None:
    with pytest.raises(ZeroDivisionError):
        db.get_many(Raising())
    with pytest.raises(ZeroDivisionError):
        db.put_many(Raising(), [b"1", b"2"])
    with pytest.raises(ZeroDivisionError):
        db.put_many([b"1", b"2"], Raising())
    assert list(db) == []


def test_an_iterator_may_use_the_database(db) -> None:
    def keys():
        for i in range(50):
            db[b"inner%d" % i] = b"v"
            yield b"outer%02d" % i

    assert db.get_many(keys()) == [None] * 50
    db.put_many(keys(), [b"w"] * 50)
    assert db[b"outer49"] == b"w"
    assert db[b"inner49"] == b"v"


def test_subclasses_of_bytes_are_bytes(db) -> None:
    class Key(bytes):
        def __len__(self) -> int:
            raise ZeroDivisionError

    db[Key(b"k")] = Key(b"v")
    assert db[b"k"] == b"v"


def test_a_store_option_that_is_not_known_comes_with_the_nearest_one() -> None:
    for url, name, near in (
        ("s3://bucket/db", "acess_key_id", "access_key_id"),
        ("s3://bucket/db", "AWS_SECRET_ACCES_KEY", "secret_access_key"),
        ("gs://bucket/db", "service_acount", "service_account"),
        ("az://container/db", "acount_name", "account_name"),
        ("az://container/db", "conect_timeout", "connect_timeout"),
        ("memory://db", "encription_key", "encryption_key"),
        ("s3://bucket/db", "clone_parent", "clone_parents"),
        ("s3://bucket/db", "transactional_stor", "transactional_store"),
        ("s3://bucket/db", "wal_ulr", "wal_url"),
        ("s3://bucket/db", "expire_at", "expires_at"),
        ("s3://bucket/db", "x", None),
    ):
        with pytest.raises(siltstone.Invalid, match="is not known for") as raised:
            siltstone.open_reader(url, store_options={name: "5 canary"})
        assert raised.value.context.get("nearest") == near
        assert "canary" not in str(raised.value)


def test_a_scan_is_read_once(memory_url: str) -> None:
    with siltstone.open(memory_url) as db:
        for i in range(40):
            db[b"%02d" % i] = b"v"
        scan = db.scan()
        # duckdb looks at the columns before it reads.
        assert pa.schema(scan).names == ["key", "value"]
        assert pa.table(scan).num_rows == 40
        for again in (lambda: pa.table(scan), scan.to_arrow):
            with pytest.raises(siltstone.Invalid, match="was read as Arrow data"):
                again()
        assert list(scan) == []
        scan = db.scan()
        assert len(list(scan)) == 40
        assert list(scan) == [], "an iterator that has ended stays at its end"
        with pytest.raises(siltstone.Invalid, match="was iterated to its end"):
            pa.table(scan)
        with db.scan() as scan:
            pass
        assert list(scan) == []
        with pytest.raises(siltstone.Invalid, match="was closed"):
            pa.table(scan)
        assert pa.table(db.scan(prefix=b"x")).num_rows == 0

    async def scans() -> None:
        async with aio.open_reader(memory_url) as reader:
            scan = reader.scan()
            assert sum([len(pa.record_batch(batch)) async for batch in scan.to_arrow()]) == 40
            with pytest.raises(siltstone.Invalid, match="was read as Arrow data"):
                scan.to_arrow()
            assert [row async for row in scan] == []
            scan = reader.scan()
            assert len([row async for row in scan]) == 40
            assert [row async for row in scan] == []
            with pytest.raises(siltstone.Invalid, match="was iterated to its end"):
                scan.to_arrow()
            await scan.close()

    run(scans())


def test_a_used_scan_is_not_an_arrow_stream(db) -> None:
    for i in range(40):
        db[b"%02d" % i] = b"v"
    scan = db.scan()
    next(scan)
    with pytest.raises(siltstone.Invalid, match="iterated"):
        scan.to_arrow()
    stream = db.scan().to_arrow()
    stream.__arrow_c_stream__()
    with pytest.raises(siltstone.Invalid, match="once"):
        stream.__arrow_c_stream__()
