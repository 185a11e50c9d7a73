//! Checkpoints that the jobs of one holder share, such as the jobs of one Spark driver.
//!
//! Any number of jobs share one checkpoint of an unchanged state. A holder must never have more
//! than [`MOST_SHARED_PINS`] checkpoints.

use super::checkpoints::{ends, present};
use crate::manifests::client::{commit_alone, newest, try_commit_alone};
use crate::manifests::objects::Objects;
use crate::wal::walk::walk;
use futures::FutureExt;
use futures::future::BoxFuture;
use siltstone_base::{CheckpointId, Error, Result, UnixMillis, WalId};
use siltstone_manifest::{
    Checkpoint, CheckpointName, CheckpointOwner, Edit, Manifest, NewCheckpoint, Refusal,
};
use siltstone_store::counting::count;
use siltstone_store::env::Env;
use std::sync::Arc;
use std::time::Duration;

/// Maximum number of checkpoints of one holder. A checkpoint beyond it replaces the one that
/// expires first.
pub const MOST_SHARED_PINS: usize = 16;

/// Pins the current durable state, or the state of checkpoint `source`, for `lifetime`, with a
/// checkpoint that all jobs of `holder` share. The checkpoint's metadata records `holder`.
///
/// If the holder already has a checkpoint of the same state, the call renews it if less than half
/// of `lifetime` is left, and writes nothing otherwise. Beyond [`MOST_SHARED_PINS`] checkpoints the
/// call deletes the one that expires first; reads at it then end with Expired. Like the leases of
/// readers, these checkpoints do not prevent a destroy.
///
/// # Errors
/// NotFound if there is no database; Expired for a source that was deleted or has expired; Invalid
/// for a lifetime or a holder out of range; Denied, Unavailable, Timeout, Corruption.
pub fn pin_shared<'a>(
    env: &'a Env,
    holder: &'a [(String, String)],
    source: Option<&'a CheckpointName>,
    lifetime: Duration,
    deadline: Duration,
) -> BoxFuture<'a, Result<Checkpoint>> {
    async move {
        let (env, requests) = &count(env.clone());
        let objects = Objects { env: env.clone(), limit: deadline };
        let work = async {
            let now = env.clock.now();
            let expires_at = ends(now, Some(lifetime))?;
            let (newest, walked, source, found) = match source {
                None => {
                    let (newest, walked) = walk(&objects).await?;
                    let found = same_state(&objects, &newest, walked, holder, now).await?;
                    (newest, Some(walked), None, found)
                }
                Some(name) => {
                    let newest = newest(&objects).await?;
                    let source = name.find(&newest)?;
                    let found = held_by(&newest, holder).find(|one| pins_same(one, source));
                    let (found, source) = (found.cloned(), source.id);
                    (newest, None, Some(source), found)
                }
            };
            if let Some(found) = found {
                let half = lifetime / 2;
                let enough = ends(now, Some(half))?;
                if found.expires_at >= enough {
                    return Ok(found);
                }
                let edit = Edit::RefreshCheckpoint { id: found.id, expires_at };
                match try_commit_alone(&objects, edit, Arc::clone(&newest)).await? {
                    // The checkpoint was deleted meanwhile: create another one.
                    Err(Refusal::Expired { .. }) => {}
                    state => return present(&*state.map_err(Error::from)?, found.id),
                }
            }
            let id = CheckpointId::random(env.random_u128());
            let edit = Edit::AddCheckpoint(NewCheckpoint {
                id,
                created_at: now,
                expires_at,
                wal_id_last_seen: walked,
                source,
                owner: CheckpointOwner::Reader,
                metadata: holder.to_vec(),
                ..NewCheckpoint::default()
            });
            let state = commit_alone(&objects, edit, newest).await?;
            let made = present(&state, id)?;
            drop_oldest(&objects, state, holder, id).await?;
            Ok(made)
        };
        requests.within(env, deadline, "pin_shared", work).await
    }
    .boxed()
}

/// The holder's checkpoint of the state of `newest` and the log up to `walked`, if any.
async fn same_state(
    objects: &Objects,
    newest: &Manifest,
    walked: WalId,
    holder: &[(String, String)],
    now: UnixMillis,
) -> Result<Option<Checkpoint>> {
    let mut found = held_by(newest, holder);
    let same = found.find(|one| {
        let tables = one.manifest_id >= newest.tables_since.max(newest.restored_at());
        let log = (one.replay_from, one.wal_id_last_seen) == (newest.replay_from, walked);
        tables && log && !one.expired_at(now)
    });
    let Some(same) = same else { return Ok(None) };
    // The schema and the settings, which a reader also uses, may have changed since.
    let pinned = objects.manifest(same.manifest_id).await?;
    let same_rest = |pinned: &Arc<Manifest>| {
        (&pinned.schema, &pinned.settings) == (&newest.schema, &newest.settings)
    };
    Ok(pinned.as_ref().is_some_and(same_rest).then(|| same.clone()))
}

/// Whether both checkpoints pin the same state.
fn pins_same(one: &Checkpoint, other: &Checkpoint) -> bool {
    let pinned = |one: &Checkpoint| {
        (one.manifest_id, one.manifest_attempt, one.replay_from, one.wal_id_last_seen)
    };
    pinned(one) == pinned(other)
}

fn held_by<'a>(
    state: &'a Manifest,
    holder: &'a [(String, String)],
) -> impl Iterator<Item = &'a Checkpoint> {
    let readers = state.checkpoints.iter().filter(|one| one.owner == CheckpointOwner::Reader);
    readers.filter(move |one| one.metadata == holder)
}

/// Deletes the holder's checkpoints that expire first, except the one `made` just now, until at
/// most [`MOST_SHARED_PINS`] are left.
async fn drop_oldest(
    objects: &Objects,
    mut state: Arc<Manifest>,
    holder: &[(String, String)],
    made: CheckpointId,
) -> Result<()> {
    loop {
        let count = held_by(&state, holder).count();
        let others = held_by(&state, holder).filter(|one| one.id != made);
        let oldest = others.min_by_key(|one| (one.expires_at, one.created_at));
        let Some(oldest) = oldest.filter(|_| count > MOST_SHARED_PINS) else { return Ok(()) };
        let edit = Edit::RemoveCheckpoint { id: oldest.id };
        state = commit_alone(objects, edit, state).await?;
    }
}
