"""Differences between versions of Spark, and Spark Connect. `make spark-matrix` selects Spark
Connect by the variable ``SILTSTONE_SPARK_CONNECT``.
"""

from __future__ import annotations

import importlib.metadata
import os

import pyarrow as pa
import pytest

CONNECT = bool(os.environ.get("SILTSTONE_SPARK_CONNECT"))


def version() -> tuple[int, int]:
    """The version of the installed Spark; (0, 0) if there is none."""
    try:
        text = importlib.metadata.version("pyspark")
    except importlib.metadata.PackageNotFoundError:
        return 0, 0
    major, minor = text.split(".")[:2]
    return int(major), int(minor)


def since(major: int, minor: int, what: str) -> pytest.MarkDecorator:
    """Skips a test on an older Spark, with a reason."""
    older = version() < (major, minor)
    return pytest.mark.skipif(older, reason=f"{what}: from Spark {major}.{minor} on")


SOURCES = since(4, 0, "data sources in Python")
STREAM_SINKS = since(4, 1, "sinks of streams that take Arrow")
STREAM_SOURCES = since(4, 2, "sources of streams with limits")
CLASSIC = pytest.mark.skipif(CONNECT, reason="a session by Connect has no context to ask")


def frame_of_table(spark, table: pa.Table):
    """A table as a DataFrame: `createDataFrame` itself can do this from Spark 4.0 on."""
    if version() >= (4, 0):
        return spark.createDataFrame(table)
    from pyspark.sql.pandas.types import from_arrow_schema  # noqa: PLC0415

    schema = from_arrow_schema(table.schema, prefer_timestamp_ntz=True)
    return spark.createDataFrame([tuple(row.values()) for row in table.to_pylist()], schema)


def tasks_of(frame) -> int:
    """The number of tasks of a frame that have rows."""
    from pyspark.sql import functions as sf  # noqa: PLC0415

    return frame.select(sf.spark_partition_id().alias("task")).distinct().count()
