//! Clones that are not at the places which their pins record (rule K8): they were removed or moved
//! by hand, and their pins retain tables until they are released by command.

use super::client::look;
use super::objects::Objects;
use siltstone_base::{CheckpointId, DatabaseId};
use siltstone_manifest::{CheckpointOwner, Manifest};

/// A clone that is not at the place which its pin records: it was removed or moved by hand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LostClone {
    /// Its id.
    pub clone: DatabaseId,
    /// Its place.
    pub place: String,
    /// Its pin, a checkpoint of this database.
    pub pin: CheckpointId,
}

impl LostClone {
    /// The clones with pins in `state` that would be lost if they were not at their places. A pin
    /// that expires is one of a clone in the making.
    pub(crate) fn candidates(state: &Manifest) -> impl Iterator<Item = LostClone> {
        let lasting = state.checkpoints.iter().filter(|one| one.expires_at.is_none());
        lasting.filter_map(|one| match one.owner {
            CheckpointOwner::Clone(clone) => {
                Some(LostClone { clone, place: one.clone_place()?.to_owned(), pin: one.id })
            }
            _ => None,
        })
    }

    /// Whether the clone is not at its place. A place that cannot be read from `here` tells
    /// nothing. A clone that is destroyed meanwhile releases its pin: the caller looks again
    /// whether the pin is there.
    pub(crate) async fn is_lost(&self, here: &Objects) -> bool {
        let Ok(there) = here.neighbour(&self.place) else { return false };
        let found = look(&there, None).await;
        found.is_ok_and(|found| found.is_none_or(|found| found.database != self.clone))
    }
}
