"""DataFrames over a database: scans and look-ups at one checkpoint."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

import siltstone
from siltstone._checkpoints import CheckpointLike
from siltstone._open import StoreOptionsSource, Url
from siltstone.exceptions import Invalid, Unsupported
from siltstone.merging import MergeOperatorSource
from siltstone.options import Options
from siltstone.spark._bounds import key_range
from siltstone.spark._columns import (
    COLUMNS,
    arrow_fields,
    folded,
    like_sparks,
    match,
    resolving_as,
    schema_of,
    struct_of,
    text_of,
)
from siltstone.spark._estimates import numbers, row_bytes
from siltstone.spark._matching import Key, check_pairs
from siltstone.spark._pins import reading
from siltstone.spark._ranges import Range, cuts, ranges
from siltstone.spark._tasks import (
    look_up,
    look_up_rows,
    read_ranges,
    reader_of,
    rows_found,
    values_of,
)

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

__all__ = ["get", "lookup", "scan"]

RANGE_BYTES = 128 << 20
"""What a task reads at least, where there is more than every slot can have: seconds of work."""
MOST_RANGES = 10_000
ROW_BYTES = 16
"""What a row takes in Spark at least, however well it is compressed here."""


def scan(
    spark: SparkSession,
    url: Url,
    *,
    checkpoint: CheckpointLike | None = None,
    where: Mapping[str, Any] | None = None,
    start: Any = None,
    end: Any = None,
    prefix: bytes | None = None,
    columns: Sequence[str] | None = None,
    partitions: int | None = None,
    as_bytes: bool = False,
    options: Options | Mapping[str, Any] | None = None,
    store_options: StoreOptionsSource | None = None,
    merge_operator: MergeOperatorSource | None = None,
) -> DataFrame:
    """The rows of a database, or of a range of it, as a DataFrame: of a table its columns, of a
    database of bytes `key` and `value`, both binary.

    All tasks of all jobs over the frame, and over whatever is derived from it, read one state: that
    of `checkpoint`, or what is durable now. Each task reads a range of keys in their order; the
    frame as a whole is not ordered as far as Spark knows.

    :param checkpoint: a `Checkpoint`, its id, or its name. None: one is made, and kept for as long
        as this process lives; `release()` lets it go before.
    :param where: of a table, what the key's first columns are equal to.
    :param start: the first key; None: from the first one. Of a table the column of the key that
        comes next is at this or behind it, in the order of the key.
    :param end: the key before which to stop; None: after the last one. Of a table likewise.
    :param prefix: what keys begin with, in place of `start` and `end`; not of a table.
    :param columns: those that are wanted, in this order; no others are decoded. None: all.
    :param partitions: tasks to read with; None: as many as there are slots, and more where a task
        would have more than 128 MiB.
    :param as_bytes: a table's keys and values as they are stored, as of a database of bytes.
    :param options: of the readers in the workers: `siltstone.Options`, or a dict. Their caches are
        small unless this says otherwise: a machine runs a worker a core.
    :param store_options: what the store is reached with: best the function that gives it, or its
        name, since a dict does not travel and workers then go by their environment.
    :param merge_operator: as for `siltstone.open_reader`; it travels.
    :raises Invalid: `prefix` together with a bound, no such column, less than one partition, a
        `memory://` database; `where` without columns, or of others than the key's first ones.
    :raises Unsupported: a column of a type that Spark has not without loss.
    :raises NotFound, Expired, Denied, Unavailable, Corruption: as `siltstone.open_reader`.
    """
    if partitions is not None and partitions < 1:
        raise Invalid(f"partitions is {partitions}, and at least one task reads")
    state = reading(url, checkpoint, options, store_options, merge_operator)
    with resolving_as(spark), state as (reader, held):
        table = None if as_bytes else text_of(reader)
        first, last = key_range(table, where, start, end, prefix)
        fields = fields_of(table, columns)
        pieces = split(reader, first, last, partitions or (lambda: slots(spark)))
        size = estimated(reader, first, last, fields, table)
    read = partial(read_ranges, reader=held.reader, ranges=pieces, fields=fields, table=table)
    return numbers(spark, len(pieces), size).mapInArrow(read, struct_of(fields))


def estimated(
    reader: siltstone.Reader,
    start: bytes | None,
    end: bytes | None,
    fields: pa.Schema,
    table: str | None,
) -> float:
    """Bytes of some columns of a range, from metadata."""
    whole = reader.approximate_size(start, end)
    everything = fields_of(None, None) if table is None else arrow_fields(table)
    share = min(1.0, row_bytes(fields) / row_bytes(everything))
    return max(whole.bytes * share, whole.rows * ROW_BYTES)


def fields_of(table: str | None, columns: Sequence[str] | None) -> pa.Schema:
    """The columns that are read.

    :raises Invalid: there is no such one. :raises Unsupported: Spark cannot hold it.
    """
    if table is not None:
        return like_sparks(table, columns)
    return pa.schema([pa.field(name, pa.binary()) for name in _columns(columns)])


def split(
    reader: siltstone.Reader,
    start: bytes | None,
    end: bytes | None,
    parts: int | Callable[[], int],
) -> list[Range]:
    """Ranges of about the same size that together are ``[start, end)``, one at least.

    :param parts: how many; or what says how many tasks run at once, and the size then decides.
    """
    first = next(iter(reader.scan(start, end, limit=1)), None)
    last = next(iter(reader.scan(start, end, reverse=True, limit=1)), None)
    if first is None or last is None:
        return [(start, end)]
    whole = reader.approximate_size(start, end).bytes
    if callable(parts):
        parts = min(max(math.ceil(whole / RANGE_BYTES), parts()), MOST_RANGES)

    def below(key: bytes) -> float:
        return reader.approximate_size(first[0], key).bytes if key > first[0] else 0

    return ranges(cuts(below, first[0], last[0], parts), start, end)


def slots(spark: SparkSession) -> int:
    """How many tasks run at once: what Spark cuts a range of numbers into when nobody says."""
    from pyspark.sql import functions as sf  # noqa: PLC0415 - the package does without pyspark

    tasks = spark.range(MOST_RANGES).select(sf.spark_partition_id().alias("task"))
    return int(tasks.agg(sf.max("task").alias("last")).collect()[0]["last"]) + 1


def _columns(columns: Sequence[str] | None) -> list[str]:
    if columns is None:
        return list(COLUMNS)
    found = [match(name, COLUMNS) for name in columns]
    known = [name for name in found if name is not None]
    if isinstance(columns, str) or None in found or not found or len(set(found)) < len(found):
        raise Invalid(f"columns is {columns!r}: a list of some of {', '.join(COLUMNS)}, each once")
    return known


def lookup(
    df: DataFrame,
    url: Url,
    *,
    key: Key,
    select: Mapping[str, str] | Sequence[str] | None = None,
    how: str = "left",
    checkpoint: CheckpointLike | None = None,
    as_bytes: bool = False,
    options: Options | Mapping[str, Any] | None = None,
    store_options: StoreOptionsSource | None = None,
    merge_operator: MergeOperatorSource | None = None,
) -> DataFrame:
    """`df` with what the database has of its keys beside them: a join that reads only what is asked
    for, one `get_many` a batch.

    All tasks read one state, as those of `scan`. Where there are many keys, give neighbours to one
    task: ``df.repartitionByRange(n, key)`` first.

    :param key: of a table the columns that stand for those of its key, in that order, and of the
        same types. A null is a null of the key's column; where that holds none it finds nothing.
        Of a database of bytes the column of keys: binary, or a string, which stands for its UTF-8;
        a null finds nothing.
    :param select: the columns that are added: of a table some of its own, None: all that are not of
        the key; of a database of bytes "value", which is binary. A dict names them anew,
        ``{"value": "price"}``.
    :param how: "left" keeps rows whose key is absent, with null; "inner" drops them.
    :param checkpoint, as_bytes: as for `scan`.
    :param options, store_options, merge_operator: as for `scan`.
    :raises Invalid: no such column, a key of another type, a name that `df` has already, another
        `how`; as `scan`.
    :raises Unsupported: as `scan`.
    :raises NotFound, Expired, Denied, Unavailable, Corruption: as `siltstone.open_reader`.
    """
    if how not in ("left", "inner"):
        raise Invalid(f'how is {how!r}: "left" or "inner"')
    state = reading(url, checkpoint, options, store_options, merge_operator)
    with resolving_as(df.sparkSession), state as (reader, held):
        table = None if as_bytes else text_of(reader)
        if table is None:
            fields, names = pa.schema([pa.field("value", pa.binary())]), [_selected(select)]
            chosen = _byte_key(df, key)
        else:
            fields, names = _chosen(table, select)
            chosen = list(check_pairs(df, table, key).values())
        _check_new(df, names)
    # A schema, and no text of one: names may hold anything.
    from pyspark.sql.types import StructType  # noqa: PLC0415

    schema = StructType([*df.schema.fields, *struct_of(fields, names).fields])
    keeps_absent = how == "left"
    if table is None:
        read = partial(look_up, key=chosen[0], value=names[0])
    else:
        read = partial(look_up_rows, table=table, key=chosen, found=(fields, names))
    return df.mapInArrow(partial(read, reader=held.reader, keeps_absent=keeps_absent), schema)


def _check_new(df: DataFrame, names: Sequence[str]) -> None:
    """Columns that are added are no others'."""
    there = {folded(name) for name in df.columns}
    for name in names:
        if folded(name) in there:
            raise Invalid(
                f"there is a column {name!r} already; name the new one, as in "
                f"select={{{name!r}: 'found'}}"
            )
        there.add(folded(name))


def _byte_key(df: DataFrame, key: Key) -> list[str]:
    """The column of keys of a database of bytes.

    :raises Invalid: there is none, several, or one of another type.
    """
    kinds = dict(df.dtypes)
    spoken = [key] if isinstance(key, str) else list(key)
    if len(spoken) != 1:
        raise Invalid(f"key is {key!r}, and the database has no columns: its keys are one column")
    named = match(spoken[0], kinds)
    if named is None:
        raise Invalid(f"there is no column {spoken[0]!r}; there are {', '.join(df.columns)}")
    if kinds[named] not in ("binary", "string"):
        raise Invalid(
            f"the column {named!r} is of type {kinds[named]}, and keys are binary or "
            "strings; cast it as it was when the rows were written"
        )
    return [named]


def _chosen(
    table: str, select: Mapping[str, str] | Sequence[str] | None
) -> tuple[pa.Schema, list[str]]:
    """Columns of a table, and what they are called in the answer.

    :raises Invalid: there is no such one; none at all.
    """
    schema = schema_of(table)
    if select is None:
        select = [name for name in schema.names if name not in schema.key] or schema.key
    fields = like_sparks(table, list(select) if isinstance(select, Mapping) else select, True)
    return fields, list(select.values()) if isinstance(select, Mapping) else fields.names


def _selected(select: Mapping[str, str] | Sequence[str] | None) -> str:
    """The name of the column of values."""
    if select is None:
        return "value"
    names = dict(select) if isinstance(select, Mapping) else {name: name for name in select}
    if [name.casefold() for name in names] != ["value"]:
        raise Invalid(
            f"select is {select!r}, and a database without a schema has one column, value: "
            "['value'], or {'value': 'another name'}"
        )
    (name,) = names.values()
    return name


def get(
    url: Url,
    *,
    columns: Sequence[str] | None = None,
    checkpoint: CheckpointLike | None = None,
    as_bytes: bool = False,
    options: Options | Mapping[str, Any] | None = None,
    store_options: StoreOptionsSource | None = None,
    merge_operator: MergeOperatorSource | None = None,
) -> Callable[..., Column]:
    """A column function: what the database has of a key, or null. Of a table it takes a column for
    each of the key's, and gives a struct of `columns`; of a database of bytes it takes one, and
    gives binary. For expressions, and for SQL once ``spark.udf.register("price", get(url))`` named
    it. For a whole column of keys `lookup` does the same at two thirds of the cost.

    :param columns: of a table, those that are wanted; None: all that are not of the key.
    :param checkpoint, as_bytes: as for `scan`.
    :param options, store_options, merge_operator: as for `scan`.
    :raises Invalid, NotFound, Expired, Denied, Unavailable, Corruption: as `scan`.
    :raises Unsupported: as `scan`; a table, before Spark 4.1.
    """
    state = reading(url, checkpoint, options, store_options, merge_operator)
    with state as (reader, held):
        table = None if as_bytes else text_of(reader)
        if table is not None:
            return _row_function(held.reader, table, _chosen(table, columns)[0])
        if columns is not None:
            raise Invalid(f"columns is {columns!r}, and the database has no columns, only bytes")
        return _column_function(held.reader)


def _row_function(reader: bytes, table: str, fields: pa.Schema) -> Callable[..., Column]:
    from pyspark.sql import functions as sf  # noqa: PLC0415

    arrow_udf: Any = getattr(sf, "arrow_udf", None)
    if arrow_udf is None:
        raise Unsupported(
            "a column function over a table needs Spark 4.1 or newer; siltstone.spark.lookup does "
            "the same for a frame"
        )
    expected = len(schema_of(table).key)

    def rows(*key: pa.Array) -> pa.Array:
        if len(key) != expected:
            raise Invalid(f"the key of the table has {expected} columns, and {len(key)} were given")
        columns, there = rows_found(reader_of(reader), table, key, fields)
        return pa.StructArray.from_arrays(columns, fields=list(fields), mask=pc.invert(there))

    rows.__annotations__ = {"key": pa.Array, "return": pa.Array}
    function: Callable[..., Column] = arrow_udf(rows, struct_of(fields))
    return function


def _column_function(reader: bytes) -> Callable[[Column | str], Column]:
    from pyspark.sql import functions as sf  # noqa: PLC0415

    # Of Spark 4.1. Types stand in the functions: Spark reads them.
    arrow_udf: Any = getattr(sf, "arrow_udf", None)
    made: Any
    if arrow_udf is not None:
        made = arrow_udf(_values(reader), "binary")
    else:
        import pandas as pd  # noqa: PLC0415
        from pyspark.sql.pandas import functions as of_pyspark  # noqa: PLC0415

        def of_pandas(keys: pd.Series) -> pd.Series:
            found = values_of(reader_of(reader), pa.Array.from_pandas(keys))
            return pd.Series(found.to_pylist(), dtype="object")

        of_pandas.__annotations__ = {"keys": pd.Series, "return": pd.Series}
        # Its type wants one of a dozen forms, by numbers.
        pandas_udf: Any = of_pyspark.pandas_udf
        made = pandas_udf(of_pandas, "binary")
    function: Callable[[Column | str], Column] = made
    return function


def _values(reader: bytes) -> Callable[[pa.Array], pa.Array]:
    """Values of an array of keys, at the state that `reader` is of."""

    def values(keys: pa.Array) -> pa.Array:
        return values_of(reader_of(reader), keys)

    values.__annotations__ = {"keys": pa.Array, "return": pa.Array}
    return values
