//! The inputs of a scan's merge: memtables, tables and runs of them, with or without range deletes
//! over them.

use super::scan_run::ScanRun;
use super::scan_table::ScanTable;
use siltstone_base::{Columns, Cursor, Entry, Kind, Result, Seq, Step};
use siltstone_memtable::MemCursor;
use siltstone_merge::{Covered, RunCursor};

/// One input of the merge.
pub(super) enum ScanSource {
    Memtable(MemtablePart),
    /// The only table of a run that overlaps the range, as most of L0 are.
    Table(ScanTable),
    Run(RunCursor<ScanRun>),
    /// One of the others, without what range deletes hide.
    Covered(Box<Covered<ScanSource>>),
}

/// So many entries of a memtable are passed over one by one before those of a key are sought past:
/// a seek costs some ten moves.
const MOVES_BEFORE_SEEK: u32 = 8;

/// A memtable's entries above one sequence number, up to another. Backward it leaves out versions
/// of a key that a newer one of the part hides.
pub(super) struct MemtablePart {
    cursor: MemCursor,
    floor: Seq,
    until: Seq,
    /// Backward: the key of the current entry, and the number of moves from version to version.
    key: Vec<u8>,
    moves: u32,
}

impl MemtablePart {
    pub(super) fn new(cursor: MemCursor, floor: Seq, until: Seq) -> Self {
        MemtablePart { cursor, floor, until, key: Vec::new(), moves: 0 }
    }

    /// Backward, after a move: passes over the versions of a hot key that are hidden.
    ///
    /// ```text
    /// l@5 | k@1 k@2 … k@7 k@8 … k@96 k@97 k@98 | j@2     until 98; k@96 is a value, then operands
    ///       one by one     │    └─ next ─┘
    /// ```
    fn pass_hidden(&mut self, step: Step) -> Result<Step> {
        let Some((key, seq)) = self.cursor.key().filter(|_| step == Step::Ready) else {
            return Ok(step);
        };
        if key != self.key {
            self.key.clear();
            self.key.extend_from_slice(key);
            self.moves = 0;
            return Ok(step);
        }
        self.moves = self.moves.saturating_add(1);
        // Once for each key: with only operands above, the search was for nothing.
        if self.moves != MOVES_BEFORE_SEEK {
            return Ok(step);
        }
        let key = std::mem::take(&mut self.key);
        let next = self.last_settled(&key, seq)?.unwrap_or(seq);
        let step = self.cursor.seek_before(&key, next.minus(1));
        self.key = key;
        step
    }

    /// The newest version of `key` in this part that is no operand, if it is above `seq`: it hides
    /// all older ones, whether it is a value, expired, or a tombstone.
    fn last_settled(&mut self, key: &[u8], seq: Seq) -> Result<Option<Seq>> {
        let mut step = self.cursor.seek(key, self.until)?;
        while step == Step::Ready
            && let Some(entry) = self.cursor.entry()
            && entry.key == key
            && entry.seq > seq
        {
            if entry.kind != Kind::Merge {
                return Ok(Some(entry.seq));
            }
            step = self.cursor.next()?;
        }
        Ok(None)
    }

    /// Passes over entries outside of the part. Memtables never lack a block.
    fn settle(&mut self, mut step: Step, forward: bool) -> Result<Step> {
        let mut passed = 0;
        while step == Step::Ready
            && let Some((key, seq)) = self.cursor.key()
            && !(self.floor < seq && seq <= self.until)
        {
            passed += 1;
            step = if seq > self.until && passed % MOVES_BEFORE_SEEK == 0 {
                // A key that others write all the time has any number of them.
                let key = key.to_vec();
                if forward {
                    self.cursor.seek(&key, self.until)?
                } else {
                    self.cursor.seek_before(&key, Seq::MAX)?
                }
            } else if forward && seq <= self.floor {
                // Older versions of the key are outside as well.
                self.cursor.next_key()?
            } else if forward {
                self.cursor.next()?
            } else {
                self.cursor.prev()?
            };
        }
        Ok(step)
    }
}

impl Cursor for MemtablePart {
    fn seek_first(&mut self) -> Result<Step> {
        let step = self.cursor.seek_first()?;
        self.settle(step, true)
    }

    fn seek_last(&mut self) -> Result<Step> {
        self.key.clear();
        let step = self.cursor.seek_last()?;
        let step = self.settle(step, false)?;
        self.pass_hidden(step)
    }

    fn seek(&mut self, key: &[u8], seq: Seq) -> Result<Step> {
        let step = self.cursor.seek(key, seq)?;
        self.settle(step, true)
    }

    fn seek_before(&mut self, key: &[u8], seq: Seq) -> Result<Step> {
        self.key.clear();
        let step = self.cursor.seek_before(key, seq)?;
        let step = self.settle(step, false)?;
        self.pass_hidden(step)
    }

    fn next(&mut self) -> Result<Step> {
        let step = self.cursor.next()?;
        self.settle(step, true)
    }

    fn next_key(&mut self) -> Result<Step> {
        let step = self.cursor.next_key()?;
        self.settle(step, true)
    }

    fn prev(&mut self) -> Result<Step> {
        let step = self.cursor.prev()?;
        let step = self.settle(step, false)?;
        self.pass_hidden(step)
    }

    fn entry(&self) -> Option<Entry<'_>> {
        self.cursor.entry()
    }

    fn key(&self) -> Option<(&[u8], Seq)> {
        self.cursor.key()
    }

    fn plain(&self, seq: Seq, most: usize) -> usize {
        self.cursor.plain_above(self.floor, seq.min(self.until), most)
    }

    #[inline]
    fn plain_key(&self, ahead: usize) -> &[u8] {
        self.cursor.plain_key(ahead)
    }

    #[inline]
    fn plain_value(&self, ahead: usize) -> &[u8] {
        self.cursor.plain_value(ahead)
    }

    fn pass(&mut self, ahead: usize) {
        self.cursor.pass(ahead);
    }
}

/// The same of whichever cursor it is.
macro_rules! each {
    ($source:expr, $cursor:ident => $said:expr) => {
        match $source {
            ScanSource::Memtable($cursor) => $said,
            ScanSource::Table($cursor) => $said,
            ScanSource::Run($cursor) => $said,
            ScanSource::Covered($cursor) => $said,
        }
    };
}

/// As [`each`], of what has plain entries: what range deletes may hide is not plain.
macro_rules! each_plain {
    ($source:expr, $cursor:ident => $said:expr, $covered:expr) => {
        match $source {
            ScanSource::Memtable($cursor) => $said,
            ScanSource::Table($cursor) => $said,
            ScanSource::Run($cursor) => $said,
            ScanSource::Covered(_) => $covered,
        }
    };
}

impl Cursor for ScanSource {
    fn seek_first(&mut self) -> Result<Step> {
        each!(self, cursor => cursor.seek_first())
    }

    fn seek_last(&mut self) -> Result<Step> {
        each!(self, cursor => cursor.seek_last())
    }

    fn seek(&mut self, key: &[u8], seq: Seq) -> Result<Step> {
        each!(self, cursor => cursor.seek(key, seq))
    }

    fn seek_before(&mut self, key: &[u8], seq: Seq) -> Result<Step> {
        each!(self, cursor => cursor.seek_before(key, seq))
    }

    fn next(&mut self) -> Result<Step> {
        each!(self, cursor => cursor.next())
    }

    fn next_key(&mut self) -> Result<Step> {
        each!(self, cursor => cursor.next_key())
    }

    fn prev(&mut self) -> Result<Step> {
        each!(self, cursor => cursor.prev())
    }

    fn entry(&self) -> Option<Entry<'_>> {
        each!(self, cursor => cursor.entry())
    }

    fn key(&self) -> Option<(&[u8], Seq)> {
        each!(self, cursor => cursor.key())
    }

    #[inline]
    fn user_key(&self) -> Option<&[u8]> {
        each!(self, cursor => cursor.user_key())
    }

    fn plain(&self, seq: Seq, most: usize) -> usize {
        each_plain!(self, cursor => cursor.plain(seq, most), 0)
    }

    #[inline]
    fn plain_key(&self, ahead: usize) -> &[u8] {
        each_plain!(self, cursor => cursor.plain_key(ahead), &[])
    }

    #[inline]
    fn plain_value(&self, ahead: usize) -> &[u8] {
        each_plain!(self, cursor => cursor.plain_value(ahead), &[])
    }

    fn plain_columns(&self) -> Option<Columns<'_>> {
        match self {
            ScanSource::Table(cursor) => cursor.plain_columns(),
            ScanSource::Run(cursor) => cursor.plain_columns(),
            ScanSource::Memtable(_) | ScanSource::Covered(_) => None,
        }
    }

    fn pass(&mut self, ahead: usize) {
        each_plain!(self, cursor => cursor.pass(ahead), {});
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use siltstone_base::UnixMillis;
    use siltstone_base::batch::encode_one;
    use siltstone_memtable::Memtable;
    use siltstone_merge::{Direction, Merge, ReadView, Visible};
    use std::sync::Arc;

    fn part(memtable: &Arc<Memtable>, floor: u64, until: u64) -> MemtablePart {
        MemtablePart::new(memtable.cursor(), Seq(floor), Seq(until))
    }

    fn insert(memtable: &Memtable, kind: Kind, key: u8, expires_at: Option<u64>) {
        let seq = memtable.last_seq().unwrap_or(Seq::NONE).plus(1);
        let value = if kind == Kind::Delete { String::new() } else { format!("{seq},") };
        let expires_at = expires_at.map(UnixMillis);
        let ops = encode_one(kind, &[key], value.as_bytes(), expires_at).unwrap();
        memtable.insert_batch(seq, &ops).unwrap();
    }

    /// The sequence numbers that the part returns backward.
    fn backward(mut part: MemtablePart) -> Vec<u64> {
        let mut seqs = Vec::new();
        let mut step = part.seek_last().unwrap();
        while step == Step::Ready {
            seqs.push(part.key().unwrap().1.0);
            step = part.prev().unwrap();
        }
        seqs
    }

    #[test]
    fn backward_hidden_versions_of_a_hot_key_are_passed_at_once() {
        let memtable = Arc::new(Memtable::new());
        insert(&memtable, Kind::Put, b'j', None);
        for _ in 0..10_000 {
            insert(&memtable, Kind::Put, b'k', None);
        }
        for _ in 0..3 {
            insert(&memtable, Kind::Merge, b'k', None);
        }
        insert(&memtable, Kind::Put, b'l', None);
        let versions = (2..10).chain(10_001..10_005).chain([1]);
        let all: Vec<u64> = [10_005].into_iter().chain(versions).collect();
        assert_eq!(backward(part(&memtable, 0, 20_000)), all);
        // An old snapshot, and a flush that took a part of the versions.
        assert_eq!(backward(part(&memtable, 0, 5_000))[7..], [9, 5_000, 1]);
        assert_eq!(backward(part(&memtable, 9_999, 10_003)), [10_000, 10_001, 10_002, 10_003]);
        assert_eq!(backward(part(&memtable, 5_000, 20_000)).len(), 1 + 8 + 4);
    }

    #[test]
    fn operands_are_all_returned() {
        let memtable = Arc::new(Memtable::new());
        for _ in 0..1_000 {
            insert(&memtable, Kind::Merge, b'k', None);
        }
        assert_eq!(backward(part(&memtable, 0, 2_000)), (1..=1_000).collect::<Vec<_>>());
    }

    /// The rows that a reader sees, in this direction.
    fn rows(part: MemtablePart, until: u64, direction: Direction) -> Vec<(Vec<u8>, Vec<u8>)> {
        let append = siltstone_merge::built_in("append").unwrap();
        let view = ReadView {
            seq: Seq(until),
            now: UnixMillis(5),
            operator: Some(append),
            recorded_operator: None,
        };
        let mut visible =
            Visible::new(Merge::new(vec![part], direction), view, direction, None, None);
        let mut rows = Vec::new();
        while visible.advance().unwrap() == Step::Ready {
            let (key, value) = visible.item().unwrap();
            rows.push((key.to_vec(), value.to_vec()));
        }
        rows
    }

    /// A kind, a key and an expiry time.
    type Op = (u8, u8, Option<u64>);

    fn ops() -> impl Strategy<Value = Vec<Op>> {
        prop::collection::vec((0..8_u8, 0..3_u8, prop::option::weighted(0.2, 1..9_u64)), 1..300)
    }

    proptest! {
        #[test]
        fn both_directions_see_the_same_rows(
            ops in ops(),
            until in 0..300_u64,
            floor in 0..100_u64,
        ) {
            let memtable = Arc::new(Memtable::new());
            for (kind, key, expires_at) in ops {
                match kind {
                    0 => insert(&memtable, Kind::Delete, key, None),
                    1 | 2 => insert(&memtable, Kind::Put, key, expires_at),
                    _ => insert(&memtable, Kind::Merge, key, expires_at),
                }
            }
            let part = || part(&memtable, floor, until);
            let mut forward = rows(part(), until, Direction::Forward);
            forward.reverse();
            prop_assert_eq!(rows(part(), until, Direction::Backward), forward);
        }
    }
}
