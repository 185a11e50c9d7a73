"""Loads from Spark with failures of all kinds, compared with a model of the committed rows.

``SILTSTONE_SPARK_FAULTS=200 pytest tests/python/test_spark_faults.py`` is the long form.
"""

from __future__ import annotations

import os
import random
import threading
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest

import siltstone
import siltstone.spark as kv
from siltstone import ingest
from spark_versions_for_tests import frame_of_table

pytest_plugins = ["spark_for_tests"]
pytestmark = pytest.mark.slow

ROUNDS = int(os.environ.get("SILTSTONE_SPARK_FAULTS", "8"))
FAULTS = ("none", "killed", "raised", "every attempt", "before", "after", "asked for", "again")
KEYS = 400


def failing(batches, marks: str, fault: str):
    """A task that fails once in the middle, or in every attempt."""
    from pyspark import TaskContext  # noqa: PLC0415

    number = TaskContext.get().partitionId()
    for batch in batches:
        yield batch
        mark = Path(marks, str(number))
        if fault == "every attempt" and number == 1:
            raise ArithmeticError("every attempt fails")
        if fault in ("killed", "raised") and not mark.exists():
            mark.touch()
            if fault == "killed":
                os._exit(9)
            raise ArithmeticError("the first attempt fails")


class Away(siltstone.Unavailable):
    """The error of the planted failures."""


def breaking(monkeypatch, fault: str) -> None:
    """The commit fails: before the submission, after the writer took the load in, or after a
    submission that no writer has taken in."""
    submit = ingest.submit

    def broken(request, **named):
        if fault != "before":
            submit(request, **{**named, "wait": fault == "after"})
        raise Away(fault)

    monkeypatch.setattr(ingest, "submit", broken)


def test_every_load_is_there_once_or_not_at_all(spark, url, tmp_path, monkeypatch) -> None:
    chance = random.Random(18)
    siltstone.open(url).close()
    model: dict[bytes, bytes] = {}
    for turn in range(ROUNDS):
        fault = FAULTS[turn % len(FAULTS)]
        marks = tmp_path / f"marks{turn}"
        marks.mkdir()
        rows = {
            b"key/%04d" % n: b"%d of turn %d" % (n, turn)
            for n in chance.sample(range(KEYS), chance.randrange(20, 200))
        }
        table = pa.table({"key": list(rows), "value": list(rows.values())})
        frame = frame_of_table(spark, table).repartition(3)
        frame = frame.mapInArrow(
            partial(failing, marks=str(marks), fault=fault), "key binary, value binary"
        )
        layout = chance.choice(("range", "runs"))
        load = partial(
            kv.bulk_load, frame, url, key="key", layout=layout, txn=("model", turn), timeout=60
        )
        stop = threading.Event()
        beside = threading.Thread(target=collect_until, args=(url, stop))
        beside.start()
        try:
            if fault in ("before", "after", "asked for"):
                with monkeypatch.context() as patch, pytest.raises(Away):
                    breaking(patch, fault)
                    load()
            elif fault == "every attempt":
                with pytest.raises(Exception, match="every attempt fails"):
                    load()
            else:
                assert load().rows == len(rows)
        finally:
            stop.set()
            beside.join()
        if fault in ("after", "asked for", "again"):
            # The program is run again. Nothing has opened the database meanwhile, so this load also
            # takes in one that was only submitted.
            done = load()
            assert done.repeated or fault == "asked for"
            assert load().repeated
        if fault not in ("every attempt", "before"):
            model |= rows
        check(url, model)
        if chance.random() < 0.5:
            siltstone.admin.compact(url)
            check(url, model)
    siltstone.admin.gc(url, min_age=0)
    report = siltstone.admin.verify(url)
    assert report.ok, report.problems
    assert kv.verify(spark, url).ok
    kv.release()
    with siltstone.open(url) as db:
        assert dict(db.scan()) == model


def collect_until(url: str, stop: threading.Event) -> None:
    """Runs a collector without grace during a load."""
    while not stop.wait(0.2):
        siltstone.admin.gc(url, min_age=0)


def check(url: str, model: dict[bytes, bytes]) -> None:
    """The database holds the model. Only a reader looks: no writer opens the database between
    failures, so each load has to recover alone."""
    with siltstone.open_reader(url) as reader:
        assert dict(reader.scan()) == model
