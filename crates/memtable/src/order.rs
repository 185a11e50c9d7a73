//! The order of a memtable's entries: the nursery, and strips of decreasing length behind it.
//!
//! ```text
//! strips : [ 180,000 ] [ 70,000 ] [ 20,000 ] [ 3,000 ]   each more than twice the next
//! nursery: up to 1,024 single writes
//! ```
//! A full nursery becomes a strip, and a large batch is one from the start. A new strip is merged
//! with its neighbour while that is at most twice as long, so a strip's rows grow by half at least
//! with every merge they take part in: a row is merged O(log n) times, sequentially, and a reader
//! meets O(log n) strips. It is the merge that the tables below go through, in small.
//!
//! An order is replaced whole, so a reader that holds one sees the entries of that moment; what the
//! nursery takes later is met as well.

use crate::log::{Log, NONE, Target};
use crate::nursery::Nursery;
use crate::strip::Strip;
use crate::window::Window;
use siltstone_base::Seq;
use std::hint::black_box;
use std::sync::Arc;

/// A neighbour up to so many times as long is merged with a new strip.
const RATIO: usize = 2;

/// One moment of the order.
pub(crate) struct Order {
    /// How the prefixes in nursery and strips were made.
    pub(crate) window: Arc<Window>,
    pub(crate) nursery: Arc<Nursery>,
    /// Longest first; none is empty.
    pub(crate) strips: Vec<Arc<Strip>>,
    /// Rows of the strips when the window was last thought about.
    considered: usize,
}

impl Order {
    /// An empty one, whose nurseries take `nursery` entries.
    pub(crate) fn new(nursery: usize) -> Self {
        Order {
            window: Arc::default(),
            nursery: Arc::new(Nursery::new(nursery)),
            strips: Vec::new(),
            considered: 0,
        }
    }

    /// This order and the records from `first` to `last`.
    pub(crate) fn with_batch(&self, log: &Log, first: u32, last: u32) -> Order {
        let strip = Strip::of_records(log, &self.window, first, last);
        let (window, nursery) = (Arc::clone(&self.window), Arc::clone(&self.nursery));
        let strips = self.merged(log, strip);
        Order { window, nursery, strips, considered: self.considered }.reconsidered(log)
    }

    /// This order with the entries of its nursery in strips, and a fresh nursery.
    pub(crate) fn sealed(&self, log: &Log) -> Order {
        let nursery = &self.nursery;
        let nodes = std::iter::successors(Some(nursery.after(NONE)), |at| Some(nursery.after(*at)));
        let nodes = nodes.take_while(|node| *node != NONE);
        let strip = Strip::of_sorted(nodes.map(|at| (nursery.prefix(at), nursery.record(at))));
        let strips = if strip.len() == 0 { self.strips.clone() } else { self.merged(log, strip) };
        let (window, nursery) =
            (Arc::clone(&self.window), Arc::new(Nursery::new(nursery.capacity())));
        Order { window, nursery, strips, considered: self.considered }.reconsidered(log)
    }

    /// Thinks about the window each time the rows have doubled, so that what changing it costs, a
    /// look at every key, is spread over at least as many insertions.
    fn reconsidered(mut self, log: &Log) -> Order {
        let rows = self.strips.iter().map(|strip| strip.len()).sum();
        if rows < 2 * self.considered {
            return self;
        }
        self.considered = rows;
        let ends = || self.strips.iter().map(|strip| strip.ends());
        let least = ends().map(|(first, _)| log.key(first)).min();
        let greatest = ends().map(|(_, last)| log.key(last)).max();
        let (Some(least), Some(greatest)) = (least, greatest) else { return self };
        let window = Window::between(least, greatest);
        if window == *self.window {
            return self;
        }
        // The nursery's prefixes are of the old window: sealed, they are made anew with the rest.
        let sealed = self.sealed(log);
        let through = |strip: &Arc<Strip>| Arc::new(strip.through(log, &window));
        let strips = sealed.strips.iter().map(through).collect();
        Order { strips, window: Arc::new(window), ..sealed }
    }

    fn merged(&self, log: &Log, mut strip: Strip) -> Vec<Arc<Strip>> {
        let mut strips = self.strips.clone();
        while let Some(last) = strips.pop_if(|last| last.len() <= RATIO * strip.len()) {
            strip = Strip::merge(log, &last, &strip);
        }
        strips.push(Arc::new(strip));
        strips
    }

    /// Loads what a search for `target` loads in the strips, of all of them side by side.
    pub(crate) fn touch(&self, target: &Target<'_>) {
        let strips = self.strips.iter();
        black_box(strips.fold(0, |sum, strip| sum ^ strip.touch(target.prefix)));
    }

    /// The record of `key` with the largest sequence number up to `seq`, or [`NONE`].
    pub(crate) fn find(&self, log: &Log, key: &[u8], seq: Seq) -> u32 {
        let target = &Target::new(&self.window, key, seq);
        let strips = self.strips.iter().filter_map(|strip| strip.at(strip.search(log, target)));
        let (_, node) = self.nursery.search(log, target);
        let found = strips.map(|(_, record)| record).chain([self.nursery.record(node)]);
        // Each is the first at or after the target in its part; numbers grow with sequence numbers.
        found.filter(|record| *record != NONE && log.key(*record) == key).max().unwrap_or(NONE)
    }
}
