//! An open table: its tail in memory, and the computation of which block to read for a key.

use crate::block::{self, Block};
use crate::builder::describe;
use crate::footer::{FOOTER_BYTES, Footer};
use crate::index::Index;
use crate::properties::Properties;
use crate::ranges;
use crate::section::{CHECKSUM_BYTES, SectionPlace};
use bytes::Bytes;
use siltstone_base::envelope::ENVELOPE_BYTES;
use siltstone_base::{Cover, Envelope, Error, ObjectId, RangeDelete, Result, Seq, SstDescriptor};
use siltstone_bloom::{Bloom, DecodeError};
use std::ops::Range;
use std::sync::Arc;

/// A table whose index, filter and properties are in memory. The caller reads data blocks one by
/// one; the table only locates and decodes them.
#[derive(Debug)]
pub struct Table {
    descriptor: SstDescriptor,
    envelope: Envelope,
    properties: Properties,
    filter: Bloom,
    index: Index,
    range_deletes: Arc<Cover>,
}

fn other_table(what: &'static str) -> Error {
    Error::corruption("the object is not the table that its descriptor names").with("part", what)
}

impl Table {
    /// The bytes of the object that are needed to open it: one ranged request.
    #[must_use]
    pub fn tail_range(descriptor: &SstDescriptor) -> Range<u64> {
        descriptor.tail_offset..descriptor.object_bytes
    }

    /// Opens the table that `descriptor` names from the bytes at [`Table::tail_range`].
    ///
    /// # Errors
    /// Corruption if the bytes are damaged, or do not belong to the table that the descriptor
    /// names; Unsupported if a newer version wrote them.
    pub fn open(descriptor: SstDescriptor, tail: Bytes) -> Result<Table> {
        let range = Table::tail_range(&descriptor);
        if range.end.checked_sub(range.start) != Some(tail.len() as u64) {
            return Err(Error::corruption("a table's tail has the wrong length")
                .with("table", descriptor.id)
                .with("bytes", tail.len()));
        }
        let id = descriptor.id;
        Table::assemble(Some(descriptor), range, &tail).map_err(|error| error.with("table", id))
    }

    /// The location of the footer of a table of `object_bytes`, for a table that is read without a
    /// descriptor.
    ///
    /// # Errors
    /// Corruption if the object is too short for a table.
    pub fn footer_range(object_bytes: u64) -> Result<Range<u64>> {
        Footer::range(object_bytes)
    }

    /// The value of [`Table::tail_range`], from the footer's bytes.
    ///
    /// # Errors
    /// Corruption if they are not a table's footer; Unsupported if a newer version wrote it.
    pub fn tail_range_of_footer(object_bytes: u64, footer: &[u8]) -> Result<Range<u64>> {
        Ok(Footer::decode(footer, object_bytes)?.filter..object_bytes)
    }

    /// Opens a table without a descriptor, from the bytes at [`Table::tail_range_of_footer`]. The
    /// descriptor is rebuilt from the properties of the table.
    ///
    /// # Errors
    /// As [`Table::open`].
    pub fn open_alone(object_bytes: u64, tail: Bytes) -> Result<Table> {
        let start = object_bytes.checked_sub(tail.len() as u64);
        let start = start.ok_or_else(|| Error::corruption("a tail is longer than its object"))?;
        Table::assemble(None, start..object_bytes, &tail)
    }

    fn assemble(
        descriptor: Option<SstDescriptor>,
        range: Range<u64>,
        tail: &[u8],
    ) -> Result<Table> {
        let footer = Footer::decode(tail, range.end)?;
        if footer.filter != range.start {
            return Err(other_table("tail offset"));
        }
        let section = |what: &'static str, start: u64, end: u64| -> Result<&[u8]> {
            // Offsets were checked to ascend within the tail.
            let from = (start - range.start) as usize;
            let sealed = tail.get(from..(end - range.start) as usize).unwrap_or_default();
            let place = SectionPlace { object: footer.envelope.object, offset: start };
            let len = place.open(what, sealed)?;
            Ok(sealed.get(..len).unwrap_or_default())
        };
        let filter = decode_filter(section("filter", footer.filter, footer.index)?)?;
        let properties = section("properties", footer.properties, footer.offset)?;
        let properties = Properties::decode(properties)?;
        let ranges_at = ranges_start(&footer, &properties)?;
        let index = section("index", footer.index, ranges_at)?;
        let mut index = Index::decode(index, footer.filter)?;
        let own_bytes = tail.get(tail.len() - FOOTER_BYTES as usize..).unwrap_or_default();
        let checksum = footer.object_checksum(own_bytes);
        let own = describe(&properties, &footer.envelope, range.end, range.start, checksum);
        let descriptor = match descriptor {
            Some(descriptor) => {
                check_descriptor(&descriptor, &own)?;
                descriptor
            }
            None => own,
        };
        if let Some(seq) = descriptor.seq_override {
            index.override_seq(seq.min(Seq::MAX))?;
        }
        let range_deletes = if properties.range_deletes.is_some() {
            let stored = section("range deletes", ranges_at, footer.properties)?;
            let seq_override = descriptor.seq_override.map(|seq| seq.min(Seq::MAX));
            ranges::decode(stored, seq_override)?
        } else {
            Cover::default()
        };
        let last_keys = range_deletes.list().iter().map(RangeDelete::last_key);
        let last_key = last_keys.max().unwrap_or_default().max(Bytes::from(index.last_key()));
        let starts_inside = |range: &RangeDelete| properties.first_key <= range.start;
        if last_key != properties.last_key || !range_deletes.list().iter().all(starts_inside) {
            return Err(other_table("bounds"));
        }
        // A hidden range delete hides nothing: neither keys of its own table nor of another one.
        let (start, end) = descriptor.in_sight(None, None);
        let range_deletes = range_deletes.within(start, end);
        let envelope = footer.envelope;
        let range_deletes = Arc::new(range_deletes);
        Ok(Table { descriptor, envelope, properties, filter, index, range_deletes })
    }

    /// The descriptor of the table.
    #[must_use]
    pub fn descriptor(&self) -> &SstDescriptor {
        &self.descriptor
    }

    /// Its envelope, with its database and the attempt that wrote it.
    #[must_use]
    pub fn envelope(&self) -> &Envelope {
        &self.envelope
    }

    /// Its range deletes, cut to the visible range. They hide entries that are older than they, in
    /// this table and in older tables and memtables.
    #[must_use]
    #[inline]
    pub fn range_deletes(&self) -> &Arc<Cover> {
        &self.range_deletes
    }

    /// Its properties.
    #[must_use]
    pub fn properties(&self) -> &Properties {
        &self.properties
    }

    /// Its filter. A clone of it shares the memory.
    #[must_use]
    #[inline]
    pub fn filter(&self) -> &Bloom {
        &self.filter
    }

    /// Whether it may contain a user key with this hash ([`siltstone_bloom::key_hash`]).
    #[must_use]
    #[inline]
    pub fn may_contain(&self, hash: u64) -> bool {
        self.filter.may_contain(hash)
    }

    /// The number of data blocks: one or more.
    #[must_use]
    pub fn block_count(&self) -> u32 {
        self.index.len() as u32
    }

    /// The location of a block in the object. Blocks are contiguous, so the ranges of neighbours
    /// can be read together.
    #[must_use]
    pub fn block_range(&self, block: u32) -> Option<Range<u64>> {
        self.index.range(block)
    }

    /// Keys that divide the table into parts of about `every` stored bytes, ascending, each with
    /// the stored bytes since the previous one. They are separators of blocks, not necessarily keys
    /// of entries.
    #[must_use]
    pub fn anchors(&self, every: u64) -> Vec<(Vec<u8>, u64)> {
        self.index.anchors(every)
    }

    /// Stored bytes of the blocks that may contain keys of `[start, end)` (`None`: no bound): never
    /// too few, and at each bound too many by less than a block.
    #[must_use]
    pub fn bytes_between(&self, start: Option<&[u8]>, end: Option<&[u8]>) -> u64 {
        self.index.bytes_between(start, end)
    }

    /// Stored bytes of all blocks of a table.
    #[must_use]
    pub fn bytes_of_blocks(descriptor: &SstDescriptor) -> u64 {
        descriptor.tail_offset.saturating_sub(ENVELOPE_BYTES as u64)
    }

    /// The only block that can contain the first entry at or after `(key, seq)`, or `None` if every
    /// entry is before it.
    ///
    /// If that entry has the user key `key`, it is in this block. If it has another key, it may be
    /// the first entry of the next block: separators are shorter than keys, so a key between two
    /// blocks may lead to the first of them.
    #[must_use]
    pub fn find_block(&self, key: &[u8], seq: Seq) -> Option<u32> {
        self.index.find(key, seq.min(Seq::MAX))
    }

    /// Decodes block number `block` from the bytes at its [`Table::block_range`]. It checks the
    /// checksum, which is bound to this object and location, the structure, the order of the
    /// entries, and that they are within the bounds in the index.
    ///
    /// The result of an uncompressed block keeps `bytes` alive: if they are a small part of a
    /// larger buffer and the block is kept, pass a copy.
    ///
    /// # Errors
    /// Corruption for bytes that are not that block; Unsupported for a codec or an entry kind that
    /// this version does not know; Invalid if the table has no such block.
    pub fn decode_block(&self, block: u32, bytes: Bytes) -> Result<Block> {
        let range = self.index.range(block).ok_or_else(|| {
            Error::invalid("no such block").with("table", self.descriptor.id).with("block", block)
        })?;
        self.decode_at(block, range, bytes)
            .map_err(|error| error.with("table", self.descriptor.id).with("block", block))
    }

    /// As [`Table::decode_block`], for `bytes` that are not this process's own memory: those of a
    /// mapped file. The block is read in place, and its memory does not include them
    /// ([`Block::memory_bytes`]). `None` for a compressed block.
    ///
    /// `checked`: this very memory was decoded as this block before. It never changes, so it is not
    /// checked again.
    ///
    /// # Errors
    /// As [`Table::decode_block`].
    pub fn decode_lent(&self, block: u32, bytes: Bytes, checked: bool) -> Result<Option<Block>> {
        if !block::is_plain(&bytes) {
            return Ok(None);
        }
        let decoded = if checked {
            block::decode_again(block::open_again(bytes)?, self.seq_override())?
        } else {
            self.decode_block(block, bytes)?
        };
        Ok(Some(decoded.lent()))
    }

    fn seq_override(&self) -> Option<Seq> {
        self.descriptor.seq_override.map(|seq| seq.min(Seq::MAX))
    }

    fn decode_at(&self, block: u32, range: Range<u64>, bytes: Bytes) -> Result<Block> {
        if bytes.len() as u64 != range.end - range.start {
            return Err(Error::corruption("a block has the wrong length")
                .with("expected", range.end - range.start)
                .with("found", bytes.len()));
        }
        let object = ObjectId(self.descriptor.id.get());
        let raw = block::open(bytes, SectionPlace { object, offset: range.start })?;
        let decoded = block::decode(raw, self.seq_override())?;
        let (position, last) = (block as usize, decoded.len() - 1);
        let starts_right = match position.checked_sub(1) {
            // If there are range deletes, one of them may begin before the first entry.
            None if self.properties.range_deletes.is_none() => {
                decoded.key(0) == self.descriptor.first_key
            }
            None => decoded.key(0) >= self.descriptor.first_key.as_ref(),
            Some(before) => self.index.is_beyond(before, decoded.key(0), decoded.seq(0)),
        };
        if !starts_right || self.index.is_beyond(position, decoded.key(last), decoded.seq(last)) {
            return Err(Error::corruption("entries of a block lie outside its separators"));
        }
        Ok(decoded)
    }

    /// Bytes of memory that index, filter and properties use.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        let keys = 2 * (self.properties.first_key.len() + self.properties.last_key.len());
        let ranges = self.range_deletes.memory_bytes();
        size_of::<Table>() + ranges + self.filter.memory_bytes() + self.index.memory_bytes() + keys
    }
}

/// The offset of the section of range deletes; that of the properties if there is none.
fn ranges_start(footer: &Footer, properties: &Properties) -> Result<u64> {
    let Some((offset, length)) = properties.range_deletes else { return Ok(footer.properties) };
    let fits = offset.checked_add(length) == Some(footer.properties)
        && length > CHECKSUM_BYTES as u64
        && footer.index + CHECKSUM_BYTES as u64 <= offset;
    let text = "the section of range deletes is not between the index and the properties";
    if fits { Ok(offset) } else { Err(Error::corruption(text)) }
}

fn decode_filter(bytes: &[u8]) -> Result<Bloom> {
    Bloom::decode(bytes).map_err(|error| {
        let message = match error {
            DecodeError::Corrupt => Error::corruption("a table's filter is damaged"),
            DecodeError::UnknownVersion(_) => Error::unsupported("a table's filter is too new"),
        };
        message.caused_by(error)
    })
}

/// Compares the descriptor in a manifest with the table's own properties. The location of the
/// table, its visible range and its overriding sequence number are only in the manifest.
fn check_descriptor(named: &SstDescriptor, own: &SstDescriptor) -> Result<()> {
    let seqs = named.seq_override.is_some()
        || (named.min_seq, named.max_seq) == (own.min_seq, own.max_seq);
    let checks = [
        ("object id", named.id == own.id),
        ("length", named.object_bytes == own.object_bytes),
        ("checksum", named.checksum == own.checksum),
        ("first key", named.first_key == own.first_key),
        ("last key", named.last_key == own.last_key),
        ("entries", (named.entries, named.tombstones) == (own.entries, own.tombstones)),
        ("sequence numbers", seqs),
        ("expiry", (named.min_expiry, named.max_expiry) == (own.min_expiry, own.max_expiry)),
        ("range deletes", named.range_deletes == own.range_deletes),
        ("sum", named.sum == own.sum),
    ];
    checks.iter().find(|(_, right)| !right).map_or(Ok(()), |(what, _)| Err(other_table(what)))
}
