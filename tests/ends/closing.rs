//! Closes that are abandoned, that fail, that are repeated.

use crate::bomb::Asked;
use crate::{World, get, put, quiet, tell};
use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use siltstone::env::{Clock, Effects, Spawn};
use siltstone::store::two_phase::TwoPhaseStore;
use siltstone::store::two_phase::memory::MemoryRecords;
use siltstone::store::{PutAnswer, Store, passed_on};
use siltstone::{Accept, Env, ErrorKind, OpenOptions, Options};
use siltstone_base::ObjectName;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// The case: `tokio::time::timeout(…, db.close())`, and then `db.close()`. Before, the second one
/// waited for ever for the first one, which was not polled any more.
#[test]
fn a_close_that_is_given_up_goes_on_and_the_next_one_sees_its_end() {
    tell(async |world| {
        for steps in 1..8 {
            let db = world.open(quiet()).await;
            put(&db, "a");
            let mut close = Box::pin(db.close());
            for _ in 0..steps {
                if (&mut close).now_or_never().is_some() {
                    break;
                }
                world.pause(Duration::ZERO).await;
            }
            drop(close);
            db.close().await.expect("a healthy store");
            closed_cleanly(&world).await;
        }
    });
}

/// Abandoned, and the handle dropped with it.
#[test]
fn a_close_that_is_given_up_ends_without_its_handle() {
    tell(async |world| {
        let db = world.open(quiet()).await;
        put(&db, "a");
        let mut close = Box::pin(db.close());
        assert!((&mut close).now_or_never().is_none());
        drop(close);
        drop(db);
        world.pause(quiet().deadline).await;
        closed_cleanly(&world).await;
    });
}

/// Checks that there is no writer to fence.
async fn closed_cleanly(world: &World) {
    let how = OpenOptions { take_over: Some(false), options: quiet(), ..OpenOptions::default() };
    let next = siltstone::Database::open(world.env.clone(), how).await.expect("a clean close");
    assert!(get(&next, "a").await.is_some());
    next.close().await.expect("a healthy store");
}

#[test]
fn a_close_after_one_that_went_well_is_well() {
    tell(async |world| {
        let db = world.open(quiet()).await;
        assert!(db.close_result().is_none());
        let (one, two) = futures::join!(db.close(), db.close());
        one.and(two).expect("a healthy store");
        db.close().await.expect("again");
        assert!(matches!(db.close_result(), Some(Ok(()))));
    });
}

/// Before, the second one returned success.
#[test]
fn a_close_after_one_that_failed_tells_the_same() {
    tell(async |world| {
        let old = world.open(quiet()).await;
        put(&old, "a").wait(None).await.expect("a healthy store");
        let new = world.open(quiet()).await;
        let (one, two) = futures::join!(old.close(), old.close());
        let told = [one, two, old.close().await, old.close_result().expect("it has ended")];
        let told = told.map(|ended| ended.expect_err("it was fenced"));
        for error in &told {
            assert_eq!(error.kind(), ErrorKind::Fenced);
            assert_eq!(error.to_string(), told[0].to_string());
        }
        new.close().await.expect("a healthy store");
    });
}

/// A panic during the close.
#[test]
fn a_close_that_panics_tells_all_who_wait() {
    tell(async |world| {
        let db = world.open(quiet()).await;
        put(&db, "a").wait(None).await.expect("a healthy store");
        db.flush_memtable().await.expect("a healthy store");
        world.bomb.arm(|asked| matches!(asked, Asked::Put(ObjectName::Manifest(_))));
        let (one, two) = futures::join!(db.close(), db.close());
        for ended in [one, two, db.close().await] {
            let error = ended.expect_err("the task is dead");
            assert_eq!(error.kind(), ErrorKind::Internal);
            assert!(error.to_string().contains("task: close"), "{error}");
        }
        assert!(db.get(b"a").is_err());
    });
}

/// Begins every task ten seconds late, and counts the tasks that have not ended.
struct LateSpawn {
    spawn: Arc<dyn Spawn>,
    clock: Arc<dyn Clock>,
    under_way: Arc<AtomicUsize>,
}

impl Spawn for LateSpawn {
    fn spawn(&self, name: &'static str, task: BoxFuture<'static, ()>) {
        let (pause, count) =
            (self.clock.sleep(Duration::from_secs(10)), Arc::clone(&self.under_way));
        count.fetch_add(1, Ordering::Relaxed);
        let late = async move {
            pause.await;
            task.await;
            count.fetch_sub(1, Ordering::Relaxed);
        };
        self.spawn.spawn(name, late.boxed());
    }

    fn spawn_blocking(&self, name: &'static str, work: Box<dyn FnOnce() + Send>) {
        self.spawn.spawn_blocking(name, work);
    }
}

/// Before, the copy of the last commit was made after the close, into a place that the user may
/// have removed by then.
#[test]
fn a_closed_handle_copies_nothing() {
    tell(async |world| {
        let Env { clock, random, spawn, store, .. } = world.env.clone();
        let under_way = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&under_way);
        let spawn = Arc::new(LateSpawn { spawn, clock: Arc::clone(&clock), under_way });
        let records = MemoryRecords::named("a closed handle");
        let store = TwoPhaseStore::new(store, records, Effects { clock, random, spawn });
        let world = World { env: Env { store, ..world.env.clone() }, ..world };
        let (db, reader) = (world.open(quiet()).await, world.open_reader(quiet()).await);
        put(&db, "a");
        db.close().await.expect("a healthy store");
        assert_eq!(counted.load(Ordering::Relaxed), 0, "copies after the close of the writer");
        reader.refresh().await.expect("a healthy store");
        reader.close().await.expect("a healthy store");
        assert_eq!(counted.load(Ordering::Relaxed), 0, "copies after the close of the reader");
    });
}

/// A store whose background work does not end.
#[derive(Debug)]
struct Restless {
    store: Arc<dyn Store>,
}

impl Store for Restless {
    passed_on!(store: get, upload, list, delete);

    fn put_if_absent(&self, name: ObjectName, bytes: Bytes) -> BoxFuture<'_, PutAnswer> {
        self.store.put_if_absent(name, bytes)
    }

    fn at_rest(&self) -> BoxFuture<'_, ()> {
        futures::future::pending().boxed()
    }
}

#[test]
fn a_close_waits_for_the_store_until_its_deadline() {
    tell(async |world| {
        let store: Arc<dyn Store> = Arc::new(Restless { store: Arc::clone(&world.env.store) });
        let world = World { env: Env { store, ..world.env.clone() }, ..world };
        let db = world.open(quiet()).await;
        put(&db, "a");
        let begun = world.env.clock.monotonic();
        db.close().await.expect("all is durable");
        let took = world.env.clock.monotonic() - begun;
        assert!(took >= quiet().deadline && took < quiet().deadline + Duration::from_secs(1));
        closed_cleanly(&world).await;
    });
}

/// Before, a close waited for the rate until its deadline, and dropped the writes that were left.
#[test]
fn a_close_does_not_wait_for_the_rate_of_puts() {
    tell(async |world| {
        let slow = || Options { flush_bytes: 1024, max_wal_puts_per_second: Some(0.05), ..quiet() };
        let db = world.open(slow()).await;
        for n in 0..20 {
            let accepted = db.put(format!("{n}").as_bytes(), &[7; 2048], None).expect("open");
            assert!(matches!(accepted, Accept::Accepted(_)));
        }
        let begun = world.env.clock.monotonic();
        db.close().await.expect("a healthy store");
        assert!(world.env.clock.monotonic() - begun < Duration::from_secs(5));
        let next = world.open(quiet()).await;
        for n in 0..20 {
            assert!(get(&next, &format!("{n}")).await.is_some(), "{n}");
        }
        next.close().await.expect("a healthy store");
        let refused = Options { max_wal_puts_per_second: Some(0.01), ..quiet() };
        let how = OpenOptions { options: refused, ..OpenOptions::default() };
        let error = siltstone::Database::open(world.env.clone(), how).await.expect_err("100 s");
        assert!(error.to_string().contains("more than one PUT per deadline"), "{error}");
    });
}
