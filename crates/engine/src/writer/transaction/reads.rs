//! What a serializable transaction has read: keys, and ranges as far as rows were handed out.

use super::footprint::{Footprint, KeySpan, joined, sorted};
use crate::read::{Keys, ReadRange};
use parking_lot::Mutex;
use std::sync::Arc;

/// So many keys or ranges are kept as they come; then doubles are looked for, and again whenever
/// there are twice as many as were left. So reading one key for ever takes no more memory.
const KEPT_AS_THEY_COME: usize = 1024;

/// Room that is made for the first key: most transactions read no more, and growing by doubling
/// would cost each of them a handful of allocations.
const FIRST_KEYS: usize = 16;
const FIRST_KEY_BYTES: usize = 24;

/// Keys and ranges read, in the order of reading.
#[derive(Debug)]
pub(super) struct TrackedReads {
    keys: Keys,
    /// Of scans that are over.
    ranges: Vec<KeySpan>,
    /// Of scans that may go on.
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
    /// `key` is asked for.
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

    /// A scan begins, and notes how far it comes.
    pub(super) fn scan(&mut self, range: &Arc<Mutex<ReadRange>>) {
        self.scans.push(Arc::clone(range));
        if self.scans.len() + self.ranges.len() >= self.join_ranges_at {
            // Those that nobody else holds are over.
            let over = |scan: &Arc<Mutex<ReadRange>>| Arc::strong_count(scan) == 1;
            let (over, open): (Vec<_>, Vec<_>) = self.scans.drain(..).partition(over);
            self.scans = open;
            self.ranges.extend(over.iter().filter_map(read_of));
            self.ranges = joined(std::mem::take(&mut self.ranges));
            let left = self.scans.len() + self.ranges.len();
            self.join_ranges_at = KEPT_AS_THEY_COME.max(2 * left);
        }
    }

    /// Whether it is sorted in no time.
    pub(super) fn is_few(&self) -> bool {
        self.keys.len() + self.ranges.len() + self.scans.len() <= KEPT_AS_THEY_COME
    }

    /// All of it, as it is now.
    pub(super) fn footprint(&self) -> Footprint {
        let scans = self.scans.iter().filter_map(read_of);
        let ranges = self.ranges.iter().cloned().chain(scans);
        let ranges = if cfg!(mutation = "gaps_untracked") { Vec::new() } else { ranges.collect() };
        Footprint::new(&self.keys, ranges)
    }
}

/// The range that a scan has read.
fn read_of(scan: &Arc<Mutex<ReadRange>>) -> Option<KeySpan> {
    scan.lock().read().map(|(start, end)| KeySpan { start, end })
}
