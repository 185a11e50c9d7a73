//! A range of user keys, and a cursor held to it.

use siltstone_base::{Cursor, Entry, Error, Result, Seq, Step};

/// `[start, end)`; `None` is no bound.
#[derive(Clone, Debug, Default)]
pub(crate) struct KeyRange {
    pub(crate) start: Option<Vec<u8>>,
    pub(crate) end: Option<Vec<u8>>,
}

impl KeyRange {
    pub(crate) fn is_empty(&self) -> bool {
        matches!((&self.start, &self.end), (Some(start), Some(end)) if start >= end)
    }

    /// To the first entry that may be inside.
    pub(crate) fn seek_start<C: Cursor>(&self, cursor: &mut C) -> Result<Step> {
        match &self.start {
            Some(start) => cursor.seek(start, Seq::MAX),
            None => cursor.seek_first(),
        }
    }

    /// To the last entry that may be inside.
    pub(crate) fn seek_end<C: Cursor>(&self, cursor: &mut C) -> Result<Step> {
        match &self.end {
            Some(end) => cursor.seek_before(end, Seq::MAX),
            None => cursor.seek_last(),
        }
    }

    /// The entry that `cursor` stands on; `None` when it has left the range.
    pub(crate) fn look<'c, C: Cursor>(&self, cursor: &'c C) -> Result<Option<Entry<'c>>> {
        let entry = cursor.entry();
        let entry = entry.ok_or_else(|| Error::internal("a cursor is ready and has no entry"))?;
        let inside = self.start.as_deref().is_none_or(|start| start <= entry.key)
            && self.end.as_deref().is_none_or(|end| entry.key < end);
        Ok(inside.then_some(entry))
    }
}
