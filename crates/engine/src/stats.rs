//! Figures of one handle.

use crate::fetch::ReadContext;
use crate::tree::Tree;
use crate::writer::Writer;

/// What a handle holds and has done. Counters count since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Stats {
    /// Epoch of the writer; 0 for a reader.
    pub epoch: u64,
    /// Number of the manifest that reads work on.
    pub manifest_id: u64,
    /// Newest visible sequence number.
    pub visible_seq: u64,
    /// Newest durable sequence number.
    pub durable_seq: u64,
    /// Entries in memtables.
    pub memtable_entries: u64,
    /// Bytes of memtables.
    pub memtable_bytes: u64,
    /// Memtables that wait to be flushed.
    pub frozen_memtables: u64,
    /// Entries of L0.
    pub l0_entries: u64,
    /// Sorted runs below L0.
    pub sorted_runs: u64,
    /// Tables.
    pub tables: u64,
    /// Bytes of tables in the store.
    pub table_bytes: u64,
    /// Rows in tables, older versions and tombstones included.
    pub table_rows: u64,
    /// Bytes of decoded blocks in memory.
    pub block_cache_bytes: u64,
    /// Look-ups that found their block in memory.
    pub block_cache_hits: u64,
    /// Look-ups that did not.
    pub block_cache_misses: u64,
    /// Bytes of indexes and filters in memory.
    pub metadata_bytes: u64,
    /// Snapshots and scans that are open.
    pub snapshots: u64,
    /// Writes that had to wait for room.
    pub pressured_writes: u64,
    /// GET requests.
    pub get_requests: u64,
    /// PUT requests.
    pub put_requests: u64,
    /// LIST requests.
    pub list_requests: u64,
    /// DELETE requests.
    pub delete_requests: u64,
    /// Bytes read from the store.
    pub bytes_read: u64,
    /// Bytes written to the store.
    pub bytes_written: u64,
}

impl Stats {
    pub(crate) fn of_writer(writer: &Writer) -> Stats {
        let tree = writer.tree();
        let mut stats = Stats::of_reads(&tree, &writer.context);
        stats.epoch = writer.epoch.0;
        stats.manifest_id = writer.manifests.newest_known().id.0;
        stats.visible_seq = writer.visible().0;
        stats.durable_seq = writer.durability.durable().0;
        stats.metadata_bytes = writer.budget.used() as u64;
        stats.snapshots = writer.snapshots() as u64;
        stats.pressured_writes = writer.pressured.load(std::sync::atomic::Ordering::Relaxed);
        stats
    }

    pub(crate) fn of_reads(tree: &Tree, context: &ReadContext) -> Stats {
        let requests = context.requests.totals();
        let sum = |of: fn(&siltstone_base::SstDescriptor) -> u64| {
            tree.levels.handles().map(|handle| of(&handle.descriptor)).sum::<u64>()
        };
        Stats {
            memtable_entries: tree.memtables().map(|m| m.len() as u64).sum(),
            memtable_bytes: tree.memtables().map(|m| m.bytes() as u64).sum(),
            frozen_memtables: tree.frozen.len() as u64,
            l0_entries: tree.levels.l0 as u64,
            sorted_runs: (tree.levels.runs.len() - tree.levels.l0) as u64,
            tables: tree.levels.handles().count() as u64,
            table_bytes: sum(|table| table.object_bytes),
            table_rows: sum(|table| table.entries),
            block_cache_bytes: context.cache.bytes(),
            block_cache_hits: context.cache.hits(),
            block_cache_misses: context.cache.misses(),
            get_requests: requests.gets,
            put_requests: requests.puts,
            list_requests: requests.lists,
            delete_requests: requests.deletes,
            bytes_read: requests.bytes_read,
            bytes_written: requests.bytes_written,
            ..Stats::default()
        }
    }

    /// Every figure with its name, in the order of the fields.
    #[must_use]
    pub fn to_pairs(&self) -> Vec<(&'static str, f64)> {
        macro_rules! pairs {
            ($($name:ident),* $(,)?) => { vec![$((stringify!($name), self.$name as f64)),*] };
        }
        pairs![
            epoch,
            manifest_id,
            visible_seq,
            durable_seq,
            memtable_entries,
            memtable_bytes,
            frozen_memtables,
            l0_entries,
            sorted_runs,
            tables,
            table_bytes,
            table_rows,
            block_cache_bytes,
            block_cache_hits,
            block_cache_misses,
            metadata_bytes,
            snapshots,
            pressured_writes,
            get_requests,
            put_requests,
            list_requests,
            delete_requests,
            bytes_read,
            bytes_written,
        ]
    }
}
