"""`retry` for asyncio: runs a transaction again after a conflict."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Literal, TypeVar

from siltstone._transaction_retry import check_no_generator, pauses
from siltstone.exceptions import Conflict

if TYPE_CHECKING:
    from siltstone.aio._handles import Database, Transaction

__all__ = ["retry"]

_T = TypeVar("_T")


async def retry(
    db: Database,
    function: Callable[[Transaction], Awaitable[_T]],
    attempts: int = 10,
    *,
    isolation: Literal["serializable", "snapshot"] = "serializable",
) -> _T:
    """As `siltstone.retry`, with an awaitable function.

    :param attempts: maximum number of attempts.
    :param isolation: as for `siltstone.Database.transaction`.
    :raises Conflict: if the last attempt conflicts too.
    :raises Invalid: if `attempts` is below 1.
    :raises TypeError: if the function or the database is not asynchronous, or the function is a
        generator function, whose call runs none of its code.
    """
    for pause in pauses(attempts):
        if pause:
            await asyncio.sleep(pause)
        try:
            opening = db.transaction(isolation)
            if not hasattr(opening, "__aenter__"):
                raise TypeError("the database is not of siltstone.aio: use siltstone.retry with it")
            async with opening as transaction:
                made = function(transaction)
                check_no_generator(made)
                if not isinstance(made, Awaitable):
                    raise TypeError(
                        "the function is not asynchronous: define it with `async def`, or use "
                        "siltstone.retry with a database of siltstone.open"
                    )
                return await made
        except Conflict as conflict:
            last = conflict
    last.add_note(f"overtaken in each of {attempts} attempts")
    raise last
