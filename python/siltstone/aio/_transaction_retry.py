"""`retry` for asyncio: runs a transaction again after a conflict."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Literal, TypeVar

from siltstone._transaction_retry import pauses
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
    """
    for pause in pauses(attempts):
        if pause:
            await asyncio.sleep(pause)
        try:
            async with db.transaction(isolation) as transaction:
                return await function(transaction)
        except Conflict as conflict:
            last = conflict
    last.add_note(f"overtaken in each of {attempts} attempts")
    raise last
