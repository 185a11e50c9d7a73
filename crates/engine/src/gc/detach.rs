//! Detaching ancestors that a clone no longer references (rule K5, RFC 0029). The collector removes
//! the pin in the ancestor first, then the entry in the clone. It must never use the reverse order:
//! a crash between the two steps would leave a pin without an entry that leads to it.

use crate::manifests::client::{commit_alone, look};
use crate::manifests::objects::Objects;
use siltstone_base::{DatabaseId, Result};
use siltstone_manifest::{Ancestor, CloneEdit, Edit, Manifest, PinEdit};
use std::sync::Arc;

/// Detaches the ancestors with these numbers. The round has proven that no manifest can reference
/// them again. An unreachable ancestor is left to the next round; the others are still detached.
///
/// # Errors
/// The first error of any ancestor.
pub(super) async fn detach(
    objects: &Objects,
    newest: &Arc<Manifest>,
    numbers: Vec<u32>,
) -> Result<()> {
    let (mut newest, mut trouble) = (Arc::clone(newest), Ok(()));
    for number in numbers {
        let Some(entry) = newest.ancestor(number).cloned() else { continue };
        match detach_one(objects, &newest, &entry).await {
            Ok(state) => newest = state,
            Err(error) => trouble = trouble.and(Err(error.with("ancestor", &entry.location))),
        }
    }
    trouble
}

async fn detach_one(
    objects: &Objects,
    newest: &Arc<Manifest>,
    entry: &Ancestor,
) -> Result<Arc<Manifest>> {
    release(objects, newest.database, entry).await?;
    let forget = Edit::Clone(CloneEdit::Detach { number: entry.number });
    commit_alone(objects, forget, Arc::clone(newest)).await
}

/// Removes the pin of the clone `database` from the ancestor that `entry` describes.
///
/// # Errors
/// Unsupported if the ancestor's location cannot be opened from this store; errors of a commit.
pub(super) async fn release(
    objects: &Objects,
    database: DatabaseId,
    entry: &Ancestor,
) -> Result<()> {
    release_in(&objects.neighbour(&entry.location)?, database, entry).await
}

/// Like [`release`], with the ancestor's objects given as `there`.
///
/// # Errors
/// Errors of a commit.
pub(crate) async fn release_in(
    there: &Objects,
    database: DatabaseId,
    entry: &Ancestor,
) -> Result<()> {
    let pinned = look(there, None).await?;
    // If the database is absent or another one, or the pin is absent, nothing is left to remove.
    let pinned = pinned.filter(|state| {
        state.database == entry.database && state.checkpoint(entry.checkpoint).is_some()
    });
    if let Some(state) = pinned {
        let release = PinEdit::Release { pin: entry.checkpoint, clone: database };
        commit_alone(there, Edit::Pin(release), state).await?;
    }
    Ok(())
}
