//! The facts passed from one round to the next, and the manifests that a listing implies.

use crate::gc::{ListedObject, PinnedName, PinnedNames};
use crate::ingest::JobApp;
use siltstone_base::{DatabaseId, JobId, ManifestId, ObjectName};
use std::collections::{BTreeMap, BTreeSet};

/// Maximum number of manifests between a listing and the look for the newest; a larger difference
/// means numbers that the database skipped.
const MOST_UNLISTED: u64 = 1 << 16;

/// Facts about manifests that a round has proven; manifests never change.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct ProvenManifests {
    pub(super) database: DatabaseId,
    /// Every manifest from the boundary up to this one was read.
    pub(super) through: ManifestId,
    /// As [`Evidence::named`](crate::gc::Evidence::named).
    pub(super) named: BTreeMap<ObjectName, ManifestId>,
    /// As [`Evidence::named_ancestors`](crate::gc::Evidence::named_ancestors).
    pub(super) named_ancestors: BTreeMap<u32, ManifestId>,
    /// As [`Evidence::kept`](crate::gc::Evidence::kept).
    pub(super) kept: BTreeMap<PinnedName, ManifestId>,
    /// The names in manifests of checkpoints and leases.
    pub(super) pinned: PinnedNames,
    /// The applications of listed jobs; `None`: a job without an application.
    pub(super) apps: BTreeMap<JobId, Option<JobApp>>,
}

impl ProvenManifests {
    /// The applications of those `listed` jobs for which they are known. Other jobs are forgotten.
    pub(super) fn apps_among(&mut self, listed: &[ListedObject]) -> BTreeMap<JobId, JobApp> {
        let closed = listed.iter().filter_map(|object| match object.name {
            ObjectName::IngestManifest(job) => Some(job),
            _ => None,
        });
        let closed: BTreeSet<JobId> = closed.collect();
        self.apps.retain(|job, _| closed.contains(job));
        self.apps.iter().filter_map(|(job, app)| Some((*job, app.clone()?))).collect()
    }
}

/// Every manifest above `from` and below `newest`. From the smallest listed one on, each number
/// directly follows the previous one, except after the first manifest of a database, which may be
/// separate. `None` if they cannot be determined.
pub(super) fn between(
    listed: &[ListedObject],
    from: ManifestId,
    newest: ManifestId,
) -> Option<Vec<ManifestId>> {
    let manifests = listed.iter().filter_map(|object| match object.name {
        ObjectName::Manifest(id) if from < id && id < newest => Some(id),
        _ => None,
    });
    let mut above: Vec<ManifestId> = manifests.collect();
    above.sort_unstable();
    let numbers = |first: u64| (first..newest.get()).map(ManifestId).collect::<Vec<_>>();
    match above.as_slice() {
        // All of them were created after the listing, or there are none.
        [] if newest.get() - from.get() > MOST_UNLISTED => None,
        [] => Some(numbers(from.get() + 1)),
        [ManifestId::FIRST] if newest != ManifestId::FIRST.next() => None,
        [ManifestId::FIRST, next, ..] => {
            let all = std::iter::once(ManifestId::FIRST).chain(numbers(next.get()));
            Some(all.collect())
        }
        [first, ..] => Some(numbers(first.get())),
    }
}
