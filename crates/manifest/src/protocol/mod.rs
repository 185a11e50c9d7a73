//! The protocols as step functions (RFC 0004).
//!
//! A step function is a small value that says what to do next (`action`) and is told the result
//! (`on_…`) until it ends. It has no clock, uses no random numbers and does not wait: the driver
//! performs one request at a time, decides how long to wait between tries, and when to give up.
//! Step functions are `Clone + Eq + Hash`, so that an explorer can store every state that it has
//! visited. An answer to another request is ignored.
//!
//! | step function | purpose |
//! | --- | --- |
//! | [`EndOfRun`] | finds the end of the manifests in a listing (rule E1) |
//! | [`Look`] | finds the newest manifest and proves it |
//! | [`Commit`] | commits one edit to the chain of manifests (rules M1 to M3) |
//! | [`OpenWriter`] | claims, walks, fences, confirms (rules F1 to F5) |
//! | [`WalWindow`] | which WAL objects a writer may send and acknowledge (rules F3, F6) |
//! | [`Follow`] | follows a database as a reader (rule M4) |
//! | [`PinnedWalk`] | reads the WAL of a checkpoint |
//! | [`Leases`] | the leases under which a reader reads (rules L1 to L5) |
//! | [`Pins`] | the checkpoints that keep the versions of a process alive (rules C1, C2) |
//! | [`Collect`] | one round of the garbage collector (rules G1 to G4, M5) |
//! | [`Erase`] | deletes the objects of a destroyed database (rules D3, D4) |

mod collect;
mod commit;
mod cut;
mod erase;
mod fencing;
mod follow;
mod hole;
mod leases;
mod look;
mod pinned;
mod pins;
mod run;
#[cfg(test)]
mod testing;
mod wal_window;

pub use collect::{Collect, CollectAction, CollectReport, DELETE_BATCH, ProvenManifests};
pub use commit::{Commit, CommitAction};
pub use cut::CutOff;
pub use erase::{Erase, EraseAction, EraseReport, NumbersLeft};
pub use fencing::{EarlyAnswer, OpenAction, OpenWriter, Recovered, WriterOptions};
pub use follow::{Follow, FollowAction, FollowEvent, WALK_LIMIT};
pub use hole::{Hole, HoleProof, WalListing};
pub use leases::{LeasedEdit, Leases, Lifetimes, Moment, Want};
pub use look::{Look, LookAction};
pub use pinned::{PinnedAction, PinnedWalk};
pub use pins::Pins;
pub use run::{EndOfRun, RunAction};
pub use wal_window::{WalWindow, WindowEvent};

use crate::edit::{Refusal, fenced};
use crate::state::{KeptFence, Manifest};
use run::run_end;
use siltstone_base::{AttemptId, Epoch, Error, ManifestId, PutOutcome, WalId};
use std::sync::Arc;

/// A request about manifests.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ManifestRequest {
    /// Create this manifest under its id if the name is free. For every try of the same state the
    /// driver sends the same bytes with the same attempt id, so that a retry recognises an earlier
    /// try.
    Create(Arc<Manifest>),
    /// List `manifest/`, boundaries included, starting after this manifest.
    List {
        /// Manifests up to this one need not be listed; boundaries always are.
        after: ManifestId,
    },
    /// Read this manifest.
    Read(ManifestId),
}

/// The answer to a [`ManifestRequest`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ManifestAnswer {
    /// The outcome of a create, and the attempt id in its bytes.
    Created(PutOutcome<()>, AttemptId),
    /// The result of a listing.
    Listed(Listing),
    /// The manifest; `None`: the object does not exist.
    Read(Option<Arc<Manifest>>),
    /// The manifest, which is the object that the listing before has shown: the store gives both
    /// the same tag.
    ReadAsListed(Arc<Manifest>),
}

/// The result of a listing of `manifest/`. Digits sort before letters, so even a listing in several
/// pages contains a boundary at least as new as the manifests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Listing {
    /// The newest manifest, if it is above the requested one: the end of the run of consecutive
    /// numbers that begins above the boundary (rule E1).
    pub newest: Option<ManifestId>,
    /// The largest boundary; none if there is none.
    pub boundary: ManifestId,
    /// Whether the requested manifest is in that run, or below it. If not, it belongs to no
    /// database any more; this is also the case if there is no run above the boundary, which is a
    /// location whose database was destroyed (rule D3).
    pub stands: bool,
}

impl Default for Listing {
    /// No manifest above the requested one, which exists.
    fn default() -> Listing {
        Listing { newest: None, boundary: ManifestId::NONE, stands: true }
    }
}

impl Listing {
    /// The result of a listing with these ids, ascending, and this boundary, for a request of the
    /// manifests above `after`. Every number directly follows the previous one.
    #[must_use]
    pub fn of(ids: &[ManifestId], boundary: ManifestId, after: ManifestId) -> Listing {
        Listing::ending(run_end(ids, boundary), boundary, after)
    }

    /// As [`Listing::of`], with a known end of the run, which is the boundary if there is no run.
    #[must_use]
    pub fn ending(end: ManifestId, boundary: ManifestId, after: ManifestId) -> Listing {
        let newest = (end > boundary && end > after).then_some(end);
        let stands = after.is_none() || (end > boundary && after <= end);
        Listing { newest, boundary, stands }
    }
}

/// The content of a WAL name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WalSeen {
    /// No object.
    Absent,
    /// No object, although there was one before (it was listed, or a create met it).
    Vanished,
    /// Records of this epoch.
    Data {
        /// The epoch.
        epoch: Epoch,
        /// Every id up to this one that the walk reaches was committed when the object was made.
        durable: WalId,
    },
    /// A fence.
    Fence {
        /// The epoch.
        epoch: Epoch,
        /// The id at which the WAL continues.
        next_id: WalId,
    },
    /// An object of another database (rule F8); behind a cut of the log also an object that cannot
    /// be read.
    Foreign,
}

/// Why a step function ended without success.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Failure {
    /// A commit was refused.
    Refused(Refusal),
    /// A newer writer has taken over. Writes in flight may or may not be written.
    Fenced {
        /// Its epoch, if known.
        by: Option<Epoch>,
    },
    /// A WAL name holds an object of another database.
    Foreign(WalId),
    /// A WAL object is missing that no process was allowed to delete.
    Hole(Hole),
    /// The protocol excludes what was found at this WAL id: a bug.
    Impossible(WalId),
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Failure {
        match refusal {
            Refusal::Fenced { by } => Failure::Fenced { by: Some(by) },
            other => Failure::Refused(other),
        }
    }
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Error {
        match failure {
            Failure::Refused(refusal) => refusal.into(),
            Failure::Fenced { by } => fenced(by),
            Failure::Foreign(id) => {
                Error::corruption("a WAL object belongs to another database").with("wal id", id)
            }
            Failure::Hole(hole) => hole.into(),
            Failure::Impossible(id) => {
                Error::internal("a WAL object stands where the protocol excludes it")
                    .with("wal id", id)
            }
        }
    }
}

/// The id at which the log of `state` ends if it does not end at the replay point, as far as one
/// can guess: after the last id that the state knows; or, if it knows none, after the fence of the
/// newest writer, which has written nothing since. `None` before the first writer.
#[must_use]
pub fn likely_end(state: &Manifest) -> Option<WalId> {
    let (begin, last) = (state.replay_from, state.wal_id_last_seen);
    let behind_the_fence = begin.plus(state.widest_window);
    let end = if last >= begin { last.next() } else { behind_the_fence };
    (end > begin).then_some(end)
}

/// The id at which a walk continues after a fence: never backwards, even if the object says so.
fn beyond(fence: &KeptFence) -> WalId {
    fence.next_id.max(fence.id.next())
}
