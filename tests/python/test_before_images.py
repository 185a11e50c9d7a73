"""Before-images of the change feed: the value that a key had right before each change."""

from __future__ import annotations

import asyncio
import contextlib
import random
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest

import siltstone
from aio_for_tests import run
from siltstone import admin, aio, changes

LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)


def images(feed: changes.Changes, rows: int | None = None) -> list[tuple]:
    """Kind, key and before-image of all remaining changes."""
    found = []
    while batch := feed.rows_with_before(rows):
        found.extend((row.kind, row.key, row.before) for row in batch)
    return found


def test_each_change_has_the_value_before_it(tmp_path) -> None:
    with siltstone.open(tmp_path, merge_operator="append") as db:
        db.put_many([b"a", b"b", b"c", b"d"], [b"1", b"2", b"3", b"4"])
        db.put(b"gone", b"old", expire_at=LONG_AGO)
        db.flush(memtable=True)
        start = db.checkpoint()
        feed = db.changes(since=start, before=True)
        db[b"a"] = b"5"
        db[b"a"] = b"6"
        del db[b"b"]
        db[b"b"] = b"7"
        db.merge(b"c", b"+")
        db.merge(b"c", b"+")
        db[b"c"] = b"8"
        db.delete_range(b"d", b"e")
        db[b"d"] = b"9"
        db[b"gone"] = b"new"
        db.load(pa.table({"key": [b"a", b"z"], "value": [b"10", b"11"]}))
        batch = pa.record_batch(feed.read())
        assert batch.schema.names == ["kind", "key", "value", "seq", "time", "before"]
        assert batch.schema.field("before").type == pa.binary()
        found = [(row["kind"], row["key"], row["before"]) for row in batch.to_pylist()]
        expected = [
            ("put", b"a", b"1"),
            ("put", b"a", b"5"),
            ("delete", b"b", b"2"),
            ("put", b"b", None),
            ("merge", b"c", b"3"),
            ("merge", b"c", b"3+"),
            ("put", b"c", b"3++"),
            ("delete_range", b"d", None),
            ("put", b"d", None),
            ("put", b"gone", None),
            ("put", b"a", b"6"),
            ("put", b"z", None),
        ]
        found += images(feed)
        assert found == expected
        plain = db.changes(since=start)
        assert pa.record_batch(plain.read()).schema.names[-1] == "time"
        # Any process computes the same, and a reader's feed too.
        assert images(changes.begin(tmp_path, since=start, before=True), 1) == expected
        with siltstone.open_reader(tmp_path, merge_operator="append") as reader:
            assert images(reader.changes(since=start, before=start), 3) == expected


def test_a_random_history_has_the_images_of_a_model(tmp_path) -> None:
    for seed in range(8):
        _check_history(tmp_path / str(seed), random.Random(seed))


KEYS = [b"k%02d" % n for n in range(12)]


def _change(db: siltstone.Database, rng: random.Random, turn: int) -> list[tuple]:
    """Makes a change. Returns it with the value that its key has before it."""
    key, value = rng.choice(KEYS), b"%d" % turn
    before = db.get(key)
    match rng.randrange(9):
        case 0 | 1:
            db.delete(key)
            return [("delete", key, before)]
        case 2 | 3:
            db.merge(key, b"+")
            return [("merge", key, before)]
        case 4:
            db.delete_range(key, key[:2] + b"\xff")
            return [("delete_range", key, None)]
        case 5:
            keys = [one for one in KEYS if rng.random() < 0.4] or [key]
            images = [("put", one, db.get(one)) for one in keys]
            db.load(pa.table({"key": keys, "value": [value] * len(keys)}))
            return images
        case 6:
            db.put(key, value, expire_at=LONG_AGO)
        case _:
            db.put(key, value)
    return [("put", key, before)]


def _check_history(place: Path, rng: random.Random) -> None:
    expected: list[tuple] = []
    kept = []
    with siltstone.open(place, merge_operator="append") as db:
        for turn in range(rng.randint(20, 60)):
            if turn == 0 or rng.random() < 0.1:
                db.flush(memtable=rng.random() < 0.5)
                kept.append((len(expected), db.checkpoint()))
            expected += _change(db, rng, turn)
        db.compact()
        db.flush()
    for at, start in kept:
        _check_images(place, rng, start, expected[at:])


def _check_images(
    place: Path, rng: random.Random, start: siltstone.Checkpoint, expected: list[tuple]
) -> None:
    feed = changes.begin(place, since=start, before=True)
    read, tokens = [], [(0, feed.token)]
    while batch := feed.rows_with_before(rng.randint(1, 9)):
        read.extend((row.kind, row.key, row.before) for row in batch)
        tokens.append((len(read), feed.token))
    assert read == expected
    done, token = rng.choice(tokens)
    assert images(changes.begin(place, since=token, before=start)) == read[done:]
    end, until = rng.choice([one for one in tokens if one[0] >= done])
    part = changes.read(place, token, until, before=start.id)
    found = [row for batch in part for row in pa.record_batch(batch).to_pylist()]
    assert [row["before"] for row in found] == [row[2] for row in read[done:end]]


def test_a_consumer_goes_from_checkpoint_to_checkpoint(tmp_path) -> None:
    with siltstone.open(tmp_path) as db:
        db.put(b"n", b"0").wait()
        feed = db.changes(consumer="audit", since="snapshot", before=True)
        base, turn, found = feed.checkpoint, 0, []
        for turn in range(1, 4):
            db.put(b"n", b"%d" % turn)
            newer = db.checkpoint()
            end = changes.begin(tmp_path, since=newer).token
            feed = db.changes(consumer="audit", before=base, until=end)
            found += images(feed)
            feed.acknowledge()
            admin.delete_checkpoint(tmp_path, base)
            base = newer
        assert found == [("put", b"n", b"%d" % n) for n in range(turn)]


def test_a_feed_without_a_checkpoint_has_no_images(tmp_path) -> None:
    with siltstone.open(tmp_path) as db:
        db.put(b"k", b"v").wait()
        early = changes.latest(tmp_path)
        db.put(b"k", b"w").wait()
        late = db.checkpoint()
        for since in (None, "oldest", "latest", early):
            with pytest.raises(siltstone.Invalid, match="create a checkpoint and begin at it"):
                db.changes(since=since, before=True)
        with pytest.raises(siltstone.Invalid, match="newer than the start"):
            db.changes(since=early, before=late)
        with pytest.raises(TypeError):
            db.changes(since=late, before=3)
        admin.delete_checkpoint(tmp_path, late)
        with pytest.raises(siltstone.Expired):
            db.changes(since=late, before=True)


def test_the_images_of_another_operator_need_a_handle(tmp_path) -> None:
    def fold(key: bytes, base: bytes | None, operands: list[bytes]) -> bytes:
        return (base or b"") + b"".join(operands)

    operator = siltstone.MergeOperator("own", fold)
    with siltstone.open(tmp_path, merge_operator=operator) as db:
        start = db.checkpoint()
        db.merge(b"k", b"1")
        db.merge(b"k", b"2").wait()
        expected = [("merge", b"k", None), ("merge", b"k", b"1")]
        assert images(db.changes(since=start, before=True)) == expected
        with pytest.raises(siltstone.Invalid, match="merge operator"):
            images(changes.begin(tmp_path, since=start, before=True))


def test_a_cancelled_read_keeps_the_images(tmp_path) -> None:
    async def main() -> None:
        async with aio.open(tmp_path) as db:
            await (await db.put(b"k", b"0"))
            start = await db.checkpoint()
            for n in range(1, 20):
                await db.put(b"k", b"%d" % n)
            await db.flush()
            feed = await db.changes(since=start, before=True)
            found: list[bytes] = []
            while len(found) < 19:
                reading = asyncio.ensure_future(feed.read(rows=1))
                await asyncio.sleep(0)
                if rng.random() < 0.5:
                    reading.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    batch = pa.record_batch(await reading)
                    found += batch.column("before").to_pylist()
            assert found == [b"%d" % n for n in range(19)]
            assert await feed.read() is None

    rng = random.Random(5)
    run(main())
