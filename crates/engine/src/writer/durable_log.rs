//! The WAL as far as it is durable: its last object, and those that recovery would still read.

use parking_lot::Mutex;
use siltstone_base::{Seq, UnixMillis, WalId};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};

/// Objects of the log after which a memtable is full, however small: recovery reads each of them.
const MOST_OBJECTS: u64 = 4096;

/// A WAL object that recovery would still read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UnflushedWal {
    /// Its last sequence number; `NONE` for a fence.
    pub(crate) last_seq: Seq,
    /// Where recovery would start if everything up to this object were in tables: the id after
    /// it, and never inside a fence's gap.
    pub(crate) next: WalId,
}

/// The durable part of the log.
pub(crate) struct DurableLog {
    /// The last WAL object that is acknowledged.
    committed: AtomicU64,
    /// WAL objects that are durable and not yet wholly in tables, in id order.
    unflushed: Mutex<VecDeque<UnflushedWal>>,
    /// Those that became durable since the active memtable was begun.
    since_freeze: AtomicU64,
    /// The last commit time that was given.
    commit_time: AtomicU64,
}

impl DurableLog {
    /// Of a writer whose first object is to be `first`, and which gives no commit time below
    /// `commit_time`.
    pub(crate) fn new(
        first: WalId,
        unflushed: VecDeque<UnflushedWal>,
        commit_time: UnixMillis,
    ) -> DurableLog {
        DurableLog {
            committed: AtomicU64::new(first.minus(1).0),
            since_freeze: AtomicU64::new(unflushed.len() as u64),
            unflushed: Mutex::new(unflushed),
            commit_time: AtomicU64::new(commit_time.0),
        }
    }

    /// The last commit time that was given.
    pub(crate) fn commit_time(&self) -> UnixMillis {
        UnixMillis(self.commit_time.load(Ordering::Acquire))
    }

    /// The commit time of what is cut at `now`: whatever the clock says, no earlier than any
    /// before.
    pub(crate) fn next_commit_time(&self, now: UnixMillis) -> UnixMillis {
        UnixMillis(self.commit_time.fetch_max(now.0, Ordering::AcqRel).max(now.0))
    }

    /// The last WAL object that is acknowledged.
    pub(crate) fn last_committed(&self) -> WalId {
        WalId(self.committed.load(Ordering::Acquire))
    }

    /// The WAL object `id`, which ends with `last_seq`, is durable, and so is all before it.
    pub(crate) fn commit(&self, id: WalId, last_seq: Seq) {
        self.committed.store(id.0, Ordering::Release);
        let object = UnflushedWal { last_seq, next: id.next() };
        self.unflushed.lock().push_back(object);
        self.since_freeze.fetch_add(1, Ordering::Relaxed);
    }

    /// Whether the active memtable is spread over so many objects that it is to be frozen.
    pub(crate) fn is_long(&self) -> bool {
        self.since_freeze.load(Ordering::Relaxed) >= MOST_OBJECTS
    }

    /// The active memtable was frozen.
    pub(crate) fn frozen(&self) {
        self.since_freeze.store(0, Ordering::Relaxed);
    }

    /// Where recovery may start once everything up to `flushed` is in tables; `None`: where it
    /// would now.
    pub(crate) fn replay_point(&self, flushed: Seq) -> Option<WalId> {
        let unflushed = self.unflushed.lock();
        let covered = unflushed.iter().take_while(|object| object.last_seq <= flushed);
        covered.last().map(|object| object.next)
    }

    /// Whether all that recovery would read is in tables, which hold everything up to `flushed`.
    pub(crate) fn is_flushed(&self, flushed: Seq) -> bool {
        self.unflushed.lock().back().is_none_or(|object| object.last_seq <= flushed)
    }

    /// Everything up to `flushed` is in tables.
    pub(crate) fn forget(&self, flushed: Seq) {
        let mut unflushed = self.unflushed.lock();
        while unflushed.front().is_some_and(|object| object.last_seq <= flushed) {
            unflushed.pop_front();
        }
    }

    /// How many objects recovery would read.
    pub(crate) fn unflushed(&self) -> usize {
        self.unflushed.lock().len()
    }
}
