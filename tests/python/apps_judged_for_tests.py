"""The lives of applications. A life ends when the application is forgotten. This module checks the
jobs of applications against the times of the requests, on one clock.

A job belongs to the life in which it began. It is taken in within that life or not at all. Within
one life each version occurs once, in ascending order.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

from jobs_planned_for_tests import Plan


@dataclass(frozen=True)
class Answer:
    """The answer that a process got for a job."""

    how: str
    """The kind of request: "submit" or "status", which may be answered for another job of the same
    version, or "abort"."""
    job: int
    state: str
    """The state from a status, or "denied": the application was forgotten after the job began."""
    until: int = 0
    """The last batch that any writer had begun at that time."""
    since: float = 0.0
    """The time of the request; `at` is the time of the answer."""
    at: float = math.inf

    @property
    def is_own(self) -> bool:
        """Whether the answer can only be about this job."""
        return self.how == "abort"


@dataclass(frozen=True)
class Forgotten:
    """A request to forget an application, which may have had no effect."""

    app: str
    since: float
    until: float
    """The time of the answer, or the time at which the process was killed."""
    sure: bool
    """Whether there was an answer."""


@dataclass
class Times:
    """The times of all events that concern applications."""

    begun: dict[int, tuple[float, float]] = field(default_factory=dict)
    """By job: the earliest and the latest time at which it can have begun."""
    asked: dict[int, float] = field(default_factory=dict)
    """By job: the time of the first request for it."""
    forgotten: list[Forgotten] = field(default_factory=list)
    answers: list[Answer] = field(default_factory=list)


class Lives:
    def __init__(self, plans: dict[int, Plan], times: Times, there: Iterable[int]) -> None:
        self.plans, self.times = plans, times
        self.apps: dict[str, list[int]] = {}
        for job in sorted(there):
            if (txn := plans[job].txn) is not None:
                self.apps.setdefault(txn[0], []).append(job)
        self.forgotten: dict[str, list[Forgotten]] = {}
        for one in times.forgotten:
            self.forgotten.setdefault(one.app, []).append(one)
        self.accepted = self.known_from()
        self.ends = {app: set(self.sure_ends(app)) for app in self.forgotten}

    def began(self, job: int) -> tuple[float, float]:
        return self.times.begun.get(job, (-math.inf, math.inf))

    def asked(self, job: int) -> float:
        return self.times.asked.get(job, -math.inf)

    def same(self, job: int) -> list[int]:
        """The present jobs with the same application and version."""
        txn = self.plans[job].txn
        if txn is None:
            return []
        return [other for other in self.apps.get(txn[0], []) if self.plans[other].txn == txn]

    def known_from(self) -> dict[int, float]:
        """By present job: the earliest time at which it is known to be accepted."""
        found: dict[int, float] = {}
        for answer in self.times.answers:
            if answer.state not in ("pending", "adopted"):
                continue
            if answer.is_own or self.same(answer.job) == [answer.job]:
                found[answer.job] = min(found.get(answer.job, math.inf), answer.at)
        return found

    def sure_ends(self, app: str) -> Iterable[tuple[float, float]]:
        """Pairs of times between which a life surely ended: a job had been taken in, and no other
        request can have ended its life."""
        for one in self.forgotten[app]:
            for job in self.apps.get(app, []):
                if not one.sure or self.accepted.get(job, math.inf) > one.since:
                    continue
                asked = self.asked(job)
                may = (f for f in self.forgotten[app] if f.until >= asked and f.since <= one.until)
                yield min(f.since for f in may), one.until

    def is_over(self, job: int, by: float) -> bool:
        """Whether the life in which the job began was surely over at `by`."""
        txn = self.plans[job].txn
        begun = self.began(job)[1]
        ends = self.ends.get(txn[0], set()) if txn is not None else set()
        return any(begun < since and until < by for since, until in ends)

    def may_end(self, app: str, since: float, until: float) -> bool:
        """Whether a life can have ended between two times."""
        lives = self.forgotten.get(app, [])
        return any(one.until >= since and one.since <= until for one in lives)

    def may_follow(self, job: int, earlier: int) -> bool:
        """Whether a job may have been taken in after another job of its application."""
        (app, version), (_, lower) = (
            self.plans[job].txn or ("", 0),
            self.plans[earlier].txn or ("", 0),
        )
        return lower < version or self.may_end(app, self.asked(earlier), self.began(job)[1])

    def brought(self, answer: Answer) -> list[int]:
        """The jobs that an answer may be about."""
        job = answer.job
        if answer.is_own or self.plans[job].txn is None:
            return [job]
        return [other for other in self.same(job) if other == job or self.is_one(job, other)]

    def is_one(self, job: int, other: int) -> bool:
        """Whether two jobs may belong to one life."""
        return not (
            self.is_over(job, self.began(other)[0]) or self.is_over(other, self.began(job)[0])
        )

    def wrong(self) -> Iterable[str]:
        for jobs in self.apps.values():
            for job in jobs:
                if self.is_over(job, self.asked(job)):
                    yield f"job {job} was asked for after its application was forgotten, and came"
        for answer in self.times.answers:
            if answer.state != "denied":
                continue
            app = (self.plans[answer.job].txn or ("", 0))[0]
            if not self.may_end(app, self.began(answer.job)[0], answer.at):
                yield f"job {answer.job} was denied, and {app!r} was never forgotten"
        for app, ends in self.forgotten.items():
            for one in ends:
                if one.sure and (waiting := self.waiting(one)):
                    yield f"{app!r} was forgotten while jobs {waiting} of it were pending"

    def waiting(self, one: Forgotten) -> set[int]:
        """Jobs that were pending both before and after an application was forgotten."""
        before, after = set[int](), set[int]()
        for answer in self.times.answers:
            txn = self.plans[answer.job].txn
            if txn is None or txn[0] != one.app or answer.state != "pending" or not answer.is_own:
                continue
            if answer.at <= one.since:
                before.add(answer.job)
            if answer.since >= one.until:
                after.add(answer.job)
        return before & after
