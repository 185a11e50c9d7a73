"""Reading by the data source `format("siltstone")`: its options and its reader.

Spark makes one source for a DataFrame, at `load()`, in a process of its own. It pickles the source
for other processes that plan, and sends its reader to the workers. So all state is plain values.
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
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    CharType,
    DataType,
    MapType,
    StringType,
    StructType,
    VarcharType,
)

import siltstone
from siltstone.exceptions import Invalid, NotFound, Unsupported
from siltstone.spark import _sink
from siltstone.spark._arguments import MOST_TASKS
from siltstone.spark._bounds import bounds
from siltstone.spark._columns import (
    COLUMNS,
    case_sensitivity,
    explained_absence,
    match,
    schema_text,
    spark_fields,
    spark_type,
    struct_of,
    text_of,
)
from siltstone.spark._history import Place, at_time, at_version
from siltstone.spark._matching import table_at
from siltstone.spark._options import duration, flag, key_of, number, parse_options, range_between
from siltstone.spark._pins import SMALL, pin
from siltstone.spark._ranges import Range
from siltstone.spark._scan import fields_of, split
from siltstone.spark._tasks import reader_of, rows, table_rows

__all__ = [
    "OPTIONS",
    "Planned",
    "columns_at",
    "columns_of",
    "planned",
    "planned_if_there",
    "reader_for",
]

OPTIONS = {
    "path": "URL of the database",
    "checkpoint": "id or name of the checkpoint to read at",
    "versionAsOf": "number of a manifest that is still kept",
    "timestampAsOf": "a time, ISO 8601 with its zone: all rows that were committed by then",
    "prefix": "prefix of the keys",
    "start": "the first key; for a table a value of the first column of its key",
    "end": "the exclusive end of the keys; for a table likewise",
    "numPartitions": "number of tasks",
    "checkpointLifetime": "life of the pinned checkpoint: seconds, or a duration such as 2h",
    "asBytes": "true: keys and values of a table as they are stored",
    "caseSensitive": "true: column names are compared with their case",
    "filterPushdown": "false: true is refused, because Spark returns wrong rows with it",
    "storeOptions": "the function that gives store options, as module:function",
}
"""The options by the names that users write. Spark converts them to lower case."""
WRITE_OPTIONS = tuple(name for name in _sink.OPTIONS if name not in OPTIONS)
"""Options that only writing has. A view that is also inserted into may have them."""
NO_CHAR = (
    "Spark takes no CHAR or VARCHAR from a data source in Python: declare the column as STRING"
)
"""The remedy for a column that a view or a schema declares so. Spark calls the source with that
type at the first read, and not when the view is made."""
LIFETIME = 86_400.0
"""Seconds that a checkpoint made here lives. Nothing refreshes it between actions."""


@dataclass(frozen=True)
class Planned:
    """The description of a read: plain values, for the processes that plan and the workers."""

    url: str
    store_options: str | None
    reader: bytes
    """A pickled `siltstone.Reader` at one state."""
    refreshed: tuple[str, float] | None
    """The checkpoint that was made for this frame, and its lifetime. None: the user's own."""
    start: bytes | None
    end: bytes | None
    partitions: int | None
    table: str | None
    """The schema of a table whose columns are read; None: keys and values."""
    exact: bool = False
    """Whether names are compared with their case."""


def columns_of(planned: Planned) -> StructType:
    """The columns of the database.

    :raises Unsupported: Spark cannot hold one of them.
    """
    return struct_of(fields_of(planned.table, None))


def columns_at(options: Mapping[str, str]) -> StructType:
    """The columns of the database that the options of a write name, for a view that is inserted
    into. Without a path, or without a database, they are key and value.

    :raises Denied, Unavailable: as `siltstone.admin.manifest`.
    """
    asked = {name.casefold(): value for name, value in options.items()}
    table = None
    if "path" in asked:
        as_bytes = asked.get("asbytes", "false").casefold() == "true"
        with suppress(siltstone.NotFound):
            table = table_at(asked["path"], None, as_bytes, asked.get("storeoptions"))
    return struct_of(fields_of(table, None))


def reader_for(planned: Planned, schema: StructType) -> DataSourceReader:
    """The reader of the columns of `schema`. It decodes no others.

    :raises Invalid: the database has no such column, or it has another type.
    """
    with case_sensitivity(planned.exact):
        return RangeReader(planned, _asked_fields(planned, schema))


def _asked_fields(planned: Planned, schema: StructType) -> pa.Schema:
    if planned.table is not None:
        return _fields(planned.table, schema)
    kinds = {BinaryType: pa.binary(), StringType: pa.string()}
    fields = []
    for field in schema.fields:
        kind = kinds.get(type(field.dataType))
        if isinstance(field.dataType, CharType | VarcharType):
            raise Invalid(f"the schema asks for {field.simpleString()}. {NO_CHAR}")
        if match(field.name, COLUMNS) is None or kind is None:
            raise Invalid(
                f"the schema asks for {field.simpleString()}; a database without a schema has "
                "key and value, each binary, or string for UTF-8. Leave the schema out, and name "
                "and cast the columns in the query: SELECT string(key) AS id, "
                "int(string(value)) AS n. In SQL: CREATE TEMPORARY VIEW without a list of columns"
            )
        fields.append(pa.field(field.name, kind, field.nullable))
    return pa.schema(fields)


def _fields(table: str, schema: StructType) -> pa.Schema:
    """The columns of a table with the names and nullability of `schema`, also of nested parts.

    :raises Invalid: the table has no such column, or it has another type.
    """
    fields = []
    for field in schema.fields:
        ours = spark_fields(table, [field.name]).field(0)
        wanted = spark_type(table, ours.name)
        if field.dataType.simpleString() != wanted:
            remedy = "read it so, and cast it then"
            if isinstance(field.dataType, CharType | VarcharType):
                remedy = NO_CHAR
            raise Invalid(
                f"the schema asks for {field.simpleString()}, and the column of the table is of "
                f"type {wanted}; {remedy}"
            )
        kind = _nullable_as(ours.type, field.dataType)
        fields.append(pa.field(field.name, kind, field.nullable))
    return pa.schema(fields)


def _nullable_as(kind: pa.DataType, asked: DataType) -> pa.DataType:
    """The type whose parts may hold nulls where those of `asked` may. Otherwise the types are the
    same. Spark refuses batches whose types differ in this from those that it asked for."""
    match asked:
        case ArrayType():
            return pa.list_(_part_as(kind.value_field, asked.elementType, asked.containsNull))
        case MapType():
            value = _part_as(kind.item_field, asked.valueType, asked.valueContainsNull)
            return pa.map_(_nullable_as(kind.key_type, asked.keyType), value)
        case StructType():
            pairs = zip(kind, asked.fields, strict=True)
            return pa.struct([_part_as(one, part.dataType, part.nullable) for one, part in pairs])
        case _:
            return kind


def _part_as(field: pa.Field, asked: DataType, nullable: bool) -> pa.Field:
    return field.with_type(_nullable_as(field.type, asked)).with_nullable(nullable)


class RangeReader(DataSourceReader):
    """Reads key ranges of one state.

    It takes no filters. Spark 4.3 keeps the filters that one query pushed with the frame, and
    applies them to the next query that pushes none. That query would miss rows.
    """

    def __init__(self, planned: Planned, fields: pa.Schema) -> None:
        self.planned = planned
        self.fields = fields

    def partitions(self) -> list[InputPartition]:
        """One range for each task. Spark calls this for each action, so it also refreshes the
        checkpoint."""
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


def planned_if_there(options: Mapping[str, str]) -> Planned | None:
    """As `planned`. None also if there is no database: the first write may create it, and a reader
    raises NotFound."""
    try:
        return planned(options)
    except NotFound:
        # A version or a moment that is not kept is an error at once.
        if _has_database(options):
            raise
        return None


def _has_database(options: Mapping[str, str]) -> bool:
    """Whether there is a database at the path of the options."""
    given = parse_options(options, OPTIONS, "a frame is read", WRITE_OPTIONS)
    try:
        schema_text(given["path"], given.get("storeOptions"))
    except NotFound:
        return False
    return True


def planned(options: Mapping[str, str]) -> Planned | None:
    """Pins the state that a frame with these options reads. None without a path; the reader raises
    the error for that.

    :raises Invalid: an unknown option or value.
    :raises NotFound, Expired, Denied, Unavailable, Corruption: as `siltstone.open_reader`.
    """
    asked = parse_options(options, OPTIONS, "a frame is read", WRITE_OPTIONS)
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
    count = number(asked, "numPartitions", most=MOST_TASKS)
    lifetime = duration(asked, "checkpointLifetime") or LIFETIME
    with explained_absence():
        at, refreshed = _state(asked, lifetime)
        opened = siltstone.open_reader(url, **at, options=SMALL, store_options=provider)
    exact = flag(asked, "caseSensitive")
    with opened as reader:
        table = None if flag(asked, "asBytes") else text_of(reader)
        start, end = _range(asked, table)
        state = pickle.dumps(reader)
        return Planned(url, provider, state, refreshed, start, end, count, table, exact)


def _state(
    asked: Mapping[str, str], lifetime: float
) -> tuple[dict[str, Any], tuple[str, float] | None]:
    """The state at which the reader is opened, and the checkpoint that was made for it."""
    url, provider = asked["path"], asked.get("storeOptions")
    if "checkpoint" in asked:
        return {"checkpoint": asked["checkpoint"]}, None
    version = number(asked, "versionAsOf")
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

    :raises Invalid: a prefix for a table or beside a bound; a bound of another type.
    """
    if table is not None and "prefix" in asked:
        raise Invalid(
            "prefix is for keys that are bytes, and the database is a table: filter its "
            "columns, or read it with asBytes"
        )
    start, end = range_between(asked, "start", "end", table)
    return (start, end) if table is not None else bounds(start, end, key_of(asked, "prefix"))


def _processors() -> int:
    """The default number of tasks: that of the processors here. Planning has no session to ask."""
    return os.cpu_count() or 1
