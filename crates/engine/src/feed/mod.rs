//! The change feed (RFC 0041): committed operations in commit order from a token on, read from the
//! log and from the staged tables of ingests. It must never skip or repeat a commit after a token.
//!
//! ```text
//! token ─► walk: confirmed objects of the log ─► records ─► rows, in whole batches ─► token
//!            below the replay point: as stored      │
//!            above: as a following reader           └─ ingest ─► its staged tables, one by one
//! ```

pub(crate) mod before;
pub(crate) mod originals;
pub(crate) mod rows;
pub(crate) mod token;
pub(crate) mod walk;
