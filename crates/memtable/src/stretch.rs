//! Stretches of a sorted array: their entries are stored together once enough of them were read.
//!
//! ```text
//! sorted array    : [ 256 records ][ 256 records ][ 100 ]
//! stretches:   laid: places    3 read        none read
//!                    bytes
//! ```
//! Entries that are neighbours in order are anywhere in memory, so reading one waits for its
//! record, for its buffer and for its bytes. A stretch whose entries were read often, by any kind
//! of read, is therefore copied. Copying a whole stretch, with its loads in parallel, takes as long
//! as reading a quarter of it entry by entry, or half if the target memory is new to the process.
//! By the rule for renting or buying skis, a quarter to a half should be read before the copy. The
//! limit is three quarters: a full scan passes it in any case, and the next scan finds all entries
//! copied, while short scans that rarely overlap copy almost nothing. A merge of sorted arrays
//! drops their copies, and entries that are never read are never copied.

use crate::log::Log;
use crate::record::{ArrayRecord, Place};
use std::hint::black_box;
use std::sync::OnceLock;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;

/// Records of a stretch; the last one of a sorted array has fewer.
pub(crate) const STRETCH: usize = if cfg!(test) { 4 } else { 256 };
/// Entries of a stretch that are read before it is copied.
const READ_BEFORE: u32 = if cfg!(test) { 3 } else { 192 };
/// Bytes from which a stretch is not copied: its entries are so large, a kilobyte on average, that
/// copying them costs more than finding them.
const TOO_LARGE: usize = STRETCH * 1024;

/// A stretch of a sorted array.
#[derive(Default)]
pub(crate) struct Stretch {
    /// Approximate number of entries read while it was not copied: two concurrent readers may count
    /// as one.
    read: AtomicU32,
    /// The inner `None` means that the stretch is too large.
    laid: OnceLock<Option<StretchEntries>>,
}

/// The entries of a stretch, stored together.
pub(crate) struct StretchEntries {
    /// The position of each in `bytes`; their buffer numbers are meaningless.
    places: Box<[Place]>,
    bytes: Box<[u8]>,
}

impl Stretch {
    /// The copy of the stretch, if there is one.
    #[inline]
    pub(crate) fn laid(&self) -> Option<&StretchEntries> {
        self.laid.get()?.as_ref()
    }

    /// As [`Stretch::laid`], for a read of an entry: `records` are all records of the stretch.
    #[inline]
    pub(crate) fn read(&self, log: &Log, records: &[ArrayRecord]) -> Option<&StretchEntries> {
        if let Some(laid) = self.laid.get() {
            return laid.as_ref();
        }
        // This is not an atomic increment, which would wait for every load before it.
        let read = self.read.load(Relaxed) + 1;
        self.read.store(read, Relaxed);
        if read < READ_BEFORE {
            return None;
        }
        // If two readers copy it at the same time, the second copy is dropped. Neither waits.
        let _ = self.laid.set(StretchEntries::of(log, records));
        self.laid()
    }
}

impl StretchEntries {
    /// `None` for records that are too large.
    fn of(log: &Log, records: &[ArrayRecord]) -> Option<StretchEntries> {
        // Each step is done for all records before the next step, so that its loads wait in
        // parallel.
        let mut places: Vec<Place> =
            records.iter().map(|record| log.record(record.number()).place()).collect();
        let total: usize = places.iter().map(|place| place.range().len()).sum();
        if total > TOO_LARGE {
            return None;
        }
        let loaded = places.iter().fold(0, |sum, place| sum ^ log.buffer(place.buffer).len());
        black_box(loaded);
        let ends = places.iter().map(|place| {
            let (range, buffer) = (place.range(), log.buffer(place.buffer));
            let ends = [range.start, range.end.saturating_sub(1)];
            ends.iter().filter_map(|at| buffer.get(*at)).fold(0, |a, b| a ^ b)
        });
        black_box(ends.fold(0, |a, b| a ^ b));
        let mut bytes = Vec::with_capacity(total);
        for place in &mut places {
            let entry = log.buffer(place.buffer).get(place.range()).unwrap_or_default();
            *place = place.moved_to(bytes.len());
            bytes.extend_from_slice(entry);
        }
        Some(StretchEntries { places: places.into(), bytes: bytes.into() })
    }

    /// The position of entry number `position` of the stretch in [`StretchEntries::bytes`].
    #[inline]
    pub(crate) fn place(&self, position: usize) -> Option<Place> {
        self.places.get(position).copied()
    }

    #[inline]
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Bytes of memory.
    pub(crate) fn memory(&self) -> usize {
        self.bytes.len() + size_of_val::<[Place]>(&self.places)
    }
}
