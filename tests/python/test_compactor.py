"""Compactors in their own processes, while a writer writes and readers read."""

from __future__ import annotations

import contextlib
import itertools
import json
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import siltstone
from pace_for_tests import PATIENCE, quickest, until
from siltstone import admin

# Tables of a few rows, so that every flush gives a compactor work.
WRITER = {
    "l0_sst_size_bytes": 4096,
    "l0_manifest_commit_interval": 0,
    "embedded_compactor": False,
    # Waiting for compaction is tested elsewhere.
    "l0_max_ssts": 2000,
}
COMPACTOR = {
    "l0_sst_size_bytes": 4096,
    "l0_compaction_threshold_ssts": 2,
    "target_sst_bytes": 65536,
    "compactors.poll_interval": 0.02,
}


def named(options: dict[str, Any]) -> list[str]:
    return [part for name, value in options.items() for part in ("--option", f"{name}={value}")]


@contextlib.contextmanager
def compactor(path: Path, *arguments: str, **options: Any) -> Iterator[subprocess.Popen[str]]:
    """A compactor in its own process; it is killed at the end if it still runs."""
    command = [sys.executable, "-m", "siltstone.cli", "--path", str(path), "run-compactor"]
    command += [*arguments, *named({**COMPACTOR, **options})]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as child:
        try:
            yield child
        finally:
            child.kill()


def stop(child: subprocess.Popen[str], how: int = signal.SIGINT) -> tuple[str, str, float]:
    """Stops it with a signal. Returns its output and the seconds that the stop took."""
    began = time.monotonic()
    child.send_signal(how)
    out, err = child.communicate(timeout=PATIENCE)
    return out, err, time.monotonic() - began


def epoch(path: Path) -> int:
    number: int = admin.manifest(path)["compactor_epoch"]
    return number


def write(db: siltstone.Database, model: dict[bytes, bytes], rounds: range) -> None:
    for number in rounds:
        keys = [b"%04d" % (number * 7 % 300 + key) for key in range(100)]
        db.put_many(keys, [b"%060d" % number] * 100)
        model.update(dict.fromkeys(keys, b"%060d" % number))
        gone = b"%04d" % (number * 3 % 300)
        db.delete(gone)
        model.pop(gone, None)


def test_once_without_a_writer(tmp_path: Path) -> None:
    path, model = tmp_path / "db", dict[bytes, bytes]()
    with pytest.raises(siltstone.NotFound):
        admin.compact(path)
    with siltstone.open(path, options=WRITER) as db:
        write(db, model, range(30))
    done = admin.compact(path, options={"target_sst_bytes": "64KiB"})
    assert [(each.why, each.tables_out, each.error) for each in done] == [("major", 1, None)]
    assert done[0].rows_out == len(model) < done[0].rows_in
    assert done[0].plan.endswith(" -> 0")
    assert done[0].line.startswith("compacted L0:")
    state = admin.manifest(path)
    assert not state["l0"]
    assert [run["id"] for run in state["runs"]] == [0]
    assert admin.compact(path) == []
    with siltstone.open_reader(path) as reader:
        assert dict(reader.scan()) == model
    assert admin.verify(path).ok


def test_a_snapshot_of_the_writer_outlives_it(tmp_path: Path) -> None:
    path, model = tmp_path / "db", dict[bytes, bytes]()
    with siltstone.open(path, options=WRITER) as db:
        write(db, model, range(10))
        before, held = dict(model), db.snapshot()
        write(db, model, range(10, 60))
        admin.compact(path)
        assert dict(held.scan()) == before
        assert dict(db.scan()) == model
        # The writer loads the new tables at its next flush, and reads are correct before that.
        write(db, model, range(60, 70))
        assert dict(held.scan()) == before
        assert dict(db.scan()) == model


def test_it_runs_beside_a_writer_and_readers(tmp_path: Path) -> None:
    path, model = tmp_path / "db", dict[bytes, bytes]()
    with siltstone.open(path, options=WRITER) as db, compactor(path, "--json") as child:
        with siltstone.open_reader(path) as reader:
            for number in range(0, 300, 10):
                write(db, model, range(number, number + 10))
                db.flush()
                assert dict(db.scan()) == model
                reader.refresh()
                assert dict(reader.scan()) == model
        until(lambda: len(admin.manifest(path)["l0"]) <= 2)
        out, err, _ = stop(child)
        lines = [json.loads(line) for line in out.splitlines()]
        assert len(lines) > 1
        assert {line["error"] for line in lines} == {None}
        assert err == ""
        assert child.returncode == 0
        write(db, model, range(300, 310))
        assert dict(db.scan()) == model
    assert admin.verify(path).ok


def test_it_is_stopped_within_a_second(tmp_path: Path) -> None:
    path = tmp_path / "db"
    siltstone.open(path, options=WRITER).close()

    def attempt() -> float:
        before = epoch(path)
        with compactor(path) as child:
            until(lambda: epoch(path) > before)
            _, err, took = stop(child)
        assert (child.returncode, err) == (0, "")
        return took

    quickest(attempt, 1.5)


def test_a_newer_one_stops_the_older_and_never_the_writer(tmp_path: Path) -> None:
    path, model = tmp_path / "db", dict[bytes, bytes]()
    with siltstone.open(path, options=WRITER) as db:
        write(db, model, range(20))
        with compactor(path) as first:
            until(lambda: epoch(path) == 1)
            write(db, model, range(20, 40))
            with compactor(path) as second:
                until(lambda: epoch(path) == 2)
                # The compactor notices the fence at its next request.
                numbers = itertools.count(40, 10)

                def ended() -> bool:
                    number = next(numbers)
                    write(db, model, range(number, number + 10))
                    return first.poll() is not None

                until(ended)
                _, err = first.communicate(timeout=PATIENCE)
                assert first.returncode == 1
                assert "Fenced" in err
                assert "newer compactor" in err
                assert second.poll() is None
                stop(second, signal.SIGTERM)
                assert second.returncode == 0
        write(db, model, range(400, 420))
        db.flush()
        assert dict(db.scan()) == model


def test_the_embedded_one_rests_while_another_runs(tmp_path: Path) -> None:
    path, model = tmp_path / "db", dict[bytes, bytes]()
    options = {**WRITER, "embedded_compactor": True, "l0_compaction_threshold_ssts": 2}
    with siltstone.open(path, options=options) as db:
        write(db, model, range(40))
        until(lambda: epoch(path) == 1)
        with compactor(path) as child:
            until(lambda: epoch(path) == 2)
            for number in range(40, 200, 10):
                write(db, model, range(number, number + 10))
                time.sleep(0.02)
            # The writer neither takes the epoch back nor breaks the handle.
            assert epoch(path) == 2
            with pytest.raises(siltstone.Fenced, match="newer compactor"):
                db.compact()
            # An idle one has time to give the epoch up when it is stopped.
            until(lambda: len(admin.manifest(path)["l0"]) <= 2)
            stop(child)
        # The other compactor gave the epoch up: the writer's own continues after its next flush.
        until(lambda: (write(db, model, range(200, 210)), epoch(path) == 3)[1])
        db.compact()
        assert dict(db.scan()) == model


def test_workers_share_a_compaction(tmp_path: Path) -> None:
    path, model = tmp_path / "db", dict[bytes, bytes]()
    with siltstone.open(path, options={**WRITER, "l0_sst_size_bytes": 4 << 20}) as db:
        for number in range(60):
            keys = [b"%08d" % (number * 977 % 40000 + key) for key in range(1000)]
            value = random.Random(number).randbytes(1000)
            db.put_many(keys, [value] * 1000)
            model.update(dict.fromkeys(keys, value))
    assert len(admin.manifest(path)["l0"]) > 2
    # Ranges that are small and slow enough that every worker finds some.
    many = {"min_move_bytes": 0, "l0_sst_size_bytes": 4 << 20, "compaction_ranges": 1}
    many |= {"compression": "zstd", "target_sst_bytes": 1 << 20}
    # No worker counts as dead within the timeout. The coordinator alone would need half a minute,
    # so that workers find ranges even if they start late.
    many |= {"compactors.worker_timeout": 30, "compaction_bytes_per_second": 4 << 20}
    eager = {"compactors.poll_interval": 0.002, "compaction_ranges": 1}
    with contextlib.ExitStack() as stack:
        workers = [
            stack.enter_context(compactor(path, "--worker", "--json", **eager)) for _ in range(2)
        ]
        coordinator = stack.enter_context(compactor(path, "--workers", "7", "--json", **many))
        until(lambda: not admin.manifest(path)["l0"])
        spoken = [stop(each)[:2] for each in [coordinator, *workers]]
    assert [err for _, err in spoken] == [""] * 3
    merged = [json.loads(line) for out, _ in spoken[1:] for line in out.splitlines()]
    places = [(line["job"], line["range"]) for line in merged]
    assert places
    assert len(set(places)) == len(places)
    with siltstone.open_reader(path) as reader:
        assert dict(reader.scan()) == model
    assert admin.verify(path).ok


def test_progress_hears_of_it_and_may_end_it(tmp_path: Path) -> None:
    path = tmp_path / "db"
    with siltstone.open(path, options=WRITER) as db:
        write(db, {}, range(30))

    class Enough(Exception):
        pass

    def on_event(what: object) -> None:
        assert isinstance(what, admin.Compaction)
        raise Enough

    with pytest.raises(Enough):
        admin.run_compactor(path, options=COMPACTOR, on_event=on_event)
    with pytest.raises(ValueError, match="workers"):
        admin.run_compactor(path, workers=1, worker=True)


def test_it_begins_once_more_if_the_embedded_one_starts_just_after(url: str) -> None:
    """Before the fix, it raised Fenced in every fifth of these databases."""
    for number in range(60):
        place = f"{url}-{number}"
        with siltstone.open(place) as db:
            for row in range(9):
                db[b"%d" % row] = b"v"
                db.flush(memtable=True)
            siltstone.admin.compact(place)
            assert len(list(db.keys())) == 9
