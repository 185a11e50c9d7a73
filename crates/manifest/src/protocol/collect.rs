//! One round of the garbage collector (rules G1 to G4, M5).
//!
//! ```text
//! revoke expired checkpoints (a commit) ─► list objects ─► read jobs ─► look for the newest
//!   ─► read the manifests above the new boundary, and those of checkpoints ─► verify
//!   ─► create the boundaries ─► delete, numbered names ascending
//! ```
//! The manifests come last: what is committed after the listing is in them, or was not listed. The
//! last listing before the first delete proves that none of the manifests read had been freed when
//! it was read.

use super::commit::{Commit, CommitAction};
use super::look::{Look, LookAction};
use super::{ManifestAnswer, ManifestRequest};
use crate::edit::Edit;
use crate::gc::{
    Evidence, JobReservation, ListedObject, Verdict, dead, manifest_boundary, manifest_boundary_now,
};
use crate::rules::{Rule, Rules};
use crate::state::Manifest;
use siltstone_base::{ManifestId, ObjectName, PutOutcome, SstId, UnixMillis};
use std::sync::Arc;

/// One round. A round that is overtaken by another collector ends without deleting.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Collect {
    rules: Rules,
    evidence: Evidence,
    phase: Phase,
    report: CollectReport,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Phase {
    Revoke(Commit),
    List,
    Jobs,
    Look(Look),
    /// Manifests still to read, the next one last.
    Read(Vec<ManifestId>, Arc<Manifest>),
    Verify,
    Boundary(Vec<ObjectName>, Verdict),
    Delete(Vec<ObjectName>),
    Done,
}

/// What a round did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct CollectReport {
    /// Objects deleted.
    pub deleted: u64,
    /// Deletes that failed; the next round meets them again.
    pub failed: u64,
    /// Whether the round ended early, since another collector freed what it was reading.
    pub overtaken: bool,
}

/// What [`Collect`] wants.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum CollectAction {
    /// Do this.
    Request(ManifestRequest),
    /// List every object under the root.
    ListObjects,
    /// Read every compaction job record and what ingests name.
    ReadJobs,
    /// Create this boundary object if the name is free; that it is there already is as good.
    CreateBoundary(ObjectName),
    /// Delete this object.
    Delete(ObjectName),
    /// The round is over.
    Done(CollectReport),
}

impl Collect {
    /// A round that starts from `newest`, the newest manifest the caller knows of. Checkpoints that
    /// expired at or before `now` are revoked; objects stored after `cutoff` stay (`now` less the
    /// grace period, by the store's clock).
    #[must_use]
    pub fn new(
        newest: Arc<Manifest>,
        now: UnixMillis,
        cutoff: UnixMillis,
        rules: Rules,
    ) -> Collect {
        let expired = newest.checkpoints.iter().filter(|one| one.expired_at(now));
        let ids: Vec<_> = expired.map(|one| one.id).collect();
        let phase = if ids.is_empty() || !rules.has(Rule::RevokeFirst) {
            first_phase(rules)
        } else {
            Phase::Revoke(Commit::new(Edit::RevokeExpired { ids, now }, newest, rules))
        };
        let evidence = Evidence { cutoff, ..Evidence::default() };
        Collect { rules, evidence, phase, report: CollectReport::default() }
    }

    /// What to do now.
    #[must_use]
    pub fn action(&self) -> CollectAction {
        match &self.phase {
            Phase::Revoke(commit) => match commit.action() {
                CommitAction::Request(request) => CollectAction::Request(request),
                CommitAction::Done(_) | CommitAction::Failed(_) => CollectAction::Done(self.report),
            },
            Phase::List => CollectAction::ListObjects,
            Phase::Jobs => CollectAction::ReadJobs,
            Phase::Look(look) => match look.action() {
                LookAction::Request(request) => CollectAction::Request(request),
                LookAction::Done(_) => CollectAction::Done(self.report),
            },
            Phase::Read(ids, newest) => {
                let id = ids.last().copied().unwrap_or(newest.id);
                CollectAction::Request(ManifestRequest::Read(id))
            }
            Phase::Verify => {
                let after = self.newest().map_or(ManifestId::NONE, |newest| newest.id);
                CollectAction::Request(ManifestRequest::List { after })
            }
            Phase::Boundary(names, _) => match names.last() {
                Some(name) => CollectAction::CreateBoundary(*name),
                None => CollectAction::Done(self.report),
            },
            Phase::Delete(names) => match names.last() {
                Some(name) => CollectAction::Delete(*name),
                None => CollectAction::Done(self.report),
            },
            Phase::Done => CollectAction::Done(self.report),
        }
    }

    /// The answer to [`CollectAction::Request`].
    pub fn on_answer(&mut self, answer: ManifestAnswer) {
        match &mut self.phase {
            Phase::Revoke(commit) => {
                commit.on_answer(answer);
                match commit.action() {
                    CommitAction::Request(_) => {}
                    CommitAction::Done(_) => self.phase = first_phase(self.rules),
                    CommitAction::Failed(_) => self.give_up(),
                }
            }
            Phase::Look(look) => {
                look.on_answer(answer);
                match look.action() {
                    LookAction::Request(_) => {}
                    LookAction::Done(None) => self.phase = Phase::Done,
                    LookAction::Done(Some(newest)) => self.on_newest(newest),
                }
            }
            Phase::Read(..) => {
                if let ManifestAnswer::Read(read) = answer {
                    self.on_read(read);
                }
            }
            Phase::Verify => {
                if let ManifestAnswer::Listed(listing) = answer {
                    self.on_verified(listing.boundary);
                }
            }
            _ => {}
        }
    }

    /// The answer to [`CollectAction::ListObjects`].
    pub fn on_objects(&mut self, listed: Vec<ListedObject>) {
        if self.phase == Phase::List {
            self.evidence.listed = listed;
            self.phase =
                if self.rules.has(Rule::CollectorOrder) { Phase::Jobs } else { self.decide() };
        }
    }

    /// The answer to [`CollectAction::ReadJobs`].
    pub fn on_jobs(&mut self, jobs: Vec<JobReservation>, ingesting: Vec<SstId>) {
        if self.phase == Phase::Jobs {
            self.evidence.jobs = jobs;
            self.evidence.ingesting = ingesting;
            self.phase = if self.rules.has(Rule::CollectorOrder) {
                Phase::Look(Look::new(None, self.rules))
            } else {
                Phase::List
            };
        }
    }

    /// The answer to [`CollectAction::CreateBoundary`]. Nothing is deleted before it is known to be
    /// there.
    pub fn on_boundary(&mut self, outcome: PutOutcome<()>) {
        let Phase::Boundary(names, verdict) = &mut self.phase else { return };
        if matches!(outcome, PutOutcome::Committed | PutOutcome::Lost(())) {
            names.pop();
        }
        if names.is_empty() {
            let verdict = std::mem::take(verdict);
            self.phase = self.delete_phase(&verdict);
        }
    }

    /// Tables that may be deleted at once, up to `limit`, the one of the present action first:
    /// their order is free, that of numbered names is not. Report each by
    /// [`Collect::on_deleted`], in this order.
    #[must_use]
    pub fn deletable_at_once(&self, limit: usize) -> Vec<ObjectName> {
        let Phase::Delete(names) = &self.phase else { return Vec::new() };
        let tables = names.iter().rev().copied();
        tables.take_while(|name| matches!(name, ObjectName::Compacted(_))).take(limit).collect()
    }

    /// The answer to [`CollectAction::Delete`]: whether it succeeded. A numbered name that could
    /// not be deleted ends the round's numbered deletes, so that those go in ascending order.
    pub fn on_deleted(&mut self, succeeded: bool) {
        let Phase::Delete(names) = &mut self.phase else { return };
        let Some(name) = names.pop() else { return };
        if succeeded {
            self.report.deleted += 1;
        } else {
            self.report.failed += 1;
            match name {
                ObjectName::Manifest(_) => {
                    names.retain(|other| !matches!(other, ObjectName::Manifest(_)));
                }
                ObjectName::Wal(_) => names.retain(|other| !matches!(other, ObjectName::Wal(_))),
                _ => {}
            }
        }
        if names.is_empty() {
            self.phase = Phase::Done;
        }
    }

    fn on_newest(&mut self, newest: Arc<Manifest>) {
        let boundary = self.reach();
        let pinned = newest.checkpoints.iter().map(|one| one.manifest_id);
        let above = (boundary.get() + 1..newest.id.get()).map(ManifestId);
        let mut ids: Vec<ManifestId> = above.chain(pinned).filter(|id| *id != newest.id).collect();
        ids.sort_unstable_by(|left, right| right.cmp(left));
        ids.dedup();
        self.phase = Phase::Read(ids, newest);
        self.end_reading();
    }

    fn on_read(&mut self, read: Option<Arc<Manifest>>) {
        let Phase::Read(ids, newest) = &mut self.phase else { return };
        let (Some(id), Some(read)) = (ids.pop(), read) else {
            // Another collector freed it: its round is ahead of this one.
            self.give_up();
            return;
        };
        if newest.checkpoints.iter().any(|one| one.manifest_id == id) {
            self.evidence.pinned.push(read.clone());
        }
        if id > self.reach() {
            self.evidence.manifests.push(read);
        }
        self.end_reading();
    }

    fn end_reading(&mut self) {
        let Phase::Read(ids, newest) = &self.phase else { return };
        if ids.is_empty() {
            let newest = newest.clone();
            if newest.checkpoints.iter().any(|one| one.manifest_id == newest.id) {
                self.evidence.pinned.push(newest.clone());
            }
            self.evidence.manifests.push(newest);
            self.phase = if !self.rules.has(Rule::CollectorOrder) {
                Phase::Jobs
            } else if self.rules.has(Rule::CollectorVerifies) {
                Phase::Verify
            } else {
                self.decide()
            };
        }
    }

    /// No manifest that counts had been freed when it was read: neither the newest nor any above
    /// the boundary that this round will set. Pinned ones are real as long as their checkpoint is
    /// present, which the newest says.
    fn on_verified(&mut self, boundary: ManifestId) {
        if boundary > self.reach() {
            self.give_up();
        } else {
            self.phase = self.decide();
        }
    }

    /// Where this round leaves the boundary of the manifests.
    fn reach(&self) -> ManifestId {
        let listed = &self.evidence.listed;
        let moved = manifest_boundary(listed, self.evidence.cutoff).unwrap_or_default();
        moved.max(manifest_boundary_now(listed))
    }

    fn give_up(&mut self) {
        self.report.overtaken = true;
        self.phase = Phase::Done;
    }

    fn newest(&self) -> Option<&Arc<Manifest>> {
        self.evidence.manifests.last()
    }

    fn decide(&self) -> Phase {
        let verdict = dead(&self.evidence, self.rules);
        let manifest = verdict.manifest_boundary.map(ObjectName::ManifestBoundary);
        let wal = verdict.wal_boundary.map(ObjectName::WalBoundary);
        // Taken from the end: the manifests' boundary first.
        let names: Vec<ObjectName> = wal.into_iter().chain(manifest).collect();
        if names.is_empty() || !self.rules.has(Rule::BoundaryFirst) {
            self.delete_phase(&verdict)
        } else {
            Phase::Boundary(names, verdict)
        }
    }

    fn delete_phase(&self, verdict: &Verdict) -> Phase {
        if verdict.deletes.is_empty() {
            return Phase::Done;
        }
        Phase::Delete(verdict.deletes.iter().rev().copied().collect())
    }
}

/// G1 begins with the objects; without the rule, with what should come last.
fn first_phase(rules: Rules) -> Phase {
    if rules.has(Rule::CollectorOrder) { Phase::List } else { Phase::Look(Look::new(None, rules)) }
}

#[cfg(test)]
mod tests;
