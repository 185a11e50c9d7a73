"""A driver in its own process. It is killed during its commit: before it asks for the load, or
after that.

    spark_driver_for_tests.py MASTER DATABASE ROWS VERSION before|after
"""

from __future__ import annotations

import os
import sys

from pyspark.sql import SparkSession

import siltstone.spark as kv
from siltstone import ingest
from spark_cluster_for_tests import SETTINGS
from spark_sources_for_tests import ShortLived


def main(master: str, url: str, rows: str, version: str, fault: str) -> None:
    """Loads a file of rows, and is killed."""
    builder = SparkSession.builder.master(master)
    for name, value in {**SETTINGS, "spark.cores.max": "2"}.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    submit = ingest.submit

    def killed(request, **named):
        if fault == "after":
            submit(request, **named)
        os._exit(9)

    ingest.submit = killed
    ingest.Job = ShortLived
    kv.bulk_load(spark.read.parquet(rows), url, key="key", txn=("model", int(version)))


if __name__ == "__main__":
    main(*sys.argv[1:])
