//! Errors for an absent, destroyed, uninitialized or read-only database.

use siltstone_base::{Error, ErrorKind, ManifestId, Result};
use siltstone_manifest::edit::Conflict;
use siltstone_manifest::{Manifest, Refusal};
use siltstone_store::env::Env;

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

fn nothing_here(env: &Env, text: &str) -> Error {
    Error::new(ErrorKind::NotFound, text).with("store", format_args!("{:?}", env.store))
}
