//! The skip list: search for readers, insertion for the one writer.
//!
//! Node numbers start at 1. Number 0 is the head where a predecessor is meant and the end where a
//! successor is meant; the head's links stand in the list itself, so an empty table costs nothing.
//!
//! A reader walks right along a level and down a level, as in any skip list. It may miss a node
//! that is being linked, never meet one that is half made: links are stored (release) from the
//! lowest level up, after the node's own links, and loaded with acquire.

use crate::chunked::Chunked;
use crate::node::{INLINE_LINKS, Node, Place, key_prefix};
use siltstone_base::{Entry, Seq};
use std::cmp::Ordering;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU32, AtomicUsize};
use std::sync::{Arc, OnceLock};

/// Levels. Each holds a quarter of the one below, so 12 levels serve 4^12 = 16 million entries;
/// beyond that the walk along the top level grows, and nothing breaks.
pub(crate) const MAX_HEIGHT: usize = 12;
/// The head as predecessor, the end as successor.
pub(crate) const NONE: u32 = 0;

/// The part of the list that readers share.
pub(crate) struct List {
    head: [AtomicU32; MAX_HEIGHT],
    /// Levels in use. A stale value costs a reader some steps and nothing else.
    height: AtomicUsize,
    nodes: Chunked<Node>,
    /// Links on the levels that have no room in the node; one node's lie side by side.
    towers: Chunked<AtomicU32>,
    buffers: Chunked<OnceLock<Arc<[u8]>>>,
}

/// What a search looks for: an internal key and its prefix.
#[derive(Clone, Copy)]
pub(crate) struct Target<'a> {
    prefix: u64,
    key: &'a [u8],
    seq: Seq,
}

impl<'a> Target<'a> {
    pub(crate) fn new(key: &'a [u8], seq: Seq) -> Self {
        Target { prefix: key_prefix(key), key, seq }
    }
}

/// The writer's side: counters, the generator of heights, and the finger.
///
/// The finger is a predecessor and a successor per level, tight (`previous[l]` links to `next[l]`)
/// and nested (a higher level's pair encloses a lower one's), left just behind the last insertion.
/// An ascending key lies between the lowest pair and costs two comparisons; a far one climbs to the
/// first level whose pair encloses it (the splice of RocksDB's InlineSkipList).
pub(crate) struct Finger {
    previous: [u32; MAX_HEIGHT],
    next: [u32; MAX_HEIGHT],
    pub(crate) nodes: u32,
    towers: u32,
    pub(crate) buffers: u32,
    random: u64,
}

impl Finger {
    pub(crate) fn new() -> Self {
        Finger {
            previous: [NONE; MAX_HEIGHT],
            next: [NONE; MAX_HEIGHT],
            nodes: 0,
            towers: 0,
            buffers: 0,
            // Any odd constant will do: heights follow the order of insertion, not the keys.
            random: 0x9e37_79b9_7f4a_7c15,
        }
    }

    /// Height of the next tower: 1, and one more with chance 1/4 each (xorshift64*, Vigna 2016).
    fn draw_height(&mut self) -> usize {
        let mut x = self.random;
        x ^= x >> 12;
        x ^= x << 25;
        x ^= x >> 27;
        self.random = x;
        let high_bits = x.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32;
        let pairs = (high_bits as u32).trailing_zeros() as usize / 2;
        (1 + pairs).min(MAX_HEIGHT)
    }
}

impl List {
    pub(crate) fn new() -> Self {
        List {
            head: [const { AtomicU32::new(NONE) }; MAX_HEIGHT],
            height: AtomicUsize::new(1),
            nodes: Chunked::new(),
            towers: Chunked::new(),
            buffers: Chunked::new(),
        }
    }

    /// Keeps `buffer` for as long as the list lives and answers its number.
    pub(crate) fn keep_buffer(&self, finger: &mut Finger, buffer: &Arc<[u8]>) -> u32 {
        let number = finger.buffers;
        finger.buffers += 1;
        // The slot is new: only the writer counts, and it never reuses a number.
        let _ = self.buffers.make(number).set(Arc::clone(buffer));
        number
    }

    pub(crate) fn buffer(&self, number: u32) -> &Arc<[u8]> {
        match self.buffers.get(number).get() {
            Some(buffer) => buffer,
            None => unreachable!("a node was linked before its buffer was kept"),
        }
    }

    pub(crate) fn place(&self, node: u32) -> Place {
        self.nodes.get(node).place()
    }

    pub(crate) fn entry(&self, node: u32) -> Entry<'_> {
        let place = self.place(node);
        place.read(self.buffer(place.buffer))
    }

    #[expect(clippy::indexing_slicing, reason = "levels are below MAX_HEIGHT")]
    fn link(&self, node: u32, level: usize) -> &AtomicU32 {
        if node == NONE {
            return &self.head[level];
        }
        let at = self.nodes.get(node);
        match at.links.get(level) {
            Some(link) => link,
            None => self.towers.get(at.tower() + (level - INLINE_LINKS) as u32),
        }
    }

    /// The node after `node` on level 0 (after the head: the first).
    pub(crate) fn after(&self, node: u32) -> u32 {
        self.link(node, 0).load(Acquire)
    }

    /// Order of `node` against `target`. Touches the key's bytes only where the prefixes are equal.
    #[expect(clippy::indexing_slicing, reason = "the range was decoded from this very buffer")]
    fn compare(&self, node: u32, target: Target<'_>) -> Ordering {
        let at = self.nodes.get(node);
        at.prefix().cmp(&target.prefix).then_with(|| {
            let place = at.place();
            let key = &self.buffer(place.buffer)[place.key_range()];
            key.cmp(target.key).then_with(|| target.seq.cmp(&place.seq))
        })
    }

    /// The last node before `target` and the first at or after it, on level 0.
    pub(crate) fn search(&self, target: Target<'_>) -> (u32, u32) {
        let mut before = NONE;
        let mut at_or_after = NONE;
        for level in (0..self.height.load(Acquire)).rev() {
            loop {
                let next = self.link(before, level).load(Acquire);
                // The node that ended the walk one level up needs no second comparison.
                if next == NONE || next == at_or_after {
                    break;
                }
                if self.compare(next, target) == Ordering::Less {
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
        for level in (0..self.height.load(Acquire)).rev() {
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

    /// Moves the finger to where `target` belongs.
    #[expect(clippy::indexing_slicing, reason = "levels are below MAX_HEIGHT")]
    fn place_finger(&self, finger: &mut Finger, target: Target<'_>) {
        let is_before = |node: u32| node == NONE || self.compare(node, target) == Ordering::Less;
        let is_after = |node: u32| node == NONE || self.compare(node, target) != Ordering::Less;
        // Neighbouring levels often share a node; its answer is remembered.
        let (mut not_before, mut not_after) = (None, None);
        let mut level = 0;
        while level < MAX_HEIGHT {
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
        let mut previous = if level < MAX_HEIGHT { finger.previous[level] } else { NONE };
        for below in (0..level).rev() {
            let mut next = self.link(previous, below).load(Relaxed);
            while next != NONE && self.compare(next, target) == Ordering::Less {
                previous = next;
                next = self.link(previous, below).load(Relaxed);
            }
            finger.previous[below] = previous;
            finger.next[below] = next;
        }
    }

    /// Links a new entry. The caller holds the writer's lock, has kept the buffer, and has made
    /// sure of room and that no node has the same key and sequence number.
    #[expect(clippy::indexing_slicing, reason = "levels are below MAX_HEIGHT")]
    pub(crate) fn insert(&self, finger: &mut Finger, key: &[u8], place: Place) {
        self.place_finger(finger, Target::new(key, place.seq));
        let height = finger.draw_height();
        finger.nodes += 1;
        let number = finger.nodes;
        let tower = finger.towers;
        finger.towers += height.saturating_sub(INLINE_LINKS) as u32;
        self.nodes.make(number).fill(key, place, tower);
        for link in tower..finger.towers {
            self.towers.make(link);
        }
        for level in 0..height {
            self.link(number, level).store(finger.next[level], Relaxed);
        }
        for level in 0..height {
            self.link(finger.previous[level], level).store(number, Release);
            finger.previous[level] = number;
        }
        if height > self.height.load(Relaxed) {
            self.height.store(height, Release);
        }
    }
}
