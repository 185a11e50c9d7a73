//! The values that were written after a sequence number, in the order of writing.

use crate::table::Memtable;
use siltstone_base::{Kind, Seq};

impl Memtable {
    /// The keys of the values and operands with sequence numbers above `after` and at most `until`,
    /// in the order of writing; a key comes once for each entry. `None` if that means looking at
    /// more than `most` entries.
    #[must_use]
    pub fn values_after(
        &self,
        after: Seq,
        until: Seq,
        most: u64,
    ) -> Option<impl Iterator<Item = &[u8]>> {
        let log = self.log();
        // Records are numbered in the order of their sequence numbers.
        let (mut first, mut end) = (1, self.records() + 1);
        let last = end;
        while first < end {
            let middle = first.midpoint(end);
            if log.record(middle).seq() <= after {
                first = middle + 1;
            } else {
                end = middle;
            }
        }
        if u64::from(last - first) > most {
            return None;
        }
        let numbers = (first..last).take_while(move |number| log.record(*number).seq() <= until);
        let values = numbers.filter(|number| log.record(*number).place().kind != Kind::Delete);
        Some(values.map(|number| log.key(number)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use siltstone_base::Batch;
    use std::sync::Arc;

    fn write(table: &Memtable, first: u64, batch: &Batch) {
        table.insert_batch(Seq(first), &Arc::from(batch.as_bytes())).unwrap();
    }

    #[test]
    fn values_and_operands_come_in_the_order_of_writing() {
        let table = Memtable::new();
        let read = |after, until, most| -> Option<Vec<Vec<u8>>> {
            let values = table.values_after(Seq(after), Seq(until), most)?;
            Some(values.map(<[u8]>::to_vec).collect())
        };
        assert_eq!(read(0, 100, 0), Some(vec![]));
        let mut batch = Batch::new();
        batch.put(b"m", b"1", None).unwrap();
        batch.delete(b"a").unwrap();
        batch.delete_range(b"b", b"c").unwrap();
        batch.merge(b"c", b"1", None).unwrap();
        write(&table, 3, &batch);
        let mut batch = Batch::new();
        batch.put(b"b", b"2", None).unwrap();
        write(&table, 9, &batch);
        let keys = |keys: &[&str]| Some(keys.iter().map(|key| key.as_bytes().to_vec()).collect());
        assert_eq!(read(0, 100, 9), keys(&["m", "c", "b"]));
        assert_eq!(read(3, 100, 9), keys(&["c", "b"]));
        assert_eq!(read(3, 8, 9), keys(&["c"]));
        assert_eq!(read(6, 100, 1), keys(&["b"]));
        assert_eq!(read(9, 100, 0), keys(&[]));
        assert_eq!(read(3, 100, 2), None, "the tombstone is looked at too");
    }
}
