//! A task that panics: a writer's task ends the handle, a reader's the reader; the collector
//! reports it and continues.

use crate::bomb::Asked;
use crate::{DEADLINE, check_told, get, put, quiet, tell};
use siltstone::{Accept, ErrorKind, Gc, Options, ScanRange};
use siltstone_base::ObjectName;
use siltstone_tests::compact;
use std::time::Duration;

/// The case: a request of the WAL task panics. Before, puts were still accepted, and `wait`,
/// `flush` and `close` ran into their deadlines.
#[test]
fn a_panic_in_the_wal_task_ends_the_handle_and_every_wait() {
    tell(async |world| {
        let db = world.open(quiet()).await;
        put(&db, "a").wait(None).await.expect("a healthy store");
        world.bomb.arm(|asked| matches!(asked, Asked::Put(ObjectName::Wal(_))));
        let (first, second) = (put(&db, "b"), put(&db, "c"));
        let began = world.env.clock.monotonic();
        let (one, two) = futures::join!(first.wait(None), second.wait(None));
        check_told(&one.expect_err("the task is dead"), "wal");
        check_told(&two.expect_err("the task is dead"), "wal");
        check_told(&first.wait(None).await.expect_err("again"), "wal");
        assert!(world.env.clock.monotonic() - began < DEADLINE / 2);
        world.check_dead(&db, "wal", &["a"]).await;
    });
}

#[test]
fn a_panic_in_the_flush_task_ends_the_handle_and_who_waits_for_the_flush() {
    tell(async |world| {
        let db = world.open(quiet()).await;
        put(&db, "a").wait(None).await.expect("a healthy store");
        world.bomb.arm(|asked| matches!(asked, Asked::Upload(_)));
        let error = db.flush_memtable().await.expect_err("the task is dead");
        check_told(&error, "flush");
        world.check_dead(&db, "flush", &["a"]).await;
    });
}

/// Caught at the lock of the checkpoints, so that the flush does not continue after half a change.
#[test]
fn a_panic_in_the_commit_of_a_flush_ends_the_handle() {
    tell(async |world| {
        let db = world.open(quiet()).await;
        put(&db, "a").wait(None).await.expect("a healthy store");
        world.bomb.arm(|asked| matches!(asked, Asked::Put(ObjectName::Manifest(_))));
        let error = db.flush_memtable().await.expect_err("the task is dead");
        check_told(&error, "pins");
        world.check_dead(&db, "pins", &["a"]).await;
    });
}

/// A writer that is stopped for memory waits for the flush task.
#[test]
fn a_panic_in_the_flush_task_wakes_writes_that_wait_for_room() {
    tell(async |world| {
        let small = Options { max_memtable_bytes: 4096, l0_sst_size_bytes: 2048, ..quiet() };
        let db = world.open(small).await;
        world.bomb.arm(|asked| matches!(asked, Asked::Upload(_)));
        let began = world.env.clock.monotonic();
        let error = loop {
            match db.put(b"key", &[1; 500], None) {
                Ok(Accept::Accepted(_)) => {}
                Ok(Accept::Pressure(room)) => {
                    if let Err(error) = room.await {
                        break error;
                    }
                }
                Err(error) => break error,
            }
        };
        check_told(&error, "flush");
        assert!(world.env.clock.monotonic() - began < DEADLINE / 2);
        world.check_dead(&db, "flush", &[]).await;
    });
}

/// The task takes up the result of a compaction elsewhere when there is no flush.
#[test]
fn a_panic_in_the_task_of_the_checkpoints_ends_the_handle() {
    tell(async |world| {
        let db = world.open(quiet()).await;
        let poll = db.options().poll_interval();
        for key in ["a", "b"] {
            put(&db, key);
            db.flush_memtable().await.expect("a healthy store");
        }
        assert!(compact::everything(&world.env).await.expect("a healthy store") > 0);
        world.pause(poll * 2).await;
        world.bomb.arm(|asked| matches!(asked, Asked::Put(ObjectName::Manifest(_))));
        // A writer that writes looks for others' commits.
        put(&db, "c").wait(None).await.expect("the task of the WAL lives");
        world.pause(poll * 3).await;
        world.check_dead(&db, "pins", &["a", "b", "c"]).await;
    });
}

/// It looks for another process's compactions while writes are stopped.
#[test]
fn a_panic_in_the_task_of_the_pressure_ends_the_handle_and_who_waits() {
    tell(async |world| {
        let mut options = Options { l0_sst_size_bytes: 2048, ..quiet() };
        options.compaction.l0_compaction_threshold_ssts = 1;
        options.compaction.l0_max_ssts = 2;
        let db = world.open(options).await;
        let began = world.env.clock.monotonic();
        let error = loop {
            match db.put(b"key", &[1; 500], None) {
                Ok(Accept::Accepted(commit)) => {
                    if let Err(error) = commit.wait(None).await {
                        break error;
                    }
                }
                Ok(Accept::Pressure(room)) => {
                    if db.stats().l0_entries == 2 {
                        let look = |asked| matches!(asked, Asked::Get(ObjectName::Manifest(_)));
                        world.bomb.arm(look);
                    }
                    if let Err(error) = room.await {
                        break error;
                    }
                }
                Err(error) => break error,
            }
        };
        check_told(&error, "pressure");
        assert!(world.env.clock.monotonic() - began < DEADLINE / 2);
        world.check_dead(&db, "pressure", &["key"]).await;
    });
}

/// Before, the first panic ended all collections without a report.
#[test]
fn a_panic_in_a_round_of_the_collector_is_told_and_the_next_round_comes() {
    tell(async |world| {
        let every = Duration::from_secs(10);
        let options = Options {
            embedded_gc: true,
            gc: Gc { interval: every, min_age: Duration::from_secs(1), ..Gc::default() },
            ..quiet()
        };
        let db = world.open(options).await;
        for round in 0..3 {
            put(&db, &format!("{round}"));
            db.flush_memtable().await.expect("a healthy store");
        }
        world.bomb.arm(|asked| asked == Asked::List);
        world.pause(every * 4).await;
        let error = db.gc_error().expect("a round has panicked").to_string();
        assert!(error.contains("planted") && error.contains("task: collector"), "{error}");
        assert_eq!(db.stats().gc_rounds, 0);
        world.bomb.disarm();
        put(&db, "after").wait(None).await.expect("writes go on");
        assert!(get(&db, "after").await.is_some());
        world.pause(every * 20).await;
        assert!(db.gc_error().is_none());
        assert!(db.stats().gc_rounds > 0);
        db.close().await.expect("a healthy store");
    });
}

/// Before, the reader returned its last state for ever.
#[test]
fn a_panic_in_the_following_of_a_reader_is_told_by_its_calls() {
    tell(async |world| {
        let db = world.open(quiet()).await;
        put(&db, "a").wait(None).await.expect("a healthy store");
        let reader = world.open_reader(quiet()).await;
        assert!(reader.get(b"a").is_ok());
        world.bomb.arm(|asked| matches!(asked, Asked::Get(ObjectName::Wal(_))));
        world.pause(db.options().poll_interval() * 3).await;
        world.bomb.disarm();
        check_told(&reader.get(b"a").expect_err("a read"), "reader");
        check_told(&reader.scan(ScanRange::all()).expect_err("a scan"), "reader");
        check_told(&reader.refresh().await.expect_err("a look"), "reader");
        reader.close().await.expect("nothing is given back");
        // Handles that are opened afterwards, here or elsewhere, are not affected.
        let again = world.open_reader(quiet()).await;
        assert!(again.get(b"a").is_ok());
        put(&db, "b").wait(None).await.expect("the writer is another one");
        db.close().await.expect("a healthy store");
    });
}

/// A refresh by the caller shares the follower with the task.
#[test]
fn a_panic_in_a_look_that_was_asked_for_ends_the_reader() {
    tell(async |world| {
        let db = world.open(quiet()).await;
        let reader = world.open_reader(quiet()).await;
        world.bomb.arm(|asked| matches!(asked, Asked::Get(_)));
        check_told(&reader.refresh().await.expect_err("a look"), "reader");
        world.bomb.disarm();
        let error = reader.get(b"a").expect_err("a read");
        check_told(&error, "reader");
        assert_ne!(error.kind(), ErrorKind::Closed);
        db.close().await.expect("a healthy store");
    });
}
