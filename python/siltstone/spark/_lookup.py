"""Look-ups: a DataFrame joined with the rows of its keys, and a column function."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

import siltstone
from siltstone._checkpoints import CheckpointLike
from siltstone._numbers import count_of
from siltstone._open import StoreOptionsSource, Url
from siltstone.exceptions import Invalid, Unsupported
from siltstone.merging import MergeOperatorSource
from siltstone.options import Options, Seconds
from siltstone.spark._arguments import check_frame
from siltstone.spark._columns import (
    COLUMNS,
    folded,
    match,
    resolving_as,
    schema_of,
    spark_fields,
    struct_of,
    text_of,
)
from siltstone.spark._estimates import map_growing
from siltstone.spark._jobs import task
from siltstone.spark._matching import KEYS, VOID, Key, check_pairs
from siltstone.spark._pins import following, reading
from siltstone.spark._scan import estimated_bytes, fields_of
from siltstone.spark._tasks import (
    look_up,
    look_up_prefix,
    look_up_rows,
    reader_of,
    rows_found,
    values_of,
)

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

__all__ = ["get", "lookup"]

Selected = Mapping[str, str] | Sequence[str] | None
NO_ARROW = re.compile(r"\binterval(?!:| day| hour| minute| second)")
"""Types of which Spark makes no Arrow batches: intervals of years and months, and those without a
unit."""


def lookup(
    df: DataFrame,
    url: Url,
    *,
    key: Key,
    select: Selected = None,
    how: str = "left",
    prefix: bool = False,
    limit: int | None = None,
    checkpoint: CheckpointLike | None = None,
    max_staleness: Seconds | None = None,
    as_bytes: bool = False,
    options: Options | Mapping[str, Any] | None = None,
    store_options: StoreOptionsSource | None = None,
    merge_operator: MergeOperatorSource | None = None,
) -> DataFrame:
    """Joins `df` with the rows of its keys in a database. It reads only these keys, with one
    `get_many` for each batch. With `prefix` each row of `df` is joined with all rows under a
    leading part of the key, with one scan for each distinct part in a batch.

    All tasks read one state, as those of `scan`, unless `max_staleness` is given. If there are many
    keys, place neighbours in one task: ``df.repartitionByRange(n, key)`` first.

    :param key: for a table, the frame's columns that hold the table's key columns, in their order
        and with the same types. A null stands for a null in the key; if the key column holds none,
        the row has no match. For a database of bytes, the key column: binary, or string, which
        stands for its UTF-8; a null has no match.
    :param select: the columns to add. For a table, some of its columns; None: all that are not part
        of the key, or of its leading part. For a database of bytes "value", with `prefix` also
        "key", both binary. A dict renames them: ``{"value": "price"}``.
    :param how: "left" keeps rows without a match, with nulls; "inner" drops them.
    :param prefix: join with all rows whose keys begin with the given part. For a table `key` names
        as many columns as the part has, for a database of bytes the column of prefixes.
    :param limit: at most so many rows for each row of `df`, the first ones in key order; with
        `prefix` only.
    :param checkpoint, as_bytes: as for `scan`.
    :param max_staleness: follow the writer, in place of one state: each batch reads a state that is
        at most so old. Two batches may read two states. Each worker keeps a reader that follows.
        The frame keeps its columns and types if columns are added or widened meanwhile.
    :param options, store_options, merge_operator: as for `scan`.
    :raises Invalid: an unknown column, a key of another type, a name that `df` has already or has
        twice, a column of `df` that is an interval of months or years, another `how`; a limit
        without `prefix` or below 1; `max_staleness` beside `checkpoint`; as `scan`.
    :raises Unsupported: as `scan`.
    :raises NotFound, Expired, Denied, Unavailable, Corruption: as `siltstone.open_reader`.
    """
    check_frame(df)
    if how not in ("left", "inner"):
        raise Invalid(f'how is {how!r}: "left" or "inner"')
    if limit is not None:
        limit = count_of(limit, "limit", 1)
        if not prefix:
            raise Invalid(f"limit is {limit}, which only prefix=True takes")
    more = (options, store_options, merge_operator)
    with resolving_as(df.sparkSession), _state(url, checkpoint, max_staleness, more) as opened:
        _check_passable(df)
        reader, pickled = opened
        table = None if as_bytes else text_of(reader)
        if table is None:
            fields, names = _byte_fields(select, COLUMNS if prefix else COLUMNS[1:])
            chosen = _byte_key(df, key)
        else:
            chosen = list(check_pairs(df, table, key, leading=prefix).values())
            fields, names = _chosen(table, select, len(chosen))
        _check_new(df, names)
        growth, total = _growth(reader, table, fields, limit if prefix else 1)
    # A schema in place of its text, because names may hold any character.
    from pyspark.sql.types import StructType  # noqa: PLC0415

    schema = StructType([*df.schema.fields, *struct_of(fields, names).fields])
    keeps = how == "left"
    read: Callable[..., Any]
    if prefix:
        read = partial(look_up_prefix, table=table, key=chosen, found=(fields, names), limit=limit)
    elif table is None:
        read = partial(look_up, key=chosen[0], value=names[0])
    else:
        read = partial(look_up_rows, table=table, key=chosen, found=(fields, names))
    work = task("siltstone_lookup", read, reader=pickled, keeps_absent=keeps)
    return map_growing(df, work, schema, growth, total)


def _growth(
    reader: siltstone.Reader, table: str | None, fields: pa.Schema, limit: int | None
) -> tuple[float, float]:
    """The bytes that a look-up is expected to add to each row, at most, and those of all rows.

    :param limit: the most rows for each row of the frame. None: each may be joined with all rows.
    """
    # Without a schema nearly all bytes are those of the values.
    chosen = fields_of(None, None) if table is None else fields
    total = estimated_bytes(reader, None, None, chosen, table)
    rows = reader.approximate_size(None, None).rows
    return (total if limit is None else min(total, limit * total / max(rows, 1))), total


@contextmanager
def _state(
    url: Url,
    checkpoint: CheckpointLike | None,
    max_staleness: Seconds | None,
    more: tuple[Any, Any, Any],
) -> Iterator[tuple[siltstone.Reader, bytes]]:
    """A reader that says what is read, and its pickle for the workers.

    :raises Invalid: both a checkpoint and a staleness.
    """
    if max_staleness is None:
        with reading(url, checkpoint, *more) as (reader, held):
            yield reader, held.reader
        return
    if checkpoint is not None:
        raise Invalid("checkpoint names one state, and max_staleness follows the writer: give one")
    with following(url, max_staleness, *more) as (reader, pickled):
        yield reader, pickled


def _check_passable(df: DataFrame) -> None:
    """Checks that Spark can pass the columns of the frame to Python and back.

    :raises Invalid: two columns of one name, or a column of a type that Arrow does not have.
    """
    seen = set()
    for field in df.schema.fields:
        if folded(field.name) in seen:
            raise Invalid(
                f"the frame has two columns {field.name!r}, and Spark cannot pass both to Python: "
                "rename one before, for example by df.toDF(…), or drop it"
            )
        seen.add(folded(field.name))
        kind = field.dataType.simpleString()
        if NO_ARROW.search(kind):
            raise Invalid(
                f"the column {field.name!r} is of type {kind}, which Spark cannot pass to Python: "
                "cast it to string before, or drop it and join it afterwards"
            )


def _check_new(df: DataFrame, names: Sequence[str]) -> None:
    """Checks that the names of added columns are new.

    :raises Invalid: the frame has such a column.
    """
    there = {folded(name) for name in df.columns}
    for name in names:
        if folded(name) in there:
            raise Invalid(
                f"there is a column {name!r} already; name the new one, as in "
                f"select={{{name!r}: 'found'}}"
            )
        there.add(folded(name))


def _byte_key(df: DataFrame, key: Key) -> list[str]:
    """The key column for a database of bytes.

    :raises Invalid: it is missing, there are several, or it has another type.
    """
    kinds = dict(df.dtypes)
    spoken = [key] if isinstance(key, str) else list(key)
    if len(spoken) != 1:
        raise Invalid(f"key is {key!r}, and the database has no columns: its keys are one column")
    named = match(spoken[0], kinds)
    if named is None:
        raise Invalid(f"there is no column {spoken[0]!r}; there are {', '.join(df.columns)}")
    if kinds[named] not in (*KEYS, VOID):
        raise Invalid(
            f"the column {named!r} is of type {kinds[named]}, and keys are binary or "
            "strings; cast it as it was when the rows were written"
        )
    return [named]


def _chosen(
    table: str, select: Selected, leading: int | None = None
) -> tuple[pa.Schema, list[str]]:
    """Columns of a table, and their names in the result.

    :param leading: how many columns of the key are known; None: all.
    :raises Invalid: an unknown column; none at all.
    """
    schema = schema_of(table)
    if select is None:
        known = schema.key[:leading]
        select = [name for name in schema.names if name not in known] or schema.key
    fields = spark_fields(table, list(select) if isinstance(select, Mapping) else select, True)
    return fields, list(select.values()) if isinstance(select, Mapping) else fields.names


def _byte_fields(select: Selected, there: Sequence[str]) -> tuple[pa.Schema, list[str]]:
    """Columns of a database of bytes, and their names in the result.

    :raises Invalid: an unknown column, or none.
    """
    if select is None:
        select = there
    names = dict(select) if isinstance(select, Mapping) else {name: name for name in select}
    found = [match(name, there) for name in names]
    if isinstance(select, str) or None in found or not found or len(set(found)) < len(found):
        has = "one column, value" if len(there) == 1 else "the columns key and value"
        raise Invalid(
            f"select is {select!r}, and a database without a schema has {has}: {list(there)!r}, or "
            "{'value': 'another name'}"
        )
    fields = pa.schema([pa.field(str(name), pa.binary()) for name in found])
    return fields, list(names.values())


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
    """Returns a column function that gives the row of a key, or null. For a table it takes a column
    for each column of the key, and returns a struct of `columns`. For a database of bytes it takes
    one column and returns binary. Use it in expressions, and in SQL after
    ``spark.udf.register("price", get(url))``. For a whole column of keys `lookup` costs two thirds
    of it.

    :param columns: for a table, the columns to return; None: all that are not part of the key.
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

    # `arrow_udf` is new in Spark 4.1. Spark reads the annotations of the function.
    arrow_udf: Any = getattr(sf, "arrow_udf", None)
    made: Any
    if arrow_udf is not None:
        made = arrow_udf(_values(reader), "binary")
    else:
        import pandas as pd  # noqa: PLC0415

        def of_pandas(keys: pd.Series) -> pd.Series:
            found = values_of(reader_of(reader), pa.Array.from_pandas(keys))
            return pd.Series(found.to_pylist(), dtype="object")

        of_pandas.__annotations__ = {"keys": pd.Series, "return": pd.Series}
        # The documented name, which the type stubs of some versions lack.
        functions: Any = sf
        made = functions.pandas_udf(of_pandas, "binary")
    function: Callable[[Column | str], Column] = made
    return function


def _values(reader: bytes) -> Callable[[pa.Array], pa.Array]:
    """A function for the values of an array of keys, at the state of `reader`."""

    def values(keys: pa.Array) -> pa.Array:
        return values_of(reader_of(reader), keys)

    values.__annotations__ = {"keys": pa.Array, "return": pa.Array}
    return values
