//! Stretches of a sorted array, whose entries are laid together once enough of them were read.
//!
//! ```text
//! sorted array    : [ 256 records ][ 256 records ][ 100 ]
//! stretches:   laid: places    3 read        none read
//!                    bytes
//! ```
//! Neighbours in order lie anywhere in memory: to read one is to wait for its record, for its
//! buffer and for its bytes. A stretch whose entries were read often, by any kind of read, is
//! therefore copied. Copying all of it at once, its loads side by side, takes as long as reading a
//! quarter of it one by one, or half where the memory it goes to is new to the process; so by the
//! rule for renting or buying skis a quarter to a half should have been read before. It is three
//! quarters: a scan of everything passes that all the same, and the next one finds all laid, while
//! short scans here and there, of which hardly two ever meet, copy next to nothing. Sorted arrays
//! that are merged lose what was laid of them, and what is never read is never copied.

use crate::log::Log;
use crate::record::Place;
use std::hint::black_box;
use std::sync::OnceLock;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;

/// Records of a stretch; the last one of a sorted array has fewer.
pub(crate) const STRETCH: usize = if cfg!(test) { 4 } else { 256 };
/// Entries that are read of a stretch before it is laid.
const READ_BEFORE: u32 = if cfg!(test) { 3 } else { 192 };
/// Bytes of a stretch that is not laid: its entries are so large, a kilobyte on average, that
/// copying them costs more than finding them.
const TOO_LARGE: usize = STRETCH * 1024;

/// A stretch of a sorted array.
#[derive(Default)]
pub(crate) struct Stretch {
    /// Entries read while it was not laid, about: two readers at once may count as one.
    read: AtomicU32,
    /// `None` inside for one that is too large.
    laid: OnceLock<Option<StretchEntries>>,
}

/// The entries of a stretch, together.
pub(crate) struct StretchEntries {
    /// Where in `bytes` each is; their buffer numbers mean nothing.
    places: Box<[Place]>,
    bytes: Box<[u8]>,
}

impl Stretch {
    /// The stretch laid together, if it is.
    #[inline]
    pub(crate) fn laid(&self) -> Option<&StretchEntries> {
        self.laid.get()?.as_ref()
    }

    /// As [`Stretch::laid`], for who reads an entry of it: `records` are all of the stretch.
    #[inline]
    pub(crate) fn read(&self, log: &Log, records: &[u32]) -> Option<&StretchEntries> {
        if let Some(laid) = self.laid.get() {
            return laid.as_ref();
        }
        // Not one locked instruction: it would wait for every load before it.
        let read = self.read.load(Relaxed) + 1;
        self.read.store(read, Relaxed);
        if read < READ_BEFORE {
            return None;
        }
        // Of two that lay it at once one is too late. Neither waits for the other.
        let _ = self.laid.set(StretchEntries::of(log, records));
        self.laid()
    }
}

impl StretchEntries {
    /// `None` for records that are too large.
    fn of(log: &Log, records: &[u32]) -> Option<StretchEntries> {
        // Each step for all records before the next: the loads of a step wait side by side.
        let mut places: Vec<Place> =
            records.iter().map(|record| log.record(*record).place()).collect();
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

    /// Where the entry number `position` of the stretch lies in [`StretchEntries::bytes`].
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
