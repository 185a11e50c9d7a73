//! A transaction's own writes, over the tree that it began with.

use crate::read::Pin;
use crate::read::tree::Tree;
use siltstone_base::{Batch, BatchOps, Kind, Result, Seq};
use siltstone_bloom::key_hash;
use siltstone_memtable::Memtable;
use std::sync::Arc;

/// Up to so many operations are looked through one by one: less than making a memtable costs, and
/// most transactions have no more.
const FEW: u32 = 16;

/// What own writes say about a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OwnWriteAnswer {
    /// Nothing.
    Nothing,
    /// Something is to be folded onto what was there.
    Something,
    /// All that there is to say, whatever was there.
    All,
}

/// What few operations say about `key`; `None` where they are too many to be looked through.
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

/// The writes as a memtable, numbered from the one after the base on, and the tree under it.
pub(super) struct OwnWrites {
    memtable: Arc<Memtable>,
    tree: Arc<Tree>,
    /// How much of the batch it has: bytes, operations.
    bytes: usize,
    ops: u32,
}

impl OwnWrites {
    /// None yet, over `base`.
    pub(super) fn over(base: &Pin) -> OwnWrites {
        let memtable = Arc::new(Memtable::new());
        let tree = Arc::new(base.tree.under(Arc::clone(&memtable), base.seq));
        OwnWrites { memtable, tree, bytes: 0, ops: 0 }
    }

    /// Takes up what was added to `batch`, whose first operation has the number after `base`.
    pub(super) fn take(&mut self, base: Seq, batch: &Batch) -> Result<()> {
        let more = batch.as_bytes().get(self.bytes..).unwrap_or_default();
        if !more.is_empty() {
            let first = base.plus(u64::from(self.ops) + 1);
            self.memtable.insert_batch(first, &Arc::from(more))?;
            (self.bytes, self.ops) = (batch.as_bytes().len(), batch.ops());
        }
        Ok(())
    }

    /// Own writes, then what was there at the base.
    pub(super) fn tree(&self) -> &Arc<Tree> {
        &self.tree
    }

    /// What they say about `key`.
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
