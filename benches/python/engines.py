"""The compared engines: one class per engine, with the same Python loop over each.

A method runs many operations, so that the clock is read once for all of them. Work that can be
prepared (bound methods, a held read transaction) is done outside of the loop. Peers have their best
settings, each with its reason here; Siltstone has its defaults.
"""

from __future__ import annotations

import importlib.util
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from importlib.metadata import PackageNotFoundError, version
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa

from ycsb import READ, Step

Rows = tuple[Sequence[bytes], Sequence[bytes]]
"""Keys, and the value of each key."""


class Engine(ABC):
    """One store, opened in its own folder."""

    name: str
    module: str
    db: Any
    """The handle of an engine whose calls are `get(key)` and `put(key, value)`."""
    imported = ""
    """The module that a program imports to use it, if that is not `module`."""
    share = 1.0
    """Share of the operations that it performs: below 1 if all of them would take too long."""

    @abstractmethod
    def open(self, path: Path) -> None:
        """Open the database at `path`; create it if it does not exist."""

    @abstractmethod
    def close(self) -> None:
        """Close the handle; written rows are kept."""

    @abstractmethod
    def put(self, rows: Rows) -> None:
        """One commit per row."""

    @abstractmethod
    def put_many(self, batches: Sequence[Rows]) -> None:
        """One atomic commit per batch."""

    @abstractmethod
    def get(self, keys: Sequence[bytes]) -> None:
        """One call per key."""

    @abstractmethod
    def get_many(self, groups: Sequence[Sequence[bytes]]) -> None:
        """One call per group."""

    @abstractmethod
    def scan(self, starts: Sequence[bytes], count: int) -> None:
        """`count` rows from each start on, as a list of tuples."""

    def mixed(self, steps: Sequence[Step]) -> None:
        """Reads, writes of one row and scans (see `ycsb`), each a separate call."""
        get, put, rows = self.db.get, self.db.put, self.rows
        for key, what in steps:
            if what == READ:
                get(key)
            elif isinstance(what, bytes):
                put(key, what)
            else:
                rows(key, what)

    @abstractmethod
    def scan_all(self, limit: int) -> int:
        """Read every row as a tuple, up to `limit`; return their number."""

    @abstractmethod
    def values(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """The result of `get_many`, for checks."""

    @abstractmethod
    def rows(self, start: bytes, count: int) -> list[tuple[bytes, bytes]]:
        """The result of a scan."""

    @abstractmethod
    def into_tables(self) -> None:
        """Move all rows to where the engine reads them best: flushed, and compacted if possible."""

    def log(self) -> None:  # noqa: B027
        """Brings everything into the log, as far as a killed process keeps it."""

    def begin_reads(self) -> None:  # noqa: B027
        """Acquire the resources of reads."""

    def end_reads(self) -> None:  # noqa: B027
        """Release them."""

    def mapped(self) -> int:
        """Bytes of mapped files, as far as the engine reports them."""
        return 0

    def state(self) -> str:
        """A description of where the rows are; empty if the engine does not report it."""
        return ""

    def write_arrow(self, batches: Sequence[pa.RecordBatch]) -> None:
        """One atomic commit per record batch; converted if an engine does not support Arrow."""
        for batch in batches:
            self.put_many([(batch["key"].to_pylist(), batch["value"].to_pylist())])

    def get_many_arrow(self, arrays: Sequence[pa.Array]) -> None:
        """One call per array of keys, returning an array of values."""
        values, kind = self.values, pa.binary()
        for array in arrays:
            pa.array(values(array.to_pylist()), kind)

    def scan_all_arrow(self, limit: int) -> int:
        """Every row as Arrow, or as a tuple if an engine does not support Arrow."""
        return self.scan_all(limit)

    @classmethod
    def installed(cls) -> bool:
        """Whether it can be compared here."""
        return importlib.util.find_spec(cls.module) is not None

    @classmethod
    def version(cls) -> str:
        """Version of the package."""
        try:
            return version(cls.module)
        except PackageNotFoundError:  # built in place, not installed
            return str(importlib.import_module(cls.module).__version__)


def consume(iterator: Any) -> None:
    """Run an iterator to its end in C."""
    deque(iterator, maxlen=0)


class Siltstone(Engine):
    """This package with default options."""

    name = module = "siltstone"
    options: ClassVar[dict[str, str]] = {}
    """Those of the comparison are the defaults."""

    def open(self, path: Path) -> None:
        import siltstone  # noqa: PLC0415

        self.db = siltstone.open(path, options=self.options)

    def close(self) -> None:
        self.db.close()

    def put(self, rows: Rows) -> None:
        put = self.db.put
        for key, value in zip(*rows, strict=True):
            put(key, value)

    def put_many(self, batches: Sequence[Rows]) -> None:
        put_many = self.db.put_many
        for keys, values in batches:
            put_many(keys, values)

    def write_arrow(self, batches: Sequence[pa.RecordBatch]) -> None:
        write = self.db.write
        for batch in batches:
            write(batch)

    def get(self, keys: Sequence[bytes]) -> None:
        get = self.db.get
        for key in keys:
            get(key)

    def get_many(self, groups: Sequence[Sequence[bytes]]) -> None:
        get_many = self.db.get_many
        for keys in groups:
            get_many(keys)

    def get_many_arrow(self, arrays: Sequence[pa.Array]) -> None:
        get_many = self.db.get_many
        for array in arrays:
            get_many(array)

    def scan(self, starts: Sequence[bytes], count: int) -> None:
        scan = self.db.scan
        for start in starts:
            list(scan(start, limit=count))

    def scan_all(self, limit: int) -> int:
        consume(self.db.scan(limit=limit))
        return limit

    def scan_all_arrow(self, limit: int) -> int:
        reader = pa.RecordBatchReader.from_stream(self.db.scan(limit=limit).to_arrow())
        return sum(batch.num_rows for batch in reader)

    def values(self, keys: Sequence[bytes]) -> list[bytes | None]:
        return self.db.get_many(keys)

    def rows(self, start: bytes, count: int) -> list[tuple[bytes, bytes]]:
        return list(self.db.scan(start, limit=count))

    def into_tables(self) -> None:
        """Closing flushes: nothing to do before."""

    def log(self) -> None:
        self.db.flush()

    def mapped(self) -> int:
        return int(self.db.stats().mapped_bytes)

    def state(self) -> str:
        stats = self.db.stats()
        return (
            f"{stats.memtable_entries:,} rows in memtables, {stats.table_rows:,} in "
            f"{stats.l0_entries} L0 tables and {stats.sorted_runs} sorted runs"
        )


class Rocksdict(Engine):
    """RocksDB. Raw mode: bytes in, bytes out, no type tags."""

    name = module = "rocksdict"

    def open(self, path: Path) -> None:
        import rocksdict  # noqa: PLC0415

        self.module_ = rocksdict
        table = rocksdict.BlockBasedOptions()
        # Everything fits: no read goes to the page cache twice.
        table.set_block_cache(rocksdict.Cache(1 << 30))
        table.set_bloom_filter(10, block_based=False)
        # The hash index of a block saves a get's binary search.
        table.set_data_block_index_type(rocksdict.DataBlockIndexType.binary_and_hash())
        table.set_format_version(5)
        options = rocksdict.Options(raw_mode=True)
        options.create_if_missing(True)
        options.set_block_based_table_factory(table)
        # The values are incompressible; not trying is the fastest.
        options.set_compression_type(rocksdict.DBCompressionType.none())
        options.set_write_buffer_size(64 << 20)
        options.set_max_write_buffer_number(4)
        options.increase_parallelism(2)
        # One thread writes: the plain skip list insert is cheaper than the concurrent one.
        options.set_allow_concurrent_memtable_write(False)
        self.db = rocksdict.Rdict(str(path), options)

    def close(self) -> None:
        self.db.close()

    def put(self, rows: Rows) -> None:
        put = self.db.put
        for key, value in zip(*rows, strict=True):
            put(key, value)

    def put_many(self, batches: Sequence[Rows]) -> None:
        make, write = self.module_.WriteBatch, self.db.write
        for keys, values in batches:
            batch = make(raw_mode=True)
            put = batch.put
            for key, value in zip(keys, values, strict=True):
                put(key, value)
            write(batch)

    def get(self, keys: Sequence[bytes]) -> None:
        get = self.db.get
        for key in keys:
            get(key)

    def get_many(self, groups: Sequence[Sequence[bytes]]) -> None:
        get = self.db.get
        for keys in groups:
            get(keys)

    def scan(self, starts: Sequence[bytes], count: int) -> None:
        items = self.db.items
        for start in starts:
            list(islice(items(from_key=start), count))

    def scan_all(self, limit: int) -> int:
        consume(islice(self.db.items(), limit))
        return limit

    def values(self, keys: Sequence[bytes]) -> list[bytes | None]:
        return self.db.get(keys)

    def rows(self, start: bytes, count: int) -> list[tuple[bytes, bytes]]:
        return list(islice(self.db.items(from_key=start), count))

    def into_tables(self) -> None:
        self.db.flush()
        self.db.compact_range(None, None)

    def log(self) -> None:
        self.db.flush_wal(sync=False)


class Lmdb(Engine):
    """LMDB. No sync, a writable map; a held read transaction, as its manual recommends."""

    name = module = "lmdb"
    map_bytes = 4 << 30

    def open(self, path: Path) -> None:
        import lmdb  # noqa: PLC0415

        self.environment = lmdb.open(
            str(path),
            map_size=self.map_bytes,
            sync=False,
            metasync=False,
            writemap=True,
            map_async=True,
            meminit=False,
        )

    def close(self) -> None:
        self.environment.close()

    def begin_reads(self) -> None:
        self.transaction = self.environment.begin()
        self.cursor = self.transaction.cursor()

    def end_reads(self) -> None:
        del self.cursor
        self.transaction.abort()

    def put(self, rows: Rows) -> None:
        begin = self.environment.begin
        for key, value in zip(*rows, strict=True):
            transaction = begin(write=True)
            transaction.put(key, value)
            transaction.commit()

    def put_many(self, batches: Sequence[Rows]) -> None:
        begin = self.environment.begin
        for keys, values in batches:
            transaction = begin(write=True)
            transaction.cursor().putmulti(zip(keys, values, strict=True))
            transaction.commit()

    def get(self, keys: Sequence[bytes]) -> None:
        get = self.transaction.get
        for key in keys:
            get(key)

    def get_many(self, groups: Sequence[Sequence[bytes]]) -> None:
        getmulti = self.cursor.getmulti
        for keys in groups:
            getmulti(keys)

    def scan(self, starts: Sequence[bytes], count: int) -> None:
        set_range, iterate = self.cursor.set_range, self.cursor.iternext
        for start in starts:
            set_range(start)
            list(islice(iterate(), count))

    def mixed(self, steps: Sequence[Step]) -> None:
        begin = self.environment.begin
        # A new read transaction after each write: the next read must see the written rows.
        del self.cursor
        held = self.transaction
        get = held.get
        for key, what in steps:
            if what == READ:
                get(key)
            elif isinstance(what, bytes):
                held.abort()
                transaction = begin(write=True)
                transaction.put(key, what)
                transaction.commit()
                held = begin()
                get = held.get
            else:
                cursor = held.cursor()
                cursor.set_range(key)
                list(islice(cursor.iternext(), what))
        self.transaction, self.cursor = held, held.cursor()

    def scan_all(self, limit: int) -> int:
        self.cursor.first()
        consume(islice(self.cursor.iternext(), limit))
        return limit

    def values(self, keys: Sequence[bytes]) -> list[bytes | None]:
        found = dict(self.cursor.getmulti(keys))
        return [found.get(key) for key in keys]

    def rows(self, start: bytes, count: int) -> list[tuple[bytes, bytes]]:
        self.cursor.set_range(start)
        return list(islice(self.cursor.iternext(), count))

    def into_tables(self) -> None:
        """There is one tree, so nothing to move."""


def engines() -> dict[str, Callable[[], Engine]]:
    """The engines that are installed, Siltstone first."""
    from slatedb_engine import Slatedb  # noqa: PLC0415

    kinds = (Siltstone, Slatedb, Rocksdict, Lmdb)
    return {kind.name: kind for kind in kinds if kind.installed()}
