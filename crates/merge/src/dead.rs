//! Dead spans: parts of a range in which no key has a value (RFC 0056). A reader finds them while
//! it passes tombstones, and later readers seek past them.

use crate::merge::Direction;
use crate::range::KeyRange;
use bytes::Bytes;
use siltstone_base::entry::key_after;

/// After so many entries without an item, and again after as many more, a reader asks whether it is
/// in a known span. A seek costs about ten moves.
const ENTRIES_BEFORE_LOOK: u64 = 32;
/// A span with fewer entries is not reported: passing them costs about as much as a scan's first
/// seek.
const MIN_ENTRIES: u64 = 64;
/// Spans that a reader keeps for its caller; the longest ones.
const MAX_FOUND: usize = 4;

/// Keys without a value: those of `[start, end)` (`None`: no bound).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeadSpan {
    /// The first key, inclusive.
    pub start: Bytes,
    /// The end, exclusive; `None`: to the end.
    pub end: Option<Bytes>,
    /// About as many entries were passed to learn that.
    pub entries: u64,
}

impl DeadSpan {
    /// Whether `key` is one of the keys.
    #[must_use]
    pub fn contains(&self, key: &[u8]) -> bool {
        self.start <= key && self.end.as_ref().is_none_or(|end| key < *end)
    }

    /// Whether the span has no key.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.end.as_ref().is_some_and(|end| *end <= self.start)
    }
}

/// The entries without an item since the last item of a reader.
#[derive(Default)]
pub(crate) struct DeadRun {
    /// Spans that the reader may seek past.
    pub(crate) known: Vec<DeadSpan>,
    found: Vec<DeadSpan>,
    entries: u64,
    /// The bound of the span on the side from which the reader comes, once the run is long: the
    /// first key (empty: from the beginning) forward, the exclusive end backward.
    near: Option<Option<Bytes>>,
    /// There was an item, so that the first run is over.
    had_item: bool,
}

impl DeadRun {
    /// Whether the key of the next item is needed.
    #[inline]
    pub(crate) fn is_long(&self) -> bool {
        self.entries >= ENTRIES_BEFORE_LOOK
    }

    /// Counts an entry without an item. Returns whether [`DeadRun::begin`] and [`DeadRun::enter`]
    /// are due.
    #[inline]
    pub(crate) fn pass(&mut self) -> bool {
        self.entries += 1;
        self.entries.is_multiple_of(ENTRIES_BEFORE_LOOK)
    }

    /// Notes the near bound of the run, which has come to the entries of `key`. The key itself is
    /// excluded, because an item of it may lie before these entries.
    pub(crate) fn begin(&mut self, key: &[u8], range: &KeyRange, direction: Direction) {
        if self.near.is_some() {
            return;
        }
        let (start, end) = range.bounds();
        let bytes = |bound: &[u8]| Bytes::copy_from_slice(bound);
        self.near = Some(match (direction, self.had_item) {
            (Direction::Forward, false) => start.map(bytes),
            (Direction::Forward, true) => Some(key_after(key).into()),
            (Direction::Backward, false) => end.map(bytes),
            (Direction::Backward, true) => Some(bytes(key)),
        });
    }

    /// The known span that contains `key`. Its entries count as passed.
    pub(crate) fn enter(&mut self, key: &[u8]) -> Option<DeadSpan> {
        let span = self.known.iter().find(|span| span.contains(key))?;
        self.entries = self.entries.saturating_add(span.entries);
        Some(span.clone())
    }

    /// Ends the run before an item whose key was not needed.
    #[inline]
    pub(crate) fn item(&mut self) {
        self.entries = 0;
        self.had_item = true;
    }

    /// Ends the run before the item of `key`.
    #[inline]
    pub(crate) fn end_at(&mut self, key: &[u8], direction: Direction) {
        if self.is_long() {
            let far = match direction {
                Direction::Forward => Bytes::copy_from_slice(key),
                Direction::Backward => key_after(key).into(),
            };
            self.keep(direction, Some(far));
        }
        self.item();
    }

    /// Ends the run at the end of the range.
    pub(crate) fn end(&mut self, range: &KeyRange, direction: Direction) {
        if self.is_long() {
            let (start, end) = range.bounds();
            let far = match direction {
                Direction::Forward => end,
                Direction::Backward => start,
            };
            self.keep(direction, far.map(Bytes::copy_from_slice));
        }
        self.item();
    }

    /// Reports the span between the near bound and `far`, if it is worth it.
    #[cold]
    fn keep(&mut self, direction: Direction, far: Option<Bytes>) {
        let Some(near) = self.near.take() else { return };
        let (start, end) = match direction {
            Direction::Forward => (near, far),
            Direction::Backward => (far, near),
        };
        let span = DeadSpan { start: start.unwrap_or_default(), end, entries: self.entries };
        if self.entries < MIN_ENTRIES || span.is_empty() {
            return;
        }
        self.found.push(span);
        if self.found.len() > MAX_FOUND {
            let shortest = self.found.iter().enumerate().min_by_key(|(_, span)| span.entries);
            let shortest = shortest.map_or(0, |(at, _)| at);
            self.found.swap_remove(shortest);
        }
    }

    /// Takes the spans that were found.
    #[inline]
    pub(crate) fn take(&mut self) -> Vec<DeadSpan> {
        std::mem::take(&mut self.found)
    }
}
