//! The lifecycle of a writer's handle: whether calls are accepted, the phases of closing, and the
//! occupancy that shows other openers that the writer is alive.
//!
//! A phase never goes back. No other lock may be taken under a lock of [`WriterLife`].

use super::close::Closing;
use parking_lot::Mutex;
use siltstone_store::presence::Occupancy;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::Notify;

/// The phase of a handle's lifecycle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Phase {
    /// Open.
    Open,
    /// No new writes are accepted. The WAL task uploads the buffered writes and then ends.
    DrainWal,
    /// The WAL task has ended. The flush task flushes the remaining memtables and then ends.
    DrainFlush,
    /// Both tasks have ended.
    Done,
    /// Closing has ended, with success or with an error.
    Closed,
}

/// The lifecycle of a handle. No other lock is taken under any of its locks.
pub(crate) struct WriterLife {
    /// Whether the handle is open and alive. Every call reads it, so it is one atomic.
    usable: AtomicBool,
    phase: Mutex<Phase>,
    /// Wakes tasks that wait for a phase, when the phase changes or the handle ends.
    pub(crate) changed: Notify,
    pub(crate) closing: Mutex<Closing>,
    /// Shows other openers that this writer is alive. Ended once it accepts no more writes.
    occupancy: Occupancy,
}

impl WriterLife {
    pub(crate) fn new(occupancy: Occupancy) -> WriterLife {
        WriterLife {
            usable: AtomicBool::new(true),
            phase: Mutex::new(Phase::Open),
            changed: Notify::new(),
            closing: Mutex::default(),
            occupancy,
        }
    }

    /// Whether calls may go on; `false` for good once the handle ends or begins to close.
    pub(crate) fn is_usable(&self) -> bool {
        self.usable.load(Ordering::Acquire)
    }

    /// Ends [`WriterLife::is_usable`].
    pub(crate) fn refuse(&self) {
        self.usable.store(false, Ordering::Release);
    }

    /// Lets other openers take over the database. This writer must accept no write afterwards.
    pub(crate) fn leave(&self) {
        self.occupancy.end();
    }

    pub(crate) fn phase(&self) -> Phase {
        *self.phase.lock()
    }

    /// Advances to `phase`. Does nothing if a later phase is reached already.
    pub(crate) fn pass_to(&self, phase: Phase) {
        let mut current = self.phase.lock();
        *current = phase.max(*current);
        drop(current);
        if phase > Phase::Open {
            self.refuse();
        }
        self.changed.notify_waiters();
    }
}
