"""Conversion of store options from the types of Python to the text that the store takes. No error
may show the value of an option, except of a duration: it may be a secret."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from siltstone import _native

__all__ = ["StoreOptionValue", "plain"]

StoreOptionValue = str | int | bool | float | timedelta | datetime | os.PathLike[str]
"""A value of a store option. A duration is a timedelta, seconds, or text such as "2m"; only
``expires_at`` is a datetime."""

_DURATIONS = {
    "connect_timeout",
    "http2_keep_alive_interval",
    "http2_keep_alive_timeout",
    "pool_idle_timeout",
    "read_timeout",
    "timeout",
}
"""The options that are durations, by their names in the `object_store` crate."""
_PREFIXES = ("wal_", "aws_", "azure_", "google_")
"""Prefixes that the name of an option may have, in this order."""


def plain(options: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the options with durations and paths as text.

    :raises Invalid: if a duration is negative or infinite.
    :raises TypeError: if a duration has another type.
    """
    return {name: _value(name, value) for name, value in options.items()}


def _value(name: str, value: Any) -> Any:
    if _is_duration(name):
        return _duration(name, value)
    return os.fspath(value) if isinstance(value, os.PathLike) else value


def _is_duration(name: str) -> bool:
    short = str(name).lower()
    for prefix in _PREFIXES:
        short = short.removeprefix(prefix)
    return short in _DURATIONS


def _duration(name: str, value: Any) -> Any:
    """Returns a duration in the syntax of the store, which has no fractions. The store reads text
    with a unit itself."""
    if isinstance(value, str) and not _is_number(value):
        return value
    seconds = _native.seconds_of_duration(value, f"store option '{name}'")
    # Rounded up, so that a short duration does not become 0, which no request could keep.
    whole, millis = divmod(math.ceil(seconds * 1000), 1000)
    return f"{whole}s {millis}ms"


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
