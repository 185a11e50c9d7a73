//! Sorts rows that come in any order: chunks in memory, then sorted runs in files, which are merged
//! at the end.
//!
//! ```text
//! rows ─► chunk (sort_memory_bytes) ─► sort ─► run 1, run 2, … ─► merge ─► rows in order
//!                                        └─────── one chunk alone ──────────┘
//! ```
//! A run is an ordinary table whose sequence numbers are the positions of the rows. For equal
//! keys the merge thus returns the row that came last first, and both positions are known.

use super::table::TableFile;
use crate::options::Options;
use crate::readahead::inputs::{InputCursor, Inputs, PrefetchBytes};
use siltstone_base::id::ulid_bits;
use siltstone_base::{
    AttemptId, Cursor, DatabaseId, Entry, Envelope, Error, Kind, ObjectId, ObjectKind, Result, Seq,
    Step, UnixMillis,
};
use siltstone_merge::{Direction, Merge};
use siltstone_sst::{TableBuilder, TableOptions};
use siltstone_store::buffers::Buffers;
use siltstone_store::env::Effects;
use siltstone_store::local::scratch::ScratchFolder;
use siltstone_store::lone_object::LoneObject;
use std::path::PathBuf;

/// Size of the buffers for keys and values: large enough that the unused space at their ends does
/// not matter, small enough that a small table takes little memory.
const BUFFER_BYTES: usize = 1 << 20;
/// Bytes that are built before other tasks may run.
const SLICE_BYTES: usize = 4 << 20;
/// Target block size of a run, which is read from end to end.
const RUN_BLOCK_BYTES: usize = 64 << 10;
/// Minimum read-ahead of a run, when the memory of the chunk is free again.
const LEAST_AHEAD_BYTES: u64 = 128 << 10;
/// Maximum read-ahead of a run.
const MOST_AHEAD_BYTES: u64 = 4 << 20;

/// Number of read buffers of runs that are kept.
const READ_BUFFERS: usize = 4;

/// Table options of a run. It is read once, from end to end, so a filter would be useless.
pub(super) fn run_options() -> TableOptions {
    TableOptions { block_bytes: RUN_BLOCK_BYTES, filter_bits_per_key: 0, ..TableOptions::default() }
}

/// A row of a chunk: the position of its bytes, and the first eight bytes of its key. Most
/// comparisons need only these bytes.
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

/// The first eight bytes of a key, big-endian, padded with zeros. They order as keys do, and may be
/// equal for different keys.
fn prefix_of(key: &[u8]) -> u64 {
    let mut bytes = [0; 8];
    bytes.iter_mut().zip(key).for_each(|(byte, of_key)| *byte = *of_key);
    u64::from_be_bytes(bytes)
}

impl Chunk {
    /// Adds a row. `entry.seq` is its position, counted from 1.
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
            // A buffer with several rows is 1 MiB; one with a single row begins with it.
            offset: buffer.len() as u32,
            // Keys and values were checked: their lengths fit two and four bytes.
            value_len: entry.value.len() as u32,
            key_len: entry.key.len() as u16,
            kind: entry.kind,
        });
        buffer.extend_from_slice(entry.key);
        buffer.extend_from_slice(entry.value);
        self.bytes += len + size_of::<Row>();
        Ok(())
    }

    /// Approximate bytes of memory in use.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    fn key(&self, row: &Row) -> &[u8] {
        key_of(&self.buffers, row)
    }

    /// Sorts by ascending key; of equal keys the row that came last is first. Sorted input costs
    /// one pass.
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

/// Sorts rows.
pub(super) struct Sorter {
    effects: Effects,
    chunk: Chunk,
    memory_bytes: usize,
    scratch_parent: PathBuf,
    scratch: Option<ScratchFolder>,
    runs: Vec<TableFile>,
    /// Read buffers of runs.
    buffers: Buffers,
}

impl Sorter {
    pub(super) fn new(effects: Effects, memory_bytes: usize, scratch_parent: PathBuf) -> Sorter {
        let (chunk, scratch, runs) = (Chunk::default(), None, Vec::new());
        let buffers = LoneObject::scratch_buffers(READ_BUFFERS);
        Sorter { effects, chunk, memory_bytes, scratch_parent, scratch, runs, buffers }
    }

    /// Adds a row. Returns `true` if [`Sorter::spill`] is due.
    pub(super) fn push(&mut self, entry: &Entry<'_>) -> Result<bool> {
        self.chunk.push(entry)?;
        Ok(self.chunk.bytes() >= self.memory_bytes)
    }

    /// Writes the rows in memory as a run. If this fails or is cancelled, rows are lost.
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

    /// Sorts the chunk on a blocking thread, because a large one takes seconds.
    async fn sorted_chunk(&mut self) -> Result<Chunk> {
        let mut chunk = std::mem::take(&mut self.chunk);
        let sort = move || {
            chunk.sort();
            chunk
        };
        self.effects.blocking("sort", sort).await
    }

    /// Returns all rows in order: ascending key; of equal keys the row that came last is first.
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
    /// All rows in memory.
    Memory {
        /// The sorted rows.
        chunk: Chunk,
        /// Index of the row after the current one.
        next: usize,
    },
    /// In files.
    Runs(Box<Runs>),
}

pub(super) struct Runs {
    merge: Merge<InputCursor>,
    inputs: Inputs,
    placed: bool,
    /// Removed when the rows were read.
    _scratch: Option<ScratchFolder>,
}

impl Sorted {
    /// Advances to the next row; `false` at the end. It only waits if a run has to be read.
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

    /// The current row. Its sequence number is its position, counted from 1.
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
