//! Ordered movement over a memtable, both ways: a merge of its strips and its nursery.
//!
//! One head to each part says where the cursor stands in it: forward, the part's first entry at or
//! after the current one; backward, its last at or before. The current entry is the least (or the
//! greatest) of the heads. Parts are few, so they are looked through one by one.

use crate::log::{Log, NONE, Target};
use crate::order::Order;
use crate::table::{MemEntry, Memtable};
use siltstone_base::{Cursor, Entry, Error, Result, Seq, Step};
use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

/// Where the cursor stands in one part. `record` is [`NONE`] where the part has no more.
#[derive(Clone, Copy)]
struct Head {
    prefix: u64,
    record: u32,
    /// Node of the nursery, or position in the strip.
    at: usize,
}

/// Which way the heads stand.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Forward,
    Backward,
}

/// A cursor over a memtable's entries. Never lacks a block. It meets every entry that was there
/// when the cursor was made; of those that come later it may meet some.
#[derive(Clone)]
pub struct MemCursor {
    table: Arc<Memtable>,
    order: Arc<Order>,
    /// The strips' in their order, then the nursery's.
    heads: Vec<Head>,
    way: Way,
    /// Which head is current; past the last one where the cursor stands nowhere.
    current: usize,
}

impl fmt::Debug for MemCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemCursor").field("entry", &self.entry()).finish_non_exhaustive()
    }
}

impl MemCursor {
    pub(crate) fn new(table: Arc<Memtable>, order: Arc<Order>) -> Self {
        let heads = Vec::with_capacity(order.strips.len() + 1);
        MemCursor { table, order, heads, way: Way::Forward, current: usize::MAX }
    }

    /// The entry the cursor stands on, with a share of its buffer.
    #[must_use]
    pub fn shared(&self) -> Option<MemEntry> {
        self.standing().map(|record| self.table.shared(record))
    }

    /// The record the cursor stands on.
    fn standing(&self) -> Option<u32> {
        self.heads.get(self.current).map(|head| head.record)
    }

    fn log(&self) -> &Log {
        self.table.log()
    }

    /// The head of strip number `part` at `position`.
    fn in_strip(&self, part: usize, position: Option<usize>) -> Head {
        let found = position.and_then(|at| {
            let (prefix, record) = self.order.strips.get(part)?.at(at)?;
            Some(Head { prefix, record, at })
        });
        found.unwrap_or(Head { prefix: 0, record: NONE, at: 0 })
    }

    fn in_nursery(&self, node: u32) -> Head {
        let nursery = &self.order.nursery;
        Head { prefix: nursery.prefix(node), record: nursery.record(node), at: node as usize }
    }

    /// Places every head by a search in its part, then stands on the best.
    fn place(
        &mut self,
        way: Way,
        in_strip: impl Fn(&Self, usize) -> Option<usize>,
        in_nursery: impl Fn(&Self) -> u32,
    ) -> Result<Step> {
        self.way = way;
        let mut heads = std::mem::take(&mut self.heads);
        heads.clear();
        for part in 0..self.order.strips.len() {
            heads.push(self.in_strip(part, in_strip(self, part)));
        }
        heads.push(self.in_nursery(in_nursery(self)));
        self.heads = heads;
        Ok(self.choose())
    }

    /// Stands on the least head, or the greatest.
    fn choose(&mut self) -> Step {
        let wanted = match self.way {
            Way::Forward => Ordering::Less,
            Way::Backward => Ordering::Greater,
        };
        let mut best: Option<(usize, &Head)> = None;
        for (at, head) in self.heads.iter().enumerate().filter(|(_, head)| head.record != NONE) {
            let is_better = best.is_none_or(|(_, best)| {
                let order = head.prefix.cmp(&best.prefix);
                order.then_with(|| self.log().compare(head.record, best.record)) == wanted
            });
            if is_better {
                best = Some((at, head));
            }
        }
        match best {
            Some((at, _)) => {
                self.current = at;
                Step::Ready
            }
            None => {
                self.current = usize::MAX;
                Step::End
            }
        }
    }

    /// Stands on the first entry at or after `(key, seq)`, or on the last before it.
    fn place_at(&mut self, way: Way, key: &[u8], seq: Seq) -> Result<Step> {
        let order = Arc::clone(&self.order);
        let target = Target::new(&order.window, key, seq);
        let search = |this: &Self, part: usize| {
            this.order.strips.get(part).map(|strip| strip.search(this.log(), &target))
        };
        match way {
            Way::Forward => self.place(
                way,
                |this, part| search(this, part),
                |this| this.order.nursery.search(this.log(), &target).1,
            ),
            Way::Backward => self.place(
                way,
                |this, part| search(this, part)?.checked_sub(1),
                |this| this.order.nursery.search(this.log(), &target).0,
            ),
        }
    }

    /// Has the heads stand the other way round; the current entry stays the same.
    fn turn(&mut self, record: u32, way: Way) -> Result<()> {
        let table = Arc::clone(&self.table);
        let here = table.log().entry(record);
        match way {
            Way::Forward => self.place_at(way, here.key, here.seq)?,
            // The last before the next older number: the entry itself, since nothing lies between.
            Way::Backward => match here.seq.get().checked_sub(1) {
                Some(below) => self.place_at(way, here.key, Seq(below))?,
                None => return Err(Error::internal("sequence number 0 stands for none")),
            },
        };
        Ok(())
    }

    fn onward(&mut self, way: Way) -> Result<Step> {
        let Some(record) = self.standing() else {
            return Err(Error::internal("a memtable cursor was moved from nowhere"));
        };
        if self.way != way {
            self.turn(record, way)?;
        }
        let Some(head) = self.heads.get(self.current).copied() else { return Ok(Step::End) };
        let moved = match (self.current < self.order.strips.len(), way) {
            (true, Way::Forward) => self.in_strip(self.current, Some(head.at + 1)),
            (true, Way::Backward) => self.in_strip(self.current, head.at.checked_sub(1)),
            (false, Way::Forward) => self.in_nursery(self.order.nursery.after(head.at as u32)),
            // A search from the top, O(log n): nodes have no links back, since two links could
            // not be changed at once for readers without locks.
            (false, Way::Backward) => {
                let here = self.log().entry(record);
                let target = Target::new(&self.order.window, here.key, here.seq);
                self.in_nursery(self.order.nursery.search(self.log(), &target).0)
            }
        };
        if let Some(head) = self.heads.get_mut(self.current) {
            *head = moved;
        }
        Ok(self.choose())
    }
}

impl Cursor for MemCursor {
    fn seek_first(&mut self) -> Result<Step> {
        self.place(Way::Forward, |_, _| Some(0), |this| this.order.nursery.after(NONE))
    }

    fn seek_last(&mut self) -> Result<Step> {
        self.place(
            Way::Backward,
            |this, part| this.order.strips.get(part)?.len().checked_sub(1),
            |this| this.order.nursery.last(),
        )
    }

    fn seek(&mut self, key: &[u8], seq: Seq) -> Result<Step> {
        self.place_at(Way::Forward, key, seq)
    }

    fn seek_before(&mut self, key: &[u8], seq: Seq) -> Result<Step> {
        self.place_at(Way::Backward, key, seq)
    }

    fn next(&mut self) -> Result<Step> {
        self.onward(Way::Forward)
    }

    fn prev(&mut self) -> Result<Step> {
        self.onward(Way::Backward)
    }

    fn entry(&self) -> Option<Entry<'_>> {
        self.standing().map(|record| self.log().entry(record))
    }
}
