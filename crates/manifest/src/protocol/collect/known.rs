//! What goes from one round to the next, and which manifests a listing stands for.

use crate::gc::{ListedObject, PinnedName, PinnedNames};
use crate::ingest::JobApp;
use siltstone_base::{DatabaseId, JobId, ManifestId, ObjectName};
use std::collections::{BTreeMap, BTreeSet};

/// Manifests that may come between a listing and the look for the newest; more are numbers that a
/// database skips.
const MOST_UNLISTED: u64 = 1 << 16;

/// What a round has proven about manifests, which never change.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct ProvenManifests {
    pub(super) database: DatabaseId,
    /// Every manifest from the boundary up to here has been read.
    pub(super) through: ManifestId,
    /// As [`Evidence::named`](crate::gc::Evidence::named).
    pub(super) named: BTreeMap<ObjectName, ManifestId>,
    /// As [`Evidence::named_ancestors`](crate::gc::Evidence::named_ancestors).
    pub(super) named_ancestors: BTreeMap<u32, ManifestId>,
    /// As [`Evidence::kept`](crate::gc::Evidence::kept).
    pub(super) kept: BTreeMap<PinnedName, ManifestId>,
    /// What manifests of checkpoints and leases name.
    pub(super) pinned: PinnedNames,
    /// Whose versions jobs are that were listed; `None`: no application's.
    pub(super) apps: BTreeMap<JobId, Option<JobApp>>,
}

impl ProvenManifests {
    /// Whose versions those of `listed` jobs are that are known. Others are forgotten.
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

/// Every manifest above `from` and below `newest`: from the smallest that was listed on, each
/// number follows on the one before, but for those behind a database's first manifest, which may
/// stand apart from it. `None` where that cannot be told.
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
        // All of them came after the listing, or there are none.
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
