//! Bulk load (RFC 0039): turns any number of rows into tables of an ingest job, on all cores, with
//! bounded memory.
//!
//! ```text
//! in order   batches ─► pieces of a table each ─► tables, side by side
//! any order  batches ─► heap ─► cut by keys ─► sort ─► tables, side by side       all in memory
//!                       heap ─► cut by keys ─► sort ─► runs in files ┐
//!                       …                                            ├─► merged by ranges of keys,
//!                       the last heaps ─► cut by keys ─► sort ───────┘   side by side ─► tables
//! ```

mod heap;
mod kept;
mod making;
mod piece;
mod runs;

use super::spare::SpareBuffers;
use super::staged::PartOptions;
use super::staged::StagedPart;
use super::writer::Duplicates;
use futures::FutureExt;
use futures::channel::oneshot;
use futures::future::BoxFuture;
use heap::Heap;
use making::{Making, make_tables};
use parking_lot::Mutex;
use piece::TablePiece;
use runs::SortedHeap;
use siltstone_base::{DatabaseId, Error, JobId, Result, Seq, SstDescriptor};
use siltstone_store::buffers::Buffers;
use siltstone_store::env::Env;
use siltstone_store::local::scratch::ScratchFolder;
use siltstone_store::lone_object::LoneObject;
use siltstone_store::progress::Progress;
use siltstone_store::supervise::caught;
use std::collections::VecDeque;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Minimum memory of a load: the size of tables under construction on two cores.
pub const LEAST_LOAD_BYTES: usize = 64 << 20;
/// One third of a load's memory is for tables under construction and the read-ahead of merges, or
/// for writing runs. The rest is for rows.
const SHARES: usize = 3;
/// A full heap has this share of the memory. Four heaps are the two thirds for rows: one is filled,
/// two are written to files (one is sorted while the other is written), and one waits. The heap
/// that waits and the one that is filled when the last row has come need no file.
const HEAP_SHARES: usize = 6;
/// Number of heaps besides the one that is filled.
const HEAPS_BESIDE: usize = 3;
/// Number of heaps that are written to files in parallel.
const SPILLS: usize = 2;
/// Bytes of a table that are handed at a time to a store with latency.
const CHUNK_BYTES: usize = 4 << 20;
/// Number of read buffers that are kept for further reads.
const WAVES: usize = 32;
/// Number of parallel tables beyond one per core. Usually one waits for its rows, and one for the
/// store.
const WAITING: usize = 2;
/// Ranges of runs that are merged in parallel per core: two wait for the disk while one is merged.
const MERGES_A_CORE: usize = 3;
/// Minimum read-ahead of each range per run: a smaller one costs the disk more than another
/// parallel range would gain.
const AHEAD_BYTES: usize = 256 << 10;
/// Memory of a table under construction per key, in addition to its bytes: a hash of 8 bytes, and
/// its part of the filter.
const KEY_BYTES: usize = 12;
/// Smaller tables are not made only to use another core, because they would cost each look-up more
/// than they save the load.
const LEAST_PART_BYTES: u64 = 8 << 20;

/// Rows of keys and values in the caller's memory. Any thread may read them.
pub trait RowBatch: Send + Sync {
    /// Number of rows, less than 2^32.
    fn rows(&self) -> usize;
    /// Key and value of a row with an index below [`RowBatch::rows`].
    fn row(&self, row: usize) -> (&[u8], &[u8]);
    /// The key alone.
    fn key(&self, row: usize) -> &[u8] {
        self.row(row).0
    }
    /// Approximate bytes of all keys and values.
    fn bytes(&self) -> usize;
}

/// How rows are loaded.
#[derive(Clone, Debug)]
pub struct LoadOptions {
    /// Whether they come in ascending order of their keys.
    pub sorted: bool,
    /// The treatment of equal keys.
    pub duplicates: Duplicates,
    /// Memory in bytes, excluding the batches that the caller holds.
    pub memory_bytes: usize,
    /// An existing folder for rows that exceed this memory.
    pub scratch: PathBuf,
    /// A table is complete at this many bytes of rows.
    pub table_bytes: u64,
}

/// Durations of the phases of a load.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LoadPhases {
    /// Receiving rows, including tables that were made meanwhile.
    pub read: Duration,
    /// Sorting, merging and making the remaining tables.
    pub build: Duration,
}

/// The state that all tasks that make tables share, and the signal that stops them.
#[derive(Clone)]
pub(super) struct Maker {
    env: Env,
    of: (JobId, DatabaseId),
    how: Arc<PartOptions>,
    stop: Arc<AtomicBool>,
    progress: Arc<Progress>,
    /// Reusable memory of tables and of runs.
    spare: SpareBuffers,
    spare_runs: SpareBuffers,
    /// Read buffers of runs.
    waves: Buffers,
    /// Completed when the files of runs are removed.
    removals: Arc<Mutex<Vec<oneshot::Receiver<()>>>>,
}

impl Maker {
    /// # Errors
    /// Closed once the load was given up.
    fn check(&self) -> Result<()> {
        match self.stop.load(Ordering::Relaxed) {
            true => Err(Error::new(siltstone_base::ErrorKind::Closed, "the load was given up")),
            false => Ok(()),
        }
    }

    /// Runs `work` in parallel to other work.
    fn spawn<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T>> + Send + 'static,
    ) -> Working<T> {
        let (answer, answered) = oneshot::channel();
        let work = async move { drop(answer.send(caught("load", work).await.flatten())) };
        self.env.spawn.spawn("load", Box::pin(work));
        Working(answered)
    }
}

/// Work that runs in parallel.
struct Working<T>(oneshot::Receiver<Result<T>>);

impl<T> Working<T> {
    async fn end(self) -> Result<T> {
        let gone = || Err(Error::internal("work on a load ended without an answer"));
        self.0.await.unwrap_or_else(|_| gone())
    }
}

/// A load of rows into tables of a job. Dropping it cancels the load; uploaded tables are collected
/// with the job.
pub struct Loader {
    maker: Maker,
    load: LoadOptions,
    /// Number of tables that are made in parallel.
    side_by_side: usize,
    rows: u64,
    /// Bytes of the rows.
    bytes: u64,
    /// Ordered rows of the next table.
    piece: TablePiece,
    making: VecDeque<Working<Vec<SstDescriptor>>>,
    tables: Vec<SstDescriptor>,
    /// Rows in any order.
    heap: Heap,
    /// Full heaps, oldest first.
    full: VecDeque<Heap>,
    spilling: VecDeque<Working<SortedHeap>>,
    /// Number of heaps that were spilled.
    spills: usize,
    sorted: Vec<SortedHeap>,
    folder: Option<Arc<ScratchFolder>>,
    phases: LoadPhases,
    began: Duration,
    /// A call has failed or was cancelled.
    broken: bool,
}

impl Loader {
    /// A load into `job` of `database`. `how` has the options of tables.
    pub(crate) fn new(
        env: Env,
        of: (JobId, DatabaseId),
        (how, load): (PartOptions, LoadOptions),
    ) -> Loader {
        let room =
            load.memory_bytes / SHARES / usize::try_from(how.table_bytes).unwrap_or(1).max(1);
        let side_by_side = room.clamp(1, env.spawn.cores() + WAITING);
        let began = env.clock.monotonic();
        let (how, stop) = (Arc::new(how), Arc::new(AtomicBool::new(false)));
        let profile = env.store.profile();
        // A store that accepts chunks immediately gets them while they are in the core's cache.
        let at_once = profile.answers_at_once.then_some(profile.chunk_bytes);
        let spare = SpareBuffers::new(at_once.unwrap_or(CHUNK_BYTES));
        let spare_runs = SpareBuffers::new(runs::CHUNK_BYTES);
        let waves = LoneObject::scratch_buffers(WAVES);
        let (progress, removals) = (Arc::default(), Arc::default());
        Loader {
            maker: Maker { env, of, how, stop, progress, spare, spare_runs, waves, removals },
            load,
            side_by_side,
            rows: 0,
            bytes: 0,
            piece: TablePiece::default(),
            making: VecDeque::new(),
            tables: Vec::new(),
            heap: Heap::default(),
            full: VecDeque::new(),
            spilling: VecDeque::new(),
            spills: 0,
            sorted: Vec::new(),
            folder: None,
            phases: LoadPhases::default(),
            began,
            broken: false,
        }
    }

    /// Whether nothing can have been uploaded, because no rows came.
    pub(crate) fn is_untouched(&self) -> bool {
        self.rows == 0 && !self.broken
    }

    /// The progress: bytes received and bytes in tables, of twice the known bytes.
    #[must_use]
    pub fn progress(&self) -> &Arc<Progress> {
        &self.maker.progress
    }

    /// Adds rows. Waits until there is room for more.
    ///
    /// # Errors
    /// Invalid for rows that are not in the required order, and for keys that exceed a limit, with
    /// the row, counted from 0; errors of the store or the file system. All later calls fail then.
    pub fn push(&mut self, batch: Arc<dyn RowBatch>) -> BoxFuture<'_, Result<()>> {
        async move {
            self.check_whole()?;
            self.broken = true;
            let bytes = batch.bytes() as u64;
            let (_, known) = self.maker.progress.so_far();
            self.maker.progress.expect(known + 2 * bytes);
            let rows = batch.rows() as u64;
            let pushed = match self.load.sorted {
                true => self.push_in_order(&batch).await,
                false => self.push_any(batch).await,
            };
            if let Err(error) = pushed {
                self.give_up().await;
                return Err(error);
            }
            (self.rows, self.bytes) = (self.rows + rows, self.bytes + bytes);
            self.maker.progress.add(bytes);
            self.broken = false;
            Ok(())
        }
        .boxed()
    }

    async fn push_in_order(&mut self, batch: &Arc<dyn RowBatch>) -> Result<()> {
        let mut from = 0;
        while from < batch.rows() {
            let most = self.maker.how.table_bytes;
            let keeps = self.load.duplicates == Duplicates::KeepLast;
            match self.piece.take(batch, from, (self.rows, most, keeps)) {
                Some(taken) => from += taken,
                None => self.make_piece().await?,
            }
        }
        Ok(())
    }

    /// Makes the collected rows into a table.
    async fn make_piece(&mut self) -> Result<()> {
        let piece = self.piece.begin_next();
        if piece.is_empty() {
            return Ok(());
        }
        while self.making.len() >= self.side_by_side {
            self.await_table().await?;
        }
        let rows = Making::Piece(piece.ordered(self.load.duplicates));
        let passes = self.bytes > self.load.memory_bytes as u64;
        self.making.push_back(self.maker.spawn(make_tables(self.maker.clone(), rows, passes)));
        Ok(())
    }

    async fn await_table(&mut self) -> Result<()> {
        if let Some(first) = self.making.pop_front() {
            self.tables.extend(first.end().await?);
        }
        Ok(())
    }

    async fn push_any(&mut self, batch: Arc<dyn RowBatch>) -> Result<()> {
        let bytes = self.heap.bytes() + Heap::bytes_of(&*batch);
        if !self.heap.is_empty() && bytes > self.load.memory_bytes / HEAP_SHARES {
            self.end_heap().await?;
        }
        self.heap.push(batch, self.rows)
    }

    /// Begins another heap, once there is room for it.
    async fn end_heap(&mut self) -> Result<()> {
        self.full.push_back(std::mem::take(&mut self.heap));
        while self.full.len() + self.spilling.len() > HEAPS_BESIDE {
            self.spill()?;
            self.await_spill().await?;
            // More rows usually follow, so do not leave a heap waiting.
            self.spill()?;
        }
        Ok(())
    }

    async fn await_spill(&mut self) -> Result<()> {
        if let Some(spilling) = self.spilling.pop_front() {
            self.sorted.push(spilling.end().await?);
        }
        Ok(())
    }

    /// Begins to write heaps to files, oldest first. The youngest waits.
    fn spill(&mut self) -> Result<()> {
        while self.spilling.len() < SPILLS && self.full.len() > HEAPS_BESIDE - SPILLS {
            let folder = match &self.folder {
                Some(folder) => folder,
                None => {
                    let unique = self.maker.env.random_u128();
                    let folder = ScratchFolder::create(&self.load.scratch, unique)?;
                    self.folder.insert(Arc::new(folder))
                }
            };
            let Some(heap) = self.full.pop_front() else { return Ok(()) };
            let spill = runs::spill(self.maker.clone(), heap, (Arc::clone(folder), self.spills));
            self.spilling.push_back(self.maker.spawn(spill));
            self.spills += 1;
        }
        Ok(())
    }

    /// The rows that are in no file.
    fn heaps(&mut self) -> impl Iterator<Item = Heap> + use<> {
        let heaps = std::mem::take(&mut self.full).into_iter();
        heaps.chain([std::mem::take(&mut self.heap)]).filter(|heap| !heap.is_empty())
    }

    /// Returns the part, whose tables are whole and durable, and the time that each phase took.
    /// There are no tables without rows.
    ///
    /// # Errors
    /// As [`Loader::push`]; Invalid for equal keys that are refused, with the key and both rows.
    pub fn finish(mut self) -> BoxFuture<'static, Result<(StagedPart, LoadPhases)>> {
        async move {
            self.check_whole()?;
            let made = self.make_rest().await;
            if made.is_err() {
                self.give_up().await;
            }
            let ((job, database), tables) = (self.maker.of, std::mem::take(&mut self.tables));
            made.map(|()| (StagedPart { job, database, tables, operands: false }, self.phases))
        }
        .boxed()
    }

    /// Waits for the running work and discards its results. Its files are removed then.
    async fn give_up(&mut self) {
        self.maker.stop.store(true, Ordering::Relaxed);
        // The first error matters, not those of the discarded work.
        while let Some(spilling) = self.spilling.pop_front() {
            drop(spilling.end().await);
        }
        while let Some(making) = self.making.pop_front() {
            drop(making.end().await);
        }
        self.sorted.clear();
        self.await_removals().await;
    }

    /// Waits until the files of all discarded runs are removed.
    async fn await_removals(&self) {
        let removals = std::mem::take(&mut *self.maker.removals.lock());
        for removal in removals {
            // The sender is dropped without a message.
            let _ = removal.await;
        }
    }

    /// Makes tables of the remaining rows.
    async fn make_rest(&mut self) -> Result<()> {
        self.phases.read = self.maker.env.clock.monotonic().saturating_sub(self.began);
        let read = self.maker.env.clock.monotonic();
        if self.load.sorted {
            self.make_piece().await?;
        } else if self.spills == 0 {
            self.make_heap().await?;
        } else {
            for heap in self.heaps() {
                let kept = runs::keep(self.maker.clone(), heap);
                self.spilling.push_back(self.maker.spawn(kept));
            }
            while !self.spilling.is_empty() {
                self.await_spill().await?;
            }
            self.make_runs().await?;
        }
        while !self.making.is_empty() {
            self.await_table().await?;
        }
        self.await_removals().await;
        self.phases.build = self.maker.env.clock.monotonic().saturating_sub(read);
        Ok(())
    }

    /// Makes tables of a heap that fits into memory.
    async fn make_heap(&mut self) -> Result<()> {
        let Some(heap) = self.heaps().reduce(Heap::followed_by) else { return Ok(()) };
        let bytes = heap.bytes() as u64;
        let tables = bytes / self.maker.how.table_bytes + 1;
        // With enough rows every core has work until the end.
        let busy = (2 * self.maker.env.spawn.cores() as u64).min(bytes / LEAST_PART_BYTES + 1);
        let mut parts = usize::try_from(tables.max(busy)).unwrap_or(1);
        if parts > self.maker.env.spawn.cores() {
            parts = parts.next_multiple_of(self.maker.env.spawn.cores());
        }
        let cut = heap::cut(&self.maker, heap, parts).await?;
        for part in cut.parts {
            while self.making.len() >= self.side_by_side {
                self.await_table().await?;
            }
            let (maker, refuses) = (self.maker.clone(), self.load.duplicates);
            let table = async move {
                let sorting = move || part.sorted(refuses);
                let rows = maker.env.blocking("sort", sorting).await?;
                make_tables(maker, Making::Heap(rows), false).await
            };
            self.making.push_back(self.maker.spawn(table));
        }
        Ok(())
    }

    /// Merges the runs by ranges of keys.
    async fn make_runs(&mut self) -> Result<()> {
        let mut sorted = std::mem::take(&mut self.sorted);
        let ranges = runs::ranges(&sorted, self.maker.how.table_bytes);
        let (merges, ahead) = self.merges(sorted.len());
        for range in ranges {
            sorted.iter_mut().for_each(|one| one.pass(range.0.as_deref()));
            while self.making.len() >= merges {
                self.await_table().await?;
            }
            let merging = runs::RunRange::new(&sorted, range, (self.load.duplicates, ahead));
            let rows = Making::Runs(Box::new(merging));
            self.making.push_back(self.maker.spawn(make_tables(self.maker.clone(), rows, true)));
        }
        Ok(())
    }

    /// Number of ranges that are merged in parallel, and the bytes that each reads ahead of all its
    /// runs.
    fn merges(&self, runs: usize) -> (usize, usize) {
        let row_bytes = (self.bytes / self.rows.max(1)).max(1);
        let rows = usize::try_from(self.maker.how.table_bytes / row_bytes).unwrap_or(usize::MAX);
        let table = rows.saturating_mul(KEY_BYTES) + 2 * self.maker.spare.chunk_bytes;
        let third = self.load.memory_bytes / SHARES;
        let most = MERGES_A_CORE * self.maker.env.spawn.cores();
        let merges = (third / (table + runs * AHEAD_BYTES)).clamp(1, most);
        (merges, (third / merges).saturating_sub(table))
    }

    fn check_whole(&self) -> Result<()> {
        if self.broken {
            return Err(Error::invalid("an earlier call of this load failed; begin another one"));
        }
        Ok(())
    }
}

impl Drop for Loader {
    fn drop(&mut self) {
        // Running work stops at its next slice.
        self.maker.stop.store(true, Ordering::Relaxed);
    }
}

impl fmt::Debug for Loader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Loader").field("rows", &self.rows).finish_non_exhaustive()
    }
}

/// A read of missing blocks.
type Lacks<'a> = BoxFuture<'a, Result<()>>;

/// The sequence number of a row in a run, counted from 1.
fn numbered(row: u64) -> Seq {
    Seq(row + 1)
}
