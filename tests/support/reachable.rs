//! The objects that belong to a database: the reference for a collector. Written from RFC 0004 and
//! 0020, not from the collector.

use bytes::Bytes;
use siltstone::Error;
use siltstone_base::{ObjectName, SstDescriptor};
use siltstone_manifest::Manifest;
use siltstone_manifest::compaction::Compactions;
use std::collections::{BTreeMap, BTreeSet};

/// The differences between a store and the objects reachable in it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Difference {
    /// Referenced, and missing.
    pub dangling: Vec<ObjectName>,
    /// Stored, and unreferenced.
    pub garbage: Vec<ObjectName>,
}

/// Compares all objects of a store with the objects that the newest manifest among them, its
/// checkpoints and the newest record of jobs reference.
///
/// # Errors
/// Corruption for objects that do not decode.
pub fn difference(objects: &[(ObjectName, Bytes)]) -> Result<Difference, Error> {
    let there: BTreeMap<ObjectName, &Bytes> =
        objects.iter().map(|(name, bytes)| (*name, bytes)).collect();
    let (mut needed, mut allowed) = (BTreeSet::new(), BTreeSet::new());
    let numbers = there.keys().filter(|name| matches!(name, ObjectName::Manifest(_)));
    let Some(newest) = numbers.max() else { return Ok(Difference::default()) };
    let state = manifest(&there, *newest)?;
    name_version(*newest, &state, &mut needed);
    let kept = state.kept_from();
    let since = there.keys().filter_map(|name| match name {
        ObjectName::Manifest(id) => Some(*id).filter(|id| kept.is_some_and(|from| *id >= from)),
        _ => None,
    });
    let pinned = state.pinned_versions();
    for version in since.chain(pinned).collect::<BTreeSet<_>>() {
        let pinned = ObjectName::Manifest(version);
        needed.insert(pinned);
        if there.contains_key(&pinned) {
            name_version(pinned, &manifest(&there, pinned)?, &mut needed);
        }
    }
    needed.extend(state.kept_fences.iter().map(|fence| ObjectName::Wal(fence.id)));
    allowed.extend(state.reserved.iter().map(|table| ObjectName::Compacted(*table)));
    allowed.extend(there.keys().copied().filter(|name| match name {
        ObjectName::Wal(id) => {
            *id >= state.replay_from || state.checkpoints.iter().any(|one| one.pins_wal(*id))
        }
        // A repair continues from the manifest before the newest.
        ObjectName::Manifest(id) => state.follows(*id),
        ObjectName::ProbeRecord => true,
        _ => false,
    }));
    allowed.extend(last(&there, |name| matches!(name, ObjectName::ManifestBoundary(_))));
    allowed.extend(last(&there, |name| matches!(name, ObjectName::WalBoundary(_))));
    allowed.extend(last(&there, |name| matches!(name, ObjectName::CompactionsBoundary(_))));
    if let Some(record) = last(&there, |name| matches!(name, ObjectName::Compactions(_))) {
        allowed.insert(record);
        let bytes = there.get(&record).copied().cloned().unwrap_or_default();
        let (_, jobs) = Compactions::decode(&bytes)?;
        let finished = jobs.finished(&state);
        let left = jobs.reservations().into_iter().filter(|job| !finished.contains(&job.job));
        allowed.extend(left.flat_map(|job| job.outputs).map(ObjectName::Compacted));
    }
    let is_garbage = |name: &ObjectName| !needed.contains(name) && !allowed.contains(name);
    Ok(Difference {
        dangling: needed.iter().copied().filter(|name| !there.contains_key(name)).collect(),
        garbage: there.keys().copied().filter(is_garbage).collect(),
    })
}

fn manifest(there: &BTreeMap<ObjectName, &Bytes>, name: ObjectName) -> Result<Manifest, Error> {
    let bytes = there.get(&name).copied().cloned().unwrap_or_default();
    Ok(Manifest::decode(&bytes)?.1)
}

fn name_version(name: ObjectName, state: &Manifest, needed: &mut BTreeSet<ObjectName>) {
    needed.insert(name);
    needed.extend(state.tables().map(SstDescriptor::name));
}

fn last(
    there: &BTreeMap<ObjectName, &Bytes>,
    wanted: impl Fn(&ObjectName) -> bool,
) -> Option<ObjectName> {
    there.keys().copied().filter(|name| wanted(name)).max()
}
