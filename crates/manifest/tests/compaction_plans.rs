//! Runs schedulers over random trees: their plans are valid, alone and together, have an effect,
//! come to an end, and are the same for the same view.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test stops at what it did not expect"
)]

mod support;

use proptest::prelude::*;
use siltstone_base::{JobId, SstDescriptor, UnixMillis};
use siltstone_manifest::compaction::{
    CompactionScheduler, LazyLeveled, Running, Tiered, TimeWindow, View, WindowBy, Work, validate,
};
use siltstone_manifest::{Edit, L0Entry, SortedRun};
use support::table;
use support::tree::{ROW, Tree, key};

/// Small thresholds, so that small trees trigger every rule.
fn tiered() -> Tiered {
    Tiered {
        l0_sst_size_bytes: 100 * ROW,
        l0_compaction_threshold_ssts: 2,
        level_compaction_threshold_runs: 2,
        level_max_runs: 4,
        max_total_runs: Some(6),
        max_space_amplification: Some(3.0),
        slack_bytes: 3 * ROW,
        tombstone_percent: 50,
    }
}

fn schedulers() -> Vec<Box<dyn CompactionScheduler>> {
    let plain = Tiered { max_space_amplification: None, max_total_runs: None, ..tiered() };
    let windows = |by| TimeWindow { upper: tiered(), by, window_max_runs: 2, max_total_runs: 6 };
    let by_key = |keep_windows| WindowBy::Key { prefix_bytes: 1, keep_windows };
    vec![
        Box::new(tiered()),
        Box::new(plain),
        Box::new(LazyLeveled { upper: tiered(), max_space_amplification: 1.25, max_total_runs: 5 }),
        Box::new(windows(by_key(None))),
        Box::new(windows(by_key(Some(3)))),
        Box::new(windows(WindowBy::Expiry { window_millis: 100 })),
    ]
}

/// One table: first byte of its first key, number of first bytes that it spans, rows, eighths of
/// tombstones, and expiry.
type Shape = (u8, u8, u64, u64, Option<u64>);

fn shape() -> impl Strategy<Value = Shape> {
    (0..16u8, prop_oneof![Just(0u8), 0..16u8], 1..20_000u64, 0..9u64, prop::option::of(0..600u64))
}

fn made(tree: &mut Tree, (first, span, rows, tombstones, expiry): Shape) -> SstDescriptor {
    let base = u64::from(first) << 56;
    let last = base + (u64::from(span) << 56) + (1 << 55);
    let id = tree.name().0;
    let seq = u64::try_from(id).unwrap();
    SstDescriptor {
        object_bytes: rows * ROW,
        tail_offset: 0,
        entries: rows,
        tombstones: rows * tombstones / 8,
        min_expiry: expiry.map(UnixMillis),
        max_expiry: expiry.map(UnixMillis),
        ..table(id, [&key(base), &key(last)], [seq, seq])
    }
}

/// Runs first, oldest first, then L0: names and sequence numbers grow from old to new.
fn tree(runs: Vec<Vec<Shape>>, l0: Vec<Shape>, now: u64) -> Tree {
    let mut tree = Tree::new(1e6);
    tree.now = UnixMillis(now);
    tree.shaping.target_sst_bytes = 5000 * ROW;
    tree.shaping.min_move_bytes = 500 * ROW;
    for (id, shapes) in (0u32..).zip(runs) {
        let mut tables: Vec<SstDescriptor> = Vec::new();
        for shape in shapes {
            tables.push(made(&mut tree, shape));
        }
        tables.sort_by(|left, right| left.first_key.cmp(&right.first_key));
        let mut end = None;
        tables.retain(|table| {
            let fits = end.as_ref().is_none_or(|end| *end < table.first_key);
            if fits {
                end = Some(table.last_key.clone());
            }
            fits
        });
        if !tables.is_empty() {
            tree.state.runs.insert(0, SortedRun { id: id * 2, tables });
        }
    }
    for shape in l0 {
        let tables = vec![made(&mut tree, shape)];
        tree.state.last_l0_order += 1;
        let order = tree.state.last_l0_order;
        tree.state.l0.insert(0, L0Entry { order, tables });
    }
    let newest = tree.state.tables().map(|table| table.max_seq).max().unwrap_or_default();
    tree.state.flushed_seq = newest;
    tree.state.floor = newest;
    tree
}

fn trees() -> impl Strategy<Value = Tree> {
    let runs = prop::collection::vec(prop::collection::vec(shape(), 1..6), 0..9);
    let l0 = prop::collection::vec(shape(), 0..8);
    (runs, l0, 0..700u64).prop_map(|(runs, l0, now)| tree(runs, l0, now))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None,
        ..ProptestConfig::default() })]

    #[test]
    fn plans_are_valid_alone_and_together(tree in trees()) {
        for scheduler in schedulers() {
            let view = tree.view(&[]);
            let plans = scheduler.plans(&view);
            prop_assert!(plans.len() <= view.max_compactions);
            prop_assert_eq!(&plans, &scheduler.plans(&view), "{} differs", scheduler.name());
            let mut running: Vec<Running> = Vec::new();
            for plan in &plans {
                prop_assert!(validate(&tree.state, &[], plan).is_ok());
                let facts = scheduler.facts(&view);
                let work = Work::of(&tree.state, &running, plan, &facts, tree.shaping);
                let work = work.unwrap_or_else(|why| panic!("{}: {plan}: {why}", scheduler.name()));
                prop_assert!(!work.is_nothing(), "{}: {}", scheduler.name(), plan);
                running.push(work.running(JobId(1 + running.len() as u128)));
            }
            // While all of them run, nothing is planned twice.
            let again = View { running: &running, ..view };
            for plan in scheduler.plans(&again) {
                prop_assert!(validate(&tree.state, &running, &plan).is_ok());
            }
        }
    }

    /// Concurrent jobs commit in any order.
    #[test]
    fn plans_commit_in_any_order(tree in trees(), turn in 0..4usize) {
        for scheduler in schedulers() {
            let mut tree = tree.clone();
            let plans = scheduler.plans(&tree.view(&[]));
            let mut edits: Vec<Edit> =
                plans.iter().map(|plan| tree.work(scheduler.as_ref(), plan).1).collect();
            let count = edits.len().max(1);
            edits.rotate_left(turn % count);
            for edit in edits {
                let next = edit.apply(&tree.state);
                tree.state = next.unwrap_or_else(|why| panic!("{}: {why:?}", scheduler.name()));
            }
        }
    }

    #[test]
    fn plans_end(tree in trees()) {
        for scheduler in schedulers() {
            tree.clone().settle(scheduler.as_ref());
        }
    }
}

/// A scheduler plans nothing for a tree that it has settled, and the tree stays within its limits.
#[test]
fn a_settled_lazy_tree_is_within_its_factor() {
    let mut tree = Tree::new(2e6);
    let lazy = LazyLeveled::default();
    for _ in 0..60 {
        tree.flush(50_000, 0, u64::MAX);
        tree.settle(&lazy);
        let last = tree
            .state
            .runs
            .last()
            .map_or(0, |run| run.tables.iter().map(|table| table.object_bytes).sum::<u64>());
        assert!(tree.state.runs.is_empty() || tree.bytes() as f64 <= 1.25 * last as f64);
    }
}
