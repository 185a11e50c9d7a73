"""A log in a store of its own, and writers without a log (RFC 0055)."""

from __future__ import annotations

import itertools
import os
import random
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import CliRunner

import siltstone
from pace_for_tests import PATIENCE
from siltstone import admin, changes
from siltstone.cli import main

SERVE_S3 = Path(__file__).resolve().parents[1] / "support" / "serve_moto.py"
KILLS = int(os.environ.get("SILTSTONE_KILLS", "5"))
UNLOGGED = {"writes": {"wal_enabled": False}}

# Prints the number of each write once it is durable.
WRITER = """
import sys, siltstone
url, wal_url, logged, count = sys.argv[1], sys.argv[2], sys.argv[3] == "logged", int(sys.argv[4])
store = {"wal_url": wal_url} if wal_url else None
options = {"flush_interval": 0.001, "l0_sst_size_bytes": 16384, "writes": {"wal_enabled": logged},
           "l0_manifest_commit_interval": 0, "gc.min_age": 0}
options["gc"] = {"min_age": options.pop("gc.min_age")}
db = siltstone.open(url, store_options=store, options=options, take_over=True)
print("open", len(list(db.keys())), flush=True)
while True:
    for _ in range(7):
        count += 1
        last = db.put(b"%08d" % count, b"v" * 40)
    last.wait()
    print(count, flush=True)
"""


@pytest.fixture
def places(tmp_path: Path) -> tuple[str, dict[str, str]]:
    return str(tmp_path / "db"), {"wal_url": str(tmp_path / "logs")}


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_the_log_lies_in_the_other_folder(
    tmp_path: Path, places: tuple[str, dict[str, str]]
) -> None:
    url, options = places
    with siltstone.open(url, store_options=options) as db:
        db[b"a"] = b"1"
        db.flush()
        db[b"b"] = b"2"
        found = admin.manifest(url, store_options=options)
    (log,) = (tmp_path / "logs").iterdir()
    assert log.name == found["database"].replace("-", "")
    assert {"wal", "log"} <= names(log)
    assert "wal" not in names(tmp_path / "db")
    with siltstone.open_reader(url, store_options=options) as reader:
        assert dict(reader.scan()) == {b"a": b"1", b"b": b"2"}
    assert admin.gc(url, store_options=options, min_age=0).trouble is None
    assert admin.verify(url, store_options=options).ok
    with pytest.raises(siltstone.Unsupported, match=r"import the parent.* without .*`wal_url`"):
        siltstone.clone(tmp_path / "clone", parent=url, store_options=options)


def test_the_variable_stands_in_for_the_option(
    places: tuple[str, dict[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    url, options = places
    monkeypatch.setenv("SILTSTONE_WAL_URL", options["wal_url"])
    with siltstone.open(url) as db:
        db[b"a"] = b"1"
    monkeypatch.delenv("SILTSTONE_WAL_URL")
    with pytest.raises(siltstone.Unsupported, match=r"`wal_url`.*logs"):
        siltstone.open(url)
    with pytest.raises(siltstone.Unsupported, match=r"recorded: .*logs.*given: .*other"):
        siltstone.open_reader(url, store_options={"wal_url": options["wal_url"] + "/other"})
    with siltstone.open(url, store_options=options) as db:
        assert db[b"a"] == b"1"


def test_an_emptied_log_is_not_an_empty_log(
    tmp_path: Path, places: tuple[str, dict[str, str]]
) -> None:
    url, options = places
    db = siltstone.open(url, store_options=options)
    db[b"table"] = b"1"
    db.flush(memtable=True)
    db.put(b"log", b"2").wait()
    kept = shutil.copytree(tmp_path / "logs", tmp_path / "kept")
    db.close()
    shutil.rmtree(tmp_path / "logs")
    with pytest.raises(siltstone.Corruption, match=r"log/identity.*logs"):
        siltstone.open(url, store_options=options)
    report = admin.verify(url, store_options=options)
    assert not report.ok
    assert any("log/identity" in str(problem) for problem in report.problems)
    shutil.copytree(kept, tmp_path / "logs")
    with siltstone.open(url, store_options=options) as db:
        assert dict(db.scan()) == {b"table": b"1", b"log": b"2"}
    shutil.rmtree(tmp_path / "logs")
    told = admin.repair(url, store_options=options, dry_run=True)
    assert told.needed
    # The manifest knows ids of the log, and nothing tells how many rows they held.
    assert (told.rows_lost, told.seq_lost) == (0, None)
    assert told.objects_unknown >= 1
    assert "rows_lost=unknown" in repr(told)
    place = ["--path", url, "--store-option", f"wal_url={options['wal_url']}"]
    shown = CliRunner().invoke(main, [*place, "repair"]).output
    assert "operations lost\tunknown" in shown
    assert f"objects with an unknown number of rows\t{told.objects_unknown}" in shown
    assert admin.repair(url, store_options=options, dry_run=False).done
    assert not admin.repair(url, store_options=options).needed
    with siltstone.open(url, store_options=options) as db:
        assert db[b"table"] == b"1"


def test_a_copy_of_the_tables_does_not_share_the_log(
    tmp_path: Path, places: tuple[str, dict[str, str]]
) -> None:
    url, options = places
    with siltstone.open(url, store_options=options) as db:
        db[b"a"] = b"1"
    copy = shutil.copytree(url, tmp_path / "copy")
    log = sorted((tmp_path / "logs").rglob("*"))
    for use in [siltstone.open, siltstone.open_reader, siltstone.destroy, admin.gc, admin.repair]:
        with pytest.raises(siltstone.Conflict, match=r"moved or copied.*/db"):
            use(copy, store_options=options)
    assert sorted((tmp_path / "logs").rglob("*")) == log
    shutil.move(url, tmp_path / "moved")
    with pytest.raises(siltstone.Conflict, match="moved or copied"):
        siltstone.open(tmp_path / "moved", store_options=options)
    Path(url).symlink_to(tmp_path / "moved")
    with siltstone.open(tmp_path / "moved", store_options=options) as db:
        assert db[b"a"] == b"1"


def test_an_export_moves_the_log(tmp_path: Path, places: tuple[str, dict[str, str]]) -> None:
    url, options = places
    with siltstone.open(url, store_options=options) as db:
        db[b"a"] = b"1"
    moved = tmp_path / "moved"
    admin.import_(moved, url, store_options={}, from_store_options=options)
    with siltstone.open(moved) as db:
        assert db[b"a"] == b"1"
    with pytest.raises(siltstone.Unsupported, match="`wal_url`"):
        siltstone.open(moved, store_options=options)
    # The log of a parent is read beside its tables; the clone has a log of its own.
    siltstone.clone(tmp_path / "clone", parent=moved, store_options=options)
    with siltstone.open(tmp_path / "clone", store_options=options) as db:
        assert db[b"a"] == b"1"
    siltstone.destroy(url, store_options=options)
    with siltstone.open(url, store_options=options) as db:
        assert b"a" not in db


@pytest.fixture
def s3():
    """The options by which a bucket of a server on this machine is reached."""
    pytest.importorskip("moto.server")
    server = subprocess.Popen(
        [sys.executable, str(SERVE_S3)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert server.stdin is not None
    assert server.stdout is not None
    endpoint = f"http://127.0.0.1:{int(server.stdout.readline())}"
    made = urllib.request.Request(f"{endpoint}/bucket", method="PUT")
    made.add_header("Authorization", "AWS4-HMAC-SHA256 Credential=x/20260101/us-east-1/s3/aws4")
    with urllib.request.urlopen(made):
        pass
    options = {"endpoint": endpoint, "access_key_id": "x", "secret_access_key": "canary"}
    yield options | {"region": "us-east-1", "allow_http": "true"}
    server.stdin.close()
    server.wait(timeout=PATIENCE)
    server.stdout.close()


def test_either_store_may_be_a_bucket(s3: dict[str, str], tmp_path: Path) -> None:
    own = {f"wal_{name}": value for name, value in s3.items()}
    cases = [
        ("s3://bucket/db", str(tmp_path / "logs"), s3),
        (str(tmp_path / "db"), "s3://bucket/logs", s3),
        (str(tmp_path / "own"), "s3://bucket/logs", own),
    ]
    for url, wal_url, named in cases:
        options = named | {"wal_url": wal_url}
        with siltstone.open(url, store_options=options) as db:
            before = db.stats().put_requests
            db.put(b"a", b"1").wait()
            assert db.stats().put_requests > before, "requests to both stores are counted"
        with siltstone.open_reader(url, store_options=options) as reader:
            assert reader[b"a"] == b"1"
        assert admin.gc(url, store_options=options, min_age=0).trouble is None
        with pytest.raises(siltstone.Unsupported, match="`wal_url`") as refused:
            siltstone.open(url, store_options=named if url.startswith("s3:") else None)
        assert "canary" not in str(refused.value)
    assert len(names(tmp_path / "logs")) == 1
    assert "wal" not in names(tmp_path / "db")


def killed_writers(url: Path, wal_url: str, logged: str) -> None:
    """Kills writers at random moments. Each finds at least what the ones before acknowledged. On a
    slow machine many may die before their first write."""
    draw, acknowledged, found = random.Random(), 0, 0
    for kill in itertools.count():
        if kill >= KILLS and acknowledged:
            break
        command = [sys.executable, "-c", WRITER, str(url), wal_url, logged, str(found)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
            head, rows = writer.stdout.readline().split()
            assert head == "open"
            found = int(rows)
            assert found >= acknowledged
            time.sleep(draw.uniform(0, 0.3))
            writer.send_signal(signal.SIGKILL)
            told = [line.strip() for line in writer.stdout if line.endswith("\n")]
        # Numbers go on after the rows that the writer was told of.
        acknowledged = max([acknowledged, *map(int, told)])
        with siltstone.open_reader(url, store_options=store(wal_url)) as reader:
            keys = list(reader.keys())
        found = len(keys)
        assert keys == [b"%08d" % n for n in range(1, found + 1)], "not a prefix"
        assert found >= acknowledged
    assert admin.verify(url, store_options=store(wal_url)).ok


def store(wal_url: str) -> dict[str, str]:
    return {"wal_url": wal_url} if wal_url else {}


@pytest.mark.parametrize("logged", ["logged", "unlogged"])
def test_killed_writers_lose_nothing_acknowledged(tmp_path: Path, logged: str) -> None:
    wal_url = str(tmp_path / "logs") if logged == "logged" else ""
    killed_writers(tmp_path / "db", wal_url, logged)


def test_without_a_log_a_write_is_durable_once_it_is_flushed(tmp_path: Path) -> None:
    url = tmp_path / "db"
    db = siltstone.open(url, options=UNLOGGED)
    commit = db.put(b"a", b"1")
    assert not commit.durable
    with siltstone.open_reader(url) as reader:
        assert b"a" not in reader
    commit.wait()
    with siltstone.open_reader(url) as reader:
        assert reader[b"a"] == b"1"
        db.put(b"b", b"2").wait()
        reader.refresh()
        assert reader[b"b"] == b"2"
        db[b"c"] = b"3"
        db.flush()
        reader.refresh()
        assert len(list(reader.scan())) == 3
    db[b"d"] = b"4"
    db.close()
    assert len(list((url / "wal").glob("*.sst"))) == 1, "only the fence"
    # A writer with a log goes on, and so does the next one without.
    for n, options in enumerate([None, UNLOGGED, None]):
        with siltstone.open(url, options=options) as db:
            assert len(list(db.scan())) == 4 + n
            db.put(b"e%d" % n, b"").wait()
    assert admin.verify(url).ok


def test_a_reader_follows_from_one_kind_of_writer_to_the_other(tmp_path: Path) -> None:
    url = tmp_path / "db"
    siltstone.open(url).close()
    with siltstone.open_reader(url) as reader:
        for n, options in enumerate([None, UNLOGGED, None, UNLOGGED, None]):
            db = siltstone.open(url, options=options, take_over=True)
            db.put(b"%d" % n, b"").wait()
            db.put(b"%d+" % n, b"").wait()
            reader.refresh()
            assert len(list(reader.keys())) == 2 * n + 2


def test_a_fenced_writer_without_a_log_acknowledges_nothing(tmp_path: Path) -> None:
    old = siltstone.open(tmp_path / "db", options=UNLOGGED)
    old[b"a"] = b"old"
    with siltstone.open(tmp_path / "db", take_over=True) as new:
        new.put(b"a", b"new").wait()
        with pytest.raises(siltstone.Fenced):
            old.flush()
        assert new[b"a"] == b"new"
    with pytest.raises(siltstone.Fenced):
        old.close()


def test_rows_without_a_log_are_not_in_the_feed(tmp_path: Path) -> None:
    url = tmp_path / "db"
    with siltstone.open(url) as db:
        db[b"a"] = b"1"
    feed = changes.begin(url, since="oldest")
    assert feed.read() is not None
    with siltstone.open(url, options=UNLOGGED) as db:
        db[b"b"] = b"2"
    with siltstone.open(url) as db:
        db[b"c"] = b"3"
    with pytest.raises(siltstone.Expired, match="without a WAL"):
        feed.read()
    oldest = changes.begin(url, since="oldest").read()
    assert pa.record_batch(oldest)["key"].to_pylist() == [b"c"]
    feed = changes.begin(url, since="latest", consumer="c")
    with pytest.raises(siltstone.Conflict, match="consumer"):
        siltstone.open(url, options=UNLOGGED)
    changes.forget(url, "c")
    siltstone.open(url, options=UNLOGGED).close()


def test_loads_need_a_log(tmp_path: Path) -> None:
    with (
        siltstone.open(tmp_path / "db", options=UNLOGGED) as db,
        pytest.raises(siltstone.Unsupported, match=r"writes\.wal_enabled"),
    ):
        db.load(pa.table({"key": [b"a"], "value": [b"1"]}))
