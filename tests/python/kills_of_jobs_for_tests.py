"""Kills processes that work with ingest jobs at random moments. All of them work on one database:
builders of parts, submitters, the writer, a compactor, a collector without grace and a reader. Run
as a program by ``test_kill_jobs.py`` and ``make soak``.

    kills_of_jobs_for_tests.py FOLDER KILLS SEED

After every `A_DATABASE` kills all processes are killed together, and a writer takes in the pending
requests. `jobs_judged_for_tests.py` then judges all answers and looks of the processes: no job and
no put is lost, none is present twice or in part. Then the deadlines pass, and a collection without
grace leaves no object that is not referenced.

Some jobs delete, some replace or clear a range, some come behind all existing data. Some are
versions of applications, and applications are forgotten now and then.

Jobs, parts and requests travel as pickles in files (`jobs_on_desk_for_tests.py`). A process that
finds a file may build, commit, submit or abort, regardless of the other processes.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import shutil
import signal
import sys
import time
from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

import jobs_left_for_tests as left_over
import jobs_on_desk_for_tests as desks
import jobs_planned_for_tests as planned
import kills_for_tests as single
import siltstone
from jobs_on_desk_for_tests import Board, Desk, Tray
from jobs_planned_for_tests import Plan
from siltstone import admin, ingest

A_DATABASE = 100
DAY = 24 * 3600.0
# The number of jobs without a request. Submitters begin new jobs while there are fewer.
OPEN = 6
APPS = ("a", "b")
# Readers without a lease, and readers whose lease soon expires after they are killed.
READER = (
    {"reader_lease": False},
    {"manifest_poll_interval": 0.05, "readers.checkpoint_lifetime": 2},
)
# The error text for a request that comes after its application was forgotten.
DENIED = "began before its application was forgotten"
# These errors say nothing about the job: the request was too late, given up, or not done yet.
NOTHING = (siltstone.Conflict, siltstone.Expired, siltstone.Timeout)


class Hand:
    """One process at work. It draws its actions at random and notes the answers in its own file,
    which is still there after the process is killed."""

    def __init__(self, desk: Desk, serial: int, seed: int) -> None:
        self.desk, self.draw = desk, random.Random(seed)
        self.fresh = itertools.count(serial * 1000)
        flags = os.O_CREAT | os.O_WRONLY | os.O_APPEND
        self.notes = os.open(desk.folder / f"notes.{serial}", flags)
        # The time of its last request, on one clock for all processes.
        self.since = time.monotonic()

    def note(self, **told: object) -> None:
        os.write(self.notes, json.dumps(told).encode() + b"\n")

    def recent(self, jobs: Iterable[int]) -> int | None:
        """One of the jobs, most often one of the last 8."""
        known = sorted(jobs)
        few = known[-8:] if self.draw.random() < 0.8 else known
        return self.draw.choice(few) if few else None

    def plans(
        self, number: int, txn: tuple[str, int] | None = None, *, alone: bool = False
    ) -> Plan:
        """The content of a new job. With `alone` it has a single part, without deletes."""
        draw, lot = self.draw, 1.0 if txn or alone else self.draw.random()
        if lot < 0.08:
            plan = Plan(number, span=some_span(draw))
            self.note(plan=plan.to_plain())
            return plan
        zone = draw.randrange(planned.ZONES) if lot < 0.28 else None
        fills = self.desk.fills and 0.28 <= lot < 0.45
        cells = range(planned.CELLS) if zone is None else planned.cells_of(zone)
        if fills and draw.random() < 0.7:
            cells = range(planned.PUT, planned.CELLS)
        count = 1 if alone else draw.choice([1, 2, 2, 3])
        drawn = (draw.sample(cells, draw.randrange(1, 6)) for _ in range(count))
        parts = tuple(tuple(sorted(part)) for part in drawn)
        share = 0.0 if alone else draw.choice([0, 0, 0.3, 0.6, 1])
        every = [(part, cell) for part in range(count) for cell in parts[part]]
        deletes = frozenset(one for one in every if draw.random() < share)
        plan = Plan(number, parts, zone, txn, deletes, fills=fills)
        self.note(plan=plan.to_plain())
        return plan

    def asks(self, number: int) -> None:
        """Called before a request: batches acknowledged until now lie below the job."""
        self.since = time.monotonic()
        self.note(asks=number, behind=self.desk.board.acknowledged, since=self.since)

    def was_told(self, how: str, number: int, stands: ingest.IngestStatus) -> None:
        self.answered(how, number, stands.state, stands.seq)

    def answered(self, how: str, number: int, state: str, seq: int | None = None) -> None:
        times = {"since": self.since, "at": time.monotonic()}
        until = self.desk.board.begun
        self.note(how=how, job=number, state=state, seq=seq, until=until, **times)

    def was_refused(self, number: int, error: Exception) -> None:
        """Notes a refusal only if it says something about the state of the job."""
        if isinstance(error, siltstone.Conflict) and DENIED in str(error):
            self.answered("submit", number, "denied")

    def saw(self, rows: dict[bytes, bytes], least: int) -> None:
        self.note(look=planned.look_of(rows, least).to_plain())

    # --- Jobs -------------------------------------------------------------------------------------

    def begin(self, tray: Tray) -> None:
        number, draw = next(self.fresh), self.draw
        txn = None
        if draw.random() < 0.3:
            app = draw.choice(APPS)
            version = max(tray.versions.get(app, 0) + draw.choice([-1, 0, 0, 1, 1]), 1)
            txn = (app, version)
        plan = self.plans(number, txn)
        # Some jobs are already expired when they are closed or submitted. A job that clears gets a
        # long lifetime, because its state is asked for at the end.
        lifetime = draw.uniform(0.05, 1) if draw.random() < 0.15 else draw.uniform(1.5, 4.5)
        lifetime = lifetime if plan.span is None else DAY
        late = draw.random() < 0.5
        self.since = time.monotonic()
        job = ingest.Job(
            self.desk.path,
            txn=None if late else txn,
            lifetime=lifetime,
            replace=plan.replaces(),
            behind=plan.fills,
        )
        self.note(begun=number, since=self.since, at=time.monotonic())
        if late:
            job = job.for_txn(txn)
        app, version = txn or ("-", 0)
        name = f"job.{number}.{len(plan.parts)}.{app}.{version}.{tray.lives.get(app, 0)}"
        self.desk.leave(name, (job, plan))

    def forget(self) -> None:
        """Forgets an application while its jobs are staged and submitted."""
        number, app = next(self.fresh), self.draw.choice(APPS)
        self.note(forgets=number, app=app, since=time.monotonic())
        try:
            ingest.forget_app(self.desk.path, app)
        except siltstone.Conflict:
            self.note(forgot=number, at=time.monotonic(), is_so=False)
            return
        self.note(forgot=number, at=time.monotonic(), is_so=True)
        self.desk.leave(f"forgotten.{app}.{number}", None)

    def close(self, tray: Tray, number: int) -> None:
        """Closes a job with any attempt of each part. Another process may have closed it already,
        with other attempts."""
        job, plan = self.desk.take(tray.jobs[number])
        count = range(len(plan.parts))
        parts = [self.desk.take(self.draw.choice(tray.parts[number, part])) for part in count]
        try:
            request = job.commit(parts)
        except siltstone.Conflict:
            return
        rows = sum(len(plan.rows(part, 0)) for part in count)
        assert request.rows == rows, f"{request}: not {rows} rows"
        self.desk.leave(f"request.{number}.{next(self.fresh)}", request)
        if self.draw.random() < 0.6:
            self.submit(number, request)

    def submit(self, number: int, request: ingest.IngestRequest) -> None:
        draw = self.draw
        take_over = draw.random() < 0.04
        how = {"wait": draw.random() < 0.6, "timeout": draw.choice([0.1, 0.5, 5])}
        if how["wait"]:
            self.note(opens=number)
        self.asks(number)
        try:
            stands = ingest.submit(request, take_over=take_over, **how)
        except (*NOTHING, siltstone.Fenced) as error:
            self.was_refused(number, error)
            return
        self.was_told("submit", number, stands)

    def abort(self, name: str, number: int) -> None:
        job, _ = self.desk.take(name)
        self.since = time.monotonic()
        self.was_told("abort", number, job.abort())
        self.desk.leave(f"aborted.{number}", None)

    def load(self, db: siltstone.Database) -> None:
        plan = self.plans(next(self.fresh), alone=True)
        self.asks(plan.number)
        try:
            done = db.load(table(plan.rows(0, next(self.fresh)), self.draw))
        except siltstone.Timeout:
            return
        self.was_told("submit", plan.number, ingest.IngestStatus("adopted", done.seq))

    def take_in(self, db: siltstone.Database, number: int, request: ingest.IngestRequest) -> None:
        """The writer itself ingests the request."""
        self.asks(number)
        try:
            commit = db.ingest(request)
        except NOTHING as error:
            self.was_refused(number, error)
            return
        commit.wait()
        self.was_told("submit", number, ingest.IngestStatus("adopted", commit.seq))


def some_span(draw: random.Random) -> tuple[int, int]:
    """The cells of a part of a zone, of one zone, or of several zones."""
    first, last = sorted(draw.choices(range(planned.ZONES), k=2))
    cells = planned.cells_of(first)
    if draw.random() < 0.4:
        start = draw.randrange(cells.start + 1, cells.stop)
        return start, draw.randrange(start + 1, cells.stop + 1)
    last = last if draw.random() < 0.4 else first
    return cells.start, planned.cells_of(last).stop


def table(rows: dict[bytes, bytes | None], draw: random.Random) -> pa.Table:
    """The rows as a table, in random order."""
    names = draw.sample(list(rows), len(rows))
    kind = pa.binary()
    values = [rows[name] for name in names]
    return pa.table({"key": pa.array(names, kind), "value": pa.array(values, kind)})


# --- Roles: each works until it is killed ---------------------------------------------------------


def build(hand: Hand) -> None:
    while True:
        tray = hand.desk.tray()
        again = hand.draw.random() < 0.25
        number = hand.recent(job for job in tray.jobs if tray.lacks(job, again=again))
        if number is None:
            time.sleep(0.01)
            continue
        job, plan = hand.desk.take(tray.jobs[number])
        part = hand.draw.choice(tray.lacks(number, again=again))
        attempt = next(hand.fresh)
        staged = stage(hand, job, part, plan.rows(part, attempt))
        hand.desk.leave(f"part.{number}.{part}.{attempt}", staged)


def stage(hand: Hand, job: ingest.Job, part: int, rows: dict[bytes, bytes | None]) -> ingest.Part:
    draw = hand.draw
    lot = draw.random()
    if lot < 0.3 and all(rows.values()):
        return job.load(part, table(rows, draw))
    # Every few rows fill a table.
    with job.writer(part, table_bytes=draw.choice([1, 100, 400, 1 << 20])) as writer:
        if lot < 0.4:
            columns = table(rows, draw)
            writer.put_or_delete_many(
                *(columns[name].combine_chunks() for name in columns.column_names)
            )
            return writer.finish()
        for key in draw.sample(list(rows), len(rows)):
            value = rows[key]
            if value is None:
                writer.delete(key)
            else:
                writer.add(key, value)
            if draw.random() < 0.05:
                time.sleep(0.001)
    return writer.finish()


def submit(hand: Hand) -> None:
    if hand.draw.random() < 1 / 8:
        submit_by_command(hand)
    while True:
        tray, draw = hand.desk.tray(), hand.draw
        lot = draw.random()
        unasked = tray.jobs.keys() - tray.requests.keys() - tray.aborted
        # Some jobs are closed again, regardless of their state.
        closed = tray.jobs if lot < 0.15 else unasked
        built = [job for job in closed if not tray.lacks(job)]
        number: int | None
        if len(unasked) < OPEN or lot < 0.05:
            hand.begin(tray)
        elif lot < 0.08 and (number := hand.recent(tray.jobs)) is not None:
            hand.abort(tray.jobs[number], number)
        elif lot < 0.09:
            hand.forget()
        elif lot < 0.6 and (number := hand.recent(built)) is not None:
            hand.close(tray, number)
        elif lot < 0.7 and (number := hand.recent(tray.requests)) is not None:
            job, _ = hand.desk.take(tray.jobs[number])
            hand.since = time.monotonic()
            hand.was_told("status", number, ingest.status(hand.desk.path, job))
        elif (number := hand.recent(tray.requests)) is not None:
            hand.submit(number, hand.desk.take(draw.choice(tray.requests[number])))
        else:
            time.sleep(0.01)


def submit_by_command(hand: Hand) -> None:
    plan = hand.plans(next(hand.fresh), alone=True)
    file = hand.desk.folder / f"rows-{plan.number}.parquet"
    pq.write_table(table(plan.rows(0, next(hand.fresh)), hand.draw), file)
    hand.note(opens=plan.number)
    hand.asks(plan.number)
    command = [sys.executable, "-m", "siltstone.cli", "--path", str(hand.desk.path), "ingest"]
    named = ["--take-over"] if hand.draw.random() < 0.1 else []
    os.execv(command[0], [*command, *named, "--json", str(file)])


def write(hand: Hand, place: int) -> None:
    """The n-th batch sets its own cells and stores its number."""
    desk, draw, board = hand.desk, hand.draw, hand.desk.board
    both = {"embedded_compactor": draw.random() < 0.2, "embedded_gc": draw.random() < 0.5}
    window = draw.randrange(1, 64)
    how = {"flush_interval": draw.choice([0, 0.001, 0.02]), "max_parallel_writes": window}
    options = {**single.WRITER, **both, **how, **single.pace(draw)}
    known = board.acknowledged
    db = siltstone.open(desk.path, take_over=True, options=options)
    last = int(db.get(b"batch", b"put 0").split()[1])
    assert last >= known, f"recovered {last} of {known}"
    waiting = []
    for number in range(last + 1, desks.BATCHES):
        board.begins(place, number)
        with db.batch() as batch:
            for key in (b"batch", *map(planned.key_of, planned.cells_put(number))):
                batch.put(key, b"put %d " % number + b"." * draw.randrange(300))
        waiting.append((number, batch.commit))
        if len(waiting) > window:
            acknowledged, commit = waiting.pop(0)
            commit.wait()
            board.acknowledges(place, acknowledged, commit.seq)
        lot = draw.random()
        if lot < 0.01:
            ingests_too(hand, db)
        elif lot < 0.02:
            with db.snapshot() as held:
                rows = dict(held.scan())
            # A look counts once it is durable.
            db.flush()
            hand.saw(rows, known)
        elif lot < 0.09:
            time.sleep(0.002)


def ingests_too(hand: Hand, db: siltstone.Database) -> None:
    if hand.draw.random() < 0.1:
        hand.load(db)
        return
    tray = hand.desk.tray()
    number = hand.recent(tray.requests)
    if number is not None:
        hand.take_in(db, number, hand.desk.take(hand.draw.choice(tray.requests[number])))


def read(hand: Hand) -> None:
    """Reads with or without a lease. Without one, objects may disappear during the read."""
    leases = hand.draw.random() < 0.5
    while True:
        least = hand.desk.board.acknowledged
        try:
            with siltstone.open_reader(hand.desk.path, options=READER[leases]) as reader:
                for _ in range(hand.draw.randrange(1, 20)):
                    hand.saw(dict(reader.scan()), least)
                    time.sleep(hand.draw.expovariate(1 / 0.02))
                    least = hand.desk.board.acknowledged
                    reader.refresh()
        except siltstone.Expired:
            continue


def compact(hand: Hand) -> None:
    options = {**single.SMALL, **single.pace(hand.draw)}
    if hand.draw.random() < 1 / 40:
        command = [sys.executable, "-m", "siltstone.cli", "--path", str(hand.desk.path)]
        named = [
            part for name, value in options.items() for part in ("--option", f"{name}={value}")
        ]
        os.execv(command[0], [*command, "run-compactor", *named])
    admin.run_compactor(hand.desk.path, options=options)


def run(role: str, desk: Desk, serial: int, seed: int, place: int) -> None:
    """The work of a process of this role, until it is killed."""
    hand = Hand(desk, serial, seed)
    if role == "writer":
        write(hand, place)
    elif role == "collector":
        single.run(role, desk.path, seed, None)
    else:
        {"builder": build, "submitter": submit, "reader": read, "compactor": compact}[role](hand)


class Database(single.Database):
    """One database and its processes, until the requested number of kills is done."""

    ROLES = ("writer", *2 * ("builder", "submitter"), "compactor", "collector", "reader")
    # Roles that another process may replace before the process ends.
    BY_OTHERS = ("writer", "compactor")
    PAUSE = 0.06
    # Some processes end by themselves before they are killed.
    SPARE = 2

    def __init__(self, path: Path, kills: int, draw: random.Random) -> None:
        super().__init__(path, kills, draw)
        self.desk = Desk(path, Board(4 * kills + 200), fills=draw.random() < 0.5)
        self.serials: dict[int, int] = {}
        self.serial = self.writers = 0
        self.counts: list[int] = []

    def start(self, role: str) -> None:
        self.serial += 1
        seed = self.draw.randrange(1 << 32)
        arguments = (role, self.desk, self.serial, seed, self.writers)
        self.writers += role == "writer"
        child = single.fork(run, *arguments, logs=self.logs)
        self.living[child], self.serials[child] = role, self.serial

    def ended(self, child: int, status: int) -> None:
        """Removes an ended process, and starts a new one unless the role is filled."""
        role, log = self.living.pop(child), self.logs / str(child)
        if os.WIFSIGNALED(status):
            self.killed[role] += 1
        else:
            told = log.read_text()
            fenced = os.waitstatus_to_exitcode(status) == 2 or "Fenced" in told
            if role == "submitter" and not fenced:
                self.command_ended(self.serials[child] * 1000, status, told)
            else:
                assert fenced, f"{role} ended with {status}: {told}"
                assert role in (*self.BY_OTHERS, "submitter"), f"a {role} was fenced: {told}"
            self.fenced += fenced
        self.hand.note(ended=self.serials[child], at=time.monotonic())
        log.unlink(missing_ok=True)
        wanted = 0 if self.over else self.ROLES.count(role)
        if list(self.living.values()).count(role) < wanted:
            self.start(role)

    def command_ended(self, number: int, status: int, told: str) -> None:
        """The command ended without an error and printed its answer."""
        assert status == 0, f"a submitter ended with {status}: {told}"
        # Warnings may come first: the command becomes the writer for a moment if there is no other.
        said = json.loads(told.splitlines()[-1])
        stands = ingest.IngestStatus(said["state"], said.get("seq"), said.get("reason"))
        self.hand.was_told("submit", number, stands)

    def run(self) -> None:
        self.logs.mkdir(parents=True)
        self.desk.folder.mkdir()
        self.hand = Hand(self.desk, 0, 0)
        self.alone(made, self.desk)
        self.strike()
        found = single.Slots(10)
        seed = self.draw.randrange(1 << 32)
        self.alone(left_over.check, self.desk, self.writers, seed, found.numbers)
        self.counts = list(found.numbers)


def made(desk: Desk) -> None:
    options = {**single.WRITER, **single.ALONE}
    siltstone.open(desk.path, options=options, allow_ingest_behind=desk.fills).close()


def main(folder: Path, kills: int, seed: int) -> None:
    # SIGTERM to this process ends its children too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    draw = random.Random(seed)
    killed, counts, began = dict.fromkeys(Database.ROLES, 0), [0] * 10, time.monotonic()
    fenced = number = 0
    while (left := kills - sum(killed.values())) > 0:
        number += 1
        database = Database(folder / f"{number:04}", max(min(left, A_DATABASE), 24), draw)
        try:
            database.run()
        except BaseException:
            for child in database.living:
                os.kill(child, signal.SIGKILL)
            print(f"seed {seed}, {database.path}, {database.killed}", flush=True)
            raise
        for role, times in database.killed.items():
            killed[role] += times
        counts = [sum(both) for both in zip(counts, database.counts, strict=True)]
        fenced += database.fenced
        told = ", ".join(f"{role}s: {times}" for role, times in killed.items())
        jobs, adopted, aborted, looks, batches, deleting, clears, fills, lives, long = counts
        print(
            f"{sum(killed.values())} kills ({told}); {jobs} jobs, {adopted} of them there"
            f" ({deleting} that delete, {clears} that clear, {fills} that fill), {aborted} aborted,"
            f" {lives} lives of applications over, {long} by loads that were killed;"
            f" {batches} batches,"
            f" {looks} looks,"
            f" {fenced} fenced; {time.monotonic() - began:.0f} s",
            flush=True,
        )
        for place in (database.path, database.logs, database.desk.folder):
            shutil.rmtree(place)


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
