//! Reads of manifests that are sent beside a listing, or beside each other: in a distant store each
//! round trip costs tens of milliseconds, and opening takes several looks.
//!
//! ```text
//! one by one:   list ─► first ─► next ─► newest
//! a first look: list ─► first, next, newest
//! a later look: list, first, next
//! ```
//! A read beside a listing may come before it. Three results are used all the same:
//!
//! - The number after the known manifest is absent. At the time of that read the slot was free, or
//!   had been freed; a later listing then shows a boundary, and an earlier one would have shown the
//!   manifest.
//! - The first manifest is absent, and the listing shows no manifest either: there was no database
//!   at the time of the read, unless the listing shows a boundary.
//! - The content of the first manifest, which never changes, if the listing shows that manifest.
//!   If another database was created there in between, the run does not reach the known manifest.
//!   An opener that created the first manifest does not read it.
//!
//! The newest manifest is read with its tag, if the store has tags. If the listing showed the same
//! object, that listing proves it ([`Look`](siltstone_manifest::protocol::Look)).
//!
//! A failed read is sent again in its turn.

use super::objects::Objects;
use futures::future::join_all;
use siltstone_base::{ManifestId, ObjectName};
use siltstone_manifest::Manifest;
use siltstone_manifest::protocol::{EndOfRun, ManifestAnswer};
use siltstone_store::ObjectTag;
use std::collections::HashMap;
use std::sync::Arc;

/// The results of one look for its next request.
#[derive(Default)]
pub(crate) struct ReadAhead {
    /// Whether the end of the run depended on the first manifest.
    needs_first: bool,
    /// The newest manifest, if it was read with the number that follows it, and whether it is the
    /// object that was listed.
    newest: Option<(ManifestId, Arc<Manifest>, bool)>,
    /// The first manifest, if this process created it just now.
    created_first: Option<Arc<Manifest>>,
    /// The commit that follows the look, if any.
    then: CommitAfter,
}

/// The commit that follows a look. The store's conditions are proven beside the look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum CommitAfter {
    /// None is known.
    #[default]
    Nothing,
    /// A commit, if there is a database. The proof begins once a manifest is listed.
    Edit,
    /// A commit, which creates the database if there is none. The proof begins at once.
    EditOrCreate,
}

impl ReadAhead {
    /// The manifest `id`, if it was read since the listing.
    pub(crate) fn take(&mut self, id: ManifestId) -> Option<ManifestAnswer> {
        let (_, manifest, is_listed) = self.newest.take().filter(|(found, ..)| *found == id)?;
        Some(match is_listed {
            true => ManifestAnswer::ReadAsListed(manifest),
            false => ManifestAnswer::Read(Some(manifest)),
        })
    }

    /// For a look that a commit follows.
    pub(crate) fn before(then: CommitAfter) -> ReadAhead {
        ReadAhead { then, ..ReadAhead::default() }
    }

    /// Whether the proof of the store's conditions begins beside a listing.
    pub(crate) fn begins_proof(&self) -> bool {
        self.then == CommitAfter::EditOrCreate
    }

    /// Notes that this process created `state`.
    pub(crate) fn note_created(&mut self, state: &Arc<Manifest>) {
        if state.id == ManifestId::FIRST {
            self.created_first = Some(Arc::clone(state));
        }
    }

    /// Notes how a run was found that ends at `end`, in a listing with these tags.
    pub(crate) fn note(
        &mut self,
        needs_first: bool,
        end: Option<ManifestId>,
        (found, tags): (EarlyReads, &ManifestTags),
    ) {
        self.needs_first = needs_first;
        let newest = found.0.into_iter().find(|read| Some(read.id) == end);
        self.newest = newest.and_then(|read| {
            let is_listed = read.tag.is_some() && read.tag == tags.get(&read.id).copied();
            Some((read.id, read.manifest?, is_listed))
        });
    }
}

/// The tags of listed manifests, where the store has tags.
pub(crate) type ManifestTags = HashMap<ManifestId, ObjectTag>;

/// Manifests that were read early.
#[derive(Default)]
pub(crate) struct EarlyReads(Vec<EarlyManifest>);

/// A manifest that was read early; `None` for one that did not exist.
struct EarlyManifest {
    id: ManifestId,
    manifest: Option<Arc<Manifest>>,
    tag: Option<ObjectTag>,
}

impl EarlyReads {
    pub(crate) fn get(&self, id: ManifestId) -> Option<Option<Arc<Manifest>>> {
        let found = self.0.iter().find(|read| read.id == id);
        found.map(|read| read.manifest.clone())
    }

    pub(crate) fn keep(&mut self, id: ManifestId, manifest: Option<Arc<Manifest>>) {
        self.0.push(EarlyManifest { id, manifest, tag: None });
    }
}

impl Objects {
    /// Whether a request takes so long that others are sent beside it.
    pub(crate) fn is_distant(&self) -> bool {
        !self.env.store.profile().answers_at_once
    }

    /// The reads beside a listing of the manifests after `after`. If none is known, and a database
    /// may be created, asks whether there is a first manifest.
    pub(crate) async fn beside_a_listing(
        &self,
        after: ManifestId,
        ahead: &ReadAhead,
    ) -> EarlyReads {
        let mut found = EarlyReads::default();
        if !self.is_distant() {
            return found;
        }
        if after.is_none() {
            let first = ObjectName::Manifest(ManifestId::FIRST);
            if ahead.then == CommitAfter::EditOrCreate
                && let Ok(None) = self.env.store.get(first, None).await
            {
                found.keep(ManifestId::FIRST, None);
            }
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

    /// Reads at once what `run` probably needs, and the newest manifest if it is above `after`. If
    /// a commit follows, proves the store's conditions beside the reads. A failed proof is repeated
    /// by the commit, which reports it.
    pub(crate) async fn read_at_once(
        &self,
        run: &EndOfRun,
        after: ManifestId,
        (found, ahead): (&mut EarlyReads, &ReadAhead),
    ) {
        let mut reads = run.probable_reads();
        let wanted = |id: &ManifestId| *id > after || *id == ManifestId::FIRST;
        reads.retain(|id| wanted(id) && found.get(*id).is_none());
        // One read alone is sent in its turn.
        if reads.len() < 2 || !self.is_distant() {
            return;
        }
        let reads = reads.into_iter().map(async |id| (id, self.manifest_tagged(id).await));
        let proof = async {
            if ahead.then != CommitAfter::Nothing {
                drop(self.env.store.ensure_conditions().await);
            }
        };
        for (id, read) in futures::join!(join_all(reads), proof).0 {
            let Ok(read) = read else { continue };
            let (manifest, tag) = read.map_or((None, None), |(read, tag)| (Some(read), tag));
            found.0.push(EarlyManifest { id, manifest, tag });
        }
    }
}
