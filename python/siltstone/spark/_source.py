"""Behind the data source `format("siltstone")` (`pyspark_siltstone`): what its options mean, and
what reads.

Spark builds a source once for a DataFrame, at `load()`, in a process of its own, sends it to other
such processes for planning, and its reader to the workers. So whatever they need is a plain value.
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import BinaryType, StructType

import siltstone
from siltstone.exceptions import Invalid, Unsupported
from siltstone.spark._columns import COLUMNS, like_sparks, match, spark_types, struct_of, text_of
from siltstone.spark._history import Place, at_time, at_version
from siltstone.spark._matching import table_at
from siltstone.spark._options import flag, key_of, number, range_between, span, understood
from siltstone.spark._pins import SMALL, pin
from siltstone.spark._ranges import Range
from siltstone.spark._scan import bounds, fields_of, split
from siltstone.spark._tasks import reader_of, rows, table_rows

__all__ = ["OPTIONS", "Planned", "columns_at", "columns_of", "planned", "reader_for"]

OPTIONS = {
    "path": "the database",
    "checkpoint": "an id or a name to read at",
    "versionAsOf": "the number of a manifest that is still kept",
    "timestampAsOf": "a time, ISO 8601 with its zone: all that was committed by then",
    "prefix": "what keys begin with",
    "start": "the first key; of a table a value of the first column of its key",
    "end": "the key before which to stop; of a table likewise",
    "numPartitions": "tasks to read with",
    "checkpointLifetime": "seconds that a checkpoint made here lives after the last action",
    "asBytes": "true: keys and values of a table as they are stored",
    "filterPushdown": "false: true is refused, since Spark gives wrong rows with it",
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


def columns_of(planned: Planned) -> StructType:
    """The columns that there are.

    :raises Unsupported: one that Spark cannot hold.
    """
    return struct_of(fields_of(planned.table, None))


def columns_at(options: Mapping[str, str]) -> StructType:
    """The columns of the database that options of writing name: a view that is inserted into has
    those of its table. Without a path, or without a database, key and value.

    :raises Denied, Unavailable: as their texts say.
    """
    asked = {name.casefold(): value for name, value in options.items()}
    table = None
    if "path" in asked:
        as_bytes = asked.get("asbytes", "false").casefold() == "true"
        with suppress(siltstone.NotFound):
            table = table_at(asked["path"], None, as_bytes, asked.get("storeoptions"))
    return struct_of(fields_of(table, None))


def reader_for(planned: Planned, schema: StructType) -> DataSourceReader:
    """Reads the columns of `schema`, which are some of those that there are.

    :raises Invalid: it asks for another one, or another type.
    """
    if planned.table is not None:
        return RangeReader(planned, _fields(planned.table, schema))
    for field in schema.fields:
        if match(field.name, COLUMNS) is None or not isinstance(field.dataType, BinaryType):
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
        wanted = spark_types(table)[ours.name]
        if field.dataType.simpleString() != wanted:
            raise Invalid(
                f"the schema asks for {field.simpleString()}, and the column of the table is of "
                f"type {wanted}; read it so, and cast it then"
            )
        fields.append(ours.with_nullable(field.nullable).with_name(field.name))
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
            pin(planned.url, planned.store_options, lifetime, checkpoint)
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
    if flag(asked, "filterPushdown"):
        raise Unsupported(
            "filterPushdown is refused: Spark keeps the filters of one query with the frame and "
            "applies them to the next query over it, which then misses rows. Name the range that "
            "is read by start and end, or by siltstone.spark.scan(spark, url, where={…})"
        )
    count = number(asked, "numPartitions", int)
    lifetime = span(asked, "checkpointLifetime") or LIFETIME
    at, refreshed = _state(asked, lifetime)
    with siltstone.open_reader(url, **at, options=SMALL, store_options=provider) as reader:
        table = None if flag(asked, "asBytes") else text_of(reader)
        start, end = _range(asked, table)
        state = pickle.dumps(reader)
        return Planned(url, provider, state, refreshed, start, end, count, table)


def _state(
    asked: Mapping[str, str], lifetime: float
) -> tuple[dict[str, Any], tuple[str, float] | None]:
    """Where the reader is opened, and the checkpoint that was made for it."""
    url, provider = asked["path"], asked.get("storeOptions")
    if "checkpoint" in asked:
        return {"checkpoint": asked["checkpoint"]}, None
    version = number(asked, "versionAsOf", int)
    if version is not None:
        place = at_version(url, version, provider, lifetime)
    elif "timestampAsOf" in asked:
        place = at_time(url, asked["timestampAsOf"], provider, lifetime)
    else:
        place = Place(pin(url, provider, lifetime))
    at: dict[str, Any] = {"checkpoint": place.lease}
    if place.version is not None:
        at = {"version": place.version}
    return at, (place.lease.id.hex, lifetime)


def _range(asked: Mapping[str, str], table: str | None) -> Range:
    """The range of keys that the options name.

    :raises Invalid: a prefix of a table, or beside a bound; a bound that is no value of the column.
    """
    if table is not None and "prefix" in asked:
        raise Invalid(
            "prefix is of keys that are bytes, and the database is a table: filter its "
            "columns, or read it with asBytes"
        )
    start, end = range_between(asked, "start", "end", table)
    return (start, end) if table is not None else bounds(start, end, key_of(asked, "prefix"))


def _processors() -> int:
    """Planning sees no session: as many tasks as this machine has processors."""
    return os.cpu_count() or 1
