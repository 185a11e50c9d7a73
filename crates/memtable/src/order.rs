//! The order of the entries of a memtable: a skip list, followed by sorted arrays, each longer than
//! the next.
//!
//! ```text
//! sorted arrays: [ 180,000 ] [ 70,000 ] [ 20,000 ] [ 3,000 ]   each more than twice the next
//! skip list:     up to 1,024 single writes
//! ```
//! A full skip list becomes a sorted array; a large batch becomes one directly. A new array is
//! merged with its neighbour while that is at most twice as long, so the array of a row grows by at
//! least half in every merge. A row is therefore merged O(log n) times, sequentially, and a reader
//! reads O(log n) sorted arrays. This is the same scheme as the merge of tables, on a small scale.
//!
//! An order is replaced as a whole, so a reader that holds one sees the entries of that time; it
//! also sees entries added to the skip list later.

use crate::log::{Log, NONE, Target};
use crate::skip_list::SkipList;
use crate::sorted_array::SortedArray;
use crate::window::Window;
use siltstone_base::Seq;
use std::hint::black_box;
use std::sync::Arc;

/// A neighbour that is at most this many times as long is merged with a new sorted array.
const RATIO: usize = 2;

/// An immutable state of the order.
pub(crate) struct Order {
    /// The window with which the prefixes in skip list and sorted arrays were made.
    pub(crate) window: Arc<Window>,
    pub(crate) skip_list: Arc<SkipList>,
    /// Longest first; none is empty.
    pub(crate) arrays: Vec<Arc<SortedArray>>,
    /// Rows of the sorted arrays when the window was last reconsidered.
    considered: usize,
}

impl Order {
    /// An empty order, whose skip lists take `skip_list` entries.
    pub(crate) fn new(skip_list: usize) -> Self {
        Order {
            window: Arc::default(),
            skip_list: Arc::new(SkipList::new(skip_list)),
            arrays: Vec::new(),
            considered: 0,
        }
    }

    /// This order and the records from `first` to `last`.
    pub(crate) fn with_batch(&self, log: &Log, first: u32, last: u32) -> Order {
        let array = SortedArray::of_records(log, &self.window, first, last);
        let (window, skip_list) = (Arc::clone(&self.window), Arc::clone(&self.skip_list));
        let arrays = self.merged(log, array);
        Order { window, skip_list, arrays, considered: self.considered }.reconsidered(log)
    }

    /// This order with the entries of its skip list in sorted arrays, and a fresh skip list.
    pub(crate) fn sealed(&self, log: &Log) -> Order {
        let skip_list = &self.skip_list;
        let nodes =
            std::iter::successors(Some(skip_list.after(NONE)), |at| Some(skip_list.after(*at)));
        let nodes = nodes.take_while(|node| *node != NONE);
        let rows = nodes.map(|at| (skip_list.prefix(at), skip_list.record(at)));
        let array = SortedArray::of_sorted(log, rows);
        let arrays = if array.len() == 0 { self.arrays.clone() } else { self.merged(log, array) };
        let (window, skip_list) =
            (Arc::clone(&self.window), Arc::new(SkipList::new(skip_list.capacity())));
        Order { window, skip_list, arrays, considered: self.considered }.reconsidered(log)
    }

    /// Reconsiders the window each time the number of rows has doubled. A change reads every key,
    /// so its cost is spread over at least as many insertions.
    fn reconsidered(mut self, log: &Log) -> Order {
        let rows = self.arrays.iter().map(|array| array.len()).sum();
        if rows < 2 * self.considered {
            return self;
        }
        self.considered = rows;
        let ends = || self.arrays.iter().map(|array| array.ends());
        let least = ends().map(|(first, _)| log.key(first)).min();
        let greatest = ends().map(|(_, last)| log.key(last)).max();
        let (Some(least), Some(greatest)) = (least, greatest) else { return self };
        let window = Window::between(least, greatest);
        if window == *self.window {
            return self;
        }
        // The skip list's prefixes belong to the old window: sealed, they are made again with the
        // rest.
        let sealed = self.sealed(log);
        let through = |array: &Arc<SortedArray>| Arc::new(array.through(log, &window));
        let arrays = sealed.arrays.iter().map(through).collect();
        Order { arrays, window: Arc::new(window), ..sealed }
    }

    fn merged(&self, log: &Log, mut array: SortedArray) -> Vec<Arc<SortedArray>> {
        let mut arrays = self.arrays.clone();
        while let Some(last) = arrays.pop_if(|last| last.len() <= RATIO * array.len()) {
            array = SortedArray::merge(log, &last, &array);
        }
        arrays.push(Arc::new(array));
        arrays
    }

    /// The greatest key of all its entries.
    pub(crate) fn greatest_key<'l>(&self, log: &'l Log) -> Option<&'l [u8]> {
        let arrays = self.arrays.iter().map(|array| array.ends().1);
        let records = arrays.chain([self.skip_list.record(self.skip_list.last())]);
        records.filter(|record| *record != NONE).map(|record| log.key(record)).max()
    }

    /// Prefetches the loads of a search for `target` in all sorted arrays, in parallel.
    pub(crate) fn prefetch(&self, target: &Target<'_>) {
        let arrays = self.arrays.iter();
        black_box(arrays.fold(0, |sum, array| sum ^ array.prefetch(target.prefix)));
    }

    /// The record of `key` with the largest sequence number up to `seq`, or [`NONE`].
    pub(crate) fn find(&self, log: &Log, key: &[u8], seq: Seq) -> u32 {
        let target = &Target::new(&self.window, key, seq);
        let arrays = self.arrays.iter().filter_map(|array| array.at(array.search(log, target)));
        let (_, node) = self.skip_list.search(log, target);
        let found = arrays.map(|(_, record)| record).chain([self.skip_list.record(node)]);
        // Each is the first at or after the target in its part; record numbers grow with sequence
        // numbers.
        found.filter(|record| *record != NONE && log.key(*record) == key).max().unwrap_or(NONE)
    }
}
