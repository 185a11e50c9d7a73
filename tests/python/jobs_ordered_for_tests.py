"""A partly known order of jobs between batches. For each job it has a batch that the job is not
below, a batch that the job is not above, and the jobs before it. If one of several options holds,
the impossible options are dropped until one is left.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Literal

Fact = tuple[Literal["above", "below", "behind"], int, int]
"""A job stands above a batch, below its end, or behind the jobs of a mask."""
Option = tuple[Fact, ...]
"""Facts that hold together."""


class Order:
    def __init__(self, jobs: Iterable[int], highest: int) -> None:
        self.there = sorted(jobs)
        self.bit = {job: 1 << n for n, job in enumerate(self.there)}
        self.low = dict.fromkeys(self.there, 0)
        self.high = dict.fromkeys(self.there, highest)
        self.before = dict.fromkeys(self.there, 0)
        self.open: dict[tuple[Option, ...], str] = {}
        self.wrong: list[str] = []

    def mask(self, jobs: Iterable[int]) -> int:
        return sum(self.bit[job] for job in jobs)

    def members(self, mask: int) -> Iterator[int]:
        while mask:
            lowest = mask & -mask
            yield self.there[lowest.bit_length() - 1]
            mask ^= lowest

    # --- Narrowing --------------------------------------------------------------------------------

    def above(self, job: int, batch: int) -> None:
        self.low[job] = max(self.low[job], batch)

    def below(self, job: int, batch: int) -> None:
        self.high[job] = min(self.high[job], batch)

    def behind(self, job: int, mask: int) -> None:
        self.before[job] |= mask & ~self.bit[job]

    def either(self, options: Iterable[Option], otherwise: str) -> None:
        """One of these options holds."""
        left = self.possible(tuple(options))
        if left is None:
            return
        if len(left) > 1:
            self.open.setdefault(left, otherwise)
        else:
            self.is_so(left, otherwise)

    def is_so(self, left: tuple[Option, ...], otherwise: str) -> None:
        """Applies the only option that is left; reports `otherwise` if there is none."""
        if not left:
            self.wrong.append(otherwise)
            return
        for how, job, what in left[0]:
            getattr(self, how)(job, what)

    def possible(self, options: tuple[Option, ...]) -> tuple[Option, ...] | None:
        """The options that may hold; None if one is known to hold."""
        left = []
        for option in options:
            if all(map(self.holds, option)):
                return None
            if not any(map(self.fails, option)):
                left.append(option)
        return tuple(left)

    def holds(self, fact: Fact) -> bool:
        how, job, what = fact
        if how == "above":
            return self.low[job] >= what
        if how == "below":
            return self.high[job] <= what
        rest = self.members(what & ~self.before[job] & ~self.bit[job])
        return all(self.high[other] < self.low[job] for other in rest)

    def fails(self, fact: Fact) -> bool:
        how, job, what = fact
        if how == "above":
            return self.high[job] < what
        if how == "below":
            return self.low[job] > what
        bit, most = self.bit[job], self.high[job]
        others = self.members(what & ~bit)
        return any(self.before[other] & bit or self.low[other] > most for other in others)

    # --- Existence of an order --------------------------------------------------------------------

    def settle(self) -> None:
        """Narrows the order until no further step is possible."""
        known = True
        while known and self.spread():
            known = False
            for options, otherwise in list(self.open.items()):
                left = self.possible(options)
                if left == options:
                    continue
                del self.open[options]
                if left is not None and len(left) > 1:
                    self.open.setdefault(left, otherwise)
                elif left is not None:
                    self.is_so(left, otherwise)
                    known = True

    def spread(self) -> bool:
        """Passes the bounds of a job on to the jobs before and behind it. Returns whether an order
        exists."""
        turns: list[int] = []
        left = set(self.there)
        while left:
            waiting = self.mask(left)
            free = [job for job in left if not self.before[job] & waiting]
            if not free:
                self.wrong.append(f"there is no order of the jobs {sorted(left)[:20]}")
                return False
            turns += free
            left.difference_update(free)
        for job in turns:
            for other in self.members(self.before[job]):
                self.before[job] |= self.before[other]
                self.above(job, self.low[other])
        for job in reversed(turns):
            for other in self.members(self.before[job]):
                self.below(other, self.high[job])
        none = [job for job in turns if self.low[job] > self.high[job]]
        for job in none:
            low, high = self.low[job], self.high[job]
            self.wrong.append(f"job {job} stands behind batch {low}, and before batch {high + 1}")
        return not none
