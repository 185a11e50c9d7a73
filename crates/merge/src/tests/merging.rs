//! Compares the merge and the cursor over a run with one sorted list.

use crate::testing::{Row, Rows, driven, histories, put, sorted};
use crate::{Direction, Merge, RunCursor, RunTables, TableBounds};
use bytes::Bytes;
use proptest::prelude::*;
use siltstone_base::{Cursor, ErrorKind, Result, Seq, Step};

/// Distributes `history` over `count` sources at random.
fn deal(history: &[Row], count: usize, seed: u64) -> Vec<Vec<Row>> {
    let mut sources = vec![Vec::new(); count];
    let mut random = seed | 1;
    for row in history {
        random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        sources[(random >> 33) as usize % count].push(row.clone());
    }
    sources
}

fn lacking(sources: Vec<Vec<Row>>, seed: u64, lacks: u64) -> Vec<Rows> {
    let numbered = sources.into_iter().zip(seed..);
    numbered.map(|(rows, seed)| Rows::lacking(rows, seed, lacks)).collect()
}

/// Rows from the position that `first` gave the cursor to the end in the direction of `next`.
fn rest<C: Cursor>(
    cursor: &mut C,
    first: impl Fn(&mut C) -> Result<Step>,
    next: impl Fn(&mut C) -> Result<Step>,
) -> Vec<Row> {
    let mut rows = Vec::new();
    let mut step = driven(|| first(cursor)).unwrap();
    while step == Step::Ready {
        rows.push(Row::of(cursor.entry().unwrap()));
        step = driven(|| next(cursor)).unwrap();
    }
    assert!(cursor.entry().is_none());
    rows
}

/// The two parts into which a seek to (key, seq) divides sorted rows.
fn split(rows: &[Row], key: &[u8], seq: Seq) -> (Vec<Row>, Vec<Row>) {
    let before = |row: &&Row| row.key.as_slice() < key || row.key == key && row.seq > seq;
    let at = rows.iter().take_while(before).count();
    let mut backward = rows[..at].to_vec();
    backward.reverse();
    (rows[at..].to_vec(), backward)
}

/// Every seek and walk of `cursor` in one direction agrees with `expected`.
fn agrees<C: Cursor>(cursor: &mut C, direction: Direction, expected: &[Row]) {
    let probes = expected.iter().map(|row| (row.key.clone(), row.seq));
    let others = [(b"".to_vec(), Seq::MAX), (b"a\0".to_vec(), Seq(0)), (b"z".to_vec(), Seq::MAX)];
    for (key, seq) in probes.chain(others) {
        let (forward, backward) = split(expected, &key, seq);
        if direction == Direction::Forward {
            assert_eq!(rest(cursor, |c| c.seek(&key, seq), C::next), forward);
        } else {
            assert_eq!(rest(cursor, |c| c.seek_before(&key, seq), C::prev), backward);
        }
    }
    if direction == Direction::Forward {
        assert_eq!(rest(cursor, C::seek_first, C::next), expected);
    } else {
        let reversed: Vec<Row> = expected.iter().rev().cloned().collect();
        assert_eq!(rest(cursor, C::seek_last, C::prev), reversed);
    }
}

/// Splits sorted rows between keys into tables; after every third table comes one with the same
/// bounds and no visible key.
fn tables(rows: &[Row], size: usize) -> Vec<(TableBounds, Vec<Row>)> {
    let mut tables: Vec<(TableBounds, Vec<Row>)> = Vec::new();
    let mut table: Vec<Row> = Vec::new();
    let bounds = |table: &[Row]| TableBounds {
        first_key: Bytes::copy_from_slice(&table[0].key),
        last_key: Bytes::copy_from_slice(&table[table.len() - 1].key),
        ends_before: false,
    };
    for row in rows {
        if table.len() >= size && table[table.len() - 1].key != row.key {
            tables.push((bounds(&table), std::mem::take(&mut table)));
            if tables.len().is_multiple_of(3) {
                let hidden = [table_key(&tables), b"\x01".to_vec()].concat();
                let hidden = Bytes::from(hidden);
                let bounds =
                    TableBounds { first_key: hidden.clone(), last_key: hidden, ends_before: false };
                tables.push((bounds, Vec::new()));
            }
        }
        table.push(row.clone());
    }
    if !table.is_empty() {
        tables.push((bounds(&table), table));
    }
    tables
}

fn table_key(tables: &[(TableBounds, Vec<Row>)]) -> Vec<u8> {
    tables[tables.len() - 1].0.last_key.to_vec()
}

/// Tables that get a cursor when they are entered, and lose it when another one is, as those of a
/// scan.
struct Entered {
    tables: Vec<(TableBounds, Vec<Row>)>,
    lacks: u64,
    current: Option<(usize, Rows)>,
    entries: usize,
    comparisons: std::cell::Cell<usize>,
}

impl Entered {
    fn new(tables: Vec<(TableBounds, Vec<Row>)>, lacks: u64) -> Entered {
        Entered { tables, lacks, current: None, entries: 0, comparisons: Default::default() }
    }

    fn compared(&self, at: usize) -> &TableBounds {
        self.comparisons.set(self.comparisons.get() + 1);
        &self.tables[at].0
    }
}

impl RunTables for &mut Entered {
    type Cursor = Rows;

    fn count(&self) -> usize {
        self.tables.len()
    }

    fn is_below(&self, at: usize, key: &[u8]) -> bool {
        self.compared(at).is_below(key)
    }

    fn begins_by(&self, at: usize, key: &[u8]) -> bool {
        self.compared(at).first_key.as_ref() <= key
    }

    fn current(&self, at: usize) -> Option<&Rows> {
        self.current.as_ref().filter(|(entered, _)| *entered == at).map(|(_, rows)| rows)
    }

    fn enter(&mut self, at: usize) -> Option<&mut Rows> {
        if self.current(at).is_none() {
            let (_, rows) = self.tables.get(at)?;
            self.entries += 1;
            self.current = Some((at, Rows::lacking(rows.clone(), at as u64, self.lacks)));
        }
        self.current.as_mut().map(|(_, rows)| rows)
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn a_merge_is_one_sorted_list(
        history in histories(40), count in 1usize..8, seed: u64, lacks in 0u64..5,
    ) {
        let expected = sorted(history.clone());
        for direction in [Direction::Forward, Direction::Backward] {
            let sources = lacking(deal(&history, count, seed), seed, lacks);
            agrees(&mut Merge::new(sources, direction), direction, &expected);
        }
    }

    #[test]
    fn a_run_is_one_sorted_list(
        history in histories(40), size in 1usize..6, seed: u64, lacks in 0u64..5,
    ) {
        let expected = sorted(history);
        for direction in [Direction::Forward, Direction::Backward] {
            let tables = tables(&expected, size).into_iter().zip(seed..);
            let tables = tables.map(|((bounds, rows), seed)| {
                (bounds, Rows::lacking(rows, seed, lacks))
            });
            agrees(&mut RunCursor::new(tables.collect::<Vec<_>>()), direction, &expected);
        }
    }

    #[test]
    fn a_run_whose_tables_are_opened_one_by_one_is_the_same(
        history in histories(40), size in 1usize..6, lacks in 0u64..5,
    ) {
        let expected = sorted(history);
        for direction in [Direction::Forward, Direction::Backward] {
            let mut tables = Entered::new(tables(&expected, size), lacks);
            agrees(&mut RunCursor::new(&mut tables), direction, &expected);
        }
    }
}

/// A seek compares as many bounds as a binary search does, and a few steps enter two tables.
#[test]
fn a_short_walk_over_a_long_run_opens_few_tables() {
    let rows: Vec<Row> = (0..16_384).map(|n| put(&format!("{n:05}"), 1, "v")).collect();
    for (first, last) in [(0, 5), (8_191, 8_196), (16_000, 16_005)] {
        let mut tables = Entered::new(tables(&rows, 8), 0);
        let mut run = RunCursor::new(&mut tables);
        assert_eq!(run.seek(format!("{first:05}").as_bytes(), Seq::MAX).unwrap(), Step::Ready);
        for n in first..last {
            assert_eq!(run.user_key().unwrap(), format!("{n:05}").as_bytes());
            run.next().unwrap();
        }
        for _ in first..last {
            run.prev().unwrap();
        }
        assert_eq!(run.user_key().unwrap(), format!("{first:05}").as_bytes());
        assert!(tables.entries <= 6, "{}", tables.entries);
        assert!(tables.comparisons.get() <= 12, "{}", tables.comparisons.get());
    }
}

/// Two parts of one object have its first and its last key. Each shows some of its keys.
#[test]
fn a_run_of_parts_of_one_table_finds_every_key_from_everywhere() {
    let rows = [("b", 5), ("d", 4), ("d", 3), ("h", 2), ("k", 1)];
    let rows = rows.map(|(key, n)| put(key, n, "v"));
    for cut in ["a", "b", "c", "d", "e", "h", "i", "k", "l"] {
        let (left, right): (Vec<Row>, Vec<Row>) =
            rows.iter().cloned().partition(|row| row.key.as_slice() < cut.as_bytes());
        let key = |key: &str| Bytes::copy_from_slice(key.as_bytes());
        let bounds = |start: Option<&str>, end: Option<&str>| TableBounds {
            first_key: key(start.map_or("b", |start| start.max("b"))),
            last_key: key(end.map_or("k", |end| end.min("k"))),
            ends_before: end.is_some_and(|end| end <= "k"),
        };
        let parts = [(bounds(None, Some(cut)), left), (bounds(Some(cut), None), right)];
        for direction in [Direction::Forward, Direction::Backward] {
            let parts = parts
                .iter()
                .map(|(bounds, rows)| (bounds.clone(), Rows::lacking(rows.clone(), 7, 0)));
            agrees(&mut RunCursor::new(parts.collect::<Vec<_>>()), direction, &rows);
        }
    }
}

#[test]
fn a_run_turns_around_anywhere() {
    let rows: Vec<Row> = (1..=9).map(|n| put(&format!("k{n}"), n, "v")).collect();
    let tables = tables(&rows, 2).into_iter();
    let tables = tables.map(|(bounds, rows)| (bounds, Rows::lacking(rows, 7, 3)));
    let mut run = RunCursor::new(tables.collect::<Vec<_>>());
    driven(|| run.seek_first()).unwrap();
    for n in 1..9 {
        assert_eq!(run.entry().unwrap().seq, Seq(n));
        driven(|| run.next()).unwrap();
        driven(|| run.prev()).unwrap();
        driven(|| run.next()).unwrap();
    }
    assert_eq!(driven(|| run.next()).unwrap(), Step::End);
    assert_eq!(run.next().unwrap_err().kind(), ErrorKind::Internal);
}

#[test]
fn nothing_merged_is_nothing() {
    let mut none = Merge::<Rows>::new(Vec::new(), Direction::Forward);
    assert_eq!(none.seek_first().unwrap(), Step::End);
    assert!(none.entry().is_none());
    assert_eq!(none.next().unwrap_err().kind(), ErrorKind::Internal);
    let mut empty = Merge::new(vec![Rows::new(vec![]), Rows::new(vec![])], Direction::Backward);
    assert_eq!(empty.seek_last().unwrap(), Step::End);
    let mut run = RunCursor::new(Vec::<(TableBounds, Rows)>::new());
    assert_eq!(run.seek_first().unwrap(), Step::End);
    assert_eq!(run.seek_last().unwrap(), Step::End);
}

#[test]
fn a_merge_keeps_to_its_direction() {
    let sources = || vec![Rows::new(vec![put("a", 1, "")])];
    let mut forward = Merge::new(sources(), Direction::Forward);
    assert_eq!(forward.seek_last().unwrap_err().kind(), ErrorKind::Internal);
    assert_eq!(forward.seek_first().unwrap(), Step::Ready);
    assert_eq!(forward.prev().unwrap_err().kind(), ErrorKind::Internal);
    let mut backward = Merge::new(sources(), Direction::Backward);
    assert_eq!(backward.seek(b"a", Seq::MAX).unwrap_err().kind(), ErrorKind::Internal);
    assert_eq!(backward.seek_last().unwrap(), Step::Ready);
    assert_eq!(backward.next().unwrap_err().kind(), ErrorKind::Internal);
}

#[test]
fn a_seek_names_the_blocks_of_all_its_sources() {
    // Every move needs a block.
    let source = |seed| Rows::lacking(vec![put("a", seed, "")], seed, 8);
    let mut merge = Merge::new(vec![source(3), source(2), source(1)], Direction::Forward);
    assert!(matches!(merge.seek_first(), Ok(Step::NeedBlock(_))));
    assert_eq!(merge.needed().len(), 3);
    assert!(merge.entry().is_none());
}

/// A driver may return a block only once: a source that is placed would need it again if it were
/// asked.
#[test]
fn a_source_that_is_placed_is_not_asked_again() {
    let placed = Rows::new(vec![put("a", 1, "")]);
    let slow = Rows::lacking(vec![put("b", 2, "")], 5, 6);
    let (moves_of_placed, moves_of_slow) = (placed.moves(), slow.moves());
    let mut merge = Merge::new(vec![placed, slow], Direction::Forward);
    for round in 1..=20 {
        let before = moves_of_slow.get();
        assert_eq!(driven(|| merge.seek_first()).unwrap(), Step::Ready);
        assert_eq!(moves_of_placed.get(), round, "a new seek asks it once");
        assert!(moves_of_slow.get() > before);
    }
    assert!(moves_of_slow.get() > 40, "it did lack blocks");
}
