"""Texts as values of key columns, for bounds: in the options of the data source, and in arguments.

A text that is no value of its column must be refused, and never rounded: the bound would be another
one.
"""

from __future__ import annotations

import re
from datetime import datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa

from siltstone.exceptions import Invalid
from siltstone.spark._columns import arrow_fields, spark_type

__all__ = ["bytes_of", "value_of"]

FINER = re.compile(r"[.,]\d{6}\d*[1-9]")
"""A time of more than six decimals, which no column in Spark has. Further zeros change nothing."""
HEX = "hex:"
"""The prefix of an option's value that is bytes in hexadecimal digits."""


def value_of(text: str, column: str, spoken: str, option: str) -> Any:
    """The value of a table's column that a text means: text as it is; a number, a date or a time as
    in Spark's SQL; bytes as UTF-8, or as digits after `hex:`.

    :raises Invalid: the text is no value of the column.
    """
    kind = arrow_fields(text).field(column).type
    remedy = "give a value of that type"
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        remedy += ", with its zone, such as 2026-01-31T12:00:00Z, and at most six decimals"
    elif pa.types.is_timestamp(kind):
        remedy += ", without a zone, and at most six decimals"
    try:
        if pa.types.is_string(kind) or pa.types.is_large_string(kind):
            return spoken
        if pa.types.is_binary(kind) or pa.types.is_fixed_size_binary(kind):
            digits = spoken.startswith(HEX)
            return bytes.fromhex(spoken.removeprefix(HEX)) if digits else spoken.encode()
        if pa.types.is_decimal(kind):
            return _number(spoken)
        if pa.types.is_timestamp(kind):
            return _moment(spoken, kind)
        return pa.scalar(spoken).cast(kind).as_py()
    except (ValueError, ArithmeticError, pa.ArrowInvalid, pa.ArrowNotImplementedError):
        raise Invalid(
            f"{option} is {spoken!r}, and {column!r}, a column of the table's key, is of type "
            f"{spark_type(text, column)}: {remedy}, or read with asBytes and give "
            "bytes of a key"
        ) from None


def bytes_of(spoken: str, option: str) -> bytes:
    """The key of a database of bytes that a text means: its UTF-8, or digits after `hex:`.

    :raises Invalid: no hexadecimal digits.
    """
    if not spoken.startswith(HEX):
        return spoken.encode()
    try:
        return bytes.fromhex(spoken.removeprefix(HEX))
    except ValueError:
        raise Invalid(
            f"{option} is {spoken!r}: two hexadecimal digits a byte after {HEX}"
        ) from None


def _number(spoken: str) -> Decimal:
    number = Decimal(spoken)
    if not number.is_finite():
        raise ValueError(spoken)
    return number


def _moment(spoken: str, kind: pa.DataType) -> datetime:
    if FINER.search(spoken):
        # Python cuts these digits, and the bound would be another one.
        raise ValueError(spoken)
    moment = datetime.fromisoformat(spoken)
    if (moment.tzinfo is None) != (kind.tz is None):
        raise ValueError(spoken)
    return moment
