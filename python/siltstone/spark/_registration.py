"""Making `format("siltstone")` known by hand, where Spark does not find it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from siltstone.exceptions import Unsupported

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["register"]


def register(spark: SparkSession) -> None:
    """Makes ``format("siltstone")`` known to a session. Spark 4 finds it by itself wherever the
    package is installed; this is for sessions that looked before it was.

    :raises Unsupported: a Spark before 4.0, which has no data sources in Python: use `scan`.
    """
    try:
        from pyspark_siltstone import DefaultSource  # noqa: PLC0415
    except ModuleNotFoundError as missing:
        raise Unsupported(
            "data sources in Python need Spark 4.0 or newer; siltstone.spark.scan reads on 3.5"
        ) from missing
    from pyspark.errors import PySparkException  # noqa: PLC0415

    try:
        spark.dataSource.register(DefaultSource)
    except PySparkException as error:
        # Spark 4.0 refuses what it found itself.
        if error.getCondition() != "DATA_SOURCE_ALREADY_EXISTS":
            raise
