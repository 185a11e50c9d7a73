//! Manifest state, its edits and invariants, the garbage collector's rule, and the protocols that
//! processes follow to share one database, as pure step functions (RFC 0004).
//!
//! Nothing here waits, reads a clock, draws a random number or touches a store. A machine says
//! what to do now, somebody does it, and tells it the answer; the engine, the simulation and the
//! exhaustive explorer drive the very same machines.
//!
//! | module | holds |
//! | --- | --- |
//! | [`state`] | [`Manifest`] and what it is made of |
//! | [`layer`], [`span`] | what a tree is made of, and which keys its tables stand for |
//! | [`codec`] | the stored form |
//! | [`compaction`] | plans, who makes them, which may run, and the records of jobs (RFC 0018) |
//! | [`batch`] | large batches: the tables that a record of the log names |
//! | [`clone`] | what a clone begins with, and what its maker does next |
//! | [`mirror`] | what an export is composed of, and what stands in the target |
//! | [`compose`] | what clones are made of: tables cut to a range, databases side by side |
//! | [`naming`] | how checkpoints are asked for |
//! | [`features`] | what a manifest asks of whoever meets it, and what a commit carries on |
//! | [`edit`] | [`Edit`]: deltas by id, how they apply, how they are recognised afterwards |
//! | [`invariant`] | what every manifest satisfies, as named predicates |
//! | [`gc`] | which objects are dead |
//! | [`ingest`] | jobs: the object that closes one, its layers, where they go, how it stands |
//! | [`protocol`] | the step functions |
//! | [`rules`] | the protocol rules by name, for tests that drop one |

#![forbid(unsafe_code)]

pub mod batch;
pub mod clone;
pub mod codec;
pub mod compaction;
pub mod compose;
pub mod edit;
pub mod features;
pub mod gc;
pub mod ingest;
pub mod invariant;
pub mod layer;
pub mod mirror;
pub mod naming;
pub mod protocol;
pub mod rules;
pub mod span;
pub mod state;
#[cfg(test)]
mod testing;

pub use clone::CloneStep;
pub use edit::{
    AdvanceHold, ClaimWriter, CloneEdit, Conflict, CoverVersions, Destroy, Edit, Evolve,
    FinishCompaction, FlushL0, GiveUpTable, GivenUpPart, HoldConflict, HoldEdit, HoldExcess,
    HoldFrom, IngestConflict, IngestEdit, InstallBatch, InstallBehind, InstallIngest, KeepPrefix,
    LogPlace, LogTables, MirrorEdit, NewCheckpoint, NewHead, PinEdit, Refusal, Release,
    RequestIngest, ReserveBatch, Restore, TakeHold, UpdateCheckpoints, VoidManifests, bars_destroy,
    is_let_go, replay_point, to_let_go, with_layers,
};
pub use naming::CheckpointName;
pub use rules::{Rule, Rules};
pub use state::{
    Ancestor, CLONE_AT, Checkpoint, CheckpointOwner, Cover, FedIngest, FedSource, FinishedJob,
    HISTORY_BEGINS, HistoryUndone, Hold, IngestApp, IngestOutcome, KeptFence, L0Entry, Lease,
    LeasedVersion, Manifest, Mirror, MirrorHead, PendingIngest, RESERVED_RUNS, RememberedIngest,
    Settings, SinceLease, SortedRun, Timeline, WalStore, WriterRecord, follow_each_other,
};
