"""The data source `format("siltstone")` of Spark 4.0 and newer.

When a data source written in Python is first asked for, Spark imports every top-level module whose
name begins with `pyspark_` and takes its `DefaultSource`: so this one needs no registration.
Nothing of `siltstone` is imported before a database is named, since sessions that never read one
load this, too.
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
"""Options that no frame which is read has."""


class DefaultSource(DataSource):
    """``format("siltstone")``: a database read at one checkpoint, or written into."""

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(dict(options))
        self._planned: Planned | None = None
        self._follows = any(name.casefold() == "readchangefeed" for name in options)
        self._followed: Followed | None = None
        if self._follows:
            from siltstone.spark._stream import followed  # noqa: PLC0415

            # Its columns are those of now, whatever the table gets while the query runs.
            self._followed = followed(options)
        elif not _writes(options):
            # Here and nowhere later: `schema` is not asked for where the user gives one, and all
            # that comes from this frame reads what is pinned now.
            from siltstone.spark._source import planned  # noqa: PLC0415 - not before it is used

            self._planned = planned(options)

    @classmethod
    def name(cls) -> str:
        """What stands in `format`."""
        return "siltstone"

    def schema(self) -> StructType | str:
        """The columns of a table; both of a database of bytes; those of changes where they are
        read."""
        if self._followed is not None:
            from siltstone.spark import _changes  # noqa: PLC0415

            return _changes.columns_of(self._followed.table)
        from siltstone.spark._source import columns_at, columns_of  # noqa: PLC0415

        if self._planned is None:
            return columns_at(self.options)
        return columns_of(self._planned)

    def reader(self, schema: StructType) -> DataSourceReader:
        """What reads the columns of `schema`.

        :raises Invalid: no database was named, or it has no such columns.
        """
        from siltstone.exceptions import Invalid  # noqa: PLC0415
        from siltstone.spark._source import planned, reader_for  # noqa: PLC0415

        if self._follows:
            raise Invalid(
                "changes are read as a stream; siltstone.spark.changes is a frame of them"
            )
        reads = self._planned or planned(self.options)
        if reads is None:
            from siltstone.spark._options import WAY  # noqa: PLC0415

            raise Invalid(f'which database? .load("s3://bucket/db"), or option("path", …). {WAY}')
        return reader_for(reads, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: ARG002, N802
        """What reads the change feed as a stream.

        :raises Invalid: as `reader`; `readChangeFeed` was not asked for.
        :raises Unsupported: before Spark 4.2.
        """
        from siltstone.exceptions import Invalid  # noqa: PLC0415
        from siltstone.spark._stream import stream_reader  # noqa: PLC0415

        if self._followed is None:
            raise Invalid(
                "what streams out of a database are its changes: option('readChangeFeed', 'true'), "
                "whose columns are kind, key, value, seq and time"
            )
        return stream_reader(self._followed)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """What writes a frame: `append`, or `overwrite`, which deletes whatever else is there.

        :raises Invalid: no database was named; an option that there is not; columns that do not
            fit.
        """
        from siltstone.spark._sink import batch_writer  # noqa: PLC0415

        return batch_writer(self.options, schema, overwrite)

    def streamWriter(  # noqa: N802 - Spark's name
        self, schema: StructType, overwrite: bool
    ) -> DataSourceStreamWriter:
        """What writes a stream's batches, each once, by the query's id and the batch's.

        :raises Invalid: as `writer`.
        :raises Unsupported: before Spark 4.1.
        """
        from siltstone.spark._sink import stream_writer  # noqa: PLC0415

        return stream_writer(self.options, schema, overwrite)


def _writes(options: Mapping[str, str]) -> bool:
    """Whether it is made to write. A batch's writers are made in a process of their own; what says
    that a stream is written is where it keeps its checkpoints, or an option of writing alone."""
    if "pyspark.sql.worker.write_into_data_source" in sys.modules:
        return True
    return any(name.casefold() in WRITES_ALONE for name in options)
