//! What was when: the versions that are still there, and the last number of a moment.

use crate::io::env::Env;
use crate::io::store::counting::within;
use crate::manifests::missing::{check_lives, no_database};
use crate::manifests::objects::Objects;
use crate::wal::walk::walk_telling;
use futures::FutureExt;
use futures::future::BoxFuture;
use futures::stream::{self, StreamExt, TryStreamExt};
use siltstone_base::name::prefix;
use siltstone_base::{Error, ErrorKind, ManifestId, ObjectName, Result, Seq, UnixMillis};
use siltstone_manifest::Manifest;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// Manifests that are read at a time.
const READ_AT_ONCE: usize = 32;

/// A version that can still be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeptVersion {
    /// The number of its manifest.
    pub id: ManifestId,
    /// When the store took the manifest.
    pub at: UnixMillis,
    /// The last sequence number in its tables.
    pub seq: Seq,
}

/// The versions that are kept, the oldest first: manifests above the boundary, and those that
/// checkpoints name. Nothing but a checkpoint keeps one.
///
/// # Errors
/// NotFound without a database; Denied, Unavailable, Timeout, Corruption, Unsupported.
pub fn versions(env: &Env, deadline: Duration) -> BoxFuture<'_, Result<Vec<KeptVersion>>> {
    within(env, deadline, "versions", move |env| async move {
        let objects = Objects { env, limit: deadline };
        let stored: BTreeMap<ObjectName, UnixMillis> = objects
            .list(prefix::MANIFEST)
            .await?
            .iter()
            .map(|one| (one.name, one.modified))
            .collect();
        let kept = kept(&objects).await?;
        let dated = kept.iter().filter_map(|manifest| {
            // What came since the listing is the next call's.
            let at = stored.get(&ObjectName::Manifest(manifest.id))?;
            Some(KeptVersion { id: manifest.id, at: *at, seq: manifest.flushed_seq })
        });
        Ok(dated.collect())
    })
    .boxed()
}

/// Every manifest that is kept, ascending; the newest last.
async fn kept(objects: &Objects) -> Result<Vec<Arc<Manifest>>> {
    let (listing, ids) = objects.list_run(ManifestId::NONE).await?;
    let newest = listing.newest.ok_or_else(|| no_database(&objects.env))?;
    let newest = objects.manifest(newest).await?.ok_or_else(|| no_database(&objects.env))?;
    check_lives(&newest)?;
    let above = |id: &ManifestId| *id > listing.boundary && *id < newest.id;
    let mut wanted: BTreeSet<ManifestId> = ids.into_iter().filter(above).collect();
    let pinned = newest.checkpoints.iter().map(|one| one.manifest_id);
    wanted.extend(pinned.filter(|id| *id < newest.id));
    let read = stream::iter(wanted).map(|id| objects.manifest(id)).buffered(READ_AT_ONCE);
    let found: Vec<Option<Arc<Manifest>>> = read.try_collect().await?;
    // Those that went meanwhile are not kept; another database's are not this one's.
    let own = found.into_iter().flatten().filter(|one| one.database == newest.database);
    Ok(own.chain([newest.clone()]).collect())
}

/// The last sequence number that was committed by `time`: exactly, where the log reaches back to
/// it; else that of the newest version whose rows are all that old.
///
/// # Errors
/// NotFound without a database; Expired where `time` lies before all that is kept; Denied,
/// Unavailable, Timeout, Corruption, Unsupported.
pub fn seq_at(env: &Env, time: UnixMillis, deadline: Duration) -> BoxFuture<'_, Result<Seq>> {
    within(env, deadline, "seq_at", move |env| async move {
        let objects = Objects { env, limit: deadline };
        let mut log = Vec::new();
        let (newest, _) = walk_telling(&objects, |object| {
            log.push((object.sent.at, object.last_seq));
        })
        .await?;
        check_lives(&newest)?;
        if newest.commit_time <= time {
            let by_then = log.into_iter().filter(|(at, _)| *at <= time).map(|(_, seq)| seq);
            return Ok(by_then.fold(newest.flushed_seq, Seq::max));
        }
        let kept = kept(&objects).await?;
        let by_then = kept.iter().filter(|manifest| manifest.commit_time <= time);
        // An empty beginning is as old as anything.
        let last = by_then.map(|manifest| manifest.flushed_seq).max();
        last.ok_or_else(|| {
            Error::new(
            ErrorKind::Expired,
            "nothing that is kept reaches back to that time: only checkpoints keep older versions",
        )
        .with("time", time.0)
        })
    })
    .boxed()
}
