//! The encoding of a write batch: the WAL stores these bytes as the payload of a record, and the
//! memtable points into them.
//!
//! ```text
//! batch     := operation*
//! operation := tag key_len value_len [expiry] key value
//! tag       : 1 byte, entry kind in bits 0..7, bit 7 set when an expiry follows
//! key_len   : varint, 1 to 65,535
//! value_len : varint, under 4 GiB; 0 for a tombstone
//! expiry    : 8 bytes little-endian, Unix milliseconds
//! ```
//! The n-th operation (from 0) of a batch committed at first sequence number `s` has sequence
//! number `s + n`.

use crate::bytes_io::Reader;
use crate::entry::{Kind, UnixMillis, check_key, check_value};
use crate::error::{Error, Result};
use crate::limits::MAX_KEY_BYTES;
use crate::range_delete::check_range;
use std::sync::Arc;

const EXPIRY_FLAG: u8 = 0x80;

/// The bytes before the key of an operation.
struct Head {
    bytes: [u8; Head::MOST],
    len: usize,
}

impl Head {
    /// Tag, two varints of numbers under 2^32, expiry.
    const MOST: usize = 1 + 5 + 5 + 8;

    fn new(kind: Kind, key: &[u8], value: &[u8], expires_at: Option<UnixMillis>) -> Head {
        let mut head = Head { bytes: [0; Head::MOST], len: 0 };
        head.push(kind as u8 | if expires_at.is_some() { EXPIRY_FLAG } else { 0 });
        for mut length in [key.len(), value.len()] {
            while length >= 0x80 {
                head.push(length as u8 | 0x80);
                length >>= 7;
            }
            head.push(length as u8);
        }
        for byte in expires_at.map(|at| at.0.to_le_bytes()).into_iter().flatten() {
            head.push(byte);
        }
        head
    }

    #[inline]
    fn push(&mut self, byte: u8) {
        // Checked lengths fit MOST.
        if let Some(slot) = self.bytes.get_mut(self.len) {
            *slot = byte;
            self.len += 1;
        }
    }

    #[inline]
    fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }
}

/// Encodes a batch of one operation in its own buffer, with one allocation.
///
/// # Errors
/// As [`Batch::put`].
pub fn encode_one(
    kind: Kind,
    key: &[u8],
    value: &[u8],
    expires_at: Option<UnixMillis>,
) -> Result<Arc<[u8]>> {
    check_operation(kind, key, value, expires_at)?;
    let head = Head::new(kind, key, value, expires_at);
    Ok(joined(&[head.as_bytes(), key, value]))
}

fn check_operation(
    kind: Kind,
    key: &[u8],
    value: &[u8],
    expires_at: Option<UnixMillis>,
) -> Result<()> {
    check_key(key)?;
    check_value(value)?;
    check_memory(value.len())?;
    match kind {
        Kind::Delete if !value.is_empty() => Err(Error::invalid("a tombstone has no value")),
        Kind::RangeDelete if expires_at.is_some() => {
            Err(Error::invalid("a range delete does not expire"))
        }
        Kind::RangeDelete => check_range(key, value),
        _ => Ok(()),
    }
}

/// Values from this size on are checked by [`check_memory`].
const LARGE_VALUE: usize = 1 << 20;

/// Copies of a value that exist at once while it is written: the batch, the WAL object, and a block
/// of a table before and after its compression.
const COPIES: usize = 4;

/// Refuses a large value if the process has no address space for the copies of it. Without the
/// check the process aborts when one of these allocations fails. The reserved memory is not
/// touched, and the allocator uses its addresses for the copies.
fn check_memory(value_bytes: usize) -> Result<()> {
    if value_bytes < LARGE_VALUE {
        return Ok(());
    }
    let reserved = Vec::<u8>::new().try_reserve_exact(value_bytes.saturating_mul(COPIES));
    reserved.map_err(|_| {
        Error::no_memory("a value, which a write copies four times").with("bytes", value_bytes)
    })
}

/// Joins pieces in a shared buffer. Batches joined in the order of their sequence numbers read as
/// one batch.
#[must_use]
pub fn joined<T: AsRef<[u8]>>(pieces: &[T]) -> Arc<[u8]> {
    let total = pieces.iter().map(|piece| piece.as_ref().len()).sum();
    // A length known to the iterator makes this one allocation, filled with zeros.
    let mut buffer: Arc<[u8]> = std::iter::repeat_n(0, total).collect();
    if let Some(mut rest) = Arc::get_mut(&mut buffer) {
        for piece in pieces {
            let (here, after) = rest.split_at_mut(piece.as_ref().len());
            here.copy_from_slice(piece.as_ref());
            rest = after;
        }
    }
    buffer
}

/// A position in a [`Batch`], after some of its operations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BatchMark {
    bytes: usize,
    ops: u32,
    operands: u32,
    open_ends: u32,
}

/// Operations collected for one atomic commit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Batch {
    bytes: Vec<u8>,
    ops: u32,
    operands: u32,
    /// Range deletes that reach to the last key.
    pub(crate) open_ends: u32,
}

impl Batch {
    /// An empty batch.
    #[must_use]
    pub fn new() -> Self {
        Batch::default()
    }

    /// An empty batch with room for `bytes` of encoded operations.
    #[must_use]
    pub fn with_capacity(bytes: usize) -> Self {
        Batch { bytes: Vec::with_capacity(bytes), ..Batch::default() }
    }

    /// Sets `key` to `value`, until `expires_at` if given.
    ///
    /// # Errors
    /// Invalid for an empty or oversized key or value; the batch is then unchanged.
    pub fn put(&mut self, key: &[u8], value: &[u8], expires_at: Option<UnixMillis>) -> Result<()> {
        self.push(Kind::Put, key, value, expires_at)
    }

    /// Deletes `key`.
    ///
    /// # Errors
    /// As [`Batch::put`].
    pub fn delete(&mut self, key: &[u8]) -> Result<()> {
        self.push(Kind::Delete, key, &[], None)
    }

    /// Adds a merge operand to `key`.
    ///
    /// # Errors
    /// As [`Batch::put`].
    pub fn merge(
        &mut self,
        key: &[u8],
        operand: &[u8],
        expires_at: Option<UnixMillis>,
    ) -> Result<()> {
        self.push(Kind::Merge, key, operand, expires_at)
    }

    /// Deletes every key of `[start, end)`.
    ///
    /// # Errors
    /// Invalid if `start` or `end` is not a valid key, or `start` is not below `end`.
    pub fn delete_range(&mut self, start: &[u8], end: &[u8]) -> Result<()> {
        self.push(Kind::RangeDelete, start, end, None)
    }

    /// Appends one operation of any kind.
    ///
    /// # Errors
    /// As [`Batch::put`].
    pub fn push(
        &mut self,
        kind: Kind,
        key: &[u8],
        value: &[u8],
        expires_at: Option<UnixMillis>,
    ) -> Result<()> {
        check_operation(kind, key, value, expires_at)?;
        let ops = self.ops.checked_add(1);
        let ops = ops.ok_or_else(|| Error::invalid("a batch has at most 2^32 - 1 operations"))?;
        let head = Head::new(kind, key, value, expires_at);
        let needed = head.len + key.len() + value.len();
        self.bytes.try_reserve(needed).map_err(|_| Error::no_memory("a batch"))?;
        self.bytes.extend_from_slice(head.as_bytes());
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(value);
        self.ops = ops;
        self.operands += u32::from(kind == Kind::Merge);
        Ok(())
    }

    /// The number of merge operands among its operations.
    #[must_use]
    pub fn operands(&self) -> u32 {
        self.operands
    }

    /// The number of operations, which is the number of its sequence numbers.
    #[must_use]
    pub fn ops(&self) -> u32 {
        self.ops
    }

    /// Whether it has no operations.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ops == 0
    }

    /// The encoded operations.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The position after the last operation.
    #[must_use]
    pub fn mark(&self) -> BatchMark {
        BatchMark {
            bytes: self.bytes.len(),
            ops: self.ops,
            operands: self.operands,
            open_ends: self.open_ends,
        }
    }

    /// Removes the operations after `mark`, which must be a mark of this batch, and keeps the
    /// memory. A mark of a longer batch changes nothing.
    pub fn cut_back(&mut self, mark: BatchMark) {
        if mark.bytes <= self.bytes.len() && mark.ops <= self.ops {
            self.bytes.truncate(mark.bytes);
            self.ops = mark.ops;
            self.operands = mark.operands;
            self.open_ends = mark.open_ends;
        }
    }

    /// Removes all operations and keeps the memory.
    pub fn clear(&mut self) {
        self.cut_back(BatchMark::default());
    }
}

/// One operation, borrowed from encoded bytes, with its position in them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchOp<'a> {
    /// The kind of operation.
    pub kind: Kind,
    /// Expiry.
    pub expires_at: Option<UnixMillis>,
    /// User key.
    pub key: &'a [u8],
    /// Value or operand; the end of a range delete.
    pub value: &'a [u8],
    /// Offset of the key in the encoded bytes; the value follows it directly.
    pub key_offset: usize,
}

/// Iterates over encoded operations; stops after the first error.
#[derive(Clone, Debug)]
pub struct BatchOps<'a> {
    reader: Reader<'a>,
}

impl<'a> BatchOps<'a> {
    /// Over `bytes`, as returned by [`Batch::as_bytes`].
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Self {
        BatchOps { reader: Reader::new(bytes) }
    }

    #[inline]
    fn decode(&mut self) -> Result<BatchOp<'a>> {
        let reader = &mut self.reader;
        let tag = reader.u8()?;
        let kind = Kind::from_byte(tag & !EXPIRY_FLAG)?;
        let key_len = reader.length()?;
        if key_len == 0 || key_len > MAX_KEY_BYTES {
            let error = Error::corruption("impossible key length in a batch");
            return Err(error.with("bytes", key_len));
        }
        let value_len = reader.length()?;
        if kind == Kind::Delete && value_len != 0 {
            // A table refuses it, so it must be found before a flush.
            return Err(Error::corruption("a tombstone has a value").with("bytes", value_len));
        }
        let expires_at =
            if tag & EXPIRY_FLAG == 0 { None } else { Some(UnixMillis(reader.u64()?)) };
        let key_offset = reader.position();
        let key = reader.take(key_len)?;
        let value = reader.take(value_len)?;
        if kind == Kind::RangeDelete && (expires_at.is_some() || check_range(key, value).is_err()) {
            return Err(Error::corruption("impossible range delete in a batch"));
        }
        Ok(BatchOp { kind, expires_at, key, value, key_offset })
    }
}

impl<'a> Iterator for BatchOps<'a> {
    type Item = Result<BatchOp<'a>>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.reader.is_empty() {
            return None;
        }
        let op = self.decode();
        if op.is_err() {
            self.reader = Reader::new(&[]);
        }
        Some(op)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_round_trip() {
        let mut batch = Batch::new();
        let pushed = [
            batch.put(b"k", b"v", None),
            batch.put(b"kk", b"", Some(UnixMillis(9))),
            batch.delete(b"k"),
            batch.merge(b"m", b"1", None),
        ];
        assert!(pushed.iter().all(Result::is_ok));
        assert!(batch.put(b"", b"v", None).is_err());
        assert_eq!(batch.ops(), 4);
        let ops: Vec<_> = BatchOps::new(batch.as_bytes())
            .filter_map(Result::ok)
            .map(|op| (op.kind, op.key.to_vec(), op.value.to_vec(), op.expires_at))
            .collect();
        assert_eq!(
            ops,
            vec![
                (Kind::Put, b"k".to_vec(), b"v".to_vec(), None),
                (Kind::Put, b"kk".to_vec(), vec![], Some(UnixMillis(9))),
                (Kind::Delete, b"k".to_vec(), vec![], None),
                (Kind::Merge, b"m".to_vec(), b"1".to_vec(), None),
            ]
        );
    }

    #[test]
    fn operations_after_a_mark_are_forgotten() {
        let mut batch = Batch::new();
        assert!(batch.put(b"k", b"v", None).is_ok());
        let (before, mark) = (batch.clone(), batch.mark());
        assert!(batch.merge(b"k", b"w", None).is_ok() && batch.delete(b"l").is_ok());
        let longer = batch.mark();
        batch.cut_back(mark);
        assert_eq!((&batch, batch.operands()), (&before, 0));
        batch.cut_back(longer);
        assert_eq!(batch, before);
        batch.clear();
        assert_eq!(batch, Batch::new());
    }

    #[test]
    fn a_tombstone_has_no_value() {
        let mut batch = Batch::new();
        assert!(batch.push(Kind::Delete, b"k", b"v", None).is_err());
        assert!(batch.is_empty());
        let hostile = [Kind::Delete as u8, 1, 1, b'k', b'v'];
        let kinds: Vec<_> = BatchOps::new(&hostile).map(|op| op.map_err(|e| e.kind())).collect();
        assert_eq!(kinds, [Err(crate::ErrorKind::Corruption)]);
    }

    #[test]
    fn a_range_delete_has_bounds_in_order_and_no_end() {
        let mut batch = Batch::new();
        assert!(batch.delete_range(b"a", b"c").is_ok());
        assert!(batch.delete_range(b"c", b"c").is_err());
        assert!(batch.delete_range(b"d", b"c").is_err());
        assert!(batch.push(Kind::RangeDelete, b"a", b"c", Some(UnixMillis(1))).is_err());
        assert_eq!(batch.ops(), 1);
        let ops: Vec<_> = BatchOps::new(batch.as_bytes()).filter_map(Result::ok).collect();
        assert!(matches!(
            ops[..],
            [BatchOp { kind: Kind::RangeDelete, key: b"a", value: b"c", .. }]
        ));
        let kind = Kind::RangeDelete as u8;
        let expiring = [&[kind | EXPIRY_FLAG, 1, 1][..], &[0; 8], b"ac"].concat();
        for hostile in [&[kind, 1, 1, b'c', b'c'][..], &[kind, 1, 0, b'c'], &expiring] {
            assert!(BatchOps::new(hostile).any(|op| op.is_err()));
        }
    }

    #[test]
    fn one_operation_is_encoded_as_a_batch_of_it() {
        let long = vec![7u8; 70_000];
        let values: [&[u8]; 4] = [b"", b"v", &long[..200], &long];
        for value in values {
            for expires_at in [None, Some(UnixMillis(u64::MAX))] {
                let mut batch = Batch::new();
                let key = &long[..value.len().clamp(1, 65_535)];
                assert!(batch.put(key, value, expires_at).is_ok());
                let one = encode_one(Kind::Put, key, value, expires_at);
                assert_eq!(one.ok().as_deref(), Some(batch.as_bytes()));
            }
        }
        assert!(encode_one(Kind::Put, b"", b"v", None).is_err());
    }

    #[test]
    fn truncation_is_corruption_or_a_shorter_batch() {
        let mut batch = Batch::new();
        let _ = batch.put(b"key", b"value", Some(UnixMillis(1)));
        for cut in 1..batch.as_bytes().len() {
            let bytes = batch.as_bytes().get(..cut).unwrap_or_default();
            assert!(BatchOps::new(bytes).any(|op| op.is_err()), "cut at {cut}");
        }
    }
}
