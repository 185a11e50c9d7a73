//! A compactor in a process of its own whom the store refuses: it ends, or says why it waits.

use crate::{Ask, DEADLINE, Refusal, WORDS, World, denied, full, options, put, tell};
use parking_lot::Mutex;
use siltstone::{CompactorEvent, CompactorOptions, CompactorProcess, Error, ErrorKind};
use siltstone_tests::gc;
use std::sync::Arc;
use std::time::Duration;

type Told = Arc<Mutex<Vec<String>>>;

/// Four tables that overlap, and a compactor for them.
async fn compactor(world: &World) -> (CompactorProcess, Told) {
    let db = world.open(options()).await.unwrap();
    for round in 0..4 {
        for number in 0..10 {
            put(&db, &format!("k{number}"), &[round; 1000]).unwrap();
        }
        db.flush_memtable().await.unwrap();
    }
    db.close().await.unwrap();
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

/// A permission that is lacking ends it at once.
#[test]
fn what_may_not_be_written_ends_a_compactor_at_once() {
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

/// A disk that is full ends it within its deadline, in the store's words; once there is room, it
/// goes on.
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
        // The job that was begun is what there was to gain.
        one.compact().await.unwrap();
        let manifest = gc::newest(&world.env).await.unwrap().unwrap();
        assert_eq!((manifest.l0.len(), manifest.runs.len()), (0, 1));
    });
}

/// One that has worked waits for better times, and says why.
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
