"""The judge of `kills_of_jobs_for_tests.py`: whether all answers and looks are consistent.

`Judge` looks for one order of all batches and jobs in which every look shows the cells that a
beginning of the order leaves, and which contains every job that a process was told of. A job that
was adopted twice, is present in part or was lost fits into no order. For each job the judge knows a
range of batches and a set of jobs that stand before it; every look and every answer narrows both.

A job that clears a span of cells is in no look. An answer at the end tells that it was adopted, and
its number. The looks narrow its place as for any other job.

Jobs that fill always stand before all existing data: only the order among them matters.
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import combinations, pairwise

from apps_judged_for_tests import Answer, Lives, Times
from jobs_ordered_for_tests import Option, Order
from jobs_planned_for_tests import CELLS, Look, Plan, last_put


@dataclass
class Told(Times):
    """The looks and answers of the processes."""

    looks: list[Look] = field(default_factory=list)
    """The last look is the final one, after all jobs were taken in."""
    seqs: list[tuple[int, int]] = field(default_factory=list)
    """Sequence numbers of acknowledged batches, ascending."""
    acknowledged: int = 0
    """The last of those batches."""
    behind: dict[int, int] = field(default_factory=dict)
    """By job: a batch that was acknowledged before the first request for the job."""
    requested: list[Answer] = field(default_factory=list)
    """Answers after which a request counts as accepted."""
    adopted: list[tuple[Answer, int]] = field(default_factory=list)
    """Answers with the sequence number of the adoption."""
    ended: list[Answer] = field(default_factory=list)
    """Answers after which the job is not taken in any more."""
    aborted: set[int] = field(default_factory=set)
    refused: dict[int, str] = field(default_factory=dict)

    def add(self, answer: Answer, seq: int | None) -> None:
        self.answers.append(answer)
        state = answer.state
        if state == "refused":
            self.refused[answer.job] = answer.how
        elif state == "aborted":
            self.aborted.add(answer.job)
        elif state in ("pending", "adopted") or (answer.how == "submit" and state != "denied"):
            # A `submit` that returns was accepted, even if the state of the job was forgotten
            # later.
            self.requested.append(answer)
        if state == "adopted" and seq is not None:
            self.adopted.append((answer, seq))
        if state in ("forgotten", "denied"):
            self.ended.append(answer)


class Judge(Order):
    """The judge of one database: `judged` returns the problems."""

    def __init__(self, plans: dict[int, Plan], told: Told) -> None:
        self.plans, self.told, self.last = plans, told, told.looks[-1]
        self.seen = set[int]().union(*(look.jobs for look in told.looks))
        own = {
            answer.job for answer in told.requested if answer.is_own or not plans[answer.job].txn
        }
        adopted = {answer.job for answer, _ in told.adopted}
        clears = {job for job in adopted if plans[job].span is not None}
        self.lost = {job for job in own - clears if plans[job].span is not None}
        super().__init__(self.seen | (own - self.lost) | clears, self.last.batch)
        self.lives = Lives(plans, told, self.there)
        for job in self.there:
            self.above(job, told.behind.get(job, 0))
        self.covering = [
            self.mask(j for j in self.there if plans[j].covers(c)) for c in range(CELLS)
        ]
        self.clears = sorted(clears)
        self.fillers = {job for job in self.there if plans[job].fills}
        self.filling = [
            [job for job in self.fillers if plans[job].winner(c) is not None] for c in range(CELLS)
        ]

    def judged(self) -> list[str]:
        self.check_promises()
        self.read_answers()
        self.read_versions()
        for look in self.told.looks:
            self.read(look)
        self.settle()
        return self.wrong

    # --- Promises ---------------------------------------------------------------------------------

    def check_promises(self) -> None:
        told, last, here = self.told, self.last, self.seen.union(self.clears)
        self.wrong += [f"job {job} was refused: {how}" for job, how in told.refused.items()]
        if last.batch < told.acknowledged:
            text = f"batch {told.acknowledged} was acknowledged, and the last one is {last.batch}"
            self.wrong.append(text)
        for answer in told.requested:
            if not self.lives.brought(answer):
                txn = self.plans[answer.job].txn
                text = f"job {answer.job}, {txn}, was accepted, and no such one is there"
                self.wrong.append(text)
        self.wrong += [f"job {job} was accepted, and is lost" for job in sorted(self.lost)]
        for job in here - told.behind.keys():
            self.wrong.append(f"job {job} is there, and was never asked for")
        for job in told.aborted & here:
            self.wrong.append(f"job {job} is there, and was aborted")
        self.wrong += self.lives.wrong()

    def read_answers(self) -> None:
        """Places each adopted job between the batches with known sequence numbers."""
        places: dict[int, int] = {}
        for answer in self.told.ended:
            if answer.job in self.bit:
                self.below(answer.job, answer.until)
        for answer, seq in self.told.adopted:
            jobs = self.lives.brought(answer)
            low, high = self.between(seq)
            if answer.job in self.fillers:
                low, high = 0, self.last.batch
            options: list[Option] = [
                (("above", job, low), ("below", job, min(high, answer.until))) for job in jobs
            ]
            if jobs:
                self.either(options, f"none of {jobs} can be at {seq}")
            if len(jobs) == 1 and places.setdefault(jobs[0], seq) != seq:
                self.wrong.append(f"job {jobs[0]} is at two places: {seq}, {places[jobs[0]]}")
        known = sorted(places, key=lambda job: places[job])
        # Jobs that fill get descending sequence numbers.
        self.ascend(job for job in reversed(known) if job in self.fillers)
        self.ascend(job for job in known if job not in self.fillers)

    def ascend(self, jobs: Iterable[int]) -> None:
        for earlier, later in pairwise(jobs):
            self.behind(later, self.bit[earlier])

    def between(self, seq: int) -> tuple[int, int]:
        """The batches directly below and above a sequence number."""
        seqs = self.told.seqs
        at = bisect(seqs, (seq, 0))
        low = seqs[at - 1][1] if at > 0 else 0
        return low, seqs[at][1] - 1 if at < len(seqs) else self.last.batch

    def read_versions(self) -> None:
        """Checks that of two jobs of an application, one may follow the other."""
        for jobs in self.lives.apps.values():
            for one, other in combinations(jobs, 2):
                both = ((one, other), (other, one))
                options: list[Option] = [
                    (("behind", later, self.bit[earlier]),)
                    for later, earlier in both
                    if self.lives.may_follow(later, earlier)
                ]
                txns = f"{self.plans[one].txn} and {self.plans[other].txn}"
                self.either(options, f"jobs {one} and {other} brought {txns}")

    # --- Looks ------------------------------------------------------------------------------------

    def holders(self, look: Look) -> dict[int | None, int]:
        """By zone: the last job that replaced it."""
        zoned = {self.plans[job].zone: job for job in look.jobs}
        zoned.pop(None, None)
        return zoned

    def read(self, look: Look) -> None:
        """Jobs in a look stand before its end, and before all jobs that are not in it."""
        self.wrong += look.wrong
        if look.batch < look.least:
            self.wrong.append(f"{look.least} was acknowledged, and a look ended at {look.batch}")
        holders, there = self.holders(look), self.mask(look.jobs - self.fillers)
        self.read_fillers(look)
        for job in self.there:
            if job in self.fillers:
                continue
            zone = self.plans[job].zone
            if job in look.jobs:
                self.below(job, look.batch)
                if zone is not None and holders[zone] != job:
                    self.wrong.append(f"both of {job} and {holders[zone]} replaced a zone")
                for clear in self.clears:
                    if self.plans[clear].hides(zone):
                        options = [*self.later(look, clear, there), self.over(job, clear)]
                        self.either(options, f"{job} is there at {look.batch}, {clear} cleared it")
            elif job not in self.clears:
                text = f"job {job} was accepted, or seen, and is lost at {look.batch}"
                hidden = self.hidden(look, job, holders.get(zone))
                self.either([*self.later(look, job, there), *hidden], text)
        for cell in range(CELLS):
            self.read_cell(look, cell, there & self.covering[cell])

    def read_fillers(self, look: Look) -> None:
        """Jobs that fill are reported by versions of the tables and not by the log, so no batch
        tells when they came."""
        there = self.mask(look.jobs & self.fillers)
        for job in self.fillers - look.jobs:
            self.behind(job, there)
            if look is self.last:
                self.wrong.append(f"job {job}, which fills, was accepted, or seen, and is lost")

    def over(self, job: int, earlier: int) -> Option:
        return (("behind", job, self.bit[earlier]),)

    def later(self, look: Look, job: int, there: int) -> Iterator[Option]:
        """The job came after the look. After the final look no job comes."""
        if look is not self.last:
            yield ("above", job, look.batch), ("behind", job, there)

    def hidden(self, look: Look, job: int, holder: int | None) -> Iterator[Option]:
        """The zone that the job replaced was replaced again later."""
        if holder is not None:
            yield self.over(holder, job)
            return
        for clear in self.clears:
            if self.plans[clear].hides(self.plans[job].zone):
                yield *self.over(clear, job), ("below", clear, look.batch)

    def read_cell(self, look: Look, cell: int, over: int) -> None:
        """The job or batch in a cell stands behind all others that cover the cell."""
        held, put = look.cells[cell], last_put(cell, look.batch)
        clears = [clear for clear in self.clears if self.plans[clear].covers(cell)]
        where = f"cell {cell} has {held} at {look.batch}"
        if held is None:
            self.read_empty(look, cell, over, clears)
            return
        there = self.mask(look.jobs - self.fillers)
        if isinstance(held, int):
            if held != put:
                self.wrong.append(f"{where}: {put} was lost")
            for job in self.members(over):
                self.below(job, put - 1)
            on_top: list[Option] = [(("below", clear, put - 1),) for clear in clears]
        elif held[0] in look.jobs and self.plans[held[0]].leaves(cell) == held:
            self.read_held(look, cell, held[0], over)
            on_top = [self.over(held[0], clear) for clear in clears]
        else:
            self.wrong.append(f"{where}, which cannot be")
            return
        for clear, option in zip(clears, on_top, strict=True):
            options = [*self.later(look, clear, there)]
            # A cleared cell is not filled.
            if isinstance(held, int) or held[0] not in self.fillers:
                options.append(option)
            self.either(options, f"{where}, which {clear} cleared")

    def read_held(self, look: Look, cell: int, job: int, over: int) -> None:
        put = last_put(cell, look.batch)
        if job not in self.fillers:
            self.above(job, put)
            self.behind(job, over)
            return
        if put or over:
            self.wrong.append(f"job {job} fills cell {cell} at {look.batch}, which was not empty")
        self.is_so((self.is_first(job, look, cell),), "")

    def is_first(self, job: int, look: Look, cell: int) -> Option:
        """The job is the first of those that fill a cell."""
        others = (other for other in self.filling[cell] if other in look.jobs and other != job)
        return tuple(("behind", other, self.bit[job]) for other in others)

    def read_empty(self, look: Look, cell: int, over: int, clears: list[int]) -> None:
        """The cell was never set, or the last job that covers it deleted or cleared it."""
        put = last_put(cell, look.batch)
        fill = [job for job in self.filling[cell] if job in look.jobs]
        if not put and not over and not fill:
            return
        options: list[Option] = [
            (("above", job, put), ("behind", job, over & ~self.bit[job]))
            for job in self.members(over)
            if self.plans[job].leaves(cell) is None
        ]
        options += [
            (("above", clear, put), ("below", clear, look.batch), ("behind", clear, over))
            for clear in clears
        ]
        if not put and not over:
            options += [
                self.is_first(job, look, cell)
                for job in fill
                if self.plans[job].leaves(cell) is None
            ]
        self.either(options, f"cell {cell} has nothing at {look.batch}, which cannot be")
