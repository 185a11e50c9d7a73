//! The tables that a process has open, and their metadata (index and filter). The metadata of a
//! table is pinned as a whole, and a budget of the handle bounds all of it.

use super::blocks::BlockCache;
use super::filters::KeyFilters;
use super::lent_table::LentTable;
use super::slots::Slots;
use parking_lot::{Mutex, RwLock};
use siltstone_base::{BlockAddr, Seq, SstDescriptor};
use siltstone_sst::{Block, Table};
use siltstone_store::Store;
use std::fmt;
use std::ops::Deref;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};

/// Tables at least that are listed before those that were dropped leave the list.
const LEAST_ROOM: usize = 64;

/// The memory bound on all pinned metadata of one database handle.
#[derive(Debug)]
pub(crate) struct MetadataBudget {
    limit: usize,
    used: AtomicUsize,
    tick: AtomicU64,
    pinned: Mutex<Vec<Weak<TableHandle>>>,
    /// The key filters that share filters of the metadata.
    filters: Mutex<Vec<Weak<KeyFilters>>>,
}

impl MetadataBudget {
    pub(crate) fn new(limit: usize) -> Arc<Self> {
        Arc::new(MetadataBudget {
            limit,
            used: AtomicUsize::new(0),
            tick: AtomicU64::new(1),
            pinned: Mutex::new(Vec::new()),
            filters: Mutex::new(Vec::new()),
        })
    }

    /// The time, counted in tables whose metadata was loaded.
    #[inline]
    pub(crate) fn tick(&self) -> u64 {
        self.tick.load(Ordering::Relaxed)
    }

    /// Registers `filters`, which share filters of the metadata. The budget clears a shared filter
    /// when it releases the metadata.
    pub(crate) fn shares_with(&self, filters: &Arc<KeyFilters>) {
        let mut all = self.filters.lock();
        all.retain(|filters| filters.strong_count() > 0);
        all.push(Arc::downgrade(filters));
    }

    pub(crate) fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    /// Number of tables in the list, those that were dropped included.
    #[cfg(test)]
    pub(crate) fn listed(&self) -> usize {
        self.pinned.lock().len()
    }

    /// Releases all metadata, and the table objects that are lent with it.
    pub(crate) fn release(&self) {
        let filters: Vec<_> = self.filters.lock().iter().filter_map(Weak::upgrade).collect();
        let pinned = std::mem::take(&mut *self.pinned.lock());
        for handle in pinned.iter().filter_map(Weak::upgrade) {
            self.take(&handle, &filters);
        }
    }

    /// Releases a table's metadata. Returns its bytes.
    fn take(&self, handle: &Arc<TableHandle>, filters: &[Arc<KeyFilters>]) -> usize {
        // A separate statement, which unlocks the handle: a thread that fills a filter waits for
        // the handle, so this thread must not hold the handle while it waits for a filter.
        let taken = handle.table.write().take();
        let Some(table) = taken else { return 0 };
        let bytes = table.memory_bytes();
        self.used.fetch_sub(bytes, Ordering::Relaxed);
        filters.iter().for_each(|filters| filters.forget(handle));
        bytes
    }

    fn pin(&self, handle: &Arc<TableHandle>, bytes: usize) {
        let mut used = self.used.fetch_add(bytes, Ordering::Relaxed) + bytes;
        let mut pinned = self.pinned.lock();
        if pinned.len() == pinned.capacity() {
            // Make room for as many as are left, so that each is looked at once per so many tables.
            pinned.retain(|handle| handle.strong_count() > 0);
            let live = pinned.len();
            pinned.reserve(live.max(LEAST_ROOM));
        }
        pinned.push(Arc::downgrade(handle));
        if used <= self.limit {
            return;
        }
        // Over the budget: release the metadata that was unused for longest, but never the metadata
        // that was just loaded.
        let filters: Vec<_> = self.filters.lock().iter().filter_map(Weak::upgrade).collect();
        filters.iter().for_each(|filters| filters.report_use());
        pinned.retain(|handle| handle.strong_count() > 0);
        pinned.sort_by_key(|handle| handle.upgrade().map(|h| h.last_used.load(Ordering::Relaxed)));
        // The new handle may not be the last in this order, because other threads use tables at the
        // same time.
        pinned.retain(|old| {
            let Some(old) = old.upgrade() else { return false };
            if used <= self.limit || Arc::ptr_eq(&old, handle) {
                return true;
            }
            used = used.saturating_sub(self.take(&old, &filters));
            false
        });
    }
}

/// A table whose metadata is in memory, and the slots of its blocks.
#[derive(Debug)]
pub(crate) struct OpenTable {
    pub(crate) table: Arc<Table>,
    pub(crate) slots: Slots,
    /// The table's object, if the store lends it; set at the first request.
    lent: OnceLock<Option<LentTable>>,
}

impl OpenTable {
    pub(crate) fn new(table: Table) -> Self {
        let slots = Slots::new(table.block_count());
        OpenTable { slots, table: Arc::new(table), lent: OnceLock::new() }
    }

    /// The block in place in the table's object, verified, if `store` lends the object and the
    /// block is not compressed. `None` also for a damaged block: it is then read again, and
    /// reported as from any other store.
    pub(crate) fn block_in_place(
        &self,
        cache: &Arc<BlockCache>,
        store: &dyn Store,
        block: u32,
    ) -> Option<Arc<Block>> {
        let lent = self.lent.get_or_init(|| LentTable::ask(self, cache, store)).as_ref()?;
        let decoded = Arc::new(lent.block(self, block)?);
        self.slots.set(block, &decoded);
        cache.insert(BlockAddr { sst: self.descriptor().id, block }, Arc::clone(&decoded));
        Some(decoded)
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        self.table.memory_bytes() + self.slots.memory_bytes()
    }
}

impl Deref for OpenTable {
    type Target = Table;

    fn deref(&self) -> &Table {
        &self.table
    }
}

/// One table of the tree: its descriptor, and its metadata once it is loaded.
pub(crate) struct TableHandle {
    pub(crate) descriptor: SstDescriptor,
    table: RwLock<Option<Arc<OpenTable>>>,
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

    /// The metadata, if it is in memory.
    pub(crate) fn table(&self) -> Option<Arc<OpenTable>> {
        let table = self.table.read().clone();
        if table.is_some() {
            self.used_at(self.budget.tick());
        }
        table
    }

    /// The newest sequence number of an entry of the table.
    pub(crate) fn newest(&self) -> Seq {
        self.descriptor.seq_override.unwrap_or(self.descriptor.max_seq)
    }

    /// The budget that bounds the table's metadata.
    pub(crate) fn budget(&self) -> &Arc<MetadataBudget> {
        &self.budget
    }

    /// Records the use of the metadata at a tick of the budget. It writes only a newer tick,
    /// because all readers wait for a cache line that each of them writes.
    pub(crate) fn used_at(&self, tick: u64) {
        if self.last_used.load(Ordering::Relaxed) < tick {
            self.last_used.store(tick, Ordering::Relaxed);
        }
    }

    /// Pins the metadata, within the budget.
    pub(crate) fn install(self: &Arc<Self>, table: Arc<OpenTable>) {
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

#[cfg(test)]
pub(crate) mod testing {
    use super::*;
    use bytes::Bytes;
    use siltstone_base::SstId;
    use siltstone_base::sst::SstLocation;

    /// A table of one entry between two keys.
    pub(crate) fn descriptor(first: &[u8], last: &[u8]) -> SstDescriptor {
        SstDescriptor {
            id: SstId(1),
            location: SstLocation::Own,
            job: None,
            object_bytes: 100,
            checksum: 7,
            tail_offset: 50,
            first_key: Bytes::copy_from_slice(first),
            last_key: Bytes::copy_from_slice(last),
            visible_start: None,
            visible_end: None,
            seq_override: None,
            entries: 1,
            tombstones: 0,
            min_seq: Seq(1),
            max_seq: Seq(1),
            min_expiry: None,
            max_expiry: None,
            range_deletes: None,
            sum: None,
        }
    }
}
