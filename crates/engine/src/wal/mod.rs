//! The log in the store: walking to its end, and replay into memtables. The writer writes it
//! (`writer/wal_task.rs`).

pub(crate) mod readahead;
pub(crate) mod replay;
pub(crate) mod walk;
