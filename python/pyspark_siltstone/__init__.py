"""The data source `format("siltstone")` of Spark 4.0 and newer.

On the first use of a Python data source, Spark imports every top-level module whose name begins
with `pyspark_` and takes its `DefaultSource`, so this source needs no registration. Every session
with a Python data source loads this module, so it imports no module of `siltstone` until a database
is named.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

if TYPE_CHECKING:
    from pyspark.sql.datasource import (
        DataSourceReader,
        DataSourceStreamReader,
        DataSourceStreamWriter,
        DataSourceWriter,
    )
    from pyspark.sql.types import StructType

    from siltstone.spark.source import Planned
    from siltstone.spark.streams import Followed

__all__ = ["DefaultSource"]

WRITES_ALONE = (
    "checkpointlocation",
    "keycolumn",
    "valuecolumn",
    "opcolumn",
    "layout",
    "duplicates",
    "replacestart",
    "replaceend",
    "targetsstbytes",
    "txnappid",
    "txnversion",
    "timeout",
    "takeover",
)
"""Options that only writes have."""


class DefaultSource(DataSource):
    """``format("siltstone")``: reads a database at one checkpoint, or writes to it."""

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(dict(options))
        self._planned: Planned | None = None
        self._follows = any(name.casefold() == "readchangefeed" for name in options)
        self._followed: Followed | None = None
        if self._follows:
            from siltstone.spark.streams import followed  # noqa: PLC0415

            # The stream keeps the present columns, even if the table changes during the query.
            self._followed = followed(options)
        elif not _writes(options):
            # The state is pinned here, because Spark does not call `schema` if the user gives one,
            # and all uses of the DataFrame must read the state of its creation.
            from siltstone.spark.source import planned  # noqa: PLC0415 - not before it is used

            self._planned = planned(options)

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return "siltstone"

    def schema(self) -> StructType | str:
        """Returns the columns: those of a table, `key` and `value` of a database without columns,
        or those of the change feed."""
        if self._followed is not None:
            from siltstone.spark import feeds  # noqa: PLC0415

            return feeds.columns_of(self._followed.table)
        from siltstone.spark.source import columns_at, columns_of  # noqa: PLC0415

        if self._planned is None:
            return columns_at(self.options)
        return columns_of(self._planned)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Returns a reader of the columns of `schema`.

        :raises Invalid: if no database is named, or it lacks a column.
        """
        from siltstone.exceptions import Invalid  # noqa: PLC0415
        from siltstone.spark.source import planned, reader_for  # noqa: PLC0415

        if self._follows:
            raise Invalid(
                "changes are read as a stream; siltstone.spark.changes is a frame of them"
            )
        reads = self._planned or planned(self.options)
        if reads is None:
            from siltstone.spark.options import WAY  # noqa: PLC0415

            raise Invalid(f'which database? .load("s3://bucket/db"), or option("path", …). {WAY}')
        return reader_for(reads, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: ARG002, N802
        """Returns a reader of the change feed as a stream.

        :raises Invalid: as for `reader`, or without the option `readChangeFeed`.
        :raises Unsupported: before Spark 4.2.
        """
        from siltstone.exceptions import Invalid  # noqa: PLC0415
        from siltstone.spark.streams import stream_reader  # noqa: PLC0415

        if self._followed is None:
            raise Invalid(
                "what streams out of a database are its changes: option('readChangeFeed', 'true'), "
                "whose columns are kind, key, value, seq and time"
            )
        return stream_reader(self._followed)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Returns a writer of a DataFrame: `append`, or `overwrite`, which deletes all other rows.

        :raises Invalid: if no database is named, an option is unknown, or the columns do not match.
        """
        from siltstone.spark.sinks import batch_writer  # noqa: PLC0415

        return batch_writer(self.options, schema, overwrite)

    def streamWriter(  # noqa: N802 - Spark's name
        self, schema: StructType, overwrite: bool
    ) -> DataSourceStreamWriter:
        """Returns a writer of the batches of a stream. Each batch is written once, identified by
        the id of the query and the number of the batch.

        :raises Invalid: as for `writer`.
        :raises Unsupported: before Spark 4.1.
        """
        from siltstone.spark.sinks import stream_writer  # noqa: PLC0415

        return stream_writer(self.options, schema, overwrite)


def _writes(options: Mapping[str, str]) -> bool:
    """Whether the source is created for a write. Spark creates the writer of a batch in a separate
    process. A write of a stream has a checkpoint location, or another option that only writes have.
    """
    if "pyspark.sql.worker.write_into_data_source" in sys.modules:
        return True
    return any(name.casefold() in WRITES_ALONE for name in options)
