"""The size of a frame as Spark's planner estimates it.

Spark plans joins by the estimated sizes of their sides. The result of `mapInArrow` has the
estimated size of its input. If the input were one number for each task, Spark would estimate a few
bytes for a database of any size, and broadcast it through the driver. Likewise a look-up would have
the size of its keys, without the rows that it finds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa

from siltstone.spark._columns import NAMES, folded
from siltstone.spark._jobs import map_batches, task

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["UNKNOWN", "map_growing", "numbers", "row_bytes"]

UNKNOWN = 1 << 30
"""The size of a frame of unknown size. Spark does not broadcast it."""
WIDE = 64
"""Columns beside a number. Spark estimates 100 bytes for each value; all are empty."""
NUMBER_BYTES = 8 + (WIDE * 100) // 2
"""The least estimate for a number with these columns."""
LEAF_BYTES = 100
"""Spark's estimate of a binary value."""
MOST_LEAVES = 32
"""The most fields of a column that only adds to the estimate of a row. Each costs a task some 0.2
ms for a batch of 10,000 rows, because Spark allocates a vector for it. Finding the 100 bytes for
which it stands costs more."""
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
    wide = [f"X'' AS siltstone_size_{number}" for number in range(WIDE)]
    return counted.selectExpr(f"id div {each} AS id", *wide)


def map_growing(
    frame: DataFrame, work: Callable[..., Any], schema: Any, growth: float, total: float
) -> DataFrame:
    """`map_batches(frame, work, schema)` for a function that adds bytes to each row, with an
    estimated size that includes them.

    Spark estimates a projection by the types of its columns, and an array as one element. So the
    input gets a column of empty arrays of a struct, which has a field for each 100 bytes. This
    estimate follows the number of rows, also the number that adaptive execution has counted. If a
    row grows by more than such a column can say, `total` is added by a second input without rows.

    :param growth: the most bytes that are expected to be added to one row.
    :param total: the bytes from which the added ones are taken.
    """
    leaves = max(1, math.ceil(growth / LEAF_BYTES))
    wider = _widened(frame, min(leaves, MOST_LEAVES))
    found = map_batches(wider, task(work.__name__, _narrowed, mapped=work), schema)
    if leaves <= MOST_LEAVES or frame.isStreaming:
        # Spark does not unite a stream with a frame.
        return found
    none = numbers(frame.sparkSession, 1, total).where("id < 0")
    return found.union(none.mapInArrow(task(work.__name__, _nothing), schema))


def _widened(frame: DataFrame, leaves: int) -> DataFrame:
    """The frame with a last column of empty arrays that Spark takes for `leaves` binary values."""
    from pyspark.sql import functions as sf  # noqa: PLC0415 - the package does without pyspark
    from pyspark.sql.types import ArrayType, BinaryType, StructType  # noqa: PLC0415

    there = {folded(column) for column in frame.columns}
    name = "siltstone_size"
    while folded(name) in there:
        name += "_"
    element = StructType()
    for number in range(leaves):
        element = element.add(f"f{number}", BinaryType())
    return frame.select("*", sf.array().cast(ArrayType(element)).alias(name))


def _narrowed(
    batches: Iterator[pa.RecordBatch], mapped: Callable[..., Any]
) -> Iterator[pa.RecordBatch]:
    """The result of `mapped` for the batches without their last column."""
    narrow = (one.select(list(range(one.num_columns - 1))) for one in batches)
    return cast("Iterator[pa.RecordBatch]", mapped(narrow))


def _nothing(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """No batches."""
    for _ in batches:
        pass
    return iter(())
