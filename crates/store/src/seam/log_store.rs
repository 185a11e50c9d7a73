//! The log of a database: beside its other objects, or in a separate store (RFC 0055).

use crate::sent::SentRequests;
use futures::FutureExt;
use futures::future::{BoxFuture, ready};
use siltstone_base::{DatabaseId, Error, Result, WalStore};
use std::sync::Arc;

/// A step about the identity of a separate log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogIdentityStep {
    /// Check that it is there. All uses of the log do so too.
    Check,
    /// Use the log without it, where it is missing: for a repair that continues without what is
    /// lost, and to remove a destroyed database.
    Ignore,
    /// Create it again, at the end of such a repair.
    Renew,
}

/// The place of the log in a store. By default the log is beside the other objects.
pub trait LogStore: Send + Sync {
    /// Takes up the log of `database`, whose newest manifest has this record of a separate store of
    /// the log. Called before the log of a database is used.
    ///
    /// # Errors
    /// Unsupported if the log lies in another place than this store looks in.
    fn follow(&self, _: DatabaseId, recorded: Option<&WalStore>) -> Result<()> {
        let Some(recorded) = recorded else { return Ok(()) };
        let error = Error::unsupported(
            "the log of this database lies in a store of its own: give its URL as the store \
             option `wal_url`",
        );
        let place = recorded.location.as_deref();
        Err(place.into_iter().fold(error, |error, place| error.with("wal_url", place)))
    }

    /// Creates the identity of the log of a new database in the separate store of the log, and
    /// returns its record; `None` if the log lies beside the other objects. May be repeated.
    ///
    /// # Errors
    /// Unsupported if that store ignores the condition of creates; errors of the store.
    fn create(&self, _: DatabaseId) -> BoxFuture<'_, Result<Option<WalStore>>> {
        ready(Ok(None)).boxed()
    }

    /// Takes a step about the identity of a separate log that was taken up. Without one, does
    /// nothing.
    ///
    /// # Errors
    /// Corruption, for a check, if the log is lost, and otherwise if another object is in place of
    /// the identity; Conflict if the log belongs to a database of which this is a copy; errors of
    /// the store.
    fn identity(&self, _: LogIdentityStep) -> BoxFuture<'_, Result<()>> {
        ready(Ok(())).boxed()
    }

    /// The URL of the separate store of the log that was taken up; `None` without one.
    fn location(&self) -> Option<String> {
        None
    }

    /// Counts of requests to a separate store of the log, if they are not among those of
    /// [`Observed::sent`](super::Observed::sent).
    fn sent(&self) -> Option<Arc<SentRequests>> {
        None
    }
}

/// The log lies beside the other objects.
pub(super) struct LogBeside;

impl LogStore for LogBeside {}
