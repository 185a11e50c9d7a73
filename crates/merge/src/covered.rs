//! A cursor without the entries hidden by range deletes.
//!
//! ```text
//! covers of the sources   [a------d)     [h--k)
//!                              [c----f)
//! regions of a scan       (-a)[a-c)[c-d)[d-f)(f-h)…      one at a time, when the scan reaches it
//! ```
//! The range deletes are not prepared when a scan begins. A region, in which all keys have the same
//! answer, is looked up in each cover when the cursor reaches it. So the cost of a scan depends
//! only on the regions that it passes, not on the number of range deletes elsewhere.

use bytes::Bytes;
use siltstone_base::{Cover, Cursor, Entry, RangeDelete, Result, Seq, Step};
use std::sync::Arc;

/// The range deletes of one source of a read, and which of them the read sees.
#[derive(Clone, Debug)]
pub struct VisibleDeletes {
    /// The range deletes.
    pub cover: Arc<Cover>,
    /// Range deletes at or below this number are ignored: they are in another source too.
    pub above: Seq,
    /// Range deletes above this number are newer than the read.
    pub until: Seq,
}

/// The range deletes of all sources of a read, and the keys of the read.
#[derive(Clone, Debug)]
pub struct VisibleDeleteSet {
    covers: Vec<VisibleDeletes>,
    start: Option<Bytes>,
    end: Option<Bytes>,
}

impl VisibleDeleteSet {
    /// For a read of `[start, end)` (`None`: no bound): no seek goes past a bound.
    #[must_use]
    pub fn new(covers: Vec<VisibleDeletes>, start: Option<Bytes>, end: Option<Bytes>) -> Self {
        VisibleDeleteSet { covers, start, end }
    }

    /// Whether `key` is in the range of the read: range deletes outside of it are ignored.
    fn are_about(&self, key: &[u8]) -> bool {
        self.start.as_ref().is_none_or(|start| start.as_ref() <= key)
            && self.end.as_ref().is_none_or(|end| key < end.as_ref())
    }

    /// The region that contains `key`.
    fn region(&self, key: &[u8]) -> Region {
        let mut region = Region::default();
        for seen in &self.covers {
            let spans = seen.cover.spans();
            let at = spans.partition_point(|span| span.end.as_ref() <= key);
            let before = at.checked_sub(1).and_then(|at| spans.get(at)).map(|span| &span.end);
            match spans.get(at).filter(|span| span.start.as_ref() <= key) {
                None => region.narrow(before, spans.get(at).map(|span| &span.start)),
                Some(span) => {
                    region.narrow(Some(&span.start), Some(&span.end));
                    if span.seq <= seen.until {
                        if span.seq > seen.above {
                            region.hide(span.seq, span);
                        }
                    } else {
                        // The range delete that the read sees may be below a newer one, which is
                        // irrelevant.
                        let seq = seen.cover.at(key, seen.until);
                        if seq > seen.above {
                            region.hide_key(seq);
                        }
                        region.is_of_key = true;
                    }
                }
            }
        }
        region
    }
}

/// Keys with the same newest range delete.
#[derive(Debug, Default)]
struct Region {
    /// Its first key; `None`: no bound.
    from: Option<Bytes>,
    /// The first key after the region; `None`: no bound.
    to: Option<Bytes>,
    /// Older entries are hidden.
    by: Seq,
    /// The span that hides most of the region; `None` if the region was looked up for one key.
    span: Option<(Bytes, Bytes)>,
    /// Whether it was looked up for one key only: other keys of it may differ.
    is_of_key: bool,
}

impl Region {
    fn holds(&self, key: &[u8]) -> bool {
        !self.is_of_key
            && self.to.as_ref().is_none_or(|to| key < to.as_ref())
            && self.from.as_ref().is_none_or(|from| from.as_ref() <= key)
    }

    fn narrow(&mut self, from: Option<&Bytes>, to: Option<&Bytes>) {
        if let Some(from) = from
            && self.from.as_ref().is_none_or(|own| own < from)
        {
            self.from = Some(from.clone());
        }
        if let Some(to) = to
            && self.to.as_ref().is_none_or(|own| to < own)
        {
            self.to = Some(to.clone());
        }
    }

    fn hide(&mut self, by: Seq, span: &RangeDelete) {
        if self.by < by {
            self.by = by;
            self.span = Some((span.start.clone(), span.end.clone()));
        }
    }

    fn hide_key(&mut self, by: Seq) {
        if self.by < by {
            self.by = by;
            self.span = None;
        }
    }
}

/// The entries of a cursor that no range delete hides: an entry is skipped if a newer range delete
/// covers its key. If a range delete is newer than all entries of the cursor, the cursor seeks past
/// its whole span without reading it.
///
/// The covers are those of *all* sources of a read, as the read sees them. They may be applied to
/// each source by itself: they hide an entry in any source, and also all older entries of the key.
/// the key.
pub struct Covered<C> {
    cursor: C,
    covers: Arc<VisibleDeleteSet>,
    /// The newest entry of the cursor that the read sees has at most this number.
    newest: Seq,
    /// The region of the last key.
    region: Option<Region>,
    pending: Pending,
}

/// The move of the inner cursor that waits for a block.
#[derive(Clone, PartialEq, Eq)]
enum Pending {
    /// None, or the one that the caller requested.
    Own,
    /// A step forward, over a hidden entry.
    Onward,
    /// A seek to this key, past a span.
    Past(Bytes),
}

/// The decision about the current entry.
enum Verdict {
    Seen,
    /// Hidden; the next entry is undecided.
    Hidden,
    /// Hidden, as is every entry before this key.
    HiddenTo(Bytes),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum CoveredSide {
    Right,
    Left,
}

impl<C: Cursor> Covered<C> {
    /// Over `cursor`, whose newest visible entry is at or below `newest`.
    #[must_use]
    pub fn new(cursor: C, covers: Arc<VisibleDeleteSet>, newest: Seq) -> Self {
        Covered { cursor, covers, newest, region: None, pending: Pending::Own }
    }

    fn moved(
        &mut self,
        side: CoveredSide,
        own: impl FnOnce(&mut C) -> Result<Step>,
    ) -> Result<Step> {
        let mut step = match self.pending.clone() {
            Pending::Own => own(&mut self.cursor)?,
            Pending::Onward => self.onward(side)?,
            Pending::Past(target) => self.past(side, &target)?,
        };
        if let Step::NeedBlock(_) = step {
            return Ok(step);
        }
        loop {
            self.pending = Pending::Own;
            if step != Step::Ready {
                return Ok(step);
            }
            step = match self.verdict(side) {
                Verdict::Seen => return Ok(step),
                Verdict::Hidden => {
                    self.pending = Pending::Onward;
                    self.onward(side)?
                }
                Verdict::HiddenTo(key) => {
                    self.pending = Pending::Past(key.clone());
                    self.past(side, &key)?
                }
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

    fn past(&mut self, side: CoveredSide, key: &[u8]) -> Result<Step> {
        match side {
            CoveredSide::Right => self.cursor.seek(key, Seq::MAX),
            CoveredSide::Left => self.cursor.seek_before(key, Seq::MAX),
        }
    }

    fn verdict(&mut self, side: CoveredSide) -> Verdict {
        let Some((key, seq)) = self.cursor.key() else { return Verdict::Seen };
        if !self.covers.are_about(key) {
            return Verdict::Seen;
        }
        // A scan moves in small steps: usually the region is the same.
        let region = match &mut self.region {
            Some(region) if region.holds(key) => region,
            region => region.insert(self.covers.region(key)),
        };
        if seq >= region.by {
            return Verdict::Seen;
        }
        match (&region.span, side) {
            (Some((_, end)), CoveredSide::Right) if self.newest < region.by => {
                let last = self.covers.end.as_ref();
                Verdict::HiddenTo(last.map_or(end, |last| end.min(last)).clone())
            }
            (Some((start, _)), CoveredSide::Left) if self.newest < region.by => {
                let first = self.covers.start.as_ref();
                Verdict::HiddenTo(first.map_or(start, |first| start.max(first)).clone())
            }
            _ => Verdict::Hidden,
        }
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
