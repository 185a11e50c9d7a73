//! Errors for an absent, damaged, destroyed, restored, uninitialized or read-only database.

use super::objects::{Left, Objects};
use siltstone_base::name::prefix;
use siltstone_base::{Error, ErrorKind, ManifestId, ObjectName, Result, SstDescriptor};
use siltstone_manifest::edit::Conflict;
use siltstone_manifest::{Manifest, Refusal};
use siltstone_store::env::Env;
use std::collections::HashSet;

pub(crate) fn no_database(env: &Env) -> Error {
    nothing_here(env, "there is no database here; check the path")
}

/// The error for a call that can create the database with its `create` option.
pub(crate) fn no_database_to_write(env: &Env) -> Error {
    nothing_here(env, "there is no database here; check the path, or open it with create")
}

/// Checks that the database may be used.
///
/// # Errors
/// NotFound for a destroyed database; Conflict for a database whose creation is incomplete. The
/// error says what to do.
pub(crate) fn check_lives(manifest: &Manifest) -> Result<()> {
    let refused = match (manifest.destroyed_at, manifest.initialized) {
        (Some(_), _) => Conflict::Destroyed,
        (None, false) => Conflict::NotInitialized,
        (None, true) => return Ok(()),
    };
    Err(Refusal::from(refused).into())
}

/// Checks that the database may be written to.
///
/// # Errors
/// As [`check_lives`]; Conflict for a mirror.
pub(crate) fn check_writable(manifest: &Manifest) -> Result<()> {
    check_lives(manifest)?;
    if manifest.mirror.is_none() {
        return Ok(());
    }
    Err(Refusal::from(Conflict::Mirror { database: manifest.database }).into())
}

pub(crate) fn no_manifest(id: ManifestId) -> Error {
    let text = format!(
        "version {id} was deleted or never existed; `siltstone versions` lists those that are kept"
    );
    Error::new(ErrorKind::NotFound, text)
}

/// The error that ends a reader after a restore.
pub(crate) fn restored(at: ManifestId) -> Error {
    Error::new(
        ErrorKind::Expired,
        "the database was restored to a checkpoint, and what this reader has read is undone; open \
         another reader, or open it with the option readers.follow_restores to go on with what was \
         restored",
    )
    .with("restored at", at)
}

/// The error for a database that lost its first manifests. It must not be covered by a new one,
/// whose collector would delete the rest.
///
/// Manifests without those before them may also be strays, which do not count: a process that did
/// not know yet that its database was deleted left them. They count as a database if all that the
/// newest manifest needs is there.
pub(crate) async fn lost_beginning(
    objects: &Objects,
    (ids, boundary): &Left,
) -> Result<Option<Error>> {
    let (boundary, first) = (*boundary, ObjectName::Manifest(boundary.next()));
    if !boundary.is_none() && !objects.is_emptied(boundary).await? {
        // Nothing may be created at or below it, and the numbers above it are unknown.
        let left = Error::corruption(
            "what is left of a database stands here, and its manifests are not: if it was \
             deleted, delete the rest as well; if not, put them back, from the store's older \
             versions or a backup",
        );
        return Ok(Some(left.with("object", ObjectName::ManifestBoundary(boundary))));
    }
    let newest = ids.last().copied().filter(|newest| *newest > boundary);
    let Some(newest) = newest else { return Ok(None) };
    let Some(state) = objects.manifest(newest).await? else { return Ok(None) };
    let Some(there) = remains_of(objects, &state).await? else { return Ok(None) };
    let lost = Error::corruption(
        "what is left of a database stands here, without its first manifest: if it was deleted, \
         delete the rest as well; if not, put the manifest back, from the store's older versions \
         or a backup, or use `siltstone repair`",
    );
    Ok(Some(lost.with("object", first).with("manifest", newest).with("of the rest", there)))
}

/// An object that `state` names, where all of them are there: its tables, or, where it has none,
/// the log from its beginning.
async fn remains_of(objects: &Objects, state: &Manifest) -> Result<Option<ObjectName>> {
    let tables: HashSet<ObjectName> = state.tables().map(SstDescriptor::name).collect();
    if tables.is_empty() {
        objects.follow_log(state)?;
        if objects.give_up_lost_log().await?.is_some() {
            return Ok(None);
        }
        let first = objects.wal(state.replay_from).await?;
        let of_this = first.is_some_and(|object| object.envelope.database == state.database);
        return Ok(of_this.then_some(ObjectName::Wal(state.replay_from)));
    }
    let mut there = Vec::new();
    for folder in [prefix::COMPACTED, prefix::INGEST] {
        let listed = objects.names(folder).await?;
        there.extend(listed.into_iter().filter(|name| tables.contains(name)));
    }
    Ok(there.first().copied().filter(|_| there.len() == tables.len()))
}

fn nothing_here(env: &Env, text: &str) -> Error {
    Error::new(ErrorKind::NotFound, text).with("store", format_args!("{:?}", env.store))
}
