//! The range deletes that a scan sees, of all its sources.

use super::scan::Scan;
use crate::cache::metadata::OpenTable;
use bytes::Bytes;
use siltstone_base::Seq;
use siltstone_merge::{VisibleDeleteSet, VisibleDeletes};
use std::sync::Arc;

impl Scan {
    /// The parts of the range that range deletes hide at the scan's sequence number; `None` if
    /// there are no range deletes. `tables` are the tables that overlap the range. The call looks
    /// nothing up: the scan looks up each position as it passes it.
    pub(super) fn cover<'t>(
        &self,
        tables: impl Iterator<Item = &'t OpenTable>,
    ) -> Option<Arc<VisibleDeleteSet>> {
        let tree = &self.pin.tree;
        let mut seen = Vec::new();
        for (memtable, until) in tree.memtables_at(self.pin.seq) {
            if memtable.has_range_deletes() {
                // Skip range deletes that are in tables as well, as the scan does for entries.
                let covers = memtable.range_covers();
                seen.extend(covers.iter().map(|cover| VisibleDeletes {
                    cover: Arc::clone(cover),
                    above: tree.flushed_seq,
                    until,
                }));
            }
        }
        for table in tables.filter(|table| !table.range_deletes().is_empty()) {
            let cover = Arc::clone(table.range_deletes());
            seen.push(VisibleDeletes { cover, above: Seq::NONE, until: self.pin.seq });
        }
        if seen.is_empty() {
            return None;
        }
        let bytes = |bound: &Option<Vec<u8>>| bound.as_deref().map(Bytes::copy_from_slice);
        let (start, end) = (bytes(&self.range.start), bytes(&self.range.end));
        Some(Arc::new(VisibleDeleteSet::new(seen, start, end)))
    }
}
