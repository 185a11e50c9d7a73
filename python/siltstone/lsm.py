"""The parts of Siltstone, each usable alone.

    from siltstone import lsm

    with lsm.SstWriter("rows.sst") as writer:       # sorts the rows
        writer.add_many([b"b", b"a"], [b"2", b"1"])
    with lsm.SstReader("rows.sst") as table:
        assert table[b"a"] == b"1"

A `MemTable` is a sorted buffer in memory that keeps every version. An `SstWriter` writes a sorted
table to a file in any supported store, and an `SstReader` reads one. `merge_sorted` reads several
of them as one. A `BloomFilter` tells which keys are certainly absent. A database runs on the same
code.
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
    """The description of a table."""

    url: str | None
    """URL of the table, without secrets; None for a file object and for bytes."""
    id: str
    """Identity of the table (a ULID), to which its checksums are bound."""
    rows: int
    """Number of entries of all kinds and versions, including tombstones."""
    tombstones: int
    """Number of tombstones among the rows."""
    bytes: int
    """Length of the file in bytes."""
    key_bytes: int
    """Size of all keys in bytes."""
    value_bytes: int
    """Size of all values in bytes."""
    first_key: builtins.bytes
    """Smallest key."""
    last_key: builtins.bytes
    """Largest key."""
    min_seq: int
    """Smallest sequence number; 0 for a table of `SstWriter`."""
    max_seq: int
    """Largest sequence number; 0 for a table of `SstWriter`."""
    first_expiry: datetime | None
    """Earliest expiry of a row, in UTC; None if no row expires."""
    last_expiry: datetime | None
    """Latest expiry of a row, in UTC; None if a row does not expire."""
    checksum: int
    """CRC32C of the whole file."""


def _reopen_sst_reader(
    source: Any, named: dict[str, Any], provider: str | None = None
) -> SstReader:
    """Opens a reader from its pickle. Store options come from the provider, or else from the
    environment of this process."""
    return SstReader(source, options=named, store_options=provider)


def _reduced_sst_reader(
    source: Any, named: dict[str, Any], provider: str | None
) -> tuple[Any, ...]:
    """Returns the pickled form of a reader.

    :raises Invalid: if the provider cannot be imported by name.
    """
    if provider is not None:
        resolve(provider)
    return (_reopen_sst_reader, (source, named, provider))
