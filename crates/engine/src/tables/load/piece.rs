//! Ordered rows, split into pieces of one table each.

use super::RowBatch;
use super::making::{FillResult, Target};
use crate::tables::writer::{Duplicates, equal_keys_of_load};
use siltstone_base::entry::check_key;
use siltstone_base::{Error, Result};
use std::ops::Range;
use std::sync::Arc;

/// The rows of one table.
#[derive(Default)]
pub(super) struct TablePiece {
    spans: Vec<(Arc<dyn RowBatch>, Range<usize>)>,
    /// The number of the first row.
    first: u64,
    bytes: u64,
    /// The last key of the previous piece, which these rows must follow.
    after: Option<Vec<u8>>,
}

impl TablePiece {
    pub(super) fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    /// Takes rows of `batch` from the index `from` on; the first row of the batch has the number
    /// `first`. Returns how many, or `None` if the piece is full. If the last of equal keys counts,
    /// they stay in one piece.
    pub(super) fn take(
        &mut self,
        batch: &Arc<dyn RowBatch>,
        from: usize,
        (first, most_bytes, keeps_last): (u64, u64, bool),
    ) -> Option<usize> {
        let rows = batch.rows();
        let row_bytes = (batch.bytes() / rows.max(1)).max(1) as u64;
        if self.is_empty() {
            self.first = first + from as u64;
        }
        let left = match most_bytes.saturating_sub(self.bytes) {
            0 if keeps_last && self.last_key() == Some(batch.key(from)) => 1,
            0 => return None,
            bytes => bytes.div_ceil(row_bytes),
        };
        let taken = usize::try_from(left).unwrap_or(usize::MAX).min(rows - from);
        self.spans.push((Arc::clone(batch), from..from + taken));
        self.bytes += taken as u64 * row_bytes;
        Some(taken)
    }

    fn last_key(&self) -> Option<&[u8]> {
        let (batch, rows) = self.spans.last()?;
        Some(batch.key(rows.end.checked_sub(1)?))
    }

    /// Returns the collected piece and begins the next one, which must follow it.
    pub(super) fn begin_next(&mut self) -> TablePiece {
        let after = self.last_key().map(<[u8]>::to_vec);
        std::mem::replace(self, TablePiece { after, ..TablePiece::default() })
    }

    /// The rows one by one.
    pub(super) fn ordered(self, duplicates: Duplicates) -> Ordered {
        Ordered { piece: self, duplicates, span: 0, row: 0, number: 0 }
    }
}

/// A piece while it is written to a table.
pub(super) struct Ordered {
    piece: TablePiece,
    duplicates: Duplicates,
    /// Position of the next row.
    span: usize,
    row: usize,
    /// Number of rows that were passed.
    number: u64,
}

impl Ordered {
    /// Adds rows until there is a reason to return.
    pub(super) fn fill(&mut self, target: &mut Target) -> Result<FillResult> {
        while let Some((batch, rows)) = self.piece.spans.get(self.span) {
            while rows.start + self.row < rows.end {
                let at = rows.start + self.row;
                let (key, value) = batch.row(at);
                let number = self.piece.first + self.number;
                (self.row, self.number) = (self.row + 1, self.number + 1);
                if self.duplicates == Duplicates::KeepLast && self.is_followed(key) {
                    continue;
                }
                match target.add(key, value) {
                    Ok(false) => {}
                    Ok(true) => return Ok(FillResult::Chunk),
                    Err(error) => return Err(self.explain((key, number), target, error)),
                }
            }
            (self.span, self.row) = (self.span + 1, 0);
        }
        Ok(FillResult::End)
    }

    /// # Errors
    /// Invalid if the piece does not follow the previous one.
    pub(super) fn check_first(&self) -> Result<()> {
        let first = self.piece.spans.first().map(|(batch, rows)| batch.key(rows.start));
        match (&self.piece.after, first) {
            (Some(after), Some(first)) if first <= after.as_slice() => {
                Err(not_after(first, self.piece.first, after))
            }
            _ => Ok(()),
        }
    }

    /// Whether the next row has the same key.
    fn is_followed(&self, key: &[u8]) -> bool {
        let spans = self.piece.spans.get(self.span..).unwrap_or_default();
        let here = spans.first().map(|(batch, rows)| (batch, rows.start + self.row, rows.end));
        let next = match here {
            Some((batch, at, end)) if at < end => Some(batch.key(at)),
            _ => spans.get(1).map(|(batch, rows)| batch.key(rows.start)),
        };
        next == Some(key)
    }

    /// The error of a row that a table refuses.
    fn explain(&self, (key, number): (&[u8], u64), target: &Target, error: Error) -> Error {
        match target.last_key() {
            _ if check_key(key).is_err() => error.with("row", number),
            Some(last) if key <= last => not_after(key, number, last),
            _ => error,
        }
    }
}

fn not_after(key: &[u8], number: u64, before: &[u8]) -> Error {
    if key == before {
        return equal_keys_of_load(key, number.saturating_sub(1), number);
    }
    let text = "rows must come in ascending order of their keys with sorted=True, and \
                are sorted without it";
    Error::invalid(text).with("row", number).with("key", key.escape_ascii())
}
