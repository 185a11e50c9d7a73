"""The class `Entry`: a key with its value, expiry and sequence number."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

__all__ = ["Entry"]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Entry:
    """A key with its value, expiry and sequence number: the result of `get_entry`."""

    key: bytes
    """The key."""
    value: bytes
    """The value."""
    expires: datetime | None
    """Expiry; None: the value does not expire."""
    seq: int | None
    """Sequence number of the write; for several merge operands, that of the newest one. None if a
    compaction has dropped it because no snapshot or reader needs it."""


def made(key: bytes, value: bytes, expires_millis: int | None, seq: int | None) -> Entry:
    """Makes an entry from an expiry in Unix milliseconds."""
    if expires_millis is None:
        return Entry(key, value, None, seq)
    try:
        expires = _EPOCH + timedelta(milliseconds=expires_millis)
    except OverflowError:
        # Later than the last possible datetime.
        expires = datetime.max.replace(tzinfo=UTC)
    return Entry(key, value, expires, seq)
