//! Edits of checkpoints.

use super::{Conflict, Refusal};
use crate::state::{Checkpoint, CheckpointOwner, Manifest};
use siltstone_base::{CheckpointId, UnixMillis, WalId};

/// A checkpoint to add.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct NewCheckpoint {
    /// Its identity, random.
    pub id: CheckpointId,
    /// When it is made.
    pub created_at: UnixMillis,
    /// When it may be revoked; `None`: never.
    pub expires_at: Option<UnixMillis>,
    /// The last WAL id that its maker walked to; `None`: what the manifest knows of.
    pub wal_id_last_seen: Option<WalId>,
    /// A checkpoint to pin the same version as; `None`: the manifest this commit creates.
    pub source: Option<CheckpointId>,
    /// Who keeps it.
    pub owner: CheckpointOwner,
    /// A name to find it by; unique.
    pub name: Option<String>,
    /// Facts its maker attaches.
    pub metadata: Vec<(String, String)>,
}

impl NewCheckpoint {
    /// Adds it to `next`, whose id is that of the commit. Planned afresh on every try, so it always
    /// names the version it is committed with, which cannot have been freed (rule C2).
    pub(super) fn apply(&self, next: &mut Manifest) -> Result<(), Refusal> {
        if let CheckpointOwner::Writer(epoch) = self.owner {
            super::writer::check_epoch(next, epoch)?;
        }
        if let Some(name) = &self.name
            && let Some(rival) = next.checkpoints.iter().find(|one| one.name.as_ref() == Some(name))
        {
            return Err(Conflict::NameTaken { checkpoint: rival.id }.into());
        }
        let (manifest_id, replay_from, wal_id_last_seen) = match self.source {
            None => {
                let walked = self.wal_id_last_seen.unwrap_or(next.wal_id_last_seen);
                next.wal_id_last_seen = next.wal_id_last_seen.max(walked);
                (next.id, next.replay_from, walked)
            }
            Some(id) => {
                let source = next.checkpoint(id).ok_or(Refusal::Expired { checkpoint: id })?;
                (source.manifest_id, source.replay_from, source.wal_id_last_seen)
            }
        };
        next.checkpoints.push(Checkpoint {
            id: self.id,
            manifest_id,
            replay_from,
            wal_id_last_seen,
            created_at: self.created_at,
            expires_at: self.expires_at,
            source: self.source,
            owner: self.owner,
            name: self.name.clone(),
            metadata: self.metadata.clone(),
        });
        Ok(())
    }
}

/// Moves the expiry of a checkpoint that is present.
pub(super) fn refresh(
    next: &mut Manifest,
    id: CheckpointId,
    expires_at: Option<UnixMillis>,
) -> Result<(), Refusal> {
    let found = next.checkpoints.iter_mut().find(|one| one.id == id);
    found.ok_or(Refusal::Expired { checkpoint: id })?.expires_at = expires_at;
    Ok(())
}
