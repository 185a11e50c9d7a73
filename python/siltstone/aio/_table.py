"""Tables for asyncio: `db.table` of the handles of `siltstone.aio`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, final

from siltstone import _native
from siltstone.aio._scan import RecordBatches, Scan
from siltstone.exceptions import Conflict, Unsupported
from siltstone.table import (
    _TRIES,
    TableSchema,
    _Change,
    _deletes,
    _encoded,
    _grown,
    _Known,
    _like,
    _moved,
    _names,
    _parsed,
    encode,
    encode_key,
)

if TYPE_CHECKING:
    from siltstone._native import ArrowArray, _Seconds
    from siltstone._native import AsyncCommit as Commit

__all__ = ["Table", "TableBatches"]


@final
class TableBatches(AsyncIterator["ArrowArray"]):
    """The rows of a scan of a table as Arrow record batches (``async for``). Any library with the
    Arrow PyCapsule interface reads each as a record batch, for example with
    `pyarrow.record_batch(batch)`."""

    __slots__ = ("_batches", "_columns", "_schema")

    def __init__(
        self, batches: RecordBatches, schema: TableSchema, columns: Sequence[str] | None
    ) -> None:
        self._batches = batches
        self._schema = schema
        self._columns = _names(columns)

    def __aiter__(self) -> TableBatches:
        return self

    async def __anext__(self) -> ArrowArray:
        batch = await anext(self._batches)
        return self._schema.decode_batch(batch, columns=self._columns)


@final
class Table(_Known):
    """The typed view of a handle, from `db.table`. Keep the object if you make many calls."""

    __slots__ = ("_of",)

    def __init__(self, of: Any) -> None:
        self._of = of
        super().__init__(of._handle)

    async def get(self, key: Mapping[str, Any]) -> dict[str, Any] | None:
        """As `siltstone.table.Table.get`."""
        schema = self._now()
        packed = schema.key_of(dict(key))
        value = await self._of.get(packed)
        if value is None:
            return None
        try:
            return schema.row(packed, value)
        except Unsupported:
            return (await self._look(schema)).row(packed, value)

    async def get_many(self, keys: Any, *, columns: Sequence[str] | None = None) -> Any:
        """As `siltstone.table.Table.get_many`."""
        schema = self._now()
        wanted = _names(columns)
        packed = encode_key(schema, keys)
        values = await self._of.get_many(packed)
        try:
            return _like(keys, schema.decode(packed, values, columns=wanted))
        except Unsupported:
            newest = await self._look(schema)
            return _like(keys, newest.decode(packed, values, columns=wanted))

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
    ) -> TableBatches:
        """As `siltstone.table.Table.scan`, but yields record batches (``async for``)."""
        begin, stop = self._now().range(None if where is None else dict(where), start, end)
        scan: Scan[Any] = self._of.scan(begin, stop, reverse=reverse, limit=limit)
        return TableBatches(scan.to_arrow(batch_rows), self._now(), columns)

    async def refresh(self) -> None:
        """As `siltstone.table.Table.refresh`."""
        await self._look(self._now())

    async def put(
        self, rows: Any, *, ttl: _Seconds | None = None, expire_at: datetime | None = None
    ) -> Commit:
        """As `siltstone.table.Table.put`."""
        keys, values = encode(self._now(), rows)
        database = self._writes("put")
        done: Commit = await database.put_many(keys, values, ttl=ttl, expire_at=expire_at)
        return done

    async def delete(self, keys: Any) -> Commit:
        """As `siltstone.table.Table.delete`."""
        done: Commit = await self._writes("delete").write(_deletes(self._now(), keys))
        return done

    async def load(
        self,
        data: Any,
        *,
        sorted: bool = False,
        duplicates: Literal["error", "last"] = "error",
        **more: Any,
    ) -> Any:
        """As `siltstone.table.Table.load`."""
        rows = _encoded(self._now(), data)
        database = self._writes("load")
        return await database.load(rows, sorted=sorted, duplicates=duplicates, **more)

    async def add_column(self, field: Any) -> None:
        """As `siltstone.table.Table.add_column`."""
        await self._evolve(("add", field))

    async def widen_column(self, field: Any) -> None:
        """As `siltstone.table.Table.widen_column`."""
        await self._evolve(("widen", field))

    async def allow_nulls(self, column: str) -> None:
        """As `siltstone.table.Table.allow_nulls`."""
        await self._evolve(("nulls", column))

    async def _evolve(self, change: _Change) -> None:
        handle = self._writes("evolve")._handle
        for tries in range(_TRIES):
            now = _parsed(await handle._begin_newest_schema())
            then = _grown(now, change)
            if then is None:
                self._newest = now
                return
            try:
                await handle._begin_evolve(now.text, then.text)
            except Conflict:
                _moved(tries)
            else:
                self._newest = then
                return

    async def _look(self, known: TableSchema) -> TableSchema:
        newest = _parsed(await self._handle._begin_newest_schema())
        if newest.generation > known.generation:
            self._newest = newest
        return newest

    def _writes(self, verb: str) -> Any:
        if isinstance(self._handle, _native.Database):
            return self._of
        raise TypeError(f"a table of a {type(self._handle).__name__} cannot {verb}: it only reads")
