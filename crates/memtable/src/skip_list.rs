//! The skip list (Pugh, "Skip lists: a probabilistic alternative to balanced trees", 1990) for
//! single writes. It is kept small, so that all of it stays in the cache of the processor: an
//! insertion into a list of a thousand entries costs a tenth of one into half a million.
//!
//! Node 0 is the head when it is a predecessor and the end when it is a successor.
//!
//! A reader walks along a level and then down a level, as in any skip list. It may miss a node that
//! is being linked, but never sees an incomplete one: links are stored (release) from the lowest
//! level up, after the fields of the node, and loaded with acquire.

use crate::log::{Log, NONE, Target};
use std::cmp::Ordering;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU32, AtomicU64};

/// Levels. Each has a quarter of the nodes of the one below, so five levels serve 4^5 = 1,024
/// entries.
const LEVELS: usize = 5;

/// Prefix of the key, number of the record, and the next node on each level. 32 bytes.
#[derive(Default)]
struct Node {
    prefix: AtomicU64,
    record: AtomicU32,
    links: [AtomicU32; LEVELS],
}

/// The part of the list that readers share.
pub(crate) struct SkipList {
    nodes: Box<[Node]>,
}

/// The writer's state: the count, the generator of heights, and the finger.
///
/// The finger is a predecessor and a successor per level, tight (`previous[l]` links to `next[l]`)
/// and nested (a higher level's pair encloses a lower one's), directly behind the last insertion.
/// An ascending key is between the lowest pair and costs two comparisons; a distant key climbs to
/// the first level whose pair encloses it (the splice of RocksDB's InlineSkipList).
pub(crate) struct Finger {
    previous: [u32; LEVELS],
    next: [u32; LEVELS],
    nodes: u32,
    random: u64,
}

impl Finger {
    pub(crate) fn new() -> Self {
        Finger {
            previous: [NONE; LEVELS],
            next: [NONE; LEVELS],
            nodes: 0,
            // Any odd constant is sufficient: heights follow the order of insertion, not the keys.
            random: 0x9e37_79b9_7f4a_7c15,
        }
    }

    /// Entries in the skip list.
    pub(crate) fn len(&self) -> usize {
        self.nodes as usize
    }

    /// Height of the next node: 1, plus one with probability 1/4 each time (xorshift64*, Vigna
    /// 2016).
    fn draw_height(&mut self) -> usize {
        let mut x = self.random;
        x ^= x >> 12;
        x ^= x << 25;
        x ^= x >> 27;
        self.random = x;
        let high_bits = x.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32;
        let pairs = (high_bits as u32).trailing_zeros() as usize / 2;
        (1 + pairs).min(LEVELS)
    }
}

#[expect(
    clippy::indexing_slicing,
    reason = "nodes are numbered up to the capacity, and levels are below LEVELS"
)]
impl SkipList {
    /// A list for `capacity` entries.
    pub(crate) fn new(capacity: usize) -> Self {
        SkipList { nodes: (0..=capacity).map(|_| Node::default()).collect() }
    }

    /// The maximum number of entries.
    pub(crate) fn capacity(&self) -> usize {
        self.nodes.len() - 1
    }

    /// The record of `node`; [`NONE`] for the head and the end.
    pub(crate) fn record(&self, node: u32) -> u32 {
        self.nodes[node as usize].record.load(Relaxed)
    }

    pub(crate) fn prefix(&self, node: u32) -> u64 {
        self.nodes[node as usize].prefix.load(Relaxed)
    }

    fn link(&self, node: u32, level: usize) -> &AtomicU32 {
        &self.nodes[node as usize].links[level]
    }

    /// The node after `node` (after the head: the first).
    pub(crate) fn after(&self, node: u32) -> u32 {
        self.link(node, 0).load(Acquire)
    }

    fn is_before(&self, log: &Log, node: u32, target: &Target<'_>) -> bool {
        target.compare(log, self.prefix(node), self.record(node)) == Ordering::Less
    }

    /// The last node before `target` and the first at or after it.
    pub(crate) fn search(&self, log: &Log, target: &Target<'_>) -> (u32, u32) {
        let mut before = NONE;
        let mut at_or_after = NONE;
        for level in (0..LEVELS).rev() {
            loop {
                let next = self.link(before, level).load(Acquire);
                // The node that ended the walk one level above needs no second comparison.
                if next == NONE || next == at_or_after {
                    break;
                }
                if self.is_before(log, next, target) {
                    before = next;
                } else {
                    at_or_after = next;
                    break;
                }
            }
        }
        (before, at_or_after)
    }

    /// The last node, or [`NONE`].
    pub(crate) fn last(&self) -> u32 {
        let mut before = NONE;
        for level in (0..LEVELS).rev() {
            loop {
                let next = self.link(before, level).load(Acquire);
                if next == NONE {
                    break;
                }
                before = next;
            }
        }
        before
    }

    /// Moves the finger to the position of `target`.
    fn place_finger(&self, log: &Log, finger: &mut Finger, target: &Target<'_>) {
        let is_before = |node: u32| node == NONE || self.is_before(log, node, target);
        let is_after = |node: u32| node == NONE || !self.is_before(log, node, target);
        // Neighbouring levels often share a node; its comparison is remembered.
        let (mut not_before, mut not_after) = (None, None);
        let mut level = 0;
        while level < LEVELS {
            let (previous, next) = (finger.previous[level], finger.next[level]);
            if Some(previous) != not_before && Some(next) != not_after {
                if !is_before(previous) {
                    not_before = Some(previous);
                } else if !is_after(next) {
                    not_after = Some(next);
                } else {
                    break;
                }
            }
            level += 1;
        }
        let mut previous = if level < LEVELS { finger.previous[level] } else { NONE };
        for below in (0..level).rev() {
            let mut next = self.link(previous, below).load(Relaxed);
            while next != NONE && self.is_before(log, next, target) {
                previous = next;
                next = self.link(previous, below).load(Relaxed);
            }
            finger.previous[below] = previous;
            finger.next[below] = next;
        }
    }

    /// Links `record`, which is `target`. The caller holds the writer's lock and has checked that
    /// there is room and that no node has the same key and sequence number.
    pub(crate) fn insert(&self, log: &Log, finger: &mut Finger, target: &Target<'_>, record: u32) {
        self.place_finger(log, finger, target);
        let height = finger.draw_height();
        finger.nodes += 1;
        let number = finger.nodes;
        let node = &self.nodes[number as usize];
        node.prefix.store(target.prefix, Relaxed);
        node.record.store(record, Relaxed);
        for level in 0..height {
            node.links[level].store(finger.next[level], Relaxed);
        }
        for level in 0..height {
            self.link(finger.previous[level], level).store(number, Release);
            finger.previous[level] = number;
        }
    }
}
