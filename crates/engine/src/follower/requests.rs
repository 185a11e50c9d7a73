//! The manifest requests of a follower, with the first objects of the log read beside them: in a
//! distant store that saves a new reader two round trips.
//!
//! ```text
//! list ─► newest manifest ─┬─ list, which verifies it
//!                          ├─ the object at its replay point
//!                          └─ the object at the likely end of the log
//! ```
//! If the listing before proves the manifest, these two are read at once. The walk takes an object,
//! and confirms it like any other. It also takes the absence of an object that the manifest does
//! not know: the listing that confirms the end of the first walk begins after these reads, and a
//! boundary below the id shows that the id was not freed before.

use crate::manifests::client::ManifestRequests;
use crate::manifests::objects::Objects;
use crate::wal::readahead::WalReadahead;
use futures::FutureExt;
use futures::future::BoxFuture;
use siltstone_base::{Result, WalId};
use siltstone_manifest::Manifest;
use siltstone_manifest::protocol::{ManifestAnswer, ManifestRequest, likely_end};
use siltstone_sst::wal::WalObject;
use std::sync::Arc;

/// Performs the manifest requests of a follower.
pub(super) struct FollowerRequests {
    objects: Objects,
    manifests: ManifestRequests,
    /// The manifest that was read last, if the log was not read since.
    read: Option<Arc<Manifest>>,
    /// An id after those without an object.
    end: Option<WalId>,
}

impl FollowerRequests {
    pub(super) fn new(objects: &Objects) -> FollowerRequests {
        let manifests = ManifestRequests::new(objects).ending_if_full();
        FollowerRequests { objects: objects.clone(), manifests, read: None, end: None }
    }

    /// The requests alone, for a commit of the follower.
    pub(super) fn manifests(&mut self) -> &mut ManifestRequests {
        &mut self.manifests
    }

    /// Whether the first walk of the log ends at `id`: there was no object after the newest
    /// manifest was read. The walk must be confirmed by a listing.
    pub(super) fn take_end(&mut self, id: WalId) -> bool {
        self.end.take_if(|end| *end == id).is_some()
    }

    /// The walk has ended.
    pub(super) fn forget_early(&mut self) {
        (self.read, self.end) = (None, None);
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
        let known = self.read.take();
        let early = early_reads(&self.objects, known.as_deref());
        let (answer, early) = futures::join!(self.manifests.perform(request), early);
        self.end = known.and_then(|known| early_end(&known, early, log));
        let answer = answer?;
        if is_new
            && let ManifestAnswer::Read(Some(read)) | ManifestAnswer::ReadAsListed(read) = &answer
        {
            // A separate log is taken up only once the manifest that names it is verified.
            let early = read.wal_store.is_none() && self.objects.is_distant();
            self.read = early.then(|| Arc::clone(read));
        }
        Ok(answer)
    }

    /// Begins the first walk with the early reads, if none were sent beside a verification.
    pub(super) async fn begin_walk(&mut self, log: &mut WalReadahead) {
        let Some(known) = self.read.take() else { return };
        let early = early_reads(&self.objects, Some(&known)).await;
        self.end = early_end(&known, early, log);
    }
}

/// An id and what was read there, if the read succeeded.
type EarlyWalRead = Option<(WalId, Option<WalObject>)>;

/// Reads where the log of a manifest begins and where it may end.
async fn early_reads(objects: &Objects, known: Option<&Manifest>) -> [EarlyWalRead; 2] {
    let read = async |id: Option<WalId>| {
        let id = id?;
        Some((id, objects.wal(id).await.ok()?))
    };
    let begin = known.map(|known| known.replay_from);
    let (begin, end) = futures::join!(read(begin), read(known.and_then(likely_end)));
    [begin, end]
}

/// The id at which the log ends according to early reads. Gives the object at the beginning to the
/// walk.
fn early_end(
    known: &Manifest,
    [begin, end]: [EarlyWalRead; 2],
    log: &mut WalReadahead,
) -> Option<WalId> {
    let end = match begin? {
        (begin, Some(object)) => {
            log.bring(begin, object);
            end.filter(|(_, found)| found.is_none()).map(|(id, _)| id)?
        }
        (begin, None) => begin,
    };
    // An id that the manifest knows is read again.
    (end > known.wal_id_last_seen).then_some(end)
}
