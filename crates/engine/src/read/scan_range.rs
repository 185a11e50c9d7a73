//! The range of a scan.

use siltstone_base::entry::prefix_end;

/// The rows that a scan returns, and their order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScanRange {
    /// The first key, inclusive; `None`: from the beginning.
    pub start: Option<Vec<u8>>,
    /// The end, exclusive; `None`: to the end.
    pub end: Option<Vec<u8>>,
    /// Whether the scan runs from the greatest key to the least.
    pub reverse: bool,
    /// Maximum number of rows.
    pub limit: Option<u64>,
}

impl ScanRange {
    /// Every key.
    #[must_use]
    pub fn all() -> Self {
        ScanRange::default()
    }

    /// Every key that starts with `prefix`.
    #[must_use]
    pub fn prefix(prefix: &[u8]) -> Self {
        ScanRange { start: Some(prefix.to_vec()), end: prefix_end(prefix), ..ScanRange::default() }
    }

    /// Whether the range contains no key.
    pub(super) fn is_empty(&self) -> bool {
        self.start.as_ref().zip(self.end.as_ref()).is_some_and(|(start, end)| start >= end)
    }

    /// The bound at which a scan begins.
    pub(super) fn edge(&self) -> Option<&[u8]> {
        if self.reverse { self.end.as_deref() } else { self.start.as_deref() }
    }
}
