//! The checkpoints that keep the versions of a process alive (rules C1, C2; RFC 0017).
//!
//! A process reads *versions*: the tables of one manifest each. New scans use the newest version;
//! older versions stay as long as a scan uses them. Every version is covered by a present
//! checkpoint: the one that was added by the commit that made the version, or one that replaced it
//! in a commit whose state still contained all tables of the version.
//!
//! ```text
//! claim ─────── flush ─────── (a compaction takes a away) ─── flush
//! c1: {a}       c2: {a b}                                     c3: {b' c}
//! covers v1     covers v1 v2, c1 went in that commit          covers v3; c2 stays: a left
//!                                            the scans on v1 and v2 end ─► c2 may go
//! ```
//! This is not a step function: it says what the next commit contains, and is told the result.

use crate::edit::Release;
use crate::state::Manifest;
use siltstone_base::{CheckpointId, ManifestId, SstId};
use std::collections::BTreeSet;
use std::sync::Arc;

/// The versions that a process reads, and the checkpoints that cover them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Pins {
    /// Oldest first; never empty. The last checkpoint covers the newest version, which is its last
    /// one.
    held: Vec<Held>,
}

/// A checkpoint and the versions that it covers, oldest first.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Held {
    checkpoint: CheckpointId,
    versions: Vec<Arc<Manifest>>,
}

impl Pins {
    /// For a process whose checkpoint `checkpoint` names `version`, the first version that it
    /// reads.
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

    /// Whether `state` has other tables than the newest version: it may be read only after a commit
    /// has pinned it.
    #[must_use]
    pub fn is_behind(&self, state: &Manifest) -> bool {
        let Some(newest) = self.newest() else { return false };
        let ids = |state: &Manifest| state.tables().map(|table| table.id).collect::<BTreeSet<_>>();
        state.id > newest.id && ids(state) != ids(newest)
    }

    /// Forgets every version, except the newest, that is no longer read. After `is_read` has
    /// returned false for a version, that version must never be read again.
    pub fn forget_unread(&mut self, is_read: impl Fn(ManifestId) -> bool) {
        let newest = self.newest().map(|version| version.id).unwrap_or_default();
        for held in &mut self.held {
            held.versions.retain(|version| version.id == newest || is_read(version.id));
        }
    }

    /// Whether a checkpoint covers no version any more, so that a commit should release it.
    #[must_use]
    pub fn has_unread(&self) -> bool {
        self.held.iter().any(|held| held.versions.is_empty())
    }

    /// The releases for a commit. A commit that adds a checkpoint (`replaces`) replaces as many
    /// checkpoints as possible; any other only releases checkpoints that cover no version.
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

    /// A commit with the releases of [`Pins::releases`] is in effect in `state`. `added`: the
    /// checkpoint that it added, and the version that this checkpoint names, which may be read from
    /// now on.
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
