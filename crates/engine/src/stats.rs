//! Figures of one handle. One table tells name, unit, group and meaning, and serves Rust, Python,
//! the command line and the documentation alike.
//!
//! Taking them is cheap: a few loads, one short look at each lock, and a walk over the tables'
//! descriptors, which are in memory. Nothing is asked of the store.

use crate::fetch::ReadContext;
use crate::tree::Tree;
use crate::writer::Writer;
use std::sync::atomic::Ordering;

/// One line of the table of figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StatInfo {
    /// Flat name.
    pub name: &'static str,
    /// What the figure belongs to: a word for a heading.
    pub group: &'static str,
    /// What is counted: "bytes", "rows", "seconds", …
    pub unit: &'static str,
    /// Meaning.
    pub doc: &'static str,
}

macro_rules! stats {
    ($($group:literal { $($name:ident: $kind:ty, $unit:literal, $doc:literal;)* })*) => {
        /// What a handle holds and has done. Counters count since it was opened.
        #[derive(Clone, Copy, Debug, Default, PartialEq)]
        pub struct Stats {
            $($(#[doc = $doc] pub $name: $kind,)*)*
        }

        impl Stats {
            /// Every figure.
            pub const TABLE: &'static [StatInfo] = &[
                $($(StatInfo {
                    name: stringify!($name),
                    group: $group,
                    unit: $unit,
                    doc: $doc,
                },)*)*
            ];

            /// Every figure with its name, in the order of [`Stats::TABLE`].
            #[must_use]
            pub fn to_pairs(&self) -> Vec<(&'static str, f64)> {
                vec![$($((stringify!($name), self.$name as f64),)*)*]
            }
        }
    };
}

stats! {
    "history" {
        epoch: u64, "number", "Epoch of the writer; 0 for a reader.";
        manifest_id: u64, "number", "Number of the manifest that reads work on.";
        visible_seq: u64, "sequence number", "Newest visible operation.";
        durable_seq: u64, "sequence number", "Newest durable operation.";
        flushed_seq: u64, "sequence number", "Newest operation that is in a table.";
        uptime_seconds: f64, "seconds", "Time since the handle was opened.";
    }
    "memory" {
        memtable_entries: u64, "rows", "Entries of all memtables, older versions included.";
        memtable_bytes: u64, "bytes", "Memory of all memtables.";
        frozen_memtables: u64, "memtables", "Memtables that wait to be flushed.";
        frozen_entries: u64, "rows", "Entries of the memtables that wait to be flushed.";
        frozen_bytes: u64, "bytes", "Memory of the memtables that wait to be flushed.";
        wal_buffered_bytes: u64, "bytes", "Accepted writes that wait to be sent to the WAL.";
        unflushed_wal_objects: u64, "objects", "WAL objects that the next opener would replay.";
        pressured_writes: u64, "writes", "Writes that had to wait for room in memory.";
        snapshots: u64, "handles", "Snapshots and scans of this writer that are open.";
    }
    "tables" {
        l0_entries: u64, "flushes", "Entries of L0: each is one flush, and one more place to look.";
        l0_tables: u64, "tables", "Tables of L0.";
        l0_rows: u64, "rows", "Rows in L0, older versions and tombstones included.";
        l0_bytes: u64, "bytes", "Size of the tables of L0 in the store.";
        sorted_runs: u64, "runs", "Sorted runs below L0.";
        tables: u64, "tables", "Tables of all levels.";
        table_rows: u64, "rows", "Rows in tables, older versions and tombstones included.";
        table_tombstones: u64, "rows", "Tombstones in tables.";
        table_bytes: u64, "bytes", "Size of all tables in the store.";
    }
    "caches" {
        block_cache_bytes: u64, "bytes", "Decoded blocks in memory.";
        block_cache_capacity: u64, "bytes", "What decoded blocks may take.";
        block_cache_hits: u64, "look-ups", "Look-ups that found their block in memory.";
        block_cache_misses: u64, "look-ups", "Look-ups that did not.";
        metadata_bytes: u64, "bytes", "Indexes and filters of tables in memory.";
        metadata_capacity: u64, "bytes", "What indexes and filters may take.";
    }
    "reads" {
        gets: u64, "keys", "Keys asked for by `get`, `in` and `db[key]`.";
        get_many_keys: u64, "keys", "Keys asked for by `get_many`.";
        scans: u64, "scans", "Scans begun.";
    }
    "store" {
        get_requests: u64, "requests", "GETs.";
        put_requests: u64, "requests", "PUTs, and uploads that were finished.";
        upload_chunks: u64, "requests", "Pieces of uploads.";
        list_requests: u64, "requests", "LISTs.";
        delete_requests: u64, "requests", "DELETEs.";
        failed_requests: u64, "requests", "Requests that ended with an error.";
        transient_failures: u64, "requests", "Failed requests of a kind that is tried again.";
        bytes_read: u64, "bytes", "Bytes read from the store.";
        bytes_written: u64, "bytes", "Bytes sent to the store, failed requests included.";
    }
}

impl Stats {
    pub(crate) fn of_writer(writer: &Writer) -> Stats {
        let tree = writer.tree();
        let manifest = writer.manifests.newest_known();
        Stats {
            epoch: writer.epoch.0,
            manifest_id: manifest.id.0,
            visible_seq: writer.visible().0,
            durable_seq: writer.durability.durable().0,
            flushed_seq: manifest.flushed_seq.0,
            wal_buffered_bytes: wal_buffered_bytes(writer),
            unflushed_wal_objects: writer.unflushed_wal.lock().len() as u64,
            metadata_bytes: writer.budget.used() as u64,
            metadata_capacity: writer.options.metadata_cache_bytes as u64,
            snapshots: writer.snapshots() as u64,
            pressured_writes: writer.pressured.load(Ordering::Relaxed),
            ..Stats::of_reads(&tree, &writer.context)
        }
    }

    /// What writers and readers have in common; the rest is 0.
    pub(crate) fn of_reads(tree: &Tree, context: &ReadContext) -> Stats {
        let (asked, cache) = (&context.asked, &context.cache);
        let uptime = context.env.clock.monotonic().saturating_sub(asked.opened);
        Stats {
            uptime_seconds: uptime.as_secs_f64(),
            memtable_entries: tree.memtables().map(|memtable| memtable.len() as u64).sum(),
            memtable_bytes: tree.memtables().map(|memtable| memtable.bytes() as u64).sum(),
            frozen_memtables: tree.frozen.len() as u64,
            frozen_entries: tree.frozen.iter().map(|memtable| memtable.len() as u64).sum(),
            frozen_bytes: tree.frozen.iter().map(|memtable| memtable.bytes() as u64).sum(),
            block_cache_bytes: cache.bytes(),
            block_cache_capacity: cache.capacity(),
            block_cache_hits: cache.hits(),
            block_cache_misses: cache.misses(),
            gets: asked.gets.sum(),
            get_many_keys: asked.get_many_keys.sum(),
            scans: asked.scans.sum(),
            ..Stats::default()
        }
        .with_tables(tree)
        .with_requests(context)
    }

    fn with_tables(mut self, tree: &Tree) -> Stats {
        let levels = &tree.levels;
        self.l0_entries = levels.l0 as u64;
        self.sorted_runs = (levels.runs.len() - levels.l0) as u64;
        for (at, run) in levels.runs.iter().enumerate() {
            for table in run.tables.iter().map(|handle| &handle.descriptor) {
                self.tables += 1;
                self.table_rows += table.entries;
                self.table_tombstones += table.tombstones;
                self.table_bytes += table.object_bytes;
                if at < levels.l0 {
                    self.l0_tables += 1;
                    self.l0_rows += table.entries;
                    self.l0_bytes += table.object_bytes;
                }
            }
        }
        self
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
            bytes_read: requests.bytes_read,
            bytes_written: requests.bytes_written,
            ..self
        }
    }
}

/// What the next WAL object holds by now. An empty one has a head, which is nothing to wait for.
fn wal_buffered_bytes(writer: &Writer) -> u64 {
    let tail = writer.tail.lock();
    if tail.wal.is_empty() { 0 } else { tail.wal.len_bytes() as u64 }
}
