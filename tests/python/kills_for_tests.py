"""Kills writers, compactors, workers and collectors of one database at random moments, while all of
them work, and checks the result. Run as a program by ``test_kill_all.py`` and ``make soak``.

    kills_for_tests.py FOLDER KILLS SEED

Every process is forked from this one, which has imported the package and opened nothing; one in
forty runs the command line instead. A killed process is replaced at once. After every `A_DATABASE`
kills all processes are killed together, the database is checked as a whole, and the next one
begins:

- every acknowledged write is present, and the present writes are a prefix: each new writer, and the
  last one, recovered at least as many writes as any earlier writer had acknowledged;
- the next compactor ends the unfinished job and keeps all recorded tables: it repeats at most one
  table per range;
- after a collection without grace `verify` finds no missing object, and no object is left that is
  not referenced.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import random
import re
import shutil
import signal
import sys
import threading
import time
import traceback
from pathlib import Path
from typing import NoReturn

import siltstone
from siltstone import admin

A_DATABASE = 100
KEYS = 1999
WORKERS = 2
# A job has one range for the coordinator and one for each expected worker.
RANGES = 1 + WORKERS

SMALL = {
    "l0_sst_size_bytes": 32768,
    "l0_compaction_threshold_ssts": 2,
    "target_sst_bytes": 65536,
    "min_move_bytes": 0,
    "compaction_ranges": 1,
    "max_compactions": 1,
    # A low limit, so that everything is merged again and again.
    "max_total_runs": 2,
    "compactors.poll_interval": 0.005,
    "compactors.worker_timeout": 0.2,
}
WRITER = {
    **SMALL,
    "l0_max_ssts": 12,
    "l0_manifest_commit_interval": 0,
    "manifest_poll_interval": 0.05,
    "gc": {"interval": 0.02, "min_age": 0},
}
ALONE = {"embedded_compactor": False, "embedded_gc": False}
# With these options no new compaction is due: the compactor only ends the unfinished job.
RESUME = {
    **SMALL,
    "l0_compaction_threshold_ssts": 1000,
    "l0_max_ssts": 2000,
    "max_total_runs": None,
    "level_compaction_threshold_runs": 500,
    "level_max_runs": 1000,
    # The default for a folder is about 2: the next compaction would merge the tables of the job
    # before they are checked.
    "max_space_amplification": 1000.0,
}


class Slots:
    """Numbers in shared memory: they stay after the process that wrote them is killed."""

    def __init__(self, count: int) -> None:
        self.memory = mmap.mmap(-1, 8 * count)
        self.numbers = (ctypes.c_uint64 * count).from_buffer(self.memory)


class Reign:
    """One writer: its place in the slots, for its epoch, its recovered and its acknowledged
    writes."""

    def __init__(self, slots: Slots, place: int) -> None:
        self.slots, self.place = slots.numbers, 3 * place

    def began(self, epoch: int, recovered: int) -> None:
        self.slots[self.place + 1] = recovered
        self.slots[self.place] = epoch

    def acknowledge(self, number: int) -> None:
        self.slots[self.place + 2] = number

    @property
    def told(self) -> tuple[int, int, int]:
        """The epoch, the recovered and the acknowledged writes."""
        epoch, recovered, acknowledged = self.slots[self.place : self.place + 3]
        return epoch, recovered, acknowledged


def prefix(db: siltstone.Database | siltstone.Reader) -> int:
    """Checks that the present writes are a prefix, each of them whole. Returns the last one."""
    last = int(db.get(b"counter", b"0"))
    expected = {b"key%04d" % (n % KEYS): n for n in range(max(1, last - KEYS + 1), last + 1)}
    found = {key: int(value.partition(b".")[0]) for key, value in db.scan(prefix=b"key")}
    assert found == expected, f"not the first {last} writes"
    return last


def pace(draw: random.Random) -> dict[str, int]:
    """The speed of one compactor: slow ones are killed during a job more often."""
    limit = draw.choice([0, 1 << 18, 1 << 20, 1 << 22])
    return {"compaction_bytes_per_second": limit} if limit else {}


def write(path: Path, draw: random.Random, reign: Reign) -> None:
    """The n-th write sets one key and, in the same batch, the counter."""
    both = {"embedded_compactor": draw.random() < 0.3, "embedded_gc": draw.random() < 0.5}
    window = draw.randrange(1, 64)
    how = {"flush_interval": draw.choice([0, 0.001, 0.02]), "max_parallel_writes": window}
    # The previous writer may still be alive: the test includes two writers at a time.
    db = siltstone.open(path, take_over=True, options={**WRITER, **both, **how, **pace(draw)})
    last = prefix(db) if draw.random() < 0.3 else int(db.get(b"counter", b"0"))
    reign.began(db.stats().epoch, last)
    waiting = []
    for number in range(last + 1, 1 << 40):
        with db.batch() as batch:
            batch.put(b"key%04d" % (number % KEYS), b"%d" % number + b"." * draw.randrange(1500))
            batch.put(b"counter", b"%d" % number)
        waiting.append((number, batch.commit))
        if len(waiting) > window:
            number_, commit = waiting.pop(0)
            commit.wait()
            reign.acknowledge(number_)
        if draw.random() < 0.02:
            time.sleep(0.002)


def fill(path: Path, compacted: bool) -> None:
    """Makes the first writes, so that merges have many tables: soon, or at once if `compacted`."""
    with siltstone.open(path, options={**WRITER, **ALONE, "l0_sst_size_bytes": 1 << 20}) as db:
        for number in range(1, 2 * KEYS):
            with db.batch() as batch:
                batch.put(b"key%04d" % (number % KEYS), b"%d" % number + b"." * 1000)
                batch.put(b"counter", b"%d" % number)
        if compacted:
            db.compact()


def run(role: str, path: Path, seed: int, reign: Reign | None) -> None:
    """The work of a process of this role, until it is killed."""
    draw = random.Random(seed)
    options = {**SMALL, **pace(draw)}
    named = [part for name, value in options.items() for part in ("--option", f"{name}={value}")]
    command = [sys.executable, "-m", "siltstone.cli", "--path", str(path)]
    apart = draw.random() < 1 / 40
    if role == "writer":
        write(path, draw, reign)
    elif role == "collector" and apart:
        os.execv(command[0], [*command, "run-gc", "--interval", "0.01", "--min-age", "0"])
    elif role == "collector":
        admin.run_gc(path, interval=0.01, min_age=0)
    elif apart:
        kind = ["--worker"] if role == "worker" else ["--workers", str(WORKERS)]
        os.execv(command[0], [*command, "run-compactor", *kind, *named])
    elif role == "worker":
        admin.run_compactor(path, options=options, worker=True)
    else:
        admin.run_compactor(path, options=options, workers=WORKERS)


def fork(work, *arguments, logs: Path) -> int:
    """Runs `work` in a child. The child writes the reason for its end to its own file in `logs`."""
    child = os.fork()
    if child:
        return child
    status = 1
    try:
        output = os.open(logs / str(os.getpid()), os.O_CREAT | os.O_WRONLY | os.O_TRUNC)
        os.dup2(output, 1)
        os.dup2(output, 2)
        work(*arguments)
        status = 0
    except siltstone.Fenced:
        status = 2
    except BaseException:
        os.write(2, f"{work.__name__}{arguments}: {traceback.format_exc()}\n".encode())
    os._exit(status)


# Files of a folder that are no objects of the database: the blocks that a writer sets aside, and
# which records and keys are the database's.
OTHERS = (".staging/reserve-", "two-phase/namespace", "encryption/")


def objects(path: Path) -> set[str]:
    """All objects. The writer's mark is not an object."""
    files = {one.relative_to(path).as_posix() for one in path.rglob("*") if one.is_file()}
    return {name for name in files - {".writer"} if not name.startswith(OTHERS)}


def tables(state: dict) -> set[str]:
    layers = [*state["l0"], *state["runs"]]
    return {f"compacted/{table['id']}.sst" for layer in layers for table in layer["tables"]}


def reachable(path: Path, state: dict) -> set[str]:
    """The objects that the newest manifest needs, and the objects that stay because of their
    number. Written from RFC 0004 and 0020, independent of the collector.
    """
    there = objects(path)
    needed = tables(state) | {f"manifest/{state['id']:020}.manifest"}
    # A repair continues from the previous manifest.
    needed |= there & {f"manifest/{state['id'] - 1:020}.manifest"}
    for name in there:
        found = re.fullmatch(r"wal/(\d{20})\.sst", name)
        if found and int(found[1]) >= state["replay_from"]:
            needed.add(name)
    for folder in ("manifest/boundary/", "wal/boundary/", "compactions/boundary/"):
        needed |= set(sorted(name for name in there if name.startswith(folder))[-1:])
    numbered = r"compactions/\d{20}\.compactions"
    return needed | set(sorted(name for name in there if re.fullmatch(numbered, name))[-1:])


def until_resumed(path: Path) -> None:
    """Ends the job that a killed compactor left."""

    def told(what: object) -> None:
        if isinstance(what, Exception):
            raise what
        print(what, flush=True)
        os._exit(0)

    admin.run_compactor(path, options=RESUME, on_event=told)


def check(path: Path, logs: Path, recovered: int, writers: int, result: ctypes.Array) -> None:
    """Checks the whole database after all processes are killed. Reports the tables of the
    unfinished job: how many were kept and how many were repeated."""
    for _ in range(2):
        with siltstone.open(path, options={**WRITER, **ALONE}) as db:
            last = prefix(db)
        assert last >= recovered, f"recovered {last} of {recovered}"
    # The checkpoints of the killed writers are gone. Tables that the collector keeps are named by
    # manifests or by jobs.
    going = {one.object for one in admin.gc(path, dry_run=True, min_age=0).objects}
    there = {name for name in objects(path) if name.startswith("compacted/")}
    before = admin.manifest(path)
    jobs = there - going - tables(before)
    if jobs:
        child = fork(until_resumed, path, logs=logs)
        timer = threading.Timer(300, os.kill, (child, signal.SIGKILL))
        timer.start()
        status = os.waitpid(child, 0)[1]
        timer.cancel()
        assert status == 0, f"nothing was resumed: {(logs / str(child)).read_text()}"
        again = jobs - tables(admin.manifest(path))
        result[0], result[1] = len(jobs) - len(again), len(again)
        ended = (logs / str(child)).read_text()
        assert len(again) <= RANGES, f"{len(again)} of {len(jobs)} tables were done again: {ended}"
    admin.compact(path, options=SMALL)
    for _ in range(3):
        assert admin.gc(path, min_age=0).trouble is None
    report = admin.verify(path)
    assert report.ok, report.problems
    state = admin.manifest(path)
    fences = {f"wal/{number:020}.sst" for number in range(1, state["replay_from"])} & objects(path)
    # One fence stays for every writer that did not close.
    assert len(fences) <= writers + 1, f"{len(fences)} fences of {writers} writers"
    left = objects(path) - fences - reachable(path, state)
    assert not left, f"left over: {sorted(left)}"
    assert reachable(path, state) <= objects(path)
    with siltstone.open_reader(path) as reader:
        assert prefix(reader) == last


class Database:
    """One database and its processes, until the requested number of kills is done."""

    ROLES = ("writer", "coordinator", "worker", "worker", "collector")
    # Seconds between two kills, on average; and kills beyond the requested number.
    PAUSE = float(os.environ.get("SILTSTONE_KILL_PAUSE", "0.03"))
    SPARE = 0

    def __init__(self, path: Path, kills: int, draw: random.Random) -> None:
        self.path, self.kills, self.draw = path, kills, draw
        self.logs = path.with_suffix(".logs")
        self.slots = Slots(3 * (4 * kills + 200))
        self.reigns: list[Reign] = []
        self.living: dict[int, str] = {}
        self.killed = dict.fromkeys(self.ROLES, 0)
        self.kept = self.again = self.fenced = 0
        self.acknowledged = 0
        self.over = False

    def start(self, role: str) -> None:
        reign = None
        if role == "writer":
            reign = Reign(self.slots, len(self.reigns))
            self.reigns.append(reign)
        seed = self.draw.randrange(1 << 32)
        self.living[fork(run, role, self.path, seed, reign, logs=self.logs)] = role

    def ended(self, child: int, status: int) -> None:
        """Removes an ended process, and starts a new one unless the role is filled. Only fenced
        processes end by themselves."""
        role, log = self.living.pop(child), self.logs / str(child)
        if os.WIFSIGNALED(status):
            self.killed[role] += 1
        else:
            told = log.read_text()
            fenced = os.waitstatus_to_exitcode(status) == 2 or "Fenced" in told
            by_others = role in {"writer", "coordinator"}
            assert fenced == by_others, f"{role} ended with {status}: {told}"
            self.fenced += 1
        log.unlink(missing_ok=True)
        wanted = 0 if self.over else self.ROLES.count(role)
        if list(self.living.values()).count(role) < wanted:
            self.start(role)

    def kill(self, child: int) -> None:
        os.kill(child, signal.SIGKILL)
        self.ended(child, os.waitpid(child, 0)[1])

    def rest(self, seconds: float) -> None:
        """Waits, and meanwhile handles processes that end."""
        until = time.monotonic() + seconds
        while True:
            child, status = os.waitpid(-1, os.WNOHANG)
            if child:
                self.ended(child, status)
                continue
            left = until - time.monotonic()
            if left <= 0:
                return
            time.sleep(min(left, 0.005))

    def run(self) -> None:
        self.logs.mkdir(parents=True)
        self.alone(fill, self.path, self.draw.random() < 0.7)
        self.strike()
        self.check()

    def strike(self) -> None:
        """Starts all processes, kills them at random moments, and in the end all at once."""
        draw = self.draw
        for role in self.ROLES:
            self.start(role)
        while sum(self.killed.values()) + len(self.living) < self.kills + self.SPARE:
            self.rest(draw.expovariate(1 / self.PAUSE))
            child = draw.choice(list(self.living))
            if draw.random() < 0.2:
                # The next process starts before this one is killed, and may end it.
                self.start(self.living[child])
                self.rest(draw.random() * 0.05)
            if child in self.living:
                self.kill(child)
        self.rest(draw.random() * 0.1)
        self.over = True
        for child in list(self.living):
            self.kill(child)

    def check(self) -> None:
        reigns = sorted(reign.told for reign in self.reigns if reign.told[0])
        acknowledged = 0
        for epoch, recovered, later in reigns:
            assert recovered >= acknowledged, f"epoch {epoch}: {recovered} of {acknowledged}"
            acknowledged = max(acknowledged, later)
        self.acknowledged, found = acknowledged, Slots(2)
        writers = len(self.reigns)
        self.alone(check, self.path, self.logs, acknowledged, writers, found.numbers)
        self.kept, self.again = found.numbers

    def alone(self, work, *arguments) -> None:
        """Runs `work` in a child and waits for its end."""
        child = fork(work, *arguments, logs=self.logs)
        status = os.waitpid(child, 0)[1]
        assert status == 0, f"{status}: {(self.logs / str(child)).read_text()}"


def main(folder: Path, kills: int, seed: int) -> None:
    # SIGTERM to this process ends its children too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    draw = random.Random(seed)
    killed, kept, again, began = dict.fromkeys(Database.ROLES, 0), 0, 0, time.monotonic()
    number = 0
    while (left := kills - sum(killed.values())) > 0:
        number += 1
        database = Database(folder / f"{number:04}", min(left, A_DATABASE), draw)
        try:
            database.run()
        except BaseException:
            for child in database.living:
                os.kill(child, signal.SIGKILL)
            print(f"seed {seed}, {database.path}, {database.killed}", flush=True)
            raise
        for role, times in database.killed.items():
            killed[role] += times
        kept, again = kept + database.kept, again + database.again
        told = ", ".join(f"{role}s: {times}" for role, times in killed.items())
        seconds = time.monotonic() - began
        print(
            f"{sum(killed.values())} kills ({told}); of jobs left {kept} tables were kept,"
            f" {again} done again; {database.acknowledged} writes, {database.fenced} fenced;"
            f" {seconds:.0f} s",
            flush=True,
        )
        shutil.rmtree(database.path)
        shutil.rmtree(database.logs)


def usage() -> NoReturn:
    sys.exit(__doc__)


if __name__ == "__main__":
    if len(sys.argv) != 4:
        usage()
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
