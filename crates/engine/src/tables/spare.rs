//! Memory that successive tables under construction reuse: fresh pages cost about as much as the
//! rows that fill them.

use bytes::Bytes;
use parking_lot::Mutex;
use siltstone_base::{Envelope, Result, SstDescriptor};
use siltstone_sst::{FinishedTable, TableBuilder, TableOptions, TableScratch};
use siltstone_store::buffers::Buffers;
use std::sync::Arc;

/// Maximum number of tables whose memory is kept.
const TABLES: usize = 16;
/// Room for the block that ends a chunk, because a buffer that grows is copied.
const LAST_BLOCK_BYTES: usize = 128 << 10;

/// Memory that no table uses. Clones share it.
#[derive(Clone)]
pub(super) struct SpareBuffers {
    /// Bytes of a table that are handed to the store at a time.
    pub(super) chunk_bytes: usize,
    chunks: Buffers,
    scratch: Arc<Mutex<Vec<TableScratch>>>,
}

impl SpareBuffers {
    /// An empty pool for chunks of `chunk_bytes` bytes.
    pub(super) fn new(chunk_bytes: usize) -> SpareBuffers {
        let chunks = Buffers::keeping(TABLES, 2 * (chunk_bytes + LAST_BLOCK_BYTES));
        SpareBuffers { chunk_bytes, chunks, scratch: Arc::default() }
    }

    /// A builder for the next table.
    pub(super) fn builder(&self, options: TableOptions, envelope: Envelope) -> TableBuilder {
        let scratch = self.scratch.lock().pop().unwrap_or_default();
        TableBuilder::reusing(scratch, options, envelope).writing_into(self.buffer())
    }

    fn buffer(&self) -> Vec<u8> {
        self.chunks.take_empty(self.chunk_bytes + LAST_BLOCK_BYTES)
    }

    /// A chunk, if one is complete.
    pub(super) fn chunk(&self, builder: &mut TableBuilder) -> Option<Bytes> {
        let chunk = builder.take_chunk_for(self.chunk_bytes, |_| self.buffer())?;
        Some(self.chunks.lend(chunk))
    }

    /// Finishes a table.
    ///
    /// # Errors
    /// As [`TableBuilder::finish`].
    pub(super) fn finish(&self, builder: TableBuilder) -> Result<(Bytes, SstDescriptor)> {
        let FinishedTable { rest, table, scratch } = builder.finish_for_next()?;
        let mut kept = self.scratch.lock();
        if kept.len() < TABLES {
            kept.push(scratch);
        }
        Ok((Bytes::from(rest), table))
    }
}
