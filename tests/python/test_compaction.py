"""Compaction from Python: explicit, in the background, and its options."""

import asyncio
import time
from pathlib import Path

import pytest

import siltstone
from siltstone import aio

SMALL = {
    "l0_sst_size_bytes": 4096,
    "l0_compaction_threshold_ssts": 2,
    "target_sst_bytes": 65536,
    "l0_manifest_commit_interval": 0,
}


def rows(database: siltstone.Database | siltstone.Reader) -> dict[bytes, bytes]:
    return dict(database.scan())


def fill(database: siltstone.Database, rounds: int) -> dict[bytes, bytes]:
    for number in range(rounds):
        keys = [b"%04d" % (number * 7 % 50 + key) for key in range(100)]
        database.put_many(keys, [b"%060d" % number] * 100)
        database.delete(b"%04d" % number)
        database.flush()
    return rows(database)


def test_everything_comes_into_one_run(tmp_path: Path) -> None:
    options = {**SMALL, "embedded_compactor": False, "l0_max_ssts": 100}
    with siltstone.open(tmp_path / "db", options=options) as db:
        before = fill(db, 20)
        snapshot = db.snapshot()
        db.put(b"0099", b"new")
        assert db.compact() is None
        assert rows(db) == {**before, b"0099": b"new"}
        assert dict(snapshot.scan()) == before
        snapshot.close()
    state = siltstone.admin.manifest(tmp_path / "db")
    assert not state["l0"]
    assert [run["id"] for run in state["runs"]] == [0]
    with siltstone.open_reader(tmp_path / "db") as reader:
        assert rows(reader) == {**before, b"0099": b"new"}
    assert siltstone.admin.verify(tmp_path / "db").ok


@pytest.mark.parametrize("scheduler", ["tiered", "lazy_leveled", "time_window"])
def test_the_background_keeps_l0_short(tmp_path: Path, scheduler: str) -> None:
    options = {**SMALL, "compaction_scheduler": scheduler}
    with siltstone.open(tmp_path / "db", options=options) as db:
        before = fill(db, 60)
        assert rows(db) == before
        # A background compaction may be in progress; the rest is done after it.
        db.compact()
        assert rows(db) == before
    assert siltstone.admin.manifest(tmp_path / "db")["compactor_epoch"] == 1
    with siltstone.open(tmp_path / "db", create=False) as db:
        assert rows(db) == before


def test_a_rate_holds_on_a_folder_too(tmp_path: Path) -> None:
    """The merge reads and writes files directly. The limit counts both, for tables of every
    size."""
    rate = 4_000_000
    for name, target in [("many", 100_000), ("one", 64 << 20)]:
        options = {
            "embedded_compactor": False,
            "l0_max_ssts": 100,
            "target_sst_bytes": target,
            "compaction_bytes_per_second": rate,
        }
        for layer in range(4):
            # Closing flushes the memtable into a layer.
            with siltstone.open(tmp_path / name, options=options) as db:
                keys = [b"%08d" % (key * 4 + layer) for key in range(5000)]
                db.put_many(keys, [key * 12 for key in keys])
        with siltstone.open(tmp_path / name, options=options) as db:
            before = db.stats()
            started = time.perf_counter()
            db.compact()
            took = time.perf_counter() - started
            after = db.stats()
        moved = after.bytes_read - before.bytes_read + after.bytes_written - before.bytes_written
        assert moved > 4 * 5000 * 100 * 2
        assert took > 0.8 * moved / rate, name


def test_options_are_checked_by_name(tmp_path: Path) -> None:
    for name, value, said in [
        ("compaction_scheduler", "leveled", "tiered, lazy_leveled or time_window"),
        ("target_sst_bytes", 10, "65536 to"),
        ("max_space_amplification", 0.5, "1.01 to 1000"),
    ]:
        with pytest.raises(siltstone.Invalid, match=said):
            siltstone.open(tmp_path / "db", options={name: value})
    with pytest.raises(siltstone.Invalid, match="wal_url"):
        siltstone.open(tmp_path / "db", options={"wal_url": "memory://x"})


async def compacted(url: Path) -> tuple[dict[bytes, bytes], bytes | None]:
    async with aio.open(url) as db:
        for number in range(5):
            await db.put(b"k%d" % number, b"v")
        await db.delete(b"k0")
        await db.compact()
        found = {row[0]: row[1] async for row in db.scan()}
        return found, await db.get(b"k0")


def test_it_is_awaited(tmp_path: Path) -> None:
    found, gone = asyncio.run(compacted(tmp_path / "db"))
    assert found == {b"k%d" % number: b"v" for number in range(1, 5)}
    assert gone is None
