"""The growth benches: the fit and the verdicts on planted data, the page of the last results, and
runs of cheap dimensions on small sizes. `make bench-growth` measures the full ones."""

from __future__ import annotations

import importlib
import json
import math
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import ClassVar

import pytest

ROOT = Path(__file__).resolve().parents[2]
GROWTH = ROOT / "benches" / "python" / "growth"
# Behind everything else, so that no module there hides another one.
sys.path.append(str(GROWTH))

pytest.importorskip("numpy")

dimension, dimensions, fit, page, results, run = (
    importlib.import_module(name)
    for name in ("dimension", "dimensions", "fit", "page", "results", "run")
)
ALL, OWN, Row = dimensions.ALL, results.OWN, results.Row
BYTES, REQUESTS, TIME = fit.BYTES, fit.REQUESTS, fit.TIME
CONSTANT, LOGARITHMIC, LINEAR, N_LOG_N = fit.PROMISES.values()
Costs, exponent, is_broken = dimension.Costs, fit.exponent, fit.is_broken
SIZES = [10, 56, 316, 1780, 10_000]
PLANTED = {
    "constant": (lambda _: 1.0, 0.0),
    "logarithmic": (lambda n: 1e-3 * math.log2(n), 0.0),
    "linear": (lambda n: 1e-5 * n, 1.0),
    "linear above a floor": (lambda n: 0.01 + 1e-5 * n, 1.0),
    "n log n": (lambda n: 1e-6 * n * math.log2(n), 1.0),
    "quadratic": (lambda n: 1e-8 * n * n, 2.0),
    # Four of five sizes cost the floor: the slope of the logarithms alone is 0.3.
    "quadratic above a floor": (lambda n: 0.1 + 1e-8 * n * n, 2.0),
    "cubic": (lambda n: 1e-10 * n**3, 3.0),
}
KEPT = {
    "constant": {"constant", "logarithmic", "linear", "n log n"},
    "logarithmic": {"constant", "logarithmic", "linear", "n log n"},
    "linear": {"linear", "n log n"},
    "linear above a floor": {"linear", "n log n"},
    "n log n": {"linear", "n log n"},
    "quadratic": set(),
    "quadratic above a floor": set(),
    "cubic": set(),
}


def planted(name: str) -> list[float]:
    form, _ = PLANTED[name]
    return [form(size) for size in SIZES]


@pytest.mark.parametrize("name", PLANTED)
def test_the_exponent_of_planted_data_is_found(name: str) -> None:
    _, expected = PLANTED[name]
    assert exponent(TIME, SIZES, planted(name)) == pytest.approx(expected, abs=0.25)


@pytest.mark.parametrize("name", PLANTED)
def test_a_promise_is_broken_by_what_grows_more(name: str) -> None:
    values = planted(name)
    kept = {one.name for one in fit.PROMISES.values() if not is_broken(TIME, one, SIZES, values)}
    assert kept == KEPT[name]


@pytest.mark.parametrize(
    ("name", "promise"),
    [("constant", CONSTANT), ("linear above a floor", LINEAR), ("n log n", N_LOG_N)],
)
def test_noise_breaks_no_promise(name: str, promise) -> None:
    source = random.Random(34)
    for _ in range(50):
        values = [value * source.uniform(0.85, 1.25) for value in planted(name)]
        assert not is_broken(TIME, promise, SIZES, values), values


def test_amounts_below_the_floor_are_no_growth() -> None:
    """A tenth of a request to three of them, a nanosecond to a microsecond."""
    assert not is_broken(REQUESTS, CONSTANT, SIZES, [0.1, 0.5, 1, 2, 3])
    assert not is_broken(TIME, LOGARITHMIC, SIZES, [1e-9, 1e-8, 1e-7, 5e-7, 1e-6])
    assert is_broken(REQUESTS, CONSTANT, SIZES, [3, 3, 3, 9, 40])


def test_a_bound_per_unit_is_exact() -> None:
    sizes = [16, 1000, 50_000, 2_500_000, 100_000_000]
    twice, once = ([factor * size for size in sizes] for factor in (2.0, 1.01))
    assert not is_broken(BYTES, LINEAR, sizes, twice)
    assert is_broken(BYTES, LINEAR, sizes, twice, most_per_unit=1.25)
    assert not is_broken(BYTES, LINEAR, sizes, once, most_per_unit=1.25)


def row(values: list[float], **changes) -> Row:
    plain = {
        "dimension": "planted",
        "text": "planted rows",
        "operation": "read",
        "engine": OWN,
        "kind": "time",
        "promise": "linear",
        "sizes": SIZES[: len(values)],
        "values": values,
    }
    return Row(**(plain | changes))


def test_a_peer_promises_nothing_and_a_missing_figure_is_a_broken_promise() -> None:
    assert row(planted("quadratic")).is_broken
    assert not row(planted("quadratic"), engine="lmdb").is_broken
    assert row([]).is_broken
    assert row([1.0] * (results.LEAST_SIZES - 1)).is_broken


class Planted(dimension.Dimension):
    """A dimension whose figures a test plants."""

    name, text = "planted", "planted rows"
    sizes, quick = tuple(SIZES), tuple(SIZES[:2])
    costs: ClassVar = {"read": Costs(time=LINEAR), "open": Costs(requests=CONSTANT)}

    def prepare(self, folder: Path) -> None:
        raise NotImplementedError

    def measure(self, meter, folder: Path) -> None:
        raise NotImplementedError


@pytest.mark.parametrize(
    ("name", "missing", "status"),
    [("linear", 0, 0), ("quadratic", 0, 1), ("linear", SIZES[2], 1)],
)
def test_a_broken_promise_and_a_missing_point_fail_the_run(
    name: str, missing: int, status: int, tmp_path: Path, monkeypatch, capsys
) -> None:
    form, _ = PLANTED[name]

    def point(_name, size, _engine, _folder, _seconds):
        if size == missing:
            raise RuntimeError("planted failure")
        return {"read": {"time": form(size)}, "open": {"requests": 5.0}}

    output = tmp_path / "growth.json"
    monkeypatch.setattr(run, "point", point)
    monkeypatch.setattr(run, "ALL", {"planted": Planted})
    arguments = ["--folder", str(tmp_path), "--output", str(output), "--note", "a note"]
    monkeypatch.setattr(sys, "argv", ["run.py", *arguments])
    assert run.main() == status
    said = capsys.readouterr().out
    assert ("broken promise: planted: read, time: promised linear" in said) == (name != "linear")
    assert ("missing: planted, siltstone, 316: planted failure" in said) == bool(missing)
    facts, rows = results.read(output)
    assert facts["note"] == "a note"
    assert [one.operation for one in rows] == ["read", "open"]


def test_other_dimensions_stay_where_some_are_measured_again(tmp_path: Path) -> None:
    path, about = tmp_path / "growth.json", {"note": "a note", "time": "then", "commit": "abc"}
    old, new = (row([value] * 5, dimension="rows") for value in (1.0, 2.0))
    other = row([1.0] * 5, dimension="tables")
    run.save(path, about, [old, other], [])
    for _ in range(2):
        run.save(path, about | {"note": "", "time": "now", "commit": "def"}, [new], ["rows"])
    facts, rows = results.read(path)
    assert rows == [new, other]
    assert facts["note"].startswith("a note Measured again after ")
    assert facts["note"].count("Measured again") == 1
    run.save(path, about, [new], [])
    assert results.read(path) == (about, [new])


def test_a_point_that_takes_too_long_is_ended(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="took longer"):
        run.point("versions of a key", 100, OWN, tmp_path / "point", 0.05)
    assert not (tmp_path / "point").exists()


def test_a_point_that_fails_tells_its_error(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="KeyError: 'unknown'"):
        run.point("unknown", 1, OWN, tmp_path / "point", 60)


def test_every_dimension_has_five_sizes_and_promises() -> None:
    assert len(ALL) >= 20
    for name, kind in ALL.items():
        assert len(kind.sizes) == 5, name
        assert list(kind.sizes) == sorted(kind.sizes)
        assert max(kind.quick) < max(kind.sizes)
        assert kind.costs
        assert all(costs.promised() for costs in kind.costs.values()), name


def test_cheap_dimensions_run_on_small_sizes(tmp_path: Path) -> None:
    """Every promised figure is measured."""
    names = ["merge operands", "snapshots"]
    output = tmp_path / "growth.json"
    arguments = ["--quick", "--output", str(output), "--folder", str(tmp_path), "--only", *names]
    done = subprocess.run(
        [sys.executable, str(GROWTH / "run.py"), *arguments],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    _, rows = results.read(output)
    for name in names:
        own = [one for one in rows if one.dimension == name and one.engine == OWN]
        promised = [
            (it, kind) for it, costs in ALL[name].costs.items() for kind in costs.promised()
        ]
        assert [(one.operation, one.kind) for one in own] == promised
        assert all(one.sizes == list(ALL[name].quick) for one in own)
    assert [path.name for path in tmp_path.iterdir()] == ["growth.json"]


def test_the_page_and_its_plots_are_those_of_the_results() -> None:
    command = [sys.executable, str(GROWTH / "page.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_results_have_every_promise_of_today() -> None:
    """A dimension that needs a module is left out where that is not installed."""
    _, rows = results.read(page.RESULTS)
    found = {
        (one.dimension, one.operation, one.kind): (
            *(one.promise, one.most_per_unit),
            *(one.floor, one.floor_per_unit),
        )
        for one in rows
        if one.engine == OWN
    }
    left_out = {name for name, kind_of in ALL.items() if kind_of.needs} - {one[0] for one in found}
    expected = {
        (name, operation, kind): (
            promise.name,
            costs.most_bytes_per_unit if kind == "bytes" else None,
            costs.memory_budget if kind == "memory" else 0,
            costs.seconds_per_unit if kind == "time" else 0,
        )
        for name, kind_of in ALL.items()
        if name not in left_out
        for operation, costs in kind_of.costs.items()
        for kind, promise in costs.promised().items()
    }
    assert found == expected


def test_a_changed_number_changes_the_page(tmp_path: Path) -> None:
    facts, rows = results.read(page.RESULTS)
    changed = Row(**(vars(rows[0]) | {"values": [2 * value for value in rows[0].values]}))
    results.write(tmp_path / "growth.json", facts, [changed, *rows[1:]])
    files = page.pages(tmp_path / "growth.json")
    plot = f"growth/{page.file_name(rows[0].dimension)}.svg"
    assert page.differing(files, page.DOCS) == ["what-costs-what.md", plot]


def test_a_file_that_nothing_makes_is_found(tmp_path: Path) -> None:
    (tmp_path / "growth").mkdir()
    (tmp_path / "growth" / "old.svg").write_text("<svg/>")
    (tmp_path / "a.md").write_text("a")
    assert page.differing({"a.md": "a"}, tmp_path) == ["growth/old.svg"]


def test_results_are_written_one_row_a_line(tmp_path: Path) -> None:
    rows = [row(planted("linear")), row(planted("constant"), most_per_unit=1.5)]
    results.write(tmp_path / "growth.json", {"note": ""}, rows)
    text = (tmp_path / "growth.json").read_text()
    assert results.read(tmp_path / "growth.json") == ({"note": ""}, rows)
    assert json.loads(text)["rows"][1]["most_per_unit"] == 1.5
    assert len(text.splitlines()) == 7 + len(rows)
