"""DynamoDB on loopback: the emulator moto in a process of its own, stopped at the end of its block.

It serves one request at a time: moto checks a condition and acts on it without a lock. Before a
transaction moto copies the whole table, which takes seconds for some thousand items, so this module
checks all conditions of a transaction first, and has none of its writes undone.
"""

from __future__ import annotations

import contextlib
import copy
import runpy
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from pace_for_tests import PATIENCE

SERVER = Path(__file__).resolve().parents[1] / "support" / "serve_moto.py"

VARIABLES = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "canary-8000"}
"""Keys of a process that uses the emulator."""


@contextlib.contextmanager
def dynamodb() -> Iterator[str]:
    """The URL of a table, which does not exist yet."""
    command = [sys.executable, __file__]
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


def quicken() -> None:
    """Has transactions check their conditions first, and copy no table."""
    from moto.dynamodb import models  # noqa: PLC0415 - only in the process of the server
    from moto.dynamodb.comparisons import get_filter_expression  # noqa: PLC0415
    from moto.dynamodb.exceptions import TransactionCanceledException  # noqa: PLC0415

    def copied(value: Any) -> Any:
        return value if isinstance(value, models.Table) else copy.deepcopy(value)

    def unmet(backend: Any, write: dict[str, Any]) -> tuple[str | None, str | None, None]:
        ((_, asked),) = write.items()
        table, condition = backend.get_table(asked["TableName"]), asked.get("ConditionExpression")
        if condition is None:
            return None, None, None
        names = (table.hash_key_attr, table.range_key_attr)
        key = asked.get("Key") or {name: asked["Item"][name] for name in names}
        values = asked.get("ExpressionAttributeValues")
        holds = get_filter_expression(condition, asked.get("ExpressionAttributeNames"), values)
        if holds.expr(backend.get_item(asked["TableName"], key)):
            return None, None, None
        return "ConditionalCheckFailed", "The conditional request failed", None

    whole = models.DynamoDBBackend.transact_write_items

    def transact(self: Any, writes: list[dict[str, Any]]) -> None:
        reasons = [unmet(self, write) for write in writes]
        if any(code for code, _, _ in reasons):
            raise TransactionCanceledException(reasons)
        whole(self, writes)

    models.copy = SimpleNamespace(deepcopy=copied)
    models.DynamoDBBackend.transact_write_items = transact


if __name__ == "__main__":
    quicken()
    runpy.run_path(str(SERVER))
