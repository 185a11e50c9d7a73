//! Compares scans and look-ups with the model, and checks the runs of RFC 0005 that affect a
//! reader.

use crate::testing::{
    Concatenate, Row, Rows, collect, concatenate, delete, driven, histories, model_get, model_scan,
    operand, put, scan, view,
};
use crate::{Direction, LookupStep, Merge, ReadView, Resolve, Visible};
use proptest::prelude::*;
use siltstone_base::{Error, ErrorKind, Kind, MergeOperator, Result, Step};
use std::sync::Arc;

const BOTH: [Direction; 2] = [Direction::Forward, Direction::Backward];

/// The history split by time, newest part first.
fn cut(history: &[Row], size: usize, seed: u64, lacks: u64) -> Vec<Rows> {
    let parts = history.chunks(size).rev().zip(seed..);
    parts.map(|(rows, seed)| Rows::lacking(rows.to_vec(), seed, lacks)).collect()
}

fn look_up(history: &[Row], key: &[u8], view: &ReadView) -> Result<Option<Vec<u8>>> {
    let mut resolve = Resolve::new(key, view);
    let mut versions: Vec<&Row> = history.iter().filter(|row| row.key == key).collect();
    versions.sort_by_key(|row| std::cmp::Reverse(row.seq));
    for row in versions {
        match resolve.push(row.entry())? {
            LookupStep::Value => return Ok(Some(row.value.clone())),
            LookupStep::Absent => return Ok(None),
            LookupStep::Folded => break,
            LookupStep::NeedOlder => {}
        }
    }
    resolve.finish()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn a_scan_equals_the_model(
        history in histories(30), size in 1usize..12, seed: u64, lacks in 0u64..5,
        start in prop::option::of(prop::sample::select(vec!["", "a", "a\0", "b", "sameeight1"])),
        end in prop::option::of(prop::sample::select(vec!["a", "a\0", "b", "same", "z"])),
        now in 0u64..13,
    ) {
        let bound = |bound: Option<&str>| bound.map(|key| key.as_bytes().to_vec());
        let inside = |key: &Vec<u8>| {
            start.is_none_or(|start| start.as_bytes() <= key.as_slice())
                && end.is_none_or(|end| key.as_slice() < end.as_bytes())
        };
        for seq in 0..=history.len() as u64 {
            let mut expected = model_scan(&history, seq, now);
            expected.retain(|(key, _)| inside(key));
            for direction in BOTH {
                let merge = Merge::new(cut(&history, size, seed, lacks), direction);
                let view = view(seq, now);
                let visible = Visible::new(merge, view, direction, bound(start), bound(end));
                let mut pairs = collect(visible).unwrap();
                if direction == Direction::Backward {
                    pairs.reverse();
                }
                prop_assert_eq!(pairs, expected.clone());
            }
        }
    }

    /// Keys with dozens of versions, where one key begins at the end of the other's versions: a
    /// seek past versions must skip exactly those that moves would have skipped.
    #[test]
    fn a_scan_over_many_versions_equals_the_model(
        mut history in histories(90), size in 1usize..40, seed: u64, lacks in 0u64..5,
        now in 0u64..13, mask in 0usize..4,
    ) {
        for (n, row) in history.iter_mut().enumerate() {
            row.key = if n & mask == 0 { b"a".to_vec() } else { b"a\0".to_vec() };
        }
        for seq in (0..=history.len() as u64).step_by(11) {
            for direction in BOTH {
                let merge = Merge::new(cut(&history, size, seed, lacks), direction);
                let pairs = scan(merge, view(seq, now), direction);
                prop_assert_eq!(pairs, model_scan(&history, seq, now));
            }
        }
    }

    /// Long runs of plain entries, ended by the caller at any entry, return the same as a scan row
    /// by row.
    #[test]
    fn stretches_of_any_length_give_every_row_once(
        writes in prop::collection::vec((0u32..60, prop::bool::weighted(0.9)), 0..150),
        size in 1usize..60, seed: u64, lacks in 0u64..5, stops in prop::collection::vec(1u32..9, 8),
        before in prop::sample::select(vec!["", "sameeight", "two of sameeight"]),
        oldest_first: bool,
    ) {
        let written = |((number, is_put), seq): ((u32, bool), u64)| {
            // The third kind has keys that differ in the first byte, so that no common bytes are
            // left out of the ranks, and many different keys of one rank.
            let first = if before.starts_with("two") { number % 2 } else { 0 };
            let key = format!("{first}{before}{number}");
            if is_put { put(&key, seq, &format!("<{seq}>")) } else { delete(&key, seq) }
        };
        let history: Vec<Row> = writes.into_iter().zip(1u64..).map(written).collect();
        for seq in (0..=history.len() as u64).step_by(13) {
            let mut parts = cut(&history, size, seed, lacks);
            let merge = if oldest_first {
                parts.reverse();
                Merge::new(parts, Direction::Forward)
            } else {
                Merge::new(parts, Direction::Forward).newest_first()
            };
            let mut visible = Visible::new(merge, view(seq, 0), Direction::Forward, None, None);
            let (mut pairs, mut left) = (Vec::new(), 1);
            let mut stops = stops.iter().cycle();
            let mut more = || driven(|| visible.each(|key, value| {
                pairs.push((key.to_vec(), value.to_vec()));
                left -= 1;
                if left == 0 {
                    left = *stops.next().unwrap();
                    return Ok(false);
                }
                Ok(true)
            }));
            while more().unwrap() == Step::Ready {}
            prop_assert_eq!(pairs, model_scan(&history, seq, 0));
        }
    }

    #[test]
    fn a_look_up_equals_the_model(history in histories(30), now in 0u64..13) {
        for row in &history {
            for seq in 0..=history.len() as u64 {
                let found = look_up(&history, &row.key, &view(seq, now)).unwrap();
                prop_assert_eq!(found, model_get(&history, &row.key, seq, now));
            }
        }
    }
}

fn values(history: &[Row], view: &ReadView, direction: Direction) -> Vec<String> {
    let merge = Merge::new(vec![Rows::new(history.to_vec())], direction);
    let pairs = scan(merge, view.clone(), direction);
    pairs.into_iter().map(|(_, value)| String::from_utf8(value).unwrap()).collect()
}

/// A value that hides operands needs no operator; visible operands do.
#[test]
fn operands_without_an_operator_are_refused() {
    let view = |seq| ReadView { operator: None, ..view(seq, 0) };
    let history = [operand("k", 1, "+a"), put("k", 2, "value"), operand("k", 3, "+b")];
    for direction in BOTH {
        assert_eq!(values(&history, &view(2), direction), ["value"]);
        let merge = Merge::new(vec![Rows::new(history.to_vec())], direction);
        let mut visible = Visible::new(merge, view(3), direction, None, None);
        for _ in 0..2 {
            let error = visible.advance().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Invalid);
            assert!(error.to_string().contains("open the database with its merge operator"));
            assert!(visible.item().is_none());
        }
    }
    assert_eq!(look_up(&history, b"k", &view(3)).unwrap_err().kind(), ErrorKind::Invalid);
    assert_eq!(look_up(&history, b"k", &view(2)).unwrap(), Some(b"value".to_vec()));
    let recorded = ReadView { recorded_operator: Some("ops:add".into()), ..view(3) };
    let error = look_up(&history, b"k", &recorded).unwrap_err().to_string();
    assert!(error.contains("(merge operator: ops:add)"), "{error}");
}

#[test]
fn a_range_delete_among_entries_is_a_mistake_of_ours() {
    let history = [Row { kind: Kind::RangeDelete, ..put("k", 1, "l") }];
    for direction in BOTH {
        let merge = Merge::new(vec![Rows::new(history.to_vec())], direction);
        let mut visible = Visible::new(merge, view(9, 0), direction, None, None);
        assert_eq!(visible.advance().unwrap_err().kind(), ErrorKind::Internal);
    }
    assert_eq!(look_up(&history, b"k", &view(9, 0)).unwrap_err().kind(), ErrorKind::Internal);
}

#[test]
fn an_empty_range_touches_nothing() {
    // A cursor that needs a block at every move would never end.
    let rows = Rows::lacking(vec![put("k", 1, "v")], 1, 8);
    let bounds = (Some(b"k".to_vec()), Some(b"k".to_vec()));
    let mut visible = Visible::new(rows, view(9, 0), Direction::Forward, bounds.0, bounds.1);
    assert_eq!(visible.advance().unwrap(), Step::End);
    assert_eq!(visible.advance().unwrap(), Step::End);
}

/// A reader that pauses returns after some thousand entries without an item, and goes on there.
#[test]
fn long_runs_of_entries_without_an_item_are_read_in_turns() {
    let name = |k: u64| format!("{k:06}");
    let mut gone: Vec<Row> = (1..=20_000).map(|k| delete(&name(k), k)).collect();
    gone.push(put(&name(20_001), 20_001, "v"));
    gone.push(put(&name(0), 20_002, "u"));
    let operands = (1..=10_000).map(|seq| operand("k", seq, "+")).collect();
    for (history, least) in [(gone, 4), (operands, 2)] {
        for direction in BOTH {
            let merge = || Merge::new(vec![Rows::new(history.clone())], direction);
            let mut visible = Visible::new(merge(), view(30_000, 0), direction, None, None);
            let whole = scan(merge(), view(30_000, 0), direction);
            visible = visible.pausing();
            let (mut pairs, mut pauses) = (Vec::new(), 0);
            let mut more = || {
                let step = visible.each(|key, value| {
                    pairs.push((key.to_vec(), value.to_vec()));
                    Ok(true)
                });
                pauses += u32::from(visible.is_paused());
                step
            };
            while more().unwrap() == Step::Ready {}
            if direction == Direction::Backward {
                pairs.reverse();
            }
            assert_eq!(pairs, whole);
            assert!((least..=6).contains(&pauses), "{pauses} pauses");
        }
    }
}

/// Versions that the view hides cost a handful of moves, for any number of versions.
#[test]
fn hidden_versions_are_sought_past() {
    let mut history: Vec<Row> = (1..=10_000).map(|seq| put("k", seq, "v")).collect();
    history.extend([put("j", 1, "v"), put("l", 1, "v")]);
    let moves = |seq, direction| {
        let rows = Rows::new(history.clone());
        let moves = rows.moves();
        let keys = scan(Merge::new(vec![rows], direction), view(seq, 0), direction).len();
        assert_eq!(keys, 3, "at {seq}");
        moves.get()
    };
    // Newer than the view, older than the visible version, and both.
    for seq in [1, 5_000, 10_000] {
        let forward = moves(seq, Direction::Forward);
        assert!(forward <= 45, "{forward} moves at {seq}");
    }
    // Backward the visible versions come first, one by one; newer ones are skipped by a seek.
    let backward = moves(20, Direction::Backward);
    assert!(backward <= 60, "{backward} moves");
}

#[test]
fn an_item_carries_its_newest_sequence_number() {
    let history = vec![put("a", 1, "v"), operand("a", 4, "+"), put("b", 2, "w"), delete("c", 3)];
    for direction in BOTH {
        let mut visible =
            Visible::new(Rows::new(history.clone()), view(9, 0), direction, None, None);
        let mut seqs = Vec::new();
        while driven(|| visible.advance()).unwrap() == Step::Ready {
            seqs.push(visible.seq().unwrap().0);
        }
        seqs.sort_unstable();
        assert_eq!(seqs, [2, 4]);
    }
}

/// Fails on every fold.
struct Refuses;

impl MergeOperator for Refuses {
    fn name(&self) -> &str {
        "refuses"
    }

    fn fold(&self, _: &[u8], _: Option<&[u8]>, _: &[&[u8]]) -> Result<Vec<u8>> {
        Err(Error::invalid("not this operand"))
    }
}

#[test]
fn the_operators_answer_reaches_the_reader() {
    let view = ReadView { operator: Some(Arc::new(Refuses)), ..view(9, 0) };
    let history = [operand("k", 1, "+a")];
    for direction in BOTH {
        let rows = Rows::new(history.to_vec());
        let error = collect(Visible::new(rows, view.clone(), direction, None, None)).unwrap_err();
        assert_eq!(error.to_string(), "not this operand (key: k)");
    }
    assert!(look_up(&history, b"k", &view).is_err());
    let named = format!("{view:?}");
    assert!(named.contains("refuses"), "{named}");
    assert_eq!(Concatenate { alone: true }.name(), concatenate(true).unwrap().name());
}
