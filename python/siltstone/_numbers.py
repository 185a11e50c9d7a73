"""Whole numbers and sizes as arguments. A number out of range must raise Invalid with the name of
the argument: the compiled module raises OverflowError, which names nothing."""

from __future__ import annotations

import operator
from typing import SupportsIndex

from siltstone import _native
from siltstone.exceptions import Invalid
from siltstone.options import Bytes

__all__ = ["count_of", "size_of"]


def count_of(given: SupportsIndex, name: str, least: int = 0, most: int | None = None) -> int:
    """Returns the argument `name` as an int.

    :param most: the greatest number; None: any number below 2^64.
    :raises Invalid: if it is out of range.
    :raises TypeError: if it is not a whole number.
    """
    if isinstance(given, bool) or not isinstance(given, SupportsIndex):
        raise TypeError(f"{name} must be a whole number, not {type(given).__name__}")
    return _within(operator.index(given), name, least, most)


def size_of(given: Bytes | SupportsIndex, name: str, least: int = 0) -> int:
    """Returns the argument `name`, a number of bytes or text such as "1GiB", as an int.

    :raises Invalid: if text is not a size, or the size is out of range.
    :raises TypeError: if it is neither a whole number nor text.
    """
    if isinstance(given, str):
        return _within(_native.bytes_of_text(given, name), name, least, None)
    if isinstance(given, bool) or not isinstance(given, SupportsIndex):
        kind = type(given).__name__
        raise TypeError(f"{name} must be a number of bytes, or text such as '1GiB', not {kind}")
    return _within(operator.index(given), name, least, None)


def _within(number: int, name: str, least: int, most: int | None) -> int:
    if least <= number <= ((1 << 64) - 1 if most is None else most):
        return number
    span = f"{least} or more and under 2^64" if most is None else f"from {least} to {most}"
    raise Invalid(f"{name} must be {span}, not {number}")
