"""The data source `format("siltstone")` of Spark 4.0 and newer.

When a data source written in Python is first asked for, Spark imports every top-level module whose
name begins with `pyspark_` and takes its `DefaultSource`: so this one needs no registration.
Nothing of `siltstone` is imported before a database is named, since sessions that never read one
load this, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceReader
    from pyspark.sql.types import StructType

__all__ = ["DefaultSource"]


class DefaultSource(DataSource):
    """``spark.read.format("siltstone")``: a database at one checkpoint."""

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(dict(options))
        # Here and nowhere later: `schema` is not asked for where the user gives one, and all that
        # comes from this frame reads what is pinned now.
        from siltstone.spark.source import planned  # noqa: PLC0415 - not before it is used

        self._planned = planned(options)

    @classmethod
    def name(cls) -> str:
        """What stands in `format`."""
        return "siltstone"

    def schema(self) -> str:
        """Both columns of a database without a schema."""
        return "key binary, value binary"

    def reader(self, schema: StructType) -> DataSourceReader:
        """What reads the columns of `schema`.

        :raises Invalid: no database was named, or it has no such columns.
        """
        from siltstone.exceptions import Invalid  # noqa: PLC0415
        from siltstone.spark.source import reader_for  # noqa: PLC0415

        if self._planned is None:
            raise Invalid('which database? .load("s3://bucket/db"), or option("path", …)')
        return reader_for(self._planned, schema)

    def writer(self, schema: StructType, overwrite: bool) -> Any:  # noqa: ARG002
        """Refuses: loads are not built yet."""
        from siltstone.spark.source import no_writer  # noqa: PLC0415

        raise no_writer()
