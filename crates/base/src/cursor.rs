//! The iteration trait of the engine.
//!
//! A cursor is synchronous. If the next entry is in a block that is not in memory, the move returns
//! [`Step::NeedBlock`] and leaves the cursor *pending*: the driver fetches the block, adds it to
//! the cursor's block source, and calls **the same move again with the same arguments** until it
//! returns another step. No code below the driver may be async.

use crate::entry::Entry;
use crate::error::Result;
use crate::id::{Seq, SstId};

/// The address of a block: its table and its position.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BlockAddr {
    /// The table.
    pub sst: SstId,
    /// Position of the block in the table, from 0.
    pub block: u32,
}

/// The result of a cursor's move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The cursor is on an entry.
    Ready,
    /// There is no such entry; the cursor has no position.
    End,
    /// The block is needed first; repeat the same move once it is available.
    NeedBlock(BlockAddr),
}

/// Movement over entries in internal order: key ascending, then sequence number descending.
///
/// The caller repeats the same move after `NeedBlock`, and calls `next` and `prev` only on a cursor
/// that is on an entry. The implementer guarantees that moves terminate, that entries come strictly
/// in order, and that an error leaves the cursor without a position.
pub trait Cursor {
    /// To the first entry.
    ///
    /// # Errors
    /// Corruption of the bytes read; the same for every move.
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
    /// To the next entry.
    ///
    /// # Errors
    /// See [`Cursor::seek_first`].
    fn next(&mut self) -> Result<Step>;
    /// To the next key: as [`Cursor::next`], but it may skip some or all entries of the current
    /// key.
    ///
    /// # Errors
    /// See [`Cursor::seek_first`].
    fn next_key(&mut self) -> Result<Step> {
        self.next()
    }
    /// To the previous entry.
    ///
    /// # Errors
    /// See [`Cursor::seek_first`].
    fn prev(&mut self) -> Result<Step>;
    /// The current entry; `None` if the cursor has no position or is pending.
    fn entry(&self) -> Option<Entry<'_>>;
    /// Key and sequence number of [`Cursor::entry`], for callers that need no value.
    fn key(&self) -> Option<(&[u8], Seq)> {
        self.entry().map(|entry| (entry.key, entry.seq))
    }

    /// The key of [`Cursor::entry`] alone: sequence numbers may be elsewhere in memory.
    fn user_key(&self) -> Option<&[u8]> {
        self.key().map(|(key, _)| key)
    }

    /// The number of entries, from the current one on, that are *plain* for a reader at `seq` and
    /// available without a move: values that never expire, at or below `seq`. At most `most`;
    /// fewer, down to 0, if the exact number would cost more than it saves.
    fn plain(&self, seq: Seq, most: usize) -> usize {
        let _ = (seq, most);
        0
    }

    /// The key of the entry `ahead` positions after the current one; `ahead` is less than the
    /// result of [`Cursor::plain`]. Empty beyond that.
    fn plain_key(&self, ahead: usize) -> &[u8] {
        let _ = ahead;
        &[]
    }

    /// The value that belongs to [`Cursor::plain_key`].
    fn plain_value(&self, ahead: usize) -> &[u8] {
        let _ = ahead;
        &[]
    }

    /// The keys and values of [`Cursor::plain_key`] and [`Cursor::plain_value`], if they are stored
    /// in columns.
    fn plain_columns(&self) -> Option<Columns<'_>> {
        None
    }

    /// Moves to the entry `ahead` positions after the current one; `ahead` is less than the result
    /// of [`Cursor::plain`].
    fn pass(&mut self, ahead: usize) {
        let _ = ahead;
    }
}

/// Keys of one length and values of one length, each stored contiguously.
#[derive(Clone, Copy, Debug, Default)]
pub struct Columns<'a> {
    /// Keys, contiguous.
    pub keys: &'a [u8],
    /// Length of a key.
    pub key_len: usize,
    /// Values, contiguous.
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
