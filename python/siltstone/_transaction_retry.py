"""Transactions that are run again when another commit came between."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Literal, TypeVar

from siltstone.exceptions import Conflict, Invalid

if TYPE_CHECKING:
    from siltstone._native import Database, Transaction

__all__ = ["retry"]

_T = TypeVar("_T")

# A conflict means that somebody else has come through, so trying again at once helps all together.
# One that loses many times stands aside for a moment, for a time of its own.
_AT_ONCE = 2
_FIRST_PAUSE = 0.0005
_LONGEST_PAUSE = 0.05


def retry(
    db: Database,
    function: Callable[[Transaction], _T],
    attempts: int = 10,
    *,
    isolation: Literal["serializable", "snapshot"] = "serializable",
) -> _T:
    """Runs `function` with a transaction and commits it; where that is Conflict, begins again with
    another transaction. Gives what the function returned.

    The function may run several times: what it does beside the transaction it does as often. Any
    other exception rolls back and passes.

    :param attempts: how many times at most.
    :raises Conflict: the last attempt was overtaken too.
    :raises Invalid: fewer than one attempt.
    """
    for pause in pauses(attempts):
        if pause:
            time.sleep(pause)
        try:
            with db.transaction(isolation) as transaction:
                return function(transaction)
        except Conflict as conflict:
            last = conflict
    last.add_note(f"overtaken in each of {attempts} attempts")
    raise last


def pauses(attempts: int) -> list[float]:
    """How long to wait before each attempt.

    :raises Invalid: fewer than one attempt.
    """
    if attempts < 1:
        raise Invalid(f"attempts must be 1 or more, not {attempts}")

    def pause(attempt: int) -> float:
        if attempt <= _AT_ONCE:
            return 0.0
        most = min(_LONGEST_PAUSE, _FIRST_PAUSE * 2.0 ** (attempt - _AT_ONCE))
        return random.uniform(0.0, most)  # noqa: S311 (spreads attempts, keeps no secret)

    return [pause(attempt) for attempt in range(attempts)]
