//! The writer: opening and fencing, commits in the caller's thread, the WAL task, flushes, stalls,
//! checkpoints, transactions, and the embedded compactor and collector (RFC 0003, 0004, 0022,
//! 0025).

pub(crate) mod accept;
pub(crate) mod behind;
pub(crate) mod checkpoint;
pub(crate) mod close;
pub(crate) mod collector;
pub(crate) mod commit;
pub(crate) mod compactor;
pub(crate) mod durability;
pub(crate) mod durable_log;
pub(crate) mod flush;
pub(crate) mod flush_progress;
pub(crate) mod held_seqs;
pub(crate) mod ingest;
pub(crate) mod large;
pub(crate) mod life;
pub(crate) mod nudges;
pub(crate) mod observer;
pub(crate) mod open;
pub(crate) mod opening;
pub(crate) mod snapshot;
pub(crate) mod stalls;
pub(crate) mod state;
pub(crate) mod transaction;
pub(crate) mod unlogged;
pub(crate) mod wal_buffer;
pub(crate) mod wal_task;
