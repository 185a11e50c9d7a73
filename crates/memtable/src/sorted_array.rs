//! A sorted array: an immutable sorted part of the memtable's order, as two parallel arrays.
//!
//! ```text
//! prefixes  : eight bytes of each key, through the window, ascending
//! records   : number of each record, and whether it is an older version of the key before it
//! samples   : the first of every 64 prefixes
//! stretches : for every 256 records, their entries, stored together once they are read often
//! ```
//! A search over numbers begins with an interpolation among the samples, which are few enough to
//! stay in the processor's caches. The 64 prefixes behind a sample are eight cache lines that can
//! be loaded in parallel. The keys' bytes are read only for entries whose prefix equals that of the
//! target.

use crate::log::{Log, Target};
use crate::record::{ArrayRecord, Place};
use crate::stretch::{STRETCH, Stretch};
use crate::window::Window;
use siltstone_base::Seq;
use siltstone_base::near::{Line, partition_near};
use std::cmp::Ordering;
use std::ops::Range;

/// A sorted part. Immutable.
pub(crate) struct SortedArray {
    prefixes: Vec<u64>,
    records: Vec<ArrayRecord>,
    samples: Box<[u64]>,
    stretches: Box<[Stretch]>,
}

/// Prefixes per sample.
const SAMPLE: usize = if cfg!(test) { 4 } else { 64 };
/// Prefixes per cache line.
const LINE: usize = 8;
/// Older versions that are passed over one by one before the next key is searched.
const PASSED: usize = if cfg!(test) { 3 } else { 64 };

#[expect(
    clippy::indexing_slicing,
    reason = "positions are below the common length of the two arrays"
)]
impl SortedArray {
    /// From sorted records.
    pub(crate) fn of_sorted(log: &Log, sorted: impl Iterator<Item = (u64, u32)>) -> Self {
        let (prefixes, records) =
            sorted.map(|(prefix, record)| (prefix, ArrayRecord::new(record))).unzip();
        SortedArray::new(log, prefixes, records)
    }

    /// From sorted records; those that are marked as older versions are.
    fn new(log: &Log, prefixes: Vec<u64>, mut records: Vec<ArrayRecord>) -> Self {
        for at in 1..records.len() {
            if prefixes[at] == prefixes[at - 1]
                && !records[at].is_older()
                && log.key(records[at].number()) == log.key(records[at - 1].number())
            {
                records[at].mark_older();
            }
        }
        let stretches = records.chunks(STRETCH).map(|_| Stretch::default()).collect();
        let samples = prefixes.iter().step_by(SAMPLE).copied().collect();
        SortedArray { prefixes, records, samples, stretches }
    }

    /// From the records `first` to `last`, in any order of keys.
    pub(crate) fn of_records(log: &Log, window: &Window, first: u32, last: u32) -> Self {
        let mut rows: Vec<(u64, u32)> =
            (first..=last).map(|record| (window.prefix(log.key(record)), record)).collect();
        rows.sort_unstable_by(|a, b| a.0.cmp(&b.0).then_with(|| log.compare(a.1, b.1)));
        SortedArray::of_sorted(log, rows.into_iter())
    }

    /// The same records with the prefixes of another window.
    pub(crate) fn through(&self, log: &Log, window: &Window) -> Self {
        let prefix = |record: &ArrayRecord| window.prefix(log.key(record.number()));
        let prefixes = self.records.iter().map(prefix).collect();
        SortedArray::new(log, prefixes, self.records.clone())
    }

    /// Its first and its last record; it is not empty.
    pub(crate) fn ends(&self) -> (u32, u32) {
        (self.records[0].number(), self.records[self.len() - 1].number())
    }

    pub(crate) fn len(&self) -> usize {
        self.records.len()
    }

    /// The record at `position`, and the prefix of its key.
    pub(crate) fn at(&self, position: usize) -> Option<(u64, u32)> {
        Some((*self.prefixes.get(position)?, self.records.get(position)?.number()))
    }

    /// Whether the record after `position` is an older version of the key there.
    #[inline]
    pub(crate) fn has_older(&self, position: usize) -> bool {
        self.records.get(position + 1).is_some_and(|record| record.is_older())
    }

    /// The position of the first record after `position` that has another key.
    #[inline]
    pub(crate) fn next_key(&self, log: &Log, position: usize) -> usize {
        if self.has_older(position) { self.behind_older(log, position) } else { position + 1 }
    }

    fn behind_older(&self, log: &Log, position: usize) -> usize {
        let behind = &self.records[position + 1..];
        let near = behind.iter().take(PASSED).take_while(|record| record.is_older()).count();
        if near < PASSED {
            return position + 1 + near;
        }
        let key = log.key(self.records[position].number());
        self.search(log, &Target { prefix: self.prefixes[position], key, seq: Seq::NONE })
    }

    /// The place of the record at `position` in the bytes of its stretch; `None` if the stretch is
    /// not copied.
    pub(crate) fn read(&self, log: &Log, position: usize) -> Option<Place> {
        let (stretch, within) = (position / STRETCH, position % STRETCH);
        let records = &self.records[stretch * STRETCH..];
        let records = &records[..records.len().min(STRETCH)];
        self.stretches[stretch].read(log, records)?.place(within)
    }

    /// Whether the record at `position` is stored together with its neighbours.
    pub(crate) fn is_laid(&self, position: usize) -> bool {
        self.stretches[position / STRETCH].laid().is_some()
    }

    /// The bytes in which [`SortedArray::read`] found the record at `position`.
    pub(crate) fn laid(&self, position: usize) -> &[u8] {
        self.stretches[position / STRETCH].laid().map_or(&[], |laid| laid.bytes())
    }

    /// Bytes of the copied stretches.
    pub(crate) fn laid_bytes(&self) -> usize {
        self.stretches.iter().filter_map(|stretch| stretch.laid()).map(|laid| laid.memory()).sum()
    }

    /// The position of the first prefix at or above `prefix` among at most [`SAMPLE`], or directly
    /// behind them.
    #[inline]
    fn near(&self, prefix: u64) -> Range<usize> {
        let samples = &self.samples;
        let (Some(first), Some(last)) = (samples.first(), samples.last()) else { return 0..0 };
        let guess = Line::between(*first, *last, samples.len()).position(prefix);
        let above = partition_near(samples.len(), guess, |at| samples[at] < prefix);
        above.saturating_sub(1) * SAMPLE..self.len().min(above * SAMPLE)
    }

    /// Loads the lines that a search for `prefix` may need. The result is an XOR of what was read;
    /// using it keeps the compiler from removing the loads.
    #[inline]
    pub(crate) fn prefetch(&self, prefix: u64) -> u64 {
        let near = self.near(prefix);
        let prefixes = self.prefixes[near.clone()].iter().step_by(LINE);
        let records = self.records[near].iter().step_by(2 * LINE);
        prefixes.fold(0, |sum, prefix| sum ^ prefix)
            ^ records.fold(0, |sum, record| sum ^ u64::from(record.number()))
    }

    /// Position of the first record at or after `target`; the length if there is none.
    pub(crate) fn search(&self, log: &Log, target: &Target<'_>) -> usize {
        let near = self.near(target.prefix);
        let mut position = near.start;
        position += self.prefixes[near].partition_point(|prefix| *prefix < target.prefix);
        if self.prefixes.get(position) != Some(&target.prefix) {
            return position;
        }
        let is_before = |record: &ArrayRecord| {
            log.compare_to(record.number(), target.key, target.seq) == Ordering::Less
        };
        // If many prefixes are equal, they are mostly versions of one key, and the target is its
        // newest version or the entry after its oldest. Each key is a wait for memory, so the ends
        // are compared first.
        if !is_before(&self.records[position]) {
            return position;
        }
        let same = self.prefixes[position..].partition_point(|prefix| *prefix == target.prefix);
        let same = &self.records[position..position + same];
        if is_before(&same[same.len() - 1]) {
            return position + same.len();
        }
        position + same.partition_point(is_before)
    }

    /// Whether every record of this one comes before every record of the other; both are not empty.
    fn is_before(&self, log: &Log, other: &SortedArray) -> bool {
        let (last, first) = (self.len() - 1, 0);
        self.prefixes[last]
            .cmp(&other.prefixes[first])
            .then_with(|| log.compare(self.records[last].number(), other.records[first].number()))
            == Ordering::Less
    }

    fn followed_by(&self, log: &Log, other: &SortedArray) -> SortedArray {
        SortedArray::new(
            log,
            [self.prefixes.as_slice(), &other.prefixes].concat(),
            [self.records.as_slice(), &other.records].concat(),
        )
    }

    /// Merges two sorted arrays that are not empty.
    pub(crate) fn merge(log: &Log, a: &SortedArray, b: &SortedArray) -> SortedArray {
        if a.is_before(log, b) {
            return a.followed_by(log, b);
        }
        if b.is_before(log, a) {
            return b.followed_by(log, a);
        }
        let total = a.len() + b.len();
        let (mut prefixes, mut records) = (vec![0u64; total], vec![ArrayRecord::default(); total]);
        let (mut from_a, mut from_b) = (0, 0);
        // Without branches except for equal prefixes, because the next side is not predictable.
        while from_a < a.len() && from_b < b.len() {
            let (prefix_a, prefix_b) = (a.prefixes[from_a], b.prefixes[from_b]);
            let mut takes_b = prefix_b < prefix_a;
            if prefix_a == prefix_b {
                let (record_a, record_b) = (a.records[from_a].number(), b.records[from_b].number());
                takes_b = log.compare(record_b, record_a) == Ordering::Less;
            }
            let out = from_a + from_b;
            prefixes[out] = if takes_b { prefix_b } else { prefix_a };
            records[out] = if takes_b { b.records[from_b] } else { a.records[from_a] };
            from_b += usize::from(takes_b);
            from_a += usize::from(!takes_b);
        }
        let out = from_a + from_b;
        let (rest, at) = if from_a < a.len() { (a, from_a) } else { (b, from_b) };
        prefixes[out..].copy_from_slice(&rest.prefixes[at..]);
        records[out..].copy_from_slice(&rest.records[at..]);
        SortedArray::new(log, prefixes, records)
    }
}
