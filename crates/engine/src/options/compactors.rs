//! The group of options of compactors in their own processes and of their workers. The option
//! `embedded_compactor` of the writer and the options of schedulers are not in this group.

use std::time::Duration;

/// Intervals of compactors and workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Compactors {
    /// How often a compactor in its own process looks for a newer manifest, and a worker for work.
    pub poll_interval: Duration,
    /// Time without a heartbeat after which another worker takes a range.
    pub worker_timeout: Duration,
}

impl Default for Compactors {
    fn default() -> Compactors {
        Compactors {
            poll_interval: Duration::from_secs(2),
            worker_timeout: Duration::from_secs(30),
        }
    }
}
