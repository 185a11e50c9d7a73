"""A session of Spark for the tests of a module."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest


@pytest.fixture(scope="module")
def spark():
    """A session on two slots, whose workers are this interpreter."""
    from pyspark import SparkContext  # noqa: PLC0415 - starts nothing before it is needed
    from pyspark.sql import SparkSession  # noqa: PLC0415

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYSPARK_PYTHON", sys.executable)
        patch.setenv("PYSPARK_DRIVER_PYTHON", sys.executable)
        patch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
        # Workers import what the tests send them.
        patch.setenv("PYTHONPATH", str(Path(__file__).parent))
        session = (
            SparkSession.builder.master("local[2, 3]")
            .config("spark.ui.enabled", "false")
            .config("spark.sql.shuffle.partitions", "2")
            .config("spark.log.level", "OFF")
            .getOrCreate()
        )
        yield session
        session.stop()
        gateway, SparkContext._gateway, SparkContext._jvm = SparkContext._gateway, None, None
        gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait(30)
