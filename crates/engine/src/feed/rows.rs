//! Rows of a feed, column by column, in the layout of Arrow.

use crate::read::Column;
use siltstone_base::{Entry, Error, Kind, Result, Seq, UnixMillis};

/// Changes in the order of their commits.
#[derive(Clone, Debug, Default)]
pub struct ChangeRows {
    /// The kind of each change.
    pub kinds: Vec<Kind>,
    /// Its key; the first key of a range delete.
    pub keys: Column,
    /// Its value or operand; the key behind the last one of a range delete; empty for a delete.
    pub values: Column,
    /// Its sequence number.
    pub seqs: Vec<Seq>,
    /// When it was committed, by the writer's clock; never falls.
    pub times: Vec<UnixMillis>,
    /// When it expires.
    pub expiries: Vec<Option<UnixMillis>>,
}

impl ChangeRows {
    /// The number of rows.
    #[must_use]
    pub fn len(&self) -> usize {
        self.kinds.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.kinds.is_empty()
    }

    /// Bytes of keys and values.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.keys.bytes.len() + self.values.bytes.len()
    }

    pub(crate) fn truncate(&mut self, rows: usize) {
        self.kinds.truncate(rows);
        self.keys.truncate(rows);
        self.values.truncate(rows);
        self.seqs.truncate(rows);
        self.times.truncate(rows);
        self.expiries.truncate(rows);
    }

    /// Adds a change.
    ///
    /// # Errors
    /// Unsupported where a column would hold more than 2 GiB, which its offsets of 32 bits cannot
    /// tell. It tells of rows that are whole so far; the caller passes those on first.
    #[inline]
    pub(crate) fn push(&mut self, entry: &Entry<'_>, at: UnixMillis) -> Result<()> {
        if !self.keys.has_room(entry.key.len()) || !self.values.has_room(entry.value.len()) {
            return Err(Error::unsupported(
                "one commit holds more than 2 GiB of keys or values, and a batch of the feed takes \
                 whole commits of at most that; read the rows by a scan, and write less in one \
                 batch",
            )
            .with("sequence number", entry.seq));
        }
        self.kinds.push(entry.kind);
        self.keys.push(entry.key);
        self.values.push(entry.value);
        self.seqs.push(entry.seq);
        self.times.push(at);
        self.expiries.push(entry.expires_at);
        Ok(())
    }
}
