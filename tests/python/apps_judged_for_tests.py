"""The lives of applications, which end when they are forgotten: what of their jobs can have been,
by the times at which processes asked, on one clock.

A job is of the life in which it began, and is taken in within it or not at all. Within one life
each version comes once, and they ascend.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

from jobs_planned_for_tests import Plan


@dataclass(frozen=True)
class Answer:
    """What somebody was told of a job."""

    how: str
    """By "submit" or "status", which may be answered for another job of the same version; by
    "abort"."""
    job: int
    state: str
    """As a status has it, or "denied": its application was forgotten after it began."""
    until: int = 0
    """The last batch that anybody had begun then."""
    since: float = 0.0
    """When it was asked, and when answered."""
    at: float = math.inf

    @property
    def is_own(self) -> bool:
        """Whether it is about no other job."""
        return self.how == "abort"


@dataclass(frozen=True)
class Forgotten:
    """That an application was forgotten, or may have been."""

    app: str
    since: float
    until: float
    """When that was answered; or when whoever did it was killed."""
    sure: bool
    """Whether it was answered."""


@dataclass
class Times:
    """When it was, of whatever concerns applications."""

    begun: dict[int, tuple[float, float]] = field(default_factory=dict)
    """By job, when it began: not before the first, not after the second."""
    asked: dict[int, float] = field(default_factory=dict)
    """By job, when it was asked for first."""
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
        """Those that are there of the same version."""
        txn = self.plans[job].txn
        if txn is None:
            return []
        return [other for other in self.apps.get(txn[0], []) if self.plans[other].txn == txn]

    def known_from(self) -> dict[int, float]:
        """By job that is there: since when it had been asked for, surely."""
        found: dict[int, float] = {}
        for answer in self.times.answers:
            if answer.state not in ("pending", "adopted"):
                continue
            if answer.is_own or self.same(answer.job) == [answer.job]:
                found[answer.job] = min(found.get(answer.job, math.inf), answer.at)
        return found

    def sure_ends(self, app: str) -> Iterable[tuple[float, float]]:
        """Between which two moments a life surely ended: a job had been taken in, and nothing else
        can have ended its life."""
        for one in self.forgotten[app]:
            for job in self.apps.get(app, []):
                if not one.sure or self.accepted.get(job, math.inf) > one.since:
                    continue
                asked = self.asked(job)
                may = (f for f in self.forgotten[app] if f.until >= asked and f.since <= one.until)
                yield min(f.since for f in may), one.until

    def is_over(self, job: int, by: float) -> bool:
        """Whether the life in which it began was surely over then."""
        txn = self.plans[job].txn
        begun = self.began(job)[1]
        ends = self.ends.get(txn[0], set()) if txn is not None else set()
        return any(begun < since and until < by for since, until in ends)

    def may_end(self, app: str, since: float, until: float) -> bool:
        """Whether a life can have ended between these moments."""
        lives = self.forgotten.get(app, [])
        return any(one.until >= since and one.since <= until for one in lives)

    def may_follow(self, job: int, earlier: int) -> bool:
        """Whether a job may have been taken in behind another one of its application."""
        (app, version), (_, lower) = (
            self.plans[job].txn or ("", 0),
            self.plans[earlier].txn or ("", 0),
        )
        return lower < version or self.may_end(app, self.asked(earlier), self.began(job)[1])

    def brought(self, answer: Answer) -> list[int]:
        """Which jobs an answer may be about."""
        job = answer.job
        if answer.is_own or self.plans[job].txn is None:
            return [job]
        return [other for other in self.same(job) if other == job or self.is_one(job, other)]

    def is_one(self, job: int, other: int) -> bool:
        """Whether two jobs may be of one life."""
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
                yield f"job {answer.job} was denied, and nobody forgot {app!r}"
        for app, ends in self.forgotten.items():
            for one in ends:
                if one.sure and (waiting := self.waiting(one)):
                    yield f"{app!r} was forgotten while jobs {waiting} of it were pending"

    def waiting(self, one: Forgotten) -> set[int]:
        """Jobs that were pending before an application was forgotten, and are so after it."""
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
