//! The manifest requests of a follower, with the first object of the log read beside them: in a
//! distant store that saves a new reader a round trip.
//!
//! ```text
//! list ─► newest manifest ─┬─ list, which verifies it
//!                          └─ the object at its replay point
//! ```
//! The walk takes that object only if it exists, and confirms it like any other.

use crate::manifests::client::ManifestRequests;
use crate::manifests::objects::Objects;
use crate::wal::readahead::WalReadahead;
use futures::FutureExt;
use futures::future::BoxFuture;
use siltstone_base::{Result, WalId};
use siltstone_manifest::protocol::{ManifestAnswer, ManifestRequest};

/// Performs the manifest requests of a follower.
pub(super) struct FollowerRequests {
    objects: Objects,
    manifests: ManifestRequests,
    /// The replay point of the manifest that was read last, and is not verified.
    begins: Option<WalId>,
}

impl FollowerRequests {
    pub(super) fn new(objects: &Objects) -> FollowerRequests {
        let manifests = ManifestRequests::new(objects);
        FollowerRequests { objects: objects.clone(), manifests, begins: None }
    }

    /// The requests alone, for a commit of the follower.
    pub(super) fn manifests(&mut self) -> &mut ManifestRequests {
        &mut self.manifests
    }

    /// Performs `request`. For a follower that `is_new`, and knows no manifest, the log gets the
    /// object at which its walk will begin.
    ///
    /// # Errors
    /// As [`ManifestRequests::perform`].
    pub(super) fn perform<'a>(
        &'a mut self,
        request: ManifestRequest,
        is_new: bool,
        log: &'a mut WalReadahead,
    ) -> BoxFuture<'a, Result<ManifestAnswer>> {
        // Boxed: callers nest it too deeply for the compiler.
        self.performed(request, is_new, log).boxed()
    }

    async fn performed(
        &mut self,
        request: ManifestRequest,
        is_new: bool,
        log: &mut WalReadahead,
    ) -> Result<ManifestAnswer> {
        let begins = self.begins.take();
        let early = async {
            let id = begins?;
            Some((id, self.objects.wal(id).await.ok().flatten()?))
        };
        let (answer, early) = futures::join!(self.manifests.perform(request), early);
        if let Some((id, object)) = early {
            log.bring(id, object);
        }
        let answer = answer?;
        if is_new && let ManifestAnswer::Read(Some(read)) = &answer {
            // A separate log is taken up only once the manifest that names it is verified.
            let early = read.wal_store.is_none() && self.objects.is_distant();
            self.begins = early.then_some(read.replay_from);
        }
        Ok(answer)
    }
}
