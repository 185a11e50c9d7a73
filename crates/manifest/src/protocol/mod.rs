//! The protocols as step functions (RFC 0004).
//!
//! A machine is a small value that says what to do now (`action`) and is told how it went
//! (`on_…`), until it ends. It holds no clock, draws nothing at random, and waits for nothing: the
//! driver performs one request at a time, decides how long to wait between tries, and when to give
//! up. Machines are `Clone + Eq + Hash`, so an explorer can keep every state it has seen. An answer
//! to something that was not asked is ignored.
//!
//! | machine | does |
//! | --- | --- |
//! | [`EndOfRun`] | where the manifests end that a listing shows (rule E1) |
//! | [`Look`] | finds the newest manifest, and proves it |
//! | [`Commit`] | one edit into the chain of manifests (rules M1 to M3) |
//! | [`OpenWriter`] | claim, walk, fence, confirm (rules F1 to F5) |
//! | [`WalWindow`] | what a writer may send and acknowledge (rules F3, F6) |
//! | [`Follow`] | a reader that keeps up (rule M4) |
//! | [`PinnedWalk`] | a reader of a checkpoint's WAL |
//! | [`Leases`] | under which leases a reader reads (rules L1 to L5) |
//! | [`Pins`] | which checkpoints keep alive what a process reads (rules C1, C2) |
//! | [`Collect`] | one round of the garbage collector (rules G1 to G4, M5) |
//! | [`Erase`] | what is left of a destroyed database goes (rules D3, D4) |

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
pub use fencing::{OpenAction, OpenWriter, Recovered, WriterOptions};
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
    /// Create this manifest under its id if the name is free. While the same state is asked for
    /// again the driver sends the same bytes, with the same attempt id: a retry must recognise an
    /// earlier try of its own.
    Create(Arc<Manifest>),
    /// List `manifest/`, boundaries included, starting after this manifest.
    List {
        /// Manifests up to here are of no interest. Boundaries always are.
        after: ManifestId,
    },
    /// Read this manifest.
    Read(ManifestId),
}

/// An answer to a [`ManifestRequest`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ManifestAnswer {
    /// What became of a create, and the attempt that its bytes say.
    Created(PutOutcome<()>, AttemptId),
    /// What a listing showed.
    Listed(Listing),
    /// What was read; `None`: there is no such object.
    Read(Option<Arc<Manifest>>),
}

/// What a listing of `manifest/` showed. Digits sort before letters, so even a listing in several
/// pages shows a boundary no older than the manifests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Listing {
    /// The newest manifest, when it is above the one asked for: the end of the run of numbers
    /// without a gap that begins above the boundary (rule E1).
    pub newest: Option<ManifestId>,
    /// The largest boundary; none when there is none.
    pub boundary: ManifestId,
    /// Whether the one asked for is in that run, or below it. Else there is nothing any more that
    /// it could be part of: nor where there is no run above the boundary, which is a place whose
    /// database was destroyed (rule D3).
    pub stands: bool,
}

impl Default for Listing {
    /// Nothing was found above what was asked for, which stands.
    fn default() -> Listing {
        Listing { newest: None, boundary: ManifestId::NONE, stands: true }
    }
}

impl Listing {
    /// What a listing shows that found these ids, ascending, and this boundary, to who asked for
    /// those above `after`. Every number follows on the one before.
    #[must_use]
    pub fn of(ids: &[ManifestId], boundary: ManifestId, after: ManifestId) -> Listing {
        Listing::ending(run_end(ids, boundary), boundary, after)
    }

    /// The same, where the run's end is known already; the boundary where there is none.
    #[must_use]
    pub fn ending(end: ManifestId, boundary: ManifestId, after: ManifestId) -> Listing {
        let newest = (end > boundary && end > after).then_some(end);
        let stands = after.is_none() || (end > boundary && after <= end);
        Listing { newest, boundary, stands }
    }
}

/// What a WAL name holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WalSeen {
    /// Nothing.
    Absent,
    /// Nothing, though it was there before (it was listed, or a create met it).
    Vanished,
    /// Records of this epoch.
    Data {
        /// Whose.
        epoch: Epoch,
        /// Every id up to here that the walk reaches was committed when it was cut.
        durable: WalId,
    },
    /// A fence.
    Fence {
        /// Whose.
        epoch: Epoch,
        /// Where the WAL goes on.
        next_id: WalId,
    },
    /// An object of another database (rule F8); behind where a log is cut off also one that nobody
    /// can read.
    Foreign,
}

/// Why a machine ended without success.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Failure {
    /// A commit was refused.
    Refused(Refusal),
    /// A newer writer has taken over. What was under way may or may not be written.
    Fenced {
        /// Its epoch, where it showed itself.
        by: Option<Epoch>,
    },
    /// A WAL name holds an object of another database.
    Foreign(WalId),
    /// A WAL object is gone that nobody had the right to delete.
    Hole(Hole),
    /// Something that the rules exclude was met at this WAL id: a bug of ours.
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

/// Where a walk goes from a fence: never back, whatever the object says.
fn beyond(fence: &KeptFence) -> WalId {
    fence.next_id.max(fence.id.next())
}
