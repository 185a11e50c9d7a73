//! Helpers for tests: a cursor that lacks blocks at random, a simple model of a read, an operator
//! that shows the order of operands and their base, and generated histories.

use crate::{Covered, Direction, ReadView, Stretches, Visible};
use proptest::prelude::*;
use siltstone_base::{
    BlockAddr, Cursor, Entry, Kind, MergeOperator, Result, Seq, SstId, Step, UnixMillis,
};
use std::cell::Cell;
use std::cmp::Reverse;
use std::rc::Rc;
use std::sync::Arc;

/// An entry with its own bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) key: Vec<u8>,
    pub(crate) seq: Seq,
    pub(crate) kind: Kind,
    pub(crate) expires_at: Option<UnixMillis>,
    pub(crate) value: Vec<u8>,
}

impl Row {
    pub(crate) fn entry(&self) -> Entry<'_> {
        let Row { key, seq, kind, expires_at, value } = self;
        Entry { key, seq: *seq, kind: *kind, expires_at: *expires_at, value }
    }

    pub(crate) fn of(entry: Entry<'_>) -> Row {
        Row {
            key: entry.key.to_vec(),
            seq: entry.seq,
            kind: entry.kind,
            expires_at: entry.expires_at,
            value: entry.value.to_vec(),
        }
    }

    fn internal(&self) -> (&[u8], Reverse<Seq>) {
        (&self.key, Reverse(self.seq))
    }
}

fn row(kind: Kind, key: &str, seq: u64, value: &str) -> Row {
    let (key, value) = (key.as_bytes().to_vec(), value.as_bytes().to_vec());
    Row { key, seq: Seq(seq), kind, expires_at: None, value }
}

pub(crate) fn put(key: &str, seq: u64, value: &str) -> Row {
    row(Kind::Put, key, seq, value)
}

pub(crate) fn delete(key: &str, seq: u64) -> Row {
    row(Kind::Delete, key, seq, "")
}

pub(crate) fn operand(key: &str, seq: u64, value: &str) -> Row {
    row(Kind::Merge, key, seq, value)
}

pub(crate) fn sorted(mut rows: Vec<Row>) -> Vec<Row> {
    rows.sort_by(|a, b| a.internal().cmp(&b.internal()));
    rows
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Move {
    First,
    Last,
    Seek(Vec<u8>, Seq),
    SeekBefore(Vec<u8>, Seq),
    Next,
    Prev,
}

/// A cursor over rows. Returns `NeedBlock` at random, checks that the same move is repeated, and
/// that `next` and `prev` are called only on a row.
pub(crate) struct Rows {
    rows: Vec<Row>,
    at: Option<usize>,
    pending: Option<Move>,
    random: u64,
    /// Number of moves of 8 that need a block.
    lacks: u64,
    moves: Rc<Cell<u32>>,
}

impl Rows {
    pub(crate) fn new(rows: Vec<Row>) -> Rows {
        Rows::lacking(rows, 0, 0)
    }

    pub(crate) fn lacking(rows: Vec<Row>, seed: u64, lacks: u64) -> Rows {
        let rows = sorted(rows);
        Rows { rows, at: None, pending: None, random: seed, lacks, moves: Rc::default() }
    }

    /// The number of moves so far, also readable after the cursor was moved into a merge.
    pub(crate) fn moves(&self) -> Rc<Cell<u32>> {
        Rc::clone(&self.moves)
    }

    fn go(&mut self, to: Move) -> Result<Step> {
        if let Some(pending) = &self.pending {
            assert_eq!(pending, &to, "a pending move is repeated as it was");
        }
        self.moves.set(self.moves.get() + 1);
        self.random = self.random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        if (self.random >> 32) % 8 < self.lacks {
            self.pending = Some(to);
            return Ok(Step::NeedBlock(BlockAddr { sst: SstId(1), block: 0 }));
        }
        self.pending = None;
        let place = |key: &Vec<u8>, seq: Seq| {
            self.rows.partition_point(|row| row.internal() < (key.as_slice(), Reverse(seq)))
        };
        let at = match &to {
            Move::First => Some(0),
            Move::Last => self.rows.len().checked_sub(1),
            Move::Seek(key, seq) => Some(place(key, *seq)),
            Move::SeekBefore(key, seq) => place(key, *seq).checked_sub(1),
            Move::Next => Some(self.at.expect("next is called on a row") + 1),
            Move::Prev => self.at.expect("prev is called on a row").checked_sub(1),
        };
        self.at = at.filter(|at| *at < self.rows.len());
        Ok(if self.at.is_some() { Step::Ready } else { Step::End })
    }
}

impl Stretches for Rows {}

impl<C: Cursor> Stretches for Covered<C> {}

impl Cursor for Rows {
    fn seek_first(&mut self) -> Result<Step> {
        self.go(Move::First)
    }

    fn seek_last(&mut self) -> Result<Step> {
        self.go(Move::Last)
    }

    fn seek(&mut self, key: &[u8], seq: Seq) -> Result<Step> {
        self.go(Move::Seek(key.to_vec(), seq))
    }

    fn seek_before(&mut self, key: &[u8], seq: Seq) -> Result<Step> {
        self.go(Move::SeekBefore(key.to_vec(), seq))
    }

    fn next(&mut self) -> Result<Step> {
        self.go(Move::Next)
    }

    fn prev(&mut self) -> Result<Step> {
        self.go(Move::Prev)
    }

    fn entry(&self) -> Option<Entry<'_>> {
        if self.pending.is_some() {
            return None;
        }
        self.at.map(|at| self.rows[at].entry())
    }

    /// Stops early, as at the end of a block.
    fn plain(&self, seq: Seq, most: usize) -> usize {
        let Some(at) = self.at.filter(|_| self.pending.is_none()) else { return 0 };
        let few = (self.random >> 40) as usize % 6;
        let is_plain =
            |row: &&Row| row.kind == Kind::Put && row.expires_at.is_none() && row.seq <= seq;
        self.rows[at..].iter().take(most.min(few)).take_while(is_plain).count()
    }

    fn plain_key(&self, ahead: usize) -> &[u8] {
        self.at.map_or(&[], |at| &self.rows[at + ahead].key)
    }

    fn plain_value(&self, ahead: usize) -> &[u8] {
        self.at.map_or(&[], |at| &self.rows[at + ahead].value)
    }

    fn pass(&mut self, ahead: usize) {
        self.at = self.at.map(|at| at + ahead);
    }
}

/// Repeats `step` until it needs no block, as a driver with every block in memory.
pub(crate) fn driven(mut step: impl FnMut() -> Result<Step>) -> Result<Step> {
    loop {
        match step()? {
            Step::NeedBlock(_) => {}
            done => return Ok(done),
        }
    }
}

/// Concatenates; a value that was folded without a base starts with "!". It is not commutative, and
/// no base differs from an empty one, so that a wrong order and a wrong base are both detected.
pub(crate) struct Concatenate {
    /// Whether operands can be folded without a base.
    pub(crate) alone: bool,
}

impl MergeOperator for Concatenate {
    fn name(&self) -> &str {
        "concatenate"
    }

    fn fold(&self, _key: &[u8], base: Option<&[u8]>, operands: &[&[u8]]) -> Result<Vec<u8>> {
        Ok([base.unwrap_or(b"!"), &operands.concat()].concat())
    }

    fn fold_operands(&self, _key: &[u8], operands: &[&[u8]]) -> Result<Option<Vec<u8>>> {
        Ok(self.alone.then(|| operands.concat()))
    }
}

pub(crate) fn concatenate(alone: bool) -> Option<Arc<dyn MergeOperator>> {
    Some(Arc::new(Concatenate { alone }))
}

pub(crate) fn view(seq: u64, now: u64) -> ReadView {
    ReadView {
        seq: Seq(seq),
        now: UnixMillis(now),
        operator: concatenate(true),
        recorded_operator: None,
    }
}

/// The value of `key`: the rules of RFC 0005 in their simplest form.
pub(crate) fn model_get(history: &[Row], key: &[u8], seq: u64, now: u64) -> Option<Vec<u8>> {
    let covers = |row: &Row| {
        row.kind == Kind::RangeDelete && row.key.as_slice() <= key && key < row.value.as_slice()
    };
    let concerns = |row: &&Row| covers(row) || (row.key == key && row.kind != Kind::RangeDelete);
    let mut versions: Vec<&Row> =
        history.iter().filter(concerns).filter(|row| row.seq.0 <= seq).collect();
    versions.sort_by_key(|row| row.seq);
    let mut value = None;
    for row in versions {
        let expired = row.expires_at.is_some_and(|at| at.0 <= now);
        value = match row.kind {
            Kind::Put if !expired => Some(row.value.clone()),
            Kind::Merge if !expired => {
                let base = value.unwrap_or_else(|| b"!".to_vec());
                Some([base, row.value.clone()].concat())
            }
            _ => None,
        };
    }
    value
}

pub(crate) type Pair = (Vec<u8>, Vec<u8>);

pub(crate) fn model_scan(history: &[Row], seq: u64, now: u64) -> Vec<Pair> {
    let mut keys: Vec<&Vec<u8>> = history.iter().map(|row| &row.key).collect();
    keys.sort();
    keys.dedup();
    let pair = |key: &Vec<u8>| Some((key.clone(), model_get(history, key, seq, now)?));
    keys.into_iter().filter_map(pair).collect()
}

/// All items of `visible`, in its order.
pub(crate) fn collect<C: Stretches>(mut visible: Visible<C>) -> Result<Vec<Pair>> {
    let mut pairs = Vec::new();
    while driven(|| visible.advance())? == Step::Ready {
        let (key, value) = visible.item().expect("ready has an item");
        pairs.push((key.to_vec(), value.to_vec()));
    }
    assert!(visible.item().is_none() && visible.seq().is_none());
    Ok(pairs)
}

/// A scan of `cursor`, with the result in ascending order, made in either direction.
pub(crate) fn scan<C: Stretches>(cursor: C, view: ReadView, direction: Direction) -> Vec<Pair> {
    let mut pairs = collect(Visible::new(cursor, view, direction, None, None)).unwrap();
    if direction == Direction::Backward {
        pairs.reverse();
    }
    pairs
}

/// Histories of up to `most` writes over a few keys, some of which share their first eight bytes;
/// times up to 12.
pub(crate) fn histories(most: usize) -> impl Strategy<Value = Vec<Row>> {
    let keys = vec!["a", "a\0", "b", "sameeight1", "sameeight2", "sameeight"];
    let kinds = vec![Kind::Put, Kind::Put, Kind::Delete, Kind::Merge, Kind::Merge];
    let expiry = prop::option::weighted(0.4, 1u64..12);
    let write = (prop::sample::select(keys), prop::sample::select(kinds), expiry);
    prop::collection::vec(write, 0..most).prop_map(|writes| {
        let numbered = writes.into_iter().zip(1u64..);
        let write = |((key, kind, expiry), seq): ((&str, Kind, Option<u64>), u64)| {
            let value = if kind == Kind::Delete { String::new() } else { format!("<{seq}>") };
            let expires_at = expiry.filter(|_| kind != Kind::Delete).map(UnixMillis);
            Row { expires_at, ..row(kind, key, seq, &value) }
        };
        numbered.map(write).collect()
    })
}
