//! Compatibility checks (RFC 0024). Every manifest that is read is checked for features that this
//! build cannot read or must not change, before any process claims, fences, collects or writes.
//!
//! The manifest crate checks the features that the manifest lists by name. This module checks the
//! features that every version could already name and that this build lacks. A change that
//! implements such a feature removes its check.

use siltstone_base::{Error, ErrorKind, Result};
use siltstone_manifest::Manifest;
use siltstone_manifest::clone::named_ancestors;
use siltstone_sst::Codec;
use siltstone_store::Store;

/// Name of the filter that tables carry (RFC 0002), as the manifest records it.
pub(crate) const FILTER: &str = "blocked-bloom-1";

/// Whether this build reads everything that `manifest` names, and `store` follows where it lies.
/// Asked of every manifest that is read.
///
/// # Errors
/// Unsupported, by name; Conflict for a clone that was moved or copied.
pub(crate) fn check(manifest: &Manifest, store: &dyn Store) -> Result<()> {
    let settings = &manifest.settings;
    if !settings.codec.is_empty() && Codec::parse(&settings.codec).is_none() {
        return Err(missing("a codec of blocks").with("codec", &settings.codec));
    }
    if !settings.filter.is_empty() && settings.filter != FILTER {
        return Err(missing("a filter of tables").with("filter", &settings.filter));
    }
    check_records(manifest.features.records(), store.profile().records)?;
    if !manifest.ancestors.is_empty() {
        check_place(manifest, store)?;
        let named = named_ancestors(manifest);
        named.iter().try_for_each(|entry| store.neighbours().follows(&entry.location))?;
    }
    Ok(())
}

/// Whether the database is opened as it was created: creates of both kinds must not be mixed.
fn check_records(recorded: Option<&str>, given: Option<&'static str>) -> Result<()> {
    match (recorded, given) {
        (Some(kind), None) => Err(Error::unsupported(
            "creates of this database are committed in a transactional store: give its URL as the \
             store option `transactional_store`",
        )
        .with("transactional store", kind)),
        (None, Some(kind)) => Err(Error::unsupported(
            "creates of this database are conditional: open it without the store option \
             `transactional_store`",
        )
        .with("transactional store", kind)),
        _ => Ok(()),
    }
}

/// Whether objects may be staged in `store` for a database of which it is known whether it is
/// `encrypted`: no plain text in an encrypted database, and the reverse.
///
/// # Errors
/// Unsupported, with the remedy.
pub(crate) fn check_encryption(encrypted: bool, store: &dyn Store) -> Result<()> {
    match (encrypted, store.profile().is_encrypted) {
        (true, false) => Err(Error::unsupported(
            "the database is encrypted, and this process has no key: give the store option \
             `encryption_key` here too, or set SILTSTONE_ENCRYPTION_KEY where the process starts",
        )),
        (false, true) => Err(Error::unsupported(
            "the database is not encrypted, and this process has a key: leave out the store \
             option `encryption_key`, and unset SILTSTONE_ENCRYPTION_KEY",
        )),
        _ => Ok(()),
    }
}

/// Whether a clone that has ancestors stands where it was made (rule K8). A copy shares its pins
/// with the original, and either of them may let go of what the other one reads.
///
/// # Errors
/// Conflict, with both places, those of the ancestors, and the way out.
fn check_place(manifest: &Manifest, store: &dyn Store) -> Result<()> {
    let Some(made_at) = manifest.features.clone_place() else { return Ok(()) };
    let Some(here) = store.place().location() else { return Ok(()) };
    if store.place().stands_at(made_at) {
        return Ok(());
    }
    let error = Error::new(
        ErrorKind::Conflict,
        "this clone was moved or copied, and it still reads tables of its ancestors: put it back \
         where it was made (in a folder, a symbolic link there will do); to have another copy of \
         it, clone it; to have it without ancestors, export it from where it was made and import \
         that",
    )
    .with("made at", made_at)
    .with("found at", here);
    Err(manifest.ancestors.iter().fold(error, |error, one| error.with("ancestor", &one.location)))
}

/// Checks that this build may change the database. Commits check this themselves; operations that
/// change the database by other means call this function.
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

/// The error for a record of compaction jobs that belongs to another database.
pub(super) fn foreign_record() -> Error {
    damaged_record(Error::corruption("a record of another database"))
}

/// The error for a record of compaction jobs that cannot be read because of `error`.
pub(super) fn damaged_record(error: Error) -> Error {
    Error::corruption(
        "the record of compaction jobs is damaged, so nothing is compacted or collected: put it \
         back, from the store's older versions or a backup, or use `siltstone repair`, which loses \
         no row",
    )
    .caused_by(error)
}
