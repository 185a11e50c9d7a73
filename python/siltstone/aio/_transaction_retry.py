"""Transactions that are run again when another commit came between, awaited."""

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
    """As `siltstone.retry`, with a function that is awaited.

    :param attempts: how many times at most.
    :raises Conflict: the last attempt was overtaken too.
    :raises Invalid: fewer than one attempt.
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
