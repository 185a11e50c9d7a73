//! The reads of a serializable transaction: keys, and ranges as far as rows were returned.

use super::footprint::{Footprint, KeySpan, joined, sorted};
use crate::read::{Keys, ReadRange};
use parking_lot::Mutex;
use std::sync::Arc;

/// Number of keys or ranges that are kept without removing duplicates. Duplicates are removed then,
/// and again whenever the number has doubled. Reading one key for ever therefore takes bounded
/// memory.
const KEPT_AS_THEY_COME: usize = 1024;

/// Capacity allocated for the first key. Most transactions read no more, and growth by doubling
/// would cost each of them several allocations.
const FIRST_KEYS: usize = 16;
const FIRST_KEY_BYTES: usize = 24;

/// Keys and ranges, in the order of reading.
#[derive(Debug)]
pub(super) struct TrackedReads {
    keys: Keys,
    /// Ranges of scans that have ended.
    ranges: Vec<KeySpan>,
    /// Ranges of scans that may continue.
    scans: Vec<Arc<Mutex<ReadRange>>>,
    sort_keys_at: usize,
    join_ranges_at: usize,
}

impl Default for TrackedReads {
    fn default() -> Self {
        TrackedReads {
            keys: Keys::default(),
            ranges: Vec::new(),
            scans: Vec::new(),
            sort_keys_at: KEPT_AS_THEY_COME,
            join_ranges_at: KEPT_AS_THEY_COME,
        }
    }
}

impl TrackedReads {
    /// Records a read of `key`.
    pub(super) fn key(&mut self, key: &[u8]) {
        if self.keys.is_empty() {
            self.keys = Keys::with_room(FIRST_KEYS, FIRST_KEYS * FIRST_KEY_BYTES);
        }
        self.keys.push(key);
        if self.keys.len() >= self.sort_keys_at {
            self.keys = sorted(&self.keys);
            self.sort_keys_at = KEPT_AS_THEY_COME.max(2 * self.keys.len());
        }
    }

    /// Records a scan, which updates `range` as it proceeds.
    pub(super) fn scan(&mut self, range: &Arc<Mutex<ReadRange>>) {
        self.scans.push(Arc::clone(range));
        if self.scans.len() + self.ranges.len() >= self.join_ranges_at {
            // A scan whose range has no other holder has ended.
            let over = |scan: &Arc<Mutex<ReadRange>>| Arc::strong_count(scan) == 1;
            let (over, open): (Vec<_>, Vec<_>) = self.scans.drain(..).partition(over);
            self.scans = open;
            self.ranges.extend(over.iter().filter_map(read_of));
            self.ranges = joined(std::mem::take(&mut self.ranges));
            let left = self.scans.len() + self.ranges.len();
            self.join_ranges_at = KEPT_AS_THEY_COME.max(2 * left);
        }
    }

    /// Whether sorting the reads takes negligible time.
    pub(super) fn is_few(&self) -> bool {
        self.keys.len() + self.ranges.len() + self.scans.len() <= KEPT_AS_THEY_COME
    }

    /// The footprint of all reads so far.
    pub(super) fn footprint(&self) -> Footprint {
        let scans = self.scans.iter().filter_map(read_of);
        let ranges = self.ranges.iter().cloned().chain(scans);
        Footprint::new(&self.keys, ranges.collect())
    }
}

/// The range that a scan has read.
fn read_of(scan: &Arc<Mutex<ReadRange>>) -> Option<KeySpan> {
    scan.lock().read().map(|(start, end)| KeySpan { start, end })
}
