"""How a cost grows: a fit over the sizes, and the verdict on a promise.

The model is `a + b * n**k` with `a, b >= 0`: a constant floor and a growing part. A line through
the logarithms alone would hide a quadratic part behind the floor, because small sizes cost the
floor and flatten the line. So `k` is searched on a grid, and for each `k` the floor and the factor
are the least squares of the *relative* errors, so that all sizes have the same weight, as they have
in a plot of logarithms. A pure power gives the slope of that plot.

Amounts below the noise floor of their kind tell nothing. The sizes up to the last such amount are
dropped, and that size counts as the floor: its true amount is at most that, so the fitted growth
behind it is a lower bound. If the largest size costs less than `grows` times the smallest, the cost
is constant and its exponent is 0, because noise alone would choose any `k`. The smallest exponent
counts that fits nearly as well as the best one (`NEAR`).

A promise is broken if all of three hold:

1. the amounts grow more than the promise and the noise of the kind permit;
2. the fitted exponent is above that of the promise by more than `SLACK`;
3. the largest size costs more than `EXCESS` times the best fit of the promised form.

A bound per unit is exact instead: the largest size may cost at most so many per unit.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

SLACK = 0.2
"""Exponent above the promised one that noise explains. It is above that of n log n over three
decades, which a fit with one power cannot tell from n."""
EXCESS = 1.5
NEAR = 0.05
"""Relative error, in the mean of the sizes, that noise explains."""
GRID = [step / 50 for step in range(1, 151)]
"""Exponents that are tried, up to 3."""


@dataclass(frozen=True)
class Promise:
    """A form of growth."""

    name: str
    exponent: float
    """The power of it, without logarithms."""
    form: Callable[[float], float]


CONSTANT = Promise("constant", 0.0, lambda _: 0.0)
LOGARITHMIC = Promise("logarithmic", 0.0, lambda n: math.log2(n + 1))
LINEAR = Promise("linear", 1.0, lambda n: n)
N_LOG_N = Promise("n log n", 1.0, lambda n: n * math.log2(n + 1))
PROMISES = {one.name: one for one in (CONSTANT, LOGARITHMIC, LINEAR, N_LOG_N)}


@dataclass(frozen=True)
class Kind:
    """One sort of figure."""

    name: str
    unit: str
    floor: float
    """Amounts below it count as it."""
    grows: float
    """How many times the smallest size the largest one may cost by noise alone."""


TIME = Kind("time", "s", 2e-6, 3.0)
"""A shared machine doubles single times; the best of several repeats is more stable than that."""
MEMORY = Kind("memory", "B", 8 << 20, 2.0)
"""Allocators keep some megabytes that no call asked for."""
REQUESTS = Kind("requests", "", 4, 1.5)
BYTES = Kind("bytes", "B", 64 << 10, 1.5)
"""Four blocks of the default size."""
KINDS = {kind.name: kind for kind in (TIME, MEMORY, REQUESTS, BYTES)}


@dataclass(frozen=True)
class Fit:
    """`floor + factor * form(n)`, and the sum of the squares of its relative errors."""

    floor: float
    factor: float
    error: float

    def at(self, grown: float) -> float:
        """The amount where the form has this value."""
        return self.floor + self.factor * grown


def solve(grown: Sequence[float], amounts: Sequence[float]) -> Fit:
    """The best floor and factor, both at least 0, by relative errors."""
    # Divided by the amount, every target is 1: minimize sum((floor * u + factor * v - 1)**2).
    us = [1 / amount for amount in amounts]
    vs = [form / amount for form, amount in zip(grown, amounts, strict=True)]
    uu, vv = sum(u * u for u in us), sum(v * v for v in vs)
    uv = sum(u * v for u, v in zip(us, vs, strict=True))
    su, sv = sum(us), sum(vs)
    candidates = [(su / uu, 0.0)]
    if vv > 0:
        candidates.append((0.0, sv / vv))
    determinant = uu * vv - uv * uv
    if determinant > 1e-12 * uu * vv:
        both = ((su * vv - sv * uv) / determinant, (sv * uu - su * uv) / determinant)
        if min(both) >= 0:
            candidates.append(both)

    def fit(pair: tuple[float, float]) -> Fit:
        floor, factor = pair
        errors = (floor * u + factor * v - 1 for u, v in zip(us, vs, strict=True))
        return Fit(floor, factor, sum(error * error for error in errors))

    return min((fit(pair) for pair in candidates), key=lambda one: one.error)


def growth(values: Sequence[float], kind: Kind, floor: float) -> float:
    """How many times the smallest size the largest one costs."""
    assert floor >= kind.floor
    return max(values[-1], floor) / max(values[0], floor)


def seen(
    sizes: Sequence[float], values: Sequence[float], floor: float
) -> tuple[list[float], list[float]]:
    """The sizes and amounts that tell something, relative to the first of these sizes."""
    below = [at for at, value in enumerate(values) if value < floor]
    start = below[-1] if below else 0
    kept = sizes[start:], [max(value, floor) for value in values[start:]]
    return [size / kept[0][0] for size in kept[0]], kept[1]


def exponent(
    kind: Kind, sizes: Sequence[float], values: Sequence[float], floor: float = 0
) -> float:
    """The fitted power; 0 where the amounts grow no more than noise does."""
    floor = max(floor, kind.floor)
    if growth(values, kind, floor) < kind.grows:
        return 0.0
    scaled, amounts = seen(sizes, values, floor)
    errors = {k: solve([n**k for n in scaled], amounts).error for k in GRID}
    most = min(errors.values()) + NEAR * NEAR * len(amounts)
    return min(k for k, error in errors.items() if error <= most)


def excess(
    kind: Kind,
    promise: Promise,
    sizes: Sequence[float],
    values: Sequence[float],
    floor: float = 0,
) -> float:
    """How many times the best fit of the promised form the largest size costs."""
    scaled, amounts = seen(sizes, values, max(floor, kind.floor))
    first = sizes[-1] / scaled[-1]
    grown = [promise.form(n * first) for n in scaled]
    return amounts[-1] / solve(grown, amounts).at(grown[-1])


def is_broken(
    kind: Kind,
    promise: Promise,
    sizes: Sequence[float],
    values: Sequence[float],
    *,
    floor: float = 0,
    most_per_unit: float | None = None,
) -> bool:
    """Whether the amounts break the promise, or the bound per unit."""
    floor = max(floor, kind.floor)
    if most_per_unit is not None and values[-1] > max(floor, most_per_unit * sizes[-1]):
        return True
    if growth(values, kind, floor) < kind.grows:
        return False
    above = exponent(kind, sizes, values, floor) - promise.exponent
    return above > SLACK and excess(kind, promise, sizes, values, floor) > EXCESS
