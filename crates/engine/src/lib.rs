//! Siltstone: an embedded, ordered key-value store that lives in an object store.
//!
//! One writer, any number of readers, in processes of their own, agree through conditional writes
//! alone. This crate is the public Rust API and every effect; what it decides with lives in pure
//! crates below it (`ARCHITECTURE.md` has the map).
//!
//! ```
//! use siltstone::store::memory::MemoryStore;
//! use siltstone::{Accept, Database, OpenOptions, task};
//!
//! let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
//! runtime.block_on(async {
//!     let env = task::tokio_env(runtime.handle().clone(), MemoryStore::named("example"));
//!     let db = Database::open(env, OpenOptions::default()).await?;
//!     if let Accept::Accepted(commit) = db.put(b"layer", b"stone", None)? {
//!         commit.wait(None).await?; // durable
//!     }
//!     let value = db.get(b"layer")?.wait().await?;
//!     assert_eq!(value.as_deref(), Some(&b"stone"[..]));
//!     db.close().await
//! })
//! # .unwrap();
//! ```

#![forbid(unsafe_code)]

mod api;
mod cache;
mod compact;
mod feed;
mod follower;
pub mod gc;
mod manifests;
mod options;
mod read;
mod readahead;
pub mod repair;
pub mod tables;
pub mod verify;
mod wal;
mod writer;

pub use api::admin;
pub use api::changes;
pub use api::checkpoints::{CheckpointOptions, CheckpointScope};
pub use api::db::Database;
pub use api::destroy::destroy;
pub use api::ingest;
pub use api::load::{BulkLoad, LoadReport};
pub use api::reader::{Reader, ReaderOptions};
pub use api::staging::{StagedJob, staged_jobs, withdraw};
pub use api::stats::{LatencyHistogram, StatInfo, Stats};
pub use compact::compaction_log::CompactionEntry;
pub use compact::{
    CompactionPlan, CompactionUnit, CompactorEvent, CompactorOptions, CompactorProcess,
    RangeMerged, UnitResult,
};
pub use feed::rows::{BeforeColumn, ChangeRows};
pub use feed::token::ChangeToken;
pub use follower::at_checkpoint::{KnownCheckpoint, ReadAt};
pub use options::{
    Compactors, DiskCacheOptions, Gc, MirroredKeys, OptionInfo, OptionKind, OptionValue, Options,
    Readers, Writes, bytes_of_text, seconds_of_text,
};
pub use read::answer::Answer;
pub use read::value::{KeyEntry, Value};
pub use read::{Column, FillOutcome, Keys, Rows, Scan, ScanRange, Size};
pub use siltstone_base::open_end::LEAST_KEY;
pub use siltstone_base::{
    AttemptId, Batch, CheckpointId, DatabaseId, Error, ErrorKind, JobId, Kind, ManifestId,
    MergeOperator, Result, Seq, SstId, TimelineId, UnixMillis, WalId,
};
pub use siltstone_manifest::compaction::{CompactionOptions, SchedulerName, Windows};
pub use siltstone_manifest::ingest::JobStatus;
pub use siltstone_manifest::{Checkpoint, CheckpointName, CheckpointOwner};
pub use siltstone_merge::{built_in as built_in_operator, built_in_names as built_in_operators};
pub use siltstone_sst::Codec;
pub use siltstone_store::env::Env;
pub use siltstone_store::presence::Occupancy;
pub use siltstone_store::probe;
pub use siltstone_store::progress::Progress;
pub use siltstone_store::{env, task};
pub use writer::accept::Accept;
pub use writer::commit::{Commit, CommitPlace};
pub use writer::large::LargeWrite;
pub use writer::open::{OpenOptions, OpenSchema, TransientOpen};
pub use writer::snapshot::Snapshot;
pub use writer::transaction::conditional::Condition;
pub use writer::transaction::{Isolation, Savepoint, Transaction};

/// The store of a database's objects, and the stores that are built in.
pub mod store {
    pub use siltstone_store::{
        CacheUse, CopyAnswer, DiskCacheCounts, Listed, LocalReads, LogIdentityStep, LogStore,
        Neighbours, ObjectTag, Observed, Place, PutAnswer, SingleObject, Store, SweepReport,
        TableRead, TaggedBytes, Upload, conditional, counting, encrypted, full, in_use,
        lies_in_folder, lies_under, local, lone_object, memory, options, passed_on, presence,
        profile, ranges, retry, sent, separate_log, two_phase, url,
    };
}
