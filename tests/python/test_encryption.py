"""Databases that are encrypted on this side (RFC 0054)."""

from __future__ import annotations

import contextlib
import pickle
import shutil
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import siltstone
from overwriting_s3_for_tests import OverwritingS3
from siltstone import admin, ingest

KEY, OTHER = "5e" * 32, "a7" * 32
CANARY = b"canary-in-the-mine"


def with_key(*keys: str) -> dict[str, str]:
    return {"encryption_key": ",".join(keys)}


def fill(db: siltstone.Database, rows: int = 3000) -> None:
    for row in range(rows):
        db.put(CANARY + b"-key-%06d" % row, CANARY + b"-value-%06d" % row)
    db.flush()


def files(folder: Path) -> Iterator[bytes]:
    for path in folder.rglob("*"):
        # A file in .staging is renamed beside a writer.
        with contextlib.suppress(FileNotFoundError, IsADirectoryError):
            yield path.read_bytes()


def test_no_object_shows_a_key_or_a_value(tmp_path: Path) -> None:
    url = str(tmp_path / "db")
    options = {"compression": "none"}
    with siltstone.open(url, store_options=with_key(KEY), options=options) as db:
        fill(db)
        db.compact()
        db.put(CANARY + b"-in-the-log", CANARY).wait()
        assert all(b"canary" not in data for data in files(tmp_path))
        assert all(bytes.fromhex(KEY) not in data for data in files(tmp_path))
    with siltstone.open_reader(url, store_options=with_key(KEY)) as reader:
        assert len(list(reader.scan(prefix=CANARY))) == 3001
        assert reader[CANARY + b"-key-000777"] == CANARY + b"-value-000777"
    assert all(b"canary" not in data for data in files(tmp_path))
    assert admin.gc(url, store_options=with_key(KEY), min_age=0).trouble is None
    report = admin.verify(url, store_options=with_key(KEY))
    assert report.problem_count == 0
    assert not report.orphans


def test_a_missing_or_wrong_key_is_told(tmp_path: Path) -> None:
    url = str(tmp_path / "db")
    with siltstone.open(url, store_options=with_key(KEY)) as db:
        db[b"a"] = b"1"
    for opener in (siltstone.open, siltstone.open_reader):
        with pytest.raises(siltstone.Unsupported, match=r"encrypted.*`encryption_key`"):
            opener(url)
        with pytest.raises(siltstone.Denied, match="none of the given keys") as caught:
            opener(url, store_options=with_key(OTHER))
        assert OTHER not in str(caught.value)
        assert KEY not in repr(caught.value)
    with pytest.raises(siltstone.Invalid, match="encryption_key"):
        siltstone.open(url, store_options={"encryption_key": "short"})
    plain = str(tmp_path / "plain")
    siltstone.open(plain).close()
    with pytest.raises(siltstone.Unsupported, match="not encrypted") as refused:
        siltstone.open(plain, store_options=with_key(KEY))
    page = (Path(__file__).parents[2] / "docs" / "howto-encryption.md").read_text()
    assert f"`Unsupported: … {str(refused.value).split(': ')[1]}`" in page
    with siltstone.open(url, store_options=with_key(KEY)) as db:
        assert db[b"a"] == b"1"


@pytest.mark.parametrize("empty", ["", " ", ",", f"{KEY},"])
def test_an_empty_key_makes_no_plain_database(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, empty: str
) -> None:
    url = tmp_path / "db"
    with pytest.raises(siltstone.Invalid, match="the option holds no key"):
        siltstone.open(url, store_options={"encryption_key": empty})
    monkeypatch.setenv("SILTSTONE_ENCRYPTION_KEY", KEY)
    with pytest.raises(siltstone.Invalid, match=r"no key.*source: encryption_key"):
        siltstone.open(url, store_options=lambda: {"encryption_key": empty})
    monkeypatch.setenv("SILTSTONE_ENCRYPTION_KEY", empty)
    with pytest.raises(siltstone.Invalid, match=r"no key.*source: SILTSTONE_ENCRYPTION_KEY"):
        siltstone.open(url)
    assert not url.exists()


def test_keys_come_from_files_and_variables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, file = str(tmp_path / "db"), tmp_path / "key"
    file.write_bytes(bytes.fromhex(KEY))
    with siltstone.open(url, store_options={"encryption_key": f"file:{file}"}) as db:
        db[b"a"] = b"1"
    monkeypatch.setenv("DATABASE_KEY", KEY)
    with siltstone.open(url, store_options={"encryption_key": "env:DATABASE_KEY"}) as db:
        assert db[b"a"] == b"1"
    monkeypatch.setenv("SILTSTONE_ENCRYPTION_KEY", KEY)
    with siltstone.open(url) as db:
        assert db[b"a"] == b"1"
    with siltstone.open(url, store_options=lambda: with_key(KEY)) as db:
        assert db[b"a"] == b"1"


def test_a_key_is_rotated_by_compaction(tmp_path: Path) -> None:
    url = str(tmp_path / "db")
    with siltstone.open(url, store_options=with_key(KEY)) as db:
        fill(db)
    old = {path.name for path in (tmp_path / "db" / "compacted").iterdir()}
    both = with_key(OTHER, KEY)
    with siltstone.open(url, store_options=both) as db:
        db[b"new"] = b"1"
        db.compact()
    assert len(list((tmp_path / "db" / "encryption").iterdir())) == 2
    with siltstone.open(url, store_options=both) as db:
        assert len(list(db.scan(prefix=CANARY))) == 3000
        assert db[b"new"] == b"1"
    admin.gc(url, store_options=both, min_age=0)
    assert not old & {path.name for path in (tmp_path / "db" / "compacted").iterdir()}
    # The new key alone opens no key that the old one wraps.
    with pytest.raises(siltstone.Denied):
        siltstone.open_reader(url, store_options=with_key(OTHER))


def test_only_what_writes_rows_rotates_the_key(tmp_path: Path) -> None:
    url = str(tmp_path / "db")
    with siltstone.open(url, store_options=with_key(KEY)) as db:
        db.put(b"a", b"1").wait()
        # Another process has the next key first, and then a wrong one.
        for other in (with_key(OTHER, KEY), with_key("77" * 32, KEY)):
            with siltstone.open_reader(url, store_options=other) as reader:
                assert reader[b"a"] == b"1"
            admin.create_checkpoint(url, store_options=other)
            admin.gc(url, store_options=other, min_age=0)
        db.put(b"b", b"2").wait()
        db.flush(memtable=True)
    with siltstone.open(url, store_options=with_key(KEY)) as db:
        assert db[b"b"] == b"2"
    with siltstone.open(url, store_options=with_key(OTHER, KEY)) as db:
        db.put(b"c", b"3").wait()
    with pytest.raises(siltstone.Denied):
        siltstone.open(url, store_options=with_key(KEY))


def test_bytes_that_were_changed_or_moved_are_corruption(tmp_path: Path) -> None:
    url, folder = str(tmp_path / "db"), tmp_path / "db" / "compacted"
    with siltstone.open(url, store_options=with_key(KEY)) as db:
        fill(db)
        db.compact()
    table = next(folder.iterdir())
    data = bytearray(table.read_bytes())
    data[len(data) // 2] ^= 1
    table.write_bytes(data)
    with (
        siltstone.open_reader(url, store_options=with_key(KEY)) as reader,
        pytest.raises(siltstone.Corruption),
    ):
        list(reader.scan())
    assert admin.verify(url, store_options=with_key(KEY)).problem_count > 0
    # A manifest under the number of another one.
    manifests = sorted((tmp_path / "db" / "manifest").glob("*.manifest"))
    shutil.copy(manifests[0], manifests[-1])
    with pytest.raises(siltstone.Corruption):
        siltstone.open_reader(url, store_options=with_key(KEY))


@pytest.mark.parametrize("left", [0, 5, 40])
def test_an_object_that_is_cut_short_is_corruption(tmp_path: Path, left: int) -> None:
    url = str(tmp_path / "db")
    with siltstone.open(url, store_options=with_key(KEY)) as db:
        fill(db)
    newest = max((tmp_path / "db" / "manifest").glob("*.manifest"))
    newest.write_bytes(newest.read_bytes()[:left])
    for call in (siltstone.open, siltstone.open_reader):
        with pytest.raises(siltstone.Corruption):
            call(url, store_options=with_key(KEY))
    assert not admin.verify(url, store_options=with_key(KEY)).ok


def test_a_copy_in_another_kind_of_store_is_encrypted_too(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    source, copy, plain = "memory://encrypted-source", tmp_path / "copy", tmp_path / "plain"
    with siltstone.open(source, store_options=with_key(KEY)) as db:
        fill(db, 100)
    admin.export(source, copy, store_options=with_key(KEY))
    assert all(b"canary" not in data for data in files(copy))
    with siltstone.open_reader(copy, store_options=with_key(KEY)) as reader:
        assert len(list(reader.scan())) == 100
    back = "memory://encrypted-again"
    admin.import_(back, copy, store_options=with_key(KEY))
    with siltstone.open_reader(back, store_options=with_key(KEY)) as reader:
        assert len(list(reader.scan())) == 100

    assert "export_is_plain" not in caplog.text
    admin.export(source, plain, store_options=with_key(KEY), to_store_options={})
    assert "export_is_plain" in caplog.text
    with siltstone.open_reader(plain) as reader:
        assert len(list(reader.scan())) == 100


@pytest.mark.parametrize("encrypted", [True, False])
def test_a_worker_stages_as_the_database_is_encrypted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, encrypted: bool
) -> None:
    """Workers get pickled jobs, which hold no key; their environment may have one or none."""
    url = tmp_path / "db"
    options = with_key(KEY) if encrypted else {}
    with siltstone.open(url, store_options=options) as db:
        db[b"a"] = b"1"
    job = ingest.Job(url, store_options=options)
    there = pickle.loads(pickle.dumps(job))
    rows = pa.table({"key": [b"k"], "value": [CANARY]})
    calls = (lambda: there.writer(1), lambda: there.load(1, rows), lambda: there.commit([]))
    with monkeypatch.context() as environment:
        if not encrypted:
            environment.setenv("SILTSTONE_ENCRYPTION_KEY", KEY)
        for call in calls:
            with pytest.raises(siltstone.Unsupported, match="this process has"):
                call()
    assert not encrypted or all(CANARY not in data for data in files(tmp_path))
    request = job.commit([job.load(1, rows)])
    with siltstone.open(url, store_options=options) as db:
        db.ingest(request).wait()
        assert db[b"k"] == CANARY


def test_a_database_whose_data_key_is_gone_is_corrupt(tmp_path: Path) -> None:
    url, options = tmp_path / "db", with_key(KEY)
    with siltstone.open(url, store_options=options) as db:
        db[b"a"] = b"1"
    [stored] = (url / "encryption").iterdir()
    stored.unlink()
    gone = "data keys of the encrypted database are gone"
    for call in (siltstone.open, siltstone.open_reader):
        with pytest.raises(siltstone.Corruption, match=gone):
            call(url, store_options=options)
    report = admin.verify(url, store_options=options)
    assert not report.ok
    assert any(gone in problem.what for problem in report.problems)


def test_clones_and_exports_are_encrypted_too(tmp_path: Path) -> None:
    parent, clone, copy = (str(tmp_path / name) for name in ("parent", "clone", "copy"))
    options = with_key(KEY)
    with siltstone.open(parent, store_options=options) as db:
        fill(db)
        db.compact()
    siltstone.clone(clone, parent=parent, store_options=options)
    with siltstone.open(clone, store_options=options) as db:
        db[CANARY] = CANARY
        assert len(list(db.scan())) == 3001
        db.compact()
    admin.export(parent, copy, store_options=options, to_store_options=options)
    with siltstone.open_reader(copy, store_options=options) as reader:
        assert len(list(reader.scan())) == 3000
    assert all(b"canary" not in data for data in files(tmp_path))


def test_an_object_store_with_two_phase_creates_sees_no_plain_byte(tmp_path: Path) -> None:
    with OverwritingS3() as store:
        options = {
            **store.options,
            **with_key(KEY),
            "transactional_store": f"sqlite://{tmp_path}/records",
        }
        with siltstone.open("s3://bucket/db", store_options=options) as db:
            fill(db, 500)
            db.compact()
        with siltstone.open_reader("s3://bucket/db", store_options=options) as reader:
            assert reader[CANARY + b"-key-000042"] == CANARY + b"-value-000042"
            assert len(list(reader.scan())) == 500
        stored = [data for data, _ in store.objects.values()]
        assert stored
        assert all(b"canary" not in data for data in stored)
        assert admin.verify("s3://bucket/db", store_options=options).problem_count == 0


def test_an_arrow_load_is_encrypted(tmp_path: Path) -> None:
    url, options = str(tmp_path / "db"), with_key(KEY)
    keys = [CANARY + b"%06d" % row for row in range(5000)]
    table = pa.table({"key": pa.array(keys, pa.binary()), "value": pa.array(keys, pa.binary())})
    with siltstone.open(url, store_options=options) as db:
        db.load(table)
        assert len(list(db.scan())) == 5000
    assert all(b"canary" not in data for data in files(tmp_path))


def test_without_its_key_the_form_of_a_database_is_verified(tmp_path: Path) -> None:
    url, places = str(tmp_path / "db"), ("manifest", "compacted", "wal", "encryption")
    with siltstone.open(url, store_options=with_key(KEY)) as db:
        fill(db)
        db.compact()
        # Later than the close that would flush it.
        db.put(b"in-the-log", b"1").wait()
        beside = admin.verify(url)
    assert (beside.problem_count, beside.ok) == (0, False)
    assert beside.sealed_objects > 3
    assert "encrypted objects checked in form only" in repr(beside)
    kept = tmp_path / "kept"
    shutil.copytree(url, kept)
    found = {
        folder: next(path for path in sorted((kept / folder).iterdir()) if path.stat().st_size > 20)
        for folder in places
        if any((kept / folder).iterdir())
    }
    assert found.keys() >= {"manifest", "compacted", "encryption"}
    for path in found.values():
        whole = path.read_bytes()
        for damaged in (whole[:10], b"other bytes" + whole[11:]):
            path.write_bytes(damaged)
            report = admin.verify(kept)
            assert report.problem_count > 0, path
            assert any(path.stem in str(problem) for problem in report.problems), path
        path.write_bytes(whole)
    assert admin.verify(kept).problem_count == 0
    for stored in (kept / "encryption").iterdir():
        stored.unlink()
    report = admin.verify(kept)
    assert "no data key" in str(report.problems[-1]) or "no data key" in str(report.problems[0])
    with pytest.raises(siltstone.NotFound):
        admin.verify(tmp_path / "nothing")


def test_a_writer_without_the_key_of_a_job_is_denied_at_once(tmp_path: Path) -> None:
    url = str(tmp_path / "db")
    db = siltstone.open(url, store_options=with_key(KEY), options={"deadline": 2})
    try:
        job = ingest.Job(url, store_options=with_key(OTHER, KEY))
        with job.writer(0) as writer:
            writer.add(b"a", b"1")
        request = job.commit([writer.finish()])
        for _ in range(2):
            # Timeout would tell that the call waited for its deadline.
            with pytest.raises(siltstone.Denied, match="none of the given keys"):
                db.ingest(request)
    finally:
        with contextlib.suppress(siltstone.Error):
            db.close()
    with siltstone.open(url, store_options=with_key(OTHER, KEY), take_over=True) as db:
        db.ingest(request).wait()
        assert db[b"a"] == b"1"
