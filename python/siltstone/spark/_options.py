"""The options of `format("siltstone")`: texts, by the names that users write."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from difflib import get_close_matches

from siltstone import _native
from siltstone._numbers import count_of, size_of
from siltstone.exceptions import Invalid
from siltstone.spark._bound_values import bytes_of, value_of
from siltstone.spark._columns import schema_of
from siltstone.spark._ranges import Range

__all__ = [
    "CREATE_VIEW",
    "byte_count",
    "duration",
    "flag",
    "key_of",
    "number",
    "parse_options",
    "range_between",
]

CREATE_VIEW = (
    "In SQL: CREATE TEMPORARY VIEW name USING siltstone OPTIONS (path '…'). CREATE TABLE does not "
    "work, because Spark passes no option of a table to a data source in Python"
)
"""How to name a database in SQL."""
TABLE_PROPERTIES = ("owner", "location", "provider", "external", "is_managed_location")
"""Properties of a catalog table. Spark passes them as options to the source of such a table."""


def parse_options(
    options: Mapping[str, str], known: Mapping[str, str], what: str, passed_over: Sequence[str] = ()
) -> dict[str, str]:
    """The options by the names of `known`. Spark has converted the names to lower case.

    :param what: the use of the options, for the error text.
    :param passed_over: names of options that have another use.
    :raises Invalid: an unknown option; several paths.
    """
    names = {name.casefold(): name for name in known}
    others = {name.casefold() for name in passed_over}
    meant: dict[str, str] = {}
    for given, value in options.items():
        if given.casefold() in others:
            continue
        if given.casefold() == "paths":
            # `load` passes a list of paths as JSON.
            paths = json.loads(value)
            if len(paths) != 1:
                raise Invalid(f"a frame reads one database, not {len(paths)}; union the frames")
            meant["path"] = paths[0]
            continue
        name = names.get(given.casefold())
        if name is None and any(one.casefold() in TABLE_PROPERTIES for one in options):
            raise Invalid(f"a database cannot be a table of Spark's catalog. {CREATE_VIEW}")
        if name is None:
            near = get_close_matches(given.casefold(), names, 1)
            meaning = f" (did you mean {names[near[0]]!r}?)" if near else ""
            raise Invalid(
                f"there is no option {given!r} where {what}{meaning}; there are {', '.join(known)}"
            )
        meant[name] = value
    return meant


def number(
    asked: Mapping[str, str], name: str, least: int = 1, most: int | None = None
) -> int | None:
    """An option that is a whole number; None if it is not given.

    :param most: the greatest value; None: any value below 2^64.
    :raises Invalid: another value.
    """
    text = asked.get(name)
    if text is None:
        return None
    try:
        found = int(text)
    except ValueError:
        raise Invalid(f"{name} is {text!r}: a number from {least} on") from None
    return count_of(found, name, least, most)


def byte_count(asked: Mapping[str, str], name: str) -> int | None:
    """An option that is a size, in bytes or as text such as `64MiB`; None if it is not given.

    :raises Invalid: another value, or 0.
    """
    text = asked.get(name)
    return None if text is None else size_of(text, name, 1)


def duration(asked: Mapping[str, str], name: str) -> float | None:
    """An option that is a duration above 0, in seconds; None if it is not given.

    :raises Invalid: another value.
    """
    text = asked.get(name)
    if text is None:
        return None
    seconds = _native.seconds_of_duration(text, name)
    if not seconds > 0:
        raise Invalid(f"{name} is {text!r}: a duration above 0, such as 90 or 2h")
    return seconds


def flag(asked: Mapping[str, str], name: str) -> bool:
    """An option that is true or false; false if it is not given.

    :raises Invalid: another value.
    """
    text = asked.get(name, "false").casefold()
    if text not in ("true", "false"):
        raise Invalid(f"{name} is {text!r}: true or false")
    return text == "true"


def key_of(asked: Mapping[str, str], name: str) -> bytes | None:
    """An option that is a key: UTF-8 text, or hexadecimal digits; None if it is not given.

    :raises Invalid: no hexadecimal digits.
    """
    text = asked.get(name)
    return None if text is None else bytes_of(text, name)


def range_between(asked: Mapping[str, str], start: str, end: str, table: str | None) -> Range:
    """The range of keys between two options. For a database of bytes they are keys, for a table
    values of the first column of its key, in the order of the key.

    :param table: the schema of the table; None: keys are bytes.
    :raises Invalid: no hexadecimal digits; no value of the column.
    """
    if table is None:
        return key_of(asked, start), key_of(asked, end)
    column = schema_of(table).key[0]
    low, high = (
        None if asked.get(name) is None else value_of(table, column, asked[name], name)
        for name in (start, end)
    )
    return schema_of(table).range(None, low, high)
