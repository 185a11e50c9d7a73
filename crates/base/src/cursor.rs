//! The one iteration trait.
//!
//! A cursor is synchronous. When the next entry lies in a block that is not in memory, the move
//! answers [`Step::NeedBlock`] and leaves the cursor *pending*: whoever drives it fetches the
//! block, makes it visible to the cursor's block source, and calls **the same move again with the
//! same arguments** until it answers something else. Async code never enters below the driver.

use crate::entry::Entry;
use crate::error::Result;
use crate::id::{Seq, SstId};

/// Which block of which table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BlockAddr {
    /// The table.
    pub sst: SstId,
    /// Position of the block in the table, from 0.
    pub block: u32,
}

/// What a move of a cursor answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The cursor stands on an entry.
    Ready,
    /// There is no such entry; the cursor stands nowhere.
    End,
    /// The block is needed first; call the same move again once it is there.
    NeedBlock(BlockAddr),
}

/// Movement over entries in internal order: key ascending, then sequence number descending.
///
/// The caller guarantees: after `NeedBlock` it repeats the same move; `next` and `prev` are called
/// only on a cursor that stands on an entry. The implementer guarantees: moves terminate, entries
/// come strictly in order, an error leaves the cursor standing nowhere.
pub trait Cursor {
    /// To the first entry.
    ///
    /// # Errors
    /// Corruption of what is read; likewise for every move.
    fn seek_first(&mut self) -> Result<Step>;
    /// To the last entry.
    ///
    /// # Errors
    /// See [`Cursor::seek_first`].
    fn seek_last(&mut self) -> Result<Step>;
    /// To the first entry at or after `(key, seq)`. `seek(key, Seq::MAX)` finds the newest version
    /// of `key` or the first of a later key.
    ///
    /// # Errors
    /// See [`Cursor::seek_first`].
    fn seek(&mut self, key: &[u8], seq: Seq) -> Result<Step>;
    /// To the last entry strictly before `(key, seq)`. `seek_before(key, Seq::MAX)` finds the
    /// oldest version of the greatest key below `key`.
    ///
    /// # Errors
    /// See [`Cursor::seek_first`].
    fn seek_before(&mut self, key: &[u8], seq: Seq) -> Result<Step>;
    /// One entry on.
    ///
    /// # Errors
    /// See [`Cursor::seek_first`].
    fn next(&mut self) -> Result<Step>;
    /// One entry back.
    ///
    /// # Errors
    /// See [`Cursor::seek_first`].
    fn prev(&mut self) -> Result<Step>;
    /// The entry the cursor stands on; `None` where it stands nowhere or is pending.
    fn entry(&self) -> Option<Entry<'_>>;
    /// Key and sequence number of [`Cursor::entry`], for whoever needs no more of it.
    fn key(&self) -> Option<(&[u8], Seq)> {
        self.entry().map(|entry| (entry.key, entry.seq))
    }
}
