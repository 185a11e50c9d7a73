//! A cursor without what range deletes hide.

use siltstone_base::{Cover, Cursor, Entry, RangeDelete, Result, Seq, Step};
use std::sync::Arc;

/// Gives the entries of a cursor that no range delete hides: each is passed over where a newer one
/// covers its key. Where a range delete is newer than all that the cursor has, its whole span is
/// sought past, and nothing in it is read.
///
/// The cover is that of *all* sources of a read, as the read sees them. It may be laid over each
/// source by itself: what it hides is hidden wherever it lies, and so is all that is older of the
/// key.
pub struct Covered<C> {
    cursor: C,
    cover: Arc<Cover>,
    /// No entry of the cursor that the read sees is newer.
    newest: Seq,
    /// The span at or behind the last key: ends above it.
    near: usize,
    pending: Pending,
}

/// Which move of the cursor below waits for a block.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Pending {
    /// None, or the one that the caller named.
    Own,
    /// A step onward, over what is hidden.
    Onward,
    /// A seek past this span.
    Past(usize),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum CoveredSide {
    Right,
    Left,
}

impl<C: Cursor> Covered<C> {
    /// Over `cursor`, whose newest entry that the read sees is at or below `newest`. `cover` holds
    /// the range deletes that the read sees and no others.
    #[must_use]
    pub fn new(cursor: C, cover: Arc<Cover>, newest: Seq) -> Self {
        Covered { cursor, cover, newest, near: 0, pending: Pending::Own }
    }

    fn moved(
        &mut self,
        side: CoveredSide,
        own: impl FnOnce(&mut C) -> Result<Step>,
    ) -> Result<Step> {
        let mut step = match self.pending {
            Pending::Own => own(&mut self.cursor)?,
            Pending::Onward => self.onward(side)?,
            Pending::Past(span) => self.past(side, span)?,
        };
        if let Step::NeedBlock(_) = step {
            return Ok(step);
        }
        loop {
            self.pending = Pending::Own;
            let hidden = if step == Step::Ready { self.hiding() } else { None };
            let Some((span, by)) = hidden else { return Ok(step) };
            step = if self.newest < by {
                self.pending = Pending::Past(span);
                self.past(side, span)?
            } else {
                self.pending = Pending::Onward;
                self.onward(side)?
            };
            if let Step::NeedBlock(_) = step {
                return Ok(step);
            }
        }
    }

    fn onward(&mut self, side: CoveredSide) -> Result<Step> {
        match side {
            CoveredSide::Right => self.cursor.next(),
            CoveredSide::Left => self.cursor.prev(),
        }
    }

    fn past(&mut self, side: CoveredSide, span: usize) -> Result<Step> {
        match (side, self.cover.spans().get(span)) {
            (CoveredSide::Right, Some(span)) => self.cursor.seek(&span.end, Seq::MAX),
            (CoveredSide::Left, Some(span)) => self.cursor.seek_before(&span.start, Seq::MAX),
            (_, None) => Ok(Step::End),
        }
    }

    /// The span that hides the entry at hand, and its number.
    fn hiding(&mut self) -> Option<(usize, Seq)> {
        let (key, seq) = self.cursor.key()?;
        let spans = self.cover.spans();
        let ends_above = |span: &RangeDelete| key < span.end.as_ref();
        let before = self.near.checked_sub(1).and_then(|at| spans.get(at));
        // A scan moves on by little: mostly the span is the same.
        let still = spans.get(self.near).is_none_or(ends_above) && !before.is_some_and(ends_above);
        if !still {
            self.near = spans.partition_point(|span| !ends_above(span));
        }
        let span = spans.get(self.near).filter(|span| span.start.as_ref() <= key)?;
        (seq < span.seq).then_some((self.near, span.seq))
    }
}

impl<C: Cursor> Cursor for Covered<C> {
    fn seek_first(&mut self) -> Result<Step> {
        self.moved(CoveredSide::Right, C::seek_first)
    }

    fn seek_last(&mut self) -> Result<Step> {
        self.moved(CoveredSide::Left, C::seek_last)
    }

    fn seek(&mut self, key: &[u8], seq: Seq) -> Result<Step> {
        self.moved(CoveredSide::Right, |cursor| cursor.seek(key, seq))
    }

    fn seek_before(&mut self, key: &[u8], seq: Seq) -> Result<Step> {
        self.moved(CoveredSide::Left, |cursor| cursor.seek_before(key, seq))
    }

    fn next(&mut self) -> Result<Step> {
        self.moved(CoveredSide::Right, C::next)
    }

    fn next_key(&mut self) -> Result<Step> {
        self.moved(CoveredSide::Right, C::next_key)
    }

    fn prev(&mut self) -> Result<Step> {
        self.moved(CoveredSide::Left, C::prev)
    }

    fn entry(&self) -> Option<Entry<'_>> {
        self.cursor.entry().filter(|_| self.pending == Pending::Own)
    }

    fn key(&self) -> Option<(&[u8], Seq)> {
        self.cursor.key().filter(|_| self.pending == Pending::Own)
    }
}
