"""Writing DataFrames and deleting rows in one commit.

Executors sort and upload the rows as tables of an ingest job; the driver submits the job.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, overload

import siltstone
from siltstone import ingest
from siltstone._numbers import size_of
from siltstone._open import StoreOptionsSource, Url
from siltstone.exceptions import Invalid, NotFound
from siltstone.options import Bytes, Options, Seconds, named_options
from siltstone.spark._arguments import check_frame, expiry
from siltstone.spark._bounds import bytes_range, check_bounded, key_range, table_range
from siltstone.spark._columns import match, resolving_as, schema_text
from siltstone.spark._commit import (
    PATIENCE,
    LoadResult,
    Submission,
    Txn,
    check_mode,
    duplicates_of,
    load,
    repetition,
    run,
)
from siltstone.spark._creation import Creation, exists, log_ignored, removed_on_failure
from siltstone.spark._equal_keys import check_keys_differ
from siltstone.spark._matching import (
    Duplicates,
    Key,
    PreparedFrame,
    prepared_bytes,
    prepared_keys,
    prepared_rows,
    reachable,
    table_at,
    table_or_create,
)
from siltstone.spark._ranges import Range
from siltstone.spark._staging import Staged, Staging

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["ONE_ROW", "bulk_load", "delete", "rows_for", "staging_of"]

LOG = logging.getLogger("siltstone.spark")
Replace = tuple[bytes | None, bytes | None] | Mapping[str, Any]
ONE_ROW = 'duplicates is "error" ("any" and ("max", column) keep one row of each key)'
MUST_CREATE = ("errorifexists", "error")


def bulk_load(
    df: DataFrame,
    url: Url,
    *,
    key: Key,
    value: str | Sequence[str] | None = None,
    layout: str = "range",
    mode: str = "append",
    replace: Replace | None = None,
    duplicates: Duplicates | None = None,
    txn: Txn | None = None,
    op: str | None = None,
    ttl: Seconds | None = None,
    expire_at: datetime | str | None = None,
    partitions: int | None = None,
    target_sst_bytes: Bytes | None = None,
    as_bytes: bool = False,
    options: Options | Mapping[str, Any] | None = None,
    wait: bool = True,
    timeout: Seconds = PATIENCE,
    db: siltstone.Database | None = None,
    take_over: bool | None = None,
    store_options: StoreOptionsSource | None = None,
) -> LoadResult:
    """Writes all rows of a DataFrame to a database in one commit. A writer may be at work there.
    Executors sort the rows into tables. Failed, repeated and speculative tasks have no effect.

    If there is no database, one is created: a database of bytes if `key` is one name and the frame
    has a key and a value column, each binary or string; otherwise a table with the frame's columns.
    If the key column of a database of bytes has another name than "key", give `value`, too;
    without it a warning is logged.
    A load that fails removes the database that it created, unless another process has written to
    it.

    A frame for a table needs the table's columns, with the same types. Nullable columns that are
    not part of the key may be missing. Column names are resolved as Spark resolves them
    (`spark.sql.caseSensitive`).

    :param key: for a table, the columns of its key, each with an optional order, as for
        `siltstone.table.create`: ``["country", "day desc"]``. For a database of bytes, the key
        column: binary, or string, which is stored as UTF-8.
    :param value: for a table, the columns to write beside the key; None: all others. For a database
        of bytes, the value column, binary or string, and other columns are not written; None:
        "value", and a warning is logged if there are other columns.
    :param layout: "range": Spark shuffles by key ranges, and the tables do not overlap. "runs": no
        shuffle; each task sorts its own rows. It costs half as much, and compaction merges the
        tables later. "presorted": no shuffle; the partitions already are key ranges, which is
        checked.
    :param mode: "append" adds rows and overwrites rows with the same key. "overwrite" also deletes
        all other rows, "replace_range" all other rows of `replace`. "errorifexists" (or "error")
        and "ignore" write only if there is no database: otherwise the first raises Conflict, and
        the second writes nothing. They check before the load begins. A first load whose process
        was killed leaves an empty database, which counts as one: "ignore" logs a warning then.
    :param replace: for "replace_range": the first key and the exclusive end, None for no bound. For
        a table these are values of the key's first column. Or a dict of values of a table's first
        key columns. All rows must lie in the range.
    :param duplicates: for rows with the same key: "error" refuses the load, "any" keeps one of
        them, ``("max", column)`` keeps the row with the greatest value of that column, which is
        part of a table that this call creates. None: "error", or "any" for layout "runs".
    :param txn: the name of an application and a version. A version that the database already has
        adds nothing; a lower one raises Conflict. So a program that is run again loads once. A load
        without rows records its version, too, by a commit that deletes an unused key.
    :param op: the column that says what each row does: "put", "upsert", "insert" and "update" (c,
        i, r, u) write the row, "delete" (d) deletes its key. "merge" merges the value as an operand
        into the value of the key, for databases of bytes with a merge operator; combine the
        operands of each key first (``groupBy``). It needs `duplicates="error"`, and a layout whose
        tables do not overlap.
    :param ttl: time to live of all rows, counted from the call.
    :param expire_at: the time at which rows expire: an aware datetime for all rows, or the name of
        a column of type timestamp. A row with a null there never expires. That column becomes part
        of the table only if the table has it. Tables are staged fastest if few times differ.
    :param partitions: number of tasks of layout "range"; None: Spark decides, by size if adaptive
        execution is on.
    :param target_sst_bytes: size of the rows, in bytes or as text such as "256MiB", after which a
        task starts another table; None: 64 MiB.
    :param as_bytes: write keys and values that are encoded already to a table.
    :param options: of the tables: `block_bytes`, `compression`, `filter_bits_per_key`.
    :param wait: wait until the writer has taken the load in. Otherwise it does so later.
    :param timeout: how long to wait. An idle writer in another process looks every 10 s.
    :param db: the writer, if it is open in this process.
    :param take_over: True ends a writer that did not close, dead or alive.
    :param store_options: as for `scan`.
    :raises Invalid: an argument or a row is invalid; nothing was added.
    :raises TypeError: an argument is of another type; nothing was added.
    :raises Closed: `db` is closed; nothing was added.
    :raises Conflict: `db` is the writer of another database; the database has a higher version of
        the application; the load was refused or aborted; a database exists, and `mode` is
        "errorifexists".
    :raises Timeout: no writer has taken the load in yet, perhaps because it died. The load stays
        submitted. A second load without `txn` may add the rows twice.
    :raises Unsupported, NotFound, Denied, Unavailable: as `siltstone.ingest.Job`.
    """
    check_frame(df)
    chosen = duplicates_of(duplicates, layout)
    check_mode(mode, replace)
    plan = partial(Submission, url, layout, mode)
    more = (txn, wait, timeout, db, take_over, store_options)
    known = _result_of_existing(plan(None, *more))
    if known is not None:
        return known
    column, moment = expiry(ttl, expire_at)
    if target_sst_bytes is not None:
        target_sst_bytes = size_of(target_sst_bytes, "target_sst_bytes", 1)
    with resolving_as(df.sparkSession), removed_on_failure() as creations:
        columns = (key, value, op)
        rows = rows_for(
            df, url, columns, chosen, as_bytes, store_options, creations, expire_at=column
        )
        tables = {
            "expires": moment,
            "table_bytes": target_sst_bytes,
            "options": named_options(options),
        }
        submission = plan(_replaced(rows.schema, replace), *more)

        def tasks(job: ingest.Job) -> list[Staged]:
            staging = staging_of(rows, chosen, job=job, **tables)
            found = run(rows.arranged(layout, partitions), staging)
            check_keys_differ(rows, found, ONE_ROW)
            return found

        return load(tasks, submission)


def _result_of_existing(submission: Submission) -> LoadResult | None:
    """The result of a load that must create the database, if there is one. None: go on.

    :raises Conflict: there is one, and the mode does not allow that.
    """
    if submission.mode not in (*MUST_CREATE, "ignore"):
        return None
    reachable(submission.url)
    try:
        schema_text(submission.url, submission.store_options)
    except NotFound:
        return None
    known = repetition(submission)
    if known is None and submission.mode in MUST_CREATE:
        raise exists(submission.url, f"mode is {submission.mode!r}", submission.store_options)
    if known is None:
        log_ignored(submission.url, submission.store_options)
    return known or LoadResult(0, 0, 0, None, None)


@overload
def delete(
    df: DataFrame,
    url: Url,
    *,
    key: Key,
    txn: Txn | None = None,
    as_bytes: bool = False,
    wait: bool = True,
    timeout: Seconds = PATIENCE,
    db: siltstone.Database | None = None,
    take_over: bool | None = None,
    store_options: StoreOptionsSource | None = None,
) -> LoadResult: ...
@overload
def delete(
    df: Url,
    url: None = None,
    *,
    key: None = None,
    where: Mapping[str, Any] | None = None,
    start: Any = None,
    end: Any = None,
    prefix: bytes | str | None = None,
    txn: Txn | None = None,
    as_bytes: bool = False,
    wait: bool = True,
    timeout: Seconds = PATIENCE,
    db: siltstone.Database | None = None,
    take_over: bool | None = None,
    store_options: StoreOptionsSource | None = None,
) -> LoadResult: ...
def delete(
    df: DataFrame | Url,
    url: Url | None = None,
    *,
    key: Key | None = None,
    where: Mapping[str, Any] | None = None,
    start: Any = None,
    end: Any = None,
    prefix: bytes | str | None = None,
    txn: Txn | None = None,
    as_bytes: bool = False,
    wait: bool = True,
    timeout: Seconds = PATIENCE,
    db: siltstone.Database | None = None,
    take_over: bool | None = None,
    store_options: StoreOptionsSource | None = None,
) -> LoadResult:
    """Deletes rows in one commit: the keys of a DataFrame, ``delete(df, url, key="k")``, or a range
    of keys, ``delete(url, where={"country": "DE"})``.

    For a DataFrame each task writes a tombstone for each of its keys. There is no shuffle. Keys
    that do not exist are ignored. A range needs no task and reads no row; it deletes the rows that
    are there when the writer takes the delete in. The result counts no rows then.

    :param df: the keys, or the URL of the database if a range is deleted.
    :param key: for a table, the frame's columns that hold the table's key columns, in their order,
        or the key as `bulk_load` takes it.
        For a database of bytes, the key column: binary, or string, which stands for its UTF-8.
    :param where: for a table, values of the first columns of the key.
    :param start: the first key, inclusive. For a table, a value of the first key column that
        `where` does not name.
    :param end: the end of the range, exclusive. For a table likewise.
    :param prefix: the prefix of the keys of a database of bytes. Bounds may be text, as for `scan`.
    :param as_bytes: use a table's keys as they are stored.
    :param txn: as for `bulk_load`: a version that the database already has deletes nothing.
    :param wait, timeout, db, take_over, store_options: as for `bulk_load`.
    :raises NotFound: there is no database. This function creates none.
    :raises Invalid: neither keys nor a range; both; bounds that bound nothing, such as an empty
        `where`; and as `bulk_load`.
    :raises Conflict, Timeout, Denied, Unavailable: as `bulk_load`.
    """
    more = (txn, wait, timeout, db, take_over, store_options)
    bounds = {"where": where, "start": start, "end": end, "prefix": prefix}
    given = [name for name, value in bounds.items() if value is not None]
    if isinstance(df, str | os.PathLike):
        if url is not None or key is not None:
            raise Invalid("keys to delete come in a DataFrame: delete(df, url, key=…)")
        return _delete_range(df, bounds, as_bytes, more)
    if url is None or key is None or given:
        raise Invalid(
            "delete the keys of a frame by delete(df, url, key=…), and a range of keys by "
            "delete(url, where=…), or start, end, prefix"
        )
    check_frame(df)
    with resolving_as(df.sparkSession):
        text = table_at(url, key, as_bytes, store_options)
        if text is None:
            rows = prepared_bytes(df, {"key": _one(key)}, "any")
        else:
            rows = prepared_keys(df, text, key)
        submission = Submission(url, "runs", "append", None, *more)

        def tasks(job: ingest.Job) -> list[Staged]:
            staging = staging_of(rows, "any", job=job, deletes=True)
            return run(rows.frame, staging, action="delete")

        return load(tasks, submission)


def _delete_range(
    url: Url, bounds: Mapping[str, Any], as_bytes: bool, more: tuple[Any, ...]
) -> LoadResult:
    """Deletes a range of keys: a job without rows that replaces the range.

    :raises Invalid: no bound, which would delete all rows.
    """
    table = table_at(url, None, as_bytes, more[-1])
    replaced: Range = key_range(table, **bounds)
    given = [f"{name}={value!r}" for name, value in bounds.items() if value is not None]
    check_bounded(replaced, ", ".join(given) or "no where, start, end or prefix")
    # No task: a job without rows deletes the range that it replaces.
    return load(lambda _: [], Submission(url, "runs", "replace_range", replaced, *more))


def _one(key: str | Sequence[str] | None) -> str:
    """The name of the key or value column of a database of bytes.

    :raises Invalid: there are several.
    """
    if key is not None and not isinstance(key, str) and len(key) == 1:
        return key[0]
    if not isinstance(key, str):
        raise Invalid(
            f"{key!r} are columns of a table; keys and values of bytes are one column each"
        )
    return key


def rows_for(
    df: DataFrame,
    url: Url,
    columns: tuple[Key, str | Sequence[str] | None, str | None],
    duplicates: Duplicates,
    as_bytes: bool,
    store_options: StoreOptionsSource | None,
    creations: list[Creation],
    *,
    expire_at: str | None = None,
    partial: bool = False,
) -> PreparedFrame:
    """The rows of a frame for a table or a database of bytes, which is created if it is missing.

    :param columns: the arguments `key`, `value` and `op`.
    :param creations: gets what this call created.
    :param expire_at, partial: as for `prepared_rows`. For a database of bytes the value column may
        be missing if `partial` is true.
    """
    key, value, op = columns
    order = duplicates[1] if isinstance(duplicates, tuple) else None
    without = (op, expire_at)
    text = table_or_create(
        df.schema, url, key, value, without, as_bytes, store_options, creations, order
    )
    if text is not None:
        return prepared_rows(df, text, key, value, op, duplicates, expire_at, partial)
    more = {"value": "value" if value is None else _one(value), "op": op, "expire_at": expire_at}
    if partial and match(str(more["value"]), df.columns) is None:
        more["value"] = None
    roles = {"key": _one(key)}
    roles |= {role: name for role, name in more.items() if name is not None}
    if value is None:
        _log_left_out(url, df.columns, [*roles.values(), order])
    return prepared_bytes(df, roles, duplicates)


def _log_left_out(url: Url, names: Sequence[str], taken: Sequence[str | None]) -> None:
    """Logs a warning if a frame has columns that a database of bytes has no place for."""
    known = {match(one, names) for one in taken if one is not None}
    others = [name for name in names if name not in known]
    if others:
        LOG.warning(
            "the columns %s are not written to %s, which has no columns, only keys and values: "
            "name the value column by value= if this is right; a table has all columns",
            ", ".join(others),
            url,
        )


def staging_of(rows: PreparedFrame, duplicates: Duplicates, **more: Any) -> Staging:
    """The description of the tasks that stage these rows."""
    kept = "error" if duplicates == "error" else "last"
    return Staging(duplicates=kept, names=rows.names, schema=rows.schema, **more)


def _replaced(text: str | None, replace: Replace | None) -> Range | None:
    """The keys that are replaced.

    :raises Invalid: columns for a database of bytes; values of another type than the column; no
        bound.
    """
    if replace is None:
        return None
    found = _replaced_range(text, replace)
    check_bounded(found, f"replace is {replace!r}")
    return found


def _replaced_range(text: str | None, replace: Replace) -> Range:
    if isinstance(replace, Mapping):
        if text is None:
            raise Invalid(
                f"replace is {replace!r}, and the database has no columns: its keys are bytes"
            )
        return table_range(text, replace)
    pair = isinstance(replace, tuple | list) and len(replace) == 2  # noqa: PLR2004
    if not pair:
        raise Invalid(f"replace is {replace!r}: the first key and the exclusive end, or a dict")
    return bytes_range(*replace) if text is None else table_range(text, None, *replace)
