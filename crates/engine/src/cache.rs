//! Caches: decoded blocks in one sharded cache, metadata (index and filter) pinned per table handle
//! within a budget.

use crate::counter::Counter;
use parking_lot::{Mutex, RwLock};
use quick_cache::Weighter;
use siltstone_base::{BlockAddr, SstDescriptor};
use siltstone_sst::{Block, Table};
use std::fmt;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

/// Decoded blocks, weighed by their bytes. Scan-resistant by its policy (S3-FIFO); long scans and
/// compactions do not fill it at all.
pub(crate) struct BlockCache {
    blocks: quick_cache::sync::Cache<BlockAddr, Arc<Block>, ByBytes>,
    hits: Counter,
    misses: Counter,
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
        }
    }

    pub(crate) fn get(&self, addr: BlockAddr) -> Option<Arc<Block>> {
        let found = self.blocks.get(&addr);
        let counter = if found.is_some() { &self.hits } else { &self.misses };
        counter.add(1);
        found
    }

    pub(crate) fn insert(&self, addr: BlockAddr, block: Arc<Block>) {
        self.blocks.insert(addr, block);
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

/// What all pinned metadata of one database handle may take.
#[derive(Debug)]
pub(crate) struct MetadataBudget {
    limit: usize,
    used: AtomicUsize,
    tick: AtomicU64,
    pinned: Mutex<Vec<Weak<TableHandle>>>,
}

impl MetadataBudget {
    pub(crate) fn new(limit: usize) -> Arc<Self> {
        Arc::new(MetadataBudget {
            limit,
            used: AtomicUsize::new(0),
            tick: AtomicU64::new(1),
            pinned: Mutex::new(Vec::new()),
        })
    }

    pub(crate) fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    fn pin(&self, handle: &Arc<TableHandle>, bytes: usize) {
        let mut used = self.used.fetch_add(bytes, Ordering::Relaxed) + bytes;
        let mut pinned = self.pinned.lock();
        pinned.push(Arc::downgrade(handle));
        if used <= self.limit {
            return;
        }
        // Over the budget: let go of those unused for longest, never of the one just needed.
        pinned.retain(|handle| handle.strong_count() > 0);
        pinned.sort_by_key(|handle| handle.upgrade().map(|h| h.last_used.load(Ordering::Relaxed)));
        let mut freed = 0;
        for old in pinned.iter().filter_map(Weak::upgrade) {
            if used <= self.limit || Arc::ptr_eq(&old, handle) {
                break;
            }
            if let Some(table) = old.table.write().take() {
                used = used.saturating_sub(table.memory_bytes());
                self.used.fetch_sub(table.memory_bytes(), Ordering::Relaxed);
            }
            freed += 1;
        }
        pinned.drain(..freed);
    }
}

/// One table of the tree, as this process knows it: its descriptor, and its metadata once loaded.
pub(crate) struct TableHandle {
    pub(crate) descriptor: SstDescriptor,
    table: RwLock<Option<Arc<Table>>>,
    last_used: AtomicU64,
    budget: Arc<MetadataBudget>,
}

impl TableHandle {
    pub(crate) fn new(descriptor: SstDescriptor, budget: &Arc<MetadataBudget>) -> Arc<Self> {
        Arc::new(TableHandle {
            descriptor,
            table: RwLock::new(None),
            last_used: AtomicU64::new(0),
            budget: Arc::clone(budget),
        })
    }

    /// The metadata, when it is in memory.
    pub(crate) fn table(&self) -> Option<Arc<Table>> {
        let table = self.table.read().clone();
        if table.is_some() {
            let tick = self.budget.tick.load(Ordering::Relaxed);
            self.last_used.store(tick, Ordering::Relaxed);
        }
        table
    }

    /// Keeps the metadata, within the budget.
    pub(crate) fn install(self: &Arc<Self>, table: Arc<Table>) {
        let bytes = table.memory_bytes();
        let tick = self.budget.tick.fetch_add(1, Ordering::Relaxed);
        self.last_used.store(tick, Ordering::Relaxed);
        let mut slot = self.table.write();
        if slot.is_some() {
            return;
        }
        *slot = Some(table);
        drop(slot);
        self.budget.pin(self, bytes);
    }
}

impl Drop for TableHandle {
    fn drop(&mut self) {
        if let Some(table) = self.table.get_mut().take() {
            self.budget.used.fetch_sub(table.memory_bytes(), Ordering::Relaxed);
        }
    }
}

impl fmt::Debug for TableHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TableHandle").field("id", &self.descriptor.id).finish_non_exhaustive()
    }
}
