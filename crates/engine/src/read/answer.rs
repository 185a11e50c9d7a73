//! Answers that are there at once, or are a future.

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
