"""Checks of arguments that several calls share.

`siltstone.ingest.submit` and the writes of `siltstone.spark` check their arguments here before
their first step, because a submitted job cannot be taken back.
"""

from __future__ import annotations

from typing import Any

from siltstone import _native
from siltstone.options import Seconds

__all__ = ["timeout_of"]


def timeout_of(timeout: Seconds, wait: Any, take_over: Any) -> float:
    """Checks the arguments of a submission, and returns its timeout in seconds.

    :raises Invalid: if `timeout` is negative, or its text is not a duration.
    :raises TypeError: if an argument is of another type.
    """
    if not isinstance(wait, bool):
        raise TypeError(f"wait must be True or False, not {wait!r}")
    if take_over is not None and not isinstance(take_over, bool):
        raise TypeError(f"take_over must be True, False or None, not {take_over!r}")
    if timeout is None:
        raise TypeError("timeout must be a duration; use wait=False to not wait")
    return _native.seconds_of_duration(timeout, "timeout")
