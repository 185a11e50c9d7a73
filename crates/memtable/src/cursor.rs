//! A cursor over a memtable, in both directions.
//!
//! Entries that are neighbours in order are anywhere in memory. A forward cursor therefore runs
//! some records ahead and touches their bytes: a dozen loads that wait for memory together cost
//! hardly more than one. It starts with the number of entries that the caller will read, or with
//! one, and doubles its distance, so a short scan loads little that it does not use.

use crate::heads::{CurrentEntry, Heads, MergeDirection, MergePosition};
use crate::order::Order;
use crate::record::Place;
use crate::table::{MemEntry, Memtable};
use siltstone_base::entry::key_after;
use siltstone_base::prefetch::prefetch;
use siltstone_base::{Cursor, Entry, Error, Result, Seq, Step};
use std::fmt;
use std::hint::black_box;
use std::ops::Range;
use std::sync::Arc;

/// Maximum number of records that a cursor reads ahead.
const REACH: usize = 64;
/// Maximum number that it reads when it is placed.
const FIRST_REACH: usize = 16;
/// Minimum number that it reads when it is moved.
const LEAST_REACH: usize = 4;
/// Records whose loads wait in parallel: the number of cache lines that a processor can load at
/// once.
const TOGETHER: usize = 16;

/// A cursor over a memtable's entries. It never needs a block. It returns every entry that existed
/// when the cursor was made, and possibly some later ones.
#[derive(Clone)]
pub struct MemCursor {
    table: Arc<Memtable>,
    /// Is on the last entry of `ahead`.
    heads: Heads,
    /// The current entry and those after it. Backward, only the current one.
    ahead: Vec<CurrentEntry>,
    /// The index of the current one; past the last if the cursor has no position.
    at: usize,
    /// The number of entries taken last.
    reach: usize,
    /// The number that the next placing takes.
    first: usize,
}

impl Memtable {
    /// A cursor over all entries, without a position. It keeps the table alive and may be used
    /// while the writer inserts.
    #[must_use]
    pub fn cursor(self: &Arc<Self>) -> MemCursor {
        MemCursor::new(Arc::clone(self), self.order())
    }
}

impl fmt::Debug for MemCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemCursor").field("entry", &self.entry()).finish_non_exhaustive()
    }
}

impl MemCursor {
    pub(crate) fn new(table: Arc<Memtable>, order: Arc<Order>) -> Self {
        MemCursor { table, heads: Heads::new(order), ahead: Vec::new(), at: 0, reach: 1, first: 1 }
    }

    /// The same cursor, for a caller that will probably read this many entries from its first
    /// position.
    #[must_use]
    pub fn expecting(mut self, entries: u64) -> Self {
        self.first = usize::try_from(entries).unwrap_or(FIRST_REACH).clamp(1, FIRST_REACH);
        self.ahead = Vec::with_capacity(self.first);
        self
    }

    /// The same cursor, for a reader that rarely needs more than the newest version of a key.
    /// Moving forward, it runs ahead from key to key, and a hot key with ten thousand versions
    /// costs as much as any other. [`Cursor::next`] still comes to every version; the first time
    /// that it is asked for an older one, the cursor continues with all versions.
    #[must_use]
    pub fn by_key(mut self) -> Self {
        self.heads.by_key = true;
        self
    }

    /// Prefetches the memory for placing the cursor at `key`, without waiting.
    pub fn prefetch(&mut self, key: &[u8]) {
        self.heads.prefetch(key);
    }

    /// The same cursor for the last pass over the table: it copies no stretches for later readers.
    #[must_use]
    pub fn passing_once(mut self) -> Self {
        self.heads.lays = false;
        self
    }

    /// The current entry, with a share of its buffer.
    #[must_use]
    pub fn shared(&self) -> Option<MemEntry> {
        let record = self.ahead.get(self.at)?.record;
        Some(self.table.shared(self.table.log().record(record).place()))
    }

    /// Moves to the position of the heads.
    fn placed(&mut self) -> Result<Step> {
        let first = match self.heads.way() {
            MergeDirection::Forward => std::mem::replace(&mut self.first, 1),
            MergeDirection::Backward => 1,
        };
        self.reach = 1;
        Ok(self.gather(true, first))
    }

    /// The internal key of the current entry.
    fn standing(&self) -> Result<(Vec<u8>, Seq)> {
        let entry = self.entry();
        let entry =
            entry.ok_or_else(|| Error::internal("a memtable cursor was moved from nowhere"))?;
        Ok((entry.key.to_vec(), entry.seq))
    }

    /// As [`Cursor::plain`], for entries above `floor`.
    #[must_use]
    pub fn plain_above(&self, floor: Seq, seq: Seq, most: usize) -> usize {
        let ahead = self.ahead.get(self.at..).unwrap_or_default().iter().take(most);
        let is_plain = |CurrentEntry { place, .. }: &&CurrentEntry| {
            place.kind.is_plain(place.has_expiry) && floor < place.seq && place.seq <= seq
        };
        ahead.take_while(is_plain).count()
    }

    /// A part of the entry `ahead` positions after the current one.
    #[inline]
    fn bytes_of(&self, ahead: usize, part: impl Fn(&Place) -> Range<usize>) -> &[u8] {
        let Some(standing) = self.ahead.get(self.at + ahead) else { return &[] };
        let bytes = self.heads.bytes(self.table.log(), standing);
        bytes.get(part(&standing.place)).unwrap_or_default()
    }

    /// Takes the next records, more each time.
    fn run_ahead(&mut self) -> Step {
        self.reach = (self.reach * 2).clamp(LEAST_REACH, REACH);
        self.gather(false, self.reach)
    }

    /// Takes at most `most` records, from the position of the heads or from the next one on. Each
    /// step is done for a dozen of them before the next step, so that its loads wait in parallel.
    /// The addresses are computed first, so that few instructions are between two loads
    /// ([`siltstone_base::prefetch`]).
    fn gather(&mut self, from_here: bool, most: usize) -> Step {
        let log = self.table.log();
        self.ahead.clear();
        self.at = 0;
        let mut stood = [MergePosition::default(); REACH];
        let mut count = 0;
        for place in stood.iter_mut().take(most) {
            if count > 0 || !from_here {
                self.heads.advance(log);
            }
            let Some(here) = self.heads.stood(log) else { break };
            *place = here;
            count += 1;
        }
        for stood in stood.get(..count).unwrap_or_default().chunks(TOGETHER) {
            let mut records = [None; TOGETHER];
            for (record, stood) in records.iter_mut().zip(stood) {
                *record = self.heads.record(log, *stood);
            }
            // The sum is not used; without it the compiler would remove the loads.
            black_box(records.iter().flatten().fold(0, |sum, record| sum ^ record.seq().get()));
            let mut bytes = [&[][..]; TOGETHER];
            for (bytes, stood) in bytes.iter_mut().zip(stood) {
                let standing = self.heads.standing(log, *stood);
                let range = standing.place.range();
                *bytes = self.heads.bytes(log, &standing).get(range).unwrap_or_default();
                self.ahead.push(standing);
            }
            black_box(bytes.iter().fold(0, |sum, bytes| sum ^ prefetch(bytes)));
        }
        if self.ahead.is_empty() { Step::End } else { Step::Ready }
    }
}

impl Cursor for MemCursor {
    fn seek_first(&mut self) -> Result<Step> {
        self.heads.move_to_end(self.table.log(), MergeDirection::Forward);
        self.placed()
    }

    fn seek_last(&mut self) -> Result<Step> {
        self.heads.move_to_end(self.table.log(), MergeDirection::Backward);
        self.placed()
    }

    fn seek(&mut self, key: &[u8], seq: Seq) -> Result<Step> {
        self.heads.move_to(self.table.log(), MergeDirection::Forward, key, seq);
        self.placed()
    }

    fn seek_before(&mut self, key: &[u8], seq: Seq) -> Result<Step> {
        self.heads.move_to(self.table.log(), MergeDirection::Backward, key, seq);
        self.placed()
    }

    fn next(&mut self) -> Result<Step> {
        if self.ahead.get(self.at).is_some_and(|entry| entry.has_older) {
            self.heads.by_key = false;
            let (key, seq) = self.standing()?;
            return self.seek(&key, seq.minus(1));
        }
        if self.at + 1 < self.ahead.len() {
            self.at += 1;
            return Ok(Step::Ready);
        }
        if self.ahead.is_empty() || self.heads.way() == MergeDirection::Backward {
            let (key, seq) = self.standing()?;
            // The next smaller sequence number: no version is between it and the entry.
            return self.seek(&key, seq.minus(1));
        }
        Ok(self.run_ahead())
    }

    /// Skips the entries ahead that have the same key. If all of them have it, searches for the
    /// next key: one search costs less than reading a hundred versions, and a key that is written
    /// all the time has any number of them.
    fn next_key(&mut self) -> Result<Step> {
        let rest = self.ahead.len() - self.at.min(self.ahead.len());
        if self.heads.by_key && rest > 0 && self.heads.way() == MergeDirection::Forward {
            if rest == 1 {
                return Ok(self.run_ahead());
            }
            self.at += 1;
            return Ok(Step::Ready);
        }
        if rest < 2 || self.heads.way() == MergeDirection::Backward {
            return self.next();
        }
        let key = self.bytes_of(0, Place::key_range);
        if let Some(passed) = (1..rest).find(|&at| self.bytes_of(at, Place::key_range) != key) {
            self.at += passed;
            return Ok(Step::Ready);
        }
        let behind = key_after(key);
        self.first = self.reach.min(FIRST_REACH);
        self.seek(&behind, Seq::MAX)
    }

    fn prev(&mut self) -> Result<Step> {
        if self.ahead.is_empty() || self.heads.way() == MergeDirection::Forward {
            let (key, seq) = self.standing()?;
            return self.seek_before(&key, seq);
        }
        self.heads.advance(self.table.log());
        self.placed()
    }

    fn entry(&self) -> Option<Entry<'_>> {
        let standing = self.ahead.get(self.at)?;
        Some(standing.place.read(self.heads.bytes(self.table.log(), standing)))
    }

    fn key(&self) -> Option<(&[u8], Seq)> {
        let standing = self.ahead.get(self.at)?;
        Some((self.bytes_of(0, Place::key_range), standing.place.seq))
    }

    fn plain(&self, seq: Seq, most: usize) -> usize {
        self.plain_above(Seq::NONE, seq, most)
    }

    #[inline]
    fn plain_key(&self, ahead: usize) -> &[u8] {
        self.bytes_of(ahead, Place::key_range)
    }

    #[inline]
    fn plain_value(&self, ahead: usize) -> &[u8] {
        self.bytes_of(ahead, Place::value_range)
    }

    fn pass(&mut self, ahead: usize) {
        self.at += ahead;
    }
}
