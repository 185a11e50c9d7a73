//! How far the life of a writer's handle has come: whether calls may go on, closing and its phases,
//! and what tells others that it lives.

use super::close::Closing;
use crate::io::store::presence::Occupancy;
use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::Notify;

/// How far closing has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Phase {
    /// Open.
    Open,
    /// No new writes; the WAL task sends what is buffered, then ends.
    DrainWal,
    /// The WAL is done; the flush task flushes what is left, then ends.
    DrainFlush,
    /// Both tasks have ended.
    Done,
    /// Closing has ended, well or not.
    Closed,
}

/// The life of a handle. Nothing else is locked under any of its locks.
pub(crate) struct WriterLife {
    /// Whether the handle is open and alive, in one look: every call asks.
    usable: AtomicBool,
    phase: Mutex<Phase>,
    /// Heard by whoever waits for a phase: another one came, or an end.
    pub(crate) changed: Notify,
    pub(crate) closing: Mutex<Closing>,
    /// What tells others that this writer lives; gone once it takes no more writes.
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

    /// Others may open the database now: this writer takes no more writes, for good.
    pub(crate) fn leave(&self) {
        self.occupancy.end();
    }

    pub(crate) fn phase(&self) -> Phase {
        *self.phase.lock()
    }

    /// Comes to `phase`, unless it is further.
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
