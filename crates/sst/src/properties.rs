//! The properties of a table: counts and bounds, sufficient to rebuild its descriptor in a
//! manifest.
//!
//! ```text
//! offset size field
//!      0    8 entries
//!      8    8 tombstones (kind delete)
//!     16    8 merge operands
//!     24    8 smallest sequence number
//!     32    8 largest sequence number
//!     40    8 earliest expiry; 0 where nothing expires
//!     48    8 latest expiry; 0 where an entry never expires
//!     56    8 bytes of all keys
//!     64    8 bytes of all values
//!     72    8 offset of the range deletes' section; 0 where there is none
//!     80    8 length of the range deletes' section, its seal included; 0 where there is none
//!     88    4 block target, bytes
//!     92    4 filter bits per key
//!     96    1 requested codec (each block names its own)
//!     97    1 bit 0: an entry expires; bit 1: every entry expires; others zero
//!     98    2 length of the first key
//!    100    2 length of the last key
//!    102    2 offset of the keys, 128; a reader skips unknown bytes before them
//!    104   16 order-free sum over the entries
//!    120    1 kind of the sum; 0 for no sum
//!    121    7 zero: room
//!    128    n first key, last key
//! ```

use crate::codec::Codec;
use crate::options::TableOptions;
use bytes::Bytes;
use siltstone_base::bytes_io::Reader;
use siltstone_base::entry::check_key;
use siltstone_base::sst::EntrySum;
use siltstone_base::{Entry, Error, Kind, Result, Seq, UnixMillis};

/// Offset of the keys.
const HEAD_BYTES: usize = 128;
/// Zeros at the end of the head.
const ROOM_BYTES: usize = 7;
const SOME_EXPIRE: u8 = 1;
const ALL_EXPIRE: u8 = 2;

/// The properties that a table records about itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Properties {
    /// Entries of all kinds.
    pub entries: u64,
    /// Point tombstones among them.
    pub tombstones: u64,
    /// Merge operands among them.
    pub merge_operands: u64,
    /// Smallest sequence number in the stored bytes.
    pub min_seq: Seq,
    /// Largest sequence number in the stored bytes.
    pub max_seq: Seq,
    /// Earliest expiry of any entry; `None` if none expires.
    pub min_expiry: Option<UnixMillis>,
    /// Latest expiry; `None` if an entry never expires.
    pub max_expiry: Option<UnixMillis>,
    /// Bytes of all keys, without compression of prefixes.
    pub key_bytes: u64,
    /// Bytes of all values.
    pub value_bytes: u64,
    /// The options with which it was built.
    pub options: TableOptions,
    /// Smallest user key, of entries and range deletes.
    pub first_key: Bytes,
    /// Largest user key of entries, or largest end of range deletes.
    pub last_key: Bytes,
    /// Offset and length of the section of range deletes; `None` if there is none.
    pub range_deletes: Option<(u64, u64)>,
    /// Order-independent sum over the entries; `None` if there is none.
    pub sum: Option<EntrySum>,
}

/// Counts entries as they are added.
#[derive(Clone, Debug)]
pub(crate) struct Counts {
    pub(crate) entries: u64,
    tombstones: u64,
    merge_operands: u64,
    pub(crate) min_seq: Seq,
    pub(crate) max_seq: Seq,
    expiring: u64,
    min_expiry: UnixMillis,
    max_expiry: UnixMillis,
    key_bytes: u64,
    value_bytes: u64,
}

impl Counts {
    pub(crate) fn new() -> Counts {
        Counts {
            entries: 0,
            tombstones: 0,
            merge_operands: 0,
            min_seq: Seq(u64::MAX),
            max_seq: Seq(0),
            expiring: 0,
            min_expiry: UnixMillis(u64::MAX),
            max_expiry: UnixMillis(0),
            key_bytes: 0,
            value_bytes: 0,
        }
    }

    pub(crate) fn add(&mut self, entry: &Entry<'_>) {
        self.entries += 1;
        self.tombstones += u64::from(entry.kind == Kind::Delete);
        self.merge_operands += u64::from(entry.kind == Kind::Merge);
        self.min_seq = self.min_seq.min(entry.seq);
        self.max_seq = self.max_seq.max(entry.seq);
        if let Some(at) = entry.expires_at {
            self.expiring += 1;
            self.min_expiry = self.min_expiry.min(at);
            self.max_expiry = self.max_expiry.max(at);
        }
        self.key_bytes += entry.key.len() as u64;
        self.value_bytes += entry.value.len() as u64;
    }

    pub(crate) fn into_properties(
        self,
        options: TableOptions,
        first_key: Bytes,
        last_key: Bytes,
    ) -> Properties {
        Properties {
            entries: self.entries,
            tombstones: self.tombstones,
            merge_operands: self.merge_operands,
            min_seq: self.min_seq,
            max_seq: self.max_seq,
            min_expiry: (self.expiring > 0).then_some(self.min_expiry),
            max_expiry: (self.expiring == self.entries).then_some(self.max_expiry),
            key_bytes: self.key_bytes,
            value_bytes: self.value_bytes,
            options,
            first_key,
            last_key,
            range_deletes: None,
            sum: None,
        }
    }
}

impl Properties {
    pub(crate) fn encode_into(&self, out: &mut Vec<u8>) {
        let expiry = |at: Option<UnixMillis>| at.map_or(0, |at| at.0);
        let words = [
            self.entries,
            self.tombstones,
            self.merge_operands,
            self.min_seq.get(),
            self.max_seq.get(),
            expiry(self.min_expiry),
            expiry(self.max_expiry),
            self.key_bytes,
            self.value_bytes,
            self.range_deletes.map_or(0, |(offset, _)| offset),
            self.range_deletes.map_or(0, |(_, length)| length),
        ];
        words.iter().for_each(|word| out.extend_from_slice(&word.to_le_bytes()));
        // The builder limits the target to 64 MiB and stores the bits in four bytes.
        out.extend_from_slice(&(self.options.block_bytes as u32).to_le_bytes());
        out.extend_from_slice(&self.options.filter_bits_per_key.to_le_bytes());
        let some = if self.min_expiry.is_some() { SOME_EXPIRE } else { 0 };
        let all = if self.max_expiry.is_some() { ALL_EXPIRE } else { 0 };
        out.extend_from_slice(&[self.options.codec as u8, some | all]);
        out.extend_from_slice(&(self.first_key.len() as u16).to_le_bytes());
        out.extend_from_slice(&(self.last_key.len() as u16).to_le_bytes());
        out.extend_from_slice(&(HEAD_BYTES as u16).to_le_bytes());
        let (kind, bits) = self.sum.map_or((0, 0), |sum| (sum.kind, sum.bits));
        out.extend_from_slice(&bits.to_be_bytes());
        out.push(kind);
        out.extend_from_slice(&[0; ROOM_BYTES]);
        out.extend_from_slice(&self.first_key);
        out.extend_from_slice(&self.last_key);
    }

    /// Reads the stored form.
    ///
    /// # Errors
    /// Corruption for bytes that no builder wrote; Unsupported for an unknown codec or flag, or if
    /// space that is reserved in this version is used.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Properties> {
        let mut reader = Reader::new(bytes);
        let mut properties = Properties {
            entries: reader.u64()?,
            tombstones: reader.u64()?,
            merge_operands: reader.u64()?,
            min_seq: Seq(reader.u64()?),
            max_seq: Seq(reader.u64()?),
            min_expiry: Some(UnixMillis(reader.u64()?)),
            max_expiry: Some(UnixMillis(reader.u64()?)),
            key_bytes: reader.u64()?,
            value_bytes: reader.u64()?,
            options: TableOptions::default(),
            first_key: Bytes::new(),
            last_key: Bytes::new(),
            range_deletes: None,
            sum: None,
        };
        let place = (reader.u64()?, reader.u64()?);
        properties.range_deletes = (place != (0, 0)).then_some(place);
        properties.options.block_bytes = reader.u32()? as usize;
        properties.options.filter_bits_per_key = reader.u32()?;
        properties.options.codec = Codec::from_byte(reader.u8()?)?;
        let flags = reader.u8()?;
        let first_len = usize::from(reader.u16()?);
        let last_len = usize::from(reader.u16()?);
        let head_bytes = usize::from(reader.u16()?);
        let (bits, kind) = (reader.u128_be()?, reader.u8()?);
        properties.sum = (kind != 0).then_some(EntrySum { kind, bits });
        let room = reader.array::<ROOM_BYTES>()?;
        if room != [0; ROOM_BYTES] || flags & !(SOME_EXPIRE | ALL_EXPIRE) != 0 {
            return Err(Error::unsupported(
                "properties of a table that this version does not know",
            )
            .with("flags", flags));
        }
        let more = head_bytes.checked_sub(HEAD_BYTES);
        reader.take(more.ok_or_else(|| Error::corruption("properties without an end"))?)?;
        properties.first_key = Bytes::copy_from_slice(reader.take(first_len)?);
        properties.last_key = Bytes::copy_from_slice(reader.take(last_len)?);
        if flags & SOME_EXPIRE == 0 {
            properties.min_expiry = None;
        }
        if flags & ALL_EXPIRE == 0 {
            properties.max_expiry = None;
        }
        let no_sum = kind == 0 && bits != 0;
        if no_sum || !reader.is_empty() || !properties.are_possible() {
            return Err(Error::corruption("impossible properties of a table"));
        }
        Ok(properties)
    }

    fn are_possible(&self) -> bool {
        let kinds = self.tombstones.checked_add(self.merge_operands);
        check_key(&self.first_key).is_ok()
            && check_key(&self.last_key).is_ok()
            && self.entries > 0
            && kinds.is_some_and(|kinds| kinds <= self.entries)
            && self.min_seq <= self.max_seq
            && self.max_seq <= Seq::MAX
            && self.first_key <= self.last_key
            && (self.max_expiry.is_none() || self.min_expiry.is_some())
            && self.max_expiry.is_none_or(|latest| self.min_expiry <= Some(latest))
    }
}
