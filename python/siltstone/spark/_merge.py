"""Merging a DataFrame into a database: rows that match are updated or deleted, others inserted.

A task reads the current rows of its keys at one checkpoint, and stages the merged rows. The load is
one ingest job. It must never read a second state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

import siltstone
from siltstone import ingest
from siltstone._checkpoints import CheckpointLike
from siltstone._open import StoreOptionsSource, Url
from siltstone.exceptions import Invalid
from siltstone.options import Options, Seconds
from siltstone.spark._arguments import check_frame, expiry
from siltstone.spark._columns import (
    INSTANT,
    arrow_fields,
    cast,
    encode_keys,
    lookup_keys,
    match,
    resolving_as,
    schema_of,
    text_of,
)
from siltstone.spark._commit import PATIENCE, LoadResult, Submission, Txn, load, run
from siltstone.spark._creation import removed_on_failure
from siltstone.spark._equal_keys import check_keys_differ
from siltstone.spark._load import rows_for, staging_of
from siltstone.spark._matching import Key, PreparedFrame, prepared_rows, table_at
from siltstone.spark._pins import kept_for_a_call, reading
from siltstone.spark._staging import Staged, Staging, stage
from siltstone.spark._tasks import FIRST_ROWS, as_binary, large_values_of, pieces, reader_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["merge", "update_columns"]


@dataclass(frozen=True)
class _Merging:
    """The description of a merge for its tasks."""

    reader: bytes
    """A pickled reader at the state that rows are matched with."""
    table: str | None
    """The schema of the table; None: keys and values are bytes."""
    updated: Sequence[str] | None
    """Columns that a match takes from the frame; None: rows that match are left as they are."""
    deletes: bool
    """Whether rows that match are deleted."""
    inserts: bool
    """Whether rows without a match are inserted."""
    keeps_expiry: bool = False
    """Whether a row that is updated keeps the expiry that it had."""


@dataclass(frozen=True)
class _MergePlan:
    """The rows of a merge, and its actions."""

    rows: PreparedFrame
    updated: Sequence[str] | None
    """These fields are those of `_Merging`."""
    deletes: bool
    inserts: bool


def merge(
    df: DataFrame,
    url: Url,
    *,
    key: Key,
    when_matched: str | Sequence[str] | None = "update",
    when_not_matched: str | None = "insert",
    ttl: Seconds | None = None,
    expire_at: datetime | str | None = None,
    txn: Txn | None = None,
    partitions: int | None = None,
    as_bytes: bool = False,
    options: Options | Mapping[str, Any] | None = None,
    wait: bool = True,
    timeout: Seconds = PATIENCE,
    db: siltstone.Database | None = None,
    take_over: bool | None = None,
    store_options: StoreOptionsSource | None = None,
) -> LoadResult:
    """Merges the rows of a frame into a database in one commit. A row whose key exists updates or
    deletes that row; another row is inserted. Each key may occur once in the frame.

    With `txn` a merge is applied exactly once: a version that the database already has changes
    nothing.

    Rows are matched with the state that is durable when the call begins. A write to one of these
    keys that is committed between that moment and the commit of the merge is overwritten by the
    merged row. Run merges and other writes of the same keys one after another. An updated row keeps
    the expiry that it had, unless `ttl` or `expire_at` is given.

    Without inserts the frame needs the columns of the key and those that are updated.

    :param key: as for `bulk_load`. Spark shuffles the frame by key ranges.
    :param when_matched: "update": all columns that the frame has, while the others keep their
        values; a list of columns: these only; "delete": delete the row; None: leave it.
    :param when_not_matched: "insert", which also creates the database if there is none, or None:
        drop the row.
    :param ttl, expire_at: as for `bulk_load`, for the rows that are updated or inserted.
    :param txn, partitions, as_bytes, wait, timeout, db, take_over, store_options: as for
        `bulk_load`.
    :param options: of the readers in the workers, as for `scan`.
    :raises Invalid: an unknown action or column; a key that occurs twice; `expire_at` is a column
        that a match keeps; as `bulk_load`.
    :raises NotFound: there is no database, and rows are not inserted.
    :raises Conflict, Timeout, Unsupported, Denied, Unavailable: as `bulk_load`.
    :raises Expired: in a task: the state that rows are matched with is gone.
    """
    check_frame(df)
    _check_actions(when_matched, when_not_matched)
    column, moment = expiry(ttl, expire_at)
    more = (txn, wait, timeout, db, take_over, store_options)
    submission = Submission(url, "range", "append", None, *more)
    with resolving_as(df.sparkSession), removed_on_failure() as creations:
        if when_not_matched is None:
            table_at(url, None, as_bytes, store_options)
        inserts = when_not_matched == "insert"

        def of(rows: PreparedFrame) -> _MergePlan:
            updated = _updated(rows, when_matched)
            if not inserts and when_matched == "update":
                _check_updates(rows, updated)
            _check_times(rows, updated)
            return _MergePlan(rows, updated, when_matched == "delete", inserts)

        def again(text: str) -> _MergePlan:
            # A row that is not inserted needs only the columns that a match takes from it.
            return of(prepared_rows(df, text, key, None, None, "error", column, not inserts))

        given = ("error", as_bytes, store_options, creations)
        rows = rows_for(df, url, (key, None, None), *given, expire_at=column, partial=not inserts)
        return _merged_into(of(rows), again, submission, options, partitions, moment)


def update_columns(
    df: DataFrame,
    url: Url,
    *,
    key: Key,
    txn: Txn | None = None,
    partitions: int | None = None,
    options: Options | Mapping[str, Any] | None = None,
    wait: bool = True,
    timeout: Seconds = PATIENCE,
    db: siltstone.Database | None = None,
    take_over: bool | None = None,
    store_options: StoreOptionsSource | None = None,
) -> LoadResult:
    """Sets some columns of existing rows of a table, in one commit. The frame has partial rows: the
    columns of the key and the columns to set; the other columns keep their values, also those that
    may not be null. A null in the frame sets the column to null. Rows of the frame whose keys do
    not exist are dropped: `merge` inserts them. Each key may occur once in the frame.

    The engine stores whole rows, so the tasks read each row that they update, at one state. As for
    `merge`, a write to one of these rows that is committed between that state and the commit of
    this call is overwritten, in all columns. An updated row keeps its expiry.

    With `txn` an update is applied exactly once. A call that finds no row records the version, too.

    :param key: the table's key, as for `bulk_load`. Spark shuffles the frame by key ranges.
    :param txn, partitions, wait, timeout, db, take_over, store_options: as for `bulk_load`.
    :param options: of the readers in the workers, as for `scan`.
    :raises Invalid: a database of bytes; a frame of the key alone; an unknown column; a key that
        occurs twice; as `bulk_load`.
    :raises NotFound: there is no database.
    :raises Conflict, Timeout, Unsupported, Denied, Unavailable: as `bulk_load`.
    :raises Expired: in a task: the state that rows are read at is gone.
    """
    check_frame(df)
    more = (txn, wait, timeout, db, take_over, store_options)
    submission = Submission(url, "range", "append", None, *more)
    with resolving_as(df.sparkSession):
        text = table_at(url, None, False, store_options)
        if text is None:
            raise Invalid("the database has no columns, only bytes: use siltstone.spark.merge")

        def planned(text: str) -> _MergePlan:
            rows = prepared_rows(df, text, key, None, None, "error", partial=True)
            updated = _updated(rows, "update")
            _check_updates(rows, updated)
            return _MergePlan(rows, updated, False, False)

        return _merged_into(planned(text), planned, submission, options, partitions)


def _merged_into(
    first: _MergePlan,
    again: Callable[[str], _MergePlan],
    submission: Submission,
    options: Options | Mapping[str, Any] | None,
    partitions: int | None,
    expires: datetime | None = None,
) -> LoadResult:
    """Merges a frame with the state that is durable now.

    :param first: the plan by the schema that was read before.
    :param again: plans by the schema of that state, if a column was added or widened meanwhile.
    :param expires: when the merged rows expire.
    """

    url, store_options = submission.url, submission.store_options

    def tasks(job: ingest.Job) -> list[Staged]:
        with kept_for_a_call(url, None, store_options, newest=True) as at:
            return tasks_at(at, job)

    def tasks_at(at: CheckpointLike, job: ingest.Job) -> list[Staged]:
        with reading(url, at, options, store_options) as (reader, held):
            text = text_of(reader)
            current = first if first.rows.schema in (None, text) else again(str(text))
            rows = current.rows
            has_expiry = expires is not None or "expire_at" in rows.names
            stats = reader.stats()
            # Rows that are in no table yet may expire, too.
            may_expire = stats.expiring_tables or stats.memtable_entries
            keeps = bool(current.updated is not None and not has_expiry and may_expire)
            actions = (current.updated, current.deletes, current.inserts)
            merging = _Merging(held.reader, rows.schema, *actions, keeps)
        names = {**rows.names, "op": _free_name(rows, "op")}
        if keeps:
            names["expire_at"] = _free_name(rows, "expire_at")
        named = replace(staging_of(rows, "error", job=job, expires=expires), names=names)
        arranged = rows.arranged("range", partitions)
        found = run(arranged, named, partial(stage_merged, merging=merging), "merge")
        check_keys_differ(rows, found, "a merge takes one row for each key")
        return found

    return load(tasks, submission)


def _check_actions(when_matched: Any, when_not_matched: Any) -> None:
    """Checks the actions of a merge.

    :raises Invalid: an unknown action, or none at all.
    """
    if isinstance(when_matched, str) and when_matched not in ("update", "delete"):
        raise Invalid(
            f'when_matched is {when_matched!r}: "update", a list of columns, "delete", or None'
        )
    if when_not_matched not in ("insert", None):
        raise Invalid(f'when_not_matched is {when_not_matched!r}: "insert", or None')
    if when_matched is None and when_not_matched is None:
        raise Invalid("when_matched and when_not_matched are both None: the merge changes nothing")


def _updated(rows: PreparedFrame, when_matched: str | Sequence[str] | None) -> Sequence[str] | None:
    """The columns that a match takes from the frame.

    :raises Invalid: a column that the frame does not have, or that is part of the key.
    """
    if when_matched is None or when_matched == "delete":
        return None
    if rows.schema is None:
        fields, keys = [role for role in ("key", "value") if role in rows.names], ["key"]
    else:
        stored = arrow_fields(rows.schema).names
        # The frame may have a column of expiry times that the table does not have.
        fields = [name for name in rows.kept if name in stored]
        keys = schema_of(rows.schema).key
    values = [name for name in fields if name not in keys]
    if isinstance(when_matched, str):
        return values
    found = [match(name, values) for name in when_matched]
    if None in found or not found:
        raise Invalid(
            f"when_matched is {list(when_matched)!r}: some of the frame's columns that are not "
            f"part of the key, which are {', '.join(values)}"
        )
    return [str(name) for name in found]


def _check_updates(rows: PreparedFrame, updated: Sequence[str] | None) -> None:
    """Checks that a match takes a column from the frame.

    :raises Invalid: the frame has only the columns of the key.
    """
    if not updated:
        raise Invalid(f"the frame has the key alone, {', '.join(rows.kept)}: nothing to set")


def _check_times(rows: PreparedFrame, updated: Sequence[str] | None) -> None:
    """Checks that the frame's expiry times are not in a column that a match keeps as it is stored.

    :raises Invalid: otherwise.
    """
    ends = rows.names.get("expire_at")
    if rows.schema is None or updated is None or ends is None:
        return
    kept = {*arrow_fields(rows.schema).names} - {*schema_of(rows.schema).key, *updated}
    if ends in kept:
        raise Invalid(
            f"expire_at is the column {ends!r}, which a match keeps as it is stored: name it in "
            "when_matched, too, or pass the times in a column that the table does not have"
        )


def _free_name(rows: PreparedFrame, role: str) -> str:
    """A name for a further column that neither the table nor the frame uses."""
    name = role
    taken = [] if rows.schema is None else [*arrow_fields(rows.schema).names, *rows.kept]
    while name in taken:
        name += "_"
    return name


def stage_merged(
    batches: Iterator[pa.RecordBatch], merging: _Merging, staging: Staging
) -> Iterator[pa.RecordBatch]:
    """Stages the merged rows of a task: a function for `mapInArrow`."""
    yield from stage(merged(batches, merging, staging.names), staging)
    # After an error in the rows some batches are left. A worker that leaves some is not reused.
    for _ in batches:
        pass


def merged(
    batches: Iterator[pa.RecordBatch], merging: _Merging, names: Mapping[str, str]
) -> Iterator[pa.RecordBatch]:
    """The rows to write, with a column of operations.

    :param names: columns by their roles, as in `Staging.names`.
    """
    reader, most = reader_of(merging.reader), [FIRST_ROWS]
    for batch in batches:
        stored, kept = _keys(batch, merging)
        batch = batch if kept is None else batch.filter(kept)  # noqa: PLW2901
        if not batch.num_rows:
            continue
        keys, start = pa.record_batch({"key": stored}), 0
        # The current values of a whole batch may need too much memory.
        for piece, found in pieces(
            keys, lambda rows: large_values_of(reader, rows.column("key")), most
        ):
            rows = batch.slice(start, piece.num_rows)
            start += piece.num_rows
            yield _merged(rows, _current(piece.column("key"), found, merging), merging, names)


@dataclass(frozen=True)
class _Current:
    """The current values of some keys."""

    keys: pa.Array
    values: pa.Array
    """The stored values; null for an absent key."""
    expiries: pa.Array | None
    """When the rows expire, null for never; None if their expiry is not kept."""


def _keys(batch: pa.RecordBatch, merging: _Merging) -> tuple[pa.Array, pa.Array | None]:
    """The keys of the rows, and which rows have one; None: all. Only a merge that inserts no rows
    drops those without: no row of the database matches them.

    :raises Invalid: a null, or a value that the key's column cannot hold.
    """
    if merging.table is not None:
        arrays = [batch.column(name) for name in schema_of(merging.table).key]
        if not merging.inserts:
            return lookup_keys(merging.table, arrays)
        return encode_keys(merging.table, arrays), None
    keys = batch.column("key")
    if keys.null_count:
        raise Invalid("the key column has nulls, and a null is no key: filter them out before")
    return as_binary(keys), None


def _merged(
    batch: pa.RecordBatch, current: _Current, merging: _Merging, names: Mapping[str, str]
) -> pa.RecordBatch:
    there = current.values.is_valid()
    arrays = _columns(batch, current, merging)
    operation = "delete" if merging.deletes else "put"
    arrays[names["op"]] = pc.if_else(there, operation, "put")
    if "expire_at" in names:
        ends = "expire_at" if merging.table is None else names["expire_at"]
        ours = current.expiries
        arrays.setdefault(ends, batch.column(ends) if ours is None else ours)
    rows = pa.RecordBatch.from_arrays(list(arrays.values()), names=list(arrays))
    if merging.updated is None and not merging.deletes:
        rows, there = rows.filter(pc.invert(there)), there.filter(pc.invert(there))
    return rows if merging.inserts else rows.filter(there)


def _columns(batch: pa.RecordBatch, current: _Current, merging: _Merging) -> dict[str, pa.Array]:
    """The columns of the merged rows. A column that neither the frame nor a match brings is null.

    Only the current values that are kept are decoded. A row that is deleted, or left as it is,
    keeps none.
    """
    if merging.table is None:
        kinds, keys = {"key": pa.binary(), "value": pa.binary()}, ["key"]
        brought = {
            name: as_binary(batch.column(name)) for name in kinds if name in batch.schema.names
        }
    else:
        fields, keys = arrow_fields(merging.table), schema_of(merging.table).key
        kinds = {field.name: field.type for field in fields}
        brought = {
            name: cast(batch.column(name), kind, name)
            for name, kind in kinds.items()
            if name in batch.schema.names
        }
    updated = merging.updated
    kept = [] if updated is None else [name for name in kinds if name not in (*keys, *updated)]
    ours = _decoded(current, merging.table, kept)
    there = current.values.is_valid()
    arrays = {}
    for name, kind in kinds.items():
        theirs = brought.get(name)
        if theirs is None:
            # Absent rows have nulls in the decoded columns, too.
            arrays[name] = ours[name] if name in kept else pa.nulls(len(there), kind)
        elif name in kept:
            arrays[name] = pc.if_else(there, ours[name], theirs)
        else:
            arrays[name] = theirs
    return arrays


def _decoded(current: _Current, table: str | None, names: Sequence[str]) -> dict[str, pa.Array]:
    """Columns of the current rows; null for absent keys."""
    if not names:
        return {}
    if table is None:
        return {"value": as_binary(current.values)}
    fields, schema = arrow_fields(table), schema_of(table)
    rows = pa.record_batch(schema.decode(current.keys, current.values, columns=list(names)))
    return {name: cast(rows.column(name), fields.field(name).type, name) for name in names}


def _current(keys: pa.Array, values: pa.Array, merging: _Merging) -> _Current:
    """The current values, and their expiry if it is kept.

    A row may expire between the two reads. It is absent then: with the old value and no expiry it
    would never expire.
    """
    if not merging.keeps_expiry:
        return _Current(keys, values, None)
    reader = reader_of(merging.reader)
    entries = [
        reader.get_entry(key) if value.is_valid else None
        for key, value in zip(keys.to_pylist(), values, strict=True)
    ]
    there = pa.array([entry is not None for entry in entries], pa.bool_())
    expiries = [None if entry is None else entry.expires for entry in entries]
    values = pc.if_else(there, values, pa.scalar(None, values.type))
    return _Current(keys, values, pa.array(expiries, INSTANT))
