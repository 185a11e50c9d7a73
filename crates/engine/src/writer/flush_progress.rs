//! What flushes have done, and what somebody asked of them.

use siltstone_base::Seq;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// The flushes of a handle.
#[derive(Debug, Default)]
pub(crate) struct Flushes {
    pub(crate) tables: AtomicU64,
    pub(crate) bytes: AtomicU64,
    /// What somebody asked to have flushed, however full L0 is.
    asked: AtomicU64,
    /// How many wait for room in the queue of ingests.
    awaiting: AtomicUsize,
}

/// Somebody waits for room in the queue of ingests, until this is dropped.
pub(crate) struct RoomWaiter<'f>(&'f Flushes);

impl Drop for RoomWaiter<'_> {
    fn drop(&mut self) {
        self.0.awaiting.fetch_sub(1, Ordering::AcqRel);
    }
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

    /// Has the next commit come without its pause, as long as the answer lives.
    pub(crate) fn await_room(&self) -> RoomWaiter<'_> {
        self.awaiting.fetch_add(1, Ordering::AcqRel);
        RoomWaiter(self)
    }

    /// Whether an ingest waits for room that the next commit may bring.
    pub(crate) fn is_awaited(&self) -> bool {
        self.awaiting.load(Ordering::Acquire) > 0
    }
}
