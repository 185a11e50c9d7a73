"""What tests need so that they do not depend on how fast, or how busy, the machine is.

- Whatever happens by itself is waited for (`until`), never slept for.
- A bound on time is held by the quickest of several tries (`quickest`): a busy machine only adds
  to each of them, and what has no bound misses it every time. What never ends fails the first, by
  `PATIENCE`.
- What must happen before something ends is done again, with more time, where the machine stalled
  for too long (`in_time`).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

PATIENCE = 120.0
"""Seconds after which what has not happened never will, on any machine that tests run on."""


def until(holds: Callable[[], T], seconds: float = PATIENCE) -> T:
    """Waits until `holds` answers something true, and answers that."""
    end = time.monotonic() + seconds
    while not (found := holds()):
        assert time.monotonic() < end, "it does not come to that"
        time.sleep(0.01)
    return found


def quickest(attempt: Callable[[], float], bound: float, tries: int = 8) -> None:
    """Asserts that `attempt`, which answers seconds, stays below `bound` at least once."""
    took: list[float] = []
    while not took or min(took) >= bound:
        assert len(took) < tries, f"never below {bound} s: {took}"
        took.append(attempt())


def in_time(attempt: Callable[[float], T], seconds: float, tries: int = 8) -> T:
    """What `attempt` answers where it took less than half of `seconds`, the time that it is given:
    otherwise it is made again, with twice as much."""
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
