//! Simulates ingest by sizes: the write, space and read amplification that the schedulers produce
//! from flushes. The bounds are those of RFC 0018; `--nocapture` prints the numbers.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::indexing_slicing,
    reason = "a test stops at what it did not expect"
)]

mod support;

use siltstone_manifest::compaction::{
    CompactionScheduler, LazyLeveled, Tiered, TimeWindow, WindowBy,
};
use support::tree::{ROW, Tree};

/// 64 MiB of rows.
const FLUSH: u64 = (64 << 20) / ROW;

/// The results of a run.
struct Outcome {
    write: f64,
    space: f64,
    runs: usize,
    l0: usize,
}

/// Consecutive flushes, each over the keys of `step(n)`, settled after each.
fn ingest(
    scheduler: &dyn CompactionScheduler,
    (flushes, universe): (u64, f64),
    step: impl Fn(u64) -> (u64, u64),
) -> Outcome {
    let mut tree = Tree::new(universe);
    let mut outcome = Outcome { write: 0.0, space: 0.0, runs: 0, l0: 0 };
    for flush in 0..flushes {
        let (first, last) = step(flush);
        tree.flush(FLUSH, first, last);
        tree.settle(scheduler);
        outcome.runs = outcome.runs.max(tree.state.runs.len());
        outcome.l0 = outcome.l0.max(tree.state.l0.len());
        if first == 0 {
            outcome.space = outcome.space.max(tree.bytes() as f64 / tree.live_bytes());
        }
    }
    outcome.write = 1.0 + tree.compacted as f64 / tree.flushed as f64;
    println!(
        "{}, {flushes} flushes: write {:.2}, space {:.2}, at most {} runs and {} in L0",
        scheduler.name(),
        outcome.write,
        outcome.space,
        outcome.runs,
        outcome.l0
    );
    outcome
}

fn everywhere(_: u64) -> (u64, u64) {
    (0, u64::MAX)
}

fn ascending(flush: u64) -> (u64, u64) {
    (flush << 32, (flush << 32) + u64::from(u32::MAX) - 1)
}

const UNIQUE: f64 = 1e15;

/// 20 million rows of 116 bytes are 39 flushes; ten times as many need one level more.
#[test]
fn tiered_writes_random_rows_at_most_four_times() {
    for flushes in [39, 390, 2000] {
        let outcome = ingest(&Tiered::default(), (flushes, UNIQUE), everywhere);
        assert!(outcome.write <= 4.0, "{}", outcome.write);
        // Eight runs per level, and a level holds nine times the one above.
        let levels = (flushes as f64 / 9.0).log(9.0).ceil().max(1.0);
        assert!(outcome.l0 <= 8 && outcome.runs <= 8 * levels as usize);
    }
}

#[test]
fn loads_in_key_order_are_written_once() {
    let schedulers: [&dyn CompactionScheduler; 3] =
        [&Tiered::default(), &LazyLeveled::default(), &TimeWindow::default()];
    for scheduler in schedulers {
        let outcome = ingest(scheduler, (500, UNIQUE), ascending);
        assert!((outcome.write - 1.0).abs() < f64::EPSILON, "{}", outcome.write);
        assert!(outcome.runs <= 1);
    }
}

/// Every row is overwritten ten times, in random order.
#[test]
fn lazy_leveling_bounds_space() {
    let universe = (100 * FLUSH) as f64;
    let outcome = ingest(&LazyLeveled::default(), (1000, universe), everywhere);
    assert!(outcome.space <= 1.3, "{}", outcome.space);
    assert!(outcome.runs <= 12 && outcome.write <= 6.0);
    let tiered = ingest(&Tiered::default(), (1000, universe), everywhere);
    assert!(tiered.write < outcome.write, "tiering must write less");
    assert!(tiered.space > outcome.space);
}

/// A last run of a few flushes, and a flush that arrives while the previous merge runs: the
/// scheduler accounts for it in advance.
#[test]
fn flushes_during_the_merge_stay_within_the_bound() {
    for flushes in [7, 12, 30, 100] {
        let mut tree = Tree::new((flushes * FLUSH) as f64);
        let lazy = LazyLeveled::default();
        for _ in 0..20 * flushes {
            tree.flush(FLUSH, 0, u64::MAX);
            tree.settle(&lazy);
        }
        let (flushed, compacted) = (tree.flushed, tree.compacted);
        let mut most: f64 = 0.0;
        for _ in 0..10 * flushes {
            tree.flush(FLUSH, 0, u64::MAX);
            let mut during = tree.clone();
            tree.settle(&lazy);
            if tree.state.l0.len() < during.state.l0.len() {
                // A merge began: the next flush finds the tree unchanged.
                during.flush(FLUSH, 0, u64::MAX);
                most = most.max(during.bytes() as f64 / during.live_bytes());
            }
        }
        let write = 1.0 + (tree.compacted - compacted) as f64 / (tree.flushed - flushed) as f64;
        println!("lazy_leveled, {flushes} flushes live: space {most:.2}, write {write:.2}");
        assert!(most <= 1.3, "{most}");
    }
}

/// Keys that begin with their time: each window receives 20 flushes, in random order within it.
#[test]
fn windows_are_written_about_three_times_and_dropped_unread() {
    let by = |keep_windows| TimeWindow {
        by: WindowBy::Key { prefix_bytes: 1, keep_windows },
        ..TimeWindow::default()
    };
    let window = |flush: u64| {
        let start = (1 + flush / 20) << 56;
        (start, start + (u64::MAX >> 8))
    };
    let outcome = ingest(&by(None), (600, UNIQUE), window);
    // Flush, L0 to a run, the window into one run; and late data of L0 once more.
    assert!(outcome.write <= 3.25, "{}", outcome.write);
    assert!(outcome.runs <= 5 && outcome.l0 <= 8);

    let mut tree = Tree::new(UNIQUE);
    for flush in 0..600 {
        let (first, last) = window(flush);
        tree.flush(FLUSH, first, last);
        tree.settle(&by(Some(3)));
        assert!(tree.bytes() <= 60 * FLUSH * ROW, "more than three windows exist");
    }
    let write = 1.0 + tree.compacted as f64 / tree.flushed as f64;
    assert!(write <= outcome.write, "dropping wrote: {write}");
}

/// Rare overwrites of one place do not rewrite the rest of the last run.
#[test]
fn some_to_all_leaves_the_rest_of_the_last_run() {
    let lazy = LazyLeveled::default();
    let mut tree = Tree::new((100 * FLUSH) as f64);
    for _ in 0..100 {
        tree.flush(FLUSH, 0, u64::MAX);
    }
    tree.settle(&lazy);
    let last = tree.state.runs.last().unwrap().tables.clone();
    assert!(last.len() > 10 && tree.state.runs.len() == 1);
    tree.compacted = 0;
    for _ in 0..100 {
        tree.flush(FLUSH, 0, u64::MAX / 10);
        tree.settle(&lazy);
    }
    let still = tree.state.runs.last().unwrap().tables.iter();
    let untouched = still.filter(|table| last.iter().any(|one| one.id == table.id)).count();
    assert!(untouched * 10 >= last.len() * 8, "{untouched} of {}", last.len());
}
