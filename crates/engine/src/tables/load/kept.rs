//! Sorted runs that need no file, because they are in memory when the last row has come.

use super::heap::SortedPart;
use super::numbered;
use siltstone_base::{Cursor, Entry, Error, Kind, Result, Seq, Step};
use std::sync::Arc;

/// A nonempty range of keys of a heap, in order.
pub(super) struct KeptRun(Arc<SortedPart>);

impl KeptRun {
    pub(super) fn of(part: SortedPart) -> KeptRun {
        KeptRun(Arc::new(part))
    }

    /// The first and the last key.
    pub(super) fn ends(&self) -> (&[u8], &[u8]) {
        let key = |at| self.0.row(at).map_or(&[][..], |(key, ..)| key);
        (key(0), key(self.0.rows().saturating_sub(1)))
    }

    pub(super) fn cursor(&self) -> KeptCursor {
        KeptCursor { part: Arc::clone(&self.0), at: 0, touched: 0 }
    }
}

/// A forward cursor over a run in memory. It also visits equal keys, the row that came last first.
pub(super) struct KeptCursor {
    part: Arc<SortedPart>,
    at: usize,
    /// Rows before this index were touched.
    touched: usize,
}

impl KeptCursor {
    #[inline]
    fn stand(&mut self, at: usize) -> Step {
        self.at = at;
        if at >= self.part.rows() {
            return Step::End;
        }
        if at >= self.touched {
            self.touched = self.part.touch(at);
        }
        Step::Ready
    }
}

pub(super) fn forward_only<T>() -> Result<T> {
    Err(Error::internal("a merge of runs moves forward"))
}

impl Cursor for KeptCursor {
    fn seek_first(&mut self) -> Result<Step> {
        Ok(self.stand(0))
    }

    /// Moves to the first row of `key`, ignoring the sequence number, or of a later key.
    fn seek(&mut self, key: &[u8], _: Seq) -> Result<Step> {
        let at = self.part.lower_bound(key);
        self.touched = 0;
        Ok(self.stand(at))
    }

    #[inline]
    fn next(&mut self) -> Result<Step> {
        Ok(self.stand(self.at + 1))
    }

    #[inline]
    fn entry(&self) -> Option<Entry<'_>> {
        let (key, value, number) = self.part.row(self.at)?;
        Some(Entry { key, seq: numbered(number), kind: Kind::Put, expires_at: None, value })
    }

    #[inline]
    fn user_key(&self) -> Option<&[u8]> {
        self.part.row(self.at).map(|(key, ..)| key)
    }

    fn seek_last(&mut self) -> Result<Step> {
        forward_only()
    }

    fn seek_before(&mut self, _: &[u8], _: Seq) -> Result<Step> {
        forward_only()
    }

    fn prev(&mut self) -> Result<Step> {
        forward_only()
    }
}
