//! The entries of a cursor that a reader sees: at most one value per user key.

use crate::dead::{DeadRun, DeadSpan};
use crate::group::{Group, GroupVerdict};
use crate::merge::Direction;
use crate::range::KeyRange;
use crate::stretches::{Plain, Stretches};
use crate::view::ReadView;
use siltstone_base::{Error, Result, Seq, Step};

/// Number of entries without an item after which the reader checks whether they all have one key.
/// If so, the cursor seeks past the rest of its versions. A seek costs about ten moves (each source
/// searches a block's index, a block, or a memtable).
const MOVES_BEFORE_SEEK: u32 = 8;

/// A stretch of plain entries that is shorter than this is not worth an attempt.
const SHORT_STRETCH: usize = 4;
/// Entries that are taken one by one, at most, before the next stretch is looked for: entries that
/// are not plain usually come in groups.
const MOST_ONE_BY_ONE: u32 = 64;

/// Entries without an item that a call passes at most before it pauses, in units of
/// [`DeadRun::pass`]: 4,096 entries take less than a millisecond in memory.
const LOOKS_BEFORE_PAUSE: u32 = 128;

/// The place of the item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum VisibleAt {
    Nowhere,
    /// The entry at the cursor.
    Cursor,
    /// In the group.
    Group,
}

/// The user keys in a range that have a value, with their values, from one [`ReadView`]. Hides
/// tombstones, expired entries, and entries newer than the view; folds operands.
///
/// Forward, a value that needs no fold is borrowed from the cursor. Backward it is copied: the
/// oldest version of a key comes first, and only the next key shows that the newest was reached.
pub struct Visible<C> {
    cursor: C,
    view: ReadView,
    direction: Direction,
    range: KeyRange,
    placed: bool,
    /// The cursor's entry was consumed, or there is none yet: move first.
    move_first: bool,
    ended: bool,
    at: VisibleAt,
    group: Group,
    /// Number of entries skipped so far.
    passed: u32,
    /// The key at the last check, or the key to seek past.
    mark: Vec<u8>,
    /// The next move is a seek, or a seek before, to `mark` and this number.
    jump: Option<Seq>,
    /// Entries to take one by one before the next attempt at a stretch of plain ones.
    one_by_one: u32,
    /// The initial value of that number if the next stretch is short.
    patience: u32,
    /// All versions of the current entry's key that follow it are hidden.
    hidden: bool,
    /// The entries without an item since the last item.
    dead: DeadRun,
    /// Looks of the current call that may follow before it pauses; `None`: it never pauses.
    looks_left: Option<u32>,
    failed: Option<Error>,
}

impl<C: Stretches> Visible<C> {
    /// Over the keys of `[start, end)` (`None`: no bound), without a position. The cursor must be
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
            dead: DeadRun::default(),
            looks_left: None,
            failed: None,
        }
    }

    /// The same, whose [`Visible::each`] pauses after some thousand entries without an item, so
    /// that its caller can let others run ([`Visible::is_paused`]).
    #[must_use]
    pub fn pausing(mut self) -> Self {
        self.looks_left = Some(LOOKS_BEFORE_PAUSE);
        self
    }

    /// Whether the last call ended without an item because it had passed many entries: the next
    /// call continues there.
    #[must_use]
    pub fn is_paused(&self) -> bool {
        self.looks_left == Some(0)
    }

    /// The same, which seeks past `known` spans: no key in them has a value in this view. A span is
    /// used once a run of entries without an item enters it, so spans at the edge where the reader
    /// begins are left to the caller.
    #[must_use]
    pub fn skipping(mut self, known: Vec<DeadSpan>) -> Self {
        self.dead.known = known;
        self
    }

    /// Takes the long spans without a value that were passed since the last call.
    pub fn take_dead_spans(&mut self) -> Vec<DeadSpan> {
        self.dead.take()
    }

    /// To the first visible key, then to the next one in the direction. After `NeedBlock` it is
    /// called again once the block is available; after `End` it returns `End` again.
    ///
    /// # Errors
    /// Errors of the cursor; Invalid for operands without an operator; Internal for a range delete;
    /// errors of the operator. An error is final: every later call returns it again.
    pub fn advance(&mut self) -> Result<Step> {
        self.each(|_, _| Ok(false))
    }

    /// Passes one key and value after another to `take`, until it returns that it wants no more.
    /// [`Step::Ready`]: it wanted no more, and the last item passed is the current item; or the
    /// call has paused, without an item. Cheaper per row than [`Visible::advance`], because each
    /// row is examined once.
    ///
    /// # Errors
    /// As [`Visible::advance`]; errors of `take`, which are final too.
    pub fn each(&mut self, take: impl FnMut(&[u8], &[u8]) -> Result<bool>) -> Result<Step> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        self.at = VisibleAt::Nowhere;
        self.looks_left = self.looks_left.map(|_| LOOKS_BEFORE_PAUSE);
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
                    self.dead.item();
                    self.move_first = true;
                    self.hidden = true;
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
                if self.is_paused() {
                    return Ok(Step::Ready);
                }
                continue;
            }
            // The item's key is complete if its last version was consumed.
            self.hidden = self.move_first;
            let (at, (key, value)) = match (took, entry) {
                (GroupVerdict::Entry | GroupVerdict::NothingYet, _) => continue,
                (GroupVerdict::End, _) => {
                    self.dead.end(&self.range, self.direction);
                    return Ok(Step::End);
                }
                (GroupVerdict::EntryIsItem, Some(entry)) => {
                    (VisibleAt::Cursor, (entry.key, entry.value))
                }
                _ => (VisibleAt::Group, self.group.item()),
            };
            self.dead.end_at(key, self.direction);
            if !take(key, value)? {
                self.at = at;
                return Ok(Step::Ready);
            }
        }
    }

    /// Takes plain entries from the current one on, when it is time for an attempt.
    #[inline]
    fn stretch(&mut self, take: &mut impl FnMut(&[u8], &[u8]) -> Result<bool>) -> Result<Plain> {
        let none = Plain { taken: 0, more: true };
        // The item behind a long run of entries without one ends a span, so its key is needed.
        if self.one_by_one > 0 || self.dead.is_long() {
            self.one_by_one = self.one_by_one.saturating_sub(1);
            return Ok(none);
        }
        // After a key is complete, its later entries are hidden.
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

    /// Counts an entry without an item. If the entries of the last moves all had one key, and the
    /// rest of its versions is hidden too, the next move seeks past them: a key that is written a
    /// million times must not cost a scan a million moves.
    ///
    /// ```text
    /// forward:   k@9 k@8 k@7 | k@6 … k@1 | l@5      view 6: past newer versions, to (k, 6)
    ///            newer           hidden              past older versions, to (k 00, MAX)
    /// backward:  l@5 | k@1 … k@6 | k@7 k@8 | j@2    past newer versions, before (k, MAX)
    /// ```
    /// Backward the visible versions come oldest first and the last one counts, so they are read
    /// one by one: a seek to the newest would be a move forward, which a backward merge cannot
    /// make.
    fn pass(&mut self) {
        if self.dead.pass() {
            self.looks_left = self.looks_left.map(|looks| looks.saturating_sub(1));
            if self.pass_long() {
                return;
            }
        }
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

    /// In a long run of entries without an item: notes where the run begins, and, in a known span,
    /// makes the next move a seek past it. Returns whether it does.
    #[cold]
    fn pass_long(&mut self) -> bool {
        let Some((key, _)) = self.cursor.key() else { return false };
        self.dead.begin(key, &self.range, self.direction);
        // An open group holds visible operands of the key, which then is in no known span.
        if self.direction == Direction::Forward && self.group.is_open() {
            return false;
        }
        let Some(span) = self.dead.enter(key) else { return false };
        // Backward some versions of the key were added, oldest first, and the others are skipped.
        self.group.forget();
        match (self.direction, &span.end) {
            (Direction::Forward, Some(end)) => end.as_ref().clone_into(&mut self.mark),
            (Direction::Backward, _) if !span.start.is_empty() => {
                span.start.as_ref().clone_into(&mut self.mark);
            }
            _ => {
                self.ended = true;
                return true;
            }
        }
        self.jump = Some(Seq::MAX);
        true
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

    /// The current key and value, after [`Step::Ready`].
    #[must_use]
    pub fn item(&self) -> Option<(&[u8], &[u8])> {
        match self.at {
            VisibleAt::Nowhere => None,
            VisibleAt::Cursor => self.cursor.entry().map(|entry| (entry.key, entry.value)),
            VisibleAt::Group => Some(self.group.item()),
        }
    }

    /// Sequence number of the newest version of the item. 0 if a compaction has cleared it.
    #[must_use]
    pub fn seq(&self) -> Option<Seq> {
        match self.at {
            VisibleAt::Nowhere => None,
            VisibleAt::Cursor => self.cursor.key().map(|(_, seq)| seq),
            VisibleAt::Group => Some(self.group.seq()),
        }
    }

    /// The inner cursor, for a driver that fetches ahead.
    #[must_use]
    pub fn cursor(&self) -> &C {
        &self.cursor
    }
}
