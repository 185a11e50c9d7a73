//! What becomes of each object, and why: the one rule behind every delete, and what a dry run
//! tells.

use super::{Evidence, ListedObject, manifest_boundary, manifest_boundary_now};
use crate::compaction::record::superseded;
use crate::rules::{Rule, Rules};
use crate::state::{Checkpoint, Manifest};
use siltstone_base::{JobId, ManifestId, ObjectName, SstId, UnixMillis, WalId};
use std::collections::HashSet;

/// What becomes of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Fate {
    /// Somebody needs it.
    Alive(Alive),
    /// Nobody names it, or soon nobody will, but the grace period is not over.
    Young,
    /// It goes.
    Dead(Dead),
}

/// Why an object stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Alive {
    /// The newest of its kind, or later.
    Newest,
    /// The newest manifest names it.
    Tree,
    /// A present checkpoint pins it.
    Checkpoint,
    /// The writer reserved its name.
    Reserved,
    /// A compaction job that has not ended reserved its name.
    Job,
    /// A WAL object that a replay would read.
    Log,
    /// A fence that stays for ever (rule F5).
    Fence,
    /// Not the collector's to judge.
    Foreign,
}

/// Why an object goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Dead {
    /// Superseded longer ago than the grace period.
    Superseded,
    /// Behind the boundary already: an earlier round left it, or it landed late in a freed slot.
    Behind,
    /// What is in it is in tables.
    Flushed,
    /// A boundary object under a higher one.
    Passed,
    /// No manifest above the boundary, checkpoint, reservation or job names it.
    Unnamed,
    /// Scratch of a process that died.
    Scratch,
}

impl Fate {
    /// The reason in words.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Fate::Alive(Alive::Newest) => "the newest of its kind",
            Fate::Alive(Alive::Tree) => "the newest version has it",
            Fate::Alive(Alive::Checkpoint) => "a checkpoint pins it",
            Fate::Alive(Alive::Reserved) => "the writer reserved its name",
            Fate::Alive(Alive::Job) => "a compaction reserved its name",
            Fate::Alive(Alive::Log) => "the next opener would replay it",
            Fate::Alive(Alive::Fence) => "a fence that stays for ever",
            Fate::Alive(Alive::Foreign) => "not the collector's to judge",
            Fate::Young => "within the grace period",
            Fate::Dead(Dead::Superseded) => "superseded by a newer one",
            Fate::Dead(Dead::Behind) => "behind the boundary",
            Fate::Dead(Dead::Flushed) => "what is in it is in tables",
            Fate::Dead(Dead::Passed) => "a higher boundary stands",
            Fate::Dead(Dead::Unnamed) => "nothing names it",
            Fate::Dead(Dead::Scratch) => "scratch of a process that ended",
        }
    }
}

/// What becomes of every listed object. Nothing is dead without a manifest.
#[must_use]
pub fn of_all(evidence: &Evidence, rules: Rules) -> Vec<(ListedObject, Fate)> {
    let listed = &evidence.listed;
    let Some(newest) = &evidence.newest else {
        let foreign = Fate::Alive(Alive::Foreign);
        return listed.iter().map(|object| (*object, foreign)).collect();
    };
    let judge = Judge::new(evidence, newest, rules);
    listed.iter().map(|object| (*object, judge.fate(*object))).collect()
}

/// Boundaries as they will be, and what tables live by.
struct Judge<'a> {
    evidence: &'a Evidence,
    newest: &'a Manifest,
    rules: Rules,
    /// Manifests: the boundary there is, and where it moves.
    manifests: (ManifestId, ManifestId),
    /// Records of jobs: likewise.
    records: (u64, u64),
    newest_record: u64,
    /// The first WAL object that nobody needs and that is too young; those above wait for it.
    first_young_wal: WalId,
    wal_boundary: WalId,
    pinned: HashSet<SstId>,
    reserved: HashSet<SstId>,
    jobs: HashSet<SstId>,
    tree: HashSet<SstId>,
}

impl<'a> Judge<'a> {
    fn new(evidence: &'a Evidence, newest: &'a Manifest, rules: Rules) -> Judge<'a> {
        let listed = &evidence.listed;
        let present = manifest_boundary_now(listed);
        let moved = manifest_boundary(listed, evidence.cutoff).unwrap_or_default();
        let record_now = record_boundary_now(listed);
        let record_moved = superseded(listed, evidence.cutoff).unwrap_or_default();
        let records = listed.iter().filter_map(|object| match object.name {
            ObjectName::Compactions(number) => Some(number),
            _ => None,
        });
        let mut judge = Judge {
            evidence,
            newest,
            rules,
            manifests: (present, moved.max(present)),
            records: (record_now, record_moved.max(record_now)),
            newest_record: records.max().unwrap_or_default(),
            first_young_wal: WalId(u64::MAX),
            wal_boundary: wal_boundary_now(listed),
            pinned: HashSet::new(),
            reserved: HashSet::new(),
            jobs: HashSet::new(),
            tree: newest.tables().map(|table| table.id).collect(),
        };
        judge.read_tables();
        judge.read_wal();
        judge
    }

    fn read_tables(&mut self) {
        let (evidence, newest) = (self.evidence, self.newest);
        let honoured = self.rules.has(Rule::HonourCheckpoints);
        for manifest in evidence.pinned.iter().filter(|_| honoured) {
            let mut pins = newest.checkpoints.iter();
            if pins.any(|one| one.manifest_id == manifest.id && self.counts(one)) {
                self.pinned.extend(manifest.tables().map(|table| table.id));
            }
        }
        if self.rules.has(Rule::HonourReservations) {
            self.reserved.extend(&newest.reserved);
        }
        if self.rules.has(Rule::HonourJobs) {
            let finished = |job: &JobId| newest.finished_jobs.iter().any(|done| done.job == *job);
            let running = evidence.jobs.iter().filter(|job| !finished(&job.job));
            self.jobs.extend(running.flat_map(|job| &job.outputs));
        }
    }

    /// What lies below the WAL's boundary is either needed or gone, so it moves up to the first
    /// one that nobody needs and that is too young.
    fn read_wal(&mut self) {
        let listed = self.evidence.listed.iter().filter_map(|object| match object.name {
            ObjectName::Wal(id) if self.needed(id).is_none() => Some((id, object.modified)),
            _ => None,
        });
        let young = listed.filter(|(_, modified)| *modified > self.evidence.cutoff);
        self.first_young_wal = young.map(|(id, _)| id).min().unwrap_or(WalId(u64::MAX));
        let freed = self.evidence.listed.iter().filter_map(|object| match object.name {
            ObjectName::Wal(id) if self.needed(id).is_none() => Some(id),
            _ => None,
        });
        let freed = freed.filter(|id| *id < self.first_young_wal).max().unwrap_or_default();
        self.wal_boundary = self.wal_boundary.max(freed);
    }

    /// Whether a checkpoint counts as present. Without the rule the collector trusts its clock
    /// instead of a commit.
    fn counts(&self, checkpoint: &Checkpoint) -> bool {
        let trusted = self.rules.has(Rule::RevokeFirst);
        let present = trusted || !checkpoint.expired_at(self.evidence.cutoff);
        present && self.rules.has(Rule::HonourCheckpoints)
    }

    fn old(&self, modified: UnixMillis) -> bool {
        modified <= self.evidence.cutoff
    }

    fn fate(&self, object: ListedObject) -> Fate {
        match object.name {
            ObjectName::Manifest(id) => self.manifest(id),
            ObjectName::Wal(id) => match self.needed(id) {
                Some(alive) => Fate::Alive(alive),
                None if id >= self.first_young_wal => Fate::Young,
                None => Fate::Dead(Dead::Flushed),
            },
            ObjectName::Compactions(number) => self.record(number),
            ObjectName::Compacted(id) => self.table(id, object.modified),
            ObjectName::ManifestBoundary(id) => self.boundary(object, id < self.manifests.1),
            ObjectName::WalBoundary(id) => self.boundary(object, id < self.wal_boundary),
            ObjectName::CompactionsBoundary(number) => {
                self.boundary(object, number < self.records.1)
            }
            ObjectName::ProbeScratch(_) if self.old(object.modified) => Fate::Dead(Dead::Scratch),
            ObjectName::ProbeScratch(_) => Fate::Young,
            ObjectName::ProbeRecord | ObjectName::IngestManifest(_) | ObjectName::IngestSst(..) => {
                Fate::Alive(Alive::Foreign)
            }
        }
    }

    /// At or below the boundary, and pinned by no present checkpoint: superseded longer ago than
    /// the grace period, or landed late in a freed slot.
    fn manifest(&self, id: ManifestId) -> Fate {
        if id >= self.newest.id {
            return Fate::Alive(Alive::Newest);
        }
        let honoured = self.rules.has(Rule::HonourCheckpoints);
        if honoured && self.newest.checkpoints.iter().any(|one| one.manifest_id == id) {
            return Fate::Alive(Alive::Checkpoint);
        }
        match self.manifests {
            (present, _) if id <= present => Fate::Dead(Dead::Behind),
            (_, boundary) if id <= boundary => Fate::Dead(Dead::Superseded),
            _ => Fate::Young,
        }
    }

    fn record(&self, number: u64) -> Fate {
        match self.records {
            (present, _) if number <= present => Fate::Dead(Dead::Behind),
            (_, boundary) if number <= boundary => Fate::Dead(Dead::Superseded),
            _ if number == self.newest_record => Fate::Alive(Alive::Newest),
            _ => Fate::Young,
        }
    }

    /// Who needs the WAL object `id`.
    fn needed(&self, id: WalId) -> Option<Alive> {
        let newest = self.newest;
        if id >= newest.replay_from {
            return Some(Alive::Log);
        }
        if newest.kept_fences.iter().any(|fence| fence.id == id) {
            return Some(Alive::Fence);
        }
        let mut pins = newest.checkpoints.iter();
        pins.any(|one| self.counts(one) && one.pins_wal(id)).then_some(Alive::Checkpoint)
    }

    fn table(&self, id: SstId, modified: UnixMillis) -> Fate {
        let above = || self.evidence.named.get(&id).is_some_and(|last| *last > self.manifests.1);
        if self.tree.contains(&id) {
            Fate::Alive(Alive::Tree)
        } else if self.pinned.contains(&id) {
            Fate::Alive(Alive::Checkpoint)
        } else if self.reserved.contains(&id) {
            Fate::Alive(Alive::Reserved)
        } else if self.jobs.contains(&id) {
            Fate::Alive(Alive::Job)
        } else if !self.old(modified) || (self.rules.has(Rule::ManifestsKeepTables) && above()) {
            Fate::Young
        } else {
            Fate::Dead(Dead::Unnamed)
        }
    }

    fn boundary(&self, object: ListedObject, passed: bool) -> Fate {
        match passed {
            false => Fate::Alive(Alive::Newest),
            true if self.old(object.modified) => Fate::Dead(Dead::Passed),
            true => Fate::Young,
        }
    }
}

/// The largest WAL boundary in a listing; none when there is none.
pub(super) fn wal_boundary_now(listed: &[ListedObject]) -> WalId {
    let boundaries = listed.iter().filter_map(|object| match object.name {
        ObjectName::WalBoundary(id) => Some(id),
        _ => None,
    });
    boundaries.max().unwrap_or_default()
}

/// The largest boundary of job records in a listing; 0 when there is none.
fn record_boundary_now(listed: &[ListedObject]) -> u64 {
    let boundaries = listed.iter().filter_map(|object| match object.name {
        ObjectName::CompactionsBoundary(number) => Some(number),
        _ => None,
    });
    boundaries.max().unwrap_or_default()
}
