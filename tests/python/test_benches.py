"""The comparison on little data: it runs each case with each installed engine and prints a
well-formed table. `make bench` measures the speed."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import siltstone

ROOT = Path(__file__).resolve().parents[2]
PEERS = [name for name in ("slatedb", "rocksdict", "lmdb") if importlib.util.find_spec(name)]
READS = {
    "get, present",
    "get, absent",
    "get_many of 100, a key",
    "get_many of 100 as Arrow, a key",
    "scan of 50 rows, a scan",
    "full scan as tuples, a row",
    "full scan as Arrow, a row",
}
OTHERS = {
    ("put, one row", "empty"),
    ("put_many of 1,000 rows, a row", "empty"),
    ("write of 1,000 rows as Arrow, a row", "empty"),
    ("YCSB A, an operation", "in SSTs, written to"),
    ("YCSB B, an operation", "in SSTs, written to"),
    ("YCSB C, a read", "in SSTs, written to"),
    ("YCSB E, an operation", "in SSTs, written to"),
    ("put_many of 1,000 rows in order, a row", "empty"),
    ("open with 450,000 rows in the WAL", ""),
    ("open of 1,000 rows", ""),
    ("import in a new process", ""),
    ("growth of the process, all workloads", ""),
}


def compare(*arguments: str) -> str:
    """Runs the comparison and returns its output."""
    # A process of pytest-xdist marks its environment, and there pytest-benchmark measures nothing.
    apart = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-q", "-p", "no:asyncio", "-p", "no:cacheprovider"),
            *("benches/python", "--rows", "2000", "--rounds", "1", *arguments),
        ],
        cwd=ROOT,
        env={**apart, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def table(text: str) -> list[dict[str, str]]:
    """The rows of the table, keyed by column heads."""
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    cells = [[cell.strip() for cell in line[1:-1].split(" | ")] for line in lines]
    head, rule, *rows = cells
    assert set("".join(rule)) <= set("-:|")
    assert all(len(row) == len(head) for row in rows)
    return [dict(zip(head, row, strict=True)) for row in rows]


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The table of one run of all cases."""
    pytest.importorskip("pytest_benchmark")
    path = tmp_path_factory.mktemp("benches") / "RESULTS.md"
    compare("--results", str(path))
    return path.read_text()


def test_every_case_has_its_row(results: str) -> None:
    found = {(row["case"], row["state"]) for row in table(results)}
    assert found == OTHERS | {(case, state) for case in READS for state in ("as loaded", "in SSTs")}


def test_every_engine_has_its_number(results: str) -> None:
    for row in table(results):
        assert row["siltstone"], row
        if row["case"].startswith(("put", "write", "get", "scan", "full", "YCSB")):
            for name in PEERS:
                assert row[name], row
                assert float(row[f"x {name}"]) > 0


def test_every_bound_is_judged(results: str) -> None:
    judged = [row for row in table(results) if row["must hold"]]
    assert len(judged) >= 16
    for row in judged:
        verdicts = row["met"].split(", ")
        assert len(verdicts) == len(row["must hold"].split("; "))
        assert set(verdicts) <= {"met", "**not met**", "no peer"}


def test_the_rows_are_where_the_states_say(results: str) -> None:
    lines = [line for line in results.splitlines() if line.startswith("- siltstone, ")]
    assert len(lines) == 2
    assert lines[0].startswith("- siltstone, as loaded: 2,000 rows in memtables, 0 in 0 L0")
    assert lines[1].startswith("- siltstone, in SSTs: 0 rows in memtables, 2,000 in 1 L0")


def test_a_filter_runs_only_its_cases() -> None:
    pytest.importorskip("pytest_benchmark")
    text = compare("--cases", "get_absent,import", "--engines", "siltstone")
    assert {row["case"] for row in table(text)} == {"get, absent", "import in a new process"}


def test_two_builds_are_compared_in_pairs() -> None:
    package = Path(siltstone.__file__).parents[1]
    done = subprocess.run(
        [
            *(sys.executable, "benches/python/paired.py", package, package),
            *("--rows", "2000", "--processes", "2"),
            *("--cases", "put/puts,get/left,import"),
        ],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    # So few pairs may find a build slower than itself.
    assert done.returncode in (0, 1), done.stderr
    rows = [line.split() for line in done.stdout.splitlines()]
    assert [row[0] for row in rows] == ["put/puts", "get/left", "import/apart"]
    for _, median, low, high in rows:
        assert 0 < float(low.strip("[,")) <= float(median) <= float(high.strip("]"))


def printed(program: str, *arguments: str) -> str:
    """The output of a program of the benches."""
    done = subprocess.run(
        [sys.executable, f"benches/python/{program}", *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_sustained_ingest_is_compared() -> None:
    """Ten batches per engine: every figure is present and plausible."""
    found = json.loads(printed("ingest.py", "--rows", "10000", "--json"))
    peers = [name for name in ("slatedb", "rocksdict") if name in PEERS]
    assert [one["engine"] for one in found] == ["siltstone", *peers]
    for one in found:
        assert one["rows"] in {10_000, 1000}
        assert one["rows_per_second"] > 0
        assert 0 < one["p50_ms"] <= one["p999_ms"] <= one["longest_ms"]
        assert one["written"] > 1
        assert one["left"] > 1
    assert found[0]["tables"] == 1.0


def test_bulk_loads_are_compared() -> None:
    """From memory, and as a stream."""
    pytest.importorskip("numpy")
    for more in ([], ["--table", "1"]):
        few = ["--rows", "5000", "--rounds", "1", "--engines", "siltstone", "--json", *more]
        found = json.loads(printed("loading.py", *few))
        assert [(one["engine"], one["order"]) for one in found] == [
            ("siltstone", "sorted"),
            ("siltstone", "shuffled"),
        ]
        assert all(one["rows_per_second"] > 0 for one in found)


def test_an_ingest_into_a_live_database_is_measured() -> None:
    few = ["--rows", "2000", "--tables", "20", "--jobs", "2", "--calm", "0.2", "--json"]
    found = json.loads(printed("live_ingest.py", *few))
    assert found["tables"] == 20
    assert found["puts_meanwhile"] > 0
    assert found["put_p99_ms_calm"] > 0
    assert found["put_p99_ms_meanwhile"] > 0
    assert found["read_ratio"] > 0


def test_large_batches_are_measured() -> None:
    pytest.importorskip("numpy")
    few = ["--batches", "2", "--rows", "20000", "--rounds", "1", "--json"]
    through, past = json.loads(printed("large_batches.py", *few))
    assert (through["large_batches"], past["large_batches"]) == (0, 2)
    # Memory databases write no files, so both figures are 0 there.
    assert through["written_per_byte"] >= past["written_per_byte"]
    assert past["put_ms_median"] > 0


def test_the_cost_of_layers_is_measured() -> None:
    pytest.importorskip("rocksdict")
    rows, many, one, ratio, seek = printed("layers.py", "--rows", "4000").splitlines()
    assert " rows; " in rows
    assert " L0 tables, 4 runs: " in many
    assert one.startswith("0 L0 tables, 1 runs: ")
    assert ratio.startswith("ratio: ")
    assert seek.startswith("a seek over 1,000 tombstones: ")


def test_a_feed_is_measured() -> None:
    lines = printed("feeding.py", "--rows", "20000", "--turns", "1").splitlines()
    assert [line.split(":")[0] for line in lines] == ["put", "loaded"]


def test_spark_is_measured() -> None:
    lines = printed("spark.py", "--rows", "20000", "--turns", "1").splitlines()[-13:]
    assert [line.split(":")[0] for line in lines] == [
        "Parquet",
        "scan",
        "format",
        "lookup",
        "sorted Parquet",
        "bulk_load range",
        "bulk_load runs",
        "Parquet of columns",
        "scan of columns",
        "format of columns",
        "lookup of columns",
        "bulk_load range of columns",
        "bulk_load runs of columns",
    ]
