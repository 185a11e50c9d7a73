"""The stored key of a row as a column, to compare rows with the range of a range delete."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from siltstone._open import StoreOptionsSource, Url
from siltstone.exceptions import Invalid, Unsupported
from siltstone.spark._columns import (
    arrow_fields,
    lookup_keys,
    scatter,
    schema_of,
    spark_fields,
    spark_type,
)
from siltstone.spark._matching import table_at

if TYPE_CHECKING:
    from pyspark.sql import Column

__all__ = ["encode_key"]


def encode_key(
    url: Url, *, store_options: StoreOptionsSource | None = None
) -> Callable[..., Column]:
    """Returns a column function that gives the key of a row as the database stores it, as binary.
    It takes a column for each column of the table's key, in their order. Stored keys sort as the
    rows of the table do. So a row lies in the range of a change of kind "delete_range" if
    ``range.start <= stored AND stored < range.end``, and two rows have one key if their stored keys
    are equal. For a key that the table cannot hold the result is null.

    The function reads the schema of the table now, and no rows. The key of a table never changes.
    Use it in SQL after ``spark.udf.register("stored_key", encode_key(url))``.

    For a database of bytes it takes the key column, binary or string, and returns it as binary.

    :param store_options: as for `scan`.
    :raises Invalid: in the task: another number of columns, or a column of another type.
    :raises Unsupported: a table, before Spark 4.1; a key column that Spark cannot hold.
    :raises NotFound, Denied, Unavailable: as `siltstone.admin.manifest`.
    """
    from pyspark.sql import functions as sf  # noqa: PLC0415 - the package does without pyspark

    table = table_at(url, None, False, store_options)
    if table is None:
        return lambda column: (sf.col(column) if isinstance(column, str) else column).cast("binary")
    arrow_udf: Any = getattr(sf, "arrow_udf", None)
    if arrow_udf is None:
        raise Unsupported(
            "a column function over a table needs Spark 4.1 or newer; before, read the table and "
            "its changes as bytes (as_bytes=True)"
        )
    # Fails here for a column that Spark cannot hold.
    spark_fields(table, schema_of(table).key)
    function: Callable[..., Column] = arrow_udf(_encoder(table), "binary")
    return function


def _encoder(table: str) -> Callable[..., pa.Array]:
    """A function that encodes arrays of the key's columns."""

    def stored(*columns: pa.Array) -> pa.Array:
        _check(table, columns)
        keys, kept = lookup_keys(table, columns)
        found = keys if kept is None else scatter(keys, kept)
        return found.cast(pa.binary())

    stored.__annotations__ = {"columns": pa.Array, "return": pa.Array}
    return stored


def _check(table: str, columns: tuple[pa.Array, ...]) -> None:
    """Checks that there is a column of the right type for each column of the key. A cast could give
    the key of another row.

    :raises Invalid: otherwise.
    """
    names = schema_of(table).key
    if len(columns) != len(names):
        raise Invalid(
            f"the key of the table has the columns {', '.join(names)}, and {len(columns)} columns "
            "were given: give one for each, in their order"
        )
    fields = spark_fields(table, names)
    for column, field in zip(columns, fields, strict=True):
        if not _is_same(column.type, field.type):
            raise Invalid(
                f"a column of type {column.type} was given for {field.name!r}, which is of type "
                f"{arrow_fields(table).field(field.name).type}: cast it to "
                f"{spark_type(table, field.name)}"
            )


def _is_same(given: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether Spark passes values of a column's type as `given`."""
    if pa.types.is_timestamp(wanted) and pa.types.is_timestamp(given):
        # Spark passes instants with the zone of the session.
        return (given.tz is None) == (wanted.tz is None)
    large = {pa.large_string(): pa.string(), pa.large_binary(): pa.binary()}
    return bool(pa.types.is_null(given) or large.get(given, given) == wanted)
