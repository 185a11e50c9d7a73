//! The WAL object: whole batches in commit order, or a fence.
//!
//! ```text
//! object := envelope head record* checksum
//! head (56 bytes, after the envelope's 72):
//! offset size field
//!     72    1 body: 1 records, 2 fence
//!     73    3 zero
//!     76    4 number of records; 0 in a fence
//!     80    8 epoch of the writer
//!     88    8 WAL id, as in the object's name
//!     96    8 first sequence number; 0 without records
//!    104    8 last sequence number; 0 without records
//!    112    8 fence: the id from which on epochs up to this one go on; 0 otherwise
//!    120    8 bytes of all records
//! record (20 bytes and a payload):
//!      0    1 kind: 1 batch, 2 ingest (reserved)
//!      1    3 zero
//!      4    4 operations, 1 or more: as many sequence numbers
//!      8    4 length of the payload
//!     12    8 first sequence number
//!     20    n payload: an encoded batch
//! checksum: 4 bytes, masked CRC32C of all before it, bound to (object id, 0)
//! ```
//! There is no index, no filter, no compression and no sorting: a WAL object is written once and
//! read once, from its start to its end.

mod build;
mod decode;

pub use build::{WalBuilder, encode_fence};
pub use decode::{WalBody, WalObject, WalRecord, WalRecords, decode};

use siltstone_base::envelope::ENVELOPE_BYTES;

/// Bytes of envelope and head together: where the records start.
pub const WAL_HEAD_BYTES: usize = ENVELOPE_BYTES + 56;
/// Bytes of a record before its payload.
pub const WAL_RECORD_HEAD_BYTES: usize = 20;

const BODY_RECORDS: u8 = 1;
const BODY_FENCE: u8 = 2;
const RECORD_BATCH: u8 = 1;
const RECORD_INGEST: u8 = 2;
