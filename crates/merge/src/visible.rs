//! The entries of a cursor that a reader sees: at most one value per user key.

use crate::group::{Group, GroupVerdict};
use crate::merge::Direction;
use crate::range::KeyRange;
use crate::stretches::{Plain, Stretches};
use crate::view::ReadView;
use siltstone_base::{Error, Result, Seq, Step};

/// Entries without an item that are passed over between two looks whether all of them are of one
/// key: then the cursor is asked to seek past the rest of its versions. A seek costs some ten moves
/// (each source searches a block's index, a block, or a memtable).
const MOVES_BEFORE_SEEK: u32 = 8;

/// A stretch of plain entries shorter than this was not worth looking for.
const SHORT_STRETCH: usize = 4;
/// Entries that are taken one by one, at most, before the next stretch is looked for: entries that
/// are not plain rarely stand alone.
const MOST_ONE_BY_ONE: u32 = 64;

/// Where the item lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum VisibleAt {
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
    at: VisibleAt,
    group: Group,
    /// Entries passed over so far.
    passed: u32,
    /// The key at the last look, or the key to seek past it.
    mark: Vec<u8>,
    /// The next move is a seek, or a seek before, to `mark` and this.
    jump: Option<Seq>,
    /// Entries to take one by one before a stretch of plain ones is looked for.
    one_by_one: u32,
    /// What that begins at when the next stretch is short.
    patience: u32,
    /// The entry at hand is hidden, and so is everything behind it of its key.
    hidden: bool,
    failed: Option<Error>,
}

impl<C: Stretches> Visible<C> {
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
        let range = KeyRange::new(start, end);
        Visible {
            cursor,
            view,
            direction,
            placed: false,
            move_first: true,
            ended: range.is_empty(),
            range,
            at: VisibleAt::Nowhere,
            group: Group::default(),
            passed: 0,
            mark: Vec::new(),
            jump: None,
            one_by_one: 0,
            patience: 1,
            hidden: false,
            failed: None,
        }
    }

    /// To the first visible key, then to the next one in the direction. After `NeedBlock` it is
    /// called again once the block is there; after `End` it answers `End` again.
    ///
    /// # Errors
    /// What the cursor answers; Invalid for operands without an operator; Internal for a range
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
        self.at = VisibleAt::Nowhere;
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
            if !self.ended && self.direction == Direction::Forward {
                let plain = self.stretch(&mut take)?;
                if plain.taken > 0 {
                    self.move_first = true;
                    if !plain.more {
                        self.at = VisibleAt::Cursor;
                        return Ok(Step::Ready);
                    }
                    continue;
                }
            }
            let entry =
                if self.ended { None } else { self.range.look(&self.cursor, self.direction)? };
            self.ended = entry.is_none();
            let took = match self.direction {
                Direction::Forward => self.group.take_forward(&self.view, entry)?,
                Direction::Backward => self.group.take_backward(&self.view, entry)?,
            };
            self.move_first = matches!(
                took,
                GroupVerdict::Entry | GroupVerdict::EntryIsItem | GroupVerdict::EntryMadeItem
            );
            if took == GroupVerdict::Entry {
                self.hidden =
                    !self.group.is_open() && entry.is_some_and(|entry| self.group.is_of(entry.key));
                self.pass();
                continue;
            }
            self.hidden = false;
            let (at, (key, value)) = match (took, entry) {
                (GroupVerdict::Entry | GroupVerdict::NothingYet, _) => continue,
                (GroupVerdict::End, _) => return Ok(Step::End),
                (GroupVerdict::EntryIsItem, Some(entry)) => {
                    (VisibleAt::Cursor, (entry.key, entry.value))
                }
                _ => (VisibleAt::Group, self.group.item()),
            };
            if !take(key, value)? {
                self.at = at;
                return Ok(Step::Ready);
            }
        }
    }

    /// Takes the plain entries from the one at hand on, where it is time to look for some.
    #[inline]
    fn stretch(&mut self, take: &mut impl FnMut(&[u8], &[u8]) -> Result<bool>) -> Result<Plain> {
        let none = Plain { taken: 0, more: true };
        if self.one_by_one > 0 {
            self.one_by_one -= 1;
            return Ok(none);
        }
        // Of a key that was settled what follows is hidden.
        let settled = self.cursor.user_key().is_none_or(|key| self.group.is_of(key));
        if self.group.is_open() || settled {
            return Ok(none);
        }
        let (_, end) = self.range.bounds();
        let plain = self.cursor.each_plain(self.view.seq, end, take)?;
        if plain.taken > 0
            && let Some(key) = self.cursor.user_key()
        {
            self.group.settle_as(key);
        }
        if plain.taken < SHORT_STRETCH {
            self.one_by_one = self.patience;
            self.patience = (self.patience * 2).min(MOST_ONE_BY_ONE);
        } else {
            self.patience = 1;
        }
        Ok(plain)
    }

    /// Counts an entry that gave no item. When those of the last moves were all of one key, and the
    /// rest of its versions is hidden too, the next move seeks past them: a key that is written a
    /// million times must not cost a scan a million moves.
    ///
    /// ```text
    /// forward:   k@9 k@8 k@7 | k@6 … k@1 | l@5      view 6: past what is newer, to (k, 6)
    ///            newer           hidden              past what is older, to (k 00, MAX)
    /// backward:  l@5 | k@1 … k@6 | k@7 k@8 | j@2    past what is newer, before (k, MAX)
    /// ```
    /// Backward the visible versions come oldest first and the last one counts, so they are met one
    /// by one: a seek to the newest would be a move forward, which a backward merge has not.
    fn pass(&mut self) {
        self.passed = self.passed.wrapping_add(1);
        if !self.passed.is_multiple_of(MOVES_BEFORE_SEEK) {
            return;
        }
        let Some((key, seq)) = self.cursor.key() else { return };
        if key != self.mark {
            self.mark.clear();
            self.mark.extend_from_slice(key);
            return;
        }
        let newer = seq > self.view.seq;
        match self.direction {
            Direction::Forward if newer => self.jump = Some(self.view.seq),
            Direction::Forward if !self.group.is_open() => {
                self.mark.push(0);
                self.jump = Some(Seq::MAX);
            }
            Direction::Backward if newer => self.jump = Some(Seq::MAX),
            Direction::Forward | Direction::Backward => {}
        }
    }

    fn move_cursor(&mut self) -> Result<Step> {
        if let Some(seq) = self.jump {
            let step = match self.direction {
                Direction::Forward => self.cursor.seek(&self.mark, seq)?,
                Direction::Backward => self.cursor.seek_before(&self.mark, seq)?,
            };
            if !matches!(step, Step::NeedBlock(_)) {
                self.jump = None;
            }
            return Ok(step);
        }
        match (self.direction, self.placed) {
            (Direction::Forward, true) if self.hidden => self.cursor.next_key(),
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
            VisibleAt::Nowhere => None,
            VisibleAt::Cursor => self.cursor.entry().map(|entry| (entry.key, entry.value)),
            VisibleAt::Group => Some(self.group.item()),
        }
    }

    /// Sequence number of the newest version that the item is made of. 0 where a compaction has
    /// cleared it.
    #[must_use]
    pub fn seq(&self) -> Option<Seq> {
        match self.at {
            VisibleAt::Nowhere => None,
            VisibleAt::Cursor => self.cursor.key().map(|(_, seq)| seq),
            VisibleAt::Group => Some(self.group.seq()),
        }
    }

    /// The cursor below, for a driver that fetches ahead.
    #[must_use]
    pub fn cursor(&self) -> &C {
        &self.cursor
    }
}
