//! Bulk load (RFC 0039): any amount of rows becomes tables of an ingest job, on all cores, within
//! a bound of memory.
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
use super::writer::Duplicates;
use crate::io::buffers::Buffers;
use crate::io::env::Env;
use crate::io::progress::Progress;
use crate::io::store::local::scratch::ScratchFolder;
use crate::io::store::lone_object::LoneObject;
use crate::io::supervise::caught;
use futures::FutureExt;
use futures::channel::oneshot;
use futures::future::BoxFuture;
use heap::Heap;
use making::{Making, make_tables};
use parking_lot::Mutex;
use piece::TablePiece;
use runs::SortedHeap;
use siltstone_base::{DatabaseId, Error, JobId, Result, Seq, SstDescriptor};
use std::collections::VecDeque;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Least memory of a load: what tables under construction take on two cores.
pub const LEAST_LOAD_BYTES: usize = 64 << 20;
/// A third of a load's memory is for tables under construction and what merges read ahead, or for
/// what writes runs; the rest is for rows.
const SHARES: usize = 3;
/// A heap is full with so small a share of the memory: four are the two thirds for rows. One is
/// filled, two are on their way into files, so that one is sorted while the other is written, and
/// one waits. What waits when the last row has come, and what was filled, needs no file.
const HEAP_SHARES: usize = 6;
/// Heaps beside the one that is filled.
const HEAPS_BESIDE: usize = 3;
/// Heaps that are moved into files at a time.
const SPILLS: usize = 2;
/// Bytes of a table that are handed at once to a store that takes a while.
const CHUNK_BYTES: usize = 4 << 20;
/// Pieces of memory that were read into which are kept for the next reads.
const WAVES: usize = 32;
/// Tables that are made at a time beyond one a core: one waits for its rows, as a rule, and one for
/// the store.
const WAITING: usize = 2;
/// Ranges of runs that are merged at a time, for each core: two wait for the disk while one is
/// worked at.
const MERGES_A_CORE: usize = 3;
/// What each of them should read ahead of a run: less of it costs the disk more than another range
/// that is merged meanwhile would gain.
const AHEAD_BYTES: usize = 256 << 10;
/// What a table in the making has of each key beside its bytes: a hash of 8 bytes, and its filter.
const KEY_BYTES: usize = 12;
/// A table of fewer bytes is not made for the sake of another core: it would cost each look-up more
/// than it spares the load.
const LEAST_PART_BYTES: u64 = 8 << 20;

/// Rows of keys and values as whoever brings them has them: read where they lie, from any thread.
pub trait RowBatch: Send + Sync {
    /// How many rows; under 2^32.
    fn rows(&self) -> usize;
    /// Key and value of a row below [`RowBatch::rows`].
    fn row(&self, row: usize) -> (&[u8], &[u8]);
    /// The key alone.
    fn key(&self, row: usize) -> &[u8] {
        self.row(row).0
    }
    /// Bytes of all keys and values, about.
    fn bytes(&self) -> usize;
}

/// How rows are loaded.
#[derive(Clone, Debug)]
pub struct LoadOptions {
    /// Whether they come in ascending order of their keys.
    pub sorted: bool,
    /// Rows with equal keys.
    pub duplicates: Duplicates,
    /// Memory in bytes, beside the batches that whoever brings them holds himself.
    pub memory_bytes: usize,
    /// A folder that exists, for what is more than that.
    pub scratch: PathBuf,
    /// Bytes of rows from which on another table is begun.
    pub table_bytes: u64,
}

/// How long the phases of a load took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LoadPhases {
    /// Taking rows, tables made meanwhile included.
    pub read: Duration,
    /// Sorting, merging and making the tables that were left.
    pub build: Duration,
}

/// What tables are made by, and what tells their makers to stop.
#[derive(Clone)]
pub(super) struct Maker {
    env: Env,
    of: (JobId, DatabaseId),
    how: Arc<PartOptions>,
    stop: Arc<AtomicBool>,
    progress: Arc<Progress>,
    /// Memory for tables, and for runs.
    spare: SpareBuffers,
    spare_runs: SpareBuffers,
    /// Memory for what is read of runs.
    waves: Buffers,
    /// What ends when files of runs are removed.
    removals: Arc<Mutex<Vec<oneshot::Receiver<()>>>>,
}

impl Maker {
    /// # Errors
    /// Closed, once nobody waits for what is made.
    fn check(&self) -> Result<()> {
        match self.stop.load(Ordering::Relaxed) {
            true => Err(Error::new(siltstone_base::ErrorKind::Closed, "the load was given up")),
            false => Ok(()),
        }
    }

    /// Runs `work` side by side with what is there.
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

/// Work side by side.
struct Working<T>(oneshot::Receiver<Result<T>>);

impl<T> Working<T> {
    async fn end(self) -> Result<T> {
        let gone = || Err(Error::internal("work on a load ended without an answer"));
        self.0.await.unwrap_or_else(|_| gone())
    }
}

/// Rows on their way into tables of a job. Dropped it ends: what was uploaded is collected with
/// the job.
pub struct Loader {
    maker: Maker,
    load: LoadOptions,
    /// Tables that are made at a time.
    side_by_side: usize,
    rows: u64,
    /// Bytes of the rows.
    bytes: u64,
    /// Rows in order on their way into one table.
    piece: TablePiece,
    making: VecDeque<Working<Vec<SstDescriptor>>>,
    tables: Vec<SstDescriptor>,
    /// Rows in any order.
    heap: Heap,
    /// Heaps that are full, the oldest first.
    full: VecDeque<Heap>,
    spilling: VecDeque<Working<SortedHeap>>,
    /// How many were begun.
    spills: usize,
    sorted: Vec<SortedHeap>,
    folder: Option<Arc<ScratchFolder>>,
    phases: LoadPhases,
    began: Duration,
    /// A call failed, or was dropped on its way.
    broken: bool,
}

impl Loader {
    /// A load into `job`, which is for `database`; `how` says what tables are like.
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
        // What a store takes at once goes to it while it is in the core's cache.
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

    /// Whether nothing can have been uploaded: no rows came.
    pub(crate) fn is_untouched(&self) -> bool {
        self.rows == 0 && !self.broken
    }

    /// How far it is: bytes taken and bytes in tables, of twice the bytes that are known.
    #[must_use]
    pub fn progress(&self) -> &Arc<Progress> {
        &self.maker.progress
    }

    /// Takes rows; waits until there is room for more.
    ///
    /// # Errors
    /// Invalid for rows that are not in order where they must be, and for keys that break a bound,
    /// naming the row, counted from 0; what the store or the file system says. All later calls
    /// fail then.
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

    /// Has the rows at hand made into a table.
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
            // More is to come, as a rule: what waits for it need not.
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

    /// Begins to move heaps into files, the oldest first; the youngest waits.
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

    /// The tables, whole and durable, in key order; none without rows.
    ///
    /// # Errors
    /// As [`Loader::push`]; Invalid for equal keys that are refused, naming the key and both rows.
    pub(crate) async fn finish(mut self) -> Result<(Vec<SstDescriptor>, LoadPhases)> {
        self.check_whole()?;
        let made = self.make_rest().await;
        if made.is_err() {
            self.give_up().await;
        }
        made.map(|()| (std::mem::take(&mut self.tables), self.phases))
    }

    /// Waits for what is under way, which comes to nothing: its files are gone then.
    async fn give_up(&mut self) {
        self.maker.stop.store(true, Ordering::Relaxed);
        // What failed first is what the caller must know.
        while let Some(spilling) = self.spilling.pop_front() {
            drop(spilling.end().await);
        }
        while let Some(making) = self.making.pop_front() {
            drop(making.end().await);
        }
        self.sorted.clear();
        self.await_removals().await;
    }

    /// Until the files of all runs that were let go of are removed.
    async fn await_removals(&self) {
        let removals = std::mem::take(&mut *self.maker.removals.lock());
        for removal in removals {
            // It ends without a word.
            let _ = removal.await;
        }
    }

    /// Makes tables of what is left.
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
        // Every core has work until the end, where there is so much.
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

    /// Merges the runs, by ranges of keys.
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

    /// How many ranges are merged at a time, and how many bytes each reads ahead of all its runs.
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
            return Err(Error::invalid("an earlier call of this load failed; make another one"));
        }
        Ok(())
    }
}

impl Drop for Loader {
    fn drop(&mut self) {
        // What is under way comes to nothing at its next slice.
        self.maker.stop.store(true, Ordering::Relaxed);
    }
}

impl fmt::Debug for Loader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Loader").field("rows", &self.rows).finish_non_exhaustive()
    }
}

/// What is asked of the store in turn.
type Lacks<'a> = BoxFuture<'a, Result<()>>;

/// Two rows with one key that are refused; rows are counted from 0.
fn equal_keys(key: &[u8], before: u64, now: u64) -> Error {
    let text = "two rows have the same key, which duplicates=\"error\" refuses: another \
                value says which of them counts";
    let error = Error::invalid(text).with("key", key.escape_ascii());
    error.with("row", before.min(now)).with("and row", before.max(now))
}

/// The number of a row as a run has it: counted from 1.
fn numbered(row: u64) -> Seq {
    Seq(row + 1)
}
