//! The range deletes that a scan sees, of all its sources.

use super::scan::Scan;
use crate::cache::metadata::OpenTable;
use siltstone_base::{Cover, RangeDelete};
use std::sync::Arc;

impl Scan {
    /// What range deletes hide in the range at the scan's moment; `None` where there are none.
    /// `tables` are those that overlap the range.
    pub(super) fn cover<'t>(
        &self,
        tables: impl Iterator<Item = &'t OpenTable>,
    ) -> Option<Arc<Cover>> {
        let tree = &self.pin.tree;
        let mut seen = Vec::new();
        for (memtable, seq) in tree.memtables_at(self.pin.seq) {
            if memtable.has_range_deletes() {
                // Those that are in tables too are passed over, as entries are.
                let all = memtable.range_deletes().into_iter();
                seen.extend(all.filter(|one| one.seq > tree.flushed_seq && one.seq <= seq));
            }
        }
        for table in tables.filter(|table| !table.range_deletes().is_empty()) {
            seen.extend(table.range_deletes().list().iter().cloned());
        }
        if seen.is_empty() {
            return None;
        }
        let (start, end) = (self.range.start.as_deref(), self.range.end.as_deref());
        let visible = |one: &RangeDelete| one.seq <= self.pin.seq;
        let inside = |one: RangeDelete| one.within(start, end);
        let seen: Vec<_> = seen.into_iter().filter(visible).filter_map(inside).collect();
        (!seen.is_empty()).then(|| Arc::new(Cover::of(seen)))
    }
}
