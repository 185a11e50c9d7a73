//! What wakes the background tasks of a writer.

use std::sync::Arc;
use tokio::sync::Notify;

/// One a task. Whoever changes what a task waits for nudges it; an end nudges all.
pub(crate) struct Nudges {
    /// The task that writes the WAL: rows, somebody who waits for them.
    pub(crate) wal: Arc<Notify>,
    /// The task that flushes: a frozen memtable, somebody who wants it flushed, room in L0.
    pub(crate) flush: Notify,
    /// The task that keeps the checkpoints: a newer manifest, a version unread.
    pub(crate) pins: Arc<Notify>,
    /// The task that compacts: a flush has changed the tree.
    pub(crate) compact: Notify,
    /// The task that takes ingest jobs in: a newer manifest.
    pub(crate) ingest: Arc<Notify>,
    /// Whoever waits for a job to be taken in, or refused.
    pub(crate) ingested: Notify,
}

impl Nudges {
    /// With those of the tasks that tables and manifests nudge as well: the checkpoints', and that
    /// of ingests.
    pub(crate) fn new(pins: Arc<Notify>, ingest: Arc<Notify>) -> Nudges {
        let (flush, compact, ingested) = (Notify::new(), Notify::new(), Notify::new());
        Nudges { wal: Arc::default(), flush, pins, compact, ingest, ingested }
    }

    /// Nudges every task: closing has come further, or the handle has ended.
    pub(crate) fn all(&self) {
        self.wal.notify_one();
        self.flush.notify_one();
        self.pins.notify_one();
        self.compact.notify_one();
        self.ingest.notify_one();
        self.ingested.notify_waiters();
    }
}
