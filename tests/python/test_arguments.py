"""Arguments of methods that are numbers: sizes and durations as text, and numbers out of range."""

from __future__ import annotations

import io
import socket
from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import siltstone
from aio_for_tests import run
from siltstone import admin, aio, changes, compaction, ingest, lsm
from siltstone import spark as kv
from siltstone._open import _store
from siltstone.spark import _matching, _options, _stream
from siltstone.spark._arguments import MOST_TASKS


@pytest.fixture
def filled(url: str) -> str:
    """A database with a few rows, without an open handle."""
    with siltstone.open(url) as db:
        db.put_many([b"key%d" % n for n in range(100)], [b"v" * 100] * 100).wait()
    return url


# --- Sizes as text --------------------------------------------------------------------------------


def test_a_scratch_folder_must_exist(url: str, tmp_path: Path) -> None:
    rows = pa.table({"key": [b"k"], "value": [b"v"]})
    (tmp_path / "file").write_bytes(b"")
    with siltstone.open(url) as db:
        for scratch in (tmp_path / "none", tmp_path / "file"):
            with pytest.raises(siltstone.Invalid, match="scratch is no folder"):
                db.load(rows, scratch=scratch)
            with pytest.raises(siltstone.Invalid, match="scratch is no folder"):
                lsm.SstWriter(tmp_path / "a.sst", sort=True, scratch=scratch)
        assert db.load(rows, scratch=tmp_path).rows == 1


def test_references_to_objects_are_no_bytes(url: str) -> None:
    with siltstone.open(url) as db:
        for value in (np.array([1, "a"], dtype=object), pd.Series(["a"]).to_numpy(dtype=object)):
            with pytest.raises(TypeError, match="references to Python objects"):
                db.put(b"k", value)
        db.put(b"k", np.array([1, 2], dtype="<u2"))
        assert db[b"k"] == b"\x01\x00\x02\x00"


@pytest.mark.parametrize(
    "number", [np.int64(256), np.uint8(7), np.float32(1.5), np.datetime64("2026-01-01")]
)
def test_a_number_of_numpy_is_no_key(url: str, number: np.generic) -> None:
    with siltstone.open(url) as db:
        for call in (
            lambda: db.put(number, b"v"),
            lambda: db.put(b"k", number),
            lambda: db.get_many(np.array([number])),
            lambda: db.put_many(np.array([number]), [b"v"]),
        ):
            with pytest.raises(TypeError, match="number of NumPy"):
                call()
        db.put(np.bytes_(b"k"), np.array([1.5]))
        assert list(db) == [b"k"]


@pytest.mark.parametrize(
    "wrong", [{b"a", b"b"}, frozenset([b"a"]), {b"a": b"b"}, MappingProxyType({b"a": b"b"})]
)
def test_keys_and_values_without_an_order_are_not_paired(filled: str, wrong: Any) -> None:
    rows = [b"v"] * len(wrong)
    with siltstone.open(filled) as db, ingest.Job(filled).writer(0) as writer:
        memtable, table = lsm.MemTable(), lsm.SstWriter(io.BytesIO())
        calls: list[Callable[[Any, Any], object]] = [
            db.put_many,
            writer.add_many,
            writer.merge_many,
            memtable.put_many,
            table.add_many,
        ]
        for call in calls:
            for keys, values in ((wrong, rows), (rows, wrong)):
                with pytest.raises(TypeError, match="expected a sequence"):
                    call(keys, values)
        # A look-up pairs nothing by itself, and the views of one dict have one order.
        assert len(db.get_many(wrong)) == len(wrong)
        views = {b"x": b"1", b"y": b"2"}
        db.put_many(views.keys(), views.values())
        assert db.get_many([b"y", b"x"]) == [b"2", b"1"]
        assert writer.rows == 0
        writer.discard()


def test_checkpoints_are_hashable_and_take_any_mapping(url: str) -> None:
    with siltstone.open(url) as db:
        made = db.checkpoint(metadata=MappingProxyType({"why": "test"}))
        assert made.metadata == {"why": "test"}
        assert {made, made} == {made}
        for lifetime in (float("inf"), 1e300):
            with pytest.raises(siltstone.Invalid, match="below 2"):
                db.checkpoint(lifetime=lifetime)
        with pytest.raises(siltstone.Invalid, match="0 seconds or more"):
            db.checkpoint(lifetime=-1)


def test_a_consumer_takes_its_size_as_text(filled: str) -> None:
    changes.begin(filled, consumer="a", since="oldest", most_bytes="1GiB")
    changes.begin(filled, consumer="b", since="oldest", most_bytes=1 << 20)
    held = {one.name: one.most_bytes for one in changes.consumers(filled)}
    assert held == {"a": 1 << 30, "b": 1 << 20}


def test_a_consumer_of_a_loop_takes_its_size_as_text(filled: str) -> None:
    async def begins() -> None:
        async with aio.open_reader(filled) as reader:
            await reader.changes(consumer="a", since="oldest", most_bytes="2MiB")

    run(begins())
    assert [one.most_bytes for one in changes.consumers(filled)] == [2 << 20]


def test_reads_of_the_feed_take_sizes_as_text(filled: str) -> None:
    start = changes.begin(filled, since="oldest")
    token = start.token
    assert len(start.read(bytes="1KiB")) == 100
    assert changes.plan(filled, token, bytes="1KiB") == start.token
    start.batch_bytes = "1MiB"
    assert start.read() is None

    async def reads() -> int:
        async with aio.open_reader(filled) as reader:
            feed = await reader.changes(since=token)
            return len(await feed.read(bytes="1KiB"))

    assert run(reads()) == 100


def test_jobs_take_sizes_as_text(filled: str) -> None:
    job = ingest.Job(filled)
    with job.writer(0, sort_memory_bytes="2MiB", table_bytes="1KiB") as writer:
        writer.add_many([b"%04d" % n for n in range(100)], [b"v" * 100] * 100)
    assert writer.finish().tables > 1
    with pytest.raises(siltstone.Invalid, match="memory_bytes must be 67108864 or more"):
        job.load(1, [], memory_bytes="1MiB")
    assert job.load(1, [], memory_bytes="64MiB").rows == 0


def test_handles_take_sizes_as_text(filled: str, tmp_path: Path) -> None:
    rows = pa.table({"key": [b"a"], "value": [b"b"]})
    with siltstone.open(filled) as db:
        assert db.changes(consumer="a", since="oldest", most_bytes="1GiB").read() is not None
        assert db.load(rows, memory_bytes="64MiB").rows == 1
        with pytest.raises(siltstone.Invalid, match="memory_bytes must be 67108864 or more"):
            db.load(rows, memory_bytes="1MiB")
        with pytest.raises(TypeError, match=r"memory_bytes must be a number .* not float"):
            db.load(rows, memory_bytes=1.5)
        with siltstone.open_reader(filled) as reader:
            reader.changes(consumer="b", since="oldest", most_bytes="2GiB")
    assert [one.most_bytes for one in changes.consumers(filled)] == [1 << 30, 2 << 30]

    async def loads() -> int:
        async with aio.open(filled) as db:
            return (await db.load(rows, memory_bytes="64MiB")).rows

    assert run(loads()) == 1
    with lsm.SstWriter(tmp_path / "rows.sst", sort_memory_bytes="2MiB") as writer:
        writer.add(b"a", b"b")
    with pytest.raises(siltstone.Invalid, match="sort_memory_bytes is not a size"):
        lsm.SstWriter(tmp_path / "rows.sst", sort_memory_bytes="2MB")


def test_a_plan_and_a_probe_take_sizes_as_text(filled: str) -> None:
    with compaction.plan(filled, unit_bytes="64MiB") as plan:
        assert plan.compactions or plan.units is not None
    assert admin.probe(filled, rounds=1, largest_object="2KiB").largest_object == 2048


def test_options_of_spark_take_sizes_as_text(filled: str) -> None:
    assert _stream.followed({"path": filled, "maxbytespertrigger": "2MiB"}).bytes == 2 << 20
    assert _options.byte_count({"targetSstBytes": "5000"}, "targetSstBytes") == 5000
    with pytest.raises(siltstone.Invalid, match="targetSstBytes must be 1 or more"):
        _options.byte_count({"targetSstBytes": "0"}, "targetSstBytes")


@pytest.mark.parametrize("wrong", ["much", "-1", "1GB", "10s"])
def test_text_that_is_no_size_is_refused_by_name(filled: str, wrong: str) -> None:
    feed = changes.begin(filled, since="oldest")
    job = ingest.Job(filled)
    calls = {
        "most_bytes": lambda: changes.begin(filled, consumer="a", most_bytes=wrong),
        "bytes": lambda: feed.read(bytes=wrong),
        "sort_memory_bytes": lambda: job.writer(0, sort_memory_bytes=wrong),
        "table_bytes": lambda: job.writer(0, table_bytes=wrong),
        "memory_bytes": lambda: job.load(0, [], memory_bytes=wrong),
        "unit_bytes": lambda: compaction.plan(filled, unit_bytes=wrong),
        "largest_object": lambda: admin.probe(filled, largest_object=wrong),
    }
    for name, call in calls.items():
        with pytest.raises(siltstone.Invalid, match=f"^{name} is not a size: '{wrong}'"):
            call()


@pytest.mark.parametrize("wrong", [1.5, True, timedelta(1), b"1GiB"])
def test_another_type_than_a_size_is_refused_by_name(filled: str, wrong: object) -> None:
    feed = changes.begin(filled, since="oldest")
    kind = type(wrong).__name__
    for name, call in {
        "most_bytes": lambda: changes.begin(filled, consumer="a", most_bytes=wrong),
        "bytes": lambda: feed.read(bytes=wrong),
        "unit_bytes": lambda: compaction.plan(filled, unit_bytes=wrong),
    }.items():
        with pytest.raises(TypeError, match=f"^{name} must be a number of bytes, .*, not {kind}$"):
            call()


# --- Durations ------------------------------------------------------------------------------------


@pytest.mark.parametrize("given", [timedelta(hours=1), 3600, 3600.0, "1h", "3600", "30min 30min"])
def test_methods_take_durations_in_each_form(filled: str, given: object) -> None:
    made = admin.create_checkpoint(filled, lifetime=given)
    assert abs((made.expires - made.created).total_seconds() - 3600) < 1
    made = admin.refresh_checkpoint(filled, made, lifetime=given)
    admin.gc(filled, dry_run=True, min_age=given, db_delete_grace=given)
    changes.begin(filled, consumer="a", since="oldest", lifetime=given)
    ingest.Job(filled, lifetime=given)
    with siltstone.open(filled) as db:
        db.put(b"key", b"value", ttl=given).wait(given)
        db.checkpoint(lifetime=given)


def test_a_pinned_state_takes_its_lifetime_as_text(filled: str) -> None:
    session = SimpleNamespace(createDataFrame=print)
    with kv.pinned(session, filled, lifetime="2h") as state:
        left = state.checkpoint.expires - state.checkpoint.created
        assert abs(left.total_seconds() - 7200) < 1
    for wrong in ("0s", "soon", -1):
        with pytest.raises(siltstone.Invalid), kv.pinned(session, filled, lifetime=wrong):
            pass


# --- Numbers out of range -------------------------------------------------------------------------

HUGE = 1 << 70


def calls(url: str) -> dict[str, Callable[[Any], object]]:
    """Calls with one whole number, by the name of the argument and of the call."""
    feed = changes.begin(url, since="oldest")
    reader = siltstone.open_reader(url)
    job = ingest.Job(url)
    frame, session = SimpleNamespace(mapInArrow=print), SimpleNamespace(createDataFrame=print)
    prepared = _matching.PreparedFrame(frame, [], {})

    def looped(function: Callable[[], Awaitable[Any]]) -> Any:
        async def works() -> Any:
            return await function()

        return run(works())

    return {
        "version of open_reader": lambda n: siltstone.open_reader(url, version=n),
        "version of aio": lambda n: looped(lambda: aio.open_reader(url, version=n)),
        "id of manifest": lambda n: admin.manifest(url, n),
        "workers of compact": lambda n: admin.compact(url, workers=n),
        "workers of run_compactor": lambda n: admin.run_compactor(url, workers=n),
        "unit_bytes of plan": lambda n: compaction.plan(url, unit_bytes=n),
        "rounds of probe": lambda n: admin.probe(url, rounds=n),
        "largest_object of probe": lambda n: admin.probe(url, rounds=1, largest_object=n),
        "most_bytes of changes": lambda n: reader.changes(consumer="a", most_bytes=n),
        "most_bytes of begin": lambda n: changes.begin(url, consumer="a", most_bytes=n),
        "rows of read": lambda n: feed.read(n),
        "rows of rows": lambda n: feed.rows(n),
        "bytes of read": lambda n: feed.read(bytes=n),
        "rows of plan": lambda n: changes.plan(url, feed.token, rows=n),
        "bytes of plan": lambda n: changes.plan(url, feed.token, bytes=n),
        "table_bytes of writer": lambda n: job.writer(0, table_bytes=n),
        "sort_memory_bytes of writer": lambda n: job.writer(0, sort_memory_bytes=n),
        "memory_bytes of load": lambda n: job.load(0, [], memory_bytes=n),
        "attempts of retry": lambda n: siltstone.retry(None, print, attempts=n),
        "attempts of aio": lambda n: looped(lambda: aio.retry(None, print, attempts=n)),
        "partitions of scan": lambda n: kv.scan(session, url, partitions=n),
        "partitions of bulk_load": lambda n: prepared.arranged("range", n),
        "limit of lookup": lambda n: kv.lookup(frame, url, key="k", prefix=True, limit=n),
        "target_sst_bytes of bulk_load": lambda n: kv.bulk_load(
            frame, url, key="k", target_sst_bytes=n
        ),
        "numPartitions": lambda n: _options.number(
            {"numPartitions": str(n)}, "numPartitions", most=MOST_TASKS
        ),
        "versionAsOf": lambda n: _options.number({"versionAsOf": str(n)}, "versionAsOf"),
    }


@pytest.mark.parametrize("wrong", [-1, HUGE, -HUGE])
def test_a_number_out_of_range_is_refused_by_name(filled: str, wrong: int) -> None:
    for name, call in calls(filled).items():
        with pytest.raises(siltstone.Invalid) as refused:
            call(wrong)
        assert str(refused.value).startswith(f"{name.split()[0]} must be "), name
        assert isinstance(refused.value, ValueError), name


@pytest.mark.parametrize("wrong", [1.5, True, b"1"])
def test_another_type_than_a_number_is_refused_by_name(filled: str, wrong: object) -> None:
    for name, call in calls(filled).items():
        # Spark passes texts, and sizes of writers are checked by the compiled module.
        if name in ("numPartitions", "versionAsOf"):
            continue
        with pytest.raises(TypeError, match=f"^{name.split()[0]} must be a"):
            call(wrong)


def test_numbers_of_numpy_are_numbers(filled: str) -> None:
    newest = admin.manifest(filled)["id"]
    assert admin.manifest(filled, np.int64(newest))["id"] == newest
    siltstone.open_reader(filled, version=np.uint8(newest)).close()
    assert changes.begin(filled, since="oldest").read(np.int32(1)) is not None


def test_attributes_of_a_feed_are_checked_by_name(filled: str) -> None:
    feed = changes.begin(filled, since="oldest")
    feed.batch_rows = -1
    with pytest.raises(siltstone.Invalid, match=r"^batch_rows must be 1 or more"):
        feed.read()
    feed.batch_rows, feed.batch_bytes = 10, "much"
    with pytest.raises(siltstone.Invalid, match=r"^batch_bytes is not a size"):
        feed.read()


def test_a_transaction_is_tried_thousands_of_times(db, monkeypatch) -> None:
    monkeypatch.setattr("time.sleep", lambda _: None)
    tries = 0

    def conflicts(_transaction) -> int:
        nonlocal tries
        tries += 1
        if tries < 2000:
            raise siltstone.Conflict("again")
        return tries

    assert siltstone.retry(db, conflicts, attempts=1 << 63) == 2000


# --- Store options --------------------------------------------------------------------------------


@pytest.fixture
def absent():
    """Store options of a server that does not exist."""
    with socket.socket() as bound:
        # It does not listen, and no other process gets the port.
        bound.bind(("127.0.0.1", 0))
        place = f"http://127.0.0.1:{bound.getsockname()[1]}"
        yield {"endpoint": place, "access_key_id": "id", "secret_access_key": "secret"}


def test_a_store_takes_durations_in_each_form(absent: dict) -> None:
    given = {
        "timeout": timedelta(seconds=2.5),
        "connect_timeout": 2.5,
        "pool_idle_timeout": 3,
        "read_timeout": "2.5",
        "http2_keep_alive_interval": "1m 30s",
        "http2_keep_alive_timeout": "250ms",
        "AWS_TIMEOUT": np.float32(2.5),
    }
    # The request fails only after all options were accepted.
    for options in (absent | given, lambda: absent | given):
        with pytest.raises(siltstone.Unavailable, match="no connection"):
            siltstone.open_reader("s3://bucket/db", store_options=options)


def test_durations_of_store_options_become_text() -> None:
    given = {"timeout": timedelta(seconds=2.5), "wal_timeout": 90, "connect_timeout": 0.0001}
    assert _store(given) == {
        "timeout": "2s 500ms",
        "wal_timeout": "90s 0ms",
        "connect_timeout": "0s 1ms",
    }
    assert _store({"region": "r", "allow_http": True, "pool_max_idle_per_host": 8}) == {
        "region": "r",
        "allow_http": True,
        "pool_max_idle_per_host": 8,
    }
    assert _store({"ca_bundle": Path("certificates")}) == {"ca_bundle": "certificates"}
    provided = _store(lambda: {"timeout": 5})
    assert provided == provided.renewed() == {"timeout": "5s 0ms"}
    assert _store(provided) is provided


@pytest.mark.parametrize("wrong", [-1, -2.5, "-3", float("inf"), float("nan"), timedelta(-1)])
def test_a_wrong_duration_of_a_store_is_refused_by_name(absent: dict, wrong: object) -> None:
    with pytest.raises(siltstone.Invalid, match="store option 'connect_timeout'"):
        siltstone.open_reader("s3://bucket/db", store_options=absent | {"connect_timeout": wrong})
    with pytest.raises(TypeError, match=r"store option 'timeout' is a timedelta, .*, not bool"):
        siltstone.open_reader("s3://bucket/db", store_options=absent | {"timeout": True})


# --- Types of arguments ---------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["create", "take_over", "shared", "allow_ingest_behind"])
def test_open_names_the_argument_of_a_wrong_type(memory_url: str, name: str) -> None:
    wanted = "a bool or None" if name == "take_over" else "a bool"
    text = f"^{name} must be {wanted}, not str$"
    with pytest.raises(TypeError, match=text):
        siltstone.open(memory_url, **{name: "no"})

    async def opens() -> None:
        await aio.open(memory_url, **{name: "no"})

    with pytest.raises(TypeError, match=text):
        run(opens())


def test_a_checkpoint_names_the_argument_of_a_wrong_type(filled: str) -> None:
    wrong: dict[str, Any] = {"name": 5, "scope": 5, "force_flush": "no", "metadata": 5}

    async def makes(given: dict[str, Any]) -> None:
        async with aio.open(filled) as db:
            await db.checkpoint(**given)

    for name, value in wrong.items():
        with pytest.raises(TypeError, match=f"^{name} must be a"):
            run(makes({name: value}))
    for name in ("name", "metadata"):
        with pytest.raises(TypeError, match=f"^{name} must be a"):
            admin.create_checkpoint(filled, **{name: 5})


def test_names_of_options_are_text(memory_url: str) -> None:
    for options in ({5: 1}, {"gc": {5: 1}}):
        with pytest.raises(TypeError, match=r"^the name of an option must be a str, not int$"):
            siltstone.open(memory_url, options=options)
    with pytest.raises(TypeError, match=r"^the name of a store option must be a str, not int$"):
        siltstone.open(memory_url, store_options={5: "secret"})


def test_a_feed_names_the_argument_of_a_wrong_type(filled: str) -> None:
    for name in ("consumer", "until"):
        with pytest.raises(TypeError, match=f"^{name} must be a str or None, not int$"):
            changes.begin(filled, since="oldest", **{name: 5})


def test_a_clone_names_the_argument_of_a_wrong_type(filled: str, tmp_path: Path) -> None:
    place = str(tmp_path / "clone")
    with pytest.raises(TypeError, match=r"^start: .*encode"):
        siltstone.clone(place, parent=filled, start="a")
    with pytest.raises(TypeError, match=r"^end: .*int"):
        siltstone.clone(place, parent=filled, end=5)
    with pytest.raises(TypeError, match=r"^end of the parent .*: .*encode"):
        siltstone.clone(place, parent=siltstone.Parent(filled, end="a"))
    siltstone.clone(place, parent=filled, start=bytearray(b"key5"), end=memoryview(b"key6"))
    with siltstone.open_reader(place) as reader:
        assert len(list(reader.keys())) == 11


def test_a_job_names_the_argument_of_a_wrong_type(filled: str) -> None:
    job = ingest.Job(filled)
    with pytest.raises(TypeError, match=r"^sorted must be a bool, not str$"):
        job.load(0, [], sorted="yes")
    with pytest.raises(TypeError, match=r"^duplicates must be a str, not int$"):
        job.load(0, [], duplicates=5)
    with pytest.raises(TypeError, match=r"^worker must be a bool, not str$"):
        admin.run_compactor(filled, worker="yes")


@pytest.mark.parametrize(
    "name",
    [
        "max_space_amplification",
        "max_wal_puts_per_second",
        "flush_bytes",
        "l0_max_ssts",
        "compression",
        "windows.keep",
    ],
)
def test_a_duration_is_taken_only_where_one_is_meant(memory_url: str, name: str) -> None:
    group, _, own = name.rpartition(".")
    options: dict[str, Any] = {own: timedelta(seconds=5)}
    with pytest.raises(siltstone.Invalid, match="the option is not a duration") as raised:
        siltstone.open(memory_url, options={group: options} if group else options)
    assert raised.value.context["option"] == name
