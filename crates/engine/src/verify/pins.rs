//! Verifies the pins of a clone: without them the collectors of its ancestors delete objects that
//! it reads (rules K3, K4). A verification of an ancestor also reads what a pin retains there, and
//! looks for the clones that have pins in it.

use super::{Report, Verify, is_damage};
use crate::manifests::client::look;
use crate::manifests::lost_clones::LostClone;
use crate::manifests::objects::Objects;
use siltstone_base::{ErrorKind, ManifestId, ObjectName, Result};
use siltstone_manifest::clone::named_ancestors;
use siltstone_manifest::{Ancestor, CheckpointOwner, Manifest};
use std::collections::BTreeMap;

impl Verify<'_> {
    /// Checks that every ancestor whose tables a state names exists, and has the pin.
    ///
    /// # Errors
    /// Unsupported for a place that is not followed; errors of its store.
    pub(super) async fn pins(&mut self, newest: &Manifest) -> Result<()> {
        let states = self.states.iter().flat_map(|state| named_ancestors(state));
        let named: BTreeMap<u32, Ancestor> =
            states.map(|entry| (entry.number, entry.clone())).collect();
        for entry in named.into_values() {
            let there = self.objects.neighbour(&entry.location)?;
            let Some((object, what)) = pin_problem(&there, &entry, newest).await? else { continue };
            // The ancestor may have been released meanwhile, once no state named it any more.
            let still = self.named_now().await?;
            let mut still = still.iter().flat_map(|state| named_ancestors(state));
            if still.any(|now| now.number == entry.number) {
                let mut wrong = Report::default();
                wrong.problem(object, None, what);
                wrong.lies_in(&entry.location);
                self.report.add(wrong);
            }
        }
        Ok(())
    }

    /// Lists the clones that are not at the places which their pins record (rule K8).
    ///
    /// # Errors
    /// Errors of the store of this database.
    pub(super) async fn clones(&mut self, newest: &Manifest) -> Result<()> {
        let mut lost = Vec::new();
        for candidate in LostClone::candidates(newest) {
            if candidate.is_lost(&self.objects).await {
                lost.push(candidate);
            }
        }
        // A clone that is destroyed meanwhile releases its pins.
        if !lost.is_empty()
            && let Some(now) = self.newest_now().await?
        {
            lost.retain(|one| now.checkpoint(one.pin).is_some());
        }
        self.report.lost_clones = lost;
        Ok(())
    }
}

/// The problem with the pin of `entry`, an ancestor of `clone`, and the object that it concerns.
async fn pin_problem(
    there: &Objects,
    entry: &Ancestor,
    clone: &Manifest,
) -> Result<Option<(ObjectName, String)>> {
    let named = ObjectName::Manifest(clone.id);
    let pin = entry.checkpoint;
    let newest = match look(there, None).await {
        Ok(newest) => newest.filter(|newest| newest.database == entry.database),
        Err(error) if is_damage(error.kind()) => return Ok(Some((named, error.to_string()))),
        Err(error) => return Err(error),
    };
    let Some(newest) = newest else {
        return Ok(Some((
            named,
            "names a parent that is not at its place: it was moved, removed or replaced".to_owned(),
        )));
    };
    let Some(checkpoint) = newest.checkpoint(pin) else {
        let what = format!(
            "names checkpoint {pin} as its pin, which is gone, for example by a repair of the \
             parent: export the clone before the parent is collected, and go on with the copy"
        );
        return Ok(Some((named, what)));
    };
    if checkpoint.owner != CheckpointOwner::Clone(clone.database) {
        let what = format!("names checkpoint {pin} as its pin, which has another owner");
        return Ok(Some((named, what)));
    }
    if clone.initialized && checkpoint.expires_at.is_some() {
        return Ok(Some((named, format!("names checkpoint {pin} as its pin, which expires"))));
    }
    pinned_problem(there, checkpoint.manifest_id, &newest).await
}

/// The problem with the manifest that the pin names, from which the ancestor's collector learns
/// what to retain.
async fn pinned_problem(
    there: &Objects,
    pinned: ManifestId,
    newest: &Manifest,
) -> Result<Option<(ObjectName, String)>> {
    let what = match there.manifest(pinned).await {
        Ok(Some(found)) if found.database == newest.database => return Ok(None),
        Ok(Some(_)) => "belongs to another database".to_owned(),
        Ok(None) => "is missing, and the pin of this clone names it".to_owned(),
        Err(error) if error.kind() == ErrorKind::Corruption => error.to_string(),
        Err(error) => return Err(error),
    };
    Ok(Some((ObjectName::Manifest(pinned), what)))
}
