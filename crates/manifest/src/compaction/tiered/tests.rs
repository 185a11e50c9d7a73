use super::*;
use crate::compaction::valid::Running;
use crate::state::{L0Entry, Manifest, SortedRun};
use crate::testing::{empty, table};
use siltstone_base::{JobId, SstDescriptor, SstId, UnixMillis};

/// Tables over all keys: as many layers of L0 as said, and runs of so many bytes, newest first, the
/// last one with id 0. Levels hold 100 x 8^N bytes times 8.
fn tree(l0: u64, runs: &[u64]) -> Manifest {
    let mut state = empty();
    let of = |id: u128, bytes| SstDescriptor {
        object_bytes: bytes,
        ..table(SstId(id), b"a", b"z", 1, 1)
    };
    let entry = |order: u64| L0Entry { order, tables: vec![of(order.into(), 100)] };
    state.l0 = (1..=l0).rev().map(entry).collect();
    let ids = (0..runs.len() as u32).rev();
    let run = |(id, bytes): (u32, &u64)| SortedRun {
        id,
        tables: vec![of(1000 + u128::from(id), *bytes)],
    };
    state.runs = ids.zip(runs).map(run).collect();
    state
}

fn tiered() -> Tiered {
    Tiered { l0_sst_size_bytes: 100, ..Tiered::default() }
}

fn plans_beside(scheduler: &Tiered, state: &Manifest, running: &[Running]) -> Vec<String> {
    let view = View { state, running, now: UnixMillis(0), max_compactions: 4 };
    scheduler.plans(&view).iter().map(|plan| format!("{plan} ({})", plan.why.name())).collect()
}

fn plans(state: &Manifest) -> Vec<String> {
    plans_beside(&tiered(), state, &[])
}

const LEVEL_1: u64 = 100 * 8 * 8;

#[test]
fn l0_is_compacted_when_it_has_more_than_its_threshold() {
    assert_eq!(plans(&tree(8, &[])), Vec::<String>::new());
    let all = "L0:9, L0:8, L0:7, L0:6, L0:5, L0:4, L0:3, L0:2, L0:1 ->";
    assert_eq!(plans(&tree(9, &[])), vec![format!("{all} 0 (l0 count)")]);
    assert_eq!(plans(&tree(9, &[10, 10])), vec![format!("{all} 2 (l0 count)")]);
}

#[test]
fn a_full_level_becomes_one_run_in_the_place_of_its_oldest() {
    assert_eq!(plans(&tree(0, &[LEVEL_1; 8])), Vec::<String>::new());
    let mut runs = vec![LEVEL_1; 9];
    assert_eq!(plans(&tree(0, &runs)), vec!["8, 7, 6, 5, 4, 3, 2, 1, 0 -> 0 (runs of a level)"]);
    runs.push(LEVEL_1 + 1);
    assert_eq!(plans(&tree(0, &runs)), vec!["9, 8, 7, 6, 5, 4, 3, 2, 1 -> 1 (runs of a level)"]);
}

/// Old runs that shrank do not part the runs of a level.
#[test]
fn levels_are_neighbours() {
    let levels = |runs: &[u64]| -> Vec<usize> {
        let state = tree(0, runs);
        let view = View { state: &state, running: &[], now: UnixMillis(0), max_compactions: 4 };
        tiered().levels(&of_runs(&Draft::new(&view))).iter().map(Vec::len).collect()
    };
    assert_eq!(levels(&[1, 1, LEVEL_1 + 1, 1]), vec![2, 2]);
    assert_eq!(levels(&[LEVEL_1 * 8 + 1]), vec![0, 0, 1]);
    assert_eq!(levels(&[u64::MAX]).len(), 19);
}

#[test]
fn a_full_next_level_stops_what_lies_above() {
    let mut runs = vec![LEVEL_1; 9];
    runs.extend([LEVEL_1 + 1; 16]);
    let only_deep: Vec<_> = plans(&tree(9, &runs));
    // Level 2 is merged; level 1 waits for that, L0 does not.
    assert_eq!(only_deep.len(), 2, "{only_deep:?}");
    assert!(only_deep[0].starts_with("L0:9") && only_deep[1].ends_with("0 -> 0 (runs of a level)"));
    let full = plans(&tree(9, &[LEVEL_1; 16]));
    assert!(!full.iter().any(|plan| plan.starts_with("L0")), "{full:?}");
}

/// Level 1 would be the ninth run of level 2: both go at once.
#[test]
fn a_merge_takes_the_next_level_along() {
    let mut runs = vec![LEVEL_1; 9];
    runs.extend([LEVEL_1 * 8; 8]);
    let sources: Vec<String> = (0..17).rev().map(|id| id.to_string()).collect();
    let all = format!("{} -> 0 (runs of a level)", sources.join(", "));
    assert_eq!(plans(&tree(0, &runs)), vec![all]);
}

#[test]
fn one_place_is_kept_for_l0_and_no_layer_is_taken_twice() {
    let mut runs = vec![LEVEL_1; 9];
    runs.extend([LEVEL_1 + 1; 3]);
    let state = tree(9, &runs);
    let job = |destination: u32, runs: &[u32]| Running {
        job: JobId(u128::from(destination)),
        inputs: runs
            .iter()
            .map(|id| (Layer::Run(*id), vec![SstId(1000 + u128::from(*id))]))
            .collect(),
        destination,
    };
    let busy = [job(0, &[0]), job(1, &[1]), job(2, &[2])];
    let beside = |jobs: &[Running]| plans_beside(&tiered(), &state, jobs);
    assert_eq!(beside(&busy).len(), 1);
    assert!(beside(&busy)[0].starts_with("L0:9"));
    assert_eq!(beside(&busy[..2]).len(), 2);
    assert_eq!(beside(&[job(7, &[7])]).len(), 1, "level 1 is at work already");
}

#[test]
fn other_triggers() {
    let state = tree(1, &[10, 10, 10, 500, 30]);
    let none: Vec<String> = Vec::new();
    assert_eq!(plans(&state), none);
    let total = Tiered { max_total_runs: Some(3), ..tiered() };
    assert_eq!(plans_beside(&total, &state, &[]), vec!["4, 3, 2 -> 2 (total runs)"]);
    let space = |most| Tiered { max_space_amplification: Some(most), ..tiered() };
    let all = "L0:1, 4, 3, 2, 1, 0 -> 0 (space amplification)";
    assert_eq!(plans_beside(&space(21.0), &state, &[]), vec![all]);
    assert_eq!(plans_beside(&space(22.0), &state, &[]), none);
}

#[test]
fn a_little_may_always_lie_above() {
    let state = tree(1, &[10, 10]);
    let with = |slack_bytes| Tiered { max_space_amplification: Some(1.5), slack_bytes, ..tiered() };
    assert_eq!(plans_beside(&with(110), &state, &[]), Vec::<String>::new());
    let all = "L0:1, 1, 0 -> 0 (space amplification)";
    assert_eq!(plans_beside(&with(109), &state, &[]), vec![all]);
}

#[test]
fn tombstones_go_to_the_bottom_once_nobody_needs_them() {
    let mut state = tree(0, &[10, 10, 10]);
    let table = &mut state.runs[1].tables[0];
    (table.entries, table.tombstones) = (8192, 4096);
    assert_eq!(plans(&state), Vec::<String>::new(), "a snapshot may need them");
    state.flushed_seq = siltstone_base::Seq(1);
    state.floor = state.flushed_seq;
    assert_eq!(plans(&state), vec!["1, 0 -> 0 (tombstones)"]);
    state.runs[1].tables[0].tombstones = 4095;
    assert_eq!(plans(&state), Vec::<String>::new(), "too few");
}

#[test]
fn l0_sinks_as_far_as_it_meets_nothing() {
    let mut state = tree(9, &[10, 10, 10]);
    for run in &mut state.runs[..2] {
        run.tables[0].last_key = b"b".as_slice().into();
    }
    for entry in &mut state.l0 {
        entry.tables[0].first_key = b"c".as_slice().into();
    }
    assert!(plans(&state)[0].ends_with("-> 1 (l0 count)"));
    state.runs[2].tables[0].last_key = b"b".as_slice().into();
    assert!(plans(&state)[0].ends_with("-> 0 (l0 count)"));
}
