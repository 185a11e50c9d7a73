"""OpenTelemetry's instruments and the engine's messages in `logging`; and that the documentation
lists every figure."""

from __future__ import annotations

import logging
import re
from pathlib import Path

import pytest

import siltstone
from pace_for_tests import until
from siltstone import _native, telemetry

ROOT = Path(__file__).resolve().parents[2]
SMALL = {
    "l0_sst_size_bytes": 16384,
    "max_memtable_bytes": 65536,
    "l0_compaction_threshold_ssts": 2,
    "l0_manifest_commit_interval": 0,
    "l0_max_ssts": 4,
}


def fill(db: siltstone.Database) -> None:
    """Writes three layers: one more than compaction leaves alone."""
    for number in range(3):
        db.put_many([b"%03d" % n for n in range(100)], [b"%0150d" % number] * 100)
        db.flush()


def test_every_figure_is_an_instrument(db) -> None:
    sdk = pytest.importorskip("opentelemetry.sdk.metrics")
    export = pytest.importorskip("opentelemetry.sdk.metrics.export")
    reader = export.InMemoryMetricReader()
    provider = sdk.MeterProvider(metric_readers=[reader])
    telemetry.observe(db, provider.get_meter("test"), attributes={"database": "one"})
    db[b"a"] = b"1"
    (of_meter,) = reader.get_metrics_data().resource_metrics[0].scope_metrics
    found = {metric.name: metric for metric in of_meter.metrics}
    table = _native.stat_table()
    assert set(found) == {f"siltstone.{name}" for name, *_ in table}
    for name, _, unit, meaning, grows in table:
        metric = found[f"siltstone.{name}"]
        assert metric.description == meaning
        assert metric.unit == telemetry.UNITS.get(unit, metric.unit)
        assert isinstance(metric.data, export.Sum if grows else export.Gauge)
        (point,) = metric.data.data_points
        assert dict(point.attributes) == {"database": "one"}
    assert found["siltstone.epoch"].data.data_points[0].value == 1
    assert found["siltstone.put_requests"].data.data_points[0].value >= 1
    provider.shutdown()


def test_instruments_of_a_closed_reader_fall_silent(url: str) -> None:
    sdk = pytest.importorskip("opentelemetry.sdk.metrics")
    export = pytest.importorskip("opentelemetry.sdk.metrics.export")
    siltstone.open(url).close()
    source = export.InMemoryMetricReader()
    provider = sdk.MeterProvider(metric_readers=[source])
    with siltstone.open_reader(url) as reader:
        telemetry.observe(reader, provider.get_meter("test"))
    data = source.get_metrics_data()
    assert data is None or not any(
        metric.data.data_points
        for resource in data.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
    )
    provider.shutdown()


def test_a_compaction_is_a_line_of_its_logger(url: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "siltstone")
    with siltstone.open(url, options=SMALL) as db:
        fill(db)
        until(lambda: db.stats().compaction_log)
        lines = [entry.line for entry in db.stats().compaction_log]

    def of_compactions() -> list[logging.LogRecord]:
        return [one for one in caplog.records if one.name == "siltstone.compaction"]

    until(lambda: len(of_compactions()) >= len(lines))
    said = of_compactions()
    assert [one.getMessage() for one in said][: len(lines)] == lines
    pattern = (
        r"compacted L0:\d+(, L0:\d+)*( \S+)* -> \d+ \([a-z0 ]+\): \d+ tables?, \d+ rows, "
        r"\d+\.\d MB in; \d+ tables?, \d+ rows, \d+\.\d MB out; \d+ moved, \d+ dropped; "
        r"\d+\.\d\d s, \d+\.\d MB/s"
    )
    assert re.fullmatch(pattern, lines[0])


def test_writes_that_stop_say_why(url: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "siltstone")
    # The memtable has room for all rows: only L0 stops a write here, even on a slow disk. The
    # deadline is for everything else.
    own = {"embedded_compactor": False, "max_memtable_bytes": 16 << 20, "deadline": 5.0}
    with siltstone.open(url, options={**SMALL, **own}) as db:
        with pytest.raises(siltstone.Timeout, match=r"L0 has 4 layers \(l0_max_ssts 4\)"):
            for _ in range(100):
                fill(db)
        stats, why = db.stats(), "writes are stopped: L0 has 4 layers"
        assert (stats.l0_entries, stats.pressure) == (4, 1.0)
        assert stats.stopped_writes >= 1
        assert stats.waited_for_memory_seconds == 0
        assert stats.waited_for_l0_seconds >= 1.0
        until(lambda: any(why in one.getMessage() for one in caplog.records))
        # Writes continue once L0 is short again.
        db.compact()
        fill(db)
    # Said again if the machine stalls for ten seconds.
    said, *_ = (one for one in caplog.records if why in one.getMessage())
    assert (said.name, said.levelname) == ("siltstone.pressure", "WARNING")
    assert "embedded_compactor is off" in said.getMessage()


def test_lines_are_told_to_the_last_at_exit(python, url: str) -> None:
    program = """
import logging, sys, siltstone
logging.basicConfig(format="%(name)s %(message)s", level=logging.INFO, stream=sys.stdout)
db = siltstone.open(sys.argv[1])
db[b"a"] = b"1"
db.compact()
"""
    status, out, errors = python(program, url)
    assert (status, errors) == (0, "")
    assert "siltstone.compaction compacted L0:1 -> 0 (major): " in out


def test_a_forked_child_speaks_too(python, url: str) -> None:
    program = """
import logging, os, sys, siltstone
logging.basicConfig(format="%(name)s %(message)s", level=logging.INFO, stream=sys.stdout)
parent = siltstone.open(sys.argv[1] + "/parent")
child = os.fork()
if not child:
    with siltstone.open(sys.argv[1] + "/child") as db:
        db[b"a"] = b"1"
        db.compact()
    sys.exit(0)
status = os.waitpid(child, 0)[1]
parent.close()
sys.exit(status)
"""
    status, out, _ = python(program, url)
    assert status == 0
    assert out.count("siltstone.compaction compacted L0:1 -> 0 (major): ") == 1


def test_the_documentation_has_every_figure() -> None:
    text = (ROOT / "docs" / "operations.md").read_text()
    section = text.split("## Metrics")[1].split("\n## ")[0]
    named = set(re.findall(r"`(\w+)`", section))
    assert named >= {name for name, *_ in _native.stat_table()}
