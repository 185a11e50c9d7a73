//! Equality on leading columns of the key and a range on the next one, as one range of keys.

use super::TableSchema;
use arrow_array::{Array, ArrayRef};
use siltstone_base::entry::key_after;
use siltstone_base::{Error, Result};

/// The first key, and the first key after the range; `None`: unbounded.
pub type KeyRange = (Option<Vec<u8>>, Option<Vec<u8>>);

impl TableSchema {
    /// The keys whose first columns are `equal`, and whose next column is at or behind `start` and
    /// before `end`, in the order of that column. Each column has one row.
    ///
    /// # Errors
    /// As [`crate::KeySchema::encode_leading`]; Invalid for more columns than the key has, and for
    /// a bound behind the last one.
    pub fn range(
        &self,
        equal: &[ArrayRef],
        start: Option<ArrayRef>,
        end: Option<ArrayRef>,
    ) -> Result<KeyRange> {
        let columns = self.keys.columns().len();
        if equal.len() > columns || (equal.len() == columns && (start.is_some() || end.is_some())) {
            let text = "the key has no column behind those that are given: leave the bound out";
            return Err(Error::invalid(text).with("columns", columns));
        }
        let prefix = self.bytes_of(equal)?;
        let bound = |next: ArrayRef| {
            let columns: Vec<ArrayRef> = equal.iter().cloned().chain([next]).collect();
            self.bytes_of(&columns)
        };
        if equal.len() == columns {
            // The last column may be raw: a longer string is another key.
            let behind = key_after(&prefix);
            return Ok((Some(prefix), Some(behind)));
        }
        let start = start.map(bound).transpose()?;
        let end = end.map(bound).transpose()?;
        let whole = (!prefix.is_empty()).then_some(prefix);
        let behind = whole.as_deref().and_then(successor);
        Ok((start.or(whole), end.or(behind)))
    }

    fn bytes_of(&self, columns: &[ArrayRef]) -> Result<Vec<u8>> {
        if columns.iter().any(|column| column.len() != 1) {
            return Err(Error::invalid("a bound has one value a column"));
        }
        let rows = self.keys.encode_leading(columns)?;
        Ok(rows.iter().next().unwrap_or_default().to_vec())
    }
}

/// The first bytes behind all that begin with `prefix`.
fn successor(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|byte| *byte != 0xff)?;
    let mut next = prefix.get(..=last)?.to_vec();
    if let Some(byte) = next.last_mut() {
        *byte += 1;
    }
    Some(next)
}
