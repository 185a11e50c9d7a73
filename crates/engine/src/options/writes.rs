//! The group of options that large batches and transactions alone need.

/// What becomes of large batches, and what is remembered for transactions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Writes {
    /// Bytes from which on a batch is made a table before it is accepted; `None`: never.
    pub skip_memtable_bytes: Option<usize>,
    /// Memory for what was committed while transactions are open.
    pub transaction_window_bytes: usize,
}

impl Default for Writes {
    fn default() -> Writes {
        Writes { skip_memtable_bytes: None, transaction_window_bytes: 64 << 20 }
    }
}
