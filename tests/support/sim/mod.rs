//! A deterministic simulation: many processes on one thread, virtual time, every choice drawn from
//! one seed.
//!
//! Tasks belong to a *process*. Of the tasks that can run, the seed picks the next; when none can,
//! the clock jumps to the next timer. Killing a process drops its tasks and lets nothing of it run
//! again; pausing one is what SIGSTOP is to a real process. A task that panics as planned is gone,
//! as it would be in a runtime; any other panic ends the test. Every step is folded into a hash:
//! equal seeds must give equal hashes, or something undetermined has slipped in.

mod env;
mod executor;
mod limits;
mod panics;
mod planned;
mod random;
mod timer;
mod trace;

pub use executor::{ProcessId, Sim, SimHandle};
pub use limits::{Limits, Stopped};
pub use planned::PlannedPanic;
pub use random::Rng;
