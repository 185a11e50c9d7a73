//! Databases that an outsider deleted, in part or completely, or created again: it is reported.

use crate::{World, fill, open, options};
use parking_lot::Mutex;
use siltstone::ErrorKind;
use siltstone::gc::GcOptions;
use siltstone_base::id::NUMBERS_A_MILLI;
use siltstone_base::{AttemptId, DatabaseId, Epoch, ObjectId, ObjectName};
use siltstone_manifest::compaction::Compactions;
use siltstone_tests::faults::FaultPlan;
use siltstone_tests::gc::AT_ONCE;
use std::sync::Arc;
use std::time::Duration;

/// An outsider deletes the records of jobs, and leaves the boundary, which proves that there were
/// some: collectors and compactors report it, and reads and writes continue. Before, they listed
/// and read without an end.
#[test]
fn records_that_an_outsider_deleted_are_told() {
    let world = World::new(1, FaultPlan::none());
    world.live();
    world.collect();
    let names = || world.bucket.objects().into_iter().map(|(name, _)| name);
    let records: Vec<_> =
        names().filter(|name| matches!(name, ObjectName::Compactions(_))).collect();
    let boundary = names().find(|name| matches!(name, ObjectName::CompactionsBoundary(_)));
    let boundary = boundary.expect("records were freed");
    assert!(!records.is_empty());
    for name in records {
        world.bucket.remove(name);
    }
    let told = world.run("collector", |env| async move {
        let collected = siltstone::gc::once(&env, &AT_ONCE, false).await.expect_err("a record");
        let db = open(&env, options()).await?;
        let compacted = db.compact().await.expect_err("a record");
        db.close().await?;
        Ok([collected, compacted])
    });
    for error in told {
        assert_eq!(error.kind(), ErrorKind::Corruption, "{error}");
        assert!(error.to_string().contains(&boundary.to_string()), "{error}");
    }
    // As the error text says.
    world.bucket.remove(boundary);
    world.collect();
    world.check();
}

/// A close does not wait for missing records: a compaction that looks for them stops looking.
/// Before, a close took as long as the time limit of a request, and ended with Timeout.
#[test]
fn a_close_does_not_wait_for_missing_records() {
    let world = World::new(1, FaultPlan::none());
    world.live();
    world.collect();
    for (name, _) in world.bucket.objects() {
        if matches!(name, ObjectName::Compactions(_)) {
            world.bucket.remove(name);
        }
    }
    let took = world.run("writer", |env| async move {
        let mut due = options();
        due.compaction.l0_compaction_threshold_ssts = 1;
        let db = open(&env, due).await?;
        fill(&db, 4).await?;
        // By now it looks for them, and would continue.
        env.clock.sleep(Duration::from_secs(5)).await;
        assert!(db.compaction_error().is_none(), "it has waited for as long as it may");
        let began = env.clock.monotonic();
        db.close().await?;
        Ok(env.clock.monotonic() - began)
    });
    assert!(took < Duration::from_secs(2), "{took:?}");
}

/// A record of a database that was created later at the same place proves that this one was
/// deleted. A record of an earlier database proves nothing: it is garbage.
#[test]
fn records_of_other_databases_tell_which_came_first() {
    let world = World::new(1, FaultPlan::none());
    world.live();
    let mine = world.collect().database;
    let record = |database: DatabaseId| {
        let number = database.counts_from();
        let record = Compactions { epoch: Epoch(1), number, ..Compactions::none(database) };
        let bytes = record.encode(ObjectId(1), AttemptId(1)).expect("a record");
        world.bucket.insert(ObjectName::Compactions(number), bytes);
        ObjectName::Compactions(number)
    };
    let before = DatabaseId::counting_from(mine.counts_from() - NUMBERS_A_MILLI, 7);
    let stray = record(before);
    world.check();
    world.collect();
    assert!(world.bucket.objects().iter().all(|(name, _)| *name != stray));
    record(DatabaseId::counting_from(mine.counts_from() + 1000 * NUMBERS_A_MILLI, 7));
    let error = world.run("collector", |env| async move {
        Ok(siltstone::gc::once(&env, &AT_ONCE, false).await.expect_err("it was deleted"))
    });
    assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
}

/// If the objects of a database are removed at any time, the work on it ends.
#[test]
fn a_database_that_vanishes_ends_the_work() {
    for operations in 1..40 {
        let world = World::new(1, FaultPlan::none());
        world.live();
        // No checkpoint is left to revoke: a commit during the removal would create a manifest
        // again.
        world.collect();
        let (process, env) = world.process("collector", 0);
        let ended: Arc<Mutex<Vec<String>>> = Arc::default();
        let told = Arc::clone(&ended);
        let serve = async move {
            let options = GcOptions { interval: Duration::from_millis(50), ..AT_ONCE };
            let tell = |_, event| {
                if let siltstone::gc::GcEvent::Ended(why) = event {
                    told.lock().push(format!("{why:?}"));
                }
            };
            siltstone::gc::run(vec![env], options, tell).await;
        };
        world.sim.spawn(process, "serve", serve);
        while world.bucket.operations(process) < operations {
            world.pause(Duration::from_millis(1));
        }
        for (name, _) in world.bucket.objects() {
            world.bucket.remove(name);
        }
        world.pause(Duration::from_secs(60));
        assert_eq!(ended.lock().len(), 1, "after {operations} requests");
    }
}
