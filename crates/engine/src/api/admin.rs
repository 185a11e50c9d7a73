//! Looking at a database without opening it.

use crate::io::env::Env;
use crate::manifests::missing::no_database;
use crate::manifests::objects::Objects;
use siltstone_base::{Error, ErrorKind, ManifestId, Result};
pub use siltstone_manifest::{CheckpointOwner, Manifest};
use std::sync::Arc;
use std::time::Duration;

/// The manifest `id`, or the newest.
///
/// # Errors
/// NotFound when there is no database here, or no manifest of that number (any more).
pub async fn manifest(
    env: &Env,
    id: Option<ManifestId>,
    deadline: Duration,
) -> Result<Arc<Manifest>> {
    let objects = Objects { env: env.clone(), limit: deadline };
    let wanted = match id {
        Some(id) => id,
        None => objects.list_manifests(ManifestId::NONE).await?.newest.unwrap_or_default(),
    };
    let found = if wanted.is_none() { None } else { objects.manifest(wanted).await? };
    found.ok_or_else(|| match id {
        Some(id) => Error::new(ErrorKind::NotFound, "there is no manifest of this number")
            .with("manifest", id),
        None => no_database(env),
    })
}
