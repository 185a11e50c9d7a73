"""DataFrames over a database: scans and look-ups at one checkpoint."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

import siltstone
from siltstone.checkpoints import CheckpointLike
from siltstone.exceptions import Invalid
from siltstone.merging import MergeOperatorSource
from siltstone.opening import StoreOptionsSource, Url
from siltstone.options import Options
from siltstone.spark.pins import pinned
from siltstone.spark.ranges import Range, cuts, ranges
from siltstone.spark.workers import look_up, read_ranges, reader_of, values_of

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

__all__ = ["get", "lookup", "scan"]

RANGE_BYTES = 128 << 20
"""What a task reads at least, where there is more than every slot can have: seconds of work."""
MOST_RANGES = 10_000
COLUMNS = ("key", "value")
"""Of a database without a schema; both are `binary`."""


def scan(
    spark: SparkSession,
    url: Url,
    *,
    checkpoint: CheckpointLike | None = None,
    start: bytes | None = None,
    end: bytes | None = None,
    prefix: bytes | None = None,
    columns: Sequence[str] | None = None,
    partitions: int | None = None,
    options: Options | Mapping[str, Any] | None = None,
    store_options: StoreOptionsSource | None = None,
    merge_operator: MergeOperatorSource | None = None,
) -> DataFrame:
    """The rows of a database, or of a range of it, as a DataFrame of `key` and `value`, both
    binary.

    All tasks of all jobs over the frame, and over whatever is derived from it, read one state: that
    of `checkpoint`, or what is durable now. Each task reads a range of keys in their order; the
    frame as a whole is not ordered as far as Spark knows.

    :param checkpoint: a `Checkpoint`, its id, or its name. None: one is made, and kept for as long
        as this process lives; `release()` lets it go before.
    :param start: the first key; None: from the first one.
    :param end: the key before which to stop; None: after the last one.
    :param prefix: what keys begin with, in place of `start` and `end`.
    :param columns: those that are wanted, of "key" and "value"; None: both.
    :param partitions: tasks to read with; None: as many as there are slots, and more where a task
        would have more than 128 MiB.
    :param options: of the readers in the workers: `siltstone.Options`, or a dict. Their caches are
        small unless this says otherwise: a machine runs a worker a core.
    :param store_options: what the store is reached with: best the function that gives it, or its
        name, since a dict does not travel and workers then go by their environment.
    :param merge_operator: as for `siltstone.open_reader`; it travels.
    :raises Invalid: `prefix` together with a bound, no such column, less than one partition, a
        `memory://` database.
    :raises NotFound, Expired, Denied, Unavailable, Corruption: as `siltstone.open_reader`.
    """
    wanted = _columns(columns)
    if partitions is not None and partitions < 1:
        raise Invalid(f"partitions is {partitions}, and at least one task reads")
    start, end = bounds(start, end, prefix)
    reader, held = pinned(url, checkpoint, options, store_options, merge_operator)
    with reader:
        pieces = split(reader, start, end, partitions or (lambda: slots(spark)))
    read = partial(read_ranges, reader=held.reader, ranges=pieces, columns=wanted)
    numbers = spark.range(0, len(pieces), 1, len(pieces))
    return numbers.mapInArrow(read, ", ".join(f"{name} binary" for name in wanted))


def bounds(
    start: bytes | None, end: bytes | None, prefix: bytes | None
) -> tuple[bytes | None, bytes | None]:
    """A prefix as a range.

    :raises Invalid: both are given.
    """
    if prefix is None:
        return start, end
    if start is not None or end is not None:
        raise Invalid("prefix and start or end exclude each other")
    # The next text of its length: what ends in 0xFF goes up one byte before.
    kept = prefix.rstrip(b"\xff")
    return prefix, kept[:-1] + bytes([kept[-1] + 1]) if kept else None


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
    unknown = [name for name in columns if name not in COLUMNS]
    if isinstance(columns, str) or unknown or not columns or len(set(columns)) < len(columns):
        raise Invalid(f"columns is {columns!r}: a list of some of {', '.join(COLUMNS)}, each once")
    return list(columns)


def lookup(
    df: DataFrame,
    url: Url,
    *,
    key: str,
    select: Mapping[str, str] | Sequence[str] | None = None,
    how: str = "left",
    checkpoint: CheckpointLike | None = None,
    options: Options | Mapping[str, Any] | None = None,
    store_options: StoreOptionsSource | None = None,
    merge_operator: MergeOperatorSource | None = None,
) -> DataFrame:
    """`df` with the values of its keys beside them: a join with the database that reads only what
    is asked for, one `get_many` a batch.

    All tasks read one state, as those of `scan`. Where there are many keys, give neighbours to one
    task: ``df.repartitionByRange(n, key)`` first.

    :param key: the column of keys: binary, or a string, which stands for its UTF-8. A null finds
        nothing.
    :param select: the columns of the database that are added: "value", which is binary; a dict
        names it anew, ``{"value": "price"}``. None: "value".
    :param how: "left" keeps rows whose key is absent, with null; "inner" drops them.
    :param checkpoint: as for `scan`.
    :param options, store_options, merge_operator: as for `scan`.
    :raises Invalid: no such column, a key that is neither binary nor a string, a name that `df` has
        already, another `how`; as `scan`.
    :raises NotFound, Expired, Denied, Unavailable, Corruption: as `siltstone.open_reader`.
    """
    value = _selected(select)
    kinds = {name.casefold(): kind for name, kind in df.dtypes}
    if key not in df.columns:
        raise Invalid(f"there is no column {key!r}; there are {', '.join(df.columns)}")
    if kinds[key.casefold()] not in ("binary", "string"):
        raise Invalid(
            f"the column {key!r} is of type {kinds[key.casefold()]}, and keys are binary or "
            "strings; cast it as it was when the rows were written"
        )
    if value.casefold() in kinds:
        raise Invalid(
            f"there is a column {value!r} already; name the new one, as in "
            f"select={{'value': 'found'}}"
        )
    if how not in ("left", "inner"):
        raise Invalid(f'how is {how!r}: "left" or "inner"')
    reader, held = pinned(url, checkpoint, options, store_options, merge_operator)
    reader.close()
    # A schema, and no text of one: names may hold anything.
    from pyspark.sql.types import BinaryType, StructField, StructType  # noqa: PLC0415

    schema = StructType([*df.schema.fields, StructField(value, BinaryType())])
    keeps_absent = how == "left"
    read = partial(look_up, reader=held.reader, key=key, value=value, keeps_absent=keeps_absent)
    return df.mapInArrow(read, schema)


def _selected(select: Mapping[str, str] | Sequence[str] | None) -> str:
    """The name of the column of values."""
    if select is None:
        return "value"
    names = dict(select) if isinstance(select, Mapping) else {name: name for name in select}
    if list(names) != ["value"]:
        raise Invalid(
            f"select is {select!r}, and a database without a schema has one column, value: "
            "['value'], or {'value': 'another name'}"
        )
    return names["value"]


def get(
    url: Url,
    *,
    checkpoint: CheckpointLike | None = None,
    options: Options | Mapping[str, Any] | None = None,
    store_options: StoreOptionsSource | None = None,
    merge_operator: MergeOperatorSource | None = None,
) -> Callable[[Column | str], Column]:
    """A column function: the value of a key, binary, or null. For expressions, and for SQL once
    ``spark.udf.register("price", get(url))`` named it. For a whole column of keys `lookup` does the
    same at two thirds of the cost.

    :param checkpoint: as for `scan`.
    :param options, store_options, merge_operator: as for `scan`.
    :raises Invalid, NotFound, Expired, Denied, Unavailable, Corruption: as `scan`.
    """
    reader, held = pinned(url, checkpoint, options, store_options, merge_operator)
    reader.close()
    return _column_function(held.reader)


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
