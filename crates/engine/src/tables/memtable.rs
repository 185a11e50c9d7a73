//! A memtable alone: numbers what is written to it, as the engine's commit path does.

use super::view::{self, View};
use crate::cache::fetch::ReadContext;
use crate::io::env::Effects;
use crate::io::store::memory::MemoryStore;
use crate::options::Options;
use crate::read::answer::Answer;
use crate::read::tree::{Levels, Tree};
use crate::read::value::Value;
use crate::read::{self, Pin};
use parking_lot::Mutex;
use siltstone_base::{Batch, Error, Result, Seq};
use siltstone_memtable::Memtable;
use std::fmt;
use std::sync::Arc;

/// A memtable with a history of its own: the first operation has sequence number 1. One thread
/// writes at a time, any number read meanwhile; every version is kept.
pub struct MemoryTable {
    context: ReadContext,
    tree: Arc<Tree>,
    next: Mutex<Seq>,
}

impl MemoryTable {
    /// An empty one.
    #[must_use]
    pub fn new(effects: Effects) -> MemoryTable {
        // Nothing of a memtable is ever fetched, so the store below it stays empty.
        let env = effects.with_store(MemoryStore::unnamed());
        let tree = Tree {
            active: Arc::new(Memtable::new()),
            frozen: Vec::new(),
            levels: Arc::new(Levels::default()),
            flushed_seq: Seq::NONE,
            queue: None,
            frozen_until: Seq::MAX,
        };
        MemoryTable {
            context: view::context(env, &Options::default(), 0),
            tree: Arc::new(tree),
            next: Mutex::new(Seq::FIRST),
        }
    }

    /// Writes the operations of a batch, which are seen together; answers the sequence number of
    /// the last of them, or of what was there when the batch is empty.
    ///
    /// # Errors
    /// Invalid when the memtable is full. Nothing is written then.
    pub fn write(&self, batch: &Batch) -> Result<Seq> {
        let mut next = self.next.lock();
        let first = *next;
        self.memtable().insert_batch(first, &Arc::from(batch.as_bytes()))?;
        *next = first.plus(u64::from(batch.ops()));
        Ok(next.minus(1))
    }

    /// What is there now.
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

    /// What was there when `seq` was the last operation.
    ///
    /// # Errors
    /// Invalid for a number that was not given out yet.
    pub fn view_at(&self, seq: Seq) -> Result<View> {
        let last = self.last_seq();
        if seq > last {
            return Err(Error::invalid("nothing has this sequence number yet")
                .with("given", seq)
                .with("last", last));
        }
        Ok(View::new(&self.context, self.pin(seq)))
    }

    /// The last sequence number that was given out; 0 while empty.
    #[must_use]
    pub fn last_seq(&self) -> Seq {
        self.memtable().last_seq().unwrap_or_default()
    }

    /// Entries: every version, tombstones included.
    #[must_use]
    pub fn entries(&self) -> usize {
        self.memtable().len()
    }

    /// Bytes of memory it takes, about.
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
