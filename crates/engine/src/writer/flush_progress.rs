//! What flushes have done, and what somebody asked of them.

use siltstone_base::Seq;
use std::sync::atomic::{AtomicU64, Ordering};

/// The flushes of a handle.
#[derive(Debug, Default)]
pub(crate) struct Flushes {
    pub(crate) tables: AtomicU64,
    pub(crate) bytes: AtomicU64,
    /// What somebody asked to have flushed, however full L0 is.
    asked: AtomicU64,
}

impl Flushes {
    /// A table of `bytes` was flushed, and the manifest names it.
    pub(crate) fn add(&self, bytes: u64) {
        self.tables.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// What is flushed however full L0 is: everything up to here.
    pub(crate) fn asked(&self) -> Seq {
        Seq(self.asked.load(Ordering::Acquire))
    }

    /// Everything up to `seq` is to be flushed however full L0 is.
    pub(crate) fn ask(&self, seq: Seq) {
        self.asked.fetch_max(seq.0, Ordering::AcqRel);
    }
}
