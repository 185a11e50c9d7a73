"""The check after `kills_of_jobs_for_tests.py` has killed all processes: a last writer takes in the
pending requests, all answers and looks are judged, the deadlines pass, and no object stays that is
not referenced.
"""

from __future__ import annotations

import random
import re
import time
from pathlib import Path
from typing import Any

import jobs_on_desk_for_tests as desks
import kills_for_tests as single
import siltstone
from apps_judged_for_tests import Answer
from jobs_judged_for_tests import Judge, Told
from jobs_on_desk_for_tests import Desk
from jobs_planned_for_tests import Look, Plan, look_of
from siltstone import admin, ingest

# Seconds that the last writer may need to take in the pending requests.
PATIENCE = 300.0
# Loads, and the command, give their jobs a deadline of one day.
LONG_SECONDS = 3600.0
# No compactor runs beside the last writer: L0 always has room.
LAST = {**single.WRITER, **single.ALONE, "l0_max_ssts": 2000}


def settled(path: Path) -> Look:
    """A look through a last writer, after it took in all pending requests."""
    until = time.monotonic() + PATIENCE
    with siltstone.open(path, take_over=True, options=LAST) as db:
        db.flush(memtable=True)
        while admin.manifest(path)["pending_ingests"]:
            assert time.monotonic() < until, "what is pending is not taken in"
            time.sleep(0.01)
            db.flush(memtable=True)
        return look_of(dict(db.scan()))


def deadline_of(job: str) -> float:
    """The deadline in an id, which is a ULID, in seconds."""
    digits = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
    millis = 0
    for digit in job[:10]:
        millis = 32 * millis + digits.index(digit)
    return millis / 1000


def check(desk: Desk, writers: int, seed: int, counts: Any) -> None:
    """Checks the whole database after all processes are killed."""
    path, draw = desk.path, random.Random(seed)
    plans, told, opens = desks.read_notes(desk)
    last = settled(path)
    told.looks.append(last)
    jobs = [desk.take(name) for name in desk.tray().jobs.values()]
    ask_for_clears(desk, jobs, told)
    case = Judge(plans, told)
    wrong = case.judged()
    assert not wrong, "\n".join(wrong[:20])
    open_jobs = [(job, plan) for job, plan in jobs if plan.number not in case.there]
    # A job that clears has a deadline of one day.
    give_up(path, [job for job, plan in open_jobs if plan.span or draw.random() < 0.5])
    # Wait for the deadlines of jobs, and for the leases of killed readers.
    ends = [job.deadline.timestamp() for job, plan in jobs if plan.span is None]
    ends += [lease["expires_at_ms"] / 1000 for lease in admin.manifest(path)["leases"]]
    time.sleep(max(max(ends, default=0) - time.time(), 0) + 0.002)
    admin.compact(path, options=single.SMALL)
    for _ in range(3):
        report = admin.gc(path, min_age=0)
        assert report.trouble is None
    counts[:5] = [len(plans), len(case.there), len(told.aborted), len(told.looks), last.batch]
    deleting = sum(bool(plans[job].deletes) for job in case.there)
    lives = sum(map(len, case.lives.ends.values()))
    counts[5:9] = [deleting, len(case.clears), len(case.fillers), lives]
    counts[9] = check_objects(path, writers + opens + 1, report)
    with siltstone.open_reader(path) as reader:
        assert look_of(dict(reader.scan())) == last


def ask_for_clears(desk: Desk, jobs: list[tuple[ingest.Job, Plan]], told: Told) -> None:
    """Asks for the state of each job that clears, because no look shows it. Its deadline is a day
    later."""
    for job, plan in jobs:
        if plan.span is None:
            continue
        stands = ingest.status(desk.path, job)
        assert stands.state in {"open", "adopted", "aborted", "refused"}, f"{plan}: {stands}"
        told.add(Answer("status", plan.number, stands.state, desk.board.begun), stands.seq)


def give_up(path: Path, jobs: list[ingest.Job]) -> None:
    """Aborts jobs: the next collection removes their objects, before the deadline."""
    jobs = [job for job in jobs if ingest.status(path, job).state in ("open", "aborted")]
    assert {job.abort().state for job in jobs} <= {"aborted", "forgotten"}
    assert admin.gc(path, min_age=0).trouble is None
    left = [job.id for job in jobs if any(path.glob(f"ingest/{job.id}/*"))]
    assert not left, f"given up, and not collected: {left}"


def check_objects(path: Path, writers: int, collected: admin.GcReport) -> int:
    """Checks that no object is missing, and that no object is left except those staged by killed
    loads with a deadline of one day. Returns the number of such loads."""
    report = admin.verify(path)
    assert report.ok, report.problems
    state, there = admin.manifest(path), single.objects(path)
    layers = [*state["l0"], *state["runs"]]
    tables = {table["name"] for layer in layers for table in layer["tables"]}
    needed = (single.reachable(path, state) - single.tables(state)) | tables
    assert needed <= there, f"missing: {sorted(needed - there)}"
    fences = {f"wal/{number:020}.sst" for number in range(1, state["replay_from"])} & there
    # One fence stays for every writer that did not close.
    assert len(fences) <= writers, f"{len(fences)} fences of {writers} writers"
    left = there - fences - needed
    staged = {name: re.fullmatch(r"ingest/(\w{26})/.+", name) for name in left}
    long = {name for name, job in staged.items() if job and waits(path, job[1])}
    assert left == long, f"left over: {sorted(left - long)}"
    assert {orphan.object for orphan in report.orphans} <= long | fences
    kept = [one.objects for one in collected.stays if one.why == "an ingest job may still bring it"]
    assert sum(kept) == len(long), f"{kept} objects wait for a day, not {sorted(long)}"
    return len({Path(name).parent for name in long})


def waits(path: Path, job: str) -> bool:
    """Whether the job is open and its deadline is more than an hour ahead."""
    long = deadline_of(job) > time.time() + LONG_SECONDS
    return long and ingest.status(path, job).state == "open"
