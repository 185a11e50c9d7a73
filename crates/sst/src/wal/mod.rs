//! The WAL object: whole batches in commit order, or a fence.
//!
//! ```text
//! object := envelope head record* checksum
//! head (88 bytes, after the envelope's 72):
//! offset size field
//!     72    1 body: 1 records, 2 fence
//!     73    1 codec of the records: 0 none
//!     74    2 length of the head, 88; a reader skips unknown bytes
//!     76    4 number of records; 0 in a fence
//!     80    8 epoch of the writer
//!     88    8 WAL id, as in the object's name
//!     96    8 first sequence number; 0 without records
//!    104    8 last sequence number; 0 without records
//!    112    8 fence: the id at which epochs up to this one continue; 0 otherwise
//!    120    8 bytes of all records
//!    128    8 watermark: every id up to here was committed when this object was cut
//!    136    8 commit time, Unix milliseconds; never below that of an earlier object
//!    144   16 identity of the key that it is encrypted with; 0 in clear
//! record (20 bytes and a payload):
//!      0    1 kind: 1 batch, 2 ingest, which is the last record of its object
//!      1    3 zero
//!      4    4 sequence numbers that it takes, 1 or more: a batch's operations, an ingest's layers
//!      8    4 length of the payload
//!     12    8 first sequence number
//!     20    n payload: an encoded batch, or an ingest:
//!             0  1 form: 1 a job, 2 tables of the database's own (RFC 0044)
//!             1  3 zero
//!             4    of a job:  16 the job
//!                              n digest of the job's contents
//!                  of tables: n FlatBuffers L0Entry; the record takes one number
//! checksum: 4 bytes, masked CRC32C of all before it, bound to (object id, 0)
//! ```
//! A WAL object has no index, no filter, no compression and no sorting: it is written once and read
//! once, from start to end.

mod build;
mod decode;

pub use build::{CutInfo, WalBuilder, encode_fence};
pub use decode::{WalBody, WalIngest, WalIngestContent, WalObject, WalRecord, WalRecords, decode};

use siltstone_base::envelope::ENVELOPE_BYTES;

/// Bytes of envelope and head together: the offset of the records.
pub const WAL_HEAD_BYTES: usize = ENVELOPE_BYTES + OWN_HEAD_BYTES;
/// Bytes of a record before its payload.
pub const WAL_RECORD_HEAD_BYTES: usize = 20;

/// Bytes of the head alone.
const OWN_HEAD_BYTES: usize = 88;
const CODEC_NONE: u8 = 0;
const BODY_RECORDS: u8 = 1;
const BODY_FENCE: u8 = 2;
const RECORD_BATCH: u8 = 1;
const RECORD_INGEST: u8 = 2;
const INGEST_JOB: u8 = 1;
const INGEST_TABLES: u8 = 2;
