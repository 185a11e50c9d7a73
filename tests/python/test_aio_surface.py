"""`siltstone.aio` has the same names, errors and results as the blocking interface."""

from __future__ import annotations

import asyncio
import inspect
import threading
import uuid

import hypothesis.strategies as st
import pyarrow as pa
import pytest
from hypothesis import given, settings

import siltstone
from aio_for_tests import at_once, rows, run
from siltstone import aio
from siltstone.aio import _scan as scanning

NOT_AWAITED = {"mapping"}
"""Members with item operators, which cannot be awaited."""
ITEM_OPERATORS = {"__getitem__", "__setitem__", "__delitem__", "__contains__", "__len__"}


@pytest.mark.parametrize(("kind", "way"), [(aio.Database, "open"), (aio.Reader, "open_reader")])
def test_a_handle_is_made_by_opening(kind: type, way: str) -> None:
    with pytest.raises(TypeError, match=rf"await siltstone\.aio\.{way}\(url\)"):
        kind("example.db")


@pytest.mark.parametrize(
    "name", ["Database", "Reader", "Snapshot", "Transaction", "Commit", "WriteBatch", "Scan"]
)
def test_the_surface_is_that_of_siltstone(name: str) -> None:
    built, awaited = getattr(siltstone, name), getattr(aio, name)
    public = {member for member in dir(built) if not member.startswith("_")} - NOT_AWAITED
    mine = {member for member in dir(awaited) if not member.startswith("_")}
    in_place_of_operators = {"contains"} if hasattr(built, "__getitem__") else set()
    assert mine == public | in_place_of_operators
    for member in public:
        ours = getattr(awaited, member)
        if not callable(ours):
            continue
        theirs = inspect.signature(getattr(built, member)).parameters.values()
        named = {each.name for each in theirs if each.kind not in (each.VAR_KEYWORD, 2)}
        mine = inspect.signature(ours).parameters.values()
        assert {each.name for each in mine if each.kind not in (each.VAR_KEYWORD, 2)} == named
    for member in ITEM_OPERATORS - {"__len__"}:
        assert not hasattr(awaited, member)


@pytest.mark.parametrize("name", ["open", "open_reader", "clone", "destroy"])
def test_functions_take_the_same_arguments(name: str) -> None:
    theirs = inspect.signature(getattr(siltstone, name)).parameters
    assert inspect.signature(getattr(aio, name)).parameters == theirs


def test_mistakes_raise_the_same(memory_url: str) -> None:
    async def work() -> None:
        async with aio.open(memory_url) as db:
            for call, kind in (
                (lambda: db.put("a", b"b"), TypeError),
                (lambda: db.put(b"", b"b"), siltstone.Invalid),
                (lambda: db.put(b"a", b"b", ttl=0), siltstone.Invalid),
                (lambda: db.get(b""), siltstone.Invalid),
                (lambda: db.get_many([1]), TypeError),
                (lambda: db.put_many([b"a"], []), siltstone.Invalid),
                (lambda: db.write([]), TypeError),
                (lambda: aio.open(memory_url, options={"nonsense": 1}), siltstone.Invalid),
                (lambda: aio.open(7), TypeError),
                (lambda: aio.open("memory://absent", create=False), siltstone.NotFound),
            ):
                with pytest.raises(kind):
                    await call()
            with pytest.raises(siltstone.Invalid):
                db.scan(b"a", prefix=b"b")
            with pytest.raises(siltstone.Invalid):
                db.scan().to_arrow(0)
            commit = await db.put(b"a", b"b")
            with pytest.raises(siltstone.Invalid):
                await commit.wait(-1)

    run(work())


def test_a_batch_commits_when_its_block_ends_well(memory_url: str) -> None:
    async def work() -> None:
        async with aio.open(memory_url) as db:
            async with db.batch() as batch:
                batch.put(b"a", b"1")
                batch.put(b"b", b"1", ttl=60)
                batch.delete(b"c")
                assert len(batch) == 3
                assert batch.nbytes > 0
                assert batch.commit is None
                assert await db.get(b"a") is None
            await batch.commit
            assert await db.get(b"a") == b"1"
            with pytest.raises(siltstone.Invalid, match="ended"):
                batch.put(b"d", b"1")
            with pytest.raises(ZeroDivisionError):
                async with db.batch() as batch:
                    batch.put(b"d", b"1")
                    1 / 0
            assert batch.commit is None
            assert await rows(db.keys()) == [b"a", b"b"]
            own = aio.WriteBatch()
            own.put(b"e", b"1")
            await db.write(own)
            own.clear()
            assert len(own) == 0
            with pytest.raises(siltstone.Invalid):
                async with own:
                    pass
            assert await rows(db.keys()) == [b"a", b"b", b"e"]

    run(work())


def test_scans_are_one_shot_pinned_and_can_be_left(memory_url: str) -> None:
    async def work() -> None:
        async with aio.open(memory_url) as db:
            await db.put_many([b"%02d" % i for i in range(50)], [b"v"] * 50)
            scan = db.keys()
            await db.put(b"99", b"v")
            async for key in scan:
                if key == b"10":
                    break
            with pytest.raises(siltstone.Invalid, match="iterated"):
                scan.to_arrow()
            assert await rows(scan) == [b"%02d" % i for i in range(11, 50)]
            assert await rows(scan) == []
            async with db.values(limit=3) as scan:
                assert await anext(scan) == b"v"
            assert await rows(scan) == []
            async with db.snapshot() as snapshot:
                await db.delete(b"00")
                assert await snapshot.get(b"00") == b"v"
                assert await anext(snapshot.items()) == (b"00", b"v")
            with pytest.raises(siltstone.Closed):
                await snapshot.get(b"00")
            assert [row async for row in db.scan(limit=0).to_arrow()] == []

    run(work())


def test_two_tasks_cannot_share_a_scan(memory_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    class Slow:
        """A scan whose rows are never ready, so that the read waits until it is cancelled."""

        def begin_rows(self):
            return asyncio.get_running_loop().create_future()

    async def work() -> None:
        async with aio.open(memory_url) as db:
            await db.put_many([b"a", b"b"], [b"v", b"v"])
            scan = db.keys()
            quick, scan._scan = scan._scan, Slow()
            with monkeypatch.context() as patch:
                patch.setattr(scanning, "Pending", asyncio.Future)
                first = asyncio.create_task(anext(scan))
                await asyncio.sleep(0)
                with pytest.raises(siltstone.Invalid, match="another task uses this scan"):
                    await anext(scan)
                first.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await first
            scan._scan = quick
            assert await rows(scan) == [b"a", b"b"]

    run(work())


def test_a_pending_call_is_a_coroutine_awaited_once(url: str) -> None:
    async def work() -> None:
        async with aio.open(url, options={"flush_interval": 3600}) as db:
            commit = await db.put(b"a", b"1")
            pending = commit.wait()
            assert asyncio.iscoroutine(pending)
            await asyncio.create_task(pending)
            with pytest.raises(RuntimeError, match="once"):
                await pending
            commit = await db.put(b"a", b"2")
            unused = commit.wait()
            unused.close()
            with pytest.raises(RuntimeError, match="once"):
                await unused
            with pytest.raises(KeyError):
                commit.wait().throw(KeyError("x"))
        with pytest.raises(RuntimeError, match="no running event loop"):
            threading_less(commit)

    def threading_less(commit) -> None:
        raised: list[BaseException] = []

        def call() -> None:
            with siltstone.open(url, options={"flush_interval": 3600}) as handle:
                pending = at_once(aio.Database(handle).put(b"b", b"1")).wait()
                try:
                    pending.send(None)
                except RuntimeError as error:
                    raised.append(error)

        thread = threading.Thread(target=call)
        thread.start()
        thread.join()
        raise raised[0]

    run(work())


KEYS = st.sampled_from([b"a", b"aa", b"ab", b"b", b"\x00", b"\xff"]) | st.binary(
    min_size=1, max_size=2
)
BOUNDS = st.none() | st.binary(max_size=2)


@settings(max_examples=60, deadline=None)
@given(
    writes=st.lists(st.tuples(KEYS, st.none() | st.binary(max_size=20)), max_size=60),
    asked=st.lists(KEYS, max_size=30),
    start=BOUNDS,
    end=BOUNDS,
    reverse=st.booleans(),
    limit=st.none() | st.integers(0, 20),
    warm=st.booleans(),
)
def test_answers_are_those_of_the_surface_that_waits(
    writes, asked, start, end, reverse, limit, warm
) -> None:
    url = f"memory://{uuid.uuid4().hex}"
    cache = {} if warm else {"block_cache_bytes": 0}
    options = {"l0_sst_size_bytes": 1024, "block_bytes": 64, **cache}
    model: dict[bytes, bytes] = {}

    async def work() -> None:
        async with aio.open(url, options=options) as db:
            for key, value in writes:
                if value is None:
                    await db.delete(key)
                    model.pop(key, None)
                else:
                    await db.put(key, value)
                    model[key] = value
        async with aio.open(url, options=options) as db, aio.open_reader(url) as reader:
            with siltstone.open_reader(url) as waits:
                named = {"reverse": reverse, "limit": limit}
                for source in (db, reader):
                    assert [await source.get(key) for key in asked] == [
                        model.get(key) for key in asked
                    ]
                    assert await source.get_many(asked) == waits.get_many(asked)
                    arrow = await source.get_many(pa.array(asked, pa.binary()))
                    assert arrow.to_pylist() == waits.get_many(asked)
                    for verb in ("scan", "items", "keys", "values"):
                        expected = list(getattr(waits, verb)(start, end, **named))
                        assert await rows(getattr(source, verb)(start, end, **named)) == expected
                    batches = [
                        pa.record_batch(batch)
                        async for batch in source.scan(start, end, **named).to_arrow(7)
                    ]
                    keys = [key for batch in batches for key in batch["key"].to_pylist()]
                    assert keys == list(waits.keys(start, end, **named))
                assert dict(await rows(db.items())) == model

    run(work())
