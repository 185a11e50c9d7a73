"""What a frame must be like to become rows, and what it becomes for the tasks that stage them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa

from siltstone import table
from siltstone.exceptions import Conflict, Invalid, NotFound
from siltstone.opening import StoreOptionsSource, Url
from siltstone.spark.columns import arrow_fields, arrow_type, schema_of, schema_text, spark_types
from siltstone.table import TableSchema

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

__all__ = [
    "Duplicates",
    "Fitted",
    "Key",
    "bytes_fitted",
    "check_columns",
    "check_key",
    "fitted",
    "keys_fitted",
    "reachable",
    "table_at",
    "table_made",
]

KEYS = ("binary", "string")
"""Types that are keys and values of a database without a schema."""

Duplicates = str | tuple[str, str]
Key = str | Sequence[str]


@dataclass(frozen=True)
class Fitted:
    """A frame with the columns that its tasks want."""

    frame: DataFrame
    by: Sequence[Column]
    """The order of its keys."""
    names: Mapping[str, str]
    """Columns of the frame by what they are, as `staging.Staging` has them."""
    schema: str | None = None
    """Of the table; None: keys and values are bytes."""
    order: str | None = None
    """A column more: of rows with one key that with the greatest counts."""
    kept: Sequence[str] = field(default_factory=tuple)
    """The columns without it."""

    def laid_out(self, layout: str, partitions: int | None) -> DataFrame:
        """The frame as its tasks are to see it.

        :raises Invalid: no number of partitions, or another layout that has none.
        """
        if partitions is not None and (partitions < 1 or layout != "range"):
            raise Invalid(f"partitions is {partitions!r}: at least one task, of layout 'range'")
        frame = self.frame
        if layout == "range":
            ranged = frame.repartitionByRange
            # Spark's order of columns is that of their bytes in a key.
            frame = ranged(*self.by) if partitions is None else ranged(partitions, *self.by)
        if self.order is not None:
            # Of rows with one key a part keeps the last one.
            frame = frame.sortWithinPartitions(quoted(self.order))
            frame = frame.select(*map(quoted, self.kept))
        return frame


def reachable(url: Url) -> None:
    """Whether Spark's workers can be where the database is.

    :raises Invalid: a `memory://` database.
    """
    if str(url).startswith("memory:"):
        raise Invalid(
            "a memory:// database is in this process, and Spark's workers are others; use a folder "
            "or a bucket that all of them reach"
        )


def table_at(
    url: Url, key: Key | None, as_bytes: bool, store_options: StoreOptionsSource | None
) -> str | None:
    """The schema of the table that stands there; None: a database of bytes, or one that is to be
    taken for that.

    :param key: what the caller calls the key; None: does not matter.
    :raises Invalid: several columns of a key, and a database of bytes.
    :raises NotFound, Denied, Unavailable: as their texts say.
    """
    reachable(url)
    text = None if as_bytes else schema_text(url, store_options)
    if text is None and key is not None and not isinstance(key, str):
        raise Invalid(
            f"key is {list(key)!r}, and the database has no columns, only bytes: its key is one "
            "column, as in key='k'; siltstone.table.create makes a table that has columns"
        )
    return text


def table_made(
    df: DataFrame,
    url: Url,
    key: Key,
    value: str | Sequence[str] | None,
    without: Sequence[str | None],
    store_options: StoreOptionsSource | None,
) -> str | None:
    """As `table_at`; where nothing stands, a table of the frame's columns is made.

    :param without: columns of the frame that are no columns of the table.
    :raises Invalid, Unsupported: the frame has columns that no table has.
    """
    try:
        return table_at(url, key, False, store_options)
    except NotFound:
        if isinstance(key, str):
            raise
    schema = derived(df, key, value, without)
    # Whoever was faster has made it, perhaps of other columns: the frame is held against those.
    with suppress(Conflict, Invalid):
        table.create(url, schema, take_over=False, store_options=store_options).close()
    return table_at(url, key, False, store_options)


def derived(
    df: DataFrame,
    key: Sequence[str],
    value: str | Sequence[str] | None,
    without: Sequence[str | None],
) -> TableSchema:
    """The table that a frame's rows are of.

    :raises Invalid: a column of a type that no table has; no key.
    """
    kinds = _kinds(df)
    free = {one.name: one.nullable for one in df.schema.fields}
    only = None if value is None else {value} if isinstance(value, str) else set(value)
    fields = {
        name: pa.field(name, arrow_type(kind, name), free[name])
        for name, kind in kinds.items()
        if name not in without and (only is None or name in only or _begins(key, name))
    }
    return TableSchema(pa.schema(list(fields.values())), key=list(key))


def _begins(key: Sequence[str], name: str) -> bool:
    """Whether a column is of the key: its name, and perhaps words about its order."""
    return any(spoken == name or spoken.startswith(f"{name} ") for spoken in key)


def check_key(text: str, key: Key) -> None:
    """A key is spoken of as the table has it: by its columns' names, or with all their words.

    :raises Invalid: it has another one.
    """
    spoken = [key] if isinstance(key, str) else list(key)
    schema = schema_of(text)
    if spoken == schema.key:
        return
    try:
        same = TableSchema(arrow_fields(text), key=spoken)
    except Invalid:
        same = None
    lines = [each.text.partition("\n")[0] for each in (schema, same) if each is not None]
    if len(lines) != 2 or lines[0] != lines[1]:  # noqa: PLR2004 - theirs, and ours
        raise Invalid(f"key is {spoken!r}, and the key of the table is {lines[0]}; it is for good")


def check_columns(
    text: str,
    kinds: Mapping[str, str],
    op: str | None,
    only: Sequence[str] | None = None,
    order: str | None = None,
) -> list[str]:
    """Columns of the table that a frame brings.

    :param kinds: the frame's columns, with the names of their types.
    :param op: the column that says what becomes of a row.
    :param only: those that are meant; None: all.
    :param order: the column that says which row counts.
    :raises Invalid: one is missing that must not be, or of another type, or the table has it not.
    """
    fields, keys = arrow_fields(text), schema_of(text).key
    if op is not None and _kind(kinds, op, "op") != "string":
        raise Invalid(f"the column {op!r} is of type {kinds[op]}, and op is string; cast it")
    beside = {op, order} - set(fields.names)
    meant = [name for name in kinds if name not in beside] if only is None else only
    for name in meant:
        if name not in fields.names:
            raise Invalid(
                f"the table has no column {name!r}; there are {', '.join(fields.names)}. Leave it "
                "out, or add it by db.table.add_column, which is one commit"
            )
        _kind(kinds, name, "the table")
    for one in fields:
        if one.name not in meant and (one.name in keys or not one.nullable):
            raise Invalid(
                f"there is no column {one.name!r}, which may not be missing from a row of the "
                f"table; there are {', '.join(kinds)}"
            )
    found = [name for name in fields.names if name in meant]
    for name in found:
        _check_type(text, name, name, kinds[name])
    return found


def _check_type(text: str, name: str, column: str, kind: str) -> None:
    """A column of a frame is of the type that the table's has."""
    wanted = spark_types(text)[name]
    if kind == wanted:
        return
    way = f"cast it to {wanted}"
    if name not in schema_of(text).key:
        way += ", or let the table have a wider one by db.table.widen_column, which is one commit"
    raise Invalid(
        f"the column {column!r} is of type {kind}, and {name!r} of the table is of type {wanted}, "
        f"{arrow_fields(text).field(name).type} in Arrow; {way}"
    )


def fitted(
    df: DataFrame,
    text: str,
    key: Key,
    value: str | Sequence[str] | None,
    op: str | None,
    duplicates: Duplicates,
) -> Fitted:
    """A frame of the table's columns.

    :raises Invalid: as `check_key` and `check_columns`; no column of that name.
    """
    check_key(text, key)
    schema, kinds = schema_of(text), _kinds(df)
    order = duplicates[1] if isinstance(duplicates, tuple) else None
    if order is not None:
        _kind(kinds, order, "the greatest")
    only = None if value is None else [*schema.key, *([value] if isinstance(value, str) else value)]
    names = check_columns(text, kinds, op, only, order)
    kept = [*names, *([] if op is None or op in names else [op])]
    columns = kept if order is None or order in kept else [*kept, order]
    roles = {"key": ", ".join(schema.key), **({} if op is None else {"op": op})}
    frame = df.select(*map(quoted, columns))
    return Fitted(frame, ordered(text, schema.key), roles, text, order, kept)


def keys_fitted(df: DataFrame, text: str, key: Key) -> Fitted:
    """A frame of keys alone: columns that stand for those of the key, in its order.

    :raises Invalid: as `check_pairs`.
    """
    from pyspark.sql import functions as sf  # noqa: PLC0415 - the package does without pyspark

    pairs = check_pairs(df, text, key)
    frame = df.select(*[sf.col(quoted(theirs)).alias(ours) for ours, theirs in pairs.items()])
    names = list(pairs)
    return Fitted(
        frame, ordered(text, names), {"key": ", ".join(pairs.values())}, text, None, names
    )


def check_pairs(df: DataFrame, text: str, key: Key) -> dict[str, str]:
    """The key's columns, each with the frame's column that stands for it.

    :raises Invalid: fewer or more; none of that name; one of another type.
    """
    spoken = [key] if isinstance(key, str) else list(key)
    names, kinds = schema_of(text).key, _kinds(df)
    if len(spoken) != len(names):
        raise Invalid(
            f"key is {spoken!r}, and the key of the table has the columns {', '.join(names)}: name "
            "one for each, in their order"
        )
    pairs = dict(zip(names, spoken, strict=True))
    for ours, theirs in pairs.items():
        _check_type(text, ours, theirs, _kind(kinds, theirs, "key"))
    return pairs


def ordered(text: str, names: Sequence[str]) -> list[Column]:
    """The order of keys in Spark's words."""
    from pyspark.sql import functions as sf  # noqa: PLC0415 - the package does without pyspark

    def of(name: str, descending: bool, nulls_last: bool) -> Column:
        column = sf.col(quoted(name))
        if descending:
            return column.desc_nulls_last() if nulls_last else column.desc_nulls_first()
        return column.asc_nulls_last() if nulls_last else column.asc_nulls_first()

    ways = zip(names, schema_of(text).directions, strict=True)
    return [of(name, *way) for name, way in ways]


def bytes_fitted(df: DataFrame, columns: Mapping[str, str], duplicates: Duplicates) -> Fitted:
    """A frame of keys and values: the columns by the names that tasks know.

    :raises Invalid: there is none, or one is of another type.
    """
    from pyspark.sql import functions as sf  # noqa: PLC0415 - the package does without pyspark

    kinds = _kinds(df)
    chosen: list[Column] = []
    for role, name in columns.items():
        kind = _kind(kinds, name, role)
        wanted = ("string",) if role == "op" else KEYS
        if kind not in wanted:
            raise Invalid(
                f"the column {name!r} is of type {kind}, and {role} is "
                f"{' or '.join(wanted)}; cast it"
            )
        chosen.append(sf.col(quoted(name)).alias(role))
    order = None
    if isinstance(duplicates, tuple):
        _kind(kinds, duplicates[1], "the greatest")
        order = "order"
        chosen.append(sf.col(quoted(duplicates[1])).alias(order))
    return Fitted(df.select(*chosen), [sf.col("key")], columns, None, order, list(columns))


def _kinds(df: DataFrame) -> dict[str, str]:
    """The types of a frame's columns, by the names that Spark shows."""
    return dict(df.dtypes)


def _kind(kinds: Mapping[str, str], name: str, role: str) -> str:
    """The type of a column.

    :raises Invalid: there is none of that name.
    """
    if name not in kinds:
        raise Invalid(f"there is no column {name!r} for {role}; there are {', '.join(kinds)}")
    return kinds[name]


def quoted(name: str) -> str:
    """A column's name, whatever is in it, as Spark reads names."""
    return "`" + name.replace("`", "``") + "`"
