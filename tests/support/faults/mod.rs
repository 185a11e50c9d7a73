//! A store for the simulation that fails as real ones do, determined by a seed.
//!
//! A [`Bucket`] is the object store: one for all processes, and outside of them. Each process uses
//! it through its own [`FaultStore`]. Requests of a process travel in the network, which outlives
//! the process: a create of a process that was killed meanwhile may still land.

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
