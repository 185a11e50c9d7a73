//! What a reader sees of a cursor: at most one value per user key.

use crate::group::{Group, Took};
use crate::merge::Direction;
use crate::range::KeyRange;
use crate::view::ReadView;
use siltstone_base::{Cursor, Error, Result, Seq, Step};

/// Where the item lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    Nowhere,
    /// It is the entry that the cursor stands on.
    Cursor,
    /// In the group.
    Group,
}

/// The user keys in a range that have a value, with their values, from one [`ReadView`]. Hides
/// tombstones, what has expired, and what is newer than the view; folds operands.
///
/// Forward, a value that needs no fold is borrowed from the cursor. Backward it is copied: of one
/// key the oldest version comes first, and only the next key tells that the newest was reached.
pub struct Visible<C> {
    cursor: C,
    view: ReadView,
    direction: Direction,
    range: KeyRange,
    placed: bool,
    /// The cursor's entry has been taken in, or there is none yet: move before looking.
    move_first: bool,
    ended: bool,
    at: At,
    group: Group,
    failed: Option<Error>,
}

impl<C: Cursor> Visible<C> {
    /// Over the keys of `[start, end)` (`None`: no bound), standing nowhere. The cursor must be
    /// able to move in `direction`; the first [`Visible::advance`] places it.
    #[must_use]
    pub fn new(
        cursor: C,
        view: ReadView,
        direction: Direction,
        start: Option<Vec<u8>>,
        end: Option<Vec<u8>>,
    ) -> Self {
        let range = KeyRange { start, end };
        Visible {
            cursor,
            view,
            direction,
            placed: false,
            move_first: true,
            ended: range.is_empty(),
            range,
            at: At::Nowhere,
            group: Group::default(),
            failed: None,
        }
    }

    /// To the first visible key, then to the next one in the direction. After `NeedBlock` it is
    /// called again once the block is there; after `End` it answers `End` again.
    ///
    /// # Errors
    /// What the cursor answers; Invalid for operands without an operator; Unsupported for a range
    /// delete; what the operator answers. An error is final: every later call answers it again.
    pub fn advance(&mut self) -> Result<Step> {
        self.each(|_, _| Ok(false))
    }

    /// Hands one key and value after another to `take`, until it answers that it wants no more.
    /// [`Step::Ready`]: it wanted no more, and what it had last is the item at hand. Cheaper a row
    /// than [`Visible::advance`], since a row is looked at once.
    ///
    /// # Errors
    /// As [`Visible::advance`]; what `take` answers, which is final too.
    pub fn each(&mut self, take: impl FnMut(&[u8], &[u8]) -> Result<bool>) -> Result<Step> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        self.at = At::Nowhere;
        self.run(take).inspect_err(|error| self.failed = Some(error.clone()))
    }

    fn run(&mut self, mut take: impl FnMut(&[u8], &[u8]) -> Result<bool>) -> Result<Step> {
        loop {
            if self.move_first && !self.ended {
                match self.move_cursor()? {
                    Step::Ready => self.placed = true,
                    Step::End => self.ended = true,
                    step @ Step::NeedBlock(_) => return Ok(step),
                }
            }
            let entry = if self.ended { None } else { self.range.look(&self.cursor)? };
            self.ended = entry.is_none();
            let took = match self.direction {
                Direction::Forward => self.group.take_forward(&self.view, entry)?,
                Direction::Backward => self.group.take_backward(&self.view, entry)?,
            };
            self.move_first = matches!(took, Took::Entry | Took::EntryIsItem | Took::EntryMadeItem);
            let (at, (key, value)) = match (took, entry) {
                (Took::Entry | Took::NothingYet, _) => continue,
                (Took::End, _) => return Ok(Step::End),
                (Took::EntryIsItem, Some(entry)) => (At::Cursor, (entry.key, entry.value)),
                _ => (At::Group, self.group.item()),
            };
            if !take(key, value)? {
                self.at = at;
                return Ok(Step::Ready);
            }
        }
    }

    fn move_cursor(&mut self) -> Result<Step> {
        match (self.direction, self.placed) {
            (Direction::Forward, true) => self.cursor.next(),
            (Direction::Backward, true) => self.cursor.prev(),
            (Direction::Forward, false) => self.range.seek_start(&mut self.cursor),
            (Direction::Backward, false) => self.range.seek_end(&mut self.cursor),
        }
    }

    /// The key and value at hand, after [`Step::Ready`].
    #[must_use]
    pub fn item(&self) -> Option<(&[u8], &[u8])> {
        match self.at {
            At::Nowhere => None,
            At::Cursor => self.cursor.entry().map(|entry| (entry.key, entry.value)),
            At::Group => Some(self.group.item()),
        }
    }

    /// Sequence number of the newest version that the item is made of. 0 where a compaction has
    /// found that nobody needs it.
    #[must_use]
    pub fn seq(&self) -> Option<Seq> {
        (self.at != At::Nowhere).then(|| self.group.seq())
    }

    /// The cursor below, for a driver that fetches ahead.
    #[must_use]
    pub fn cursor(&self) -> &C {
        &self.cursor
    }
}
