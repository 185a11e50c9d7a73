//! Units of a compaction in other processes (RFC 0046), in the simulation: drivers and units that
//! die at every store operation, copies and late results, take-overs, concurrent collectors, and a
//! writer whose own compactor is stopped meanwhile.

use crate::{World, open, options, write};
use parking_lot::Mutex;
use siltstone::{
    CompactionPlan, CompactionUnit, CompactorOptions, CompactorProcess, Database, Env, ErrorKind,
    OpenOptions, Options, Result, ScanRange, UnitResult,
};
use siltstone_base::SstId;
use siltstone_tests::faults::CrashPoint;
use siltstone_tests::gc;
use siltstone_tests::scans::{Pairs, rest};
use siltstone_tests::sim::Stopped;
use std::sync::Arc;
use std::time::Duration;

/// A unit of this many bytes: six layers of a dozen rows make about eight units.
const UNIT_BYTES: u64 = 600;

async fn process(env: Env) -> Result<CompactorProcess> {
    let how = CompactorOptions { options: options(), ..CompactorOptions::default() };
    CompactorProcess::open(env, how, |_| {}).await
}

async fn plan(env: Env) -> Result<CompactionPlan> {
    process(env).await?.plan(UNIT_BYTES).await
}

/// The result of a unit, in serialised form.
async fn run(env: Env, unit: &CompactionUnit) -> Result<UnitResult> {
    let bytes = process(env).await?.run_unit(unit).await?.to_bytes()?;
    UnitResult::from_bytes(unit, bytes.as_deref())
}

/// Everything by one driver, whose units run one after another in separate processes.
async fn all(driver: Env, worker: Env) -> Result<usize> {
    let mut merged = 0;
    loop {
        let plan = plan(driver.clone()).await?;
        let units = plan.units().await?;
        if units.is_empty() {
            return Ok(merged);
        }
        for unit in &units {
            let result = run(worker.clone(), unit).await?;
            merged += usize::from(result.tables().is_some());
            plan.commit(&[result]).await?;
        }
        assert!(plan.commit(&[]).await?, "every unit is recorded");
        assert!(plan.units().await?.is_empty());
        plan.close().await;
    }
}

impl World {
    /// Runs `work` in a process without faults.
    fn in_peace<T: Send + 'static, F: Future<Output = Result<T>> + Send + 'static>(
        &self,
        name: &'static str,
        work: impl FnOnce(Env) -> F,
    ) -> T {
        let (process, env) = self.process(name, 0);
        self.sim.block_on(process, work(env)).expect("it ends").expect("a healthy store")
    }

    /// The next compactor merges everything, and nothing is left over.
    fn ends_well(&self, rows: &Pairs) {
        let (_, worker) = self.process("unit", 1);
        self.in_peace("next driver", |env| all(env, worker));
        let state = self.until_compacted();
        assert_eq!(state.runs.len(), 1);
        assert!(state.compactor_is_released());
        self.check(rows);
    }
}

#[test]
fn units_merge_everything_in_folders_of_their_own() {
    let world = World::new();
    let rows = world.filled();
    let (_, worker) = world.process("unit", 1);
    let merged = world.in_peace("driver", |env| all(env, worker));
    assert!(merged > 4, "{merged} units show little");
    let state = world.until_compacted();
    assert!(state.tables().all(|table| table.job.is_some_and(|job| job.is_of_units())));
    assert!(state.features.names("compaction-units"));
    // There is nothing left to compact.
    let (_, worker) = world.process("unit", 1);
    assert_eq!(world.in_peace("driver", |env| all(env, worker)), 0);
    // Tables of units are inputs like any others.
    let (writer, env) = world.process("writer", 0);
    let more = world.sim.block_on(writer, async move {
        let db = open(&env).await?;
        write(&db, 6..9).await?;
        let rows = rest(db.scan(ScanRange::all())?).await?;
        db.close().await?;
        Ok::<_, siltstone::Error>(rows)
    });
    world.ends_well(&more.unwrap().unwrap());
    drop(rows);
}

/// U2: copies, results in any order, a result that arrives after the end of its range or its job,
/// and units that begin then.
#[test]
fn copies_and_latecomers_are_harmless() {
    let world = World::new();
    let rows = world.filled();
    let (_, worker) = world.process("unit", 1);
    world.in_peace("driver", |env| async move {
        let plan = plan(env.clone()).await?;
        let units = plan.units().await?;
        let mut results = Vec::new();
        for unit in units.iter().rev().chain(&units) {
            results.push(run(worker.clone(), unit).await?);
        }
        // Twice in one call; and a collector, for which the record shows what is alive.
        let (first, later) = results.split_at(2);
        assert!(!plan.commit(&[first[0].clone(), first[0].clone()]).await?);
        gc::round(&env).await?;
        let left = plan.units().await?.len();
        assert_eq!(left, units.len() - 1);
        let late = run(worker.clone(), &units[units.len() - 1]).await?;
        assert!(late.tables().is_none(), "its range is finished");
        assert!(!plan.commit(&[late]).await?);
        assert!(!plan.commit(first).await?);
        assert_eq!(plan.units().await?.len(), left - 1);
        assert!(plan.commit(later).await?);
        assert!(plan.commit(&results).await?, "once more");
        let late = run(worker, &units[0]).await?;
        assert!(late.tables().is_none(), "its job has ended");
        plan.close().await;
        Ok(())
    });
    world.ends_well(&rows);
}

/// R2, U2: a new driver keeps recorded results; the older driver gets an error, and the newer one
/// can record results of its units.
#[test]
fn a_driver_that_is_taken_over_loses_nothing() {
    let world = World::new();
    let rows = world.filled();
    let (_, worker) = world.process("unit", 1);
    let (_, newer) = world.process("newer driver", -1);
    let (_, collector) = world.process("collector", 0);
    world.in_peace("driver", |env| async move {
        let older = plan(env).await?;
        let units = older.units().await?;
        let mut results = Vec::new();
        for unit in &units {
            results.push(run(worker.clone(), unit).await?);
        }
        older.commit(&results[..2]).await?;
        let newer = plan(newer).await?;
        // Uploaded tables that are not recorded are alive as long as the job is.
        gc::round(&collector).await?;
        let left = newer.units().await?;
        assert_eq!(left, units[2..]);
        let fenced = older.commit(&results[2..4]).await.unwrap_err();
        assert_eq!(fenced.kind(), ErrorKind::Fenced, "{fenced}");
        assert!(newer.commit(&results[2..]).await?);
        older.close().await;
        newer.close().await;
        Ok(())
    });
    world.ends_well(&rows);
}

/// The next driver, or any other compactor, adopts the job that a driver left.
#[test]
fn every_crash_of_a_driver() {
    let (mut operation, mut most) = (0, 0);
    loop {
        operation += 1;
        let mut over = false;
        for point in [CrashPoint::Before, CrashPoint::AnswerLost, CrashPoint::After] {
            let world = World::new();
            let rows = world.filled();
            let (dying, env) = world.process("dying", 1);
            let (_, worker) = world.process("unit", -1);
            world.bucket.crash_at(dying, operation, point);
            match world.sim.block_on(dying, all(env, worker)) {
                Ok(ended) => over = ended.is_ok(),
                Err(Stopped::Killed) => {}
                Err(stopped) => panic!("crash {operation}: {stopped:?}"),
            }
            world.sim.kill(dying);
            let recorded = world.recorded();
            most = most.max(recorded.len());
            if operation % 2 == 0 {
                let (next, env) = world.process("next", 0);
                world.sim.block_on(next, crate::compact_once(env)).unwrap().unwrap();
            }
            world.ends_well(&rows);
            let state = world.until_compacted();
            let named: Vec<SstId> = state.tables().map(|table| table.id).collect();
            let kept = recorded.iter().all(|table| named.contains(table));
            assert!(kept, "crash {operation}: what was recorded is done again");
        }
        if over {
            break;
        }
    }
    assert!(operation > 20 && most > 3, "{operation} operations, {most} recorded tables at most");
}

/// A unit that dies is run again, as by its driver's cluster.
#[test]
fn every_crash_of_a_unit() {
    let mut operation = 0;
    loop {
        operation += 1;
        let mut over = false;
        for point in [CrashPoint::Before, CrashPoint::AnswerLost, CrashPoint::After] {
            let world = World::new();
            let rows = world.filled();
            let (driver, env) = world.process("driver", 0);
            let held = Arc::new(Mutex::new(None));
            let holds = Arc::clone(&held);
            let unit = world.sim.block_on(driver, async move {
                let plan = plan(env).await?;
                let unit = plan.units().await?[1].clone();
                *holds.lock() = Some(plan);
                Ok::<_, siltstone::Error>(unit)
            });
            let unit = unit.unwrap().unwrap();
            let (dying, env) = world.process("unit", 1);
            world.bucket.crash_at(dying, operation, point);
            let dies = unit.clone();
            match world.sim.block_on(dying, async move { run(env, &dies).await }) {
                Ok(ended) => over = ended.is_ok(),
                Err(Stopped::Killed) => {}
                Err(stopped) => panic!("crash {operation}: {stopped:?}"),
            }
            world.sim.kill(dying);
            let (_, worker) = world.process("unit again", -1);
            let plan = held.lock().take().unwrap();
            let again = world.sim.block_on(driver, async move {
                let result = run(worker, &unit).await?;
                assert!(result.tables().is_some());
                plan.commit(&[result]).await?;
                plan.close().await;
                Ok::<_, siltstone::Error>(())
            });
            again.unwrap().unwrap();
            world.ends_well(&rows);
        }
        if over {
            break;
        }
    }
    assert!(operation > 5, "{operation} operations");
}

/// U3: while the units wait for slots the driver compacts flushed tables; after ten timeouts
/// without a result it pauses, and the writer's own compactor may continue. The next plan uses the
/// results of the units.
#[test]
fn a_driver_keeps_l0_small_and_rests_when_nothing_comes() {
    let world = World::new();
    let (writer, env) = world.process("writer", 0);
    let embedded = Options { embedded_compactor: true, ..options() };
    let db: Database = world
        .sim
        .block_on(writer, async move {
            let how = OpenOptions { options: embedded, ..OpenOptions::default() };
            let db = Database::open(env, how).await?;
            write(&db, 0..3).await?;
            Ok::<_, siltstone::Error>(db)
        })
        .unwrap()
        .unwrap();
    // Its own compactor has had work. The plan merges two runs and no layer of L0: newer layers
    // have to wait for a job that merges older ones.
    world.until_compacted();
    let writing = db.clone();
    world.sim.block_on(writer, async move { write(&writing, 3..6).await }).unwrap().unwrap();
    let before = world.until_compacted();
    assert!(before.runs.len() > 1);
    let held: Arc<Mutex<Option<(CompactionPlan, UnitResult)>>> = Arc::default();
    let (driver, env) = world.process("driver", 1);
    let (holds, (_, worker)) = (Arc::clone(&held), world.process("unit", -1));
    let planned = world.sim.block_on(driver, async move {
        let plan = plan(env).await?;
        let units = plan.units().await?;
        let result = run(worker, &units[0]).await?;
        *holds.lock() = Some((plan, result));
        Ok::<_, siltstone::Error>(())
    });
    planned.unwrap().unwrap();
    let writing = db.clone();
    world.sim.block_on(writer, async move { write(&writing, 6..24).await }).unwrap().unwrap();
    // Two layers are too few for a plan.
    let state = world.until_left(2);
    let epoch = state.compactor_epoch;
    world.sim.run_for(crate::TIMEOUT * 12).unwrap();
    let (planned, result) = held.lock().take().unwrap();
    let again = result.clone();
    let rests = world.sim.block_on(driver, async move {
        let rests = planned.commit(&[again]).await;
        planned.close().await;
        rests
    });
    let rests = rests.unwrap().unwrap_err();
    assert_eq!(rests.kind(), ErrorKind::Timeout, "{rests}");
    let newest = world.in_peace("observer", |env| async move { gc::newest(&env).await });
    assert_eq!(newest.unwrap().compactor_epoch, epoch, "it was not needed");
    let rows = world.sim.block_on(writer, async move {
        let rows = rest(db.scan(ScanRange::all())?).await?;
        db.close().await?;
        Ok::<_, siltstone::Error>(rows)
    });
    let (rows, (_, worker)) = (rows.unwrap().unwrap(), world.process("unit", -1));
    let merged = world.in_peace("next driver", |env| async move {
        let plan = plan(env.clone()).await?;
        let before = plan.units().await?.len();
        plan.commit(&[result]).await?;
        let after = plan.units().await?.len();
        plan.close().await;
        all(env, worker).await?;
        Ok(before - after)
    });
    assert_eq!(merged, 1, "what a unit made is the next plan's as well");
    world.sim.run_for(Duration::from_secs(1)).unwrap();
    world.ends_well(&rows);
}
