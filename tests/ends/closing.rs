//! Closes that are abandoned, that fail, that are repeated.

use crate::bomb::Asked;
use crate::{World, get, put, quiet, tell};
use futures::FutureExt;
use siltstone::{ErrorKind, OpenOptions};
use siltstone_base::ObjectName;

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
                world.pause(std::time::Duration::ZERO).await;
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
