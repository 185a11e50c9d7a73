//! Checkpoints of the caller: create, renew, list and delete, with or without a writer (RFC 0027).
//!
//! A checkpoint must never include a write that is not durable.

use super::clone::with_clone;
use crate::gc::both_clocks;
use crate::manifests::client::{commit_alone, newest, try_commit_alone};
use crate::manifests::objects::Objects;
use crate::wal::walk::walk;
use crate::writer::state::Writer;
use futures::FutureExt;
use futures::future::BoxFuture;
use siltstone_base::{CheckpointId, Error, ErrorKind, Result, UnixMillis};
use siltstone_manifest::edit::Conflict;
use siltstone_manifest::{
    Checkpoint, CheckpointName, CheckpointOwner, Edit, Manifest, NewCheckpoint, Refusal,
};
use siltstone_store::counting::count;
use siltstone_store::env::Env;
use std::sync::Arc;
use std::time::Duration;

/// The writes that a checkpoint of a writer includes at least.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckpointScope {
    /// Every write that was accepted before the call.
    All {
        /// Whether the writer uploads them at once. Otherwise the call waits until the writer has
        /// uploaded them at its own pace.
        force_flush: bool,
    },
    /// Every write that is durable at the time of the call. Faster, but without the newest writes.
    Durable,
}

impl Default for CheckpointScope {
    fn default() -> CheckpointScope {
        CheckpointScope::All { force_flush: true }
    }
}

/// Options of a new checkpoint.
#[derive(Clone, Debug, Default)]
pub struct CheckpointOptions {
    /// The writes that it includes. Has no effect with a `source`. Without a writer a checkpoint
    /// always includes the durable writes.
    pub scope: CheckpointScope,
    /// Time from its creation after which it may be revoked; `None`: it does not expire.
    pub lifetime: Option<Duration>,
    /// An existing checkpoint whose state the new one pins; `None`: the current state.
    pub source: Option<CheckpointName>,
    /// A name that is unique in the database: 1 to 255 bytes. It must not parse as a checkpoint id.
    pub name: Option<String>,
    /// Key-value pairs to attach: at most 64, of at most 4,096 bytes in total.
    pub metadata: Vec<(String, String)>,
}

impl CheckpointOptions {
    /// The checkpoint of the edit, without its WAL position and its source.
    fn planned(&self, env: &Env) -> Result<NewCheckpoint> {
        let created_at = env.clock.now();
        Ok(NewCheckpoint {
            id: CheckpointId::random(env.random_u128()),
            created_at,
            expires_at: ends(created_at, self.lifetime)?,
            name: self.name.clone(),
            metadata: self.metadata.clone(),
            ..NewCheckpoint::default()
        })
    }
}

/// The time at which a checkpoint that is created or renewed at `now` expires.
///
/// # Errors
/// Invalid for a lifetime of 0, and for an end that 64 bits of milliseconds cannot represent.
pub(super) fn ends(now: UnixMillis, lifetime: Option<Duration>) -> Result<Option<UnixMillis>> {
    let end = |life: Duration| {
        let millis = u64::try_from(life.as_nanos().div_ceil(1_000_000)).ok().filter(|ms| *ms > 0);
        let end = millis.and_then(|millis| now.0.checked_add(millis)).map(UnixMillis);
        end.ok_or_else(|| {
            Error::invalid(
                "the checkpoint's lifetime is out of range: it must be positive and end before \
                 the last representable time; without a lifetime the checkpoint never expires",
            )
        })
    };
    lifetime.map(end).transpose()
}

/// Creates a checkpoint through the writer.
pub(super) async fn of_writer(writer: &Arc<Writer>, how: &CheckpointOptions) -> Result<Checkpoint> {
    let mut new = how.planned(&writer.env)?;
    let id = new.id;
    new.through = Some(writer.epoch);
    let work = async {
        match &how.source {
            Some(source) => new.source = Some(sought(writer, source).await?),
            None => {
                include(writer, how.scope).await?;
                new.wal_id_last_seen = Some(writer.log.last_committed());
            }
        }
        let edit = Edit::AddCheckpoint(new);
        let mut state = writer.try_commit_apart(edit.clone()).await?;
        if state.as_ref().is_err_and(passes_with_expired) {
            let objects = Objects { env: writer.env.clone(), limit: writer.options.deadline };
            writer.manifests.learn(&make_room(&objects).await?);
            state = writer.try_commit_apart(edit).await?;
        }
        present(&*state.map_err(Error::from)?, id)
    };
    let limit = writer.options.deadline;
    let made = writer.context.deadline(limit, "checkpoint", work).await;
    made.map_err(|error| {
        if error.kind() == ErrorKind::Fenced {
            writer.end(&error);
        }
        perhaps_made(error, id)
    })
}

/// Whether an expired checkpoint may be what `refusal` is about: it takes a place, and its name.
fn passes_with_expired(refusal: &Refusal) -> bool {
    matches!(refusal, Refusal::TooManyCheckpoints | Refusal::Conflict(Conflict::NameTaken { .. }))
}

/// Removes the checkpoints and consumers that have expired by both the clock of this process and
/// that of the store, as a collector would (rule G3). Returns the newest manifest afterwards.
pub(super) async fn make_room(objects: &Objects) -> Result<Arc<Manifest>> {
    let newest = newest(objects).await?;
    let (now, _) = both_clocks(objects, &newest).await?;
    let expired = newest.checkpoints.iter().filter(|one| one.expired_at(now));
    let ids: Vec<CheckpointId> = expired.map(|one| one.id).collect();
    let has_expired = !ids.is_empty() || newest.holds.iter().any(|hold| hold.expired_at(now));
    match has_expired {
        true => commit_alone(objects, Edit::RevokeExpired { ids, now }, newest).await,
        false => Ok(newest),
    }
}

/// Waits until every write in `scope` is durable.
async fn include(writer: &Arc<Writer>, scope: CheckpointScope) -> Result<()> {
    let last = writer.visible();
    match scope {
        CheckpointScope::Durable => Ok(()),
        CheckpointScope::All { force_flush: true } => writer.commit_at(last).wait(None).await,
        CheckpointScope::All { force_flush: false } => {
            Arc::clone(&writer.durability).wait(last).await
        }
    }
}

/// The id of the checkpoint `name`. If the newest manifest that the writer knows has no such
/// checkpoint, looks in the newest manifest of the store.
async fn sought(writer: &Writer, name: &CheckpointName) -> Result<CheckpointId> {
    match name.find(&writer.manifests.newest_known()) {
        Ok(found) => Ok(found.id),
        Err(_) => Ok(name.find(&*writer.manifests.probe(true).await?)?.id),
    }
}

/// The checkpoint `id` in `state`.
///
/// # Errors
/// Expired if it has been deleted.
pub(super) fn present(state: &Manifest, id: CheckpointId) -> Result<Checkpoint> {
    Ok(CheckpointName::Id(id).find(state)?.clone())
}

/// Adds the id to an error after which the checkpoint may exist.
fn perhaps_made(error: Error, id: CheckpointId) -> Error {
    match error.kind() {
        ErrorKind::Timeout | ErrorKind::Unavailable => error.with("perhaps made", id),
        _ => error,
    }
}

/// Creates a checkpoint of all durable writes, in tables or in the WAL, without a writer. The scope
/// of `how` has no effect.
///
/// # Errors
/// NotFound if there is no database, or it was destroyed; Expired for a source that was deleted or
/// has expired; Conflict for a name that is in use; Invalid for options out of range; Denied;
/// Corruption; Unavailable and Timeout, which state the id, because the checkpoint may exist.
pub fn create_checkpoint<'a>(
    env: &'a Env,
    how: &'a CheckpointOptions,
    deadline: Duration,
) -> BoxFuture<'a, Result<Checkpoint>> {
    async move {
        let (env, requests) = &count(env.clone());
        let objects = Objects { env: env.clone(), limit: deadline };
        let mut new = how.planned(env)?;
        let id = new.id;
        let work = async {
            let newest = match &how.source {
                Some(source) => {
                    let newest = newest(&objects).await?;
                    new.source = Some(source.find(&newest)?.id);
                    newest
                }
                None => {
                    let (newest, walked) = walk(&objects).await?;
                    new.wal_id_last_seen = Some(walked);
                    newest
                }
            };
            let edit = Edit::AddCheckpoint(new);
            let mut state = try_commit_alone(&objects, edit.clone(), newest).await?;
            if state.as_ref().is_err_and(passes_with_expired) {
                let newest = make_room(&objects).await?;
                state = try_commit_alone(&objects, edit, newest).await?;
            }
            present(&*state.map_err(Error::from)?, id)
        };
        let made = requests.within(env, deadline, "create_checkpoint", work).await;
        made.map_err(|error| perhaps_made(error, id))
    }
    .boxed()
}

/// Renews a checkpoint: it expires `lifetime` from now; `None`: it does not expire. An expired
/// checkpoint can be renewed as long as it was not revoked.
///
/// # Errors
/// NotFound if there is no database; Expired if the checkpoint was deleted; Conflict for a
/// checkpoint that the writer maintains; Invalid, also for a reader's lease without a lifetime;
/// Denied, Unavailable, Timeout, Corruption.
pub fn refresh_checkpoint<'a>(
    env: &'a Env,
    which: &'a CheckpointName,
    lifetime: Option<Duration>,
    deadline: Duration,
) -> BoxFuture<'a, Result<Checkpoint>> {
    async move {
        let (env, requests) = &count(env.clone());
        let objects = Objects { env: env.clone(), limit: deadline };
        let expires_at = ends(env.clock.now(), lifetime)?;
        let work = async {
            let newest = newest(&objects).await?;
            let found = which.find(&newest)?.clone();
            let edit = Edit::RefreshCheckpoint { id: found.id, expires_at };
            let state = commit_alone(&objects, edit, newest).await;
            present(&*state.map_err(|error| explained(error, &found))?, found.id)
        };
        requests.within(env, deadline, "refresh_checkpoint", work).await
    }
    .boxed()
}

/// Deletes a checkpoint. The collector then deletes objects that only this checkpoint retained.
///
/// # Errors
/// NotFound if there is no database; Expired if the checkpoint was deleted already; Conflict for a
/// checkpoint that the writer maintains; Denied, Unavailable, Timeout, Corruption.
pub fn delete_checkpoint<'a>(
    env: &'a Env,
    which: &'a CheckpointName,
    deadline: Duration,
) -> BoxFuture<'a, Result<()>> {
    async move {
        let (env, requests) = &count(env.clone());
        let objects = Objects { env: env.clone(), limit: deadline };
        let work = async {
            let newest = newest(&objects).await?;
            let found = which.find(&newest)?.clone();
            let edit = Edit::RemoveCheckpoint { id: found.id };
            let removed = commit_alone(&objects, edit, newest).await;
            removed.map(drop).map_err(|error| explained(error, &found))
        };
        requests.within(env, deadline, "delete_checkpoint", work).await
    }
    .boxed()
}

/// Why a change of `checkpoint` was refused: of a clone's pin, with the clone and its place.
fn explained(error: Error, checkpoint: &Checkpoint) -> Error {
    match (error.kind(), checkpoint.owner) {
        (ErrorKind::Conflict, CheckpointOwner::Clone(_)) => with_clone(error, checkpoint),
        _ => error,
    }
}

/// Lists all checkpoints in the order of their creation, including those of writers and readers.
///
/// # Errors
/// NotFound if there is no database; Denied, Unavailable, Timeout, Corruption.
pub fn list_checkpoints(env: &Env, deadline: Duration) -> BoxFuture<'_, Result<Vec<Checkpoint>>> {
    async move {
        let (env, requests) = &count(env.clone());
        let objects = Objects { env: env.clone(), limit: deadline };
        let work = async { Ok(newest(&objects).await?.checkpoints.clone()) };
        requests.within(env, deadline, "list_checkpoints", work).await
    }
    .boxed()
}
