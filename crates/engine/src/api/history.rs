//! Time travel: lists the retained versions, and finds the last sequence number at a given time.
//! These functions only read: they must never retain a version themselves.

use crate::manifests::ahead::ReadAhead;
use crate::manifests::client::absent;
use crate::manifests::missing::{check_lives, no_database};
use crate::manifests::objects::Objects;
use crate::wal::walk::walk_telling;
use futures::FutureExt;
use futures::future::BoxFuture;
use futures::stream::{self, StreamExt, TryStreamExt};
use siltstone_base::name::prefix;
use siltstone_base::{Error, ErrorKind, ManifestId, ObjectName, Result, Seq, UnixMillis};
use siltstone_manifest::Manifest;
use siltstone_store::counting::within;
use siltstone_store::env::Env;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// Target of log lines.
const TARGET: &str = "siltstone.admin";

/// Number of manifests that are read concurrently.
const READ_AT_ONCE: usize = 32;

/// A retained version of the database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeptVersion {
    /// The id of its manifest.
    pub id: ManifestId,
    /// The time at which the store created the manifest.
    pub at: UnixMillis,
    /// The last sequence number in its tables.
    pub seq: Seq,
}

/// A retained version and its manifest.
pub type VersionManifest = (KeptVersion, Arc<Manifest>);

/// Lists the retained versions, oldest first: manifests above the boundary, and those that
/// checkpoints pin. Only a checkpoint guarantees that a version is retained.
///
/// # Errors
/// NotFound if there is no database; Denied, Unavailable, Timeout, Corruption, Unsupported.
pub fn versions(env: &Env, deadline: Duration) -> BoxFuture<'_, Result<Vec<KeptVersion>>> {
    within(env, deadline, "versions", move |env| async move {
        let dated = dated(&Objects { env, limit: deadline }).await?;
        Ok(dated.into_iter().map(|(version, _)| version).collect())
    })
    .boxed()
}

/// As [`versions`], with the manifests: from the last version before `since` on, or all of them.
///
/// # Errors
/// As [`versions`].
pub fn version_manifests(
    env: &Env,
    since: Option<UnixMillis>,
    deadline: Duration,
) -> BoxFuture<'_, Result<Vec<VersionManifest>>> {
    within(env, deadline, "history", move |env| async move {
        let mut dated = dated(&Objects { env, limit: deadline }).await?;
        if let Some(since) = since {
            let earlier = dated.partition_point(|(version, _)| version.at < since);
            dated.drain(..earlier.saturating_sub(1));
        }
        Ok(dated)
    })
    .boxed()
}

/// The retained versions and their manifests, oldest first.
async fn dated(objects: &Objects) -> Result<Vec<VersionManifest>> {
    let stored: BTreeMap<ObjectName, UnixMillis> =
        objects.list(prefix::MANIFEST).await?.iter().map(|one| (one.name, one.modified)).collect();
    let kept = kept(objects).await?;
    let dated = kept.into_iter().filter_map(|manifest| {
        // Manifests that were created after the listing are not part of the result.
        let at = *stored.get(&ObjectName::Manifest(manifest.id))?;
        let version = KeptVersion { id: manifest.id, at, seq: manifest.flushed_seq };
        Some((version, manifest))
    });
    Ok(dated.collect())
}

/// All retained manifests that can be read, in ascending order of their ids. One that is damaged is
/// no version that can be opened; the log names it.
async fn kept(objects: &Objects) -> Result<Vec<Arc<Manifest>>> {
    let (listing, ids) = objects.list_run(ManifestId::NONE, &mut ReadAhead::default()).await?;
    let Some(newest) = listing.newest else { return Err(absent(objects).await?) };
    let newest = objects.manifest(newest).await?.ok_or_else(|| no_database(&objects.env))?;
    check_lives(&newest)?;
    let above = |id: &ManifestId| *id > listing.boundary && *id < newest.id;
    let mut wanted: BTreeSet<ManifestId> = ids.into_iter().filter(above).collect();
    let pinned = newest.checkpoints.iter().map(|one| one.manifest_id);
    wanted.extend(pinned.filter(|id| *id < newest.id));
    let read = async |id| match objects.manifest(id).await {
        Err(error) if error.kind() == ErrorKind::Corruption => {
            let error = error.to_string();
            log::warn!(target: TARGET, "event=version_skipped manifest={id} error={error:?}");
            Ok(None)
        }
        read => read,
    };
    let read = stream::iter(wanted).map(read).buffered(READ_AT_ONCE);
    let found: Vec<Option<Arc<Manifest>>> = read.try_collect().await?;
    // Skip manifests that were deleted meanwhile, and those of another database.
    let own = found.into_iter().flatten().filter(|one| one.database == newest.database);
    Ok(own.chain([newest.clone()]).collect())
}

/// The last sequence number that was committed at or before `time`. The result is exact if the log
/// reaches back to `time`. Otherwise it is that of the newest version all of whose rows are at
/// least that old.
///
/// # Errors
/// NotFound if there is no database; Expired if `time` is before all retained versions; Denied,
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
        // A version without rows qualifies for any time.
        let last = by_then.map(|manifest| manifest.flushed_seq).max();
        last.ok_or_else(|| {
            Error::new(
                ErrorKind::Expired,
                "no retained version reaches back to that time; only checkpoints retain older \
             versions",
            )
            .with("time", time.0)
        })
    })
    .boxed()
}
