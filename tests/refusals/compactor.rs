//! A compactor in a separate process that its store refuses: it ends, or reports why it waits.

use crate::{Ask, DEADLINE, Refusal, WORDS, World, denied, full, options, put, tell};
use parking_lot::Mutex;
use siltstone::{
    CompactionOptions, CompactorEvent, CompactorOptions, CompactorProcess, Error, ErrorKind,
    Options,
};
use siltstone_tests::gc;
use std::sync::Arc;
use std::time::Duration;

type Told = Arc<Mutex<Vec<String>>>;

/// Four tables that overlap.
async fn four_tables(world: &World, options: Options) {
    let db = world.open(options).await.unwrap();
    for round in 0..4 {
        for number in 0..10 {
            put(&db, &format!("k{number}"), &[round; 1000]).unwrap();
        }
        db.flush_memtable().await.unwrap();
    }
    db.close().await.unwrap();
}

/// A compactor for them.
async fn compactor(world: &World) -> (CompactorProcess, Told) {
    four_tables(world, options()).await;
    let told = Told::default();
    let keep = Arc::clone(&told);
    let listener = move |event| {
        if let CompactorEvent::Trouble(error) = event {
            keep.lock().push(error.to_string());
        }
    };
    let mut options = options();
    options.compaction.l0_compaction_threshold_ssts = 1;
    let how = CompactorOptions { options, ..CompactorOptions::default() };
    (CompactorProcess::open(world.env.clone(), how, listener).await.unwrap(), told)
}

fn check(error: &Error, kind: ErrorKind) {
    assert_eq!(error.kind(), kind, "{error}");
    assert!(error.to_string().contains(WORDS), "{error}");
}

/// A missing permission ends it immediately.
#[test]
fn a_denied_write_ends_a_compactor_at_once() {
    tell(async |world| {
        let (one, _) = compactor(&world).await;
        world.refuse(Ask::Put, "", Refusal::Plain(denied()));
        let began = world.now();
        check(&one.compact().await.unwrap_err(), ErrorKind::Denied);
        check(&one.run().await.unwrap_err(), ErrorKind::Denied);
        assert!(world.now() - began < Duration::from_secs(1));
        world.store.heal();
        assert!(one.compact().await.unwrap());
    });
}

/// A full disk ends it within its deadline, with the store's error text; once there is room, it
/// continues.
#[test]
fn a_full_disk_ends_a_compactor_within_its_deadline() {
    tell(async |world| {
        let (one, _) = compactor(&world).await;
        world.refuse(Ask::Put, "", Refusal::Plain(full()));
        for ran in [one.compact().await.map(drop), one.run().await] {
            check(&ran.unwrap_err(), ErrorKind::Timeout);
        }
        assert!(world.now() < 5 * DEADLINE, "{:?}", world.now());
        world.store.heal();
        world.refuse(Ask::Part, "compacted/", Refusal::Plain(full()));
        let began = world.now();
        check(&one.compact().await.unwrap_err(), ErrorKind::Unavailable);
        assert!(world.now() - began < DEADLINE);
        world.store.heal();
        // The started job was the only possible work.
        one.compact().await.unwrap();
        let manifest = gc::newest(&world.env).await.unwrap().unwrap();
        assert_eq!((manifest.l0.len(), manifest.runs.len()), (0, 1));
    });
}

/// A worker with ranges to claim, of a job that a compactor has begun and left.
async fn worker(world: &World) -> (CompactorProcess, Told) {
    let mut options = Options { block_bytes: 256, ..options() };
    options.compactors.worker_timeout = DEADLINE * 100;
    options.compaction = CompactionOptions {
        l0_compaction_threshold_ssts: 1,
        target_sst_bytes: 2000,
        min_move_bytes: 0,
        ..options.compaction
    };
    four_tables(world, options.clone()).await;
    let how = CompactorOptions { options, workers: 1, ..CompactorOptions::default() };
    world.refuse(Ask::Begin, "compacted/", Refusal::Plain(full()));
    let began = CompactorProcess::open(world.env.clone(), how.clone(), |_| {}).await.unwrap();
    let running = began.clone();
    let ran = world.beside(async move { running.run().await });
    world.sim.sleep(Duration::from_secs(1)).await;
    began.stop();
    ran.await.unwrap();
    world.store.heal();
    let database = gc::newest(&world.env).await.unwrap().unwrap().database;
    let record = gc::newest_record(&world.env, database).await.unwrap();
    assert!(record.open_ranges().len() > 1, "{record:?}");
    let told = Told::default();
    let keep = Arc::clone(&told);
    let listener = move |event: CompactorEvent| keep.lock().push(event.to_string());
    (CompactorProcess::open(world.env.clone(), how, listener).await.unwrap(), told)
}

/// A worker without write permission ends as the compactor does, with the store's error text.
/// Before, it retried for ever.
#[test]
fn a_denied_write_ends_a_worker_at_once() {
    for (asked, names) in [(Ask::Put, "compactions/"), (Ask::Begin, "compacted/")] {
        tell(async move |world| {
            let (one, _) = worker(&world).await;
            world.refuse(asked, names, Refusal::Plain(denied()));
            let began = world.now();
            check(&one.work().await.unwrap_err(), ErrorKind::Denied);
            assert!(world.now() - began < Duration::from_secs(1), "{:?}", world.now());
        });
    }
}

/// A permanent refusal ends it, too; and so does, at the deadline, a store that accepts nothing of
/// its first range. A worker that has worked continues, and reports why it waits.
#[test]
fn a_worker_waits_for_a_store_that_it_has_worked_with() {
    tell(async |world| {
        let (one, told) = worker(&world).await;
        for kind in [ErrorKind::Invalid, ErrorKind::Unsupported] {
            world.refuse(Ask::Begin, "compacted/", Refusal::Plain(Error::new(kind, WORDS)));
            let began = world.now();
            check(&one.work().await.unwrap_err(), kind);
            assert!(world.now() - began < DEADLINE, "{:?}", world.now());
        }
        assert_eq!(*told.lock(), Vec::<String>::new());
    });
    tell(async |world| {
        let (one, _) = worker(&world).await;
        world.refuse(Ask::Put, "compactions/", Refusal::Plain(full()));
        let began = world.now();
        check(&one.work().await.unwrap_err(), ErrorKind::Timeout);
        assert!(world.now() - began < 2 * DEADLINE, "{:?}", world.now());
    });
    tell(async |world| {
        let (one, told) = worker(&world).await;
        let heard = Arc::clone(&told);
        world.store.refuse(move |ask, _| {
            let has_worked = || heard.lock().iter().any(|line| line.contains("merged range"));
            (ask == Ask::Begin && has_worked()).then(|| Refusal::Plain(denied()))
        });
        let running = one.clone();
        let ran = world.beside(async move { running.work().await });
        world.sim.sleep(4 * DEADLINE).await;
        let heard = told.lock().clone();
        assert!(heard.iter().any(|line| line.contains("merged range")), "{heard:?}");
        assert!(heard.iter().any(|line| line.contains(WORDS)), "{heard:?}");
        one.stop();
        ran.await.unwrap();
    });
}

/// A worker that has worked waits until the store recovers, and reports why.
#[test]
fn a_compactor_that_has_worked_says_why_it_waits() {
    tell(async |world| {
        let (one, told) = compactor(&world).await;
        world.refuse(Ask::Begin, "compacted/", Refusal::Plain(full()));
        let running = one.clone();
        let ran = world.beside(async move { running.run().await });
        world.sim.sleep(4 * DEADLINE).await;
        assert!(told.lock().iter().any(|line| line.contains(WORDS)), "{told:?}");
        one.stop();
        ran.await.unwrap();
    });
}
