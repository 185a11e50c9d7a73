//! The range deletes of a memtable, stored beside its entries.
//!
//! Covers of decreasing age and size. A new cover is merged with its neighbour while that is at
//! most twice as long, as for sorted arrays, so n insertions cost O(n log n) and there are at most
//! log2(n) covers. A cover never changes: the list of covers is replaced as a whole.

use siltstone_base::Seq;
use siltstone_base::range_delete::{Cover, RangeDelete};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

pub(crate) type Covers = Arc<Vec<Arc<Cover>>>;

#[derive(Default)]
pub(crate) struct Ranges {
    /// Whether there is any range delete; every look-up checks this first.
    any: AtomicBool,
    /// Replaced under a lock that is held only to exchange a pointer.
    covers: RwLock<Covers>,
}

impl Ranges {
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        !self.any.load(Ordering::Acquire)
    }

    /// Adds range deletes that are newer than all earlier ones. One writer at a time.
    pub(crate) fn add(&self, added: Vec<RangeDelete>) {
        if added.is_empty() {
            return;
        }
        let mut covers = Vec::clone(&self.covers());
        let mut newest = Cover::of(added);
        while let Some(before) = covers.pop_if(|one| one.list().len() <= 2 * newest.list().len()) {
            newest = Cover::of([before.list(), newest.list()].concat());
        }
        covers.push(Arc::new(newest));
        *self.covers.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(covers);
        self.any.store(true, Ordering::Release);
    }

    /// The newest range delete at or below `seq` that deletes `key`; [`Seq::NONE`] for none.
    pub(crate) fn at(&self, key: &[u8], seq: Seq) -> Seq {
        if self.is_empty() {
            return Seq::NONE;
        }
        // Covers are ordered by age: a newer cover contains only newer range deletes.
        let covers = self.covers();
        let found = covers.iter().rev().map(|cover| cover.at(key, seq)).find(|seq| !seq.is_none());
        found.unwrap_or(Seq::NONE)
    }

    /// All of them.
    pub(crate) fn list(&self) -> Vec<RangeDelete> {
        self.covers().iter().flat_map(|cover| cover.list()).cloned().collect()
    }

    /// All of them, in the form for searches.
    pub(crate) fn covers(&self) -> Covers {
        // A panic cannot leave a partial exchange behind.
        Arc::clone(&self.covers.read().unwrap_or_else(PoisonError::into_inner))
    }
}
