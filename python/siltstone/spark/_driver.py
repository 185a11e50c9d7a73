"""The name of the Spark driver that this process belongs to.

Frames are planned in Python processes of the driver's JVM, and in the driver's own Python process:
all of them share pins, and so need one name.
"""

from __future__ import annotations

import os
import socket
from pathlib import Path

from pyspark import SparkContext

__all__ = ["driver_name"]


def driver_name() -> str:
    """The host and the JVM of the driver; where no JVM is found, this process in its place."""
    java = _java_above(os.getppid()) or _java_of_the_session() or os.getpid()
    return f"{socket.gethostname()}/{java}/{_started(java)}"


def _java_above(process: int) -> int | None:
    """The nearest process above this one that runs Java. Linux alone tells."""
    for _ in range(16):
        try:
            stat = Path(f"/proc/{process}/stat").read_text()
        except OSError:
            return None
        name, rest = stat.split("(", 1)[1].rsplit(")", 1)
        if name == "java":
            return process
        process = int(rest.split()[1])
        if process <= 1:
            return None
    return None


def _java_of_the_session() -> int | None:
    """The JVM that this process drives; None under Spark Connect, and without a session."""
    # PySpark tells of neither in public.
    context = SparkContext._active_spark_context  # noqa: SLF001
    java = None if context is None else context._jvm  # noqa: SLF001
    return None if java is None else int(java.java.lang.ProcessHandle.current().pid())


def _started(process: int) -> str:
    """When it was started, in ticks since the machine was: process numbers come again."""
    try:
        stat = Path(f"/proc/{process}/stat").read_text()
    except OSError:
        return "0"
    return stat.rsplit(")", 1)[1].split()[19]
