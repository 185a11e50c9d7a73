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

# How long an example takes says how busy the machine is.
settings.register_profile("tests", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("tests")


def pytest_configure() -> None:
    """A job in a shell's background ignores Ctrl-C, and hands that on to its children: the tests
    of Ctrl-C need the interpreter's own way."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def url(tmp_path: Path) -> str:
    """Where a database may be made, in a local folder."""
    return str(tmp_path / "db")


@pytest.fixture
def memory_url() -> str:
    """Where a database may be made, in memory."""
    return f"memory://{uuid.uuid4().hex}"


@pytest.fixture
def db(memory_url: str):
    """An open database."""
    with siltstone.open(memory_url) as handle:
        yield handle


@pytest.fixture
def cold(url: str):
    """A database of 2,000 rows in tables of small blocks, none of it in memory."""
    small = {"block_bytes": 256, "block_cache_bytes": 0}
    with siltstone.open(url, options=small) as handle:
        keys = [b"key%05d" % i for i in range(2000)]
        handle.put_many(keys, [b"value%05d" % i for i in range(2000)])
    with siltstone.open(url, options=small) as handle:
        yield handle


@pytest.fixture
def python():
    """Runs a program in another interpreter: exit status, standard output, standard error."""

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
