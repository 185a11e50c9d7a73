//! The iteration trait of the engine.
//!
//! A cursor is synchronous. If the next entry is in a block that is not in memory, the move returns
//! [`Step::NeedBlock`] and leaves the cursor *pending*: the driver fetches the block, adds it to
//! the cursor's block source, and calls **the same move again with the same arguments** until it
//! returns another step. No code below the driver may be async.

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
    /// On to the next key: as [`Cursor::next`], but of the entries of the key that it stands on it
    /// may pass over all or some.
    ///
    /// # Errors
    /// See [`Cursor::seek_first`].
    fn next_key(&mut self) -> Result<Step> {
        self.next()
    }
    /// One entry back.
    ///
    /// # Errors
    /// See [`Cursor::seek_first`].
    fn prev(&mut self) -> Result<Step>;
    /// The entry the cursor stands on; `None` where it stands nowhere or is pending.
    fn entry(&self) -> Option<Entry<'_>>;
    /// Key and sequence number of [`Cursor::entry`], for callers that need no value.
    fn key(&self) -> Option<(&[u8], Seq)> {
        self.entry().map(|entry| (entry.key, entry.seq))
    }

    /// The key of [`Cursor::entry`] alone: sequence numbers may lie elsewhere in memory.
    fn user_key(&self) -> Option<&[u8]> {
        self.key().map(|(key, _)| key)
    }

    /// How many entries from the one at hand on are *plain* for a reader at `seq`, and can be had
    /// without a move: values that never expire, at or below `seq`. At most `most`; fewer where
    /// finding out would cost more than it spares, down to 0.
    fn plain(&self, seq: Seq, most: usize) -> usize {
        let _ = (seq, most);
        0
    }

    /// The key of the entry `ahead` places after the one at hand; `ahead` is less than what
    /// [`Cursor::plain`] answered there. Empty past that.
    fn plain_key(&self, ahead: usize) -> &[u8] {
        let _ = ahead;
        &[]
    }

    /// The value beside [`Cursor::plain_key`].
    fn plain_value(&self, ahead: usize) -> &[u8] {
        let _ = ahead;
        &[]
    }

    /// What [`Cursor::plain_key`] and [`Cursor::plain_value`] answer, where it lies in columns.
    fn plain_columns(&self) -> Option<Columns<'_>> {
        None
    }

    /// Stands on the entry `ahead` places after the one at hand; `ahead` is less than what
    /// [`Cursor::plain`] answered there.
    fn pass(&mut self, ahead: usize) {
        let _ = ahead;
    }
}

/// Keys of one length and values of one length, each side by side.
#[derive(Clone, Copy, Debug, Default)]
pub struct Columns<'a> {
    /// Keys, one after the other.
    pub keys: &'a [u8],
    /// Length of a key.
    pub key_len: usize,
    /// Values, one after the other.
    pub values: &'a [u8],
    /// Length of a value.
    pub value_len: usize,
}

impl<'a> Columns<'a> {
    /// The key in this row; empty past the end.
    #[must_use]
    #[inline(always)]
    pub fn key(&self, row: usize) -> &'a [u8] {
        let start = row * self.key_len;
        self.keys.get(start..start + self.key_len).unwrap_or_default()
    }

    /// The value in this row; empty past the end.
    #[must_use]
    #[inline(always)]
    pub fn value(&self, row: usize) -> &'a [u8] {
        let start = row * self.value_len;
        self.values.get(start..start + self.value_len).unwrap_or_default()
    }
}
