//! Every effect of Siltstone: clock, randomness, tasks and the store, which come in through one
//! [`env::Env`], and the stores themselves.
//!
//! A [`Store`] holds the objects of one database. The base stores are memory, a local folder, and
//! the object stores behind the `object_store` crate. Others lie over a store and add one property:
//! conditional creates ([`two_phase`]), encryption, a separate store of the log, counts of
//! requests, a disk cache of tables. No part of this crate knows the formats of tables, of the log
//! or of the manifest.

// Allowed in one module, `local/map.rs`.
#![deny(unsafe_code)]

mod background;
pub mod buffers;
pub mod conditional;
pub mod counter;
pub mod counting;
pub mod disk_cache;
pub mod encrypted;
pub mod env;
pub mod full;
pub mod in_use;
pub mod latency;
pub mod local;
pub mod lone_object;
pub mod memory;
mod option_names;
pub mod options;
mod place;
pub mod presence;
pub mod probe;
pub mod profile;
pub mod progress;
pub mod ranges;
mod reach;
mod remote;
pub mod retry;
pub mod retry_budget;
mod seam;
pub mod sent;
pub mod separate_log;
pub mod supervise;
pub mod task;
pub mod troubles;
pub mod two_phase;
pub mod url;

pub use seam::{
    CacheUse, CopyAnswer, DiskCacheCounts, Listed, LocalReads, LogIdentityStep, LogStore,
    Neighbours, ObjectTag, Observed, Place, PutAnswer, SingleObject, Store, SweepReport, TableRead,
    TaggedBytes, Upload, lies_in_folder, lies_under, span,
};
pub(crate) use seam::{DELETES_AT_ONCE, check_range, not_followed, too_short};
