//! Scans: a merge of cursors over memtables and tables, and the driver that fetches their missing
//! blocks. A scan must never show a row that is newer than its pin.

use super::dead_spans::DeadSpans;
use super::read_range::ReadRange;
use super::scan_blocks::{ScanBlocks, following};
use super::scan_range::ScanRange;
use super::scan_run::ScanRun;
use super::scan_source::{MemtablePart, ScanSource};
use super::scan_table::{METADATA, ScanTable};
use super::tree::{Levels, TableRun};
use super::warm::let_others_run;
use super::{Pin, Rows};
use crate::cache::ancestors::{is_lost_parent, naming};
use crate::cache::fetch::{self, ReadContext};
use crate::cache::metadata::{OpenTable, TableHandle};
use futures::future::{BoxFuture, try_join_all};
use parking_lot::Mutex;
use siltstone_base::entry::key_after;
use siltstone_base::{BlockAddr, Error, ErrorKind, Result, Seq, SstId, Step};
use siltstone_memtable::Memtable;
use siltstone_merge::{Covered, DeadSpan, Direction, Merge, RunCursor, Visible};
use siltstone_sst::{Block, Table};
use std::any::Any;
use std::fmt;
use std::hint::black_box;
use std::ops::Range;
use std::sync::Arc;

/// How filling a batch of rows ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FillOutcome {
    /// The batch has the requested size.
    Full,
    /// Blocks are missing, or thousands of entries without a row were passed and others may run:
    /// await [`Scan::fetch`], then continue.
    NeedsBlocks,
    /// There are no more rows.
    End,
}

/// Kept alive by a scan.
pub(crate) type Guard = Arc<dyn Any + Send + Sync>;
pub(crate) type Judged<'a> = BoxFuture<'a, Result<()>>;

/// Decides what it means that a table of a scan is missing.
pub(crate) trait MissingTables: Send + Sync {
    /// Ends if a collector may have deleted the table of `levels` that `missing` reports. Otherwise
    /// it is Corruption, or NotFound where the database is gone.
    fn judge<'a>(&'a self, levels: &'a Arc<Levels>, missing: &'a Error) -> Judged<'a>;
}

/// An iteration over a range at one state, which runs once. It keeps the memory that it reads until
/// it is dropped.
pub struct Scan {
    pub(super) context: ReadContext,
    pub(super) pin: Pin,
    pub(super) range: ScanRange,
    blocks: Arc<ScanBlocks>,
    state: ScanState,
    /// Spans of the range without a value, which scans before this one have found.
    dead: Vec<DeadSpan>,
    left: u64,
    /// Keeps the writer's floor down while the scan exists.
    pub(super) held: Option<Guard>,
    /// Decides about missing tables.
    pub(super) judge: Option<Arc<dyn MissingTables>>,
    /// Records for a transaction how far rows were returned.
    noted: Option<Arc<Mutex<ReadRange>>>,
}

enum ScanState {
    /// Metadata or first blocks of the tables are missing.
    Opening,
    Running(Box<Visible<Merge<ScanSource>>>, Option<BlockAddr>),
    Ended,
    /// Further calls return the error, so that no caller takes the rows so far for all.
    Failed(Error),
}

impl Scan {
    pub(crate) fn new(
        context: ReadContext,
        pin: Pin,
        range: ScanRange,
        held: Option<Guard>,
    ) -> Scan {
        context.asked.scans.add(1);
        let blocks = Arc::new(ScanBlocks::new(&context, &range));
        let empty = range.is_empty();
        let state = if empty { ScanState::Ended } else { ScanState::Opening };
        let left = range.limit.unwrap_or(u64::MAX);
        let dead = Vec::new();
        Scan { context, pin, range, blocks, state, dead, left, held, judge: None, noted: None }
    }

    /// This scan, which asks `judge` about a missing table.
    pub(crate) fn judged_by(self, judge: Arc<dyn MissingTables>) -> Scan {
        Scan { judge: Some(judge), ..self }
    }

    /// This scan, which records in `noted` how far rows were returned.
    pub(crate) fn noting(self, noted: Arc<Mutex<ReadRange>>) -> Scan {
        Scan { noted: Some(noted), ..self }
    }

    /// Appends rows from memory until the batch has `max_rows` rows or `max_bytes` bytes (at least
    /// one row of any size), or until a block is missing.
    ///
    /// # Errors
    /// Corruption; errors of the merge operator. The rows before the error were appended. Every
    /// further call returns the same error.
    pub fn fill(
        &mut self,
        rows: &mut Rows,
        max_rows: usize,
        max_bytes: usize,
    ) -> Result<FillOutcome> {
        let full =
            |rows: &Rows| rows.len() >= max_rows || (rows.bytes() >= max_bytes && !rows.is_empty());
        if self.left > 0 && full(rows) {
            return Ok(FillOutcome::Full);
        }
        self.each(|key, value| {
            if !rows.push(key, value) {
                return Err(Error::invalid(
                    "a batch of rows is over 2 GiB; ask for fewer bytes at a time",
                ));
            }
            Ok(!full(rows))
        })
    }

    /// Passes one row after another, key and value, to `take` until `take` returns `false`
    /// ([`FillOutcome::Full`]), or until a block is missing. This saves the copy into [`Rows`].
    ///
    /// # Errors
    /// As [`Scan::fill`]; errors of `take`.
    pub fn each(&mut self, take: impl FnMut(&[u8], &[u8]) -> Result<bool>) -> Result<FillOutcome> {
        if let ScanState::Failed(error) = &self.state {
            return Err(error.clone());
        }
        if matches!(self.state, ScanState::Opening) && !self.open_in_memory()? {
            return Ok(FillOutcome::NeedsBlocks);
        }
        let filled = match self.noted.clone() {
            None => self.each_running(take),
            Some(noted) => self.each_noted(&noted, take),
        };
        if let Err(error) = &filled {
            self.state = ScanState::Failed(error.clone());
        }
        filled
    }

    fn each_noted(
        &mut self,
        noted: &Mutex<ReadRange>,
        mut take: impl FnMut(&[u8], &[u8]) -> Result<bool>,
    ) -> Result<FillOutcome> {
        let filled = self.each_running(|key, value| {
            // Hold the lock for one row only, not for the call: the merge operator and the consumer
            // of rows may wait for a thread that commits the transaction, and so needs this lock.
            noted.lock().row(key);
            take(key, value)
        })?;
        // With a limit, the rows behind it are unread.
        if filled == FillOutcome::End && self.left > 0 {
            noted.lock().all();
        }
        Ok(filled)
    }

    fn each_running(
        &mut self,
        mut take: impl FnMut(&[u8], &[u8]) -> Result<bool>,
    ) -> Result<FillOutcome> {
        let ScanState::Running(visible, lacking) = &mut self.state else {
            return Ok(FillOutcome::End);
        };
        let left = &mut self.left;
        if *left > 0 {
            let step = visible.each(|key, value| {
                *left -= 1;
                Ok(take(key, value)? && *left > 0)
            })?;
            let found = visible.take_dead_spans();
            if !found.is_empty() {
                DeadSpans::learn(&self.pin, found);
            }
            match step {
                Step::Ready if visible.is_paused() => return Ok(FillOutcome::NeedsBlocks),
                Step::Ready if *left > 0 => return Ok(FillOutcome::Full),
                Step::Ready | Step::End => {}
                Step::NeedBlock(addr) => {
                    *lacking = Some(addr);
                    return Ok(FillOutcome::NeedsBlocks);
                }
            }
        }
        self.state = ScanState::Ended;
        Ok(FillOutcome::End)
    }

    /// Fetches the blocks that the last [`Scan::fill`] lacked.
    ///
    /// # Errors
    /// Unavailable, Timeout, Denied, Corruption; the call can be repeated.
    pub fn fetch(&mut self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            let (context, deadline) = (self.context.clone(), self.context.deadline);
            let work = async {
                match &mut self.state {
                    ScanState::Opening => self.open().await,
                    ScanState::Running(_, lacking) => match lacking.take() {
                        Some(addr) if addr.block == METADATA => self.open_later(addr.sst).await,
                        Some(addr) => self.blocks.fetch(addr).await,
                        None => {
                            let_others_run().await;
                            Ok(())
                        }
                    },
                    ScanState::Ended | ScanState::Failed(_) => Ok(()),
                }
            };
            let fetched = context.deadline(deadline, "scan", work).await;
            match (fetched, &self.judge) {
                (Err(missing), Some(judge)) if missing.kind() == ErrorKind::NotFound => {
                    judge.judge(self.pin.tree.below(), &missing).await?;
                    Err(expired(missing))
                }
                (Err(missing), None) if context.writer.is_none() => Err(expired(missing)),
                (fetched, _) => fetched,
            }
        })
    }

    /// Continues at `key`: the next row is the first row of the range at or behind `key`, in the
    /// scan's direction. The scan opens again there, on the same pin, and reads nothing yet. A
    /// `key` before the start of the range, or before the key of the last seek, has no effect. If
    /// the scan has passed `key`, it returns rows again; a caller that wants each row once compares
    /// keys.
    pub fn seek(&mut self, key: &[u8]) {
        let reverse = self.range.reverse;
        // Backward the end is exclusive.
        let bound = if reverse { key_after(key) } else { key.to_vec() };
        let onward = self.range.edge().is_none_or(|edge| {
            if reverse { bound.as_slice() < edge } else { edge < bound.as_slice() }
        });
        if onward && !matches!(self.state, ScanState::Ended) {
            self.begin_at(bound);
        }
    }

    /// Opens the scan again, at another bound on the side where it begins.
    fn begin_at(&mut self, bound: Vec<u8>) {
        let range = &mut self.range;
        *(if range.reverse { &mut range.end } else { &mut range.start }) = Some(bound);
        self.blocks = Arc::new(ScanBlocks::new(&self.context, range));
        self.state = if range.is_empty() { ScanState::Ended } else { ScanState::Opening };
    }

    /// Moves the beginning of the scan out of known spans without a value, and keeps those in the
    /// rest of the range.
    fn skip_dead(&mut self) {
        let mut known = DeadSpans::of(&self.pin);
        while let Some(span) = known.iter().find(|span| self.begins_in(span)) {
            let bound = if self.range.reverse { Some(&span.start) } else { span.end.as_ref() };
            match bound.filter(|bound| !bound.is_empty()) {
                Some(bound) => self.begin_at(bound.to_vec()),
                None => self.state = ScanState::Ended,
            }
            if matches!(self.state, ScanState::Ended) {
                return;
            }
        }
        let (start, end) = (self.range.start.as_deref(), self.range.end.as_deref());
        known.retain(|span| {
            end.is_none_or(|end| span.start < end)
                && (span.end.as_ref().zip(start)).is_none_or(|(end, start)| *end > start)
        });
        self.dead = known;
    }

    /// Whether the first keys of the scan are in `span`.
    fn begins_in(&self, span: &DeadSpan) -> bool {
        match self.range.edge() {
            edge if !self.range.reverse => span.contains(edge.unwrap_or_default()),
            None => span.end.is_none(),
            Some(edge) => span.start < edge && span.end.as_ref().is_none_or(|end| edge <= *end),
        }
    }

    /// Maximum number of further rows: the rest of the limit; 2^64 - 1 without a limit.
    #[must_use]
    pub fn rows_left(&self) -> u64 {
        self.left
    }

    /// Whether no row was read yet.
    pub(super) fn is_untouched(&self) -> bool {
        matches!(self.state, ScanState::Opening)
    }

    /// Whether a transaction records the rows that are read. Callers then read no further than they
    /// need.
    #[must_use]
    pub fn is_noted(&self) -> bool {
        self.noted.is_some()
    }

    /// The tables that overlap the range.
    pub(super) fn handles(&self) -> impl Iterator<Item = &Arc<TableHandle>> {
        let (start, end) = (self.range.start.as_deref(), self.range.end.as_deref());
        self.pin.tree.levels.runs.iter().flat_map(move |run| run.overlapping(start, end))
    }

    /// The tables that the scan opens before it begins, in the order of their runs, with the
    /// metadata that is in memory: the table of each run that the first seek enters, and tables
    /// with range deletes, which hide rows of other tables. Others, of which a long run has
    /// thousands, are opened when the scan comes to them.
    fn opened_first(&self) -> Vec<FirstTable<'_>> {
        let (start, end) = (self.range.start.as_deref(), self.range.end.as_deref());
        let runs = &self.pin.tree.levels.runs;
        let mut firsts = Vec::with_capacity(runs.len());
        for (run, tables) in runs.iter().enumerate() {
            let within = tables.span(start, end);
            if within.is_empty() {
                continue;
            }
            let entered = if self.range.reverse { within.end - 1 } else { within.start };
            let deleting = tables.with_range_deletes(&within).iter().copied();
            let others = deleting.filter(|at| *at != entered);
            firsts.extend(std::iter::once(entered).chain(others).filter_map(|at| {
                let handle = tables.tables.get(at)?;
                let place = (at == entered).then(|| (run, within.clone(), at));
                Some(FirstTable { place, handle, table: handle.table(), held: None })
            }));
        }
        firsts
    }

    /// The newest sequence number of an entry of the tables number `within` of a run, or a higher
    /// one. A higher one costs steps over rows that a range delete hides, and a long run is not
    /// looked through for that.
    fn newest_of(run: &TableRun, within: &Range<usize>) -> Seq {
        const FEW: usize = 64;
        let tables = run.tables.get(within.clone()).unwrap_or_default();
        if tables.len() > FEW {
            return run.newest;
        }
        tables.iter().map(|table| table.newest()).max().unwrap_or(Seq::NONE)
    }

    /// Opens the cursors if all required metadata is in memory.
    fn open_in_memory(&mut self) -> Result<bool> {
        self.skip_dead();
        if matches!(self.state, ScanState::Ended) {
            return Ok(true);
        }
        let firsts = self.opened_first();
        let ready = firsts.iter().all(|one| one.table.is_some());
        if ready {
            self.state = self.begin(firsts);
        }
        Ok(ready)
    }

    /// Loads the metadata and the first block of every source, each in one wave.
    async fn open(&mut self) -> Result<()> {
        let mut tables = self.opened_first();
        let context = &self.context;
        let missing = tables.iter_mut().filter(|one| one.table.is_none());
        let opened = missing.map(async |one| {
            one.table = Some(context.table(one.handle).await?);
            Ok::<_, Error>(())
        });
        try_join_all(opened).await?;
        let reverse = self.range.reverse;
        let firsts = tables.iter().filter_map(|one| {
            let table = one.table.as_ref().filter(|_| one.place.is_some())?;
            let block = first_block(table, &self.range)?;
            context.block(table, block).is_none().then_some((table, block))
        });
        let fetched = firsts.map(async |(table, block)| {
            let mut wanted = vec![block];
            wanted.extend(following(table, block, reverse).map(|(block, _)| block));
            wanted.sort_unstable();
            context.blocks(&table.table, &wanted, fetch::CacheFill::Keep).await
        });
        let fetched = try_join_all(fetched).await?;
        self.blocks.take(fetched.into_iter().flatten());
        self.state = self.begin(tables);
        Ok(())
    }

    /// Loads the metadata of a table that the scan has reached, and the block at which the scan
    /// enters it. If the table has several parts, all of them are loaded.
    async fn open_later(&self, id: SstId) -> Result<()> {
        let mut parts = 0;
        for handle in self.handles() {
            if handle.descriptor.id == id {
                self.open_part_later(handle).await?;
                parts += 1;
            }
        }
        match parts {
            0 => Err(Error::internal("a scan asks for a table that it does not read")),
            _ => Ok(()),
        }
    }

    async fn open_part_later(&self, handle: &Arc<TableHandle>) -> Result<()> {
        let table = self.context.table(handle).await?;
        let edge = ScanRange { reverse: self.range.reverse, ..ScanRange::all() };
        if let Some(block) = first_block(&table, &edge)
            && self.context.block(&table, block).is_none()
        {
            self.blocks.reads(&table);
            let addr = BlockAddr { sst: handle.descriptor.id, block };
            self.blocks.fetch(addr).await?;
        }
        self.blocks.opened(table);
        Ok(())
    }

    /// Finds the blocks at which the first seek enters tables, if they are in memory. The memory
    /// that the seek will touch is prefetched for all tables together.
    fn hold_first_blocks(&self, firsts: &mut [FirstTable<'_>]) {
        let mut looks = Vec::with_capacity(firsts.len());
        for one in firsts.iter_mut().filter(|one| one.place.is_some()) {
            if let Some(table) = &one.table
                && let Some(block) = first_block(table, &self.range)
            {
                let look = table.slots.look();
                black_box(look.prefetch(block));
                looks.push((table, look, block, &mut one.held));
            }
        }
        black_box(looks.iter().fold(0, |sum, (_, look, block, _)| sum ^ look.holders(*block)));
        let mut loaded = 0;
        for (table, look, block, held) in looks {
            if let Some(found) = look.block(block) {
                self.context.cache.used(table, block);
                loaded ^= self.range.edge().map_or(0, |key| found.prefetch_on(key));
                *held = Some((block, found));
            }
        }
        black_box(loaded);
    }

    /// Creates the merge. `firsts` are the tables that the scan opens first, and they are open.
    fn begin(&self, mut firsts: Vec<FirstTable<'_>>) -> ScanState {
        let direction = if self.range.reverse { Direction::Backward } else { Direction::Forward };
        let tree = &self.pin.tree;
        let cover = self.cover(firsts.iter().filter_map(|one| one.table.as_deref()));
        let over = |source: ScanSource, newest: Seq| match &cover {
            None => source,
            Some(cover) => {
                let newest = newest.min(self.pin.seq);
                ScanSource::Covered(Box::new(Covered::new(source, Arc::clone(cover), newest)))
            }
        };
        let mut sources = Vec::with_capacity(1 + tree.frozen.len() + tree.levels.runs.len());
        // Rows that are inserted into an empty memtable from now on are newer than the view.
        let memtables =
            || tree.memtables_at(self.pin.seq).filter(|(memtable, _)| !memtable.is_empty());
        let keys = |memtable: &Memtable| memtable.keys() as u64;
        let entries =
            memtables().fold(tree.levels.entries, |sum, (memtable, _)| sum + keys(memtable));
        sources.extend(memtables().map(|both| {
            let (memtable, until) = both;
            let newest = memtable.last_seq().unwrap_or(Seq::MAX).min(until);
            // Its share of the rows that are wanted, if its keys lie evenly among all others: every
            // row that it reads ahead in vain is several loads from memory.
            let share = self.left.saturating_mul(keys(memtable)) / entries.max(1);
            let mut cursor = memtable.cursor().expecting(share.saturating_add(1));
            if !self.range.reverse {
                cursor = cursor.by_key();
            }
            if let Some(key) = self.range.edge() {
                cursor.prefetch(key);
            }
            let source = MemtablePart::new(cursor, tree.flushed_seq, until);
            over(ScanSource::Memtable(source), newest)
        }));
        // The memory that these blocks wait for arrives in parallel with that of the memtables.
        self.hold_first_blocks(&mut firsts);
        for mut first in firsts {
            let Some((run, within, at)) = first.place.take() else { continue };
            let newest = match (&cover, tree.levels.runs.get(run)) {
                (Some(_), Some(tables)) => Scan::newest_of(tables, &within),
                _ => Seq::MAX,
            };
            let cursor = first.into_cursor(&self.blocks);
            let source = if within.len() == 1 {
                ScanSource::Table(cursor)
            } else {
                let place = (run, within);
                let run = ScanRun::new(&tree.levels, place, (at, cursor), &self.blocks);
                ScanSource::Run(RunCursor::new(run))
            };
            sources.push(over(source, newest));
        }
        let view = self.pin.view(&self.context);
        let (start, end) = (self.range.start.clone(), self.range.end.clone());
        let merge = Merge::new(sources, direction);
        // Queued ingests are between memtables in time.
        let merge = if tree.queue.is_none() { merge.newest_first() } else { merge };
        let visible = Visible::new(merge, view, direction, start, end);
        ScanState::Running(Box::new(visible.skipping(self.dead.clone()).pausing()), None)
    }
}

/// A table that a scan opens before it begins.
struct FirstTable<'t> {
    /// The table's run, the tables of it that overlap the range, and its own number among them,
    /// if the first seek enters the table. It enters one table of each run.
    place: Option<(usize, Range<usize>, usize)>,
    handle: &'t Arc<TableHandle>,
    /// The open table, if its metadata is in memory.
    table: Option<Arc<OpenTable>>,
    /// The block that the first seek enters, if it was found in memory.
    held: Option<(u32, Arc<Block>)>,
}

impl FirstTable<'_> {
    fn into_cursor(self, blocks: &Arc<ScanBlocks>) -> ScanTable {
        let blocks = Arc::clone(blocks);
        match self.table {
            Some(table) => ScanTable::open(table, blocks, self.held),
            None => ScanTable::Closed(Arc::clone(self.handle), blocks),
        }
    }
}

/// The error for a scan whose table was collected: no checkpoint or lease kept it.
fn expired(error: Error) -> Error {
    if error.kind() != ErrorKind::NotFound || is_lost_parent(&error) {
        return error;
    }
    let text = "no checkpoint or lease keeps what this scan reads any more, and a table of it was \
                collected; scan again (a longer readers.checkpoint_lifetime outlives a longer \
                pause)";
    naming(Error::new(ErrorKind::Expired, text), &error).caused_by(error)
}

/// The block at which a scan of `range` enters `table`.
fn first_block(table: &Table, range: &ScanRange) -> Option<u32> {
    let last = table.block_count().checked_sub(1)?;
    let (start, end) = (range.start.as_deref(), range.end.as_deref());
    let (start, end) = table.descriptor().in_sight(start, end);
    let edge = if range.reverse { end } else { start };
    let found = edge.map(|key| table.find_block(key, Seq::MAX));
    Some(match (range.reverse, found) {
        (false, None) => 0,
        (false, Some(found)) => found?,
        (true, None | Some(None)) => last,
        (true, Some(Some(found))) => found,
    })
}

impl fmt::Debug for Scan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scan")
            .field("range", &self.range)
            .field("seq", &self.pin.seq)
            .finish_non_exhaustive()
    }
}
