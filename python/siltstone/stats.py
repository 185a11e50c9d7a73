"""Figures of a handle."""

from __future__ import annotations

import html
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from siltstone import _native

__all__ = ["Figure", "Stats"]


class Figure(NamedTuple):
    """One figure with what is to be known about it."""

    name: str
    """Field of `Stats`, and key of `metrics()`."""
    group: str
    """What it belongs to: history, memory, tables, caches, reads or store."""
    unit: str
    """What is counted: bytes, rows, requests, seconds, …"""
    meaning: str
    """In a sentence."""
    value: float
    """The figure."""

    def shown(self) -> str:
        """The value for people: thousands apart, bytes in binary units too."""
        if self.unit == "seconds":
            return f"{self.value:,.1f}"
        if self.unit == "bytes" and self.value >= _KIB:
            return f"{self.value:,} ({_binary(self.value)})"
        return f"{self.value:,}"


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Stats:
    """What a handle holds and has done. Counters count since it was opened.

    Iterating gives a `Figure` each, with unit and meaning; as text and in notebooks it is a table.
    `dataclasses.asdict` makes a dict of it. Taking it asks nothing of the store.

        with siltstone.open("memory://figures") as db:
            db[b"layer"] = b"stone"
            assert db.stats().memtable_entries == 1
    """

    epoch: int
    """Epoch of the writer; 0 for a reader."""
    manifest_id: int
    """Number of the manifest that reads work on."""
    visible_seq: int
    """Newest visible operation."""
    durable_seq: int
    """Newest durable operation."""
    flushed_seq: int
    """Newest operation that is in a table."""
    uptime_seconds: float
    """Time since the handle was opened."""
    memtable_entries: int
    """Entries of all memtables, older versions included."""
    memtable_bytes: int
    """Memory of all memtables."""
    frozen_memtables: int
    """Memtables that wait to be flushed."""
    frozen_entries: int
    """Entries of the memtables that wait to be flushed."""
    frozen_bytes: int
    """Memory of the memtables that wait to be flushed."""
    wal_buffered_bytes: int
    """Accepted writes that wait to be sent to the WAL."""
    unflushed_wal_objects: int
    """WAL objects that the next opener would replay."""
    pressured_writes: int
    """Writes that had to wait for room in memory."""
    snapshots: int
    """Snapshots and scans of this writer that are open."""
    l0_entries: int
    """Entries of L0: each is one flush, and one more place to look."""
    l0_tables: int
    """Tables of L0."""
    l0_rows: int
    """Rows in L0, older versions and tombstones included."""
    l0_bytes: int
    """Size of the tables of L0 in the store."""
    sorted_runs: int
    """Sorted runs below L0."""
    tables: int
    """Tables of all levels."""
    table_rows: int
    """Rows in tables, older versions and tombstones included."""
    table_tombstones: int
    """Tombstones in tables."""
    table_bytes: int
    """Size of all tables in the store."""
    block_cache_bytes: int
    """Decoded blocks in memory."""
    block_cache_capacity: int
    """What decoded blocks may take."""
    block_cache_hits: int
    """Look-ups that found their block in memory."""
    block_cache_misses: int
    """Look-ups that did not."""
    metadata_bytes: int
    """Indexes and filters of tables in memory."""
    metadata_capacity: int
    """What indexes and filters may take."""
    gets: int
    """Keys asked for by `get`, `in` and `db[key]`."""
    get_many_keys: int
    """Keys asked for by `get_many`."""
    scans: int
    """Scans begun."""
    get_requests: int
    """GETs."""
    put_requests: int
    """PUTs, and uploads that were finished."""
    upload_chunks: int
    """Pieces of uploads."""
    list_requests: int
    """LISTs."""
    delete_requests: int
    """DELETEs."""
    failed_requests: int
    """Requests that ended with an error."""
    transient_failures: int
    """Failed requests of a kind that is tried again."""
    bytes_read: int
    """Bytes read from the store."""
    bytes_written: int
    """Bytes sent to the store, failed requests included."""

    def __iter__(self) -> Iterator[Figure]:
        for name, group, unit, meaning in _TABLE:
            yield Figure(name, group, unit, meaning, getattr(self, name))

    def __repr__(self) -> str:
        lines, group = ["<siltstone.Stats"], ""
        for figure in self:
            if figure.group != group:
                group = figure.group
                lines.append(f"  {group}")
            lines.append(f"    {figure.name:<{_WIDTH}} {figure.shown()}")
        return "\n".join(lines) + ">"

    def _repr_html_(self) -> str:
        """What a notebook shows; the meaning of a figure stands in its tool tip."""
        rows, group = [], ""
        for figure in self:
            if figure.group != group:
                group = figure.group
                rows.append(f'<tr><th colspan="2" style="text-align:left">{group}</th></tr>')
            meaning = html.escape(figure.meaning, quote=True)
            rows.append(
                f'<tr title="{meaning}"><td style="text-align:left">{figure.name}</td>'
                f"<td>{figure.shown()}</td></tr>"
            )
        return "<table>" + "".join(rows) + "</table>"


_TABLE = _native.stat_table()
_WIDTH = max(len(name) for name, _, _, _ in _TABLE)
_KIB = 1024


def _binary(count: float) -> str:
    for unit in ("KiB", "MiB", "GiB"):
        count /= _KIB
        if count < _KIB:
            return f"{count:.1f} {unit}"
    return f"{count / _KIB:.1f} TiB"
