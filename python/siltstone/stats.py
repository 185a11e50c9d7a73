"""Figures of a handle."""

from __future__ import annotations

import dataclasses
import html
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from siltstone import _display, _native

__all__ = ["Compaction", "Figure", "Size", "Stats"]


class Size(NamedTuple):
    """The estimated stored size of a range: the result of `approximate_size`."""

    bytes: int
    """Compressed bytes of blocks in tables, and bytes of memtables."""
    rows: int
    """Number of rows, including older versions and tombstones."""


class Figure(NamedTuple):
    """A figure with its unit and meaning."""

    name: str
    """Name of the field of `Stats`, and key of `metrics()`."""
    group: str
    """Group of the figure: history, following, memory, tables, back-pressure, compaction,
    collection, caches, reads or store."""
    unit: str
    """Unit: bytes, rows, requests, seconds, …"""
    meaning: str
    """Meaning, in one sentence."""
    value: float
    """Value."""
    grows: bool = False
    """Whether the figure is a counter, which only grows while the handle is open."""

    def shown(self) -> str:
        """Formats the value for people: thousands separators, and bytes also in binary units."""
        if self.unit == "seconds":
            return f"{self.value:,.1f}"
        if self.unit in _FRACTIONS:
            return f"{self.value:,.{_FRACTIONS[self.unit]}f}"
        if self.unit == "bytes" and self.value >= _KIB:
            return f"{self.value:,} ({_display.binary(self.value)})"
        return f"{self.value:,}"


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Compaction:
    """A compaction that has ended, as in the log."""

    ended_at_ms: int
    """Time of its end, in milliseconds since 1970."""
    plan: str
    """Layers and destination, such as `L0:4, L0:3, 7 -> 7`."""
    why: str
    """Reason: `l0 count`, `runs of a level`, `space amplification`, `major`, …"""
    tables_in: int
    """Number of merged tables."""
    rows_in: int
    """Rows of the merged tables, including older versions and tombstones."""
    bytes_in: int
    """Size of the merged tables in bytes."""
    tables_out: int
    """Number of written tables."""
    rows_out: int
    """Rows of the written tables."""
    bytes_out: int
    """Size of the written tables in bytes."""
    moved: int
    """Number of tables that were moved to the destination without being read."""
    dropped: int
    """Number of tables that were dropped without being read."""
    seconds: float
    """Duration in seconds."""
    error: str | None
    """Error of a failed compaction, which is tried again; None after success."""
    line: str
    """All fields in one line, as in the logger `siltstone.compaction`."""

    def __repr__(self) -> str:
        return f"<siltstone.stats.Compaction {self.line}>"


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Stats:
    """The state of a handle, and counts since it was opened.

    Iteration yields a `Figure` for each figure, with unit and meaning. `print` and notebooks show a
    table. `dataclasses.asdict` converts it to a dict. Taking it makes no request to the store.

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
    feed_consumers: int
    """Consumers of the change feed that hold the log."""
    feed_held_wal_objects: int
    """WAL objects, at most, that only consumers of the change feed keep."""
    feed_held_bytes: int
    """Bytes of the log and of what ingests brought that only consumers of the change feed kept, as
    the last round of this process's collector found."""
    uptime_seconds: float
    """Time since the handle was opened."""
    last_refresh_time: float
    """When a following reader last looked for newer data with success, since 1970; 0 for every
    other handle."""
    staleness_seconds: float
    """Time since a following reader last looked for newer data with success; 0 for every other
    handle."""
    refresh_failures: int
    """Looks of a following reader that failed; `refresh_error` says with what."""
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
    snapshots: int
    """Snapshots and scans of this writer that are open."""
    pressure: float
    """How near writes are to being stopped: 0 where none is slowed, 1 where all wait."""
    slowed_writes: int
    """Times that a write waited because of the rate."""
    stopped_writes: int
    """Times that a write waited for room."""
    waited_for_memory_seconds: float
    """Time that writes waited because of max_memtable_bytes, all together."""
    waited_for_l0_seconds: float
    """Time that writes waited because of l0_max_ssts, all together."""
    waited_for_compaction_seconds: float
    """Time that writes waited because of max_pending_compaction_bytes, all together."""
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
    read_amplification: int
    """Places that a look-up of an absent key asks: layers of L0 and sorted runs."""
    space_amplification: float
    """Bytes of all tables by those of the oldest layer: what is stored for what is live, at
    most."""
    flushes: int
    """Memtables that became tables."""
    flushed_bytes: int
    """Bytes of the tables that flushes wrote."""
    large_batches: int
    """Batches that were made tables before they were accepted (writes.skip_memtable_bytes)."""
    large_batch_bytes: int
    """Bytes of the tables of large batches."""
    pending_compaction_bytes: int
    """Bytes that the scheduler would have merged now."""
    compactions_running: int
    """Compactions under way in this process."""
    compactions: int
    """Compactions that this process has ended."""
    compaction_failures: int
    """Runs of the compactor that failed, and are tried again."""
    compactor_takeovers: int
    """Times that this process took the compactor's epoch back from one that was stalled."""
    compactor_silent_seconds: float
    """How long the compactor that stopped this process's has been seen to do nothing while it was
    needed; 0 where there is none."""
    compaction_moved_tables: int
    """Tables that came to their run unread, as they were."""
    compaction_dropped_tables: int
    """Tables that went unread."""
    compaction_read_bytes: int
    """Bytes of the tables that compactions merged."""
    compaction_written_bytes: int
    """Bytes of the tables that compactions wrote."""
    compaction_read_rows: int
    """Rows of the tables that compactions merged."""
    compaction_written_rows: int
    """Rows of the tables that compactions wrote."""
    compaction_seconds: float
    """Time that compactions took, failed ones included."""
    write_amplification: float
    """Bytes of tables written by bytes of tables flushed, since opening."""
    gc_rounds: int
    """Rounds of the collector of this process."""
    gc_deleted_objects: int
    """Objects that they deleted."""
    gc_deleted_bytes: int
    """Bytes of the objects that they deleted."""
    gc_failed_deletes: int
    """Deletes that failed, and are tried again."""
    block_cache_bytes: int
    """Decoded blocks in memory."""
    block_cache_capacity: int
    """What decoded blocks may take."""
    block_cache_hits: int
    """Look-ups that found their block in memory."""
    block_cache_misses: int
    """Look-ups that did not."""
    mapped_bytes: int
    """Bytes of the tables that are read where they lie, in mapped files: the system's memory,
    which it takes back when it needs it."""
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
    durable_write_seconds_p50: float
    """Time of WAL objects, from their oldest write's acceptance until they were durable: what a
    durable write waited at most: half took no longer."""
    durable_write_seconds_p99: float
    """Time of WAL objects, from their oldest write's acceptance until they were durable: what a
    durable write waited at most: 99 of 100 took no longer."""
    cached_get_seconds_p50: float
    """Time of a `get` that memory answered, one in 256 of them: half took no longer."""
    cached_get_seconds_p99: float
    """Time of a `get` that memory answered, one in 256 of them: 99 of 100 took no longer."""
    fetched_get_seconds_p50: float
    """Time of a `get` that asked the store: half took no longer."""
    fetched_get_seconds_p99: float
    """Time of a `get` that asked the store: 99 of 100 took no longer."""
    get_request_seconds_p50: float
    """Time of GETs: half took no longer."""
    get_request_seconds_p99: float
    """Time of GETs: 99 of 100 took no longer."""
    put_request_seconds_p50: float
    """Time of conditional creates: half took no longer."""
    put_request_seconds_p99: float
    """Time of conditional creates: 99 of 100 took no longer."""
    list_request_seconds_p50: float
    """Time of LISTs: half took no longer."""
    list_request_seconds_p99: float
    """Time of LISTs: 99 of 100 took no longer."""
    delete_request_seconds_p50: float
    """Time of DELETEs: half took no longer."""
    delete_request_seconds_p99: float
    """Time of DELETEs: 99 of 100 took no longer."""
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
    request_price: float
    """Price of the requests on S3 standard, in dollars."""
    storage_price_per_month: float
    """Price of keeping the tables for a month there."""
    compaction_log: tuple[Compaction, ...]
    """The last compactions in the process of this writer, oldest first: at most 64. No figure."""
    compaction_error: str | None
    """Reason why the process of this writer does not compact: the error of its last compaction, or
    another compactor that has taken over. No figure."""
    gc_error: str | None
    """Error of the last round of this writer's collector, which is tried again. No figure."""
    refresh_error: str | None
    """Error of the last refresh of a following reader, which is tried again. No figure."""
    ended: str | None
    """Reason why the handle has ended: the writer was fenced, the log of the reader has a hole, or
    the database is gone. Every call raises it. No figure."""

    def __iter__(self) -> Iterator[Figure]:
        for name, group, unit, meaning, grows in _TABLE:
            yield Figure(name, group, unit, meaning, getattr(self, name), grows)

    def at_prices(
        self, *, per_1000_puts: float, per_1000_gets: float, per_gib_month: float
    ) -> Stats:
        """The same figures at the prices of another store, or in another currency.

        :param per_1000_puts: what 1,000 PUTs, LISTs or pieces of uploads cost.
        :param per_1000_gets: what 1,000 GETs cost.
        :param per_gib_month: what keeping 2^30 bytes for a month costs.
        """
        puts = self.put_requests + self.list_requests + self.upload_chunks
        return dataclasses.replace(
            self,
            request_price=(puts * per_1000_puts + self.get_requests * per_1000_gets) / 1000,
            storage_price_per_month=self.table_bytes / (1 << 30) * per_gib_month,
        )

    def to_prometheus(self, labels: Mapping[str, str] | None = None) -> str:
        """Returns the figures in the text format of Prometheus. A name is `siltstone_` and the name
        of the figure, with the suffix `_total` for a counter.

        :param labels: labels of every figure, for example to tell databases apart.
        :raises ValueError: if a label has an invalid name.
        """
        beside = ",".join(f'{_label(name)}="{_escaped(text)}"' for name, text in _pairs(labels))
        beside = "{" + beside + "}" if beside else ""
        lines = []
        for figure in self:
            name = f"siltstone_{figure.name}" + ("_total" if figure.grows else "")
            lines += [
                f"# HELP {name} {figure.meaning}",
                f"# TYPE {name} {'counter' if figure.grows else 'gauge'}",
                f"{name}{beside} {figure.value!r}",
            ]
        return "\n".join(lines) + "\n"

    def __repr__(self) -> str:
        shown = _display.key_figures(self)
        return _display.line("Stats", epoch=self.epoch, **shown)

    def __str__(self) -> str:
        lines, group = ["<siltstone.Stats"], ""
        for figure in self:
            if figure.group != group:
                group = figure.group
                lines.append(f"  {group}")
            lines.append(f"    {figure.name:<{_WIDTH}} {figure.shown()}")
        return "\n".join(lines) + ">"

    def _repr_html_(self) -> str:
        """HTML for notebooks: a table in which the meaning of a figure is its tool tip."""
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
_WIDTH = max(len(name) for name, *_ in _TABLE)
_KIB = 1024
_FRACTIONS = {"ratio": 2, "price": 6}
"""Number of decimal places, by unit."""


def _pairs(labels: Mapping[str, str] | None) -> Iterable[tuple[str, str]]:
    return labels.items() if labels else ()


def _label(name: str) -> str:
    if not re.fullmatch(r"[a-zA-Z_][a-zA-Z0-9_]*", name):
        raise ValueError(
            f"{name!r} is not a valid label name: use letters, digits and _, and no digit first"
        )
    return name


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
