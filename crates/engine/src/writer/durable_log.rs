//! The durable part of the WAL: its last object, and the objects that recovery would still read.

use parking_lot::Mutex;
use siltstone_base::{Seq, UnixMillis, WalId};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};

/// A memtable is frozen after this many objects of the log, because recovery reads each of them.
const MOST_OBJECTS: u64 = 4096;

/// A WAL object that recovery would still read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UnflushedWal {
    /// Its last sequence number; `NONE` for a fence.
    pub(crate) last_seq: Seq,
    /// The id at which recovery would start if everything up to this object were in tables: the id
    /// after it, never inside the gap of a fence.
    pub(crate) next: WalId,
}

/// The durable part of the log.
pub(crate) struct DurableLog {
    /// The last acknowledged WAL object.
    committed: AtomicU64,
    /// Durable WAL objects that are not completely in tables yet, in the order of their ids.
    unflushed: Mutex<VecDeque<UnflushedWal>>,
    /// Number of objects that became durable since the active memtable was created.
    since_freeze: AtomicU64,
    /// The last commit time that was assigned.
    commit_time: AtomicU64,
}

impl DurableLog {
    /// Begins a log whose first object is `first`, with no commit time below `commit_time`.
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

    /// The last commit time that was assigned.
    pub(crate) fn commit_time(&self) -> UnixMillis {
        UnixMillis(self.commit_time.load(Ordering::Acquire))
    }

    /// The commit time of an object that is cut at `now`. It never decreases, even if the clock
    /// does.
    pub(crate) fn next_commit_time(&self, now: UnixMillis) -> UnixMillis {
        UnixMillis(self.commit_time.fetch_max(now.0, Ordering::AcqRel).max(now.0))
    }

    /// The last acknowledged WAL object.
    pub(crate) fn last_committed(&self) -> WalId {
        WalId(self.committed.load(Ordering::Acquire))
    }

    /// Records that the WAL object `id`, whose last number is `last_seq`, and all before it are
    /// durable.
    pub(crate) fn commit(&self, id: WalId, last_seq: Seq) {
        self.committed.store(id.0, Ordering::Release);
        let object = UnflushedWal { last_seq, next: id.next() };
        self.unflushed.lock().push_back(object);
        self.since_freeze.fetch_add(1, Ordering::Relaxed);
    }

    /// Whether the active memtable spans so many objects that it must be frozen.
    pub(crate) fn is_long(&self) -> bool {
        self.since_freeze.load(Ordering::Relaxed) >= MOST_OBJECTS
    }

    /// Records that the active memtable was frozen.
    pub(crate) fn frozen(&self) {
        self.since_freeze.store(0, Ordering::Relaxed);
    }

    /// The id at which recovery may start once everything up to `flushed` is in tables; `None` if
    /// the start does not change.
    pub(crate) fn replay_point(&self, flushed: Seq) -> Option<WalId> {
        let unflushed = self.unflushed.lock();
        let covered = unflushed.iter().take_while(|object| object.last_seq <= flushed);
        covered.last().map(|object| object.next)
    }

    /// Whether tables up to `flushed` hold all rows that recovery would read.
    pub(crate) fn is_flushed(&self, flushed: Seq) -> bool {
        self.unflushed.lock().back().is_none_or(|object| object.last_seq <= flushed)
    }

    /// Records that everything up to `flushed` is in tables.
    pub(crate) fn forget(&self, flushed: Seq) {
        let mut unflushed = self.unflushed.lock();
        while unflushed.front().is_some_and(|object| object.last_seq <= flushed) {
            unflushed.pop_front();
        }
    }

    /// Number of objects that recovery would read.
    pub(crate) fn unflushed(&self) -> usize {
        self.unflushed.lock().len()
    }
}
