//! The decision for each object, and its reason: the only rule for deletes, and the output of a dry
//! run.

use super::{
    Evidence, ListedObject, PinnedName, manifest_boundary_now, pinned::left, record_boundary_now,
    superseded,
};
use crate::ingest::{deadline, has_ended, stays_ended};
use crate::rules::{Rule, Rules};
use crate::state::{Checkpoint, FedSource, Hold, Manifest};
use siltstone_base::{JobId, ManifestId, ObjectName, SstDescriptor, UnixMillis, WalId};
use std::collections::{BTreeMap, BTreeSet, HashSet};

/// The decision for an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum CollectDecision {
    /// A process needs it.
    Alive(Alive),
    /// No process needs it, but a reader without a checkpoint may still request it: the grace
    /// period is not over, and the garbage is within its limit.
    Young,
    /// It is deleted.
    Dead(DeadReason),
}

/// Why an object stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Alive {
    /// The newest of its kind, or a later one.
    Newest,
    /// The manifest before the newest: a repair continues from it if the newest is damaged.
    Spare,
    /// The newest manifest names it.
    Tree,
    /// A present checkpoint pins it.
    Checkpoint,
    /// A present lease covers it.
    Lease,
    /// The writer reserved its name.
    Reserved,
    /// A compaction or an export that has not ended reserved its name.
    Job,
    /// A WAL object that a replay would read.
    Log,
    /// A consumer of the change feed holds it.
    Held,
    /// A fence that is kept permanently (rule F5).
    Fence,
    /// It is unreferenced since a repair, which may have lost the manifests that reference it (rule
    /// Y3).
    SinceRepair,
    /// Staged by a pending ingest job.
    Ingest,
    /// Staged by an ingest job that may still be requested.
    Staged,
    /// It records the application and version of the job whose tables are beside it; some of them
    /// stay.
    Origin,
    /// Kept permanently by its kind: the record of the store's abilities, keys, copies of a repair.
    Permanent,
    /// Unknown to the collector.
    Foreign,
}

/// Why an object is deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum DeadReason {
    /// Superseded longer ago than the grace period.
    Superseded,
    /// Already behind the boundary: an earlier round left it, or it landed late in a freed slot.
    Behind,
    /// Its rows are flushed to SSTs.
    Flushed,
    /// A boundary object below a higher one.
    Passed,
    /// No manifest above the boundary, checkpoint, reservation or job references it.
    Unnamed,
    /// Scratch of a process that ended.
    Scratch,
}

impl CollectDecision {
    /// The reason in words.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            CollectDecision::Alive(Alive::Newest) => "the newest of its kind",
            CollectDecision::Alive(Alive::Spare) => "a repair would continue from it",
            CollectDecision::Alive(Alive::Tree) => "the newest version has it",
            CollectDecision::Alive(Alive::Checkpoint) => "a checkpoint pins it",
            CollectDecision::Alive(Alive::Lease) => "a lease of readers covers it",
            CollectDecision::Alive(Alive::Reserved) => "the writer reserved its name",
            CollectDecision::Alive(Alive::Job) => "a job reserved its name",
            CollectDecision::Alive(Alive::Log) => "the next opener would replay it",
            CollectDecision::Alive(Alive::Held) => "a consumer of the change feed holds it",
            CollectDecision::Alive(Alive::Fence) => "a fence that is kept permanently",
            CollectDecision::Alive(Alive::SinceRepair) => {
                "unreferenced since a repair; kept until released"
            }
            CollectDecision::Alive(Alive::Ingest) => "a pending ingest job has it",
            CollectDecision::Alive(Alive::Staged) => "an ingest job may still bring it",
            CollectDecision::Alive(Alive::Origin) => {
                "it records the origin of tables that are kept"
            }
            CollectDecision::Alive(Alive::Permanent) => "kept permanently",
            CollectDecision::Alive(Alive::Foreign) => "unknown to the collector",
            CollectDecision::Young => "within the grace period",
            CollectDecision::Dead(DeadReason::Superseded) => "superseded by a newer one",
            CollectDecision::Dead(DeadReason::Behind) => "behind the boundary",
            CollectDecision::Dead(DeadReason::Flushed) => "already flushed to SSTs",
            CollectDecision::Dead(DeadReason::Passed) => "a higher boundary exists",
            CollectDecision::Dead(DeadReason::Unnamed) => "unreferenced",
            CollectDecision::Dead(DeadReason::Scratch) => "scratch of a process that ended",
        }
    }
}

/// Decides about every listed object. No object is dead without a manifest.
#[must_use]
pub fn of_all(evidence: &Evidence, rules: Rules) -> Vec<(ListedObject, CollectDecision)> {
    let listed = &evidence.listed;
    let Some(newest) = &evidence.newest else {
        let foreign = CollectDecision::Alive(Alive::Foreign);
        return listed.iter().map(|object| (*object, foreign)).collect();
    };
    let judge = ObjectJudge::new(evidence, newest, rules);
    listed.iter().map(|object| (*object, judge.fate(*object))).collect()
}

/// The boundaries after the round, and the references that keep tables alive.
struct ObjectJudge<'a> {
    evidence: &'a Evidence,
    newest: &'a Manifest,
    rules: Rules,
    /// Manifests: the current boundary, and the new one.
    manifests: (ManifestId, ManifestId),
    /// Records of jobs: the same.
    records: (u64, u64),
    newest_record: u64,
    /// The first manifest behind the boundary that was superseded within the grace period.
    first_young_manifest: ManifestId,
    /// The first WAL object that is unneeded but too young; later ones wait for it.
    first_young_wal: WalId,
    /// The WAL: the current boundary, and the new one.
    wal: (WalId, WalId),
    pinned: HashSet<ObjectName>,
    leased: HashSet<ObjectName>,
    reserved: HashSet<ObjectName>,
    jobs: HashSet<ObjectName>,
    tree: HashSet<ObjectName>,
    /// Ingest jobs that are pending in the newest or a pinned manifest, and jobs whose original
    /// tables a change feed still reads.
    ingests: HashSet<JobId>,
    /// Tables of large batches that a change feed still reads.
    fed: HashSet<ObjectName>,
    /// Folders of the units of compaction jobs that have not ended (rule U1).
    units: HashSet<JobId>,
    /// Jobs with a table that stays.
    staying: HashSet<JobId>,
}

impl<'a> ObjectJudge<'a> {
    fn new(evidence: &'a Evidence, newest: &'a Manifest, rules: Rules) -> ObjectJudge<'a> {
        let listed = &evidence.listed;
        let present = manifest_boundary_now(listed);
        let manifests = (present, evidence.boundary());
        let record_now = record_boundary_now(listed, newest.database);
        let record_moved = superseded(listed, record_now, evidence.cutoff).unwrap_or_default();
        let records = listed.iter().filter_map(|object| match object.name {
            ObjectName::Compactions(number) => Some(number),
            _ => None,
        });
        let mut judge = ObjectJudge {
            evidence,
            newest,
            rules,
            manifests,
            records: (record_now, record_moved.max(record_now)),
            newest_record: records.max().unwrap_or_default(),
            first_young_manifest: first_superseded_after(evidence, manifests.1),
            first_young_wal: WalId(u64::MAX),
            wal: (wal_boundary_now(listed), WalId::NONE),
            pinned: HashSet::new(),
            leased: HashSet::new(),
            reserved: HashSet::new(),
            jobs: HashSet::new(),
            tree: newest.tables().map(SstDescriptor::name).collect(),
            ingests: HashSet::new(),
            fed: HashSet::new(),
            units: HashSet::new(),
            staying: HashSet::new(),
        };
        judge.read_ingests(newest);
        judge.read_fed();
        judge.read_tables();
        judge.read_wal();
        judge.staying = judge.staying();
        judge
    }

    fn read_tables(&mut self) {
        let (evidence, newest) = (self.evidence, self.newest);
        let counted = newest.checkpoints.iter().filter(|one| self.counts(one));
        let checkpoints: BTreeSet<_> = counted.map(|one| one.manifest_id).collect();
        let leased = newest.leases.iter().flat_map(|lease| &lease.versions);
        let leased = leased.map(|version| version.manifest_id).filter(|id| self.is_leased(*id));
        let leased: BTreeSet<_> = leased.collect();
        let pinned = evidence.pinned.needed(&checkpoints);
        self.pinned = self.read_names(pinned);
        self.leased = self.read_names(evidence.pinned.needed(&leased));
        if self.rules.has(Rule::HonourReservations) {
            let reserved = newest.reserved.iter().copied();
            self.reserved.extend(reserved.map(ObjectName::Compacted));
        }
        if self.rules.has(Rule::HonourLeft) {
            self.reserved.extend(left(newest));
        }
        let finished = |job: &JobId| newest.finished_jobs.iter().any(|done| done.job == *job);
        let running = evidence.jobs.iter().filter(|job| !finished(&job.job));
        if self.rules.has(Rule::HonourUnits) {
            self.units.extend(running.clone().map(|job| JobId::of_units(job.job)));
        }
        if self.rules.has(Rule::HonourJobs) {
            let outputs = running.flat_map(|job| job.outputs.iter().copied());
            self.jobs.extend(outputs.map(ObjectName::Compacted));
        }
    }

    /// The objects among the names that pinned versions need; records their pending jobs.
    fn read_names(&mut self, names: impl Iterator<Item = PinnedName>) -> HashSet<ObjectName> {
        let pending = self.rules.has(Rule::HonourPending);
        let mut objects = HashSet::new();
        for name in names {
            match name {
                PinnedName::Object(name) => drop(objects.insert(name)),
                PinnedName::Job(job) if pending => drop(self.ingests.insert(job)),
                PinnedName::Job(_) | PinnedName::Ancestor(_) => {}
            }
        }
        objects
    }

    /// Records the objects that consumers of the change feed have not read yet (rule W4).
    fn read_fed(&mut self) {
        for one in &self.newest.fed {
            match one.source {
                FedSource::Job(job) => drop(self.ingests.insert(job)),
                FedSource::Table(table) => drop(self.fed.insert(ObjectName::Compacted(table))),
            }
        }
    }

    /// The log of a manifest may name the jobs that the manifest shows as pending.
    fn read_ingests(&mut self, manifest: &Manifest) {
        if self.rules.has(Rule::HonourPending) {
            self.ingests.extend(manifest.pending_ingests.iter().map(|one| one.job));
        }
    }

    /// Every object below the WAL's boundary is either needed or deleted, so the boundary moves up
    /// to the first object that is unneeded but too young.
    fn read_wal(&mut self) {
        let (present, cutoff) = (self.wal.0, self.evidence.readable_until());
        let unneeded = |(id, _): &(WalId, UnixMillis)| self.needed(*id).is_none();
        let unneeded: Vec<_> = wal_objects(self.evidence).filter(unneeded).collect();
        // No process trusts an object behind the boundary, even if it is young.
        let young = |(id, at): &&(WalId, UnixMillis)| *id > present && *at > cutoff;
        let young = unneeded.iter().filter(young).map(|(id, _)| *id).min();
        self.first_young_wal = young.unwrap_or(WalId(u64::MAX));
        let freed = unneeded.iter().map(|(id, _)| *id).filter(|id| *id < self.first_young_wal);
        self.wal.1 = freed.max().unwrap_or_default().max(present);
    }

    /// Whether a checkpoint counts as present. Without the rule the collector trusts its clock
    /// instead of a commit.
    fn counts(&self, checkpoint: &Checkpoint) -> bool {
        let trusted = self.rules.has(Rule::RevokeFirst);
        let present = trusted || !checkpoint.expired_at(self.evidence.cutoff);
        present && self.rules.has(Rule::HonourCheckpoints)
    }

    /// Whether a hold counts as present; as for checkpoints.
    fn holds(&self, hold: &Hold) -> bool {
        let trusted = self.rules.has(Rule::RevokeFirst);
        let present = trusted || !hold.expired_at(self.evidence.cutoff);
        present && self.rules.has(Rule::HonourHolds)
    }

    /// Whether a lease that counts as present covers the version; as for checkpoints.
    fn is_leased(&self, id: ManifestId) -> bool {
        let lease = self.newest.lease_of(id).filter(|_| self.rules.has(Rule::HonourLeases));
        let trusted = self.rules.has(Rule::RevokeFirst);
        lease.is_some_and(|lease| trusted || !lease.expired_at(self.evidence.cutoff))
    }

    fn old(&self, modified: UnixMillis) -> bool {
        modified <= self.evidence.cutoff
    }

    fn fate(&self, object: ListedObject) -> CollectDecision {
        match object.name {
            ObjectName::Manifest(id) => self.manifest(id),
            ObjectName::Wal(id) => match self.needed(id) {
                Some(alive) => CollectDecision::Alive(alive),
                None if id >= self.first_young_wal => CollectDecision::Young,
                None if id <= self.wal.0 => CollectDecision::Dead(DeadReason::Behind),
                None => CollectDecision::Dead(DeadReason::Flushed),
            },
            ObjectName::Compactions(number) => self.record(number),
            ObjectName::Compacted(_) => self.table(object.name),
            ObjectName::IngestSst(job, _) => self.staged(job, object.name),
            ObjectName::ManifestBoundary(id) => boundary(id < self.manifests.1),
            ObjectName::WalBoundary(id) => boundary(id < self.wal.1),
            ObjectName::CompactionsBoundary(number) => boundary(number < self.records.1),
            ObjectName::ProbeScratch(_) if self.old(object.modified) => {
                CollectDecision::Dead(DeadReason::Scratch)
            }
            ObjectName::ProbeScratch(_) => CollectDecision::Young,
            ObjectName::IngestManifest(job) => match self.of_job(job) {
                CollectDecision::Dead(_) if self.says_more(job) => {
                    CollectDecision::Alive(Alive::Origin)
                }
                fate => fate,
            },
            ObjectName::ProbeRecord
            | ObjectName::DamagedManifest(..)
            | ObjectName::DamagedWal(..)
            | ObjectName::DamagedTable(..)
            | ObjectName::DamagedCompactions(..)
            | ObjectName::EncryptionKey(_)
            | ObjectName::LogIdentity
            | ObjectName::TwoPhaseNamespace
            | ObjectName::TwoPhaseSource(..) => CollectDecision::Alive(Alive::Permanent),
        }
    }

    /// A manifest is dead if it is at or below the boundary and no present checkpoint or lease pins
    /// it. It was superseded longer ago than the grace period, or it landed late in a freed slot. A
    /// manifest that a limit on bytes put behind the boundary stays until it is old: it is small,
    /// and a reader that probes for it learns that it fell behind.
    fn manifest(&self, id: ManifestId) -> CollectDecision {
        if id >= self.newest.id {
            return CollectDecision::Alive(Alive::Newest);
        }
        if self.newest.follows(id) && self.rules.has(Rule::KeepManifestBefore) {
            return CollectDecision::Alive(Alive::Spare);
        }
        let honoured = self.rules.has(Rule::HonourCheckpoints);
        if honoured && self.newest.checkpoints.iter().any(|one| one.manifest_id == id) {
            return CollectDecision::Alive(Alive::Checkpoint);
        }
        if self.is_leased(id) {
            return CollectDecision::Alive(Alive::Lease);
        }
        match self.manifests {
            _ if id >= self.first_young_manifest => CollectDecision::Young,
            (present, _) if id <= present => CollectDecision::Dead(DeadReason::Behind),
            (_, boundary) if id <= boundary => CollectDecision::Dead(DeadReason::Superseded),
            _ => CollectDecision::Young,
        }
    }

    fn record(&self, number: u64) -> CollectDecision {
        match self.records {
            (present, _) if number <= present => CollectDecision::Dead(DeadReason::Behind),
            (_, boundary) if number <= boundary => CollectDecision::Dead(DeadReason::Superseded),
            _ if number == self.newest_record => CollectDecision::Alive(Alive::Newest),
            _ => CollectDecision::Young,
        }
    }

    /// The reason why the WAL object `id` is needed.
    fn needed(&self, id: WalId) -> Option<Alive> {
        let newest = self.newest;
        if id >= newest.replay_from {
            return Some(Alive::Log);
        }
        if newest.kept_fences.iter().any(|fence| fence.id == id) {
            return Some(Alive::Fence);
        }
        let mut pins = newest.checkpoints.iter();
        if pins.any(|one| self.counts(one) && one.pins_wal(id)) {
            return Some(Alive::Checkpoint);
        }
        let mut holds = newest.holds.iter().filter(|one| self.holds(one));
        holds.any(|one| one.wal_from <= id).then_some(Alive::Held)
    }

    /// Age does not matter: a process that may reference the table later has reserved it before it
    /// was listed, and reservations and manifests were read after that.
    fn table(&self, name: ObjectName) -> CollectDecision {
        let above = || self.evidence.named.get(&name).is_some_and(|last| *last > self.manifests.1);
        match self.keeper(name) {
            Some(alive) => CollectDecision::Alive(alive),
            None if self.rules.has(Rule::ManifestsKeepTables) && above() => CollectDecision::Young,
            None if self.is_in_a_log(PinnedName::Object(name)) => CollectDecision::Young,
            None if self.newest.features.keeps_tables() => {
                CollectDecision::Alive(Alive::SinceRepair)
            }
            None => CollectDecision::Dead(DeadReason::Unnamed),
        }
    }

    /// A table in a job's folder. Once a manifest references it, it is like any other table;
    /// otherwise it waits for its job. The record of compaction jobs was read after the listing,
    /// and the manifests after that: if a table was taken from the folder, it was committed before,
    /// or its job had ended.
    fn staged(&self, job: JobId, name: ObjectName) -> CollectDecision {
        let exports = self.newest.mirror.as_ref().and_then(|mirror| mirror.job);
        let exports = exports == Some(job) && self.rules.has(Rule::HonourExportJob);
        match self.table(name) {
            CollectDecision::Dead(_) if exports || self.units.contains(&job) => {
                CollectDecision::Alive(Alive::Job)
            }
            CollectDecision::Dead(_) if !job.is_of_an_export() && !job.is_of_units() => {
                self.of_job(job)
            }
            fate => fate,
        }
    }

    /// An object that an ingest job has staged and no manifest references. Age does not matter: the
    /// newest manifest was read after the listing, and a job that it shows as ended is never
    /// installed, even if objects land late (rule N10).
    fn of_job(&self, job: JobId) -> CollectDecision {
        let by_clock = !self.rules.has(Rule::HorizonFirst) && self.old(deadline(job));
        match self.ingests.contains(&job) {
            true => CollectDecision::Alive(Alive::Ingest),
            false if self.newest.features.keeps_tables() => {
                CollectDecision::Alive(Alive::SinceRepair)
            }
            false if self.is_in_a_log(PinnedName::Job(job)) => CollectDecision::Young,
            false if by_clock || self.has_ended(job) => CollectDecision::Dead(DeadReason::Unnamed),
            false => CollectDecision::Alive(Alive::Staged),
        }
    }

    /// Whether the log of a manifest above the boundary may reference `name`. The newest manifest
    /// has rules of its own.
    fn is_in_a_log(&self, name: PinnedName) -> bool {
        let between = |last: &ManifestId| *last > self.manifests.1 && *last < self.newest.id;
        let keeps = self.rules.has(Rule::ManifestsKeepPending);
        keeps && self.evidence.kept.get(&name).is_some_and(between)
    }

    fn has_ended(&self, job: JobId) -> bool {
        has_ended(self.newest, job, self.evidence.apps.get(&job))
    }

    /// Whether the closing object of the job will be needed to decide about tables that stay now: a
    /// later version's record may replace the record of this job (rule N11).
    fn says_more(&self, job: JobId) -> bool {
        let stays = self.rules.has(Rule::OriginStays) && self.staying.contains(&job);
        stays && !stays_ended(self.newest, job)
    }

    fn staying(&self) -> HashSet<JobId> {
        let listed = self.evidence.listed.iter();
        let stays = listed.filter_map(|object| match object.name {
            ObjectName::IngestSst(job, _) => {
                let fate = self.staged(job, object.name);
                (!matches!(fate, CollectDecision::Dead(_))).then_some(job)
            }
            _ => None,
        });
        stays.collect()
    }

    /// The reason why the table is needed, now or later.
    fn keeper(&self, name: ObjectName) -> Option<Alive> {
        let keepers = [
            (&self.tree, Alive::Tree),
            (&self.pinned, Alive::Checkpoint),
            (&self.leased, Alive::Lease),
            (&self.reserved, Alive::Reserved),
            (&self.jobs, Alive::Job),
            (&self.fed, Alive::Held),
        ];
        keepers.into_iter().find(|(tables, _)| tables.contains(&name)).map(|(_, alive)| alive)
    }
}

/// A boundary object: only the highest one matters.
fn boundary(passed: bool) -> CollectDecision {
    if passed {
        CollectDecision::Dead(DeadReason::Passed)
    } else {
        CollectDecision::Alive(Alive::Newest)
    }
}

/// The smallest manifest at or below `boundary` whose successor was stored within the grace period;
/// the one after `boundary` if there is none.
fn first_superseded_after(evidence: &Evidence, boundary: ManifestId) -> ManifestId {
    let stored = manifests(&evidence.listed);
    let lately = stored.range(..=boundary).map(|(id, _)| *id).find(|id| {
        let superseded = stored.get(&id.next());
        superseded.is_some_and(|at| *at > evidence.cutoff)
    });
    lately.unwrap_or(boundary.next())
}

/// The manifests in a listing, and when each was stored.
pub(super) fn manifests(listed: &[ListedObject]) -> BTreeMap<ManifestId, UnixMillis> {
    let manifests = listed.iter().filter_map(|object| match object.name {
        ObjectName::Manifest(id) => Some((id, object.modified)),
        _ => None,
    });
    manifests.collect()
}

/// The WAL objects in the listing, and when each was stored.
fn wal_objects(evidence: &Evidence) -> impl Iterator<Item = (WalId, UnixMillis)> {
    evidence.listed.iter().filter_map(|object| match object.name {
        ObjectName::Wal(id) => Some((id, object.modified)),
        _ => None,
    })
}

/// The largest WAL boundary in a listing; none if the listing has none.
pub(super) fn wal_boundary_now(listed: &[ListedObject]) -> WalId {
    let boundaries = listed.iter().filter_map(|object| match object.name {
        ObjectName::WalBoundary(id) => Some(id),
        _ => None,
    });
    boundaries.max().unwrap_or_default()
}
