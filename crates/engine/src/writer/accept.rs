//! The result of a write: accepted, or stalled by back-pressure.

use super::commit::Commit;
use futures::future::BoxFuture;
use siltstone_base::Result;
use std::fmt;

/// The result of a write: accepted, or a future that ends when the stall ends and the caller may
/// write again.
#[must_use = "a write under pressure was not accepted"]
pub enum Accept {
    /// The write is accepted: visible to reads of this handle, and durable later.
    Accepted(Commit),
    /// The write is not accepted, because too much data is unflushed. Await the future, then write
    /// again. An error means that the handle has ended or that the deadline has passed.
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
