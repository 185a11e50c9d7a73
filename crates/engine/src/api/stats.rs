//! Statistics of a handle. One table has the name, unit, group and meaning of each figure, and
//! serves Rust, Python, the command line and the documentation.
//!
//! Taking statistics is cheap: a few loads, each lock for a short time, and one pass over the
//! descriptors of tables, which are in memory. It makes no request to the store.

use crate::cache::fetch::ReadContext;
use crate::compact::compaction_log::CompactionTotals;
use crate::compact::pending::pending_bytes;
use crate::options::Options;
use crate::read::tree::Tree;
use crate::writer::stalls::pressure::StallCause;
use crate::writer::state::Writer;
use siltstone_base::UnixMillis;
use siltstone_manifest::Manifest;
use siltstone_store::latency::{Histogram, Latency};
use std::sync::atomic::Ordering;

/// List prices: of 1,000 PUTs, LISTs or parts of uploads; of 1,000 GETs; of storing 2^30 bytes for
/// a month.
const PER_1000_PUTS: f64 = 0.005;
const PER_1000_GETS: f64 = 0.0004;
const PER_GIB_MONTH: f64 = 0.023;

/// A row of the table of figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StatInfo {
    /// The name of the field.
    pub name: &'static str,
    /// The group of the figure, used as a heading.
    pub group: &'static str,
    /// The unit: "bytes", "rows", "seconds", …
    pub unit: &'static str,
    /// Whether it is a counter, which only grows while the handle is open.
    pub grows: bool,
    /// Whether it is an integer.
    pub whole: bool,
    /// The meaning.
    pub doc: &'static str,
}

macro_rules! grows {
    (counter) => {
        true
    };
    (gauge) => {
        false
    };
}

macro_rules! whole {
    (u64) => {
        true
    };
    (f64) => {
        false
    };
}

macro_rules! stats {
    ($($group:literal {
        $($flow:ident $name:ident: $kind:ident, $unit:literal, $doc:literal;)*
    })*) => {
        /// The state of a handle, and counts since it was opened.
        #[derive(Clone, Copy, Debug, Default, PartialEq)]
        pub struct Stats {
            $($(#[doc = $doc] pub $name: $kind,)*)*
        }

        impl Stats {
            /// All figures.
            pub const TABLE: &'static [StatInfo] = &[
                $($(StatInfo {
                    name: stringify!($name),
                    group: $group,
                    unit: $unit,
                    grows: grows!($flow),
                    whole: whole!($kind),
                    doc: $doc,
                },)*)*
            ];

            /// All figures with their names, in the order of [`Stats::TABLE`].
            #[must_use]
            pub fn to_pairs(&self) -> Vec<(&'static str, f64)> {
                vec![$($((stringify!($name), self.$name as f64),)*)*]
            }
        }
    };
}

stats! {
    "history" {
        gauge epoch: u64, "number", "Epoch of the writer; 0 for a reader.";
        gauge manifest_id: u64, "number", "Number of the manifest that reads work on.";
        gauge visible_seq: u64, "sequence number", "Newest visible operation.";
        gauge durable_seq: u64, "sequence number", "Newest durable operation.";
        gauge flushed_seq: u64, "sequence number", "Newest operation that is in a table.";
        gauge feed_consumers: u64, "consumers", "Consumers of the change feed that retain the log.";
        gauge feed_held_wal_objects: u64, "objects",
            "Upper bound of the WAL objects that only consumers of the change feed retain.";
        gauge feed_held_bytes: u64, "bytes",
            "Bytes of the log and of ingested tables that only consumers of the change feed \
             retained, as of the last round of this process's collector.";
        counter uptime_seconds: f64, "seconds", "Time since the handle was opened.";
    }
    "following" {
        gauge last_refresh_time: f64, "seconds",
            "Time of the last successful refresh of a following reader, in seconds since 1970; 0 \
             for every other handle.";
        gauge staleness_seconds: f64, "seconds",
            "Time since the last successful refresh of a following reader; 0 for every other \
             handle.";
        counter refresh_failures: u64, "looks",
            "Failed refreshes of a following reader; `refresh_error` has the last error.";
    }
    "memory" {
        gauge memtable_entries: u64, "rows", "Entries of all memtables, including older versions.";
        gauge memtable_bytes: u64, "bytes", "Memory of all memtables.";
        gauge frozen_memtables: u64, "memtables", "Memtables that wait to be flushed.";
        gauge frozen_entries: u64, "rows", "Entries of the memtables that wait to be flushed.";
        gauge frozen_bytes: u64, "bytes", "Memory of the memtables that wait to be flushed.";
        gauge wal_buffered_bytes: u64, "bytes", "Accepted writes that are not yet sent to the WAL.";
        gauge unflushed_wal_objects: u64, "objects",
            "WAL objects that the next opening would replay.";
        gauge snapshots: u64, "handles", "Open snapshots and scans of this writer.";
    }
    "back-pressure" {
        gauge pressure: f64, "ratio",
            "How close writes are to a stop: 0 if no write is slowed, 1 if all writes wait.";
        counter slowed_writes: u64, "writes",
            "Number of waits of a write because of the rate limit.";
        counter stopped_writes: u64, "writes", "Number of waits of a write for room.";
        counter waited_for_memory_seconds: f64, "seconds",
            "Total time that writes waited because of max_memtable_bytes.";
        counter waited_for_l0_seconds: f64, "seconds",
            "Total time that writes waited because of l0_max_ssts.";
        counter waited_for_compaction_seconds: f64, "seconds",
            "Total time that writes waited because of max_pending_compaction_bytes.";
    }
    "tables" {
        gauge l0_entries: u64, "flushes",
            "Entries of L0. Each is one flush, and one more layer that a read checks.";
        gauge l0_tables: u64, "tables", "Tables of L0.";
        gauge l0_rows: u64, "rows", "Rows in L0, including older versions and tombstones.";
        gauge l0_bytes: u64, "bytes", "Size of the tables of L0 in the store.";
        gauge sorted_runs: u64, "runs", "Sorted runs below L0.";
        gauge tables: u64, "tables", "Tables of all levels.";
        gauge table_rows: u64, "rows", "Rows in tables, including older versions and tombstones.";
        gauge table_tombstones: u64, "rows", "Tombstones in tables.";
        gauge expiring_tables: u64, "tables", "Tables that have a row with an expiry.";
        gauge table_bytes: u64, "bytes", "Size of all tables in the store.";
        gauge read_amplification: u64, "layers",
            "Layers that a look-up of an absent key checks: layers of L0 and sorted runs.";
        gauge space_amplification: f64, "ratio",
            "Bytes of all tables divided by the bytes of the oldest layer: an upper bound of the \
             stored bytes for each live byte.";
    }
    "compaction" {
        counter flushes: u64, "flushes", "Memtables that were flushed to tables.";
        counter flushed_bytes: u64, "bytes", "Bytes of the tables that flushes wrote.";
        counter large_batches: u64, "batches",
            "Batches that were written to tables before they were accepted \
             (writes.skip_memtable_bytes).";
        counter large_batch_bytes: u64, "bytes", "Bytes of the tables of large batches.";
        gauge pending_compaction_bytes: u64, "bytes", "Bytes that the scheduler would merge now.";
        gauge compactions_running: u64, "compactions", "Compactions that run in this process.";
        counter compactions: u64, "compactions", "Compactions that this process has completed.";
        counter compaction_failures: u64, "compactions",
            "Failed runs of the compactor, which are tried again.";
        counter compactor_takeovers: u64, "times",
            "Times that this process took the compactor's epoch back from a stalled compactor.";
        gauge compactor_silent_seconds: f64, "seconds",
            "Time for which the compactor that replaced the one of this process has made no \
             progress although there was work; 0 if there is none.";
        counter compaction_moved_tables: u64, "tables",
            "Tables that were moved to their run without being read.";
        counter compaction_dropped_tables: u64, "tables",
            "Tables that were dropped without being read.";
        counter compaction_read_bytes: u64, "bytes", "Bytes of the tables that compactions merged.";
        counter compaction_written_bytes: u64, "bytes",
            "Bytes of the tables that compactions wrote.";
        counter compaction_read_rows: u64, "rows", "Rows of the tables that compactions merged.";
        counter compaction_written_rows: u64, "rows", "Rows of the tables that compactions wrote.";
        counter compaction_seconds: f64, "seconds",
            "Time that compactions took, including failed ones.";
        gauge write_amplification: f64, "ratio",
            "Bytes of written tables divided by bytes of flushed tables, since opening.";
    }
    "collection" {
        counter gc_rounds: u64, "rounds", "Rounds of the collector of this process.";
        counter gc_deleted_objects: u64, "objects",
            "Objects that the collector of this process deleted.";
        counter gc_deleted_bytes: u64, "bytes",
            "Bytes of the objects that the collector of this process deleted.";
        counter gc_failed_deletes: u64, "objects", "Deletes that failed, which are tried again.";
    }
    "caches" {
        gauge block_cache_bytes: u64, "bytes", "Size of the decoded blocks in memory.";
        gauge block_cache_capacity: u64, "bytes", "Maximum size of the decoded blocks in memory.";
        counter block_cache_hits: u64, "look-ups", "Look-ups that found their block in memory.";
        counter block_cache_misses: u64, "look-ups",
            "Look-ups that did not find their block in memory.";
        gauge disk_cache_bytes: u64, "bytes",
            "Size of the folder of the disk cache, with the parts of all databases and processes, \
             as far as this process knows.";
        gauge disk_cache_capacity: u64, "bytes",
            "Maximum size of the folder of the disk cache; 0 without a disk cache.";
        counter disk_cache_hits: u64, "parts",
            "Parts of tables that were found in the disk cache. Long scans and compactions are not \
             counted.";
        counter disk_cache_misses: u64, "parts",
            "Parts of tables that were not found in the disk cache. Long scans and compactions are \
             not counted.";
        counter disk_cache_errors: u64, "operations",
            "Operations on files of the disk cache that failed, and damaged files that were \
             removed. Reads go to the store instead.";
        gauge disk_cache_mirror_bytes: u64, "bytes",
            "Bytes of the tables that disk_cache_mirror has stored in the disk cache.";
        gauge disk_cache_mirror_missing_bytes: u64, "bytes",
            "Bytes of the tables that disk_cache_mirror has still to fetch, or that do not fit.";
        counter disk_cache_mirror_errors: u64, "operations",
            "Attempts of disk_cache_mirror to fetch a table that failed. It tries again.";
        gauge mapped_bytes: u64, "bytes",
            "Bytes of tables in memory-mapped files. The system owns this memory, and reclaims it \
             when it needs it.";
        gauge metadata_bytes: u64, "bytes", "Size of the indexes and filters of tables in memory.";
        gauge metadata_capacity: u64, "bytes", "Maximum size of indexes and filters in memory.";
    }
    "reads" {
        counter gets: u64, "keys", "Keys read by `get`, `in` and `db[key]`.";
        counter get_many_keys: u64, "keys", "Keys read by `get_many`.";
        counter scans: u64, "scans", "Scans that were begun.";
    }
    "latency" {
        gauge durable_write_seconds_p50: f64, "seconds",
            "Time from the acceptance of the oldest write of a WAL object until the object was \
             durable, an upper bound of the wait of a durable write: the median.";
        gauge durable_write_seconds_p99: f64, "seconds",
            "Time from the acceptance of the oldest write of a WAL object until the object was \
             durable, an upper bound of the wait of a durable write: the 99th percentile.";
        gauge cached_get_seconds_p50: f64, "seconds",
            "Time of a `get` from memory, of which one in 256 is measured: the median.";
        gauge cached_get_seconds_p99: f64, "seconds",
            "Time of a `get` from memory, of which one in 256 is measured: the 99th percentile.";
        gauge fetched_get_seconds_p50: f64, "seconds",
            "Time of a `get` that read from the store: the median.";
        gauge fetched_get_seconds_p99: f64, "seconds",
            "Time of a `get` that read from the store: the 99th percentile.";
        gauge get_request_seconds_p50: f64, "seconds", "Time of GETs: the median.";
        gauge get_request_seconds_p99: f64, "seconds", "Time of GETs: the 99th percentile.";
        gauge put_request_seconds_p50: f64, "seconds", "Time of conditional creates: the median.";
        gauge put_request_seconds_p99: f64, "seconds",
            "Time of conditional creates: the 99th percentile.";
        gauge list_request_seconds_p50: f64, "seconds", "Time of LISTs: the median.";
        gauge list_request_seconds_p99: f64, "seconds", "Time of LISTs: the 99th percentile.";
        gauge delete_request_seconds_p50: f64, "seconds", "Time of DELETEs: the median.";
        gauge delete_request_seconds_p99: f64, "seconds", "Time of DELETEs: the 99th percentile.";
    }
    "store" {
        counter get_requests: u64, "requests", "GETs.";
        counter put_requests: u64, "requests", "PUTs, and completed uploads.";
        counter upload_chunks: u64, "requests", "Parts of uploads.";
        counter list_requests: u64, "requests", "LISTs.";
        counter delete_requests: u64, "requests", "DELETEs.";
        counter failed_requests: u64, "requests", "Requests that failed.";
        counter transient_failures: u64, "requests",
            "Failed requests of a kind that is tried again.";
        counter hedged_requests: u64, "requests",
            "Requests that were sent a second time because their answer was late.";
        counter bytes_read: u64, "bytes", "Bytes read from the store.";
        counter bytes_written: u64, "bytes", "Bytes sent to the store, including failed requests.";
        counter request_price: f64, "price",
            "Price of the requests at the rates of S3 Standard, in US dollars.";
        gauge storage_price_per_month: f64, "price",
            "Price of storing the tables for a month at the rates of S3 Standard, in US dollars.";
    }
}

impl Stats {
    pub(crate) fn of_writer(writer: &Writer) -> Stats {
        let tree = writer.tree();
        let manifest = writer.manifests.newest_known();
        let stalled =
            writer.compactor.stalled_for(writer.env.clock.monotonic()).unwrap_or_default();
        Stats {
            epoch: writer.epoch.0,
            manifest_id: manifest.id.0,
            visible_seq: writer.visible().0,
            durable_seq: writer.durability.durable().0,
            flushed_seq: manifest.flushed_seq.0,
            wal_buffered_bytes: wal_buffered_bytes(writer),
            unflushed_wal_objects: writer.log.unflushed() as u64,
            metadata_bytes: writer.budget.used() as u64,
            metadata_capacity: writer.options.metadata_cache_bytes as u64,
            snapshots: writer.held.count() as u64,
            gc_rounds: writer.collector.rounds.load(Ordering::Relaxed),
            gc_deleted_objects: writer.collector.deleted.load(Ordering::Relaxed),
            gc_deleted_bytes: writer.collector.deleted_bytes.load(Ordering::Relaxed),
            gc_failed_deletes: writer.collector.failed.load(Ordering::Relaxed),
            feed_held_bytes: writer.collector.held_by_feed.load(Ordering::Relaxed),
            flushes: writer.flushes.tables.load(Ordering::Relaxed),
            flushed_bytes: writer.flushes.bytes.load(Ordering::Relaxed),
            large_batches: writer.large.count.load(Ordering::Relaxed),
            large_batch_bytes: writer.large.bytes.load(Ordering::Relaxed),
            compactor_silent_seconds: stalled.as_secs_f64(),
            ..Stats::of_reads(&tree, &writer.context)
        }
        .with_manifest(&manifest, &writer.options, writer.env.clock.now())
        .with_compactions(&writer.compactor.log.totals())
        .with_pressure(writer)
        .with_prices()
    }

    /// Adds the figures of `manifest`, such as the work that is left.
    pub(crate) fn with_manifest(
        mut self,
        manifest: &Manifest,
        options: &Options,
        now: UnixMillis,
    ) -> Stats {
        self.pending_compaction_bytes = pending_bytes(manifest, options, now);
        self.feed_consumers = manifest.holds.len() as u64;
        let held_from = manifest.holds.iter().map(|hold| hold.wal_from.get()).min();
        let behind = |from: u64| manifest.replay_from.get().saturating_sub(from);
        self.feed_held_wal_objects = held_from.map_or(0, behind);
        self
    }

    fn with_pressure(self, writer: &Writer) -> Stats {
        let pressure = &writer.pressure;
        let load = pressure.load(writer.tail.lock().unflushed_bytes());
        let waited = |cause| pressure.waited(cause).as_secs_f64();
        Stats {
            pressure: pressure.limits.pressure(&load).0,
            slowed_writes: pressure.slowed.load(Ordering::Relaxed),
            stopped_writes: pressure.stopped.load(Ordering::Relaxed),
            waited_for_memory_seconds: waited(StallCause::Memory),
            waited_for_l0_seconds: waited(StallCause::L0),
            waited_for_compaction_seconds: waited(StallCause::Pending),
            ..self
        }
    }

    fn with_compactions(self, totals: &CompactionTotals) -> Stats {
        let written = (self.flushed_bytes + totals.bytes_out) as f64;
        Stats {
            compactions_running: totals.running,
            compactions: totals.ended,
            compaction_failures: totals.failed,
            compactor_takeovers: totals.takeovers,
            compaction_moved_tables: totals.moved,
            compaction_dropped_tables: totals.dropped,
            compaction_read_bytes: totals.bytes_in,
            compaction_written_bytes: totals.bytes_out,
            compaction_read_rows: totals.rows_in,
            compaction_written_rows: totals.rows_out,
            compaction_seconds: totals.seconds,
            write_amplification: ratio(written, self.flushed_bytes as f64),
            ..self
        }
    }

    /// Adds prices: the list prices of S3 Standard in us-east-1, in US dollars.
    pub(crate) fn with_prices(mut self) -> Stats {
        let puts = (self.put_requests + self.list_requests + self.upload_chunks) as f64;
        let gets = self.get_requests as f64;
        self.request_price = puts / 1000.0 * PER_1000_PUTS + gets / 1000.0 * PER_1000_GETS;
        let gib = (1u64 << 30) as f64;
        self.storage_price_per_month = self.table_bytes as f64 / gib * PER_GIB_MONTH;
        self
    }

    /// The figures that writers and readers share; the others are 0.
    pub(crate) fn of_reads(tree: &Tree, context: &ReadContext) -> Stats {
        let (asked, cache) = (&context.asked, &context.cache);
        let disk = context.env.store.observed().disk_cache.unwrap_or_default();
        let uptime = context.env.clock.monotonic().saturating_sub(asked.opened);
        Stats {
            uptime_seconds: uptime.as_secs_f64(),
            memtable_entries: tree.memtables().map(|memtable| memtable.len() as u64).sum(),
            memtable_bytes: tree
                .memtables()
                .map(|memtable| (memtable.bytes() + memtable.laid_bytes()) as u64)
                .sum(),
            frozen_memtables: tree.frozen.len() as u64,
            frozen_entries: tree.frozen.iter().map(|memtable| memtable.len() as u64).sum(),
            frozen_bytes: tree.frozen.iter().map(|memtable| memtable.bytes() as u64).sum(),
            block_cache_bytes: cache.bytes(),
            mapped_bytes: cache.lent_bytes(),
            block_cache_capacity: cache.capacity(),
            block_cache_hits: cache.hits(),
            block_cache_misses: cache.misses(),
            disk_cache_bytes: disk.bytes,
            disk_cache_capacity: disk.capacity,
            disk_cache_hits: disk.hits,
            disk_cache_misses: disk.misses,
            disk_cache_errors: disk.errors,
            disk_cache_mirror_bytes: asked.mirror.bytes.load(Ordering::Relaxed),
            disk_cache_mirror_missing_bytes: asked.mirror.missing.load(Ordering::Relaxed),
            disk_cache_mirror_errors: asked.mirror.errors.load(Ordering::Relaxed),
            gets: asked.gets.sum(),
            get_many_keys: asked.get_many_keys.sum(),
            scans: asked.scans.sum(),
            ..Stats::default()
        }
        .with_tables(tree)
        .with_requests(context)
        .with_latencies(context)
    }

    fn with_tables(mut self, tree: &Tree) -> Stats {
        let levels = &tree.levels;
        self.l0_entries = levels.l0 as u64;
        self.sorted_runs = (levels.runs.len() - levels.l0) as u64;
        self.read_amplification = levels.runs.len() as u64;
        let mut oldest = 0;
        for (at, run) in levels.runs.iter().enumerate() {
            oldest = 0;
            for table in run.tables.iter().map(|handle| &handle.descriptor) {
                self.tables += 1;
                self.table_rows += table.entries;
                self.table_tombstones += table.tombstones;
                self.expiring_tables += u64::from(table.min_expiry.is_some());
                self.table_bytes += table.object_bytes;
                oldest += table.object_bytes;
                if at < levels.l0 {
                    self.l0_tables += 1;
                    self.l0_rows += table.entries;
                    self.l0_bytes += table.object_bytes;
                }
            }
        }
        self.space_amplification = ratio(self.table_bytes as f64, oldest as f64);
        self
    }

    fn with_latencies(self, context: &ReadContext) -> Stats {
        let (asked, sent) = (&context.asked, &context.requests.latencies);
        Stats {
            durable_write_seconds_p50: asked.durable_writes.quantile(0.5),
            durable_write_seconds_p99: asked.durable_writes.quantile(0.99),
            cached_get_seconds_p50: asked.cached_gets.quantile(0.5),
            cached_get_seconds_p99: asked.cached_gets.quantile(0.99),
            fetched_get_seconds_p50: asked.fetched_gets.quantile(0.5),
            fetched_get_seconds_p99: asked.fetched_gets.quantile(0.99),
            get_request_seconds_p50: sent.get.quantile(0.5),
            get_request_seconds_p99: sent.get.quantile(0.99),
            put_request_seconds_p50: sent.put.quantile(0.5),
            put_request_seconds_p99: sent.put.quantile(0.99),
            list_request_seconds_p50: sent.list.quantile(0.5),
            list_request_seconds_p99: sent.list.quantile(0.99),
            delete_request_seconds_p50: sent.delete.quantile(0.5),
            delete_request_seconds_p99: sent.delete.quantile(0.99),
            ..self
        }
    }

    fn with_requests(self, context: &ReadContext) -> Stats {
        let requests = context.requests.totals();
        Stats {
            get_requests: requests.gets,
            put_requests: requests.puts,
            upload_chunks: requests.upload_chunks,
            list_requests: requests.lists,
            delete_requests: requests.deletes,
            failed_requests: requests.failed,
            transient_failures: requests.transient,
            hedged_requests: requests.hedged,
            bytes_read: requests.bytes_read,
            bytes_written: requests.bytes_written,
            ..self
        }
    }
}

/// The durations of one kind of operation of a handle since it was opened.
#[derive(Clone, Debug, PartialEq)]
pub struct LatencyHistogram {
    /// The name of the figure, such as "get_request_seconds".
    pub name: &'static str,
    /// The meaning.
    pub doc: &'static str,
    /// The durations.
    pub durations: Histogram,
}

/// The histograms of a handle.
pub(crate) fn latencies(context: &ReadContext) -> Vec<LatencyHistogram> {
    let (asked, sent) = (&context.asked, &context.requests.latencies);
    let histogram = |name, doc, latency: &Latency| {
        let durations = latency.histogram();
        LatencyHistogram { name, doc, durations }
    };
    vec![
        histogram(
            "durable_write_seconds",
            "Time from the acceptance of the oldest write of a WAL object until the object was \
             durable.",
            &asked.durable_writes,
        ),
        histogram(
            "cached_get_seconds",
            "Time of a `get` from memory, of which one in 256 is measured.",
            &asked.cached_gets,
        ),
        histogram(
            "fetched_get_seconds",
            "Time of a `get` that read from the store.",
            &asked.fetched_gets,
        ),
        histogram("get_request_seconds", "Time of GETs.", &sent.get),
        histogram("put_request_seconds", "Time of conditional creates.", &sent.put),
        histogram("list_request_seconds", "Time of LISTs.", &sent.list),
        histogram("delete_request_seconds", "Time of DELETEs.", &sent.delete),
    ]
}

/// `part / whole`; 1 if `whole` is 0.
fn ratio(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole } else { 1.0 }
}

/// Bytes of the next WAL object so far. The header of an empty object does not count.
fn wal_buffered_bytes(writer: &Writer) -> u64 {
    writer.tail.lock().wal.len_bytes() as u64
}
