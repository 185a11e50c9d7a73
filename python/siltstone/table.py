"""Tables: rows with typed columns, in a database that stores a schema.

    from datetime import date

    import pyarrow as pa
    from siltstone import table

    columns = pa.schema([
        pa.field("country", pa.string(), nullable=False),
        pa.field("day", pa.date32(), nullable=False),
        pa.field("visits", pa.int64()),
    ])
    with table.create("memory://arrivals", columns, key=["country", "day desc"]) as db:
        db.table.put([{"country": "DE", "day": date(2026, 1, 31), "visits": 7}])
        newest = db.table.scan({"country": "DE"}, columns=["visits"], limit=1)
        print(pa.table(newest))

Rows are ordered by their key columns, in the sort order of Spark. Keys and values are stored as
bytes: every other call and tool works on a table as on any database.

`TableSchema` encodes and decodes rows without a database, and can be pickled for use in other
processes.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, Literal, final

from siltstone import _native
from siltstone._native import ArrowArray, TableSchema, TableStream
from siltstone._open import OpenMode, StoreOptionsSource, Url, _store, _text, hidden
from siltstone._pandas_frames import fitted
from siltstone.exceptions import Conflict, Invalid, Unsupported
from siltstone.merging import MergeOperatorSource, described
from siltstone.options import Options, named_options

if TYPE_CHECKING:
    from siltstone._native import Commit, Database, Reader, Snapshot, WriteBatch, _Seconds

__all__ = [
    "Table",
    "TableSchema",
    "TableStream",
    "create",
    "decode",
    "decode_key",
    "encode",
    "encode_key",
]

_ROWS_AT_ONCE: Final = 8192
"""Number of dicts that a load encodes as one batch."""
_TRIES: Final = 16
"""Number of attempts to change the columns while other processes change them too."""


def create(
    url: Url,
    schema: Any,
    *,
    key: Sequence[str] | None = None,
    take_over: bool | None = None,
    options: Options | Mapping[str, Any] | None = None,
    store_options: StoreOptionsSource | None = None,
    merge_operator: MergeOperatorSource | None = None,
) -> Database:
    """Opens the table at `url` for writing, and creates it if it does not exist.

    :param schema: a `TableSchema`, or an Arrow schema together with `key`.
    :param key: the key columns, in order, each optionally with its order: ``"day desc nulls
        last"``. The key is permanent.
    :param take_over: as for `siltstone.open`.
    :param options: as for `siltstone.open`.
    :param store_options: as for `siltstone.open`.
    :param merge_operator: as for `siltstone.open`.
    :raises TypeError: if `key` is missing, or is given together with a `TableSchema`.
    :raises Invalid: if the database exists with other columns or none; the text has both schemas.
    :raises Unsupported: if a column has an unsupported type.
    :raises Conflict, Denied, Unavailable, Corruption: as for `siltstone.open`.
    """
    store_options = hidden(store_options)
    columns = _columns(schema, key)
    named, store = named_options(options), _store(store_options)
    operator = described(merge_operator)
    mode = OpenMode(create=True, take_over=take_over)
    return _native.open_table(_text(url), columns, mode, named, store, operator)


def _create_for_a_moment(
    url: Url, schema: TableSchema, store_options: StoreOptionsSource | None
) -> None:
    """Creates the table if it does not exist, and closes it, like `_open_for_a_moment`."""
    mode = OpenMode(create=True, take_over=False, ends_others=True)
    _native.open_table(_text(url), schema, mode, {}, _store(store_options), None).close()


def _columns(schema: Any, key: Sequence[str] | None) -> TableSchema:
    """Returns the schema of the arguments.

    :raises TypeError: if a `TableSchema` is given with a key, or an Arrow schema without a key, or
        something else.
    """
    if isinstance(schema, TableSchema):
        if key is not None:
            raise TypeError("a TableSchema has its key already")
        return schema
    if key is None or isinstance(key, str):
        raise TypeError(
            "schema: expected a TableSchema, as from db.table.schema or TableSchema(…, key=[…]); "
            'an Arrow schema needs key: the names of its columns, as in key=["country", "day desc"]'
        )
    _check_arrow(schema, "schema is an Arrow schema", 'pa.schema([("country", pa.string()), …])')
    return TableSchema(schema, key=list(key))


def _check_arrow(given: Any, wanted: str, example: str) -> None:
    """Checks that `given` has the schema interface of Arrow.

    :raises TypeError: it has not.
    """
    if not hasattr(given, "__arrow_c_schema__"):
        kind = type(given).__name__
        raise TypeError(f"{wanted}, not {kind}: {example} of pyarrow, for example")


def encode(schema: TableSchema, rows: Any) -> tuple[ArrowArray, ArrowArray]:
    """As `TableSchema.encode`."""
    columns = _columns(schema, None)
    return columns.encode(fitted(columns, rows))


def encode_key(schema: TableSchema, rows: Any) -> ArrowArray:
    """As `TableSchema.encode_key`."""
    columns = _columns(schema, None)
    return columns.encode_key(fitted(columns, rows))


def decode(
    schema: TableSchema, keys: Any, values: Any, *, columns: Sequence[str] | None = None
) -> ArrowArray:
    """As `TableSchema.decode`."""
    return _columns(schema, None).decode(keys, values, columns=_names(columns))


def decode_key(schema: TableSchema, keys: Any) -> ArrowArray:
    """As `TableSchema.decode_key`."""
    return _columns(schema, None).decode_key(keys)


def _deletes(schema: TableSchema, keys: Any) -> WriteBatch:
    """Returns a batch that deletes the rows with these keys."""
    return schema.deletes(fitted(schema, keys))


def _by_name(given: Any, argument: str) -> dict[str, Any]:
    """Returns values by the names of their columns.

    :raises TypeError: if `given` is not a mapping.
    """
    if not isinstance(given, Mapping):
        kind = type(given).__name__
        raise TypeError(
            f"{argument}: expected values by columns, as {{'country': 'DE'}}, not {kind}"
        )
    return dict(given)


def _names(columns: Sequence[str] | None) -> list[str] | None:
    """Returns names of columns as a list.

    :raises TypeError: if `columns` is one name, whose letters would be taken as names.
    """
    if isinstance(columns, str):
        raise TypeError(f"columns: a list of names, as in [{columns!r}]")
    return None if columns is None else list(columns)


def _encoded(schema: TableSchema, data: Any) -> TableStream | Iterator[TableStream]:
    """Encodes rows for a load as they are read. Dicts of an iterable are encoded in batches.

    :raises TypeError: for a dict, and for a LazyFrame of polars.
    """
    data = fitted(schema, data)
    if isinstance(data, Mapping):
        raise TypeError("data is an iterable of dicts, or Arrow data, not one dict: [{…}]")
    if hasattr(data, "__arrow_c_stream__") or hasattr(data, "__arrow_c_array__"):
        return schema.encode_stream(data)
    return _encoded_each(schema, data)


def _encoded_each(schema: TableSchema, data: Iterable[Any]) -> Iterator[TableStream]:
    some: list[Any] = []
    for item in data:
        if isinstance(item, Mapping):
            some.append(item)
            if len(some) < _ROWS_AT_ONCE:
                continue
        if some:
            yield schema.encode_stream(some)
            some = []
        if not isinstance(item, Mapping):
            yield schema.encode_stream(fitted(schema, item))
    if some:
        yield schema.encode_stream(some)


_schema_of = lru_cache(maxsize=64)(TableSchema.parse)


def _parsed(text: str | None) -> TableSchema:
    """Returns the schema of a handle.

    :raises Invalid: if the database has no columns.
    """
    if text is None:
        raise Invalid(
            "the database has no columns, only bytes: siltstone.table.create makes one that has"
        )
    return _schema_of(text)


def _like(given: Any, batch: ArrowArray) -> Any:
    """Returns `batch` as a pyarrow record batch if `given` belongs to pyarrow, else unchanged."""
    if type(given).__module__.partition(".")[0] != "pyarrow":
        return batch
    return sys.modules["pyarrow"].record_batch(batch)


def _grown(now: TableSchema, change: _Change) -> TableSchema | None:
    """Returns the schema after a change; None if `now` includes the change already.

    :raises TypeError: if a column is no Arrow field.
    """
    verb, field = change
    if verb == "nulls":
        return None if now.nullable(field) else now.with_nulls(field)
    _check_arrow(field, "a column is an Arrow field", 'pa.field("note", pa.string())')
    if now.has(field):
        return None
    return now.with_column(field) if verb == "add" else now.with_wider(field)


_Change = tuple[Literal["add", "widen", "nulls"], Any]


def _moved(tries: int) -> None:
    """Called after another process changed the columns first.

    :raises Conflict: if all attempts are used up.
    """
    if tries + 1 == _TRIES:
        raise Conflict("other processes keep changing the columns of the table; try again later")


class _Known:
    """The schema that a table knows."""

    __slots__ = ("_handle", "_newest")

    def __init__(self, handle: Any) -> None:
        self._handle = handle
        self._newest = _parsed(handle._schema())

    @property
    def schema(self) -> TableSchema:
        """The columns, as this handle knows them. Arrow accepts it as a schema, for example
        ``pyarrow.schema(table.schema)``."""
        return self._now()

    @property
    def key(self) -> list[str]:
        """The names of the key columns, in order."""
        return self._newest.key

    def _now(self) -> TableSchema:
        known = _parsed(self._handle._schema())
        if known.generation > self._newest.generation:
            self._newest = known
        return self._newest

    def __repr__(self) -> str:
        return f"<{type(self).__module__}.Table {self._newest.text!r} of {self._handle!r}>"


@final
class Table(_Known):
    """The typed view of a Database, a Reader or a Snapshot, from `db.table`. It can be used from
    any thread, like the handle. Keep the object if you make many calls."""

    __slots__ = ()

    _handle: Any

    def __init__(self, handle: Database | Reader | Snapshot) -> None:
        super().__init__(handle)

    def get(self, key: Mapping[str, Any]) -> dict[str, Any] | None:
        """Returns the row with a key, or None.

        :param key: a value for each key column; other columns are ignored.
        :raises Invalid, TypeError: if a column is missing, or a value has another type.
        :raises Corruption, Unsupported: if the stored bytes were not written through a table.
        :raises Closed, Fenced, Unavailable, Timeout, Denied: as for `Database.get`.
        """
        schema = self._now()
        packed = schema.key_of(_by_name(key, "key"))
        value = self._handle.get(packed)
        if value is None:
            return None
        try:
            return schema.row(packed, value)
        except Unsupported:
            return self._look(schema).row(packed, value)

    def get_many(self, keys: Any, *, columns: Sequence[str] | None = None) -> Any:
        """Returns the rows with these keys, in the order of `keys`, all from one state of the
        database, as an Arrow record batch. The row of an absent key is null in every column.

        :param keys: Arrow data, or a list of dicts, with the key columns.
        :param columns: names of the columns to decode, in this order; None: all columns.
        :raises Invalid, TypeError, Corruption, Unsupported: as for `get`.
        """
        schema = self._now()
        wanted = _names(columns)
        packed = encode_key(schema, keys)
        values = self._handle.get_many(packed)
        try:
            return _like(keys, schema.decode(packed, values, columns=wanted))
        except Unsupported:
            return _like(keys, self._look(schema).decode(packed, values, columns=wanted))

    def scan(
        self,
        where: Mapping[str, Any] | None = None,
        *,
        start: Any = None,
        end: Any = None,
        columns: Sequence[str] | None = None,
        reverse: bool = False,
        limit: int | None = None,
        batch_rows: int = 65536,
    ) -> TableStream:
        """Returns the rows of a range in key order, in the state at the time of the call, as a
        stream of Arrow record batches, which can be read once.

        :param where: values of the first key columns.
        :param start: lower bound of the next key column, inclusive, in the order of the key. For a
            descending column this is the larger value. Nulls are part of the order.
        :param end: upper bound of the next key column, exclusive, in the order of the key.
        :param columns: names of the columns to decode, in this order; None: all columns.
        :param reverse: return the rows from the last to the first.
        :param limit: maximum number of rows.
        :param batch_rows: maximum number of rows in a record batch. A batch also ends at 64 MiB.
        :raises Invalid, TypeError: if the columns are not the first key columns, or a value has
            another type.

        The stream of a reader ends with an error at a row of a newer schema than the reader knew
        when the scan began: call `refresh`, and begin another scan.
        """
        equal = None if where is None else _by_name(where, "where")
        begin, stop = self._now().range(equal, start, end)
        scan = self._handle.scan(begin, stop, reverse=reverse, limit=limit)
        wanted = _names(columns)
        # The handle already knows the generations of all rows that the scan has pinned.
        return self._now().decode_stream(scan.to_arrow(batch_rows), columns=wanted)

    def refresh(self) -> None:
        """Reads the newest schema now, with one listing and one read. Other calls do so themselves
        when they read a row of an unknown schema.

        :raises Closed, Fenced, Unavailable, Timeout, Denied: see `siltstone.exceptions`.
        """
        self._look(self._now())

    def put(
        self, rows: Any, *, ttl: _Seconds | None = None, expire_at: datetime | None = None
    ) -> Commit:
        """Writes rows in one atomic batch. A row replaces the existing row with its key. Only a
        Database has this method.

        :param rows: Arrow data (a table, a batch, a data frame), or a list of dicts. A nullable
            value column may be missing. A column of floats in a DataFrame of pandas is taken for a
            column of whole numbers if all values are whole; NaN is null.
        :param ttl: time to live; the rows expire after it.
        :param expire_at: an aware datetime, instead of `ttl`: the rows expire at this time.
        :raises Invalid: if a column is missing, unknown, or of another type, if a column that is
            not nullable has a null, or if the batch is larger than `max_batch_bytes`; `load`
            accepts any amount.
        :raises TypeError: if the table belongs to a Reader or a Snapshot.
        :raises Closed, Fenced, Timeout, Unavailable: as for `Database.put`.
        """
        keys, values = encode(self._now(), rows)
        return self._writes("put").put_many(keys, values, ttl=ttl, expire_at=expire_at)

    def delete(self, keys: Any) -> Commit:
        """Deletes the rows with these keys in one atomic batch. Deleting an absent row succeeds.
        Only a Database has this method.

        :param keys: Arrow data, or a list of dicts, with the key columns.
        """
        return self._writes("delete").write(_deletes(self._now(), keys))

    def load(
        self,
        data: Any,
        *,
        sorted: bool = False,
        duplicates: Literal["error", "last"] = "error",
        **more: Any,
    ) -> Any:
        """Loads any amount of rows, which become visible in one commit. Other arguments and errors
        are those of `Database.load`. Only a Database has this method.

        :param data: Arrow data, or an iterable of Arrow data or of dicts. Errors count rows within
            a batch; 8,192 dicts make a batch.
        :param sorted: the rows are in the order of the key.
        :param duplicates: "error": raise Invalid for rows with equal keys. "last": keep the last of
            them.
        """
        rows = _encoded(self._now(), data)
        return self._writes("load").load(rows, sorted=sorted, duplicates=duplicates, **more)

    def add_column(self, field: Any) -> None:
        """Adds a nullable column at the end of the value columns. Existing rows have null in it. If
        the column exists with this type, the call has no effect. Only a Database has this method.

        :param field: a nullable Arrow field.
        :raises Invalid: if a column with the name and another type exists.
        """
        self._evolve(("add", field))

    def widen_column(self, field: Any) -> None:
        """Changes a value column to a type that holds all of its values: a wider integer, double
        for float, more digits with the same scale, binary for text. No row is rewritten. Only a
        Database has this method.

        :param field: an Arrow field with the name of the column.
        :raises Invalid: if there is no such column, it belongs to the key, or the type does not
            hold all of its values.
        """
        self._evolve(("widen", field))

    def allow_nulls(self, column: str) -> None:
        """Makes a value column nullable. Only a Database has this method.

        :raises Invalid: if there is no such column, or it belongs to the key.
        """
        self._evolve(("nulls", column))

    def _evolve(self, change: _Change) -> None:
        handle = self._writes("evolve")
        for tries in range(_TRIES):
            now = _parsed(handle._newest_schema())
            then = _grown(now, change)
            if then is None:
                self._newest = now
                return
            try:
                handle._evolve(now.text, then.text)
            except Conflict:
                _moved(tries)
            else:
                self._newest = then
                return

    def _look(self, known: TableSchema) -> TableSchema:
        """Reads the newest schema, for a row of a generation that may be unknown."""
        newest = _parsed(self._handle._newest_schema())
        if newest.generation > known.generation:
            self._newest = newest
        return newest

    def _writes(self, verb: str) -> Database:
        if isinstance(self._handle, _native.Database):
            return self._handle
        raise TypeError(f"a table of a {type(self._handle).__name__} cannot {verb}: it only reads")
