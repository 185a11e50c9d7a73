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
    /// The value that its key had before; `None` for a feed without before-images.
    pub before: Option<BeforeColumn>,
}

/// Before-images of changes.
#[derive(Clone, Debug, Default)]
pub struct BeforeColumn {
    /// The values; empty where there was none.
    pub values: Column,
    /// Whether the key had a value.
    pub present: Vec<bool>,
}

impl BeforeColumn {
    /// The value before change number `row`; `None` if the key had none.
    #[must_use]
    pub fn get(&self, row: usize) -> Option<&[u8]> {
        let present = self.present.get(row).copied().unwrap_or_default();
        self.values.get(row).filter(|_| present)
    }

    /// Adds an image.
    ///
    /// # Errors
    /// Unsupported if the column would exceed 2 GiB.
    pub(crate) fn push(&mut self, image: Option<&[u8]>) -> Result<()> {
        let value = image.unwrap_or_default();
        if !self.values.has_room(value.len()) {
            return Err(Error::unsupported(
                "the before-images of one read exceed 2 GiB, which a column of a batch cannot \
                 hold; read fewer rows at once",
            ));
        }
        self.values.push(value);
        self.present.push(image.is_some());
        Ok(())
    }

    fn truncate(&mut self, rows: usize) {
        self.values.truncate(rows);
        self.present.truncate(rows);
    }
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

    /// Bytes of keys, values and before-images.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let before = self.before.as_ref().map_or(0, |before| before.values.bytes.len());
        self.keys.bytes.len() + self.values.bytes.len() + before
    }

    /// Change number `row`, and when it was committed.
    pub(crate) fn entry(&self, row: usize) -> Option<(Entry<'_>, UnixMillis)> {
        let (key, value) = (self.keys.get(row)?, self.values.get(row)?);
        let (kind, seq) = (*self.kinds.get(row)?, *self.seqs.get(row)?);
        let expires_at = *self.expiries.get(row)?;
        Some((Entry { key, seq, kind, expires_at, value }, *self.times.get(row)?))
    }

    pub(crate) fn truncate(&mut self, rows: usize) {
        self.kinds.truncate(rows);
        self.keys.truncate(rows);
        self.values.truncate(rows);
        self.seqs.truncate(rows);
        self.times.truncate(rows);
        self.expiries.truncate(rows);
        if let Some(before) = &mut self.before {
            before.truncate(rows);
        }
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
