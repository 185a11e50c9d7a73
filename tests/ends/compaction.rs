//! A compaction that panics: its job is no longer active, waiting callers get an error, and the
//! next one does the work.

use crate::bomb::Asked;
use crate::{World, get, put, quiet, tell};
use siltstone::{Accept, Database, ErrorKind, MergeOperator, OpenOptions, Options, Result};
use siltstone_base::ObjectName;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Two layers of L0.
async fn layers(db: &Database) {
    for key in ["a", "b"] {
        put(db, key);
        db.flush_memtable().await.expect("a healthy store");
    }
}

/// Checks that nothing is left of a compaction that panicked, and that the next one succeeds.
async fn goes_on(world: &World, db: &Database) {
    let error = db.compaction_error().expect("the last one has panicked").to_string();
    assert!(error.contains("planted"), "{error}");
    assert_eq!(db.stats().compactions_running, 0);
    world.bomb.disarm();
    db.compact().await.expect("it is tried again");
    let stats = db.stats();
    assert_eq!((stats.l0_entries, stats.sorted_runs), (0, 1));
    assert!(db.compaction_error().is_none());
    for key in ["a", "b"] {
        assert!(get(db, key).await.is_some());
    }
    db.close().await.expect("nothing stands in its way");
}

/// A panic in the job's own task, which commits. Before, the job stayed active, so that it was
/// never taken up again, and its inputs stayed reserved.
#[test]
fn a_job_that_panics_is_active_no_longer() {
    tell(async |world| {
        let db = world.open(quiet()).await;
        layers(&db).await;
        let mut made = false;
        world.bomb.arm(move |asked| {
            made |= asked == Asked::Finish;
            made && matches!(asked, Asked::Put(ObjectName::Manifest(_)))
        });
        let error = db.compact().await.expect_err("the job is dead");
        assert_eq!(error.kind(), ErrorKind::Internal);
        assert!(error.to_string().contains("planted"), "{error}");
        goes_on(&world, &db).await;
    });
}

#[test]
fn a_job_that_panics_on_the_schedule_is_tried_again() {
    tell(async |world| {
        let mut options = Options { embedded_compactor: true, ..quiet() };
        options.compaction.l0_compaction_threshold_ssts = 1;
        let db = world.open(options).await;
        let mut made = 0;
        // The third table is the compaction's.
        world.bomb.arm(move |asked| {
            made += u32::from(asked == Asked::Finish);
            made > 2 && matches!(asked, Asked::Put(ObjectName::Manifest(_)))
        });
        layers(&db).await;
        world.pause(Duration::from_secs(10)).await;
        goes_on(&world, &db).await;
    });
}

/// Panics in the parts of a job: a range's task, an upload's.
#[test]
fn a_part_of_a_job_that_panics_says_why() {
    for part in [0, 1] {
        tell(async move |world| {
            let db = world.open(quiet()).await;
            layers(&db).await;
            world.bomb.arm(move |asked| match part {
                0 => matches!(asked, Asked::Upload(_)),
                _ => asked == Asked::Finish,
            });
            let error = db.compact().await.expect_err("a part is dead");
            assert_eq!(error.kind(), ErrorKind::Internal);
            assert!(error.to_string().contains("planted"), "{error}");
            goes_on(&world, &db).await;
        });
    }
}

/// A plan is made from the record of jobs.
#[test]
fn a_scheduler_that_panics_is_told_and_tries_again() {
    tell(async |world| {
        let mut options = Options { embedded_compactor: true, ..quiet() };
        options.compaction.l0_compaction_threshold_ssts = 1;
        let db = world.open(options).await;
        world.bomb.arm(|asked| matches!(asked, Asked::Put(ObjectName::Compactions(_))));
        layers(&db).await;
        world.pause(Duration::from_secs(10)).await;
        let error = db.compaction_error().expect("it has panicked").to_string();
        assert!(error.contains("planted"), "{error}");
        world.bomb.disarm();
        world.pause(Duration::from_secs(300)).await;
        assert!(db.compaction_error().is_none());
        assert_eq!(db.stats().l0_entries, 0, "compacted without being asked");
        db.close().await.expect("nothing stands in its way");
    });
}

/// A merge operator that panics on command.
#[derive(Debug, Default)]
struct Faulty {
    armed: AtomicBool,
}

impl MergeOperator for Faulty {
    fn name(&self) -> &str {
        "faulty"
    }

    fn fold(&self, _: &[u8], base: Option<&[u8]>, operands: &[&[u8]]) -> Result<Vec<u8>> {
        assert!(!self.armed.load(Ordering::Acquire), "planted in an operator");
        Ok([&[base.unwrap_or_default()], operands].concat().concat())
    }
}

/// The caller's own code runs in the blocking workers of a compaction.
#[test]
fn an_operator_that_panics_in_a_compaction_is_told_and_leaves_nothing_active() {
    tell(async |world| {
        let faulty = Arc::new(Faulty::default());
        let merge_operator: Arc<dyn MergeOperator> = Arc::<Faulty>::clone(&faulty);
        let how = OpenOptions {
            options: quiet(),
            merge_operator: Some(merge_operator),
            ..OpenOptions::default()
        };
        let db = Database::open(world.env.clone(), how).await.expect("a healthy store");
        layers(&db).await;
        for operand in [b"1", b"2"] {
            let merged = db.merge(b"c", operand, None).expect("an operator");
            assert!(matches!(merged, Accept::Accepted(_)));
            db.flush_memtable().await.expect("a healthy store");
        }
        faulty.armed.store(true, Ordering::Release);
        let error = db.compact().await.expect_err("the operator panics");
        assert!(error.to_string().contains("planted in an operator"), "{error}");
        assert_eq!(db.stats().compactions_running, 0);
        faulty.armed.store(false, Ordering::Release);
        goes_on(&world, &db).await;
    });
}
