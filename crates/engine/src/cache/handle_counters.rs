//! Counters of the operations on one handle, for its statistics.

use siltstone_store::counter::Counter;
use siltstone_store::latency::Latency;
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
        }
    }
}
