//! Manifest state, its edits and invariants, the garbage collector's rule, and the protocols that
//! processes follow to share one database, as pure step functions (RFC 0004).
//!
//! Nothing here waits, reads a clock, draws a random number or touches a store. A machine says
//! what to do now ([`protocol`]'s `action`), somebody does it, and tells it the answer; the engine,
//! the simulation and the exhaustive explorer drive the very same machines.
//!
//! | module | holds |
//! | --- | --- |
//! | [`state`] | [`Manifest`] and what it is made of |

#![forbid(unsafe_code)]

pub mod state;

pub use state::{
    AdoptedIngest, Ancestor, Checkpoint, CheckpointOwner, FinishedJob, KeptFence, L0Entry,
    Manifest, PendingIngest, Settings, SortedRun, WriterRecord,
};
