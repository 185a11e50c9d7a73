//! A store for the simulation that fails as real ones do, by a seed.
//!
//! A [`Bucket`] is the object store: one for all processes, and outside of them. Each process
//! reaches it through a [`FaultStore`] of its own. What a process has sent travels in the network,
//! which outlives it: a create of a process that was killed meanwhile may still land.

mod bucket;
mod plan;
mod store;

pub use bucket::{Bucket, CrashPoint};
pub use plan::{Fault, FaultPlan};
pub use store::FaultStore;
