"""The disk cache: databases in an object store, read by processes that share a folder."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import pickle
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

import pytest

import siltstone
from pace_for_tests import PATIENCE, until

SERVE_S3 = Path(__file__).resolve().parents[1] / "support" / "serve_moto.py"
URL = "s3://bucket/db"
ROWS = 6000
MIB = 1 << 20
STEP = 2 * (136 << 10)
"""Bytes that a process with a small cache writes between two counts of the folder."""

PLAIN = {
    "block_cache_bytes": 0,
    "compression": "none",
    "reader_lease": False,
    "manifest_poll_interval": 3600,
}

READ = """
import hashlib, json, logging, os, sys
import siltstone

logging.basicConfig(format="%(message)s", level="INFO", stream=sys.stderr)
options, store_options, step = json.loads(sys.argv[1])
if "LIMIT" in os.environ:
    import resource
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(os.environ["LIMIT"]),) * 2)
with siltstone.open_reader(
    "s3://bucket/db", options=options, store_options=store_options
) as reader:
    print("open", flush=True)
    for number in range(0, 6000, step):
        key = b"%06d" % number
        assert reader.get(key) == hashlib.sha512(key).digest() * 16, key
    print(reader.stats().disk_cache_errors)
"""


def value(key: bytes) -> bytes:
    return hashlib.sha512(key).digest() * 16


@pytest.fixture(scope="module")
def s3():
    """A bucket of a server on this machine with a database, and the options to reach it with."""
    pytest.importorskip("moto.server")
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
    options = {"endpoint": endpoint, "access_key_id": "x", "secret_access_key": "secret"}
    options |= {"region": "us-east-1", "allow_http": "true"}
    keys = [b"%06d" % number for number in range(ROWS)]
    with siltstone.open(URL, options=PLAIN, store_options=options) as db:
        db.put_many(keys, [value(key) for key in keys])
        db.flush(memtable=True)
    yield options
    server.stdin.close()
    server.wait(timeout=PATIENCE)
    server.stdout.close()


def cached(folder: Path, size: str = "64MiB") -> siltstone.Options:
    return siltstone.Options(**PLAIN, disk_cache_path=folder, disk_cache_bytes=size)


def gets_of(reader: siltstone.Reader, step: int) -> int:
    """The requests of reading every `step`-th row."""
    before = reader.stats().get_requests
    for number in range(0, ROWS, step):
        key = b"%06d" % number
        assert reader[key] == value(key)
    return reader.stats().get_requests - before


def disk_bytes(folder: Path) -> int:
    total = 0
    for path in folder.rglob("*.part"):
        # A part may be evicted meanwhile.
        with contextlib.suppress(FileNotFoundError):
            total += -(-path.stat().st_size // 4096) * 4096
    return total


def arguments(options: siltstone.Options, store_options: dict[str, str], step: int) -> str:
    return json.dumps([dict(options), store_options, step])


def test_a_warm_cache_answers_without_requests(s3, python, tmp_path: Path) -> None:
    options = cached(tmp_path / "cache")
    with siltstone.open_reader(URL, options=options, store_options=s3) as reader:
        assert gets_of(reader, 50) > 0
        until(lambda: gets_of(reader, 50) == 0)
        # Parts that wait to be written answer, too.
        until(lambda: reader.stats().disk_cache_bytes > 0)
        stats = reader.stats()
        assert stats.disk_cache_hits > 0
        assert stats.disk_cache_misses > 0
        assert 0 < stats.disk_cache_bytes <= stats.disk_cache_capacity == 64 * MIB
        assert reader.metrics()["disk_cache_hits"] == stats.disk_cache_hits
    with siltstone.open_reader(URL, options=options, store_options=s3) as reader:
        assert gets_of(reader, 25) == 0
        assert reader.stats().disk_cache_misses == 0
    if os.name == "posix":
        assert (tmp_path / "cache").stat().st_mode & 0o077 == 0


def test_a_mirror_has_all_tables_before_they_are_read(s3, tmp_path: Path) -> None:
    options = siltstone.Options(**dict(cached(tmp_path / "cache")), disk_cache_mirror="all")
    with siltstone.open_reader(URL, options=options, store_options=s3) as reader:
        until(lambda: reader.stats().disk_cache_mirror_bytes == reader.stats().table_bytes)
        assert reader.stats().disk_cache_mirror_missing_bytes == 0
        assert gets_of(reader, 25) == 0


def test_a_mirror_is_of_all_keys_or_of_a_range(tmp_path: Path) -> None:
    def mirror(keys: Any) -> object:
        options = siltstone.Options(disk_cache_path=tmp_path, disk_cache_mirror=keys)
        assert pickle.loads(pickle.dumps(options)) == options
        return options.disk_cache_mirror

    assert mirror("all") == mirror((None, None)) == "all"
    assert mirror((b"a", b"z")) == mirror("0x61..0x7a") == "0x61..0x7a"
    assert mirror((b"\x00\xff", None)) == "0x00ff.."
    assert mirror((None, bytearray(b"z"))) == "..0x7a"
    assert mirror(None) is None
    for wrong in [(b"z", b"a"), "a..z", "some", True, 3, b"a", [b"a", b"z"], ("a", "z"), (b"a",)]:
        with pytest.raises(siltstone.Invalid, match="disk_cache_mirror"):
            mirror(wrong)
    with pytest.raises(siltstone.Invalid, match="disk_cache_mirror has no effect"):
        siltstone.Options(disk_cache_mirror="all")


def test_the_options_name_a_folder(tmp_path: Path, url: str) -> None:
    options = cached(tmp_path / "a folder", "1GiB")
    assert options.disk_cache_path == str(tmp_path / "a folder")
    assert pickle.loads(pickle.dumps(options)) == options
    assert siltstone.Options().disk_cache_path is None
    with pytest.raises(siltstone.Invalid, match="disk_cache_path"):
        siltstone.Options(disk_cache_bytes="1GiB")
    with pytest.raises(siltstone.Invalid, match="disk_cache_bytes"):
        siltstone.Options(disk_cache_path=tmp_path, disk_cache_bytes=2)
    with pytest.raises(siltstone.Invalid, match="disk_cache_path"):
        siltstone.Options(disk_cache_path=3)  # type: ignore[typeddict-item]
    # A database that is near has no use for it.
    with siltstone.open(url, options=options) as db:
        db[b"a"] = b"1"
        assert db.stats().disk_cache_capacity == 0
    assert not (tmp_path / "a folder").exists()


def test_processes_share_a_folder_and_one_is_killed(s3, tmp_path: Path) -> None:
    """The folder keeps its size but for a step of each further process."""
    folder = tmp_path / "cache"
    given = arguments(cached(folder, "4MiB"), s3, 7)
    readers = [
        subprocess.Popen([sys.executable, "-c", READ, given], stdout=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    for reader in readers:
        assert reader.stdout is not None
        assert reader.stdout.readline() == "open\n"
    until(lambda: disk_bytes(folder) > MIB)
    readers[0].send_signal(signal.SIGKILL)
    largest = 0
    while any(reader.poll() is None for reader in readers):
        largest = max(largest, disk_bytes(folder))
    for reader in readers[1:]:
        out, _ = reader.communicate(timeout=PATIENCE)
        assert (reader.returncode, out) == (0, "0\n")
    readers[0].communicate(timeout=PATIENCE)
    assert largest <= 4 * MIB + 2 * STEP
    with siltstone.open_reader(URL, options=cached(folder, "4MiB"), store_options=s3) as reader:
        gets_of(reader, 500)
        until(lambda: disk_bytes(folder) <= 4 * MIB)


def test_a_disk_that_takes_no_more_costs_requests_only(s3, python, tmp_path: Path) -> None:
    """A limit of the size of files stands for a full disk: writes end in their middle."""
    folder = tmp_path / "cache"
    given = arguments(cached(folder), s3, 100)
    status, out, err = python(READ, given, LIMIT="50000")
    assert status == 0, err
    assert out.startswith("open\n")
    assert int(out.split()[1]) > 0
    assert err.count("event=disk_cache_fails") == 1, err
    assert str(folder) in err
    assert list((folder / "tmp").iterdir()) == []
    status, out, err = python(READ, given)
    assert (status, out) == (0, "open\n0\n"), err
    assert "disk_cache" not in err


@pytest.mark.parametrize("name", ["file", "file/cache", "n" * 300])
def test_a_path_at_which_no_folder_can_be_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").write_text("of the user")
    for url in (str(tmp_path / "db"), "memory://disk-cache-of-a-file"):
        with pytest.raises(siltstone.Invalid, match="disk cache") as raised:
            siltstone.open(url, options=cached(tmp_path / name))
        assert raised.value.context["path"] == str(tmp_path / name)
    assert (tmp_path / "file").read_text() == "of the user"


def test_no_part_of_an_encrypted_database_is_stored(s3, tmp_path: Path) -> None:
    how = {"store_options": {**s3, "encryption_key": "01" * 32}}
    with siltstone.open("s3://bucket/secret", **how) as db:
        db[b"a"] = b"1"
    options = cached(tmp_path / "cache")
    for opened in (siltstone.open, siltstone.open_reader):
        with pytest.raises(siltstone.Unsupported, match="disk_cache_path"):
            opened("s3://bucket/secret", options=options, **how)
    assert not (tmp_path / "cache").exists()
