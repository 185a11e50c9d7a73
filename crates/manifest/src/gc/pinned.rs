//! The names that pinned versions reference, without the manifests themselves.
//!
//! ```text
//! pinned versions   4      9      17
//! t1                x      x              4 to 9
//! t2                       x      x       9 to 17
//! ```
//! A version references every name in whose span it lies, if the name was recorded with it. So
//! every name that a present pin needs is found. A name that left and came back, by a restore, is
//! also kept for a pin in between: longer than necessary, never shorter. The spans are derived from
//! manifests, which never change, and are never stored.

use crate::state::Manifest;
use crate::state::clone::named_ancestors;
use siltstone_base::{JobId, ManifestId, ObjectName, SstDescriptor};
use std::collections::{BTreeMap, BTreeSet};

/// A name that a version needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum PinnedName {
    /// An object of this database: a table, or a table that the log may reference.
    Object(ObjectName),
    /// The objects staged by a pending ingest job.
    Job(JobId),
    /// An ancestor, by its number.
    Ancestor(u32),
}

/// Tables of large batches that the log of a manifest may reference (rule N14).
pub(super) fn left(manifest: &Manifest) -> impl Iterator<Item = ObjectName> {
    manifest.left.iter().copied().map(ObjectName::Compacted)
}

/// Names that the log of `manifest` may reference: reserved batch tables and pending jobs.
pub(super) fn named_by_log(manifest: &Manifest) -> impl Iterator<Item = PinnedName> {
    let pending = manifest.pending_ingests.iter().map(|one| PinnedName::Job(one.job));
    left(manifest).map(PinnedName::Object).chain(pending)
}

/// The names that the recorded versions need.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct PinnedNames {
    noted: BTreeSet<ManifestId>,
    /// The first and the last recorded version that references each name.
    spans: BTreeMap<PinnedName, (ManifestId, ManifestId)>,
}

impl PinnedNames {
    /// Records the names in `manifest`, a pinned version.
    pub fn note(&mut self, manifest: &Manifest) {
        let id = manifest.id;
        if !self.noted.insert(id) {
            return;
        }
        let mut note = |name: PinnedName| {
            let span = self.spans.entry(name).or_insert((id, id));
            *span = (span.0.min(id), span.1.max(id));
        };
        manifest.tables().map(SstDescriptor::name).map(PinnedName::Object).for_each(&mut note);
        named_by_log(manifest).for_each(&mut note);
        let ancestors = named_ancestors(manifest).into_iter();
        ancestors.for_each(|entry| note(PinnedName::Ancestor(entry.number)));
    }

    /// Whether the names of version `id` were recorded.
    #[must_use]
    pub fn has_noted(&self, id: ManifestId) -> bool {
        self.noted.contains(&id)
    }

    /// Forgets names that no version in `present` can need.
    pub fn retain(&mut self, present: &BTreeSet<ManifestId>) {
        self.noted.retain(|id| present.contains(id));
        self.spans.retain(|_, (first, last)| present.range(*first..=*last).next().is_some());
    }

    /// The names that the versions in `present` need, and possibly more. All of them were recorded.
    pub fn needed<'a>(
        &'a self,
        present: &'a BTreeSet<ManifestId>,
    ) -> impl Iterator<Item = PinnedName> + 'a {
        let needed = self
            .spans
            .iter()
            .filter(|(_, (first, last))| present.range(*first..=*last).next().is_some());
        needed.map(|(name, _)| *name)
    }
}
