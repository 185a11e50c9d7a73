//! Collects the entries of one block and encodes its columns.

use super::{EXPIRY_FLAG, WHOLE_KEYS_FACTOR};
use crate::packed::{put, width_of};
use siltstone_base::Entry;
use siltstone_base::bytes_io::put_varint;

/// Estimated bytes of a row besides key suffix and value: two varints, a tag, a sequence number of
/// three bytes, a value end of two. It only decides when a block closes.
const ROW_BYTES: usize = 8;

/// Keys are stored whole unless sharing prefixes makes the block smaller by at least one part in
/// this many: whole keys are searched in place, without the cost of decoding and without memory
/// besides the block's.
const SHARING_SAVES: usize = 16;

/// One entry without its bytes.
#[derive(Clone, Copy)]
struct Row {
    seq: u64,
    /// 0 if the entry does not expire.
    expiry: u64,
    value_end: u32,
    /// Bytes that the key has in common with the previous key in the block.
    shared: u16,
    key_len: u16,
    tag: u8,
}

/// A block under construction. Its memory is reused from block to block.
#[derive(Default)]
pub(crate) struct BlockBuilder {
    rows: Vec<Row>,
    /// All keys, without shared prefixes.
    keys: Vec<u8>,
    /// Bytes of the keys without the parts that each has in common with the previous key.
    suffix_bytes: usize,
    values: Vec<u8>,
}

impl BlockBuilder {
    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The approximate size of the block in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.suffix_bytes + self.values.len() + self.rows.len() * ROW_BYTES
    }

    /// Whether `entry`, whose key shares `shared` bytes with the previous one, still fits into a
    /// block of `target` bytes. The first entry always fits.
    pub(crate) fn fits(&self, entry: &Entry<'_>, shared: usize, target: usize) -> bool {
        let added = entry.key.len() - shared + entry.value.len() + ROW_BYTES;
        let whole_keys = self.keys.len() + entry.key.len();
        self.is_empty()
            || (self.bytes() + added <= target
                && whole_keys <= target.saturating_mul(WHOLE_KEYS_FACTOR))
    }

    /// Appends `entry`, whose key shares `shared` bytes with the previous key. The caller has
    /// checked the entry and its order, and called [`BlockBuilder::fits`].
    pub(crate) fn push(&mut self, entry: &Entry<'_>, shared: usize) {
        // A block starts without shared bytes, so that it can be read alone.
        let shared = if self.is_empty() { 0 } else { shared };
        self.keys.extend_from_slice(entry.key);
        self.suffix_bytes += entry.key.len() - shared;
        self.values.extend_from_slice(entry.value);
        self.rows.push(Row {
            seq: entry.seq.get(),
            expiry: entry.expires_at.map_or(0, |at| at.0),
            // One value is under 4 GiB; several together are below the largest target.
            value_end: self.values.len() as u32,
            shared: shared as u16,
            key_len: entry.key.len() as u16,
            tag: entry.kind as u8 | if entry.expires_at.is_some() { EXPIRY_FLAG } else { 0 },
        });
    }

    /// Removes the entries and keeps the memory.
    pub(crate) fn clear(&mut self) {
        self.rows.clear();
        self.keys.clear();
        self.suffix_bytes = 0;
        self.values.clear();
    }

    /// Appends the block's bytes to `out`: head, keys, columns, values.
    pub(crate) fn encode_into(&self, out: &mut Vec<u8>) {
        let shape = BlockShape::of(&self.rows);
        out.extend_from_slice(&(self.rows.len() as u32).to_le_bytes());
        let key_bytes_at = out.len();
        out.extend_from_slice(&0u32.to_le_bytes());
        out.extend_from_slice(&(self.keys.len() as u32).to_le_bytes());
        out.extend_from_slice(&(self.values.len() as u32).to_le_bytes());
        out.extend_from_slice(&shape.seq_base.to_le_bytes());
        out.extend_from_slice(&shape.expiry_base.to_le_bytes());
        out.extend_from_slice(&shape.key_len.to_le_bytes());
        let widths = [shape.tag, shape.seq_width, shape.expiry_width, shape.value_width];
        out.extend_from_slice(&widths);
        let whole = self.keys_stay_whole(&shape);
        let key_end_width = match (whole, shape.key_len) {
            (true, 0) => width_of(self.keys.len() as u64),
            _ => 0,
        };
        out.extend_from_slice(&[u8::from(whole), key_end_width]);

        let keys_at = out.len();
        if whole {
            out.extend_from_slice(&self.keys);
        } else {
            self.encode_keys(shape.key_len != 0, out);
        }
        let key_bytes = (out.len() - keys_at) as u32;
        if let Some(field) = out.get_mut(key_bytes_at..key_bytes_at + 4) {
            field.copy_from_slice(&key_bytes.to_le_bytes());
        }

        if key_end_width > 0 {
            let mut end = 0;
            for row in &self.rows {
                end += u64::from(row.key_len);
                put(out, end, key_end_width);
            }
        }
        self.encode_columns(&shape, out);
        out.extend_from_slice(&self.values);
    }

    /// Whether sharing prefixes saves less than the [`SHARING_SAVES`]th part of the block.
    fn keys_stay_whole(&self, shape: &BlockShape) -> bool {
        let lengths = if shape.key_len == 0 { self.rows.len() } else { 0 };
        let shared = self.suffix_bytes + self.rows.len() + lengths;
        let block = shared + self.values.len();
        self.keys.len() + lengths <= shared + block / SHARING_SAVES
    }

    fn encode_keys(&self, fixed: bool, out: &mut Vec<u8>) {
        let mut rest = self.keys.as_slice();
        for row in &self.rows {
            let key_len = usize::from(row.key_len);
            let (key, after) = rest.split_at_checked(key_len).unwrap_or((rest, &[]));
            let suffix = key.get(usize::from(row.shared)..).unwrap_or_default();
            put_varint(out, u64::from(row.shared));
            if !fixed {
                put_varint(out, suffix.len() as u64);
            }
            out.extend_from_slice(suffix);
            rest = after;
        }
    }

    fn encode_columns(&self, shape: &BlockShape, out: &mut Vec<u8>) {
        if shape.seq_width > 0 {
            self.rows.iter().for_each(|row| put(out, row.seq - shape.seq_base, shape.seq_width));
        }
        if shape.tag == 0 {
            out.extend(self.rows.iter().map(|row| row.tag));
        }
        if shape.expiry_width > 0 {
            for row in &self.rows {
                // Rows without an expiry store 0 here; their tag tells that.
                put(out, row.expiry.saturating_sub(shape.expiry_base), shape.expiry_width);
            }
        }
        if shape.value_width > 0 {
            let width = shape.value_width;
            self.rows.iter().for_each(|row| put(out, u64::from(row.value_end), width));
        }
    }
}

/// Which columns are constant, and the widths of the others.
struct BlockShape {
    key_len: u16,
    tag: u8,
    seq_base: u64,
    seq_width: u8,
    expiry_base: u64,
    expiry_width: u8,
    value_width: u8,
}

impl BlockShape {
    fn of(rows: &[Row]) -> BlockShape {
        let first = rows.first().map_or((0, 0, 0), |row| (row.key_len, row.tag, row.value_end));
        let (mut key_len, mut tag, value_len) = first;
        let (mut seq_base, mut seq_most) = (u64::MAX, 0);
        let (mut expiry_base, mut expiry_most) = (u64::MAX, 0);
        let (mut one_length, mut value_start) = (true, 0);
        for row in rows {
            key_len = if row.key_len == key_len { key_len } else { 0 };
            tag = if row.tag == tag { tag } else { 0 };
            seq_base = seq_base.min(row.seq);
            seq_most = seq_most.max(row.seq);
            if row.tag & EXPIRY_FLAG != 0 {
                expiry_base = expiry_base.min(row.expiry);
                expiry_most = expiry_most.max(row.expiry);
            }
            one_length &= row.value_end - value_start == value_len;
            value_start = row.value_end;
        }
        let nothing_expires = expiry_base > expiry_most;
        let expiry_base = if nothing_expires { 0 } else { expiry_base };
        BlockShape {
            key_len,
            tag,
            seq_base,
            seq_width: width_of(seq_most - seq_base),
            expiry_base,
            expiry_width: width_of(expiry_most - expiry_base),
            value_width: if one_length { 0 } else { width_of(u64::from(value_start)) },
        }
    }
}
