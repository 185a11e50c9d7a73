//! Sorting of rows that come in any order: chunks in memory, then sorted runs in files, merged at
//! the end.
//!
//! ```text
//! rows ─► chunk (sort_memory_bytes) ─► sort ─► run 1, run 2, … ─► merge ─► rows in order
//!                                        └─────── one chunk alone ──────────┘
//! ```
//! A run is a table like any other, whose sequence numbers say when a row came: the merge then
//! meets, of equal keys, the row that came last first, and both positions are known.

use super::table::TableFile;
use crate::io::buffers::Buffers;
use crate::io::env::Effects;
use crate::io::store::local::scratch::ScratchFolder;
use crate::io::store::lone_object::LoneObject;
use crate::options::Options;
use crate::readahead::inputs::{InputCursor, Inputs, PrefetchBytes};
use siltstone_base::id::ulid_bits;
use siltstone_base::{
    AttemptId, Cursor, DatabaseId, Entry, Envelope, Error, Kind, ObjectId, ObjectKind, Result, Seq,
    Step, UnixMillis,
};
use siltstone_merge::{Direction, Merge};
use siltstone_sst::{TableBuilder, TableOptions};
use std::path::PathBuf;

/// Size of the buffers that keys and values are collected in: large enough that the space left at
/// the end of each does not matter, small enough that a small table takes little.
const BUFFER_BYTES: usize = 1 << 20;
/// Bytes that are built between two chances for others.
const SLICE_BYTES: usize = 4 << 20;
/// Block target of a run: runs are read from end to end.
const RUN_BLOCK_BYTES: usize = 64 << 10;
/// What all runs together read ahead at least, when the chunk's memory is free again.
const LEAST_AHEAD_BYTES: u64 = 128 << 10;
/// What one run reads ahead at most.
const MOST_AHEAD_BYTES: u64 = 4 << 20;

/// Pieces of memory for reads of runs that are kept.
const READ_BUFFERS: usize = 4;

/// How a run is laid out: it is read once, from end to end, so that a filter would be of no use.
pub(super) fn run_options() -> TableOptions {
    TableOptions { block_bytes: RUN_BLOCK_BYTES, filter_bits_per_key: 0, ..TableOptions::default() }
}

/// A row of a chunk: where its bytes lie, and the first eight bytes of its key, by which most
/// comparisons are decided without a look at the others.
struct Row {
    prefix: u64,
    position: u64,
    expires_at: Option<UnixMillis>,
    buffer: u32,
    offset: u32,
    value_len: u32,
    key_len: u16,
    kind: Kind,
}

/// Rows in memory.
#[derive(Default)]
pub(super) struct Chunk {
    buffers: Vec<Vec<u8>>,
    rows: Vec<Row>,
    bytes: usize,
}

/// The first eight bytes of a key, big-endian, filled up with zeros: ordered as keys are, and equal
/// for some that are not.
fn prefix_of(key: &[u8]) -> u64 {
    let mut bytes = [0; 8];
    bytes.iter_mut().zip(key).for_each(|(byte, of_key)| *byte = *of_key);
    u64::from_be_bytes(bytes)
}

impl Chunk {
    /// Adds a row; `entry.seq` is its position, counted from 1.
    pub(super) fn push(&mut self, entry: &Entry<'_>) -> Result<()> {
        let len = entry.key.len() + entry.value.len();
        let full = self.buffers.last().is_none_or(|last| last.capacity() - last.len() < len);
        if full {
            self.buffers.push(Vec::with_capacity(BUFFER_BYTES.max(len)));
        }
        let number = self.buffers.len() - 1;
        let too_many = || Error::invalid("too many rows for the memory of one sort");
        let Some(buffer) = self.buffers.last_mut() else { return Err(too_many()) };
        self.rows.push(Row {
            prefix: prefix_of(entry.key),
            position: entry.seq.get(),
            expires_at: entry.expires_at,
            buffer: u32::try_from(number).map_err(|_| too_many())?,
            // A buffer of several rows is 1 MiB; one of a single row begins with it.
            offset: buffer.len() as u32,
            // Keys and values were checked: two and four bytes hold their lengths.
            value_len: entry.value.len() as u32,
            key_len: entry.key.len() as u16,
            kind: entry.kind,
        });
        buffer.extend_from_slice(entry.key);
        buffer.extend_from_slice(entry.value);
        self.bytes += len + size_of::<Row>();
        Ok(())
    }

    /// Bytes of memory in use, about.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    fn key(&self, row: &Row) -> &[u8] {
        key_of(&self.buffers, row)
    }

    /// Key ascending; of equal keys the row that came last first. Rows in order already cost one
    /// pass.
    fn sort(&mut self) {
        let Chunk { buffers, rows, .. } = self;
        rows.sort_unstable_by(|a, b| {
            a.prefix
                .cmp(&b.prefix)
                .then_with(|| key_of(buffers, a).cmp(key_of(buffers, b)))
                .then_with(|| b.position.cmp(&a.position))
        });
    }

    fn entry(&self, row: &Row) -> Entry<'_> {
        let start = row.offset as usize + usize::from(row.key_len);
        let value = start..start + row.value_len as usize;
        let buffer = self.buffers.get(row.buffer as usize);
        Entry {
            key: self.key(row),
            seq: Seq(row.position),
            kind: row.kind,
            expires_at: row.expires_at,
            value: buffer.and_then(|buffer| buffer.get(value)).unwrap_or_default(),
        }
    }
}

fn key_of<'a>(buffers: &'a [Vec<u8>], row: &Row) -> &'a [u8] {
    let key = row.offset as usize..row.offset as usize + usize::from(row.key_len);
    buffers.get(row.buffer as usize).and_then(|buffer| buffer.get(key)).unwrap_or_default()
}

/// Rows on their way into order.
pub(super) struct Sorter {
    effects: Effects,
    chunk: Chunk,
    memory_bytes: usize,
    scratch_parent: PathBuf,
    scratch: Option<ScratchFolder>,
    runs: Vec<TableFile>,
    /// What runs are read into.
    buffers: Buffers,
}

impl Sorter {
    pub(super) fn new(effects: Effects, memory_bytes: usize, scratch_parent: PathBuf) -> Sorter {
        let (chunk, scratch, runs) = (Chunk::default(), None, Vec::new());
        let buffers = LoneObject::scratch_buffers(READ_BUFFERS);
        Sorter { effects, chunk, memory_bytes, scratch_parent, scratch, runs, buffers }
    }

    /// Adds a row; `true` when [`Sorter::spill`] is due.
    pub(super) fn push(&mut self, entry: &Entry<'_>) -> Result<bool> {
        self.chunk.push(entry)?;
        Ok(self.chunk.bytes() >= self.memory_bytes)
    }

    /// Makes a run of what is in memory. When this fails or is dropped, rows are lost.
    pub(super) async fn spill(&mut self) -> Result<()> {
        if self.chunk.rows.is_empty() {
            return Ok(());
        }
        let chunk = self.sorted_chunk().await?;
        let random = || {
            (u128::from(self.effects.random.next_u64()) << 64)
                | u128::from(self.effects.random.next_u64())
        };
        let id = ulid_bits(self.effects.clock.now().0, random());
        let folder = match &self.scratch {
            Some(folder) => folder,
            None => self.scratch.insert(ScratchFolder::create(&self.scratch_parent, random())?),
        };
        let path = folder.path().join(format!("{}.sst", self.runs.len()));
        let object = LoneObject::scratch_file(&path, &self.effects, &self.buffers);
        let envelope =
            Envelope::new(ObjectKind::Table, DatabaseId::NONE, ObjectId(id), AttemptId(random()));
        let mut builder = TableBuilder::new(run_options(), envelope);
        let mut upload = object.upload().await?;
        for row in &chunk.rows {
            builder.add(&chunk.entry(row))?;
            if let Some(bytes) = builder.take_chunk(SLICE_BYTES) {
                upload.write(bytes).await?;
            }
        }
        let (rest, _) = builder.finish()?;
        upload.write(rest).await?;
        upload.finish().await?;
        let options = Options { block_cache_bytes: 0, ..Options::default() };
        self.runs.push(TableFile::open(self.effects.clone(), &object, &options).await?);
        Ok(())
    }

    /// The chunk, sorted where it holds up nobody: a large one takes seconds.
    async fn sorted_chunk(&mut self) -> Result<Chunk> {
        let mut chunk = std::mem::take(&mut self.chunk);
        let sort = move || {
            chunk.sort();
            chunk
        };
        self.effects.blocking("sort", sort).await
    }

    /// Every row in order: key ascending, of equal keys the one that came last first.
    pub(super) async fn finish(mut self) -> Result<Sorted> {
        if self.runs.is_empty() {
            let chunk = self.sorted_chunk().await?;
            return Ok(Sorted::Memory { chunk, next: 0 });
        }
        self.spill().await?;
        let ahead = self.memory_bytes as u64 / self.runs.len().max(1) as u64;
        let bytes = ahead.clamp(LEAST_AHEAD_BYTES, MOST_AHEAD_BYTES);
        let mut inputs = Inputs::new(PrefetchBytes { first_bytes: bytes, most_bytes: bytes });
        let cursors = self
            .runs
            .iter()
            .filter_map(|run| inputs.add_table(run.table(), run.context(), None))
            .collect();
        let merge = Merge::new(cursors, Direction::Forward);
        let runs = Box::new(Runs { merge, inputs, placed: false, _scratch: self.scratch });
        Ok(Sorted::Runs(runs))
    }
}

/// Rows in order.
pub(super) enum Sorted {
    /// All of them in memory.
    Memory {
        /// The sorted rows.
        chunk: Chunk,
        /// The row after the one at hand.
        next: usize,
    },
    /// In files.
    Runs(Box<Runs>),
}

pub(super) struct Runs {
    merge: Merge<InputCursor>,
    inputs: Inputs,
    placed: bool,
    /// Goes when the rows have been read.
    _scratch: Option<ScratchFolder>,
}

impl Sorted {
    /// To the next row; `false` at the end. Waits only where a run has to be read.
    pub(super) async fn advance(&mut self) -> Result<bool> {
        let runs = match self {
            Sorted::Memory { chunk, next } => {
                *next += 1;
                return Ok(*next <= chunk.rows.len());
            }
            Sorted::Runs(runs) => runs,
        };
        loop {
            let step = if runs.placed { runs.merge.advance()? } else { runs.merge.seek_first()? };
            match step {
                Step::Ready => {
                    runs.placed = true;
                    return Ok(true);
                }
                Step::End => return Ok(false),
                Step::NeedBlock(_) => runs.inputs.fetch(runs.merge.needed()).await?,
            }
        }
    }

    /// The row at hand; its sequence number is its position, counted from 1.
    pub(super) fn entry(&self) -> Option<Entry<'_>> {
        match self {
            Sorted::Memory { chunk, next } => {
                let row = next.checked_sub(1).and_then(|at| chunk.rows.get(at))?;
                Some(chunk.entry(row))
            }
            Sorted::Runs(runs) => runs.merge.entry(),
        }
    }
}
