//! How far the log is durable, for callers that pin it and read no row (rule C4).

use crate::manifests::client::{ManifestRequests, absent};
use crate::manifests::objects::{Objects, seen};
use crate::manifests::poll::LIST_EVERY;
use crate::manifests::rules;
use crate::wal::readahead::WalReadahead;
use siltstone_base::{Result, WalId};
use siltstone_manifest::Manifest;
use siltstone_manifest::protocol::{Follow, FollowAction, FollowEvent, WalSeen};
use siltstone_sst::wal::WalObject;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The newest manifest, and the last WAL id of an unbroken, confirmed log from its replay point on.
///
/// # Errors
/// NotFound without a database; Corruption for a hole; those of the store.
pub(crate) async fn walk(objects: &Objects) -> Result<(Arc<Manifest>, WalId)> {
    walk_telling(objects, |_| {}).await
}

/// The same, which hands out every object of that log, in order, once it is confirmed. After a new
/// start the earlier ones come again: what counts is the newest manifest, and what is met last.
///
/// # Errors
/// As [`walk`].
pub(crate) async fn walk_telling(
    objects: &Objects,
    mut tell: impl FnMut(&WalObject),
) -> Result<(Arc<Manifest>, WalId)> {
    let mut bodies = BTreeMap::new();
    let mut machine = Follow::new(LIST_EVERY, rules::in_force());
    let mut requests = ManifestRequests::new(objects);
    let mut log = WalReadahead::new(objects);
    loop {
        objects.follow_log_for(&machine)?;
        let events = match machine.action() {
            FollowAction::Failed(failure) => return Err(failure.into()),
            FollowAction::Request(request) => {
                let answer = requests.perform(request).await?;
                machine.on_answer(answer)
            }
            FollowAction::ReadWal(id) => {
                let object = log.read(id).await?;
                let database = machine.manifest().map(|manifest| manifest.database);
                let database = database.unwrap_or_default();
                let seen = object.map_or(WalSeen::Absent, |object| {
                    let seen = seen(&object, database);
                    bodies.insert(id, object);
                    seen
                });
                machine.on_wal(seen)
            }
            FollowAction::ListWal(after) => {
                let listing = objects.list_wal(after).await?;
                machine.on_wal_listing(listing)
            }
            FollowAction::ReadWalBoundary => {
                let boundary = objects.wal_boundary().await?;
                machine.on_wal_boundary(boundary)
            }
            FollowAction::Idle => {
                let newest = machine.manifest().cloned();
                let Some(newest) = newest else { return Err(absent(objects).await?) };
                return Ok((newest, machine.next_wal_id().minus(1)));
            }
        };
        for event in events {
            if let FollowEvent::Apply(ids) = event {
                ids.iter().filter_map(|id| bodies.remove(id)).for_each(|object| tell(&object));
            }
        }
    }
}
