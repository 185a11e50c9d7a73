//! Reads of manifests that are sent beside a listing, or beside each other: in a distant store each
//! round trip costs tens of milliseconds, and opening takes several looks.
//!
//! ```text
//! one by one:   list ─► first ─► next ─► newest
//! a first look: list ─► first, next, newest
//! a later look: list, first, next
//! ```
//! A read beside a listing may come before it. Two results are used all the same:
//!
//! - The number after the known manifest is absent. At the time of that read the slot was free, or
//!   had been freed; a later listing then shows a boundary, and an earlier one would have shown the
//!   manifest.
//! - The content of the first manifest, which never changes, if the listing shows that manifest.
//!   If another database was created there in between, the run does not reach the known manifest.
//!   An opener that created the first manifest does not read it.
//!
//! A failed read is sent again in its turn.

use super::objects::Objects;
use futures::future::join_all;
use siltstone_base::{ManifestId, ObjectName};
use siltstone_manifest::Manifest;
use siltstone_manifest::protocol::EndOfRun;
use std::sync::Arc;

/// What one look leaves for its next request.
#[derive(Default)]
pub(crate) struct ReadAhead {
    /// Whether the end of the run depended on the first manifest.
    needs_first: bool,
    /// The newest manifest, if it was read with the number that follows it.
    newest: Option<(ManifestId, Arc<Manifest>)>,
    /// The first manifest, if this process created it just now.
    created_first: Option<Arc<Manifest>>,
}

impl ReadAhead {
    /// The manifest `id`, if it was read since the listing.
    pub(crate) fn take(&mut self, id: ManifestId) -> Option<Arc<Manifest>> {
        let (found, manifest) = self.newest.take()?;
        (found == id).then_some(manifest)
    }

    /// Notes that this process created `state`.
    pub(crate) fn note_created(&mut self, state: &Arc<Manifest>) {
        if state.id == ManifestId::FIRST {
            self.created_first = Some(Arc::clone(state));
        }
    }

    /// Notes how a run was found that ends at `end`.
    pub(crate) fn note(&mut self, needs_first: bool, end: Option<ManifestId>, found: EarlyReads) {
        self.needs_first = needs_first;
        let newest = found.0.into_iter().find(|(id, _)| Some(*id) == end);
        self.newest = newest.and_then(|(id, found)| Some((id, found?)));
    }
}

/// Manifests that were read early; `None` for one that did not exist.
#[derive(Default)]
pub(crate) struct EarlyReads(Vec<(ManifestId, Option<Arc<Manifest>>)>);

impl EarlyReads {
    pub(crate) fn get(&self, id: ManifestId) -> Option<Option<Arc<Manifest>>> {
        let found = self.0.iter().find(|(read, _)| *read == id);
        found.map(|(_, manifest)| manifest.clone())
    }

    pub(crate) fn keep(&mut self, id: ManifestId, manifest: Option<Arc<Manifest>>) {
        self.0.push((id, manifest));
    }
}

impl Objects {
    /// Whether a request takes so long that others are sent beside it.
    pub(crate) fn is_distant(&self) -> bool {
        !self.env.store.profile().answers_at_once
    }

    /// The reads beside a listing of the manifests after `after`, which is known.
    pub(crate) async fn beside_a_listing(
        &self,
        after: ManifestId,
        ahead: &ReadAhead,
    ) -> EarlyReads {
        let mut found = EarlyReads::default();
        if after.is_none() || !self.is_distant() {
            return found;
        }
        let is_first = after == ManifestId::FIRST;
        let first = async {
            match &ahead.created_first {
                Some(created) => Some(Arc::clone(created)),
                None if ahead.needs_first && !is_first => {
                    self.manifest(ManifestId::FIRST).await.ok().flatten()
                }
                None => None,
            }
        };
        // The number that follows the first manifest is in that manifest.
        let next = match is_first {
            true => ahead.created_first.as_ref().map(|created| created.next_id()),
            false => Some(after.next()),
        };
        let is_free = async {
            let Some(next) = next else { return false };
            matches!(self.env.store.get(ObjectName::Manifest(next), None).await, Ok(None))
        };
        let (first, is_free) = futures::join!(first, is_free);
        if let Some(first) = first {
            found.keep(ManifestId::FIRST, Some(first));
        }
        if let Some(next) = next.filter(|_| is_free) {
            found.keep(next, None);
        }
        found
    }

    /// Reads at once what `run` probably needs, and the newest manifest if it is above `after`.
    pub(crate) async fn read_at_once(
        &self,
        run: &EndOfRun,
        after: ManifestId,
        found: &mut EarlyReads,
    ) {
        let mut reads = run.probable_reads();
        let wanted = |id: &ManifestId| *id > after || *id == ManifestId::FIRST;
        reads.retain(|id| wanted(id) && found.get(*id).is_none());
        // One read alone is sent in its turn.
        if reads.len() < 2 || !self.is_distant() {
            return;
        }
        let reads = reads.into_iter().map(async |id| (id, self.manifest(id).await));
        for (id, read) in join_all(reads).await {
            if let Ok(manifest) = read {
                found.keep(id, manifest);
            }
        }
    }
}
