"""Bulk load: any amount of Arrow data, on all cores, in one commit."""

from __future__ import annotations

import asyncio
import gzip
import json
import random
import signal
import subprocess
import sys
import tempfile
import textwrap
import threading

import pyarrow as pa
import pytest
from click.testing import CliRunner
from pyarrow import feather, parquet

import siltstone
from aio_for_tests import run
from pace_for_tests import PATIENCE
from siltstone import aio, cli, ingest


def rows(count: int, *, seed: int | None = None) -> dict[bytes, bytes]:
    """`count` rows, in key order, or shuffled if `seed` is given."""
    numbers = list(range(count))
    if seed is not None:
        random.Random(seed).shuffle(numbers)
    return {b"key%08d" % n: b"value %d" % n for n in numbers}


def table(pairs: dict[bytes, bytes], *types: pa.DataType) -> pa.Table:
    key, value = types or (pa.binary(), pa.binary())
    return pa.table({"key": pa.array(pairs, key), "value": pa.array(pairs.values(), value)})


@pytest.mark.parametrize("ordered", [False, True])
def test_a_load_is_visible_and_durable(tmp_path, ordered: bool) -> None:
    pairs = rows(50_000, seed=None if ordered else 1)
    with siltstone.open(tmp_path) as db:
        db[b"key00000007"] = b"before"
        db[b"other"] = b"stays"
        done = db.load(table(pairs), sorted=ordered)
        assert (done.rows, done.seq) == (50_000, 3)
        assert done.ssts >= 1
        assert done.bytes > 50_000 * 10
        assert set(done.seconds) == {"read", "build", "commit"}
        assert dict(db.scan()) == {**pairs, b"other": b"stays"}
        db[b"key00000008"] = b"after"
        assert db.get_many([b"key00000007", b"key00000008"]) == [b"value 7", b"after"]
    with siltstone.open_reader(tmp_path) as reader:
        assert reader[b"key00000007"] == b"value 7"
    assert not siltstone.admin.verify(tmp_path).problems


PAIRS = rows(300, seed=2)
WHOLE = table(PAIRS)


class Frame:
    """A frame of another library."""

    def __arrow_c_stream__(self, requested_schema=None):
        return WHOLE.__arrow_c_stream__(requested_schema)


@pytest.mark.parametrize(
    "data",
    [
        lambda: WHOLE,
        lambda: WHOLE.to_batches()[0],
        lambda: pa.RecordBatchReader.from_batches(WHOLE.schema, WHOLE.to_batches(7)),
        lambda: WHOLE.to_batches(7),
        lambda: (WHOLE.slice(at, 100) for at in (0, 100, 200)),
        lambda: [(WHOLE["key"], WHOLE["value"])],
        lambda: WHOLE.append_column("more", pa.array(range(300))),
        lambda: table(PAIRS, pa.large_binary(), pa.string()),
        lambda: table(PAIRS, pa.binary(11), pa.binary_view()),
        lambda: table(PAIRS, pa.string_view(), pa.large_string()),
        lambda: WHOLE.to_pandas(),
        lambda: Frame(),
    ],
)
def test_accepted_forms_of_rows(memory_url: str, data) -> None:
    with siltstone.open(memory_url) as db:
        assert db.load(data()).rows == 300
        assert dict(db.scan()) == PAIRS


@pytest.mark.parametrize("data", [[], table({}), iter(()), table({}).to_batches()])
def test_nothing_is_loaded(memory_url: str, data) -> None:
    with siltstone.open(memory_url) as db:
        done = db.load(data)
        assert (done.rows, done.ssts, done.seq) == (0, 0, None)


def with_null(column: str) -> pa.Table:
    columns = {"key": [b"a", b"b"], "value": [b"1", b"2"]}
    columns[column][1] = None
    return pa.table({name: pa.array(each, pa.binary()) for name, each in columns.items()})


def pair(keys: list[bytes]) -> pa.Table:
    return pa.table({"key": pa.array(keys, pa.binary()), "value": pa.array(keys, pa.binary())})


@pytest.mark.parametrize(
    ("data", "named", "kind", "text"),
    [
        (pa.table({"key": [b"a"]}), {}, siltstone.Invalid, "column value is missing"),
        (with_null("key"), {}, siltstone.Invalid, "key 1 is null"),
        (with_null("value"), {}, siltstone.Invalid, "value 1 is null"),
        (pa.table({"key": [1], "value": [b"a"]}), {}, TypeError, "key: .*Int64"),
        (pair([b"a", b"c", b"b"]), {"sorted": True}, siltstone.Invalid, r"row: 2.*key: b"),
        (pair([b"a", b"b", b"b"]), {"sorted": True}, siltstone.Invalid, r"key: b.*row: 1"),
        (pair([b"b", b"a", b"b"]), {}, siltstone.Invalid, r"key: b.*row: 0.*other row: 2"),
        (pair([b"a", b""]), {}, siltstone.Invalid, "row: 1"),
        (pair([b"a"]), {"duplicates": "first"}, siltstone.Invalid, "duplicates"),
        (pair([b"a"]), {"memory_bytes": 1}, siltstone.Invalid, "memory_bytes"),
        (7, {}, TypeError, "not int"),
        ([7], {}, TypeError, "not int"),
        ([(b"a", b"b")], {}, TypeError, "not tuple"),
        ({b"a": b"b"}, {}, TypeError, "not dict; put_many"),
        ({"key": [b"a"], "value": [b"b"]}, {}, TypeError, r"pyarrow\.table makes Arrow data"),
    ],
)
def test_refused_rows(memory_url: str, data, named, kind, text: str) -> None:
    with siltstone.open(memory_url) as db:
        with pytest.raises(kind, match=text):
            db.load(data, **named)
        assert list(db) == []
        assert db.load(pair([b"a"])).rows == 1


@pytest.mark.parametrize("ordered", [False, True])
def test_the_last_of_equal_keys_counts(memory_url: str, ordered: bool) -> None:
    keys, values = [b"a", b"b", b"b", b"c"], [b"1", b"2", b"3", b"4"]
    data = [(pa.array([key]), pa.array([value])) for key, value in zip(keys, values, strict=True)]
    with siltstone.open(memory_url) as db:
        assert db.load(data, sorted=ordered, duplicates="last").rows == 3
        assert dict(db.scan()) == {b"a": b"1", b"b": b"3", b"c": b"4"}


def test_more_than_memory_goes_through_files(tmp_path) -> None:
    """Four heaps are merged; no file stays in the scratch folder."""
    count, some = 160_000, 10_000
    value = b"v" * 500
    numbers = list(range(count))
    random.Random(3).shuffle(numbers)
    batches = (
        (
            pa.array([b"%08d" % n for n in numbers[at : at + some]]),
            pa.array([b"%d%s" % (n, value) for n in numbers[at : at + some]]),
        )
        for at in range(0, count, some)
    )
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    with siltstone.open(tmp_path / "db") as db:
        done = db.load(batches, memory_bytes=64 << 20, scratch=scratch)
        assert done.rows == count
        assert list(scratch.iterdir()) == []
        found = 0
        for n, (key, got) in enumerate(db.scan()):
            assert (key, got) == (b"%08d" % n, b"%d%s" % (n, value))
            found += 1
        assert found == count


def test_progress_is_told_and_may_end_it(memory_url: str) -> None:
    told: list[tuple[int, int]] = []

    def batches():
        for at in range(1000):
            yield pair([b"%04d" % at + b"x" * 1000])

    class Enough(Exception):
        pass

    def progress(done: int, total: int) -> None:
        told.append((done, total))
        if len(told) == 2:
            raise Enough

    def endless():
        while True:
            yield from batches()

    with siltstone.open(memory_url) as db:
        with pytest.raises(Enough):
            db.load(endless(), duplicates="last", on_progress=progress)
        assert all(0 <= done <= total for done, total in told)
        assert list(db) == []
        with pytest.raises(ZeroDivisionError):
            db.load(pair([b"a"]) for n in range(3) if 1 / (n - 1))
        ends: list[tuple[int, int]] = []
        assert db.load(batches(), on_progress=lambda *so_far: ends.append(so_far)).rows == 1000
        assert ends[-1][0] == ends[-1][1] > 2_000_000


def test_ctrl_c_ends_it(tmp_path) -> None:
    """The load ends within a second, and the handle still works."""
    program = """
        import os, signal, sys, threading, time
        import pyarrow as pa, siltstone

        batch = pa.table({"key": [b"%05d" % n for n in range(1000)], "value": [b"v" * 100] * 1000})
        ended = threading.Event()

        def interrupt():
            # Again after some seconds: pyarrow ignores a KeyboardInterrupt that comes while it
            # releases memory. Meanwhile the load goes on, and fills files.
            pause = 0.5
            while not ended.wait(pause):
                os.kill(os.getpid(), signal.SIGINT)
                pause = 5

        def endless():
            threading.Thread(target=interrupt).start()
            while True:
                yield batch

        with siltstone.open(sys.argv[1]) as db:
            try:
                db.load(endless(), duplicates="last", memory_bytes=64 << 20)
            except KeyboardInterrupt:
                ended.set()
                print("interrupted", flush=True)
            db[b"a"] = b"b"
            assert list(db) == [b"a"]
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program), str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "interrupted\n"), done.stderr


def test_a_part_of_a_job_is_loaded(memory_url: str) -> None:
    with siltstone.open(memory_url) as db:
        job = ingest.Job(memory_url)
        parts = [
            job.load(0, table(rows(1000)), sorted=True),
            job.load("other", [pair([b"key00000001", b"a"])], duplicates="last"),
        ]
        assert [part.rows for part in parts] == [1000, 2]
        assert all(part.tables == 1 for part in parts)
        db.ingest(job.commit(parts)).wait()
        assert len(list(db)) == 1001
        assert db[b"key00000001"] == b"key00000001"


def test_aio(memory_url: str) -> None:
    async def work() -> None:
        async with aio.open(memory_url) as db:
            done = await db.load(WHOLE, on_progress=lambda *_: None)
            assert done.rows == 300
            assert done.to_dict()["rows"] == 300
            with pytest.raises(siltstone.Invalid, match="same key"):
                await db.load(pair([b"a", b"a"]))
            assert await db.get(b"a") is None

    run(work())


def test_a_cancelled_load_ends(memory_url: str) -> None:

    async def work() -> None:
        loop, begun, ended = asyncio.get_running_loop(), asyncio.Event(), asyncio.Event()

        def endless():
            try:
                while True:
                    loop.call_soon_threadsafe(begun.set)
                    yield pair([b"a"])
            finally:
                loop.call_soon_threadsafe(ended.set)

        async with aio.open(memory_url) as db:
            loading = asyncio.create_task(db.load(endless(), duplicates="last"))
            await begun.wait()
            loading.cancel()
            with pytest.raises(asyncio.CancelledError):
                await loading
            await asyncio.wait_for(ended.wait(), 60)
            assert await db.get(b"a") is None

    run(work())


def command(path: object, *arguments: str) -> tuple[int, dict]:
    done = CliRunner().invoke(cli.main, ["--path", str(path), "ingest", *arguments, "--json"])
    return done.exit_code, json.loads(done.stdout) if done.exit_code == 0 else {"": done.output}


def test_files_are_ingested_by_the_command(tmp_path) -> None:
    data = pa.table({"id": [b"b", b"a"], "body": ["two", "one"], "n": [1, 2]})
    parquet.write_table(data, tmp_path / "rows.parquet")
    feather.write_feather(data, tmp_path / "rows.feather", compression="uncompressed")
    with pa.ipc.new_stream(tmp_path / "rows.arrows", data.schema) as sink:
        sink.write_table(data)
    text = "id,body,n\nb,two,1\na,one,2\n"
    (tmp_path / "rows.csv").write_text(text)
    (tmp_path / "rows.csv.gz").write_bytes(gzip.compress(text.encode()))
    categories = data.set_column(1, "body", data["body"].dictionary_encode())
    parquet.write_table(categories, tmp_path / "categories.parquet")
    columns = ["--key", "id", "--value", "body"]
    names = ("rows.parquet", "rows.feather", "rows.arrows", "rows.csv", "rows.csv.gz")
    for name in (*names, "categories.parquet"):
        place = tmp_path / f"{name}.db"
        siltstone.open(place).close()
        status, told = command(place, str(tmp_path / name), *columns)
        assert (status, told["rows"], told["state"], told["seq"]) == (0, 2, "adopted", 1), told
        with siltstone.open_reader(place) as reader:
            assert dict(reader.scan()) == {b"a": b"one", b"b": b"two"}
    both = [str(tmp_path / "rows.csv"), str(tmp_path / "rows.parquet"), *columns]
    status, told = command(place, *both)
    assert status == 1
    assert "same key" in told[""]
    status, told = command(place, *both, "--duplicates", "last")
    assert (status, told["rows"]) == (0, 2)
    status, told = command(place, *both, "--sorted")
    assert status == 1
    assert "ascending" in told[""]


def test_the_command_sorts_in_files_what_is_more_than_its_memory(tmp_path, monkeypatch) -> None:
    siltstone.open(tmp_path / "db").close()
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    # Two thirds of the memory are for rows: this is more.
    rows, value = 60_000, b"v" * 1000
    keys = [b"%08x" % (n * 0x9E3779B1 % 2**32) for n in range(rows)]
    parquet.write_table(pa.table({"key": keys, "value": [value] * rows}), tmp_path / "rows.parquet")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "absent"))
    arguments = [str(tmp_path / "rows.parquet"), "--memory", "64MiB"]
    status, told = command(tmp_path / "db", *arguments)
    assert status == 1
    assert "absent" in told[""]
    status, told = command(tmp_path / "db", *arguments, "--scratch", str(scratch))
    assert (status, told["rows"]) == (0, rows), told
    assert list(scratch.iterdir()) == []
    with siltstone.open_reader(tmp_path / "db") as reader:
        assert [key for key, _ in reader.scan()] == sorted(keys)
    for given, text in (("10MiB", "the minimum is 64MiB"), ("much", "is not a size")):
        status, told = command(tmp_path / "db", arguments[0], "--memory", given)
        assert status == 2
        assert text in told[""]


def test_rows_that_the_command_refuses(tmp_path) -> None:
    siltstone.open(tmp_path / "db").close()
    data = pa.table({"key": [b"a"], "value": [7]})
    parquet.write_table(data, tmp_path / "rows.parquet")
    (tmp_path / "rows.txt").write_text("key,value\n")
    (tmp_path / "broken.arrow").write_text("nothing of Arrow's")
    for name, status, text in (
        ("rows.parquet", 1, "holds int64"),
        ("rows.txt", 2, "unknown format"),
        ("broken.arrow", 1, "broken.arrow"),
        ("absent.csv", 2, "does not exist"),
    ):
        exit_code, told = command(tmp_path / "db", str(tmp_path / name))
        assert exit_code == status, told
        assert text in told[""]
    status, told = command(tmp_path / "db", str(tmp_path / "rows.parquet"), "--value", "no")
    assert status == 1
    assert "the columns are: key, value" in told[""]


@pytest.mark.parametrize(
    ("keys", "values", "more", "text"),
    [
        ([b"c", b"b"], [b"1", b"2"], [], "row 1 of {first} and row 1 of {second}: two rows"),
        ([b"c", b"a"], [b"1", b"2"], ["--sorted"], "row 1 of {second}: rows must come in"),
        ([b"c", b"d" * 70_000], [b"1", b"2"], [], "row 1 of {second}: a key has at most"),
        ([b"c", None], [b"1", b"2"], [], "row 1 of {second}: the column key is null"),
        ([b"c", b"d"], [None, b"2"], [], "row 0 of {second}: the column value is null"),
    ],
)
def test_the_command_names_the_file_of_a_wrong_row(tmp_path, keys, values, more, text) -> None:
    siltstone.open(tmp_path / "db").close()
    first, empty, second = (tmp_path / f"{name}.parquet" for name in ("first", "empty", "second"))
    rows = pa.table({"key": [b"a", b"b"], "value": [b"1", b"2"]})
    parquet.write_table(rows, first)
    parquet.write_table(rows.slice(0, 0), empty)
    parquet.write_table(pa.table({"key": keys, "value": values}), second)
    status, told = command(tmp_path / "db", *map(str, (first, empty, second)), *more)
    assert status == 1
    assert text.format(first=first, second=second) in told[""]


@pytest.mark.parametrize("error", [ZeroDivisionError, StopIteration])
def test_a_callback_that_fails_ends_each_load(memory_url: str, error: type[Exception]) -> None:
    """It is called before the commit, however short the load is, blocking and awaited alike."""

    def fails(_done: int, _total: int) -> None:
        raise error

    with siltstone.open(memory_url) as db:
        with pytest.raises(error):
            db.load(WHOLE, on_progress=fails)
        assert list(db) == []

    async def loads() -> None:
        async with aio.open(memory_url) as db:
            await db.load(WHOLE, on_progress=fails)

    # A coroutine cannot raise StopIteration.
    with pytest.raises(RuntimeError if error is StopIteration else error):
        run(loads())
    with siltstone.open_reader(memory_url) as reader:
        assert list(reader.keys()) == []


def test_the_command_leaves_it_to_the_writer_that_lives(tmp_path) -> None:
    (tmp_path / "rows.csv").write_text("key,value\nb,2\na,1\n")
    with siltstone.open(tmp_path / "db") as db:
        db.load(WHOLE)
        # The writer looks every ten seconds, or with its next commit: the test does not wait for
        # the first.
        found = threading.Event()

        def commits() -> None:
            while not found.wait(0.2):
                db[b"other"] = b"x"
                db.flush(memtable=True)

        busy = threading.Thread(target=commits)
        busy.start()
        try:
            status, told = command(tmp_path / "db", str(tmp_path / "rows.csv"))
        finally:
            found.set()
            busy.join()
        assert (status, told["state"]) == (0, "adopted")
        assert db[b"a"] == b"1"


def test_a_load_that_is_settled_leaves_no_record(memory_url: str) -> None:
    table = pa.table({"key": [b"key"], "value": [b"value"]})
    for life in range(3):
        with siltstone.open(memory_url) as db:
            for _ in range(20):
                db.load(table)
            db.flush(memtable=True)
            known = siltstone.admin.manifest(memory_url)
            assert known["remembered_ingests"] == 0
            assert [one["version"] & 0xFFFFFFFF for one in known["ingest_apps"]] == [19]
            assert known["ingest_apps"][0]["version"] >> 32 == known["writer_epoch"] > life


def test_an_exception_of_the_data_itself_is_raised(url: str) -> None:
    class Files:
        def __iter__(self):
            raise FileNotFoundError("missing.parquet")

    class Interrupted:
        def __iter__(self):
            signal.raise_signal(signal.SIGINT)
            return iter([])

    with siltstone.open(url) as db:
        with pytest.raises(FileNotFoundError, match=r"missing\.parquet"):
            db.load(Files())
        with pytest.raises(KeyboardInterrupt):
            db.load(Interrupted())
        with pytest.raises(TypeError, match="data"):
            db.load(5)
