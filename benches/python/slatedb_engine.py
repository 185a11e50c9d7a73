"""SlateDB, whose Python package is asynchronous only: each method runs one coroutine to its end.

The Python loop is inside of that coroutine, so that a call costs the same as in a service that
awaits it. Writes are not awaited to be durable: `put` returns once the row is in memory.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import Any

from engines import Engine, Rows
from ycsb import READ, Step

CHUNK = 1000
"""Rows that a scan fetches with one call. With one call per row it is ten times slower."""


class Slatedb(Engine):
    """SlateDB on its own local object store."""

    name = module = "slatedb"
    imported = "slatedb.uniffi"
    share = 0.02

    def open(self, path: Path) -> None:
        import slatedb.uniffi  # noqa: PLC0415

        self.api = slatedb.uniffi
        self.loop = asyncio.new_event_loop()

        # The store is the whole file system, and the folder is a path in it.
        place = path.absolute().as_posix().lstrip("/")

        async def build() -> Any:
            store = self.api.ObjectStore.resolve("file:///")
            builder = self.api.DbBuilder(place, store)
            # The cache holds everything, as for RocksDB.
            cache = self.api.MokaCacheOptions(
                max_capacity=1 << 30, time_to_live=None, time_to_idle=None
            )
            builder.with_db_cache(self.api.DbCache.new_moka_cache(cache), 1)
            return await builder.build()

        self.db = self._run(build())

    def close(self) -> None:
        self._run(self.db.shutdown())
        self.loop.close()

    def _run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self.loop.run_until_complete(work)

    def put(self, rows: Rows) -> None:
        async def run() -> None:
            put = self.db.put
            for key, value in zip(*rows, strict=True):
                await put(key, value)

        self._run(run())

    def put_many(self, batches: Sequence[Rows]) -> None:
        async def run() -> None:
            make, write = self.api.WriteBatch, self.db.write
            for keys, values in batches:
                batch = make()
                put = batch.put
                for key, value in zip(keys, values, strict=True):
                    put(key, value)
                await write(batch)

        self._run(run())

    def get(self, keys: Sequence[bytes]) -> None:
        async def run() -> None:
            get = self.db.get
            for key in keys:
                await get(key)

        self._run(run())

    def get_many(self, groups: Sequence[Sequence[bytes]]) -> None:
        for keys in groups:
            self.values(keys)

    def scan(self, starts: Sequence[bytes], count: int) -> None:
        async def run() -> None:
            for start in starts:
                await self._rows(start, count)

        self._run(run())

    def mixed(self, steps: Sequence[Step]) -> None:
        async def run() -> None:
            get, put = self.db.get, self.db.put
            for key, what in steps:
                if what == READ:
                    await get(key)
                elif isinstance(what, bytes):
                    await put(key, what)
                else:
                    await self._rows(key, what)

        self._run(run())

    def scan_all(self, limit: int) -> int:
        async def run() -> int:
            iterator = await self.db.scan(self._from(None))
            seen = 0
            while seen < limit:
                rows = await iterator.next_batch(min(CHUNK, limit - seen))
                if not rows:
                    break
                seen += len([(row.key, row.value) for row in rows])
            return seen

        return int(self._run(run()))

    def values(self, keys: Sequence[bytes]) -> list[bytes | None]:
        async def run() -> list[bytes | None]:
            get = self.db.get
            return await asyncio.gather(*[get(key) for key in keys])

        return list(self._run(run()))

    def rows(self, start: bytes, count: int) -> list[tuple[bytes, bytes]]:
        return list(self._run(self._rows(start, count)))

    async def _rows(self, start: bytes, count: int) -> list[tuple[bytes, bytes]]:
        iterator = await self.db.scan(self._from(start))
        return [(row.key, row.value) for row in await iterator.next_batch(count)]

    def _from(self, start: bytes | None) -> Any:
        return self.api.KeyRange(start=start, start_inclusive=True, end=None, end_inclusive=False)

    def into_tables(self) -> None:
        self._flush(self.api.FlushType.MEM_TABLE)

    def log(self) -> None:
        self._flush(self.api.FlushType.WAL)

    def _flush(self, kind: Any) -> None:
        options = self.api.FlushOptions(flush_type=kind)
        self._run(self.db.flush_with_options(options))
