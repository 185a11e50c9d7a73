"""`stats()` and `metrics()`."""

from __future__ import annotations

import dataclasses
import pickle
import re
import time

import pytest

import siltstone
from pace_for_tests import until
from siltstone import _native

TABLE = _native.stat_table()


def test_every_figure_has_a_name_a_unit_and_a_meaning(db) -> None:
    figures = list(db.stats())
    assert [(*figure[:4], figure.grows) for figure in figures] == TABLE
    assert len({figure.name for figure in figures}) == len(TABLE)
    for figure in figures:
        assert figure.meaning.endswith(".")
        whole = figure.unit not in {"seconds", "ratio", "price"}
        assert isinstance(figure.value, int if whole else float)
        for unit in ("bytes", "seconds", "requests", "rows"):
            assert not figure.name.endswith(f"_{unit}") or figure.unit == unit
    assert list(db.metrics()) == [figure.name for figure in figures]


def test_writes_show_in_memory_and_then_in_tables(url: str) -> None:
    never = {"flush_interval": 3600.0, "l0_sst_size_bytes": 4096, "max_memtable_bytes": 1 << 20}
    with siltstone.open(url, options=never) as db:
        db.put(b"a", b"1" * 100)
        held = db.stats()
        assert (held.memtable_entries, held.frozen_memtables) == (1, 0)
        assert held.memtable_bytes > 100
        assert held.wal_buffered_bytes > 100
        assert (held.visible_seq, held.durable_seq, held.flushed_seq) == (1, 0, 0)
        assert (held.tables, held.table_rows, held.table_bytes) == (0, 0, 0)
        sent = held.bytes_written
        db.flush()
        stored = db.stats()
        assert (stored.wal_buffered_bytes, stored.durable_seq) == (0, 1)
        assert stored.bytes_written > sent + 100
        assert stored.put_requests > held.put_requests
        assert stored.unflushed_wal_objects > held.unflushed_wal_objects
        db.put_many([b"%03d" % n for n in range(100)], [b"v" * 100] * 100)
        db.delete(b"absent").wait()
        until(lambda: db.stats().tables)
        flushed = db.stats()
        assert flushed.l0_entries == flushed.l0_tables == flushed.tables == 1
        assert flushed.l0_rows == flushed.table_rows >= 100
        assert flushed.l0_bytes == flushed.table_bytes > 10_000
        assert flushed.flushed_seq >= 100
        assert flushed.sorted_runs == 0
        assert (flushed.frozen_memtables, flushed.frozen_entries, flushed.frozen_bytes) == (0, 0, 0)
    with siltstone.open_reader(url) as reader:
        closed = reader.stats()
        assert closed.epoch == 0
        assert (closed.table_rows, closed.table_tombstones) == (102, 1)
        assert closed.expiring_tables == 0
        assert closed.visible_seq == closed.durable_seq == closed.flushed_seq == 102


def test_reads_are_counted_where_they_are_answered(cold) -> None:
    before = cold.stats()
    assert cold.get(b"key00001") == b"value00001"
    assert b"key00001" in cold
    cold.get_many([b"key00001", b"key00002", b"key00003"])
    sum(1 for _ in cold)
    after = cold.stats()
    assert after.gets - before.gets == 2
    assert after.get_many_keys - before.get_many_keys == 3
    assert after.scans - before.scans == 1
    assert after.get_requests > before.get_requests
    assert after.bytes_read > before.bytes_read
    assert after.block_cache_misses > before.block_cache_misses
    assert 0 < after.metadata_bytes <= after.metadata_capacity


def test_the_block_cache_tells_what_it_holds(url: str) -> None:
    with siltstone.open(url) as db:
        db.put_many([b"%05d" % n for n in range(2000)], [b"v" * 50] * 2000)
    # The reader sends no requests except those for reads.
    quiet = {"reader_lease": False, "manifest_poll_interval": 3600}
    with siltstone.open_reader(url, options={"block_cache_bytes": 1 << 20, **quiet}) as reader:
        assert reader.get(b"00000") == b"v" * 50
        cold = reader.stats()
        assert cold.block_cache_misses > 0
        assert 0 < cold.block_cache_bytes <= cold.block_cache_capacity
        assert cold.block_cache_capacity == 1 << 20
        assert reader.get(b"00001") == b"v" * 50
        warm = reader.stats()
        assert warm.block_cache_hits > cold.block_cache_hits
        assert warm.block_cache_misses == cold.block_cache_misses
        assert warm.get_requests == cold.get_requests


def test_open_snapshots_and_scans_are_counted(db) -> None:
    db[b"a"] = b"1"
    with db.snapshot(), db.scan():
        assert db.stats().snapshots == 2
    assert db.stats().snapshots == 0


def test_time_goes_on(db) -> None:
    around = time.monotonic()
    first = db.stats().uptime_seconds
    between = time.monotonic()
    time.sleep(0.05)
    slept = time.monotonic() - between
    passed = db.stats().uptime_seconds - first
    assert slept * 0.8 < passed < (time.monotonic() - around) * 1.25


def test_taking_them_asks_nothing_of_the_store(cold) -> None:
    cold.get(b"key00001")

    def requests() -> tuple[int, int]:
        for _ in range(100):
            stats = cold.stats()
        return stats.get_requests, stats.list_requests

    # Requests that the handle sends in the background do not come from `stats`.
    before = requests()
    assert any(before == (before := requests()) for _ in range(20))


def test_a_handle_closed_tells_its_last_figures(url: str) -> None:
    db = siltstone.open(url)
    db[b"a"] = b"1"
    db.close()
    assert db.stats().durable_seq == 1
    reader = siltstone.open_reader(url)
    reader.close()
    with pytest.raises(siltstone.Closed):
        reader.stats()


def test_they_are_shown_as_tables(db) -> None:
    db[b"a"] = b"1" * 5000
    stats = db.stats()
    text = str(stats)
    groups = list(dict.fromkeys(group for _, group, *_ in TABLE))
    assert [
        line.strip() for line in text.splitlines() if line.startswith("  ") and line[2] != " "
    ] == groups
    line = next(line for line in text.splitlines() if "memtable_bytes" in line)
    assert line.split()[1] == f"{stats.memtable_bytes:,}"
    assert "KiB" in line
    page = stats._repr_html_()
    assert page.count("<tr") == len(TABLE) + len(groups)
    assert "<td>memtable_entries" in page.replace(' style="text-align:left"', "")


@pytest.mark.parametrize(
    ("unit", "value", "shown"),
    [
        ("rows", 1234567, "1,234,567"),
        ("bytes", 1023, "1,023"),
        ("bytes", 1536, "1,536 (1.5 KiB)"),
        ("bytes", 3 << 20, "3,145,728 (3.0 MiB)"),
        ("bytes", 5 << 30, "5,368,709,120 (5.0 GiB)"),
        ("bytes", 7 << 40, "7,696,581,394,432 (7.0 TiB)"),
        ("seconds", 1234.56, "1,234.6"),
    ],
)
def test_figures_are_shown_for_people(unit: str, value: float, shown: str) -> None:
    assert siltstone.stats.Figure("name", "group", unit, "meaning.", value).shown() == shown


def test_stats_are_plain_data(db) -> None:
    stats = db.stats()
    again = pickle.loads(pickle.dumps(stats))
    assert again == stats
    assert dataclasses.asdict(again)["epoch"] == 1
    with pytest.raises(dataclasses.FrozenInstanceError):
        stats.epoch = 2


SMALL = {
    "l0_sst_size_bytes": 4096,
    "l0_compaction_threshold_ssts": 2,
    "l0_manifest_commit_interval": 0,
    "target_sst_bytes": 65536,
}


def test_compactions_show_in_figures_and_in_the_log(url: str) -> None:
    with siltstone.open(url, options={**SMALL, "embedded_compactor": False}) as db:
        for number in range(6):
            db.put_many([b"%03d" % n for n in range(100)], [b"%050d" % number] * 100)
            db.flush()
        until(lambda: db.stats().l0_entries >= 6)
        full = db.stats()
        assert (full.l0_entries, full.read_amplification) == (6, 6)
        assert full.pending_compaction_bytes == full.table_bytes == full.flushed_bytes
        assert full.space_amplification == pytest.approx(6, rel=0.01)
        assert (full.write_amplification, full.compactions, full.compaction_log) == (1.0, 0, ())
        db.compact()
        done = db.stats()
    assert (done.compactions, done.compactions_running, done.compaction_failures) == (1, 0, 0)
    assert (done.read_amplification, done.space_amplification) == (1, 1.0)
    assert (done.pending_compaction_bytes, done.compaction_error) == (0, None)
    assert (done.compaction_read_rows, done.compaction_written_rows) == (600, 100)
    assert done.compaction_written_bytes == done.table_bytes
    assert done.compaction_read_bytes == full.table_bytes
    assert done.write_amplification == pytest.approx(7 / 6, rel=0.01)
    (entry,) = done.compaction_log
    assert (entry.why, entry.tables_in, entry.rows_in, entry.bytes_in) == (
        "major",
        6,
        600,
        full.table_bytes,
    )
    assert (entry.tables_out, entry.rows_out, entry.bytes_out) == (1, 100, done.table_bytes)
    assert entry.plan == "L0:6, L0:5, L0:4, L0:3, L0:2, L0:1 -> 0"
    assert entry.line.startswith(f"compacted {entry.plan} (major): 6 tables, 600 rows, ")
    assert entry.error is None
    assert entry.seconds == pytest.approx(done.compaction_seconds)
    assert entry.line in repr(entry)
    with siltstone.open_reader(url) as reader:
        seen = reader.stats()
    assert (seen.table_bytes, seen.read_amplification) == (done.table_bytes, 1)
    assert (seen.pending_compaction_bytes, seen.compaction_log) == (0, ())


def test_requests_have_a_price(url: str) -> None:
    with siltstone.open(url) as db:
        db.put(b"a", b"1").wait()
    with siltstone.open(url) as db:
        stats = db.stats()
    puts = stats.put_requests + stats.list_requests + stats.upload_chunks
    assert puts > 0
    assert stats.request_price == pytest.approx(
        puts / 1000 * 0.005 + stats.get_requests / 1000 * 0.0004
    )
    assert stats.storage_price_per_month == pytest.approx(stats.table_bytes / 2**30 * 0.023)
    other = stats.at_prices(per_1000_puts=1000, per_1000_gets=1, per_gib_month=2**10)
    assert other.request_price == pytest.approx(puts + stats.get_requests / 1000)
    assert other.storage_price_per_month == stats.table_bytes / 2**20 > 0
    assert other.table_bytes == stats.table_bytes


def test_prometheus_reads_every_figure(db) -> None:
    db[b"a"] = b"1"
    stats = db.stats()
    text = stats.to_prometheus({"database": 'a "quoted"\\\n', "role": "writer"})
    lines = text.splitlines()
    for at, (name, _, _, meaning, grows) in enumerate(TABLE):
        full = f"siltstone_{name}" + ("_total" if grows else "")
        assert lines[3 * at] == f"# HELP {full} {meaning}"
        assert lines[3 * at + 1] == f"# TYPE {full} {'counter' if grows else 'gauge'}"
        sample, value = lines[3 * at + 2].rsplit(" ", 1)
        assert sample == full + r'{database="a \"quoted\"\\\n",role="writer"}'
        assert float(value) == getattr(stats, name)
    series = [line for line in lines[3 * len(TABLE) :] if not line.startswith("#")]
    assert {re.split(r"\W", line)[0] for line in series} == {
        f"siltstone_{one.name}_{part}"
        for one in stats.latencies
        for part in ("bucket", "sum", "count")
    }
    assert "siltstone_epoch 1\n" in stats.to_prometheus()
    with pytest.raises(ValueError, match="not a valid label name"):
        db.stats().to_prometheus({"a b": "c"})
    with pytest.raises(ValueError, match="bounds of histograms"):
        db.stats().to_prometheus({"le": "c"})


def test_latencies_are_whole_histograms(url: str) -> None:
    with siltstone.open(url) as db:
        for turn in range(3):
            db.put(b"%d" % turn, b"v").wait()
        stats = db.stats()
        found = {one.name: one for one in stats.latencies}
        writes = found["durable_write_seconds"]
        assert writes.count == 3
        assert writes.below[0][0] == 2**10 / 1e9
        assert writes.below[-1][0] == 2**36 / 1e9
        counts = [count for _, count in writes.below]
        assert counts == sorted(counts)
        assert counts[-1] == 3
        assert 0 < writes.seconds < 60
        # Half of the durations are at or below the median, which lies between two bounds.
        median = stats.durable_write_seconds_p50
        assert next(count for bound, count in writes.below if bound > median) >= 2
        text = stats.to_prometheus()
        name = "siltstone_durable_write_seconds"
        assert f'{name}_bucket{{le="+Inf"}} 3' in text
        assert f"{name}_count 3" in text
        assert f"# TYPE {name} histogram" in text
        for one in stats.latencies:
            assert one.meaning.endswith(".")
    with siltstone.open_reader(url) as reader:
        assert {one.name for one in reader.stats().latencies} == set(found)


def test_the_collector_of_the_writer_is_counted(url: str) -> None:
    quick = {**SMALL, "gc": {"interval": 0.05, "min_age": 0}}
    with siltstone.open(url, options=quick) as db:
        for number in range(4):
            db.put_many([b"%03d" % n for n in range(100)], [b"%050d" % number] * 100)
            db.flush()
        db.compact()
        # The limit in bytes covers the four tables of about 5 KB each. A limit in objects would
        # not: objects of the log and manifests are deleted first and count as objects too.
        until(lambda: db.stats().gc_deleted_bytes >= 4 * 5000)
        stats = db.stats()
        assert stats.gc_rounds >= 1
        assert stats.gc_deleted_objects >= 4
        assert stats.gc_deleted_bytes >= 4 * 5000
        assert (stats.gc_failed_deletes, stats.delete_requests > 0) == (0, True)


def test_times_are_told(tmp_path) -> None:
    url = str(tmp_path / "db")
    opening = time.monotonic()
    with siltstone.open(url, options={"flush_interval": 0.05}) as db:
        began = time.monotonic()
        db.put(b"key", b"value").wait()
        took = time.monotonic() - began
        for _ in range(2_000):
            assert db[b"key"] == b"value"
        stats = db.stats()
        assert 0 < stats.durable_write_seconds_p50 <= stats.durable_write_seconds_p99
        assert stats.durable_write_seconds_p99 <= took * 1.125
        assert 0 < stats.cached_get_seconds_p50 < 0.001
        # Most PUTs are those of the opening.
        assert 0 < stats.put_request_seconds_p50 <= (time.monotonic() - opening) * 1.125
        assert stats.fetched_get_seconds_p99 == 0
        db.flush(memtable=True)
    with siltstone.open_reader(url, options={"block_cache_bytes": 0}) as reader:
        assert reader[b"key"] == b"value"
        assert reader.stats().list_request_seconds_p50 > 0
