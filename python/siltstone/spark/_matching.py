"""Matching the columns of a frame with those of a table, and preparing the frame for staging.

All checks run on the driver, before a job begins. Nothing is cast.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from siltstone._numbers import count_of
from siltstone._open import StoreOptionsSource, Url, _open_for_a_moment
from siltstone.exceptions import Invalid, NotFound
from siltstone.spark._arguments import MOST_TASKS
from siltstone.spark._columns import (
    DECIMAL,
    arrow_fields,
    arrow_type,
    explained_absence,
    match,
    schema_of,
    schema_text,
    spark_types,
)
from siltstone.spark._creation import Creation, created_by
from siltstone.table import TableSchema, _create_for_a_moment

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType

__all__ = [
    "KEYS",
    "VOID",
    "Duplicates",
    "Key",
    "PreparedFrame",
    "check_columns",
    "check_key",
    "is_key",
    "prepared_bytes",
    "prepared_keys",
    "prepared_rows",
    "quoted",
    "reachable",
    "table_at",
    "table_or_create",
]

LOG = logging.getLogger("siltstone.spark")
KEYS = ("binary", "string")
"""Types that are keys and values of a database without a schema."""
WIDENING = (("tinyint", "smallint", "int", "bigint"), ("float", "double"), ("string", "binary"))
"""Types that a column of a table can be widened through, from the narrowest on."""
VOID = "void"
"""The type of a column of nulls alone."""

Duplicates = str | tuple[str, str]
Key = str | Sequence[str]


@dataclass(frozen=True)
class PreparedFrame:
    """A frame with the columns that its tasks need."""

    frame: DataFrame
    by: Sequence[Column]
    """The columns that give the order of the keys."""
    names: Mapping[str, str]
    """Columns of the frame by their roles, as in `Staging.names`."""
    schema: str | None = None
    """The schema of the table; None: keys and values are bytes."""
    order: str | None = None
    """An additional column: of rows with the same key the one with the greatest value is kept."""
    kept: Sequence[str] = field(default_factory=tuple)
    """The columns without `order`."""

    def arranged(self, layout: str, partitions: int | None) -> DataFrame:
        """The frame with the partitions and the row order of a layout.

        :raises Invalid: less than one partition, or a number of partitions for another layout.
        """
        if partitions is not None:
            partitions = count_of(partitions, "partitions", 1, MOST_TASKS)
            if layout != "range":
                raise Invalid(f"partitions is {partitions}, which only layout 'range' takes")
        frame = self.frame
        if layout == "range":
            ranged = frame.repartitionByRange
            # Spark orders columns as the encoding orders their bytes in a key.
            frame = ranged(*self.by) if partitions is None else ranged(partitions, *self.by)
        if self.order is not None:
            # A part keeps the last one of the rows with the same key.
            frame = frame.sortWithinPartitions(quoted(self.order))
            frame = frame.select(*map(quoted, self.kept))
        return frame


def reachable(url: Url) -> None:
    """Checks that workers can reach the database.

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
    """The schema of the table at `url`. None: a database of bytes, or `as_bytes`.

    :param key: the caller's key, which is checked; None: it is not.
    :raises Invalid: several key columns for a database of bytes.
    :raises NotFound: there is no database. The text says how to create it.
    :raises Denied, Unavailable: as `siltstone.admin.manifest`.
    """
    reachable(url)
    with explained_absence():
        found = schema_text(url, store_options)
    text = None if as_bytes else found
    if text is None and key is not None and not isinstance(key, str) and len(key) != 1:
        raise Invalid(
            f"key is {list(key)!r}, and the database has no columns, only bytes: its key is one "
            "column, as in key='k'; siltstone.table.create makes a table that has columns"
        )
    return text


def table_or_create(
    columns: StructType,
    url: Url,
    key: Key,
    value: str | Sequence[str] | None,
    without: Sequence[str | None],
    as_bytes: bool,
    store_options: StoreOptionsSource | None,
    creations: list[Creation],
    order: str | None = None,
    *,
    saved: bool = False,
) -> str | None:
    """As `table_at`, but creates the database if there is none: of bytes if the frame has exactly a
    key and a value column, both binary or string; otherwise a table with the frame's columns.

    :param columns: the frame's columns.
    :param without: columns of the frame that are not part of the table.
    :param creations: gets what this call created. The caller removes it if the write fails.
    :param order: the column of which the greatest value is kept. It is part of a table, but a frame
        of a key, a value and this column makes a database of bytes.
    :param saved: whether the data source writes the frame. Its columns may be those that a view
        declares, and the view must be able to read them: the columns of a database of bytes are
        then named key and value, unless the caller names the value.
    :raises Invalid, Unsupported: a column of a type that no table has.
    """
    with suppress(NotFound):
        return table_at(url, key, as_bytes, store_options)
    create: Callable[[], None]
    pairs = as_bytes or _pairs(columns, key, value, (*without, order))
    named = as_bytes or value is not None or match("key", [key] if isinstance(key, str) else [])
    if pairs and (named or not saved):
        create = partial(_create_bytes, url, store_options)
        if not named:
            LOG.warning(
                "the first write to %s creates a database of bytes, with the columns key and "
                "value, from the columns %r and 'value'. For a table with the frame's columns, "
                "give key=[%r]; for a database of bytes, give value='value'",
                url,
                key,
                key,
            )
    else:
        spoken = [key] if isinstance(key, str) else key
        schema = derived(columns, spoken, value, without, nullable=saved)
        create = partial(_create_for_a_moment, url, schema, store_options)
    creation = created_by(create, url, store_options)
    if creation is not None:
        creations.append(creation)
    return table_at(url, key, as_bytes, store_options)


def _create_bytes(url: Url, store_options: StoreOptionsSource | None) -> None:
    """Creates a database of bytes if there is none."""
    _open_for_a_moment(url, create=True, store_options=store_options).close()


def _pairs(
    columns: StructType,
    key: Key,
    value: str | Sequence[str] | None,
    without: Sequence[str | None],
) -> bool:
    """Whether the frame has exactly a key and a value column of bytes."""
    kinds = {field.name: field.dataType.simpleString() for field in columns.fields}
    if not isinstance(key, str) or not isinstance(value, str | None):
        return False
    named = match(key, kinds), match("value" if value is None else value, kinds)
    if any(name is None or kinds[name] not in KEYS for name in named):
        return False
    beside = {match(name, kinds) for name in without if name is not None}
    return value is not None or not set(kinds) - {*named, *beside}


def derived(
    columns: StructType,
    key: Sequence[str],
    value: str | Sequence[str] | None,
    without: Sequence[str | None],
    *,
    nullable: bool = False,
) -> TableSchema:
    """The schema of a table with the frame's columns. Columns that are not part of the key are
    nullable, as in the files that Spark writes: a frame of literals is not nullable only because of
    the way in which it was made.

    :param nullable: whether all columns of the key are nullable. For `INSERT INTO` a view, Spark
        passes the columns of the query, and not those that the view declares.
    :raises Invalid: a column of a type that no table has; no key.
    """
    kinds = {field.name: field.dataType for field in columns.fields}
    free = {field.name: field.nullable for field in columns.fields}
    key = spelled(key, kinds)
    without = [name if name is None else match(name, kinds) for name in without]
    only = None
    if value is not None:
        values = [value] if isinstance(value, str) else value
        only = {_named(kinds, name, "value") for name in values}
    fields = {
        name: pa.field(
            name, arrow_type(kind, name), nullable or free[name] or not _begins(key, name)
        )
        for name, kind in kinds.items()
        if name not in without and (only is None or name in only or _begins(key, name))
    }
    return TableSchema(pa.schema(list(fields.values())), key=list(key))


def _begins(key: Sequence[str], name: str) -> bool:
    """Whether a column is part of the key. A key column may be followed by its order."""
    return any(spoken == name or spoken.startswith(f"{name} ") for spoken in key)


def spelled(key: Sequence[str], names: Iterable[str]) -> list[str]:
    """Key columns, each with an optional order, with their names spelled as in `names`."""
    found = []
    for spoken in key:
        name, space, words = spoken, "", ""
        if match(spoken, names) is None:
            name, space, words = spoken.partition(" ")
        found.append((match(name, names) or name) + space + words)
    return found


def check_key(text: str, key: Key) -> None:
    """Checks that `key` is the table's key: its column names, without or with their orders.

    :raises Invalid: the table has another key.
    """
    schema = schema_of(text)
    spoken = spelled([key] if isinstance(key, str) else key, arrow_fields(text).names)
    if spoken == schema.key:
        return
    try:
        same = TableSchema(arrow_fields(text), key=spoken)
    except Invalid:
        same = None
    lines = [each.text.partition("\n")[0] for each in (schema, same) if each is not None]
    if len(lines) != 2 or lines[0] != lines[1]:  # noqa: PLR2004 - both keys are valid
        raise Invalid(
            f"key is {spoken!r}, and the key of the table is {lines[0]}; a key cannot be changed"
        )


def is_key(text: str, key: Key) -> bool:
    """Whether `key` is the table's key."""
    try:
        check_key(text, key)
    except Invalid:
        return False
    return True


def check_columns(
    text: str,
    kinds: Mapping[str, str],
    op: str | None,
    only: Sequence[str] | None = None,
    others: Sequence[str | None] = (),
    partial: bool = False,
) -> dict[str, str]:
    """The table's columns that the frame has, each with the frame's column that holds its values.

    :param kinds: the frame's columns, with the names of their types.
    :param op: the column of operations.
    :param only: the frame's columns to write; None: all.
    :param others: columns that tasks need and that may not be part of the table.
    :param partial: whether columns may be missing that are not part of the key and not nullable.
    :raises Invalid: a required column is missing, a column has another type, or the table has no
        such column.
    """
    fields, keys = arrow_fields(text), schema_of(text).key
    if op is not None:
        named = _named(kinds, op, "op")
        if kinds[named] != "string":
            raise Invalid(
                f"the column {named!r} is of type {kinds[named]}, and op is string; cast it"
            )
    beside = {match(name, kinds) for name in (op, *others) if name is not None}
    brought: dict[str, str] = {}
    for theirs in kinds if only is None else [_named(kinds, one, "the table") for one in only]:
        ours = match(theirs, fields.names)
        if ours is None and theirs in beside and only is None:
            continue
        if ours is None:
            raise Invalid(
                f"the table has no column {theirs!r}; there are {', '.join(fields.names)}. Leave "
                "it out, or add it by db.table.add_column, which is one commit"
            )
        if brought.setdefault(ours, theirs) != theirs:
            raise Invalid(
                f"the columns {brought[ours]!r} and {theirs!r} both have the name of the table's "
                f"column {ours!r}; leave one out"
            )
    for one in fields:
        required = one.name in keys or not (one.nullable or partial)
        if one.name not in brought and required:
            raise Invalid(
                f"there is no column {one.name!r}, which may not be missing from a row of the "
                f"table; there are {', '.join(kinds)}"
            )
    found = {name: brought[name] for name in fields.names if name in brought}
    for ours, theirs in found.items():
        _check_type(text, ours, theirs, kinds[theirs])
    return found


def _check_type(text: str, name: str, column: str, kind: str) -> None:
    """Checks that a column of a frame has the type of the table's column. A column of nulls alone,
    such as the literal NULL, has the type of each column.

    :raises Invalid: otherwise.
    """
    wanted = spark_types(text)[name]
    if kind in (wanted, VOID):
        return
    way = f"cast it to {wanted}"
    if "<" not in kind and name not in schema_of(text).key and not _is_narrower(kind, wanted):
        way += ", or let the table have a wider one by db.table.widen_column, which is one commit"
    raise Invalid(
        f"the column {column!r} is of type {kind}, and {name!r} of the table is of type {wanted}, "
        f"{arrow_fields(text).field(name).type} in Arrow; {way}"
    )


def _is_narrower(kind: str, wanted: str) -> bool:
    """Whether the type `wanted` holds all values of the type `kind`."""
    for types in WIDENING:
        if kind in types and wanted in types:
            return types.index(kind) < types.index(wanted)
    decimals = DECIMAL.fullmatch(kind), DECIMAL.fullmatch(wanted)
    if decimals[0] is None or decimals[1] is None:
        return False
    (digits, scale), (more, same) = (tuple(map(int, one.groups())) for one in decimals if one)
    return scale == same and digits < more


def prepared_rows(
    df: DataFrame,
    text: str,
    key: Key,
    value: str | Sequence[str] | None,
    op: str | None,
    duplicates: Duplicates,
    expire_at: str | None = None,
    partial: bool = False,
) -> PreparedFrame:
    """A frame with the table's columns.

    :param expire_at: the column of expiry times.
    :param partial: as for `check_columns`.
    :raises Invalid: as `check_key` and `check_columns`; no column of that name.
    """
    from pyspark.sql import functions as sf  # noqa: PLC0415 - the package does without pyspark

    check_key(text, key)
    schema, kinds = schema_of(text), _kinds(df)
    order = duplicates[1] if isinstance(duplicates, tuple) else None
    if order is not None:
        order = _named(kinds, order, "the greatest")
    only = None if value is None else [*schema.key, *([value] if isinstance(value, str) else value)]
    if expire_at is not None:
        expire_at = expiry_column(kinds, expire_at)
    brought = check_columns(text, kinds, op, only, (order, expire_at), partial)
    called = {theirs: ours for ours, theirs in brought.items()}
    roles = {"key": ", ".join(schema.key)}
    if op is not None:
        op = _named(kinds, op, "op")
        roles["op"] = called.setdefault(op, op)
    if expire_at is not None:
        roles["expire_at"] = called.setdefault(expire_at, expire_at)
    kept = list(called.values())
    if order is not None:
        order = called.setdefault(order, order)
    frame = df.select(*[sf.col(quoted(theirs)).alias(ours) for theirs, ours in called.items()])
    return PreparedFrame(frame, ordered(text, schema.key), roles, text, order, kept)


def prepared_keys(df: DataFrame, text: str, key: Key) -> PreparedFrame:
    """A frame of keys: the columns that hold the key columns, in their order.

    :raises Invalid: as `check_pairs`.
    """
    from pyspark.sql import functions as sf  # noqa: PLC0415 - the package does without pyspark

    pairs = check_pairs(df, text, key)
    frame = df.select(*[sf.col(quoted(theirs)).alias(ours) for ours, theirs in pairs.items()])
    names = list(pairs)
    return PreparedFrame(
        frame, ordered(text, names), {"key": ", ".join(pairs.values())}, text, None, names
    )


def check_pairs(df: DataFrame, text: str, key: Key, leading: bool = False) -> dict[str, str]:
    """The key's columns, each with the frame's column that holds its values.

    :param leading: whether `key` may name fewer columns, for the first ones of the key.
    :raises Invalid: another number of columns; an unknown column; a column of another type.
    """
    spoken = [key] if isinstance(key, str) else list(key)
    names, kinds = schema_of(text).key, _kinds(df)
    if any(match(one, kinds) is None for one in spoken) and is_key(text, spoken):
        # The key with its orders, as loads and merges take it.
        spoken = list(names)
    if leading and 0 < len(spoken) < len(names):
        names = names[: len(spoken)]
    if len(spoken) != len(names):
        raise Invalid(
            f"key is {spoken!r}, and the key of the table has the columns {', '.join(names)}: name "
            "one for each, in their order"
        )
    pairs = {ours: _named(kinds, theirs, "key") for ours, theirs in zip(names, spoken, strict=True)}
    for ours, theirs in pairs.items():
        _check_type(text, ours, theirs, kinds[theirs])
    return pairs


def ordered(text: str, names: Sequence[str]) -> list[Column]:
    """The order of the keys as Spark's sort columns."""
    from pyspark.sql import functions as sf  # noqa: PLC0415 - the package does without pyspark

    def of(name: str, descending: bool, nulls_last: bool) -> Column:
        column = sf.col(quoted(name))
        if descending:
            return column.desc_nulls_last() if nulls_last else column.desc_nulls_first()
        return column.asc_nulls_last() if nulls_last else column.asc_nulls_first()

    ways = zip(names, schema_of(text).directions, strict=True)
    return [of(name, *way) for name, way in ways]


def prepared_bytes(
    df: DataFrame, columns: Mapping[str, str], duplicates: Duplicates
) -> PreparedFrame:
    """A frame of keys and values, with the column names that tasks use.

    :raises Invalid: a column is missing or has another type.
    """
    from pyspark.sql import functions as sf  # noqa: PLC0415 - the package does without pyspark

    kinds = _kinds(df)
    chosen: list[Column] = []
    for role, asked in columns.items():
        name = _named(kinds, asked, role)
        kind = kinds[name]
        wanted = {"op": ("string",), "expire_at": ("timestamp",)}.get(role, KEYS)
        if kind not in wanted and (wanted != KEYS or kind != VOID):
            raise Invalid(
                f"the column {name!r} is of type {kind}, and {role} is "
                f"{' or '.join(wanted)}; cast it"
            )
        chosen.append(sf.col(quoted(name)).alias(role))
    order = None
    if isinstance(duplicates, tuple):
        order = "order"
        greatest = _named(kinds, duplicates[1], "the greatest")
        chosen.append(sf.col(quoted(greatest)).alias(order))
    return PreparedFrame(df.select(*chosen), [sf.col("key")], columns, None, order, list(columns))


def _kinds(df: DataFrame) -> dict[str, str]:
    """The types of a frame's columns, by name."""
    return dict(df.dtypes)


def expiry_column(kinds: Mapping[str, str], name: str) -> str:
    """The name of the column of expiry times, as the frame spells it.

    :raises Invalid: there is no such column, or it has another type.
    """
    found = _named(kinds, name, "expire_at")
    if kinds[found] != "timestamp":
        raise Invalid(
            f"the column {found!r} is of type {kinds[found]}, and expire_at is timestamp; cast it"
        )
    return found


def _named(kinds: Iterable[str], name: str, role: str) -> str:
    """The name of a frame's column, as the frame spells it.

    :raises Invalid: the frame has no such column.
    """
    found = match(name, kinds)
    if found is None:
        raise Invalid(f"there is no column {name!r} for {role}; there are {', '.join(kinds)}")
    return found


def quoted(name: str) -> str:
    """The name of a column, quoted for Spark."""
    return "`" + name.replace("`", "``") + "`"
