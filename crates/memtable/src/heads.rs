//! The merge of the parts of an order, with one head in each sorted array and one in the skip list.
//!
//! A head is the position of the merge in its part: forward, the first entry at or after the
//! current one; backward, the last entry at or before it. The current entry is the smallest (or
//! largest) head. There are few parts, so all heads are compared one by one.

use crate::log::{Log, NONE, Target};
use crate::order::Order;
use crate::record::{Place, Record};
use siltstone_base::Seq;
use std::cmp::Ordering;
use std::sync::Arc;

/// The position of the merge in one part. `record` is [`NONE`] at the end of the part.
#[derive(Clone, Copy)]
struct Head {
    prefix: u64,
    record: u32,
    /// Node of the skip list, or position in the sorted array.
    at: usize,
}

impl Head {
    /// Whether both are records of one key. Reads the keys only if their prefixes are equal.
    #[inline]
    fn has_key_of(&self, other: &Head, log: &Log) -> bool {
        self.prefix == other.prefix
            && self.record != NONE
            && log.key(self.record) == log.key(other.record)
    }
}

/// A past position of a merge.
#[derive(Clone, Copy, Default)]
pub(crate) struct MergePosition {
    record: u32,
    part: u32,
    /// Node of the skip list, or position in the sorted array: both are below 2^32.
    at: u32,
    /// Whether the merge passes over older versions of its key.
    has_older: bool,
}

/// An entry at which a merge was.
#[derive(Clone, Copy)]
pub(crate) struct CurrentEntry {
    pub(crate) record: u32,
    /// Whether the merge passes over older versions of its key.
    pub(crate) has_older: bool,
    /// Its position in [`Heads::bytes`].
    pub(crate) place: Place,
    /// Its sorted array and its position there, if it is stored together with its neighbours.
    laid: Option<(u32, u32)>,
}

/// The direction of a merge.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum MergeDirection {
    Forward,
    Backward,
}

/// A merge of an order's parts. It is on a record, or has no position.
#[derive(Clone)]
pub(crate) struct Heads {
    order: Arc<Order>,
    /// The heads of the sorted arrays in their order, then that of the skip list.
    heads: Vec<Head>,
    way: MergeDirection,
    /// The index of the current head; past the last one if the merge has no position.
    current: usize,
    /// Whether other heads may have the key of the current one: false if no prefixes are equal.
    has_ties: bool,
    /// Whether entries that are read often are stored together.
    pub(crate) lays: bool,
    /// Whether the merge moves from key to key: forward it passes over all versions of a key but
    /// the first that it comes to. Backward it does not: there the newest version comes last.
    pub(crate) by_key: bool,
    /// Whether the loads of the next search were prefetched.
    is_prefetched: bool,
}

impl Heads {
    pub(crate) fn new(order: Arc<Order>) -> Self {
        let heads = Vec::with_capacity(order.arrays.len() + 1);
        Heads {
            order,
            heads,
            way: MergeDirection::Forward,
            current: usize::MAX,
            has_ties: false,
            lays: true,
            by_key: false,
            is_prefetched: false,
        }
    }

    pub(crate) fn way(&self) -> MergeDirection {
        self.way
    }

    /// The position of the merge.
    pub(crate) fn stood(&self, log: &Log) -> Option<MergePosition> {
        let Head { record, at, .. } = *self.heads.get(self.current)?;
        let has_older = self.moves_by_key() && self.has_older(log);
        Some(MergePosition { record, part: self.current as u32, at: at as u32, has_older })
    }

    fn moves_by_key(&self) -> bool {
        self.by_key && self.way == MergeDirection::Forward
    }

    /// Whether older versions of the current key follow: in the current part, or in another one.
    fn has_older(&self, log: &Log) -> bool {
        let Some(current) = self.heads.get(self.current) else { return false };
        let in_part = match self.order.arrays.get(self.current) {
            Some(array) => array.has_older(current.at),
            None => {
                let next = self.in_skip_list(self.order.skip_list.after(current.at as u32));
                next.has_key_of(current, log)
            }
        };
        let is_other = |part: usize| self.has_ties && part != self.current;
        let mut others = self.heads.iter().enumerate().filter(|(part, _)| is_other(*part));
        in_part || others.any(|(_, head)| head.has_key_of(current, log))
    }

    /// The entry at that position.
    pub(crate) fn standing(&self, log: &Log, stood: MergePosition) -> CurrentEntry {
        let MergePosition { record, part, at, has_older } = stood;
        let array = self.order.arrays.get(part as usize).filter(|_| self.lays);
        let laid = array.and_then(|array| array.read(log, at as usize));
        let place = laid.unwrap_or_else(|| log.record(record).place());
        CurrentEntry { record, has_older, place, laid: laid.map(|_| (part, at)) }
    }

    /// The record that [`Heads::standing`] reads; `None` if the entry is stored with its
    /// neighbours.
    pub(crate) fn record<'a>(&self, log: &'a Log, stood: MergePosition) -> Option<&'a Record> {
        let array = self.order.arrays.get(stood.part as usize).filter(|_| self.lays);
        let is_laid = array.is_some_and(|array| array.is_laid(stood.at as usize));
        (!is_laid).then(|| log.record(stood.record))
    }

    /// The bytes that contain `standing`, an entry of this merge.
    #[inline]
    pub(crate) fn bytes<'a>(&'a self, log: &'a Log, standing: &CurrentEntry) -> &'a [u8] {
        let array = |(part, at): (u32, u32)| Some((self.order.arrays.get(part as usize)?, at));
        match standing.laid.and_then(array) {
            Some((array, at)) => array.laid(at as usize),
            None => log.buffer(standing.place.buffer),
        }
    }

    /// To the first record, or backward to the last one.
    pub(crate) fn move_to_end(&mut self, log: &Log, way: MergeDirection) {
        let order = Arc::clone(&self.order);
        let skip_list = &order.skip_list;
        match way {
            MergeDirection::Forward => self.place(log, way, |_, _| Some(0), skip_list.after(NONE)),
            MergeDirection::Backward => {
                let last = |at: usize, _: &Log| order.arrays.get(at)?.len().checked_sub(1);
                self.place(log, way, last, skip_list.last());
            }
        }
    }

    /// Prefetches the loads of the next search, if that is for `key`.
    pub(crate) fn prefetch(&mut self, key: &[u8]) {
        self.order.prefetch(&Target::new(&self.order.window, key, Seq::MAX));
        self.is_prefetched = true;
    }

    /// To the first record at or after `(key, seq)`, or backward to the last one before it.
    pub(crate) fn move_to(&mut self, log: &Log, way: MergeDirection, key: &[u8], seq: Seq) {
        let order = Arc::clone(&self.order);
        let target = Target::new(&order.window, key, seq);
        if !std::mem::take(&mut self.is_prefetched) {
            order.prefetch(&target);
        }
        let (before, at_or_after) = order.skip_list.search(log, &target);
        let search = |at: usize, log: &Log| Some(order.arrays.get(at)?.search(log, &target));
        match way {
            MergeDirection::Forward => self.place(log, way, search, at_or_after),
            MergeDirection::Backward => {
                self.place(log, way, |at, log| search(at, log)?.checked_sub(1), before);
            }
        }
    }

    /// To the next record, in the direction in which the merge was placed, or to the next key; it
    /// must be on a record.
    pub(crate) fn advance(&mut self, log: &Log) {
        let Some(head) = self.heads.get(self.current).copied() else { return };
        if self.moves_by_key() {
            self.pass_key(log, head);
            self.choose(log);
            return;
        }
        let skip_list = &self.order.skip_list;
        let moved = match (self.current < self.order.arrays.len(), self.way) {
            (true, MergeDirection::Forward) => self.in_array(self.current, Some(head.at + 1)),
            (true, MergeDirection::Backward) => self.in_array(self.current, head.at.checked_sub(1)),
            (false, MergeDirection::Forward) => self.in_skip_list(skip_list.after(head.at as u32)),
            // A search from the top, O(log n): nodes have no links back, because two links could
            // not be changed atomically for readers without locks.
            (false, MergeDirection::Backward) => {
                let here = log.entry(head.record);
                let target = Target::new(&self.order.window, here.key, here.seq);
                self.in_skip_list(skip_list.search(log, &target).0)
            }
        };
        if let Some(head) = self.heads.get_mut(self.current) {
            *head = moved;
        }
        self.choose(log);
    }

    /// Moves every head with the key of `current` behind the versions of that key.
    fn pass_key(&mut self, log: &Log, current: Head) {
        let parts =
            if self.has_ties { 0..self.heads.len() } else { self.current..self.current + 1 };
        for part in parts {
            let Some(head) = self.heads.get(part).copied() else { return };
            if part != self.current && !head.has_key_of(&current, log) {
                continue;
            }
            let behind = match self.order.arrays.get(part) {
                Some(array) => self.in_array(part, Some(array.next_key(log, head.at))),
                None => self.behind_key_in_skip_list(log, head),
            };
            if let Some(head) = self.heads.get_mut(part) {
                *head = behind;
            }
        }
    }

    /// The head of the skip list behind the versions of the key of `head`. Usually that is the next
    /// node; versions are passed by a search, since there may be a thousand.
    fn behind_key_in_skip_list(&self, log: &Log, head: Head) -> Head {
        let skip_list = &self.order.skip_list;
        let next = self.in_skip_list(skip_list.after(head.at as u32));
        if !next.has_key_of(&head, log) {
            return next;
        }
        let target = Target { prefix: head.prefix, key: log.key(head.record), seq: Seq::NONE };
        self.in_skip_list(skip_list.search(log, &target).1)
    }

    /// The head of sorted array number `part` at `position`.
    fn in_array(&self, part: usize, position: Option<usize>) -> Head {
        let found = position.and_then(|at| {
            let (prefix, record) = self.order.arrays.get(part)?.at(at)?;
            Some(Head { prefix, record, at })
        });
        found.unwrap_or(Head { prefix: 0, record: NONE, at: 0 })
    }

    fn in_skip_list(&self, node: u32) -> Head {
        let skip_list = &self.order.skip_list;
        Head { prefix: skip_list.prefix(node), record: skip_list.record(node), at: node as usize }
    }

    /// Places every head, then chooses the best one.
    fn place(
        &mut self,
        log: &Log,
        way: MergeDirection,
        position: impl Fn(usize, &Log) -> Option<usize>,
        node: u32,
    ) {
        self.way = way;
        self.heads.clear();
        for part in 0..self.order.arrays.len() {
            let head = self.in_array(part, position(part, log));
            self.heads.push(head);
        }
        let head = self.in_skip_list(node);
        self.heads.push(head);
        self.choose(log);
    }

    /// Chooses the least head, or backward the greatest.
    fn choose(&mut self, log: &Log) {
        let wanted = match self.way {
            MergeDirection::Forward => Ordering::Less,
            MergeDirection::Backward => Ordering::Greater,
        };
        let mut best: Option<(usize, &Head)> = None;
        // Every head with the prefix of the best is compared with it, or was the best before it.
        let mut has_ties = false;
        for (at, head) in self.heads.iter().enumerate().filter(|(_, head)| head.record != NONE) {
            let is_better = best.is_none_or(|(_, best)| {
                let order = head.prefix.cmp(&best.prefix);
                has_ties |= order == Ordering::Equal;
                order.then_with(|| log.compare(head.record, best.record)) == wanted
            });
            if is_better {
                best = Some((at, head));
            }
        }
        self.current = best.map_or(usize::MAX, |(at, _)| at);
        self.has_ties = has_ties;
    }
}
