//! The basic types of the engine, shared by all other crates.
//!
//! This crate depends on no other crate of the workspace. It must not contain a clock, randomness,
//! I/O or async code. It is internal to Siltstone and may change with any release; the stable
//! interfaces are the `siltstone` crate and the Python package.
//!
//! | module | holds |
//! | --- | --- |
//! | [`id`] | sequence numbers, epochs, manifest and WAL ids, 128-bit identities |
//! | [`entry`] | entry kinds, the borrowed [`Entry`], the internal key order |
//! | [`batch`] | the encoding of a write batch, shared by WAL and memtable |
//! | [`cursor`] | the iteration trait, which reports the block that it needs |
//! | [`operator`] | the merge operator's trait |
//! | [`range_delete`], [`open_end`] | range deletes, with and without an end, and searches |
//! | [`sst`] | the descriptor of a table, as the manifest stores it |
//! | [`envelope`] | the head that every stored object carries |
//! | [`name`] | every object name that exists, parsed and formatted |
//! | [`wal_store`] | the record of a separate store of the log |
//! | [`outcome`] | the outcome of a conditional PUT |
//! | [`error`] | the one error type |
//! | [`near`] | searching from an estimated position |
//! | [`likeness`] | the known name that a mistyped one is most like |
//! | [`prefetch`] | prefetching |
//! | [`prefix`] | the first bytes of keys, compared as numbers |
//! | [`limits`] | hard bounds and their derivations |
//! | [`bytes_io`], [`checksum`] | bounded decoding, varints, CRC32C |

#![forbid(unsafe_code)]

pub mod batch;
pub mod bytes_io;
pub mod checksum;
pub mod cursor;
pub mod entry;
pub mod envelope;
pub mod error;
pub mod id;
pub mod likeness;
pub mod limits;
pub mod name;
pub mod near;
pub mod open_end;
pub mod operator;
pub mod outcome;
pub mod prefetch;
pub mod prefix;
pub mod range_delete;
pub mod sst;
pub mod wal_store;

pub use batch::{Batch, BatchMark, BatchOp, BatchOps};
pub use cursor::{BlockAddr, Columns, Cursor, Step};
pub use entry::{Entry, Kind, UnixMillis, compare_internal};
pub use envelope::{Envelope, ObjectKind};
pub use error::{Error, ErrorKind, Result};
pub use id::{
    AttemptId, CheckpointId, DatabaseId, Epoch, JobId, ManifestId, ObjectId, RequestId, Seq, SstId,
    StoreId, TimelineId, WalId,
};
pub use name::ObjectName;
pub use operator::MergeOperator;
pub use outcome::PutOutcome;
pub use range_delete::{Cover, RangeDelete};
pub use sst::{SstDescriptor, TablePart};
pub use wal_store::WalStore;
