//! Runs of plain entries, passed on together (RFC 0005).

use siltstone_base::{Cursor, Result, Seq};

/// A cursor that hands keys and values of plain entries on ([`Cursor::plain`]) without putting
/// entries together. One that knows no better way hands none on.
pub trait Stretches: Cursor {
    /// Hands keys and values of plain entries to `take`, from the one at hand on and below `end`,
    /// each key once and newest first, until one comes that may be otherwise or `take` answers that
    /// it wants no more. Stands on the last that was taken; where none was, on the same as before.
    ///
    /// # Errors
    /// What `take` answers; the cursor may not be used afterwards.
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

/// What [`Stretches::each_plain`] came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plain {
    /// Entries taken.
    pub taken: usize,
    /// Whether the last call wanted more.
    pub more: bool,
}
