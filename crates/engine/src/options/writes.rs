//! The group of options that writers without a WAL, large batches, ingest jobs and transactions
//! alone need.

use std::time::Duration;

/// What becomes of large batches, when ingest jobs are found, and what is remembered for
/// transactions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Writes {
    /// Whether writes go to the WAL. Without it a write is durable once its memtable is flushed.
    pub wal_enabled: bool,
    /// Bytes from which on a batch is made a table before it is accepted; `None`: never.
    pub skip_memtable_bytes: Option<usize>,
    /// How often a writer that does nothing else looks for ingest jobs that others ask for; `None`:
    /// never.
    pub ingest_poll_interval: Option<Duration>,
    /// Memory for what was committed while transactions are open.
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
