"""Fixtures shared by the tests of the Python package."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import uuid
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

import siltstone

# The duration of an example depends on the load of the machine, so there is no deadline.
settings.register_profile("tests", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("tests")

# Each JVM of the tests lives for a minute. Its second compiler never earns what it costs in that
# time: without it, and with the collector for small heaps, Spark's tests take half the processor.
os.environ.setdefault("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")


def pytest_configure() -> None:
    """A background job of a shell ignores Ctrl-C, and its children inherit that. The tests of
    Ctrl-C need the interpreter's own handler."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def url(tmp_path: Path) -> str:
    """An unused URL for a database in a local folder."""
    return str(tmp_path / "db")


@pytest.fixture
def memory_url() -> str:
    """An unused URL for a database in memory."""
    return f"memory://{uuid.uuid4().hex}"


@pytest.fixture
def db(memory_url: str):
    """An open database."""
    with siltstone.open(memory_url) as handle:
        yield handle


@pytest.fixture
def cold(url: str):
    """A database of 2,000 rows in tables of small blocks, with nothing cached in memory."""
    small = {"block_bytes": 256, "block_cache_bytes": 0}
    with siltstone.open(url, options=small) as handle:
        keys = [b"key%05d" % i for i in range(2000)]
        handle.put_many(keys, [b"value%05d" % i for i in range(2000)])
    with siltstone.open(url, options=small) as handle:
        yield handle


@pytest.fixture
def python():
    """Runs a program in another interpreter. Returns its exit status, standard output and standard
    error."""

    def run(program: str, *arguments: str, timeout: float = 300.0, **environment: str):
        done = subprocess.run(
            [sys.executable, "-X", "faulthandler", "-c", program, *arguments],
            capture_output=True,
            text=True,
            timeout=timeout,
            env={**os.environ, **environment},
            check=False,
        )
        return done.returncode, done.stdout, done.stderr

    return run
