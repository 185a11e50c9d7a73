//! One table of a run below a scan. Those that the scan enters first are open from the start; one
//! whose metadata is not in memory is opened when the scan comes to it, so that a short scan over a
//! long run costs what it reads. And the blocks that a scan's cursors see.

use crate::cache::fetch::{self, ReadContext};
use crate::cache::metadata::{OpenTable, TableHandle};
use parking_lot::Mutex;
use siltstone_base::{BlockAddr, Columns, Cursor, Entry, Error, Result, Seq, Step};
use siltstone_sst::{Block, BlockSource, Table, TableCursor};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Waves of a table whose blocks stay in the block cache: short scans repeat, long ones do not.
/// What a long one reads stays only where it pushes nothing out.
const CACHED_WAVES: u32 = 3;

/// Bytes of all tables up to which a scan fills the disk cache: a short scan repeats, and one that
/// reads a whole database must not push out what point reads have left there.
const DISK_FILL_BYTES: u64 = 1 << 20;

/// Number of a block that no table has: it stands for the metadata.
pub(super) const METADATA: u32 = u32::MAX;

/// A cursor over a table that may not be open yet.
pub(super) enum ScanTable {
    Open(TableCursor<TableBlocks>),
    Closed(Arc<TableHandle>, Arc<ScanBlocks>),
}

impl ScanTable {
    /// Over an open table, with the block that a first seek enters, as far as it was found.
    pub(super) fn open(
        table: Arc<OpenTable>,
        blocks: Arc<ScanBlocks>,
        held: Option<(u32, Arc<Block>)>,
    ) -> ScanTable {
        let metadata = Arc::clone(&table.table);
        ScanTable::Open(TableCursor::holding(metadata, TableBlocks { table, blocks }, held))
    }

    /// Makes a move, when the metadata is there.
    #[inline]
    fn moved(
        &mut self,
        make: impl Fn(&mut TableCursor<TableBlocks>) -> Result<Step>,
    ) -> Result<Step> {
        if let ScanTable::Closed(handle, blocks) = self {
            let Some(table) = handle.table().or_else(|| blocks.take_opened(handle)) else {
                return Ok(Step::NeedBlock(BlockAddr {
                    sst: handle.descriptor.id,
                    block: METADATA,
                }));
            };
            *self = ScanTable::open(table, Arc::clone(blocks), None);
        }
        match self {
            ScanTable::Open(cursor) => make(cursor),
            ScanTable::Closed(..) => Ok(Step::End),
        }
    }
}

impl Cursor for ScanTable {
    fn seek_first(&mut self) -> Result<Step> {
        self.moved(TableCursor::seek_first)
    }

    fn seek_last(&mut self) -> Result<Step> {
        self.moved(TableCursor::seek_last)
    }

    fn seek(&mut self, key: &[u8], seq: Seq) -> Result<Step> {
        self.moved(|cursor| cursor.seek(key, seq))
    }

    fn seek_before(&mut self, key: &[u8], seq: Seq) -> Result<Step> {
        self.moved(|cursor| cursor.seek_before(key, seq))
    }

    #[inline]
    fn next(&mut self) -> Result<Step> {
        self.moved(TableCursor::next)
    }

    #[inline]
    fn prev(&mut self) -> Result<Step> {
        self.moved(TableCursor::prev)
    }

    #[inline]
    fn entry(&self) -> Option<Entry<'_>> {
        match self {
            ScanTable::Open(cursor) => cursor.entry(),
            ScanTable::Closed(..) => None,
        }
    }

    #[inline]
    fn key(&self) -> Option<(&[u8], Seq)> {
        match self {
            ScanTable::Open(cursor) => cursor.key(),
            ScanTable::Closed(..) => None,
        }
    }

    #[inline]
    fn user_key(&self) -> Option<&[u8]> {
        match self {
            ScanTable::Open(cursor) => cursor.user_key(),
            ScanTable::Closed(..) => None,
        }
    }

    fn plain(&self, seq: Seq, most: usize) -> usize {
        match self {
            ScanTable::Open(cursor) => cursor.plain(seq, most),
            ScanTable::Closed(..) => 0,
        }
    }

    #[inline]
    fn plain_key(&self, ahead: usize) -> &[u8] {
        match self {
            ScanTable::Open(cursor) => cursor.plain_key(ahead),
            ScanTable::Closed(..) => &[],
        }
    }

    #[inline]
    fn plain_value(&self, ahead: usize) -> &[u8] {
        match self {
            ScanTable::Open(cursor) => cursor.plain_value(ahead),
            ScanTable::Closed(..) => &[],
        }
    }

    fn plain_columns(&self) -> Option<Columns<'_>> {
        match self {
            ScanTable::Open(cursor) => cursor.plain_columns(),
            ScanTable::Closed(..) => None,
        }
    }

    fn pass(&mut self, ahead: usize) {
        if let ScanTable::Open(cursor) = self {
            cursor.pass(ahead);
        }
    }
}

/// The blocks that a scan's cursors see: those fetched for it, and those in the cache.
pub(super) struct ScanBlocks {
    context: ReadContext,
    hand: Mutex<BTreeMap<BlockAddr, Arc<Block>>>,
    ahead: Mutex<Vec<ScanPrefetch>>,
    /// Tables whose metadata was read, and that no cursor has taken up yet.
    opened: Mutex<Vec<Arc<OpenTable>>>,
    /// Bytes that the scan has fetched beyond the first blocks.
    fetched: AtomicU64,
}

impl ScanBlocks {
    /// None yet, but for those that memory has.
    pub(super) fn new(context: &ReadContext) -> ScanBlocks {
        let (hand, ahead, opened) = (Mutex::default(), Mutex::default(), Mutex::default());
        let fetched = AtomicU64::new(0);
        ScanBlocks { context: context.clone(), hand, ahead, opened, fetched }
    }

    /// Takes blocks that were fetched.
    pub(super) fn take(&self, fetched: impl Iterator<Item = (BlockAddr, Arc<Block>)>) {
        self.hand.lock().extend(fetched);
    }

    /// Takes metadata that was read.
    pub(super) fn opened(&self, table: Arc<OpenTable>) {
        self.opened.lock().push(table);
    }

    /// The metadata that was read of a table.
    pub(super) fn take_opened(&self, handle: &TableHandle) -> Option<Arc<OpenTable>> {
        let mut opened = self.opened.lock();
        let is_it = |table: &Arc<OpenTable>| table.descriptor().is_part(&handle.descriptor);
        let at = opened.iter().position(is_it)?;
        Some(opened.swap_remove(at))
    }

    /// Blocks of `table` will be asked for.
    pub(super) fn reads(&self, table: &Arc<OpenTable>) {
        let mut ahead = self.ahead.lock();
        if !ahead.iter().any(|ahead| ahead.table.descriptor().id == table.descriptor().id) {
            ahead.push(ScanPrefetch { table: Arc::clone(table), waves: 0 });
        }
    }
}

/// How far one table is read ahead.
struct ScanPrefetch {
    table: Arc<OpenTable>,
    waves: u32,
}

/// The blocks of one table that a scan's cursor sees.
pub(super) struct TableBlocks {
    pub(super) table: Arc<OpenTable>,
    pub(super) blocks: Arc<ScanBlocks>,
}

impl BlockSource for TableBlocks {
    fn block(&self, addr: BlockAddr) -> Option<Arc<Block>> {
        // A cursor keeps the block it stands in, and a scan does not turn back.
        let held = self.blocks.hand.lock().remove(&addr);
        let found = held.or_else(|| self.blocks.context.block(&self.table, addr.block));
        if found.is_none() {
            self.blocks.reads(&self.table);
        }
        found
    }
}

/// The block that a scan enters after `block`, and where it lies. A short scan begins with two: one
/// in ten of them, say, runs over the end of the block it starts in, and a second block in the same
/// request costs far less than a second request.
pub(super) fn following(table: &Table, block: u32, reverse: bool) -> Option<(u32, Range<u64>)> {
    let next = if reverse { block.checked_sub(1) } else { block.checked_add(1) }?;
    Some((next, table.block_range(next)?))
}

/// Fetches `addr` and, as the scan proves long, more and more of what follows it in its table.
pub(super) async fn read_ahead(
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
    let most = context.env.store.profile().scan_bytes;
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
    let keeps = waves <= CACHED_WAVES || context.cache.has_room(bytes);
    let first = table.block_range(addr.block).map_or(0, |range| range.end - range.start);
    let so_far = blocks.fetched.fetch_add(bytes + first, Ordering::Relaxed) + bytes + first;
    let fill = match keeps {
        true if waves <= CACHED_WAVES && so_far <= DISK_FILL_BYTES => fetch::CacheFill::Keep,
        true => fetch::CacheFill::KeepInMemory,
        false => fetch::CacheFill::PassBy,
    };
    let fetched = context.blocks(&table.table, &wanted, fill).await?;
    blocks.hand.lock().extend(fetched);
    Ok(())
}
