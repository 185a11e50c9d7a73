//! Panics that a test plans: the executor takes them for a mistake of the engine, as a runtime would
//! take any panic; no other panic passes it.

use std::panic::resume_unwind;

/// What such a panic carries.
pub(crate) struct PlannedPanic;

/// Panics in the task that is polled, without a word on the terminal.
pub fn panic_as_planned() -> ! {
    resume_unwind(Box::new(PlannedPanic))
}
