"""Units of a compaction in other processes: killed, copied, late. The result equals a model."""

from __future__ import annotations

import os
import pickle
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import siltstone
from siltstone import compaction

ROUNDS = int(os.environ.get("SILTSTONE_UNIT_KILLS", "12"))
"""The number of units to kill."""
SMALL = {
    "l0_sst_size_bytes": 4096,
    "l0_max_ssts": 1000,
    "embedded_compactor": False,
    "compression": "none",
}
RUN = """
import pickle, sys
unit = pickle.loads(sys.stdin.buffer.read())
sys.stdout.buffer.write(pickle.dumps(unit.run()))
"""
CODE = [sys.executable, "-c", RUN]


def filled(url: str, seed: int = 7) -> dict[bytes, bytes]:
    """Writes layers that share keys. Returns the model."""
    rolls, model = random.Random(seed), {}
    with siltstone.open(url, options=SMALL) as db:
        for turn in range(6):
            for _ in range(150):
                key = b"key/%03d" % rolls.randrange(300)
                if rolls.random() < 0.2:
                    del db[key]
                    model.pop(key, None)
                else:
                    model[key] = db[key] = b"%d/%d" % (turn, rolls.randrange(1000)) * 8
            db.flush(memtable=True)
    return model


def content(url: str) -> dict[bytes, bytes]:
    with siltstone.open_reader(url) as reader:
        return dict(reader.scan())


def check(url: str, model: dict[bytes, bytes]) -> None:
    """Checks that the database equals the model, in one run, and that no object is left over."""
    assert content(url) == model
    manifest = siltstone.admin.manifest(url)
    assert len(manifest["runs"]) == 1
    assert not manifest["l0"]
    for _ in range(2):
        siltstone.admin.gc(url, min_age=0)
    named = {table["name"] for table in manifest["runs"][0]["tables"]}
    folders = [*Path(url, "ingest").rglob("*.sst"), *Path(url, "compacted").glob("*.sst")]
    assert {str(path.relative_to(url)) for path in folders} == named
    assert siltstone.admin.verify(url).ok


@contextmanager
def running(unit: compaction.Unit) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(CODE, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        child.stdin.write(pickle.dumps(unit))
        child.stdin.close()
        yield child


def elsewhere(unit: compaction.Unit) -> compaction.UnitResult:
    with running(unit) as child:
        return pickle.loads(child.stdout.read())


def test_units_are_run_in_other_processes(tmp_path: Path) -> None:
    url = str(tmp_path / "db")
    model = filled(url)
    heard = []
    with compaction.plan(url, unit_bytes=8192, on_event=heard.append) as plan:
        units = plan.units
        assert len(units) > 2
        assert not plan.resumed
        assert [unit.start for unit in units] == sorted(unit.start for unit in units)
        results = [elsewhere(units[0]), *(unit.run() for unit in units[1:])]
        assert sum(result.rows for result in results) == len(model)
        assert all(result.bytes > 0 < result.tables for result in results)
        assert not plan.commit(results[:1])
        # Repeats of an already committed unit, after its commit.
        assert not plan.commit([units[0].run(), results[0]])
        assert units[0].run().tables == 0
        assert len(plan.units) == len(units) - 1
        assert plan.commit(pickle.loads(pickle.dumps(results)))
        assert plan.commit([]) is True
        assert plan.units == []
        (done,) = plan.compactions
        assert (done.rows_out, done.error) == (len(model), None)
        assert heard == [done]
    check(url, model)
    with compaction.plan(url) as plan:
        assert (plan.units, plan.compactions) == ([], ())


def test_kills_at_random_lose_nothing(tmp_path: Path) -> None:
    """Units are killed by SIGKILL, drivers by dropping their plan."""
    rolls, left = random.Random(3), ROUNDS
    for database in range(100):
        if left <= 0:
            break
        url = str(tmp_path / str(database))
        model, over = filled(url, database), False
        while not over:
            # A dropped plan neither closes nor gives its epoch up.
            plan = compaction.plan(url, unit_bytes=4096)
            over = not plan.units
            for unit in plan.units:
                with running(unit) as child:
                    if left > 0 and rolls.random() < 0.6:
                        left -= 1
                        try:
                            child.wait(rolls.uniform(0.05, 0.4))
                        except subprocess.TimeoutExpired:
                            child.send_signal(signal.SIGKILL)
                    data = child.stdout.read()
                if child.wait() == 0:
                    plan.commit([pickle.loads(data)])
                elif rolls.random() < 0.3:
                    break
            if over or rolls.random() < 0.5:
                plan.close()
        check(url, model)


def test_a_plan_that_is_taken_over_says_so(tmp_path: Path) -> None:
    url = str(tmp_path / "db")
    model = filled(url)
    with compaction.plan(url, unit_bytes=8192) as plan:
        first, second, *_ = plan.units
        assert not plan.commit([first.run()])
        late = second.run()
        siltstone.admin.compact(url)
        with pytest.raises(siltstone.Fenced):
            plan.commit([late])
    check(url, model)


def test_results_of_an_earlier_plan_are_kept(tmp_path: Path) -> None:
    url = str(tmp_path / "db")
    model = filled(url)
    with compaction.plan(url, unit_bytes=8192) as plan:
        first, *others = plan.units
        plan.commit([first.run()])
        late = others[0].run()
    with pytest.raises(siltstone.Closed):
        plan.commit([late])
    with compaction.plan(url, unit_bytes=8192) as again:
        assert again.resumed
        assert [unit.range for unit in again.units] == [unit.range for unit in others]
        # The result of a unit of the earlier plan is accepted as well.
        assert again.commit([late, *(unit.run() for unit in others[1:])])
    check(url, model)


def test_arguments_are_checked(tmp_path: Path) -> None:
    url = str(tmp_path / "db")
    with pytest.raises(siltstone.NotFound):
        compaction.plan(url)
    filled(url)
    with pytest.raises(siltstone.Invalid, match="unit_bytes"):
        compaction.plan(url, unit_bytes=0)
    with compaction.plan(url, unit_bytes=8192) as plan:
        assert url in repr(plan)
        with pytest.raises(TypeError, match=r"Unit\.run"):
            plan.commit([b"no result"])
        unit = plan.units[0]
        assert "Merge" not in repr(unit)
        siltstone.admin.compact(url)
        assert unit.run().tables == 0, "its compaction is over"


def test_a_merge_operator_travels(tmp_path: Path) -> None:
    url = str(tmp_path / "db")
    with siltstone.open(url, options=SMALL, merge_operator="sum_i64") as db:
        for _ in range(3):
            for key in range(200):
                db.merge(b"%03d" % key, (key).to_bytes(8, "little", signed=True))
            db.flush(memtable=True)
    with compaction.plan(url, unit_bytes=4096, merge_operator="sum_i64") as plan:
        assert plan.commit([elsewhere(unit) for unit in plan.units])
        assert plan.compactions[0].rows_out == 200
    with siltstone.open_reader(url, merge_operator="sum_i64") as reader:
        assert int.from_bytes(reader[b"150"], "little", signed=True) == 450
