//! Tables in memory: built as a whole, and read with every block decoded or decoded on demand.

use crate::rows::{sorted_key, value};
use bytes::Bytes;
use siltstone_base::{
    AttemptId, BlockAddr, DatabaseId, Entry, Envelope, Kind, ObjectId, ObjectKind, Result, Seq,
};
use siltstone_sst::{Block, BlockSource, Table, TableBuilder, TableOptions};
use std::sync::Arc;

/// Every `step`-th row from `first` on, `count` of them.
#[derive(Clone, Copy, Debug)]
pub struct Strided {
    /// Number of the first row.
    pub first: u64,
    /// The difference between the numbers of two consecutive rows.
    pub step: u64,
    /// Number of rows.
    pub count: u64,
}

/// Rows with prepared keys and values, so that a bench does not measure their creation.
#[derive(Debug)]
pub struct Made {
    rows: Vec<([u8; 16], [u8; 100])>,
    seq: Seq,
}

impl Made {
    /// The rows of `strided`, all written at `seq`.
    #[must_use]
    pub fn new(strided: Strided, seq: Seq) -> Made {
        let number = |n| strided.first + n * strided.step;
        let rows = (0..strided.count).map(|n| (sorted_key(number(n)), value(number(n)))).collect();
        Made { rows, seq }
    }

    /// The entries in order.
    pub fn entries(&self) -> impl Iterator<Item = Entry<'_>> {
        self.rows.iter().map(|(key, value)| Entry {
            key,
            seq: self.seq,
            kind: Kind::Put,
            expires_at: None,
            value,
        })
    }
}

/// The head of the table with this number.
#[must_use]
pub fn envelope(table: u128) -> Envelope {
    Envelope::new(ObjectKind::Table, DatabaseId(1), ObjectId(table), AttemptId(table))
}

/// Builds a table, taking its bytes in chunks of 1 MiB as an upload does, and returns its length.
///
/// # Errors
/// Errors of the builder.
pub fn build(rows: &Made, options: TableOptions) -> Result<u64> {
    let mut builder = TableBuilder::new(options, envelope(1));
    let mut bytes = 0;
    for entry in rows.entries() {
        builder.add(&entry)?;
        if let Some(chunk) = builder.take_chunk(1 << 20) {
            bytes += chunk.len() as u64;
        }
    }
    let (rest, _) = builder.finish()?;
    Ok(bytes + rest.len() as u64)
}

/// A table whose object is in memory.
#[derive(Debug)]
pub struct Loaded {
    /// Its metadata.
    pub table: Arc<Table>,
    object: Bytes,
}

impl Loaded {
    /// Builds and opens one.
    ///
    /// # Errors
    /// Errors of builder and table.
    pub fn new(number: u128, rows: &Made) -> Result<Loaded> {
        let mut builder = TableBuilder::new(TableOptions::default(), envelope(number));
        for entry in rows.entries() {
            builder.add(&entry)?;
        }
        let (object, descriptor) = builder.finish()?;
        let range = Table::tail_range(&descriptor);
        let tail = object.slice(range.start as usize..range.end as usize);
        Ok(Loaded { table: Arc::new(Table::open(descriptor, tail)?), object })
    }

    /// Decodes a block from the object's bytes. `None` for a missing or damaged block.
    #[must_use]
    pub fn decode(&self, block: u32) -> Option<Arc<Block>> {
        let range = self.table.block_range(block)?;
        let bytes = self.object.slice(range.start as usize..range.end as usize);
        self.table.decode_block(block, bytes).ok().map(Arc::new)
    }

    /// Every block, decoded.
    #[must_use]
    pub fn decoded(&self) -> Warm {
        Warm((0..self.table.block_count()).filter_map(|block| self.decode(block)).collect())
    }
}

/// Blocks are decoded on every request, as in a compaction.
impl BlockSource for Loaded {
    fn block(&self, addr: BlockAddr) -> Option<Arc<Block>> {
        self.decode(addr.block)
    }
}

/// All blocks of one table, decoded.
#[derive(Debug)]
pub struct Warm(Vec<Arc<Block>>);

impl BlockSource for Warm {
    fn block(&self, addr: BlockAddr) -> Option<Arc<Block>> {
        self.0.get(addr.block as usize).cloned()
    }
}
