//! The limits of a run, and the reason why it stopped.

use std::time::Duration;

/// The limits above which a run counts as hanging.
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

/// The reason why a run ended without its result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stopped {
    /// Its process was killed.
    Killed,
    /// No task can run and no timer is set: a task waits for an event that never happens.
    Deadlock,
    /// [`Limits::steps`] was reached: tasks run without progress.
    TooManySteps,
    /// [`Limits::time`] was reached: retries without an end.
    TooLong,
}

impl Stopped {
    /// Whether the program hangs; a kill is not its fault.
    #[must_use]
    pub fn is_hang(self) -> bool {
        self != Stopped::Killed
    }
}
