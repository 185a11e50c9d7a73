"""Spark writes into a live database: each load takes effect whole, and once."""

from __future__ import annotations

import os
import re
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest

import siltstone
import siltstone.spark as kv
from pace_for_tests import finished
from siltstone import compaction, ingest
from siltstone.spark import _compaction
from spark_versions_for_tests import CLASSIC, SOURCES, STREAM_SINKS, frame_of_table

pytest_plugins = ["spark_for_tests"]
pytestmark = pytest.mark.slow

ROWS = {b"key/%04d" % n: b"value %d" % n for n in range(2000)}


@pytest.fixture
def live(url: str):
    """A database whose writer also does other work. It has had a job, so it looks for others."""
    with siltstone.open(url) as db:
        db[b"before"] = b"there"
        db[b"key/0007"] = b"old"
        db.flush()
        yield db, url


@pytest.fixture
def closed(url: str) -> str:
    """A database without a writer: each commit takes its job in itself."""
    with siltstone.open(url) as db:
        db[b"before"] = b"there"
    return url


def content(url: str) -> dict[bytes, bytes]:
    with siltstone.open_reader(url) as reader:
        return dict(reader.scan())


def frame_of(session, rows, **columns):
    """The rows, shuffled, as a DataFrame. Further columns are given by name."""
    keys = sorted(rows, key=lambda key: hash((key, 7)))
    values = [rows[key] for key in keys]
    table = {"key": pa.array(keys, pa.binary()), "value": pa.array(values, pa.binary()), **columns}
    return frame_of_table(session, pa.table(table)).repartition(3)


def test_counts_are_merged(spark, url) -> None:
    """Rows are operands of the database's merge operator, and nothing is read."""
    number = partial(int.to_bytes, length=8, byteorder="little")
    counts = frame_of(spark, {key: number(at) for at, key in enumerate(ROWS)})
    counts = counts.selectExpr("key", "value", "IF(key = binary('key/0005'), 'd', 'Merge') AS op")
    siltstone.open(url).close()
    with pytest.raises(siltstone.Invalid, match="open it once with merge_operator"):
        kv.bulk_load(counts, url, key="key", op="op")
    with siltstone.open(url, merge_operator="sum_i64") as db:
        for key in (b"key/0003", b"key/0005", b"other"):
            db[key] = number(1000)
    for _ in range(2):
        kv.bulk_load(counts, url, key="key", op="op", txn=("counts", 1))
    kv.upsert(url, key="key", op="op", duplicates="error", txn_app="more", ttl="2h")(counts, 0)
    with siltstone.open_reader(url, merge_operator="sum_i64") as reader:
        found = {key: int.from_bytes(value, "little") for key, value in reader.scan()}
    expected = {key: 2 * at for at, key in enumerate(ROWS)} | {b"other": 1000}
    expected[b"key/0003"] += 1000
    del expected[b"key/0005"]
    assert found == expected
    with pytest.raises(siltstone.Invalid, match='duplicates="error"'):
        kv.bulk_load(counts, url, key="key", op="op", layout="runs")
    typed = spark.sql("SELECT 1L AS id, 'x' AS note, 'merge' AS what")
    with pytest.raises(siltstone.Invalid, match="a table has no merge operator"):
        kv.bulk_load(typed, url + "-2", key="id", op="what")


@pytest.mark.parametrize("layout", ["range", "runs", "presorted"])
def test_a_load_is_there_as_a_whole(spark, live, layout) -> None:
    db, url = live
    frame = frame_of(spark, ROWS)
    if layout == "presorted":
        frame = frame.repartitionByRange(4, "key")
    done = kv.bulk_load(frame, url, key="key", layout=layout, db=db, target_sst_bytes=10_000)
    assert dict(db.scan()) == {b"before": b"there", **ROWS}
    assert (done.rows, done.repeated) == (2000, False)
    assert done.ssts >= 2
    assert done.bytes > 0
    assert set(done.seconds) == {"stage", "commit"}
    db[b"key/0007"] = b"after"
    db.flush(memtable=True)
    assert db[b"key/0007"] == b"after"
    assert ingest.status(url, done.job).seq == done.seq
    with siltstone.open_reader(url) as reader:
        assert len(list(reader.keys())) == 2001


def test_a_load_without_the_writer_at_hand(spark, url) -> None:
    siltstone.open(url).close()
    frame = frame_of(spark, ROWS).selectExpr("string(key) AS k", "string(value) AS v")
    done = kv.bulk_load(frame, url, key="k", value="v", partitions=2)
    assert done.seq is not None
    with siltstone.open_reader(url) as reader:
        assert dict(reader.scan()) == ROWS
    empty = kv.bulk_load(frame.where("false"), url, key="k", value="v")
    assert (empty.rows, empty.seq, empty.job) == (0, None, None)


def test_a_version_of_an_application_is_loaded_once(spark, live) -> None:
    db, url = live
    frame = frame_of(spark, ROWS)
    first = kv.bulk_load(frame, url, key="key", layout="runs", txn=("daily", 7), db=db)
    db.flush(memtable=True)
    other = frame.selectExpr("key", "binary('again') AS value")
    again = kv.bulk_load(other, url, key="key", txn=("daily", 7), db=db)
    assert again.repeated
    assert again.seq == first.seq
    assert db[b"key/0000"] == b"value 0"
    with pytest.raises(siltstone.Conflict, match="versions only grow"):
        kv.bulk_load(other, url, key="key", txn=("daily", 6), db=db)
    later = kv.bulk_load(other, url, key="key", txn=("daily", 8), db=db)
    assert later.rows == 2000
    assert db[b"key/0000"] == b"again"


def test_duplicates(spark, live) -> None:
    db, url = live
    keys = [b"a", b"b", b"a", b"c", b"a"]
    table = pa.table({"key": keys, "value": [b"1", b"2", b"3", b"4", b"5"], "at": [3, 1, 9, 1, 4]})
    frame = frame_of_table(spark, table).repartition(4)
    with pytest.raises(siltstone.Invalid, match="key"):
        kv.bulk_load(frame, url, key="key", db=db)
    assert b"a" not in db
    kv.bulk_load(frame, url, key="key", duplicates=("max", "at"), db=db)
    assert (db[b"a"], db[b"b"], db[b"c"]) == (b"3", b"2", b"4")
    kv.bulk_load(frame, url, key="key", duplicates="any", db=db)
    kv.bulk_load(frame, url, key="key", layout="runs", db=db)
    assert db[b"a"] in (b"1", b"3", b"5")


def test_deletes_and_operations(spark, live) -> None:
    db, url = live
    kv.bulk_load(frame_of(spark, ROWS), url, key="key", db=db)
    some = spark.range(100).selectExpr("binary(concat('key/', lpad(string(id), 4, '0'))) AS k")
    assert kv.delete(some, url, key="k", db=db).rows == 100
    assert dict(db.scan()) == {b"before": b"there", **dict(list(ROWS.items())[100:])}
    said = pa.table(
        {
            "key": [b"key/0000", b"key/1000", b"key/1001"],
            "value": pa.array([b"back", None, b"new"], pa.binary()),
            "op": ["insert", "DELETE", "u"],
        }
    )
    kv.bulk_load(frame_of_table(spark, said), url, key="key", op="op", db=db)
    assert db.get_many(said["key"].to_pylist()) == [b"back", None, b"new"]
    with pytest.raises(siltstone.Invalid, match="has the value 'drop'"):
        odd = frame_of_table(spark, said).selectExpr("key", "value", "'drop' AS op")
        kv.bulk_load(odd, url, key="key", op="op", db=db)


def test_columns_that_do_not_fit_are_told_and_nothing_is_added(spark, live) -> None:
    db, url = live
    frame = frame_of(spark, ROWS)
    wide = spark.range(3).selectExpr("id", "binary('k') AS key", "binary(NULL) AS value")
    refused = {
        "there is no column 'value'": lambda: kv.bulk_load(frame.select("key"), url, key="key"),
        "of type bigint": lambda: kv.bulk_load(wide, url, key="id"),
        "layout is 'rang'": lambda: kv.bulk_load(frame, url, key="key", layout="rang"),
        "mode is 'merge'": lambda: kv.bulk_load(frame, url, key="key", mode="merge"),
        "duplicates is 'first'": lambda: kv.bulk_load(frame, url, key="key", duplicates="first"),
        "layout 'runs' cannot apply it": lambda: kv.bulk_load(
            frame, url, key="key", layout="runs", duplicates="error"
        ),
        "in one task only": lambda: kv.bulk_load(frame, url, key="key", layout="presorted"),
        "a null is no value": lambda: kv.bulk_load(wide, url, key="key"),
        "a null is no key": lambda: kv.bulk_load(wide, url, key="value", value="key"),
        "partitions must be from 1": lambda: kv.bulk_load(frame, url, key="key", partitions=0),
        "Spark's workers are others": lambda: kv.bulk_load(frame, "memory://here", key="key"),
    }
    for text, call in refused.items():
        with pytest.raises(siltstone.Invalid, match=re.escape(text)):
            call()
    assert dict(db.scan()) == {b"before": b"there", b"key/0007": b"old"}
    assert siltstone.admin.manifest(url)["pending_ingests"] == 0


def test_existing_rows_are_replaced(spark, live) -> None:
    db, url = live
    kv.bulk_load(frame_of(spark, ROWS), url, key="key", db=db)
    pinned = kv.scan(spark, url, partitions=2)
    part = {b"key/0100": b"new", b"key/0150": b"new"}
    within = (b"key/0100", b"key/0200")
    replacing = {"key": "key", "mode": "replace_range", "replace": within, "db": db}
    done = kv.bulk_load(frame_of(spark, part), url, **replacing)
    assert done.rows >= 2
    rest = {key: value for key, value in ROWS.items() if not within[0] <= key < within[1]}
    assert dict(db.scan()) == {b"before": b"there", **rest, **part}
    with pytest.raises(siltstone.Invalid, match="range"):
        kv.bulk_load(frame_of(spark, {b"key/0200": b"beyond"}), url, **replacing)
    kv.bulk_load(frame_of(spark, {}), url, **replacing)
    assert dict(db.scan()) == {b"before": b"there", **rest}
    kv.bulk_load(frame_of(spark, part), url, key="key", mode="overwrite", layout="runs", db=db)
    assert dict(db.scan()) == part
    # A frame of the earlier state still reads it.
    assert pinned.count() == 2001
    kv.release()


def test_a_database_is_compacted_by_tasks(spark, closed) -> None:
    loaded_and_closed(spark, closed)
    done = kv.compact(spark, closed, unit_bytes=20_000)
    assert done.units > 3
    (one,) = done.compactions
    assert (one.error, one.rows_out) == (None, 2001)
    assert siltstone.admin.manifest(closed)["l0"] == []
    assert content(closed) == {b"before": b"there", **dict.fromkeys(ROWS, b"2" * 50)}
    assert kv.compact(spark, closed) == kv.CompactionResult((), 0)
    # The slots are free again.
    assert spark.range(10).repartition(2).count() == 10
    with pytest.raises(siltstone.Invalid, match="unit_bytes"):
        kv.compact(spark, closed, unit_bytes=0)
    with pytest.raises(siltstone.Invalid, match="in this process"):
        kv.compact(spark, "memory://units")


def loaded(spark, url: str, db) -> None:
    for turn in range(3):
        rows = dict.fromkeys(ROWS, b"%d" % turn * 50)
        kv.bulk_load(frame_of(spark, rows), url, key="key", layout="runs", db=db)


def loaded_and_closed(spark, url: str) -> None:
    """Loads without a compactor. A writer that `submit` opens for a moment has one, which may begin
    a compaction of one range and leave it at the close; a plan would continue it."""
    with siltstone.open(url, options={"embedded_compactor": False}) as db:
        loaded(spark, url, db)


def test_a_driver_that_dies_is_gone_on_from(spark, closed) -> None:
    """Units recorded by the dead driver are not repeated, and other tables that its tasks uploaded
    are collected."""
    loaded_and_closed(spark, closed)
    plan = compaction.plan(closed, unit_bytes=20_000)
    first, *others = plan.units
    assert not plan.commit([first.run()])
    for unit in others[:2]:
        unit.run()
    # The driver stops as if killed: it neither closes the plan nor commits these units.
    done = kv.compact(spark, closed, unit_bytes=20_000)
    assert done.units == len(others)
    with pytest.raises(siltstone.Fenced):
        plan.commit([others[0].run(), others[1].run()])
    assert content(closed) == {b"before": b"there", **dict.fromkeys(ROWS, b"2" * 50)}
    siltstone.admin.gc(closed)
    named = {table["name"] for table in siltstone.admin.manifest(closed)["runs"][0]["tables"]}
    # Folders of units begin with time 0.
    left = {str(path.relative_to(closed)) for path in Path(closed).glob("ingest/0000000000*/*.sst")}
    assert left == named
    plan.close()


def test_tasks_are_killed(spark, closed, tmp_path, monkeypatch) -> None:
    loaded_and_closed(spark, closed)
    marks = str(tmp_path)
    run = compaction.Unit.run

    def dies_once(unit, **given):
        mark = Path(marks, str(unit.range))
        made = run(unit, **given)
        if unit.range % 2 == 0 and not mark.exists():
            mark.touch()
            os._exit(1)
        return made

    monkeypatch.setattr(_compaction, "merge_units", partial(merging_with, dies_once))
    done = kv.compact(spark, closed, unit_bytes=20_000)
    assert done.units > 3
    assert len(list(tmp_path.glob("[0-9]*"))) > 1, "tasks were killed"
    assert len(siltstone.admin.manifest(closed)["runs"]) == 1
    assert content(closed) == {b"before": b"there", **dict.fromkeys(ROWS, b"2" * 50)}


def test_a_writer_and_its_compactor_go_on(spark, live) -> None:
    """The job begun by the writer's compactor is continued, and the epoch is free again."""
    db, url = live
    loaded(spark, url, db)
    db.flush(memtable=True)
    # The writer's compactor begins first: a later start would fence the compactor at work (RFC
    # 0046).
    db.compact()
    assert siltstone.admin.manifest(url)["compactor_epoch"] == 1
    for turn in range(200):
        db[b"meanwhile/%d" % turn] = b"v" * 200
    db.flush(memtable=True)
    db[b"last"] = b"not in a table"
    assert kv.compact(spark, url, unit_bytes=20_000).compactions
    db.flush(memtable=True)
    found = {key: value for key, value in db.scan() if key.startswith(b"key/")}
    assert found == dict.fromkeys(ROWS, b"2" * 50)
    assert db[b"meanwhile/199"] == b"v" * 200
    db.compact()
    assert len(siltstone.admin.manifest(url)["runs"]) == 1


def merging_with(run, numbers, units):
    before, compaction.Unit.run = compaction.Unit.run, run
    try:
        yield from _compaction.merge_units(numbers, units)
    finally:
        compaction.Unit.run = before


@CLASSIC
def test_a_failed_task_ends_the_others(spark, closed, monkeypatch) -> None:
    loaded_and_closed(spark, closed)
    tracker = spark.sparkContext.statusTracker()

    def fails(*_):
        raise siltstone.Fenced("another compactor")

    monkeypatch.setattr(compaction.Plan, "commit", fails)
    with pytest.raises(siltstone.Fenced):
        kv.compact(spark, closed, unit_bytes=20_000)
    # The tracker learns it from events, which Spark hands over in a thread of their own.
    spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()
    stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
    assert sum(stage.numActiveTasks for stage in stages if stage is not None) == 0


def once_failing(batches, marks: str):
    """Ends its process in the first attempt, in the middle of a partition, and raises in the
    second."""
    from pyspark import TaskContext  # noqa: PLC0415

    number = TaskContext.get().partitionId()
    for batch in batches:
        yield batch
        for mark, end in (("killed", lambda: os._exit(9)), ("raised", lambda: 1 // 0)):
            path = Path(marks, f"{mark}{number}")
            if not path.exists():
                path.touch()
                end()


def test_tasks_that_die_and_are_repeated_load_once(spark, live, tmp_path) -> None:
    from functools import partial  # noqa: PLC0415

    db, url = live
    marks = tmp_path / "marks"
    marks.mkdir()
    failing = partial(once_failing, marks=str(marks))
    frame = frame_of(spark, ROWS).mapInArrow(failing, "key binary, value binary")
    done = kv.bulk_load(frame, url, key="key", layout="runs", db=db)
    assert len(list(marks.iterdir())) == 6
    assert done.rows == 2000
    assert dict(db.scan()) == {b"before": b"there", **ROWS}
    assert not siltstone.admin.verify(url).problems


def test_a_load_that_fails_leaves_nothing(spark, live) -> None:
    db, url = live
    frame = frame_of(spark, ROWS).selectExpr(
        "key", "if(key = binary('key/0500'), binary(raise_error('spoilt')), value) AS value"
    )
    with pytest.raises(Exception, match="spoilt"):
        kv.bulk_load(frame, url, key="key", layout="runs", db=db)
    assert len(dict(db.scan())) == 2
    (job,) = (path.name for path in Path(url, "ingest").iterdir())
    # The job was aborted: its folder is removed by the next collection.
    assert Path(url, "ingest", job, "manifest").exists()
    assert ingest.status(url, job).state == "aborted"


# --- format("siltstone") --------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["load", "delete", "upsert", pytest.param("save", marks=SOURCES)])
def test_a_writer_that_died_is_named_and_ended(spark, url, python, way) -> None:
    killed = "import os, sys, siltstone; db = siltstone.open(sys.argv[1])\n"
    killed += "db.put(b'k', b'v').wait(); os._exit(0)"
    assert python(killed, url)[0] == 0
    frame = frame_of(spark, {b"a": b"b"})

    def write(**how) -> None:
        if way == "load":
            kv.bulk_load(frame, url, key="key", **how)
        elif way == "delete":
            kv.delete(frame, url, key="key", **how)
        elif way == "upsert":
            kv.upsert(url, key="key", txn_app="app", **how)(frame, 1)
        else:
            writer = frame.write.format("siltstone").mode("append")
            named = {name.replace("take_over", "takeOver"): how[name] for name in how}
            writer.options(**named).save(url)

    if way != "save":
        with pytest.raises(siltstone.Timeout, match=r"take_over=True \(option takeOver\)"):
            write(timeout=1, take_over=False)
    # In a folder, the lock shows that the writer is dead.
    write(timeout=30)
    assert content(url) == ({b"k": b"v"} if way == "delete" else {b"k": b"v", b"a": b"b"})


@SOURCES
def test_a_frame_is_saved(spark, closed) -> None:
    frame = frame_of(spark, ROWS)
    frame.write.format("siltstone").mode("append").save(closed)
    assert content(closed) == {b"before": b"there", **ROWS}
    assert siltstone.admin.manifest(closed)["checkpoints"] == []
    named = frame.selectExpr("string(key) AS k", "'same' AS v", "'put' AS what")
    writer = named.repartitionByRange(3, "k").write.format("siltstone").mode("append")
    writer = writer.option("keyColumn", "k").option("valueColumn", "v").option("opColumn", "what")
    writer = writer.option("layout", "presorted").option("targetSstBytes", 5000)
    writer.option("txnAppId", "daily").option("txnVersion", 3).save(closed)
    assert content(closed) == {b"before": b"there", **dict.fromkeys(ROWS, b"same")}
    again = frame.write.format("siltstone").mode("append")
    again.option("txnAppId", "daily").option("txnVersion", 3).save(closed)
    assert set(content(closed).values()) == {b"there", b"same"}
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW kv USING siltstone OPTIONS (path '{closed}')")
    spark.sql("INSERT INTO kv VALUES (binary('sql'), binary('too'))")
    assert content(closed)[b"sql"] == b"too"


@SOURCES
def test_a_frame_overwrites(spark, closed) -> None:
    with siltstone.open(closed) as db:
        db[b"before"] = b"another"
    frame_of(spark, ROWS).write.format("siltstone").mode("overwrite").save(closed)
    assert content(closed) == ROWS
    writer = frame_of(spark, {b"key/0003": b"new"}).write.format("siltstone").mode("append")
    writer.option("replaceStart", "key/0001").option("replaceEnd", "hex:6b65792f30303035").save(
        closed
    )
    kept = {key: value for key, value in ROWS.items() if not b"key/0001" <= key < b"key/0005"}
    assert content(closed) == {**kept, b"key/0003": b"new"}


@SOURCES
def test_invalid_options_of_a_save(spark, closed) -> None:
    frame = frame_of(spark, {b"a": b"b"})
    wide = frame.selectExpr("key", "value", "1 AS other")
    named = {"keyColumn": "k"}
    refused = {
        "no option 'keycolum' where a frame is written": (frame, {"keyColum": "key"}),
        "no option 'prefix' where a frame is written": (frame, {"prefix": "a"}),
        "there is no column 'k' for key": (frame, named),
        "the columns other cannot be stored": (wide, {}),
        "a data source cannot shuffle": (frame, {"layout": "range"}),
        "layout 'runs' cannot apply it": (frame, {"duplicates": "error"}),
        "go together": (frame, {"txnAppId": "daily"}),
        "txnVersion must be 0 or more": (frame, {"txnAppId": "daily", "txnVersion": "-1"}),
    }
    for text, (one, options) in refused.items():
        writer = one.write.format("siltstone").mode("append").options(**options)
        with pytest.raises(Exception, match=re.escape(text)):
            writer.save(closed)
    with pytest.raises(Exception, match="no database is named"):
        frame.write.format("siltstone").mode("append").save()
    # A view that can be inserted into can also be read.
    assert spark.read.format("siltstone").options(**named).load(closed).count() == 1
    assert content(closed) == {b"before": b"there"}


# --- streams --------------------------------------------------------------------------------------


def run_stream(spark, source: Path, checkpoint: Path, begin) -> None:
    """Streams all available rows, one file per batch."""
    stream = spark.readStream.schema("key binary, value binary").option("maxFilesPerTrigger", 1)
    writing = begin(stream.parquet(str(source)).writeStream)
    writing = writing.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
    query = writing.start()
    finished(query)


def add_file(source: Path, number: int, rows: dict[bytes, bytes]) -> None:
    import pyarrow.parquet as pq  # noqa: PLC0415

    source.mkdir(exist_ok=True)
    table = pa.table({"key": list(rows), "value": list(rows.values())})
    path = source / f"{number}.parquet"
    pq.write_table(table, path)
    # Spark reads the files in the order of their times.
    os.utime(path, (1_000_000_000 + number, 1_000_000_000 + number))


@pytest.mark.parametrize("way", [pytest.param("format", marks=STREAM_SINKS), "foreachBatch"])
def test_a_streams_batches_are_there_once(spark, closed, tmp_path, way) -> None:
    source, checkpoint = tmp_path / "source", tmp_path / "checkpoint"

    def begin(writing):
        if way == "format":
            return writing.format("siltstone").option("path", closed)
        return writing.foreachBatch(kv.upsert(closed, key="key"))

    for number in range(2):
        add_file(source, number, {b"k%d" % number: b"batch", b"last": b"%d" % number})
    run_stream(spark, source, checkpoint, begin)
    assert content(closed) == {
        b"before": b"there",
        b"k0": b"batch",
        b"k1": b"batch",
        b"last": b"1",
    }
    (app,) = siltstone.admin.manifest(closed)["ingest_apps"]
    assert app["version"] == 1
    with siltstone.open(closed) as db:
        db[b"last"] = b"put between"
    # As after a crash between the commit here and Spark's own: the batch is planned again.
    (checkpoint / "commits" / "1").unlink()
    (checkpoint / "commits" / ".1.crc").unlink(missing_ok=True)
    add_file(source, 2, {b"k2": b"batch"})
    run_stream(spark, source, checkpoint, begin)
    found = content(closed)
    assert found[b"last"] == b"put between"
    assert found[b"k2"] == b"batch"
    (after,) = siltstone.admin.manifest(closed)["ingest_apps"]
    assert (after["app"], after["version"]) == (app["app"], 2)
    assert siltstone.admin.manifest(closed)["checkpoints"] == []
