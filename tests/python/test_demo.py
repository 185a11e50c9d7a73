"""The demo on a tenth of its rows, as `make demo` runs it; and that it detects wrong results."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Self

import pytest

if TYPE_CHECKING:
    from types import ModuleType

DEMO = Path(__file__).resolve().parents[2] / "python" / "demo" / "flights.py"


@pytest.fixture(scope="module")
def flights() -> ModuleType:
    # The demo imports its neighbour module, as it does when it is run as a program.
    sys.path.insert(0, str(DEMO.parent))
    spec = importlib.util.spec_from_file_location("flights", DEMO)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["flights"] = module
    spec.loader.exec_module(module)
    return module


def test_the_demo_runs_on_a_tenth_of_the_rows(tmp_path: Path) -> None:
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    ran = subprocess.run(
        [sys.executable, str(DEMO), "--rows-fraction", "0.1"],
        check=False,
        capture_output=True,
        text=True,
        timeout=600,
        env=environment,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "33,804 rows" in ran.stdout
    assert "lost: 0" in ran.stdout
    assert "absent on purpose 500, differences: 0" in ran.stdout
    assert "every answer was right" in ran.stdout
    left = [path.name for path in tmp_path.iterdir() if "siltstone" in path.name]
    assert left == [], "the temporary folder was left behind"


def test_a_missing_java_is_named_with_the_way_to_get_it(
    flights: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(flights.DemoError, match=r"Java 17 or newer.*apt-get install"):
        flights.require_java()
    java = tmp_path / "java"
    java.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\" 2019-01-15' >&2\n")
    java.chmod(0o755)
    with pytest.raises(flights.DemoError, match="has version 11"):
        flights.require_java()


def test_a_delay_is_added_exactly(flights: ModuleType) -> None:
    assert flights.delayed(b'{"dep_delay":-3,"origin":"JFK"}', 5) == (
        b'{"dep_delay":2,"origin":"JFK","revised":true}'
    )
    assert flights.delayed(b"{}", 5) == b'{"dep_delay":5,"revised":true}'


class Recovered:
    """Stands for a database after the kill, with given contents."""

    def __init__(self, values: list[bytes]) -> None:
        self.values = values

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def get_many(self, _: list[bytes]) -> list[bytes]:
        return self.values


@pytest.mark.parametrize(
    ("found", "complaint"),
    [
        ("nnnnoooo", None),
        ("nnnooooo", None),
        ("nnoooooo", "lost: update 2"),
        ("nonnoooo", "lost: update 1"),
        ("nnnonooo", "out of order"),
        ("nnnnx" + "ooo", "neither old nor new"),
    ],
)
def test_a_loss_by_a_crash_is_noticed(
    flights: ModuleType, monkeypatch: pytest.MonkeyPatch, found: str, complaint: str | None
) -> None:
    keys = [b"%d" % index for index in range(8)]
    shuffled = list(keys)
    flights.random.Random(13).shuffle(shuffled)
    old = [b'{"dep_delay":%s}' % key for key in shuffled]
    new = [flights.delayed(value, flights.minutes_of(at)) for at, value in enumerate(old)]
    after = [{"o": old[at], "n": new[at], "x": b"{}"}[state] for at, state in enumerate(found)]
    monkeypatch.setattr(flights.siltstone, "open_reader", lambda _: Recovered(old))
    monkeypatch.setattr(flights.siltstone, "open", lambda _, **__: Recovered(after))
    monkeypatch.setattr(flights, "run_and_kill", lambda *_: 3)
    phase = flights.Phase("crash")
    if complaint is None:
        changed = flights.crash("memory://crash", keys, phase)
        assert len(changed) == found.count("n")
    else:
        with pytest.raises(flights.DemoError, match=complaint):
            flights.crash("memory://crash", keys, phase)
