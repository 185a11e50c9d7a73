"""Mixed work, following YCSB's core workloads: A, B, C and E.

    A   half reads, half updates of existing rows
    B   19 reads, one update
    C   only reads
    E   19 scans of 1 to 100 rows, one insert of a new row

Keys are chosen by a Zipf distribution of exponent 0.99, as in YCSB: of a million rows the first is
read once in fifteen times. Keys are random, so the popular ones are spread over the key space.
"""

from __future__ import annotations

import math
import random

Step = tuple[bytes, bytes | int]
"""A key and an operation on it: the number of rows to scan from it on (0: a read of this key), or a
value to write."""

READ = 0
MOST_SCANNED = 100
EXPONENT = 0.99
SUMMED = 10_000
"""Terms of the harmonic sum that are added up. An integral approximates the sum of the others."""


class Zipf:
    """Ranks of `count` rows, 0 the most popular, as in YCSB (Gray and others, 1994)."""

    def __init__(self, count: int, source: random.Random) -> None:
        self.count, self.source = count, source
        self.sum = _harmonic(count)
        self.spread = 1 / (1 - EXPONENT)
        near = 1 + 0.5**EXPONENT
        self.slope = (1 - (2 / count) ** (1 - EXPONENT)) / (1 - near / self.sum)
        self.near = near

    def draw(self) -> int:
        """One rank."""
        uniform = self.source.random()
        if uniform * self.sum < 1:
            return 0
        if uniform * self.sum < self.near:
            return min(1, self.count - 1)
        rank = int(self.count * (self.slope * uniform - self.slope + 1) ** self.spread)
        return min(rank, self.count - 1)


def _harmonic(count: int) -> float:
    """The sum of n ** -EXPONENT up to `count`."""
    summed = min(count, SUMMED)
    head = math.fsum(n**-EXPONENT for n in range(1, summed + 1))
    power = 1 - EXPONENT
    tail = ((count + 0.5) ** power - (summed + 0.5) ** power) / power
    return head + max(0.0, tail)


def steps(
    workload: str, keys: list[bytes], values: list[bytes], zipf: Zipf, count: int
) -> list[Step]:
    """Steps of a workload over the first rows of `keys`."""
    source = zipf.source
    writes = {"A": 0.5, "B": 0.05, "C": 0.0, "E": 0.05}[workload]
    made: list[Step] = []
    for _ in range(count):
        if source.random() >= writes:
            rows = source.randint(1, MOST_SCANNED) if workload == "E" else READ
            made.append((keys[zipf.draw()], rows))
        else:
            key = source.randbytes(len(keys[0])) if workload == "E" else keys[zipf.draw()]
            made.append((key, values[source.randrange(len(values))]))
    return made
