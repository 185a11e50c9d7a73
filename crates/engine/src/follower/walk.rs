//! How far the log is durable, for whoever pins it and reads no row (rule C4).

use crate::manifests::client::ManifestRequests;
use crate::manifests::missing::no_database;
use crate::manifests::objects::{Objects, seen};
use crate::manifests::poll::LIST_EVERY;
use crate::manifests::rules;
use siltstone_base::{Result, WalId};
use siltstone_manifest::Manifest;
use siltstone_manifest::protocol::{Follow, FollowAction, WalSeen};
use std::sync::Arc;

/// The newest manifest, and the last WAL id of an unbroken, confirmed log from its replay point on.
///
/// # Errors
/// NotFound without a database; Corruption for a hole; those of the store.
pub(crate) async fn walk(objects: &Objects) -> Result<(Arc<Manifest>, WalId)> {
    let mut machine = Follow::new(LIST_EVERY, rules::in_force());
    let mut requests = ManifestRequests::new(objects);
    loop {
        // What the machine hands out is rows to be read, which nobody does here.
        drop(match machine.action() {
            FollowAction::Failed(failure) => return Err(failure.into()),
            FollowAction::Request(request) => {
                let answer = requests.perform(request).await?;
                machine.on_answer(answer)
            }
            FollowAction::ReadWal(id) => {
                let object = objects.wal(id).await?;
                let database = machine.manifest().map(|manifest| manifest.database);
                let database = database.unwrap_or_default();
                let seen = object.map_or(WalSeen::Absent, |object| seen(&object, database));
                machine.on_wal(seen)
            }
            FollowAction::ListWal(after) => {
                let listing = objects.list_wal(after).await?;
                machine.on_wal_listing(listing)
            }
            FollowAction::Idle => {
                let newest = machine.manifest().cloned();
                let newest = newest.ok_or_else(|| no_database(&objects.env))?;
                return Ok((newest, machine.next_wal_id().minus(1)));
            }
        });
    }
}
