"""Dimensions of bulk work: ingest jobs, and partitions of a Spark scan."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import ClassVar

from dimension import Costs, Dimension
from fit import CONSTANT, LINEAR
from meter import Meter
from rows import batches, key, open_alone, value
from siltstone import admin, ingest


def staged(url: Path, number: int, app: str | None = None) -> ingest.IngestRequest:
    """A closed job of one row, not yet submitted."""
    job = ingest.Job(url, txn=(app, number) if app else None)
    with job.writer(0) as writer:
        writer.add(key(number), value())
    return job.commit([writer.finish()])


class Jobs(Dimension):
    """The measurements that both dimensions of jobs share."""

    sizes = (1, 5, 25, 125, 625)
    quick = (1, 4, 16)
    costs: ClassVar = {
        "stage a job": Costs(time=CONSTANT, memory=CONSTANT),
        "adopt a job": Costs(time=LINEAR, requests=CONSTANT, bytes=LINEAR),
        "list jobs": Costs(time=LINEAR, memory=LINEAR),
        "durable put": Costs(time=CONSTANT, requests=CONSTANT, bytes=CONSTANT),
        "open": Costs(time=LINEAR, requests=CONSTANT, bytes=LINEAR),
        "collect": Costs(time=LINEAR, memory=LINEAR),
    }
    options: ClassVar = {"l0_max_ssts": 2000, "l0_compaction_threshold_ssts": 1000}

    def measure(self, meter: Meter, folder: Path) -> None:
        url, data = folder / "db", value()
        meter.open("open", lambda: open_alone(url, **self.options), repeats=5)
        with open_alone(url, **self.options) as db:
            for at in range(3):
                number = 10_000 + at
                request = meter.take(
                    "stage a job", lambda number=number: staged(url, number), repeats=0
                )
                meter.take(
                    "adopt a job",
                    lambda request=request: db.ingest(request).wait(),
                    of=db,
                    repeats=0,
                )
            meter.take("list jobs", lambda: ingest.jobs(url))
            meter.take("durable put", lambda: db.put(key(0), data).wait(), of=db, repeats=10)
            meter.take("collect", lambda: admin.gc(url), repeats=2)


class PendingJobs(Jobs):
    name, text = "pending ingest jobs", "staged jobs that wait to be submitted"

    def prepare(self, folder: Path) -> None:
        with open_alone(folder / "db") as db:
            db.put(key(0), value()).wait()
            for at in range(self.size):
                staged(folder / "db", at)


class SettledJobs(Jobs):
    name, text = "settled ingest jobs", "adopted jobs of one application"

    def prepare(self, folder: Path) -> None:
        with open_alone(folder / "db", **self.options) as db:
            for at in range(self.size):
                db.ingest(staged(folder / "db", at, app="feed"))
            db.compact()


class SparkPartitions(Dimension):
    name, text = "partitions of a Spark scan", "tasks of a scan of 100,000 rows"
    # Two decades: a task has a process of its own at work for a tenth of a second.
    sizes = (1, 3, 10, 32, 100)
    quick = (1, 4)
    costs: ClassVar = {
        "plan": Costs(time=LINEAR),
        "scan": Costs(time=LINEAR),
    }
    needs = "pyspark"
    rows = 100_000

    def prepare(self, folder: Path) -> None:
        with open_alone(folder / "db") as db:
            db.load(batches(self.rows), sorted=True)

    def measure(self, meter: Meter, folder: Path) -> None:
        from pyspark.sql import SparkSession  # noqa: PLC0415

        from siltstone import spark as kv  # noqa: PLC0415

        os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
        os.environ["PYSPARK_PYTHON"] = sys.executable
        settings = {
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.sql.warehouse.dir": str(folder / "warehouse"),
            "spark.log.level": "ERROR",
            "spark.driver.host": "127.0.0.1",
        }
        builder = SparkSession.builder.master("local[2]").config(map=settings)
        spark = builder.getOrCreate()
        try:
            url = folder / "db"
            frame = meter.take("plan", lambda: kv.scan(spark, url, partitions=self.size), repeats=2)

            def read() -> None:
                frame.write.format("noop").mode("overwrite").save()

            meter.take("scan", read, repeats=1)
        finally:
            kv.release()
            spark.stop()


DIMENSIONS = (PendingJobs, SettledJobs, SparkPartitions)
