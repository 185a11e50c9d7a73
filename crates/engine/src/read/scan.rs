//! Scans: a merge of cursors over memtables and tables, and the driver that fetches the blocks
//! they lack.

use super::get::newest_seq;
use super::{Pin, Rows, Snapshot};
use crate::cache::{OpenTable, TableHandle};
use crate::fetch::{self, ReadContext};
use futures::future::{BoxFuture, try_join_all};
use parking_lot::Mutex;
use siltstone_base::entry::prefix_end;
use siltstone_base::{BlockAddr, Cursor, Entry, Error, ErrorKind, Result, Seq, Step};
use siltstone_memtable::MemCursor;
use siltstone_merge::{Covered, Direction, Merge, RunCursor, TableBounds, Visible};
use siltstone_sst::{Block, BlockSource, Table, TableCursor};
use std::collections::BTreeMap;
use std::fmt;
use std::hint::black_box;
use std::ops::Range;
use std::sync::Arc;

/// Blocks of one table that one wave of read-ahead may bring, in bytes: the product of bandwidth
/// and delay of one stream (50 MiB/s, 80 ms) is 4 MiB.
const READ_AHEAD_BYTES: u64 = 4 << 20;
/// Likewise where a read waits for no network: a system call for a dozen blocks costs nothing, and
/// what was read is still in the processor's caches when it is used.
const NEAR_READ_AHEAD_BYTES: u64 = 256 << 10;
/// Waves of a table whose blocks stay in the block cache: short scans repeat, long ones do not.
const CACHED_WAVES: u32 = 3;

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
}

/// What filling a batch of rows ended with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fill {
    /// The batch is as large as was asked for.
    Full,
    /// Blocks must be fetched first: await [`Scan::fetch`], then go on.
    NeedsBlocks,
    /// There are no more rows.
    End,
}

/// A one-shot iteration over a range at one moment. It holds what it reads until it is dropped.
pub struct Scan {
    pub(super) context: ReadContext,
    pub(super) pin: Pin,
    pub(super) range: ScanRange,
    blocks: Arc<ScanBlocks>,
    state: State,
    left: u64,
    /// Counts for the writer's floor while the scan lives.
    pub(super) held: Option<Snapshot>,
}

enum State {
    /// Metadata and first blocks of the tables are not all there yet.
    Opening,
    Running(Box<Visible<Merge<Source>>>, Option<BlockAddr>),
    Ended,
}

/// One input of the merge.
enum Source {
    Memtable(Above),
    Run(RunCursor<TableCursor<TableBlocks>>),
    /// One of the others, without what range deletes hide.
    Covered(Box<Covered<Source>>),
}

/// A memtable's entries above a sequence number.
struct Above {
    cursor: MemCursor,
    floor: Seq,
}

impl Above {
    /// Passes over entries at or below the floor. Memtables never lack a block.
    fn settle(
        &mut self,
        mut step: Step,
        onward: fn(&mut MemCursor) -> Result<Step>,
    ) -> Result<Step> {
        while step == Step::Ready
            && self.cursor.entry().is_some_and(|entry| entry.seq <= self.floor)
        {
            step = onward(&mut self.cursor)?;
        }
        Ok(step)
    }
}

impl Cursor for Above {
    fn seek_first(&mut self) -> Result<Step> {
        let step = self.cursor.seek_first()?;
        self.settle(step, MemCursor::next)
    }

    fn seek_last(&mut self) -> Result<Step> {
        let step = self.cursor.seek_last()?;
        self.settle(step, MemCursor::prev)
    }

    fn seek(&mut self, key: &[u8], seq: Seq) -> Result<Step> {
        let step = self.cursor.seek(key, seq)?;
        self.settle(step, MemCursor::next)
    }

    fn seek_before(&mut self, key: &[u8], seq: Seq) -> Result<Step> {
        let step = self.cursor.seek_before(key, seq)?;
        self.settle(step, MemCursor::prev)
    }

    fn next(&mut self) -> Result<Step> {
        let step = self.cursor.next()?;
        self.settle(step, MemCursor::next)
    }

    fn prev(&mut self) -> Result<Step> {
        let step = self.cursor.prev()?;
        self.settle(step, MemCursor::prev)
    }

    fn entry(&self) -> Option<Entry<'_>> {
        self.cursor.entry()
    }

    fn key(&self) -> Option<(&[u8], Seq)> {
        self.cursor.key()
    }
}

macro_rules! forward_to_source {
    ($($name:ident($($arg:ident: $type:ty),*));* $(;)?) => {
        impl Cursor for Source {
            $(fn $name(&mut self, $($arg: $type),*) -> Result<Step> {
                match self {
                    Source::Memtable(cursor) => cursor.$name($($arg),*),
                    Source::Run(cursor) => cursor.$name($($arg),*),
                    Source::Covered(cursor) => cursor.$name($($arg),*),
                }
            })*

            fn entry(&self) -> Option<Entry<'_>> {
                match self {
                    Source::Memtable(cursor) => cursor.entry(),
                    Source::Run(cursor) => cursor.entry(),
                    Source::Covered(cursor) => cursor.entry(),
                }
            }

            fn key(&self) -> Option<(&[u8], Seq)> {
                match self {
                    Source::Memtable(cursor) => cursor.key(),
                    Source::Run(cursor) => cursor.key(),
                    Source::Covered(cursor) => cursor.key(),
                }
            }
        }
    };
}

forward_to_source! {
    seek_first();
    seek_last();
    seek(key: &[u8], seq: Seq);
    seek_before(key: &[u8], seq: Seq);
    next();
    prev();
}

/// The blocks that a scan's cursors see: those fetched for it, and those in the cache.
struct ScanBlocks {
    cache: Arc<crate::cache::BlockCache>,
    hand: Mutex<BTreeMap<BlockAddr, Arc<Block>>>,
    ahead: Mutex<Vec<Ahead>>,
}

/// How far one table is read ahead.
struct Ahead {
    table: Arc<OpenTable>,
    waves: u32,
}

/// The blocks of one table that a scan's cursor sees.
struct TableBlocks {
    table: Arc<OpenTable>,
    blocks: Arc<ScanBlocks>,
}

impl BlockSource for TableBlocks {
    fn block(&self, addr: BlockAddr) -> Option<Arc<Block>> {
        // A cursor keeps the block it stands in, and a scan does not turn back.
        let held = self.blocks.hand.lock().remove(&addr);
        held.or_else(|| self.blocks.cache.get(&self.table, addr.block))
    }
}

impl Scan {
    pub(crate) fn new(
        context: ReadContext,
        pin: Pin,
        range: ScanRange,
        held: Option<Snapshot>,
    ) -> Scan {
        context.asked.scans.add(1);
        let blocks = Arc::new(ScanBlocks {
            cache: Arc::clone(&context.cache),
            hand: Mutex::default(),
            ahead: Mutex::default(),
        });
        let empty = matches!((&range.start, &range.end), (Some(start), Some(end)) if start >= end);
        #[cfg(mutation = "empty_range")]
        assert!(!empty, "planted: a range holds something");
        let state = if empty { State::Ended } else { State::Opening };
        let left = range.limit.unwrap_or(u64::MAX);
        Scan { context, pin, range, blocks, state, left, held }
    }

    /// Appends rows until the batch holds `max_rows` rows or `max_bytes` bytes (at least one row
    /// whatever its size), as far as memory has them.
    ///
    /// # Errors
    /// Corruption; what the merge operator raised. The scan is over then.
    pub fn fill(&mut self, rows: &mut Rows, max_rows: usize, max_bytes: usize) -> Result<Fill> {
        let full =
            |rows: &Rows| rows.len() >= max_rows || (rows.bytes() >= max_bytes && !rows.is_empty());
        if self.left > 0 && full(rows) {
            return Ok(Fill::Full);
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
    /// more ([`Fill::Full`]), as far as memory has them. Spares the copy into [`Rows`].
    ///
    /// # Errors
    /// As [`Scan::fill`]; what `take` answers. The scan is over then.
    pub fn each(&mut self, take: impl FnMut(&[u8], &[u8]) -> Result<bool>) -> Result<Fill> {
        if matches!(self.state, State::Opening) && !self.open_in_memory()? {
            return Ok(Fill::NeedsBlocks);
        }
        let filled = self.each_running(take);
        if filled.is_err() {
            self.state = State::Ended;
        }
        filled
    }

    fn each_running(&mut self, mut take: impl FnMut(&[u8], &[u8]) -> Result<bool>) -> Result<Fill> {
        let State::Running(visible, lacking) = &mut self.state else { return Ok(Fill::End) };
        let left = &mut self.left;
        if *left > 0 {
            let step = visible.each(|key, value| {
                *left -= 1;
                Ok(take(key, value)? && *left > 0)
            })?;
            match step {
                Step::Ready if *left > 0 => return Ok(Fill::Full),
                Step::Ready | Step::End => {}
                Step::NeedBlock(addr) => {
                    *lacking = Some(addr);
                    return Ok(Fill::NeedsBlocks);
                }
            }
        }
        self.state = State::Ended;
        Ok(Fill::End)
    }

    /// Brings what the last [`Scan::fill`] lacked.
    ///
    /// # Errors
    /// Unavailable, Timeout, Denied, Corruption; the same call may be made again.
    pub fn fetch(&mut self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            let deadline = self.context.deadline;
            let env = self.context.env.clone();
            let work = async {
                match &mut self.state {
                    State::Opening => self.open().await,
                    State::Running(_, lacking) => match lacking.take() {
                        Some(addr) => {
                            read_ahead(&self.context, &self.blocks, addr, self.range.reverse).await
                        }
                        None => Ok(()),
                    },
                    State::Ended => Ok(()),
                }
            };
            env.deadline(deadline, "scan", work).await.map_err(expired)
        })
    }

    /// How many more rows it gives at most: what is left of its limit, 2^64 - 1 without one.
    #[must_use]
    pub fn rows_left(&self) -> u64 {
        self.left
    }

    /// Whether nothing of it was read yet.
    pub(super) fn is_untouched(&self) -> bool {
        matches!(self.state, State::Opening)
    }

    /// The tables that overlap the range.
    pub(super) fn handles(&self) -> impl Iterator<Item = &Arc<TableHandle>> {
        let (start, end) = (self.range.start.as_deref(), self.range.end.as_deref());
        self.pin.tree.levels.runs.iter().flat_map(move |run| run.overlapping(start, end))
    }

    /// Opens the cursors if all metadata is in memory.
    fn open_in_memory(&mut self) -> Result<bool> {
        let tables: Option<Vec<_>> = self.handles().map(|handle| handle.table()).collect();
        match tables {
            Some(tables) => self.start(tables).map(|()| true),
            None => Ok(false),
        }
    }

    /// Loads the metadata and the first block of every source, each in one wave.
    async fn open(&mut self) -> Result<()> {
        let handles: Vec<_> = self.handles().cloned().collect();
        let context = &self.context;
        let tables = try_join_all(handles.iter().map(|handle| context.table(handle))).await?;
        let firsts = tables.iter().filter_map(|table| {
            let block = first_block(table, &self.range)?;
            context.cache.get(table, block).is_none().then_some((table, block))
        });
        let reverse = self.range.reverse;
        let fetched = firsts.map(|(table, block)| async move {
            let mut wanted = vec![block];
            wanted.extend(following(table, block, reverse).map(|(block, _)| block));
            wanted.sort_unstable();
            context.blocks(&table.table, &wanted, fetch::Fill::Keep).await
        });
        let fetched = try_join_all(fetched).await?;
        self.blocks.hand.lock().extend(fetched.into_iter().flatten());
        self.start(tables)
    }

    /// Which of [`Scan::handles`] the first seek enters: one a run.
    fn entered(&self) -> Vec<usize> {
        let (start, end) = (self.range.start.as_deref(), self.range.end.as_deref());
        let mut before = 0;
        let mut entered = Vec::new();
        for run in &self.pin.tree.levels.runs {
            let after = before + run.overlapping(start, end).count();
            if before < after {
                entered.push(if self.range.reverse { after - 1 } else { before });
            }
            before = after;
        }
        entered
    }

    /// The blocks where the first seek enters `tables`, as far as they are in memory; `None` for
    /// all others. What it will touch there is brought near, of all of them side by side.
    fn first_blocks(&self, tables: &[Arc<OpenTable>]) -> Vec<Option<(u32, Arc<Block>)>> {
        let edge = if self.range.reverse { &self.range.end } else { &self.range.start };
        let looks: Vec<_> = self
            .entered()
            .into_iter()
            .filter_map(|at| {
                let table = tables.get(at)?;
                let block = first_block(table, &self.range)?;
                let look = table.slots.look();
                black_box(look.touch(block));
                Some((at, table, look, block))
            })
            .collect();
        black_box(looks.iter().fold(0, |sum, (_, _, look, block)| sum ^ look.holders(*block)));
        let mut blocks = vec![None; tables.len()];
        for (at, table, look, block) in looks {
            if let (Some(found), Some(place)) = (look.block(block), blocks.get_mut(at)) {
                self.context.cache.used(table, block);
                *place = Some((block, found));
            }
        }
        if let Some(key) = edge {
            let found = blocks.iter().flatten();
            black_box(found.fold(0, |sum, (_, block): &(u32, Arc<Block>)| sum ^ block.touch(key)));
        }
        blocks
    }

    /// Makes the merge; `tables` in the order of [`Scan::handles`].
    fn start(&mut self, tables: Vec<Arc<OpenTable>>) -> Result<()> {
        let direction = if self.range.reverse { Direction::Backward } else { Direction::Forward };
        let cover = self.cover(&tables);
        let over = |source: Source, newest: Seq| match &cover {
            None => source,
            Some(cover) => {
                let newest = newest.min(self.pin.seq);
                Source::Covered(Box::new(Covered::new(source, Arc::clone(cover), newest)))
            }
        };
        let floor = self.pin.tree.flushed_seq;
        let mut sources: Vec<Source> = self
            .pin
            .tree
            .memtables()
            // What comes into an empty one from now on is newer than the view.
            .filter(|memtable| !memtable.is_empty())
            .map(|m| {
                let newest = m.last_seq().unwrap_or(Seq::MAX);
                over(Source::Memtable(Above { cursor: m.cursor(), floor }), newest)
            })
            .collect();
        let (start, end) = (self.range.start.as_deref(), self.range.end.as_deref());
        let blocks = self.first_blocks(&tables);
        let ahead = tables.iter().map(|table| Ahead { table: Arc::clone(table), waves: 0 });
        self.blocks.ahead.lock().extend(ahead);
        let mut tables = tables.into_iter().zip(blocks);
        for run in &self.pin.tree.levels.runs {
            let mut newest = Seq::NONE;
            let members: Vec<_> = run
                .overlapping(start, end)
                .zip(tables.by_ref())
                .map(|(handle, (table, held))| {
                    let bounds = TableBounds {
                        first_key: handle.descriptor.first_key.clone(),
                        last_key: handle.descriptor.last_key.clone(),
                    };
                    let metadata = Arc::clone(&table.table);
                    newest = newest.max(newest_seq(&metadata));
                    let blocks = TableBlocks { table, blocks: Arc::clone(&self.blocks) };
                    (bounds, TableCursor::holding(metadata, blocks, held))
                })
                .collect();
            if !members.is_empty() {
                sources.push(over(Source::Run(RunCursor::new(members)), newest));
            }
        }
        let view = self.pin.view(&self.context);
        let (start, end) = (self.range.start.clone(), self.range.end.clone());
        let merge = Merge::new(sources, direction);
        let visible = Visible::new(merge, view, direction, start, end);
        self.state = State::Running(Box::new(visible), None);
        Ok(())
    }
}

/// A reader's scan may lose its tables to a collector once no checkpoint keeps them.
fn expired(error: Error) -> Error {
    if error.kind() != ErrorKind::NotFound {
        return error;
    }
    let text = "no checkpoint keeps what this scan reads any more, and a table of it was \
                collected; scan again (a longer checkpoint_lifetime outlives a longer pause)";
    Error::new(ErrorKind::Expired, text).caused_by(error)
}

/// Where a scan of `range` enters `table`.
fn first_block(table: &Table, range: &ScanRange) -> Option<u32> {
    let last = table.block_count().checked_sub(1)?;
    let edge = if range.reverse { &range.end } else { &range.start };
    let found = edge.as_ref().map(|key| table.find_block(key, Seq::MAX));
    Some(match (range.reverse, found) {
        (false, None) => 0,
        (false, Some(found)) => found?,
        (true, None | Some(None)) => last,
        (true, Some(Some(found))) => found,
    })
}

/// The block that a scan enters after `block`, and where it lies. A short scan begins with two: one
/// in ten of them, say, runs over the end of the block it starts in, and a second block in the same
/// request costs far less than a second request.
fn following(table: &Table, block: u32, reverse: bool) -> Option<(u32, Range<u64>)> {
    let next = if reverse { block.checked_sub(1) } else { block.checked_add(1) }?;
    Some((next, table.block_range(next)?))
}

/// Fetches `addr` and, as the scan proves long, more and more of what follows it in its table.
async fn read_ahead(
    context: &ReadContext,
    blocks: &ScanBlocks,
    addr: BlockAddr,
    reverse: bool,
) -> Result<()> {
    let (table, waves) = {
        let mut ahead = blocks.ahead.lock();
        let of_block = ahead.iter_mut().find(|ahead| ahead.table.descriptor().id == addr.sst);
        let ahead = of_block.ok_or_else(|| {
            Error::internal("a scan asks for a block of a table that it does not read")
        })?;
        ahead.waves += 1;
        (Arc::clone(&ahead.table), ahead.waves)
    };
    let near = context.env.store.is_near();
    let most = if near { NEAR_READ_AHEAD_BYTES } else { READ_AHEAD_BYTES };
    let mut wanted = vec![addr.block];
    let mut bytes = 0;
    let mut next = addr.block;
    // Two blocks, four, eight, … bounded by bytes.
    for _ in 1..(1u64 << waves.min(16)) {
        let Some((block, range)) = following(&table, next, reverse) else { break };
        bytes += range.end - range.start;
        if bytes > most {
            break;
        }
        wanted.push(block);
        next = block;
    }
    wanted.sort_unstable();
    let fill = if waves <= CACHED_WAVES { fetch::Fill::Keep } else { fetch::Fill::PassBy };
    let fetched = context.blocks(&table.table, &wanted, fill).await?;
    blocks.hand.lock().extend(fetched);
    Ok(())
}

impl fmt::Debug for Scan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scan")
            .field("range", &self.range)
            .field("seq", &self.pin.seq)
            .finish_non_exhaustive()
    }
}
