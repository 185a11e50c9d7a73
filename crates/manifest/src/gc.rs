//! The rules of garbage collection: which objects are dead (rules G2, M5, F5), as a pure function
//! of the objects listed and the manifests read. [`Collect`](crate::protocol::Collect) gathers the
//! evidence in a safe order; [`fate`] has the rule for each kind of object.
//!
//! A dead object stays dead: ids only grow, table names are never reused, and a checkpoint can pin
//! only the newest version or the version of another present checkpoint. So two collectors at the
//! same time, and deletes that arrive late, are safe (rule G4).

mod allowance;
pub mod fate;
mod pinned;

pub use allowance::Allowance;
pub use fate::CollectDecision;
use pinned::named_by_log;
pub use pinned::{PinnedName, PinnedNames};

use crate::compaction::record::JobReservation;
use crate::edit::HoldExcess;
use crate::ingest::{JobApp, has_ended, pending};
use crate::rules::Rules;
use crate::state::clone::named_ancestors;
use crate::state::{FedSource, Hold, Manifest};
use siltstone_base::{DatabaseId, JobId, ManifestId, ObjectName, SstDescriptor, UnixMillis, WalId};
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;

/// One object in a listing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ListedObject {
    /// Its name.
    pub name: ObjectName,
    /// When it was stored, by the clock of the store.
    pub modified: UnixMillis,
    /// Its length.
    pub bytes: u64,
}

/// The evidence of a collector, in the order of rule G1.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Evidence {
    /// Every object under the database's root, listed first.
    pub listed: Vec<ListedObject>,
    /// The names reserved by the newest record of compaction jobs, read next.
    pub jobs: Vec<JobReservation>,
    /// The applications of jobs, from their closing objects, which never change.
    pub apps: BTreeMap<JobId, JobApp>,
    /// The newest manifest; all manifests are read last.
    pub newest: Option<Arc<Manifest>>,
    /// The last manifest that references each table, of those above the new boundary. A table is
    /// added by one manifest and removed permanently by a later one, so all manifests in between
    /// reference it.
    pub named: BTreeMap<ObjectName, ManifestId>,
    /// The last manifest that references a table in each ancestor, by the number of the ancestor.
    pub named_ancestors: BTreeMap<u32, ManifestId>,
    /// The names in manifests of checkpoints and leases that are present in the newest manifest.
    pub pinned: PinnedNames,
    /// The first version covered by a since-lease of the newest manifest: no boundary reaches it
    /// (rule L7).
    pub kept_from: Option<ManifestId>,
    /// As `named`: the last version that contains each pending job and reserved batch name (rules
    /// M5, L8).
    pub kept: BTreeMap<PinnedName, ManifestId>,
    /// Objects that became garbage after this time stay, if readers without a checkpoint may still
    /// request them. It only delays deletes; it is never a reason for one.
    pub cutoff: UnixMillis,
    /// As `cutoff`, raised until the garbage of tables and WAL is within the allowance.
    pub pressed: UnixMillis,
}

impl Evidence {
    /// Objects that became garbage up to this time may be deleted: tables referenced only by older
    /// manifests, and the WAL.
    #[must_use]
    pub fn readable_until(&self) -> UnixMillis {
        self.cutoff.max(self.pressed)
    }

    /// Raises the cut-off until the garbage that stays because of its age is within `allowance`:
    /// the oldest is deleted first. All other evidence must be complete.
    pub fn press(&mut self, allowance: Allowance, rules: Rules) {
        self.pressed = allowance.cutoff(self, rules);
    }

    /// Records the tables that a manifest references.
    pub fn note(&mut self, manifest: &Manifest) {
        let ancestors = named_ancestors(manifest).into_iter().map(|entry| entry.number);
        note_last(&mut self.named, manifest.tables().map(SstDescriptor::name), manifest.id);
        note_last(&mut self.named_ancestors, ancestors, manifest.id);
        note_last(&mut self.kept, named_by_log(manifest), manifest.id);
    }

    /// The boundary of the manifests after this round.
    #[must_use]
    pub fn boundary(&self) -> ManifestId {
        let moved = manifest_boundary(&self.listed, self.readable_until(), self.kept_from);
        moved.unwrap_or_default().max(manifest_boundary_now(&self.listed))
    }

    /// Jobs for which only the closing object shows whether they have ended permanently: those that
    /// may belong to an application. All other evidence must be complete.
    #[must_use]
    pub fn unexplained(&self) -> Vec<JobId> {
        let Some(newest) = &self.newest else { return Vec::new() };
        if newest.ingest_apps.is_empty() && newest.forgotten_apps.count == 0 {
            return Vec::new();
        }
        let closed = self.listed.iter().filter_map(|object| match object.name {
            ObjectName::IngestManifest(job) => Some(job),
            _ => None,
        });
        let asked = |job: &JobId| pending(newest, *job).is_some();
        let others = |job: &JobId| job.is_of_an_export() || job.is_of_units();
        let open = |job: &JobId| !others(job) && !has_ended(newest, *job, None) && !asked(job);
        closed.filter(open).collect()
    }

    /// Ancestors that no manifest can reference again (rule K5): none of their tables is in the
    /// newest manifest, in one above `boundary`, or in a pinned one. All other evidence must be
    /// complete.
    #[must_use]
    pub fn detachable(&self, boundary: ManifestId) -> Vec<u32> {
        let Some(newest) = &self.newest else { return Vec::new() };
        let versions = newest.pinned_versions();
        let pinned = self.pinned.needed(&versions).filter_map(|name| match name {
            PinnedName::Ancestor(number) => Some(number),
            _ => None,
        });
        let named = named_ancestors(newest).into_iter().map(|entry| entry.number);
        let pinned: BTreeSet<u32> = pinned.chain(named).collect();
        let is_named = |number: u32| {
            let last = self.named_ancestors.get(&number);
            pinned.contains(&number) || last.is_some_and(|last| *last > boundary)
        };
        let all = newest.ancestors.iter().map(|entry| entry.number);
        all.filter(|number| !is_named(*number)).collect()
    }
}

/// Records that manifest `id` references these names.
fn note_last<K: Ord>(
    last: &mut BTreeMap<K, ManifestId>,
    names: impl Iterator<Item = K>,
    id: ManifestId,
) {
    for name in names {
        let last = last.entry(name).or_default();
        *last = id.max(*last);
    }
}

/// The result of a round: first the boundaries, then the deletes in this order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Verdict {
    /// New boundary of the manifests.
    pub manifest_boundary: Option<ManifestId>,
    /// New boundary of the WAL.
    pub wal_boundary: Option<WalId>,
    /// New boundary of the records of compaction jobs.
    pub record_boundary: Option<u64>,
    /// Dead objects: numbered ones ascending, then passed boundaries, then the others.
    pub deletes: Vec<ObjectName>,
}

/// How far the boundary of the manifests may move, given a listing: past every manifest that was
/// superseded before `cutoff`. It never passes the newest manifest, nor one that a since-lease
/// covers, which is every one from `kept_from` on. It never moves back.
#[must_use]
pub fn manifest_boundary(
    listed: &[ListedObject],
    cutoff: UnixMillis,
    kept_from: Option<ManifestId>,
) -> Option<ManifestId> {
    let manifests = fate::manifests(listed);
    let present = manifest_boundary_now(listed);
    // A manifest was superseded when the next one was stored. A number missing in between was freed
    // already, or was stored during the listing, so above the boundary only neighbours count.
    let mut reached = None;
    for ((id, _), (next, superseded)) in manifests.iter().zip(manifests.iter().skip(1)) {
        if *id <= present {
            continue;
        }
        // The first manifest's number may be separate from the following ones.
        let follows = *next == id.next() || *id == ManifestId::FIRST;
        if *superseded > cutoff || !follows || kept_from.is_some_and(|kept| *id >= kept) {
            break;
        }
        // Up to the number before the next one, so that the boundary shows where the numbers
        // continue.
        let passed = next.minus(1);
        reached = Some(kept_from.map_or(passed, |kept| passed.min(kept.minus(1))));
    }
    reached
}

/// The largest manifest boundary in a listing; none if the listing has none.
#[must_use]
pub fn manifest_boundary_now(listed: &[ListedObject]) -> ManifestId {
    let boundaries = listed.iter().filter_map(|object| match object.name {
        ObjectName::ManifestBoundary(id) => Some(id),
        _ => None,
    });
    boundaries.max().unwrap_or_default()
}

/// How far the boundary of the records may move, given a listing: past every record that was
/// superseded at or before `cutoff`, never past the newest, and not back from `present`, its
/// current value. The boundary object is created first; then the records up to it are deleted in
/// ascending order, with older boundary objects.
pub(crate) fn superseded(listed: &[ListedObject], present: u64, cutoff: UnixMillis) -> Option<u64> {
    let records = listed.iter().filter_map(|object| match object.name {
        ObjectName::Compactions(number) if number > present => Some((number, object.modified)),
        _ => None,
    });
    let mut records: Vec<(u64, UnixMillis)> = records.collect();
    records.sort_unstable();
    // A record is superseded when its successor is stored; one that is missing in between was
    // stored during the listing.
    let pairs = records.iter().zip(records.iter().skip(1));
    let passed = pairs.take_while(|((number, _), (next, stored))| {
        *stored <= cutoff && *next == number.saturating_add(1)
    });
    passed.map(|((number, _), _)| *number).last()
}

/// The boundary of the records of `database` in a listing: 0 before the first one. Numbers below
/// the first number of its records are always behind it.
pub(crate) fn record_boundary_now(listed: &[ListedObject], database: DatabaseId) -> u64 {
    let boundaries = listed.iter().filter_map(|object| match object.name {
        ObjectName::CompactionsBoundary(number) => Some(number),
        _ => None,
    });
    boundaries.max().unwrap_or_default().max(database.counts_from() - 1)
}

/// Holds of `state` that retain more bytes than their limit, given a listing (rule W5).
pub(crate) fn overdrawn(listed: &[ListedObject], state: &Manifest) -> Vec<HoldExcess> {
    let bounded = state.holds.iter().filter(|hold| hold.most_bytes.is_some());
    if bounded.clone().next().is_none() {
        return Vec::new();
    }
    let tree: HashSet<ObjectName> = state.tables().map(SstDescriptor::name).collect();
    let over =
        bounded.filter(|hold| Some(kept_bytes(listed, state, &tree, hold)) > hold.most_bytes);
    let found = over.map(|hold| HoldExcess {
        name: hold.name.clone(),
        generation: hold.generation,
        wal_from: hold.wal_from,
    });
    found.collect()
}

/// Bytes that `hold` retains: the log from its position on, and the tables of later ingests and
/// large batches, except objects that are also tables of the tree.
fn kept_bytes(
    listed: &[ListedObject],
    state: &Manifest,
    tree: &HashSet<ObjectName>,
    hold: &Hold,
) -> u64 {
    let fed = state.fed.iter().filter(|one| one.seq > hold.seq).map(|one| one.source);
    let fed: HashSet<FedSource> = fed.collect();
    let kept = listed.iter().filter(|object| {
        let source = match object.name {
            ObjectName::Wal(id) => return id >= hold.wal_from,
            ObjectName::IngestSst(job, _) => FedSource::Job(job),
            ObjectName::Compacted(table) => FedSource::Table(table),
            _ => return false,
        };
        fed.contains(&source) && !tree.contains(&object.name)
    });
    kept.map(|object| object.bytes).sum()
}

/// Decides which objects are dead. Without a manifest none is.
#[must_use]
pub fn dead(evidence: &Evidence, rules: Rules) -> Verdict {
    let fates = fate::of_all(evidence, rules);
    let dead = fates.into_iter().filter(|(_, fate)| matches!(fate, CollectDecision::Dead(_)));
    let mut deletes: Vec<ObjectName> = dead.map(|(object, _)| object.name).collect();
    deletes.sort_by_key(|name| (class(*name), *name));
    let last = |wanted: fn(&ObjectName) -> Option<u64>| {
        deletes.iter().filter_map(wanted).max().unwrap_or_default()
    };
    let wal = WalId(last(|name| match name {
        ObjectName::Wal(id) => Some(id.get()),
        _ => None,
    }));
    let Some(newest) = &evidence.newest else { return Verdict::default() };
    let listed = &evidence.listed;
    let records = record_boundary_now(listed, newest.database);
    Verdict {
        manifest_boundary: manifest_boundary(listed, evidence.readable_until(), evidence.kept_from),
        wal_boundary: (wal > fate::wal_boundary_now(listed)).then_some(wal),
        record_boundary: superseded(listed, records, evidence.cutoff),
        deletes,
    }
}

/// The order in which kinds of names are deleted.
pub(crate) fn class(name: ObjectName) -> u8 {
    match name {
        ObjectName::Manifest(_) => 0,
        ObjectName::Wal(_) => 1,
        ObjectName::Compactions(_) => 2,
        ObjectName::ManifestBoundary(_)
        | ObjectName::WalBoundary(_)
        | ObjectName::CompactionsBoundary(_) => 3,
        // Only this object shows the next round which tables could not be deleted.
        ObjectName::IngestManifest(_) => 5,
        _ => 4,
    }
}

#[cfg(test)]
mod tests;
