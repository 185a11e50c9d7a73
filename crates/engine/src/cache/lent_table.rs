//! Tables that are read where they lie, in memory that the store lends (RFC 0006, "Beyond the
//! cache"): the loan of one table, and which of its blocks were checked.
//!
//! ```text
//! block cache ─► block (its head alone) ─► the table's bytes, the system's memory
//! open table ──► loan ─────────────────────┘
//! ```
//! Blocks go with the loan: one that was left behind in the cache would keep the bytes of a table
//! that is deleted on the disk.

use super::blocks::BlockCache;
use bytes::Bytes;
use siltstone_base::SstId;
use siltstone_sst::{Block, Table};
use siltstone_store::Store;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A table's object, lent.
#[derive(Debug)]
pub(crate) struct LentTable {
    sst: SstId,
    blocks: u32,
    bytes: Bytes,
    /// Blocks that were checked, a bit each: their heads may leave the cache and be made again,
    /// their bytes stay what they are.
    checked: Box<[AtomicU64]>,
    /// The cache that has blocks over it.
    cache: Arc<BlockCache>,
}

impl LentTable {
    /// The object of `table`, if `store` lends it.
    pub(crate) fn ask(
        table: &Table,
        cache: &Arc<BlockCache>,
        store: &dyn Store,
    ) -> Option<LentTable> {
        let (descriptor, blocks) = (table.descriptor(), table.block_count());
        let bytes = store.reads().lend(descriptor.name(), descriptor.object_bytes)?;
        let words = blocks.div_ceil(u64::BITS);
        let checked = (0..words).map(|_| AtomicU64::new(0)).collect();
        cache.begin_lent(bytes.len() as u64);
        Some(LentTable { sst: descriptor.id, blocks, bytes, checked, cache: Arc::clone(cache) })
    }

    /// A block of the table where it lies; `None` for one that is compressed or damaged.
    pub(crate) fn block(&self, table: &Table, block: u32) -> Option<Block> {
        let range = table.block_range(block)?;
        let (start, end) = (usize::try_from(range.start).ok()?, usize::try_from(range.end).ok()?);
        if start > end || end > self.bytes.len() {
            return None;
        }
        let checked = self.checked.get((block / u64::BITS) as usize)?;
        let bit = 1 << (block % u64::BITS);
        let known = checked.load(Ordering::Relaxed) & bit != 0;
        let decoded = table.decode_lent(block, self.bytes.slice(start..end), known).ok()??;
        if !known {
            checked.fetch_or(bit, Ordering::Relaxed);
        }
        Some(decoded)
    }
}

impl Drop for LentTable {
    fn drop(&mut self) {
        self.cache.end_lent(self.sst, self.blocks, self.bytes.len() as u64);
    }
}
