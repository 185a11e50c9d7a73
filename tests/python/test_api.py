"""The documented behaviour of the API, call by call."""

from __future__ import annotations

import contextlib
import pickle
import time
from array import array
from datetime import timedelta
from pathlib import Path

import pytest

import siltstone
from pace_for_tests import until
from siltstone import _native
from siltstone.options import (
    CompactorValues,
    GcValues,
    OptionValues,
    ReaderValues,
    WindowValues,
    WriteValues,
)

GROUPS = {
    "compactors": CompactorValues,
    "gc": GcValues,
    "readers": ReaderValues,
    "windows": WindowValues,
    "writes": WriteValues,
}


def test_a_database_is_a_mapping(db) -> None:
    db[b"b"] = b"2"
    db[b"a"] = b"1"
    assert db[b"a"] == b"1"
    assert db.get(b"a") == b"1"
    assert db.get(b"x") is None
    assert db.get(b"x", 7) == 7
    assert b"a" in db
    assert b"x" not in db
    assert list(db) == [b"a", b"b"]
    assert list(db.keys()) == [b"a", b"b"]
    assert list(db.values()) == [b"1", b"2"]
    assert list(db.items()) == [(b"a", b"1"), (b"b", b"2")]
    assert dict(db) == {b"a": b"1", b"b": b"2"}
    assert bool(db)
    del db[b"a"]
    assert b"a" not in db
    del db[b"a"]
    with pytest.raises(KeyError) as absent:
        db[b"a"]
    assert absent.value.args == (b"a",)


def test_a_length_would_be_a_lie(db) -> None:
    with pytest.raises(TypeError, match="every key"):
        len(db)


def test_a_commit_tells_its_place_and_when_it_is_durable(url: str) -> None:
    with siltstone.open(url, options={"flush_interval": 3600}) as db:
        first, second = db.put(b"a", b"1"), db.delete(b"a")
        assert second.seq == first.seq + 1
        assert not second.durable
        second.wait()
        assert second.durable
        assert first.durable
        first.wait(timeout=0)


def test_flush_makes_everything_before_it_durable(url: str) -> None:
    with siltstone.open(url, options={"flush_interval": 3600}) as db:
        commits = [db.put(b"%d" % i, b"v") for i in range(100)]
        db.flush()
        assert all(commit.durable for commit in commits)


def test_written_rows_are_there_after_opening_again(url: str) -> None:
    with siltstone.open(url) as db:
        db[b"k"] = b"v"
    with siltstone.open(Path(url), create=False) as db:
        assert db[b"k"] == b"v"


def test_memory_is_shared_in_the_process(memory_url: str) -> None:
    with siltstone.open(memory_url) as db:
        db[b"k"] = b"v"
    with siltstone.open(memory_url) as db:
        assert db[b"k"] == b"v"


@pytest.mark.parametrize(
    ("named", "expected"),
    [
        ({}, [0, 1, 2, 3, 4]),
        ({"start": b"k1"}, [1, 2, 3, 4]),
        ({"end": b"k3"}, [0, 1, 2]),
        ({"start": b"k1", "end": b"k3"}, [1, 2]),
        ({"start": b"k3", "end": b"k1"}, []),
        ({"start": b"k3", "end": b"k3"}, []),
        ({"start": b"", "end": b""}, []),
        ({"prefix": b"k"}, [0, 1, 2, 3, 4]),
        ({"prefix": b"k4"}, [4]),
        ({"prefix": b""}, [0, 1, 2, 3, 4]),
        ({"prefix": b"\xff"}, []),
        ({"limit": 0}, []),
        ({"limit": 2}, [0, 1]),
        ({"reverse": True}, [4, 3, 2, 1, 0]),
        ({"reverse": True, "limit": 2}, [4, 3]),
        ({"reverse": True, "start": b"k1", "end": b"k3"}, [2, 1]),
    ],
)
def test_scans_take_half_open_ranges(db, named, expected) -> None:
    for i in range(5):
        db[b"k%d" % i] = b"%d" % i
    assert list(db.scan(**named)) == [(b"k%d" % i, b"%d" % i) for i in expected]
    assert list(db.keys(**named)) == [b"k%d" % i for i in expected]
    assert list(db.values(**named)) == [b"%d" % i for i in expected]


def test_a_scan_is_pinned_when_it_is_made(db) -> None:
    db[b"a"] = b"1"
    scan = db.scan()
    db[b"a"] = b"2"
    db[b"b"] = b"2"
    assert list(scan) == [(b"a", b"1")]
    assert list(scan) == []


def test_a_closed_scan_yields_nothing_more(db) -> None:
    for i in range(10):
        db[b"%d" % i] = b"v"
    with db.scan() as scan:
        assert next(scan) == (b"0", b"v")
    assert list(scan) == []


def test_a_snapshot_does_not_change_and_outlives_the_database(memory_url: str) -> None:
    db = siltstone.open(memory_url)
    commit = db.put(b"a", b"1")
    snapshot = db.snapshot()
    db[b"a"] = b"2"
    db[b"b"] = b"2"
    assert snapshot.seq == commit.seq
    assert snapshot[b"a"] == b"1"
    assert b"b" not in snapshot
    assert snapshot.get_many([b"b", b"a"]) == [None, b"1"]
    assert dict(snapshot) == {b"a": b"1"}
    db.close()
    assert snapshot.get(b"a") == b"1"
    scan = snapshot.scan()
    with snapshot:
        pass
    with pytest.raises(siltstone.Closed):
        snapshot.get(b"a")
    assert list(scan) == [(b"a", b"1")]


@pytest.mark.parametrize("keys", [0, 1, 16, 17, 1000])
def test_get_many_answers_in_the_order_of_the_keys(cold, keys: int) -> None:
    asked = [b"key%05d" % ((i * 7919) % 2500) for i in range(keys)]
    expected = [b"value" + key[3:] if int(key[3:]) < 2000 else None for key in asked]
    assert cold.get_many(asked) == expected
    assert cold.get_many(iter(asked)) == expected
    assert cold.get_many(tuple(asked)) == expected


def test_cold_reads_wait_for_the_store(cold) -> None:
    assert cold.get(b"key00007") == b"value00007"
    assert cold.get(b"key9") is None
    assert b"key01999" in cold
    assert list(cold.keys(limit=3)) == [b"key00000", b"key00001", b"key00002"]
    assert [key for key, _ in cold.scan()] == [b"key%05d" % i for i in range(2000)]
    assert [key for key, _ in cold.scan(reverse=True)] == [
        b"key%05d" % i for i in range(1999, -1, -1)
    ]
    assert cold.stats().get_requests > 0


def test_a_batch_commits_when_its_block_ends_well(db) -> None:
    db[b"b"] = b"0"
    with db.batch() as batch:
        batch.put(b"a", b"1")
        batch.delete(b"b")
        assert b"a" not in db
        assert batch.commit is None
        assert len(batch) == 2
    assert dict(db) == {b"a": b"1"}
    batch.commit.wait()
    with pytest.raises(siltstone.Invalid, match="ended"):
        batch.put(b"c", b"1")


def test_a_batch_is_discarded_when_its_block_raises(db) -> None:
    with pytest.raises(ZeroDivisionError), db.batch() as batch:
        batch.put(b"a", b"1")
        1 / 0
    assert batch.commit is None
    assert list(db) == []


def test_a_batch_of_its_own_can_be_written_twice(db) -> None:
    batch = siltstone.WriteBatch()
    batch.put(b"a", b"1")
    assert batch.nbytes > 0
    first = db.write(batch)
    db[b"a"] = b"2"
    second = db.write(batch)
    assert second.seq > first.seq
    assert db[b"a"] == b"1"
    batch.clear()
    assert len(batch) == 0


def test_the_last_operation_on_a_key_wins(db) -> None:
    with db.batch() as batch:
        for i in range(10):
            batch.put(b"k", b"%d" % i)
    assert db[b"k"] == b"9"
    db.put_many([b"k", b"k"], [b"x", b"y"])
    assert db[b"k"] == b"y"


def test_put_many_takes_any_sequences(db) -> None:
    commit = db.put_many((b"a", bytearray(b"b")), iter([b"1", memoryview(b"2")]))
    commit.wait()
    assert dict(db) == {b"a": b"1", b"b": b"2"}
    db.put_many([b"%05d" % i for i in range(10_000)], [b"v" * 20] * 10_000)
    assert db[b"09999"] == b"v" * 20


def test_any_contiguous_buffer_is_a_key_and_is_copied(db) -> None:
    key = bytearray(b"key")
    db.put(key, memoryview(b"-value-")[1:6])
    key[:] = b"xxx"
    assert db.get(memoryview(b"key")) == b"value"
    numbers = array("i", [1, 2, 3])
    db[numbers] = b"numbers"
    assert db[numbers.tobytes()] == b"numbers"


def test_a_get_of_many_keys_keeps_its_deadline(memory_url: str) -> None:
    """All keys are in memory, so nothing but the number of keys takes long."""
    with siltstone.open(memory_url, options={"deadline": 0.1}) as db:
        db[b"a"] = b"1"

        def found() -> list[bytes | None] | None:
            # None: the machine stalled for longer than the deadline.
            with contextlib.suppress(siltstone.Timeout):
                return db.get_many([b"a", b"b"] * 50_000)
            return None

        assert until(found) == [b"1", None] * 50_000
        with pytest.raises(siltstone.Timeout, match="get_many"):
            db.get_many([b"a"] * 8_000_000)


def test_values_may_be_empty_and_large(db) -> None:
    db[b"empty"] = b""
    assert db[b"empty"] == b""
    assert b"empty" in db
    large = bytes(range(256)) * 4096 * 8
    db[b"large"] = large
    assert db[b"large"] == large
    assert list(db.scan(prefix=b"l")) == [(b"large", large)]


@pytest.mark.parametrize("ttl", [0.2, timedelta(milliseconds=200)])
def test_a_key_is_gone_after_its_time_to_live(db, ttl) -> None:
    db.put(b"a", b"1", ttl=ttl)
    db.put(b"b", b"1", ttl=timedelta(days=1))
    with db.batch() as batch:
        batch.put(b"c", b"1", ttl=ttl)
    assert set(db) <= {b"a", b"b", b"c"}
    assert b"b" in db
    time.sleep(0.3)
    assert list(db) == [b"b"]
    assert db.get_many([b"a", b"b", b"c"]) == [None, b"1", None]


def test_a_reader_sees_what_is_durable(url: str) -> None:
    with siltstone.open(url) as db, siltstone.open_reader(url) as reader:
        db.put(b"a", b"1").wait()
        reader.refresh()
        assert reader[b"a"] == b"1"
        assert reader.get_many([b"a", b"b"]) == [b"1", None]
        assert dict(reader) == {b"a": b"1"}
        assert b"b" not in reader
        assert reader.stats().visible_seq >= 1
        with pytest.raises(AttributeError):
            reader.put


def test_a_reader_follows_by_itself(url: str) -> None:
    with siltstone.open(url) as db:
        options = siltstone.Options(manifest_poll_interval=0.02)
        with siltstone.open_reader(url, options=options) as reader:
            db.put(b"a", b"1").wait()
            until(lambda: b"a" in reader)
            assert reader.get(b"a") == b"1"


def test_stats_and_metrics_have_the_same_figures(db) -> None:
    db.put(b"a", b"1").wait()
    stats, metrics = db.stats(), db.metrics()
    assert stats.epoch == 1
    assert stats.visible_seq == stats.durable_seq == 1
    assert stats.put_requests >= 1
    assert set(metrics) == {figure.name for figure in stats}
    assert all(isinstance(figure, float) for figure in metrics.values())


def test_the_manifest_is_plain_data(url: str) -> None:
    with siltstone.open(url) as db:
        assert siltstone.admin.manifest(url)["closed_cleanly"] is False
        db[b"a"] = b"1"
    state = siltstone.admin.manifest(url)
    assert state["closed_cleanly"] is True
    assert state["l0"][0]["tables"][0]["first_key"] == b"a"
    assert siltstone.admin.manifest(url, 1)["id"] == 1


def test_options_answer_defaults_and_compare(db) -> None:
    options = siltstone.Options(flush_interval=timedelta(milliseconds=250), flush_bytes=1 << 20)
    assert options.flush_interval == 0.25
    assert options.deadline == 30.0
    assert dict(options) == {"flush_interval": 0.25, "flush_bytes": 1 << 20}
    assert options == siltstone.Options(flush_interval=0.25, flush_bytes=1 << 20)
    assert options != siltstone.Options()
    assert repr(options) == "Options(flush_interval=0.25, flush_bytes=1048576)"
    with pytest.raises(AttributeError):
        options.flush_intervall


def test_every_option_is_documented() -> None:
    names: dict[str, list[str]] = {"": [*GROUPS], **{group: [] for group in GROUPS}}
    for name, _, default, span, _ in _native.option_table():
        group, _, own = name.rpartition(".")
        names[group].append(own)
        holder = getattr(siltstone.Options(), group) if group else siltstone.Options()
        for documented in (siltstone.Options, type(holder)):
            assert (name if documented is siltstone.Options else own) in documented.__doc__
            assert span in documented.__doc__
        assert getattr(holder, own) == default
    for group, own in names.items():
        typed = GROUPS.get(group, OptionValues)
        assert sorted(typed.__annotations__) == sorted(own)
    # A user has to look through all of them to find the right one. Three are the disk cache's.
    assert len(OptionValues.__annotations__) <= 41


def test_a_group_of_options_is_one_object_or_a_dict(tmp_path: Path) -> None:
    windows = siltstone.Windows(by="key", prefix_bytes=4, keep=9)
    whole = siltstone.Options(compaction_scheduler="time_window", windows=windows)
    named = {"by": "key", "prefix_bytes": 4, "keep": 9}
    assert whole == siltstone.Options(compaction_scheduler="time_window", windows=named)
    assert whole.windows == named == dict(whole)["windows"]
    assert (whole.windows.by, whole.windows.max_runs, whole.gc.min_age) == ("key", 4, 300.0)
    assert (
        repr(siltstone.Options(gc=siltstone.Gc(min_age="1h"))) == "Options(gc=Gc(min_age=3600.0))"
    )
    assert hash(whole) == hash(pickle.loads(pickle.dumps(whole)))
    assert pickle.loads(pickle.dumps(whole)) == whole
    # Dotted names work where only plain names are possible.
    assert siltstone.Options(**{"gc.min_age": 1, "gc.interval": 2}) == siltstone.Options(
        gc={"min_age": 1, "interval": 2}
    )
    for options in (whole, dict(whole), {**whole, "windows": windows}):
        with siltstone.open(tmp_path / "db", options=options) as db:
            db[b"0001"] = b"1"


def test_everything_exported_exists() -> None:
    for name in siltstone.__all__:
        assert getattr(siltstone, name) is not None
    for name in siltstone.admin.__all__:
        assert callable(getattr(siltstone.admin, name))
