//! The leases of a reader (rules L1 to L9; RFC 0028, RFC 0048): the versions that it reads, and the
//! commits that keep those versions alive for this reader and all others that read them. A reader
//! must never end a lease, because other readers may share it.

use crate::manifests::client::ManifestRequests;
use crate::manifests::rules;
use crate::read::tree::Levels;
use siltstone_base::{CheckpointId, Error, ErrorKind, ManifestId, Result};
use siltstone_manifest::protocol::{LeasedEdit, Leases, Lifetimes, Moment, Want};
use siltstone_manifest::{Edit, Manifest};
use siltstone_store::env::Env;
use siltstone_store::full::is_full;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// The leases of a reader.
#[derive(Clone)]
pub(crate) struct ReaderLease {
    leases: Leases,
    /// The tables of each version, as reads hold them. A version counts as read while a read holds
    /// its tables.
    trees: Vec<(ManifestId, Weak<Levels>)>,
    /// An edit with an unknown outcome. The reader repeats the same edit before any other.
    pending: Option<LeasedEdit>,
}

impl ReaderLease {
    pub(crate) fn new(lifetimes: Lifetimes) -> ReaderLease {
        let leases = Leases::new(lifetimes, rules::in_force());
        ReaderLease { leases, trees: Vec::new(), pending: None }
    }

    /// The leased version that new reads use, and a manifest with its tables.
    pub(crate) fn version(&self) -> Option<(ManifestId, &Arc<Manifest>)> {
        self.leases.newest()
    }

    /// Notes that new reads use the tables `levels`.
    pub(crate) fn reads(&mut self, levels: &Arc<Levels>) {
        let Some((version, _)) = self.leases.newest() else { return };
        let known = |(read, tree): &(ManifestId, Weak<Levels>)| {
            *read == version && std::ptr::eq(tree.as_ptr(), Arc::as_ptr(levels))
        };
        if !self.trees.iter().any(known) {
            self.trees.push((version, Arc::downgrade(levels)));
        }
    }

    /// Whether `newest` has tables that differ from the leased ones.
    pub(crate) fn is_behind(&self, newest: &Manifest) -> bool {
        self.leases.is_behind(newest)
    }

    /// Whether `error` shows that the reader cannot write a lease, by its rights or because the
    /// store is full, and nothing is leased yet.
    pub(crate) fn cannot_begin(&self, error: &Error) -> bool {
        (error.kind() == ErrorKind::Denied || is_full(error)) && self.version().is_none()
    }

    /// Whether a renewal is due, or an outcome is unknown.
    pub(crate) fn is_due(&mut self, env: &Env) -> bool {
        self.forget_unread();
        self.pending.is_some() || self.leases.is_due(env.clock.elapsed())
    }

    /// The time of [`siltstone_manifest::protocol::Leases::next_moment`].
    pub(crate) fn next_moment(&self) -> Option<Duration> {
        self.leases.next_moment()
    }

    /// Learns a proven state. Returns whether new reads use another version now, or their version
    /// was revoked.
    pub(crate) fn learn(&mut self, env: &Env, state: &Arc<Manifest>) -> bool {
        self.forget_unread();
        self.leases.learn(state, moment(env))
    }

    /// Whether this reader should commit a lease on newer tables, which no lease covers yet.
    pub(crate) fn commits(&mut self, env: &Env, newest: &Manifest, want: Want) -> bool {
        self.leases.commits(newest, want, moment(env))
    }

    /// Leases the newest tables if they are `taken` up, and renews leases that are in use and due.
    /// This takes one commit, or none if another reader has committed already. Returns the state
    /// after it. If it fails, the reader keeps counting its leases as held.
    ///
    /// # Errors
    /// Denied, Timeout, Unavailable, NotFound, Corruption.
    pub(crate) async fn keep(
        &mut self,
        requests: &mut ManifestRequests,
        newest: &Arc<Manifest>,
        taken: bool,
    ) -> Result<Arc<Manifest>> {
        // The edit with the unknown outcome comes first: an edit on top of it would not know which
        // leases are held.
        let mut known = Arc::clone(newest);
        if let Some(planned) = self.pending.clone() {
            known = self.commit(requests, planned, &known).await?;
        }
        let newest = taken && self.is_behind(&known);
        if newest || self.is_due(requests.env()) {
            let covering = self.leases.cover(newest, moment(requests.env()));
            known = self.commit(requests, covering, &known).await?;
        }
        Ok(known)
    }

    async fn commit(
        &mut self,
        requests: &mut ManifestRequests,
        covering: LeasedEdit,
        newest: &Arc<Manifest>,
    ) -> Result<Arc<Manifest>> {
        let mut state = Arc::clone(newest);
        if !covering.is_empty() {
            let edit = Edit::CoverVersions(self.pending.insert(covering.clone()).edit.clone());
            state = requests.commit(edit, state).await?;
        }
        self.pending = None;
        self.leases.committed(&covering, &state, moment(requests.env()));
        Ok(state)
    }

    /// Whether a missing table of `levels` is damage, according to a state that was looked up
    /// afterwards (rule L5).
    pub(crate) fn is_corrupt(&self, levels: &Arc<Levels>, looked: &Manifest) -> bool {
        self.version_of(levels).is_some_and(|version| self.leases.is_corrupt(version, looked))
    }

    /// The version of `levels`, if it has been leased.
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

/// Logs that a reader reads without a lease, because of `error`.
pub(super) fn warn_of_no_lease(error: &Error) {
    let remedy = match error.kind() {
        ErrorKind::Denied => "allow it to create objects under manifest/",
        _ => "free space in the store and open the reader again",
    };
    log::warn!(
        target: "siltstone.reader",
        "event=reader_without_lease: this reader cannot write a lease, and reads without one; \
         a scan ends with Expired once a collector deletes what it reads; {remedy}, read at a \
         checkpoint, or open it with the option reader_lease=False, as in \
         options={{\"reader_lease\": False}}: {error}"
    );
}

/// The error for a checkpoint that is gone.
pub(crate) fn expired(checkpoint: CheckpointId) -> Error {
    siltstone_manifest::Refusal::Expired { checkpoint }.into()
}
