//! Inspection of a database without opening it. These functions must never write.

pub use super::checkpoints::{
    create_checkpoint, delete_checkpoint, list_checkpoints, refresh_checkpoint,
};
pub use super::clone::{CloneParent, clone, release_clone};
pub use super::export::{ExportPlaces, ExportReport, export, import, promote};
pub use super::history::{KeptVersion, VersionManifest, seq_at, version_manifests, versions};
pub use super::restore::restore;
pub use super::schema::evolve as evolve_schema;
pub use super::shared_pins::{MOST_SHARED_PINS, pin_shared};
use crate::manifests::client::absent;
use crate::manifests::missing::no_manifest;
use crate::manifests::objects::Objects;
use futures::FutureExt;
use futures::future::BoxFuture;
use siltstone_base::{ManifestId, Result};
pub use siltstone_manifest::Manifest;
use siltstone_store::counting::within;
use siltstone_store::env::Env;
use std::sync::Arc;
use std::time::Duration;

/// Reads the manifest `id`, or the newest manifest.
///
/// # Errors
/// NotFound if there is no database, or no manifest with that id.
pub fn manifest(
    env: &Env,
    id: Option<ManifestId>,
    deadline: Duration,
) -> BoxFuture<'_, Result<Arc<Manifest>>> {
    within(env, deadline, "manifest", move |counted| async move {
        let objects = Objects { env: counted, limit: deadline };
        let wanted = match id {
            Some(id) => id,
            None => objects.list_manifests(ManifestId::NONE).await?.newest.unwrap_or_default(),
        };
        let found = if wanted.is_none() { None } else { objects.manifest(wanted).await? };
        match (found, id) {
            (Some(found), _) => Ok(found),
            (None, Some(id)) => Err(no_manifest(id)),
            (None, None) => Err(absent(&objects).await?),
        }
    })
    .boxed()
}
