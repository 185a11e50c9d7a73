//! Releasing the pins of a clone that is gone (rule K8, RFC 0029): it was removed by hand, so no
//! collector of it is left to release them (rule K5). Never of a clone that may need them, unless
//! it is forced.

use crate::manifests::client::{commit_alone, look, newest};
use crate::manifests::objects::Objects;
use futures::FutureExt;
use futures::future::BoxFuture;
use siltstone_base::{DatabaseId, Error, ErrorKind, Result};
use siltstone_manifest::{Checkpoint, CheckpointName, CheckpointOwner, Edit, Manifest, PinEdit};
use siltstone_store::counting::count;
use siltstone_store::env::Env;
use siltstone_store::url;
use std::sync::Arc;
use std::time::Duration;

/// Releases the pins that a clone has in the database at `env`, and returns them. `which` is the
/// identity of the clone, its place, or one of its pins.
///
/// A pin is released if its clone does not need it any more: if there is no database at the place
/// that the pin names, or another one, or if the clone there has no entry for the pin. With `force`
/// the place is not looked at: a clone that exists after all loses what the collector of this
/// database deletes then.
///
/// # Errors
/// NotFound if there is no database, or no such pin; Invalid if the checkpoint is not a clone's;
/// without `force` also Conflict if the clone is there or the pin names no place, and Unsupported
/// if the place is not followed from here; Denied, Unavailable, Timeout, Corruption.
pub fn release_clone<'a>(
    env: &'a Env,
    which: &'a CheckpointName,
    force: bool,
    deadline: Duration,
) -> BoxFuture<'a, Result<Vec<Checkpoint>>> {
    async move {
        let (env, requests) = &count(env.clone());
        let here = Objects { env: env.clone(), limit: deadline };
        let work = async {
            let newest = newest(&here).await?;
            let pins = pins_of(&newest, which)?;
            for (clone, pin) in &pins {
                if !force {
                    let checked = check_gone(&here, *clone, pin).await;
                    checked.map_err(|error| with_clone(error, pin))?;
                }
            }
            let mut state = newest;
            for (clone, pin) in &pins {
                let release = PinEdit::Release { pin: pin.id, clone: *clone };
                state = commit_alone(&here, Edit::Pin(release), Arc::clone(&state)).await?;
            }
            Ok(pins.into_iter().map(|(_, pin)| pin).collect())
        };
        requests.within(env, deadline, "release_clone", work).await
    }
    .boxed()
}

/// `error` with the clone whose pin `pin` is, and its place.
pub(in crate::api) fn with_clone(error: Error, pin: &Checkpoint) -> Error {
    let CheckpointOwner::Clone(clone) = pin.owner else { return error };
    match pin.clone_place() {
        Some(place) => error.with("clone", format_args!("{clone} at {place}")),
        None => error.with("clone", format_args!("{clone}, whose pin does not say where it is")),
    }
}

/// The pins that `which` names, each with its clone.
fn pins_of(state: &Manifest, which: &CheckpointName) -> Result<Vec<(DatabaseId, Checkpoint)>> {
    let place = match which {
        CheckpointName::Name(text) => url::location(text).ok(),
        CheckpointName::Id(_) => None,
    };
    let named = |pin: &Checkpoint, clone: DatabaseId| match which {
        CheckpointName::Id(id) => pin.id == *id || clone.0 == id.0,
        CheckpointName::Name(_) => place.is_some() && pin.clone_place() == place.as_deref(),
    };
    let pins = state.checkpoints.iter().filter_map(|one| match one.owner {
        CheckpointOwner::Clone(clone) if named(one, clone) => Some((clone, one.clone())),
        _ => None,
    });
    let pins: Vec<_> = pins.collect();
    if !pins.is_empty() {
        return Ok(pins);
    }
    let other = "the checkpoint is no clone's: delete it with delete_checkpoint";
    Err(match which.find(state) {
        Ok(checkpoint) => Error::invalid(other).with("checkpoint", checkpoint.id),
        Err(_) => Error::new(
            ErrorKind::NotFound,
            "no clone of this identity or place has a pin here, and no such pin is left; list the \
             checkpoints to see those that are",
        )
        .with("asked for", which),
    })
}

/// Whether `clone` needs its `pin` no more.
async fn check_gone(here: &Objects, clone: DatabaseId, pin: &Checkpoint) -> Result<()> {
    let refused = |text| Err(Error::new(ErrorKind::Conflict, text).with("checkpoint", pin.id));
    let Some(place) = pin.clone_place() else {
        return refused(
            "the pin does not name the place of its clone, so it is unknown whether the clone is \
             gone; if you know that it is, release the pin with force",
        );
    };
    let found = look(&here.neighbour(place)?, None).await?;
    let Some(found) = found.filter(|found| found.database == clone) else { return Ok(()) };
    if found.initialized && found.ancestors.iter().all(|entry| entry.checkpoint != pin.id) {
        return Ok(());
    }
    refused(
        "the clone stands at its place: destroy it, or compact and collect it until it needs \
         nothing of this database; where this database is a copy of the one that the clone reads, \
         release the pin with force",
    )
}
