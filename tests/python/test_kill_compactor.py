"""Compactors and workers killed during their work, while a writer writes: no row is lost, and no
object is missing or left.

``SILTSTONE_KILLS`` sets the number of kills (15 by default).
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

import siltstone
from pace_for_tests import until
from siltstone import admin

KILLS = int(os.environ.get("SILTSTONE_KILLS", "15"))

WRITER = {
    "l0_sst_size_bytes": 16384,
    "l0_manifest_commit_interval": 0,
    "embedded_compactor": False,
    "embedded_gc": False,
    "l0_max_ssts": 2000,
}
OPTIONS = {
    "l0_sst_size_bytes": 16384,
    "l0_compaction_threshold_ssts": 2,
    "target_sst_bytes": 65536,
    "min_move_bytes": 0,
    "compaction_ranges": 1,
    "compactors.poll_interval": 0.01,
    "compactors.worker_timeout": 0.3,
}


def start(path: Path, *arguments: str) -> subprocess.Popen[bytes]:
    named = [part for name, value in OPTIONS.items() for part in ("--option", f"{name}={value}")]
    command = [sys.executable, "-m", "siltstone.cli", "--path", str(path), "run-compactor"]
    return subprocess.Popen(
        [*command, *arguments, *named], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )


@pytest.mark.slow
def test_kills_of_compactors_and_workers_lose_nothing(tmp_path: Path) -> None:
    path, model = tmp_path / "db", dict[bytes, bytes]()
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}")
    draw = random.Random(seed)
    kinds = [("--workers", "2"), ("--worker",), ("--worker",)]
    with siltstone.open(path, options=WRITER) as db:
        team = [start(path, *kind) for kind in kinds]
        number = 0
        try:
            until(lambda: admin.manifest(path)["compactor_epoch"] > 0)
            for _ in range(KILLS):
                end = time.monotonic() + draw.uniform(0.05, 0.6)
                while time.monotonic() < end:
                    number += 1
                    keys = [b"%06d" % (number * 97 % 3000 + key) for key in range(200)]
                    value = draw.randbytes(100)
                    db.put_many(keys, [value] * len(keys))
                    model.update(dict.fromkeys(keys, value))
                    time.sleep(0.01)
                victim = draw.randrange(len(team))
                team[victim].kill()
                team[victim].wait()
                assert dict(db.scan()) == model
                # Another coordinator takes over. A killed worker is not always replaced at once.
                if victim == 0 or draw.random() < 0.7:
                    team[victim] = start(path, *kinds[victim])
        finally:
            for child in team:
                child.kill()
                child.wait()
        # The writer was never stopped, and the next compactor ends the unfinished work.
        db.put(b"last", b"row").wait()
        model[b"last"] = b"row"
        # Rows that are not in tables yet do not concern the compaction.
        db.flush(memtable=True)
        admin.compact(path, options=OPTIONS)
        assert dict(db.scan()) == model
    state = admin.manifest(path)
    assert state["compactor_epoch"] > 1
    assert len(state["runs"]) == 1
    assert not state["l0"] or sum(len(layer["tables"]) for layer in state["l0"]) <= 1
    for _ in range(3):
        admin.gc(path, min_age=0)
    report = admin.verify(path)
    assert report.ok, report.problems
    assert not [each for each in report.orphans if each.object.startswith("compacted/")]
    with siltstone.open_reader(path) as reader:
        assert dict(reader.scan()) == model


@pytest.mark.slow
def test_a_writer_goes_on_by_itself_after_its_compactor_was_killed(tmp_path: Path) -> None:
    """Runs a compactor that takes the epoch and is killed."""
    path, model = tmp_path / "db", dict[bytes, bytes]()
    patient = {"compactors.poll_interval": 0.01, "compactors.worker_timeout": 0.5}
    small = {"l0_sst_size_bytes": 16384, "l0_compaction_threshold_ssts": 2, "l0_max_ssts": 6}
    options = {**small, **patient, "l0_manifest_commit_interval": 0, "min_move_bytes": 0}
    with siltstone.open(path, options=options) as db:

        def write(number: int) -> None:
            keys = [b"%06d" % (number * 97 % 3000 + key) for key in range(200)]
            db.put_many(keys, [b"%0100d" % number] * len(keys))
            model.update(dict.fromkeys(keys, b"%0100d" % number))

        number, until = 0, time.monotonic() + 300
        while db.stats().compactions == 0:
            write(number := number + 1)
            assert time.monotonic() < until
        mine = admin.manifest(path)["compactor_epoch"]
        for round_ in range(1, 3):
            child = start(path)
            while admin.manifest(path)["compactor_epoch"] == mine:
                assert time.monotonic() < until
                time.sleep(0.01)
            child.kill()
            child.wait()
            # More than L0 can take: these rows wait until the writer's own compactor works again.
            for _ in range(60):
                write(number := number + 1)
            stats = db.stats()
            assert stats.compactor_takeovers == round_
            assert stats.compaction_error is None
            mine = admin.manifest(path)["compactor_epoch"]
            assert mine == 2 * round_ + 1
        assert dict(db.scan()) == model
        db.compact()
    for _ in range(3):
        admin.gc(path, min_age=0)
    report = admin.verify(path)
    assert report.ok, report.problems
    assert not [each for each in report.orphans if each.object.startswith("compacted/")]
    with siltstone.open_reader(path) as reader:
        assert dict(reader.scan()) == model
