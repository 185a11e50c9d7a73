"""Keys made of parts, in the order of the parts.

    from datetime import date
    from siltstone import keys

    db = siltstone.open("memory://visits")
    for day in (date(2026, 1, 31), date(2026, 2, 1)):
        db[keys.pack("DE", 7, day)] = b"visited"

    start, end = keys.prefix_range("DE", 7)
    for key in db.keys(start, end):
        country, number, day = keys.unpack(key)

Bytes that are joined by hand have an order that is wrong somewhere: negative numbers behind
positive ones, `("a", "b")` and `("ab", "")` on one key. These have the order of the tuples,
whatever is in them, and the encoding is frozen: keys that are stored stay readable.
"""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from typing import TypeAlias
from uuid import UUID

from siltstone._native import pack, prefix_range, unpack

__all__ = ["Part", "pack", "prefix_range", "unpack"]

Part: TypeAlias = bool | int | float | Decimal | date | datetime | str | bytes | UUID | None
"""What a key is made of, and comes apart into."""
