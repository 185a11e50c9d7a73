//! Looks during flushes and collections: a reader that is asked to refresh, and a verification.

use crate::{World, key, options, tell, value};
use parking_lot::Mutex;
use siltstone::verify::verify;
use siltstone::{Accept, Database, Options, Progress, Reader, ReaderOptions, Readers};
use siltstone_base::name::prefix;
use siltstone_tests::gc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

const HOUR: Duration = Duration::from_secs(3600);

async fn durable(db: &Database, n: u64) {
    match db.put(&key(n), &value(n, 0), None).unwrap() {
        Accept::Accepted(commit) => commit.wait(None).await.unwrap(),
        Accept::Pressure(_) => panic!("pressure in a small test"),
    }
}

async fn has(reader: &Reader, n: u64) -> bool {
    reader.get(&key(n)).unwrap().wait().await.unwrap().is_some()
}

async fn reader_that_sleeps(world: &World, own_checkpoint: bool) -> Reader {
    reader_every(world, own_checkpoint, HOUR).await
}

async fn reader_every(world: &World, own_checkpoint: bool, interval: Duration) -> Reader {
    let options = Options {
        manifest_poll_interval: Some(interval),
        readers: Readers { checkpoint_lifetime: 10 * HOUR, ..Readers::default() },
        reader_lease: own_checkpoint,
        ..options()
    };
    let how = ReaderOptions { options, ..ReaderOptions::default() };
    Reader::open(world.reader_env.clone(), how).await.unwrap()
}

/// The reader's next manifest and its next WAL id are freed, so both are missing permanently: its
/// next 15 probes would see nothing. One refresh sees all durable data.
#[test]
fn one_refresh_sees_all_durable_rows_despite_freed_objects() {
    for own_checkpoint in [true, false] {
        tell(async move |world| {
            let db = world.open().await;
            durable(&db, 0).await;
            let reader = reader_that_sleeps(&world, own_checkpoint).await;
            for n in 1..4 {
                durable(&db, n).await;
                db.flush_memtable().await.unwrap();
                world.pause(Duration::from_millis(10)).await;
            }
            assert!(gc::round(&world.env).await.unwrap() > 0, "nothing was freed");
            durable(&db, 4).await;
            reader.refresh().await.unwrap();
            for n in 0..5 {
                assert!(has(&reader, n).await, "{n}, with a checkpoint: {own_checkpoint}");
            }
        });
    }
}

/// The same, with the collection at any moment of the refresh.
#[test]
fn a_collection_during_a_refresh_hides_nothing() {
    for step in 0..40 {
        tell(async move |world| {
            let db = world.open().await;
            durable(&db, 0).await;
            let reader = reader_that_sleeps(&world, false).await;
            durable(&db, 1).await;
            durable(&db, 2).await;
            let refreshing = async {
                reader.refresh().await.unwrap();
            };
            let collecting = async {
                world.pause(Duration::from_millis(5 * step)).await;
                db.flush_memtable().await.unwrap();
                gc::round(&world.env).await.unwrap();
            };
            futures::future::join(refreshing, collecting).await;
            assert!(has(&reader, 1).await && has(&reader, 2).await, "at step {step}");
        });
    }
}

/// By itself a reader falls behind by at most a poll and 16 s.
#[test]
fn a_reader_that_polls_seldom_lists_each_time() {
    tell(async |world| {
        let db = world.open().await;
        durable(&db, 0).await;
        let reader = reader_every(&world, true, Duration::from_secs(20)).await;
        for n in 1..4 {
            durable(&db, n).await;
            db.flush_memtable().await.unwrap();
        }
        gc::round(&world.env).await.unwrap();
        durable(&db, 4).await;
        world.pause(Duration::from_secs(22)).await;
        assert!(has(&reader, 4).await);
    });
}

/// Objects removed by a flush and a collection during the read are not reported as missing, at any
/// moment.
#[test]
fn a_table_retired_during_a_verification_is_no_problem() {
    let met = Arc::new(AtomicU64::new(0));
    for step in 0..80 {
        let met = Arc::clone(&met);
        tell(async move |world| {
            let db = world.open().await;
            for n in 0..12 {
                durable(&db, n).await;
            }
            // Without that nothing there is needed.
            world.note_the_log().await;
            let done = Arc::new(Mutex::new(None));
            let (slot, env) = (Arc::clone(&done), world.reader_env.clone());
            world.sim.spawn(world.reading, "verify", async move {
                *slot.lock() = Some(verify(&env, HOUR, &Progress::default()).await.unwrap());
            });
            world.pause(Duration::from_millis(5 * step)).await;
            world.sim.pause(world.reading);
            let stopped = done.lock().is_none();
            db.flush_memtable().await.unwrap();
            durable(&db, 12).await;
            let freed = gc::round(&world.env).await.unwrap();
            world.sim.resume(world.reading);
            world.pause(Duration::from_secs(30)).await;
            let report = done.lock().take().expect("it has ended");
            assert!(report.problems.is_empty(), "at step {step}: {:?}", report.problems);
            let retired = freed > 5 && report.wal_objects < 12;
            met.fetch_add(u64::from(stopped && retired), Ordering::Relaxed);
        });
    }
    let met = met.load(Ordering::Relaxed);
    assert!(met > 5, "{met} verifications met a collection");
}

/// A missing object that is still needed is reported, although a writer continues.
#[test]
fn a_needed_missing_table_is_a_problem() {
    tell(async |world| {
        let db = world.open().await;
        for n in 0..6 {
            durable(&db, n).await;
        }
        world.note_the_log().await;
        let listed = world.env.store.list(prefix::WAL, None).await.unwrap();
        let lost = listed[listed.len() - 2].name;
        world.env.store.delete(lost).await.unwrap();
        let report = verify(&world.reader_env, HOUR, &Progress::default()).await.unwrap();
        let told: Vec<_> = report.problems.iter().map(|problem| problem.object).collect();
        assert!(told.contains(&lost), "{told:?}");
    });
}
