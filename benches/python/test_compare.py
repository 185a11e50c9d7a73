"""One item for each case, round and engine; the rounds of a case alternate between the engines.

The speed of a machine drifts by tens of per cent within minutes: if one engine were measured to its
end before the next one begins, they would be measured under different conditions. Here every engine
has its turn within a second.
"""

from __future__ import annotations

from typing import Any

import pytest

from cases import Case
from plan import rounds, turns
from samples import Samples
from work import Work


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """The turns in their order, which pytest keeps."""
    found = [turn for turn in turns(metafunc.config) if turn[0].prepare]
    ids = [f"{case.name}-{case.stage}-{at}-{name}" for case, at, name in found]
    metafunc.parametrize(("case", "at", "name"), found, ids=ids)


def test_turn(
    pytestconfig: pytest.Config,
    benchmark: Any,
    work: Work,
    samples: Samples,
    case: Case,
    at: int,
    name: str,
) -> None:
    """One round of one engine."""
    work.enter(case.stage)
    if case.prepare is None:
        raise ValueError(f"{case.name} is no loop")
    run, count = case.prepare(work, work.engines[name], at, rounds(pytestconfig, case))
    work.settle()
    benchmark.pedantic(run, rounds=1, iterations=1)
    samples.add(case.id, name, benchmark.stats.stats.data[0] * 1e9 / count)
