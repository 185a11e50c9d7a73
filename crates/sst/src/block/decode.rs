//! From a block's bytes to a [`Block`], everything checked once and for all.

use super::{Block, EXPIRY_FLAG, HEAD_BYTES, KeyEnds, MAX_WHOLE_KEY_BYTES};
use crate::packed::Column;
use bytes::Bytes;
use siltstone_base::bytes_io::Reader;
use siltstone_base::limits::MAX_KEY_BYTES;
use siltstone_base::{Error, Kind, Result, Seq};

/// Memory for whole keys that is reserved on the head's word alone; more is taken only as keys
/// arrive.
const TRUSTED_RESERVE_BYTES: usize = 1 << 20;

/// The head's fields.
struct Head {
    entries: usize,
    key_bytes: usize,
    whole_key_bytes: usize,
    value_bytes: usize,
    seq_base: u64,
    expiry_base: u64,
    key_len: usize,
    tag: u8,
    seq_width: u8,
    expiry_width: u8,
    value_width: u8,
}

fn wrong(message: &'static str) -> Error {
    Error::corruption(message)
}

/// Decodes uncompressed block bytes. With `seq_override` every entry counts as written at that
/// sequence number, and then no key may come twice.
///
/// # Errors
/// Corruption when the bytes are not a block; Unsupported for an entry kind that this version
/// cannot apply (range deletes).
pub(crate) fn decode(bytes: Bytes, seq_override: Option<Seq>) -> Result<Block> {
    let head = Head::decode(&bytes)?;
    let (block, keys) = head.lay_out(bytes, seq_override)?;
    let block = fill_keys(block, &head, keys, seq_override.is_some())?;
    check_rows(&block)?;
    Ok(block)
}

impl Head {
    fn decode(bytes: &[u8]) -> Result<Head> {
        let mut reader = Reader::new(bytes);
        let head = Head {
            entries: reader.u32()? as usize,
            key_bytes: reader.u32()? as usize,
            whole_key_bytes: reader.u32()? as usize,
            value_bytes: reader.u32()? as usize,
            seq_base: reader.u64()?,
            expiry_base: reader.u64()?,
            key_len: usize::from(reader.u16()?),
            tag: reader.u8()?,
            seq_width: reader.u8()?,
            expiry_width: reader.u8()?,
            value_width: reader.u8()?,
        };
        if reader.u16()? != 0 {
            return Err(wrong("reserved bytes of a block's head are set"));
        }
        if head.seq_width > 7 || head.expiry_width > 8 || head.value_width > 4 {
            return Err(wrong("impossible column width in a block"));
        }
        // Every key takes a byte of the key region at least, so the claim is backed by bytes.
        if head.entries == 0 || head.entries > head.key_bytes {
            return Err(wrong("impossible number of entries in a block"));
        }
        if head.whole_key_bytes > MAX_WHOLE_KEY_BYTES {
            return Err(wrong("impossible length of keys in a block"));
        }
        if head.value_width == 0 && !head.value_bytes.is_multiple_of(head.entries) {
            return Err(wrong("values of one length do not fill their region"));
        }
        Ok(head)
    }

    /// Places the columns, which must fill the block exactly. Answers a block without keys yet,
    /// and the key region.
    fn lay_out(&self, bytes: Bytes, seq_override: Option<Seq>) -> Result<(Block, Bytes)> {
        let tag_width = u8::from(self.tag == 0);
        let mut at = HEAD_BYTES as u64 + self.key_bytes as u64;
        let mut column = |width: u8, base: u64| {
            // Fewer than 2^32 rows of 8 bytes each: far from overflowing.
            let start = at;
            at += self.entries as u64 * u64::from(width);
            (start, width, base)
        };
        let seqs = column(self.seq_width, self.seq_base);
        let tags = column(tag_width, u64::from(self.tag));
        let expiries = column(self.expiry_width, self.expiry_base);
        let value_ends = column(self.value_width, 0);
        if at + self.value_bytes as u64 != bytes.len() as u64 {
            return Err(wrong("the parts of a block do not add up to its length"));
        }
        // What adds up to the length of memory fits a usize.
        let place =
            |(start, width, base): (u64, u8, u64)| Column { start: start as usize, width, base };
        let keys = bytes.slice(HEAD_BYTES..HEAD_BYTES + self.key_bytes);
        let block = Block {
            entries: self.entries,
            keys: Vec::new(),
            key_ends: KeyEnds::Fixed(self.key_len),
            seqs: seq_override.map_or(place(seqs), |seq| Column::constant(seq.get())),
            tags: place(tags),
            expiries: place(expiries),
            value_ends: place(value_ends),
            value_len: self.value_bytes / self.entries,
            values: at as usize,
            bytes,
        };
        Ok((block, keys))
    }
}

/// Rebuilds the keys whole and checks that internal keys ascend strictly.
///
/// The stored form makes the order cheap to check: what a key shares with the one before it is
/// skipped, so one byte decides, and only equal keys look at their sequence numbers.
fn fill_keys(mut block: Block, head: &Head, region: Bytes, distinct: bool) -> Result<Block> {
    let mut reader = Reader::new(&region);
    let mut keys = Vec::with_capacity(head.whole_key_bytes.min(TRUSTED_RESERVE_BYTES));
    let fixed = head.key_len != 0;
    let mut ends = Vec::with_capacity(if fixed { 0 } else { head.entries });
    let mut previous = 0..0;
    for position in 0..head.entries {
        let shared = reader.varint()? as usize;
        let suffix_len = if fixed { head.key_len.checked_sub(shared) } else { None };
        let suffix_len = match suffix_len {
            Some(known) => known,
            None if fixed => return Err(wrong("a key shares more than its length")),
            None => reader.length()?,
        };
        let suffix = reader.take(suffix_len)?;
        if shared > previous.len() || shared + suffix_len > MAX_KEY_BYTES {
            return Err(wrong("impossible key in a block"));
        }
        // Empty only where the key before is shared whole: then this is an older version of it,
        // or, at the first position, no key at all.
        match (keys.get(previous.start + shared..previous.end).and_then(<[u8]>::first), suffix) {
            (Some(before), [first, ..]) if before < first => {}
            (None, [_, ..]) => {}
            (None, []) if position > 0 && !distinct => {
                if block.seq(position) >= block.seq(position - 1) {
                    return Err(wrong("versions of a key are out of order in a block"));
                }
            }
            _ => return Err(wrong("keys are out of order in a block")),
        }
        let start = keys.len();
        keys.extend_from_within(previous.start..previous.start + shared);
        keys.extend_from_slice(suffix);
        previous = start..keys.len();
        if keys.len() > head.whole_key_bytes {
            break;
        }
        if !fixed {
            ends.push(keys.len() as u32);
        }
    }
    if keys.len() != head.whole_key_bytes || !reader.is_empty() {
        return Err(wrong("keys do not fill their region of a block"));
    }
    block.keys = keys;
    if !fixed {
        block.key_ends = KeyEnds::Each(ends);
    }
    Ok(block)
}

/// Checks tags, sequence numbers, expiries and value ends, each column once.
fn check_rows(block: &Block) -> Result<()> {
    let bytes = &block.bytes;
    let rows = |column: &Column| if column.width == 0 { 1 } else { block.entries };
    for row in 0..rows(&block.seqs) {
        let seq = block.seqs.base.checked_add(block.seqs.delta(bytes, row));
        if seq.is_none_or(|seq| seq > Seq::MAX.get()) {
            return Err(wrong("impossible sequence number in a block"));
        }
    }
    let mut tombstones = false;
    for row in 0..rows(&block.tags) {
        match Kind::from_byte(block.tags.get(bytes, row) as u8 & !EXPIRY_FLAG)? {
            Kind::RangeDelete => {
                return Err(Error::unsupported("range deletes are not built yet; upgrade to read"));
            }
            kind => tombstones |= kind == Kind::Delete,
        }
    }
    if block.expiries.width > 0 {
        let fits = |row| block.expiries.base.checked_add(block.expiries.delta(bytes, row));
        if (0..block.entries).any(|row| fits(row).is_none()) {
            return Err(wrong("impossible expiry in a block"));
        }
    }
    if block.value_ends.width > 0 {
        let mut start = 0;
        for row in 0..block.entries {
            let end = block.value_ends.get(bytes, row);
            if end < start {
                return Err(wrong("values overlap in a block"));
            }
            start = end;
        }
        if (block.values as u64).checked_add(start) != Some(bytes.len() as u64) {
            return Err(wrong("values do not fill their region of a block"));
        }
    }
    if tombstones {
        let tag = |row| block.tags.get(bytes, row) as u8 & !EXPIRY_FLAG;
        let bad = |row| tag(row) == Kind::Delete as u8 && !block.value_range(row).is_empty();
        if (0..block.entries).any(bad) {
            return Err(wrong("a tombstone has a value"));
        }
    }
    Ok(())
}
