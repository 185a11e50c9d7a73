//! Decodes the bytes of a block to a [`Block`]. All checks are made here, once.

use super::keys::{KeyShape, Keys};
use super::{Block, EXPIRY_FLAG, HEAD_BYTES, MAX_WHOLE_KEY_BYTES, NEVER};
use crate::packed::Column;
use bytes::Bytes;
use siltstone_base::bytes_io::Reader;
use siltstone_base::{Error, Kind, Result, Seq};

/// The fields of the head.
struct BlockHead {
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
    /// Whether keys are stored whole.
    whole: bool,
    key_end_width: u8,
}

fn wrong(message: &'static str) -> Error {
    Error::corruption(message)
}

/// Decodes uncompressed block bytes. With `seq_override` every entry counts as written at that
/// sequence number, and no key may occur twice.
///
/// # Errors
/// Corruption if the bytes are not a block; Unsupported for an entry kind that this version cannot
/// apply (range deletes).
pub(crate) fn decode(bytes: Bytes, seq_override: Option<Seq>) -> Result<Block> {
    let head = BlockHead::decode(&bytes)?;
    let block = head.lay_out(bytes, seq_override, Keys::whole)?;
    let newest = check_rows(&block)?;
    Ok(block.up_to(newest))
}

/// As [`decode`], for the same bytes as in an earlier call: rows are not checked again. If the
/// bytes were different after all, rows would be wrong, but no access would leave the bytes.
///
/// # Errors
/// As [`decode`].
pub(crate) fn decode_again(bytes: Bytes, seq_override: Option<Seq>) -> Result<Block> {
    let head = BlockHead::decode(&bytes)?;
    let block = head.lay_out(bytes, seq_override, Keys::whole_again)?;
    let newest = newest(&block)?;
    Ok(block.up_to(newest))
}

/// Reads whole keys, from: their shape, the block, their start and end, sequence numbers.
type TakeWhole = fn(&KeyShape, &[u8], usize, Option<Column>, &dyn Fn(usize) -> Seq) -> Result<Keys>;

impl BlockHead {
    fn decode(bytes: &[u8]) -> Result<BlockHead> {
        let mut reader = Reader::new(bytes);
        let head = BlockHead {
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
            whole: match reader.u8()? {
                0 => false,
                1 => true,
                layout => {
                    return Err(Error::unsupported(
                        "a block's keys are laid out in a way that this version does not know",
                    )
                    .with("layout", layout));
                }
            },
            key_end_width: reader.u8()?,
        };
        // Ends are stored exactly if keys are whole and their lengths vary.
        let ends = head.whole && head.key_len == 0;
        if head.key_end_width > 4 || (head.key_end_width > 0) != ends {
            return Err(wrong("impossible width of key ends in a block"));
        }
        if head.seq_width > 7 || head.expiry_width > 8 || head.value_width > 4 {
            return Err(wrong("impossible column width in a block"));
        }
        // Every key takes at least one byte of the key region, so the bytes limit the claimed
        // number.
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

    /// Locates the columns, which must fill the block exactly, and the keys.
    fn lay_out(
        &self,
        bytes: Bytes,
        seq_override: Option<Seq>,
        take_whole: TakeWhole,
    ) -> Result<Block> {
        let tag_width = u8::from(self.tag == 0);
        let mut at = HEAD_BYTES as u64 + self.key_bytes as u64;
        let mut column = |width: u8, base: u64| {
            // Fewer than 2^32 rows of 8 bytes each: no overflow.
            let start = at;
            at += self.entries as u64 * u64::from(width);
            (start, width, base)
        };
        let key_ends = column(self.key_end_width, 0);
        let seqs = column(self.seq_width, self.seq_base);
        let tags = column(tag_width, u64::from(self.tag));
        let expiries = column(self.expiry_width, self.expiry_base);
        let value_ends = column(self.value_width, 0);
        if at + self.value_bytes as u64 != bytes.len() as u64 {
            return Err(wrong("the parts of a block do not add up to its length"));
        }
        // A part of bytes in memory has a length that fits a usize.
        let place =
            |(start, width, base): (u64, u8, u64)| Column { start: start as usize, width, base };
        let seqs = seq_override.map_or(place(seqs), |seq| Column::constant(seq.get()));
        let seq = |row: usize| Seq(seqs.get(&bytes, row));
        let shape = KeyShape {
            entries: self.entries,
            key_len: self.key_len,
            whole_bytes: self.whole_key_bytes,
            distinct: seq_override.is_some(),
        };
        let region = bytes.get(HEAD_BYTES..HEAD_BYTES + self.key_bytes).unwrap_or_default();
        let keys = if !self.whole {
            Keys::rebuild(&shape, region, seq)?
        } else if region.len() == self.whole_key_bytes {
            let ends = (self.key_end_width > 0).then(|| place(key_ends));
            take_whole(&shape, &bytes, HEAD_BYTES, ends, &seq)?
        } else {
            return Err(wrong("keys do not fill their region of a block"));
        };
        Ok(Block {
            entries: self.entries,
            keys,
            seqs,
            tags: place(tags),
            expiries: place(expiries),
            value_ends: place(value_ends),
            value_len: self.value_bytes / self.entries,
            values: at as usize,
            // A tag of 0, or one with the expiry flag, is not a kind.
            every: Kind::from_byte(self.tag).ok(),
            plain_from: NEVER,
            lent: false,
            bytes,
        })
    }
}

/// Number of rows of a column that may differ.
fn rows(block: &Block, column: &Column) -> usize {
    if column.width == 0 { 1 } else { block.entries }
}

/// The largest of the sequence numbers.
fn newest(block: &Block) -> Result<Seq> {
    let all = 0..rows(block, &block.seqs);
    let most = all.map(|row| block.seqs.delta(&block.bytes, row)).max();
    let most = block.seqs.base.checked_add(most.unwrap_or(0));
    let newest = most.filter(|seq| *seq <= Seq::MAX.get()).map(Seq);
    newest.ok_or_else(|| wrong("impossible sequence number in a block"))
}

/// Checks tags, sequence numbers, expiries and value ends, each column once. Returns the largest
/// sequence number.
fn check_rows(block: &Block) -> Result<Seq> {
    let bytes = &block.bytes;
    let newest = newest(block)?;
    let mut tombstones = false;
    for row in 0..rows(block, &block.tags) {
        match Kind::from_byte(block.tags.get(bytes, row) as u8 & !EXPIRY_FLAG)? {
            Kind::RangeDelete => {
                return Err(Error::unsupported("a block holds range deletes"));
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
    Ok(newest)
}
