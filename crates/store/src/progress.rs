//! Progress of long operations: a verification, by bytes read; a round of the garbage collector, by
//! objects deleted.

use std::sync::atomic::{AtomicU64, Ordering};

/// The progress of an operation. Any thread may read it while the operation runs.
#[derive(Debug, Default)]
pub struct Progress {
    done: AtomicU64,
    total: AtomicU64,
}

impl Progress {
    /// The amount done, and the total as far as it is known; 0 until it is known.
    #[must_use]
    pub fn so_far(&self) -> (u64, u64) {
        (self.done.load(Ordering::Relaxed), self.total.load(Ordering::Relaxed))
    }

    /// Adds to the amount done.
    #[inline]
    pub fn add(&self, done: u64) {
        self.done.fetch_add(done, Ordering::Relaxed);
    }

    /// Sets the total, including what is done already.
    pub fn expect(&self, total: u64) {
        self.total.store(total, Ordering::Relaxed);
    }
}
