//! How far long work is: a verification, by bytes read; a round of the garbage collector, by
//! objects deleted.

use std::sync::atomic::{AtomicU64, Ordering};

/// How far something is. Looked at from anywhere while it runs.
#[derive(Debug, Default)]
pub struct Progress {
    done: AtomicU64,
    total: AtomicU64,
}

impl Progress {
    /// What is done so far, and what there is to do as far as is known: 0 until that is found out.
    #[must_use]
    pub fn so_far(&self) -> (u64, u64) {
        (self.done.load(Ordering::Relaxed), self.total.load(Ordering::Relaxed))
    }

    pub(crate) fn add(&self, done: u64) {
        self.done.fetch_add(done, Ordering::Relaxed);
    }

    /// In all, what is done already included.
    pub(crate) fn expect(&self, total: u64) {
        self.total.store(total, Ordering::Relaxed);
    }
}
