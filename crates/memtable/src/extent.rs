//! The approximate size of a key range in a memtable.

use crate::log::{Log, NONE, Target};
use crate::order::Order;
use crate::table::Memtable;
use siltstone_base::Seq;

impl Memtable {
    /// The number of entries in `[start, end)` (`None`: no bound), and their approximate share of
    /// the memory in bytes. Sorted arrays are searched; the skip list, of at most 1,024 entries, is
    /// walked.
    #[must_use]
    pub fn extent(&self, start: Option<&[u8]>, end: Option<&[u8]>) -> (u64, u64) {
        let order = self.order();
        let inside = order.entries_between(self.log(), start, end) as u64;
        // Entries that are inserted meanwhile may be counted.
        let all = (self.len() as u64).max(inside);
        let bytes = self.bytes() as u64;
        let part = u128::from(bytes) * u128::from(inside) / u128::from(all.max(1));
        (inside, u64::try_from(part).unwrap_or(bytes))
    }
}

impl Order {
    fn entries_between(&self, log: &Log, start: Option<&[u8]>, end: Option<&[u8]>) -> usize {
        // Before every version of the key.
        let target = |key| Target::new(&self.window, key, Seq::MAX);
        let (start, end) = (start.map(target), end.map(target));
        let in_arrays = self.arrays.iter().map(|array| {
            let from = start.map_or(0, |start| array.search(log, &start));
            let to = end.map_or(array.len(), |end| array.search(log, &end));
            to.saturating_sub(from)
        });
        in_arrays.sum::<usize>() + self.single_writes_between(log, start, end)
    }

    fn single_writes_between(
        &self,
        log: &Log,
        start: Option<Target<'_>>,
        end: Option<Target<'_>>,
    ) -> usize {
        let list = &self.skip_list;
        let first = match start {
            Some(start) => list.search(log, &start).1,
            None => list.after(NONE),
        };
        let behind = end.map_or(NONE, |end| list.search(log, &end).1);
        let nodes = std::iter::successors(Some(first), |node| Some(list.after(*node)));
        // If the end is below the start, the walk stops at the end of the list.
        nodes.take_while(|node| *node != NONE && *node != behind).take(list.capacity()).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use siltstone_base::Batch;
    use std::sync::Arc;

    #[test]
    fn entries_in_a_range_are_counted() {
        let memtable = Memtable::new();
        assert_eq!(memtable.extent(None, None), (0, 0));
        let mut seq = Seq(1);
        let mut insert = |keys: &mut dyn Iterator<Item = u32>| {
            let mut batch = Batch::new();
            keys.for_each(|key| batch.put(&key.to_be_bytes(), b"value", None).unwrap());
            memtable.insert_batch(seq, &Arc::from(batch.as_bytes())).unwrap();
            seq = seq.plus(u64::from(batch.ops()));
        };
        // A sorted array, and a skip list above it; every third key has two versions.
        insert(&mut (0..3000));
        (0..3000).step_by(3).for_each(|key| insert(&mut std::iter::once(key)));
        let count = |from: u32, to: u32| (from..to).map(|key| 1 + u64::from(key % 3 == 0)).sum();
        for (from, to) in [(0u32, 3000u32), (0, 1), (7, 8), (9, 10), (100, 2000), (2999, 3000)] {
            let (start, end) = (from.to_be_bytes(), to.to_be_bytes());
            let (entries, bytes) = memtable.extent(Some(&start), Some(&end));
            let expected: u64 = count(from, to);
            assert_eq!(entries, expected, "{from} to {to}");
            let part = memtable.bytes() as u64 * expected / memtable.len() as u64;
            assert_eq!(bytes, part, "{from} to {to}");
            let (above, below) =
                (memtable.extent(Some(&end), None), memtable.extent(None, Some(&start)));
            assert_eq!(above.0 + below.0 + entries, memtable.len() as u64);
        }
        assert_eq!(memtable.extent(None, None), (4000, memtable.bytes() as u64));
    }
}
