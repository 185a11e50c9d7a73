"""The error of a frame in which several rows have one key, where each key may occur once.

A task that meets a key twice knows only numbers of its rows, which say nothing to the caller. So a
job looks for such a key.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from siltstone.exceptions import Invalid
from siltstone.spark._columns import schema_of
from siltstone.spark._matching import PreparedFrame, quoted
from siltstone.spark._staging import Staged

__all__ = ["check_keys_differ"]

EQUAL_KEYS = "two rows have the same key"
"""The beginning of the error of a task that met a key twice."""


def check_keys_differ(rows: PreparedFrame, found: Sequence[Staged], rule: str) -> None:
    """Checks that no task met a key twice.

    :param found: the results of the tasks.
    :param rule: the rule that such rows break, and other remedies, for the error text.
    :raises Invalid: one did. The error names a key.
    """
    problems = (str(one.problem) for one in found if one.problem is not None)
    if any(EQUAL_KEYS in problem for problem in problems):
        raise _equal_keys(rows, rule)


def _equal_keys(rows: PreparedFrame, rule: str) -> Invalid:
    from pyspark.sql import functions as sf  # noqa: PLC0415 - the package does without pyspark

    names = ["key"] if rows.schema is None else schema_of(rows.schema).key
    counted = rows.frame.groupBy(*[sf.col(quoted(name)) for name in names])
    named = None
    # The frame may be different when it is computed again.
    with suppress(Exception):
        several = counted.agg(sf.count(sf.lit(1)).alias("rows of the key"))
        named = several.where("`rows of the key` > 1").first()
    which = "the same key" if named is None else f"the key {tuple(named)[:-1]!r}"
    theirs = [rows.names["key"]] if rows.schema is None else names
    return Invalid(
        f"several rows of the frame have {which}, and {rule}: keep one of them, for example by "
        f"df.dropDuplicates({theirs!r})"
    )
