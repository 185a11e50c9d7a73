//! Scans: a merge of cursors over memtables and tables, and the driver that fetches the blocks
//! they lack.

use super::read_range::ReadRange;
use super::scan_source::{MemtablePart, ScanSource};
use super::scan_table::{METADATA, ScanBlocks, ScanTable, following, read_ahead};
use super::tree::Levels;
use super::{Pin, Rows};
use crate::cache::ancestors::naming;
use crate::cache::fetch::{self, ReadContext};
use crate::cache::metadata::{OpenTable, TableHandle};
use futures::future::{BoxFuture, try_join_all};
use parking_lot::Mutex;
use siltstone_base::entry::prefix_end;
use siltstone_base::{BlockAddr, Error, ErrorKind, Result, Seq, SstId, Step};
use siltstone_merge::{Covered, Direction, Merge, RunCursor, TableBounds, Visible};
use siltstone_sst::{Block, Table};
use std::any::Any;
use std::fmt;
use std::hint::black_box;
use std::sync::Arc;

/// Which rows a scan gives, and in which direction.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScanRange {
    /// First key, inclusive; `None` from the beginning.
    pub start: Option<Vec<u8>>,
    /// Last key, exclusive; `None` to the end.
    pub end: Option<Vec<u8>>,
    /// From the greatest key down.
    pub reverse: bool,
    /// At most so many rows.
    pub limit: Option<u64>,
}

impl ScanRange {
    /// Every key.
    #[must_use]
    pub fn all() -> Self {
        ScanRange::default()
    }

    /// Every key that starts with `prefix`.
    #[must_use]
    pub fn prefix(prefix: &[u8]) -> Self {
        ScanRange { start: Some(prefix.to_vec()), end: prefix_end(prefix), ..ScanRange::default() }
    }

    /// Whether no key lies in it.
    pub(super) fn is_empty(&self) -> bool {
        self.start.as_ref().zip(self.end.as_ref()).is_some_and(|(start, end)| start >= end)
    }

    /// The bound that a scan begins at.
    fn edge(&self) -> Option<&[u8]> {
        if self.reverse { self.end.as_deref() } else { self.start.as_deref() }
    }
}

/// What filling a batch of rows ended with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FillOutcome {
    /// The batch is as large as was asked for.
    Full,
    /// Blocks must be fetched first: await [`Scan::fetch`], then go on.
    NeedsBlocks,
    /// There are no more rows.
    End,
}

/// An object that a scan keeps alive.
pub(crate) type Guard = Arc<dyn Any + Send + Sync>;

/// Who knows what it means that a table is gone which a scan reads.
pub(crate) trait MissingTables: Send + Sync {
    /// What is told for `missing`, an error that says so of a table of `levels`: that itself, which
    /// ends the scan as Expired, or a Corruption.
    fn judge<'a>(&'a self, levels: &'a Arc<Levels>, missing: Error) -> BoxFuture<'a, Error>;
}

/// A one-shot iteration over a range at one moment. It holds what it reads until it is dropped.
pub struct Scan {
    pub(super) context: ReadContext,
    pub(super) pin: Pin,
    pub(super) range: ScanRange,
    blocks: Arc<ScanBlocks>,
    state: ScanState,
    left: u64,
    /// Counts for the writer's floor while the scan lives.
    pub(super) held: Option<Guard>,
    /// Judges tables that are gone.
    pub(super) judge: Option<Arc<dyn MissingTables>>,
    /// Notes how far rows were handed out, for a transaction.
    noted: Option<Arc<Mutex<ReadRange>>>,
}

enum ScanState {
    /// Metadata and first blocks of the tables are not all there yet.
    Opening,
    Running(Box<Visible<Merge<ScanSource>>>, Option<BlockAddr>),
    Ended,
}

impl Scan {
    pub(crate) fn new(
        context: ReadContext,
        pin: Pin,
        range: ScanRange,
        held: Option<Guard>,
    ) -> Scan {
        context.asked.scans.add(1);
        let blocks = Arc::new(ScanBlocks::new(&context));
        let empty = range.is_empty();
        #[cfg(mutation = "empty_range")]
        assert!(!empty, "planted: a range holds something");
        let state = if empty { ScanState::Ended } else { ScanState::Opening };
        let left = range.limit.unwrap_or(u64::MAX);
        Scan { context, pin, range, blocks, state, left, held, judge: None, noted: None }
    }

    /// The same, which asks `judge` when a table is gone.
    pub(crate) fn judged_by(self, judge: Arc<dyn MissingTables>) -> Scan {
        Scan { judge: Some(judge), ..self }
    }

    /// The same, which notes in `noted` how far rows were handed out.
    pub(crate) fn noting(self, noted: Arc<Mutex<ReadRange>>) -> Scan {
        Scan { noted: Some(noted), ..self }
    }

    /// Appends rows until the batch holds `max_rows` rows or `max_bytes` bytes (at least one row
    /// of any size), as far as memory has them.
    ///
    /// # Errors
    /// Corruption; what the merge operator raised. The scan is over then.
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

    /// Hands one row after another, key and value, to `take` until it answers that it wants no
    /// more ([`FillOutcome::Full`]), as far as memory has them. Spares the copy into [`Rows`].
    ///
    /// # Errors
    /// As [`Scan::fill`]; what `take` answers. The scan is over then.
    pub fn each(&mut self, take: impl FnMut(&[u8], &[u8]) -> Result<bool>) -> Result<FillOutcome> {
        if matches!(self.state, ScanState::Opening) && !self.open_in_memory()? {
            return Ok(FillOutcome::NeedsBlocks);
        }
        let filled = match self.noted.clone() {
            None => self.each_running(take),
            Some(noted) => self.each_noted(&noted, take),
        };
        if filled.is_err() {
            self.state = ScanState::Ended;
        }
        filled
    }

    fn each_noted(
        &mut self,
        noted: &Mutex<ReadRange>,
        mut take: impl FnMut(&[u8], &[u8]) -> Result<bool>,
    ) -> Result<FillOutcome> {
        let filled = self.each_running(|key, value| {
            // For the length of a row, and not of a call: a merge operator, and the consumer of
            // rows, may wait for a thread that commits the transaction, and so for this lock.
            noted.lock().row(key);
            take(key, value)
        })?;
        // A limit leaves the rest unread.
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
            match step {
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

    /// Brings what the last [`Scan::fill`] lacked.
    ///
    /// # Errors
    /// Unavailable, Timeout, Denied, Corruption; the same call may be made again.
    pub fn fetch(&mut self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            let deadline = self.context.deadline;
            let context = self.context.clone();
            let work = async {
                match &mut self.state {
                    ScanState::Opening => self.open().await,
                    ScanState::Running(_, lacking) => match lacking.take() {
                        Some(addr) if addr.block == METADATA => self.open_later(addr.sst).await,
                        Some(addr) => {
                            read_ahead(&self.context, &self.blocks, addr, self.range.reverse).await
                        }
                        None => Ok(()),
                    },
                    ScanState::Ended => Ok(()),
                }
            };
            let fetched = context.deadline(deadline, "scan", work).await;
            match (fetched, &self.judge) {
                (Err(missing), Some(judge)) if missing.kind() == ErrorKind::NotFound => {
                    Err(expired(judge.judge(self.pin.tree.below(), missing).await))
                }
                (fetched, _) => fetched.map_err(expired),
            }
        })
    }

    /// Goes on at `key`: the next row is the first of the range at or behind it, in the scan's
    /// direction. The scan is opened anew there, on the same pin; nothing is read yet. With a `key`
    /// that lies before what was given, rows may come again: who wants none compares.
    pub fn seek(&mut self, key: &[u8]) {
        let range = &mut self.range;
        // The least end behind the key itself.
        let bound = if range.reverse { [key, &[0]].concat() } else { key.to_vec() };
        let edge = if range.reverse { &mut range.end } else { &mut range.start };
        let onward = match edge {
            None => true,
            Some(edge) if range.reverse => bound < *edge,
            Some(edge) => *edge < bound,
        };
        if !onward || matches!(self.state, ScanState::Ended) {
            return;
        }
        *edge = Some(bound);
        self.blocks = Arc::new(ScanBlocks::new(&self.context));
        self.state = if range.is_empty() { ScanState::Ended } else { ScanState::Opening };
    }

    /// How many more rows it gives at most: what is left of its limit, 2^64 - 1 without one.
    #[must_use]
    pub fn rows_left(&self) -> u64 {
        self.left
    }

    /// Whether nothing of it was read yet.
    pub(super) fn is_untouched(&self) -> bool {
        matches!(self.state, ScanState::Opening)
    }

    /// Whether what is read of it counts for a transaction: read no further than is needed.
    #[must_use]
    pub fn is_noted(&self) -> bool {
        self.noted.is_some()
    }

    /// The tables that overlap the range.
    pub(super) fn handles(&self) -> impl Iterator<Item = &Arc<TableHandle>> {
        let (start, end) = (self.range.start.as_deref(), self.range.end.as_deref());
        self.pin.tree.levels.runs.iter().flat_map(move |run| run.overlapping(start, end))
    }

    /// The same in the order of the runs, with what of them is in memory.
    fn reached(&self) -> Vec<OverlappingTable<'_>> {
        let (start, end) = (self.range.start.as_deref(), self.range.end.as_deref());
        let runs = &self.pin.tree.levels.runs;
        let mut reached = Vec::with_capacity(runs.len());
        for (run, tables) in runs.iter().map(|run| run.overlapping(start, end)).enumerate() {
            let first = if self.range.reverse { tables.len().saturating_sub(1) } else { 0 };
            reached.extend(tables.iter().enumerate().map(|(at, handle)| OverlappingTable {
                run,
                handle,
                entered: at == first,
                table: handle.table(),
                held: None,
            }));
        }
        reached
    }

    /// Opens the cursors if all metadata that it takes is in memory.
    fn open_in_memory(&mut self) -> Result<bool> {
        let reached = self.reached();
        let ready = reached.iter().all(|one| one.table.is_some() || !one.opens_first());
        if ready {
            self.state = self.begin(reached);
        }
        Ok(ready)
    }

    /// Loads the metadata and the first block of every source, each in one wave.
    async fn open(&mut self) -> Result<()> {
        let mut reached = self.reached();
        let context = &self.context;
        let missing = reached.iter_mut().filter(|one| one.table.is_none() && one.opens_first());
        let opened = missing.map(async |one| {
            one.table = Some(context.table(one.handle).await?);
            Ok::<_, Error>(())
        });
        try_join_all(opened).await?;
        let reverse = self.range.reverse;
        let firsts = reached.iter().filter_map(|one| {
            let table = one.table.as_ref().filter(|_| one.entered)?;
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
        self.state = self.begin(reached);
        Ok(())
    }

    /// Loads the metadata of a table that the scan has come to, and where it enters it: of all its
    /// parts, where it has several.
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
            read_ahead(&self.context, &self.blocks, addr, self.range.reverse).await?;
        }
        self.blocks.opened(table);
        Ok(())
    }

    /// Finds the blocks where the first seek enters tables, as far as they are in memory. The
    /// memory that it will touch there is prefetched for all tables together.
    fn hold_first_blocks(&self, reached: &mut [OverlappingTable<'_>]) {
        let mut looks = Vec::with_capacity(reached.len());
        for one in reached.iter_mut().filter(|one| one.entered) {
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

    /// Makes the merge of what was `reached`; tables that the scan opens first are open.
    fn begin(&self, mut reached: Vec<OverlappingTable<'_>>) -> ScanState {
        let direction = if self.range.reverse { Direction::Backward } else { Direction::Forward };
        let tree = &self.pin.tree;
        let cover = self.cover(reached.iter().filter_map(|one| one.table.as_deref()));
        let over = |source: ScanSource, newest: Seq| match &cover {
            None => source,
            Some(cover) => {
                let newest = newest.min(self.pin.seq);
                ScanSource::Covered(Box::new(Covered::new(source, Arc::clone(cover), newest)))
            }
        };
        let mut sources = Vec::with_capacity(1 + tree.frozen.len() + tree.levels.runs.len());
        // What comes into an empty one from now on is newer than the view.
        let memtables = tree.memtables_at(self.pin.seq);
        sources.extend(memtables.filter(|(memtable, _)| !memtable.is_empty()).map(|both| {
            let (memtable, until) = both;
            let newest = memtable.last_seq().unwrap_or(Seq::MAX).min(until);
            let mut cursor = memtable.cursor().expecting(self.left);
            if let Some(key) = self.range.edge() {
                cursor.prefetch(key);
            }
            let source = MemtablePart { cursor, floor: tree.flushed_seq, until };
            over(ScanSource::Memtable(source), newest)
        }));
        // What these wait for comes beside what the memtables are about to wait for.
        self.hold_first_blocks(&mut reached);
        let mut reached = reached.into_iter().peekable();
        while let Some(first) = reached.next() {
            let (run, mut newest) = (first.run, first.newest());
            let mut others =
                std::iter::from_fn(|| reached.next_if(|one| one.run == run)).peekable();
            let source = if others.peek().is_none() {
                ScanSource::Table(first.into_cursor(&self.blocks))
            } else {
                let members = std::iter::once(first).chain(others).map(|one| {
                    newest = newest.max(one.newest());
                    (TableBounds::from(&one.handle.descriptor), one.into_cursor(&self.blocks))
                });
                ScanSource::Run(RunCursor::new(members.collect()))
            };
            sources.push(over(source, newest));
        }
        let view = self.pin.view(&self.context);
        let (start, end) = (self.range.start.clone(), self.range.end.clone());
        let merge = Merge::new(sources, direction);
        ScanState::Running(Box::new(Visible::new(merge, view, direction, start, end)), None)
    }
}

/// A table that overlaps the range of a scan.
struct OverlappingTable<'t> {
    /// Number of its run.
    run: usize,
    handle: &'t Arc<TableHandle>,
    /// Whether the first seek enters it: one table of a run.
    entered: bool,
    /// Where it is open.
    table: Option<Arc<OpenTable>>,
    /// The block that the first seek enters, once it was found in memory.
    held: Option<(u32, Arc<Block>)>,
}

impl OverlappingTable<'_> {
    /// Whether the scan opens it before it begins: it enters it first, or it must know its range
    /// deletes, which hide what lies in others.
    fn opens_first(&self) -> bool {
        self.entered || self.handle.descriptor.range_deletes.is_some()
    }

    /// The newest that any entry of it is.
    fn newest(&self) -> Seq {
        let descriptor = &self.handle.descriptor;
        descriptor.seq_override.unwrap_or(descriptor.max_seq)
    }

    fn into_cursor(self, blocks: &Arc<ScanBlocks>) -> ScanTable {
        let blocks = Arc::clone(blocks);
        match self.table {
            Some(table) => ScanTable::open(table, blocks, self.held),
            None => ScanTable::Closed(Arc::clone(self.handle), blocks),
        }
    }
}

/// A reader's scan may lose its tables to a collector once no checkpoint keeps them.
fn expired(error: Error) -> Error {
    if error.kind() != ErrorKind::NotFound {
        return error;
    }
    let text = "no checkpoint or lease keeps what this scan reads any more, and a table of it was \
                collected; scan again (a longer readers.checkpoint_lifetime outlives a longer \
                pause)";
    naming(Error::new(ErrorKind::Expired, text), &error).caused_by(error)
}

/// Where a scan of `range` enters `table`.
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
