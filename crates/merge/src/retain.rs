//! The entries of a cursor that a flush or compaction keeps.

use crate::keep::{Keep, KeepVerdict, RetainedForm};
use crate::merge::Direction;
use crate::range::KeyRange;
use crate::retention::Retention;
use siltstone_base::{Cursor, Entry, Error, RangeDelete, Result, Step};

/// The answer of a visitor to an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VisitControl {
    /// It is taken; the next one.
    GoOn,
    /// It is taken, and enough.
    Enough,
    /// It stays at hand.
    Leave,
}

/// Which entry is at hand.
#[derive(Clone, Copy, Debug)]
enum RetainAt {
    Nowhere,
    /// The cursor's, shown so.
    Cursor(RetainedForm),
    /// The front of what was kept of the last key.
    Kept,
}

/// The entries of a forward cursor that a [`Retention`] keeps, in order. An entry that needs no
/// change is borrowed from the cursor; only keys with operands to fold, or a tombstone that may go,
/// are collected first.
pub struct Retain<C> {
    cursor: C,
    range: KeyRange,
    keep: Keep,
    placed: bool,
    /// The cursor's entry has been taken in, or there is none yet: move before looking.
    move_first: bool,
    ended: bool,
    at: RetainAt,
    failed: Option<Error>,
}

impl<C: Cursor> Retain<C> {
    /// Over all of `cursor`, standing nowhere.
    #[must_use]
    pub fn new(cursor: C, retention: Retention) -> Self {
        Retain::in_range(cursor, retention, None, None)
    }

    /// Over the keys of `[start, end)` (`None`: no bound): one part of a job that was cut in
    /// several, or the rest of one that is resumed. A cut never falls between versions of a key.
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
    /// block is there; after `End` it answers `End` again.
    ///
    /// # Errors
    /// What the cursor answers; what the operator answers; Internal for a range delete. An error
    /// is final: every later call answers it again.
    pub fn advance(&mut self) -> Result<Step> {
        self.leave();
        self.visit(|_| Ok(VisitControl::Leave))
    }

    /// Shows the entry at hand, if there is one, and those that follow, until `visit` has enough or
    /// leaves one at hand: answers `Ready` then. Shown where it is found,
    /// an entry need not be put together twice.
    ///
    /// # Errors
    /// As [`Retain::advance`], and what `visit` answers.
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

    /// Whether an entry is at hand.
    #[must_use]
    pub fn stands(&self) -> bool {
        !matches!(self.at, RetainAt::Nowhere)
    }

    /// The entry at hand is done with.
    fn leave(&mut self) {
        let next = matches!(self.at, RetainAt::Kept) && self.keep.drop_front();
        self.at = if next { RetainAt::Kept } else { RetainAt::Nowhere };
    }

    /// Shows what is at hand already; `None` when `visit` wants more.
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

    /// The range deletes that must be kept beside the entries, in no order, cut to the range. Known
    /// from the beginning.
    #[must_use]
    pub fn range_deletes(&self) -> Vec<RangeDelete> {
        let (start, end) = self.range.bounds();
        let kept = self.keep.range_deletes();
        kept.into_iter().filter_map(|one| one.within(start, end)).collect()
    }

    /// The entry at hand, after [`Step::Ready`].
    #[must_use]
    pub fn entry(&self) -> Option<Entry<'_>> {
        match self.at {
            RetainAt::Nowhere => None,
            RetainAt::Kept => self.keep.front(),
            RetainAt::Cursor(shown) => self.cursor.entry().map(|entry| shown.of(&entry)),
        }
    }

    /// The cursor below, for a driver that fetches ahead.
    #[must_use]
    pub fn cursor(&self) -> &C {
        &self.cursor
    }
}
