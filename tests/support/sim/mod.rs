//! A deterministic simulation: many processes on one thread, virtual time, every choice drawn from
//! one seed.
//!
//! Tasks belong to a *process*. The seed picks the next of the runnable tasks; if there is none,
//! the clock jumps to the next timer. Killing a process drops its tasks, which never run again;
//! pausing one has the effect of SIGSTOP. A task that panics as planned is gone, as in a runtime;
//! any other panic ends the test. Every step is added to a hash: equal seeds must give equal
//! hashes, otherwise the run is not deterministic.

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
