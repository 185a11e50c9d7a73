"""What is known of a key, beside its value."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

__all__ = ["Entry"]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Entry:
    """A key, its value, and what is known of it."""

    key: bytes
    """The key."""
    value: bytes
    """The value."""
    expires: datetime | None
    """When it ends; None: never."""
    seq: int | None
    """The sequence number of the write that it is of, of several merge operands of the newest one.
    None where a compaction has found that nobody needs it any more."""


def made(key: bytes, value: bytes, expires_millis: int | None, seq: int | None) -> Entry:
    """The entry, of an end in Unix milliseconds."""
    if expires_millis is None:
        return Entry(key, value, None, seq)
    try:
        expires = _EPOCH + timedelta(milliseconds=expires_millis)
    except OverflowError:
        # Later than a datetime can be.
        expires = datetime.max.replace(tzinfo=UTC)
    return Entry(key, value, expires, seq)
