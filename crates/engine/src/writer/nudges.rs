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
}

impl Nudges {
    /// With that of the checkpoints' task, which tables and manifests nudge as well.
    pub(crate) fn new(pins: Arc<Notify>) -> Nudges {
        Nudges { wal: Arc::default(), flush: Notify::new(), pins, compact: Notify::new() }
    }

    /// Nudges every task: closing has come further, or the handle has ended.
    pub(crate) fn all(&self) {
        self.wal.notify_one();
        self.flush.notify_one();
        self.pins.notify_one();
        self.compact.notify_one();
    }
}
