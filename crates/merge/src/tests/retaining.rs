//! The entries that a flush or compaction keeps read as before, as a property; the runs of RFC 0005
//! are scripts.

use crate::testing::{
    Pair, Row, Rows, concatenate, driven, histories, model_scan, put, scan, sorted, view,
};
use crate::{Direction, Merge, Retain, Retention, VisitControl};
use proptest::prelude::*;
use siltstone_base::{ErrorKind, Kind, Result, Seq, Step, UnixMillis};

fn drain(mut retain: Retain<Merge<Rows>>) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    while driven(|| retain.advance())? == Step::Ready {
        rows.push(Row::of(retain.entry().expect("ready has an entry")));
    }
    assert!(retain.entry().is_none());
    Ok(rows)
}

/// As [`drain`], by a visitor that stops and leaves entries according to the bits of `says`.
fn visited(mut retain: Retain<Merge<Rows>>, mut says: u64) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    let mut draw = || {
        says = says.rotate_left(7).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        says >> 62
    };
    loop {
        let mut last = None;
        let step = retain.visit(|entry| {
            let said = match draw() {
                0 => VisitControl::Leave,
                1 => VisitControl::Enough,
                _ => VisitControl::GoOn,
            };
            if said != VisitControl::Leave {
                rows.push(Row::of(*entry));
            }
            last = Some((said, Row::of(*entry)));
            Ok(said)
        })?;
        match (step, last) {
            (Step::End, _) => return Ok(rows),
            (Step::NeedBlock(_), _) => {}
            (Step::Ready, Some((VisitControl::Leave, left))) => {
                assert!(retain.stands());
                assert_eq!(retain.entry().map(Row::of), Some(left), "what is left is at hand");
            }
            (Step::Ready, last) => {
                assert!(matches!(last, Some((VisitControl::Enough, _))), "{last:?}")
            }
        }
    }
}

fn merged(sources: &[Vec<Row>], seed: u64, lacks: u64) -> Merge<Rows> {
    let numbered = sources.iter().zip(seed..);
    let cursors = numbered.map(|(rows, seed)| Rows::lacking(rows.clone(), seed, lacks));
    Merge::new(cursors.collect(), Direction::Forward)
}

fn read(sources: &[Vec<Row>], seq: u64, now: u64, direction: Direction) -> Vec<Pair> {
    let cursors = sources.iter().map(|rows| Rows::new(rows.clone())).collect();
    scan(Merge::new(cursors, direction), view(seq, now), direction)
}

/// One compaction: the sources that it takes (newest first), and its parameters.
#[derive(Clone, Debug)]
struct Job {
    from: prop::sample::Index,
    to: prop::sample::Index,
    later: u64,
    zero_seqs: bool,
    /// No operator, one that folds operands alone, or one that needs a base.
    operator: Option<bool>,
    forget: u64,
}

fn jobs() -> impl Strategy<Value = Job> {
    let index = any::<prop::sample::Index>;
    let operator = prop::option::weighted(0.8, any::<bool>());
    (index(), index(), 0u64..4, any::<bool>(), operator, 0u64..4).prop_map(
        |(from, to, later, zero_seqs, operator, forget)| Job {
            from,
            to,
            later,
            zero_seqs,
            operator,
            forget,
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// Consecutive compactions of neighbouring sources, while time passes and snapshots are
    /// released: every remaining snapshot, and the head, reads the result of the whole history at
    /// every later time.
    #[test]
    fn kept_entries_read_as_before(
        history in histories(40), size in 1usize..10,
        snapshots in prop::collection::vec(0u64..40, 0..5),
        jobs in prop::collection::vec(jobs(), 1..4),
        seed: u64, lacks in 0u64..4,
    ) {
        let mut sources: Vec<Vec<Row>> = history.chunks(size).rev().map(<[Row]>::to_vec).collect();
        let mut snapshots = snapshots;
        let mut now = 0;
        for job in jobs {
            if sources.is_empty() {
                break;
            }
            let (a, b) = (job.from.index(sources.len()), job.to.index(sources.len()));
            let inputs = a.min(b)..a.max(b) + 1;
            let bottom = inputs.end == sources.len();
            now += job.later;
            // Each job releases another of four residues.
            snapshots.retain(|snapshot| snapshot % 4 != job.forget);
            let retention = Retention {
                snapshot_bounds: snapshots.iter().copied().map(Seq).collect(),
                floor: None,
                bottom,
                now: UnixMillis(now),
                operator: job.operator.and_then(concatenate),
                zero_seqs: job.zero_seqs,
                ..Retention::default()
            };
            let merge = merged(&sources[inputs.clone()], seed, lacks);
            let kept = drain(Retain::new(merge, retention.clone())).unwrap();
            check_shape(&kept, &retention);
            let merge = merged(&sources[inputs.clone()], seed, lacks);
            let shown = visited(Retain::new(merge, retention.clone()), seed).unwrap();
            prop_assert_eq!(&kept, &shown, "a visitor is shown the same");
            let in_parts = in_parts(&sources[inputs.clone()], &retention);
            prop_assert_eq!(&kept, &in_parts, "a job cut in ranges keeps the same");
            sources.splice(inputs, [kept]);

            let head = history.len() as u64;
            for seq in snapshots.iter().copied().chain([head, Seq::MAX.0]) {
                for later in now..13.max(now + 1) {
                    let expected = model_scan(&history, seq, later);
                    for direction in [Direction::Forward, Direction::Backward] {
                        let found = read(&sources, seq, later, direction);
                        prop_assert_eq!(&found, &expected, "at {} and {}", seq, later);
                    }
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// A compactor that knows the floor and no snapshots: from the floor on every sequence number
    /// reads as before.
    #[test]
    fn above_the_floor_every_moment_reads_as_before(
        history in histories(30), size in 1usize..10, floor in 0u64..30,
        jobs in prop::collection::vec(jobs(), 1..4),
    ) {
        let mut sources: Vec<Vec<Row>> = history.chunks(size).rev().map(<[Row]>::to_vec).collect();
        let mut now = 0;
        for job in jobs.into_iter().take(sources.len()) {
            let (a, b) = (job.from.index(sources.len()), job.to.index(sources.len()));
            let inputs = a.min(b)..a.max(b) + 1;
            now += job.later;
            let retention = Retention {
                floor: Some(Seq(floor)),
                bottom: inputs.end == sources.len(),
                now: UnixMillis(now),
                operator: job.operator.and_then(concatenate),
                zero_seqs: job.zero_seqs,
                ..Retention::default()
            };
            let kept = drain(Retain::new(merged(&sources[inputs.clone()], 0, 0), retention));
            sources.splice(inputs, [kept.unwrap()]);
            for seq in floor..=(history.len() as u64).max(floor) {
                for later in now..13.max(now + 1) {
                    let found = read(&sources, seq, later, Direction::Forward);
                    prop_assert_eq!(&found, &model_scan(&history, seq, later), "at {}", seq);
                }
            }
        }
    }
}

/// Kept entries are in strict order and contain nothing expired and at most one value or tombstone
/// per key and stripe, below all operands of the stripe; a tombstone at the bottom has something
/// below it.
fn check_shape(kept: &[Row], retention: &Retention) {
    let stripe = |row: &Row| retention.snapshot_bounds.iter().filter(|at| **at < row.seq).count();
    assert_eq!(sorted(kept.to_vec()), kept);
    for pair in kept.windows(2) {
        let (upper, lower) = (&pair[0], &pair[1]);
        assert!((&upper.key, upper.seq) != (&lower.key, lower.seq));
        let together = upper.key == lower.key && stripe(upper) == stripe(lower);
        assert!(!together || upper.kind == Kind::Merge, "{upper:?} hides {lower:?}");
    }
    let nexts = kept.iter().skip(1).map(Some).chain([None]);
    for (row, next) in kept.iter().zip(nexts) {
        assert!(!row.entry().is_expired(retention.now), "{row:?} has expired");
        let last_of_key = next.is_none_or(|next| next.key != row.key);
        if retention.bottom && last_of_key {
            assert_ne!(row.kind, Kind::Delete, "{row:?} hides nothing");
            assert!(row.kind != Kind::Merge || retention.operator.is_none(), "{row:?} lies alone");
        }
        // An earlier job may have set it to zero; it never occurs elsewhere.
        if row.seq.is_none() {
            assert!(retention.bottom && last_of_key && row.kind == Kind::Put);
        }
    }
}

/// The same job as ranges between neighbouring keys.
fn in_parts(sources: &[Vec<Row>], retention: &Retention) -> Vec<Row> {
    let cuts = [None, Some("a\0"), Some("b"), Some("sameeight1"), None];
    let bound = |cut: Option<&str>| cut.map(|key| key.as_bytes().to_vec());
    let part = |pair: &[Option<&str>]| {
        let merge = merged(sources, 0, 0);
        let range = (bound(pair[0]), bound(pair[1]));
        drain(Retain::in_range(merge, retention.clone(), range.0, range.1)).unwrap()
    };
    cuts.windows(2).flat_map(part).collect()
}

#[test]
fn a_range_delete_among_entries_is_a_mistake_of_ours() {
    let rows = vec![Row { kind: Kind::RangeDelete, ..put("k", 1, "l") }];
    let mut retain = Retain::new(merged(&[rows], 0, 0), Retention::default());
    for _ in 0..2 {
        assert_eq!(retain.advance().unwrap_err().kind(), ErrorKind::Internal);
        assert!(retain.entry().is_none());
    }
}
