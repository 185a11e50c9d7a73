"""Calls that read what Python brings, and so cannot run where nothing of Python's does: each in a
thread of its own, without the loop's executor, whose threads may all be taken."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import TypeVar

_T = TypeVar("_T")


async def in_thread(call: Callable[[], _T]) -> _T:
    """What `call` gives, or raises. Cancelling the wait does not end the call."""
    loop = asyncio.get_running_loop()
    outcome: asyncio.Future[_T] = loop.create_future()

    def result(given: _T) -> None:
        if not outcome.done():
            outcome.set_result(given)

    def failed(error: BaseException) -> None:
        if not outcome.done():
            outcome.set_exception(error)

    def work() -> None:
        # A loop that is closed has nobody who waits.
        with contextlib.suppress(RuntimeError):
            try:
                given = call()
            except BaseException as error:  # noqa: BLE001
                # Kept nowhere else: its frames hold what the call was given.
                loop.call_soon_threadsafe(failed, error)
            else:
                loop.call_soon_threadsafe(result, given)

    threading.Thread(target=work, name="siltstone-load").start()
    return await outcome
