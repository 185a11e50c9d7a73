//! The group of options that compactors in processes of their own and their workers need. Whether
//! the writer compacts stands at the top (`embedded_compactor`), and so does how.

use std::time::Duration;

/// How often compactors and workers look, and when one counts as dead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Compactors {
    /// How often a compactor in its own process looks for a newer manifest, and a worker for work.
    pub poll_interval: Duration,
    /// After how long without a sign of life another worker takes a range.
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
