//! Letting go of a clone's ancestors that nothing of it names any more (rule K5, RFC 0029): the pin
//! in the ancestor first, then the entry. The other way round a crash between the two leaves a pin
//! that nobody knows of.

use crate::manifests::client::{commit_alone, look};
use crate::manifests::objects::Objects;
use siltstone_base::{DatabaseId, Result};
use siltstone_manifest::{Ancestor, CloneEdit, Edit, Manifest, PinEdit};
use std::sync::Arc;

/// Detaches the ancestors of these numbers, of which a round has proven that nobody can name them
/// again. One that cannot be reached stays for the next round, and stops none of the others.
///
/// # Errors
/// The first trouble met.
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

/// Takes away what the clone `database` pins in the ancestor that `entry` names.
///
/// # Errors
/// Unsupported where the ancestor is in a place that is not followed from here; those of a commit.
pub(super) async fn release(
    objects: &Objects,
    database: DatabaseId,
    entry: &Ancestor,
) -> Result<()> {
    release_in(&objects.neighbour(&entry.location)?, database, entry).await
}

/// As [`release`], where the ancestor's objects are `there`.
///
/// # Errors
/// Those of a commit.
pub(crate) async fn release_in(
    there: &Objects,
    database: DatabaseId,
    entry: &Ancestor,
) -> Result<()> {
    let pinned = look(there, None).await?;
    // No database, another one, or a pin that is gone: as good as removed.
    let pinned = pinned.filter(|state| {
        state.database == entry.database && state.checkpoint(entry.checkpoint).is_some()
    });
    if let Some(state) = pinned {
        let release = PinEdit::Release { pin: entry.checkpoint, clone: database };
        commit_alone(there, Edit::Pin(release), state).await?;
    }
    Ok(())
}
