//! The ground: every effect (clock, randomness, spawning, the store), and what is told of work that
//! is long, or dies.

pub(crate) mod buffers;
pub(crate) mod counter;
pub mod env;
pub(crate) mod latency;
pub(crate) mod progress;
pub mod store;
pub(crate) mod supervise;
pub mod task;
