//! The group of options of the WAL, large batches, ingest jobs and transactions.

use std::time::Duration;

/// The path of writes, the search for ingest jobs, and the memory of transactions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Writes {
    /// Whether writes go to the WAL. Without it a write is durable once its memtable is flushed.
    pub wal_enabled: bool,
    /// Size from which a batch is uploaded as a table before it is accepted; `None`: never.
    pub skip_memtable_bytes: Option<usize>,
    /// How often an idle writer looks for ingest jobs of other processes; `None`: never.
    pub ingest_poll_interval: Option<Duration>,
    /// Memory for the keys that were committed while transactions are open.
    pub transaction_window_bytes: usize,
}

impl Default for Writes {
    fn default() -> Writes {
        Writes {
            wal_enabled: true,
            skip_memtable_bytes: None,
            ingest_poll_interval: Some(Duration::from_secs(10)),
            transaction_window_bytes: 64 << 20,
        }
    }
}
