//! The gate (RFC 0024): what this build cannot read, or must not change, is known where a manifest
//! comes in, before anybody claims, fences, collects or writes.
//!
//! Features that the manifest names are the manifest crate's to judge. Here stand those that every
//! version could name already and that this build lacks; whoever builds one takes its line out.

use crate::io::store::Store;
use siltstone_base::{Error, Result};
use siltstone_manifest::Manifest;
use siltstone_manifest::clone::named_ancestors;
use siltstone_sst::Codec;

/// Name of the filter that tables carry (RFC 0002), as the manifest records it.
pub(crate) const FILTER: &str = "blocked-bloom-1";

/// Whether this build reads everything that `manifest` names, and `store` follows where it lies.
/// Asked of every manifest that is read.
///
/// # Errors
/// Unsupported, by name.
pub(crate) fn check(manifest: &Manifest, store: &dyn Store) -> Result<()> {
    let settings = &manifest.settings;
    if !settings.codec.is_empty() && Codec::parse(&settings.codec).is_none() {
        return Err(missing("a codec of blocks").with("codec", &settings.codec));
    }
    if !settings.filter.is_empty() && settings.filter != FILTER {
        return Err(missing("a filter of tables").with("filter", &settings.filter));
    }
    if let Some(store) = &manifest.wal_store {
        let error = missing("a log in a store of its own").with("store", store.id);
        let location = store.location.as_deref();
        return Err(location.into_iter().fold(error, |error, at| error.with("location", at)));
    }
    if !manifest.ancestors.is_empty() {
        let named = named_ancestors(manifest);
        named.iter().try_for_each(|entry| store.follows(&entry.location))?;
    }
    Ok(())
}

/// As [`check`], and whether this build may change the database: asked by whoever does so with more
/// than commits, which ask by themselves.
///
/// # Errors
/// Unsupported, by name.
pub(crate) fn check_changes(manifest: &Manifest) -> Result<()> {
    manifest.features.check_committable()
}

fn missing(feature: &'static str) -> Error {
    Error::unsupported(
        "this version of Siltstone can not read what the database uses; upgrade this program",
    )
    .with("feature", feature)
}
