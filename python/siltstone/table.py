"""Tables: rows by columns, in a database that knows what its keys and values are made of.

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

Keys come in the order of their columns, as Spark sorts them. What is stored are bytes all the same:
every other call and tool works on a table as on any database.

`TableSchema` encodes and decodes without a database, and pickles, for tasks that run elsewhere.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, Literal, final

from siltstone import _native
from siltstone._native import ArrowArray, TableSchema, TableStream
from siltstone._open import StoreOptionsSource, Url, _store, _text
from siltstone.exceptions import Conflict, Invalid, Unsupported
from siltstone.merging import MergeOperatorSource, described
from siltstone.options import Options, named_options

if TYPE_CHECKING:
    from siltstone._native import Commit, Database, Reader, Snapshot, _Seconds

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
"""Dicts that are made into a batch of a load."""
_TRIES: Final = 16
"""How often an evolution begins anew behind somebody else's, before it says so."""


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
    """Opens the table at `url` for writing, and makes it where there is none.

    :param schema: a `TableSchema`, or an Arrow schema together with `key`.
    :param key: the columns of the key, in their order, each perhaps with words about it:
        ``"day desc nulls last"``. It is for good.
    :param take_over: as for `siltstone.open`.
    :param options: as for `siltstone.open`.
    :param store_options: as for `siltstone.open`.
    :param merge_operator: as for `siltstone.open`.
    :raises Invalid: a database stands there that has other columns, or none; the text has both.
    :raises Unsupported: a type that no column has.
    :raises Conflict, Denied, Unavailable, Corruption: as `siltstone.open`.
    """
    columns = _columns(schema, key)
    named, store = named_options(options), _store(store_options)
    operator = described(merge_operator)
    manner = (True, take_over, False, False, None)
    return _native.open_table(_text(url), columns, manner, named, store, operator)


def _create_for_a_moment(
    url: Url, schema: TableSchema, store_options: StoreOptionsSource | None
) -> None:
    """Makes the table where there is none, and closes it: as `_open_for_a_moment`."""
    manner = (True, False, False, False, True)
    _native.open_table(_text(url), schema, manner, {}, _store(store_options), None).close()


def _columns(schema: Any, key: Sequence[str] | None) -> TableSchema:
    """The schema that is meant.

    :raises TypeError: a key beside a schema that has one, or none beside one that has not.
    """
    if isinstance(schema, TableSchema):
        if key is not None:
            raise TypeError("a TableSchema has its key already")
        return schema
    if key is None or isinstance(key, str):
        raise TypeError(
            "schema: a TableSchema, as that of a table is and TableSchema(schema, key=[…]) makes; "
            'an Arrow schema needs key: the names of its columns, as in key=["country", "day desc"]'
        )
    return TableSchema(schema, key=list(key))


def encode(schema: TableSchema, rows: Any) -> tuple[ArrowArray, ArrowArray]:
    """As `TableSchema.encode`."""
    return _columns(schema, None).encode(rows)


def encode_key(schema: TableSchema, rows: Any) -> ArrowArray:
    """As `TableSchema.encode_key`."""
    return _columns(schema, None).encode_key(rows)


def decode(
    schema: TableSchema, keys: Any, values: Any, *, columns: Sequence[str] | None = None
) -> ArrowArray:
    """As `TableSchema.decode`."""
    return _columns(schema, None).decode(keys, values, columns=_names(columns))


def decode_key(schema: TableSchema, keys: Any) -> ArrowArray:
    """As `TableSchema.decode_key`."""
    return _columns(schema, None).decode_key(keys)


def _by_name(given: Any, argument: str) -> dict[str, Any]:
    """Values by the names of their columns.

    :raises TypeError: something else.
    """
    if not isinstance(given, Mapping):
        kind = type(given).__name__
        raise TypeError(
            f"{argument}: expected values by columns, as {{'country': 'DE'}}, not {kind}"
        )
    return dict(given)


def _names(columns: Sequence[str] | None) -> list[str] | None:
    """Names of columns.

    :raises TypeError: one name in place of several, which would be read letter by letter.
    """
    if isinstance(columns, str):
        raise TypeError(f"columns: a list of names, as in [{columns!r}]")
    return None if columns is None else list(columns)


def _encoded(schema: TableSchema, data: Any) -> TableStream | Iterator[TableStream]:
    """Rows for a load, encoded as they are taken: of an iterable of dicts some at a time."""
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
            yield schema.encode_stream(item)
    if some:
        yield schema.encode_stream(some)


_schema_of = lru_cache(maxsize=64)(TableSchema.parse)


def _parsed(text: str | None) -> TableSchema:
    """The schema of a handle.

    :raises Invalid: a database of bytes.
    """
    if text is None:
        raise Invalid(
            "the database has no columns, only bytes: siltstone.table.create makes one that has"
        )
    return _schema_of(text)


def _like(given: Any, batch: ArrowArray) -> Any:
    """A record batch of the library that `given` belongs to, where that is pyarrow."""
    if type(given).__module__.partition(".")[0] != "pyarrow":
        return batch
    return sys.modules["pyarrow"].record_batch(batch)


def _grown(now: TableSchema, change: _Change) -> TableSchema | None:
    """What `now` becomes; None where it is so already."""
    verb, field = change
    if verb == "nulls":
        return None if now.nullable(field) else now.with_nulls(field)
    if now.has(field):
        return None
    return now.with_column(field) if verb == "add" else now.with_wider(field)


_Change = tuple[Literal["add", "widen", "nulls"], Any]


def _moved(tries: int) -> None:
    """After a change that somebody else's came before.

    :raises Conflict: it went on like that.
    """
    if tries + 1 == _TRIES:
        raise Conflict("somebody else goes on changing the table's columns; try again later")


class _Known:
    """What a table knows of its schema."""

    __slots__ = ("_handle", "_newest")

    def __init__(self, handle: Any) -> None:
        self._handle = handle
        self._newest = _parsed(handle._schema())

    @property
    def schema(self) -> TableSchema:
        """The columns, as this handle knows them: Arrow takes it for a schema, as
        ``pyarrow.schema(table.schema)`` does."""
        return self._now()

    @property
    def key(self) -> list[str]:
        """The names of the key's columns, in their order."""
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
    """The rows of a handle by columns: from `db.table`, of a Database, a Reader or a Snapshot. From
    any thread, as the handle itself. Keep it where many calls are made."""

    __slots__ = ()

    _handle: Any

    def __init__(self, handle: Database | Reader | Snapshot) -> None:
        super().__init__(handle)

    def get(self, key: Mapping[str, Any]) -> dict[str, Any] | None:
        """The row of a key, or None.

        :param key: a value for every column of the key; others are not looked at.
        :raises Invalid, TypeError: a column is missing, or a value is not of its type.
        :raises Corruption, Unsupported: what stands there was not put by columns.
        :raises Closed, Fenced, Unavailable, Timeout, Denied: as `Database.get`.
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
        """The rows of these keys, in their order, all of one moment, as an Arrow record batch. A
        key that is absent is a row that is null in every column.

        :param keys: Arrow data, or a list of dicts, with the key's columns.
        :param columns: names of those that are wanted, in this order; no others are decoded.
        :raises Invalid, TypeError, Corruption, Unsupported: as `get`.
        """
        schema = self._now()
        wanted = _names(columns)
        packed = schema.encode_key(keys)
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
        """The rows of a range, in the order of the key, as they are now: a stream of Arrow record
        batches, which can be read once.

        :param where: what the key's first columns are equal to.
        :param start: the next column is at this or behind it, in the order of the key: of one that
            is descending, this is the larger bound. Nulls are part of that order.
        :param end: the next column is before this, in the order of the key.
        :param columns: names of those that are wanted, in this order; no others are decoded.
        :param reverse: from the last row to the first.
        :param limit: at most so many rows.
        :param batch_rows: rows of a record batch at most; batches also end at 64 MiB.
        :raises Invalid, TypeError: columns that are not the key's first ones; values that are not
            of their type.

        The stream of a reader ends with an error where it meets rows that were put by later columns
        than the reader knew when the scan began: `refresh`, and begin another.
        """
        equal = None if where is None else _by_name(where, "where")
        begin, stop = self._now().range(equal, start, end)
        scan = self._handle.scan(begin, stop, reverse=reverse, limit=limit)
        wanted = _names(columns)
        # What the scan has pinned is of generations that the handle knows by now.
        return self._now().decode_stream(scan.to_arrow(batch_rows), columns=wanted)

    def refresh(self) -> None:
        """Looks at the newest schema now, by a listing and a read. Other calls do it by themselves
        where they meet a row of columns that they do not know.

        :raises Closed, Fenced, Unavailable, Timeout, Denied: as their texts say.
        """
        self._look(self._now())

    def put(
        self, rows: Any, *, ttl: _Seconds | None = None, expire_at: datetime | None = None
    ) -> Commit:
        """Puts rows, as one atomic batch: a row whose key is there takes its place. Only by a
        Database.

        :param rows: Arrow data (a table, a batch, a frame), or a list of dicts. A column of the
            value that may hold nulls may be missing.
        :param ttl: the rows are gone after this long.
        :param expire_at: the rows are gone from then on, in place of `ttl`.
        :raises Invalid: a column that is missing, or that the table has not, or of another type; a
            null where there is none; more than `max_batch_bytes`: `load` takes any amount.
        :raises Closed, Fenced, Timeout, Unavailable: as `Database.put`.
        """
        keys, values = self._now().encode(rows)
        return self._writes("put").put_many(keys, values, ttl=ttl, expire_at=expire_at)

    def delete(self, keys: Any) -> Commit:
        """Deletes the rows of these keys, as one atomic batch; that one was absent is no error.
        Only by a Database.

        :param keys: Arrow data, or a list of dicts, with the key's columns.
        """
        return self._writes("delete").write(self._now().deletes(keys))

    def load(
        self,
        data: Any,
        *,
        sorted: bool = False,
        duplicates: Literal["error", "last"] = "error",
        **more: Any,
    ) -> Any:
        """Loads any amount of rows, visible all at once: `Database.load`, whose other arguments it
        takes, by columns. Only by a Database.

        :param data: Arrow data, or an iterable of Arrow data or of dicts. Errors count rows within
            a batch, of which 8,192 dicts make one.
        :param sorted: the rows come in the order of the key.
        :param duplicates: "error", or "last": of rows with one key the last one counts.
        """
        rows = _encoded(self._now(), data)
        return self._writes("load").load(rows, sorted=sorted, duplicates=duplicates, **more)

    def add_column(self, field: Any) -> None:
        """Adds a column to the values, at the end; it is null in the rows that are there. One that
        is there already with this type is fine. Only by a Database.

        :param field: an Arrow field that may hold nulls.
        :raises Invalid: the name is another column's.
        """
        self._evolve(("add", field))

    def widen_column(self, field: Any) -> None:
        """Gives a column of the values a type that holds all of its values: a wider integer, a
        double for a float, more digits with the same scale, binary for text. Nothing is rewritten.
        Only by a Database.

        :param field: an Arrow field with the column's name.
        :raises Invalid: no such column; a type that does not hold all of its values.
        """
        self._evolve(("widen", field))

    def allow_nulls(self, column: str) -> None:
        """Lets a column of the values hold nulls from now on. Only by a Database.

        :raises Invalid: no such column.
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
        """The newest schema, for a row of a generation that may not be known."""
        newest = _parsed(self._handle._newest_schema())
        if newest.generation > known.generation:
            self._newest = newest
        return newest

    def _writes(self, verb: str) -> Database:
        if isinstance(self._handle, _native.Database):
            return self._handle
        raise TypeError(f"a table of a {type(self._handle).__name__} cannot {verb}: it only reads")
