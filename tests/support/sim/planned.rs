//! Planned panics of a test: the executor handles them as a runtime handles any panic. All other
//! panics fail the test.

use std::any::Any;
use std::panic::resume_unwind;
use std::time::Duration;

/// A task that panicked because a test planned it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlannedPanic {
    /// Its name.
    pub task: &'static str,
    /// When it was spawned: distinguishes tasks of one handle from those of an earlier one.
    pub spawned: Duration,
    /// When it panicked.
    pub at: Duration,
}

/// The payload of such a panic.
struct Planned;

/// Panics without a message on the terminal.
pub(crate) fn panic_as_planned() -> ! {
    resume_unwind(Box::new(Planned))
}

pub(crate) fn is_planned(payload: &(dyn Any + Send)) -> bool {
    payload.is::<Planned>()
}
