//! Access to every effect (clock, randomness, spawned tasks, the store), and reports of progress
//! and of tasks that fail.

pub(crate) mod buffers;
pub(crate) mod counter;
pub mod env;
pub(crate) mod latency;
pub(crate) mod progress;
pub mod store;
pub(crate) mod supervise;
pub mod task;
