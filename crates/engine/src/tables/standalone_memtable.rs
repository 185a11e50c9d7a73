//! A standalone memtable. It assigns sequence numbers to writes, as the commit path of the engine
//! does.

use super::view::{self, View};
use crate::cache::fetch::ReadContext;
use crate::options::Options;
use crate::read::answer::Answer;
use crate::read::tree::{Levels, Tree};
use crate::read::value::Value;
use crate::read::{self, Pin};
use parking_lot::Mutex;
use siltstone_base::{Batch, Error, Result, Seq};
use siltstone_memtable::Memtable;
use siltstone_store::env::Effects;
use siltstone_store::memory::MemoryStore;
use std::fmt;
use std::sync::Arc;

/// A memtable with its own history: the first operation has sequence number 1. One thread writes at
/// a time, any number of threads read meanwhile, and every version is kept.
pub struct MemoryTable {
    context: ReadContext,
    tree: Arc<Tree>,
    next: Mutex<Seq>,
}

impl MemoryTable {
    /// An empty memtable.
    #[must_use]
    pub fn new(effects: Effects) -> MemoryTable {
        // A memtable never fetches blocks, so the store below it stays empty.
        let env = effects.with_store(MemoryStore::unnamed());
        let tree = Tree {
            active: Arc::new(Memtable::new()),
            frozen: Vec::new(),
            levels: Arc::new(Levels::default()),
            flushed_seq: Seq::NONE,
            queue: None,
            own: None,
        };
        MemoryTable {
            context: view::context(env, &Options::default(), 0),
            tree: Arc::new(tree),
            next: Mutex::new(Seq::FIRST),
        }
    }

    /// Writes the operations of a batch, which become visible together. Returns the sequence number
    /// of the last operation, or the current one if the batch is empty.
    ///
    /// # Errors
    /// Invalid if the memtable is full. Nothing is written then.
    pub fn write(&self, batch: &Batch) -> Result<Seq> {
        let mut next = self.next.lock();
        let first = *next;
        self.memtable().insert_batch(first, &Arc::from(batch.as_bytes()))?;
        *next = first.plus(u64::from(batch.ops()));
        Ok(next.minus(1))
    }

    /// The current content.
    #[must_use]
    pub fn view(&self) -> View {
        View::new(&self.context, self.pin(self.last_seq()))
    }

    fn pin(&self, seq: Seq) -> Pin {
        Pin { tree: Arc::clone(&self.tree), seq, now: self.context.env.clock.now() }
    }

    /// The value of `key` now.
    ///
    /// # Errors
    /// Invalid for a bad key.
    pub fn get(&self, key: &[u8]) -> Result<Answer<Option<Value>>> {
        read::get(&self.context, self.pin(self.last_seq()), key)
    }

    /// The content when `seq` was the last operation.
    ///
    /// # Errors
    /// Invalid for a number that is not assigned yet.
    pub fn view_at(&self, seq: Seq) -> Result<View> {
        let last = self.last_seq();
        if seq > last {
            return Err(Error::invalid("this sequence number is not assigned yet")
                .with("given", seq)
                .with("last", last));
        }
        Ok(View::new(&self.context, self.pin(seq)))
    }

    /// The last assigned sequence number; 0 while empty.
    #[must_use]
    pub fn last_seq(&self) -> Seq {
        self.memtable().last_seq().unwrap_or_default()
    }

    /// Number of entries, including all versions and tombstones.
    #[must_use]
    pub fn entries(&self) -> usize {
        self.memtable().len()
    }

    /// Approximate bytes of memory.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.memtable().bytes()
    }

    fn memtable(&self) -> &Memtable {
        &self.tree.active
    }
}

impl fmt::Debug for MemoryTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryTable")
            .field("entries", &self.entries())
            .field("bytes", &self.bytes())
            .finish_non_exhaustive()
    }
}
