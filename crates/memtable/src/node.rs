//! What a node stores.
//!
//! ```text
//! prefix : first 8 bytes of the key, big-endian, short keys filled up with zeros
//! stamp  : sequence number << 8 | kind
//! place  : buffer number << 32 | offset of the key in the buffer
//! sizes  : length of the value << 32 | length of the key << 1 | 1 when an expiry precedes the key
//! links  : the next nodes on levels 0, 1 and 2; 0 means none
//! tower  : number of the first of its links on levels 3 and up
//! ```
//! Three links stand in the node because one node in 64 is taller: nearly every step of a walk then
//! touches one place in memory, not two.
//!
//! The fields are atomics because the arrays are shared while the writer fills them. They are
//! written once, relaxed, before the node is linked; the release store that links it and the
//! acquire load that finds it order them for every reader.

use siltstone_base::{Entry, Error, Kind, Result, Seq, UnixMillis};
use std::ops::Range;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU32, AtomicU64};

/// Links that stand in the node itself.
pub(crate) const INLINE_LINKS: usize = 3;

/// One entry's place in the order and in its buffer. 48 bytes.
#[derive(Default)]
pub(crate) struct Node {
    prefix: AtomicU64,
    stamp: AtomicU64,
    place: AtomicU64,
    sizes: AtomicU64,
    pub(crate) links: [AtomicU32; INLINE_LINKS],
    tower: AtomicU32,
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

/// The first 8 bytes of `key` as a number that orders as they do; shorter keys count as filled up
/// with zero bytes, so equal prefixes say nothing and unequal ones say everything.
pub(crate) fn key_prefix(key: &[u8]) -> u64 {
    if let Some(first) = key.first_chunk::<8>() {
        return u64::from_be_bytes(*first);
    }
    let shift = 64 - 8 * key.len() as u32;
    let packed = key.iter().fold(0u64, |packed, byte| packed << 8 | u64::from(*byte));
    // An empty key would shift by 64; it is below everything, as zero is.
    packed.checked_shl(shift).unwrap_or(0)
}

impl Node {
    /// Fills a node nobody can see yet.
    pub(crate) fn fill(&self, key: &[u8], place: Place, tower: u32) {
        let Place { buffer, seq, kind, has_expiry, key_offset, key_len, value_len } = place;
        self.prefix.store(key_prefix(key), Relaxed);
        self.stamp.store(seq.0 << 8 | kind as u64, Relaxed);
        self.place.store(u64::from(buffer) << 32 | u64::from(key_offset), Relaxed);
        let key_bits = u64::from(key_len) << 1 | u64::from(has_expiry);
        self.sizes.store(u64::from(value_len) << 32 | key_bits, Relaxed);
        self.tower.store(tower, Relaxed);
    }

    pub(crate) fn prefix(&self) -> u64 {
        self.prefix.load(Relaxed)
    }

    pub(crate) fn tower(&self) -> u32 {
        self.tower.load(Relaxed)
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
                kind => unreachable!("a node was linked with kind {kind}"),
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
    /// Invalid when the buffer reaches past 4 GiB.
    pub(crate) fn of(op: &siltstone_base::BatchOp<'_>, buffer: u32, seq: Seq) -> Result<Place> {
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

    /// The entry, read from the buffer it was decoded from.
    #[expect(clippy::indexing_slicing, reason = "the ranges were decoded from this very buffer")]
    pub(crate) fn read<'a>(&self, buffer: &'a [u8]) -> Entry<'a> {
        let key = self.key_range();
        Entry {
            key: &buffer[key.clone()],
            seq: self.seq,
            kind: self.kind,
            expires_at: self.expiry(buffer),
            value: &buffer[self.value_range()],
        }
    }

    /// The 8 bytes before the key, where there are any.
    fn expiry(&self, buffer: &[u8]) -> Option<UnixMillis> {
        if !self.has_expiry {
            return None;
        }
        let before_key = buffer.get(..self.key_offset as usize)?;
        before_key.last_chunk::<8>().map(|at| UnixMillis(u64::from_le_bytes(*at)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_order_as_keys_do() {
        let keys: [&[u8]; 8] = [
            b"",
            b"\0",
            b"a",
            b"a\0b",
            b"ab",
            b"abcdefgh",
            b"abcdefgi",
            b"\xff\xff\xff\xff\xff\xff\xff\xff\xff",
        ];
        for (low, high) in keys.iter().zip(&keys[1..]) {
            assert!(key_prefix(low) <= key_prefix(high), "{low:?} {high:?}");
        }
        assert_eq!(key_prefix(b"a"), u64::from(b'a') << 56);
        assert_eq!(key_prefix(b"abcdefghij"), u64::from_be_bytes(*b"abcdefgh"));
    }

    #[test]
    fn a_node_is_48_bytes() {
        assert_eq!(size_of::<Node>(), 48);
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
        let node = Node::default();
        node.fill(b"key", place, 7);
        assert_eq!(node.place(), place);
        assert_eq!((node.prefix(), node.tower()), (key_prefix(b"key"), 7));
    }
}
