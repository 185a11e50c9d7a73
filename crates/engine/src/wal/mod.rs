//! The log as it lies in the store: walked to its end, and replayed into memtables. Who writes it
//! is the writer (`writer/wal_task.rs`).

pub(crate) mod readahead;
pub(crate) mod replay;
pub(crate) mod walk;
