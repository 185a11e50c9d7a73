//! The group of options that readers alone need. Whether they lease what they read stands at the
//! top (`reader_lease`).

use std::time::Duration;

/// How long readers' leases live, how old what they read may be, and what a restore means to them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Readers {
    /// How long a lease lives without being renewed.
    pub checkpoint_lifetime: Duration,
    /// How old what a reader reads may be; `None`: no bound.
    pub max_staleness: Option<Duration>,
    /// Whether a reader that follows goes on with a restored state; else it ends there.
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
