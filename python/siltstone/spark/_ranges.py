"""Key ranges of about the same size, for tasks that read at the same time.

A cut is found by the size below a key, which comes from metadata (`approximate_size`), so no block
is read. A cut does not have to be an existing key.
"""

from __future__ import annotations

import math
from collections.abc import Callable

__all__ = ["Range", "cuts", "ranges"]

Range = tuple[bytes | None, bytes | None]
"""``[start, end)``; None: open."""

DIGITS = 8
"""Bytes of a cut after the common prefix of the range: enough to halve it 64 times."""
TOLERANCE = 0.05
"""The most distance of a cut from its place, as a share of a range. Each further halving asks for
one more size."""


def cuts(below: Callable[[bytes], float], first: bytes, last: bytes, parts: int) -> list[bytes]:
    """At most ``parts - 1`` keys above `first` and up to `last`, ascending, that split the range
    into parts of about the same size.

    :param below: the size of the range below a key. It never falls as the key grows.
    :param first, last: the range's first and last key.
    """
    same = _common(first, last)
    low, high = _number(first, same, 0), _number(last, same, 0xFF)
    whole = below(_key(first, same, high)) or 1.0
    share = whole / parts
    found: list[bytes] = []
    for place in range(1, parts):
        low = _bisect(lambda key: below(_key(first, same, key)), low, high, place * share, share)
        cut = _key(first, same, low)
        if first < cut <= last and (not found or cut > found[-1]):
            found.append(cut)
    return found


def ranges(found: list[bytes], start: bytes | None, end: bytes | None) -> list[Range]:
    """The ranges between `start`, the cuts, and `end`."""
    return list(zip([start, *found], [*found, end], strict=True))


def _bisect(below: Callable[[int], float], low: int, high: int, wanted: float, share: float) -> int:
    """A number in ``[low, high]`` with about the size `wanted` below it."""
    while low < high:
        middle = (low + high) // 2
        lies = below(middle)
        if math.isclose(lies, wanted, rel_tol=0, abs_tol=share * TOLERANCE):
            return middle
        low, high = (middle + 1, high) if lies < wanted else (low, middle)
    return low


def _common(first: bytes, last: bytes) -> int:
    """The length of the common prefix."""
    pairs = zip(first, last, strict=False)
    return next((at for at, (a, b) in enumerate(pairs) if a != b), min(len(first), len(last)))


def _number(key: bytes, same: int, fill: int) -> int:
    return int.from_bytes(key[same : same + DIGITS].ljust(DIGITS, bytes([fill])), "big")


def _key(first: bytes, same: int, number: int) -> bytes:
    """The shortest key of this number: trailing zeros of a cut are dropped."""
    return first[:same] + number.to_bytes(DIGITS, "big").rstrip(b"\0")
