//! Records of two-phase creates, and the transactional store that they lie in.
//!
//! A record says that `source` holds the object `destination`. It is the commit of a create: of
//! racing inserts for one destination exactly one succeeds (rule T3). A source has at most one
//! record as well, so a source that was revoked can never be committed (rule T4).

use crate::env::Effects;
use futures::FutureExt;
use futures::channel::oneshot;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use siltstone_base::{Error, ObjectName, Result};
use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

/// A committed create.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Record {
    /// The object that was created.
    pub destination: ObjectName,
    /// The object that holds its bytes until the record is complete.
    pub source: ObjectName,
    /// Whether the bytes were copied to the destination.
    pub complete: bool,
}

/// The outcome of [`RecordStore::insert`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InsertOutcome {
    /// The record was inserted: the create is durable.
    Inserted,
    /// The destination has another record.
    Taken,
    /// The source was revoked: its object may be gone.
    Revoked,
}

/// The records of one database in one transactional store. Every method is one transaction that
/// takes effect as a whole, in an order that all processes agree on (linearizable). An error leaves
/// the outcome unknown, except where the kind is Invalid or Denied.
pub trait RecordStore: Send + Sync + fmt::Debug {
    /// The kind of the transactional store, as in the option: `sqlite`, `postgres`, …
    fn kind(&self) -> &'static str;

    /// The transactional store and for how long its oldest request has had no answer, as text.
    fn unanswered(&self) -> Option<String> {
        None
    }

    /// The namespace that the database at `location` is bound to. If there is none, binds `fresh`
    /// and returns it.
    ///
    /// # Errors
    /// Those of the transactional store.
    fn bind(&self, location: &str, fresh: u128) -> BoxFuture<'_, Result<u128>>;

    /// The location that a namespace was bound to; `None` for an unknown one.
    ///
    /// # Errors
    /// Those of the transactional store.
    fn location_of(&self, namespace: u128) -> BoxFuture<'_, Result<Option<String>>>;

    /// Binds a namespace to another location, after the database was moved.
    ///
    /// # Errors
    /// Those of the transactional store.
    fn rebind(&self, namespace: u128, location: &str) -> BoxFuture<'_, Result<()>>;

    /// Inserts an incomplete record unless the destination has one or the source is revoked.
    ///
    /// # Errors
    /// Those of the transactional store.
    fn insert(
        &self,
        namespace: u128,
        destination: ObjectName,
        source: ObjectName,
    ) -> BoxFuture<'_, Result<InsertOutcome>>;

    /// The record of a destination.
    ///
    /// # Errors
    /// Those of the transactional store.
    fn get(&self, namespace: u128, name: ObjectName) -> BoxFuture<'_, Result<Option<Record>>>;

    /// The records that are incomplete (`false`) or complete (`true`), in any order.
    ///
    /// # Errors
    /// Those of the transactional store.
    fn list(&self, namespace: u128, complete: bool) -> BoxFuture<'_, Result<Vec<Record>>>;

    /// Marks exactly this record as complete, if it is there.
    ///
    /// # Errors
    /// Those of the transactional store.
    fn complete(&self, namespace: u128, record: Record) -> BoxFuture<'_, Result<()>>;

    /// Removes complete records. Incomplete ones stay (rule T2).
    ///
    /// # Errors
    /// Those of the transactional store.
    fn remove(&self, namespace: u128, names: Vec<ObjectName>) -> BoxFuture<'_, Result<()>>;

    /// Removes exactly this record, complete or not. Used if the object was deleted without its
    /// record.
    ///
    /// # Errors
    /// Those of the transactional store.
    fn purge(&self, namespace: u128, record: Record) -> BoxFuture<'_, Result<()>>;

    /// Revokes a source unless an incomplete record names it. Returns whether none does: the
    /// source may be deleted. The source of a complete record may count as named.
    ///
    /// # Errors
    /// Those of the transactional store.
    fn revoke(&self, namespace: u128, source: ObjectName) -> BoxFuture<'_, Result<bool>>;
}

/// A namespace as text.
pub(super) fn hex(namespace: u128) -> String {
    format!("{namespace:032x}")
}

/// Shorter waits are not reported.
const TOLD_AFTER: Duration = Duration::from_millis(200);

/// The requests to a transactional store that wait for an answer: when each was sent.
#[derive(Clone, Debug, Default)]
pub(super) struct Outstanding(Arc<Mutex<BTreeMap<u64, Duration>>>);

/// A request that waits for an answer until this is dropped.
struct OutstandingRequest {
    all: Outstanding,
    number: u64,
}

impl Outstanding {
    fn begin(&self, effects: &Effects) -> OutstandingRequest {
        let mut all = self.0.lock();
        let number = all.last_key_value().map_or(0, |(last, _)| last + 1);
        all.insert(number, effects.clock.monotonic());
        OutstandingRequest { all: self.clone(), number }
    }

    /// For how long the oldest request has waited, as text.
    pub(super) fn oldest(&self, effects: &Effects) -> Option<String> {
        let since = *self.0.lock().first_key_value()?.1;
        let waits = effects.clock.monotonic().saturating_sub(since);
        (waits >= TOLD_AFTER).then(|| format!("for {:.1} s", waits.as_secs_f64()))
    }
}

impl Drop for OutstandingRequest {
    fn drop(&mut self) {
        self.all.0.lock().remove(&self.number);
    }
}

/// Runs a request to a transactional store as a task of the effects, whose runtime has the timer
/// and sockets that a client needs. The request continues if the caller stops waiting.
pub(super) fn run_detached<T: Send + 'static>(
    effects: &Effects,
    outstanding: &Outstanding,
    request: impl Future<Output = Result<T>> + Send + 'static,
) -> BoxFuture<'static, Result<T>> {
    let (answer, answered) = oneshot::channel();
    let waits = outstanding.begin(effects);
    let task = async move {
        let ended = request.await;
        drop(waits);
        drop(answer.send(ended));
    };
    effects.spawn.spawn("record", task.boxed());
    async move {
        let died = || Error::internal("a request to the transactional store died");
        answered.await.unwrap_or_else(|_| Err(died()))
    }
    .boxed()
}
