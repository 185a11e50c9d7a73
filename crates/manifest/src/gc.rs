//! The garbage collector's rule: which objects are dead (rules G2, M5, F5), as a pure function of
//! what was listed and read. [`Collect`](crate::protocol::Collect) gathers the evidence in the
//! order that makes it sound.
//!
//! Dead means dead for good: ids only grow, table names are never given twice, and a checkpoint can
//! pin only the newest version or what another present one pins. That is why two collectors at
//! once, and deletes that arrive late, are safe (rule G4).

use crate::rules::{Rule, Rules};
use crate::state::{Checkpoint, Manifest};
use siltstone_base::{JobId, ManifestId, ObjectName, SstId, UnixMillis, WalId};
use std::collections::HashSet;
use std::sync::Arc;

/// One object of a listing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ListedObject {
    /// Its name.
    pub name: ObjectName,
    /// When it was stored, by the store's clock.
    pub modified: UnixMillis,
}

/// Names that a compaction job's record reserves (rule R1).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct JobReservation {
    /// The job.
    pub job: JobId,
    /// Tables it has uploaded or may upload.
    pub outputs: Vec<SstId>,
}

/// What the collector learned, in the order of rule G1.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Evidence {
    /// Every object under the database's root, listed first.
    pub listed: Vec<ListedObject>,
    /// Every compaction job record, read next.
    pub jobs: Vec<JobReservation>,
    /// Tables that ingest jobs, staged or recorded in the WAL, still name; read with the jobs.
    pub ingesting: Vec<SstId>,
    /// The manifests above the new boundary, read last; the newest is the last one.
    pub manifests: Vec<Arc<Manifest>>,
    /// The manifests of the checkpoints that are present in the newest one.
    pub pinned: Vec<Arc<Manifest>>,
    /// Objects younger than this stay. Only delays; never a reason to delete.
    pub cutoff: UnixMillis,
}

/// What one round may do: boundaries first, then the deletes in this order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Verdict {
    /// New boundary of the manifests.
    pub manifest_boundary: Option<ManifestId>,
    /// New boundary of the WAL.
    pub wal_boundary: Option<WalId>,
    /// Dead objects: numbered ones ascending, boundaries that were passed, then tables.
    pub deletes: Vec<ObjectName>,
}

/// How far the boundary of the manifests may move, given a listing: past every manifest that was
/// superseded before `cutoff`, never onto the newest. Not before the present boundary.
#[must_use]
pub fn manifest_boundary(listed: &[ListedObject], cutoff: UnixMillis) -> Option<ManifestId> {
    let mut manifests: Vec<(ManifestId, UnixMillis)> = listed
        .iter()
        .filter_map(|object| match object.name {
            ObjectName::Manifest(id) => Some((id, object.modified)),
            _ => None,
        })
        .collect();
    manifests.sort();
    let present = manifest_boundary_now(listed);
    // A manifest was superseded when the next one was stored; a number missing in between was
    // freed already, or raced the listing, so only neighbours count above the boundary.
    let mut reached = None;
    for ((id, _), (next, superseded)) in manifests.iter().zip(manifests.iter().skip(1)) {
        if *id <= present {
            continue;
        }
        if *superseded > cutoff || *next != id.next() {
            break;
        }
        reached = Some(*id);
    }
    reached
}

/// The largest manifest boundary in a listing; none when there is none.
#[must_use]
pub fn manifest_boundary_now(listed: &[ListedObject]) -> ManifestId {
    let boundaries = listed.iter().filter_map(|object| match object.name {
        ObjectName::ManifestBoundary(id) => Some(id),
        _ => None,
    });
    boundaries.max().unwrap_or_default()
}

/// Which objects are dead. Nothing is, without a manifest.
#[must_use]
pub fn dead(evidence: &Evidence, rules: Rules) -> Verdict {
    let Some(newest) = evidence.manifests.last() else { return Verdict::default() };
    let mut verdict = Verdict {
        manifest_boundary: manifest_boundary(&evidence.listed, evidence.cutoff),
        ..Verdict::default()
    };
    let present = manifest_boundary_now(&evidence.listed);
    let boundary = verdict.manifest_boundary.unwrap_or(present).max(present);
    let mut manifests = dead_manifests(evidence, newest, boundary);
    let mut wal = dead_wal(evidence, newest, rules);
    let wal_now = wal_boundary_now(&evidence.listed);
    verdict.wal_boundary = wal.last().copied().filter(|last| *last > wal_now);
    let wal_boundary = verdict.wal_boundary.unwrap_or(wal_now);
    let alive = alive_tables(evidence, newest, rules);
    let old = |object: &&ListedObject| object.modified <= evidence.cutoff;
    let others = evidence.listed.iter().filter(old).map(|object| object.name);
    let mut boundaries = Vec::new();
    let mut tables = Vec::new();
    for name in others {
        match name {
            ObjectName::ManifestBoundary(id) if id < boundary.max(present) => boundaries.push(name),
            ObjectName::WalBoundary(id) if id < wal_boundary => boundaries.push(name),
            ObjectName::Compacted(id) if !alive.contains(&id) => tables.push(name),
            _ => {}
        }
    }
    manifests.sort();
    wal.sort();
    verdict.deletes.extend(manifests.into_iter().map(ObjectName::Manifest));
    verdict.deletes.extend(wal.into_iter().map(ObjectName::Wal));
    verdict.deletes.extend(boundaries);
    verdict.deletes.extend(tables);
    verdict
}

/// Manifests at or below the boundary that no present checkpoint pins. Those were superseded
/// longer ago than the grace period, or landed late in a freed slot.
fn dead_manifests(evidence: &Evidence, newest: &Manifest, boundary: ManifestId) -> Vec<ManifestId> {
    let pinned = |id| newest.checkpoints.iter().any(|one| one.manifest_id == id);
    let listed = evidence.listed.iter().filter_map(|object| match object.name {
        ObjectName::Manifest(id) => Some(id),
        _ => None,
    });
    listed.filter(|id| *id <= boundary && *id < newest.id && !pinned(*id)).collect()
}

/// The largest WAL boundary in a listing; none when there is none.
fn wal_boundary_now(listed: &[ListedObject]) -> WalId {
    let boundaries = listed.iter().filter_map(|object| match object.name {
        ObjectName::WalBoundary(id) => Some(id),
        _ => None,
    });
    boundaries.max().unwrap_or_default()
}

/// WAL objects below the replay point that nobody pins, ascending, up to the first one that is too
/// young: what lies below a boundary is either pinned or gone.
fn dead_wal(evidence: &Evidence, newest: &Manifest, rules: Rules) -> Vec<WalId> {
    let still_counts = |checkpoint: &&Checkpoint| {
        // Without the rule the collector trusts its clock instead of a commit.
        rules.has(Rule::RevokeFirst) || !checkpoint.expired_at(evidence.cutoff)
    };
    let checkpoints: Vec<&Checkpoint> = newest.checkpoints.iter().filter(still_counts).collect();
    let mut wal: Vec<(WalId, UnixMillis)> = evidence
        .listed
        .iter()
        .filter_map(|object| match object.name {
            ObjectName::Wal(id) if id < newest.replay_from => Some((id, object.modified)),
            _ => None,
        })
        .collect();
    wal.sort();
    let kept = |id: WalId| {
        newest.kept_fences.iter().any(|fence| fence.id == id)
            || checkpoints.iter().any(|checkpoint| checkpoint.pins_wal(id))
    };
    wal.retain(|(id, _)| !kept(*id));
    wal.into_iter()
        .take_while(|(_, modified)| *modified <= evidence.cutoff)
        .map(|(id, _)| id)
        .collect()
}

/// Tables that somebody names.
fn alive_tables(evidence: &Evidence, newest: &Manifest, rules: Rules) -> HashSet<SstId> {
    let mut alive: HashSet<SstId> = newest.tables().map(|table| table.id).collect();
    if rules.has(Rule::ManifestsKeepTables) {
        let named = evidence.manifests.iter().flat_map(|manifest| manifest.tables());
        alive.extend(named.map(|table| table.id));
    }
    for manifest in &evidence.pinned {
        let present = newest.checkpoints.iter().any(|one| {
            let counts = rules.has(Rule::RevokeFirst) || !one.expired_at(evidence.cutoff);
            one.manifest_id == manifest.id && counts
        });
        if present {
            alive.extend(manifest.tables().map(|table| table.id));
        }
    }
    if rules.has(Rule::HonourReservations) {
        alive.extend(&newest.reserved);
        let finished = |job: &JobId| newest.finished_jobs.iter().any(|done| done.job == *job);
        let running = evidence.jobs.iter().filter(|job| !finished(&job.job));
        alive.extend(running.flat_map(|job| &job.outputs));
        alive.extend(&evidence.ingesting);
    }
    alive
}

#[cfg(test)]
mod tests;
