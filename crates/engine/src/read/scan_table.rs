//! One table of a run below a scan. Those that the scan enters first are open from the start; one
//! whose metadata is not in memory is opened when the scan comes to it, so that a short scan over a
//! long run costs what it reads.

use super::scan_blocks::ScanBlocks;
use crate::cache::metadata::{OpenTable, TableHandle};
use siltstone_base::{BlockAddr, Columns, Cursor, Entry, Result, Seq, Step};
use siltstone_sst::{Block, BlockSource, TableCursor};
use std::sync::Arc;

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

/// The blocks of one table that a scan's cursor sees.
pub(super) struct TableBlocks {
    pub(super) table: Arc<OpenTable>,
    pub(super) blocks: Arc<ScanBlocks>,
}

impl BlockSource for TableBlocks {
    fn block(&self, addr: BlockAddr) -> Option<Arc<Block>> {
        self.blocks.block(&self.table, addr)
    }
}
