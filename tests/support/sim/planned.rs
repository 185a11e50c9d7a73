//! Panics that a test plans: the executor takes them as a runtime takes any panic. No other panic
//! passes it.

use std::any::Any;
use std::panic::resume_unwind;
use std::time::Duration;

/// A task that panicked because a test planned it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlannedPanic {
    /// Its name.
    pub task: &'static str,
    /// When it was spawned: tells those of one handle from those of the one before.
    pub spawned: Duration,
    /// When it panicked.
    pub at: Duration,
}

/// What such a panic carries.
struct Planned;

/// Panics, without a word on the terminal.
pub(crate) fn panic_as_planned() -> ! {
    resume_unwind(Box::new(Planned))
}

pub(crate) fn is_planned(payload: &(dyn Any + Send)) -> bool {
    payload.is::<Planned>()
}
