"""The size of a frame as Spark's planner estimates it.

Spark plans joins by the estimated sizes of their sides. The result of `mapInArrow` has the
estimated size of its input. If the input were one number for each task, Spark would estimate a few
bytes for a database of any size, and broadcast it through the driver.
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
"""The size of a frame of unknown size. Spark does not broadcast it."""
WIDE = 64
"""Columns beside a number. Spark estimates 100 bytes for each value; all are empty."""
NUMBER_BYTES = 8 + (WIDE * 100) // 2
"""The least estimate for a number with these columns."""
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
"""Spark's estimates of values; the other types have 8 bytes."""


def row_bytes(fields: pa.Schema) -> int:
    """Spark's estimate for a row of these columns."""
    return 8 + sum(SIZES.get(NAMES.get(field.type, ""), 8) for field in fields)


def numbers(spark: SparkSession, tasks: int, size: float) -> DataFrame:
    """The numbers from 0 to `tasks`, exclusive, one for each task, with an estimated size of `size`
    bytes in total. The number is in the first column.

    Spark estimates a range by its length, and does not know how many rows a filter drops. So each
    task counts to some thousands and keeps the first number.
    """
    each = max(1, math.ceil(size / NUMBER_BYTES / tasks))
    counted = spark.range(0, tasks * each, 1, tasks).where(f"id % {each} = 0")
    wide = [f"X'' AS wide{number}" for number in range(WIDE)]
    return counted.selectExpr(f"id div {each} AS id", *wide)
