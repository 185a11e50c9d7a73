//! Progress of the flush task, and requests to it.

use siltstone_base::Seq;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Flush statistics of a handle, and requests to its flush task.
#[derive(Debug, Default)]
pub(crate) struct Flushes {
    pub(crate) tables: AtomicU64,
    pub(crate) bytes: AtomicU64,
    /// The highest sequence number for which a flush was requested regardless of the size of L0.
    asked: AtomicU64,
    /// Number of callers that wait for room in the ingest queue.
    awaiting: AtomicUsize,
}

/// A caller that waits for room in the ingest queue, until this is dropped.
pub(crate) struct RoomWaiter<'f>(&'f Flushes);

impl Drop for RoomWaiter<'_> {
    fn drop(&mut self) {
        self.0.awaiting.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Flushes {
    /// Records that a table of `bytes` bytes was flushed and is in the manifest.
    pub(crate) fn add(&self, bytes: u64) {
        self.tables.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// The sequence number up to which everything is flushed regardless of the size of L0.
    pub(crate) fn asked(&self) -> Seq {
        Seq(self.asked.load(Ordering::Acquire))
    }

    /// Requests a flush of everything up to `seq`, regardless of the size of L0.
    pub(crate) fn ask(&self, seq: Seq) {
        self.asked.fetch_max(seq.0, Ordering::AcqRel);
    }

    /// Makes the next commits come without their usual pause while the returned value lives.
    pub(crate) fn await_room(&self) -> RoomWaiter<'_> {
        self.awaiting.fetch_add(1, Ordering::AcqRel);
        RoomWaiter(self)
    }

    /// Whether an ingest waits for room in the queue, which the next commit may free.
    pub(crate) fn is_awaited(&self) -> bool {
        self.awaiting.load(Ordering::Acquire) > 0
    }
}
