//! How far a scan has come, so that `seek` passes over rows and never goes back.

use crate::scan::ScanItems;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};
use siltstone::Rows;

/// How far a scan has come, in its direction.
#[derive(Default)]
pub(crate) struct ScanPosition {
    reverse: bool,
    /// The key of the last row that was read; `None` before the first.
    last: Option<Vec<u8>>,
    /// Keys of the rows that were made into values alone, one behind the other, and where each
    /// ends.
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl ScanPosition {
    pub(crate) fn new(reverse: bool) -> ScanPosition {
        ScanPosition { reverse, ..ScanPosition::default() }
    }

    /// Whether a row of key `row` comes before those at `key`.
    pub(crate) fn is_before(&self, row: &[u8], key: &[u8]) -> bool {
        if self.reverse { row > key } else { row < key }
    }

    /// Whether all that was read comes before `key`.
    pub(crate) fn has_not_reached(&self, key: &[u8]) -> bool {
        self.last.as_deref().is_none_or(|last| self.is_before(last, key))
    }

    /// Begins a refill of values alone.
    pub(crate) fn forget_keys(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }

    /// Notes the key of a row that was made into its value alone.
    #[inline]
    pub(crate) fn note_key(&mut self, key: &[u8]) {
        self.bytes.extend_from_slice(key);
        self.ends.push(self.bytes.len());
    }

    /// The key of a row that was made; so many were made after it.
    pub(crate) fn key_of<'a>(
        &'a self,
        made: &'a Bound<'_, PyAny>,
        yields: ScanItems,
        after: usize,
    ) -> Option<&'a [u8]> {
        match yields {
            ScanItems::Keys => Some(made.cast::<PyBytes>().ok()?.as_bytes()),
            ScanItems::Items => {
                made.cast::<PyTuple>().ok()?.get_borrowed_item(0).ok()?.extract().ok()
            }
            ScanItems::Values => {
                let row = self.ends.len().checked_sub(after + 1)?;
                let start = row.checked_sub(1).and_then(|before| self.ends.get(before));
                self.bytes.get(start.copied().unwrap_or_default()..*self.ends.get(row)?)
            }
        }
    }

    /// Comes to the last row that was made.
    pub(crate) fn come_to_made(&mut self, last: &Bound<'_, PyAny>, yields: ScanItems) {
        let key = self.key_of(last, yields, 0).map(<[u8]>::to_vec);
        self.last = key.or(self.last.take());
    }

    /// Comes to the last of `rows`.
    pub(crate) fn come_to_row(&mut self, rows: &Rows) {
        let last = rows.len().checked_sub(1).and_then(|last| rows.row(last));
        if let Some((key, _)) = last {
            self.last = Some(key.to_vec());
        }
    }
}
