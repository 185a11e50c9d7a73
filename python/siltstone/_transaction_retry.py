"""`retry`: runs a transaction again after a conflict."""

from __future__ import annotations

import random
import time
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator, Iterator
from typing import TYPE_CHECKING, Literal, TypeVar

from siltstone._numbers import count_of
from siltstone.exceptions import Conflict

if TYPE_CHECKING:
    from siltstone._native import Database, Transaction

__all__ = ["retry"]

_T = TypeVar("_T")

# A conflict means that another transaction has committed, so an immediate retry loses no overall
# progress. A transaction that conflicts repeatedly pauses for a random time.
_AT_ONCE = 2
_FIRST_PAUSE = 0.0005
_LONGEST_PAUSE = 0.05
# The longest pause is reached before.
_MOST_DOUBLINGS = 10


def retry(
    db: Database,
    function: Callable[[Transaction], _T],
    attempts: int = 10,
    *,
    isolation: Literal["serializable", "snapshot"] = "serializable",
) -> _T:
    """Runs `function` with a transaction and commits it. After a Conflict it runs `function` again
    with a new transaction. Returns the result of the function.

    The function may run several times, and so do its side effects outside of the transaction. Any
    other exception rolls back and is raised.

    :param attempts: maximum number of attempts.
    :param isolation: as for `Database.transaction`.
    :raises Conflict: if the last attempt conflicts too.
    :raises Invalid: if `attempts` is below 1.
    :raises TypeError: if the function or the database is asynchronous, or the function is a
        generator function, whose call runs none of its code.
    """
    for pause in pauses(attempts):
        if pause:
            time.sleep(pause)
        try:
            opening = db.transaction(isolation)
            if not hasattr(opening, "__enter__"):
                raise TypeError("the database is of siltstone.aio: use siltstone.aio.retry with it")
            with opening as transaction:
                made = function(transaction)
                _check_done(made)
                return made
        except Conflict as conflict:
            last = conflict
    last.add_note(f"overtaken in each of {attempts} attempts")
    raise last


def _check_done(made: object) -> None:
    """Checks that the function has run: the call of an `async` function or of a generator function
    runs none of its code.

    :raises TypeError: if `made` is a coroutine or a generator.
    """
    if isinstance(made, Coroutine):
        made.close()
        raise TypeError(
            "the function is asynchronous: use siltstone.aio.retry with a database of siltstone.aio"
        )
    check_no_generator(made)


def check_no_generator(made: object) -> None:
    """Checks that the function is no generator function.

    :raises TypeError: if `made` is a generator.
    """
    if isinstance(made, Generator | AsyncGenerator):
        raise TypeError("the function is a generator, whose code has not run: return a list")


def pauses(attempts: int) -> Iterator[float]:
    """Returns the pause in seconds before each attempt.

    :raises Invalid: if `attempts` is below 1.
    """
    count = count_of(attempts, "attempts", 1)

    def pause(attempt: int) -> float:
        if attempt <= _AT_ONCE:
            return 0.0
        doublings = min(attempt - _AT_ONCE, _MOST_DOUBLINGS)
        most = min(_LONGEST_PAUSE, _FIRST_PAUSE * 2.0**doublings)
        return random.uniform(0.0, most)  # noqa: S311 (spreads attempts, keeps no secret)

    return map(pause, range(count))
