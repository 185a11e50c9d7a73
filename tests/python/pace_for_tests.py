"""Helpers for tests that must not depend on the speed or the load of the machine.

- A test waits for events that happen by themselves (`until`) and never sleeps for them.
- A bound on time is checked on the quickest of several tries (`quickest`). A busy machine only adds
  to each try; code without the bound misses it in every try. A try that never ends fails the test
  after `PATIENCE`.
- If something must happen before something else ends, the test tries it again with more time when
  the machine stalled for too long (`in_time`).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")

PATIENCE = 120.0
"""Seconds after which an expected event counts as missing, on any machine that runs tests."""


def until(holds: Callable[[], T], seconds: float = PATIENCE) -> T:
    """Waits until `holds` returns a true value, and returns that value."""
    end = time.monotonic() + seconds
    while not (found := holds()):
        assert time.monotonic() < end, "it does not come to that"
        time.sleep(0.01)
    return found


def quickest(attempt: Callable[[], float], bound: float, tries: int = 8) -> None:
    """Asserts that the seconds returned by `attempt` are below `bound` at least once."""
    took: list[float] = []
    while not took or min(took) >= bound:
        assert len(took) < tries, f"never below {bound} s: {took}"
        took.append(attempt())


def in_time(attempt: Callable[[float], T], seconds: float, tries: int = 8) -> T:
    """The result of `attempt`, if it took less than half of `seconds`, the time that it is given.
    Otherwise it is called again with twice the time."""
    for _ in range(tries):
        begun, failed, answer = time.monotonic(), None, None
        try:
            answer = attempt(seconds)
        except AssertionError as error:
            failed = error
        if time.monotonic() - begun < seconds / 2:
            if failed is not None:
                raise failed
            return answer
        seconds *= 2
    raise AssertionError(f"the machine stalls for longer than {seconds} s")


def finished(query: Any) -> None:
    """Waits for the end of a stream over all available data. A query that hangs is stopped, so that
    it does not disturb the tests behind it."""
    try:
        # By Connect the result is None.
        assert query.awaitTermination(5 * PATIENCE) in (True, None)
    finally:
        if query.isActive:
            query.stop()
