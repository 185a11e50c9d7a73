//! The inner loop: entries of the inputs, as far as they are kept, into tables. Synchronous; it
//! comes out for blocks that are not there, and with bytes to send.

use crate::io::buffers::Buffers;
use crate::io::store::Upload;
use crate::readahead::inputs::InputCursor;
use bytes::Bytes;
use siltstone_base::limits::MAX_KEY_BYTES;
use siltstone_base::{BlockAddr, Entry, RangeDelete, Result, Step};
use siltstone_merge::{Merge, Retain, RunCursor, VisitControl};
use siltstone_sst::TableBuilder;

/// What the merge came out for.
pub(super) enum MergeStop {
    /// Blocks are not there: [`Merging::needed`].
    NeedsBlocks,
    /// Bytes of the table, to be sent.
    Chunk(Bytes),
    /// The table ends here; the entry at hand belongs to the next one.
    TableEnds,
    /// Nothing is left.
    End,
}

/// What a slice came to.
pub(super) struct Slice {
    /// Bytes that the store has taken.
    pub(super) written: u64,
    /// What the merge came out for; `None` where it was to end.
    pub(super) made: Option<MergeStop>,
}

/// Where tables end. Never between versions of a key: tables of a run share no key.
#[derive(Clone, Copy, Debug)]
pub(super) struct TableEnds {
    /// Size at which a table ends, in bytes.
    pub(super) target_bytes: u64,
    /// A table ends where so many first bytes of the key change; 0: nowhere.
    pub(super) cut_prefix_bytes: usize,
    /// Bytes that are built between two chances to come out: a chunk's.
    pub(super) chunk_bytes: usize,
    /// About how many entries a table will have.
    pub(super) entries_a_table: usize,
}

/// A merge on its way through one key range.
pub(super) struct Merging {
    rows: Retain<Merge<RunCursor<InputCursor>>>,
    ends: TableEnds,
    /// The last key of a table that is full.
    full: Option<Vec<u8>>,
    /// The first bytes of the table's keys.
    prefix: Vec<u8>,
    /// Where bytes are collected until they are sent.
    chunks: Buffers,
    /// Range deletes that are in no table yet, from where the last table ended.
    ranges: Vec<RangeDelete>,
}

impl Merging {
    pub(super) fn new(
        rows: Retain<Merge<RunCursor<InputCursor>>>,
        ends: TableEnds,
        chunks: Buffers,
    ) -> Merging {
        let ranges = rows.range_deletes();
        Merging { rows, ends, full: None, prefix: Vec::new(), chunks, ranges }
    }

    /// A buffer for what the first slice makes.
    pub(super) fn buffer(&self) -> Vec<u8> {
        self.ends.buffer(&self.chunks)
    }

    /// The bytes of a table before its filter and index, where those would not fit behind them: a
    /// buffer that grows is another one, of fresh pages.
    pub(super) fn before_tail(&self, builder: &mut TableBuilder) -> Option<Bytes> {
        if builder.has_room_for_tail() {
            return None;
        }
        let chunk = builder.take_chunk_for(1, |_| self.buffer())?;
        Some(self.chunks.lend(chunk))
    }

    /// About how many entries the next table will have.
    pub(super) fn entries_a_table(&self) -> usize {
        self.ends.entries_a_table
    }

    /// Bytes in one of its buffers, which comes back.
    pub(super) fn lend(&self, buffer: Vec<u8>) -> Bytes {
        self.chunks.lend(buffer)
    }

    /// Whether range deletes are left for a table of their own, behind the last entry.
    pub(super) fn has_range_deletes(&self) -> bool {
        !self.ranges.is_empty()
    }

    /// Gives the table that ends here its range deletes: all up to its last key where another
    /// table follows, cut directly behind that key, or all that are left. Answers up to where they
    /// delete.
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
        let behind = follows.then(|| [builder.last_key(), &[0]].concat());
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

    /// To the first entry, or the end; before the first table, so that none is begun for nothing.
    ///
    /// # Errors
    /// As [`Merging::slice`], but for the store's.
    pub(super) fn place(&mut self) -> Result<Step> {
        if self.rows.stands() { Ok(Step::Ready) } else { self.rows.advance() }
    }

    /// Goes on until there is a reason to come out; with an `upload` that takes chunks at once, for
    /// as long as it may `go_on` after so many bytes.
    ///
    /// # Errors
    /// As [`Merging::chunk`], and the store's.
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

    /// Goes on until there is a reason to come out.
    ///
    /// # Errors
    /// Corruption; what the merge operator says. The merge is over then.
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

/// Whether a table may end behind `key`: what a range delete is cut at must be a key.
fn may_end_behind(ranges: &[RangeDelete], key: &[u8]) -> bool {
    ranges.is_empty() || key.len() < MAX_KEY_BYTES
}

impl TableEnds {
    /// Whether a table ends before `entry`: behind the last key of one that is `full`, or where the
    /// first bytes are others than its keys'.
    #[inline]
    fn are_before(&self, entry: &Entry<'_>, full: Option<&[u8]>, first: &[u8]) -> bool {
        full.is_some_and(|last| last != entry.key)
            || (self.cut_prefix_bytes > 0 && first_bytes(entry.key, self.cut_prefix_bytes) != first)
    }

    /// A buffer for what a slice makes: a block more than it has at least, as a rule.
    fn buffer(&self, chunks: &Buffers) -> Vec<u8> {
        chunks.take_empty(self.chunk_bytes + self.chunk_bytes / 32)
    }
}

/// The first `bytes` bytes of a key, or all of a shorter one.
fn first_bytes(key: &[u8], bytes: usize) -> &[u8] {
    key.get(..bytes).unwrap_or(key)
}
