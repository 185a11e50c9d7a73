//! Runs of plain entries, merged by ranks alone.
//!
//! ```text
//! source 0:  [12 15 31 | 40]      |: behind it an entry that is not plain, or the end of a block
//! source 1:  [13 14 33 90]        taken: 12 13 14 15 31, then source 0 has to be moved
//! source 2:  [70]
//! ```
//! Most entries of most databases are values that never expire and that every reader sees. For
//! these only the order matters: the tournament is not replayed, no entry is read twice, and no key
//! is kept for a comparison with the next one. As long as ranks ascend strictly, keys differ. Where
//! sources have equal ranks and the newest source comes first ([`Merge::newest_first`]), their keys
//! are compared: the same key is taken from the first of them and passed over in the others. If
//! keys with equal ranks differ, or an entry is not plain, the merge continues entry by entry.

use super::{Direction, Merge, SourcePosition, State};
use crate::stretches::Plain;
use siltstone_base::prefetch::prefetch;
use siltstone_base::prefix::{head, shared_prefix};
use siltstone_base::{Columns, Cursor, Result, Seq};
use std::hint::black_box;

/// Maximum number of sources whose next entries are compared one by one: with more, a tournament is
/// cheaper.
const MOST_SOURCES: usize = 16;
/// Maximum number of entries that are looked ahead in one source.
const MOST_AHEAD: usize = 256;

/// Number of values of each source that are prefetched before the first is taken.
const NEAR: usize = 6;

/// The plain entries ahead in one source.
#[derive(Clone, Copy)]
struct Ahead {
    plain: usize,
    taken: usize,
}

/// For all sources: the entries ahead, and the rank of each one's next entry.
struct Stretch {
    ahead: [Ahead; MOST_SOURCES],
    ranks: [u64; MOST_SOURCES],
    /// Number of first bytes that all keys of the stretch have in common.
    shared: usize,
    /// The source of the last entry.
    last: Option<usize>,
    taken: usize,
}

/// The turn of one source: it provides entries as long as their ranks are the lowest.
struct SourceTurn<'a> {
    ahead: &'a mut Ahead,
    /// The rank of its next entry.
    next: u64,
    /// No entry with this rank or a higher one was taken.
    floor: u64,
    /// The lowest rank of all other sources.
    second: u64,
    shared: usize,
    more: bool,
}

impl SourceTurn<'_> {
    #[inline(always)]
    fn take<'r>(
        &mut self,
        key: impl Fn(usize) -> &'r [u8],
        value: impl Fn(usize) -> &'r [u8],
        take: &mut impl FnMut(&[u8], &[u8]) -> Result<bool>,
    ) -> Result<()> {
        let Ahead { plain, mut taken } = *self.ahead;
        while taken < plain && self.floor <= self.next && self.next < self.second && self.more {
            self.more = take(key(taken), value(taken))?;
            self.floor = self.next + 1;
            taken += 1;
            if taken < plain {
                self.next = rank(key(taken), self.shared);
            }
        }
        self.ahead.taken = taken;
        Ok(())
    }
}

/// The rank of `key` among keys that have their first `shared` bytes in common.
#[inline]
fn rank(key: &[u8], shared: usize) -> u64 {
    head(key.get(shared..).unwrap_or_default())
}

/// The position of the lowest of some numbers, and the lowest of all others.
#[inline]
fn lowest(ranks: &[u64]) -> (usize, u64, u64) {
    let (mut at, mut first, mut second) = (0, u64::MAX, u64::MAX);
    for (number, rank) in ranks.iter().enumerate() {
        second = second.min(first.max(*rank));
        at = if *rank < first { number } else { at };
        first = first.min(*rank);
    }
    (at, first, second)
}

impl<C: Cursor> Merge<C> {
    /// [`Stretches::each_plain`](crate::Stretches::each_plain) of a merge on an entry.
    #[inline]
    pub(super) fn take_plain(
        &mut self,
        seq: Seq,
        end: Option<&[u8]>,
        take: &mut impl FnMut(&[u8], &[u8]) -> Result<bool>,
    ) -> Result<Plain> {
        let stands = self.state == State::Standing && self.direction == Direction::Forward;
        if !stands || self.sources.len() > MOST_SOURCES {
            return Ok(Plain { taken: 0, more: true });
        }
        let Some(mut stretch) = self.look_ahead(seq, end) else {
            return Ok(Plain { taken: 0, more: true });
        };
        let more = self.take_stretch(&mut stretch, take)?;
        self.pass_stretch(&stretch);
        Ok(Plain { taken: stretch.taken, more })
    }

    /// Asks every source; `None` if the first entry is not plain.
    #[expect(clippy::indexing_slicing, reason = "at most MOST_SOURCES sources")]
    fn look_ahead(&self, seq: Seq, end: Option<&[u8]>) -> Option<Stretch> {
        let winner = self.tree.first()?.source;
        let first = self.sources.get(winner)?.user_key()?;
        let mut ahead = [Ahead { plain: 0, taken: 0 }; MOST_SOURCES];
        let mut shared = first.len();
        let mut common = |key: &[u8]| {
            let first = first.get(..shared).unwrap_or_default();
            shared = shared_prefix(first, key);
        };
        for (number, source) in self.sources.iter().enumerate() {
            if self.stands[number] != SourcePosition::On {
                continue;
            }
            let plain = plain_below(source, seq, end);
            ahead[number].plain = plain;
            // All keys of the stretch are between its first one and the last of these.
            match plain.checked_sub(1) {
                Some(last) => common(source.plain_key(last)),
                None => common(source.user_key()?),
            }
        }
        if ahead[winner].plain == 0 {
            return None;
        }
        let mut ranks = [u64::MAX; MOST_SOURCES];
        for (number, source) in self.sources.iter().enumerate() {
            if self.stands[number] == SourcePosition::On {
                ranks[number] = rank(source.user_key()?, shared);
            }
        }
        Some(Stretch { ahead, ranks, shared, last: None, taken: 0 })
    }

    /// Takes all possible entries; returns whether more was wanted.
    #[inline]
    #[expect(clippy::indexing_slicing, reason = "sources are at most MOST_SOURCES")]
    fn take_stretch(
        &self,
        stretch: &mut Stretch,
        take: &mut impl FnMut(&[u8], &[u8]) -> Result<bool>,
    ) -> Result<bool> {
        let count = self.sources.len();
        let mut columns: [Option<Columns<'_>>; MOST_SOURCES] = [None; MOST_SOURCES];
        let mut loaded = 0;
        for (number, source) in self.sources.iter().enumerate() {
            columns[number] = source.plain_columns();
            let first = 0..stretch.ahead[number].plain.min(NEAR);
            loaded = columns[number].iter().fold(loaded, |sum, column| {
                first.clone().fold(sum, |sum, row| sum ^ prefetch(column.value(row)))
            });
        }
        black_box(loaded);
        let (mut floor, shared) = (0, stretch.shared);
        loop {
            let (at, next, second) = lowest(&stretch.ranks[..count]);
            if next == second && floor <= next && self.is_one_key(stretch, at, next) {
                let source = &self.sources[at];
                let row = stretch.ahead[at].taken;
                let more = take(source.plain_key(row), source.plain_value(row))?;
                self.pass_key(stretch, next);
                stretch.last = Some(at);
                stretch.taken += 1;
                floor = next + 1;
                if !more || stretch.ahead[at].taken == stretch.ahead[at].plain {
                    return Ok(more);
                }
                continue;
            }
            let (source, ahead) = (&self.sources[at], &mut stretch.ahead[at]);
            let from = ahead.taken;
            let mut turn = SourceTurn { ahead, next, floor, second, shared, more: true };
            match &columns[at] {
                Some(columns) => {
                    turn.take(|row| columns.key(row), |row| columns.value(row), take)?;
                }
                None => {
                    turn.take(|row| source.plain_key(row), |row| source.plain_value(row), take)?;
                }
            }
            let (next, more) = (turn.next, turn.more);
            floor = turn.floor;
            if ahead.taken > from {
                stretch.last = Some(at);
                stretch.taken += ahead.taken - from;
            }
            if !more || ahead.taken == from || ahead.taken == ahead.plain {
                return Ok(more);
            }
            stretch.ranks[at] = next;
        }
    }

    /// Whether the next entries of all sources with this rank, of which `at` is the first, are
    /// plain and have one key, of which `at` has the newest version. Each of the others must have a
    /// plain entry behind it, on which the source stands afterwards.
    #[expect(clippy::indexing_slicing, reason = "sources are at most MOST_SOURCES")]
    fn is_one_key(&self, stretch: &Stretch, at: usize, rank: u64) -> bool {
        let Ahead { plain, taken } = stretch.ahead[at];
        if !self.newest_first || taken == plain || rank == u64::MAX {
            return false;
        }
        let key = self.sources[at].plain_key(taken);
        let mut others = (at + 1..self.sources.len()).filter(|other| stretch.ranks[*other] == rank);
        others.all(|other| {
            let Ahead { plain, taken } = stretch.ahead[other];
            taken + 1 < plain && self.sources[other].plain_key(taken) == key
        })
    }

    /// Moves past the next entry of every source with this rank.
    #[expect(clippy::indexing_slicing, reason = "sources are at most MOST_SOURCES")]
    fn pass_key(&self, stretch: &mut Stretch, passed: u64) {
        for (number, source) in self.sources.iter().enumerate() {
            if stretch.ranks[number] != passed {
                continue;
            }
            let ahead = &mut stretch.ahead[number];
            ahead.taken += 1;
            if ahead.taken < ahead.plain {
                stretch.ranks[number] = rank(source.plain_key(ahead.taken), stretch.shared);
            }
        }
    }

    /// Moves all sources past the entries taken from them, and the source of the last entry onto
    /// that entry.
    fn pass_stretch(&mut self, stretch: &Stretch) {
        let Some(last) = stretch.last else { return };
        let each = self.sources.iter_mut().zip(&stretch.ahead).enumerate();
        for (number, (source, ahead)) in each {
            let passed = ahead.taken - usize::from(number == last);
            if passed > 0 {
                source.pass(passed);
            }
        }
        // The last entry's rank is below those of all following entries: it wins. The next winner
        // is determined when the merge moves on.
        if let Some(top) = self.tree.first_mut() {
            top.source = last;
        }
        self.played = false;
    }
}

/// The number of plain entries ahead in `source`, below `end`.
fn plain_below<C: Cursor>(source: &C, seq: Seq, end: Option<&[u8]>) -> usize {
    let plain = source.plain(seq, MOST_AHEAD);
    let (Some(end), Some(last)) = (end, plain.checked_sub(1)) else { return plain };
    if source.plain_key(last) < end {
        return plain;
    }
    let (mut low, mut high) = (0, last);
    while low < high {
        let middle = low + (high - low) / 2;
        if source.plain_key(middle) < end { low = middle + 1 } else { high = middle }
    }
    low
}

#[cfg(test)]
mod tests {
    use super::lowest;

    #[test]
    fn the_two_lowest_are_found_anywhere() {
        for ranks in [[1, 2, 3], [1, 3, 2], [2, 1, 3], [3, 1, 2], [2, 3, 1], [3, 2, 1]] {
            let at = ranks.iter().position(|rank| *rank == 1);
            assert_eq!(Some(lowest(&ranks).0), at);
            assert_eq!((lowest(&ranks).1, lowest(&ranks).2), (1, 2));
        }
        assert_eq!(lowest(&[5, 5]), (0, 5, 5));
        assert_eq!(lowest(&[7]), (0, 7, u64::MAX));
        assert_eq!(lowest(&[u64::MAX]), (0, u64::MAX, u64::MAX));
    }
}
