//! Which checkpoints keep alive what a process reads (rules C1, C2; RFC 0017).
//!
//! A process reads *versions*: the tables of one manifest each. The newest is what it gives to new
//! scans; older ones live on while a scan is on them. Every version is covered by a checkpoint that
//! is present: the one that was made by the very commit that made the version, or one that replaced
//! it in a commit whose state still had all of the version's tables.
//!
//! ```text
//! claim ─────── flush ─────── (a compaction takes a away) ─── flush
//! c1: {a}       c2: {a b}                                     c3: {b' c}
//! covers v1     covers v1 v2, c1 went in that commit          covers v3; c2 stays: a left
//!                                            the scans on v1 and v2 end ─► c2 may go
//! ```
//! Not a machine of its own: it says what the next commit carries, and is told what came of it.

use crate::edit::Release;
use crate::state::Manifest;
use siltstone_base::{CheckpointId, ManifestId, SstId};
use std::collections::BTreeSet;
use std::sync::Arc;

/// The versions a process reads, and the checkpoints that cover them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Pins {
    /// Oldest first; never empty. The last one covers the newest version, which is its last.
    held: Vec<Held>,
}

/// A checkpoint and the versions it covers, oldest first.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Held {
    checkpoint: CheckpointId,
    versions: Vec<Arc<Manifest>>,
}

impl Pins {
    /// A process whose checkpoint `checkpoint` names `version`, the first one it reads.
    #[must_use]
    pub fn new(checkpoint: CheckpointId, version: Arc<Manifest>) -> Pins {
        Pins { held: vec![Held { checkpoint, versions: vec![version] }] }
    }

    /// The newest version; new scans read it.
    #[must_use]
    pub fn newest(&self) -> Option<&Arc<Manifest>> {
        self.held.last()?.versions.last()
    }

    /// Every version that is read, oldest first.
    pub fn versions(&self) -> impl Iterator<Item = &Arc<Manifest>> {
        self.held.iter().flat_map(|held| &held.versions)
    }

    /// The checkpoints held, oldest first.
    pub fn checkpoints(&self) -> impl Iterator<Item = CheckpointId> {
        self.held.iter().map(|held| held.checkpoint)
    }

    /// Whether `state` has other tables than the newest version: it may be read only once a commit
    /// has pinned it.
    #[must_use]
    pub fn is_behind(&self, state: &Manifest) -> bool {
        let Some(newest) = self.newest() else { return false };
        let ids = |state: &Manifest| state.tables().map(|table| table.id).collect::<BTreeSet<_>>();
        state.id > newest.id && ids(state) != ids(newest)
    }

    /// Forgets every version but the newest that nobody reads any more. A version that `is_read`
    /// denied once is never read again.
    pub fn forget_unread(&mut self, is_read: impl Fn(ManifestId) -> bool) {
        let newest = self.newest().map(|version| version.id).unwrap_or_default();
        for held in &mut self.held {
            held.versions.retain(|version| version.id == newest || is_read(version.id));
        }
    }

    /// Whether some checkpoint covers nothing any more: a commit should let it go.
    #[must_use]
    pub fn has_unread(&self) -> bool {
        self.held.iter().any(|held| held.versions.is_empty())
    }

    /// What a commit releases. One that adds a checkpoint (`replaces`) takes over whatever it can;
    /// another only lets go of what covers nothing.
    #[must_use]
    pub fn releases(&self, replaces: bool) -> Vec<Release> {
        let goes = |held: &&Held| replaces || held.versions.is_empty();
        let release = |held: &Held| {
            let tables = held.versions.iter().flat_map(|version| version.tables());
            let needed: BTreeSet<SstId> = tables.map(|table| table.id).collect();
            Release { checkpoint: held.checkpoint, needed: needed.into_iter().collect() }
        };
        self.held.iter().filter(goes).map(release).collect()
    }

    /// A commit that carried [`Pins::releases`] is in effect in `state`. `added`: the checkpoint it
    /// added, and the version which that one names: what may be read from now on.
    pub fn committed(&mut self, state: &Manifest, added: Option<(CheckpointId, Arc<Manifest>)>) {
        let present = |id: CheckpointId| state.checkpoint(id).is_some();
        let Some((checkpoint, version)) = added else {
            self.held.retain(|held| present(held.checkpoint) || !held.versions.is_empty());
            return;
        };
        let gone = |held: &mut Held| !present(held.checkpoint);
        let taken_over: Vec<Held> = self.held.extract_if(.., gone).collect();
        let mut versions: Vec<_> = taken_over.into_iter().flat_map(|held| held.versions).collect();
        versions.push(version);
        self.held.push(Held { checkpoint, versions });
    }
}

#[cfg(test)]
mod tests;
