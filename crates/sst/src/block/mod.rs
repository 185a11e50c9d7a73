//! A block: entries in internal order, laid out in columns.
//!
//! ```text
//! block  := head keys key_ends seqs tags expiries value_ends values
//! head (40 bytes):
//! offset size field
//!      0    4 entries, 1 or more
//!      4    4 bytes of `keys`
//!      8    4 bytes of all keys if stored whole
//!     12    4 bytes of `values`
//!     16    8 base of the sequence numbers
//!     24    8 base of the expiries; 0 where nothing expires
//!     32    2 length of every key; 0 where lengths vary
//!     34    1 tag of every entry; 0 where tags vary
//!     35    1 width of a sequence number, 0 to 7
//!     36    1 width of an expiry, 0 to 8
//!     37    1 width of a value end, 1 to 4; 0 where all values have one length
//!     38    1 layout of the keys: 0 shared, 1 whole
//!     39    1 width of a key end, 1 to 4, where keys are whole and lengths vary; else 0
//! shared := (shared suffix_len? suffix)*   both varints; suffix_len only where lengths vary
//! whole  := key*
//! ```
//! FORMAT.md describes each column. Shared keys are rebuilt when a block is decoded, because an
//! entry returns its key as one slice; all other columns are read in place.

mod build;
mod decode;
mod guess;
mod keys;
mod stored;

pub(crate) use build::BlockBuilder;
pub(crate) use decode::{decode, decode_again};
pub(crate) use stored::{BlockWriter, is_plain, open, open_again};

use crate::packed::Column;
use bytes::Bytes;
use keys::Keys;
use siltstone_base::near::partition_near;
use siltstone_base::prefetch::prefetch;
use siltstone_base::{Columns, Entry, Kind, Seq, UnixMillis, prefix};
use std::cmp::Ordering;
use std::ops::Range;

/// Bytes of a block's head.
const HEAD_BYTES: usize = 40;
/// Bit of a tag for an entry that expires; the lower bits are the kind, as in a batch.
const EXPIRY_FLAG: u8 = 0x80;
/// Largest target of a block (`TableOptions::block_bytes` is limited to it).
pub(crate) const MAX_BLOCK_TARGET: usize = 64 << 20;
/// A block closes before its whole keys take more than this many times its target, so that keys
/// with very long shared prefixes cannot make a small stored block huge in memory.
const WHOLE_KEYS_FACTOR: usize = 4;
/// The maximum that a decoder accepts: the largest target times the factor, plus one entry, which a
/// block contains even if it is larger.
const MAX_WHOLE_KEY_BYTES: usize =
    MAX_BLOCK_TARGET * WHOLE_KEYS_FACTOR + siltstone_base::limits::MAX_KEY_BYTES;

const _: () = assert!(MAX_WHOLE_KEY_BYTES <= u32::MAX as usize);

/// Number of keys on each side of a guess that are prefetched: among one or two hundred keys a
/// guess is off by about five.
const PREFETCH_KEYS: usize = 5;
/// Above every sequence number at which a reader can read.
const NEVER: Seq = Seq(u64::MAX);

/// Decoded entries of one block. All checks were made while decoding: no access fails.
#[derive(Clone, Debug)]
pub struct Block {
    bytes: Bytes,
    entries: usize,
    keys: Keys,
    seqs: Column,
    tags: Column,
    expiries: Column,
    value_ends: Column,
    /// Length of every value, if `value_ends` has no width.
    value_len: usize,
    /// Offset of the values in `bytes`.
    values: usize,
    /// The kind of every entry, if all have one kind and none expires.
    every: Option<Kind>,
    /// The sequence number from which on a reader sees only plain values: the largest one if every
    /// entry is a plain value, otherwise [`NEVER`].
    plain_from: Seq,
    /// Whether `bytes` are the caller's memory.
    lent: bool,
}

impl Block {
    /// The number of entries: one or more.
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

    /// Bytes of memory that it uses, without those of [`Block::bytes`] if they are lent.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        let bytes = if self.lent { 0 } else { self.bytes.len() };
        size_of::<Block>() + bytes + self.keys.memory_bytes()
    }

    /// Whether its bytes are in lent memory ([`crate::Table::decode_lent`]), so that they keep the
    /// lender alive.
    #[must_use]
    pub fn is_lent(&self) -> bool {
        self.lent
    }

    /// Records that its bytes are lent.
    pub(crate) fn lent(self) -> Block {
        Block { lent: true, ..self }
    }

    /// The user key at `position`; empty past the end (no key is empty).
    #[inline]
    pub(crate) fn key(&self, position: usize) -> &[u8] {
        self.keys.get(&self.bytes, position)
    }

    #[inline]
    pub(crate) fn seq(&self, position: usize) -> Seq {
        Seq(self.seqs.get(&self.bytes, position))
    }

    /// Whether every entry is a plain value ([`Kind::is_plain`]) at or below `seq`. Then a reader
    /// at `seq` sees the first entry of each key, and need not check its number or kind.
    #[must_use]
    #[inline]
    pub fn is_plain(&self, seq: Seq) -> bool {
        self.plain_from <= seq
    }

    /// The same block, with `newest` as its largest sequence number.
    pub(crate) fn up_to(self, newest: Seq) -> Block {
        let plain = self.every.is_some_and(|kind| kind.is_plain(false));
        Block { plain_from: if plain { newest } else { NEVER }, ..self }
    }

    /// Keys and values from `position` on, if all have one length.
    pub(crate) fn columns(&self, position: usize) -> Option<Columns<'_>> {
        let (keys, key_len) = self.keys.column(&self.bytes, position)?;
        if self.value_ends.width > 0 {
            return None;
        }
        let value_len = self.value_len;
        let values = self.bytes.get(self.values + position * value_len..)?;
        Some(Columns { keys, key_len, values, value_len })
    }

    /// The value at `position`; empty past the end.
    #[inline]
    pub(crate) fn value(&self, position: usize) -> &[u8] {
        self.bytes.get(self.value_range(position)).unwrap_or_default()
    }

    /// The range of the value at `position` in [`Block::bytes`]; empty past the end.
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
    #[inline(always)]
    pub fn entry(&self, position: usize) -> Option<Entry<'_>> {
        if position >= self.entries {
            return None;
        }
        let (kind, expires) = match self.every {
            Some(kind) => (kind, false),
            None => {
                let tag = self.tags.get(&self.bytes, position) as u8;
                (Kind::from_byte(tag & !EXPIRY_FLAG).ok()?, tag & EXPIRY_FLAG != 0)
            }
        };
        Some(Entry {
            key: self.key(position),
            seq: self.seq(position),
            kind,
            expires_at: expires.then(|| UnixMillis(self.expiries.get(&self.bytes, position))),
            value: self.bytes.get(self.value_range(position)).unwrap_or_default(),
        })
    }

    /// Whether the entry at `position` comes before `(key, seq)`. `head` is the head of the key,
    /// after the shared prefix of the block's keys.
    #[inline]
    fn is_before(&self, position: usize, key: &[u8], head: u64, seq: Seq) -> bool {
        let own = self.key(position);
        match self.keys.guess.head(own).cmp(&head).then_with(|| own.cmp(key)) {
            Ordering::Less => true,
            Ordering::Greater => false,
            // No entry is newer than the maximum: its number need not be compared.
            Ordering::Equal => seq != Seq::MAX && self.seq(position) > seq,
        }
    }

    /// Whether the entry at `position` has this user key.
    #[must_use]
    #[inline]
    pub fn is_key(&self, position: usize, key: &[u8]) -> bool {
        self.key(position) == key
    }

    /// Reads a byte of the keys and of the value that probably belong to `key`, so that their cache
    /// lines and pages are loaded in parallel, before a search needs them one after the other.
    /// Using the result keeps the compiler from removing the reads.
    #[must_use]
    #[inline]
    pub fn prefetch(&self, key: &[u8]) -> u64 {
        let near = self.keys.guess.near(key).min(self.entries - 1);
        let value = self.bytes.get(self.value_near(near)).copied().unwrap_or_default();
        u64::from(value) ^ prefetch(self.keys_around(near))
    }

    /// As [`Block::prefetch`], for a read that continues from `key`: also the last key, which
    /// determines the shared prefix.
    #[must_use]
    #[inline]
    pub fn prefetch_on(&self, key: &[u8]) -> u64 {
        self.prefetch(key)
            ^ u64::from(self.key(self.entries - 1).first().copied().unwrap_or_default())
    }

    /// The bytes of the keys around the probable position of `key`, for [`prefetch`]. A caller that
    /// looks up keys in many blocks collects these first. The loop over them is so short that the
    /// processor loads the lines of a dozen blocks in parallel.
    #[must_use]
    #[inline]
    pub fn keys_near(&self, key: &[u8]) -> &[u8] {
        self.keys_around(self.keys.guess.near(key).min(self.entries - 1))
    }

    #[inline]
    fn keys_around(&self, near: usize) -> &[u8] {
        let range =
            near.saturating_sub(PREFETCH_KEYS)..(near + PREFETCH_KEYS + 1).min(self.entries);
        self.keys.slice(&self.bytes, range)
    }

    /// Reads the data of the block that [`Block::keys_near`] needs. Using the result keeps the
    /// compiler from removing the reads.
    #[must_use]
    #[inline]
    pub fn prefetch_head(&self) -> usize {
        self.entries ^ self.bytes.len() ^ self.values ^ self.keys.prefetch()
    }

    /// The approximate position of the value at `position`, computed without a memory access.
    #[inline]
    fn value_near(&self, position: usize) -> usize {
        let all = self.bytes.len() - self.values;
        match self.value_ends.width {
            0 => self.values + position * self.value_len,
            _ => self.values + all * position / self.entries,
        }
    }

    /// The first position at or after `(key, seq)` in internal order; [`Block::len`] if there is
    /// none. Reads keys, and sequence numbers only of the same key.
    ///
    /// Starts where the key would be if keys were evenly spread (interpolation search) and gallops
    /// from there: keys of any spread cost at most twice the steps of a binary search, and evenly
    /// spread ones (hashes, counters, times) touch two cache lines instead of five.
    #[must_use]
    #[inline]
    pub fn lower_bound(&self, key: &[u8], seq: Seq) -> usize {
        let head = match self.keys.guess.place(key, || self.key(0)) {
            Ok(head) => head,
            Err(Ordering::Less) => return 0,
            Err(_) => return self.entries,
        };
        let guess = self.keys.guess.position(head);
        let Some((heads, stride)) = self.keys.heads(&self.bytes) else {
            return self.lower_bound_any(guess, key, head, seq);
        };
        partition_near(self.entries, guess, |position| {
            let own = prefix::head(heads.get(position * stride..).unwrap_or_default());
            own < head || (own == head && self.is_before(position, key, head, seq))
        })
    }

    /// [`Block::lower_bound`] for keys of any length.
    #[inline(never)]
    fn lower_bound_any(&self, guess: usize, key: &[u8], head: u64, seq: Seq) -> usize {
        partition_near(self.entries, guess, |position| self.is_before(position, key, head, seq))
    }
}
