//! Answers that are there at once, or are a future.

use crate::write::Commit;
use futures::future::BoxFuture;
use siltstone_base::Result;
use std::fmt;

/// What a read gives: the answer itself while memory has it, a future when the store must be
/// asked. The core blocks nowhere; blocking is the caller's choice.
#[must_use = "a read does nothing until its answer is taken or awaited"]
pub enum Answer<T> {
    /// Memory had it.
    Ready(T),
    /// The store is asked while this is awaited; it ends by the handle's deadline.
    Pending(BoxFuture<'static, Result<T>>),
}

impl<T> Answer<T> {
    /// Waits where waiting is needed.
    ///
    /// # Errors
    /// Those of the read: Unavailable, Timeout, Corruption, Denied.
    pub async fn wait(self) -> Result<T> {
        match self {
            Answer::Ready(value) => Ok(value),
            Answer::Pending(future) => future.await,
        }
    }
}

impl<T> fmt::Debug for Answer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Answer::Ready(_) => "Ready",
            Answer::Pending(_) => "Pending",
        })
    }
}

/// What a write gives: accepted, or a future that ends when there is room to try again.
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
