//! The change feed (RFC 0041): what was committed, in the order of its commits, read from the log
//! and from what ingests brought, from a token on.
//!
//! ```text
//! token ─► walk: objects of the log, confirmed ─► records ─► rows, in whole batches ─► token
//!            below the replay point: as they lie    │
//!            above: as a following reader           └─ ingest ─► its originals, table by table
//! ```

pub(crate) mod originals;
pub(crate) mod rows;
pub(crate) mod token;
pub(crate) mod walk;
