//! The range deletes that a scan sees, of all its sources.

use super::scan::Scan;
use crate::cache::metadata::OpenTable;
use bytes::Bytes;
use siltstone_base::Seq;
use siltstone_merge::{VisibleDeleteSet, VisibleDeletes};
use std::sync::Arc;

impl Scan {
    /// What range deletes hide in the range at the scan's moment; `None` where there are none.
    /// `tables` are those that overlap the range. Nothing is looked at here: the scan looks up what
    /// it passes.
    pub(super) fn cover<'t>(
        &self,
        tables: impl Iterator<Item = &'t OpenTable>,
    ) -> Option<Arc<VisibleDeleteSet>> {
        let tree = &self.pin.tree;
        let mut seen = Vec::new();
        for (memtable, until) in tree.memtables_at(self.pin.seq) {
            if memtable.has_range_deletes() {
                // Those that are in tables too are passed over, as entries are.
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
