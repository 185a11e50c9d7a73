//! How a reader finds newer data, keeps its tables alive by a lease, or reads the state of a
//! checkpoint (RFC 0017). A reader must never use tables that no lease, checkpoint or kept manifest
//! protects.

pub(crate) mod at_checkpoint;
pub(crate) mod following;
pub(crate) mod lease;
mod requests;
pub(crate) mod rows;
