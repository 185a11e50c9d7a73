"""`admin.history`: what happened to a database, from the versions that are kept."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest
from click.testing import CliRunner

import siltstone
from siltstone import _native, admin, ingest
from siltstone.cli import main

QUERY = "3f2504e0-4f89-41d3-9a0c-0305e82c3301"
QUIET = {"embedded_gc": False, "l0_compaction_threshold_ssts": 15}
"""No compactions that no test asks for."""


def load(db: siltstone.Database, url: str, keys: list[bytes], txn=None) -> ingest.Job:
    """Loads rows by an ingest job, and waits until they are in tables."""
    job = ingest.Job(url, txn=txn)
    writer = job.writer(0)
    for key in keys:
        writer.add(key, b"value")
    db.ingest(job.commit([writer.finish()])).wait()
    db.flush(memtable=True)
    return job


def filled(url: str) -> list[str]:
    """A database with one event of each kind. Returns the ids of the jobs."""
    with siltstone.open(url, options=QUIET) as db:
        db.put(b"put", b"1")
        db.flush(memtable=True)
        table = pa.table({"key": [b"a%d" % n for n in range(9)], "value": [b"v"] * 9})
        db.load(table)
        jobs = [
            load(db, url, [b"a1", b"a2"], ("nightly", 7)),
            load(db, url, [b"a3"], (QUERY, 0)),
            load(db, url, [b"a4"], (f"visits@{QUERY}~1#2", 0)),
            load(db, url, [b"a5", b"a6", b"a7"]),
        ]
        db.compact()
    return [job.id for job in jobs]


def test_loads_jobs_streams_and_compactions_are_listed(url: str) -> None:
    began = datetime.now(UTC)
    jobs = filled(url)
    found = admin.history(url)
    kinds = [(one.kind, one.app, one.app_version, one.rows) for one in found]
    assert kinds == [
        ("load", None, None, 9),
        ("job", "nightly", 7, 2),
        ("stream", QUERY, 0, 1),
        ("stream", f"visits@{QUERY}~1#2", 0, 1),
        ("job", None, None, 3),
        ("compaction", None, None, 10),
    ]
    assert [one.job for one in found[1:5]] == jobs
    assert [one.job is None for one in found] == [False] * 5 + [True]
    versions = {one.id: one.time for one in admin.versions(url)}
    for one in found:
        assert one.time == versions[one.version]
        assert one.after_version == one.version - 1
        assert abs(one.time - began) < timedelta(minutes=1)
        assert one.tables == 1
        assert one.bytes > 0
    assert [one.removed_tables for one in found] == [0, 0, 0, 0, 0, 6]
    seqs = [one.seq for one in found[:4]]
    assert seqs == sorted(seqs)


def test_each_version_is_read_once(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One call reads the versions, and `history` makes no other."""
    filled(url)
    calls = []
    read = _native.version_states
    noted = lambda *given: (calls.append(given[2]), read(*given))[1]  # noqa: E731
    monkeypatch.setattr(_native, "version_states", noted)
    for other in ("versions", "manifest"):
        monkeypatch.setattr(_native, other, None)
    listed = admin.history(url)
    last = listed[-1]
    assert admin.history(url, since=last.time) == [one for one in listed if one.time >= last.time]
    before_all = datetime(1960, 1, 1, tzinfo=UTC)
    assert admin.history(url, since=before_all) == listed
    assert calls == [None, round(last.time.timestamp() * 1000), 0]


def test_flushes_and_reopening_are_no_events(url: str) -> None:
    for _ in range(3):
        with siltstone.open(url) as db:
            db.put(b"k", b"v")
            db.flush(memtable=True)
    assert [one for one in admin.history(url) if one.kind != "compaction"] == []


def test_the_last_of_versions_adopted_together_is_named(url: str) -> None:
    with siltstone.open(url) as db:
        requests = []
        for version in (1, 2):
            job = ingest.Job(url, txn=("app", version))
            writer = job.writer(0)
            writer.add(b"k%d" % version, b"v")
            requests.append(job.commit([writer.finish()]))
        for request in requests:
            db.ingest(request)
    listed = [one for one in admin.history(url) if one.kind == "job"]
    named = [(one.app, one.app_version) for one in listed]
    assert named[-1] == ("app", 2)
    # Whether both were adopted in one commit depends on the moment.
    assert named[0] in {("app", 1), (None, None)}
    assert [one.rows for one in listed] == [1, 1]


@pytest.mark.parametrize("kept", [True, False])
def test_restores_are_listed(url: str, kept: bool) -> None:
    """Whether the tables of the checkpoint were merged in between or not."""
    with siltstone.open(url, options=QUIET) as db:
        load(db, url, [b"a"], ("nightly", 1))
        db.checkpoint(name="before")
        load(db, url, [b"a"], ("nightly", 2))
        if kept:
            db.compact()
    admin.restore(url, "before")
    kinds = [one.kind for one in admin.history(url)]
    assert kinds == ["job", "job", *(["compaction"] if kept else []), "restore"]
    with siltstone.open(url, options=QUIET) as db:
        load(db, url, [b"b"], ("nightly", 3))
    last = admin.history(url)[-1]
    assert (last.kind, last.app_version) == ("job", 3)


def test_earlier_times_leave_the_last_version_of_each_application(url: str) -> None:
    jobs = filled(url)
    with siltstone.open(url, options=QUIET) as db:
        db.put(b"later", b"1")
    admin.gc(url, min_age=0)
    found = admin.history(url)
    named = {(one.kind, one.app): one for one in found}
    assert set(named) == {
        ("load", None),
        ("job", "nightly"),
        ("stream", QUERY),
        ("stream", f"visits@{QUERY}~1#2"),
    }
    for one in found:
        assert (one.time, one.version, one.tables) == (None, None, None)
    assert named["job", "nightly"].job == jobs[0]
    assert named["job", "nightly"].app_version == 7


def test_a_gap_between_kept_versions_is_told(url: str) -> None:
    with siltstone.open(url, options=QUIET) as db:
        db.checkpoint(name="before")
        load(db, url, [b"a", b"b"], ("nightly", 1))
        load(db, url, [b"a", b"c"], ("weekly", 1))
        db.compact()
    admin.gc(url, min_age=0)
    found = admin.history(url)
    assert [one.kind for one in found if one.kind != "compaction"] == ["job", "job"]
    for one in found:
        assert one.version - one.after_version > 1
        # They were merged before the next kept version.
        assert (one.tables, one.rows) == (None, None)
    assert [one.app for one in found[:2]] == ["nightly", "weekly"]


def test_since_leaves_out_what_is_earlier(url: str) -> None:
    filled(url)
    between = admin.history(url)[3].time
    assert [one.kind for one in admin.history(url, since=between)] == [
        "stream",
        "job",
        "compaction",
    ]
    assert admin.history(url, since=datetime.now(UTC) + timedelta(hours=1)) == []
    with pytest.raises(TypeError, match="time zone"):
        admin.history(url, since=datetime.now())  # noqa: DTZ005
    with pytest.raises(siltstone.NotFound):
        admin.history("memory://nothing")


def test_the_command(url: str) -> None:
    filled(url)
    listed = CliRunner().invoke(main, ["--path", url, "history"])
    assert listed.exit_code == 0
    lines = [line.split("\t") for line in listed.output.splitlines()]
    assert [line[1:] for line in lines[:3]] == [
        ["load", "-", "1 tables, 9 rows"],
        ["job", "nightly 7", "1 tables, 2 rows"],
        ["stream", f"{QUERY} 0", "1 tables, 1 rows"],
    ]
    assert datetime.fromisoformat(lines[0][0]).tzinfo is not None
    listed = CliRunner().invoke(main, ["--path", url, "history", "--json"])
    plain = [json.loads(line) for line in listed.output.splitlines()]
    assert [one.to_dict() for one in admin.history(url)] == plain
