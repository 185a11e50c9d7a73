"""Columns of tables in Spark: types by name, names, and rows encoded and decoded in batches.

Everything here works in any process, because a schema is sent as its text. pyspark is imported only
to make its types.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

import siltstone
from siltstone._open import StoreOptionsSource, Url
from siltstone.exceptions import Invalid, NotFound, Unsupported
from siltstone.table import TableSchema, _schema_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import DataType, StructType

__all__ = [
    "COLUMNS",
    "DECIMAL",
    "arrow_fields",
    "arrow_type",
    "case_sensitivity",
    "cast",
    "castable",
    "decoded",
    "encode_keys",
    "encode_possible_keys",
    "encoded",
    "explained_absence",
    "folded",
    "lookup_keys",
    "match",
    "resolving_as",
    "scatter",
    "schema_of",
    "schema_text",
    "spark_fields",
    "spark_type",
    "spark_types",
    "spelled_where",
    "struct_of",
    "text_of",
    "within_length",
]

INSTANT = pa.timestamp("us", "UTC")
PLAIN: dict[str, tuple[pa.DataType, str]] = {
    "boolean": (pa.bool_(), "BooleanType"),
    "tinyint": (pa.int8(), "ByteType"),
    "smallint": (pa.int16(), "ShortType"),
    "int": (pa.int32(), "IntegerType"),
    "bigint": (pa.int64(), "LongType"),
    "float": (pa.float32(), "FloatType"),
    "double": (pa.float64(), "DoubleType"),
    "date": (pa.date32(), "DateType"),
    "timestamp": (INSTANT, "TimestampType"),
    "timestamp_ntz": (pa.timestamp("us"), "TimestampNTZType"),
    "string": (pa.string(), "StringType"),
    "binary": (pa.binary(), "BinaryType"),
}
"""Spark's type names, with the Arrow type and the class of pyspark."""
KEY_BYTES = 65_535
"""The most bytes of a key. A longer one, and one without bytes, is in no database."""
COLUMNS = ("key", "value")
"""The columns of a database without a schema; both are `binary`."""
MAKE_VALID = (
    "make_valid_utf8(column) in Spark replaces the bytes that are not, and a table with a binary "
    "column holds them"
)
"""The remedy for a string that is not UTF-8."""
DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")
NAMES = {kind: name for name, (kind, _) in PLAIN.items()}
LARGER = {
    pa.uint8(): "smallint",
    pa.uint16(): "int",
    pa.uint32(): "bigint",
    pa.uint64(): "decimal(20,0)",
}
"""Spark has no unsigned numbers. This is the smallest type that holds all values of one."""


_case_sensitive: ContextVar[bool] = ContextVar("case_sensitive", default=False)


@contextmanager
def case_sensitivity(exact: bool) -> Iterator[None]:
    """Makes `match` compare names with their case (True), or without it, for the block."""
    token = _case_sensitive.set(exact)
    try:
        yield
    finally:
        _case_sensitive.reset(token)


def resolving_as(spark: SparkSession) -> AbstractContextManager[None]:
    """Makes `match` resolve names as the session does: by `spark.sql.caseSensitive`."""
    text = spark.conf.get("spark.sql.caseSensitive", "false")
    return case_sensitivity(str(text).casefold() == "true")


def folded(name: str) -> str:
    """The form of a name in which two names are compared."""
    return name if _case_sensitive.get() else name.casefold()


def match(name: str, names: Iterable[str]) -> str | None:
    """The name among `names` that `name` resolves to, as Spark resolves names: the equal one, or
    the only one that differs from it in case alone, unless case is significant. None if there is
    none.

    :raises Invalid: several names differ from it in case alone.
    """
    exact = _case_sensitive.get()
    others: list[str] = []
    for one in names:
        if one == name:
            return one
        if not exact and one.casefold() == name.casefold():
            others.append(one)
    if len(others) > 1:
        raise Invalid(f"{name!r} is ambiguous: there are {', '.join(others)}")
    return others[0] if others else None


ABSENT = (
    "A write creates the database: siltstone.spark.bulk_load(df, url, key=…), "
    "df.write.format('siltstone').mode('append').save(url), or siltstone.open(url)"
)


@contextmanager
def explained_absence() -> Iterator[None]:
    """Adds to the error for a missing database how to create it."""
    try:
        yield
    except NotFound as error:
        # NotFound for a version that is not kept has other facts.
        if "store" in error.context and "manifest" not in error.context:
            error.args = (f"{error}. {ABSENT}",)
        raise


def schema_text(url: Url, store_options: StoreOptionsSource | None) -> str | None:
    """The schema of the newest manifest; None: a database of bytes.

    :raises NotFound, Denied, Unavailable: as `siltstone.admin.manifest`.
    """
    found: str | None = siltstone.admin.manifest(url, store_options=store_options)["schema"]
    return found


def text_of(reader: siltstone.Reader) -> str | None:
    """The schema of the state that a reader reads; None: a database of bytes."""
    found: str | None = reader._schema()  # noqa: SLF001 - this package's own
    return found


def schema_of(text: str) -> TableSchema:
    """The schema of a text, parsed once in a process."""
    return _schema_of(text)


def arrow_fields(text: str) -> pa.Schema:
    """The columns of a table as Arrow fields."""
    return _fields(text)


def _arrow(text: str) -> pa.Schema:
    return pa.schema(schema_of(text))


_fields = lru_cache(maxsize=64)(_arrow)


def arrow_type(kind: DataType, column: str) -> pa.DataType:
    """The type of a table's column for a type of Spark. All parts of a nested type are nullable,
    except the keys of maps.

    :raises Invalid: no column of a table can have that type.
    """
    name = kind.simpleString()
    try:
        return _arrow_type(kind)
    except _NoType as error:
        part = error.args[0]
        which = "" if part == name else f", which has a part of type {part}"
        raise Invalid(
            f"the column {column!r} is of type {name}{which}, and no column of a table can be: "
            "cast it"
        ) from None


class _NoType(Exception):
    """A type of Spark that no column of a table can have."""


def _arrow_type(kind: DataType) -> pa.DataType:
    # pyspark is an extra of the package.
    from pyspark.sql import types  # noqa: PLC0415

    name = kind.simpleString()
    if name in PLAIN:
        return PLAIN[name][0]
    match kind:
        case types.DecimalType():
            return pa.decimal128(kind.precision, kind.scale)
        case types.ArrayType():
            return pa.list_(pa.field("item", _arrow_type(kind.elementType)))
        case types.StructType():
            return pa.struct([pa.field(one.name, _arrow_type(one.dataType)) for one in kind])
        case types.MapType():
            value = pa.field("value", _arrow_type(kind.valueType))
            return pa.map_(_arrow_type(kind.keyType), value)
        case _:
            raise _NoType(name)


def spark_types(text: str) -> Mapping[str, str]:
    """The types of a table's columns as Spark shows them, by name.

    :raises Unsupported: Spark cannot hold a column.
    """
    return {field.name: _shown(field) for field in arrow_fields(text)}


def spark_type(text: str, name: str) -> str:
    """The type of one column of a table, as Spark shows it.

    :raises Unsupported: Spark cannot hold the column.
    """
    return _shown(arrow_fields(text).field(name))


def _shown(field: pa.Field) -> str:
    """Spark's `simpleString` of the column's type."""
    return _simple(field.type, field.name)


def _simple(kind: pa.DataType, column: str) -> str:
    if pa.types.is_map(kind):
        return f"map<{_simple(kind.key_type, column)},{_simple(kind.item_type, column)}>"
    if pa.types.is_list(kind):
        return f"array<{_simple(kind.value_type, column)}>"
    if pa.types.is_struct(kind):
        parts = [f"{one.name}:{_simple(one.type, column)}" for one in kind]
        return f"struct<{','.join(parts)}>"
    return _simple_flat(kind, column)


def _simple_flat(kind: pa.DataType, column: str) -> str:
    if pa.types.is_timestamp(kind) and kind.unit != "ns":
        return "timestamp_ntz" if kind.tz is None else "timestamp"
    if pa.types.is_fixed_size_binary(kind):
        return "binary"
    if pa.types.is_decimal128(kind) and 0 <= kind.scale <= kind.precision:
        return f"decimal({kind.precision},{kind.scale})"
    name = NAMES.get(kind) or LARGER.get(kind)
    if name is None:
        raise Unsupported(
            f"the column {column!r} is of type {kind}, which Spark cannot hold without loss; "
            "columns= leaves it out, as_bytes=True reads keys and values as they are"
        )
    return name


def _held(kind: pa.DataType, column: str) -> pa.DataType:
    """The type in which Spark holds values of a table's type.

    :raises Unsupported: Spark cannot hold them.
    """
    if pa.types.is_map(kind):
        value = kind.item_field.with_type(_held(kind.item_type, column))
        return pa.map_(_held(kind.key_type, column), value)
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_held(kind.value_type, column)))
    if pa.types.is_struct(kind):
        return pa.struct([one.with_type(_held(one.type, column)) for one in kind])
    name = _simple(kind, column)
    decimal = DECIMAL.fullmatch(name)
    return PLAIN[name][0] if decimal is None else pa.decimal128(int(decimal[1]), int(decimal[2]))


def spelled_where(text: str, where: Mapping[str, Any]) -> dict[str, Any]:
    """Values by column, with the names as the table spells them.

    :raises Invalid: there is no such column.
    """
    names, spelled = arrow_fields(text).names, {}
    for name, value in where.items():
        found = match(name, names)
        if found is None:
            key = ", ".join(schema_of(text).key)
            raise Invalid(f"where: there is no column {name!r}; the key is {key}")
        spelled[found] = value
    return spelled


def spark_fields(text: str, names: Sequence[str] | None, nullable: bool = False) -> pa.Schema:
    """The fields that batches for Spark have.

    :param names: the columns, in this order; None: all.
    :param nullable: whether all may hold nulls; otherwise as in the table.
    :raises Invalid: an unknown column. :raises Unsupported: Spark cannot hold a column.
    """
    fields = arrow_fields(text)
    wanted = fields.names if names is None else [match(n, fields.names) or n for n in names]
    if isinstance(names, str) or not wanted or len(set(wanted)) < len(wanted):
        raise Invalid(
            f"{names!r} is no list of columns: name some of {', '.join(fields.names)}, each once"
        )
    return pa.schema([_spark_field(fields, name, nullable) for name in wanted])


def _spark_field(fields: pa.Schema, name: str, nullable: bool) -> pa.Field:
    if name not in fields.names:
        raise Invalid(f"the table has no column {name!r}; there are {', '.join(fields.names)}")
    field = fields.field(name)
    return pa.field(name, _held(field.type, name), nullable or field.nullable)


def struct_of(fields: pa.Schema, names: Sequence[str] | None = None) -> StructType:
    """Fields of `spark_fields` as Spark's schema.

    :param names: their names in Spark; None: the same.
    """
    # pyspark is an extra of the package.
    from pyspark.sql import types  # noqa: PLC0415

    def made(kind: pa.DataType) -> Any:
        if pa.types.is_map(kind):
            parts = made(kind.key_type), made(kind.item_type)
            return types.MapType(*parts, kind.item_field.nullable)
        if pa.types.is_list(kind):
            return types.ArrayType(made(kind.value_type), kind.value_field.nullable)
        if pa.types.is_struct(kind):
            return types.StructType(
                [types.StructField(one.name, made(one.type), one.nullable) for one in kind]
            )
        if pa.types.is_decimal128(kind):
            return types.DecimalType(kind.precision, kind.scale)
        return getattr(types, PLAIN[NAMES[kind]][1])()

    pairs = zip(fields, names or fields.names, strict=True)
    return types.StructType(
        [types.StructField(name, made(field.type), field.nullable) for field, name in pairs]
    )


def cast(array: pa.Array, kind: pa.DataType, column: str) -> pa.Array:
    """The array with the type of a table's column.

    :raises Invalid: a value that the column cannot hold.
    """
    if array.type == kind:
        return array
    if pa.types.is_null(array.type):
        return pa.nulls(len(array), kind)
    try:
        return array.cast(kind)
    except pa.ArrowInvalid as error:
        raise Invalid(
            f"the column {column!r}, {array.type}, is {kind} in the table: {error}"
        ) from None


def castable(array: pa.Array, kind: pa.DataType) -> pa.Array | None:
    """Which values a column of a table can hold; None: all. Spark's type of a column may have more
    values than the column: those of `smallint` are not all `uint8`, and its strings may hold bytes
    that are not UTF-8."""
    if pa.types.is_string(array.type):
        # The cast from binary checks UTF-8.
        array = array.cast(pa.binary())
    if array.type == kind or pa.types.is_null(array.type) or _casts(array, kind):
        return None
    fit = [True] * len(array)
    # Halves of spans that do not fit as a whole, down to single values.
    spans = [(0, len(array))]
    while spans:
        start, end = spans.pop()
        if _casts(array[start:end], kind):
            continue
        if end - start == 1:
            fit[start] = False
            continue
        middle = (start + end) // 2
        spans += [(start, middle), (middle, end)]
    return pa.array(fit)


def _casts(array: pa.Array, kind: pa.DataType) -> bool:
    try:
        array.cast(kind)
    except pa.ArrowInvalid:
        return False
    return True


def encoded(text: str, batch: pa.RecordBatch) -> tuple[pa.Array, pa.Array]:
    """The keys and values of rows. Columns that the table does not have are ignored.

    :raises Invalid: a null in a column without nulls; a number out of range.
    """
    fields = arrow_fields(text)
    names = [name for name in batch.schema.names if name in fields.names]
    # Parts of nested columns are matched by the encoder.
    arrays = [
        batch.column(name)
        if pa.types.is_nested(batch.column(name).type)
        else cast(batch.column(name), fields.field(name).type, name)
        for name in names
    ]
    rows = pa.RecordBatch.from_arrays(arrays, names=names)
    try:
        keys, values = schema_of(text).encode(rows)
    except Invalid as error:
        column = error.context.get("column")
        if column in names and _is_malformed(rows.column(column)):
            error.args = (f"{error}; {MAKE_VALID}",)
        elif column in names and rows.column(column).null_count:
            remedy = f"db.table.allow_nulls({column!r}) makes the column nullable"
            if column in schema_of(text).key:
                remedy = (
                    "a key cannot be changed: filter such rows out, or load into a new table that "
                    "siltstone.table.create made with this column nullable"
                )
            error.args = (f"{error}; {remedy}",)
        raise
    return pa.array(keys), pa.array(values)


def _is_malformed(array: pa.Array) -> bool:
    """Whether the array is text, and a value of it is not UTF-8."""
    return pa.types.is_string(array.type) and castable(array, pa.string()) is not None


def encode_keys(text: str, arrays: Sequence[pa.Array]) -> pa.Array:
    """The keys of rows, from one array for each column of the key.

    :raises Invalid: a null in a column without nulls; a number out of range; text that is not
        UTF-8.
    """
    schema, fields = schema_of(text), arrow_fields(text)
    pairs = zip(arrays, schema.key, strict=True)
    typed = [cast(array, fields.field(name).type, name) for array, name in pairs]
    try:
        return pa.array(schema.encode_key(pa.RecordBatch.from_arrays(typed, names=schema.key)))
    except Invalid as error:
        if any(map(_is_malformed, typed)):
            error.args = (f"{error}; {MAKE_VALID}",)
        raise


def lookup_keys(text: str, arrays: Sequence[pa.Array]) -> tuple[pa.Array, pa.Array | None]:
    """The keys to look up, and which rows have one; None: all. A row with a null in a key column
    without nulls has none, and neither has a row with a value that its key column cannot hold.
    """
    fields = arrow_fields(text)
    kept = None
    for array, name in zip(arrays, schema_of(text).key, strict=True):
        if array.null_count and not fields.field(name).nullable:
            there = array.is_valid()
            kept = there if kept is None else pc.and_(kept, there)
    if kept is not None:
        arrays = [array.filter(kept) for array in arrays]
    keys, fit = encode_possible_keys(text, arrays)
    if fit is not None:
        kept = fit if kept is None else scatter(fit, kept).fill_null(False)
    return keys, kept


def encode_possible_keys(text: str, arrays: Sequence[pa.Array]) -> tuple[pa.Array, pa.Array | None]:
    """As `encode_keys`, without the rows whose key cannot exist: it is too long, or the key's
    column cannot hold a value. The second array is which rows have a key; None: all.

    :raises Invalid: a null in a column without nulls.
    """
    fields = arrow_fields(text)
    fit = None
    for array, name in zip(arrays, schema_of(text).key, strict=True):
        held = castable(array, fields.field(name).type)
        if held is not None:
            fit = held if fit is None else pc.and_(fit, held)
        kind = array.type
        if pa.types.is_string(kind) or pa.types.is_binary(kind):
            short = pc.fill_null(pc.less_equal(pc.binary_length(array), KEY_BYTES), True)
            fit = short if fit is None else pc.and_(fit, short)
    if fit is not None and pc.all(fit, min_count=0).as_py():
        fit = None
    while True:
        some = arrays if fit is None else [array.filter(fit) for array in arrays]
        try:
            return encode_keys(text, some), fit
        except Invalid as error:
            # The encoding of values below the limit can be above it.
            if not {"row", "bytes"} <= set(error.context):
                raise
            there = range(len(some[0]))
            without = pa.array([row != int(error.context["row"]) for row in there])
            fit = without if fit is None else scatter(without, fit).fill_null(False)


def within_length(keys: pa.Array) -> pa.Array | None:
    """Which keys of bytes, binary or text, have a length that a key can have, null for a null.
    None: all have."""
    lengths = pc.binary_length(keys)
    ends = pc.min_max(lengths)
    least, most = ends["min"].as_py(), ends["max"].as_py()
    if least is None or (least > 0 and most <= KEY_BYTES):
        return None
    return pc.and_(pc.greater(lengths, 0), pc.less_equal(lengths, KEY_BYTES))


def scatter(array: pa.Array, kept: pa.Array) -> pa.Array:
    """An array as long as `kept`: the next value of `array` where it is true, else null."""
    place = pc.subtract(pc.cumulative_sum(kept.cast(pa.int64())), 1)
    return array.take(pc.if_else(kept, place, pa.scalar(None, pa.int64())))


def decoded(batch: pa.RecordBatch, fields: pa.Schema) -> pa.RecordBatch:
    """Rows of a table as a batch of exactly `fields`, which are those of `spark_fields` in the
    order of the batch's columns."""
    pairs = zip(batch.columns, fields, strict=True)
    arrays = [cast(column, field.type, field.name) for column, field in pairs]
    return pa.RecordBatch.from_arrays(arrays, schema=fields)
