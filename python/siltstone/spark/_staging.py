"""The tasks of a write: they sort their rows into tables of an ingest job.

A task returns one small message. A problem in the rows travels in the message and is not raised,
because Spark would repeat a task whose rows stay the same.
"""

from __future__ import annotations

import itertools
import os
import pickle
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from siltstone import ingest
from siltstone.exceptions import Invalid
from siltstone.spark._columns import (
    INSTANT,
    encode_keys,
    encoded,
    lookup_keys,
    scatter,
    schema_of,
    within_length,
)

__all__ = ["DELETES", "MESSAGE", "PUTS", "Staged", "Staging", "check_disjoint", "stage", "staged"]

MESSAGE = "message binary"
"""The schema of `stage`'s result."""
PUTS = ("put", "upsert", "insert", "update", "c", "i", "r", "u")
"""Operations that write the row."""
DELETES = ("delete", "d")
"""Operations that delete the key."""
MERGE = "merge"
"""The operation that merges an operand into the value. Change feeds of other databases use its
first letter for messages."""
QUERY_ID = "sql.streaming.queryId"
"""The local property with the id of a stream's query. It survives restarts."""


@dataclass(frozen=True)
class Staging:
    """The description of a task. The columns are `key`, `value`, and `op` if rows have operations;
    without `value` each row deletes its key. A table's columns have the table's names."""

    job: ingest.Job
    duplicates: str = "error"
    """The rule for rows with the same key: "error", or "last"."""
    table_bytes: int | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    names: Mapping[str, str] = field(default_factory=dict)
    """The user's names of the columns by role: for error texts, and `op` and `expire_at` for a
    table's rows."""
    schema: str | None = None
    """The schema of the table; None: keys and values are bytes."""
    deletes: bool = False
    """Whether each row of a table is a key to delete."""
    expires: datetime | None = None
    """The time at which all rows expire."""
    reported: Any = None
    """The accumulator of `siltstone.spark._jobs.Parts`, which gets the rows and bytes of the
    part; None: nothing is reported."""


@dataclass(frozen=True)
class Staged:
    """The result of a task."""

    number: int
    """The number of its partition."""
    part: ingest.Part | None = None
    """The staged part; None: there were no rows, or there was a problem."""
    first: bytes | None = None
    last: bytes | None = None
    """The least and the greatest key."""
    query: str | None = None
    """The query of the stream, if the task is part of one."""
    problem: Invalid | None = None
    """The problem in the rows."""


def stage(batches: Iterator[pa.RecordBatch], staging: Staging) -> Iterator[pa.RecordBatch]:
    """One message for all rows of a task: a function for `mapInArrow`."""
    message = pickle.dumps(staged(batches, staging))
    yield pa.RecordBatch.from_pydict({"message": pa.array([message], pa.binary())})


def staged(batches: Iterable[pa.RecordBatch], staging: Staging) -> Staged:
    """Sorts the rows of a task into tables, and uploads them.

    :raises Denied, Unavailable: as `PartWriter`; Spark repeats the task then.
    """
    number, query = _task()
    rows = iter(batches)
    try:
        part, first, last = _written(rows, staging, number)
    except Invalid as problem:
        # Spark waits until all rows are read, and does not reuse a worker that leaves some.
        for _ in rows:
            pass
        return Staged(number, query=query, problem=problem)
    if staging.reported is not None:
        staging.reported.add({(staging.job.id, number): (part.rows, part.bytes)})
    return Staged(number, part if part.rows else None, first, last, query)


def _task() -> tuple[int, str | None]:
    """The number of this task's partition, and the query that it is part of."""
    from pyspark import TaskContext  # noqa: PLC0415 - the package does without pyspark

    task = TaskContext.get()
    if task is None:
        return 0, None
    return task.partitionId(), task.getLocalProperty(QUERY_ID) or None


def _written(
    batches: Iterator[pa.RecordBatch], staging: Staging, number: int
) -> tuple[ingest.Part, bytes | None, bytes | None]:
    least: list[bytes] = []
    greatest: list[bytes] = []
    sized = {} if staging.table_bytes is None else {"table_bytes": staging.table_bytes}
    writer = staging.job.writer(
        number,
        options=dict(staging.options) or None,
        duplicates="last" if staging.duplicates == "last" else "error",
        scratch=scratch(),
        **sized,
    )
    with writer:
        for batch in batches:
            if not batch.num_rows:
                continue
            keys, values, operands = _columns(batch, staging)
            if not len(keys):
                continue
            expiries = _expiries(batch, staging)
            if expiries is not None and expiries.null_count == len(expiries):
                expiries = None
            rows = _Rows(keys, values, expiries)
            if operands is not None:
                _merge(writer, rows.where(operands))
                rows = rows.where(pc.invert(operands))
            _put(writer, rows, staging)
            ends = pc.min_max(keys.cast(pa.large_binary()))
            least.append(ends["min"].as_py())
            greatest.append(ends["max"].as_py())
            _check_inside(least[-1], greatest[-1], staging)
    return writer.finish(), min(least, default=None), max(greatest, default=None)


def _check_inside(least: bytes, greatest: bytes, staging: Staging) -> None:
    """Checks that the keys of a batch lie in the range that the job replaces.

    :raises Invalid: one does not. The job would refuse it, too, but names only bytes.
    """
    start, end = staging.job.replace or (None, None)
    below, above = start is not None and least < start, end is not None and greatest >= end
    if not (below or above):
        return
    key = least if below else greatest
    shown = f"the key {key!r}"
    if staging.schema is not None:
        row = pa.record_batch(schema_of(staging.schema).decode_key(pa.array([key])))
        shown = ", ".join(f"{name} = {value!r}" for name, value in row.to_pylist()[0].items())
    raise Invalid(
        f"a row with {shown} lies outside of the range that the load replaces: filter such rows "
        "out, or load them with mode 'append'"
    )


def _expiries(batch: pa.RecordBatch, staging: Staging) -> pa.Array | None:
    """When each row expires, null for never; None: no row expires."""
    if staging.expires is not None:
        return pa.repeat(pa.scalar(staging.expires, INSTANT), batch.num_rows)
    name = staging.names.get("expire_at")
    if name is None:
        return None
    return batch.column("expire_at" if staging.schema is None else name).cast(INSTANT)


@dataclass(frozen=True)
class _Rows:
    """Rows of a batch."""

    keys: pa.Array
    values: pa.Array
    """The values; null for a key to delete."""
    expiries: Any
    """The array of times at which each row expires, null for never; None: no row expires."""

    def where(self, mask: pa.Array) -> _Rows:
        """The rows for which `mask` is true."""
        ends = None if self.expiries is None else self.expiries.filter(mask)
        return _Rows(self.keys.filter(mask), self.values.filter(mask), ends)

    def ordered_by_expiry(self) -> _Rows:
        """The rows in another order, in which few neighbours have different expiries."""
        order = pc.sort_indices(self.expiries)
        return _Rows(self.keys.take(order), self.values.take(order), self.expiries.take(order))

    def runs(self) -> Iterator[tuple[pa.Array, pa.Array, datetime | None]]:
        """Keys, values and the expiry of neighbours with the same expiry. The keys and values are
        large binary arrays."""
        keys, values = self.keys.cast(pa.large_binary()), self.values.cast(pa.large_binary())
        runs = pc.run_end_encode(self.expiries.cast(pa.int64()))
        start = 0
        for end, micros in zip(runs.run_ends.to_pylist(), runs.values.to_pylist(), strict=True):
            yield keys[start:end], values[start:end], None if micros is None else _moment(micros)
            start = end


def _put(writer: ingest.PartWriter, rows: _Rows, staging: Staging) -> None:
    """Adds rows, and tombstones for null values. A writer takes rows of one expiry at a time."""
    if rows.expiries is None:
        writer.put_or_delete_many(rows.keys, rows.values)
        return
    ends = pc.if_else(rows.values.is_valid(), rows.expiries, pa.scalar(None, INSTANT))
    rows = _Rows(rows.keys, rows.values, ends)
    if staging.duplicates != "last":
        # The order of rows matters only if the last one of a key counts.
        rows = rows.ordered_by_expiry()
    for keys, values, moment in rows.runs():
        if moment is None:
            writer.put_or_delete_many(keys, values)
        elif len(keys) == 1:
            # Much cheaper than two arrays of one row.
            writer.add(keys[0].as_py(), values[0].as_py(), expire_at=moment)
        else:
            writer.add_many(keys, values, expire_at=moment)


def _merge(writer: ingest.PartWriter, rows: _Rows) -> None:
    """Adds merge operands."""
    if rows.expiries is None:
        writer.merge_many(rows.keys, rows.values)
        return
    for keys, operands, moment in rows.ordered_by_expiry().runs():
        writer.merge_many(keys, operands, expire_at=moment)


def _moment(micros: int) -> datetime:
    try:
        return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=micros)
    except OverflowError:
        raise Invalid(
            f"an expiry time is {micros} microseconds after 1970, and the last year is 9999: use "
            "null for rows that never expire"
        ) from None


def _columns(batch: pa.RecordBatch, staging: Staging) -> tuple[pa.Array, pa.Array, pa.Array | None]:
    """The keys, the values, which are null for a key to delete, and which of them are merge
    operands; None: none are."""
    names = staging.names
    if staging.schema is not None:
        return (*_rows(batch, staging, staging.schema), None)
    keys = batch.column("key")
    if keys.null_count:
        raise Invalid(
            f"the column {names.get('key', 'key')!r} has nulls, and a null is no key: filter them "
            "out before"
        )
    if "value" not in batch.schema.names:
        fit = within_length(keys)
        if fit is not None:
            # No database has these keys, so there is nothing to delete.
            keys = keys.filter(fit)
        return keys, pa.nulls(len(keys), pa.binary()), None
    values = batch.column("value")
    if pa.types.is_null(values.type):
        values = pa.nulls(len(values), pa.binary())
    goes = operands = None
    if "op" in batch.schema.names:
        goes, operands = _operations(batch.column("op"), names.get("op", "op"))
        values = pc.if_else(goes, pa.scalar(None, values.type), values)
    if values.null_count > (0 if goes is None else pc.sum(goes).as_py()):
        raise Invalid(
            f"the column {names.get('value', 'value')!r} has nulls, and a null is no value: filter "
            "such rows out; siltstone.spark.delete deletes their keys"
        )
    if operands is not None and not pc.any(operands).as_py():
        operands = None
    return keys, values, operands


def _rows(batch: pa.RecordBatch, staging: Staging, schema: str) -> tuple[pa.Array, pa.Array]:
    """The keys and the values of rows of a table: null for a key to delete."""
    op = None if staging.deletes else staging.names.get("op")
    goes = None
    if op is not None:
        goes, operands = _operations(batch.column(op), op)
        if pc.any(operands).as_py():
            raise Invalid(
                f"column {op!r} has the value {MERGE!r}, and a table has no merge operator: "
                "siltstone.spark.merge and update_columns change some columns of its rows"
            )
    if goes is not None and not pc.any(goes).as_py():
        goes = None
    if goes is None and not staging.deletes:
        return encoded(schema, batch)
    # A delete needs only the key. Its other columns may be null.
    arrays = [batch.column(name) for name in schema_of(schema).key]
    if goes is None:
        keys, _ = lookup_keys(schema, arrays)
        return keys, pa.nulls(len(keys), pa.binary())
    keys = encode_keys(schema, arrays)
    stays = pc.invert(goes)
    return keys, scatter(encoded(schema, batch.filter(stays))[1], stays)


def _operations(operations: pa.Array, name: str) -> tuple[pa.Array, pa.Array]:
    """Which rows delete their key, and which are merge operands."""
    said = pc.utf8_lower(operations.cast(pa.string()))
    goes = pc.is_in(said, pa.array(DELETES))
    operands = pc.fill_null(pc.equal(said, MERGE), False)
    known = pc.or_(pc.or_(goes, operands), pc.is_in(said, pa.array(PUTS)))
    if not pc.all(known, min_count=0).as_py():
        other = said.filter(pc.invert(known))[0].as_py()
        raise Invalid(
            f"column {name!r} has the value {other!r}; allowed are {', '.join(PUTS)} (write), "
            f"{', '.join(DELETES)} (delete) and {MERGE}"
        )
    return goes, operands


def scratch() -> str:
    """A folder for data that does not fit into memory: one of Spark's own local folders."""
    given = os.environ.get("SPARK_LOCAL_DIRS", "").split(",")
    return next((one for one in given if one and Path(one).is_dir()), tempfile.gettempdir())


def check_disjoint(found: Sequence[Staged], layout: str) -> None:
    """Checks that the key ranges of tasks do not overlap, so that each key was in one task only.

    :raises Invalid: two overlap.
    """
    ends = [
        (one.first, one.last, one.number)
        for one in found
        if one.first is not None and one.last is not None
    ]
    ends.sort()
    for (_, last, one), (first, _, other) in itertools.pairwise(ends):
        if first <= last:
            raise Invalid(
                f"layout {layout!r} needs each key in one task only, but partition {other} begins "
                f"at {first!r}, and partition {one} ends at {last!r}. "
                "Use df.repartitionByRange(n, key) before, or layout 'runs', which does not check "
                "for duplicates"
            )
