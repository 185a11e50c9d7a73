//! The position of a scan, so that `seek` skips rows and never moves backwards.

use crate::scan::ScanItems;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};
use siltstone::Rows;

/// The position of a scan in its direction.
#[derive(Default)]
pub(crate) struct ScanPosition {
    reverse: bool,
    /// The key of the last row read; `None` before the first.
    last: Option<Vec<u8>>,
    /// The concatenated keys of the rows that were converted to values only, with the end offset of
    /// each.
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl ScanPosition {
    pub(crate) fn new(reverse: bool) -> ScanPosition {
        ScanPosition { reverse, ..ScanPosition::default() }
    }

    /// Whether a row with the key `row` precedes `key` in the direction of the scan.
    pub(crate) fn is_before(&self, row: &[u8], key: &[u8]) -> bool {
        if self.reverse { row > key } else { row < key }
    }

    /// Whether all rows read so far precede `key`.
    pub(crate) fn has_not_reached(&self, key: &[u8]) -> bool {
        self.last.as_deref().is_none_or(|last| self.is_before(last, key))
    }

    /// Begins a refill that yields only values.
    pub(crate) fn forget_keys(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }

    /// Records the key of a row that was converted to its value only.
    #[inline]
    pub(crate) fn note_key(&mut self, key: &[u8]) {
        self.bytes.extend_from_slice(key);
        self.ends.push(self.bytes.len());
    }

    /// The key of a converted row; `after` rows were converted after it.
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

    /// Moves to the last converted row.
    pub(crate) fn come_to_made(&mut self, last: &Bound<'_, PyAny>, yields: ScanItems) {
        let key = self.key_of(last, yields, 0).map(<[u8]>::to_vec);
        self.last = key.or(self.last.take());
    }

    /// Moves to the last of `rows`.
    pub(crate) fn come_to_row(&mut self, rows: &Rows) {
        let last = rows.len().checked_sub(1).and_then(|last| rows.row(last));
        if let Some((key, _)) = last {
            self.last = Some(key.to_vec());
        }
    }
}
