"""Behind the data source `format("siltstone")` (`pyspark_siltstone`): what its options mean, and
what reads.

Spark builds a source once for a DataFrame, at `load()`, in a process of its own, sends it to other
such processes for planning, and its reader to the workers. So whatever they need is a plain value.
"""

from __future__ import annotations

import os
import pickle
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import BinaryType, StructType

import siltstone
from siltstone.exceptions import Invalid
from siltstone.spark.columns import like_sparks, spark_types, struct_of, text_of
from siltstone.spark.frames import COLUMNS, bounds, fields_of, split
from siltstone.spark.options import flag, key_of, number, span, understood
from siltstone.spark.pins import SMALL
from siltstone.spark.pruning import narrowed, range_of
from siltstone.spark.workers import reader_of, rows, table_rows

__all__ = ["OPTIONS", "Planned", "columns_of", "planned", "reader_for"]

OPTIONS = {
    "path": "the database",
    "checkpoint": "an id or a name to read at",
    "versionAsOf": "the number of a manifest that is still kept",
    "timestampAsOf": "the newest kept manifest of that time or before, ISO 8601 with its zone",
    "prefix": "what keys begin with",
    "start": "the first key",
    "end": "the key before which to stop",
    "numPartitions": "tasks to read with",
    "checkpointLifetime": "seconds that a checkpoint made here lives after the last action",
    "asBytes": "true: keys and values of a table as they are stored",
    "filterPushdown": "true: filters on the first columns of a table's key narrow what is read",
    "storeOptions": "the function that gives store options, as module:function",
}
"""By the names that users write; Spark lowers them on the way."""
LIFETIME = 86_400.0
"""Of a checkpoint that is made here: nobody refreshes it while no action plans."""


@dataclass(frozen=True)
class Planned:
    """What is read: plain values, for the processes that plan and for the workers."""

    url: str
    store_options: str | None
    reader: bytes
    """A pickled `siltstone.Reader` at one state."""
    refreshed: tuple[str, float] | None
    """The checkpoint that was made for it, and its lifetime; None: it is somebody else's."""
    start: bytes | None
    end: bytes | None
    partitions: int | None
    table: str | None
    """The schema of a table whose columns are read; None: keys and values."""
    pushes: bool


def columns_of(planned: Planned) -> StructType:
    """The columns that there are.

    :raises Unsupported: one that Spark cannot hold.
    """
    return struct_of(fields_of(planned.table, None))


def reader_for(planned: Planned, schema: StructType) -> DataSourceReader:
    """Reads the columns of `schema`, which are some of those that there are.

    :raises Invalid: it asks for another one, or another type.
    """
    if planned.table is not None:
        fields = _fields(planned.table, schema)
        # Where Spark's own switch is off it refuses a reader that takes filters, and no reader sees
        # the switch; but only where it is on does Spark ask from this module.
        pushing = (
            planned.pushes and "pyspark.sql.worker.data_source_pushdown_filters" in sys.modules
        )
        return (PrunedReader if pushing else RangeReader)(planned, fields)
    for field in schema.fields:
        if field.name not in COLUMNS or not isinstance(field.dataType, BinaryType):
            raise Invalid(
                f"the schema asks for {field.simpleString()}; a database without a schema has "
                "key and value, both binary"
            )
    named = [pa.field(field.name, pa.binary(), field.nullable) for field in schema.fields]
    return RangeReader(planned, pa.schema(named))


def _fields(table: str, schema: StructType) -> pa.Schema:
    """Columns of a table, as the schema that is asked for has them.

    :raises Invalid: there is no such one, or it is of another type.
    """
    fields = []
    for field in schema.fields:
        ours = like_sparks(table, [field.name]).field(0)
        wanted = spark_types(table)[field.name]
        if field.dataType.simpleString() != wanted:
            raise Invalid(
                f"the schema asks for {field.simpleString()}, and the column of the table is of "
                f"type {wanted}; read it so, and cast it then"
            )
        fields.append(ours.with_nullable(field.nullable))
    return pa.schema(fields)


class RangeReader(DataSourceReader):
    """Reads ranges of one state.

    It takes no filters. Spark 4.3 keeps what a query pushed with the frame, and gives it to the
    next query that pushes nothing: that one would miss rows.
    """

    def __init__(self, planned: Planned, fields: pa.Schema) -> None:
        self.planned = planned
        self.fields = fields

    def partitions(self) -> list[InputPartition]:
        """One range a task. Called for each action, so it also keeps the checkpoint alive."""
        planned = self.planned
        if planned.refreshed is not None:
            checkpoint, lifetime = planned.refreshed
            siltstone.admin.refresh_checkpoint(
                planned.url, checkpoint, lifetime=lifetime, store_options=planned.store_options
            )
        reader = reader_of(planned.reader)
        pieces = split(reader, planned.start, planned.end, planned.partitions or _processors)
        return [InputPartition(piece) for piece in pieces]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one range."""

        start, end = partition.value
        reader, table = reader_of(self.planned.reader), self.planned.table
        if table is None:
            return rows(reader, start, end, self.fields)
        return table_rows(reader, start, end, table, self.fields)


class PrunedReader(RangeReader):
    """Takes filters, for frames that say that one query alone reads them: whatever Spark keeps is
    that query's."""

    def pushFilters(self, filters: list[Any]) -> Iterator[Any]:  # noqa: N802 - Spark's name
        """Narrows what is read; Spark looks at all filters again."""
        planned = self.planned
        if planned.table is not None:
            inner = narrowed((planned.start, planned.end), range_of(planned.table, filters))
            self.planned = replace(planned, start=inner[0], end=inner[1])
        return iter(filters)


def planned(options: Mapping[str, str]) -> Planned | None:
    """What a frame with these options reads, at a state that is pinned now; None without a path,
    which is said when something is read, and where the options are those of a frame that is
    written.

    :raises Invalid: an option that there is not, or what it does not take.
    :raises NotFound, Expired, Denied, Unavailable, Corruption: as `siltstone.open_reader`.
    """
    asked = understood(options, OPTIONS, "a frame is read")
    if "path" not in asked:
        return None
    url, provider = asked["path"], asked.get("storeOptions")
    places = [name for name in ("checkpoint", "versionAsOf", "timestampAsOf") if name in asked]
    if len(places) > 1:
        raise Invalid(f"{' and '.join(places)} exclude each other: a frame reads one state")
    if url.startswith("memory:"):
        raise Invalid(
            "a memory:// database is in one process, and Spark works in others; use a folder or a "
            "bucket that all of them reach"
        )
    start, end = bounds(*(key_of(asked, name) for name in ("start", "end", "prefix")))
    count = number(asked, "numPartitions", int)
    lifetime = span(asked, "checkpointLifetime") or LIFETIME
    checkpoint: Any = asked.get("checkpoint")
    version = number(asked, "versionAsOf", int)
    refreshed = None
    if "timestampAsOf" in asked:
        version = _version_at(url, provider, asked["timestampAsOf"])
    elif not places:
        checkpoint = siltstone.admin.create_checkpoint(
            url,
            lifetime=lifetime,
            metadata={"made_by": "siltstone.spark"},
            store_options=provider,
        )
        refreshed = (checkpoint.id.hex, lifetime)
    with siltstone.open_reader(
        url, checkpoint=checkpoint, version=version, options=SMALL, store_options=provider
    ) as reader:
        table = None if flag(asked, "asBytes") else text_of(reader)
        if table is not None and "prefix" in asked:
            raise Invalid(
                "prefix is of keys that are bytes, and the database is a table: filter its "
                "columns, or read it with asBytes"
            )
        pushes = flag(asked, "filterPushdown")
        state = pickle.dumps(reader)
        return Planned(url, provider, state, refreshed, start, end, count, table, pushes)


def _version_at(url: str, provider: str | None, text: str) -> int:
    """The newest manifest that is kept and no younger than a moment."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise Invalid(
            f"timestampAsOf is {text!r}: ISO 8601 with its zone, as 2026-03-01T12:00:00+00:00"
        )
    versions = siltstone.admin.versions(url, store_options=provider)
    before = [version.id for version in versions if version.time <= moment]
    if not before:
        raise siltstone.NotFound(f"no manifest of {text} or before is kept; see admin.versions")
    return max(before)


def _processors() -> int:
    """Planning sees no session: as many tasks as this machine has processors."""
    return os.cpu_count() or 1
