//! Runs of plain entries, passed on together (RFC 0005).

use siltstone_base::{Cursor, Result, Seq};

/// A cursor that passes keys and values of plain entries on ([`Cursor::plain`]) without building
/// entries. The default implementation passes none on.
pub trait Stretches: Cursor {
    /// Passes keys and values of plain entries to `take`, from the current one on and below `end`,
    /// each key once with its newest version, until an entry may not be plain or `take` returns
    /// that it wants no more. Afterwards the cursor is on the last entry taken, or unmoved if none
    /// was taken.
    ///
    /// # Errors
    /// Errors of `take`; the cursor may not be used afterwards.
    fn each_plain(
        &mut self,
        seq: Seq,
        end: Option<&[u8]>,
        take: &mut impl FnMut(&[u8], &[u8]) -> Result<bool>,
    ) -> Result<Plain> {
        let _ = (seq, end, take);
        Ok(Plain { taken: 0, more: true })
    }
}

/// The result of [`Stretches::each_plain`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plain {
    /// Number of entries taken.
    pub taken: usize,
    /// Whether the last call wanted more.
    pub more: bool,
}
