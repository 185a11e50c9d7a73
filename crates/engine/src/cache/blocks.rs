//! Decoded blocks, in one sharded cache a handle.

use super::metadata::OpenTable;
use crate::io::counter::Counter;
use quick_cache::Weighter;
use siltstone_base::{BlockAddr, SstId};
use siltstone_sst::Block;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Decoded blocks, weighed by their bytes. Scan-resistant by its policy (S3-FIFO); long scans fill
/// what room there is and push nothing out, compactions do not fill it at all.
pub(crate) struct BlockCache {
    blocks: quick_cache::sync::Cache<BlockAddr, Arc<Block>, ByBytes>,
    hits: Counter,
    misses: Counter,
    lent: AtomicU64,
}

#[derive(Clone)]
struct ByBytes;

impl Weighter<BlockAddr, Arc<Block>> for ByBytes {
    fn weight(&self, _: &BlockAddr, block: &Arc<Block>) -> u64 {
        block.memory_bytes() as u64
    }
}

impl BlockCache {
    pub(crate) fn new(bytes: usize, block_bytes: usize) -> Self {
        // The number of items is an estimate for the cache's own tables.
        let items = (bytes / block_bytes.max(1)).clamp(16, 1 << 24);
        BlockCache {
            blocks: quick_cache::sync::Cache::with_weighter(items, bytes as u64, ByBytes),
            hits: Counter::default(),
            misses: Counter::default(),
            lent: AtomicU64::new(0),
        }
    }

    /// The cache of one handle alone: names of tables belong to one database.
    pub(crate) fn of_handle(bytes: usize, block_bytes: usize) -> Arc<BlockCache> {
        #[cfg(mutation = "one_cache")]
        {
            static EVERYBODYS: std::sync::OnceLock<Arc<BlockCache>> = std::sync::OnceLock::new();
            let make = || Arc::new(BlockCache::new(bytes, block_bytes));
            Arc::clone(EVERYBODYS.get_or_init(make))
        }
        #[cfg(not(mutation = "one_cache"))]
        Arc::new(BlockCache::new(bytes, block_bytes))
    }

    /// A block of an open table.
    pub(crate) fn get(&self, table: &OpenTable, block: u32) -> Option<Arc<Block>> {
        let found = table.slots.look().block(block);
        if let Some(found) = found {
            self.used(table, block);
            return Some(found);
        }
        let addr = BlockAddr { sst: table.descriptor().id, block };
        let found = self.blocks.get(&addr);
        match &found {
            Some(found) => {
                table.slots.set(block, found);
                self.hits.add(1);
            }
            None => self.misses.add(1),
        }
        found
    }

    /// Notes that a block was found by its slot.
    pub(crate) fn used(&self, table: &OpenTable, block: u32) {
        self.hits.add(1);
        if table.slots.count(block) {
            self.blocks.get(&BlockAddr { sst: table.descriptor().id, block });
        }
    }

    pub(crate) fn insert(&self, addr: BlockAddr, block: Arc<Block>) {
        self.blocks.insert(addr, block);
    }

    /// Lets go of all blocks.
    pub(crate) fn clear(&self) {
        self.blocks.clear();
    }

    /// A table of so many bytes is lent, and blocks over it may come.
    pub(crate) fn begin_lent(&self, bytes: u64) {
        self.lent.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Lets go of the blocks of a table that are read where they lie.
    pub(crate) fn end_lent(&self, sst: SstId, blocks: u32, bytes: u64) {
        self.lent.fetch_sub(bytes, Ordering::Relaxed);
        if cfg!(mutation = "lent_kept") {
            return;
        }
        for block in 0..blocks {
            self.blocks.remove_if(&BlockAddr { sst, block }, |block| block.is_lent());
        }
    }

    /// Bytes of tables that are read where they lie. No memory of this process.
    pub(crate) fn lent_bytes(&self) -> u64 {
        self.lent.load(Ordering::Relaxed)
    }

    /// Whether so many bytes more push nothing out: three quarters of the cache may be filled with
    /// what was read once, and the rest, with what is pushed out first, is left to what is read
    /// again. (Short of the whole for another reason: the shards do not fill evenly.)
    pub(crate) fn has_room(&self, bytes: u64) -> bool {
        self.bytes().saturating_add(bytes) <= self.capacity() / 4 * 3
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.blocks.weight()
    }

    pub(crate) fn capacity(&self) -> u64 {
        self.blocks.capacity()
    }

    pub(crate) fn hits(&self) -> u64 {
        self.hits.sum()
    }

    pub(crate) fn misses(&self) -> u64 {
        self.misses.sum()
    }
}

impl fmt::Debug for BlockCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BlockCache").field("bytes", &self.bytes()).finish()
    }
}
