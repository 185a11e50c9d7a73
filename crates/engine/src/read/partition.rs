//! Cuts a long scan into parts of about one size, which may be read side by side.

use super::scan::Scan;
use super::scan_range::ScanRange;
use crate::cache::metadata::TableHandle;
use futures::future::try_join_all;
use siltstone_base::Result;
use std::sync::Arc;

/// Parts at most: each costs a few hundred bytes and a seek in every table.
const MAX_PARTS: u64 = 4096;
/// Cuts are chosen among so many keys a part and table: the more, the more even the parts.
const ANCHORS_PER_PART: u64 = 8;
/// Metadata is loaded for up to so many tables, to cut inside of them. More tables than that give
/// cuts enough at their ends.
const MAX_TABLES_OPENED: usize = 64;

impl Scan {
    /// The range, as requested.
    #[must_use]
    pub fn range(&self) -> &ScanRange {
        &self.range
    }

    /// [`Scan::range`] of a scan that is given up.
    #[must_use]
    pub fn into_range(mut self) -> ScanRange {
        std::mem::take(&mut self.range)
    }

    /// Splits the scan into scans of consecutive ranges, in order. All parts read the state that
    /// this scan is pinned to. A part has about `part_bytes` of stored data in tables; rows that
    /// are only in memtables are in the part of their key, and do not count.
    ///
    /// A scan that was begun, is reverse, belongs to a transaction, or is short is returned whole.
    /// Parts do not inherit the limit of the scan ([`Scan::rows_left`]); the caller must stop at
    /// it.
    ///
    /// # Errors
    /// As [`Scan::fetch`], while metadata is loaded.
    pub async fn partition(self, part_bytes: u64) -> Result<Vec<Scan>> {
        if self.range.reverse || !self.is_untouched() || self.is_noted() {
            return Ok(vec![self]);
        }
        let handles: Vec<Arc<TableHandle>> = self.handles().cloned().collect();
        let bytes: u64 = handles.iter().map(|handle| handle.descriptor.object_bytes).sum();
        let part_bytes = part_bytes.max(bytes / MAX_PARTS).max(1);
        if self.wanted_bytes(&handles, bytes) <= part_bytes {
            return Ok(vec![self]);
        }
        let mut anchors = Vec::new();
        if handles.len() <= MAX_TABLES_OPENED {
            let load = try_join_all(handles.iter().map(|handle| self.context.table(handle)));
            let tables = self.context.deadline(self.context.deadline, "scan", load).await?;
            for table in tables {
                let all = table.anchors((part_bytes / ANCHORS_PER_PART).max(1)).into_iter();
                anchors.extend(all.filter(|(key, _)| table.descriptor().covers(key)));
            }
        } else {
            let end = |handle: &Arc<TableHandle>| {
                (handle.descriptor.last_visible().to_vec(), handle.descriptor.object_bytes)
            };
            anchors.extend(handles.iter().map(end));
        }
        Ok(self.cut(choose(anchors, part_bytes)))
    }

    /// About how many stored bytes of `handles`, which have `bytes`, the scan wants.
    fn wanted_bytes(&self, handles: &[Arc<TableHandle>], bytes: u64) -> u64 {
        let rows: u64 = handles.iter().map(|handle| handle.descriptor.entries).sum();
        let wanted = self.rows_left().saturating_mul(bytes / rows.max(1));
        wanted.min(bytes)
    }

    /// Parts between the keys of `cuts`, which ascend.
    fn cut(self, cuts: Vec<Vec<u8>>) -> Vec<Scan> {
        let (start, end) = (self.range.start.clone(), self.range.end.clone());
        let inside = |key: &Vec<u8>| {
            start.as_ref().is_none_or(|start| start < key)
                && end.as_ref().is_none_or(|end| key < end)
        };
        let mut bounds = vec![start.clone()];
        bounds.extend(cuts.into_iter().filter(inside).map(Some));
        let ends = bounds.iter().skip(1).cloned().chain([end.clone()]);
        let part = |(start, end)| {
            let range = ScanRange { start, end, ..ScanRange::default() };
            let held = self.held.clone();
            let mut part = Scan::new(self.context.clone(), self.pin.clone(), range, held);
            part.judge.clone_from(&self.judge);
            part
        };
        bounds.iter().cloned().zip(ends).map(part).collect()
    }
}

/// Chooses keys about `part_bytes` apart among `anchors`, which are keys with the bytes before
/// each.
fn choose(mut anchors: Vec<(Vec<u8>, u64)>, part_bytes: u64) -> Vec<Vec<u8>> {
    anchors.sort_unstable();
    let mut part = 0;
    let mut cuts: Vec<Vec<u8>> = Vec::new();
    for (key, bytes) in anchors {
        part += bytes;
        if part >= part_bytes && cuts.last().is_none_or(|last| *last < key) {
            cuts.push(key);
            part = 0;
        }
    }
    cuts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cuts_ascend_and_lie_a_part_apart() {
        let key = |n: u8| vec![n];
        let anchors = vec![(key(3), 5), (key(1), 5), (key(2), 5), (key(2), 5), (key(4), 5)];
        assert_eq!(choose(anchors.clone(), 10), [key(2), key(3)]);
        assert_eq!(choose(anchors.clone(), 5), [key(1), key(2), key(3), key(4)]);
        assert!(choose(anchors, 1000).is_empty());
    }
}
