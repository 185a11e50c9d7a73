//! The fields of an entry that are stored beside its bytes.
//!
//! ```text
//! stamp : sequence number << 8 | kind
//! place : buffer number << 32 | offset of the key in the buffer
//! sizes : length of the value << 32 | length of the key << 1 | 1 when an expiry precedes the key
//! older : number of the record of the same key before this one; 0 means none
//! hash  : upper half of the key's hash
//! ```
//! The fields are atomics because readers share the arrays while the writer fills them. They are
//! written once, relaxed, before the record is published. The release store that publishes it and
//! the acquire load that finds it order them for every reader.

use siltstone_base::{BatchOp, Entry, Error, Kind, Result, Seq, UnixMillis};
use std::ops::Range;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU32, AtomicU64};

/// Bytes of an expiry, before the key.
const EXPIRY_BYTES: usize = 8;

/// The position of one entry in its buffer, and the fields for finding it. 32 bytes: two records
/// per cache line.
#[derive(Default)]
pub(crate) struct Record {
    stamp: AtomicU64,
    place: AtomicU64,
    sizes: AtomicU64,
    older: AtomicU32,
    hash: AtomicU32,
}

/// The number of a record in a sorted array, below 2^28 ([`MAX_ENTRIES`](crate::MAX_ENTRIES)), and
/// in the top bit whether the record before it in the array has the same key: a scan that wants the
/// newest version of each key passes it over without reading it.
#[derive(Clone, Copy, Default)]
pub(crate) struct ArrayRecord(u32);

impl ArrayRecord {
    const OLDER: u32 = 1 << 31;

    pub(crate) fn new(number: u32) -> Self {
        ArrayRecord(number)
    }

    pub(crate) fn mark_older(&mut self) {
        self.0 |= ArrayRecord::OLDER;
    }

    #[inline]
    pub(crate) fn number(self) -> u32 {
        self.0 & !ArrayRecord::OLDER
    }

    #[inline]
    pub(crate) fn is_older(self) -> bool {
        self.0 & ArrayRecord::OLDER != 0
    }
}

/// An entry's position in a buffer of encoded operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) buffer: u32,
    pub(crate) seq: Seq,
    pub(crate) kind: Kind,
    pub(crate) has_expiry: bool,
    key_offset: u32,
    key_len: u32,
    value_len: u32,
}

impl Record {
    /// Fills a record that is not visible to readers yet.
    pub(crate) fn fill(&self, place: Place, hash: u32) {
        let Place { buffer, seq, kind, has_expiry, key_offset, key_len, value_len } = place;
        self.stamp.store(seq.0 << 8 | kind as u64, Relaxed);
        self.place.store(u64::from(buffer) << 32 | u64::from(key_offset), Relaxed);
        let key_bits = u64::from(key_len) << 1 | u64::from(has_expiry);
        self.sizes.store(u64::from(value_len) << 32 | key_bits, Relaxed);
        self.hash.store(hash, Relaxed);
    }

    /// Sets the previous record of the same key; called before this one is visible to readers.
    pub(crate) fn set_older(&self, older: u32) {
        self.older.store(older, Relaxed);
    }

    pub(crate) fn older(&self) -> u32 {
        self.older.load(Relaxed)
    }

    pub(crate) fn hash(&self) -> u32 {
        self.hash.load(Relaxed)
    }

    pub(crate) fn seq(&self) -> Seq {
        Seq(self.stamp.load(Relaxed) >> 8)
    }

    pub(crate) fn place(&self) -> Place {
        let stamp = self.stamp.load(Relaxed);
        let place = self.place.load(Relaxed);
        let sizes = self.sizes.load(Relaxed);
        Place {
            buffer: (place >> 32) as u32,
            seq: Seq(stamp >> 8),
            kind: match stamp as u8 {
                1 => Kind::Put,
                2 => Kind::Delete,
                3 => Kind::Merge,
                kind => unreachable!("a record was named with kind {kind}"),
            },
            has_expiry: sizes & 1 == 1,
            key_offset: place as u32,
            // Keys have at most 65,535 bytes, so the length and its flag fit the low 17 bits.
            key_len: sizes as u32 >> 1,
            value_len: (sizes >> 32) as u32,
        }
    }
}

impl Place {
    /// The place of an operation decoded from buffer number `buffer`.
    ///
    /// # Errors
    /// Invalid if the buffer reaches past 4 GiB.
    pub(crate) fn of(op: &BatchOp<'_>, buffer: u32, seq: Seq) -> Result<Place> {
        let narrow = |n: usize| {
            u32::try_from(n).map_err(|_| Error::invalid("a batch for a memtable is under 4 GiB"))
        };
        Ok(Place {
            buffer,
            seq,
            kind: op.kind,
            has_expiry: op.expires_at.is_some(),
            key_offset: narrow(op.key_offset)?,
            key_len: narrow(op.key.len())?,
            value_len: narrow(op.value.len())?,
        })
    }

    pub(crate) fn key_range(&self) -> Range<usize> {
        let start = self.key_offset as usize;
        start..start + self.key_len as usize
    }

    /// The value follows the key.
    pub(crate) fn value_range(&self) -> Range<usize> {
        let start = self.key_range().end;
        start..start + self.value_len as usize
    }

    /// All of the entry: its expiry if it has one, key and value.
    pub(crate) fn range(&self) -> Range<usize> {
        let before = if self.has_expiry { EXPIRY_BYTES } else { 0 };
        self.key_range().start.saturating_sub(before)..self.value_range().end
    }

    /// The place of a copy of [`Place::range`] that begins at `offset`, below 4 GiB, in another
    /// buffer.
    pub(crate) fn moved_to(self, offset: usize) -> Place {
        let key_offset = (offset + self.key_range().start - self.range().start) as u32;
        Place { key_offset, ..self }
    }

    /// The entry, read from the buffer from which it was decoded.
    #[expect(clippy::indexing_slicing, reason = "the ranges were decoded from this very buffer")]
    pub(crate) fn read<'a>(&self, buffer: &'a [u8]) -> Entry<'a> {
        Entry {
            key: &buffer[self.key_range()],
            seq: self.seq,
            kind: self.kind,
            expires_at: self.expiry(buffer),
            value: &buffer[self.value_range()],
        }
    }

    /// The 8 bytes before the key, if they are an expiry.
    fn expiry(&self, buffer: &[u8]) -> Option<UnixMillis> {
        if !self.has_expiry {
            return None;
        }
        let before_key = buffer.get(..self.key_offset as usize)?;
        before_key.last_chunk::<EXPIRY_BYTES>().map(|at| UnixMillis(u64::from_le_bytes(*at)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_32_bytes() {
        assert_eq!(size_of::<Record>(), 32);
    }

    #[test]
    fn packing_keeps_every_field() {
        let place = Place {
            buffer: u32::MAX - 1,
            seq: Seq::MAX,
            kind: Kind::Merge,
            has_expiry: true,
            key_offset: u32::MAX - 2,
            key_len: 65_535,
            value_len: u32::MAX - 3,
        };
        let record = Record::default();
        record.fill(place, 7);
        record.set_older(9);
        assert_eq!(record.place(), place);
        assert_eq!((record.seq(), record.hash(), record.older()), (Seq::MAX, 7, 9));
    }
}
