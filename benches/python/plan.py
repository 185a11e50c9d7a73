"""The turns of a run: the requested cases and engines, in rounds that alternate between the
engines."""

from __future__ import annotations

import pytest

from cases import CASES, Case
from engines import engines

Turn = tuple[Case, int, str]
"""A case, the number of the round, an engine."""


def chosen_engines(config: pytest.Config) -> list[str]:
    """The engines of this run, Siltstone first."""
    wanted = str(config.getoption("engines")).split(",")
    return [name for name in engines() if wanted == ["all"] or name in wanted]


def turns(config: pytest.Config) -> list[Turn]:
    """All turns of a run, in order."""
    wanted = [text for text in str(config.getoption("cases")).split(",") if text]
    return [
        (case, at, name)
        for case in CASES
        if not wanted or any(text in case.id for text in wanted)
        for at in range(rounds(config, case))
        for name in chosen_engines(config)
        if takes_part(case, name)
    ]


def rounds(config: pytest.Config, case: Case) -> int:
    """The number of rounds of a case in this run."""
    return min(case.rounds, int(config.getoption("rounds")))


def takes_part(case: Case, name: str) -> bool:
    """Whether an engine has separate turns in a case."""
    alone = case.compared_with or case.unit == "bytes" or (case.name == "replay" and name == "lmdb")
    return name == "siltstone" or not alone
