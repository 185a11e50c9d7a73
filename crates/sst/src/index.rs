//! The index of a table: the location of each block, and one separator per block.
//!
//! ```text
//! index  := blocks prefix_len prefix block*
//! block  := stored_len bound suffix_len suffix
//! blocks     : 4 bytes, 1 or more
//! prefix_len : 2 bytes; length of the prefix that all separators have in common
//! stored_len : varint; blocks lie one after another from the end of the envelope on
//! bound      : varint; 0 after a shortened separator, else 1 + the sequence number of the block's
//!              last entry
//! suffix     : the separator without the prefix, its length a varint before it
//! ```
//! A separator marks the end of its block. A shortened separator is the shortest prefix of the next
//! block's first user key that is above every user key of this block: keys from it on are in later
//! blocks. If the versions of one user key are in two blocks, no user key is between the blocks,
//! and the separator is exact: the internal key of the block's last entry, which is still in this
//! block. The separator of the last block is exact too.

use siltstone_base::bytes_io::{Reader, put_varint};
use siltstone_base::envelope::ENVELOPE_BYTES;
use siltstone_base::limits::MAX_KEY_BYTES;
use siltstone_base::near::{Line, partition_near};
use siltstone_base::prefix::{head, shared_prefix};
use siltstone_base::{Error, Result, Seq};
use std::cmp::Ordering;
use std::ops::Range;

/// Minimum number of bytes of a block in the index: three varints.
const MIN_BLOCK_ENTRY_BYTES: usize = 3;
/// In memory, the bound of a shortened separator: above every sequence number, so that a key equal
/// to the separator is in a later block at every sequence number.
const SHORTENED: u64 = u64::MAX;

/// The end of a block.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Separator<'a> {
    /// Before every version of this user key.
    Shortened(&'a [u8]),
    /// With exactly this entry.
    Exact(&'a [u8], Seq),
}

/// Collects separators while a table is built.
#[derive(Default)]
pub(crate) struct IndexBuilder {
    keys: Vec<u8>,
    blocks: Vec<BuiltBlock>,
}

struct BuiltBlock {
    key_end: usize,
    bound: u64,
    stored_len: u64,
}

impl IndexBuilder {
    /// Adds the next block.
    ///
    /// # Errors
    /// Invalid for more than 2^32 - 1 blocks.
    pub(crate) fn add(&mut self, stored_len: u64, separator: Separator<'_>) -> Result<()> {
        if self.blocks.len() as u64 >= u64::from(u32::MAX) {
            return Err(Error::invalid("a table has at most 2^32 - 1 blocks"));
        }
        let (key, bound) = match separator {
            Separator::Shortened(key) => (key, 0),
            Separator::Exact(key, seq) => (key, seq.get() + 1),
        };
        self.keys.extend_from_slice(key);
        self.blocks.push(BuiltBlock { key_end: self.keys.len(), bound, stored_len });
        Ok(())
    }

    /// Removes the blocks and keeps the memory.
    pub(crate) fn clear(&mut self) {
        self.keys.clear();
        self.blocks.clear();
    }

    /// The approximate number of bytes that [`IndexBuilder::encode_into`] would append.
    pub(crate) fn encoded_len(&self) -> usize {
        self.keys.len() + self.blocks.len() * 6
    }

    /// Appends the stored form.
    pub(crate) fn encode_into(&self, out: &mut Vec<u8>) {
        let key = |start: usize, end: usize| self.keys.get(start..end).unwrap_or_default();
        // Separators ascend, so a prefix of the first and the last is a prefix of all.
        let first = key(0, self.blocks.first().map_or(0, |block| block.key_end));
        let before_last = self.blocks.iter().rev().nth(1).map_or(0, |block| block.key_end);
        let prefix = shared_prefix(first, key(before_last, self.keys.len()));
        out.extend_from_slice(&(self.blocks.len() as u32).to_le_bytes());
        out.extend_from_slice(&(prefix as u16).to_le_bytes());
        out.extend_from_slice(first.get(..prefix).unwrap_or_default());
        let mut start = 0;
        for block in &self.blocks {
            let suffix = key(start + prefix, block.key_end);
            put_varint(out, block.stored_len);
            put_varint(out, block.bound);
            put_varint(out, suffix.len() as u64);
            out.extend_from_slice(suffix);
            start = block.key_end;
        }
    }
}

/// The index in memory: columns, so that a search compares numbers and reads keys only on ties.
#[derive(Debug)]
pub(crate) struct Index {
    prefix: Vec<u8>,
    suffixes: Vec<u8>,
    /// The approximate position of a head among them.
    line: Line,
    /// First 8 bytes of each suffix.
    heads: Vec<u64>,
    /// The end of each suffix.
    ends: Vec<usize>,
    /// Sequence number of each block's last entry, or [`SHORTENED`].
    bounds: Vec<u64>,
    /// The start of each block, and the end of the last one.
    offsets: Vec<u64>,
}

impl Index {
    /// Reads the stored form; the blocks must fill `ENVELOPE_BYTES..tail_offset`.
    ///
    /// # Errors
    /// Corruption for bytes that no builder wrote.
    pub(crate) fn decode(bytes: &[u8], tail_offset: u64) -> Result<Index> {
        let mut reader = Reader::new(bytes);
        let blocks = reader.u32()? as usize;
        let prefix_len = usize::from(reader.u16()?);
        let prefix = reader.take(prefix_len)?.to_vec();
        if blocks == 0 || blocks > reader.remaining() / MIN_BLOCK_ENTRY_BYTES {
            return Err(Error::corruption("impossible number of blocks").with("blocks", blocks));
        }
        let mut index = Index {
            prefix,
            line: Line::default(),
            suffixes: Vec::with_capacity(reader.remaining() - blocks * MIN_BLOCK_ENTRY_BYTES),
            heads: Vec::with_capacity(blocks),
            ends: Vec::with_capacity(blocks),
            bounds: Vec::with_capacity(blocks),
            offsets: Vec::with_capacity(blocks + 1),
        };
        let mut offset = ENVELOPE_BYTES as u64;
        for _ in 0..blocks {
            index.offsets.push(offset);
            let stored_len = reader.varint()?;
            let end = offset.checked_add(stored_len).filter(|end| *end <= tail_offset);
            offset = end.ok_or_else(|| Error::corruption("a block runs into the tail"))?;
            let bound = reader.varint()?;
            if bound > Seq::MAX.get() + 1 {
                return Err(Error::corruption("impossible sequence number in the index"));
            }
            let suffix_len = reader.length()?;
            let suffix = reader.take(suffix_len)?;
            index.push(suffix, bound.checked_sub(1).unwrap_or(SHORTENED))?;
        }
        index.offsets.push(offset);
        if offset != tail_offset || !reader.is_empty() {
            return Err(Error::corruption("the index does not describe all of the table"));
        }
        if index.bounds.last() == Some(&SHORTENED) {
            return Err(Error::corruption("the last separator is not exact"));
        }
        let ends = index.heads.first().zip(index.heads.last());
        index.line = ends.map_or(Line::default(), |(a, z)| Line::between(*a, *z, blocks));
        Ok(index)
    }

    fn push(&mut self, suffix: &[u8], bound: u64) -> Result<()> {
        if self.prefix.len() + suffix.len() > MAX_KEY_BYTES {
            return Err(Error::corruption("impossible separator in the index"));
        }
        if let Some(last) = self.len().checked_sub(1) {
            let order = self.suffix(last).cmp(suffix);
            let last_bound = self.bounds.last().copied().unwrap_or(SHORTENED);
            let ascends = order == Ordering::Less || (order.is_eq() && last_bound > bound);
            if !ascends {
                return Err(Error::corruption("separators are out of order in the index"));
            }
        }
        self.suffixes.extend_from_slice(suffix);
        self.ends.push(self.suffixes.len());
        self.heads.push(head(suffix));
        self.bounds.push(bound);
        Ok(())
    }

    /// The number of blocks.
    pub(crate) fn len(&self) -> usize {
        self.heads.len()
    }

    /// The byte range of a block in the object.
    pub(crate) fn range(&self, block: u32) -> Option<Range<u64>> {
        let block = block as usize;
        Some(*self.offsets.get(block)?..*self.offsets.get(block + 1)?)
    }

    fn suffix(&self, block: usize) -> &[u8] {
        let end = |n: usize| self.ends.get(n).copied().unwrap_or_default();
        let start = if block == 0 { 0 } else { end(block - 1) };
        self.suffixes.get(start..end(block)).unwrap_or_default()
    }

    /// Whether the key with this suffix is beyond the end of `block`.
    fn suffix_is_beyond(&self, block: usize, suffix: &[u8], seq: Seq) -> bool {
        match suffix.cmp(self.suffix(block)) {
            Ordering::Less => false,
            Ordering::Greater => true,
            Ordering::Equal => self.bounds.get(block).is_some_and(|bound| seq.get() < *bound),
        }
    }

    /// Whether `(key, seq)` is beyond the end of `block`.
    pub(crate) fn is_beyond(&self, block: usize, key: &[u8], seq: Seq) -> bool {
        match key.strip_prefix(self.prefix.as_slice()) {
            Some(suffix) => self.suffix_is_beyond(block, suffix, seq),
            None => key > self.prefix.as_slice(),
        }
    }

    /// The first block whose end is not before `(key, seq)`.
    pub(crate) fn find(&self, key: &[u8], seq: Seq) -> Option<u32> {
        let Some(suffix) = key.strip_prefix(self.prefix.as_slice()) else {
            // Every separator starts with the prefix, so the key is before or after all of them.
            return (key < self.prefix.as_slice()).then_some(0);
        };
        let wanted = head(suffix);
        let head_at = |at: usize| self.heads.get(at).copied().unwrap_or(u64::MAX);
        let guess = self.line.position(wanted);
        let mut low = partition_near(self.len(), guess, |at| head_at(at) < wanted);
        let ties = partition_near(self.len() - low, 0, |at| head_at(low + at) == wanted);
        let mut high = low + ties;
        while low < high {
            let middle = low + (high - low) / 2;
            if self.suffix_is_beyond(middle, suffix, seq) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        (low < self.len()).then_some(low as u32)
    }

    /// Keys that divide the table into parts of about `every` stored bytes, each with the bytes of
    /// the part that it ends.
    pub(crate) fn anchors(&self, every: u64) -> Vec<(Vec<u8>, u64)> {
        let mut anchors = Vec::new();
        let mut part = 0;
        for (block, bounds) in self.offsets.windows(2).enumerate() {
            part += bounds.last().zip(bounds.first()).map_or(0, |(end, start)| end - start);
            if part >= every {
                let key = [self.prefix.as_slice(), self.suffix(block)].concat();
                anchors.push((key, std::mem::take(&mut part)));
            }
        }
        anchors
    }

    /// Stored bytes from the first block that may contain a key at or above `start` to the last one
    /// that may contain one below `end`.
    pub(crate) fn bytes_between(&self, start: Option<&[u8]>, end: Option<&[u8]>) -> u64 {
        let offset = |block: usize| self.offsets.get(block).copied().unwrap_or_default();
        // Before every version of the key.
        let found = |key| self.find(key, Seq::MAX).map(|block| block as usize);
        let Some(first) = start.map_or(Some(0), found) else { return 0 };
        let last = end.and_then(found).unwrap_or(self.len().saturating_sub(1));
        offset(last + 1).saturating_sub(offset(first))
    }

    /// The last block's separator, with its prefix.
    pub(crate) fn last_key(&self) -> Vec<u8> {
        let mut key = self.prefix.clone();
        key.extend_from_slice(self.suffix(self.len().saturating_sub(1)));
        key
    }

    /// Makes every entry count as written at `seq`. The table then contains each key once, so only
    /// the last separator may be exact.
    ///
    /// # Errors
    /// Corruption if another one is exact.
    pub(crate) fn override_seq(&mut self, seq: Seq) -> Result<()> {
        let exact = self.bounds.iter().filter(|bound| **bound != SHORTENED).count();
        if exact != 1 {
            return Err(Error::corruption("a table with one sequence number repeats a key"));
        }
        if let Some(last) = self.bounds.last_mut() {
            *last = seq.get();
        }
        Ok(())
    }

    /// Bytes of memory that it uses.
    pub(crate) fn memory_bytes(&self) -> usize {
        let words = self.heads.capacity() + self.bounds.capacity() + self.offsets.capacity();
        self.prefix.capacity()
            + self.suffixes.capacity()
            + words * size_of::<u64>()
            + self.ends.capacity() * size_of::<usize>()
    }
}
