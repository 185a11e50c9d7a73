//! Decoded blocks, in one sharded cache per handle. The cache must never serve blocks of another
//! database.

use super::metadata::OpenTable;
use quick_cache::Weighter;
use siltstone_base::{BlockAddr, SstId};
use siltstone_sst::Block;
use siltstone_store::counter::Counter;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Decoded blocks, weighed by their bytes. Its policy (S3-FIFO) resists scans. Long scans insert
/// blocks only while there is room, and evict none. Compactions insert no blocks.
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
        // The number of items is an estimate, for the cache's own hash tables.
        let items = (bytes / block_bytes.max(1)).clamp(16, 1 << 24);
        BlockCache {
            blocks: quick_cache::sync::Cache::with_weighter(items, bytes as u64, ByBytes),
            hits: Counter::default(),
            misses: Counter::default(),
            lent: AtomicU64::new(0),
        }
    }

    /// The cache of one handle. Handles share no cache, because table names are unique only within
    /// one database.
    pub(crate) fn of_handle(bytes: usize, block_bytes: usize) -> Arc<BlockCache> {
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

    /// Counts a block that was found by its slot.
    pub(crate) fn used(&self, table: &OpenTable, block: u32) {
        self.hits.add(1);
        if table.slots.count(block) {
            self.blocks.get(&BlockAddr { sst: table.descriptor().id, block });
        }
    }

    pub(crate) fn insert(&self, addr: BlockAddr, block: Arc<Block>) {
        self.blocks.insert(addr, block);
    }

    /// Removes all blocks.
    pub(crate) fn clear(&self) {
        self.blocks.clear();
    }

    /// Counts a lent table of `bytes` bytes, whose blocks may be inserted.
    pub(crate) fn begin_lent(&self, bytes: u64) {
        self.lent.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Removes the blocks of a lent table, which are read in place.
    pub(crate) fn end_lent(&self, sst: SstId, blocks: u32, bytes: u64) {
        self.lent.fetch_sub(bytes, Ordering::Relaxed);
        for block in 0..blocks {
            self.blocks.remove_if(&BlockAddr { sst, block }, |block| block.is_lent());
        }
    }

    /// Bytes of the tables that are read in place. They take no memory of this process.
    pub(crate) fn lent_bytes(&self) -> u64 {
        self.lent.load(Ordering::Relaxed)
    }

    /// Whether a long scan may insert `bytes` more. Blocks that were read once may fill three
    /// quarters of the cache. The rest is left to blocks that are read again, and to the blocks
    /// that are evicted first. The bound is below the whole also because the shards do not fill
    /// evenly.
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
