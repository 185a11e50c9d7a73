"""The state that a frame shows: selected by its options, within the bounds in its options."""

from __future__ import annotations

import re
import time
from datetime import UTC, date, datetime, timedelta

import pyarrow as pa
import pytest

import siltstone
import siltstone.spark as kv
from siltstone import admin, table
from siltstone.spark._history import at_time
from spark_versions_for_tests import SOURCES

pytest_plugins = ["spark_for_tests"]
pytestmark = [pytest.mark.slow, SOURCES]


@pytest.fixture
def live(url: str):
    """A writer whose 100 rows are only in the log."""
    with siltstone.open(url) as db:
        db.put_many([b"%03d" % n for n in range(100)], [b"v"] * 100).wait()
        yield db, url
    kv.release()


def read(spark, url: str, **options):
    frame = spark.read.format("siltstone").options(**options).load(url)
    # Through Connect a frame is planned at the first question about it.
    assert frame.columns
    return frame


def rewrite(db, url: str) -> None:
    """Replaces all tables and deletes all objects that are no longer needed."""
    for turn in range(2):
        db.put_many([b"%03d" % n for n in range(50)], [b"%d" % turn] * 50)
        db.delete_range(b"050")
        db.flush(memtable=True)
        db.compact()
    admin.gc(url, min_age=0)


def test_a_frame_of_now_has_what_load_has(spark, live) -> None:
    db, url = live
    for _ in range(2):
        now = datetime.now(UTC).isoformat()
        frames = [
            read(spark, url),
            read(spark, url, timestampAsOf=now),
            read(spark, url, versionAsOf=admin.versions(url)[-1].id),
        ]
        assert [frame.count() for frame in frames] == [100, 100, 100]
        db.flush(memtable=True)
    db.put(b"later", b"v").wait()
    later = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
    assert read(spark, url, timestampAsOf=later).count() == 101


def test_the_newest_version_has_what_is_durable(spark, live) -> None:
    db, url = live
    assert read(spark, url, versionAsOf=admin.versions(url)[-1].id).count() == 100
    db.put(b"in the log", b"v").wait()
    newest = admin.versions(url)[-1].id
    assert read(spark, url, versionAsOf=newest).count() == 101
    db.put(b"later", b"v").wait()
    # There is a newer version now, and this one keeps its state.
    assert read(spark, url, versionAsOf=newest).count() == 101
    assert read(spark, url).count() == 102


def test_a_frame_of_a_version_outlives_its_tables(spark, live) -> None:
    db, url = live
    db.flush(memtable=True)
    versions = [admin.versions(url)[-1].id]
    admin.create_checkpoint(url)
    versions.append(admin.versions(url)[-1].id)
    frames = [read(spark, url, versionAsOf=version) for version in versions]
    frames.append(read(spark, url, timestampAsOf=datetime.now(UTC).isoformat()))
    rewrite(db, url)
    assert [frame.count() for frame in frames] == [100, 100, 100]
    assert read(spark, url).count() == 50


def test_a_version_that_a_checkpoint_keeps_can_be_read(spark, live) -> None:
    db, url = live
    kept = admin.create_checkpoint(url)
    rewrite(db, url)
    frame = read(spark, url, versionAsOf=kept.manifest_id)
    admin.delete_checkpoint(url, kept)
    admin.gc(url, min_age=0)
    assert frame.count() == 100
    with pytest.raises(Exception, match="NotFound"):
        read(spark, url, versionAsOf=10_000)


def test_a_frame_of_a_moment_has_all_rows_of_it_or_is_refused(spark, live) -> None:
    db, url = live
    at_100 = datetime.now(UTC)
    time.sleep(0.05)
    db.put_many([b"more/%d" % n for n in range(10)], [b"v"] * 10).wait()
    # The log holds both states: no version ends between them.
    with pytest.raises(Exception, match="lay in the log beside later ones"):
        read(spark, url, timestampAsOf=at_100.isoformat())
    db.flush(memtable=True)
    at_110 = datetime.now(UTC)
    time.sleep(0.05)
    db.put(b"last", b"v").wait()
    frame = read(spark, url, timestampAsOf=at_110.isoformat())
    assert frame.count() == 110
    assert read(spark, url).count() == 111
    rewrite(db, url)
    assert frame.count() == 110


def test_a_moment_whose_log_is_gone_names_the_version_that_is_shown(live, caplog) -> None:
    db, url = live
    db.flush(memtable=True)
    shown = admin.versions(url)[-1]
    db.put(b"by then", b"v").wait()
    moment = datetime.now(UTC).isoformat()
    time.sleep(0.05)
    at_time(url, moment, None, 60)
    assert not caplog.records  # The log is exact.
    db.put(b"last", b"v").wait()
    db.flush(memtable=True)
    later = admin.versions(url)[-1]
    place = at_time(url, moment, None, 60)
    (record,) = caplog.records
    assert f"shows version {shown.id}, of {shown.time.isoformat()}" in record.getMessage()
    assert f"with version {later.id}, of" in record.getMessage()
    (seq,) = {one.seq for one in admin.versions(url) if one.id == place.version}
    assert seq == shown.seq


def test_a_moment_before_all_versions_names_the_oldest(spark, live) -> None:
    _, url = live
    oldest = admin.versions(url)[0]
    wanted = f"the oldest that is kept is version {oldest.id}, of {oldest.time.isoformat()}"
    with pytest.raises(Exception, match=re.escape(wanted)):
        read(spark, url, timestampAsOf="2001-01-01T00:00:00+00:00")


def test_refused_frames_leave_one_checkpoint_at_most(spark, live) -> None:
    _, url = live
    before = len(admin.list_checkpoints(url, processes=True))
    for options in ({"timestampAsOf": "2001-01-01T00:00:00+00:00"}, {"start": "hex:1"}):
        with pytest.raises(Exception, match=r"siltstone\.exceptions"):
            read(spark, url, **options)
    # The pin of the newest state, shared with the next frame of this state.
    assert len(admin.list_checkpoints(url, processes=True)) <= before + 1


KEYS = {
    "text": (pa.string(), ["a", "b", "hex:62", None], "b", ["b", "hex:62"]),
    "number": (pa.int32(), [-5, 7, 100, None], "7", [7, 100]),
    "day": (pa.date32(), [date(1969, 1, 1), date(2026, 1, 1)], "2026-01-01", [date(2026, 1, 1)]),
    "at": (
        pa.timestamp("us", "UTC"),
        [datetime(2026, 1, day, tzinfo=UTC) for day in (1, 2)],
        "2026-01-02T00:00:00+00:00",
        [datetime(2026, 1, 2, tzinfo=UTC)],
    ),
    "raw": (pa.binary(), [b"a", b"b", b"\xff"], "hex:62", [b"b", b"\xff"]),
}


@pytest.mark.parametrize("name", KEYS)
@pytest.mark.parametrize("order", ["", " desc"])
def test_bounds_of_a_table_are_values_of_its_key(spark, url, name, order) -> None:
    kind, values, bound, above = KEYS[name]
    fields = pa.schema([pa.field(name, kind, nullable=None in values), ("id", pa.int64())])
    rows = [{name: value, "id": number} for number, value in enumerate(values)]
    with table.create(url, fields, key=[name + order, "id"]) as db:
        db.table.put(rows)
    whole = {row["id"] for row in rows}
    inside = {row["id"] for row in rows if row[name] in above}
    if order:
        # In descending order, the bound and all lower values come after the bound.
        equal = {row["id"] for row in rows if row[name] == values[1]}
        inside = (whole - inside) | equal
    for options, ids in (({"start": bound}, inside), ({"end": bound}, whole - inside)):
        found = {row.id for row in read(spark, url, **options).collect()}
        assert found == ids, options
    assert read(spark, url, asBytes="true", start="hex:").count() == len(rows)


def test_a_bound_that_is_no_value_of_the_key_is_refused(spark, url) -> None:
    with table.create(url, pa.schema([("n", pa.int64()), ("v", pa.string())]), key=["n"]) as db:
        db.table.put([{"n": 1, "v": "x"}])
    for bound in ("DE", "1.5", "hex:01", ""):
        for name in ("start", "end"):
            with pytest.raises(Exception, match=f"{name} is .*a column of the table's key"):
                read(spark, url, **{name: bound})
    with pytest.raises(Exception, match="filter its columns"):
        read(spark, url, prefix="1")


def test_a_range_of_a_table_is_replaced_by_values(spark, url) -> None:
    frame = spark.range(100).selectExpr("IF(id % 2 = 0, 'DE', 'FR') AS country", "id")
    kv.bulk_load(frame, url, key=["country", "id"])
    one = frame.where("id = 1")
    kv.bulk_load(one, url, key=["country", "id"], mode="replace_range", replace=("FR", None))
    assert read(spark, url).count() == 51
    writer = frame.where("id = 0").write.format("siltstone").mode("append")
    writer.option("replaceStart", "DE").option("replaceEnd", "FR").save(url)
    assert read(spark, url).count() == 2
    with pytest.raises(siltstone.Invalid):
        kv.bulk_load(one, url, key=["country", "id"], mode="replace_range", replace=(b"DE", b"FR"))
    assert read(spark, url).count() == 2


@pytest.mark.parametrize("switch", ["true", "false"])
def test_filters_are_not_pushed(spark, url, switch) -> None:
    """Spark 4.3 keeps the filters of one query with the frame and applies them to the next one."""
    kv.bulk_load(
        spark.range(100).selectExpr("IF(id % 10 = 0, 'DE', 'FR') AS country", "id"),
        url,
        key=["country", "id"],
    )
    spark.conf.set("spark.sql.python.filterPushdown.enabled", switch)
    try:
        with pytest.raises(Exception, match="filterPushdown is refused"):
            read(spark, url, filterPushdown="true")
        frame = read(spark, url, filterPushdown="false")
        frame.createOrReplaceTempView("orders")
        german, french = frame.where("country = 'DE'"), frame.where("country = 'FR'")
        assert (german.count(), frame.count(), french.count()) == (10, 100, 90)
        assert german.union(french).count() == 100
        assert german.join(frame, "id").count() == 10
        assert spark.sql("SELECT count(*) AS n FROM orders WHERE country = 'DE'").first().n == 10
        assert spark.sql("SELECT count(*) AS n FROM orders").first().n == 100
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")
