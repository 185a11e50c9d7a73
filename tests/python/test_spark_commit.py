"""Commit and abort of a frame's writer, case by case, without a session: the calls of Spark in each
order that it may use.
"""

from __future__ import annotations

import pickle
from pathlib import Path

import pyarrow as pa
import pytest

import siltstone
from siltstone import ingest
from spark_versions_for_tests import STREAM_SINKS

pytest.importorskip("pyspark.sql.datasource", reason="data sources in Python: from Spark 4.0 on")

from pyspark.sql.types import BinaryType, StructField, StructType

from siltstone.spark import _commit, _sink, _staging

pytestmark = pytest.mark.slow

SCHEMA = StructType([StructField("key", BinaryType()), StructField("value", BinaryType())])


@pytest.fixture
def closed(url: str) -> str:
    """A database without a writer."""
    siltstone.open(url).close()
    return url


@pytest.fixture
def task(monkeypatch):
    """Runs a task of a partition, as another process would, and returns its message."""

    def run(writer, number: int, rows: dict[bytes, bytes], query: str | None = None):
        monkeypatch.setattr(_staging, "_task", lambda: (number, query))
        batch = pa.RecordBatch.from_pydict({"key": list(rows), "value": list(rows.values())})
        there = pickle.loads(pickle.dumps(writer))
        return pickle.loads(pickle.dumps(there.write(iter([batch]))))

    return run


def made(url: str, **options: str) -> _sink.BatchWriter:
    return _sink.batch_writer({"path": url, **options}, SCHEMA, False)


def sent(writer):
    """The writer as it arrives in the process that commits or aborts."""
    return pickle.loads(pickle.dumps(writer))


def test_a_failed_abort_still_removes_what_the_write_created(url: str, monkeypatch) -> None:
    def refused(_: ingest.Job) -> None:
        raise siltstone.Unavailable("the store does not answer")

    writer = made(url)
    monkeypatch.setattr(ingest.Job, "abort", refused)
    sent(writer).abort([])
    with pytest.raises(siltstone.NotFound):
        siltstone.admin.versions(url)


def test_a_second_load_of_a_pending_version_names_no_job_of_its_own(closed: str) -> None:
    def load() -> siltstone.LoadResult:
        job = ingest.Job(closed, txn=("nightly", 7))
        part = job.load(0, pa.table({"key": [b"k"], "value": [b"v"]}))
        requests.append(job.commit([part]))
        return _commit.submitted(job, requests[-1], False, 10, None, None, None)

    requests: list[ingest.IngestRequest] = []
    # The writer does not look for jobs by itself.
    with siltstone.open(closed, options={"writes": {"ingest_poll_interval": None}}) as db:
        first, second = load(), load()
        assert (first.repeated, second.repeated) == (False, True)
        assert ingest.status(closed, requests[1].job).state == "aborted"
        db.ingest(requests[0]).wait()
    assert content(closed) == {b"k": b"v"}


def content(url: str) -> dict[bytes, bytes]:
    with siltstone.open_reader(url) as reader:
        return dict(reader.scan())


def tables_of_jobs(url: str) -> list[Path]:
    return list(Path(url, "ingest").rglob("*.sst"))


def test_attempts_that_do_not_count_are_unreferenced(closed, task) -> None:
    writer = made(closed)
    task(writer, 0, {b"a": b"an attempt that was retried"})
    counted = [task(writer, 0, {b"a": b"1"}), None, task(writer, 2, {b"c": b"3"})]
    sent(writer).commit(counted)
    # A slower copy ends after the commit.
    task(writer, 2, {b"c": b"a late loser"})
    assert content(closed) == {b"a": b"1", b"c": b"3"}
    assert len(tables_of_jobs(closed)) == 4
    siltstone.admin.gc(closed, min_age=0)
    assert content(closed) == {b"a": b"1", b"c": b"3"}
    assert len(tables_of_jobs(closed)) == 2
    assert not siltstone.admin.verify(closed).problems


def test_a_commit_that_fails_before_it_took_effect(closed, task, monkeypatch) -> None:
    writer = made(closed)
    messages = [task(writer, 0, {b"a": b"1"})]

    def fails(*_, **__):
        raise siltstone.Unavailable("the store is away")

    with monkeypatch.context() as patch:
        patch.setattr(ingest, "submit", fails)
        with pytest.raises(siltstone.Unavailable):
            sent(writer).commit(messages)
    sent(writer).abort(messages)
    assert content(closed) == {}
    assert ingest.status(closed, writer.job).state == "aborted"
    siltstone.admin.gc(closed, min_age=0)
    assert tables_of_jobs(closed) == []
    with pytest.raises(siltstone.Conflict):
        sent(writer).commit(messages)


@pytest.mark.parametrize("taken_in", [True, False])
def test_a_commit_that_fails_after_it_took_effect(closed, task, monkeypatch, taken_in) -> None:
    writer = made(closed, txnAppId="daily", txnVersion="1")
    messages = [task(writer, 0, {b"a": b"1"})]
    submit = ingest.submit

    def fails_after(request, **named):
        submit(request, **{**named, "wait": taken_in})
        raise siltstone.Timeout("no answer")

    with monkeypatch.context() as patch:
        patch.setattr(ingest, "submit", fails_after)
        with pytest.raises(siltstone.Timeout) as late:
            sent(writer).commit(messages)
    assert writer.job.id in str(late.value)
    assert "take_over=True" in str(late.value)
    sent(writer).abort(messages)
    siltstone.admin.gc(closed, min_age=0)
    # The next writer takes in a load that was only submitted, and does so at any moment.
    assert ingest.status(closed, writer.job).state == ("adopted" if taken_in else "pending")
    with siltstone.open(closed) as db:
        db[b"b"] = b"2"
        db.flush(memtable=True)
    assert content(closed) == {b"a": b"1", b"b": b"2"}
    # The program runs again.
    again = made(closed, txnAppId="daily", txnVersion="1")
    more = [task(again, 0, {b"a": b"another"})]
    sent(again).commit(more)
    assert content(closed) == {b"a": b"1", b"b": b"2"}


def test_a_version_that_came_while_tasks_ran(closed, task) -> None:
    writers = [made(closed, txnAppId="daily", txnVersion="1") for _ in range(2)]
    messages = [task(one, 0, {b"a": b"%d" % at}) for at, one in enumerate(writers)]
    for writer, message in zip(writers, messages, strict=True):
        sent(writer).commit([message])
    assert content(closed) == {b"a": b"0"}
    # The unneeded job was aborted, and a collector deletes its tables.
    siltstone.admin.gc(closed, min_age=0)
    assert len(tables_of_jobs(closed)) == 1
    with pytest.raises(siltstone.Conflict, match="versions only grow"):
        made(closed, txnAppId="daily", txnVersion="0")


def test_all_attempts_fail(closed, task) -> None:
    writer = made(closed)
    done = task(writer, 0, {b"a": b"1"})
    sent(writer).abort([done, None])
    late = task(writer, 1, {b"b": b"late"})
    with pytest.raises(siltstone.Conflict, match="aborted"):
        sent(writer).commit([done, late])
    assert content(closed) == {}


def test_no_rows(closed, task) -> None:
    writer = made(closed)
    sent(writer).commit([task(writer, 0, {}), task(writer, 1, {})])
    assert content(closed) == {}


def test_the_commit_raises_errors_of_rows(closed, task) -> None:
    writer = made(closed, layout="presorted")
    twice = _sink.batch_writer({"path": closed, "layout": "presorted"}, SCHEMA, False)
    messages = [task(writer, 0, {b"a": b"1", b"c": b"1"}), task(writer, 1, {b"b": b"2"})]
    with pytest.raises(siltstone.Invalid, match="partition 1 begins at b'b'"):
        sent(writer).commit(messages)
    empty = [task(twice, 0, {b"": b"1"})]
    with pytest.raises(siltstone.Invalid):
        sent(twice).commit(empty)
    assert content(closed) == {}


@STREAM_SINKS
def test_a_named_stream_skips_only_its_own_batches(closed, task, caplog) -> None:
    def batch(number: int, rows: dict[bytes, bytes], query: str | None, **options: str) -> None:
        planned = _sink.stream_writer({"path": closed, **options}, SCHEMA, False)
        planned.commit([task(planned, 0, rows, query)], number)

    one, other = (f"{n}e0d2f7a-4f0e-4f5c-9d8e-8f1f7a1f0c11" for n in (1, 2))
    batch(0, {b"a": b"0"}, one, txnAppId="app")
    batch(0, {b"a": b"repeated"}, one, txnAppId="app")
    batch(0, {b"b": b"0"}, other, txnAppId="app-2")
    batch(0, {b"c": b"0"}, other, txnAppId="ap")
    # The same number of another query was skipped, and its rows were lost.
    for number, name in ((0, "app"), (0, "app-2")):
        with pytest.raises(siltstone.Conflict, match="another query") as refused:
            batch(number, {b"d": b"1"}, "3" + one[1:], txnAppId=name)
    batch(0, {}, other, txnAppId="app")
    batch(1, {b"a": b"1"}, other, txnAppId="app")
    with pytest.raises(siltstone.Conflict, match=f"'app@{other}', has written batch 1"):
        batch(1, {b"a": b"2"}, one, txnAppId="app")
    assert content(closed) == {b"a": b"1", b"b": b"0", b"c": b"0"}
    # The error names the application to forget.
    app = f"app-2@{other}"
    assert repr(app) in str(refused.value)
    siltstone.ingest.forget_app(closed, app)
    batch(0, {b"d": b"1"}, one, txnAppId="app-2")
    assert content(closed)[b"d"] == b"1"
    # A query that is named by its checkpoint folder repeats only batches of its own.
    for _ in range(2):
        batch(0, {b"e": b"3"}, one)
    assert not caplog.records


@STREAM_SINKS
def test_a_skipped_batch_of_an_unknown_query_is_logged(closed, task, caplog) -> None:
    """By Connect tasks do not know their query."""

    def batch(rows: dict[bytes, bytes], query: str | None) -> None:
        planned = _sink.stream_writer({"path": closed, "txnAppId": "app"}, SCHEMA, False)
        planned.commit([task(planned, 0, rows, query)], 0)

    batch({b"a": b"0"}, None)
    batch({}, None)
    assert not caplog.records
    # A batch that an earlier version recorded, under the name alone, may be one of this query.
    for query in (None, "1e0d2f7a-4f0e-4f5c-9d8e-8f1f7a1f0c11"):
        caplog.clear()
        batch({b"b": b"1", b"c": b"2"}, query)
        assert content(closed) == {b"a": b"0"}
        (text,) = caplog.messages
        assert "batch 0 of the application 'app'" in text
        assert "2 rows were skipped" in text
        assert "another name by txnAppId" in text


@STREAM_SINKS
def test_a_streams_batches(closed, task) -> None:
    def batch(number: int, rows: dict[bytes, bytes], query: str = "q") -> None:
        planned = _sink.stream_writer({"path": closed, "checkpointLocation": "/c"}, SCHEMA, False)
        messages = [task(planned, 0, rows, query), task(planned, 1, {}, query)]
        # Another process makes the writer again for the commit.
        committing = _sink.StreamWriter(planned.sink, None)
        committing.commit(messages, number)
        committing.abort(messages, number)

    batch(0, {b"a": b"0"})
    batch(1, {b"a": b"1"})
    batch(1, {b"a": b"planned again"})
    assert content(closed) == {b"a": b"1"}
    with pytest.raises(siltstone.Conflict):
        batch(0, {b"a": b"its checkpoint folder is an old copy"})
    batch(0, {b"b": b"0"}, "another query")
    assert content(closed) == {b"a": b"1", b"b": b"0"}
    with pytest.raises(siltstone.Invalid, match="txnVersion is for frames"):
        _sink.stream_writer({"path": closed, "txnVersion": "1"}, SCHEMA, False)
    assert _commit.recorded(closed, ("q", 1), None) is not None
