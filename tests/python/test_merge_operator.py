"""Merge operators: built-in ones, functions, failing ones, recorded by name, in readers and
pickles."""

from __future__ import annotations

import asyncio
import pickle
import struct
import threading
import uuid
from pathlib import Path

import pytest

import siltstone
import siltstone.aio
from siltstone.merging import MergeOperator

SMALL = {"l0_sst_size_bytes": 1024, "block_bytes": 64, "flush_interval": 0}


def number(n: int) -> bytes:
    return struct.pack("<q", n)


def longest(key: bytes, base: bytes | None, operands: list[bytes]) -> bytes:
    """The longest value that was ever merged."""
    del key
    return max([base or b"", *operands], key=len)


def joined(key: bytes, operands: list[bytes]) -> bytes | None:
    del key
    return max(operands, key=len)


LONGEST = MergeOperator("longest", longest, joined)


def strict(key: bytes, base: bytes | None, operands: list[bytes]) -> bytes:
    """Refuses some operands."""
    del key
    if b"bad" in operands:
        raise LookupError("this operand")
    return b"".join([base or b"", *operands])


def gives_text(key: bytes, base: bytes | None, operands: list[bytes]) -> bytes:
    del key, base, operands
    return "text"  # type: ignore[return-value]


@pytest.fixture
def url() -> str:
    return f"memory://{uuid.uuid4().hex}"


def test_the_built_in_operators(url: str) -> None:
    with siltstone.open(url + "s", merge_operator="sum_i64") as db:
        for n in (1, -5, 40):
            db.merge(b"k", number(n))
        assert db[b"k"] == number(36)
        db[b"k"] = number(2**63 - 1)
        db.merge(b"k", number(1))
        assert db[b"k"] == number(-(2**63))
        with pytest.raises(siltstone.Invalid, match="8 bytes"):
            db.merge(b"k", b"1")
        db[b"text"] = b"seven"
        db.merge(b"text", number(1))
        for read in (lambda: db.get(b"text"), lambda: list(db.scan())):
            with pytest.raises(siltstone.Invalid, match="8 bytes") as caught:
                read()
            assert caught.value.context["key"] == "text"
    with siltstone.open(url + "m", merge_operator="max") as db:
        db.merge(b"k", b"b")
        db.merge(b"k", b"a")
        assert db[b"k"] == b"b"
    with siltstone.open(url + "a", merge_operator="append") as db:
        db[b"k"] = b"1"
        with db.batch() as batch:
            batch.merge(b"k", b"2")
            batch.merge(b"l", b"x")
            batch.delete(b"l")
            batch.merge(b"l", b"y")
        assert dict(db) == {b"k": b"12", b"l": b"y"}
        assert db.get_many([b"k", b"none", b"l"]) == [b"12", None, b"y"]
        assert list(db.scan(reverse=True)) == [(b"l", b"y"), (b"k", b"12")]


def test_merged_values_stay_over_flush_compaction_and_reopening(url: str) -> None:
    total = 0
    for round_ in range(4):
        # A recorded built-in operator need not be given again.
        operator = "sum_i64" if round_ == 0 else None
        with siltstone.open(url, options=SMALL, merge_operator=operator) as db:
            for n in range(60):
                db.merge(b"total", number(n))
                db.merge(b"%03d" % n, number(1))
                total += n
            assert db[b"total"] == number(total)
            snapshot = db.snapshot()
            db.merge(b"total", number(1000))
            if round_ % 2:
                db.compact()
            assert snapshot[b"total"] == number(total)
            total += 1000
            assert db[b"total"] == number(total)
            assert db[b"007"] == number(round_ + 1)
            db.flush()
            with siltstone.open_reader(url, options=SMALL) as reader:
                assert reader[b"total"] == number(total)


def test_functions_fold_in_reads_scans_readers_and_compactions(url: str) -> None:
    with siltstone.open(url, options=SMALL, merge_operator=LONGEST) as db:
        for n in range(50):
            db.merge(b"k%02d" % (n % 5), b"x" * n)
        db.compact()
        assert dict(db) == {b"k%02d" % n: b"x" * (45 + n) for n in range(5)}
        db.merge(b"k00", b"y" * 100)
        db.flush()
        with siltstone.open_reader(url, options=SMALL, merge_operator=LONGEST) as reader:
            assert reader[b"k00"] == b"y" * 100
            again = pickle.loads(pickle.dumps(reader))
            assert again[b"k00"] == b"y" * 100
            again.close()
    found = siltstone.admin.manifest(url)
    assert found["settings"]["merge_operator"] == "longest"


def test_a_plain_function_is_named_by_where_it_is(url: str) -> None:
    with siltstone.open(url, merge_operator=longest) as db:
        db.merge(b"k", b"abc")
        db.merge(b"k", b"d")
        assert db[b"k"] == b"abc"
    name = siltstone.admin.manifest(url)["settings"]["merge_operator"]
    assert name == f"{__name__}:longest"
    with siltstone.open(url, merge_operator=name) as db:
        assert db[b"k"] == b"abc"
    with pytest.raises(siltstone.Invalid, match="another process could import"):
        siltstone.open(url, merge_operator=lambda *_: b"")
    with pytest.raises(siltstone.Invalid, match="imported"):
        siltstone.open(url, merge_operator="no.such:thing")


def test_another_operator_is_refused_and_none_is_told_the_way_out(url: str) -> None:
    with siltstone.open(url, merge_operator=LONGEST) as db:
        db[b"plain"] = b"1"
        db.merge(b"k", b"operand")
    for open_it in (siltstone.open, siltstone.open_reader):
        with pytest.raises(siltstone.Invalid, match="longest"):
            open_it(url, merge_operator="max")
    with siltstone.open(url) as db:
        assert db[b"plain"] == b"1"
        assert db.get_many([b"plain", b"none"]) == [b"1", None]
        recorded = r"merge operator.*merge operator: longest"
        with pytest.raises(siltstone.Invalid, match=recorded):
            db[b"k"]
        with pytest.raises(siltstone.Invalid, match=recorded):
            list(db.scan())
        with pytest.raises(siltstone.Invalid, match=recorded):
            db.merge(b"k", b"more")
        with pytest.raises(siltstone.Invalid, match=recorded), db.batch() as batch:
            batch.merge(b"k", b"more")
        db.compact()
    with (
        siltstone.open_reader(url) as reader,
        pytest.raises(siltstone.Invalid, match=recorded),
    ):
        reader[b"k"]
    with siltstone.open(url, merge_operator=LONGEST) as db:
        assert db[b"k"] == b"operand"


def test_an_operator_can_come_later(url: str) -> None:
    with siltstone.open(url) as db:
        db[b"k"] = number(1)
    with siltstone.open(url, merge_operator="sum_i64") as db:
        db.merge(b"k", number(2))
    with siltstone.open_reader(url) as reader:
        assert reader[b"k"] == number(3)


def test_a_reader_that_was_open_before_learns_of_a_built_in_one(url: str) -> None:
    with siltstone.open(url) as db:
        db[b"k"] = number(1)
    with (
        siltstone.open_reader(url) as reader,
        siltstone.open(url, merge_operator="sum_i64") as db,
    ):
        db.merge(b"k", number(2)).wait()
        reader.refresh()
        assert reader[b"k"] == number(3)


@pytest.mark.parametrize("flushed", [False, True])
def test_an_error_of_an_operator_is_told_and_loses_nothing(url: str, flushed: bool) -> None:
    with siltstone.open(url, options=SMALL, merge_operator=strict) as db:
        db.merge(b"k", b"1")
        db.merge(b"k", b"bad")
        db.merge(b"other", b"2")
        if flushed:
            db.compact()
        for read in (lambda: db[b"k"], lambda: db.get_many([b"k"]), lambda: list(db.scan())):
            with pytest.raises(siltstone.Invalid, match="LookupError: this operand") as told:
                read()
            assert isinstance(told.value.__cause__, LookupError)
            assert told.value.context["merge_operator"].endswith(":strict")
        assert db[b"other"] == b"2"
        for n in range(200):
            db[b"%d" % n] = b"v" * 50
        db.compact()
        db[b"k"] = b"fresh"
        db.merge(b"k", b"3")
        assert db[b"k"] == b"fresh3"
        db.compact()
        assert db[b"k"] == b"fresh3"


def test_a_result_that_is_not_bytes_is_refused(url: str) -> None:
    with siltstone.open(url, merge_operator=gives_text) as db:
        db.merge(b"k", b"1")
        with pytest.raises(siltstone.Invalid, match="gives bytes, not str"):
            db[b"k"]
    with pytest.raises(siltstone.Invalid, match="built in"):
        siltstone.open(url, merge_operator="min")
    with pytest.raises(TypeError, match="MergeOperator, a function or a name"):
        siltstone.open(url, merge_operator=7)
    with pytest.raises(siltstone.Invalid, match="built in"):
        MergeOperator("max", longest)
    with pytest.raises(siltstone.Invalid, match="255"):
        MergeOperator("", longest)


def test_folds_and_threads_do_not_wait_for_each_other(tmp_path: Path) -> None:
    with siltstone.open(tmp_path, options=SMALL, merge_operator=LONGEST) as db:
        done = threading.Event()

        def read() -> None:
            while not done.is_set():
                list(db.scan())
                db.get_many([b"k%02d" % n for n in range(20)])

        readers = [threading.Thread(target=read) for _ in range(3)]
        for reader in readers:
            reader.start()
        try:
            for n in range(400):
                db.merge(b"k%02d" % (n % 20), b"x" * (n % 90))
                if n % 100 == 99:
                    db.compact()
        finally:
            done.set()
            for reader in readers:
                reader.join()


def test_merges_are_awaited(url: str) -> None:
    async def work() -> None:
        async with siltstone.aio.open(url, merge_operator="append") as db:
            await (await db.merge(b"k", b"1"))
            async with db.batch() as batch:
                batch.merge(b"k", b"2")
            assert await db.get(b"k") == b"12"
            await db.flush()
            async with siltstone.aio.open_reader(url, merge_operator="append") as reader:
                assert await reader.get(b"k") == b"12"

    asyncio.run(work())


def of_even_keys(key: bytes, base: bytes | None, operands: list[bytes]) -> bytes:
    """Fails for every second key."""
    del base
    if int(key) % 2:
        raise ArithmeticError(key)
    return operands[-1]


def test_a_scan_that_fails_gives_the_rows_before_and_fails_again(memory_url: str) -> None:
    operator = MergeOperator("even", of_even_keys)
    with siltstone.open(memory_url, merge_operator=operator) as db:
        for row in range(9):
            db[b"%d" % row] = b"row"
        db.merge(b"5", b"operand")
        scan = db.keys()
        assert [next(scan) for _ in range(5)] == [b"%d" % row for row in range(5)]
        for _ in range(3):
            with pytest.raises(siltstone.Invalid, match="ArithmeticError"):
                next(scan)

        async def read() -> None:
            async with siltstone.aio.Database(db) as shared:
                rows = shared.keys()
                assert [await anext(rows) for _ in range(5)] == [b"%d" % row for row in range(5)]
                for _ in range(3):
                    with pytest.raises(siltstone.Invalid, match="ArithmeticError"):
                        await anext(rows)

        asyncio.run(read())


def test_an_operator_that_reads_its_own_key_is_refused(memory_url: str) -> None:
    def reads(key: bytes, base: bytes | None, operands: list[bytes]) -> bytes:
        return (base or b"") + b"".join(operands) + (db.get(key) or b"")

    with siltstone.open(memory_url, merge_operator=MergeOperator("reads", reads)) as db:
        db.merge(b"key", b"operand")
        with pytest.raises(siltstone.Invalid, match="from its arguments alone"):
            db.get(b"key")
        db.flush(memtable=True)
        db.merge(b"key", b"another")
        db.flush(memtable=True)
        db.compact()  # keeps the operands
        with pytest.raises(siltstone.Invalid, match="from its arguments alone"):
            db.get(b"key")


@pytest.mark.parametrize("call", ["compact", "flush", "close"])
def test_an_operator_that_waits_for_its_database_is_refused(memory_url: str, call: str) -> None:
    """A compaction would wait for the operator, and the operator for the compaction."""
    refused: list[str] = []

    def waits(key: bytes, base: bytes | None, operands: list[bytes]) -> bytes:
        del key
        try:
            getattr(db, call)()
        except siltstone.Invalid as error:
            refused.append(str(error))
        return (base or b"") + b"".join(operands)

    with siltstone.open(memory_url, merge_operator=MergeOperator("waits", waits)) as db:
        db.put(b"key", b"value")
        db.flush(memtable=True)
        db.merge(b"key", b"operand")
        assert db.get(b"key") == b"valueoperand"
        db.flush(memtable=True)
        db.compact()
        assert db.get(b"key") == b"valueoperand"
    assert len(refused) >= 2
    assert all("cannot make this call" in text and call in text for text in refused)


def test_an_interrupt_within_an_operator_is_no_error_of_the_call(memory_url: str) -> None:
    def interrupted(key: bytes, base: bytes | None, operands: list[bytes]) -> bytes:
        del key, base, operands
        raise KeyboardInterrupt

    operator = MergeOperator("interrupted", interrupted)
    with siltstone.open(memory_url, merge_operator=operator) as db:
        db.merge(b"key", b"operand")
        with pytest.raises(KeyboardInterrupt):
            db.get(b"key")
        with pytest.raises(KeyboardInterrupt):
            list(db.scan())
