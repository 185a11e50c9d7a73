//! Compactors beside a restore that removes the inputs of their jobs, and a collector that deletes
//! them.

use crate::compactor::{Runner, eager, filled, rows, small};
use crate::place::Place;
use siltstone::{CheckpointOptions, Database, OpenOptions, Options, admin};
use siltstone_base::CheckpointId;
use siltstone_tests::gc;
use std::time::Duration;

const DEADLINE: Duration = Duration::from_secs(5);

/// A database of one row, which a checkpoint contains, and of six later layers.
fn grown(place: &Place) -> CheckpointId {
    place.flushes(&["kept"]);
    let (process, env) = place.process();
    let kept = place.run(process, async move {
        admin::create_checkpoint(&env, &CheckpointOptions::default(), DEADLINE).await
    });
    filled(place);
    // Range deletes of tables are read for a plan.
    let (process, env) = place.process();
    let deleted = place.run(process, async move {
        let how = OpenOptions { options: small(), ..OpenOptions::default() };
        let db = Database::open(env, how).await?;
        for key in ["key10", "key20"] {
            drop(db.delete_range(key.as_bytes(), b"key30")?);
            db.flush_memtable().await?;
        }
        db.close().await
    });
    deleted.expect("a healthy store");
    kept.expect("a healthy store").id
}

/// Restores the checkpoint, and collects all later objects. Returns the number of running jobs.
fn go_back(place: &Place, kept: CheckpointId, options: Options) -> usize {
    let (process, env) = place.process();
    let database = place.newest().database;
    let went = place.run(process, async move {
        admin::restore(&env, &kept.into(), &options).await?;
        gc::newest_record(&env, database).await
    });
    let record = went.expect("a healthy store");
    let jobs = record.jobs.len() - record.finished(&place.newest()).len();
    (0..3).for_each(|_| place.collect());
    jobs
}

/// At any step, a compactor aborts the job and continues with the existing tables.
#[test]
fn a_compactor_goes_on_when_a_restore_has_taken_its_inputs() {
    let mut under_way = 0;
    for step in 2..90 {
        let place = Place::new(|plan| plan);
        let kept = grown(&place);
        let compactor = Runner::start(&place, eager(), Some(0));
        place.pause_at(compactor.process, step, || false);
        under_way += usize::from(go_back(&place, kept, eager()) > 0);
        place.sim.resume(compactor.process);
        place.pass(20);
        assert!(compactor.ended.lock().is_none(), "step {step}: {:?}", compactor.ended.lock());
        let gone =
            compactor.trouble().filter(|trouble| trouble.contains("that the manifest names"));
        assert_eq!(gone, None, "step {step}");
        place.flushes(&["a", "b", "c"]);
        place.pass(20);
        assert!(compactor.ended.lock().is_none(), "step {step}: {:?}", compactor.ended.lock());
        assert!(place.newest().l0.len() < 3, "step {step}: it compacts no more");
        assert_eq!(rows(&place).len(), 4, "step {step}");
    }
    assert!(under_way > 20, "{under_way} times a job was under way");
}

/// A worker that finds its inputs gone asks whether the job has ended, in turn with other changes
/// of the record, while it looks for other work: it waits no longer than for the store.
#[test]
fn a_worker_goes_on_when_a_restore_has_taken_its_inputs() {
    let mut under_way = 0;
    for (step, most) in (2..60).flat_map(|step| [4, 20, 60].map(|most| (step, most))) {
        let case = format!("step {step}, {most} ms");
        let place = Place::new(|mut plan| {
            plan.latency.1 = Duration::from_millis(most);
            plan
        });
        let kept = grown(&place);
        let mut often = eager();
        often.compactors.poll_interval = Duration::from_millis(3);
        let coordinator = Runner::start(&place, eager(), Some(4));
        let worker = Runner::start(&place, often, None);
        place.pause_at(worker.process, step, || false);
        place.sim.pause(coordinator.process);
        under_way += usize::from(go_back(&place, kept, eager()) > 0);
        place.sim.resume(worker.process);
        place.pass(5);
        let asked = place.bucket.operations(worker.process);
        place.pass(5);
        assert!(worker.ended.lock().is_none(), "{case}: {:?}", worker.ended.lock());
        assert_eq!(worker.trouble(), None, "{case}");
        assert!(place.bucket.operations(worker.process) > asked, "{case}: it looks no more");
    }
    assert!(under_way > 20, "{under_way} times a job was under way");
}
