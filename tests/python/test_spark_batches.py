"""Several calls that write one micro-batch: each is applied once, and none is lost."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import siltstone
import siltstone.spark as kv
from pace_for_tests import finished
from siltstone.spark import _calls
from siltstone.spark._commit import Submission
from spark_versions_for_tests import CLASSIC, CONNECT, frame_of_table

pytest_plugins = ["spark_for_tests"]
pytestmark = pytest.mark.slow

Batch = Callable[[Any, int], None]
# Through Connect, tasks do not know their query.
APPS = [pytest.param(None, marks=CLASSIC), "by name"]


@pytest.fixture
def empty(url: str) -> str:
    """A database without rows and without a writer."""
    siltstone.open(url).close()
    return url


def content(url: str) -> dict[bytes, bytes]:
    with siltstone.open_reader(url) as reader:
        return dict(reader.scan())


def versions(url: str) -> list[int]:
    """The versions of the applications that the database knows."""
    return sorted(app["version"] for app in siltstone.admin.manifest(url)["ingest_apps"])


def run(spark, folder: Path, batch: Batch, files: int = 1) -> None:
    """Streams ten numbers per file, one file per batch; the progress stays in the folder."""
    for number in range(files):
        path = folder / "in" / f"{number}"
        if not path.exists():
            spark.range(number * 10, number * 10 + 10, 1, 1).write.parquet(str(path))
    stream = spark.readStream.schema("id long").option("maxFilesPerTrigger", 1)
    stream = stream.option("recursiveFileLookup", "true").parquet(str(folder / "in"))
    writing = stream.writeStream.foreachBatch(batch).trigger(availableNow=True)
    writing = writing.option("checkpointLocation", str(folder / "progress"))
    finished(writing.start())


def forget_commit(folder: Path, batch: int) -> None:
    """Restores the state before Spark noted the batch, as after a crash: it is planned again."""
    (folder / "progress" / "commits" / f"{batch}").unlink()
    (folder / "progress" / "commits" / f".{batch}.crc").unlink(missing_ok=True)


def rows_of(batch, prefix: str, value: str = "string(id)"):
    return batch.selectExpr(f"concat('{prefix}', lpad(id, 3, '0')) AS key", f"{value} AS value")


@pytest.mark.parametrize("app", APPS)
@pytest.mark.parametrize("made", ["before", "in the batch"])
def test_each_call_of_a_batch_is_applied_once(spark, empty, tmp_path, app, made) -> None:
    before = kv.upsert(empty, key="key", txn_app=app)

    def both(batch, number: int) -> None:
        for prefix in ("a/", "b/", "c/"):
            write = before if made == "before" else kv.upsert(empty, key="key", txn_app=app)
            write(rows_of(batch, prefix), number)

    run(spark, tmp_path, both, files=2)
    expected = {b"%s/%03d" % (p, n): b"%d" % n for p in (b"a", b"b", b"c") for n in range(20)}
    assert content(empty) == expected
    assert versions(empty) == [1, 1, 1]
    with siltstone.open(empty) as db:
        db.delete_range(b"\0")
    forget_commit(tmp_path, 1)
    run(spark, tmp_path, both, files=3)
    # The repeated batch adds nothing, and the next one is applied.
    assert sorted(content(empty)) == sorted(
        b"%s/%03d" % (p, n) for p in (b"a", b"b", b"c") for n in range(20, 30)
    )


@CLASSIC
def test_a_batch_of_another_query_of_the_name_is_not_skipped(spark, empty, tmp_path) -> None:
    """Such a batch was taken for a repetition, and its rows were lost."""

    def writes(prefix: str, **named) -> Batch:
        def batch(rows, number: int) -> None:
            for part in ("1/", "2/"):
                call = kv.upsert(empty, key="key", txn_app="by name", **named)
                call(rows_of(rows, prefix + part), number)

        return batch

    folders = {name: tmp_path / name for name in ("one", "other")}
    for folder in folders.values():
        folder.mkdir()
    run(spark, folders["one"], writes("a/"))
    for _ in range(2):
        with pytest.raises(Exception, match="two streams need two names"):
            run(spark, folders["other"], writes("b/"))
    assert {key[:1] for key in content(empty)} == {b"a"}
    apps = [one["app"] for one in siltstone.admin.manifest(empty)["ingest_apps"]]
    assert [app.partition("@")[0] + app[-2:] for app in apps][1:] == ["by name#2"]
    for app in apps:
        siltstone.ingest.forget_app(empty, app)
    run(spark, folders["other"], writes("b/"))
    assert len(content(empty)) == 40
    # A repeated batch of its own is still skipped.
    with siltstone.open(empty) as db:
        db.delete_range(b"\0")
    forget_commit(folders["other"], 0)
    run(spark, folders["other"], writes("b/"))
    assert content(empty) == {}


@CLASSIC
def test_spellings_of_a_place_are_one_database(spark, empty, tmp_path) -> None:
    places = [empty, Path(empty), f"file://{empty}", f"{empty}/", f"{empty}/../db"]

    def each(batch, number: int) -> None:
        for at, place in enumerate(places):
            kv.upsert(place, key="key")(rows_of(batch, f"{at}/"), number)

    run(spark, tmp_path, each)
    assert len(content(empty)) == 10 * len(places)


@pytest.mark.parametrize("app", APPS)
def test_a_batch_that_stopped_between_two_calls_is_completed(spark, empty, tmp_path, app) -> None:
    marker = tmp_path / "stopped"

    def both(batch, number: int) -> None:
        value = "'first'" if not marker.exists() else "'again'"
        kv.upsert(empty, key="key", txn_app=app)(rows_of(batch, "a/", value), number)
        if not marker.exists():
            marker.touch()
            raise RuntimeError("between the calls")
        kv.upsert(empty, key="key", txn_app=app)(rows_of(batch, "b/"), number)

    with pytest.raises(Exception, match="between the calls"):
        run(spark, tmp_path, both)
    assert len(content(empty)) == 10
    run(spark, tmp_path, both)
    found = content(empty)
    assert len(found) == 20
    assert found[b"a/000"] == b"first"


@CLASSIC
def test_a_call_that_failed_and_is_made_again_keeps_its_place(spark, empty, tmp_path) -> None:
    """A call that is repeated within a batch counts as the same call."""
    marker = tmp_path / "failed"

    def failing(batch, number: int) -> None:
        rows = rows_of(batch, "a/", "if(id = 5, raise_error('spoilt'), string(id))")
        with pytest.raises(Exception, match="spoilt"):
            kv.upsert(empty, key="key")(rows, number)
        kv.upsert(empty, key="key")(rows_of(batch, "b/"), number)
        if not marker.exists():
            marker.touch()
            raise RuntimeError("after both")

    with pytest.raises(Exception, match="after both"):
        run(spark, tmp_path, failing)
    (app,) = siltstone.admin.manifest(empty)["ingest_apps"]
    assert app["app"].endswith("#2")
    run(spark, tmp_path, failing)
    assert len(siltstone.admin.manifest(empty)["ingest_apps"]) == 1
    assert len(content(empty)) == 10


@pytest.mark.parametrize("app", APPS)
@pytest.mark.parametrize("retried", [True, False])
def test_a_call_after_a_failed_one_is_no_other_call(
    spark, empty, tmp_path, app, retried, caplog
) -> None:
    """A call fails, the next one has another frame, and the batch stops after it. The repeated
    batch, in which nothing fails, takes no call for another one, and so it loses no rows."""
    marker = tmp_path / "stopped"

    def write(batch, number: int, prefix: str, value: str = "string(id)") -> None:
        kv.upsert(empty, key="key", txn_app=app)(rows_of(batch, prefix, value), number)

    def calls(batch, number: int) -> None:
        first = not marker.exists()
        try:
            write(batch, number, "a/", "raise_error('lost worker')" if first else "string(id)")
        except Exception:
            if retried:
                write(batch, number, "a/")
        if not (first and retried):
            write(batch, number, "b/")
        if first:
            marker.touch()
            raise RuntimeError("the driver dies")
        write(batch, number, "c/")

    with pytest.raises(Exception, match="the driver dies"):
        run(spark, tmp_path, calls)
    assert len(content(empty)) == 10
    run(spark, tmp_path, calls)
    expected = [b"%s/%03d" % (p, n) for p in (b"a", b"b", b"c") for n in range(10)]
    assert sorted(content(empty)) == expected
    with siltstone.open(empty) as db:
        db.delete_range(b"\0")
    forget_commit(tmp_path, 0)
    run(spark, tmp_path, calls)
    assert content(empty) == {}
    if not CONNECT:
        assert "call 2 for batch 0" in caplog.text


@CLASSIC
def test_a_call_whose_answer_was_lost_hides_no_other_call(
    spark, empty, tmp_path, monkeypatch
) -> None:
    """A call takes effect and raises an error. Another frame follows, and the batch stops."""
    marker = tmp_path / "stopped"
    submit = Submission.submit

    def lost(*given):
        submit(*given)
        raise siltstone.Unavailable("the answer was lost")

    def both(batch, number: int) -> None:
        if not marker.exists():
            with monkeypatch.context() as patch:
                patch.setattr(Submission, "submit", lost)
                with pytest.raises(siltstone.Unavailable):
                    kv.upsert(empty, key="key")(rows_of(batch, "a/"), number)
        kv.upsert(empty, key="key")(rows_of(batch, "a/", "string(id + 1)"), number)
        if not marker.exists():
            marker.touch()
            raise RuntimeError("the driver dies")
        kv.upsert(empty, key="key")(rows_of(batch, "b/"), number)

    with pytest.raises(Exception, match="the driver dies"):
        run(spark, tmp_path, both)
    run(spark, tmp_path, both)
    assert len(content(empty)) == 20


@pytest.mark.parametrize(
    ("made", "names"),
    [
        ("A B", "q q#2"),
        ("A! A B", "q q q#2"),
        ("A! A! A B", "q q q q#2"),
        ("A! B C", "q q~1#2 q~1#3"),
        ("A! B! C", "q q~1#2 q~1,2#3"),
        ("A! B! B C", "q q~1#2 q~1#2 q~1#3"),
        # The failure comes before B, so it stays part of what follows.
        ("A! B A C", "q q~1#2 q q~1#3"),
        ("A! B A! C", "q q~1#2 q q~1,3#4"),
    ],
)
def test_names_of_calls(monkeypatch, made, names) -> None:
    """The name of each call tells which calls before it failed (with a "!")."""
    monkeypatch.setattr(_calls, "run_of", lambda _: "run")
    monkeypatch.setattr(_calls, "_batches", OrderedDict())
    found = []
    for frame in made.split():
        with suppress(RuntimeError), _calls.numbered(frame[0], 0, "/place", None, frame[0]) as call:
            found.append(_calls.application("q", call))
            if "!" in frame:
                raise RuntimeError(frame)
    assert " ".join(found) == names


@pytest.mark.parametrize("app", APPS)
@pytest.mark.parametrize("how", ["where", "limit", "first of two", "second of two"])
def test_a_batch_without_rows_changes_nothing(spark, empty, tmp_path, how, app) -> None:
    def some(batch, number: int) -> None:
        rows = rows_of(batch, "a/")
        none = rows.limit(0) if how == "limit" else rows.where("false")
        if how == "second of two":
            kv.upsert(empty, key="key", txn_app=app)(rows, number)
        kv.upsert(empty, key="key")(none, number)
        kv.upsert(empty, key="key", txn_app=app, duplicates="error")(none, number)
        kv.delete(none, empty, key="key")
        kv.bulk_load(none, empty, key="key")
        if how == "first of two":
            kv.upsert(empty, key="key", txn_app=app)(rows, number)

    run(spark, tmp_path, some)
    expected = 10 if "of two" in how else 0
    assert len(content(empty)) == expected
    with siltstone.open(empty) as db:
        db.delete_range(b"\0")
    forget_commit(tmp_path, 0)
    run(spark, tmp_path, some)
    assert content(empty) == {}
    manifest = siltstone.admin.manifest(empty)
    assert (manifest["pending_ingests"], manifest["remembered_ingests"]) == (0, 0)


@pytest.mark.skipif(CONNECT, reason="a session by Connect has no job groups of this kind")
def test_job_groups_of_the_batch_change_no_call(spark, empty, tmp_path) -> None:
    def groups(batch, number: int) -> None:
        context = batch.sparkSession.sparkContext
        for group in ("items", "prices"):
            context.setJobGroup(group, "a group of the user's own")
            kv.upsert(empty, key="key")(rows_of(batch, f"{group}/"), number)

    run(spark, tmp_path, groups)
    assert len(content(empty)) == 20
    with siltstone.open(empty) as db:
        db.delete_range(b"\0")
    # The second run of the query repeats the batch, and both calls are recorded.
    forget_commit(tmp_path, 0)
    run(spark, tmp_path, groups)
    assert content(empty) == {}


@pytest.mark.skipif(CONNECT, reason="a process of the batches counts")
def test_calls_at_the_same_time_are_refused_or_named(spark, empty, tmp_path) -> None:
    from concurrent.futures import ThreadPoolExecutor  # noqa: PLC0415

    from pyspark import inheritable_thread_target  # noqa: PLC0415

    def at_once(apps: list[str | None]) -> Batch:
        def batch(rows, number: int) -> None:
            def write(prefix: str, app: str | None) -> None:
                kv.upsert(empty, key="key", txn_app=app)(rows_of(rows, prefix), number)

            with ThreadPoolExecutor() as pool:
                target = inheritable_thread_target(rows.sparkSession)
                waits = [
                    pool.submit(target(write), prefix, app)
                    for prefix, app in zip(("a/", "b/"), apps, strict=True)
                ]
                for one in waits:
                    one.result()

        return batch

    with pytest.raises(Exception, match="name each by txn_app"):
        run(spark, tmp_path, at_once([None, None]))
    run(spark, tmp_path, at_once(["one", "other"]))
    assert len(content(empty)) == 20


def test_outside_of_a_stream_a_second_call_repeats_the_batch(spark, empty, caplog) -> None:
    frame = frame_of_table(spark, pa.table({"key": ["k"], "value": ["first"]}))
    kv.upsert(empty, key="key", txn_app="by hand")(frame, 7)
    kv.upsert(empty, key="key", txn_app="by hand")(frame.where("false"), 7)
    assert not [one for one in caplog.records if one.name == "siltstone.spark"]
    kv.upsert(empty, key="key", txn_app="by hand")(frame.selectExpr("key", "'later' AS value"), 7)
    assert content(empty) == {b"k": b"first"}
    (text,) = [one.getMessage() for one in caplog.records if one.name == "siltstone.spark"]
    assert "batch 7 of the application 'by hand'" in text
    assert "1 rows were skipped" in text
    with pytest.raises(siltstone.Invalid, match="no batch of a stream"):
        kv.upsert(empty, key="key")(frame, 8)
    kv.upsert(empty, key="key")(frame.where("false"), 9)
