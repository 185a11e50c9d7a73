"""The parts of Siltstone, each usable alone.

    from siltstone import lsm

    with lsm.SstWriter("rows.sst") as writer:       # sorts what does not come in order
        writer.add_many([b"b", b"a"], [b"2", b"1"])
    with lsm.SstReader("rows.sst") as table:
        assert table[b"a"] == b"1"

A `MemTable` is a sorted buffer in memory that keeps every version; an `SstWriter` writes a sorted
table into a file of its own, anywhere a database can live; an `SstReader` reads one; `merge_sorted`
reads several of these as one; a `BloomFilter` says which keys are certainly not there. All of it is
the code that a database runs on.
"""

from __future__ import annotations

import builtins
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from siltstone._importable import resolve
from siltstone._native import (
    BloomFilter,
    MemTable,
    MemTableSnapshot,
    SstReader,
    SstWriter,
    merge_sorted,
)

__all__ = [
    "BloomFilter",
    "MemTable",
    "MemTableSnapshot",
    "SstInfo",
    "SstReader",
    "SstWriter",
    "merge_sorted",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class SstInfo:
    """What a table says of itself."""

    url: str | None
    """Where it is, without secrets; None for a file object and for bytes."""
    id: str
    """Its identity (a ULID), to which its checksums are bound."""
    rows: int
    """Entries of all kinds and versions, tombstones included."""
    tombstones: int
    """Tombstones among the rows."""
    bytes: int
    """Length of the file."""
    key_bytes: int
    """Bytes of all keys."""
    value_bytes: int
    """Bytes of all values."""
    first_key: builtins.bytes
    """Smallest key."""
    last_key: builtins.bytes
    """Largest key."""
    min_seq: int
    """Smallest sequence number; 0 for a table that was written alone."""
    max_seq: int
    """Largest sequence number; 0 for a table that was written alone."""
    first_expiry: datetime | None
    """When the first row expires, in UTC; None when none does."""
    last_expiry: datetime | None
    """When the last row expires, in UTC; None when one never does."""
    checksum: int
    """CRC32C of the whole file."""


def _reopen_sst_reader(
    source: Any, named: dict[str, Any], provider: str | None = None
) -> SstReader:
    """What an unpickled reader calls: store options come from the provider, or else from this
    process's environment."""
    return SstReader(source, options=named, store_options=provider)


def _reduced_sst_reader(
    source: Any, named: dict[str, Any], provider: str | None
) -> tuple[Any, ...]:
    """What a reader is pickled as."""
    if provider is not None:
        resolve(provider)
    return (_reopen_sst_reader, (source, named, provider))
