//! Compares footprints with plain lists.

use super::*;
use proptest::collection::vec;
use proptest::prelude::*;

/// Few letters and lengths, so that keys are often equal, adjacent, or prefixes of each other.
fn key() -> impl Strategy<Value = Vec<u8>> {
    vec(prop::sample::select(b"\0ab".to_vec()), 1..4)
}

fn range() -> impl Strategy<Value = KeySpan> {
    let start = prop_oneof![1 => Just(Vec::new()), 8 => key()];
    (start, prop::option::of(key())).prop_map(|(start, end)| KeySpan { start, end })
}

fn inside(range: &KeySpan, key: &[u8]) -> bool {
    range.start.as_slice() <= key && range.end.as_deref().is_none_or(|end| key < end)
}

/// The first keys of both ranges: if the ranges share a key, they share one of these.
fn share(range: &KeySpan, start: &[u8], end: &[u8]) -> bool {
    let first = start.max(range.start.as_slice());
    first < end && inside(range, first)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn a_footprint_minds_what_its_lists_have(
        keys in vec(key(), 0..6),
        ranges in vec(range(), 0..6),
        touched_key in key(),
        touched_end in key(),
    ) {
        let footprint = Footprint::new(&keys.iter().collect(), ranges.clone());
        let is_key = keys.contains(&touched_key);
        let in_range = ranges.iter().any(|range| inside(range, &touched_key));
        let clash = footprint.clash(CommitFootprint::Key(&touched_key));
        prop_assert_eq!(clash.is_some(), is_key || in_range);
        if let Some(clash) = clash {
            prop_assert_eq!((&clash.key, clash.in_range), (&touched_key, !is_key));
        }

        let (start, end) = (touched_key.as_slice(), touched_end.as_slice());
        if start < end {
            let some_key = keys.iter().any(|key| start <= key.as_slice() && key.as_slice() < end);
            let some_range = ranges.iter().any(|range| share(range, start, end));
            let clash = footprint.clash(CommitFootprint::Span(start, end));
            prop_assert_eq!(clash.is_some(), some_key || some_range);
            if let Some(clash) = clash {
                // The reported key lies in both.
                prop_assert!(start <= clash.key.as_slice() && clash.key.as_slice() < end);
                let in_range = ranges.iter().any(|range| inside(range, &clash.key));
                prop_assert!(in_range || keys.contains(&clash.key));
            }
        }
    }

    #[test]
    fn joined_ranges_are_disjoint_and_hold_the_same(
        ranges in vec(range(), 0..8),
        probes in vec(key(), 1..20),
    ) {
        let all = joined(ranges.clone());
        for pair in all.windows(2) {
            let apart = pair[0].end.as_ref().is_some_and(|end| *end < pair[1].start);
            prop_assert!(apart, "{:?}", pair);
        }
        for probe in probes {
            let before = ranges.iter().any(|range| inside(range, &probe));
            prop_assert_eq!(before, all.iter().any(|range| inside(range, &probe)));
        }
    }
}

#[test]
fn writes_are_keys_and_ranges() {
    let mut batch = Batch::new();
    batch.put(b"p", b"1", None).unwrap();
    batch.merge(b"m", b"1", None).unwrap();
    batch.delete(b"d").unwrap();
    batch.delete_range(b"r", b"s").unwrap();
    let footprint = Footprint::of_writes(&batch).unwrap();
    for key in [b"p", b"m", b"d"] {
        assert!(footprint.clash(CommitFootprint::Key(key)).is_some_and(|clash| !clash.in_range));
    }
    assert!(footprint.clash(CommitFootprint::Key(b"ra")).is_some_and(|clash| clash.in_range));
    assert_eq!(footprint.clash(CommitFootprint::Key(b"s")), None);
}

#[test]
fn a_conflict_names_the_key() {
    let footprint = Footprint::of_key(b"a\xff'");
    let error = Error::from(footprint.clash(CommitFootprint::Key(b"a\xff'")).unwrap());
    assert_eq!(error.kind(), ErrorKind::Conflict);
    assert_eq!(error.context(), [("key", r"a\xff\'".to_owned())]);
}
