//! What is said where there is no database.

use crate::io::env::Env;
use siltstone_base::{Error, ErrorKind, ManifestId};

pub(crate) fn no_database(env: &Env) -> Error {
    nothing_here(env, "there is no database here; check the path")
}

/// For the one call that could have made it.
pub(crate) fn no_database_to_write(env: &Env) -> Error {
    nothing_here(env, "there is no database here; check the path, or open it with create")
}

pub(crate) fn no_manifest(id: ManifestId) -> Error {
    Error::new(ErrorKind::NotFound, "there is no manifest of this number (any more)")
        .with("manifest", id)
}

fn nothing_here(env: &Env, text: &str) -> Error {
    Error::new(ErrorKind::NotFound, text).with("store", format_args!("{:?}", env.store))
}
