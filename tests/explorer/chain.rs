//! The chain of manifests, served by a store that contains every manifest ever created.

use siltstone_base::{AttemptId, ManifestId, PutOutcome};
use siltstone_manifest::Manifest;
use siltstone_manifest::protocol::{Listing, ManifestAnswer, ManifestRequest};
use std::collections::BTreeMap;
use std::sync::Arc;

/// All manifests, by their ids.
pub(crate) type Chain = BTreeMap<ManifestId, Arc<Manifest>>;

/// The newest one.
pub(crate) fn newest(chain: &Chain) -> Arc<Manifest> {
    chain.values().next_back().expect("a database").clone()
}

/// The answer to a request, if the boundary says that ids up to `freed` may have been freed.
pub(crate) fn serve(
    chain: &mut Chain,
    freed: ManifestId,
    request: ManifestRequest,
) -> ManifestAnswer {
    match request {
        ManifestRequest::Create(manifest) => {
            let there = chain.entry(manifest.id).or_insert_with(|| manifest.clone());
            let own = *there == manifest;
            let outcome = if own { PutOutcome::Committed } else { PutOutcome::Lost(()) };
            ManifestAnswer::Created(outcome, AttemptId::NONE)
        }
        ManifestRequest::List { after } => {
            let ids: Vec<ManifestId> = chain.keys().copied().collect();
            ManifestAnswer::Listed(Listing::of(&ids, freed, after))
        }
        ManifestRequest::Read(id) => ManifestAnswer::Read(chain.get(&id).cloned()),
    }
}
