//! Ordered movement over a memtable, both ways.

use crate::list::{NONE, Target};
use crate::table::{MemEntry, Memtable};
use siltstone_base::{Cursor, Entry, Error, Result, Seq, Step};
use std::sync::Arc;

/// A cursor over a memtable's entries. Never lacks a block. What is inserted while it moves is met
/// when it lies ahead.
#[derive(Clone, Debug)]
pub struct MemCursor {
    table: Arc<Memtable>,
    node: u32,
}

impl MemCursor {
    pub(crate) fn new(table: Arc<Memtable>) -> Self {
        MemCursor { table, node: NONE }
    }

    /// The entry the cursor stands on, with a share of its buffer.
    #[must_use]
    pub fn shared(&self) -> Option<MemEntry> {
        (self.node != NONE).then(|| {
            let place = self.table.list().place(self.node);
            MemEntry::new(Arc::clone(self.table.list().buffer(place.buffer)), place)
        })
    }

    fn stand_on(&mut self, node: u32) -> Result<Step> {
        self.node = node;
        Ok(if node == NONE { Step::End } else { Step::Ready })
    }

    fn standing(&self) -> Result<u32> {
        if self.node == NONE {
            return Err(Error::internal("a memtable cursor was moved from nowhere"));
        }
        Ok(self.node)
    }
}

impl Cursor for MemCursor {
    fn seek_first(&mut self) -> Result<Step> {
        self.stand_on(self.table.list().after(NONE))
    }

    fn seek_last(&mut self) -> Result<Step> {
        self.stand_on(self.table.list().last())
    }

    fn seek(&mut self, key: &[u8], seq: Seq) -> Result<Step> {
        let (_, at_or_after) = self.table.list().search(Target::new(key, seq));
        self.stand_on(at_or_after)
    }

    fn seek_before(&mut self, key: &[u8], seq: Seq) -> Result<Step> {
        let (before, _) = self.table.list().search(Target::new(key, seq));
        self.stand_on(before)
    }

    fn next(&mut self) -> Result<Step> {
        let node = self.standing()?;
        self.stand_on(self.table.list().after(node))
    }

    /// A search from the top, O(log n): nodes have no links back, since two links could not be
    /// changed at once for readers without locks.
    fn prev(&mut self) -> Result<Step> {
        let node = self.standing()?;
        let here = self.table.list().entry(node);
        let (before, _) = self.table.list().search(Target::new(here.key, here.seq));
        self.stand_on(before)
    }

    fn entry(&self) -> Option<Entry<'_>> {
        (self.node != NONE).then(|| self.table.list().entry(self.node))
    }
}
