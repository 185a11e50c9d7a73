"""DataFrames into a live database: executors sort and upload, one commit shows all of it."""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from dataclasses import replace as replaced
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

import siltstone
from siltstone import ingest
from siltstone.exceptions import Conflict, Error, Invalid, NotFound, Timeout
from siltstone.opening import StoreOptionsSource, Url
from siltstone.options import Options, Seconds, named_options
from siltstone.spark._calls import application, numbered
from siltstone.spark._columns import schema_of, spelled_where
from siltstone.spark._matching import (
    Duplicates,
    Fitted,
    Key,
    bytes_fitted,
    fitted,
    keys_fitted,
    reachable,
    table_at,
    table_made,
)
from siltstone.spark._staging import MESSAGE, Staged, Staging, check_disjoint, stage

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["LAYOUTS", "MODES", "LoadResult", "bulk_load", "delete", "upsert"]

LAYOUTS = ("range", "runs", "presorted")
MODES = ("append", "overwrite", "replace_range")
PATIENCE = timedelta(minutes=10)
"""For how long a load waits for the writer."""

Txn = tuple[str, int]
Replace = tuple[bytes | None, bytes | None] | Mapping[str, Any]


@dataclass(frozen=True)
class LoadResult:
    """What a load brought."""

    rows: int
    """Rows, deletes included."""
    bytes: int
    """Bytes of its tables."""
    ssts: int
    """How many tables it has."""
    seq: int | None
    """Its last sequence number; None: there was no row, or nobody waited for the writer."""
    job: str | None
    """The ingest job, for `siltstone.ingest.status`; None: there was no row."""
    repeated: bool = False
    """Whether `txn` was part of the database already: nothing was added then."""
    seconds: dict[str, float] = field(default_factory=dict)
    """What took how long: "stage", the tasks; "commit", closing the job and asking for it; where it
    was waited for, until the writer had it."""


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
    partitions: int | None = None,
    target_sst_bytes: int | None = None,
    as_bytes: bool = False,
    options: Options | Mapping[str, Any] | None = None,
    wait: bool = True,
    timeout: Seconds = PATIENCE,
    db: siltstone.Database | None = None,
    take_over: bool | None = None,
    store_options: StoreOptionsSource | None = None,
) -> LoadResult:
    """Writes all rows of a frame into a database, which may be live: executors sort them into
    tables, and one commit shows all of them, or none. Tasks that fail, are repeated, or run twice
    make no difference.

    Of a table the frame has the columns, by name in any case, and by type; those of the value that
    may hold nulls may be missing. Where no database stands, one is created: of bytes if `key` is
    one name and the frame a key and a value, binary or string; otherwise a table of its columns.

    :param key: of a table the columns of its key, each perhaps with words about its order, as for
        `siltstone.table.create`: ``["country", "day desc"]``. Of a database of bytes the column of
        keys: binary, or a string, which stands for its UTF-8.
    :param value: of a table those of the frame's columns that are the value's; None: all others. Of
        a database of bytes the column of values, as that of keys; None: "value".
    :param layout: "range": Spark shuffles by ranges of keys, and the tables do not overlap.
        "runs": no shuffle, each task sorts what it has: half the cost now, and compaction pays
        later. "presorted": no shuffle, partitions are ranges of keys already; that is checked.
    :param mode: "append" adds, and overwrites rows of the same key; "overwrite" also deletes
        whatever else the database holds; "replace_range" whatever else is in `replace`.
    :param replace: for "replace_range": the first key, and the one before which to stop, None for
        no bound, of a table values of its key's first column; or a dict of what a table's first
        columns are equal to. Rows must be of it.
    :param duplicates: of rows with one key: "error" refuses the load, "any" takes one of them,
        ``("max", column)`` the one with the greatest there. None: "error"; layout "runs" has "any".
    :param txn: an application's name and a version: a version that is part of the database already
        adds nothing, and a lower one is a Conflict. So a program that is run again loads once.
    :param op: the column that says of each row what it does: "put", "upsert", "insert" and "update"
        write it, "delete" deletes its key; c, i, r, u and d stand for them.
    :param partitions: tasks of layout "range"; None: as Spark has it, by size where it adapts.
    :param target_sst_bytes: bytes of rows from which on a task begins another table; None: 64 MiB.
    :param as_bytes: a table is loaded with keys and values that are encoded already.
    :param options: of the tables: `block_bytes`, `compression`, `filter_bits_per_key`.
    :param wait, timeout: for the writer to take it in, and how long; otherwise it will later.
    :param db: the writer, where it is open in this process. An idle one elsewhere looks every 10 s.
    :param take_over: True ends a writer that did not close: one that died, or one at work.
    :param store_options: as for `scan`.
    :raises Invalid: what the arguments or the rows have wrong; nothing was added.
    :raises Conflict: a lower version of the application; the load was refused or aborted.
    :raises Timeout: the writer has not taken it in yet, and may have died; it stays asked for, as
        the text says. Loading again without `txn` may load twice.
    :raises Unsupported, NotFound, Denied, Unavailable: as their texts say.
    """
    chosen = duplicates_of(duplicates, layout)
    _check_mode(mode, replace)
    rows = _fitted(df, url, (key, value, op), chosen, as_bytes, store_options)
    more = {"table_bytes": target_sst_bytes, "options": named_options(options)}
    staging, within = partial(_staging, rows, chosen, **more), _range(rows.schema, replace)
    what = _Load(url, layout, mode, within, txn, wait, timeout, db, take_over, store_options)
    return _loaded(partial(rows.laid_out, layout, partitions), staging, what)


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
) -> LoadResult:
    """Deletes the keys of a frame, all at once: each task writes tombstones of what it has, and
    nothing is shuffled. Keys that are not there do no harm.

    :param key: of a table the frame's columns that stand for those of its key, in that order. Of a
        database of bytes the column of keys: binary, or a string, which stands for its UTF-8.
    :param as_bytes: the keys of a table are encoded already.
    :param txn, wait, timeout, db, take_over, store_options: as for `bulk_load`.
    :raises NotFound: there is no database; this creates none.
    :raises Invalid, Conflict, Timeout, Denied, Unavailable: as `bulk_load`.
    """
    text = table_at(url, key, as_bytes, store_options)
    if text is None:
        rows = bytes_fitted(df, {"key": _one(key)}, "any")
    else:
        rows = keys_fitted(df, text, key)
    staging = partial(_staging, rows, "any", deletes=True)
    what = _Load(url, "runs", "append", None, txn, wait, timeout, db, take_over, store_options)
    return _loaded(lambda: rows.frame, staging, what)


@dataclass(frozen=True)
class _Load:
    """How a load is committed: as the parameters of `bulk_load`."""

    url: Url
    layout: str
    mode: str
    replace: tuple[bytes | None, bytes | None] | None
    txn: Txn | None
    wait: bool
    timeout: Seconds
    db: siltstone.Database | None
    take_over: bool | None
    store_options: StoreOptionsSource | None

    def ask(self, job: ingest.Job, request: ingest.IngestRequest) -> LoadResult:
        """Asks for the job."""
        given = (self.wait, self.timeout, self.db, self.take_over, self.store_options)
        return asked(job, request, *given)


def _loaded(
    frame: Callable[[], DataFrame], staging: Callable[..., Staging], load: _Load
) -> LoadResult:
    """Stages the rows and asks for them."""
    seconds: dict[str, float] = {}
    if load.txn is not None:
        seq = recorded(load.url, load.txn, load.store_options)
        if seq is not None:
            return LoadResult(0, 0, 0, seq, None, repeated=True, seconds=seconds)
    job = new_job(load.url, load.mode, load.replace, load.txn, load.store_options)
    with abandoned(job):
        with timed(seconds, "stage"):
            found = _run(frame(), staging(job=job))
        with timed(seconds, "commit"):
            request = closed(job, found, load.layout, load.mode)
    if request is None:
        return LoadResult(0, 0, 0, None, None, seconds=seconds)
    with timed(seconds, "commit"):
        done = load.ask(job, request)
    return replaced(done, seconds=seconds)


def upsert(
    url: Url,
    *,
    key: Key,
    value: str | Sequence[str] | None = None,
    op: str | None = None,
    duplicates: Duplicates | None = None,
    txn_app: str | None = None,
    as_bytes: bool = False,
    timeout: Seconds = PATIENCE,
    db: siltstone.Database | None = None,
    take_over: bool | None = None,
    store_options: StoreOptionsSource | None = None,
) -> Callable[[DataFrame, int], None]:
    """A function for `foreachBatch`: each batch of a stream becomes part of the database, once, by
    the query's id and the batch's, whatever is repeated or restarted.

    ``stream.writeStream.foreachBatch(upsert(url, key="k")).outputMode("update").start()``

    A function of your own may make several such calls for one batch. They are told apart by their
    order, so a batch that is repeated must make the same calls, one after another. A batch without
    rows changes nothing.

    :param key, value, op, as_bytes: as for `bulk_load`, which also says what is created where no
        database stands.
    :param duplicates: as for `bulk_load`; None: "any", and nothing is shuffled. The others shuffle
        each batch by ranges of keys.
    :param txn_app: the application, in place of the query's id: for a query whose checkpoint folder
        is made anew, while its batches go on from where they were. Calls that run at the same time
        need different ones. Outside of a stream a second call with the same application and batch
        repeats the first, and adds nothing.
    :param timeout, db, take_over, store_options: as for `bulk_load`.
    :raises Invalid: as `bulk_load`; here for the arguments, in the stream for its rows, and for two
        calls that write one batch at the same time.
    """
    layout = "runs" if duplicates in (None, "any") else "range"
    chosen = duplicates_of(duplicates, layout)
    load = _Load(url, layout, "append", None, None, True, timeout, db, take_over, store_options)
    upserts = _Upserts(load, key, value, op, chosen, txn_app, as_bytes)

    def batch(df: DataFrame, batch_id: int) -> None:
        arguments = (key, value, op, duplicates, as_bytes)
        with numbered(df, batch_id, url, txn_app, arguments) as call:
            upserts.write(df, batch_id, call)

    return batch


@dataclass(frozen=True)
class _Upserts:
    """What `upsert` does with each batch: as its parameters."""

    load: _Load
    key: Key
    value: str | Sequence[str] | None
    op: str | None
    duplicates: Duplicates
    app: str | None
    as_bytes: bool

    def write(self, df: DataFrame, batch_id: int, call: int) -> None:
        """Writes a batch, unless the database has it already.

        :param call: the number of this call within the batch.
        """
        load = self.load
        named = None if self.app is None else application(self.app, call)
        if named is not None and _is_known(load.url, (named, batch_id), load.store_options):
            return
        how = (self.key, self.value, self.op)
        rows = _fitted(df, load.url, how, self.duplicates, self.as_bytes, load.store_options)
        job = new_job(load.url, load.mode, None, None, load.store_options)
        with abandoned(job):
            staging = _staging(rows, self.duplicates, job=job)
            found = _run(rows.laid_out(load.layout, None), staging)
            if has_rows(found):
                job = job.for_txn((named or application(_query_of(found), call), batch_id))
            request = closed(job, found, load.layout, load.mode)
        if request is not None:
            load.ask(job, request)
            return
        with suppress(Error):
            job.abort()


def _query_of(found: Sequence[Staged]) -> str:
    """The query whose batch this is: only tasks see its id, wherever this runs.

    :raises Invalid: it is no batch of a query.
    """
    query = next((one.query for one in found if one.query), None)
    if query is None:
        raise Invalid(
            "this is no batch of a stream, as far as its tasks know: name the application by "
            "txn_app, or use bulk_load"
        )
    return query


def _is_known(url: Url, txn: Txn, store_options: StoreOptionsSource | None) -> bool:
    """Whether the database has this version of an application; no database has none."""
    try:
        return recorded(url, txn, store_options) is not None
    except NotFound:
        return False


def has_rows(found: Sequence[Staged]) -> bool:
    """Whether any task staged rows, or has something to say of its rows."""
    return any(one.part is not None or one.problem is not None for one in found)


def duplicates_of(duplicates: Duplicates | None, layout: str) -> Duplicates:
    """What is done about rows with one key.

    :raises Invalid: no such layout or rule, or one that the layout cannot judge.
    """
    if layout not in LAYOUTS:
        raise Invalid(f"layout is {layout!r}: one of {', '.join(LAYOUTS)}")
    chosen = ("any" if layout == "runs" else "error") if duplicates is None else duplicates
    pair = isinstance(chosen, tuple) and chosen[:-1] == ("max",)
    if chosen not in ("error", "any") and not pair:
        raise Invalid(f'duplicates is {duplicates!r}: "error", "any", or ("max", column)')
    if layout == "runs" and chosen != "any":
        raise Invalid(
            f"duplicates is {duplicates!r}, and with layout 'runs' rows of one key lie in several "
            "tasks, none of which sees the others: layout 'range' brings them together"
        )
    return chosen


def new_job(
    url: Url,
    mode: str,
    replace: tuple[bytes | None, bytes | None] | None,
    txn: Txn | None,
    store_options: StoreOptionsSource | None,
) -> ingest.Job:
    """The job of a load.

    :raises Invalid: no such mode, a range with another one, a `memory://` database.
    :raises Unsupported, NotFound, Denied, Unavailable: as `siltstone.ingest.Job`.
    """
    _check_mode(mode, replace)
    reachable(url)
    ranged: Any = (None, None) if mode == "overwrite" else replace
    return ingest.Job(url, txn=txn, replace=ranged, store_options=store_options)


def _check_mode(mode: str, replace: Replace | None) -> None:
    if mode not in MODES:
        raise Invalid(f"mode is {mode!r}: one of {', '.join(MODES)}")
    if (replace is not None) != (mode == "replace_range"):
        raise Invalid("replace is the range of mode 'replace_range', and of no other")


def recorded(url: Url, txn: Txn, store_options: StoreOptionsSource | None) -> int | None:
    """Where the database has this version of an application already: its number.

    :raises Conflict: it has a higher one.
    :raises NotFound, Denied, Unavailable: as their texts say.
    """
    found = _last_of(url, txn[0], store_options)
    if found is None or found["version"] < txn[1]:
        return None
    if found["version"] > txn[1]:
        raise Conflict(
            f"version {found['version']} of the application {txn[0]!r} is part of the database, "
            f"and this is version {txn[1]}: versions only grow"
        )
    return int(found["seq"])


def _last_of(url: Url, app: str, store_options: StoreOptionsSource | None) -> dict[str, Any] | None:
    """The last version of an application, its job, and its number."""
    apps = siltstone.admin.manifest(url, store_options=store_options)["ingest_apps"]
    return next((one for one in apps if one["app"] == app), None)


@contextmanager
def timed(seconds: dict[str, float], phase: str) -> Iterator[None]:
    """Adds up how long a phase took."""
    begun = time.perf_counter()
    try:
        yield
    finally:
        seconds[phase] = seconds.get(phase, 0.0) + time.perf_counter() - begun


@contextmanager
def abandoned(job: ingest.Job) -> Iterator[None]:
    """Gives a job up that nobody has asked for yet, where the block fails."""
    try:
        yield
    except BaseException:
        # Who collects does it otherwise, once the deadline is over.
        with suppress(Error):
            job.abort()
        raise


def closed(
    job: ingest.Job, found: Sequence[Staged], layout: str, mode: str
) -> ingest.IngestRequest | None:
    """Closes a job with what its tasks staged; None: they had no rows to add.

    :raises Invalid: what a task says of its rows; tasks that share keys, where none may.
    """
    for one in found:
        if one.problem is not None:
            raise one.problem
    if layout != "runs":
        check_disjoint(found, layout)
    ordered = sorted(found, key=lambda one: one.number)
    parts = [one.part for one in ordered if one.part is not None]
    # Without rows it still deletes what it replaces.
    return job.commit(parts) if parts or mode != "append" else None


def asked(
    job: ingest.Job,
    request: ingest.IngestRequest,
    wait: bool,
    timeout: Seconds,
    db: siltstone.Database | None,
    take_over: bool | None,
    store_options: StoreOptionsSource | None,
) -> LoadResult:
    """Asks for a job that is closed.

    :raises Conflict: it was refused, or aborted.
    :raises Timeout: nobody has taken it in yet.
    """
    try:
        if db is not None:
            commit = db.ingest(request)
            commit.wait()
            seq: int | None = commit.seq
        else:
            stands = ingest.submit(
                request,
                wait=wait,
                take_over=take_over,
                timeout=timeout,
                store_options=store_options,
            )
            if stands.state not in ("adopted", "pending"):
                why = f": {stands.reason}" if stands.reason else ""
                raise Conflict(f"the load, job {request.job}, was {stands.state}{why}")
            seq = stands.seq
    except Timeout as late:
        text = (
            f"{late}. The load is staged and asked for: the writer of the database takes it in. "
            f"siltstone.ingest.status({request.url!r}, {request.job!r}) tells whether it has. A "
            "writer that died never takes it in: take_over=True (option takeOver) ends that writer "
            "and takes the load in, and so does the next program that opens the database for "
            "writing"
        )
        late.args = (text,)
        raise
    if job.txn is not None and _brought_before(job, job.txn, store_options):
        # What this one staged is not needed; the collector takes it once it is given up.
        with suppress(Error):
            job.abort()
        return LoadResult(0, 0, 0, seq, request.job, repeated=True)
    return LoadResult(request.rows, request.bytes, request.tables, seq, request.job)


def _brought_before(job: ingest.Job, txn: Txn, store_options: StoreOptionsSource | None) -> bool:
    """Whether another job had brought this version."""
    last = _last_of(job.url, txn[0], store_options)
    return last is not None and last["version"] == txn[1] and last["job"] != job.id


def _run(frame: DataFrame, staging: Staging) -> list[Staged]:
    """What the tasks answer, one each."""
    answers = frame.mapInArrow(partial(stage, staging=staging), MESSAGE).collect()
    return [pickle.loads(bytes(row["message"])) for row in answers]  # noqa: S301 - of our own tasks


def _roles(key: str, value: str | None, op: str | None) -> dict[str, str]:
    """The columns of a frame, by what they are."""
    roles = {"key": key, "value": "value" if value is None else value}
    return roles if op is None else {**roles, "op": op}


def _greatest(duplicates: Duplicates) -> str | None:
    """The column that says which of the rows with one key counts."""
    return duplicates[1] if isinstance(duplicates, tuple) else None


def _one(key: str | Sequence[str] | None) -> str:
    """The name of the one column that keys, or values, of a database of bytes are.

    :raises Invalid: there are several.
    """
    if key is not None and not isinstance(key, str) and len(key) == 1:
        return key[0]
    if not isinstance(key, str):
        raise Invalid(
            f"{key!r} are columns of a table; keys and values of bytes are one column each"
        )
    return key


def _fitted(
    df: DataFrame,
    url: Url,
    columns: tuple[Key, str | Sequence[str] | None, str | None],
    duplicates: Duplicates,
    as_bytes: bool,
    store_options: StoreOptionsSource | None,
) -> Fitted:
    """The rows of a table, or of a database of bytes, which may be created for them.

    :param columns: those of the key, of the value, and of what becomes of a row.
    """
    key, value, op = columns
    beside = (op, _greatest(duplicates))
    text = table_made(df.schema, url, key, value, beside, as_bytes, store_options)
    if text is not None:
        return fitted(df, text, key, value, op, duplicates)
    roles = _roles(_one(key), None if value is None else _one(value), op)
    return bytes_fitted(df, roles, duplicates)


def _staging(rows: Fitted, duplicates: Duplicates, **more: Any) -> Staging:
    """What the tasks of these rows need to know."""
    kept = "error" if duplicates == "error" else "last"
    return Staging(duplicates=kept, names=rows.names, schema=rows.schema, **more)


def _range(text: str | None, replace: Replace | None) -> tuple[bytes | None, bytes | None] | None:
    """The keys that are replaced.

    :raises Invalid: columns, and the database has none; values that the column does not hold.
    """
    if text is None:
        if isinstance(replace, Mapping):
            raise Invalid(
                f"replace is {replace!r}, and the database has no columns: its keys are bytes"
            )
        return replace
    if replace is None:
        return None
    if isinstance(replace, Mapping):
        return schema_of(text).range(spelled_where(text, replace))
    start, end = replace
    try:
        return schema_of(text).range(None, start, end)
    except TypeError as error:
        raise Invalid(
            f"the range {replace!r} is no pair of values of {schema_of(text).key[0]!r}, the first "
            f"column of the table's key: {error}"
        ) from None
