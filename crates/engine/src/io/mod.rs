//! The ground: every effect (clock, randomness, spawning, the store), and what is told of work that
//! dies.

pub(crate) mod counter;
pub mod env;
pub mod store;
pub(crate) mod supervise;
pub mod task;
