//! Range deletes in scans, look-ups and retention, compared with whole histories.

use crate::testing::{
    Pair, Row, Rows, concatenate, delete, driven, histories, model_get, model_scan, put, scan,
    sorted, view,
};
use crate::{
    Covered, Direction, LookupStep, Merge, Resolve, Retain, Retention, VisibleDeleteSet,
    VisibleDeletes,
};
use proptest::prelude::*;
use siltstone_base::{Cover, Cursor, Kind, RangeDelete, Seq, Step, UnixMillis};
use std::sync::Arc;

/// A source like a memtable or a table: entries, and range deletes beside them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Source {
    pub(super) rows: Vec<Row>,
    pub(super) ranges: Vec<RangeDelete>,
}

impl Source {
    pub(super) fn of(history: &[Row]) -> Source {
        let (ranges, rows): (Vec<Row>, Vec<Row>) =
            history.iter().cloned().partition(|row| row.kind == Kind::RangeDelete);
        let ranges = ranges.iter().map(|row| RangeDelete::new(&row.key, &row.value, row.seq));
        Source { rows, ranges: ranges.collect() }
    }

    pub(super) fn newest(&self) -> Seq {
        let entries = self.rows.iter().map(|row| row.seq);
        entries.max().unwrap_or(Seq::NONE)
    }
}

fn range(start: &str, end: &str, seq: u64) -> Row {
    Row { kind: Kind::RangeDelete, value: end.as_bytes().to_vec(), ..put(start, seq, "") }
}

/// The range deletes among these that a read at `seq` sees, for all keys.
fn covers<'c>(of: impl IntoIterator<Item = &'c [RangeDelete]>, seq: u64) -> Arc<VisibleDeleteSet> {
    let seen = |ranges: &[RangeDelete]| VisibleDeletes {
        cover: Arc::new(Cover::of(ranges.to_vec())),
        above: Seq::NONE,
        until: Seq(seq),
    };
    Arc::new(VisibleDeleteSet::new(of.into_iter().map(seen).collect(), None, None))
}

/// The result of a scan: the covers of all sources apply to every source.
fn read(sources: &[Source], seq: u64, now: u64, direction: Direction, lacks: u64) -> Vec<Pair> {
    let cover = covers(sources.iter().map(|source| source.ranges.as_slice()), seq);
    let covered = |source: &Source| {
        let rows = Rows::lacking(source.rows.clone(), seq, lacks);
        Covered::new(rows, Arc::clone(&cover), source.newest().min(Seq(seq)))
    };
    scan(Merge::new(sources.iter().map(covered).collect(), direction), view(seq, now), direction)
}

/// The result of a look-up: sources from the newest on, until a range delete covers the key.
fn look_up(sources: &[Source], key: &[u8], seq: u64, now: u64) -> Option<Vec<u8>> {
    let view = view(seq, now);
    let mut resolve = Resolve::new(key, &view);
    for source in sources {
        resolve.delete_older_than(Cover::of(source.ranges.clone()).at(key, Seq(seq)));
        for row in sorted(source.rows.clone()).iter().filter(|row| row.key == key) {
            match resolve.push(row.entry()).unwrap() {
                LookupStep::Value => return Some(row.value.clone()),
                LookupStep::Absent => return None,
                LookupStep::Folded => return resolve.finish().unwrap(),
                LookupStep::NeedOlder => {}
            }
        }
        if resolve.is_deleted_below() {
            break;
        }
    }
    resolve.finish().unwrap()
}

fn retain(inputs: &[Source], retention: &Retention) -> Source {
    let ranges = inputs.iter().flat_map(|source| &source.ranges).cloned();
    let retention = Retention { range_deletes: ranges.collect(), ..retention.clone() };
    let cursors = inputs.iter().map(|source| Rows::new(source.rows.clone())).collect();
    let mut retain = Retain::new(Merge::new(cursors, Direction::Forward), retention);
    let ranges = retain.range_deletes();
    let mut rows = Vec::new();
    while driven(|| retain.advance()).unwrap() == Step::Ready {
        rows.push(Row::of(retain.entry().expect("ready has an entry")));
    }
    Source { rows, ranges }
}

/// The same in ranges, as outputs that were split.
fn retain_in_parts(inputs: &[Source], retention: &Retention) -> Source {
    let cuts = [None, Some("a\0"), Some("b"), Some("sameeight1"), None];
    let bound = |cut: Option<&str>| cut.map(|key| key.as_bytes().to_vec());
    let mut whole = Source::default();
    for pair in cuts.windows(2) {
        let ranges = inputs.iter().flat_map(|source| &source.ranges).cloned();
        let retention = Retention { range_deletes: ranges.collect(), ..retention.clone() };
        let cursors = inputs.iter().map(|source| Rows::new(source.rows.clone())).collect();
        let merge = Merge::new(cursors, Direction::Forward);
        let (start, end) = (bound(pair[0]), bound(pair[1]));
        let mut part = Retain::in_range(merge, retention, start, end);
        whole.ranges.extend(part.range_deletes());
        while driven(|| part.advance()).unwrap() == Step::Ready {
            whole.rows.push(Row::of(part.entry().expect("ready has an entry")));
        }
    }
    whole
}

/// Histories in which some writes are range deletes.
fn deleting(most: usize) -> impl Strategy<Value = Vec<Row>> {
    let bounds = vec!["a", "a\0", "ab", "b", "c", "same", "sameeight", "sameeight2", "z"];
    let deletes = prop::option::weighted(
        0.2,
        (prop::sample::select(bounds.clone()), prop::sample::select(bounds)),
    );
    let ranges = prop::collection::vec(deletes, most);
    (histories(most), ranges).prop_map(|(history, ranges)| {
        let replace = |(row, bounds): (Row, Option<(&str, &str)>)| match bounds {
            Some((a, b)) if a != b => range(a.min(b), a.max(b), row.seq.0),
            _ => row,
        };
        history.into_iter().zip(ranges).map(replace).collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// The results of scans in both directions and of look-ups, for every sequence number and any
    /// split into sources.
    #[test]
    fn range_deletes_hide_what_is_older(
        history in deleting(30), size in 1usize..12, lacks in 0u64..4,
    ) {
        let sources: Vec<Source> = history.chunks(size).rev().map(Source::of).collect();
        for seq in 0..=history.len() as u64 {
            let expected = model_scan(&history, seq, 5);
            for direction in [Direction::Forward, Direction::Backward] {
                prop_assert_eq!(&read(&sources, seq, 5, direction, lacks), &expected);
            }
            for key in ["a", "a\0", "b", "sameeight", "sameeight1", "zz"] {
                let key = key.as_bytes();
                let expected = model_get(&history, key, seq, 5);
                prop_assert_eq!(look_up(&sources, key, seq, 5), expected);
            }
        }
    }

    /// Compactions of neighbouring sources, with snapshots or a floor: every permitted read returns
    /// the same as before.
    #[test]
    fn kept_entries_under_range_deletes_read_as_before(
        history in deleting(40), size in 1usize..10,
        snapshots in prop::collection::vec(0u64..40, 0..4),
        floor in prop::option::weighted(0.3, 0u64..40),
        jobs in prop::collection::vec(
            (any::<prop::sample::Index>(), any::<prop::sample::Index>(), 0u64..4, any::<bool>()),
            1..4,
        ),
        zero_seqs: bool,
    ) {
        let mut sources: Vec<Source> = history.chunks(size).rev().map(Source::of).collect();
        let head = history.len() as u64;
        let mut now = 0;
        for (from, to, later, operator) in jobs.into_iter().take(sources.len()) {
            let (a, b) = (from.index(sources.len()), to.index(sources.len()));
            let inputs = a.min(b)..a.max(b) + 1;
            now += later;
            let retention = Retention {
                snapshot_bounds: match floor {
                    Some(_) => Vec::new(),
                    None => snapshots.iter().copied().map(Seq).collect(),
                },
                floor: floor.map(Seq),
                bottom: inputs.end == sources.len(),
                now: UnixMillis(now),
                operator: concatenate(true).filter(|_| operator),
                zero_seqs,
                ..Retention::default()
            };
            let kept = retain(&sources[inputs.clone()], &retention);
            let parts = retain_in_parts(&sources[inputs.clone()], &retention);
            prop_assert_eq!(&kept.rows, &parts.rows);
            if retention.bottom && snapshots.is_empty() && floor.is_none() {
                prop_assert!(kept.ranges.is_empty(), "nothing is left to hide");
            }
            // The parts' range deletes have the same effect: they are used from here on.
            sources.splice(inputs, [parts]);
            let moments: Vec<u64> = match floor {
                Some(floor) => (floor..=head.max(floor)).collect(),
                None => snapshots.iter().copied().chain([head]).collect(),
            };
            for seq in moments {
                let expected = model_scan(&history, seq, now);
                for direction in [Direction::Forward, Direction::Backward] {
                    let found = read(&sources, seq, now, direction, 0);
                    prop_assert_eq!(&found, &expected, "at {}", seq);
                }
                for (key, value) in &expected {
                    prop_assert_eq!(look_up(&sources, key, seq, now), Some(value.clone()));
                }
            }
        }
    }
}

/// A source that is entirely older than the span is not walked through it.
#[test]
fn a_covered_stretch_is_sought_past() {
    let keys: Vec<String> = (0..10_000).map(|n| format!("k{n:05}")).collect();
    let mut rows: Vec<Row> = keys.iter().zip(1..).map(|(key, seq)| put(key, seq, "v")).collect();
    rows.push(put("a", 20_000, "first"));
    rows.push(put("z", 20_001, "last"));
    // Newer than the source, and older than some of its entries: then it is walked through.
    for (by, most) in [(40_000, 20), (15_000, 20_020)] {
        let cover = covers([&[RangeDelete::new(b"k", b"l", Seq(by))][..]], Seq::MAX.0);
        for direction in [Direction::Forward, Direction::Backward] {
            let cursor = Rows::new(rows.clone());
            let moves = cursor.moves();
            let covered = Covered::new(cursor, Arc::clone(&cover), Seq(20_001));
            let found = scan(covered, view(Seq::MAX.0, 0), direction);
            assert_eq!(found.len(), 2);
            assert!(moves.get() <= most, "{} moves", moves.get());
        }
    }
}

#[test]
fn hidden_entries_are_nowhere() {
    let cover = covers([&[RangeDelete::new(b"a", b"c", Seq(5))][..]], Seq::MAX.0);
    let rows = vec![put("a", 1, "1"), put("b", 6, "6"), delete("b", 2), put("c", 1, "1")];
    let mut covered = Covered::new(Rows::new(rows), cover, Seq(6));
    assert_eq!(covered.seek_first().unwrap(), Step::Ready);
    assert_eq!(covered.key(), Some((&b"b"[..], Seq(6))));
    assert_eq!(covered.next().unwrap(), Step::Ready);
    assert_eq!(covered.entry().map(|entry| entry.key), Some(&b"c"[..]));
    assert_eq!(covered.prev().unwrap(), Step::Ready);
    assert_eq!(covered.key(), Some((&b"b"[..], Seq(6))));
    assert_eq!(covered.prev().unwrap(), Step::End);
    assert!(covered.entry().is_none() && covered.key().is_none());
    assert_eq!(covered.seek(b"b", Seq(5)).unwrap(), Step::Ready);
    assert_eq!(covered.key(), Some((&b"c"[..], Seq(1))));
}

/// A range delete that is newer than the read does not cancel an older one of its source.
#[test]
fn a_read_sees_below_newer_range_deletes() {
    let ranges = [
        RangeDelete::new(b"a", b"e", Seq(3)),
        RangeDelete::new(b"b", b"d", Seq(9)),
        RangeDelete::new(b"f", b"g", Seq(8)),
    ];
    let rows = ["a", "b", "c", "d", "e", "f"].map(|key| put(key, 2, key)).to_vec();
    for direction in [Direction::Forward, Direction::Backward] {
        for (seq, left) in [(2, 6), (3, 2), (8, 1), (9, 1)] {
            let cover = covers([&ranges[..1], &ranges[1..]], seq);
            let covered = Covered::new(Rows::new(rows.clone()), cover, Seq(2));
            assert_eq!(scan(covered, view(seq, 0), direction).len(), left, "at {seq}");
        }
    }
}

#[test]
fn no_seek_goes_past_the_end_of_a_read() {
    let cover = Arc::new(Cover::of(vec![RangeDelete::new(b"b", b"y", Seq(9))]));
    let seen = VisibleDeletes { cover, above: Seq::NONE, until: Seq::MAX };
    let (start, end) = (Some("c".into()), Some("e".into()));
    let covers = Arc::new(VisibleDeleteSet::new(vec![seen], start, end));
    let rows = ["a", "c", "d", "e", "z"].map(|key| put(key, 2, key)).to_vec();
    let mut covered = Covered::new(Rows::new(rows.clone()), Arc::clone(&covers), Seq(2));
    assert_eq!(covered.seek(b"d", Seq::MAX).unwrap(), Step::Ready);
    assert_eq!(covered.key(), Some((&b"e"[..], Seq(2))));
    let mut covered = Covered::new(Rows::new(rows), covers, Seq(2));
    assert_eq!(covered.seek_before(b"e", Seq::MAX).unwrap(), Step::Ready);
    assert_eq!(covered.key(), Some((&b"a"[..], Seq(2))));
}
