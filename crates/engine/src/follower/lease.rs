//! A reader's leases (rules L1 to L9; RFC 0028, RFC 0048): which versions it reads, and the commits
//! that keep those alive for it and for all who read the same.

use crate::io::env::Env;
use crate::manifests::client::commit_alone;
use crate::manifests::objects::Objects;
use crate::manifests::rules;
use crate::read::tree::Levels;
use siltstone_base::{CheckpointId, Error, ErrorKind, ManifestId, Result};
use siltstone_manifest::protocol::{LeasedEdit, Leases, Lifetimes, Moment, Want};
use siltstone_manifest::{Edit, Manifest};
use std::sync::{Arc, Weak};
use std::time::Duration;

/// What a reader has leased.
#[derive(Clone)]
pub(crate) struct ReaderLease {
    leases: Leases,
    /// The tables of each version, as reads hold them: a version is read while one does.
    trees: Vec<(ManifestId, Weak<Levels>)>,
    /// An edit whose outcome is not known: it is made again, the same, before any other.
    pending: Option<LeasedEdit>,
}

impl ReaderLease {
    pub(crate) fn new(lifetimes: Lifetimes) -> ReaderLease {
        let leases = Leases::new(lifetimes, rules::in_force());
        ReaderLease { leases, trees: Vec::new(), pending: None }
    }

    /// The version that reads may use, as it is leased, and a state with its tables.
    pub(crate) fn version(&self) -> Option<(ManifestId, &Arc<Manifest>)> {
        self.leases.newest()
    }

    /// `levels` are the tables that new reads use from now on.
    pub(crate) fn reads(&mut self, levels: &Arc<Levels>) {
        let Some((version, _)) = self.leases.newest() else { return };
        let known = |(read, tree): &(ManifestId, Weak<Levels>)| {
            *read == version && std::ptr::eq(tree.as_ptr(), Arc::as_ptr(levels))
        };
        if !self.trees.iter().any(known) {
            self.trees.push((version, Arc::downgrade(levels)));
        }
    }

    /// Whether `newest` has other tables than those that are leased and read.
    pub(crate) fn is_behind(&self, newest: &Manifest) -> bool {
        self.leases.is_behind(newest)
    }

    /// Whether `error` says that the reader may write no lease at all: nothing was leased yet.
    pub(crate) fn may_not_begin(&self, error: &Error) -> bool {
        error.kind() == ErrorKind::Denied && self.version().is_none()
    }

    /// Whether something is to be renewed, or an outcome is open.
    pub(crate) fn is_due(&mut self, env: &Env) -> bool {
        self.forget_unread();
        let due = self.leases.is_due(env.clock.elapsed());
        self.pending.is_some() || (due && !cfg!(mutation = "refresh_forgotten"))
    }

    /// The moment of [`siltstone_manifest::protocol::Leases::next_moment`].
    pub(crate) fn next_moment(&self) -> Option<Duration> {
        self.leases.next_moment()
    }

    /// A proven state; whether new reads are on another version now, or what they used was revoked.
    pub(crate) fn learn(&mut self, env: &Env, state: &Arc<Manifest>) -> bool {
        self.forget_unread();
        self.leases.learn(state, moment(env))
    }

    /// Whether to cover newer tables, which no lease covers, by a commit of its own.
    pub(crate) fn commits(&mut self, env: &Env, newest: &Manifest, want: Want) -> bool {
        self.leases.commits(newest, want, moment(env))
    }

    /// Covers the newest tables, if they are to be `taken` up, and renews what is read and due: one
    /// commit, or none if another reader has done so. Answers the state after it. When it
    /// fails, everything that was held counts as held.
    ///
    /// # Errors
    /// Denied, Timeout, Unavailable, NotFound, Corruption.
    pub(crate) async fn keep(
        &mut self,
        objects: &Objects,
        newest: &Arc<Manifest>,
        taken: bool,
    ) -> Result<Arc<Manifest>> {
        // Of an open outcome first: another edit on top would not know what is held.
        let mut known = Arc::clone(newest);
        if let Some(planned) = self.pending.clone() {
            known = self.commit(objects, planned, &known).await?;
        }
        let newest = taken && self.is_behind(&known);
        if newest || self.is_due(&objects.env) {
            let covering = self.leases.cover(newest, moment(&objects.env));
            known = self.commit(objects, covering, &known).await?;
        }
        Ok(known)
    }

    async fn commit(
        &mut self,
        objects: &Objects,
        covering: LeasedEdit,
        newest: &Arc<Manifest>,
    ) -> Result<Arc<Manifest>> {
        let mut state = Arc::clone(newest);
        if !covering.is_empty() {
            let edit = Edit::CoverVersions(self.pending.insert(covering.clone()).edit.clone());
            state = commit_alone(objects, edit, state).await?;
        }
        self.pending = None;
        self.leases.committed(&covering, &state, moment(&objects.env));
        Ok(state)
    }

    /// A table of `levels` is missing: whether that is a corruption, by a state that was looked up
    /// since (rule L5).
    pub(crate) fn is_corrupt(&self, levels: &Arc<Levels>, looked: &Manifest) -> bool {
        self.version_of(levels).is_some_and(|version| self.leases.is_corrupt(version, looked))
    }

    /// The version that `levels` are of, where it has been leased.
    pub(crate) fn version_of(&self, levels: &Arc<Levels>) -> Option<ManifestId> {
        let is_it = |tree: &Weak<Levels>| std::ptr::eq(tree.as_ptr(), Arc::as_ptr(levels));
        self.trees.iter().rev().find(|(_, tree)| is_it(tree)).map(|(version, _)| *version)
    }

    fn forget_unread(&mut self) {
        self.trees.retain(|(_, levels)| levels.strong_count() > 0);
        let trees = &self.trees;
        self.leases.forget_unread(|version| trees.iter().any(|(read, _)| *read == version));
    }
}

fn moment(env: &Env) -> Moment {
    let (now, wall) = (env.clock.elapsed(), env.clock.now());
    Moment { now, wall, share: env.share() }
}

/// A checkpoint that was there is gone.
pub(crate) fn expired(checkpoint: CheckpointId) -> Error {
    siltstone_manifest::Refusal::Expired { checkpoint }.into()
}
