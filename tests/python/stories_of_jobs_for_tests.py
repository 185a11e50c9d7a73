"""Possible and impossible histories of jobs and batches, for tests of the judge in
`jobs_judged_for_tests.py`.
"""

from __future__ import annotations

import random

import jobs_planned_for_tests as planned
from apps_judged_for_tests import Answer, Forgotten
from jobs_judged_for_tests import Judge, Told
from jobs_planned_for_tests import Look, Plan, look_of


class Story:
    """A sequence of events, with the looks and answers about them."""

    def __init__(self, *plans: Plan) -> None:
        self.plans = {plan.number: plan for plan in plans}
        self.rows: dict[bytes, bytes] = {}
        # Keys that were ever written or cleared.
        self.had = set[bytes]()
        self.batch = 0
        self.now = 0.0
        self.told = Told(behind=dict.fromkeys(self.plans, 0))

    def puts(self, count: int = 1) -> None:
        for _ in range(count):
            self.batch += 1
            for key in (b"batch", *map(planned.key_of, planned.cells_put(self.batch))):
                self.rows[key] = b"put %d ..." % self.batch
                self.had.add(key)

    def adopts(self, number: int, clears: bool = True) -> None:
        plan = self.plans[number]
        if plan.fills:
            self.fills(plan)
            return
        if (bounds := plan.replaces()) is not None and clears:
            start, end = bounds
            self.rows = {key: row for key, row in self.rows.items() if not start <= key < end}
        for part in range(len(plan.parts)):
            for key, row in plan.rows(part, 1000 + part).items():
                self.rows.pop(key, None)
                if row is not None:
                    self.rows[key] = row
        covered = {planned.key_of(c) for c in range(planned.CELLS) if plan.covers(c)}
        self.had |= covered

    def fills(self, plan: Plan) -> None:
        rows = dict[bytes, bytes | None]()
        for part in range(len(plan.parts)):
            rows |= plan.rows(part, 1000 + part)
        for key, row in rows.items():
            if key not in self.had and row is not None:
                self.rows[key] = row
        self.had |= rows.keys()

    def looks(self) -> Look:
        look = look_of(self.rows)
        self.told.looks.append(look)
        return look

    def may_look(self, draw: random.Random, share: float) -> None:
        if draw.random() < share:
            self.looks()

    # --- Events, each with a duration -------------------------------------------------------------

    def passes(self) -> tuple[float, float]:
        self.now += 1
        return self.now - 0.5, self.now

    def begins(self, *numbers: int) -> None:
        for number in numbers:
            self.told.begun[number] = self.passes()

    def asks(self, *numbers: int) -> None:
        for number in numbers:
            self.told.asked.setdefault(number, self.passes()[0])

    def says(self, number: int, state: str, seq: int | None = None, how: str = "submit") -> None:
        self.told.add(Answer(how, number, state, self.batch, *self.passes()), seq)

    def forgets(self, app: str, sure: bool = True) -> None:
        self.told.forgotten.append(Forgotten(app, *self.passes(), sure=sure))

    def wrong(self) -> list[str]:
        self.looks()
        return Judge(self.plans, self.told).judged()


def any_plan(draw: random.Random, number: int) -> Plan:
    if draw.random() < 0.15:
        first = draw.randrange(planned.ZONES)
        cells = planned.cells_of(first)
        last = draw.choice([cells.stop, planned.CELLS])
        return Plan(number, span=draw.choice([(cells.start, last), (cells[2], cells[7])]))
    if draw.random() < 0.2:
        rest = range(planned.PUT, planned.CELLS)
        some = sorted(draw.sample(range(planned.CELLS), 6))
        gone = frozenset((0, cell) for cell in rest if draw.random() < 0.2)
        return Plan(number, (tuple(rest), tuple(some)), deletes=gone, fills=True)
    zone = draw.choice([None, None, *range(planned.ZONES)])
    cells = range(planned.CELLS) if zone is None else planned.cells_of(zone)
    parts = tuple(tuple(sorted(draw.sample(cells, 4))) for _ in range(draw.randrange(1, 4)))
    share = draw.choice([0, 0.5, 1])
    every = [(part, cell) for part, cells_ in enumerate(parts) for cell in cells_]
    return Plan(number, parts, zone, deletes=frozenset(e for e in every if draw.random() < share))
