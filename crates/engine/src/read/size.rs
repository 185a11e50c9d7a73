//! Estimates the size of a range from metadata: the manifest's table descriptions, the indexes of
//! the tables at the edges, and the memtables (RFC 0026). An estimate must never read a block.

use super::Pin;
use super::answer::Answer;
use super::scan_range::ScanRange;
use crate::cache::fetch::ReadContext;
use crate::cache::metadata::{OpenTable, TableHandle};
use futures::future::try_join_all;
use siltstone_base::SstDescriptor;
use siltstone_sst::Table;
use std::sync::Arc;

/// The estimated stored size of a range. Older versions, tombstones and the rows that they hide
/// count until a compaction drops them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Size {
    /// Bytes of the table blocks that may contain keys of the range, and of memtables. The estimate
    /// exceeds the exact number by at most two blocks per layer.
    pub bytes: u64,
    /// Number of entries. The entries of a table at an edge of the range are assumed to be spread
    /// evenly over its bytes.
    pub rows: u64,
}

impl Size {
    fn add(&mut self, bytes: u64, rows: u64) {
        self.bytes += bytes;
        self.rows += rows;
    }

    /// Adds the part of a table in `[start, end)`.
    fn add_part(&mut self, table: &Table, start: Option<&[u8]>, end: Option<&[u8]>) {
        let descriptor = table.descriptor();
        // Only the visible part of the table counts.
        let (start, end) = descriptor.in_sight(start, end);
        let all = Table::bytes_of_blocks(descriptor).max(1);
        let bytes = table.bytes_between(start, end).min(all);
        let rows = (u128::from(descriptor.entries) * u128::from(bytes)).div_ceil(u128::from(all));
        self.add(bytes, u64::try_from(rows).unwrap_or(descriptor.entries));
    }
}

/// Whether the table lies completely in the range.
fn is_inside(descriptor: &SstDescriptor, start: Option<&[u8]>, end: Option<&[u8]>) -> bool {
    !descriptor.is_cut()
        && start.is_none_or(|start| start <= descriptor.first_key.as_ref())
        && end.is_none_or(|end| descriptor.last_key.as_ref() < end)
}

/// Estimates the size of `range`. Its direction and limit have no effect. Reads no block.
pub(crate) fn approximate_size(context: &ReadContext, pin: &Pin, range: ScanRange) -> Answer<Size> {
    let mut size = Size::default();
    let (start, end) = (range.start.as_deref(), range.end.as_deref());
    if range.is_empty() {
        return Answer::Ready(size);
    }
    let tree = &pin.tree;
    for (memtable, until) in tree.memtables_at(pin.seq) {
        // Rows that are in tables too are counted there; later rows are not counted.
        let in_tables = memtable.last_seq().is_none_or(|last| last <= tree.flushed_seq);
        if !in_tables && memtable.first_seq().is_some_and(|first| first <= until) {
            let (rows, bytes) = memtable.extent(start, end);
            size.add(bytes, rows);
        }
    }
    let mut missing: Vec<Arc<TableHandle>> = Vec::new();
    for handle in tree.levels.runs.iter().flat_map(|run| run.overlapping(start, end)) {
        let descriptor = &handle.descriptor;
        if is_inside(descriptor, start, end) {
            size.add(Table::bytes_of_blocks(descriptor), descriptor.entries);
        } else if let Some(table) = handle.table() {
            size.add_part(&table, start, end);
        } else {
            missing.push(Arc::clone(handle));
        }
    }
    if missing.is_empty() {
        return Answer::Ready(size);
    }
    // Keeps the collector from deleting the tables.
    let (context, tree) = (context.clone(), Arc::clone(tree));
    Answer::Pending(Box::pin(async move {
        let _kept = tree;
        let load = try_join_all(missing.iter().map(|handle| context.table(handle)));
        let tables: Vec<Arc<OpenTable>> =
            context.deadline(context.deadline, "approximate size", load).await?;
        for table in tables {
            size.add_part(&table, range.start.as_deref(), range.end.as_deref());
        }
        Ok(size)
    }))
}
