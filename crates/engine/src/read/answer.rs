//! The result of a read: available at once, or a future. The core must never block a thread.

use futures::future::BoxFuture;
use siltstone_base::Result;
use std::fmt;

/// The result of a read: the value itself if memory has it, or a future that reads from the store.
/// The engine never blocks; the caller chooses whether to block or to await.
#[must_use = "a read does nothing until its answer is taken or awaited"]
pub enum Answer<T> {
    /// Memory had the result.
    Ready(T),
    /// A future that reads from the store. It ends within the handle's deadline.
    Pending(BoxFuture<'static, Result<T>>),
}

impl<T> Answer<T> {
    /// Returns the result, and awaits the future if there is one.
    ///
    /// # Errors
    /// The errors of the read: Unavailable, Timeout, Corruption, Denied.
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
