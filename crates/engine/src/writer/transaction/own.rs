//! A transaction's own writes, above the tree with which it began.

use crate::read::Pin;
use crate::read::tree::Tree;
use siltstone_base::{Batch, BatchOps, Kind, Result, Seq};
use siltstone_bloom::key_hash;
use siltstone_memtable::Memtable;
use std::sync::Arc;

/// Up to this number of operations are searched linearly. That costs less than building a memtable,
/// and most transactions have no more.
const FEW: u32 = 16;

/// The effect of a transaction's own writes on a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OwnWriteAnswer {
    /// They do not touch it.
    Nothing,
    /// They add operands to the value below.
    Something,
    /// They determine the value, regardless of what is below.
    All,
}

/// The effect of the operations of a small batch on `key`; `None` if the batch is too large to
/// search.
pub(super) fn of_few(batch: &Batch, key: &[u8]) -> Result<Option<OwnWriteAnswer>> {
    if batch.ops() > FEW {
        return Ok(None);
    }
    let mut says = OwnWriteAnswer::Nothing;
    for op in BatchOps::new(batch.as_bytes()) {
        let op = op?;
        says = match op.kind {
            Kind::RangeDelete if op.key <= key && key < op.value => OwnWriteAnswer::All,
            Kind::Put | Kind::Delete if op.key == key => OwnWriteAnswer::All,
            Kind::Merge if op.key == key && says == OwnWriteAnswer::Nothing => {
                OwnWriteAnswer::Something
            }
            _ => says,
        };
    }
    Ok(Some(says))
}

/// The writes as a memtable, numbered from the number after the base, and the tree with that
/// memtable on top.
pub(super) struct OwnWrites {
    memtable: Arc<Memtable>,
    tree: Arc<Tree>,
    /// How much of the batch the memtable has: bytes, operations.
    bytes: usize,
    ops: u32,
}

impl OwnWrites {
    /// No writes yet, above `base`.
    pub(super) fn over(base: &Pin) -> OwnWrites {
        let memtable = Arc::new(Memtable::new());
        let tree = Arc::new(Tree::under(base, Arc::clone(&memtable)));
        OwnWrites { memtable, tree, bytes: 0, ops: 0 }
    }

    /// Adds the new operations of `batch`, whose first operation has the number after `base`.
    pub(super) fn take(&mut self, base: Seq, batch: &Batch) -> Result<()> {
        let more = batch.as_bytes().get(self.bytes..).unwrap_or_default();
        if !more.is_empty() {
            let first = base.plus(u64::from(self.ops) + 1);
            self.memtable.insert_batch(first, &Arc::from(more))?;
            (self.bytes, self.ops) = (batch.as_bytes().len(), batch.ops());
        }
        Ok(())
    }

    /// The own writes above the base.
    pub(super) fn tree(&self) -> &Arc<Tree> {
        &self.tree
    }

    /// The effect of the writes on `key`.
    pub(super) fn says(&self, key: &[u8]) -> OwnWriteAnswer {
        if !self.memtable.deleted_at(key, Seq::MAX).is_none() {
            return OwnWriteAnswer::All;
        }
        let mut says = OwnWriteAnswer::Nothing;
        for version in self.memtable.versions(key, key_hash(key), Seq::MAX) {
            if version.entry().kind != Kind::Merge {
                return OwnWriteAnswer::All;
            }
            says = OwnWriteAnswer::Something;
        }
        says
    }
}
