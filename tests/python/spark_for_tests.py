"""A Spark session for the tests of a module."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest

from pace_for_tests import PATIENCE
from spark_versions_for_tests import CONNECT

SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.log.level": "OFF",
}


def worker_path() -> str:
    """The value of PYTHONPATH for the workers: this folder, then the path of this process."""
    folders = [str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]
    return os.pathsep.join(filter(None, folders))


@pytest.fixture(scope="module")
def session_settings() -> dict[str, str]:
    """Settings of a module in addition to `SETTINGS`."""
    return {}


@pytest.fixture(scope="module")
def session_environment() -> dict[str, str]:
    """Environment variables of the driver and the workers of a module."""
    return {}


@pytest.fixture(scope="module")
def spark(session_settings: dict[str, str], session_environment: dict[str, str]):
    """A session with two slots. Its workers run this interpreter.

    Modules without settings of their own share a JVM, which is warm after the first. Settings and
    variables reach a JVM when it starts, and stay in it.
    """
    jvm = own_jvm() if session_settings or session_environment else nullcontext()
    with jvm, pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYSPARK_PYTHON", sys.executable)
        patch.setenv("PYSPARK_DRIVER_PYTHON", sys.executable)
        patch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
        # Workers import the helpers of the tests, and the package under test.
        patch.setenv("PYTHONPATH", worker_path())
        for name, value in session_environment.items():
            patch.setenv(name, value)
        session = begun({**SETTINGS, **session_settings})
        yield session
        session.stop()


def begun(settings: dict[str, str]) -> Any:
    """A new session."""
    from pyspark.sql import SparkSession  # noqa: PLC0415 - starts nothing before it is needed

    builder = SparkSession.builder
    builder = builder.remote("local[2, 3]") if CONNECT else builder.master("local[2, 3]")
    for name, value in settings.items():
        builder = builder.config(name, value)
    with warnings.catch_warnings():
        if CONNECT:
            # The server already has these settings; the warning says that a session cannot change
            # them.
            warnings.filterwarnings("ignore", "Failed to set", UserWarning)
        return builder.getOrCreate()


@contextmanager
def own_jvm() -> Iterator[None]:
    """The sessions inside share a JVM with none outside."""
    end_jvm()
    try:
        yield
    finally:
        end_jvm()


def end_jvm() -> None:
    """Ends the JVM of this process, whose sessions were stopped, if there is one.

    PySpark keeps one JVM for each process and has no public call to end it. The private name is the
    same from 3.5 to 4.3; if it is missing, the JVM stays until the process ends.
    """
    from pyspark import SparkContext  # noqa: PLC0415

    gateway = getattr(SparkContext, "_gateway", None)
    if gateway is not None:
        SparkContext._gateway = SparkContext._jvm = None
        gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait(PATIENCE)
