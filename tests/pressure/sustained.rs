//! Sustained writes at full speed: slowed, rarely stopped, and never for long.

use crate::{World, batch, check, options, tell};
use siltstone::{Accept, Database, Options, SchedulerName};
use std::time::Duration;

/// Some 40 MB, or 80 layers.
const BATCHES: u64 = 4000;

/// Writes `batches`; returns the wait of each, ascending.
async fn ingest(world: &World, db: &Database, batches: u64) -> Vec<Duration> {
    let mut waits = Vec::new();
    for number in 0..batches {
        let began = world.now();
        while let Accept::Pressure(room) = db.write(&batch(number)).unwrap() {
            room.await.unwrap();
        }
        waits.push(world.now() - began);
        let stats = db.stats();
        assert!(stats.l0_entries <= 8, "{stats:?}");
        assert!(stats.memtable_bytes <= (2 << 20) + (64 << 10), "{stats:?}");
        // Some microseconds of the writer's own time, as in reality.
        world.env.clock.sleep(Duration::from_micros(50)).await;
    }
    waits.sort_unstable();
    waits
}

/// At least as many layers from the threshold to the limit as up to the threshold.
fn roomy() -> Options {
    let mut options = Options {
        l0_sst_size_bytes: 512 << 10,
        max_memtable_bytes: 2 << 20,
        deadline: Duration::from_secs(30),
        ..options()
    };
    options.compaction.l0_max_ssts = 8;
    options
}

/// In virtual time a writer is faster than any real one, and the store is slow: all written data is
/// drained at the speed of flushes and compactions.
#[test]
fn a_writer_that_is_too_fast_is_slowed_and_does_not_stall() {
    tell(async |world| {
        let db = world.open(roomy()).await;
        let began = world.now();
        let waits = ingest(&world, &db, BATCHES).await;
        let took = world.now() - began;
        let stats = db.stats();
        let rate = BATCHES as f64 * 10_080.0 / took.as_secs_f64() / 1e6;
        let (p50, p999, most) = (waits[2000], waits[3996], waits[3999]);
        println!(
            "{rate:.2} MB/s, p50 {p50:?}, p99.9 {p999:?}, longest {most:?}; {} slowed, \
             {} stopped, {} compactions; {:.1} s for memory, {:.1} s for L0 of {took:?}",
            stats.slowed_writes,
            stats.stopped_writes,
            stats.compactions,
            stats.waited_for_memory_seconds,
            stats.waited_for_l0_seconds,
        );
        assert!(stats.slowed_writes > 100 && stats.compactions >= 10, "{stats:?}");
        assert!(p999 <= Duration::from_secs(1) && most <= Duration::from_secs(2), "{most:?}");
        check(&db, BATCHES).await;
        db.close().await.unwrap();
    });
}

/// About 20 layers of live rows.
const LIVE: u64 = 1000;

/// Rows overwritten at random, far faster than merges into the last run can follow: the bytes above
/// that run exceed the factor, 1.25, by at most a fifth.
#[test]
fn a_writer_that_is_too_fast_for_lazy_leveling_is_slowed_to_its_pace() {
    tell(async |world| {
        let mut options = roomy();
        options.compaction.l0_max_ssts = 32;
        options.compaction.compaction_scheduler = SchedulerName::LazyLeveled;
        let db = world.open(options).await;
        let (mut waits, mut most, mut slowest) = (Vec::new(), 0.0f64, 0u64);
        for number in 0..8 * LIVE {
            let began = world.now();
            // An odd number of steps apart: all of them, in an order that is not that of any table.
            let batch = batch(number * 617 % LIVE);
            while let Accept::Pressure(room) = db.write(&batch).unwrap() {
                room.await.unwrap();
            }
            waits.push(world.now() - began);
            let stats = db.stats();
            if number > 2 * LIVE {
                most = most.max(stats.space_amplification);
                slowest = slowest.max(stats.l0_entries);
            }
            world.env.clock.sleep(Duration::from_micros(50)).await;
        }
        waits.sort_unstable();
        let (p999, longest) = (waits[waits.len() - 8], waits[waits.len() - 1]);
        let stats = db.stats();
        println!(
            "space {most:.3} at most, {slowest} layers of L0; written {:.1} times; p99.9 {p999:?}, \
             longest {longest:?}; {} slowed for {:.1} s of {:?}, {} stopped",
            stats.write_amplification,
            stats.slowed_writes,
            stats.waited_for_compaction_seconds,
            world.now(),
            stats.stopped_writes,
        );
        assert!(most <= 1.3, "{most}");
        assert_eq!(stats.stopped_writes, 0);
        assert!(stats.waited_for_compaction_seconds > 0.0, "nothing came to the bound: {stats:?}");
        assert!(p999 <= Duration::from_secs(1), "{p999:?}");
        db.close().await.unwrap();
    });
}

/// With all features on, after a load that left no work: at most one request in ten seconds.
#[test]
fn an_idle_database_with_everything_on_makes_hardly_a_request() {
    tell(async |world| {
        let db = world.open(roomy()).await;
        ingest(&world, &db, 300).await;
        db.flush().await.unwrap();
        world.env.clock.sleep(Duration::from_secs(30)).await;
        let before = world.requests.totals();
        world.env.clock.sleep(Duration::from_secs(60)).await;
        let after = world.requests.totals();
        let sum = |totals: siltstone::store::counting::RequestTotals| {
            totals.gets + totals.puts + totals.lists + totals.deletes + totals.upload_chunks
        };
        assert!(sum(after) - sum(before) <= 6, "{before:?} {after:?}");
        db.close().await.unwrap();
    });
}
