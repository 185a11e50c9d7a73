"""The comparison as a run of pytest: `make bench`, or

    python -m pytest benches/python [--rows N] [--cases get,scan] [--engines siltstone,lmdb]
        [--rounds N]

prints the table; `--results FILE` writes it.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from plan import chosen_engines
from report import report
from samples import Samples
from work import Work

SAMPLES = pytest.StashKey[Samples]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """The options of a run."""
    group = parser.getgroup("bench", "the comparison")
    group.addoption(
        "--rows", type=int, default=int(os.environ.get("ROWS") or 1_000_000), help="rows (ROWS)"
    )
    group.addoption("--cases", default="", help="parts of case/stage, separated by commas")
    group.addoption("--engines", default="all", help="engines, separated by commas")
    group.addoption("--rounds", type=int, default=100, help="rounds of a case at most")
    group.addoption("--results", type=Path, help="file to write the table to")


def pytest_configure(config: pytest.Config) -> None:
    """Storage for the samples, without a table per turn and without garbage collection."""
    config.stash[SAMPLES] = Samples()
    config.stash[SAMPLES].rows = config.getoption("rows")
    config.option.benchmark_disable_gc = True


def pytest_benchmark_group_stats() -> list[object]:
    """No groups: the table of the run is the report."""
    return []


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """The report."""
    text = report(config.stash[SAMPLES], config.getoption("rows"), chosen_engines(config))
    terminalreporter.write_line("")
    terminalreporter.write_line(text)
    if target := config.getoption("results"):
        target.write_text(text)


@pytest.fixture(scope="session")
def samples(request: pytest.FixtureRequest) -> Samples:
    """The samples of this run."""
    return request.config.stash[SAMPLES]


@pytest.fixture(scope="session")
def work(request: pytest.FixtureRequest, samples: Samples) -> Iterator[Work]:
    """The data and the engines, in a folder that is deleted after the run."""
    config = request.config
    with tempfile.TemporaryDirectory(prefix="bench") as folder:
        made = Work(Path(folder), config.getoption("rows"), chosen_engines(config))
        yield made
        made.close()
        samples.states.update(made.states)
