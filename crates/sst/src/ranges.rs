//! The section of a table with its range deletes.
//!
//! ```text
//! count (4) | per range delete: start length (varint) end length (varint) number (8) start end
//! ```
//! Ordered by start; range deletes with the same start are ordered newest first. The section is
//! between index and properties, and is omitted if there are no range deletes.

use siltstone_base::bytes_io::{Reader, put_varint};
use siltstone_base::range_delete::check_range;
use siltstone_base::{Cover, Error, RangeDelete, Result, Seq};

/// Minimum bytes of one range delete: two lengths, a number, two keys of one byte.
const LEAST_BYTES: usize = 2 + 8 + 2;

/// Sorts `ranges` in the stored order.
pub(crate) fn sort(ranges: &mut [RangeDelete]) {
    ranges.sort_unstable_by(|a, b| a.start.cmp(&b.start).then_with(|| b.seq.cmp(&a.seq)));
}

/// Appends the stored form of `ranges`, which are sorted.
pub(crate) fn encode_into(ranges: &[RangeDelete], out: &mut Vec<u8>) {
    // The builder accepts no more.
    out.extend_from_slice(&(ranges.len() as u32).to_le_bytes());
    for range in ranges {
        put_varint(out, range.start.len() as u64);
        put_varint(out, range.end.len() as u64);
        out.extend_from_slice(&range.seq.get().to_le_bytes());
        out.extend_from_slice(&range.start);
        out.extend_from_slice(&range.end);
    }
}

/// Reads the stored form. `seq_override` replaces every number, as for entries.
///
/// # Errors
/// Corruption for bytes that no builder wrote.
pub(crate) fn decode(bytes: &[u8], seq_override: Option<Seq>) -> Result<Cover> {
    let mut reader = Reader::new(bytes);
    let count = reader.u32()? as usize;
    if count == 0 || count > bytes.len() / LEAST_BYTES {
        return Err(impossible());
    }
    let mut ranges: Vec<RangeDelete> = Vec::with_capacity(count);
    for _ in 0..count {
        let (start, end) = (reader.length()?, reader.length()?);
        let seq = Seq(reader.u64()?);
        let (start, end) = (reader.take(start)?, reader.take(end)?);
        let ascends =
            ranges.last().is_none_or(|before| (before.start.as_ref(), seq) < (start, before.seq));
        if seq > Seq::MAX || !ascends || check_range(start, end).is_err() {
            return Err(impossible());
        }
        ranges.push(RangeDelete::new(start, end, seq));
    }
    if !reader.is_empty() {
        return Err(impossible());
    }
    if let Some(seq) = seq_override {
        ranges.iter_mut().for_each(|range| range.seq = seq);
    }
    Ok(Cover::of(ranges))
}

fn impossible() -> Error {
    Error::corruption("impossible range deletes of a table")
}
