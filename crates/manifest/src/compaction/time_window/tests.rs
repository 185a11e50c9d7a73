use super::*;
use crate::compaction::plan::Pick;
use crate::state::{L0Entry, Manifest, SortedRun};
use crate::testing::{empty, table};
use siltstone_base::UnixMillis;

fn of(id: u128, first: &[u8], last: &[u8]) -> SstDescriptor {
    table(SstId(id), first, last, 1, 1)
}

fn runs(runs: &[(u32, Vec<SstDescriptor>)]) -> Manifest {
    let mut state = empty();
    let runs = runs.iter().cloned();
    state.runs = runs.map(|(id, tables)| SortedRun { id, tables }).collect();
    state
}

fn by_key(keep_windows: Option<usize>) -> TimeWindow {
    TimeWindow { by: WindowBy::Key { prefix_bytes: 1, keep_windows }, ..TimeWindow::default() }
}

fn by_expiry() -> TimeWindow {
    TimeWindow { by: WindowBy::Expiry { window_millis: 100 }, ..TimeWindow::default() }
}

fn plans(scheduler: &TimeWindow, state: &Manifest, now: u64) -> Vec<String> {
    let view = View { state, running: &[], now: UnixMillis(now), max_compactions: 4 };
    let plans = scheduler.plans(&view);
    plans.iter().map(|plan| format!("{plan} ({})", plan.why.name())).collect()
}

fn name(id: u128) -> String {
    SstId(id).to_string()
}

/// Window a is complete and lies in runs 7 and 3; run 5 between holds b and c only.
#[test]
fn a_complete_window_is_brought_together_past_other_windows() {
    let state = runs(&[
        (7, vec![of(71, b"a1", b"a5"), of(72, b"c1", b"c9")]),
        (5, vec![of(51, b"b1", b"b9"), of(52, b"c1", b"c9")]),
        (3, vec![of(31, b"a2", b"a9")]),
    ]);
    let plan = format!("7{{{}}}, 5{{{}}}, 3 -> 3 (window)", name(71), name(51));
    assert_eq!(plans(&by_key(None), &state, 0), vec![plan]);
}

#[test]
fn late_rows_wait_until_they_are_worth_it() {
    let late = |bytes| {
        let table = SstDescriptor { object_bytes: bytes, ..of(71, b"a3", b"a4") };
        let table = [table, of(72, b"c1", b"c2")].to_vec();
        runs(&[(7, table), (3, vec![of(31, b"a2", b"a9"), of(32, b"b1", b"b9")])])
    };
    assert_eq!(plans(&by_key(None), &late(24), 0), Vec::<String>::new());
    let plan = format!("7{{{}}}, 3{{{}}} -> 3 (window)", name(71), name(31));
    assert_eq!(plans(&by_key(None), &late(25), 0), vec![plan]);
}

/// The newest window is left alone until it lies in too many runs.
#[test]
fn the_open_window_may_lie_in_several_runs() {
    let open = |count: u32| {
        let run = |id: u32| (id, vec![of(100 + u128::from(id), b"a1", b"a9")]);
        runs(&(0..count).rev().map(run).collect::<Vec<_>>())
    };
    assert_eq!(plans(&by_key(None), &open(4), 0), Vec::<String>::new());
    assert_eq!(plans(&by_key(None), &open(5), 0), vec!["4, 3, 2, 1, 0 -> 0 (window)"]);
}

#[test]
fn l0_is_cut_where_windows_end() {
    let mut state = empty();
    let entry = |order: u64| L0Entry { order, tables: vec![of(order.into(), b"a1", b"b9")] };
    state.l0 = (1..=9).rev().map(entry).collect();
    let scheduler = by_key(None);
    let view = View { state: &state, running: &[], now: UnixMillis(0), max_compactions: 4 };
    let plans = scheduler.plans(&view);
    assert_eq!((plans.len(), plans[0].sources.len(), plans[0].cut_prefix_bytes), (1, 9, 1));
}

#[test]
fn windows_that_are_not_kept_go_unread() {
    let state = runs(&[
        (7, vec![of(71, b"a1", b"a5"), of(72, b"c1", b"c9")]),
        (0, vec![of(1, b"a2", b"a9"), of(2, b"b1", b"b9")]),
    ]);
    let plan = format!("7{{{}}}, 0{{{}}} -> 0 (expired)", name(71), name(1));
    assert_eq!(plans(&by_key(Some(2)), &state, 0)[0], plan);
    assert!(!plans(&by_key(Some(3)), &state, 0)[0].contains("expired"));
    // Below b nothing is kept but what a table that reaches into b holds.
    let mut reaching = state;
    reaching.runs[1].tables[0].last_key = b"b0".as_slice().into();
    assert!(!plans(&by_key(Some(2)), &reaching, 0).iter().any(|plan| plan.contains("expired")));
}

fn expiring(id: u128, at: u64) -> SstDescriptor {
    let at = Some(UnixMillis(at));
    SstDescriptor { min_expiry: at, max_expiry: at, ..of(id, b"a", b"z") }
}

#[test]
fn layers_are_merged_within_their_window_of_expiry() {
    let state = runs(&[
        (6, vec![expiring(6, 350)]),
        (5, vec![expiring(5, 310)]),
        (4, vec![expiring(4, 290)]),
        (3, vec![expiring(3, 210)]),
        (2, vec![expiring(2, 199)]),
        (1, vec![of(1, b"a", b"z")]),
        (0, vec![of(0xa, b"a", b"z")]),
    ]);
    // Window 3 is open; runs 4 and 3 are window 2; what never expires counts as open for ever.
    assert_eq!(plans(&by_expiry(), &state, 0), vec!["4, 3 -> 3 (window)"]);
}

#[test]
fn an_expired_run_goes_when_nothing_lies_below() {
    let mut state = runs(&[(5, vec![expiring(5, 310)]), (4, vec![expiring(4, 190)])]);
    let gone = format!("4{{{}}} -> 4 (expired)", name(4));
    assert_eq!(plans(&by_expiry(), &state, 190), vec![gone]);
    assert_eq!(plans(&by_expiry(), &state, 189), Vec::<String>::new());
    state.runs.push(SortedRun { id: 0, tables: vec![of(1, b"m", b"n")] });
    assert_eq!(plans(&by_expiry(), &state, 190), Vec::<String>::new());
}

#[test]
fn l0_goes_one_window_at_a_time_from_the_oldest() {
    let mut state = empty();
    let entry = |order: u64| L0Entry {
        order,
        tables: vec![expiring(order.into(), if order < 4 { 150 } else { 250 })],
    };
    state.l0 = (1..=9).rev().map(entry).collect();
    assert_eq!(plans(&by_expiry(), &state, 0), vec!["L0:3, L0:2, L0:1 -> 0 (l0 count)"]);
}

#[test]
fn a_plan_for_a_window_names_tables() {
    let state = runs(&[
        (7, vec![of(71, b"a1", b"a5"), of(72, b"b1", b"b9")]),
        (3, vec![of(31, b"a2", b"a9")]),
    ]);
    let view = View { state: &state, running: &[], now: UnixMillis(0), max_compactions: 4 };
    let plan = by_key(None).plans(&view).remove(0);
    assert_eq!(plan.sources[0].pick, Pick::Tables(vec![SstId(71)]));
}
