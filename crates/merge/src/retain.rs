//! The entries of a cursor that a flush or compaction keeps.

use crate::keep::{Keep, KeepVerdict, RetainedForm};
use crate::merge::Direction;
use crate::range::KeyRange;
use crate::retention::Retention;
use siltstone_base::{Cursor, Entry, Error, RangeDelete, Result, Step};

/// A visitor's decision about an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VisitControl {
    /// It is taken; continue.
    GoOn,
    /// It is taken; stop.
    Enough,
    /// It stays the current entry; stop.
    Leave,
}

/// The source of the current entry.
#[derive(Clone, Copy, Debug)]
enum RetainAt {
    Nowhere,
    /// The cursor's entry, in this form.
    Cursor(RetainedForm),
    /// The first of the kept versions of the last key.
    Kept,
}

/// The entries of a forward cursor that a [`Retention`] keeps, in order. An entry that needs no
/// change is borrowed from the cursor; only keys with operands to fold, or with a tombstone that
/// may be dropped, are collected first.
pub struct Retain<C> {
    cursor: C,
    range: KeyRange,
    keep: Keep,
    placed: bool,
    /// The cursor's entry was consumed, or there is none yet: move first.
    move_first: bool,
    ended: bool,
    at: RetainAt,
    failed: Option<Error>,
}

impl<C: Cursor> Retain<C> {
    /// Over all of `cursor`, without a position.
    #[must_use]
    pub fn new(cursor: C, retention: Retention) -> Self {
        Retain::in_range(cursor, retention, None, None)
    }

    /// Over the keys of `[start, end)` (`None`: no bound): one part of a job that was split, or the
    /// rest of a resumed one. A split is never between versions of a key.
    #[must_use]
    pub fn in_range(
        cursor: C,
        retention: Retention,
        start: Option<Vec<u8>>,
        end: Option<Vec<u8>>,
    ) -> Self {
        let range = KeyRange::new(start, end);
        Retain {
            cursor,
            keep: Keep::new(retention),
            placed: false,
            move_first: true,
            ended: range.is_empty(),
            range,
            at: RetainAt::Nowhere,
            failed: None,
        }
    }

    /// To the first kept entry, then to the next one. After `NeedBlock` it is called again once the
    /// block is available; after `End` it returns `End` again.
    ///
    /// # Errors
    /// Errors of the cursor and of the operator; Internal for a range delete. An error is final:
    /// every later call returns it again.
    pub fn advance(&mut self) -> Result<Step> {
        self.leave();
        self.visit(|_| Ok(VisitControl::Leave))
    }

    /// Passes the current entry, if there is one, and the following ones to `visit`, until it stops
    /// or leaves one as the current entry; then returns `Ready`. Entries are passed where they are
    /// found, without being built twice.
    ///
    /// # Errors
    /// As [`Retain::advance`], and errors of `visit`.
    pub fn visit(
        &mut self,
        mut visit: impl FnMut(&Entry<'_>) -> Result<VisitControl>,
    ) -> Result<Step> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        let visited = match self.visit_at_hand(&mut visit) {
            Ok(None) => self.run(&mut visit),
            Ok(Some(step)) => Ok(step),
            Err(error) => Err(error),
        };
        visited.inspect_err(|error| self.failed = Some(error.clone()))
    }

    /// Whether there is a current entry.
    #[must_use]
    pub fn stands(&self) -> bool {
        !matches!(self.at, RetainAt::Nowhere)
    }

    /// The current entry is no longer needed.
    fn leave(&mut self) {
        let next = matches!(self.at, RetainAt::Kept) && self.keep.drop_front();
        self.at = if next { RetainAt::Kept } else { RetainAt::Nowhere };
    }

    /// Passes the current entry on; `None` if `visit` wants more.
    fn visit_at_hand<V>(&mut self, visit: &mut V) -> Result<Option<Step>>
    where
        V: FnMut(&Entry<'_>) -> Result<VisitControl>,
    {
        while let Some(entry) = self.entry() {
            match visit(&entry)? {
                VisitControl::Leave => return Ok(Some(Step::Ready)),
                VisitControl::Enough => {
                    self.leave();
                    return Ok(Some(Step::Ready));
                }
                VisitControl::GoOn => self.leave(),
            }
        }
        Ok(None)
    }

    fn run<V>(&mut self, visit: &mut V) -> Result<Step>
    where
        V: FnMut(&Entry<'_>) -> Result<VisitControl>,
    {
        loop {
            if self.move_first && !self.ended {
                let step = match self.placed {
                    true => self.cursor.next()?,
                    false => self.range.seek_start(&mut self.cursor)?,
                };
                match step {
                    Step::Ready => self.placed = true,
                    Step::End => self.ended = true,
                    Step::NeedBlock(_) => return Ok(step),
                }
            }
            let entry = if self.ended {
                None
            } else {
                self.range.look(&self.cursor, Direction::Forward)?
            };
            self.ended = entry.is_none();
            let took = self.keep.take(entry.as_ref())?;
            self.move_first = matches!(took, KeepVerdict::Entry | KeepVerdict::EntryKept(_));
            match (took, &entry) {
                (KeepVerdict::EntryKept(shown), Some(entry)) => match visit(&shown.of(entry))? {
                    VisitControl::GoOn => {}
                    VisitControl::Enough => return Ok(Step::Ready),
                    VisitControl::Leave => {
                        self.at = RetainAt::Cursor(shown);
                        return Ok(Step::Ready);
                    }
                },
                (KeepVerdict::Entry | KeepVerdict::NothingKept | KeepVerdict::EntryKept(_), _) => {}
                (KeepVerdict::End, _) => return Ok(Step::End),
                (KeepVerdict::GroupKept, _) => {
                    self.at = RetainAt::Kept;
                    if let Some(step) = self.visit_at_hand(visit)? {
                        return Ok(step);
                    }
                }
            }
        }
    }

    /// The range deletes that must be kept beside the entries, in no particular order, cut to the
    /// range. Known from the beginning.
    #[must_use]
    pub fn range_deletes(&self) -> Vec<RangeDelete> {
        let (start, end) = self.range.bounds();
        let kept = self.keep.range_deletes();
        kept.into_iter().filter_map(|one| one.within(start, end)).collect()
    }

    /// The current entry, after [`Step::Ready`].
    #[must_use]
    pub fn entry(&self) -> Option<Entry<'_>> {
        match self.at {
            RetainAt::Nowhere => None,
            RetainAt::Kept => self.keep.front(),
            RetainAt::Cursor(shown) => self.cursor.entry().map(|entry| shown.of(&entry)),
        }
    }

    /// The inner cursor, for a driver that fetches ahead.
    #[must_use]
    pub fn cursor(&self) -> &C {
        &self.cursor
    }
}
