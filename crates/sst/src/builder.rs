//! Builds a table from entries in internal order, and returns its bytes while it grows.

use crate::block::{BlockBuilder, BlockWriter, MAX_BLOCK_TARGET};
use crate::footer::Footer;
use crate::index::{IndexBuilder, Separator};
use crate::options::TableOptions;
use crate::properties::{Counts, Properties};
use crate::ranges;
use crate::section::SectionPlace;
use bytes::Bytes;
use siltstone_base::entry::{check_key, check_value};
use siltstone_base::envelope::ENVELOPE_BYTES;
use siltstone_base::prefix::shared_prefix;
use siltstone_base::range_delete::check_range;
use siltstone_base::sst::SstLocation;
use siltstone_base::{
    Entry, Envelope, Error, Kind, ObjectKind, RangeDelete, Result, Seq, SstDescriptor, SstId,
    checksum,
};
use siltstone_bloom::{BloomBuilder, key_hash};

/// Estimated bytes of the sections and checksums of a table besides filter and index: usually two
/// keys and some numbers.
const SMALL_SECTIONS_BYTES: usize = 4 << 10;

/// Memory that a builder needs besides the bytes of its table: 8 bytes for each key of a filter,
/// and the separators of its blocks. Kept from table to table it costs nothing; if each table
/// allocated it again, its fresh pages would cost a compaction a tenth of its time.
#[derive(Default)]
pub struct TableScratch {
    block: BlockBuilder,
    writer: BlockWriter,
    index: IndexBuilder,
    filter: BloomBuilder,
}

impl TableScratch {
    /// Removes the data of the last table.
    fn restart(&mut self, options: TableOptions) {
        self.block.clear();
        self.index.clear();
        self.filter.restart(options.filter_bits_per_key);
    }
}

/// A table whose bytes are complete.
pub struct FinishedTable {
    /// The bytes that were not taken: the end of the object.
    pub rest: Vec<u8>,
    /// The descriptor of the object for a manifest.
    pub table: SstDescriptor,
    /// For the next table.
    pub scratch: TableScratch,
}

/// Builds one table. Entries come in strictly ascending internal order. Bytes can be taken as soon
/// as blocks are finished, so a table of any size needs only the memory of its metadata and one
/// chunk.
pub struct TableBuilder {
    options: TableOptions,
    envelope: Envelope,
    /// Finished bytes that were not taken yet.
    out: Vec<u8>,
    /// Bytes taken.
    taken: u64,
    /// CRC32C of the bytes taken.
    taken_checksum: u32,
    scratch: TableScratch,
    counts: Counts,
    first_key: Bytes,
    last_key: Vec<u8>,
    last_seq: Seq,
    ranges: Vec<RangeDelete>,
}

impl TableBuilder {
    /// Starts a table. `envelope` is of kind table, and its object id is the table's id.
    #[must_use]
    pub fn new(options: TableOptions, envelope: Envelope) -> Self {
        TableBuilder::reusing(TableScratch::default(), options, envelope)
    }

    /// As [`TableBuilder::new`], with the memory of a previous table.
    #[must_use]
    pub fn reusing(mut scratch: TableScratch, options: TableOptions, envelope: Envelope) -> Self {
        let block_bytes = options.block_bytes.clamp(1, MAX_BLOCK_TARGET);
        scratch.restart(options);
        TableBuilder {
            options: TableOptions { block_bytes, ..options },
            envelope,
            out: envelope.encode().to_vec(),
            taken: 0,
            taken_checksum: 0,
            scratch,
            counts: Counts::new(),
            first_key: Bytes::new(),
            last_key: Vec::new(),
            last_seq: Seq(0),
            ranges: Vec::new(),
        }
    }

    /// Appends an entry.
    ///
    /// # Errors
    /// Invalid, with the table unchanged, if the entry is not strictly after the previous one in
    /// internal order, if key, value or sequence number exceed a limit, if a tombstone has a value,
    /// for a range delete, which has its own section, or if the envelope is not a table's. Internal
    /// if a codec fails; the table is then unusable.
    pub fn add(&mut self, entry: &Entry<'_>) -> Result<()> {
        check_entry(entry)?;
        let shared = shared_prefix(&self.last_key, entry.key);
        let same_key = shared == entry.key.len() && shared == self.last_key.len();
        if self.counts.entries == 0 {
            self.check_envelope()?;
            self.first_key = Bytes::copy_from_slice(entry.key);
        } else {
            self.check_order(entry, shared)?;
            if !self.scratch.block.fits(entry, shared, self.options.block_bytes) {
                self.close_block_before(entry, shared, same_key)?;
            }
        }
        self.scratch.block.push(entry, shared);
        if !same_key {
            self.scratch.filter.add(key_hash(entry.key));
            self.last_key.truncate(shared);
            self.last_key.extend_from_slice(entry.key.get(shared..).unwrap_or_default());
        }
        self.last_seq = entry.seq;
        self.counts.add(entry);
        Ok(())
    }

    /// Adds range deletes, in any order. They hide nothing in this table by themselves: readers
    /// apply them first.
    ///
    /// # Errors
    /// Invalid, with the table unchanged, if bounds or sequence number of one exceed a limit, or
    /// for more than 2^32 - 1 range deletes.
    pub fn add_range_deletes(&mut self, ranges: &[RangeDelete]) -> Result<()> {
        for range in ranges {
            check_range(&range.start, &range.end)?;
            check_seq(range.seq)?;
        }
        if u32::try_from(self.ranges.len() + ranges.len()).is_err() {
            return Err(Error::invalid("a table has under 2^32 range deletes"));
        }
        self.ranges.extend_from_slice(ranges);
        Ok(())
    }

    /// The finished bytes that were not taken yet, if there are at least `min_bytes` (and one). The
    /// chunks in order, followed by the rest returned by [`TableBuilder::finish`], are the object.
    pub fn take_chunk(&mut self, min_bytes: usize) -> Option<Bytes> {
        self.take_chunk_for(min_bytes, Vec::with_capacity).map(Bytes::from)
    }

    /// As [`TableBuilder::take_chunk`]; later bytes are written to the empty buffer that `next`
    /// returns for a requested capacity, which is the length of the bytes that are taken now.
    pub fn take_chunk_for(
        &mut self,
        min_bytes: usize,
        next: impl FnOnce(usize) -> Vec<u8>,
    ) -> Option<Vec<u8>> {
        if self.out.is_empty() || self.out.len() < min_bytes {
            return None;
        }
        let next = next(self.out.len());
        let chunk = std::mem::replace(&mut self.out, next);
        self.taken += chunk.len() as u64;
        self.taken_checksum = checksum::extend(self.taken_checksum, &chunk);
        Some(chunk)
    }

    /// The same table, with reserved memory for the filter of this many keys.
    #[must_use]
    pub fn expecting(mut self, keys: usize) -> Self {
        self.scratch.filter.reserve(keys);
        self
    }

    /// The same table, which writes its next bytes to `buffer`, which is empty.
    #[must_use]
    pub fn writing_into(mut self, mut buffer: Vec<u8>) -> Self {
        buffer.append(&mut self.out);
        self.out = buffer;
        self
    }

    /// Whether the rest of the table fits into the buffer of the bytes that were not taken.
    #[must_use]
    pub fn has_room_for_tail(&self) -> bool {
        let TableScratch { block, filter, index, .. } = &self.scratch;
        let tail = filter.encoded_len() + index.encoded_len() + SMALL_SECTIONS_BYTES;
        self.out.capacity() - self.out.len() >= block.bytes() + tail
    }

    /// The approximate length of the object, in bytes, if it were finished now without filter and
    /// index. A caller compares it with its target size.
    #[must_use]
    pub fn bytes_so_far(&self) -> u64 {
        self.written() + self.scratch.block.bytes() as u64
    }

    /// The number of added entries.
    #[must_use]
    pub fn entries(&self) -> u64 {
        self.counts.entries
    }

    /// The last added key; empty if there is none.
    #[must_use]
    pub fn last_key(&self) -> &[u8] {
        &self.last_key
    }

    /// Ends the table: returns the bytes not taken yet, and the descriptor for a manifest.
    ///
    /// # Errors
    /// Invalid if nothing was added, not even a range delete; Internal if a codec fails.
    pub fn finish(self) -> Result<(Bytes, SstDescriptor)> {
        let FinishedTable { rest, table, .. } = self.finish_for_next()?;
        Ok((Bytes::from(rest), table))
    }

    /// As [`TableBuilder::finish`], and returns the memory for the next table.
    ///
    /// # Errors
    /// As [`TableBuilder::finish`].
    pub fn finish_for_next(mut self) -> Result<FinishedTable> {
        ranges::sort(&mut self.ranges);
        if self.counts.entries == 0 {
            let first = self.ranges.first().cloned();
            let first = first.ok_or_else(|| Error::invalid("a table has at least one entry"))?;
            // A table must have an entry. This one repeats the effect of the range delete on its
            // start. It is not a change: the change feed leaves it out.
            let (key, seq, kind) = (first.start.as_ref(), first.seq, Kind::Delete);
            self.add(&Entry { key, seq, kind, expires_at: None, value: &[] })?;
        }
        let last_key = std::mem::take(&mut self.last_key);
        self.close_block(Separator::Exact(&last_key, self.last_seq))?;
        let mut properties = self.counts.clone().into_properties(
            self.options,
            self.first_key.clone(),
            Bytes::from(last_key),
        );
        for range in &self.ranges {
            properties.first_key = properties.first_key.min(range.start.clone());
            properties.last_key = properties.last_key.max(range.last_key());
            properties.min_seq = properties.min_seq.min(range.seq);
            properties.max_seq = properties.max_seq.max(range.seq);
        }
        let tail_offset = self.write_tail(&mut properties);
        let checksum = checksum::extend(self.taken_checksum, &self.out);
        let object_bytes = self.written();
        let table = describe(&properties, &self.envelope, object_bytes, tail_offset, checksum);
        Ok(FinishedTable { rest: self.out, table, scratch: self.scratch })
    }

    /// Bytes written so far, taken or not: the offset of the next byte.
    fn written(&self) -> u64 {
        self.taken + self.out.len() as u64
    }

    fn place(&self) -> SectionPlace {
        SectionPlace { object: self.envelope.object, offset: self.written() }
    }

    fn check_envelope(&self) -> Result<()> {
        if self.envelope.kind == ObjectKind::Table {
            return Ok(());
        }
        Err(Error::invalid("a table's envelope must be of kind table"))
    }

    fn check_order(&self, entry: &Entry<'_>, shared: usize) -> Result<()> {
        let ascends = match (self.last_key.get(shared), entry.key.get(shared)) {
            (None, None) => entry.seq < self.last_seq,
            (before, now) => before < now,
        };
        if ascends {
            return Ok(());
        }
        Err(Error::invalid("entries must come in strictly ascending internal order")
            .with("sequence number", entry.seq)
            .with("sequence number before", self.last_seq))
    }

    fn close_block_before(&mut self, next: &Entry<'_>, shared: usize, same: bool) -> Result<()> {
        if !same {
            let end = next.key.len().min(shared + 1);
            return self.close_block(Separator::Shortened(next.key.get(..end).unwrap_or_default()));
        }
        self.close_block(Separator::Exact(next.key, self.last_seq))
    }

    fn close_block(&mut self, separator: Separator<'_>) -> Result<()> {
        let place = self.place();
        let stored = self.scratch.writer.append(
            &self.scratch.block,
            self.options.codec,
            place,
            &mut self.out,
        )?;
        self.scratch.block.clear();
        self.scratch.index.add(stored, separator)
    }

    /// Writes filter, index, range deletes, properties and footer; returns the offset of the tail.
    fn write_tail(&mut self, properties: &mut Properties) -> u64 {
        let TableScratch { filter, index, .. } = &self.scratch;
        self.out.reserve(filter.encoded_len() + index.encoded_len());
        let filter_offset = self.section(|out, scratch| scratch.filter.encode_into(out));
        let index_offset = self.section(|out, scratch| scratch.index.encode_into(out));
        if !self.ranges.is_empty() {
            let ranges = std::mem::take(&mut self.ranges);
            let offset = self.section(|out, _| ranges::encode_into(&ranges, out));
            properties.range_deletes = Some((offset, self.written() - offset));
        }
        let properties_offset = self.section(|out, _| properties.encode_into(out));
        let footer = Footer {
            envelope: self.envelope,
            filter: filter_offset,
            index: index_offset,
            properties: properties_offset,
            offset: self.written(),
            body_checksum: checksum::extend(self.taken_checksum, &self.out),
        };
        self.out.extend_from_slice(&footer.encode());
        filter_offset
    }

    /// Appends a section and its checksum; returns its offset.
    fn section(&mut self, write: impl FnOnce(&mut Vec<u8>, &mut TableScratch)) -> u64 {
        let place = self.place();
        let from = self.out.len();
        write(&mut self.out, &mut self.scratch);
        place.seal(&mut self.out, from);
        place.offset
    }
}

fn check_entry(entry: &Entry<'_>) -> Result<()> {
    check_key(entry.key)?;
    check_value(entry.value)?;
    check_seq(entry.seq)?;
    match entry.kind {
        Kind::Put | Kind::Merge => Ok(()),
        Kind::Delete if entry.value.is_empty() => Ok(()),
        Kind::Delete => Err(Error::invalid("a tombstone has no value")),
        Kind::RangeDelete => Err(Error::invalid("a range delete is no entry of a table")),
    }
}

fn check_seq(seq: Seq) -> Result<()> {
    if seq > Seq::MAX {
        return Err(Error::invalid("a sequence number is below 2^56").with("given", seq));
    }
    Ok(())
}

/// The descriptor of a table with these properties.
pub(crate) fn describe(
    properties: &Properties,
    envelope: &Envelope,
    object_bytes: u64,
    tail_offset: u64,
    checksum: u32,
) -> SstDescriptor {
    debug_assert!(tail_offset >= ENVELOPE_BYTES as u64);
    SstDescriptor {
        id: SstId(envelope.object.get()),
        location: SstLocation::Own,
        job: None,
        object_bytes,
        checksum,
        tail_offset,
        first_key: properties.first_key.clone(),
        last_key: properties.last_key.clone(),
        visible_start: None,
        visible_end: None,
        seq_override: None,
        entries: properties.entries,
        tombstones: properties.tombstones,
        min_seq: properties.min_seq,
        max_seq: properties.max_seq,
        min_expiry: properties.min_expiry,
        max_expiry: properties.max_expiry,
        range_deletes: properties.range_deletes,
        sum: properties.sum,
    }
}
