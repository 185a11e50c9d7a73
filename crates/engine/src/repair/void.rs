//! Continues from an older manifest (rule Y3).

use super::chain::ManifestChain;
use super::log::Log;
use crate::manifests::conditional_create::Creating;
use crate::manifests::objects::{Objects, seen};
use crate::manifests::rules;
use bytes::Bytes;
use siltstone_base::name::prefix;
use siltstone_base::sst::SstLocation;
use siltstone_base::{
    AttemptId, CheckpointId, DatabaseId, Error, ErrorKind, ManifestId, ObjectId, ObjectName,
    PutOutcome, Result, TimelineId, WalId,
};
use siltstone_manifest::protocol::WalSeen;
use siltstone_manifest::{Checkpoint, CheckpointOwner, KeptFence, Manifest, VoidManifests, codec};
use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

/// A fence has no records, so a longer object is not a fence.
const LONGEST_FENCE: u64 = 512;

/// Creates the manifest that continues, after the last used number, and then the boundary below it.
/// Returns the manifest, and the checkpoints that it drops.
///
/// # Errors
/// Conflict if another process has committed meanwhile; errors of the store.
pub(super) async fn go_on(
    objects: &Objects,
    chain: &ManifestChain,
    log: &Log,
    last: ManifestId,
) -> Result<(Arc<Manifest>, Vec<CheckpointId>)> {
    let env = &objects.env;
    let there = ListedObjects::list(objects, chain).await?;
    let mut gone = Vec::new();
    // The claim removes the checkpoints of writers.
    let of_others = |one: &&Checkpoint| !matches!(one.owner, CheckpointOwner::Writer(_));
    for one in chain.base.checkpoints.iter().filter(of_others) {
        if !there.has(objects, one).await? {
            gone.push(one.id);
        }
    }
    let void = VoidManifests {
        last,
        epoch: log.epoch,
        claim: AttemptId(env.random_u128()),
        fences: there.fences,
        wal_boundary: there.wal_boundary,
        gone: gone.clone(),
        readable: there.manifests,
        jobs: log.jobs.clone(),
        timeline: TimelineId(env.random_u128()),
        began_at: env.clock.now(),
    };
    let next = void.apply(&chain.base, rules::in_force())?;
    let (name, attempt) = (ObjectName::Manifest(next.id), AttemptId(env.random_u128()));
    let bytes = next.encode(ObjectId(env.random_u128()), attempt)?;
    let is_new = create(objects, name, bytes, attempt).await?;
    // A boundary above the new manifest means that another process has repaired the database and
    // continued, so this create does not count.
    let (_, boundary) = objects.manifests_listed().await?;
    if !is_new || boundary >= next.id {
        return Err(Error::new(
            ErrorKind::Conflict,
            "another process has committed meanwhile: check again whether the database opens",
        )
        .with("object", name));
    }
    self::boundary(objects, next.database, next.id.minus(1)).await?;
    Ok((Arc::new(next.written_as(attempt)), gone))
}

/// Creates the boundary that makes manifests up to `id` void.
///
/// # Errors
/// Errors of the store.
pub(super) async fn boundary(
    objects: &Objects,
    database: DatabaseId,
    id: ManifestId,
) -> Result<()> {
    let env = &objects.env;
    let (object, attempt) = (ObjectId(env.random_u128()), AttemptId(env.random_u128()));
    let bytes = codec::encode_boundary(id.get(), database, object, attempt);
    // An existing boundary has the same content.
    create(objects, ObjectName::ManifestBoundary(id), bytes, attempt).await.map(drop)
}

/// Returns whether this call created the object.
pub(super) async fn create(
    objects: &Objects,
    name: ObjectName,
    bytes: Bytes,
    attempt: AttemptId,
) -> Result<bool> {
    let mut creating = Creating::new(objects, bytes, attempt);
    loop {
        match creating.once(objects, name).await? {
            PutOutcome::Committed => return Ok(true),
            PutOutcome::Lost(()) => return Ok(false),
            PutOutcome::NotApplied | PutOutcome::Unknown => {}
        }
    }
}

/// The objects in the listings.
struct ListedObjects {
    manifests: BTreeSet<ManifestId>,
    tables: HashSet<ObjectName>,
    log: BTreeSet<WalId>,
    wal_boundary: WalId,
    fences: Vec<KeptFence>,
}

impl ListedObjects {
    async fn list(objects: &Objects, chain: &ManifestChain) -> Result<ListedObjects> {
        let listed = chain.listed.iter().copied();
        let mut there = ListedObjects {
            manifests: listed.filter(|id| !chain.unreadable.contains(id)).collect(),
            tables: HashSet::new(),
            log: BTreeSet::new(),
            wal_boundary: WalId::NONE,
            fences: Vec::new(),
        };
        for folder in [prefix::COMPACTED, prefix::INGEST] {
            there.tables.extend(objects.list(folder).await?.into_iter().map(|one| one.name));
        }
        for one in objects.list(prefix::WAL).await? {
            match one.name {
                ObjectName::WalBoundary(id) => there.wal_boundary = there.wal_boundary.max(id),
                ObjectName::Wal(id) => {
                    there.log.insert(id);
                    if id < chain.base.replay_from && one.bytes <= LONGEST_FENCE {
                        there.fences.extend(fence(objects, chain.base.database, id).await?);
                    }
                }
                _ => {}
            }
        }
        Ok(there)
    }

    /// Whether all that the checkpoint pins still exists.
    async fn has(&self, objects: &Objects, checkpoint: &Checkpoint) -> Result<bool> {
        let log = !checkpoint.pins_any_wal() || self.log.contains(&checkpoint.replay_from);
        if !log || !self.manifests.contains(&checkpoint.manifest_id) {
            return Ok(false);
        }
        let pinned = match objects.manifest(checkpoint.manifest_id).await {
            Ok(Some(pinned)) => pinned,
            Ok(None) => return Ok(false),
            Err(error) if error.kind() == ErrorKind::Corruption => return Ok(false),
            Err(error) => return Err(error),
        };
        let mut own = pinned.tables().filter(|table| table.location == SstLocation::Own);
        Ok(own.all(|table| self.tables.contains(&table.name())))
    }
}

/// The fence at `id`, if there is one that can be read.
async fn fence(objects: &Objects, database: DatabaseId, id: WalId) -> Result<Option<KeptFence>> {
    let object = match objects.wal(id).await {
        Err(error) if error.kind() == ErrorKind::Corruption => None,
        found => found?,
    };
    Ok(object.and_then(|object| match seen(&object, database) {
        WalSeen::Fence { epoch, next_id } => Some(KeptFence { id, epoch, next_id }),
        _ => None,
    }))
}
