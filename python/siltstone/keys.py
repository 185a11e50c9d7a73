"""Keys that are packed from several parts, and ordered by them.

    from datetime import date
    from siltstone import keys

    db = siltstone.open("memory://visits")
    for day in (date(2026, 1, 31), date(2026, 2, 1)):
        db[keys.pack("DE", 7, day)] = b"visited"

    start, end = keys.prefix_range("DE", 7)
    for key in db.keys(start, end):
        country, number, day = keys.unpack(key)

Concatenated bytes do not sort correctly: negative numbers sort after positive ones, and `("a",
"b")` and `("ab", "")` become the same key. Packed keys have the order of the tuples for any parts.
The encoding is frozen, so stored keys stay readable.
"""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from typing import TypeAlias
from uuid import UUID

from siltstone._native import pack, prefix_range, unpack

__all__ = ["Part", "pack", "prefix_range", "unpack"]

Part: TypeAlias = bool | int | float | Decimal | date | datetime | str | bytes | UUID | None
"""A part of a key: an argument of `pack`, and an element of the result of `unpack`."""
