//! Writes that are accepted, or stall.

use super::commit::Commit;
use futures::future::BoxFuture;
use siltstone_base::Result;
use std::fmt;

/// What a write gives: accepted, or a future that ends with the stall, when it may be tried
/// again.
#[must_use = "a write under pressure was not accepted"]
pub enum Accept {
    /// Accepted: visible to this handle's reads, durable later.
    Accepted(Commit),
    /// Too much is unflushed. Await, then write again. An error means that the handle is dead or
    /// that the deadline passed.
    Pressure(BoxFuture<'static, Result<()>>),
}

impl fmt::Debug for Accept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Accept::Accepted(commit) => write!(f, "Accepted({commit:?})"),
            Accept::Pressure(_) => f.write_str("Pressure"),
        }
    }
}
