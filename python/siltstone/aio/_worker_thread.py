"""Runs calls that read Python objects, and so cannot run in a thread of the engine. Each call runs
in its own thread, because the threads of the executor of the loop may all be busy."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import TypeVar

_T = TypeVar("_T")


async def in_thread(call: Callable[[], _T]) -> _T:
    """Returns the result of `call`, or raises its exception. Cancelling the wait does not end the
    call."""
    loop = asyncio.get_running_loop()
    outcome: asyncio.Future[_T] = loop.create_future()

    def result(given: _T) -> None:
        if not outcome.done():
            outcome.set_result(given)

    def failed(error: BaseException) -> None:
        if outcome.done():
            return
        if isinstance(error, StopIteration):
            # A future refuses it, because it would end the generator that waits.
            stopped = RuntimeError("the call raised StopIteration")
            stopped.__cause__ = error
            error = stopped
        outcome.set_exception(error)

    def work() -> None:
        # A closed loop raises RuntimeError, and no task waits.
        with contextlib.suppress(RuntimeError):
            try:
                given = call()
            except BaseException as error:  # noqa: BLE001
                # No other reference is kept, because its frames hold the arguments of the call.
                loop.call_soon_threadsafe(failed, error)
            else:
                loop.call_soon_threadsafe(result, given)

    threading.Thread(target=work, name="siltstone-load").start()
    return await outcome
