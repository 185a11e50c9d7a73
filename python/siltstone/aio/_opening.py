"""A handle that is being opened."""

from __future__ import annotations

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


@final
class Opening(Generic[_Handle]):
    """A handle that is being opened: ``db = await …``, or ``async with … as db``, which also closes
    it."""

    __slots__ = ("_begin", "_handle")

    def __init__(self, begin: Callable[[], Coroutine[Any, Any, _Handle]]) -> None:
        self._begin = begin
        self._handle: _Handle | None = None

    def __await__(self) -> Generator[Any, None, _Handle]:
        return self._begin().__await__()

    async def __aenter__(self) -> _Handle:
        self._handle = handle = await self._begin()
        return handle

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._handle is not None:
            await self._handle.__aexit__(kind, error, trace)
