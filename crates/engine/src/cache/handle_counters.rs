//! Counters of the operations on one handle, for its statistics.

use siltstone_base::{Error, ErrorKind};
use siltstone_store::counter::Counter;
use siltstone_store::latency::Latency;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// Counters of the operations on one handle since it was opened.
#[derive(Debug)]
pub(crate) struct HandleCounters {
    /// By the monotonic clock.
    pub(crate) opened: Duration,
    pub(crate) gets: Counter,
    pub(crate) get_many_keys: Counter,
    pub(crate) scans: Counter,
    /// Durations of `get`: sampled, if memory had all blocks; all, if the store was read.
    pub(crate) cached_gets: Latency,
    pub(crate) fetched_gets: Latency,
    /// For each WAL object, the time since its oldest write was accepted.
    pub(crate) durable_writes: Latency,
    pub(crate) mirror: MirrorProgress,
}

/// The progress of the mirror of a handle, for its statistics.
#[derive(Debug, Default)]
pub(crate) struct MirrorProgress {
    /// Bytes of the tables that are in the disk cache.
    pub(crate) bytes: AtomicU64,
    /// Bytes of the tables that are not, or not yet.
    pub(crate) missing: AtomicU64,
    /// Requests and checks that failed.
    pub(crate) errors: AtomicU64,
}

impl MirrorProgress {
    /// Counts and logs the death of the task.
    pub(crate) fn dies(&self, error: &Error) {
        if error.kind() != ErrorKind::Closed {
            self.errors.fetch_add(1, Relaxed);
            log::error!(target: "siltstone.store", "event=mirror_dies error={error:?}");
        }
    }
}

impl HandleCounters {
    pub(crate) fn since(opened: Duration) -> Self {
        HandleCounters {
            opened,
            gets: Counter::default(),
            get_many_keys: Counter::default(),
            scans: Counter::default(),
            cached_gets: Latency::default(),
            fetched_gets: Latency::default(),
            durable_writes: Latency::default(),
            mirror: MirrorProgress::default(),
        }
    }
}
