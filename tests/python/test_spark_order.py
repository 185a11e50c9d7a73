"""The keys of a table sort in the order in which Spark sorts rows."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from itertools import product
from typing import Any

import pyarrow as pa
import pytest

from siltstone import table
from spark_versions_for_tests import frame_of_table

pytest_plugins = ["spark_for_tests"]
pytestmark = pytest.mark.slow

NAN, INF = float("nan"), float("inf")
# Every key type of Spark, with edge values.
COLUMNS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "boolean": (pa.bool_(), [True, False]),
    "byte": (pa.int8(), [-128, -1, 0, 1, 127]),
    "short": (pa.int16(), [-32768, -256, 0, 255, 32767]),
    "int": (pa.int32(), [-(2**31), -1, 0, 2**31 - 1]),
    "long": (pa.int64(), [-(2**63), -1, 0, 2**63 - 1]),
    "float": (pa.float32(), [-INF, -1.5, -0.0, 0.0, 1.5, INF, NAN]),
    "double": (pa.float64(), [-INF, -1e300, -5e-324, -0.0, 0.0, 5e-324, INF, NAN]),
    "decimal": (pa.decimal128(9, 2), [Decimal("-9.99"), Decimal("-0.01"), Decimal("12.30")]),
    "large": (pa.decimal128(38, 0), [Decimal(-(10**37)), Decimal(0), Decimal(10**37)]),
    "date": (pa.date32(), [date(1, 1, 1), date(1969, 12, 31), date(2026, 1, 31)]),
    "instant": (
        pa.timestamp("us", "UTC"),
        [datetime(1960, 1, 1, tzinfo=UTC), datetime(2026, 1, 1, tzinfo=UTC)],
    ),
    "string": (pa.string(), ["", "\0", "a", "a\0", "ab", "b", "\uffff", "\U0001f600"]),
    "binary": (pa.binary(), [b"", b"\0", b"\0\xff", b"a", b"a\0", b"\xff"]),
}


WAYS = ["asc nulls first", "desc nulls first", "asc nulls last", "desc nulls last"]


def test_the_order_is_sparks(spark) -> None:
    """Each type is tested before a second column, so that a wrong end mark shows, and after one,
    where strings are stored raw. One sort by Spark covers all types: it sorts by the name of the
    type first, and the columns of all other types are null."""
    rows, wanted = [], []
    for name, (_, values) in COLUMNS.items():
        # Rows in arbitrary order, so that rows that Spark finds equal are not sorted by chance.
        pairs = list(product([None, *values], [None, 1, 0]))[::-1]
        rows += [{"type": name, name: it, "next": then} for it, then in pairs]
    fields = {"type": pa.string(), "next": pa.int32(), "row": pa.int32()}
    fields |= {name: of for name, (of, _) in COLUMNS.items()}
    numbered = [{**row, "row": number} for number, row in enumerate(rows)]
    data = pa.Table.from_pylist(numbered, schema=pa.schema(list(fields.items())))
    frame_of_table(spark, data).createOrReplaceTempView("rows")
    for way in WAYS:
        its = ", ".join(f"`{name}` {way}" for name in COLUMNS)
        for by in (f"{its}, next {way}", f"next {way}, {its}"):
            found = spark.sql(f"select row from rows order by type, {by}").collect()
            wanted.append((way, by.startswith("next"), [row[0] for row in found]))
    for (way, is_last, theirs), name in product(wanted, COLUMNS):
        of_type = [number for number in theirs if rows[number]["type"] == name]
        names = ["next", name] if is_last else [name, "next"]
        schema = table.TableSchema(data.schema, key=[f"{each} {way}" for each in names])
        packed = pa.array(schema.encode_key(data)).to_pylist()
        # Rows that Spark finds equal have the same key, and may be in any order.
        mine = [packed[number] for number in of_type]
        assert mine == sorted(mine), (name, way, is_last)
        assert len(of_type) == 3 * (len(COLUMNS[name][1]) + 1)
