"""Blocks that read one state, the names and the progress of jobs, and errors of tasks."""

from __future__ import annotations

import logging
import pathlib
import re
import time

import pyarrow as pa
import pytest

import siltstone
import siltstone.spark as kv
from pace_for_tests import quickest, until
from siltstone import admin, table
from siltstone.spark import _errors, _jobs, _pinned, _pins
from spark_versions_for_tests import CONNECT, SOURCES

pytest_plugins = ["spark_for_tests"]
pytestmark = pytest.mark.slow

classic = pytest.mark.skipif(CONNECT, reason="Connect has no context: no descriptions, no groups")


@pytest.fixture
def filled(url: str) -> str:
    with siltstone.open(url) as db:
        db.put_many([b"k/%02d" % n for n in range(20)], [b"old"] * 20)
    return url


def write(url: str) -> None:
    with siltstone.open(url) as db:
        db.put_many([b"k/%02d" % n for n in range(10, 30)], [b"new"] * 20)


def checkpoints(url: str) -> set[str]:
    return {one.id.hex for one in admin.list_checkpoints(url, processes=True)}


# --- blocks ---------------------------------------------------------------------------------------


def test_a_block_reads_one_state(spark, filled) -> None:
    before = checkpoints(filled)
    asked = spark.sql("SELECT 'k/15' AS key")
    with kv.pinned(spark, filled) as state:
        first = kv.scan(spark, filled)
        write(filled)
        assert kv.scan(spark, filled + "/").count() == first.count() == 20
        assert kv.count(filled) == 20
        assert kv.view(spark, "pinned", filled).where("value = binary('new')").count() == 0
        assert kv.lookup(asked, filled, key="key").first().value == b"old"
        later = admin.create_checkpoint(filled, lifetime=3600)
        assert kv.count(filled, checkpoint=later) == 30
        with kv.pinned(spark, filled):
            assert kv.count(filled) == 30
        with pytest.raises(siltstone.Invalid, match="max_staleness"):
            kv.lookup(asked, filled, key="key", max_staleness=1)
        # A merge matches the newest rows.
        rows = spark.sql("SELECT 'k/25' AS key, 'merged' AS value")
        assert kv.merge(rows, filled, key="key", when_not_matched=None).rows == 1
        assert kv.count(filled) == 20
        name = state.checkpoint.id.hex
        assert name in checkpoints(filled)
    assert kv.count(filled) == 30
    assert name not in checkpoints(filled)
    assert kv.release() == 0, "no frame was made outside of a block"
    admin.delete_checkpoint(filled, later)
    assert checkpoints(filled) == before


@SOURCES
def test_a_block_has_a_frame_of_the_format(spark, filled) -> None:
    with kv.pinned(spark, filled) as state:
        write(filled)
        assert state.load(prefix="k/1").count() == 10


LIFETIME = 600.0
"""Seconds of a pin that must outlive a machine that stalls."""


@pytest.fixture
def renewed_often(monkeypatch) -> None:
    """Pins of `LIFETIME` are renewed every 1.5 seconds."""
    monkeypatch.setattr(_pinned, "TRIES", 400)


@pytest.mark.usefixtures("renewed_often")
def test_a_block_is_renewed(spark, filled) -> None:
    with kv.pinned(spark, filled, lifetime=LIFETIME) as state:
        expires = state.checkpoint.expires
        until(lambda: state.checkpoint.expires > expires)
        assert kv.count(filled) == 20
    for wrong in (0, -1):
        with pytest.raises(siltstone.Invalid), kv.pinned(spark, filled, lifetime=wrong):
            pass
    with pytest.raises(siltstone.NotFound, match="bulk_load"), kv.pinned(spark, filled + "-no"):
        pass


@pytest.mark.usefixtures("renewed_often")
def test_a_renewal_that_fails_is_raised(spark, filled, monkeypatch, caplog) -> None:
    def refuses(*_, **__):
        raise siltstone.Denied("no right to renew")

    def refused() -> bool:
        try:
            kv.count(filled)
        except siltstone.Denied as error:
            return "no right" in str(error)
        return False

    block = kv.pinned(spark, filled, lifetime=LIFETIME)
    with pytest.raises(siltstone.Denied, match="no right"), block:
        with monkeypatch.context() as patch:
            patch.setattr(admin, "refresh_checkpoint", refuses)
            until(refused)
            with pytest.raises(siltstone.Denied, match="no right"):
                kv.scan(spark, filled)
        # A renewal that succeeds clears the error.
        until(lambda: not refused())
        monkeypatch.setattr(admin, "refresh_checkpoint", refuses)
        until(refused)
    assert "could not be renewed" in caplog.text
    # The error of the block itself is not replaced.
    with pytest.raises(KeyError), kv.pinned(spark, filled, lifetime=LIFETIME):
        until(refused)
        raise KeyError("of the block")


def test_pins_that_cannot_be_kept_are_told(filled, monkeypatch, caplog) -> None:
    reader, held = _pins.pinned_reader(filled, None)
    reader.close()
    one = next(kept for kept in _pins._keeper._kept if kept.checkpoint == held.checkpoint)

    def fails(*_, **__):
        raise siltstone.Unavailable("the store is away")

    with monkeypatch.context() as patch:
        patch.setattr(_pins, "pin", fails)
        _pins._keeper._renew(one)
        patch.setattr(admin, "delete_checkpoint", fails)
        assert kv.release() >= 1
    assert caplog.text.count("the store is away") >= 2
    siltstone.destroy(filled)


# --- counts ---------------------------------------------------------------------------------------


def test_the_count_of_a_scan_decodes_nothing(spark, url) -> None:
    schema = pa.schema([("id", pa.int64()), ("note", pa.string())])
    with table.create(url, schema, key=["id"]) as db:
        db.table.put([{"id": n, "note": "x"} for n in range(10)]).wait()
    # A value that no column can be decoded from.
    with siltstone.open(url) as db:
        stored = next(iter(db.scan(limit=1)))[0]
        db.put(stored, b"\xff").wait()
    frame = kv.scan(spark, url)
    assert frame.count() == kv.view(spark, "counted", url).count() == kv.count(url) == 10
    with pytest.raises(siltstone.Corruption), kv.worker_errors():
        # This count fills the cache.
        frame.cache().count()
    frame.unpersist()
    with pytest.raises(siltstone.Corruption), kv.worker_errors():
        frame.where("note = 'x'").count()


# --- names, progress and errors -------------------------------------------------------------------


@classic
def test_jobs_are_described_and_the_description_is_restored(spark, filled) -> None:
    context = spark.sparkContext
    seen: list[str | None] = []
    names = ("spark.job.description", "spark.jobGroup.id")

    def properties() -> list[str | None]:
        return [context.getLocalProperty(name) for name in names]

    before = properties()
    with _jobs.described(spark, "siltstone: load x"):
        seen += properties()
    assert seen[0] == "siltstone: load x"
    assert seen[1].startswith("siltstone-")
    assert properties() == before
    context.setJobGroup("mine", "nightly")
    try:
        with pytest.raises(ZeroDivisionError), _jobs.described(spark, "siltstone: load x"):
            assert properties() == ["nightly: siltstone: load x", "mine"]
            raise ZeroDivisionError
        assert properties() == ["nightly", "mine"]
        kv.bulk_load(
            spark.range(3).selectExpr("string(id) AS key", "'' AS value"), filled, key="key"
        )
        assert properties() == ["nightly", "mine"]
        assert context.statusTracker().getJobIdsForGroup("mine")
    finally:
        for name in _jobs.PROPERTIES:
            context.setLocalProperty(name, None)


@classic
def test_plans_name_what_tasks_do(spark, filled, capsys) -> None:
    kv.scan(spark, filled).explain()
    kv.lookup(spark.sql("SELECT 'a' AS key"), filled, key="key").explain()
    printed = capsys.readouterr().out
    assert "siltstone_scan" in printed
    assert "siltstone_lookup" in printed


@classic
def test_long_loads_tell_their_progress(spark, filled, monkeypatch, caplog, tmp_path) -> None:
    monkeypatch.setattr(_jobs, "INTERVAL", 0.1)
    told = str(tmp_path / "told")
    lines: list[str] = []

    class Lines(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            line = record.getMessage()
            if "tasks done" in line:
                lines.append(line)
                if re.search("; [1-3] parts? staged", line):
                    pathlib.Path(told).touch()

    def last_task_waits(batches):
        # The job goes on until a line has counted the other tasks.
        for batch in batches:
            while "s/3" in batch.column(0).to_pylist() and not pathlib.Path(told).exists():
                time.sleep(0.01)
            yield batch

    rows = spark.range(0, 4, 1, 4).selectExpr("concat('s/', id) AS key", "'x' AS value")
    rows = rows.mapInArrow(last_task_waits, rows.schema)
    handler = Lines()
    log = logging.getLogger("siltstone.spark")
    log.addHandler(handler)
    try:
        with caplog.at_level(logging.INFO, "siltstone.spark"):
            kv.bulk_load(rows, filled, key="key", layout="runs")
    finally:
        log.removeHandler(handler)
    assert all(line.startswith(f"siltstone: load {filled}: ") for line in lines)
    assert " of 4 tasks done" in lines[-1]
    counts = [re.search(r"; (\d) parts? staged, (\d) rows?, ", line).groups() for line in lines]
    assert all(parts == rows for parts, rows in counts)
    assert counts == sorted(counts)
    assert any("1" <= parts < "4" for parts, _ in counts)
    assert not _jobs.Parts(spark, "").sum.value


def test_errors_of_tasks_have_their_types(spark, filled) -> None:
    frame = spark.range(1).mapInArrow(_refuses, "n bigint")
    text = r"^no right to read sst/1; ask for it$"
    with pytest.raises(siltstone.Denied, match=text) as denied, kv.worker_errors():
        frame.collect()
    assert denied.value.__cause__ is not None
    with pytest.raises(ZeroDivisionError), kv.worker_errors():
        raise ZeroDivisionError
    broken = spark.sql("SELECT 'a' AS key, raise_error('mine') AS value")
    with pytest.raises(Exception, match="mine") as other:
        kv.bulk_load(broken.selectExpr("key", "string(value) AS value"), filled, key="key")
    assert not isinstance(other.value, siltstone.Error)


def _refuses(batches):
    for _ in batches:
        raise siltstone.Denied("no right to read sst/1; ask for it")
    yield from ()


def test_the_last_error_of_a_text_counts() -> None:
    text = (
        "Traceback (most recent call last):\nsiltstone.exceptions.Invalid: first\n\nDuring "
        "handling of the above exception, another exception occurred:\n\n"
        "siltstone.exceptions.Corruption: sst/7 differs; restore\n\n\tat org.apache.spark"
    )
    found = _errors.error_of(RuntimeError(text))
    assert type(found) is siltstone.Corruption
    assert str(found) == "sst/7 differs; restore"
    assert _errors.error_of(RuntimeError("siltstone.exceptions.Error_: x")) is None


def test_a_pin_is_renewed_until_it_succeeds(filled: str, monkeypatch) -> None:
    tries: list[float] = []

    def unanswered(*_: object) -> None:
        tries.append(time.monotonic())
        raise siltstone.Unavailable("the store does not answer")

    made = _pins.pin(filled, None, 60)
    monkeypatch.setattr(_pins, "LIFETIME", 4.0)
    monkeypatch.setattr(_pins, "pin", unanswered)

    def four_tries() -> float:
        tries.clear()
        keeper = _pins._Keeper()
        begun = time.monotonic()
        keeper.keep(_pins._Kept(filled, made, None))
        until(lambda: len(tries) >= 4)
        keeper._wake.set()
        assert keeper.release() == 1
        return tries[3] - begun

    quickest(four_tries, 4)
