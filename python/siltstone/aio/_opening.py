"""A handle that is being opened."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator
from types import TracebackType
from typing import Any, Generic, Protocol, TypeVar, final

__all__ = ["Opening"]


class _Ends(Protocol):
    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...


_Handle = TypeVar("_Handle", bound=_Ends)


def _current_task() -> asyncio.Task[Any] | None:
    """The running task; None without an event loop, for a coroutine that never waits."""
    try:
        return asyncio.current_task()
    except RuntimeError:
        return None


@final
class Opening(Generic[_Handle]):
    """A handle that is being opened: ``db = await …``, or ``async with … as db``, which also closes
    it."""

    __slots__ = ("_begin", "_entered")

    def __init__(self, begin: Callable[[], Coroutine[Any, Any, _Handle]]) -> None:
        self._begin = begin
        self._entered: list[tuple[asyncio.Task[Any] | None, _Handle]] = []
        """The handles of open blocks, each with the task that entered its block."""

    def __await__(self) -> Generator[Any, None, _Handle]:
        return self._begin().__await__()

    async def __aenter__(self) -> _Handle:
        handle = await self._begin()
        self._entered.append((_current_task(), handle))
        return handle

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # Blocks of one task end in the reverse order, and those of two tasks in any order.
        task = _current_task()
        at = max(at for at, (entered, _) in enumerate(self._entered) if entered is task)
        _, handle = self._entered.pop(at)
        await handle.__aexit__(kind, error, trace)
