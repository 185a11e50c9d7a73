"""Tables in their own files, compared with Python's dict and sorted."""

from __future__ import annotations

import contextlib
import io
import itertools
import os
import pickle
import signal
import subprocess
import sys
import time
import urllib.request
import zlib
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import siltstone
from pace_for_tests import PATIENCE, quickest, until
from siltstone import lsm

KEYS = st.binary(min_size=1, max_size=6)
VALUES = st.binary(max_size=20)
SMALL = {"block_bytes": 256}
SERVE_S3 = Path(__file__).resolve().parents[1] / "support" / "serve_moto.py"


@pytest.fixture
def s3():
    """A bucket of a server on this machine, and the options to reach it."""
    server = subprocess.Popen(
        [sys.executable, str(SERVE_S3)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert server.stdout is not None
    assert server.stdin is not None
    endpoint = f"http://127.0.0.1:{int(server.stdout.readline())}"
    made = urllib.request.Request(f"{endpoint}/bucket", method="PUT")
    made.add_header("Authorization", "AWS4-HMAC-SHA256 Credential=x/20260101/us-east-1/s3/aws4")
    with urllib.request.urlopen(made):
        pass
    options = {"endpoint": endpoint, "access_key_id": "x", "secret_access_key": "y"}
    yield "s3://bucket", {**options, "region": "us-east-1", "allow_http": "true"}
    server.stdin.close()
    server.wait(timeout=PATIENCE)
    server.stdout.close()


def names(folder: Path) -> list[str]:
    """The names of the files in a folder."""
    return sorted(entry.name for entry in folder.iterdir())


def write(target, rows, **how) -> lsm.SstInfo:
    """Writes a table of these rows."""
    with lsm.SstWriter(target, **how) as writer:
        for key, value in rows:
            writer.add(key, value)
    return writer.finish()


def table(rows, **how) -> lsm.SstReader:
    """A reader of a table of these rows, in memory."""
    file = io.BytesIO()
    write(file, rows, **how)
    return lsm.SstReader(file.getvalue())


# --- Writing and reading ------------------------------------------------------------------------


@given(rows=st.dictionaries(KEYS, VALUES, min_size=1, max_size=80), absent=KEYS)
@settings(deadline=None)
def test_a_table_is_a_sorted_dict(rows: dict[bytes, bytes], absent: bytes) -> None:
    with table(rows.items(), options=SMALL) as reader:
        assert list(reader.scan()) == sorted(rows.items())
        assert list(reader.scan(reverse=True)) == sorted(rows.items(), reverse=True)
        assert list(reader) == sorted(rows)
        assert len(reader) == reader.rows == len(rows)
        assert reader.get_many([*rows, absent]) == [*rows.values(), rows.get(absent)]
        assert reader.get(absent) == rows.get(absent)
        assert (absent in reader) == (absent in rows)
        assert (reader.first_key, reader.last_key) == (min(rows), max(rows))
        above = [row for row in sorted(rows.items()) if row[0] >= absent]
        assert list(reader.scan(absent)) == above
        assert list(reader.scan(absent, limit=2)) == above[:2]
        with_prefix = [row for row in sorted(rows.items()) if row[0].startswith(absent[:1])]
        assert list(reader.scan(prefix=absent[:1])) == with_prefix
        arrow = pa.table(reader.to_arrow(batch_rows=7))
        assert arrow["key"].to_pylist() == sorted(rows)
        assert arrow["value"].to_pylist() == [rows[key] for key in sorted(rows)]
        assert reader.verify() == reader.info.bytes


@given(rows=st.lists(st.tuples(KEYS, VALUES), min_size=1, max_size=60), in_order=st.booleans())
@settings(deadline=None)
def test_the_last_of_equal_keys_is_kept(rows: list[tuple[bytes, bytes]], in_order: bool) -> None:
    if in_order:
        rows = sorted(rows, key=lambda row: row[0])
    with table(rows, duplicates="last", sort=not in_order) as reader:
        assert dict(reader.scan()) == dict(rows)


def test_a_finished_table_says_what_it_is(tmp_path: Path) -> None:
    path = tmp_path / "rows.sst"
    writer = lsm.SstWriter(path)
    writer.add(b"b", b"22")
    writer.add(bytearray(b"a"), memoryview(b"1"), ttl=timedelta(hours=1))
    writer.delete(b"c")
    assert writer.rows == 3
    info = writer.finish()
    assert info == writer.finish()
    assert info.url == str(path)
    assert (info.rows, info.tombstones) == (3, 1)
    assert (info.first_key, info.last_key) == (b"a", b"c")
    assert (info.key_bytes, info.value_bytes) == (3, 3)
    assert (info.min_seq, info.max_seq) == (0, 0)
    assert info.bytes == path.stat().st_size
    soon = datetime.now(UTC) + timedelta(hours=1)
    assert info.first_expiry is not None
    assert abs(info.first_expiry - soon) < timedelta(minutes=1)
    assert info.last_expiry is None
    with lsm.SstReader(path) as reader:
        assert reader.info == info
        assert list(reader.scan()) == [(b"a", b"1"), (b"b", b"22")]
        with pytest.raises(TypeError, match="several versions or expire"):
            len(reader)
    assert names(tmp_path) == ["rows.sst"]


def test_rows_expire() -> None:
    file = io.BytesIO()
    with lsm.SstWriter(file) as writer:
        writer.add(b"short", b"1", ttl=0.001)
        writer.add_many([b"long"], [b"2"], ttl=3600)
    time.sleep(0.01)
    assert list(lsm.SstReader(file.getvalue()).scan()) == [(b"long", b"2")]


def test_huge_and_empty_values() -> None:
    rows = {b"empty": b"", b"huge": os.urandom(20 << 20), b"k" * 65_535: b"long key"}
    with table(rows.items()) as reader:
        assert dict(reader.scan()) == rows
        reader.verify()


@pytest.mark.parametrize("sort", [True, False])
def test_a_table_has_a_row(tmp_path: Path, *, sort: bool) -> None:
    with pytest.raises(siltstone.Invalid, match="at least one row"):
        lsm.SstWriter(tmp_path / "empty.sst", sort=sort).finish()
    assert names(tmp_path) == []


@pytest.mark.parametrize("key", [b"", b"k" * 65_536])
@pytest.mark.parametrize("sort", [True, False])
def test_keys_have_bounds(key: bytes, *, sort: bool) -> None:
    writer = lsm.SstWriter(io.BytesIO(), sort=sort)
    with pytest.raises(siltstone.Invalid, match="a key"):
        writer.add(key, b"")
    writer.add(b"good", b"")
    assert writer.finish().rows == 1


def test_text_is_no_key() -> None:
    writer = lsm.SstWriter(io.BytesIO())
    for call in (
        lambda: writer.add("a", b""),
        lambda: writer.add(b"a", "b"),
        lambda: writer.delete("a"),
        lambda: lsm.MemTable().put("a", b""),
        lambda: lsm.BloomFilter(["a"]),
        lambda: lsm.BloomFilter([b"a"]).may_contain("a"),
        lambda: table([(b"a", b"")]).get("a"),
        lambda: writer.add_many([b"a"], ["b"]),
    ):
        with pytest.raises(TypeError, match="encode it"):
            call()


# --- Order and duplicates -----------------------------------------------------------------------


def test_disorder_names_both_rows() -> None:
    writer = lsm.SstWriter(io.BytesIO(), sort=False)
    for key in (b"a", b"c"):
        writer.add(key, b"")
    with pytest.raises(siltstone.Invalid, match="ascending") as refused:
        writer.add(b"b", b"")
    assert refused.value.context == {"row": "2", "previous row": "1"}
    with pytest.raises(siltstone.Invalid, match="same key") as refused:
        writer.add(b"c", b"")
    assert refused.value.context == {"row": "1", "other row": "2"}
    writer.add(b"d", b"")
    assert writer.finish().rows == 3


def test_equal_keys_are_named_at_the_end(tmp_path: Path) -> None:
    writer = lsm.SstWriter(tmp_path / "rows.sst")
    writer.add_many([b"a", b"b", b"c", b"b"], [b""] * 4)
    with pytest.raises(siltstone.Invalid, match="same key") as refused:
        writer.finish()
    assert refused.value.context == {"row": "1", "other row": "3"}
    assert names(tmp_path) == []


def test_rows_half_added_make_no_table(tmp_path: Path) -> None:
    writer = lsm.SstWriter(tmp_path / "rows.sst")
    with pytest.raises(siltstone.Invalid, match="key"):
        writer.add_many([b"a", b""], [b"", b""])
    for call in (writer.finish, lambda: writer.add(b"b", b"")):
        with pytest.raises((siltstone.Invalid, siltstone.Closed)):
            call()
    assert names(tmp_path) == []


@pytest.mark.parametrize("duplicates", ["error", "last"])
def test_a_sort_larger_than_its_memory(tmp_path: Path, duplicates: str) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    rows, value = 60_000, b"v" * 64
    keys = [zlib.crc32(b"%d" % n).to_bytes(4, "big") + b"%06d" % n for n in range(rows)]
    writer = lsm.SstWriter(
        tmp_path / "rows.sst", sort_memory_bytes=1 << 20, scratch=scratch, duplicates=duplicates
    )
    for at in range(0, rows, 1000):
        part = keys[at : at + 1000]
        writer.add_many(pa.array(part, pa.binary()), pa.array([value] * len(part), pa.binary()))
    (folder,) = scratch.iterdir()
    assert len(list(folder.iterdir())) >= 5
    if duplicates == "last":
        writer.add(keys[7], b"again")
    info = writer.finish()
    assert info.rows == rows
    assert list(scratch.iterdir()) == []
    with lsm.SstReader(tmp_path / "rows.sst") as reader:
        assert list(reader) == sorted(keys)
        assert reader[keys[7]] == (b"again" if duplicates == "last" else value)
        reader.verify()


def test_equal_keys_of_two_runs_are_found(tmp_path: Path) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    writer = lsm.SstWriter(tmp_path / "rows.sst", sort_memory_bytes=1 << 20, scratch=scratch)
    writer.add_many([b"%05d" % n for n in range(10_000)], [b"v" * 100] * 10_000)
    writer.add_many([b"%05d" % n for n in range(20_000, 9_999, -1)], [b"v" * 100] * 10_001)
    writer.add(b"00003", b"")
    with pytest.raises(siltstone.Invalid, match="same key") as refused:
        writer.finish()
    assert refused.value.context == {"row": "3", "other row": "20001"}
    assert names(tmp_path) == ["scratch"]
    assert list(scratch.iterdir()) == []


# --- Inputs -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "kind",
    [
        pa.binary(),
        pa.large_binary(),
        pa.binary(2),
        pa.binary_view(),
        pa.string(),
        pa.large_string(),
    ],
    ids=str,
)
def test_arrow_columns_of_every_kind(kind: pa.DataType) -> None:
    keys = pa.array([b"cc", b"aa", b"bb"], pa.binary(2)) if kind == pa.binary(2) else None
    keys = pa.array(["cc", "aa", "bb"]).cast(kind) if keys is None else keys
    file = io.BytesIO()
    with lsm.SstWriter(file) as writer:
        writer.add_many(keys, pa.array([b"3", b"1", b"2"]))
    assert list(lsm.SstReader(file.getvalue()).values()) == [b"1", b"2", b"3"]
    file = io.BytesIO()
    with lsm.SstWriter(file) as writer:
        writer.write(pa.table({"key": keys, "value": [b"3", b"1", b"2"]}))
    assert list(lsm.SstReader(file.getvalue()).values()) == [b"1", b"2", b"3"]


def test_chunked_columns_and_their_faults() -> None:
    keys = pa.chunked_array([[b"b"], [], [b"a", b"c"]], pa.binary())
    writer = lsm.SstWriter(io.BytesIO())
    for wrong, error in (
        (lambda: writer.add_many(keys, pa.array([b"1"])), siltstone.Invalid),
        (lambda: writer.add_many(keys, pa.array([b"1", None, b"2"])), siltstone.Invalid),
        (lambda: writer.add_many(keys, [b"1", b"2", b"3"]), TypeError),
        (lambda: writer.add_many(pa.array([1]), pa.array([1])), TypeError),
        (lambda: writer.add_many([b"a"], []), siltstone.Invalid),
    ):
        with pytest.raises(error):
            wrong()


def test_iterators_of_different_lengths_are_refused() -> None:
    writer = lsm.SstWriter(io.BytesIO())
    with pytest.raises(siltstone.Invalid, match="as many keys"):
        writer.add_many(iter([b"a", b"b"]), iter([b"1"]))
    with pytest.raises(siltstone.Invalid, match="earlier call"):
        writer.add(b"c", b"")


@pytest.mark.parametrize("compression", ["none", "lz4", "zstd"])
def test_options_are_the_databases(compression: str) -> None:
    rows = [(b"%05d" % n, b"value " * 20) for n in range(2000)]
    options = siltstone.Options(compression=compression, block_bytes=4096, filter_bits_per_key=0)
    with table(rows, options=options) as reader:
        assert list(reader.scan()) == rows
        assert (reader.info.bytes < 100_000) == (compression != "none")
    for wrong in ({"block_byte": 1}, {"block_bytes": -1}, {"compression": "brotli"}):
        with pytest.raises(ValueError, match=r"block_byte|compression"):
            lsm.SstWriter(io.BytesIO(), options=wrong)
    for wrong in ({"duplicates": "first"}, {"sort_memory_bytes": 5}):
        with pytest.raises(ValueError, match=r"duplicates|sort_memory_bytes"):
            lsm.SstWriter(io.BytesIO(), **wrong)


# --- Targets ------------------------------------------------------------------------------------


def test_urls(tmp_path: Path, memory_url: str) -> None:
    for target in (memory_url, f"file://{tmp_path}/a.sst", str(tmp_path / "b.sst")):
        write(target, [(b"k", target.encode())])
        with lsm.SstReader(target) as reader:
            assert reader[b"k"] == target.encode()
            assert target in repr(reader)
    with pytest.raises(siltstone.NotFound):
        lsm.SstReader(tmp_path / "none.sst")
    with pytest.raises(siltstone.NotFound):
        lsm.SstReader("memory://none")
    with pytest.raises(FileNotFoundError):
        lsm.SstWriter(tmp_path / "none" / "a.sst")
    for wrong in ("ftp://x/y", "s3://bucket", tmp_path):
        with pytest.raises(ValueError, match=r"scheme|object|folder"):
            lsm.SstWriter(wrong)
    for wrong in (5, None, b"bytes", object()):
        with pytest.raises(TypeError, match="file object"):
            lsm.SstWriter(wrong)


def test_a_table_in_an_object_store(s3: tuple[str, dict[str, str]]) -> None:
    url, store = s3
    rows = [(b"%06d" % n, os.urandom(100)) for n in range(30_000)]
    info = write(f"{url}/a/rows.sst", rows, store_options=store)
    assert info.bytes > 3_000_000
    with lsm.SstReader(f"{url}/a/rows.sst", store_options=store) as reader:
        assert reader[rows[777][0]] == rows[777][1]
        assert list(reader.scan()) == rows
        assert reader.verify() == info.bytes
    with pytest.raises(siltstone.NotFound):
        lsm.SstReader(f"{url}/a/none.sst", store_options=store)
    writer = lsm.SstWriter(f"{url}/a/none.sst", store_options=store)
    writer.add(b"k", b"")
    writer.discard()
    with pytest.raises(siltstone.NotFound):
        lsm.SstReader(f"{url}/a/none.sst", store_options=store)


def test_an_existing_file_stays_until_the_end(tmp_path: Path) -> None:
    path = tmp_path / "rows.sst"
    write(path, [(b"k", b"old")])
    old = lsm.SstReader(path)
    with lsm.SstWriter(path) as writer:
        writer.add(b"k", b"new")
        assert lsm.SstReader(path)[b"k"] == b"old"
    assert lsm.SstReader(path)[b"k"] == b"new"
    assert old[b"k"] == b"old"


def test_an_exception_discards(tmp_path: Path) -> None:
    with pytest.raises(KeyError), lsm.SstWriter(tmp_path / "rows.sst") as writer:
        writer.add_many([b"%d" % n for n in range(1000)], [b""] * 1000)
        raise KeyError
    with pytest.raises(siltstone.Closed):
        writer.add(b"k", b"")
    with pytest.raises(siltstone.Closed):
        writer.finish()
    forgotten = lsm.SstWriter(tmp_path / "forgotten.sst")
    forgotten.add(b"k", b"")
    del forgotten
    assert names(tmp_path) == []


def test_a_file_object_that_fails() -> None:
    class Broken:
        def write(self, _data: bytes) -> int:
            raise OSError(28, "no space")

    writer = lsm.SstWriter(Broken())
    writer.add(b"k", b"")
    with pytest.raises(OSError, match="no space"):
        writer.finish()


def test_a_raw_file_takes_a_part_at_a_time(tmp_path: Path) -> None:
    class Slow:
        def __init__(self) -> None:
            self.data = b""

        def write(self, data: bytes) -> int:
            self.data += data[:100]
            return min(len(data), 100)

    file = Slow()
    write(file, [(b"%d" % n, b"value") for n in range(100)])
    assert lsm.SstReader(file.data).verify() == len(file.data)
    with (tmp_path / "rows.sst").open("wb", buffering=0) as raw:
        write(raw, [(b"k", b"v")])
    assert lsm.SstReader(tmp_path / "rows.sst")[b"k"] == b"v"


# --- Damage -------------------------------------------------------------------------------------


def test_every_flipped_bit_is_found() -> None:
    file = io.BytesIO()
    rows = [(b"key%02d" % n, b"value%d" % n) for n in range(20)]
    write(file, rows, options={"block_bytes": 64})
    good = file.getvalue()
    for bit in range(len(good) * 8):
        bad = bytearray(good)
        bad[bit // 8] ^= 1 << (bit % 8)
        with pytest.raises((siltstone.Corruption, siltstone.Unsupported)):
            lsm.SstReader(bad).verify()
        with contextlib.suppress(siltstone.Corruption, siltstone.Unsupported):
            assert list(lsm.SstReader(bad).scan()) == rows, bit


def test_every_truncation_is_found(tmp_path: Path) -> None:
    file = io.BytesIO()
    write(file, [(b"key%d" % n, b"value%d" % n) for n in range(20)])
    good = file.getvalue()
    for length in range(len(good)):
        with pytest.raises(siltstone.Corruption):
            lsm.SstReader(good[:length])
    path = tmp_path / "no.sst"
    path.write_bytes(b"something else entirely" * 20)
    with pytest.raises(siltstone.Corruption, match=r"no\.sst"):
        lsm.SstReader(path)


# --- Processes and threads ----------------------------------------------------------------------


def test_readers_pickle(tmp_path: Path, memory_url: str) -> None:
    path = tmp_path / "rows.sst"
    write(path, [(b"k", b"v")])
    for source in (path, path.read_bytes()):
        again = pickle.loads(pickle.dumps(lsm.SstReader(source, options={"deadline": 7.0})))
        assert again[b"k"] == b"v"
    write(memory_url, [(b"k", b"v")])
    with pytest.raises(siltstone.Unsupported):
        pickle.dumps(lsm.SstReader(memory_url))
    for other in (lsm.MemTable(), lsm.SstWriter(io.BytesIO())):
        with pytest.raises(TypeError):
            pickle.dumps(other)


def access() -> dict[str, str]:
    """A provider of store options."""
    ASKED.append("here")
    return {}


ASKED: list[str] = []


def test_readers_pickle_with_their_provider(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write("rows.sst", [(b"k", b"v")])
    reader = lsm.SstReader("rows.sst", store_options=access)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    pickled = pickle.dumps(reader)
    ASKED.clear()
    assert pickle.loads(pickled)[b"k"] == b"v"
    assert ASKED == ["here"]
    nameless = lsm.SstReader(tmp_path / "rows.sst", store_options=partial(access))
    with pytest.raises(siltstone.Invalid, match="provider"):
        pickle.dumps(nameless)


def test_a_closed_reader_says_so() -> None:
    reader = table([(b"k", b"v")])
    scan = reader.scan()
    reader.close()
    reader.close()
    assert list(scan) == [(b"k", b"v")]
    for call in (lambda: reader[b"k"], reader.verify, lambda: reader.info, lambda: list(reader)):
        with pytest.raises(siltstone.Closed):
            call()


FORKED = """
import os, sys
from siltstone import lsm
import siltstone
path = sys.argv[1]
reader, memtable = lsm.SstReader(path), lsm.MemTable()
writer = lsm.SstWriter(path + ".2")
memtable.put(b"k", b"v")
if os.fork() == 0:
    assert reader[b"k"] == b"v"
    for call in (lambda: memtable.get(b"k"), lambda: writer.add(b"k", b"v")):
        try:
            call()
        except siltstone.Closed:
            continue
        os._exit(1)
    assert lsm.MemTable().put(b"a", b"") == 1
    os._exit(7)
assert os.waitstatus_to_exitcode(os.wait()[1]) == 7
assert memtable[b"k"] == b"v"
writer.add(b"k", b"v")
writer.finish()
"""


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_fork_touches_nothing_of_its_parent(tmp_path: Path, python) -> None:
    write(tmp_path / "rows.sst", [(b"k", b"v")])
    status, _, errors = python(FORKED, str(tmp_path / "rows.sst"))
    assert status == 0, errors
    assert names(tmp_path) == ["rows.sst", "rows.sst.2"]


INTERRUPTED = """
import os, sys
from siltstone import lsm
writer = lsm.SstWriter(sys.argv[1], sort_memory_bytes=1 << 20)
def keys():
    print("ready", flush=True)
    n = 0
    while True:
        n += 1
        yield n.to_bytes(8, "little")
def values():
    while True:
        yield b"v" * 100
try:
    with writer:
        writer.add_many(keys(), values())
except KeyboardInterrupt:
    print(os.listdir(os.path.dirname(sys.argv[1])), flush=True)
"""


def interrupted_write(tmp_path: Path) -> float:
    """Seconds from Ctrl-C to the end of a writer that sorts endless input."""
    (tmp_path / "out").mkdir(parents=True)
    (tmp_path / "tmp").mkdir()
    child = subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED, str(tmp_path / "out" / "rows.sst")],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(tmp_path / "tmp")},
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "ready\n"
    # The writer sorts, and has written to its scratch folder.
    until(lambda: any(path.is_file() for path in (tmp_path / "tmp").rglob("*")))
    child.send_signal(signal.SIGINT)
    interrupted = time.monotonic()
    assert child.stdout.readline() == "[]\n"
    took = time.monotonic() - interrupted
    assert child.wait(timeout=PATIENCE) == 0
    child.stdout.close()
    assert names(tmp_path / "tmp") == []
    return took


def test_ctrl_c_ends_a_long_write(tmp_path: Path) -> None:
    folders = (tmp_path / str(number) for number in itertools.count())
    quickest(lambda: interrupted_write(next(folders)), 2)


def test_one_thread_at_a_time_writes() -> None:
    writer = lsm.SstWriter(io.BytesIO())
    refused = []

    def keys():
        yield b"a"
        try:
            writer.add(b"b", b"")
        except siltstone.Invalid as error:
            refused.append(error)

    writer.add_many(keys(), iter([b""]))
    assert len(refused) == 1
