//! Edits of checkpoints (RFC 0017).
//!
//! A checkpoint is present from the commit that adds it until the commit that removes it,
//! independent of any clock (rule C3). The checkpoint of a writer ends with the writer: by its own
//! commits, by its clean close, or by the next claim; no other process removes it.

use super::{Conflict, Refusal};
use crate::naming::is_name;
use crate::rules::{Rule, Rules};
use crate::state::{Checkpoint, CheckpointOwner, Manifest};
use siltstone_base::{AttemptId, CheckpointId, Epoch, SstId, UnixMillis, WalId};
use std::collections::HashSet;

/// Maximum number of checkpoints that no process keeps for itself. Every commit writes the manifest
/// again: at about 100 bytes each they are as large as a thousand tables.
const MOST_BY_HAND: usize = 1024;
/// Maximum number of metadata entries of a checkpoint, and their total bytes.
const MOST_FACTS: usize = 64;
const MOST_FACT_BYTES: usize = 4096;

/// The error for a checkpoint whose owner this version does not know.
const OF_A_NEWER_VERSION: &str = "a newer version of Siltstone keeps this checkpoint, for a \
                                  reason that this one does not know; upgrade this program, or \
                                  wait for its expiry";

/// A checkpoint to add.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct NewCheckpoint {
    /// Its identity, random.
    pub id: CheckpointId,
    /// When it is created.
    pub created_at: UnixMillis,
    /// When it may be revoked; `None`: never.
    pub expires_at: Option<UnixMillis>,
    /// The last WAL id to which its creator has walked; `None`: the last id that the manifest
    /// knows.
    pub wal_id_last_seen: Option<WalId>,
    /// A checkpoint whose version the new one pins too; `None`: the manifest that this commit
    /// creates.
    pub source: Option<CheckpointId>,
    /// The owner of the checkpoint.
    pub owner: CheckpointOwner,
    /// The writer through which it is created: refused if there is a newer writer, because a
    /// restore may have undone the data that the creator relies on.
    pub through: Option<Epoch>,
    /// Its name, unique in the database.
    pub name: Option<String>,
    /// Metadata attached by its creator.
    pub metadata: Vec<(String, String)>,
}

impl NewCheckpoint {
    /// Adds it to `next`. The edit is planned again for every try of the commit, so the checkpoint
    /// always pins the version it is committed with, which cannot have been freed (rule C2), or the
    /// version of a checkpoint that is present (rule C6).
    pub(super) fn apply(&self, next: &mut Manifest) -> Result<(), Refusal> {
        if let CheckpointOwner::Writer(epoch) = self.owner {
            super::writer::check_epoch(next, epoch)?;
        }
        if let Some(epoch) = self.through {
            super::writer::check_epoch(next, epoch)?;
        }
        check_expiry(self.owner, self.expires_at)?;
        self.check_limits(next)?;
        if let Some(name) = &self.name
            && let Some(rival) = next.checkpoints.iter().find(|one| one.name.as_ref() == Some(name))
        {
            return Err(Conflict::NameTaken { checkpoint: rival.id }.into());
        }
        let ((manifest_id, manifest_attempt), replay_from, wal_id_last_seen) = match self.source {
            None => {
                let walked = self.wal_id_last_seen.unwrap_or(next.wal_id_last_seen);
                next.wal_id_last_seen = next.wal_id_last_seen.max(walked);
                ((next.id, AttemptId::NONE), next.replay_from, walked)
            }
            Some(id) => {
                let source = next.checkpoint(id).filter(|one| !one.expired_at(self.created_at));
                let source = source.ok_or(Refusal::Expired { checkpoint: id })?;
                let pinned = (source.manifest_id, source.manifest_attempt);
                (pinned, source.replay_from, source.wal_id_last_seen)
            }
        };
        next.checkpoints.push(Checkpoint {
            id: self.id,
            manifest_id,
            manifest_attempt,
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

impl NewCheckpoint {
    fn check_limits(&self, state: &Manifest) -> Result<(), Refusal> {
        if self.name.as_ref().is_some_and(|name| !is_name(name)) {
            return Err(Refusal::Invalid(
                "a checkpoint's name has 1 to 255 bytes, no control characters, and does not read \
                 as an id",
            ));
        }
        let bytes = self.metadata.iter().map(|(name, value)| name.len() + value.len());
        if self.metadata.len() > MOST_FACTS || bytes.sum::<usize>() > MOST_FACT_BYTES {
            return Err(Refusal::Invalid(
                "a checkpoint's metadata has at most 64 entries of 4,096 bytes together",
            ));
        }
        let by_hand = state.checkpoints.iter().filter(|one| one.owner == CheckpointOwner::User);
        if self.owner == CheckpointOwner::User && by_hand.count() >= MOST_BY_HAND {
            return Err(Refusal::TooManyCheckpoints);
        }
        Ok(())
    }
}

/// A checkpoint to remove once nothing is read through it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Release {
    /// The checkpoint.
    pub checkpoint: CheckpointId,
    /// Tables that are still read through it. It is removed only if the state that the commit
    /// creates contains all of them, where the checkpoint that replaces it keeps them alive. Empty
    /// if nothing is read through it.
    pub needed: Vec<SstId>,
}

impl Release {
    fn may_go(&self, state: &HashSet<SstId>, rules: Rules) -> bool {
        !rules.has(Rule::ReleaseUnread) || self.needed.iter().all(|table| state.contains(table))
    }
}

/// Removes the checkpoints that may be removed. Decided on the base of the commit, so a compaction
/// that was committed before is taken into account.
pub(super) fn release(next: &mut Manifest, releases: &[Release], rules: Rules) {
    if releases.is_empty() {
        return;
    }
    let tables: HashSet<SstId> = next.tables().map(|table| table.id).collect();
    let goes = |one: &Checkpoint| {
        let mut asked = releases.iter().filter(|release| release.checkpoint == one.id);
        asked.any(|release| release.may_go(&tables, rules))
    };
    next.checkpoints.retain(|one| !goes(one));
}

/// Whether `state` contains none of the checkpoints that `releases` may remove.
pub(super) fn is_released(state: &Manifest, releases: &[Release], rules: Rules) -> bool {
    let tables: HashSet<SstId> = state.tables().map(|table| table.id).collect();
    releases.iter().all(|release| {
        state.checkpoint(release.checkpoint).is_none() || !release.may_go(&tables, rules)
    })
}

/// A combined change by the owner of checkpoints: pins the new version, removes checkpoints that
/// are no longer read, and refreshes others (rule C2).
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct UpdateCheckpoints {
    /// A checkpoint of the state that this commit creates.
    pub add: Option<NewCheckpoint>,
    /// Checkpoints to remove if no table that is read through them is lost.
    pub release: Vec<Release>,
    /// Checkpoints whose expiry changes; they may include released ones.
    pub refresh: Vec<CheckpointId>,
    /// The new expiry.
    pub expires_at: Option<UnixMillis>,
}

impl UpdateCheckpoints {
    pub(super) fn apply(&self, next: &mut Manifest, rules: Rules) -> Result<(), Refusal> {
        for id in &self.refresh {
            refresh(next, *id, self.expires_at)?;
        }
        for release in &self.release {
            check_owner(next, release.checkpoint)?;
        }
        release(next, &self.release, rules);
        match &self.add {
            Some(new) if rules.has(Rule::PinWhatIsRead) => new.apply(next),
            _ => Ok(()),
        }
    }

    /// Whether it only removes checkpoints.
    pub(super) fn is_clean_up(&self) -> bool {
        self.add.is_none() && self.refresh.is_empty()
    }

    pub(super) fn in_effect(&self, state: &Manifest, rules: Rules) -> bool {
        let released = |id| self.release.iter().any(|release| release.checkpoint == id);
        let refreshed = self.refresh.iter().all(|id| match state.checkpoint(*id) {
            Some(one) => one.expires_at == self.expires_at,
            None => released(*id),
        });
        refreshed
            && is_added(state, self.add.as_ref(), rules)
            && is_released(state, &self.release, rules)
    }
}

/// Whether `new` is present, if there was one to add.
pub(super) fn is_added(state: &Manifest, new: Option<&NewCheckpoint>, rules: Rules) -> bool {
    let added = |new: &NewCheckpoint| state.checkpoint(new.id).is_some();
    new.is_none_or(|new| !rules.has(Rule::PinWhatIsRead) || added(new))
}

/// Changes the expiry of a present checkpoint.
pub(super) fn refresh(
    next: &mut Manifest,
    id: CheckpointId,
    expires_at: Option<UnixMillis>,
) -> Result<(), Refusal> {
    check_owner(next, id)?;
    let found = next.checkpoints.iter_mut().find(|one| one.id == id);
    let found = found.ok_or(Refusal::Expired { checkpoint: id })?;
    check_expiry(found.owner, expires_at)?;
    found.expires_at = expires_at;
    Ok(())
}

/// Removes a checkpoint by its id; an absent checkpoint is not an error.
pub(super) fn remove(next: &mut Manifest, id: CheckpointId) -> Result<(), Refusal> {
    check_owner(next, id)?;
    next.checkpoints.retain(|one| one.id != id);
    Ok(())
}

/// Refuses to remove checkpoints of other owners. The checkpoint of a writer protects the tables
/// that it reads, independent of any clock. The pin of a clone protects the tables of the clone
/// (rule K4). Checkpoints with an unknown owner belong to a newer version of Siltstone.
fn check_owner(state: &Manifest, id: CheckpointId) -> Result<(), Refusal> {
    match state.checkpoint(id).map(|one| one.owner) {
        Some(CheckpointOwner::Writer(epoch)) => Err(Conflict::OfTheWriter { epoch }.into()),
        Some(CheckpointOwner::Clone(clone)) => Err(Conflict::OfAClone { clone }.into()),
        Some(CheckpointOwner::Other { .. }) => Err(Refusal::Invalid(OF_A_NEWER_VERSION)),
        _ => Ok(()),
    }
}

/// A reader may end without notice, so its checkpoint must have an expiry; the checkpoint of a
/// writer is removed only by commits. The pin of a clone begins with an expiry, because its creator
/// may end before the clone exists (rule K1).
fn check_expiry(owner: CheckpointOwner, expires_at: Option<UnixMillis>) -> Result<(), Refusal> {
    match (owner, expires_at) {
        (CheckpointOwner::Reader, None) => {
            Err(Refusal::Invalid("a reader's checkpoint has an expiry"))
        }
        (CheckpointOwner::Clone(_), None) => {
            Err(Refusal::Invalid("a clone's pin begins with an expiry"))
        }
        (CheckpointOwner::Writer(_), Some(_)) => {
            Err(Refusal::Invalid("a writer's checkpoint has no expiry"))
        }
        (CheckpointOwner::Other { .. }, _) => Err(Refusal::Invalid(OF_A_NEWER_VERSION)),
        _ => Ok(()),
    }
}
