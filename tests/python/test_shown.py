"""The representations of handles and reports: one line of state, a small table in notebooks."""

from __future__ import annotations

import asyncio
import html.parser
import os

import pytest

import siltstone
from siltstone import admin, aio, lsm

CANARY = "cAnArY0123456789secret"
SHORT = 400
"""The highest number of characters; it still fits into one or two lines of a screen."""


class Tags(html.parser.HTMLParser):
    """Checks that every tag is closed, and collects the text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.text: list[str] = []
        self.feed(page)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, _attrs: object) -> None:
        assert tag in {"table", "tr", "th", "td"}, tag
        self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def test_a_database_tells_its_place_and_state(memory_url: str) -> None:
    db = siltstone.open(memory_url)
    assert repr(db) == f"<siltstone.Database '{memory_url}', open>"
    with siltstone.open(memory_url, take_over=True) as newer:
        newer.put(b"a", b"1").wait()
        with pytest.raises(siltstone.Fenced):
            db.put(b"a", b"2").wait()
        assert repr(db) == f"<siltstone.Database '{memory_url}', fenced>"
    assert repr(newer) == f"<siltstone.Database '{memory_url}', closed>"
    assert repr(aio.Database(newer)).startswith("<siltstone.aio.Database '")
    with pytest.raises(siltstone.Fenced):
        db.close()


def test_a_reader_tells_what_it_reads(url: str) -> None:
    siltstone.open(url).close()
    with siltstone.open_reader(url) as reader:
        assert repr(reader) == f"<siltstone.Reader '{url}', following>"
        held = admin.create_checkpoint(url)
        with siltstone.open_reader(url, checkpoint=held) as given:
            shown = str(held.id).replace("-", "")
            assert repr(given).replace("-", "").endswith(f"', at checkpoint {shown}>")
    assert repr(reader) == f"<siltstone.Reader '{url}', closed>"


def test_a_snapshot_a_commit_and_a_batch_tell_theirs(url: str) -> None:
    with siltstone.open(url, options={"flush_interval": 3600}) as db:
        commit = db.put(b"a", b"1")
        assert repr(commit) == "<siltstone.Commit seq=1, not durable yet>"
        commit.wait()
        assert repr(commit) == "<siltstone.Commit seq=1, durable>"
        with db.snapshot() as snapshot:
            assert repr(snapshot) == "<siltstone.Snapshot seq=1>"
        assert repr(snapshot) == "<siltstone.Snapshot seq=1, closed>"
        with db.batch() as batch:
            batch.put(b"b", b"1")
            batch.delete(b"c")
            operations = f"of 2 operations, {batch.nbytes} bytes"
            assert repr(batch) == f"<siltstone.WriteBatch {operations}>"
        assert repr(batch) == "<siltstone.WriteBatch, committed>"
        with pytest.raises(ZeroDivisionError), db.batch() as batch:
            1 / 0
        assert repr(batch) == "<siltstone.WriteBatch, discarded>"


def test_a_scan_tells_its_range_and_direction(db) -> None:
    db.put_many([b"%02d" % i for i in range(40)], [b"v"] * 40)
    for scan, shown in (
        (db.scan(), "keys and values, every key, ascending"),
        (db.keys(b"a"), "keys, from b'a', ascending"),
        (db.values(None, b"z", reverse=True), "values, below b'z', descending"),
        (db.items(prefix=b"0\xff"), "keys and values, [b'0\\xff', b'1'), ascending"),
        (db.scan(b"a", b"b", limit=3), "keys and values, [b'a', b'b'), ascending, limit 3"),
        (db.keys(b"k" * 100), f"keys, from b'{'k' * 32}'…, ascending"),
    ):
        assert repr(scan) == f"<siltstone.Scan of {shown}>"
        scan.close()
        assert repr(scan) == f"<siltstone.Scan of {shown}, closed>"
    scan = db.keys(limit=2)
    next(scan)
    assert repr(scan) == "<siltstone.Scan of keys, every key, ascending, limit 2>"
    assert len(list(scan)) == 1
    assert repr(scan).endswith(", closed>")
    used = db.scan()
    used.to_arrow()
    assert repr(used).endswith("every key, ascending, closed>")


def test_a_scan_that_is_awaited_tells_the_same(memory_url: str) -> None:
    async def work() -> None:
        async with aio.open(memory_url) as db:
            await db.put(b"a", b"1")
            scan = db.keys(b"a", reverse=True)
            assert repr(scan) == "<siltstone.aio.Scan of keys, from b'a', descending>"
            await scan.close()
            assert repr(scan) == "<siltstone.aio.Scan of keys, closed>"
            commit = await db.put(b"a", b"1")
            await commit
            assert repr(commit) == "<siltstone.aio.Commit seq=2, durable>"
            Tags(db._repr_html_())
            assert repr(db.scan().to_arrow()) == (
                "<siltstone.aio.RecordBatches of "
                "<siltstone.aio.Scan of keys and values, every key, ascending>>"
            )
            async with db.batch() as batch:
                batch.put(b"b", b"1")
                operations = f"of 1 operations, {batch.nbytes} bytes"
                assert repr(batch) == f"<siltstone.aio.WriteBatch {operations}>"
            assert repr(batch) == "<siltstone.aio.WriteBatch, committed>"

    asyncio.run(work())


def test_the_parts_tell_theirs(tmp_path) -> None:
    path = str(tmp_path / "rows.sst")
    writer = lsm.SstWriter(path)
    writer.add(b"a", b"1")
    assert repr(writer) == f"<siltstone.lsm.SstWriter '{path}', 1 rows>"
    writer.finish()
    assert repr(writer) == f"<siltstone.lsm.SstWriter '{path}', finished, 1 rows>"
    reader = lsm.SstReader(path)
    assert repr(reader) == f"<siltstone.lsm.SstReader '{path}'>"
    reader.close()
    assert repr(reader) == f"<siltstone.lsm.SstReader '{path}', closed>"


def test_reports_are_a_line_and_a_table(url: str) -> None:
    with siltstone.open(url, options={"embedded_gc": False}) as db:
        for _ in range(2):
            db.put_many([b"%03d" % n for n in range(100)], [b"v"] * 100)
            db.compact()
        stats, reader_stats = db.stats(), siltstone.open_reader(url).stats()
    dry = admin.gc(url, dry_run=True, min_age=0)
    done = admin.gc(url, min_age=0)
    whole = admin.verify(url)
    for report in (stats, reader_stats, dry, done, whole):
        shown = repr(report)
        assert len(shown) < SHORT, shown
        assert "\n" not in shown
        name = type(report).__name__
        prefix = "siltstone.Stats" if name == "Stats" else f"siltstone.admin.{name}"
        assert shown.startswith(f"<{prefix} "), shown
        Tags(report._repr_html_())
    assert "epoch=1" in repr(stats)
    assert "table_rows=100" in repr(stats)
    assert "dry run" in repr(dry)
    assert f"deleted={done.total.deleted} (" in repr(done)
    assert repr(whole).startswith("<siltstone.admin.Report ok, manifest_id=")
    # An explicit request shows all figures.
    assert str(stats).count("\n") > 60


def test_the_line_names_the_trouble(url: str, tmp_path) -> None:
    with siltstone.open(url) as db:
        db[b"a"] = b"1"
    (table,) = (tmp_path / "db" / "compacted").glob("*.sst")
    table.unlink()
    report = admin.verify(url)
    assert f"{report.problem_count} problems, first: compacted/{table.name}: " in repr(report)
    assert table.name in "".join(Tags(report._repr_html_()).text)


def test_a_notebook_shows_a_database_in_each_state(tmp_path) -> None:
    url = str(tmp_path / "<b>&\"'")
    db = siltstone.open(url)
    for state in ("open", "closed"):
        text = Tags(db._repr_html_()).text
        assert text[:5] == ["siltstone.Database", "where", url, "state", state]
        assert "table_rows" in text
        db.close()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_child_shows_what_it_must_not_use(memory_url: str) -> None:
    with siltstone.open(memory_url) as db:
        commit, scan, snapshot, batch = db.put(b"a", b"1"), db.scan(), db.snapshot(), db.batch()
        receive, send = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                shown = [repr(each) for each in (commit, scan, snapshot, batch, db)]
                shown.append(db._repr_html_())
                os.write(send, shown[-2].encode())
            finally:
                os._exit(0)
        os.close(send)
        with os.fdopen(receive) as pipe:
            assert "of the process before a fork" in pipe.read()
        os.waitpid(child, 0)


def test_no_secret_is_shown() -> None:
    access = {"secret_access_key": CANARY, "access_key_id": "a", "region": "r"}
    place = "s3://bucket/rows.sst"
    writer = lsm.SstWriter(place, store_options={**access, "endpoint": "https://127.0.0.1:1"})
    writer.add(b"a", b"1")
    assert CANARY not in repr(writer)
    assert place in repr(writer)
