"""Registering `format("siltstone")` by hand, for sessions that do not find it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from siltstone.exceptions import Unsupported
from siltstone.spark._arguments import check_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["register"]


def register(spark: SparkSession) -> None:
    """Registers ``format("siltstone")`` in a session. Spark 4 finds it if the package is installed.
    Call this for a session that looked before the package was installed.

    :raises Unsupported: a Spark before 4.0, which has no data sources in Python: use `scan`.
    """
    check_session(spark)
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
        # Spark 4.0 refuses a source that it found itself.
        if error.getCondition() != "DATA_SOURCE_ALREADY_EXISTS":
            raise
