//! A range of user keys, and the bounds check for a cursor.

use crate::merge::Direction;
use siltstone_base::prefix::head;
use siltstone_base::{Cursor, Entry, Error, Result, Seq, Step};

/// The keys in `[start, end)`; `None`: no bound.
#[derive(Clone, Debug)]
pub(crate) struct KeyRange {
    start: Option<Vec<u8>>,
    end: Option<Vec<u8>>,
    /// First bytes of the end; without an end, a value above those of nearly all keys.
    end_head: u64,
}

impl KeyRange {
    pub(crate) fn new(start: Option<Vec<u8>>, end: Option<Vec<u8>>) -> Self {
        let end_head = end.as_deref().map_or(u64::MAX, head);
        KeyRange { start, end, end_head }
    }

    pub(crate) fn bounds(&self) -> (Option<&[u8]>, Option<&[u8]>) {
        (self.start.as_deref(), self.end.as_deref())
    }

    pub(crate) fn is_empty(&self) -> bool {
        matches!((&self.start, &self.end), (Some(start), Some(end)) if start >= end)
    }

    /// To the first entry that may be in the range.
    pub(crate) fn seek_start<C: Cursor>(&self, cursor: &mut C) -> Result<Step> {
        match &self.start {
            Some(start) => cursor.seek(start, Seq::MAX),
            None => cursor.seek_first(),
        }
    }

    /// To the last entry that may be in the range.
    pub(crate) fn seek_end<C: Cursor>(&self, cursor: &mut C) -> Result<Step> {
        match &self.end {
            Some(end) => cursor.seek_before(end, Seq::MAX),
            None => cursor.seek_last(),
        }
    }

    /// The current entry of `cursor`, which was moved by [`KeyRange::seek_start`] or
    /// [`KeyRange::seek_end`]; `None` if it has left the range at the other end.
    #[inline]
    pub(crate) fn look<'c, C: Cursor>(
        &self,
        cursor: &'c C,
        direction: Direction,
    ) -> Result<Option<Entry<'c>>> {
        let entry = cursor.entry();
        let entry = entry.ok_or_else(|| Error::internal("a cursor is ready and has no entry"))?;
        let inside = match direction {
            Direction::Forward => {
                head(entry.key) < self.end_head
                    || self.end.as_deref().is_none_or(|end| entry.key < end)
            }
            Direction::Backward => self.start.as_deref().is_none_or(|start| start <= entry.key),
        };
        Ok(inside.then_some(entry))
    }
}
