//! When a run counts as hanging, and why it stopped.

use std::time::Duration;

/// When a run counts as hanging.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Polls of tasks in one [`SimHandle::block_on`].
    pub steps: u64,
    /// Virtual time in one [`SimHandle::block_on`].
    pub time: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Limits { steps: 2_000_000, time: Duration::from_secs(3600) }
    }
}

/// Why a run ended without its result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stopped {
    /// Its process was killed.
    Killed,
    /// Nothing can run and no timer is set: somebody waits for what nobody will do.
    Deadlock,
    /// [`Limits::steps`] was reached: tasks run without getting anywhere.
    TooManySteps,
    /// [`Limits::time`] was reached: retries without an end.
    TooLong,
}

impl Stopped {
    /// Whether the program hangs; being killed is not its fault.
    #[must_use]
    pub fn is_hang(self) -> bool {
        self != Stopped::Killed
    }
}
