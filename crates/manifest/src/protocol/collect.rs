//! One round of the garbage collector (rules G1 to G4, M5).
//!
//! ```text
//! revoke expired entries (a commit) ─► list objects ─► look for the newest job record
//!   ─► revoke holds of the feed that keep too much, move the horizon of ingest jobs, where that
//!   frees some (commits)
//!   ─► look for the newest manifest ─► read the manifests above the new boundary, and those of
//!   checkpoints ─► read the applications of ingest jobs, if needed ─► verify ─► create the
//!   boundaries ─► delete, numbered names ascending
//! ```
//! The manifests are read last: a table committed after the listing is in them, or was not listed.
//! The last listing before the first delete proves that none of the manifests read had been freed
//! when it was read. Proven facts stay true, so [`ProvenManifests`] is passed from one round to the
//! next.

mod known;

pub use known::ProvenManifests;

use super::commit::{Commit, CommitAction};
use super::look::{Look, LookAction};
use super::{ManifestAnswer, ManifestRequest};
use crate::compaction::record::{RecordAnswer, RecordRequest};
use crate::compaction::{Append, AppendAction};
use crate::edit::{Edit, HoldEdit, HoldExcess, IngestEdit};
use crate::gc::{
    Allowance, CollectDecision, Evidence, ListedObject, Verdict, class, dead, fate, overdrawn,
};
use crate::ingest::{JobApp, deadline};
use crate::rules::{Rule, Rules};
use crate::state::Manifest;
use known::between;
use siltstone_base::{DatabaseId, JobId, ManifestId, ObjectName, PutOutcome, UnixMillis};
use std::collections::BTreeMap;
use std::sync::Arc;

/// One collection round. If another collector overtakes it, the round ends without deleting.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Collect {
    rules: Rules,
    database: DatabaseId,
    evidence: Evidence,
    known: ProvenManifests,
    /// The boundary of the manifests as far as age alone moves it: manifests above it are noted.
    noted_above: ManifestId,
    phase: CollectPhase,
    /// Bytes of garbage that may stay because of their age; `None`: no limit.
    allowance: Option<Allowance>,
    /// Set for a dry run, which behaves as if expired items were revoked, and deletes nothing. The
    /// time at which expiry is judged.
    dry: Option<UnixMillis>,
    /// The base on which the horizon of ingest jobs is moved, and its new value.
    base: Option<Arc<Manifest>>,
    horizon: Option<UnixMillis>,
    /// Holds that retain more of the log than they may.
    overdrawn: Vec<HoldExcess>,
    report: CollectReport,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum CollectPhase {
    Revoke(Commit),
    List,
    Records(Append),
    Horizon(Commit),
    Look(Look),
    /// The manifests still to read; the next one is the last.
    Read(Vec<ManifestId>, Arc<Manifest>),
    /// Reads the closing objects of ingest jobs.
    Apps(Vec<JobId>),
    Verify,
    Boundary(Vec<ObjectName>, Verdict),
    Delete(Vec<ObjectName>),
    Done,
}

/// The result of a round.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct CollectReport {
    /// Objects deleted.
    pub deleted: u64,
    /// Failed deletes; the next round tries them again.
    pub failed: u64,
    /// Whether the round ended early because another collector freed a manifest that it was
    /// reading.
    pub overtaken: bool,
}

/// The next step of [`Collect`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum CollectAction {
    /// Perform this request.
    Request(ManifestRequest),
    /// List every object under the root.
    ListObjects,
    /// Perform this request for the record of compaction jobs.
    Record(RecordRequest),
    /// Read the closing objects of these ingest jobs.
    ReadJobs(Vec<JobId>),
    /// Create this boundary object if the name is free; an existing object is as good.
    CreateBoundary(ObjectName),
    /// Delete these objects, which are all of one kind, or any number of the first ones. Numbered
    /// names ascend from one call to the next; within one call their order is free, because no
    /// process trusts an object at or below the boundary.
    Delete(Vec<ObjectName>),
    /// The round is over.
    Done(CollectReport),
}

/// Maximum names in one [`CollectAction::Delete`]: the limit of a bulk delete request of common
/// stores.
pub const DELETE_BATCH: usize = 1000;

impl Collect {
    /// A round based on `newest`, the newest manifest known to the caller. Checkpoints and leases
    /// that expired at or before `now` are revoked; objects stored after `cutoff` are kept. Both
    /// times are of the store's clock; `cutoff` is `now` minus the grace period.
    #[must_use]
    pub fn new(
        newest: Arc<Manifest>,
        now: UnixMillis,
        cutoff: UnixMillis,
        rules: Rules,
    ) -> Collect {
        let database = newest.database;
        let expired = newest.checkpoints.iter().filter(|one| one.expired_at(now));
        let ids: Vec<_> = expired.map(|one| one.id).collect();
        let base = Some(Arc::clone(&newest));
        let phase = if !newest.has_expired(now) || !rules.has(Rule::RevokeFirst) {
            first_phase(rules)
        } else {
            CollectPhase::Revoke(Commit::new(Edit::RevokeExpired { ids, now }, newest, rules))
        };
        Collect { base, ..Collect::at(database, cutoff, phase, rules) }
    }

    /// A dry run: at its end [`Collect::fates`] returns the decisions of a real round.
    #[must_use]
    pub fn dry(database: DatabaseId, now: UnixMillis, cutoff: UnixMillis, rules: Rules) -> Collect {
        Collect { dry: Some(now), ..Collect::at(database, cutoff, first_phase(rules), rules) }
    }

    fn at(database: DatabaseId, cutoff: UnixMillis, phase: CollectPhase, rules: Rules) -> Collect {
        Collect {
            rules,
            database,
            evidence: Evidence { cutoff, ..Evidence::default() },
            known: ProvenManifests::default(),
            noted_above: ManifestId::NONE,
            phase,
            allowance: None,
            dry: None,
            base: None,
            horizon: None,
            overdrawn: Vec::new(),
            report: CollectReport::default(),
        }
    }

    /// Reuses facts proven by an earlier round of the same process, so that manifests are read only
    /// once.
    #[must_use]
    pub fn knowing(mut self, known: ProvenManifests) -> Collect {
        if known.database == self.database {
            self.known = known;
        }
        self
    }

    /// Keeps at most `allowance` of garbage because of its age: the excess is deleted, oldest
    /// first.
    #[must_use]
    pub fn leaving(mut self, allowance: Option<Allowance>) -> Collect {
        self.allowance = allowance;
        self
    }

    /// Replaces the cut-off before the objects are listed. Taken at that time, the store's clock
    /// also makes objects old that this round itself superseded, if there is no grace period.
    /// Ingest jobs with a deadline before the cut-off may be forgotten.
    pub fn age_by(&mut self, cutoff: UnixMillis) {
        if matches!(self.phase, CollectPhase::Revoke(_) | CollectPhase::List) {
            self.evidence.cutoff = cutoff;
            self.horizon = Some(cutoff);
        }
    }

    /// The next step.
    #[must_use]
    pub fn action(&self) -> CollectAction {
        let done = CollectAction::Done(self.report);
        match &self.phase {
            CollectPhase::Revoke(commit) | CollectPhase::Horizon(commit) => match commit.action() {
                CommitAction::Request(request) => CollectAction::Request(request),
                CommitAction::Done(_) | CommitAction::Failed(_) => done,
            },
            CollectPhase::List => CollectAction::ListObjects,
            CollectPhase::Records(append) => match append.action() {
                AppendAction::Request(request) => CollectAction::Record(request),
                AppendAction::Done(_) | AppendAction::Failed(_) => done,
            },
            CollectPhase::Look(look) => match look.action() {
                LookAction::Request(request) => CollectAction::Request(request),
                LookAction::Done(_) => done,
            },
            CollectPhase::Read(ids, newest) => {
                let id = ids.last().copied().unwrap_or(newest.id);
                CollectAction::Request(ManifestRequest::Read(id))
            }
            CollectPhase::Apps(jobs) => CollectAction::ReadJobs(jobs.clone()),
            CollectPhase::Verify => {
                let newest = self.evidence.newest.as_ref();
                let after = newest.map_or(ManifestId::NONE, |newest| newest.id);
                CollectAction::Request(ManifestRequest::List { after })
            }
            CollectPhase::Boundary(names, _) => match names.last() {
                Some(name) => CollectAction::CreateBoundary(*name),
                None => done,
            },
            CollectPhase::Delete(names) if names.is_empty() => done,
            CollectPhase::Delete(names) => CollectAction::Delete(batch(names)),
            CollectPhase::Done => done,
        }
    }

    /// The manifests that will be read next, in this order, beginning with the one of the current
    /// action. Manifests never change, so they may be read ahead, several at a time.
    #[must_use]
    pub fn reads_ahead(&self, limit: usize) -> Vec<ManifestId> {
        match &self.phase {
            CollectPhase::Read(ids, _) => ids.iter().rev().take(limit).copied().collect(),
            _ => Vec::new(),
        }
    }

    /// The answer to [`CollectAction::Request`].
    pub fn on_answer(&mut self, answer: ManifestAnswer) {
        match &mut self.phase {
            CollectPhase::Revoke(commit) => {
                commit.on_answer(answer);
                match commit.action() {
                    CommitAction::Request(_) => {}
                    CommitAction::Done(_) => self.phase = first_phase(self.rules),
                    CommitAction::Failed(_) => self.give_up(),
                }
            }
            CollectPhase::Horizon(commit) => {
                commit.on_answer(answer);
                if !matches!(commit.action(), CommitAction::Request(_)) {
                    // Refused if the database was destroyed meanwhile; the look finds that out.
                    self.phase = self.before_the_look();
                }
            }
            CollectPhase::Look(look) => {
                look.on_answer(answer);
                match look.action() {
                    LookAction::Request(_) => {}
                    LookAction::Done(None) => self.phase = CollectPhase::Done,
                    LookAction::Done(Some(newest)) => self.on_newest(newest),
                }
            }
            CollectPhase::Read(..) => match answer {
                ManifestAnswer::Read(read) => self.on_read(read),
                ManifestAnswer::ReadAsListed(read) => self.on_read(Some(read)),
                _ => {}
            },
            CollectPhase::Verify => {
                if let ManifestAnswer::Listed(listing) = answer {
                    self.on_verified(listing.boundary);
                }
            }
            _ => {}
        }
    }

    /// The answer to [`CollectAction::ListObjects`].
    pub fn on_objects(&mut self, listed: Vec<ListedObject>) {
        if self.phase == CollectPhase::List {
            self.evidence.listed = listed;
            let base = self.base.as_deref();
            self.overdrawn = base.map_or(Vec::new(), |base| overdrawn(&self.evidence.listed, base));
            self.phase = if self.rules.has(Rule::CollectorOrder) {
                CollectPhase::Records(Append::look(self.database, self.rules))
            } else {
                self.decide()
            };
        }
    }

    /// The answer to [`CollectAction::Record`].
    pub fn on_record(&mut self, answer: RecordAnswer) {
        let CollectPhase::Records(append) = &mut self.phase else { return };
        append.on_answer(answer);
        match append.action() {
            AppendAction::Request(_) => {}
            // A look makes no change, so it is never refused.
            AppendAction::Failed(_) => self.give_up(),
            AppendAction::Done(record) => {
                self.evidence.jobs = record.reservations();
                self.phase = if self.rules.has(Rule::CollectorOrder) {
                    self.before_the_look()
                } else {
                    CollectPhase::List
                };
            }
        }
    }

    /// The answer to [`CollectAction::ReadJobs`]: the application of each job, `None` for a job
    /// without one. A job whose object could not be read is missing, and nothing of it is deleted
    /// because of its application.
    pub fn on_jobs(&mut self, read: BTreeMap<JobId, Option<JobApp>>) {
        if matches!(self.phase, CollectPhase::Apps(_)) {
            self.known.apps.extend(read);
            self.evidence.apps = self.known.apps_among(&self.evidence.listed);
            self.phase = self.verify();
        }
    }

    /// The answer to [`CollectAction::CreateBoundary`]. Deletes begin only after the boundary is
    /// known to exist.
    pub fn on_boundary(&mut self, outcome: PutOutcome<()>) {
        let CollectPhase::Boundary(names, verdict) = &mut self.phase else { return };
        if matches!(outcome, PutOutcome::Committed | PutOutcome::Lost(())) {
            names.pop();
        }
        if names.is_empty() {
            let verdict = std::mem::take(verdict);
            self.phase = delete_phase(&verdict);
        }
    }

    /// The answer to [`CollectAction::Delete`], for as many of its first names: whether each is
    /// deleted. If a numbered name could not be deleted, the round deletes no more objects of its
    /// kind, so that they are deleted in ascending order.
    pub fn on_deleted(&mut self, gone: &[bool]) {
        let CollectPhase::Delete(names) = &mut self.phase else { return };
        let mut stuck = None;
        for gone in gone {
            let Some(name) = names.pop() else { break };
            if *gone {
                self.report.deleted += 1;
            } else {
                self.report.failed += 1;
                stuck = is_ascending(name).then_some(class(name)).or(stuck);
                if let ObjectName::IngestSst(job, _) = name {
                    // The object may be the only way for the next round to find the table that was
                    // not deleted.
                    names.retain(|name| *name != ObjectName::IngestManifest(job));
                }
            }
        }
        names.retain(|name| stuck != Some(class(*name)));
        if names.is_empty() {
            self.phase = CollectPhase::Done;
        }
    }

    /// The decision for every listed object by the evidence gathered so far. Valid from the first
    /// [`CollectAction::CreateBoundary`] or [`CollectAction::Delete`] on, and at the end of a round
    /// that was not overtaken.
    #[must_use]
    pub fn fates(&self) -> Vec<(ListedObject, CollectDecision)> {
        fate::of_all(&self.evidence, self.rules)
    }

    /// The newest manifest, once the round has found it.
    #[must_use]
    pub fn newest(&self) -> Option<&Arc<Manifest>> {
        self.evidence.newest.as_ref()
    }

    /// Ancestors of a clone that no manifest can reference again. Valid after a round that was not
    /// overtaken: their pins and then their entries can be removed (rule K5).
    #[must_use]
    pub fn detachable(&self) -> Vec<u32> {
        let acted = self.phase == CollectPhase::Done && self.dry.is_none();
        if acted && !self.report.overtaken {
            self.evidence.detachable(self.reach())
        } else {
            Vec::new()
        }
    }

    /// The proven facts for the next round; empty after a round that was overtaken.
    #[must_use]
    pub fn into_known(self) -> ProvenManifests {
        let boundary = self.reach();
        let Evidence {
            newest: Some(newest), mut named, mut named_ancestors, mut kept, pinned, ..
        } = self.evidence
        else {
            return ProvenManifests::default();
        };
        if self.phase != CollectPhase::Done || self.report.overtaken {
            return ProvenManifests::default();
        }
        named.retain(|_, last| *last > boundary);
        named_ancestors.retain(|_, last| *last > boundary);
        kept.retain(|_, last| *last > boundary);
        let (database, apps) = (self.database, self.known.apps);
        ProvenManifests { database, through: newest.id, named, named_ancestors, kept, pinned, apps }
    }

    /// The commits before the look for the newest manifest. Holds that retain too much are revoked
    /// (rules W5, G3). The horizon is moved if an ingest job waits for it, because the manifests
    /// read afterwards decide which jobs have ended permanently (rule N10).
    fn before_the_look(&mut self) -> CollectPhase {
        let look = || CollectPhase::Look(Look::new(None, self.rules));
        let Some(base) = self.base.clone() else { return look() };
        if !self.overdrawn.is_empty() {
            let edit = Edit::Hold(HoldEdit::Revoke(std::mem::take(&mut self.overdrawn)));
            return CollectPhase::Horizon(Commit::new(edit, base, self.rules));
        }
        let Some(to) = self.horizon.take() else { return look() };
        let passed = |job: JobId| {
            let staged = !job.is_of_an_export() && !job.is_of_units();
            staged && (base.ingest_horizon..to).contains(&deadline(job))
        };
        let mut staged = self.evidence.listed.iter().filter_map(|object| match object.name {
            ObjectName::IngestManifest(job) | ObjectName::IngestSst(job, _) => Some(job),
            _ => None,
        });
        let mut remembered = base.remembered_ingests.iter().map(|one| one.job);
        if !staged.any(passed) && !remembered.any(passed) {
            return look();
        }
        let edit = Edit::Ingest(IngestEdit::Horizon { to });
        CollectPhase::Horizon(Commit::new(edit, base, self.rules))
    }

    fn on_newest(&mut self, newest: Arc<Manifest>) {
        if newest.database != self.database || !newest.initialized {
            // The database was destroyed and another one created, or is being created, at the same
            // location.
            self.give_up();
            return;
        }
        let newest = self.dry.map_or(newest.clone(), |now| as_if_revoked(&newest, now));
        if self.rules.has(Rule::HonourSince) {
            self.evidence.kept_from = newest.kept_from();
        }
        let boundary = self.reach();
        self.noted_above = boundary;
        let known = std::mem::take(&mut self.known);
        let ProvenManifests { through, named, named_ancestors, kept, pinned, apps, .. } = known;
        self.known.apps = apps;
        (self.evidence.named, self.evidence.named_ancestors) = (named, named_ancestors);
        (self.evidence.kept, self.evidence.pinned) = (kept, pinned);
        let all = newest.pinned_versions();
        self.evidence.pinned.retain(&all);
        let pins = all.iter().copied().filter(|id| !self.evidence.pinned.has_noted(*id));
        let Some(above) = between(&self.evidence.listed, boundary.max(through), newest.id) else {
            // The manifests after the first one were not listed yet: the next round finds them.
            self.give_up();
            return;
        };
        let above = above.into_iter();
        let mut ids: Vec<ManifestId> = above.chain(pins).filter(|id| *id != newest.id).collect();
        ids.sort_unstable_by(|left, right| right.cmp(left));
        ids.dedup();
        self.phase = CollectPhase::Read(ids, newest);
        self.end_reading();
    }

    fn on_read(&mut self, read: Option<Arc<Manifest>>) {
        let CollectPhase::Read(ids, newest) = &mut self.phase else { return };
        let (Some(id), Some(read)) = (ids.pop(), read) else {
            // Another collector freed it, so the round of that collector is ahead of this one.
            self.give_up();
            return;
        };
        if newest.pins(id) {
            self.evidence.pinned.note(&read);
        }
        if id > self.noted_above {
            self.evidence.note(&read);
        }
        self.end_reading();
    }

    fn end_reading(&mut self) {
        let CollectPhase::Read(ids, newest) = &self.phase else { return };
        if ids.is_empty() {
            let newest = newest.clone();
            if newest.pins(newest.id) {
                self.evidence.pinned.note(&newest);
            }
            self.evidence.note(&newest);
            self.evidence.newest = Some(newest);
            // Manifests that were read above the old boundary and are below the new one are no
            // longer needed as proof; the last listing is compared with the new boundary.
            if let Some(allowance) = self.allowance {
                self.evidence.press(allowance, self.rules);
            }
            self.phase = if self.rules.has(Rule::CollectorOrder) {
                self.read_apps()
            } else {
                CollectPhase::Records(Append::look(self.database, self.rules))
            };
        }
    }

    /// A later version of an application ends earlier jobs, and only the closing object of a job
    /// contains its application (rule N11).
    fn read_apps(&mut self) -> CollectPhase {
        self.evidence.apps = self.known.apps_among(&self.evidence.listed);
        let mut jobs = self.evidence.unexplained();
        jobs.retain(|job| !self.known.apps.contains_key(job));
        if jobs.is_empty() { self.verify() } else { CollectPhase::Apps(jobs) }
    }

    fn verify(&self) -> CollectPhase {
        if self.rules.has(Rule::CollectorVerifies) { CollectPhase::Verify } else { self.decide() }
    }

    /// Checks that no manifest that counts had been freed when it was read: neither the newest one
    /// nor any above the boundary that this round will set. Pinned manifests are real as long as
    /// their checkpoint is present, which the newest manifest shows.
    fn on_verified(&mut self, boundary: ManifestId) {
        if boundary > self.reach() {
            self.give_up();
        } else {
            self.phase = self.decide();
        }
    }

    fn reach(&self) -> ManifestId {
        self.evidence.boundary()
    }

    fn give_up(&mut self) {
        self.report.overtaken = true;
        self.phase = CollectPhase::Done;
    }

    fn decide(&self) -> CollectPhase {
        if self.dry.is_some() {
            return CollectPhase::Done;
        }
        let verdict = dead(&self.evidence, self.rules);
        let manifest = verdict.manifest_boundary.map(ObjectName::ManifestBoundary);
        let wal = verdict.wal_boundary.map(ObjectName::WalBoundary);
        let records = verdict.record_boundary.map(ObjectName::CompactionsBoundary);
        // Names are taken from the end: the boundary of the manifests first.
        let names: Vec<ObjectName> = records.into_iter().chain(wal).chain(manifest).collect();
        if names.is_empty() || !self.rules.has(Rule::BoundaryFirst) {
            delete_phase(&verdict)
        } else {
            CollectPhase::Boundary(names, verdict)
        }
    }
}

/// By rule G1 the round begins with the objects; without the rule, with the step that should be
/// last.
fn first_phase(rules: Rules) -> CollectPhase {
    if rules.has(Rule::CollectorOrder) {
        CollectPhase::List
    } else {
        CollectPhase::Look(Look::new(None, rules))
    }
}

/// The state after the commit with which a real round would begin.
fn as_if_revoked(newest: &Arc<Manifest>, now: UnixMillis) -> Arc<Manifest> {
    let mut state = Manifest::clone(newest);
    state.checkpoints.retain(|one| !one.expired_at(now));
    state.leases.retain(|lease| !lease.expired_at(now));
    state.since_leases.retain(|lease| !lease.expired_at(now));
    state.holds.retain(|hold| !hold.expired_at(now));
    Arc::new(state)
}

/// Names are taken from the end.
fn delete_phase(verdict: &Verdict) -> CollectPhase {
    if verdict.deletes.is_empty() {
        return CollectPhase::Done;
    }
    CollectPhase::Delete(verdict.deletes.iter().rev().copied().collect())
}

/// The next names, all of one kind.
fn batch(names: &[ObjectName]) -> Vec<ObjectName> {
    let kind = names.last().map(|name| class(*name));
    let same = names.iter().rev().take_while(|name| Some(class(**name)) == kind);
    same.take(DELETE_BATCH).copied().collect()
}

/// Whether names of this kind are freed in ascending order behind a boundary.
fn is_ascending(name: ObjectName) -> bool {
    matches!(name, ObjectName::Manifest(_) | ObjectName::Wal(_) | ObjectName::Compactions(_))
}

#[cfg(test)]
mod tests;
