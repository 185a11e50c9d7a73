//! The inner loop: merges entries of the inputs, as far as retention keeps them, into tables. It is
//! synchronous and returns when blocks are missing or bytes are ready to be sent.

use crate::readahead::inputs::RunInputs;
use bytes::Bytes;
use siltstone_base::entry::key_after;
use siltstone_base::limits::MAX_KEY_BYTES;
use siltstone_base::{BlockAddr, Entry, RangeDelete, Result, Step};
use siltstone_merge::{Merge, Retain, RunCursor, VisitControl};
use siltstone_sst::TableBuilder;
use siltstone_store::Upload;
use siltstone_store::buffers::Buffers;

/// Why the merge returned.
pub(super) enum MergeStop {
    /// Blocks are missing: see [`Merging::needed`].
    NeedsBlocks,
    /// Bytes of the table, to be sent.
    Chunk(Bytes),
    /// The table ends here. The current entry belongs to the next one.
    TableEnds,
    /// No entries are left.
    End,
}

/// The result of a slice.
pub(super) struct Slice {
    /// Bytes that the store has accepted.
    pub(super) written: u64,
    /// Why the merge returned; `None` if the caller told it to stop.
    pub(super) made: Option<MergeStop>,
}

/// The keys at which tables end. A table never ends between versions of a key, because tables of a
/// run share no key.
#[derive(Clone, Copy, Debug)]
pub(super) struct TableEnds {
    /// Size at which a table ends, in bytes.
    pub(super) target_bytes: u64,
    /// A table ends where this number of leading key bytes changes; 0 means nowhere.
    pub(super) cut_prefix_bytes: usize,
    /// Bytes that are built before the merge may return: the size of a chunk.
    pub(super) chunk_bytes: usize,
    /// Estimated number of entries of a table.
    pub(super) entries_a_table: usize,
}

/// A merge of one key range in progress.
pub(super) struct Merging {
    rows: Retain<Merge<RunCursor<RunInputs>>>,
    ends: TableEnds,
    /// The last key of a full table.
    full: Option<Vec<u8>>,
    /// The leading bytes of the table's keys.
    prefix: Vec<u8>,
    /// Buffers for bytes until they are sent.
    chunks: Buffers,
    /// Range deletes that are in no table yet, cut at the end of the last table.
    ranges: Vec<RangeDelete>,
}

impl Merging {
    pub(super) fn new(
        rows: Retain<Merge<RunCursor<RunInputs>>>,
        ends: TableEnds,
        chunks: Buffers,
    ) -> Merging {
        let ranges = rows.range_deletes();
        Merging { rows, ends, full: None, prefix: Vec::new(), chunks, ranges }
    }

    /// A buffer for the output of the first slice.
    pub(super) fn buffer(&self) -> Vec<u8> {
        self.ends.buffer(&self.chunks)
    }

    /// Takes the bytes of a table before its filter and index, if those would not fit behind them.
    /// A buffer that grows is reallocated, on fresh pages.
    pub(super) fn before_tail(&self, builder: &mut TableBuilder) -> Option<Bytes> {
        if builder.has_room_for_tail() {
            return None;
        }
        let chunk = builder.take_chunk_for(1, |_| self.buffer())?;
        Some(self.chunks.lend(chunk))
    }

    /// Estimated number of entries of the next table.
    pub(super) fn entries_a_table(&self) -> usize {
        self.ends.entries_a_table
    }

    /// Bytes in one of the buffers, which returns to the pool after use.
    pub(super) fn lend(&self, buffer: Vec<u8>) -> Bytes {
        self.chunks.lend(buffer)
    }

    /// Whether range deletes are left for a table of their own, behind the last entry.
    pub(super) fn has_range_deletes(&self) -> bool {
        !self.ranges.is_empty()
    }

    /// Adds range deletes to the table that ends here: if another table follows, all up to the last
    /// key, cut directly behind it; otherwise all that are left. Returns the end of the last range.
    ///
    /// # Errors
    /// As [`TableBuilder::add_range_deletes`].
    pub(super) fn end_table(
        &mut self,
        builder: &mut TableBuilder,
        follows: bool,
    ) -> Result<Option<Bytes>> {
        if self.ranges.is_empty() {
            return Ok(None);
        }
        let behind = follows.then(|| key_after(builder.last_key()));
        let cut = |from: Option<&[u8]>, to: Option<&[u8]>| -> Vec<RangeDelete> {
            self.ranges.iter().filter_map(|one| one.within(from, to)).collect()
        };
        let own = cut(None, behind.as_deref());
        builder.add_range_deletes(&own)?;
        self.ranges = match behind {
            Some(behind) => cut(Some(&behind), None),
            None => Vec::new(),
        };
        Ok(own.into_iter().map(|one| one.end).max())
    }

    /// The blocks that the last slice lacked.
    pub(super) fn needed(&self) -> Vec<BlockAddr> {
        self.rows.cursor().needed().to_vec()
    }

    /// Advances to the first entry, or to the end. Called before the first table, so that no empty
    /// table is begun.
    ///
    /// # Errors
    /// As [`Merging::slice`], except those of the store.
    pub(super) fn place(&mut self) -> Result<Step> {
        if self.rows.stands() { Ok(Step::Ready) } else { self.rows.advance() }
    }

    /// Runs until there is a reason to return. With an `upload` that accepts chunks immediately, it
    /// continues while `go_on` agrees; `go_on` gets the number of bytes written.
    ///
    /// # Errors
    /// As [`Merging::chunk`], and those of the store.
    pub(super) fn slice(
        &mut self,
        builder: &mut TableBuilder,
        mut upload: Option<&mut (dyn Upload + '_)>,
        go_on: impl Fn(u64) -> bool,
    ) -> Result<Slice> {
        let mut written = 0;
        while go_on(written) {
            let made = self.chunk(builder)?;
            let taken = match (&made, &mut upload) {
                (MergeStop::Chunk(chunk), Some(upload)) => upload.write_now(chunk),
                _ => None,
            };
            let (MergeStop::Chunk(chunk), Some(taken)) = (&made, taken) else {
                return Ok(Slice { written, made: Some(made) });
            };
            taken?;
            written += chunk.len() as u64;
        }
        Ok(Slice { written, made: None })
    }

    /// Runs until there is a reason to return.
    ///
    /// # Errors
    /// Corruption; errors of the merge operator. The merge is over then.
    fn chunk(&mut self, builder: &mut TableBuilder) -> Result<MergeStop> {
        let Merging { rows, ends, full, prefix, chunks, ranges } = self;
        let mut chunk = None;
        let step = rows.visit(|entry| {
            if ends.are_before(entry, full.as_deref(), prefix)
                && builder.entries() > 0
                && may_end_behind(ranges, builder.last_key())
            {
                *full = None;
                return Ok(VisitControl::Leave);
            }
            if ends.cut_prefix_bytes > 0 && builder.entries() == 0 {
                *prefix = first_bytes(entry.key, ends.cut_prefix_bytes).to_vec();
            }
            builder.add(entry)?;
            if builder.bytes_so_far() >= ends.target_bytes && full.is_none() {
                *full = Some(entry.key.to_vec());
            }
            chunk = builder.take_chunk_for(ends.chunk_bytes, |_| ends.buffer(chunks));
            Ok(if chunk.is_some() { VisitControl::Enough } else { VisitControl::GoOn })
        })?;
        Ok(match (step, chunk) {
            (Step::Ready, Some(chunk)) => MergeStop::Chunk(chunks.lend(chunk)),
            (Step::Ready, None) => MergeStop::TableEnds,
            (Step::End, _) => MergeStop::End,
            (Step::NeedBlock(_), _) => MergeStop::NeedsBlocks,
        })
    }
}

/// Whether a table may end behind `key`: the key directly behind it, at which range deletes are
/// cut, must be a valid key.
fn may_end_behind(ranges: &[RangeDelete], key: &[u8]) -> bool {
    ranges.is_empty() || key.len() < MAX_KEY_BYTES
}

impl TableEnds {
    /// Whether a table ends before `entry`: the table is `full` and this is the next key, or the
    /// leading bytes differ from those of its keys.
    #[inline]
    fn are_before(&self, entry: &Entry<'_>, full: Option<&[u8]>, first: &[u8]) -> bool {
        full.is_some_and(|last| last != entry.key)
            || (self.cut_prefix_bytes > 0 && first_bytes(entry.key, self.cut_prefix_bytes) != first)
    }

    /// A buffer for the output of a slice, with room for one more block than it usually has.
    fn buffer(&self, chunks: &Buffers) -> Vec<u8> {
        chunks.take_empty(self.chunk_bytes + self.chunk_bytes / 32)
    }
}

/// The first `bytes` bytes of a key, or all of a shorter one.
fn first_bytes(key: &[u8], bytes: usize) -> &[u8] {
    key.get(..bytes).unwrap_or(key)
}
