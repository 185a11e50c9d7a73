"""Protection of readers from the collector: shared leases, a given checkpoint, or nothing."""

from __future__ import annotations

import pickle
import subprocess
import sys
import time
from datetime import timedelta
from typing import Any

import pytest

import siltstone
from pace_for_tests import PATIENCE

# The lease of such readers lasts a minute, and is not renewed before half of it has passed.
SLOWLY = {"manifest_poll_interval": 15}
READS = """
import sys, siltstone
with siltstone.open_reader(sys.argv[1], options={"manifest_poll_interval": 15}) as reader:
    assert reader.get(b"a") == b"1", reader.get(b"a")
    print("open", flush=True)
    sys.stdin.readline()
    assert dict(reader.scan()) == {b"a": b"1", b"b": b"2"}
"""


def leased(url: str) -> list[int]:
    """Versions that readers have leased, and the first versions of since-leases."""
    manifest = siltstone.admin.manifest(url)
    versions = [version for lease in manifest["leases"] for version in lease["versions"]]
    return sorted(versions + [lease["from_version"] for lease in manifest["since_leases"]])


@pytest.fixture
def written(tmp_path: Any) -> str:
    """A database with one row in a table and one in the log."""
    url = str(tmp_path / "db")
    with siltstone.open(url) as db:
        db.put(b"a", b"1")
    with siltstone.open(url) as db:
        db.put(b"b", b"2").wait()
    return url


def test_readers_share_a_lease_and_none_releases_it(written: str) -> None:
    with siltstone.open_reader(written) as reader:
        (version,) = leased(written)
        before = siltstone.admin.manifest(written)["id"]
        with siltstone.open_reader(written) as other:
            assert other.get(b"a") == reader.get(b"a") == b"1"
    after = siltstone.admin.manifest(written)
    assert (after["id"], leased(written)) == (before, [version])
    assert not any(one["owner"] == "reader" for one in after["checkpoints"])


def test_processes_share_a_lease(written: str) -> None:
    with siltstone.open_reader(written, options=SLOWLY):
        before = siltstone.admin.manifest(written)["id"]
        command = [sys.executable, "-c", READS, written]
        pipe = subprocess.PIPE
        readers = [subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) for _ in range(4)]
        for reader in readers:
            assert reader.stdout is not None
            assert reader.stdout.readline() == "open\n"
        for reader in readers:
            reader.communicate("on\n", timeout=PATIENCE)
            assert reader.returncode == 0
    assert siltstone.admin.manifest(written)["id"] == before


def test_a_lease_keeps_what_a_reader_reads(written: str) -> None:
    with siltstone.open_reader(written) as reader:
        scan = reader.scan()
        with siltstone.open(written) as db:
            for value in (b"3", b"4"):
                db.put(b"a", value)
                db.flush(memtable=True)
            db.compact()
        siltstone.admin.gc(written, min_age=0)
        assert dict(scan) == {b"a": b"1", b"b": b"2"}
        reader.refresh()
        assert reader.get(b"a") == b"4"


def test_a_reader_without_a_lease_writes_nothing(written: str) -> None:
    before = siltstone.admin.manifest(written)["id"]
    with siltstone.open_reader(written, options={"reader_lease": False}) as reader:
        assert reader.get(b"b") == b"2"
    assert siltstone.admin.manifest(written)["id"] == before


def test_a_given_checkpoint_is_read_as_it_is(written: str) -> None:
    kept = siltstone.admin.create_checkpoint(written, name="kept")
    with siltstone.open_reader(written, checkpoint=kept.id) as given:
        with siltstone.open(written) as db:
            db.put(b"a", b"newer")
        given.refresh()
        assert dict(given.scan()) == {b"a": b"1", b"b": b"2"}
        copy = pickle.loads(pickle.dumps(given))
        assert dict(copy.scan()) == {b"a": b"1", b"b": b"2"}
        copy.close()
    siltstone.admin.delete_checkpoint(written, kept.id)
    with pytest.raises(siltstone.Expired, match=kept.id.hex):
        siltstone.open_reader(written, checkpoint=kept.id)
    with pytest.raises(siltstone.Expired, match="no checkpoint has this name"):
        siltstone.open_reader(written, checkpoint="yesterday")


def test_a_lifetime_that_a_poll_could_miss_is_refused(written: str) -> None:
    brief = siltstone.Readers(checkpoint_lifetime=timedelta(seconds=2))
    options = siltstone.Options(manifest_poll_interval=1, readers=brief)
    with pytest.raises(siltstone.Invalid, match=r"checkpoint_lifetime.*manifest_poll_interval"):
        siltstone.open_reader(written, options=options)
    siltstone.open(written, options=options).close()


def test_reads_are_no_staler_than_the_bound(written: str) -> None:
    readers = {"max_staleness": 0.001, "checkpoint_lifetime": 9000}
    options = {"readers": readers, "manifest_poll_interval": 3600}
    with siltstone.open_reader(written, options=options) as reader, siltstone.open(written) as db:
        for n in range(20):
            value = str(n).encode()
            db.put(b"n", value).wait()
            # Longer than the bound: a put may be acknowledged within the bound after the last
            # check.
            time.sleep(0.002)
            assert reader.get(b"n") == value
            assert dict(reader.scan())[b"n"] == value
            assert reader.get_many([b"n"]) == [value]
            assert siltstone.Options(**options).readers["max_staleness"] == 0.001
            assert b"n" in list(reader)


def test_the_log_in_a_readers_memory_is_bounded(written: str) -> None:
    small = {
        "max_memtable_bytes": 65_536,
        "l0_sst_size_bytes": 65_536,
        "max_batch_bytes": 4096,
    }
    with siltstone.open(written) as db:
        for n in range(200):
            db.put(str(n).encode(), bytes(2000)).wait()
        with pytest.raises(siltstone.Invalid, match="max_memtable_bytes"):
            siltstone.open_reader(written, options=small)
        db.flush(memtable=True)
        with siltstone.open_reader(written, options=small) as reader:
            assert reader.get(b"199") == bytes(2000)
