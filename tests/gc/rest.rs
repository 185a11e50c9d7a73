//! The collector in the writer's process: it keeps tables that are read, and then becomes idle.

use crate::{Pairs, World, all, expected, fill, open, options, some, total};
use parking_lot::Mutex;
use siltstone::store::counting::count;
use siltstone::{Error, Gc, Options, Reader, ReaderOptions, Readers, ScanRange, Writes};
use siltstone_tests::faults::FaultPlan;
use siltstone_tests::reachable::Difference;
use std::sync::Arc;
use std::time::Duration;

/// The embedded collector without a grace period, beside a compactor that rewrites everything:
/// paused scans of the writer and of a reader return exactly their snapshots, tables that only they
/// kept are deleted after their end, and then no more requests are sent.
#[test]
fn paused_scans_give_their_snapshots_and_an_idle_database_is_left_alone() {
    let world = World::new(1, FaultPlan::none());
    let (reading, reader_env) = world.process("reader", 0);
    let scanned: Arc<Mutex<Option<Pairs>>> = Arc::default();
    let told = Arc::clone(&scanned);
    let (process, env) = world.process("writer", 0);
    let sim = world.sim.clone();
    let work = async move {
        let (env, requests) = count(env);
        let eager = Options {
            embedded_gc: true,
            gc: Gc {
                interval: Duration::from_millis(100),
                min_age: Duration::ZERO,
                ..Gc::default()
            },
            writes: without_polls(),
            ..options()
        };
        let db = open(&env, eager).await?;
        fill(&db, 1).await?;
        let brief = Options {
            readers: Readers { checkpoint_lifetime: Duration::from_secs(10), ..Readers::default() },
            ..options()
        };
        let how = ReaderOptions { options: brief, ..ReaderOptions::default() };
        let reader = Reader::open(reader_env.clone(), how).await?;
        let (mut mine, mut theirs) = (db.scan(ScanRange::all())?, reader.scan(ScanRange::all())?);
        let mut first = some(&mut mine, 5).await?;
        let mut second = some(&mut theirs, 5).await?;
        for round in 2..5 {
            fill(&db, round).await?;
            db.compact().await?;
            env.clock.sleep(Duration::from_secs(1)).await;
        }
        first.extend(some(&mut mine, usize::MAX).await?);
        second.extend(some(&mut theirs, usize::MAX).await?);
        assert_eq!((first, second), (expected(1), expected(1)));
        drop((mine, theirs));
        reader.close().await?;
        env.clock.sleep(Duration::from_secs(30)).await;
        let before = total(&requests);
        env.clock.sleep(Duration::from_secs(600)).await;
        assert_eq!(total(&requests), before, "an idle database is asked for");
        *told.lock() = Some(all(&db).await?);
        std::mem::forget(db);
        Ok::<_, Error>(())
    };
    sim.block_on(process, work).expect("it ends").expect("a healthy store");
    assert_eq!(scanned.lock().take(), Some(expected(4)));
    // By the embedded collector alone, beside an open handle.
    assert_eq!(world.difference(), Difference::default());
    world.sim.kill(process);
    world.sim.kill(reading);
    world.check();
}

/// Options without the look for ingest jobs: remaining requests have another reason.
fn without_polls() -> Writes {
    Writes { ingest_poll_interval: None, ..Writes::default() }
}

/// An idle handle only looks for ingest jobs of others, once in ten seconds.
#[test]
fn at_rest_a_writer_looks_for_jobs_alone() {
    let world = World::new(1, FaultPlan::none());
    world.run("writer", |env| async move {
        let (env, requests) = count(env);
        let defaults = Options { l0_sst_size_bytes: 4096, ..Options::default() };
        let db = open(&env, defaults).await?;
        fill(&db, 1).await?;
        db.compact().await?;
        env.clock.sleep(Duration::from_secs(1200)).await;
        for _ in 0..3 {
            let before = total(&requests);
            env.clock.sleep(Duration::from_secs(600)).await;
            let asked = total(&requests) - before;
            println!("requests in ten minutes of rest: {asked}");
            // One look in 64 is a listing, of two requests.
            assert!((50..=62).contains(&asked), "{asked}");
        }
        db.close().await
    });
}

/// With the defaults, except for looks for jobs, after a burst of work: at most one request in ten
/// seconds.
#[test]
fn the_last_rounds_before_rest_are_within_the_bound() {
    let world = World::new(1, FaultPlan::none());
    world.run("writer", |env| async move {
        let (env, requests) = count(env);
        let defaults =
            Options { l0_sst_size_bytes: 4096, writes: without_polls(), ..Options::default() };
        let db = open(&env, defaults).await?;
        fill(&db, 1).await?;
        fill(&db, 2).await?;
        db.compact().await?;
        env.clock.sleep(Duration::from_secs(5)).await;
        let mut asked = Vec::new();
        for _ in 0..4 {
            let before = total(&requests);
            env.clock.sleep(Duration::from_secs(600)).await;
            asked.push(total(&requests) - before);
        }
        println!("requests in each ten minutes of rest: {asked:?}");
        assert!(asked.iter().all(|asked| *asked <= 60), "{asked:?}");
        assert_eq!(asked[2..], [0, 0]);
        db.close().await
    });
}
