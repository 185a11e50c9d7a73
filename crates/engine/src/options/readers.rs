//! The group of options of readers. The option `reader_lease` is not in this group.

use std::time::Duration;

/// The life of leases, the maximum staleness, and the reaction to a restore.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Readers {
    /// Life of a lease that is not renewed.
    pub checkpoint_lifetime: Duration,
    /// Maximum staleness of a following reader; `None`: no bound.
    pub max_staleness: Option<Duration>,
    /// Whether a following reader continues after a restore; otherwise it ends.
    pub follow_restores: bool,
}

impl Default for Readers {
    fn default() -> Readers {
        Readers {
            checkpoint_lifetime: Duration::from_secs(600),
            max_staleness: None,
            follow_restores: false,
        }
    }
}
