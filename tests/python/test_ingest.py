"""Ingest jobs: staged by several processes, submitted, taken in."""

from __future__ import annotations

import dataclasses
import json
import multiprocessing
import os
import pickle
import socket
import subprocess
import sys
import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest
from click.testing import CliRunner

import siltstone
from aio_for_tests import run
from siltstone import admin, aio, cli, ingest


def key(n: int) -> bytes:
    return b"key%04d" % n


def task(job: ingest.Job, number: int, rows: int, value: bytes = b"bulk") -> ingest.Part:
    """In another process: builds some rows, not in order."""
    with job.writer(number, table_bytes=1000) as writer:
        for n in reversed(range(number * rows, (number + 1) * rows)):
            writer.add(key(n), value)
    return writer.finish()


def staged(url: str, rows: int = 10, **named) -> ingest.IngestRequest:
    job = ingest.Job(url, **named)
    return job.commit([task(job, 0, rows)])


@pytest.mark.parametrize("take_over", [None, True])
def test_a_job_that_the_call_adopts_is_adopted_within_any_timeout(tmp_path, take_over) -> None:
    url = str(tmp_path / "db")
    siltstone.open(url).close()
    status = ingest.submit(staged(url), timeout=0, take_over=take_over)
    assert status.state == "adopted"


def test_tasks_of_other_processes_stage_a_job(tmp_path) -> None:
    with siltstone.open(tmp_path) as db:
        db[key(15)] = b"before"
        job = pickle.loads(pickle.dumps(ingest.Job(tmp_path)))
        assert job.deadline > datetime.now(UTC)
        spawn = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(2, mp_context=spawn) as pool:
            tasks = [pool.submit(task, job, number, 100) for number in range(4)]
            # One task is repeated, as schedulers do.
            tasks.append(pool.submit(task, job, 2, 100, b"again"))
            parts = [one.result() for one in tasks]
        assert [part.rows for part in parts] == [100] * 5
        assert all(part.tables > 1 for part in parts)
        request = pickle.loads(pickle.dumps(job.commit(parts)))
        assert (request.rows, request.job) == (400, job.id)
        assert len(dict(db.scan())) == 1
        commit = db.ingest(request)
        db[key(16)] = b"after"
        expected = {key(n): b"bulk" for n in range(400)} | {key(16): b"after"}
        assert dict(db.scan()) == expected
        assert db.get_many([key(n) for n in (15, 16, 17)]) == [b"bulk", b"after", b"bulk"]
        commit.wait()
        assert db.ingest(request).seq == commit.seq
        db.flush(memtable=True)
        status = ingest.status(tmp_path, job)
        assert (status.state, status.seq) == ("adopted", commit.seq)
    with siltstone.open_reader(tmp_path) as reader:
        assert dict(reader.scan()) == expected
    assert not siltstone.admin.verify(tmp_path).problems


def test_arrow_columns_are_staged(memory_url) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    with siltstone.open(memory_url) as db:
        job = ingest.Job(memory_url)
        keys = pyarrow.array([key(n) for n in range(1000)], pyarrow.binary())
        with job.writer("all") as writer:
            writer.add_many(keys, keys)
            writer.delete(b"gone")
        db[b"gone"] = b"x"
        db.ingest(job.commit([writer.finish()]))
        assert len(dict(db.scan())) == 1000
        assert db.get(b"gone") is None


def test_submit_without_a_writer_takes_it_in(tmp_path) -> None:
    siltstone.open(tmp_path).close()
    request = staged(str(tmp_path))
    assert ingest.status(tmp_path, request).state == "open"
    done = ingest.submit(request)
    assert done.state == "adopted"
    assert ingest.submit(request) == done
    with siltstone.open_reader(tmp_path) as reader:
        assert len(dict(reader.scan())) == 10


def test_submit_leaves_it_to_the_writer_that_lives(tmp_path) -> None:
    with siltstone.open(tmp_path) as db:
        first = staged(str(tmp_path))
        db.ingest(first).wait()
        # A commit behind the next request would learn of it.
        db.flush(memtable=True)
        request = staged(str(tmp_path), rows=20)
        assert ingest.submit(request, wait=False).state == "pending"
        with pytest.raises(siltstone.Timeout):
            ingest.submit(request, timeout=0.001)
        # Under load the writer looks for requests every second.
        db[b"load"] = b"x"
        assert ingest.submit(request, timeout=60).state == "adopted"
        assert len(dict(db.scan())) == 21


def test_abort(memory_url) -> None:
    with siltstone.open(memory_url) as db:
        job = ingest.Job(memory_url)
        part = task(job, 0, 3)
        assert job.abort().state == "aborted"
        with pytest.raises(siltstone.Conflict, match="aborted"):
            job.commit([part])
        request = staged(memory_url)
        commit = db.ingest(request)
        db.flush(memtable=True)
        job = ingest.Job(memory_url)
        assert ingest.status(memory_url, request).seq == commit.seq


def overwrite(job: ingest.Job, rows: dict[bytes, bytes]) -> ingest.IngestRequest:
    with job.writer("all") as writer:
        for name, value in rows.items():
            writer.add(name, value)
    return job.commit([writer.finish()])


def test_a_job_replaces_a_range(tmp_path) -> None:
    with siltstone.open(tmp_path) as db:
        for n in range(10):
            db[key(n)] = b"before"
        db.flush(memtable=True)
        db[key(4)] = b"in the memtable"
        held = db.snapshot()
        job = pickle.loads(pickle.dumps(ingest.Job(tmp_path, replace=(key(3), key(7)))))
        assert job.replace == (key(3), key(7))
        request = overwrite(job, {key(5): b"new", b"key0005x": b"new"})
        assert (request.rows, request.tables) == (2, 1)
        assert len(list(db.keys())) == 10
        commit = db.ingest(request)
        expected = {key(n): b"before" for n in (0, 1, 2, 7, 8, 9)}
        expected |= {key(5): b"new", b"key0005x": b"new"}
        assert dict(db.scan()) == expected
        assert db.get(key(4)) is None
        assert db.get_many([key(3), key(5)]) == [None, b"new"]
        assert len(dict(held.scan())) == 10
        commit.wait()
        assert db.ingest(request).seq == commit.seq
        db.flush(memtable=True)
        assert dict(db.scan()) == expected
    with siltstone.open_reader(tmp_path) as reader:
        assert dict(reader.scan()) == expected
    with siltstone.open(tmp_path) as db:
        db.compact()
        assert dict(db.scan()) == expected
    assert not siltstone.admin.verify(tmp_path).problems


@pytest.mark.parametrize(
    ("start", "end", "stay"),
    [(None, None, []), (key(3), None, [0, 1, 2]), (None, bytearray(key(3)), [3, 4])],
)
def test_a_range_may_be_open_and_a_job_without_rows_deletes_it(
    memory_url, start, end, stay
) -> None:
    with siltstone.open(memory_url) as db:
        for n in range(5):
            db[key(n)] = b"before"
        last = b"\xff" * 65_535
        db[last] = b"the last key"
        job = ingest.Job(memory_url, replace=(start, end))
        request = job.commit([])
        assert (request.rows, request.tables) == (0, 0)
        db.ingest(request).wait()
        db.flush(memtable=True)
        assert [name for name in db if name != last] == [key(n) for n in stay]
        assert (db.get(last) is None) == (end is None)
        db.compact()
        assert [name for name in db if name != last] == [key(n) for n in stay]


def test_rows_outside_of_what_is_replaced_are_refused(memory_url) -> None:
    with siltstone.open(memory_url):
        for start, end in ((b"b", b"a"), (b"a", b"a"), (b"", None)):
            with pytest.raises(siltstone.Invalid):
                ingest.Job(memory_url, replace=(start, end))
        with pytest.raises(TypeError):
            ingest.Job(memory_url, replace=("a", "b"))
        job = ingest.Job(memory_url, replace=(b"b", b"d"))
        with pytest.raises(siltstone.Invalid, match="outside of the range"):
            overwrite(job, {b"c": b"", b"d": b""})
        assert job.replace == (b"b", b"d")
        assert ingest.Job(memory_url).replace is None


def test_a_version_of_an_application_is_taken_in_once(memory_url) -> None:
    with siltstone.open(memory_url) as db:
        seven = db.ingest(staged(memory_url, txn=("stream", 7)))
        assert db.ingest(staged(memory_url, txn=("stream", 7))).seq == seven.seq
        with pytest.raises(siltstone.Conflict, match="version 7"):
            db.ingest(staged(memory_url, txn=("stream", 6)))
        db.flush(memtable=True)
        ingest.forget_app(memory_url, "stream")
        db.ingest(staged(memory_url, txn=("stream", 1)))


def test_a_job_learns_its_version_late(memory_url) -> None:
    with siltstone.open(memory_url) as db:
        job = ingest.Job(memory_url)
        part = task(job, 0, 3)
        versioned = pickle.loads(pickle.dumps(job)).for_txn(("stream", 4))
        assert (versioned.id, versioned.txn, job.txn) == (job.id, ("stream", 4), None)
        commit = db.ingest(versioned.commit([part]))
        db.flush(memtable=True)
        (app,) = siltstone.admin.manifest(memory_url)["ingest_apps"]
        assert app == {"app": "stream", "version": 4, "job": job.id, "seq": commit.seq}
        with pytest.raises(siltstone.Invalid, match="a version from 0"):
            job.for_txn(("stream", -1))


def test_columns_with_deletes_are_staged(memory_url) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    with siltstone.open(memory_url) as db:
        db[b"gone"] = b"x"
        job = ingest.Job(memory_url)
        keys = pyarrow.array([b"gone", b"kept", b"both", b"both"], pyarrow.binary())
        values = pyarrow.array([None, b"1", b"2", None], pyarrow.binary())
        with job.writer("all", duplicates="last") as writer:
            writer.put_or_delete_many(keys, values)
        db.ingest(job.commit([writer.finish()]))
        assert dict(db.scan()) == {b"kept": b"1"}
        with job.writer("wrong") as writer:
            with pytest.raises(siltstone.Invalid, match="key 0 is null"):
                writer.put_or_delete_many(values, values)
            with pytest.raises(siltstone.Invalid, match="4 keys and 2 values"):
                writer.put_or_delete_many(keys, values[:2])
            with pytest.raises(TypeError):
                writer.put_or_delete_many(pyarrow.array([1]), pyarrow.array([1]))


def number(n: int) -> bytes:
    return n.to_bytes(8, "little", signed=True)


def test_operands_are_merged(memory_url) -> None:
    import pyarrow as pa  # noqa: PLC0415

    with siltstone.open(memory_url, merge_operator="sum_i64") as db:
        db[b"a"] = number(5)
        db[b"gone"] = number(5)
        db.flush(memtable=True)
        job = pickle.loads(pickle.dumps(ingest.Job(memory_url)))
        with job.writer("counts") as writer:
            writer.merge(b"a", number(1))
            writer.merge(b"later", number(9), ttl="1h")
            writer.merge_many([b"b", b"c"], [number(2), number(3)])
            writer.merge_many(pa.array([b"d"]), pa.array([number(4)]), ttl="1h")
            writer.delete(b"gone")
            writer.add(b"put", number(7))
        request = job.commit([writer.finish()])
        feed = db.changes()
        db.merge(b"a", number(10))
        assert db.ingest(request).seq == db.ingest(request).seq
        db.merge(b"a", number(100))
        found = {key: int.from_bytes(value, "little") for key, value in db.scan()}
        assert found == {b"a": 116, b"b": 2, b"c": 3, b"d": 4, b"later": 9, b"put": 7}
        assert db.get_entry(b"d").expires is not None
        assert db.get_entry(b"b").expires is None
        db.flush(memtable=True)
        db.flush()
        seen = set()
        while (batch := feed.read()) is not None:
            rows = pa.record_batch(batch).to_pylist()
            seen |= {(row["key"], row["kind"], row["value"]) for row in rows}
        assert {(b"b", "merge", number(2)), (b"put", "put", number(7))} < seen
        assert (b"gone", "delete", None) in seen
        db.compact()
        assert db[b"a"] == number(116)


def test_unmergeable_operands_are_refused(memory_url) -> None:
    with siltstone.open(memory_url) as db:
        writer = ingest.Job(memory_url).writer(0)
        with pytest.raises(siltstone.Invalid, match="open it once with merge_operator"):
            writer.merge(b"a", number(1))
        with pytest.raises(siltstone.Invalid, match="open it once with merge_operator"):
            writer.merge_many([b"a"], [number(1)])
        # The writer is as it was.
        writer.add(b"a", b"v")
        assert writer.finish().rows == 1
        assert list(db) == []
    with siltstone.open(memory_url, merge_operator="sum_i64"):
        job = ingest.Job(memory_url)
        with pytest.raises(siltstone.Invalid, match="8 bytes"):
            job.writer(0).merge(b"a", b"one")
        with pytest.raises(siltstone.Invalid, match='duplicates="error"'):
            job.writer(0, duplicates="last").merge(b"a", number(1))
        parts = []
        for part in range(2):
            with job.writer(part) as writer:
                writer.merge(b"a", number(1))
            parts.append(writer.finish())
        with pytest.raises(siltstone.Invalid, match="ranges of keys"):
            job.commit(parts)


def test_tables_of_keys_and_values_are_staged(memory_url) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    with siltstone.open(memory_url) as db:
        job = ingest.Job(memory_url)
        rows = {"key": [b"b", b"a", b"c"], "value": ["2", "1", "3"], "other": [0, 0, 0]}
        table = pyarrow.table(rows)
        with job.writer("all") as writer:
            writer.write(table)
            writer.write(pyarrow.concat_tables([table, table]).slice(4, 0))
            writer.write(pyarrow.record_batch({"value": [b"4"], "key": ["d"]}))
            with pytest.raises(siltstone.Invalid, match="the column value is missing"):
                writer.write(table.select(["key"]))
            with pytest.raises(TypeError, match="add_many"):
                writer.write([(b"e", b"5")])
            # The failed part added nothing: the part writer is unchanged.
            with pytest.raises(TypeError):
                writer.add_many(["text"], [b"5"])
        db.ingest(job.commit([writer.finish()]))
        assert dict(db) == {b"a": b"1", b"b": b"2", b"c": b"3", b"d": b"4"}
        with job.writer("wrong") as writer, pytest.raises(siltstone.Invalid, match="value 1 is nu"):
            writer.write(pyarrow.table({"key": [b"a", b"b"], "value": [b"", None]}))
        # The first of two chunks is added before the second is refused: no part of a table may
        # stay.
        for second in ({"key": [b""], "value": [b"2"]}, {"key": [b"b"], "value": [None]}):
            first = pyarrow.table({"key": [b"a"], "value": [b"1"]})
            halves = pyarrow.concat_tables([first, pyarrow.table(second, schema=first.schema)])
            writer = job.writer("half")
            with pytest.raises(siltstone.Invalid):
                writer.write(halves)
            with pytest.raises(siltstone.Invalid, match="earlier call"):
                writer.finish()
            writer.discard()


def test_mistakes_are_told(memory_url) -> None:
    with pytest.raises(siltstone.NotFound):
        ingest.Job(memory_url)
    with siltstone.open(memory_url) as db:
        job = ingest.Job(memory_url)
        assert job.id in repr(job)
        with pytest.raises(siltstone.Unsupported, match="allow_ingest_behind"):
            ingest.Job(memory_url, behind=True)
        with pytest.raises(siltstone.Invalid, match="exclude each other"):
            ingest.Job(memory_url, behind=True, replace=(None, None))
        with pytest.raises(siltstone.Invalid, match="no rows"):
            job.commit([])
        with pytest.raises(siltstone.Invalid, match="another job"):
            job.commit([task(ingest.Job(memory_url), 0, 1)])
        with pytest.raises(TypeError, match=r"Job\.commit"):
            db.ingest(job)
        with pytest.raises(siltstone.Invalid, match="duplicates"):
            job.writer(0, duplicates="first")
        with pytest.raises(siltstone.Invalid, match="table_bytes"):
            job.writer(0, table_bytes=0)
        with pytest.raises(siltstone.Invalid, match="same key"), job.writer(0) as writer:
            writer.add_many([b"a", b"a"], [b"1", b"2"])
        with pytest.raises(siltstone.Closed):
            writer.add(b"a", b"b")
        with job.writer(0, duplicates="last") as writer:
            writer.add_many([b"a", b"a"], [b"1", b"2"])
            assert "2 rows" in repr(writer)
        assert writer.finish() == writer.finish()
        assert "finished" in repr(writer)
        with pytest.raises(siltstone.Invalid, match="no ingest job"):
            ingest.status(memory_url, "x")


@pytest.mark.parametrize(
    ("argument", "error"),
    [
        ({"take_over": "no"}, TypeError),
        ({"take_over": 1}, TypeError),
        ({"wait": "no"}, TypeError),
        ({"wait": None}, TypeError),
        ({"timeout": None}, TypeError),
        ({"timeout": "10 mins x"}, siltstone.Invalid),
        ({"timeout": -1, "wait": False}, siltstone.Invalid),
    ],
)
def test_a_call_with_an_invalid_argument_submits_nothing(tmp_path, argument, error) -> None:
    url = str(tmp_path / "db")
    with siltstone.open(url) as db:
        db[key(1)] = b"kept"
    request = staged(url)
    with pytest.raises(error, match=next(iter(argument))):
        ingest.submit(request, **argument)
    assert ingest.status(url, request).state == "open"
    with siltstone.open(url) as db:
        assert db[key(1)] == b"kept"


def test_it_is_awaited(memory_url) -> None:
    async def work() -> None:
        async with aio.open(memory_url) as db:
            commit = await db.ingest(staged(memory_url))
            await commit
            assert await db.get(key(3)) == b"bulk"

    run(work())


def test_the_command_says_how_a_job_stands(tmp_path) -> None:
    siltstone.open(tmp_path).close()
    request = staged(str(tmp_path))
    ingest.submit(request)
    command = ["--path", str(tmp_path), "ingest-status", request.job]
    assert CliRunner().invoke(cli.main, command).output == "adopted\t1\n"
    told = CliRunner().invoke(cli.main, [*command, "--json"]).output
    assert json.loads(told) == {"job": request.job, "state": "adopted", "seq": 1, "reason": None}


def test_a_job_behind_fills_unwritten_keys(memory_url) -> None:
    with siltstone.open(memory_url, allow_ingest_behind=True) as db:
        db[b"k1"] = b"put"
        db[b"k2"] = b"put"
        del db[b"k2"]
        db.delete_range(b"k4", b"k6")
        job = pickle.loads(pickle.dumps(ingest.Job(memory_url, behind=True)))
        assert job.behind
        assert job.for_txn(("app", 1)).behind
        assert not ingest.Job(memory_url).behind
        with job.writer("all") as writer:
            for n in range(8):
                writer.add(b"k%d" % n, b"old")
        held = db.snapshot()
        assert db.ingest(job.commit([writer.finish()])).durable
        filled = {b"k0": b"old", b"k1": b"put", b"k3": b"old", b"k6": b"old", b"k7": b"old"}
        assert dict(db.scan()) == filled
        assert dict(held.scan()) == {b"k1": b"put"}
        held.close()
        db.compact()
        second = ingest.Job(memory_url, behind=True)
        with second.writer("all") as writer:
            for n in range(9):
                writer.add(b"k%d" % n, b"older")
        status = ingest.submit(second.commit([writer.finish()]))
        assert status.state == "adopted"
        assert status.seq is not None
        assert dict(db.scan()) == filled | {b"k8": b"older"}
    with siltstone.open(memory_url, allow_ingest_behind=True) as db:
        assert dict(db.scan()) == filled | {b"k8": b"older"}


def test_a_database_is_made_for_jobs_behind_it_or_never(memory_url) -> None:
    siltstone.open(memory_url).close()
    with pytest.raises(siltstone.Unsupported, match="allow_ingest_behind"):
        siltstone.open(memory_url, allow_ingest_behind=True)
    assert siltstone.admin.manifest(memory_url)["runs"] == []


def behind(url: str, *rows: tuple[bytes, bytes]) -> ingest.IngestRequest:
    """A job that comes behind all existing data."""
    job = ingest.Job(url, behind=True)
    with job.writer("rows") as writer:
        for key, value in rows:
            writer.add(key, value)
    return job.commit([writer.finish()])


def test_clones_and_mirrors_take_jobs_behind_them_and_unions_none(tmp_path) -> None:
    parent, clone, mirror, union = (str(tmp_path / name) for name in ("p", "c", "m", "u"))
    with siltstone.open(parent, allow_ingest_behind=True) as db:
        db[b"a"] = b"put"
        db[b"b"] = b"put"
        del db[b"b"]
        db.ingest(behind(parent, (b"b", b"first"), (b"c", b"first")))
        db.flush(memtable=True)
        db.compact()
        expected = {b"a": b"put", b"c": b"first"}
        assert dict(db.scan()) == expected
    siltstone.clone(clone, parent=parent)
    siltstone.admin.export(parent, mirror)
    siltstone.admin.promote(mirror)
    for url in (clone, mirror):
        with siltstone.open(url, allow_ingest_behind=True) as db:
            assert dict(db.scan()) == expected
            db.ingest(behind(url, (b"b", b"second"), (b"c", b"second"), (b"d", b"second")))
            db.compact()
            assert dict(db.scan()) == expected | {b"d": b"second"}
        assert siltstone.admin.verify(url).ok
    halves = [str(tmp_path / "left"), str(tmp_path / "right")]
    siltstone.clone(halves[0], parent=parent, end=b"b")
    siltstone.clone(halves[1], parent=parent, start=b"b")
    siltstone.clone(union, parent=halves)
    with siltstone.open(union) as db:
        assert dict(db.scan()) == expected
        with pytest.raises(siltstone.Unsupported, match="allow_ingest_behind"):
            ingest.Job(union, behind=True)


def test_files_come_behind_from_the_command_line(tmp_path) -> None:
    pytest.importorskip("pyarrow")
    url, rows = str(tmp_path / "db"), tmp_path / "rows.csv"
    rows.write_text("key,value\na,old\nb,old\n")
    main = CliRunner().invoke
    made = main(cli.main, ["--path", url, "create", "--allow-ingest-behind"])
    assert made.exit_code == 0, made.output
    with siltstone.open(url) as db:
        db[b"a"] = b"put"
    told = main(cli.main, ["--path", url, "ingest", "--behind", "--json", str(rows)])
    assert json.loads(told.output)["state"] == "adopted"
    with siltstone.open(url) as db:
        assert dict(db.scan()) == {b"a": b"put", b"b": b"old"}
        run(opened_by_asyncio(url))
    other = str(tmp_path / "other")
    siltstone.open(other).close()
    refused = main(cli.main, ["--path", other, "ingest", "--behind", str(rows)])
    assert refused.exit_code != 0
    assert "--allow-ingest-behind" in refused.output


async def opened_by_asyncio(url: str) -> None:
    """asyncio has the same argument."""
    async with aio.open(url + "-aio", allow_ingest_behind=True) as db:
        await db.put(b"a", b"put")
        assert ingest.Job(url + "-aio", behind=True).behind


def test_names_of_jobs_and_parts_are_checked(memory_url) -> None:
    with siltstone.open(memory_url):
        for wrong in [("a",), "ab", ("a", True), ("a", "1"), (1, 1)]:
            with pytest.raises(TypeError, match="txn must be a pair"):
                ingest.Job(memory_url, txn=wrong)
        for wrong in [("", 1), ("a", -1), ("a", 1 << 64)]:
            with pytest.raises(siltstone.Invalid, match="a version from 0"):
                ingest.Job(memory_url, txn=wrong)
        with pytest.raises(TypeError, match="replace must be a pair"):
            ingest.Job(memory_url, replace=(b"a",))
        job = ingest.Job(memory_url)
        for wrong in [None, b"x", 1.0, True, ["a"]]:
            with pytest.raises(TypeError, match="part must be a whole number or text"):
                job.writer(wrong)
        with pytest.raises(TypeError, match=r"PartWriter\.finish"):
            job.commit([None])
        for wrong in [None, 5]:
            with pytest.raises(TypeError, match=r"Job\.commit"):
                ingest.status(memory_url, wrong)
        request = job.commit([task(job, 0, 3)])
        with pytest.raises(TypeError, match="wait=False"):
            ingest.submit(request, timeout=None)


def test_producers_of_one_version_are_answered_alike(tmp_path) -> None:
    """Each producer stages the version and submits it at once. Before the fix, late ones got
    Conflict."""
    siltstone.open(tmp_path).close()
    jobs = [ingest.Job(tmp_path, txn=("stream", 1)) for _ in range(6)]
    requests = [job.commit([task(job, 0, 3)]) for job in jobs]
    with ThreadPoolExecutor(len(requests)) as pool:
        answers = list(pool.map(lambda one: ingest.submit(one, wait=False).state, requests))
    assert answers == ["pending"] * len(requests)
    with siltstone.open(tmp_path) as db:
        commit = db.ingest(requests[2])
        db.flush(memtable=True)
        adopted = ingest.IngestStatus("adopted", commit.seq)
        assert [ingest.status(tmp_path, one) for one in requests] == [adopted] * len(requests)
        assert [ingest.submit(one) for one in requests] == [adopted] * len(requests)


def overlapping(job: ingest.Job, parts: int, rows: int = 50) -> list[ingest.Part]:
    """Parts over the same keys: each part writes every key, and some keys of its own."""

    def part(number: int) -> ingest.Part:
        with job.writer(number) as writer:
            for row in range(rows):
                writer.add(b"%03d" % row, b"%d" % number)
                writer.add(b"%03d-%03d" % (row, number), b"own")
            if number % 7 == 3:
                writer.delete(b"000-%03d" % (number - 1))
        return writer.finish()

    return [part(number) for number in range(parts)]


@pytest.mark.parametrize("clears", [False, True])
def test_parts_over_the_same_keys_are_merged_before_they_show(tmp_path, clears: bool) -> None:
    url, parts, rows = str(tmp_path / "db"), 60, 50
    with siltstone.open(url, options={"l0_max_ssts": 16}) as db:
        db.put_many([b"000-002", b"zz"], [b"before"] * 2)
        db.flush(memtable=True)
        replace = {"replace": (b"0", b"zzz")} if clears else {}
        job = ingest.Job(url, **replace)
        request = job.commit(overlapping(job, parts))
        db.ingest(request).wait()
        db.flush(memtable=True)
        assert db.stats().l0_entries <= 8
        deleted = {b"000-%03d" % (number - 1) for number in range(3, parts, 7)}
        own = {b"%03d-%03d" % (row, n): b"own" for row in range(rows) for n in range(parts)}
        expected = {b"%03d" % row: b"%d" % (parts - 1) for row in range(rows)} | own
        expected = {key: value for key, value in expected.items() if key not in deleted}
        if not clears:
            expected[b"zz"] = b"before"
        assert dict(db.scan()) == expected
        assert db.stats().stopped_writes == 0
    assert admin.verify(url).ok


def test_an_ingest_waits_for_compaction_and_no_put_does(tmp_path) -> None:
    options = {
        "max_pending_compaction_bytes": 3 << 20,
        "embedded_compactor": False,
        "l0_max_ssts": 1_000,
        "deadline": 5,
    }
    url = str(tmp_path / "db")

    def brought(db: siltstone.Database) -> None:
        job = ingest.Job(url)
        with job.writer(0) as writer:
            for n in range(2_000):
                writer.add(b"%04d" % n, os.urandom(100))
        db.ingest(job.commit([writer.finish()]))
        db.flush(memtable=True)

    with siltstone.open(url, options=options) as db:
        with pytest.raises(siltstone.Timeout):
            for _ in range(40):
                brought(db)
        for n in range(20):
            db.put(b"live", b"%d" % n).wait(60)
        assert db.stats().stopped_writes == 0


def test_a_full_queue_is_installed_before_its_time(tmp_path) -> None:
    url = str(tmp_path / "db")
    with siltstone.open(url, options={"l0_manifest_commit_interval": 3600}) as db:
        db.put(b"first", b"1")
        db.flush(memtable=True)
        for n in range(20):
            job = ingest.Job(url)
            with job.writer(0) as writer:
                writer.add(b"%02d" % n, b"v")
            db.ingest(job.commit([writer.finish()]))
        assert sum(1 for _ in db.scan()) == 21


def test_submit_ends_in_time_on_a_store_that_does_not_answer(tmp_path) -> None:
    """Before the fix, each step had the deadline of a handle: 60 s in all, and 30 s without
    `wait`."""
    url = str(tmp_path / "db")
    siltstone.open(url).close()
    request = staged(url)
    with socket.create_server(("127.0.0.1", 0), backlog=64) as server:
        endpoint = f"http://127.0.0.1:{server.getsockname()[1]}"
        keys = {"access_key_id": "k", "secret_access_key": "s", "region": "us-east-1"}
        options = {"endpoint": endpoint, "allow_http": "true", **keys}
        far = dataclasses.replace(request, url="s3://quarry/db")
        for wait in (True, False):
            began = time.monotonic()
            with pytest.raises(siltstone.Timeout, match="waits for: GET http"):
                ingest.submit(far, wait=wait, timeout=1, store_options=options)
            assert time.monotonic() - began < 15


def test_jobs_with_a_deadline_beyond_all_dates_are_listed(url: str) -> None:
    """Before the fix, the listing raised OverflowError."""
    siltstone.open(url).close()
    job = ingest.Job(url, lifetime=timedelta(days=2_950_000))
    with job.writer(0) as writer:
        writer.add(b"a", b"1")
    assert [one.deadline for one in ingest.jobs(url)] == [job.deadline]


def test_submit_ends_a_writer_that_a_lock_shows_dead(tmp_path) -> None:
    url = str(tmp_path / "db")
    program = (
        "import os, sys, siltstone\n"
        "siltstone.open(sys.argv[1]).put(b'k', b'v').wait()\n"
        "os._exit(1)\n"
    )
    subprocess.run([sys.executable, "-c", program, url], check=False)
    with pytest.raises(siltstone.Timeout, match="take_over"):
        ingest.submit(staged(url), timeout=0.5, take_over=False)
    assert ingest.submit(staged(url)).state == "adopted"
    with siltstone.open_reader(url) as reader:
        assert reader[b"k"] == b"v"


@pytest.mark.parametrize("method", ["ingest", "load"])
def test_a_writer_that_never_looks_makes_room(memory_url, method: str) -> None:
    idle = {"writes": {"ingest_poll_interval": None}, "deadline": 60}
    with siltstone.open(memory_url, options=idle) as db:
        for _ in range(256):
            ingest.submit(staged(memory_url, 1), wait=False)
        if method == "ingest":
            db.ingest(staged(memory_url, 1)).wait()
        else:
            assert db.load(pa.table({"key": [b"loaded"], "value": [b""]})).rows == 1


def test_an_id_without_a_trace_is_not_found(tmp_path) -> None:
    siltstone.open(tmp_path).close()
    job = ingest.Job(tmp_path)
    # The job itself tells that it exists; its id tells so once an object was staged.
    assert ingest.status(tmp_path, job).state == "open"
    for name in (job.id, "01ARZ3NDEKTSV4RRFFQ69G5FAV"):
        with pytest.raises(siltstone.NotFound, match="no trace of such a job") as refused:
            ingest.status(tmp_path, name)
        assert refused.value.context["job"] == name
    task(job, 0, 3)
    assert ingest.status(tmp_path, job.id).state == "open"
    request = staged(tmp_path)
    ingest.submit(request)
    assert ingest.status(tmp_path, request.job).state == "adopted"


def test_a_job_without_room_is_not_called_submitted(tmp_path) -> None:
    idle = {"writes": {"ingest_poll_interval": None}}
    with siltstone.open(tmp_path, options=idle):
        for _ in range(256):
            ingest.submit(staged(tmp_path, 1), wait=False)
        last = staged(tmp_path, 1)
        with pytest.raises(siltstone.Timeout, match="it is not submitted, so submit it again"):
            ingest.submit(last, timeout=0.5)
        assert ingest.status(tmp_path, last).state == "open"
    assert ingest.submit(last).state == "adopted"


def test_a_job_that_a_restore_has_undone_is_refused(tmp_path) -> None:
    """With and without an application: its rows are gone, so no answer may say that it is there."""
    url = tmp_path / "db"
    with siltstone.open(url) as db:
        db[b"a"] = b"1"
        before = db.checkpoint()
        requests = [staged(url), staged(url, txn=("app", 1))]
        for request in requests:
            db.ingest(request).wait()
    admin.restore(url, before)
    with siltstone.open(url) as db:
        for request in requests:
            with pytest.raises(siltstone.Conflict, match="staged before the database was restored"):
                db.ingest(request)
            with pytest.raises(siltstone.Conflict, match="staged before the database was restored"):
                ingest.submit(request)
        assert list(db) == [b"a"]
        again = staged(url)
        db.ingest(again).wait()
        assert len(list(db)) == 11
        assert ingest.submit(again).state == "adopted"
