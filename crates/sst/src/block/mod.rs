//! A block: entries in internal order, laid out in columns.
//!
//! ```text
//! block  := head keys seqs tags expiries value_ends values
//! head (40 bytes):
//! offset size field
//!      0    4 entries, 1 or more
//!      4    4 bytes of `keys`
//!      8    4 bytes of all keys written out whole
//!     12    4 bytes of `values`
//!     16    8 base of the sequence numbers
//!     24    8 base of the expiries; 0 where nothing expires
//!     32    2 length of every key; 0 where lengths vary
//!     34    1 tag of every entry; 0 where tags vary
//!     35    1 width of a sequence number, 0 to 7
//!     36    1 width of an expiry, 0 to 8
//!     37    1 width of a value end, 1 to 4; 0 where all values have one length
//!     38    2 zero
//! keys   := (shared suffix_len? suffix)*   both varints; suffix_len only where lengths vary
//! ```
//! FORMAT.md says what each column means. Keys are rebuilt whole when a block is decoded, since an
//! entry lends its key as one slice; values, sequence numbers, tags and expiries stay where they
//! are and are read in place.

mod build;
mod decode;
mod stored;

pub(crate) use build::BlockBuilder;
pub(crate) use decode::decode;
pub(crate) use stored::{BlockWriter, open};

use crate::packed::Column;
use bytes::Bytes;
use siltstone_base::{Entry, Kind, Seq, UnixMillis};
use std::cmp::Ordering;
use std::ops::Range;

/// Bytes of a block's head.
const HEAD_BYTES: usize = 40;
/// Bit of a tag that says that the entry expires; the kind is below it, as in a batch.
const EXPIRY_FLAG: u8 = 0x80;
/// Largest target of a block (`TableOptions::block_bytes` is cut to it).
pub(crate) const MAX_BLOCK_TARGET: usize = 64 << 20;
/// A block closes before its whole keys take more than this many times its target, so that keys
/// that share nearly everything cannot make a small stored block huge in memory.
const WHOLE_KEYS_FACTOR: usize = 4;
/// What a decoder accepts: the largest target times the factor, plus the one entry that a block
/// holds whatever its size.
const MAX_WHOLE_KEY_BYTES: usize =
    MAX_BLOCK_TARGET * WHOLE_KEYS_FACTOR + siltstone_base::limits::MAX_KEY_BYTES;

const _: () = assert!(MAX_WHOLE_KEY_BYTES <= u32::MAX as usize);

/// Where keys end in the memory that holds them whole.
#[derive(Clone, Debug)]
enum KeyEnds {
    /// All keys have this length.
    Fixed(usize),
    /// One end per key.
    Each(Vec<u32>),
}

/// Decoded entries of one block. Everything was checked when it was decoded: no access fails.
#[derive(Clone, Debug)]
pub struct Block {
    bytes: Bytes,
    entries: usize,
    keys: Vec<u8>,
    key_ends: KeyEnds,
    seqs: Column,
    tags: Column,
    expiries: Column,
    value_ends: Column,
    /// Length of every value, where `value_ends` has no width.
    value_len: usize,
    /// Where the values start in `bytes`.
    values: usize,
}

impl Block {
    /// How many entries it holds: one or more.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "a block is never empty")]
    pub fn len(&self) -> usize {
        self.entries
    }

    /// The block's bytes, uncompressed; values are slices of them. A block that is stored
    /// uncompressed keeps alive the buffer that it was decoded from.
    #[must_use]
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// Bytes of memory it takes.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        let ends = match &self.key_ends {
            KeyEnds::Fixed(_) => 0,
            KeyEnds::Each(ends) => ends.capacity() * size_of::<u32>(),
        };
        size_of::<Block>() + self.bytes.len() + self.keys.capacity() + ends
    }

    /// The user key at `position`; empty past the end, which no key is.
    #[inline]
    pub(crate) fn key(&self, position: usize) -> &[u8] {
        let range = match &self.key_ends {
            KeyEnds::Fixed(len) => position * len..(position + 1) * len,
            KeyEnds::Each(ends) => {
                let end = |n: usize| ends.get(n).map_or(0, |end| *end as usize);
                let start = if position == 0 { 0 } else { end(position - 1) };
                start..end(position)
            }
        };
        self.keys.get(range).unwrap_or_default()
    }

    #[inline]
    pub(crate) fn seq(&self, position: usize) -> Seq {
        Seq(self.seqs.get(&self.bytes, position))
    }

    /// Where the value at `position` lies in [`Block::bytes`]; empty past the end.
    #[must_use]
    #[inline]
    pub fn value_range(&self, position: usize) -> Range<usize> {
        if position >= self.entries {
            return 0..0;
        }
        let end = |n: usize| match self.value_ends.width {
            0 => (n + 1) * self.value_len,
            _ => self.value_ends.get(&self.bytes, n) as usize,
        };
        let start = if position == 0 { 0 } else { end(position - 1) };
        self.values + start..self.values + end(position)
    }

    /// The entry at `position`, or `None` past the end.
    #[must_use]
    #[inline]
    pub fn entry(&self, position: usize) -> Option<Entry<'_>> {
        if position >= self.entries {
            return None;
        }
        let tag = self.tags.get(&self.bytes, position) as u8;
        let expires = tag & EXPIRY_FLAG != 0;
        Some(Entry {
            key: self.key(position),
            seq: self.seq(position),
            kind: Kind::from_byte(tag & !EXPIRY_FLAG).ok()?,
            expires_at: expires.then(|| UnixMillis(self.expiries.get(&self.bytes, position))),
            value: self.bytes.get(self.value_range(position)).unwrap_or_default(),
        })
    }

    /// The first position at or after `(key, seq)` in internal order; [`Block::len`] when there is
    /// none. Touches keys, and sequence numbers only of that very key.
    #[must_use]
    #[inline]
    pub fn lower_bound(&self, key: &[u8], seq: Seq) -> usize {
        let (mut low, mut high) = (0, self.entries);
        while low < high {
            let middle = low + (high - low) / 2;
            let before = match self.key(middle).cmp(key) {
                Ordering::Less => true,
                Ordering::Greater => false,
                Ordering::Equal => self.seq(middle) > seq,
            };
            if before {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }
}
