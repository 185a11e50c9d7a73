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
/// one; the table only says where they lie and decodes them.
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
    /// The bytes of the object that open it: one ranged request.
    #[must_use]
    pub fn tail_range(descriptor: &SstDescriptor) -> Range<u64> {
        descriptor.tail_offset..descriptor.object_bytes
    }

    /// Opens the table that `descriptor` names from the bytes at [`Table::tail_range`].
    ///
    /// # Errors
    /// Corruption when the bytes are damaged, or are not of the table that the descriptor names;
    /// Unsupported when a newer version wrote them.
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

    /// Where the footer of a table of `object_bytes` lies, for a table that is read without a
    /// descriptor.
    ///
    /// # Errors
    /// Corruption when the object is too short for a table.
    pub fn footer_range(object_bytes: u64) -> Result<Range<u64>> {
        Footer::range(object_bytes)
    }

    /// What [`Table::tail_range`] would say, from the footer's bytes.
    ///
    /// # Errors
    /// Corruption when they are not a table's footer; Unsupported when a newer version wrote it.
    pub fn tail_range_of_footer(object_bytes: u64, footer: &[u8]) -> Result<Range<u64>> {
        Ok(Footer::decode(footer, object_bytes)?.filter..object_bytes)
    }

    /// Opens a table without a descriptor, from the bytes at [`Table::tail_range_of_footer`]. The
    /// descriptor is rebuilt from what the table says of itself.
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
            // Offsets were found to ascend within the tail.
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
        // What is out of sight hides nothing: neither its own keys nor another table's.
        #[cfg(not(mutation = "range_deletes_uncut"))]
        let range_deletes = {
            let (start, end) = descriptor.in_sight(None, None);
            range_deletes.within(start, end)
        };
        let envelope = footer.envelope;
        let range_deletes = Arc::new(range_deletes);
        Ok(Table { descriptor, envelope, properties, filter, index, range_deletes })
    }

    /// What the manifest says of it.
    #[must_use]
    pub fn descriptor(&self) -> &SstDescriptor {
        &self.descriptor
    }

    /// Its envelope: whose it is, which attempt wrote it.
    #[must_use]
    pub fn envelope(&self) -> &Envelope {
        &self.envelope
    }

    /// Its range deletes, as far as they are visible. They hide entries that are older than they,
    /// here and in older tables and memtables.
    #[must_use]
    #[inline]
    pub fn range_deletes(&self) -> &Arc<Cover> {
        &self.range_deletes
    }

    /// What it says of itself.
    #[must_use]
    pub fn properties(&self) -> &Properties {
        &self.properties
    }

    /// Its filter. A clone of it is another share.
    #[must_use]
    #[inline]
    pub fn filter(&self) -> &Bloom {
        &self.filter
    }

    /// Whether a user key with this hash ([`siltstone_bloom::key_hash`]) may be in it.
    #[must_use]
    #[inline]
    pub fn may_contain(&self, hash: u64) -> bool {
        self.filter.may_contain(hash)
    }

    /// How many data blocks it has: one or more.
    #[must_use]
    pub fn block_count(&self) -> u32 {
        self.index.len() as u32
    }

    /// Where a block lies in the object. Blocks lie one after another, so the ranges of
    /// neighbours can be read together.
    #[must_use]
    pub fn block_range(&self, block: u32) -> Option<Range<u64>> {
        self.index.range(block)
    }

    /// Keys that cut the table into parts of about `every` stored bytes, ascending, each with the
    /// stored bytes between it and the one before. They are separators of blocks, not necessarily
    /// keys of entries.
    #[must_use]
    pub fn anchors(&self, every: u64) -> Vec<(Vec<u8>, u64)> {
        self.index.anchors(every)
    }

    /// Stored bytes of the blocks that may hold keys of `[start, end)` (`None`: no bound): never
    /// too few, and too many by less than a block at each bound.
    #[must_use]
    pub fn bytes_between(&self, start: Option<&[u8]>, end: Option<&[u8]>) -> u64 {
        self.index.bytes_between(start, end)
    }

    /// Stored bytes of all blocks of a table.
    #[must_use]
    pub fn bytes_of_blocks(descriptor: &SstDescriptor) -> u64 {
        descriptor.tail_offset.saturating_sub(ENVELOPE_BYTES as u64)
    }

    /// The one block that can hold the first entry at or after `(key, seq)`, or `None` when every
    /// entry is before.
    ///
    /// If that entry has the user key `key`, it is in this block. If it has another one, it may be
    /// the first of the block after: separators are shorter than keys, so a key that falls between
    /// two blocks may be sent to the first of them.
    #[must_use]
    pub fn find_block(&self, key: &[u8], seq: Seq) -> Option<u32> {
        self.index.find(key, seq.min(Seq::MAX))
    }

    /// Decodes block number `block` from the bytes at its [`Table::block_range`]. All of it is
    /// checked: its checksum, which is bound to this object and place, its structure, the order of
    /// its entries, and that they lie where the index says.
    ///
    /// The result of an uncompressed block keeps `bytes` alive: hand in a copy where they are a
    /// small part of a larger buffer and the block is to be kept.
    ///
    /// # Errors
    /// Corruption for anything else than that block; Unsupported for a codec or an entry kind that
    /// this version does not know; Invalid for a block that the table does not have.
    pub fn decode_block(&self, block: u32, bytes: Bytes) -> Result<Block> {
        let range = self.index.range(block).ok_or_else(|| {
            Error::invalid("no such block").with("table", self.descriptor.id).with("block", block)
        })?;
        self.decode_at(block, range, bytes)
            .map_err(|error| error.with("table", self.descriptor.id).with("block", block))
    }

    /// As [`Table::decode_block`], of `bytes` that are not this process's own memory: a mapped
    /// file's. The block is read where it lies, and counts none of them
    /// ([`Block::memory_bytes`]). `None` for one that is compressed.
    ///
    /// `checked`: this very memory was decoded as this block before. Nothing changes it, and it is
    /// not checked again.
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
            // Where there are range deletes, one of them may begin before.
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

    /// Bytes of memory that index, filter and properties take.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        let keys = 2 * (self.properties.first_key.len() + self.properties.last_key.len());
        let ranges = self.range_deletes.memory_bytes();
        size_of::<Table>() + ranges + self.filter.memory_bytes() + self.index.memory_bytes() + keys
    }
}

/// Where the range deletes' section starts: at the properties where there is none.
fn ranges_start(footer: &Footer, properties: &Properties) -> Result<u64> {
    let Some((offset, length)) = properties.range_deletes else { return Ok(footer.properties) };
    let fits = offset.checked_add(length) == Some(footer.properties)
        && length > CHECKSUM_BYTES as u64
        && footer.index + CHECKSUM_BYTES as u64 <= offset;
    if fits { Ok(offset) } else { Err(Error::corruption("range deletes lie out of place")) }
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

/// Checks what a manifest says of a table against what the table says of itself. Where it lives,
/// which part of it is visible and at what sequence number it counts are the manifest's alone.
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
