"""The conformance checks on the cheapest stores, and the page of the results of all stores."""

from __future__ import annotations

import importlib.metadata
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
STORES = ROOT / "tests" / "stores"


def run(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(STORES / program), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["folder", "moto"])
def test_a_cheap_store_passes_every_check(name: str, tmp_path: Path) -> None:
    if name == "moto":
        pytest.importorskip("moto.server")
    results = tmp_path / "results.json"
    done = run("run.py", "--effort", "1", "--results", str(results), name)
    assert done.returncode == 0, done.stdout + done.stderr
    row = json.loads(results.read_text())[name]
    assert set(row) >= {"version", "probe", "model", "kills", "fencing"}
    assert row["kills"]["kills"] == 1
    assert row["fencing"]["takeovers"] >= 1
    if name == "moto":
        assert row["version"] == f"moto {importlib.metadata.version('moto')}"


def test_a_server_that_is_missing_is_skipped_with_the_way_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    done = run("run.py", "--effort", "1", "versitygw", "azurite")
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"skipped versitygw; get it by: .*go install", done.stdout)
    assert re.search(r"skipped azurite; get it by: npm install", done.stdout)


def test_the_page_is_what_the_generator_makes_of_the_stored_results() -> None:
    done = run("page.py", "--check")
    assert done.returncode == 0, f"run tests/stores/page.py\n{done.stderr}"
    results = json.loads((STORES / "results.json").read_text())
    assert not any("failed" in row for row in results.values())
    page = (ROOT / "docs" / "conformance.md").read_text()
    for row in results.values():
        assert row["version"] in page
    for name in ("MinIO", "R2", "Tigris", "Ceph", "S3 Express"):
        (line,) = [line for line in page.splitlines() if line.startswith("|") and name in line]
        assert "from its documents, not run" in line
