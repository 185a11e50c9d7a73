"""DynamoDB on loopback: the emulator moto in a process of its own, stopped at the end of its block.

It serves one request at a time: moto checks a condition and acts on it without a lock.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from pace_for_tests import PATIENCE

SERVER = Path(__file__).resolve().parents[1] / "support" / "serve_moto.py"

VARIABLES = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "canary-8000"}
"""Keys of a process that uses the emulator."""


@contextlib.contextmanager
def dynamodb() -> Iterator[str]:
    """The URL of a table, which does not exist yet."""
    command = [sys.executable, str(SERVER)]
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert child.stdin is not None
    assert child.stdout is not None
    try:
        endpoint = f"http://127.0.0.1:{int(child.stdout.readline())}"
        yield f"dynamodb://siltstone?region=eu-west-1&endpoint={endpoint}"
    finally:
        child.stdin.close()
        child.wait(timeout=PATIENCE)
        child.stdout.close()
