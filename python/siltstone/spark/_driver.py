"""The name of the Spark driver that this process belongs to.

Frames are planned in Python processes of the driver's JVM and in the driver's own Python process.
All of them share pinned checkpoints, so they need one name. It is made of what the operating system
tells about processes, and of no private name of PySpark.
"""

from __future__ import annotations

import os
import socket
from pathlib import Path

__all__ = ["driver_name"]

MOST_ABOVE = 16
"""Processes above this one that are looked at."""


def driver_name() -> str:
    """The host and the JVM of the driver. If no JVM is found, as on systems other than Linux, this
    process takes its place, and each process has pins of its own."""
    java = _java_above(os.getppid()) or _java_below(os.getpid()) or os.getpid()
    return f"{socket.gethostname()}/{java}/{_started(java)}"


def _java_above(process: int) -> int | None:
    """The nearest process above this one that runs Java: of a process that Spark's JVM started, or
    of a driver that spark-submit started."""
    for _ in range(MOST_ABOVE):
        found = _process(process)
        if found is None or found[0] == "java":
            return None if found is None else process
        process = int(found[1][1])
        if process <= 1:
            return None
    return None


def _java_below(process: int) -> int | None:
    """The first Java process that this process started: the JVM of a session made in Python."""
    below = []
    for folder in Path("/proc").glob("[0-9]*"):
        found = _process(int(folder.name))
        if found is not None and found[0] == "java" and int(found[1][1]) == process:
            below.append((int(found[1][19]), int(folder.name)))
    return min(below)[1] if below else None


def _process(process: int) -> tuple[str, list[str]] | None:
    """The name of a process, and the fields of its status that follow. None if it is unknown."""
    try:
        stat = Path(f"/proc/{process}/stat").read_text()
    except OSError:
        return None
    name, rest = stat.split("(", 1)[1].rsplit(")", 1)
    return name, rest.split()


def _started(process: int) -> str:
    """When a process was started, in clock ticks since the machine was: ids are used again."""
    found = _process(process)
    return "0" if found is None else found[1][19]
