//! The manifest: its state, edits and invariants, the rules of garbage collection, and the
//! protocols by which processes share one database, as pure step functions (RFC 0004).
//!
//! No code in this crate waits, reads a clock, draws a random number or accesses a store. A step
//! function says what to do next; its driver performs the request and reports the answer. The
//! engine, the simulation and the exhaustive explorer drive the same step functions.
//!
//! | module | holds |
//! | --- | --- |
//! | [`state`] | [`Manifest`] and its parts |
//! | [`layer`], [`span`] | the layers of a tree, and the key ranges of tables |
//! | [`codec`] | the encoding of manifests |
//! | [`compaction`] | plans, schedulers, validation of plans, and job records (RFC 0018) |
//! | [`batch`] | large batches: the tables listed in a log record |
//! | [`clone`] | the initial state of a clone, and the steps that create it |
//! | [`mirror`] | the composition of an export, and the objects in its target |
//! | [`compose`] | the state of a clone: tables cut to a range, databases combined |
//! | [`naming`] | how a caller names a checkpoint |
//! | [`features`] | features that a program must know, and unknown data that a commit preserves |
//! | [`edit`] | [`Edit`]: changes by id, how they apply, how a later state shows that they applied
//! |
//! | [`invariant`] | the invariants of a manifest, as named predicates |
//! | [`gc`] | which objects can be deleted |
//! | [`ingest`] | ingest jobs: their closing object, layers, position and status |
//! | [`protocol`] | the step functions |
//! | [`rules`] | the protocol rules by name, for tests that disable one |

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
    LogTables, MirrorEdit, NewCheckpoint, NewHead, PinEdit, Refusal, Release, RequestIngest,
    ReserveBatch, Restore, TakeHold, UpdateCheckpoints, VoidManifests, bars_destroy, is_let_go,
    replay_point, to_let_go, with_layers,
};
pub use naming::CheckpointName;
pub use rules::{Rule, Rules};
pub use state::{
    Ancestor, CLONE_AT, Checkpoint, CheckpointOwner, Cover, FedIngest, FedSource, FinishedJob,
    HISTORY_BEGINS, HistoryUndone, Hold, IngestApp, IngestOutcome, KeptFence, L0Entry, Lease,
    LeasedVersion, LogPlace, Manifest, Mirror, MirrorHead, PendingIngest, RESERVED_RUNS,
    RememberedIngest, Settings, SinceLease, SortedRun, Timeline, WriterRecord, follow_each_other,
};
