"""Figures of a handle."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Stats"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stats:
    """What a handle holds and has done. Counters count since it was opened."""

    epoch: int
    """Epoch of the writer; 0 for a reader."""
    manifest_id: int
    """Number of the manifest that reads work on."""
    visible_seq: int
    """Newest visible sequence number."""
    durable_seq: int
    """Newest durable sequence number."""
    memtable_entries: int
    """Entries in memtables."""
    memtable_bytes: int
    """Bytes of memtables."""
    frozen_memtables: int
    """Memtables that wait to be flushed."""
    l0_entries: int
    """Entries of L0."""
    sorted_runs: int
    """Sorted runs below L0."""
    tables: int
    """Tables."""
    table_bytes: int
    """Bytes of tables in the store."""
    table_rows: int
    """Rows in tables, older versions and tombstones included."""
    block_cache_bytes: int
    """Bytes of decoded blocks in memory."""
    block_cache_hits: int
    """Look-ups that found their block in memory."""
    block_cache_misses: int
    """Look-ups that did not."""
    metadata_bytes: int
    """Bytes of indexes and filters in memory."""
    snapshots: int
    """Snapshots and scans that are open."""
    pressured_writes: int
    """Writes that had to wait for room."""
    get_requests: int
    """GET requests."""
    put_requests: int
    """PUT requests."""
    list_requests: int
    """LIST requests."""
    delete_requests: int
    """DELETE requests."""
    bytes_read: int
    """Bytes read from the store."""
    bytes_written: int
    """Bytes written to the store."""
