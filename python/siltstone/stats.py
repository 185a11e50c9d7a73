"""Figures of a handle."""

from __future__ import annotations

import dataclasses
import html
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from siltstone import _display, _native

__all__ = ["Compaction", "Figure", "Histogram", "Size", "Stats"]


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


@dataclass(frozen=True, slots=True)
class Histogram:
    """The durations of one kind of call or request since the handle was opened."""

    name: str
    """Name, such as `get_request_seconds`."""
    meaning: str
    """Meaning, in one sentence."""
    below: tuple[tuple[float, int], ...]
    """Bounds in seconds, each twice the one before, from 1 µs to 69 s; and the number of durations
    below each."""
    count: int
    """Number of all durations."""
    seconds: float
    """Sum of the durations in seconds, to about a sixteenth."""


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
    """Consumers of the change feed that retain the log."""
    feed_held_wal_objects: int
    """Upper bound of the WAL objects that only consumers of the change feed retain."""
    feed_held_bytes: int
    """Bytes of the log and of ingested tables that only consumers of the change feed retained, as
    of the last round of this process's collector."""
    uptime_seconds: float
    """Time since the handle was opened."""
    last_refresh_time: float
    """Time of the last successful refresh of a following reader, in seconds since 1970; 0 for every
    other handle."""
    staleness_seconds: float
    """Time since the last successful refresh of a following reader; 0 for every other handle."""
    refresh_failures: int
    """Failed refreshes of a following reader; `refresh_error` has the last error."""
    memtable_entries: int
    """Entries of all memtables, including older versions."""
    memtable_bytes: int
    """Memory of all memtables."""
    frozen_memtables: int
    """Memtables that wait to be flushed."""
    frozen_entries: int
    """Entries of the memtables that wait to be flushed."""
    frozen_bytes: int
    """Memory of the memtables that wait to be flushed."""
    wal_buffered_bytes: int
    """Accepted writes that are not yet sent to the WAL."""
    unflushed_wal_objects: int
    """WAL objects that the next opening would replay."""
    snapshots: int
    """Open snapshots and scans of this writer."""
    pressure: float
    """How close writes are to a stop: 0 if no write is slowed, 1 if all writes wait."""
    slowed_writes: int
    """Number of waits of a write because of the rate limit."""
    stopped_writes: int
    """Number of waits of a write for room."""
    waited_for_memory_seconds: float
    """Total time that writes waited because of max_memtable_bytes."""
    waited_for_l0_seconds: float
    """Total time that writes waited because of l0_max_ssts."""
    waited_for_compaction_seconds: float
    """Total time that writes waited because of max_pending_compaction_bytes."""
    l0_entries: int
    """Entries of L0. Each is one flush, and one more layer that a read checks."""
    l0_tables: int
    """Tables of L0."""
    l0_rows: int
    """Rows in L0, including older versions and tombstones."""
    l0_bytes: int
    """Size of the tables of L0 in the store."""
    sorted_runs: int
    """Sorted runs below L0."""
    tables: int
    """Tables of all levels."""
    table_rows: int
    """Rows in tables, including older versions and tombstones."""
    table_tombstones: int
    """Tombstones in tables."""
    expiring_tables: int
    """Tables that have a row with an expiry."""
    table_bytes: int
    """Size of all tables in the store."""
    read_amplification: int
    """Layers that a look-up of an absent key checks: layers of L0 and sorted runs."""
    space_amplification: float
    """Bytes of all tables divided by the bytes of the oldest layer: an upper bound of the stored
    bytes for each live byte."""
    flushes: int
    """Memtables that were flushed to tables."""
    flushed_bytes: int
    """Bytes of the tables that flushes wrote."""
    large_batches: int
    """Batches that were written to tables before they were accepted (writes.skip_memtable_bytes).
    """
    large_batch_bytes: int
    """Bytes of the tables of large batches."""
    pending_compaction_bytes: int
    """Bytes that the scheduler would merge now."""
    compactions_running: int
    """Compactions that run in this process."""
    compactions: int
    """Compactions that this process has completed."""
    compaction_failures: int
    """Failed runs of the compactor, which are tried again."""
    compactor_takeovers: int
    """Times that this process took the compactor's epoch back from a stalled compactor."""
    compactor_silent_seconds: float
    """Time for which the compactor that replaced the one of this process has made no progress
    although there was work; 0 if there is none."""
    compaction_moved_tables: int
    """Tables that were moved to their run without being read."""
    compaction_dropped_tables: int
    """Tables that were dropped without being read."""
    compaction_read_bytes: int
    """Bytes of the tables that compactions merged."""
    compaction_written_bytes: int
    """Bytes of the tables that compactions wrote."""
    compaction_read_rows: int
    """Rows of the tables that compactions merged."""
    compaction_written_rows: int
    """Rows of the tables that compactions wrote."""
    compaction_seconds: float
    """Time that compactions took, including failed ones."""
    write_amplification: float
    """Bytes of written tables divided by bytes of flushed tables, since opening."""
    gc_rounds: int
    """Rounds of the collector of this process."""
    gc_deleted_objects: int
    """Objects that the collector of this process deleted."""
    gc_deleted_bytes: int
    """Bytes of the objects that the collector of this process deleted."""
    gc_failed_deletes: int
    """Deletes that failed, which are tried again."""
    block_cache_bytes: int
    """Size of the decoded blocks in memory."""
    block_cache_capacity: int
    """Maximum size of the decoded blocks in memory."""
    block_cache_hits: int
    """Look-ups that found their block in memory."""
    block_cache_misses: int
    """Look-ups that did not find their block in memory."""
    disk_cache_bytes: int
    """Size of the folder of the disk cache, with the parts of all databases and processes, as far
    as this process knows."""
    disk_cache_capacity: int
    """Maximum size of the folder of the disk cache; 0 without a disk cache."""
    disk_cache_hits: int
    """Parts of tables that were found in the disk cache. Long scans and compactions are not
    counted."""
    disk_cache_misses: int
    """Parts of tables that were not found in the disk cache. Long scans and compactions are not
    counted."""
    disk_cache_errors: int
    """Operations on files of the disk cache that failed, and damaged files that were removed. Reads
    go to the store instead."""
    disk_cache_mirror_bytes: int
    """Bytes of the tables that disk_cache_mirror has stored in the disk cache."""
    disk_cache_mirror_missing_bytes: int
    """Bytes of the tables that disk_cache_mirror has still to fetch, or that do not fit."""
    disk_cache_mirror_errors: int
    """Attempts of disk_cache_mirror to fetch a table that failed. It tries again."""
    mapped_bytes: int
    """Bytes of tables in memory-mapped files. The system owns this memory, and reclaims it when it
    needs it."""
    metadata_bytes: int
    """Size of the indexes and filters of tables in memory."""
    metadata_capacity: int
    """Maximum size of indexes and filters in memory."""
    gets: int
    """Keys read by `get`, `in` and `db[key]`."""
    get_many_keys: int
    """Keys read by `get_many`."""
    scans: int
    """Scans that were begun."""
    durable_write_seconds_p50: float
    """Time from the acceptance of the oldest write of a WAL object until the object was durable, an
    upper bound of the wait of a durable write: the median."""
    durable_write_seconds_p99: float
    """Time from the acceptance of the oldest write of a WAL object until the object was durable, an
    upper bound of the wait of a durable write: the 99th percentile."""
    cached_get_seconds_p50: float
    """Time of a `get` from memory, of which one in 256 is measured: the median."""
    cached_get_seconds_p99: float
    """Time of a `get` from memory, of which one in 256 is measured: the 99th percentile."""
    fetched_get_seconds_p50: float
    """Time of a `get` that read from the store: the median."""
    fetched_get_seconds_p99: float
    """Time of a `get` that read from the store: the 99th percentile."""
    get_request_seconds_p50: float
    """Time of GETs: the median."""
    get_request_seconds_p99: float
    """Time of GETs: the 99th percentile."""
    put_request_seconds_p50: float
    """Time of conditional creates: the median."""
    put_request_seconds_p99: float
    """Time of conditional creates: the 99th percentile."""
    list_request_seconds_p50: float
    """Time of LISTs: the median."""
    list_request_seconds_p99: float
    """Time of LISTs: the 99th percentile."""
    delete_request_seconds_p50: float
    """Time of DELETEs: the median."""
    delete_request_seconds_p99: float
    """Time of DELETEs: the 99th percentile."""
    get_requests: int
    """GETs."""
    put_requests: int
    """PUTs, and completed uploads."""
    upload_chunks: int
    """Parts of uploads."""
    list_requests: int
    """LISTs."""
    delete_requests: int
    """DELETEs."""
    failed_requests: int
    """Requests that failed."""
    transient_failures: int
    """Failed requests of a kind that is tried again."""
    hedged_requests: int
    """Requests that were sent a second time because their answer was late."""
    bytes_read: int
    """Bytes read from the store."""
    bytes_written: int
    """Bytes sent to the store, including failed requests."""
    request_price: float
    """Price of the requests at the rates of S3 Standard, in US dollars."""
    storage_price_per_month: float
    """Price of storing the tables for a month at the rates of S3 Standard, in US dollars."""
    compaction_log: tuple[Compaction, ...]
    """The last compactions in the process of this writer, oldest first: at most 64. Not part of
    iteration, `metrics()` or `to_prometheus()`."""
    latencies: tuple[Histogram, ...]
    """Durations of durable writes, reads and requests. The figures that end in `_p50` and `_p99`
    are quantiles of them. Not part of iteration, `metrics()` or `to_prometheus()`."""
    compaction_error: str | None
    """Reason why the process of this writer does not compact: the error of its last compaction, or
    another compactor that has taken over. Not part of iteration, `metrics()` or
    `to_prometheus()`."""
    gc_error: str | None
    """Error of the last round of this writer's collector, which is tried again. Not part of
    iteration, `metrics()` or `to_prometheus()`."""
    refresh_error: str | None
    """Error of the last refresh of a following reader, which is tried again. Not part of
    iteration, `metrics()` or `to_prometheus()`."""
    ended: str | None
    """Reason why the handle has ended: the writer was fenced, the log of the reader has a hole, or
    the database is gone. Every call raises it. Not part of iteration, `metrics()` or
    `to_prometheus()`."""

    def __iter__(self) -> Iterator[Figure]:
        for name, group, unit, meaning, grows in _TABLE:
            yield Figure(name, group, unit, meaning, getattr(self, name), grows)

    def at_prices(
        self, *, per_1000_puts: float, per_1000_gets: float, per_gib_month: float
    ) -> Stats:
        """Returns the figures with the prices of another store or currency.

        :param per_1000_puts: price of 1,000 PUTs, LISTs or parts of uploads.
        :param per_1000_gets: price of 1,000 GETs.
        :param per_gib_month: price of storing 2^30 bytes for a month.
        """
        puts = self.put_requests + self.list_requests + self.upload_chunks
        return dataclasses.replace(
            self,
            request_price=(puts * per_1000_puts + self.get_requests * per_1000_gets) / 1000,
            storage_price_per_month=self.table_bytes / (1 << 30) * per_gib_month,
        )

    def to_prometheus(self, labels: Mapping[str, str] | None = None) -> str:
        """Returns the figures and `latencies` in the text format of Prometheus. A name is
        `siltstone_` and the name of the figure, with the suffix `_total` for a counter. A histogram
        has its usual three series: `_bucket`, `_sum` and `_count`.

        :param labels: labels of every figure, for example to tell databases apart. A histogram adds
            the label `le`.
        :raises ValueError: if a label has an invalid name.
        """
        pairs = [f'{_label(name)}="{_escaped(text)}"' for name, text in _pairs(labels)]
        beside = _braced(pairs)
        lines = []
        for figure in self:
            name = f"siltstone_{figure.name}" + ("_total" if figure.grows else "")
            lines += [
                f"# HELP {name} {figure.meaning}",
                f"# TYPE {name} {'counter' if figure.grows else 'gauge'}",
                f"{name}{beside} {figure.value!r}",
            ]
        for one in self.latencies:
            name = f"siltstone_{one.name}"
            lines += [f"# HELP {name} {one.meaning}", f"# TYPE {name} histogram"]
            for bound, count in (*one.below, ("+Inf", one.count)):
                bucket = _braced([*pairs, f'{_BOUND}="{bound}"'])
                lines.append(f"{name}_bucket{bucket} {count}")
            lines += [f"{name}_sum{beside} {one.seconds!r}", f"{name}_count{beside} {one.count}"]
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
_BOUND = "le"
"""The label of a bucket's bound, a name of Prometheus."""
_FRACTIONS = {"ratio": 2, "price": 6}
"""Number of decimal places, by unit."""


def _pairs(labels: Mapping[str, str] | None) -> Iterable[tuple[str, str]]:
    return labels.items() if labels else ()


def _braced(pairs: Sequence[str]) -> str:
    return "{" + ",".join(pairs) + "}" if pairs else ""


def _label(name: str) -> str:
    if name == _BOUND:
        raise ValueError(f"{name!r} is the label of the bounds of histograms: use another name")
    if not re.fullmatch(r"[a-zA-Z_][a-zA-Z0-9_]*", name):
        raise ValueError(
            f"{name!r} is not a valid label name: use letters, digits and _, and no digit first"
        )
    return name


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
