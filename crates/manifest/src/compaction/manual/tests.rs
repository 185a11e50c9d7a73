use super::*;
use crate::compaction::plan::Pick;
use crate::testing::{empty, manifest};

const NOW: UnixMillis = UnixMillis(100);

#[test]
fn major_takes_everything_to_run_0() {
    let plan = major(&manifest(), NOW).unwrap();
    assert_eq!(plan.to_string(), "L0:4, L0:3, 6, 0 -> 0");
    assert!(plan.thorough);
}

#[test]
fn where_nothing_is_to_gain_there_is_no_plan() {
    assert_eq!(major(&empty(), NOW), None);
    let mut one_run = manifest();
    one_run.l0.clear();
    one_run.runs.remove(0);
    assert_eq!(major(&one_run, NOW), None);
    let table = &mut one_run.runs[0].tables[0];
    table.min_expiry = Some(UnixMillis(101));
    assert_eq!(major(&one_run, NOW), None);
    assert!(major(&one_run, UnixMillis(101)).is_some());
    one_run.runs[0].tables[0].tombstones = 1;
    assert!(major(&one_run, NOW).is_some());
}

/// L0 and run 0 span all keys; of run 6 only one table is asked for, the other is in the way.
#[test]
fn a_range_takes_what_it_would_pass() {
    let text = |start: &[u8], end: &[u8]| {
        range(&manifest(), Some(start), Some(end), NOW).map(|plan| plan.to_string())
    };
    assert_eq!(text(b"b", b"c"), Some("L0:4, L0:3, 6, 0 -> 0".to_owned()));
    let mut state = manifest();
    state.l0.clear();
    let plan = range(&state, Some(b"b"), Some(b"c"), NOW).unwrap();
    let pick = Pick::Tables(vec![state.runs[0].tables[0].id]);
    assert_eq!(plan.sources[0].pick, pick);
    assert_eq!((plan.sources[1].pick.clone(), plan.sources.len()), (Pick::Whole, 2));
    assert_eq!(range(&state, Some(b"zz"), None, NOW), None);
}
