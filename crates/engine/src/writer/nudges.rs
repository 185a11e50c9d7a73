//! Notifications that wake the background tasks of a writer. They carry no data: a task must read
//! the shared state again after each notification.

use std::sync::Arc;
use tokio::sync::Notify;

/// One notification for each background task. Code that changes state for which a task waits
/// notifies the task; the end of the handle notifies all tasks.
pub(crate) struct Nudges {
    /// The task that writes the WAL: new rows, or a caller that waits for their durability.
    pub(crate) wal: Arc<Notify>,
    /// The task that flushes: a frozen memtable, a request to flush it, or room in L0.
    pub(crate) flush: Notify,
    /// The task that maintains the writer's checkpoints: a newer manifest, or a version that is no
    /// longer read.
    pub(crate) pins: Arc<Notify>,
    /// The task that compacts: a flush has changed the tree.
    pub(crate) compact: Notify,
    /// The task that ingests submitted jobs: a newer manifest.
    pub(crate) ingest: Arc<Notify>,
    /// Callers that wait until a job is ingested or refused.
    pub(crate) ingested: Notify,
}

impl Nudges {
    /// Creates the notifications from the two that tables and manifests use as well: that of the
    /// checkpoint task and that of the ingest task.
    pub(crate) fn new(pins: Arc<Notify>, ingest: Arc<Notify>) -> Nudges {
        let (flush, compact, ingested) = (Notify::new(), Notify::new(), Notify::new());
        Nudges { wal: Arc::default(), flush, pins, compact, ingest, ingested }
    }

    /// Notifies every task: closing has reached another phase, or the handle has ended.
    pub(crate) fn all(&self) {
        self.wal.notify_one();
        self.flush.notify_one();
        self.pins.notify_one();
        self.compact.notify_one();
        self.ingest.notify_one();
        self.ingested.notify_waiters();
    }
}
