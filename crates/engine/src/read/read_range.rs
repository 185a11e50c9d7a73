//! How far a scan has handed rows out: what a transaction has read of a range, gaps included.

use super::ScanRange;
use siltstone_base::entry::key_after;

/// The part of a scan's range that was read.
#[derive(Debug)]
pub(crate) struct ReadRange {
    start: Option<Vec<u8>>,
    end: Option<Vec<u8>>,
    reverse: bool,
    /// The last key handed out; empty, which no key is, before the first.
    last: Vec<u8>,
    /// Whether the scan came to the end of its range.
    whole: bool,
}

impl ReadRange {
    /// The range that a scan of `range` has read before it begins.
    pub(crate) fn new(range: &ScanRange) -> ReadRange {
        let (start, end) = (range.start.clone(), range.end.clone());
        ReadRange { start, end, reverse: range.reverse, last: Vec::new(), whole: false }
    }

    /// `key` is handed out.
    #[inline]
    pub(crate) fn row(&mut self, key: &[u8]) {
        self.last.clear();
        self.last.extend_from_slice(key);
    }

    /// There is nothing more in the range.
    pub(crate) fn all(&mut self) {
        self.whole = true;
    }

    /// From which key (the empty one: from the beginning) up to below which one was read; `None`
    /// while nothing was.
    pub(crate) fn read(&self) -> Option<(Vec<u8>, Option<Vec<u8>>)> {
        let start = || self.start.clone().unwrap_or_default();
        if self.whole {
            return Some((start(), self.end.clone()));
        }
        if self.last.is_empty() {
            return None;
        }
        if self.reverse {
            return Some((self.last.clone(), self.end.clone()));
        }
        Some((start(), Some(key_after(&self.last))))
    }
}
