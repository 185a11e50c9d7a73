"""The data source `format("siltstone")` of Spark 4.0 and newer.

When a data source in Python is first used, Spark imports every top-level module whose name begins
with `pyspark_` and registers its `DefaultSource`. So this source needs no registration. Sessions
that never use the source import this module too, so it must import nothing of `siltstone` before a
database is named.
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

    from siltstone.spark._source import Planned
    from siltstone.spark._stream import Followed

__all__ = ["DefaultSource"]

STREAM_OPTIONS = ("checkpointlocation", "queryname")
"""Options of Spark's own that only the writer of a stream has. Spark asks a source for its columns
before it writes a stream, as before it reads."""
PLANS_WRITES = "pyspark.sql.worker.write_into_data_source"
"""The main module of the process in which Spark makes the writer of a batch (4.0 to 4.3). It is not
documented. In a process of another version an instance that only writes also pins a checkpoint, as
one that reads does; nothing else differs."""


class DefaultSource(DataSource):
    """``format("siltstone")``: reads a database at one checkpoint, or writes to it."""

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(dict(options))
        self._planned: Planned | None = None
        self._follows = any(name.casefold() == "readchangefeed" for name in options)
        self._followed: Followed | None = None
        if self._follows:
            from siltstone.spark._stream import followed  # noqa: PLC0415

            # The columns are those of this moment, even if the table gets others later.
            self._followed = followed(options)
        elif not _writes(options):
            # The state is pinned here, because `schema` is not called if the user gives a schema.
            # All actions over the frame read this state.
            from siltstone.spark._source import planned_if_there  # noqa: PLC0415

            self._planned = planned_if_there(options)

    @classmethod
    def name(cls) -> str:
        """The name that `format` takes."""
        return "siltstone"

    def schema(self) -> StructType | str:
        """The columns: of a table, of a database of bytes, or of changes. A path without a database
        has those of a database of bytes, so that a view can be inserted into."""
        if self._followed is not None:
            from siltstone.spark import _changes  # noqa: PLC0415

            return _changes.columns_of(self._followed.table)
        from siltstone.spark._source import columns_at, columns_of  # noqa: PLC0415

        if self._planned is None:
            return columns_at(self.options)
        return columns_of(self._planned)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Returns the reader of the columns of `schema`.

        :raises Invalid: no database was named, or it has no such columns.
        :raises NotFound: there is no database. The text says how to create it.
        """
        from siltstone.exceptions import Invalid  # noqa: PLC0415
        from siltstone.spark._source import planned, reader_for  # noqa: PLC0415

        if self._follows:
            raise Invalid(
                "changes are read as a stream; siltstone.spark.changes is a frame of them"
            )
        reads = self._planned or planned(self.options)
        if reads is None:
            from siltstone.spark._options import CREATE_VIEW  # noqa: PLC0415

            raise Invalid(
                'no database is named: .load("s3://bucket/db"), or option("path", …). '
                f"{CREATE_VIEW}"
            )
        return reader_for(reads, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: ARG002, N802
        """Returns the reader of the change feed as a stream.

        :raises Invalid: as `reader`; the option `readChangeFeed` is missing.
        :raises Unsupported: before Spark 4.2.
        """
        from siltstone.exceptions import Invalid  # noqa: PLC0415
        from siltstone.spark._stream import stream_reader  # noqa: PLC0415

        if self._followed is None:
            raise Invalid(
                "a stream reads the changes of a database: option('readChangeFeed', 'true'). Its "
                "columns are kind, key, value, seq and time"
            )
        return stream_reader(self._followed)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Returns the writer of a frame: `append`, or `overwrite`, which deletes all other rows.

        :raises Invalid: no database was named; an unknown option; columns that do not match.
        """
        from siltstone.spark._sink import batch_writer  # noqa: PLC0415

        return batch_writer(self.options, schema, overwrite)

    def streamWriter(  # noqa: N802 - Spark's name
        self, schema: StructType, overwrite: bool
    ) -> DataSourceStreamWriter:
        """Returns the writer of a stream's batches. It writes each batch once, identified by the
        query's id and the batch's id.

        :raises Invalid: as `writer`.
        :raises Unsupported: before Spark 4.1.
        """
        from siltstone.spark._sink import stream_writer  # noqa: PLC0415

        return stream_writer(self.options, schema, overwrite)


def _writes(options: Mapping[str, str]) -> bool:
    """Whether this instance is made to write: in the process that makes a batch's writer, or with
    an option of a stream's writer. Options of writing such as `keyColumn` do not tell: a view that
    is inserted into has them, and is read."""
    names = {name.casefold() for name in options}
    return PLANS_WRITES in sys.modules or not names.isdisjoint(STREAM_OPTIONS)
