//! A store for the simulation that fails as real ones do, by a seed.
//!
//! A [`Bucket`] is the object store: one for all processes, and outside of them. Each process
//! reaches it through a [`FaultStore`] of its own. What a process has sent travels in the network,
//! which outlives it: a create of a process that was killed meanwhile may still land.

mod bucket;
mod link;
mod places;
mod plan;
mod quota;
mod refusal;
mod store;
mod upload;

pub use bucket::{Bucket, CrashPoint};
pub use link::Link;
pub use places::Places;
pub use plan::{Fault, FaultPlan};
pub use refusal::is_for_good;
pub use store::FaultStore;
