"""How large a frame is, as Spark's planner sees it.

Spark plans joins by the estimated size of their sides, and the result of `mapInArrow` has the size
of its input there. With a number for each task as input Spark would take a database for a few
bytes, and broadcast it through the driver.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import pyarrow as pa

from siltstone.spark._columns import NAMES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["UNKNOWN", "numbers", "row_bytes"]

UNKNOWN = 1 << 30
"""The size of what nothing tells the size of: Spark does not broadcast it."""
WIDE = 64
"""Columns beside a number: Spark takes each value for 100 bytes, and all are empty."""
NUMBER_BYTES = 8 + (WIDE * 100) // 2
"""What Spark takes a number with these columns for, at least."""
SIZES = {
    "boolean": 1,
    "tinyint": 1,
    "smallint": 2,
    "int": 4,
    "float": 4,
    "date": 4,
    "string": 20,
    "binary": 100,
}
"""What Spark takes a value for; the other types have 8 bytes."""


def row_bytes(fields: pa.Schema) -> int:
    """What Spark takes a row of these columns for."""
    return 8 + sum(SIZES.get(NAMES.get(field.type, ""), 8) for field in fields)


def numbers(spark: SparkSession, tasks: int, size: float) -> DataFrame:
    """The numbers from 0 to before `tasks`, one for each task, which Spark takes for `size` bytes
    together. The number is in the first column.

    Spark estimates a range by its length and does not know how many rows a filter leaves. So each
    task counts up to some thousands, and keeps the first.
    """
    each = max(1, math.ceil(size / NUMBER_BYTES / tasks))
    counted = spark.range(0, tasks * each, 1, tasks).where(f"id % {each} = 0")
    wide = [f"X'' AS wide{number}" for number in range(WIDE)]
    return counted.selectExpr(f"id div {each} AS id", *wide)
