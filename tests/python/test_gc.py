"""Garbage collection from Python, while readers and writers of other processes are at work."""

from __future__ import annotations

import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from threading import Thread

import pytest

import siltstone
from pace_for_tests import PATIENCE, quickest, until
from siltstone import admin

ROWS = 3000


def fill(db: siltstone.Database, tables: int, value: bytes = b"v") -> None:
    for _ in range(tables):
        db.put_many([b"key%05d" % n for n in range(ROWS)], [value * 20] * ROWS)
    until(lambda: not db.stats().frozen_memtables)


def options() -> dict[str, object]:
    """Options without background compaction and collection: only the test starts them."""
    return {"embedded_compactor": False, "embedded_gc": False, "l0_sst_size_bytes": 65536}


def objects(root: str) -> set[str]:
    """Every object below a local folder. The writer's mark and the blocks that it sets aside are no
    objects."""
    files = (path for path in Path(root).rglob("*") if path.is_file())
    names = {path.relative_to(root).as_posix() for path in files} - {".writer"}
    return {name for name in names if not name.startswith(".staging/reserve-")}


def reachable(root: str) -> set[str]:
    """The objects that the newest manifest needs, and the objects that stay because of their
    number. Written from RFC 0004 and 0020, independent of the collector.
    """
    state = admin.manifest(root)
    there = objects(root)
    needed = {f"manifest/{state['id']:020}.manifest"}
    # A repair continues from the previous manifest.
    needed |= there & {f"manifest/{state['id'] - 1:020}.manifest"}
    layers = [*state["l0"], *state["runs"]]
    for version in {version for lease in state["leases"] for version in lease["versions"]}:
        leased = admin.manifest(root, version)
        needed.add(f"manifest/{version:020}.manifest")
        layers += [*leased["l0"], *leased["runs"]]
    needed |= {f"compacted/{table['id']}.sst" for layer in layers for table in layer["tables"]}
    for name in there:
        found = re.fullmatch(r"wal/(\d{20})\.sst", name)
        if found and int(found[1]) >= state["replay_from"]:
            needed.add(name)
    for folder in ("manifest/boundary/", "wal/boundary/", "compactions/boundary/"):
        needed |= set(sorted(name for name in there if name.startswith(folder))[-1:])
    numbered = r"compactions/\d{20}\.compactions"
    needed |= set(sorted(name for name in there if re.fullmatch(numbered, name))[-1:])
    return needed


def test_unreferenced_objects_go(url: str) -> None:
    with siltstone.open(url, options=options()) as db:
        fill(db, 3)
        db.compact()
        # The writer's checkpoint releases the old tables in the background.
        until(lambda: admin.gc(url).classes["tables"].young)
        young = admin.gc(url)
        assert young.total.deleted == 0
        assert young.classes["tables"].young >= 3
        told = admin.gc(url, dry_run=True, min_age=0)
        before = objects(url)
        done = admin.gc(url, min_age=0)
        assert {one.object for one in told.objects} == before - objects(url) - reachable(url)
        assert done.classes["tables"] == told.classes["tables"]
        assert done.classes["tables"].deleted == young.classes["tables"].young
        assert done.total.bytes == told.total.bytes > 3 * ROWS
        assert done.trouble is None
        assert not done.overtaken
        assert {stays.why for stays in done.stays} >= {"the newest version has it"}
        assert "unknown to the collector" not in {stays.why for stays in done.stays}
        assert len(list(db.scan())) == ROWS
    # The close recorded a clean end, which superseded one more manifest.
    admin.gc(url, min_age=0)
    assert objects(url) == reachable(url)
    assert admin.gc(url, min_age=0).total.deleted == 0
    report = admin.verify(url)
    assert report.ok
    assert report.orphans == ()


def test_no_database_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(siltstone.NotFound):
        admin.gc(tmp_path / "nothing", dry_run=True)
    with pytest.raises(siltstone.Invalid, match="min_age"):
        admin.gc(tmp_path / "nothing", min_age=-1)
    assert list(tmp_path.iterdir()) == []


READER = """
import sys, siltstone
reader = siltstone.open_reader(sys.argv[1], options={"block_cache_bytes": 0})
scan = iter(reader.scan())
rows = [next(scan) for _ in range(10)]
print("paused", flush=True)
sys.stdin.readline()
rows.extend(scan)
assert len(rows) == int(sys.argv[2]), len(rows)
assert {value for _, value in rows} == {b"a" * 20}, "not its snapshot"
print("same", flush=True)
"""


def test_a_paused_scan_in_another_process_gives_its_snapshot(url: str) -> None:
    """All tables are rewritten twice and collected without grace during the pause."""
    with siltstone.open(url, options=options()) as db:
        fill(db, 2, b"a")
        with subprocess.Popen(
            [sys.executable, "-c", READER, url, str(ROWS)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as child:
            assert child.stdout.readline() == "paused\n"
            mine = iter(db.scan())
            first = [next(mine) for _ in range(10)]
            for value in (b"b", b"c"):
                fill(db, 2, value)
                db.compact()
                assert admin.gc(url, min_age=0).trouble is None
            child.stdin.write("\n")
            child.stdin.flush()
            assert child.stdout.readline() == "same\n"
        assert {value for _, value in [*first, *mine]} == {b"a" * 20}
        assert {value for _, value in db.scan()} == {b"c" * 20}


def test_one_process_serves_many_until_each_is_gone(tmp_path: Path) -> None:
    urls = [str(tmp_path / name) for name in ("one", "two")]
    absent = str(tmp_path / "absent")
    for url in urls:
        with siltstone.open(url, options=options()) as db:
            fill(db, 2)
            db.compact()
    rounds: list[str] = []
    ends: dict[str, str] = {}

    def collected(url: str, report: admin.GcReport) -> None:
        assert report.trouble is None
        rounds.append(url)
        # No process has it open: removing the folder destroys the database.
        shutil.rmtree(url)

    how = {"on_round": collected, "on_end": ends.__setitem__, "interval": 0.1, "min_age": 0}
    work = Thread(target=admin.run_gc, args=([*urls, absent],), kwargs=how)
    work.start()
    work.join(PATIENCE)
    assert not work.is_alive()
    assert set(ends) == {*urls, absent}
    assert sorted(rounds) == urls
    assert all("gone" in ends[url] for url in urls)
    assert "no database" in ends[absent]


def test_rounds_that_fail_are_logged(url: str, caplog) -> None:
    with siltstone.open(url, options=options()) as db:
        fill(db, 2)
    newest = max(Path(url, "manifest").glob("*.manifest"))
    data = newest.read_bytes()
    newest.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))

    def logged(event: str) -> int:
        return sum(f"event={event} " in line for line in caplog.messages)

    with caplog.at_level("INFO", logger="siltstone.gc"):
        how = {"interval": 0.1, "min_age": 0}
        work = Thread(target=admin.run_gc, args=(url,), kwargs=how)
        work.start()
        until(lambda: logged("round_fails"))
        newest.write_bytes(data)
        until(lambda: logged("round_goes_on"))
        shutil.rmtree(url)
        work.join(PATIENCE)
    assert not work.is_alive()
    (line,) = (line for line in caplog.messages if "round_fails" in line)
    assert url in line
    assert "kind=Corruption" in line


SERVE = """
import sys
from siltstone import admin
admin.run_gc(sys.argv[1:], min_age=0, interval=0.1,
             on_round=lambda url, report: print("round", flush=True))
"""


def test_it_is_stopped_within_a_second(url: str) -> None:
    siltstone.open(url).close()

    def attempt() -> float:
        with subprocess.Popen(
            [sys.executable, "-c", SERVE, url],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as child:
            assert child.stdout.readline() == "round\n"
            asked = time.monotonic()
            child.send_signal(signal.SIGINT)
            _, errors = child.communicate(timeout=PATIENCE)
            took = time.monotonic() - asked
        assert "KeyboardInterrupt" in errors
        return took

    quickest(attempt, 1.5)


KILLS = int(os.environ.get("SILTSTONE_KILLS", "15"))

WRITER = """
import sys, siltstone
options = {"l0_sst_size_bytes": 16384, "l0_compaction_threshold_ssts": 2,
           "gc": {"interval": 0.05, "min_age": 0}, "embedded_gc": sys.argv[2] == "embedded"}
db = siltstone.open(sys.argv[1], options=options)
n = int(db.get(b"counter", b"0"))
while True:
    n += 1
    with db.batch() as batch:
        batch.put(b"key%04d" % (n % 997), b"%d" % n + b"." * 200)
        batch.put(b"counter", b"%d" % n)
    if n % 50 == 0:
        batch.commit.wait()
"""


def check(url: str, last: int) -> int:
    """Checks that the present writes are a prefix, each of them whole, with correct bytes."""
    report = admin.verify(url)
    assert report.ok, report.problems
    # A lease would keep the objects for twenty seconds more.
    with siltstone.open_reader(url, options={"reader_lease": False}) as reader:
        counter = int(reader.get(b"counter", b"0"))
        assert counter >= last
        expected = {b"key%04d" % (n % 997): n for n in range(max(1, counter - 996), counter + 1)}
        found = {key: int(value.partition(b".")[0]) for key, value in reader.scan(prefix=b"key")}
        assert found == expected
    return counter


@pytest.mark.slow
def test_kills_of_collectors_and_writers_lose_nothing_and_leave_nothing(url: str) -> None:
    """One collector in its own process, and one in the writer's, are killed at random moments."""
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}")
    draw = random.Random(seed)
    siltstone.open(url).close()
    serve = SERVE.replace("interval=0.1", "interval=0.01")
    last = kills = 0
    # On a slow machine many writers may die before their first row.
    while kills < KILLS or not last:
        kills += 1
        embedded = draw.choice(["embedded", "apart"])
        children = [
            subprocess.Popen([sys.executable, "-c", WRITER, url, embedded]),
            subprocess.Popen([sys.executable, "-c", serve, url], stdout=subprocess.DEVNULL),
        ]
        time.sleep(0.3 + draw.random())
        draw.shuffle(children)
        for child in children:
            time.sleep(draw.random() * 0.2)
            child.kill()
            child.wait()
        last = check(url, last)
    # The next close removes the checkpoint of the killed writer.
    with siltstone.open(url, options=options()) as db:
        db.compact()
    for _ in range(2):
        assert admin.gc(url, min_age=0).trouble is None
    state = admin.manifest(url)
    behind = range(1, state["replay_from"])
    fences = {f"wal/{number:020}.sst" for number in behind} & objects(url)
    # One fence stays for every writer that did not close.
    assert len(fences) <= kills + 1
    assert objects(url) - fences == reachable(url)
    assert check(url, last) >= last
