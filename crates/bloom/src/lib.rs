//! A blocked Bloom filter over 64-bit key hashes, with a frozen encoding.
//!
//! The filter does not know tables or keys: it stores hashes and answers "certainly absent" or
//! "possibly present". All filters use the same hash of a key, so a look-up computes it once, by
//! [`key_hash`], and passes it on.
//!
//! The bits of a hash are all in one block of 512 bits, which is one cache line, so an answer costs
//! at most one cache miss for any size of the filter. In exchange the filter needs about 10 to 30 %
//! more bits than a plain Bloom filter for the same false positive rate (F. Putze, P. Sanders, J.
//! Singler, *Cache-, Hash- and Space-Efficient Bloom Filters*, 2007): about 1 % at 10 bits per key.
//!
//! # Encoding, version 1
//!
//! ```text
//! offset size field
//!      0    1 version, 1
//!      1    1 probes: bits set per hash, 1 to 16
//!      2    2 zero
//!      4    4 number of blocks, little-endian
//!      8   64 first block: eight 64-bit words, little-endian
//!     72   64 second block, and so on to the end
//! ```
//!
//! Let `high` and `low` be the upper and lower 32 bits of a hash. Its block is
//! `(high * blocks) >> 32`. Its i-th bit (from 0), of `probes`, is the upper 9 bits of
//! `low * 0x9e3779b9^(i + 1)` modulo 2^32: word `bit >> 6` of the block, bit `bit & 63` of the
//! word. (Choosing a block by multiplying and shifting: D. Lemire, *Fast Random Integer Generation
//! in an Interval*, 2019. The odd constant is 2^32 divided by the golden ratio: Knuth, TAOCP 3,
//! section 6.4.)
//!
//! A filter without blocks says "possibly present" for everything; this is the result of zero bits
//! per key. A filter without hashes has one empty block and says "certainly absent" for everything.

#![forbid(unsafe_code)]

use std::fmt;
use std::sync::Arc;
use xxhash_rust::xxh3::xxh3_64;

/// Bits of a block: one cache line of 64 bytes.
const BLOCK_BITS: u64 = 512;
/// Bytes of a block.
const BLOCK_BYTES: usize = 64;
/// Words of a block.
const BLOCK_WORDS: usize = 8;
/// Bytes before the first block.
const HEAD_BYTES: usize = 8;
/// The stored version this code writes and reads.
const VERSION: u8 = 1;
/// Maximum number of bits per hash: beyond it a block of 512 bits fills up faster than it
/// discriminates.
const MAX_PROBES: u32 = 16;
/// Maximum number of bits per key that has an effect: [`MAX_PROBES`] probes need 27, and blocks
/// that are almost empty gain little beyond twice that.
const MAX_BITS_PER_KEY: u32 = 64;
/// 2^32 divided by the golden ratio, made odd.
const GOLDEN: u32 = 0x9e37_79b9;

/// The hash that every filter uses: XXH3, 64 bits, seed 0.
#[must_use]
pub fn key_hash(key: &[u8]) -> u64 {
    xxh3_64(key)
}

/// The reason why stored bytes are not a filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecodeError {
    /// The bytes are inconsistent.
    Corrupt,
    /// The version is not one that this code reads.
    UnknownVersion(u8),
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DecodeError::Corrupt => f.write_str("the bytes are not a filter"),
            DecodeError::UnknownVersion(version) => {
                write!(f, "filter version {version} is not known; the newest known is {VERSION}")
            }
        }
    }
}

impl std::error::Error for DecodeError {}

/// One block, aligned so that it never spans two cache lines.
#[derive(Clone, Copy, Debug, Default)]
#[repr(align(64))]
struct Line([u64; BLOCK_WORDS]);

impl Line {
    /// Whether all bits of `other` are set. There is no branch: eight words take two to four
    /// instructions either way, and a branch on a bit that is set half of the time is mispredicted
    /// half of the time.
    #[inline]
    fn holds(&self, other: &Line) -> bool {
        self.0.iter().zip(&other.0).fold(0, |lacking, (own, wanted)| lacking | (wanted & !own)) == 0
    }
}

/// Number of bits that are precomputed for all filters: the number that 10 bits per key set.
/// Filters set different numbers of bits, but all begin with the same ones, and those detect nearly
/// all absent keys.
const SHARED_PROBES: u32 = 6;

/// A hash for look-ups in many filters: its first bits are precomputed once for all filters that
/// set at least that many ([`Bloom::may_contain_marked`]).
#[derive(Clone, Debug)]
pub struct Marks {
    hash: u64,
    /// Number of precomputed bits; 0: none yet.
    probes: u32,
    line: Line,
}

impl Marks {
    /// Nothing is precomputed before the first look-up.
    #[must_use]
    #[inline]
    pub fn new(hash: u64) -> Self {
        Marks { hash, probes: 0, line: Line::default() }
    }

    /// The hash.
    #[must_use]
    #[inline]
    pub fn hash(&self) -> u64 {
        self.hash
    }

    #[inline]
    fn lay_out(&mut self, count: u32) {
        if self.probes != count {
            self.line = Line::default();
            set(&mut self.line, self.hash, count);
            self.probes = count;
        }
    }
}

/// The bits of a hash inside its block, as (word, mask) pairs.
fn probes(hash: u64, count: u32) -> impl Iterator<Item = (usize, u64)> {
    let mut mixed = hash as u32;
    (0..count).map(move |_| {
        mixed = mixed.wrapping_mul(GOLDEN);
        let bit = mixed >> 23;
        ((bit >> 6) as usize, 1u64 << (bit & 63))
    })
}

/// The block of a hash: below `blocks`, because the upper half is below 2^32.
fn block_of(hash: u64, blocks: u64) -> usize {
    (((hash >> 32) * blocks) >> 32) as usize
}

/// Collects hashes and builds the filter once their number is known. The default builds none.
#[derive(Clone, Debug, Default)]
pub struct BloomBuilder {
    bits_per_key: u32,
    hashes: Vec<u64>,
    /// Memory for the blocks, kept from filter to filter.
    lines: Vec<Line>,
}

impl BloomBuilder {
    /// A builder that uses `bits_per_key` bits for each hash: 10 give about 1 % of false positives.
    /// 0 means no filter at all; more than 64 count as 64.
    #[must_use]
    pub fn new(bits_per_key: u32) -> Self {
        let bits_per_key = bits_per_key.min(MAX_BITS_PER_KEY);
        BloomBuilder { bits_per_key, hashes: Vec::new(), lines: Vec::new() }
    }

    /// Begins another filter with this many bits per hash, in the same memory.
    pub fn restart(&mut self, bits_per_key: u32) {
        self.bits_per_key = bits_per_key.min(MAX_BITS_PER_KEY);
        self.hashes.clear();
    }

    /// Reserves memory for this many more hashes, if there is a filter.
    pub fn reserve(&mut self, hashes: usize) {
        if self.bits_per_key > 0 {
            self.hashes.reserve(hashes);
        }
    }

    /// Adds a hash. Consecutive equal hashes are stored once.
    pub fn add(&mut self, hash: u64) {
        if self.bits_per_key > 0 && self.hashes.last() != Some(&hash) {
            self.hashes.push(hash);
        }
    }

    /// The number of bytes that [`BloomBuilder::encode_into`] would append now.
    #[must_use]
    pub fn encoded_len(&self) -> usize {
        HEAD_BYTES + self.blocks() as usize * BLOCK_BYTES
    }

    /// The stored form.
    #[must_use]
    pub fn finish(mut self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.encoded_len());
        self.encode_into(&mut out);
        out
    }

    /// Appends the stored form.
    pub fn encode_into(&mut self, out: &mut Vec<u8>) {
        let blocks = self.blocks();
        // The best number of bits per hash is ln 2 = 0.69 of the bits per key for a plain filter;
        // blocks fill unevenly, which favours slightly fewer: three fifths.
        let count = ((self.bits_per_key * 3 + 2) / 5).clamp(1, MAX_PROBES);
        self.lines.clear();
        self.lines.resize(blocks as usize, Line::default());
        for hash in &self.hashes {
            if let Some(line) = self.lines.get_mut(block_of(*hash, u64::from(blocks))) {
                set(line, *hash, count);
            }
        }
        encode_into(count, &self.lines, out);
    }

    /// Enough blocks for all hashes; at least one if there is a filter. The number saturates at
    /// 2^32 - 1 blocks, which is 256 GiB of filter.
    fn blocks(&self) -> u32 {
        if self.bits_per_key == 0 {
            return 0;
        }
        let bits = (self.hashes.len() as u64).saturating_mul(u64::from(self.bits_per_key));
        u32::try_from(bits.div_ceil(BLOCK_BITS).max(1)).unwrap_or(u32::MAX)
    }
}

/// Appends the stored form of `lines`, which has fewer than 2^32 entries.
fn encode_into(probes: u32, lines: &[Line], out: &mut Vec<u8>) {
    out.reserve(HEAD_BYTES + lines.len() * BLOCK_BYTES);
    out.extend_from_slice(&[VERSION, probes as u8, 0, 0]);
    out.extend_from_slice(&(lines.len() as u32).to_le_bytes());
    for line in lines {
        let mut block = [0; BLOCK_BYTES];
        for (bytes, word) in block.as_chunks_mut::<8>().0.iter_mut().zip(line.0) {
            *bytes = word.to_le_bytes();
        }
        out.extend_from_slice(&block);
    }
}

#[inline]
fn set(line: &mut Line, hash: u64, count: u32) {
    for (word, mask) in probes(hash, count) {
        if let Some(word) = line.0.get_mut(word) {
            *word |= mask;
        }
    }
}

/// A filter in memory. A clone shares its memory.
#[derive(Clone, Debug)]
pub struct Bloom {
    probes: u32,
    lines: Arc<[Line]>,
}

impl Bloom {
    /// Reads the stored form. The blocks are copied so that each is in one cache line.
    ///
    /// # Errors
    /// [`DecodeError`] for bytes that [`BloomBuilder::finish`] did not make. It allocates at most
    /// the length of `bytes` plus one block.
    pub fn decode(bytes: &[u8]) -> Result<Bloom, DecodeError> {
        let (head, body) = bytes.split_at_checked(HEAD_BYTES).ok_or(DecodeError::Corrupt)?;
        let &[version, count, zero_a, zero_b, b0, b1, b2, b3] = head else {
            return Err(DecodeError::Corrupt);
        };
        if version != VERSION {
            return Err(DecodeError::UnknownVersion(version));
        }
        let probes = u32::from(count);
        let blocks = u64::from(u32::from_le_bytes([b0, b1, b2, b3]));
        let whole = blocks * BLOCK_BYTES as u64 == body.len() as u64;
        if (zero_a, zero_b) != (0, 0) || !(1..=MAX_PROBES).contains(&probes) || !whole {
            return Err(DecodeError::Corrupt);
        }
        let lines = body.as_chunks::<BLOCK_BYTES>().0.iter().map(|block| {
            let mut line = Line::default();
            for (word, bytes) in line.0.iter_mut().zip(block.as_chunks::<8>().0) {
                *word = u64::from_le_bytes(*bytes);
            }
            line
        });
        Ok(Bloom { probes, lines: lines.collect() })
    }

    /// Loads a word of the line that [`Bloom::may_contain`] reads for `hash`. A caller with many
    /// hashes touches all lines first, so that they are loaded in parallel.
    #[must_use]
    #[inline]
    pub fn prefetch(&self, hash: u64) -> u64 {
        let line = self.lines.get(block_of(hash, self.lines.len() as u64));
        line.and_then(|line| line.0.first()).copied().unwrap_or(0)
    }

    /// Whether `hash` may have been added; `false` is certain.
    #[must_use]
    #[inline]
    pub fn may_contain(&self, hash: u64) -> bool {
        let Some(line) = self.lines.get(block_of(hash, self.lines.len() as u64)) else {
            return true;
        };
        probes(hash, self.probes)
            .all(|(word, mask)| line.0.get(word).is_some_and(|word| word & mask != 0))
    }

    /// As [`Bloom::may_contain`], for a hash that is looked up in several filters.
    #[must_use]
    #[inline]
    pub fn may_contain_marked(&self, marks: &mut Marks) -> bool {
        let Some(line) = self.lines.get(block_of(marks.hash, self.lines.len() as u64)) else {
            return true;
        };
        marks.lay_out(self.probes.min(SHARED_PROBES));
        line.holds(&marks.line) && (self.probes <= SHARED_PROBES || self.may_contain(marks.hash))
    }

    /// The stored form: the bytes from which it was decoded.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        encode_into(self.probes, &self.lines, &mut out);
        out
    }

    /// The length of the result of [`Bloom::encode`].
    #[must_use]
    pub fn encoded_len(&self) -> usize {
        HEAD_BYTES + self.lines.len() * BLOCK_BYTES
    }

    /// The false positive rate: the probability that one bit is set, to the power of the probes,
    /// averaged over the blocks, which are equally likely. 1 for a filter without blocks.
    #[must_use]
    pub fn false_positive_rate(&self) -> f64 {
        if self.lines.is_empty() {
            return 1.0;
        }
        let rate = |line: &Line| {
            let set: u32 = line.0.iter().map(|word| word.count_ones()).sum();
            (f64::from(set) / BLOCK_BITS as f64).powi(self.probes as i32)
        };
        self.lines.iter().map(rate).sum::<f64>() / self.lines.len() as f64
    }

    /// Bytes of memory that it uses: its own blocks plus one for the counts of its shares.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        size_of::<Bloom>() + (self.lines.len() + 1) * BLOCK_BYTES
    }
}
