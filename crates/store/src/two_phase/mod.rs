//! Conditional creates over a store that has none, by records in a transactional store (RFC 0052).
//!
//! ```text
//! create:    write source │ insert record │ acknowledge │ copy │ mark complete │ delete source
//! recovery:                                  any process ──┴──────────┴────────────┘
//! ```
//! The record is the commit. Readers see the object from then on: a read or a listing completes
//! what it meets first. Object names and contents are those of a store with conditional creates.
//!
//! This module must never write a destination before the record for it (rule T3), and never delete
//! a source that a record may still need (rules T2 and T4).

pub mod dynamodb;
pub mod memory;
mod namespace;
pub mod records;
mod recovery;
pub mod sql;

use crate::background::Background;
use crate::env::{Effects, random_u128};
use crate::options::StoreOptions;
use crate::profile::Profile;
use crate::{
    CopyAnswer, Listed, LocalReads, Neighbours, PutAnswer, Store, SweepReport, lies_under,
    passed_on,
};
use bytes::Bytes;
use dynamodb::DynamoRecords;
use futures::FutureExt;
use futures::future::{BoxFuture, join};
use memory::MemoryRecords;
use namespace::Namespace;
use records::{InsertOutcome, Record, RecordStore};
use siltstone_base::checksum::crc32c;
use siltstone_base::{AttemptId, Error, JobId, ObjectName, Result, UnixMillis};
use sql::SqlRecords;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use tokio::sync::Semaphore;

/// Copies of acknowledged creates that may be under way. A create beyond that waits for one, so
/// memory and the work of a recovery stay bounded.
const COPIES: usize = 16;

/// The store option that names the transactional store.
pub(crate) const OPTION: &str = "transactional_store";
/// The variable that stands in for it.
const VARIABLE: &str = "SILTSTONE_TRANSACTIONAL_STORE";

/// The URL that the option or the variable gives, if any, and all other options.
pub(crate) fn read_option(
    options: &StoreOptions,
    environment: &[(String, String)],
) -> (Option<String>, StoreOptions) {
    options.take(OPTION, VARIABLE, environment)
}

/// The records at a URL. `options` are those of an S3 store, whose keys are also those of DynamoDB.
///
/// # Errors
/// Invalid for a URL of another kind, and for rejected options.
pub(crate) fn records_at(
    url: &str,
    options: &StoreOptions,
    environment: &[(String, String)],
    effects: &Effects,
) -> Result<Arc<dyn RecordStore>> {
    Ok(match url.split_once("://") {
        Some(("memory", name)) => MemoryRecords::named(name),
        Some(("dynamodb", place)) => {
            Arc::new(DynamoRecords::new(place, options, environment, effects.clone())?)
        }
        _ => Arc::new(SqlRecords::new(url, effects.clone())?),
    })
}

/// A store whose creates are committed by records. Cheap to clone.
#[derive(Clone)]
pub struct TwoPhaseStore {
    /// The store below, which passes its facts on.
    store: Arc<dyn Store>,
    shared: Arc<Shared>,
}

struct Shared {
    store: Arc<dyn Store>,
    records: Arc<dyn RecordStore>,
    effects: Effects,
    namespace: Namespace,
    copies: Arc<Semaphore>,
    background: Background,
}

impl TwoPhaseStore {
    /// Creates in `store` are committed by `records`.
    #[must_use]
    pub fn new(
        store: Arc<dyn Store>,
        records: Arc<dyn RecordStore>,
        effects: Effects,
    ) -> Arc<TwoPhaseStore> {
        let (namespace, copies) = (Namespace::default(), Arc::new(Semaphore::new(COPIES)));
        let below = Arc::clone(&store);
        let shared = Shared {
            store: below,
            records,
            effects,
            namespace,
            copies,
            background: Background::default(),
        };
        Arc::new(TwoPhaseStore { store, shared: Arc::new(shared) })
    }
}

impl TwoPhaseStore {
    /// The store of a database at `location`, with the same records: this one, or another.
    fn at(&self, location: &str) -> Result<Arc<TwoPhaseStore>> {
        let shared = &self.shared;
        if shared.store.place().stands_at(location) {
            return Ok(Arc::new(self.clone()));
        }
        let store = shared.store.neighbours().neighbour(location)?;
        let (records, effects) = (Arc::clone(&shared.records), shared.effects.clone());
        Ok(TwoPhaseStore::new(store, records, effects))
    }
}

impl fmt::Debug for TwoPhaseStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.store.fmt(f)
    }
}

/// Whether objects of this name are created conditionally. Tables have unique names instead.
fn has_record(name: ObjectName) -> bool {
    !matches!(
        name,
        ObjectName::Compacted(_)
            | ObjectName::IngestSst(..)
            | ObjectName::DamagedTable(..)
            | ObjectName::TwoPhaseNamespace
            | ObjectName::TwoPhaseSource(..)
    )
}

impl Shared {
    /// Writes an object without any condition.
    async fn write(&self, name: ObjectName, bytes: Bytes) -> Result<()> {
        let mut upload = self.store.upload(name).await?;
        upload.write(bytes).await?;
        upload.finish().await
    }

    async fn exists(&self, name: ObjectName) -> Result<bool> {
        Ok(self.store.get(name, Some(0..1)).await?.is_some())
    }

    /// A source name that no other try has.
    fn new_source(&self, bytes: &[u8]) -> ObjectName {
        let number = random_u128(&*self.effects.random);
        ObjectName::TwoPhaseSource(AttemptId(number), crc32c(bytes))
    }

    async fn create(self: Arc<Self>, name: ObjectName, bytes: Bytes) -> PutAnswer {
        let namespace = match self.namespace().await {
            Ok(namespace) => namespace,
            Err(error) => return PutAnswer::Refused(error),
        };
        let source = self.new_source(&bytes);
        // An object without a record is one of a late copy, or was put there by other means.
        let (written, exists) = join(self.write(source, bytes.clone()), self.exists(name)).await;
        let refusal = match (written, exists) {
            (Ok(()), Ok(false)) => None,
            (_, Ok(true)) => Some(PutAnswer::Exists),
            (Err(error), _) | (_, Err(error)) => Some(PutAnswer::Refused(error)),
        };
        if let Some(refusal) = refusal {
            self.drop_source(source).await;
            return refusal;
        }
        match self.insert(namespace, name, source).await {
            Ok(InsertOutcome::Inserted) => {
                let record = Record { destination: name, source, complete: false };
                self.finish_later(namespace, record, bytes).await;
                PutAnswer::Created
            }
            Ok(InsertOutcome::Taken) => {
                self.drop_source(source).await;
                PutAnswer::Exists
            }
            Ok(InsertOutcome::Revoked) => PutAnswer::Refused(Error::unavailable(
                "a create took longer than the collector keeps unfinished ones; it is tried again",
            )),
            // The record may be there: the source stays for the process that finds it.
            Err(error) => PutAnswer::Ambiguous(error.with("object", name)),
        }
    }

    /// Inserts a record. A complete record without an object is removed first: the object was
    /// deleted, or the objects were restored from an older backup than the records, so the name is
    /// free.
    async fn insert(
        &self,
        namespace: u128,
        name: ObjectName,
        source: ObjectName,
    ) -> Result<InsertOutcome> {
        let outcome = self.records.insert(namespace, name, source).await?;
        if outcome != InsertOutcome::Taken {
            return Ok(outcome);
        }
        match self.records.get(namespace, name).await? {
            Some(record) if record.complete && !self.exists(name).await? => {
                self.records.purge(namespace, record).await?;
                self.records.insert(namespace, name, source).await
            }
            _ => Ok(InsertOutcome::Taken),
        }
    }

    /// Deletes the source of a create that has no record. The collector deletes it otherwise.
    async fn drop_source(&self, source: ObjectName) {
        if let Err(error) = self.store.delete(source).await {
            log::info!(
                target: crate::troubles::TARGET,
                "the source of an abandoned create is left to the collector: {error}"
            );
        }
    }

    /// Copies an acknowledged create to its destination in the background. A failure leaves it to
    /// the next process that meets the record.
    async fn finish_later(self: Arc<Self>, namespace: u128, record: Record, bytes: Bytes) {
        let under_way = self.background.begin();
        let permit = Arc::clone(&self.copies).acquire_owned().await;
        let spawn = Arc::clone(&self.effects.spawn);
        let finish = async move {
            if let Err(error) = self.copy(namespace, record, bytes).await {
                log::warn!(
                    target: crate::troubles::TARGET,
                    "event=copy_left object={} error={:?}: a later read or listing completes it",
                    record.destination,
                    error.to_string()
                );
            }
            drop((permit, under_way));
        };
        spawn.spawn("two-phase copy", finish.boxed());
    }
}

impl Store for TwoPhaseStore {
    passed_on!(store: upload, names_a_delete, observed, place);

    fn get(
        &self,
        name: ObjectName,
        range: Option<Range<u64>>,
    ) -> BoxFuture<'_, Result<Option<Bytes>>> {
        let shared = &self.shared;
        if !has_record(name) {
            return shared.store.get(name, range);
        }
        async move {
            match shared.store.get(name, range.clone()).await? {
                Some(bytes) => Ok(Some(bytes)),
                None => shared.get_committed(name, range).await,
            }
        }
        .boxed()
    }

    fn get_clamped(
        &self,
        name: ObjectName,
        range: Range<u64>,
    ) -> BoxFuture<'_, Result<Option<Bytes>>> {
        let shared = &self.shared;
        if !has_record(name) {
            return shared.store.get_clamped(name, range);
        }
        async move {
            match shared.store.get_clamped(name, range.clone()).await? {
                Some(bytes) => Ok(Some(bytes)),
                None => match shared.settle(name).await? {
                    Some(at) => shared.store.get_clamped(at, range).await,
                    None => Ok(None),
                },
            }
        }
        .boxed()
    }

    fn put_if_absent(&self, name: ObjectName, bytes: Bytes) -> BoxFuture<'_, PutAnswer> {
        Arc::clone(&self.shared).create(name, bytes).boxed()
    }

    fn list(
        &self,
        prefix: &'static str,
        after: Option<ObjectName>,
    ) -> BoxFuture<'_, Result<Vec<Listed>>> {
        let shared = &self.shared;
        async move {
            let uncopied = shared.complete_all().await?;
            let mut listed = shared.store.list(prefix, after).await?;
            shared.add_uncopied(&mut listed, uncopied, |name| {
                lies_under(name, prefix) && after.is_none_or(|after| name > after)
            });
            Ok(listed)
        }
        .boxed()
    }

    fn list_job(&self, job: JobId) -> BoxFuture<'_, Result<Vec<Listed>>> {
        let shared = &self.shared;
        async move {
            let uncopied = shared.complete_all().await?;
            let mut listed = shared.store.list_job(job).await?;
            shared.add_uncopied(&mut listed, uncopied, |name| crate::lies_in_folder(name, job));
            Ok(listed)
        }
        .boxed()
    }

    fn delete(&self, name: ObjectName) -> BoxFuture<'_, Result<()>> {
        async move { self.delete_many(vec![name]).await.pop().unwrap_or(Ok(())) }.boxed()
    }

    fn delete_many(&self, names: Vec<ObjectName>) -> BoxFuture<'_, Vec<Result<()>>> {
        Arc::clone(&self.shared).delete(names).boxed()
    }

    fn sweep(&self, cutoff: UnixMillis) -> BoxFuture<'_, Result<SweepReport>> {
        let shared = &self.shared;
        async move {
            let mut report = shared.store.sweep(cutoff).await?;
            shared.sweep(cutoff, &mut report).await?;
            Ok(report)
        }
        .boxed()
    }

    fn at_rest(&self) -> BoxFuture<'_, ()> {
        async move {
            self.shared.background.at_rest().await;
            self.store.at_rest().await;
        }
        .boxed()
    }

    /// A request to either store; one to the transactional store first.
    fn unanswered(&self) -> Option<String> {
        self.shared.records.unanswered().or_else(|| self.store.unanswered())
    }

    fn profile(&self) -> Profile {
        Profile { records: Some(self.shared.records.kind()), ..self.store.profile() }
    }

    fn reads(&self) -> &dyn LocalReads {
        self
    }

    fn neighbours(&self) -> &dyn Neighbours {
        self
    }
}

impl LocalReads for TwoPhaseStore {
    fn get_now(
        &self,
        name: ObjectName,
        range: Option<Range<u64>>,
    ) -> Option<Result<Option<Bytes>>> {
        match self.store.reads().get_now(name, range)? {
            // There may be a record.
            Ok(None) if has_record(name) => None,
            found => Some(found),
        }
    }

    fn get_now_into(
        &self,
        name: ObjectName,
        range: Range<u64>,
        buffer: &mut Vec<u8>,
    ) -> Option<Result<bool>> {
        if has_record(name) {
            return None;
        }
        self.store.reads().get_now_into(name, range, buffer)
    }

    fn lend(&self, name: ObjectName, bytes: u64) -> Option<Bytes> {
        self.store.reads().lend(name, bytes)
    }
}

impl Neighbours for TwoPhaseStore {
    fn follows(&self, location: &str) -> Result<()> {
        self.store.neighbours().follows(location)
    }

    fn neighbour(&self, location: &str) -> Result<Arc<dyn Store>> {
        Ok(self.at(location)?)
    }

    fn copy_from(&self, location: &str, from: ObjectName, to: ObjectName) -> CopyAnswer<'_> {
        if !has_record(from) {
            return self.store.neighbours().copy_from(location, from, to);
        }
        let location = location.to_owned();
        async move {
            // The object of a recorded create may not be at its name yet.
            let source = self.at(&location)?;
            let at = source.shared.settle(from).await?.unwrap_or(from);
            self.store.neighbours().copy_from(&location, at, to).await
        }
        .boxed()
    }
}
