"""Ranges of keys under leading parts of a key.

Parts are encoded in batches, as keys are. They must not become Python objects on the way, because
Spark has dates and times that Python has not.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache

import pyarrow as pa

from siltstone.spark._bounds import bounds
from siltstone.spark._columns import arrow_fields, lookup_keys, schema_of
from siltstone.spark._ranges import Range
from siltstone.table import TableSchema

__all__ = ["prefix_ranges"]


def prefix_ranges(table: str | None, arrays: Sequence[pa.Array]) -> Iterator[Range | None]:
    """The key range under each row's part of a key. None if no key can have that part.

    :param table: the schema of the table; None: keys are bytes.
    :param arrays: the part of each row, one array for each of the first columns of the key; of type
        `binary` if keys are bytes.
    """
    if table is None:
        for prefix in arrays[0].to_pylist():
            yield None if prefix is None else bounds(None, None, prefix) if prefix else (None, None)
        return
    whole = len(arrays) == len(schema_of(table).key)
    if not whole:
        table = _leading(table, len(arrays))
        arrays = [*arrays, pa.repeat(False, len(arrays[0]))]
    keys, kept = lookup_keys(table, arrays)
    found = iter(keys.to_pylist())
    for exists in [True] * len(keys) if kept is None else kept.to_pylist():
        if not exists:
            yield None
            continue
        key = next(found)
        yield (key, key + b"\0") if whole else bounds(None, None, key[:-1])


def _leading_schema(table: str, count: int) -> str:
    """A schema whose key is the first columns of a table's key, and one column of one byte. That
    column makes the encoding of the others the same as in the table, where more columns follow.
    """
    schema, fields, key = schema_of(table), [], []
    pairs = zip(schema.key[:count], schema.directions[:count], strict=True)
    for number, (name, (descending, nulls_last)) in enumerate(pairs):
        field = arrow_fields(table).field(name).with_name(str(number))
        nulls = f" nulls {'last' if nulls_last else 'first'}" if field.nullable else ""
        fields.append(field)
        key.append(f"{number}{' desc' if descending else ''}{nulls}")
    end = pa.field(str(count), pa.bool_(), nullable=False)
    return TableSchema(pa.schema([*fields, end]), key=[*key, end.name]).text


_leading = lru_cache(maxsize=64)(_leading_schema)
