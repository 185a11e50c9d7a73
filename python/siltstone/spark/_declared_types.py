"""Columns of a table as a user's schema declares them: parts that hold no nulls.

A schema of Spark, such as that of another frame, may say of parts of nested columns that they hold
no nulls. Spark takes only batches of exactly the declared types, and does not check their values.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from siltstone.exceptions import Invalid

__all__ = ["declared_as"]


def declared_as(columns: Sequence[pa.Array], fields: pa.Schema) -> pa.RecordBatch:
    """The columns as a batch of exactly `fields`, which differ from them at most in names and in
    which columns and parts of nested columns may hold nulls.

    :raises Invalid: a column or part that was declared as not nullable has a null. Spark would
        fail, or return other values.
    """
    for column, field in zip(columns, fields, strict=True):
        part = _declared_null(column, field, field.name)
        if part is not None:
            raise Invalid(
                f"the column {part!r} was declared NOT NULL, and a row of the table has a null "
                "there: declare it without NOT NULL"
            )
    arrays = [_retyped(column, field.type) for column, field in zip(columns, fields, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=fields)


def _declared_null(array: pa.Array, field: pa.Field, name: str) -> str | None:
    """The part of a column that has a null although its field is not nullable; None: none has."""
    if array.null_count and not field.nullable:
        return name
    if not _declares_parts(field.type):
        return None
    # The parts of a null have no values.
    array = array.drop_null()
    for part, values, name_of_part in _parts(array, field.type):
        found = _declared_null(values, part, f"{name}.{name_of_part}")
        if found is not None:
            return found
    return None


def _declares_parts(kind: pa.DataType) -> bool:
    """Whether a part of the type is not nullable. The keys of maps never are."""
    if pa.types.is_map(kind):
        return not kind.item_field.nullable or _declares_parts(kind.item_type)
    if pa.types.is_list(kind) or pa.types.is_struct(kind):
        parts = (kind.field(number) for number in range(kind.num_fields))
        return any(not part.nullable or _declares_parts(part.type) for part in parts)
    return False


def _parts(array: pa.Array, kind: pa.DataType) -> Iterator[tuple[pa.Field, pa.Array, str]]:
    """The parts of a nested type, with their values in an array without nulls, and their names as
    Spark's SQL has them."""
    if pa.types.is_struct(kind):
        for part, values in zip(kind, array.flatten(), strict=True):
            yield part, values, part.name
        return
    first, last = array.offsets[0].as_py(), array.offsets[-1].as_py()
    if pa.types.is_map(kind):
        yield kind.key_field, array.keys[first:last], "key"
        yield kind.item_field, array.items[first:last], "value"
    else:
        yield kind.value_field, array.values[first:last], "element"


def _retyped(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """The array with a type that differs in the nullability of its parts. Arrow's `cast` refuses
    this for the parts of a null."""
    if array.type == kind:
        return array
    there = [array.is_valid().buffers()[1]]
    if pa.types.is_struct(kind):
        pairs = enumerate(kind)
        parts = [_retyped(array.field(number), part.type) for number, part in pairs]
    else:
        # A copy, whose buffer begins with the first row.
        there.append(pc.add(array.offsets, pa.scalar(0, pa.int32())).buffers()[1])
        parts = [_retyped_values(array, kind)]
    given = (there, array.null_count, 0, parts)
    return pa.Array.from_buffers(kind, len(array), *given)


def _retyped_values(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """The values of a list, or the entries of a map, as `_retyped`."""
    if not pa.types.is_map(kind):
        return _retyped(array.values, kind.value_type)
    entries = pa.struct([kind.key_field, kind.item_field])
    parts = [_retyped(array.keys, kind.key_type), _retyped(array.items, kind.item_type)]
    return pa.Array.from_buffers(entries, len(array.keys), [None], 0, 0, parts)
