"""The change feed: commits in order, from a token on, kept for consumers."""

from __future__ import annotations

import json
import pickle
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.compute
import pytest
from click.testing import CliRunner

import siltstone
from aio_for_tests import run
from pace_for_tests import until
from siltstone import admin, aio, changes, cli, ingest, table


def rows(batches) -> list[tuple]:
    """Kind, key and value of every row."""
    tables = [pa.record_batch(batch).to_pylist() for batch in batches]
    return [(row["kind"], row["key"], row["value"]) for table in tables for row in table]


def key(n: int) -> bytes:
    return b"key%03d" % n


def test_batches_have_five_columns_and_whole_commits(tmp_path) -> None:
    with siltstone.open(tmp_path, merge_operator="append") as db:
        feed = db.changes()
        before = datetime.now(UTC) - timedelta(seconds=60)
        db.put_many([key(n) for n in range(5)], [b"value"] * 5)
        del db[key(1)]
        db.delete_range(key(2), key(4))
        db.merge(b"log", b"more").wait()
        batch = pa.record_batch(feed.read(1))
        assert batch.schema.names == ["kind", "key", "value", "seq", "time"]
        assert batch.schema.types == [
            pa.string(),
            pa.binary(),
            pa.binary(),
            pa.int64(),
            pa.timestamp("ms", "UTC"),
        ]
        assert batch.num_rows == 5
        assert batch.column("time")[0].as_py() > before
        assert rows(feed) == [
            ("delete", key(1), None),
            ("delete_range", key(2), key(4)),
            ("merge", b"log", b"more"),
        ]
        assert feed.read() is None
        assert repr(feed) == "<siltstone.changes.Changes behind 8>"


def test_a_consumer_goes_on_where_it_acknowledged(tmp_path) -> None:
    with siltstone.open(tmp_path) as db:
        db[key(0)] = b"a"
        db.flush()
        feed = db.changes(consumer="index", since="oldest", lifetime=3600, most_bytes=1 << 20)
        assert rows(feed) == [("put", key(0), b"a")]
        feed.acknowledge()
        db[key(1)] = b"b"
        db.flush()
        assert rows(feed) == [("put", key(1), b"b")]
        again = db.changes(consumer="index")
        assert rows(again) == [("put", key(1), b"b")]
        db[key(2)] = b"c"
        db.flush()
        with pytest.raises(siltstone.Fenced):
            feed.read()
        with pytest.raises(siltstone.Fenced):
            feed.acknowledge()
        assert rows(again) == [("put", key(2), b"c")]
        (held,) = changes.consumers(tmp_path)
        assert (held.name, held.seq, held.most_bytes) == ("index", 1, 4 << 30)
        assert held.expires is not None
        with pytest.raises(siltstone.Expired, match="no consumer has that name") as raised:
            changes.forget(tmp_path, "idnex")
        assert raised.value.context == {"consumer": "idnex", "consumers": "index"}
        changes.forget(tmp_path, "index")
        assert changes.consumers(tmp_path) == []
        with pytest.raises(siltstone.Expired, match="the database has no consumer"):
            changes.forget(tmp_path, "index")
        with pytest.raises(siltstone.Expired, match="consumer"):
            again.read()
        with pytest.raises(siltstone.Expired, match="consumer"):
            again.acknowledge()
        with pytest.raises(siltstone.Invalid, match="consumer"):
            db.changes().acknowledge()


def test_tokens_are_texts_for_any_process(tmp_path) -> None:
    with siltstone.open(tmp_path) as db:
        start = changes.latest(tmp_path)
        commits = [db.put(key(n), b"%d" % n) for n in range(20)]
        commits[-1].wait()
        middle = changes.plan(tmp_path, start, rows=7)
        assert len(rows(changes.read(tmp_path, start, middle))) > 0
        end = changes.plan(tmp_path, pickle.loads(pickle.dumps(middle)))
        assert end == changes.latest(tmp_path)
        both = rows(changes.read(tmp_path, start, middle)) + rows(
            changes.read(tmp_path, middle, end)
        )
        assert both == [("put", key(n), b"%d" % n) for n in range(20)]
        since = changes.begin(tmp_path, since=commits[14])
        assert rows(since) == both[15:]
        with siltstone.open_reader(tmp_path) as reader:
            assert rows(reader.changes(since=middle, until=end)) == both[7:]
        altered = start[:-1] + ("0" if start[-1] != "0" else "1")
        for wrong in ["c1-00", altered, "x"]:
            with pytest.raises(siltstone.Invalid):
                db.changes(since=wrong)
        with pytest.raises(TypeError, match="since takes"):
            db.changes(since=7)


def test_a_snapshot_and_what_follows_make_the_whole(tmp_path) -> None:
    with siltstone.open(tmp_path) as db:
        db[key(0)] = b"before"
        db.flush()
        feed = db.changes(consumer="replica", since="snapshot")
        db[key(1)] = b"after"
        db.flush(memtable=True)
        with siltstone.open_reader(tmp_path, checkpoint=feed.checkpoint) as reader:
            assert dict(reader.scan()) == {key(0): b"before"}
        assert rows(feed) == [("put", key(1), b"after")]
        assert rows(db.changes(since=feed.checkpoint)) == [("put", key(1), b"after")]
        with pytest.raises(siltstone.Invalid, match="consumer"):
            db.changes(since="snapshot")


def test_a_consumer_begins_beside_commits_that_move_the_log(tmp_path) -> None:
    """The consumer's commit met a newer manifest, which retains the log from a later object on."""
    with siltstone.open(tmp_path, options={"embedded_gc": False}) as db:
        for at in range(12):
            keys = [key(10 * at + n) for n in range(10)]
            db.load(pa.table({"key": keys, "value": [b"v"] * 10}))
            found = rows(db.changes(since="oldest", consumer=f"c{at}"))
            assert len(found) == 10 * (at + 1)


def test_a_consumer_that_was_let_go_is_told_so(tmp_path) -> None:
    """Before the fix, such a consumer began at the end, like a new one, and skipped the missed
    rows."""
    with siltstone.open(tmp_path) as db:
        with pytest.raises(siltstone.Expired, match=r'new, or it was removed.*since="snapshot"'):
            db.changes(consumer="index")
        feed = db.changes(consumer="index", lifetime=0.2, since="oldest")
        db[key(0)] = b"told"
        db.flush()
        assert len(rows(feed)) == 1
        feed.acknowledge()
        db[key(1)] = b"missed"
        db.flush(memtable=True)
        time.sleep(0.3)
        siltstone.admin.gc(tmp_path, min_age=0)
        assert changes.consumers(tmp_path) == []
        with pytest.raises(siltstone.Expired, match="was removed"):
            db.changes(consumer="index")
        again = db.changes(consumer="index", since="snapshot")
        with siltstone.open_reader(tmp_path, checkpoint=again.checkpoint) as reader:
            assert dict(reader) == {key(0): b"told", key(1): b"missed"}


def test_a_commit_begins_a_feed_of_its_own_history(tmp_path) -> None:
    """A sequence number alone may be that of another write: of another database, of a writer that
    was fenced before its write was durable, or after a restore."""
    with siltstone.open(tmp_path / "db") as db:
        first = db.put(key(1), b"1")
        db.put(key(2), b"2").wait()
        assert rows(db.changes(since=first)) == [("put", key(2), b"2")]
        checkpoint = db.checkpoint()
        undone = db.put(key(3), b"3")
        undone.wait()
        with siltstone.open(tmp_path / "other") as other:
            other.put_many([key(n) for n in range(9)], [b""] * 9).wait()
            for consumer in (None, "index"):
                with pytest.raises(siltstone.Invalid, match="another database"):
                    other.changes(since=first, consumer=consumer)
    admin.restore(tmp_path / "db", checkpoint)
    with siltstone.open(tmp_path / "db") as db:
        db.put_many([key(n) for n in range(9)], [b""] * 9).wait()
        for consumer in (None, "index"):
            with pytest.raises(siltstone.Expired):
                db.changes(since=undone, consumer=consumer)
        assert rows(db.changes(since=first))[0] == ("put", key(2), b"2")


@pytest.mark.parametrize("consumer", [None, "index"])
def test_a_commit_that_was_never_durable_begins_no_feed(memory_url, consumer) -> None:
    slow = {"flush_interval": 3600}
    old = siltstone.open(memory_url, options=slow)
    old.put(key(0), b"").wait()
    durable, lost = old.put(key(1), b""), old.put(key(2), b"lost")
    with siltstone.open(memory_url, take_over=True) as db:
        db.put_many([key(n) for n in range(5, 9)], [b""] * 4).wait()
        with pytest.raises(siltstone.Fenced):
            lost.wait()
        for commit in (durable, lost):
            with pytest.raises(siltstone.Fenced):
                db.changes(since=commit, consumer=consumer)


def test_an_ingest_is_told_by_what_was_staged(tmp_path) -> None:
    with siltstone.open(tmp_path) as db:
        feed = db.changes(consumer="index", since="latest")
        job = ingest.Job(tmp_path)
        with job.writer(0, table_bytes=1000) as writer:
            for n in range(200):
                writer.add(key(n), b"bulk")
        db.ingest(job.commit([writer.finish()])).wait()
        db[key(3)] = b"later"
        db.flush(memtable=True)
        db.compact()
        siltstone.admin.gc(tmp_path)
        first = feed.read(50)
        assert len(first) == 50
        bulk = [("put", key(n), b"bulk") for n in range(200)]
        assert rows([first, *feed]) == [*bulk, ("put", key(3), b"later")]


def test_a_feed_without_a_consumer_reads_ingests_within_the_grace(tmp_path) -> None:
    """A collection deleted the object that lists the staged tables as soon as the job was over."""
    with siltstone.open(tmp_path) as db:
        db.put(key(0), b"first").wait()
        since = changes.latest(tmp_path)
        job = ingest.Job(tmp_path)
        with job.writer(0) as writer:
            writer.add(key(1), b"bulk")
        db.ingest(job.commit([writer.finish()])).wait()
        db.load(pa.table({"key": [key(2)], "value": [b"loaded"]}))
        db.flush(memtable=True)
        db.compact()
        siltstone.admin.gc(tmp_path)
        told = [("put", key(1), b"bulk"), ("put", key(2), b"loaded")]
        assert rows(changes.begin(tmp_path, since=since)) == told
        siltstone.admin.gc(tmp_path, min_age=0)
        with pytest.raises(siltstone.Expired):
            rows(changes.begin(tmp_path, since=since))


@pytest.mark.parametrize("replaced", [(key(3), key(8)), (key(3), None), (None, None)])
def test_a_replaced_range_is_one_range_delete(tmp_path, replaced) -> None:
    with siltstone.open(tmp_path) as db:
        db.put_many([key(n) for n in range(10)], [b"first"] * 10).wait()
        feed = db.changes(consumer="index", since="latest")
        job = ingest.Job(tmp_path, replace=replaced)
        with job.writer(0) as writer:
            writer.add(key(4), b"bulk")
            writer.delete(key(5))
        db.ingest(job.commit([writer.finish()])).wait()
        db.delete(key(3)).wait()
        start, end = replaced
        told = ("delete_range", start or b"\0", end or b"\xff" * 65_535)
        changed = [("put", key(4), b"bulk"), ("delete", key(5), None), ("delete", key(3), None)]
        assert rows(feed) == [told, *changed]


def test_the_changes_of_a_table_can_be_decoded_after_a_replaced_range(tmp_path) -> None:
    """The bounds of a range are no keys of the table, so a delete of one could not be decoded."""
    columns = pa.schema([pa.field(name, pa.int32(), nullable=False) for name in ("a", "b")])
    schema = table.TableSchema(columns, key=["a", "b"])
    with table.create(tmp_path, columns, key=["a", "b"]) as db:
        db.table.put([{"a": a, "b": b} for a in range(3) for b in range(3)]).wait()
        feed = db.changes(consumer="index", since="latest")
        for replaced in [schema.range({"a": 1}, None, None), (None, None)]:
            job = ingest.Job(tmp_path, replace=replaced)
            with job.writer(0) as writer:
                writer.add_many(*schema.encode([{"a": 1, "b": 9}]))
            db.ingest(job.commit([writer.finish()])).wait()
        batches = [pa.record_batch(batch) for batch in feed]
        told = pa.Table.from_batches(batches)
        assert told["kind"].to_pylist() == ["delete_range", "put"] * 2
        keys = told.filter(pa.compute.not_equal(told["kind"], "delete_range"))["key"]
        decoded = pa.record_batch(schema.decode_key(keys.combine_chunks()))
        assert decoded.to_pylist() == [{"a": 1, "b": 9}] * 2


def test_changes_awaited(tmp_path) -> None:
    async def main() -> None:
        async with aio.open(tmp_path) as db:
            feed = await db.changes(consumer="index", since="oldest")
            await (await db.put(key(0), b"a"))
            assert rows([batch async for batch in feed]) == [("put", key(0), b"a")]
            await feed.acknowledge()
            assert (feed.consumer, feed.seq, feed.checkpoint) == ("index", 1, None)
            async with aio.open_reader(tmp_path) as reader:
                again = await reader.changes(since=feed.token)
                assert await again.read() is None
            assert repr(feed) == "<siltstone.aio.Changes of 'index' behind 1>"

    run(main())


def test_the_command_line(tmp_path) -> None:
    with siltstone.open(tmp_path) as db:
        for n in range(5):
            db[key(n)] = b"v\t%d" % n
        del db[key(0)]

    def called(*arguments: str) -> list[str]:
        ran = CliRunner().invoke(cli.main, ["--path", str(tmp_path), *arguments])
        assert ran.exit_code == 0, ran.output
        return ran.output.splitlines()

    *lines, last = called("changes", "--since", "oldest", "--limit", "2")
    assert [line.split("\t")[2:] for line in lines] == [
        ["put", "key000", "v\\t0"],
        ["put", "key001", "v\\t1"],
    ]
    *lines, last = called("changes", "--since", last.split("\t")[1], "--json")
    told = [json.loads(line) for line in lines]
    assert [row["seq"] for row in told] == [3, 4, 5, 6]
    assert (told[-1]["kind"], told[-1]["key"], "value" in told[-1]) == ("delete", "key000", False)
    assert json.loads(last)["token"] == changes.latest(tmp_path)
    called("changes", "--consumer", "index", "--since", "latest", "--acknowledge")
    assert [line.split("\t")[:2] for line in called("consumers")] == [["index", "6"]]
    assert json.loads(called("consumers", "--json")[0])["most_bytes"] == 4 << 30
    assert called("forget-consumer", "index") == []
    assert called("consumers") == []


def test_expired_consumers_make_room(tmp_path: Path) -> None:
    url = tmp_path / "db"
    with siltstone.open(url) as db:
        db.put(b"a", b"1").wait()
        for number in range(256):
            changes.begin(url, consumer=f"c{number}", since="latest", lifetime=0.2)
        until(lambda: all(one.expires < datetime.now(UTC) for one in changes.consumers(url)))
        feed = changes.begin(url, consumer="new", since="latest")
        db.put(b"a", b"2").wait()
        assert rows([feed.read()]) == [("put", b"a", b"2")]
        assert [one.name for one in changes.consumers(url)] == ["new"]


NO_LOG = {"writes": {"wal_enabled": False}}


@pytest.mark.parametrize("start", ["snapshot", "latest"])
def test_a_feed_of_an_empty_database_misses_no_rows_that_were_not_logged(
    url: str, start: str
) -> None:
    """Before the fix, the position of an empty database counted as none: the feed began at the
    first record of the log, and skipped rows in silence."""
    with siltstone.open(url, options=NO_LOG) as db:
        feed = db.changes(consumer="index", since=start)
        token = feed.token
        db[b"a"] = b"1"
        db.flush()
        with pytest.raises(siltstone.Expired, match="without a WAL"):
            feed.rows()
    with siltstone.open(url) as db:
        db[b"c"] = b"3"
        db.flush()
        for how in ({"consumer": "index"}, {"since": token}):
            with pytest.raises(siltstone.Expired, match="without a WAL"):
                db.changes(**how).rows()
        assert [row.key for row in db.changes(since="oldest").rows()] == [b"c"]


def test_a_token_at_the_oldest_change_stays_there(url: str) -> None:
    """A feed that has read nothing yet has the position before the first record that it finds, also
    if the log of earlier rows was collected."""
    with siltstone.open(url) as db:
        for key in (b"a", b"b"):
            db[key] = b"1"
            db.flush(memtable=True)
    siltstone.admin.gc(url, min_age=0)
    for consumer in (None, "index"):
        at_end = changes.begin(url, since="oldest", consumer=consumer)
        first = at_end.rows()
        token = changes.begin(url, since="oldest").token
        assert changes.begin(url, since=token).rows() == first
        if consumer:
            assert changes.begin(url, consumer=consumer).rows() == first
    with siltstone.open(url) as db:
        db[b"c"] = b"1"
        db.flush()
        rows = changes.begin(url, since=token).rows()
        assert [row.key for row in rows][-1] == b"c"
        assert changes.begin(url, consumer="index").rows() == rows


def test_a_before_image_of_rows_that_were_not_logged_is_expired(url: str) -> None:
    """Before the fix, the image of the row was null."""
    with siltstone.open(url, options=NO_LOG) as db:
        checkpoint = db.checkpoint()
        db[b"k"] = b"old"
    with siltstone.open(url) as db:
        db[b"k"] = b"new"
        db.flush()
        with pytest.raises(siltstone.Expired, match="without a WAL"):
            db.changes(since=checkpoint, before=True).rows_with_before()


def test_bounds_of_a_consumer_without_a_consumer_are_refused(url: str) -> None:
    with siltstone.open(url) as db:
        for bound in ({"lifetime": 60}, {"most_bytes": "1MiB"}):
            with pytest.raises(siltstone.Invalid, match="name a consumer"):
                db.changes(**bound)
