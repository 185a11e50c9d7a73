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

pub mod admin;
mod answer;
mod bounds;
mod buffers;
mod cache;
mod close;
mod compact;
mod counter;
mod create;
mod creation;
mod db;
pub mod env;
mod fetch;
mod flush;
mod follow;
mod gates;
pub mod gc;
mod given;
mod hold;
mod manifest_client;
mod objects;
mod open;
mod options;
pub mod parts;
mod pins;
mod read;
mod reader;
mod replay;
mod rules;
mod slots;
mod stats;
pub mod store;
mod supervise;
pub mod task;
mod tree;
mod value;
pub mod verify;
mod write;
mod writer;

pub use answer::{Accept, Answer};
pub use compact::log::CompactionEntry;
pub use compact::{CompactorEvent, CompactorOptions, CompactorProcess, RangeMerged};
pub use db::Database;
pub use env::Env;
pub use open::OpenOptions;
pub use options::{OptionInfo, OptionKind, OptionValue, Options};
pub use read::{Column, Fill, Keys, Rows, Scan, ScanRange, Snapshot};
pub use reader::{Reader, ReaderOptions};
pub use siltstone_base::{
    Batch, CheckpointId, Error, ErrorKind, Kind, ManifestId, MergeOperator, Result, Seq,
    UnixMillis, WalId,
};
pub use siltstone_manifest::compaction::{CompactionOptions, SchedulerName};
pub use siltstone_merge::{built_in as built_in_operator, built_in_names as built_in_operators};
pub use siltstone_sst::Codec;
pub use stats::{StatInfo, Stats};
pub use value::Value;
pub use write::Commit;
