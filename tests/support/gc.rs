//! A collector for tests, without a grace period; and manifests and job records as stored.

use siltstone::gc::{self, GcOptions};
use siltstone::store::conditional;
use siltstone::{Env, Error, ErrorKind};
use siltstone_base::name::prefix;
use siltstone_base::{AttemptId, DatabaseId, ManifestId, ObjectId, ObjectName, PutOutcome};
use siltstone_manifest::compaction::record::{RecordAnswer, RecordListing, RecordRequest};
use siltstone_manifest::compaction::{Append, AppendAction, Compactions};
use siltstone_manifest::protocol::{
    Commit, CommitAction, EndOfRun, Listing, Look, LookAction, ManifestAnswer, ManifestRequest,
    RunAction,
};
use siltstone_manifest::{Edit, Manifest, Rules};
use std::sync::Arc;
use std::time::Duration;

/// One round of the engine's collector without a grace period: deletes dead objects of any age.
/// Returns the number of deleted objects.
///
/// # Errors
/// Errors of the store; a round that fails midway does no harm.
pub async fn round(env: &Env) -> Result<u64, Error> {
    match gc::once(env, &AT_ONCE, false).await {
        Ok(report) => Ok(report.total().deleted),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(0),
        Err(error) => Err(error),
    }
}

/// No grace.
pub const AT_ONCE: GcOptions = GcOptions {
    min_age: Duration::ZERO,
    db_delete_grace: Duration::ZERO,
    interval: Duration::from_millis(1),
    deadline: Duration::from_secs(10),
};

/// The newest manifest, proven; `None` if there is no database.
///
/// # Errors
/// Errors of the store.
pub async fn newest(env: &Env) -> Result<Option<Arc<Manifest>>, Error> {
    let mut look = Look::new(None, Rules::ALL);
    loop {
        match look.action() {
            LookAction::Request(request) => look.on_answer(perform(env, request).await?),
            LookAction::Done(newest) => return Ok(newest),
        }
    }
}

/// Commits `edit`, planned on `known` and again on newer states.
///
/// # Errors
/// Errors of the store, and the reason of a refusal.
pub async fn commit(env: &Env, edit: Edit, known: Arc<Manifest>) -> Result<Arc<Manifest>, Error> {
    let mut machine = Commit::new(edit, known, Rules::ALL);
    loop {
        match machine.action() {
            CommitAction::Request(request) => machine.on_answer(perform(env, request).await?),
            CommitAction::Done(state) => return Ok(state),
            CommitAction::Failed(refusal) => return Err(refusal.into()),
        }
    }
}

/// The newest record of compaction jobs, proven.
///
/// # Errors
/// Errors of the store.
pub async fn newest_record(env: &Env, database: DatabaseId) -> Result<Arc<Compactions>, Error> {
    let mut look = Append::look(database, Rules::ALL);
    loop {
        match look.action() {
            AppendAction::Request(RecordRequest::List) => {
                let mut listing = RecordListing::default();
                for object in env.store.list(prefix::COMPACTIONS, None).await? {
                    if let ObjectName::Compactions(number) = object.name {
                        listing.newest = listing.newest.max(number);
                    }
                }
                look.on_answer(RecordAnswer::Listed(listing));
            }
            AppendAction::Request(RecordRequest::Read(number)) => {
                let bytes = env.store.get(ObjectName::Compactions(number), None).await?;
                let decoded = bytes.map(|bytes| Compactions::decode(&bytes)).transpose()?;
                look.on_answer(RecordAnswer::Read(decoded.map(|(_, record)| Arc::new(record))));
            }
            AppendAction::Request(RecordRequest::Create(_)) => {
                return Err(Error::internal("a look creates nothing"));
            }
            AppendAction::Done(record) => return Ok(record),
            AppendAction::Failed(refusal) => return Err(refusal.into()),
        }
    }
}

/// Performs one request.
///
/// # Errors
/// Errors of the store.
pub async fn perform(env: &Env, request: ManifestRequest) -> Result<ManifestAnswer, Error> {
    Ok(match request {
        ManifestRequest::Create(state) => {
            let attempt = AttemptId(env.random_u128());
            let object = ObjectId(env.random_u128());
            let bytes = state.encode(object, attempt)?;
            let name = ObjectName::Manifest(state.id);
            let created = conditional::create(env, name, bytes, attempt).await;
            let outcome = match created.outcome {
                PutOutcome::Committed => PutOutcome::Committed,
                PutOutcome::Lost(_) => PutOutcome::Lost(()),
                PutOutcome::NotApplied => PutOutcome::NotApplied,
                PutOutcome::Unknown => PutOutcome::Unknown,
            };
            ManifestAnswer::Created(outcome, attempt)
        }
        ManifestRequest::List { after } => {
            let listed = env.store.list(prefix::MANIFEST, None).await?;
            let (mut ids, mut boundary) = (Vec::new(), ManifestId::NONE);
            for object in listed {
                match object.name {
                    ObjectName::Manifest(id) => ids.push(id),
                    ObjectName::ManifestBoundary(id) => boundary = boundary.max(id),
                    _ => {}
                }
            }
            let mut run = EndOfRun::new(ids, boundary);
            let end = loop {
                match run.action() {
                    RunAction::Read(id) => run.on_read(read(env, id).await?.as_deref()),
                    // Listings are trusted here.
                    RunAction::Ask(_) => run.on_asked(false),
                    RunAction::Done(end) => break end.unwrap_or(boundary),
                }
            };
            ManifestAnswer::Listed(Listing::ending(end, boundary, after))
        }
        ManifestRequest::Read(id) => ManifestAnswer::Read(read(env, id).await?),
    })
}

async fn read(env: &Env, id: ManifestId) -> Result<Option<Arc<Manifest>>, Error> {
    let bytes = env.store.get(ObjectName::Manifest(id), None).await?;
    let decoded = bytes.map(|bytes| Manifest::decode(&bytes)).transpose()?;
    Ok(decoded.map(|(_, manifest)| Arc::new(manifest)))
}
