//! The places of an open table's blocks in memory: one slot per block, beside the table's metadata.
//!
//! ```text
//! block cache   owns the blocks, by (table, block); decides which stay
//! slot          points at one of them for as long as it lives
//! ```
//! A look-up knows table and block number, so a slot is found by counting, where the cache would
//! hash, lock a shard and walk its table: two lines of memory that are rarely in the processor's
//! caches. The cache learns of a share of the hits only, enough for its policy to know what is in
//! use.
//!
//! One lock guards all slots of a table. A look-up of many blocks takes it once and then only
//! loads: loads wait for memory side by side, while every locked instruction waits for all loads
//! before it.

use parking_lot::{RwLock, RwLockReadGuard};
use siltstone_sst::Block;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};
use std::sync::{Arc, Weak};

/// The cache is told of the first two hits of a block, because the second one distinguishes a block
/// that is used again from one that was used once, and then of every 16th.
const FIRST_TOLD: u8 = 2;
const TOLD_EVERY: u8 = 16;

/// The slots of one table.
#[derive(Debug)]
pub(crate) struct Slots {
    blocks: RwLock<Box<[Weak<Block>]>>,
    /// Hits of each block, modulo 256. Two that count at once may count one: it is a sample.
    hits: Box<[AtomicU8]>,
}

/// All slots of a table, for as long as it is held.
pub(crate) struct SlotsGuard<'a>(RwLockReadGuard<'a, Box<[Weak<Block>]>>);

impl SlotsGuard<'_> {
    /// Loads a slot. Using the result keeps the compiler from removing the load.
    #[inline]
    pub(crate) fn prefetch(&self, block: u32) -> usize {
        self.0.get(block as usize).map_or(0, |slot| slot.as_ptr().addr())
    }

    /// Loads the head of the block in a slot. Returns the number of its holders; 0 if the block is
    /// not in memory.
    #[inline]
    pub(crate) fn holders(&self, block: u32) -> usize {
        self.0.get(block as usize).map_or(0, Weak::strong_count)
    }

    /// The block, while the cache or a reader holds it.
    pub(crate) fn block(&self, block: u32) -> Option<Arc<Block>> {
        self.0.get(block as usize)?.upgrade()
    }
}

impl Slots {
    pub(crate) fn new(blocks: u32) -> Self {
        Slots {
            blocks: RwLock::new((0..blocks).map(|_| Weak::new()).collect()),
            hits: (0..blocks).map(|_| AtomicU8::new(0)).collect(),
        }
    }

    /// All slots at once. The holder must not set one.
    pub(crate) fn look(&self) -> SlotsGuard<'_> {
        SlotsGuard(self.blocks.read_recursive())
    }

    /// Counts a hit. Whether the cache should be told of it.
    pub(crate) fn count(&self, block: u32) -> bool {
        let Some(hits) = self.hits.get(block as usize) else { return false };
        let count = hits.load(Relaxed);
        hits.store(count.wrapping_add(1), Relaxed);
        count < FIRST_TOLD || count.is_multiple_of(TOLD_EVERY)
    }

    /// Points a slot at a block that the cache holds.
    pub(crate) fn set(&self, block: u32, found: &Arc<Block>) {
        if let Some(slot) = self.blocks.write().get_mut(block as usize) {
            *slot = Arc::downgrade(found);
        }
        if let Some(hits) = self.hits.get(block as usize) {
            hits.store(0, Relaxed);
        }
    }

    /// Bytes of memory of so many slots.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.hits.len() * (size_of::<Weak<Block>>() + 1)
    }
}
