//! Compactors without a writer, and workers, in the simulation (RFC 0021): take-overs, stalls, and
//! deaths at every store operation. In every case rows stay, recorded tables are not merged again,
//! and a collector without a grace period leaves exactly the referenced objects.

#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a test reports, and stops at what it did not expect"
)]

mod stalled;
mod units;

use parking_lot::Mutex;
use siltstone::verify::verify;
use siltstone::{
    Accept, Batch, Codec, CompactionOptions, CompactorEvent, CompactorOptions, CompactorProcess,
    Compactors, Database, Env, ErrorKind, OpenOptions, Options, Progress, Reader, ReaderOptions,
    Result, ScanRange,
};
use siltstone_base::SstId;
use siltstone_manifest::Manifest;
use siltstone_tests::faults::{Bucket, CrashPoint, FaultPlan};
use siltstone_tests::gc;
use siltstone_tests::scans::{Pairs, rest};
use siltstone_tests::sim::{ProcessId, Sim, Stopped};
use std::sync::Arc;
use std::time::Duration;

type Ended = Arc<Mutex<Option<Result<()>>>>;
type Heard = Arc<Mutex<Vec<CompactorEvent>>>;

const TIMEOUT: Duration = Duration::from_secs(2);

fn options() -> Options {
    Options {
        flush_interval: Duration::from_millis(20),
        // Sizes follow from the rows.
        compression: Some(Codec::None),
        block_bytes: 256,
        l0_manifest_commit_interval: Duration::ZERO,
        embedded_compactor: false,
        embedded_gc: false,
        compactors: Compactors {
            poll_interval: Duration::from_millis(20),
            worker_timeout: TIMEOUT,
        },
        compaction: CompactionOptions {
            l0_compaction_threshold_ssts: 2,
            l0_max_ssts: 1000,
            target_sst_bytes: 300,
            min_move_bytes: 0,
            compaction_ranges: Some(1),
            ..CompactionOptions::default()
        },
        ..Options::default()
    }
}

async fn open(env: &Env) -> Result<Database> {
    Database::open(env.clone(), OpenOptions { options: options(), ..OpenOptions::default() }).await
}

async fn write(db: &Database, rounds: std::ops::Range<u32>) -> Result<()> {
    for round in rounds {
        let mut batch = Batch::new();
        for k in 0..12u32 {
            let key = format!("key{:02}", (round * 7 + k * 5) % 60);
            batch.put(key.as_bytes(), &[round as u8; 40], None)?;
        }
        batch.delete(format!("key{:02}", (round * 11) % 60).as_bytes())?;
        let Accept::Accepted(commit) = db.write(&batch)? else { continue };
        commit.wait(None).await?;
        db.flush_memtable().await?;
    }
    Ok(())
}

/// A world with a store.
struct World {
    sim: Sim,
    bucket: Arc<Bucket>,
}

impl World {
    fn new() -> World {
        let sim = Sim::new(11);
        let bucket = Bucket::new(&sim, FaultPlan::none());
        World { sim, bucket }
    }

    /// A new process and its environment. Its clock is off by an hour in either direction.
    fn process(&self, name: &'static str, skewed: i64) -> (ProcessId, Env) {
        let process = self.sim.process(name, skewed * 3_600_000);
        (process, self.sim.env(process, self.bucket.store(process)))
    }

    /// A database of six layers with common keys, and its rows.
    fn filled(&self) -> Pairs {
        let (process, env) = self.process("writer", 0);
        let rows = self.sim.block_on(process, async move {
            let db = open(&env).await?;
            write(&db, 0..6).await?;
            let rows = rest(db.scan(ScanRange::all())?).await?;
            db.close().await?;
            Ok::<_, siltstone::Error>(rows)
        });
        rows.unwrap().unwrap()
    }

    /// Starts a compactor or, without `workers`, a worker; both run until they are stopped.
    fn start(&self, name: &'static str, skewed: i64, workers: Option<usize>) -> Runner {
        self.start_with(name, skewed, workers, options())
    }

    fn start_with(
        &self,
        name: &'static str,
        skewed: i64,
        workers: Option<usize>,
        options: Options,
    ) -> Runner {
        let (process, env) = self.process(name, skewed);
        let (ended, heard) = (Ended::default(), Heard::default());
        let (ends, hears) = (Arc::clone(&ended), Arc::clone(&heard));
        self.sim.spawn(process, name, async move {
            let how =
                CompactorOptions { options, workers: workers.unwrap_or(0), merge_operator: None };
            let listener = move |event| hears.lock().push(event);
            let ran = match CompactorProcess::open(env, how, listener).await {
                Ok(one) if workers.is_some() => one.run().await,
                Ok(one) => one.work().await,
                Err(error) => Err(error),
            };
            *ends.lock() = Some(ran);
        });
        Runner { process, ended, heard }
    }

    /// Waits until L0 is empty; returns the manifest of that time.
    fn until_compacted(&self) -> Arc<Manifest> {
        self.until_left(0)
    }

    /// Waits until L0 has at most this many layers.
    fn until_left(&self, layers: usize) -> Arc<Manifest> {
        let (process, env) = self.process("observer", 0);
        let wait = async move {
            for _ in 0..6000 {
                let state = gc::newest(&env).await?.expect("a database");
                if state.l0.len() <= layers {
                    return Ok(state);
                }
                env.clock.sleep(Duration::from_millis(20)).await;
            }
            let state = gc::newest(&env).await?.expect("a database");
            panic!("no compaction runs: {} layers of L0, {} runs", state.l0.len(), state.runs.len())
        };
        let state: Result<Arc<Manifest>> = self.sim.block_on(process, wait).expect("it ends");
        state.expect("a healthy store")
    }

    /// The tables that unfinished jobs have recorded.
    fn recorded(&self) -> Vec<SstId> {
        let (process, env) = self.process("observer", 0);
        let look = async move {
            let state = gc::newest(&env).await?.expect("a database");
            let record = gc::newest_record(&env, state.database).await?;
            let finished = record.finished(&state);
            let left = record.jobs.iter().filter(|job| !finished.contains(&job.id));
            let outputs = left.flat_map(|job| &job.ranges).flat_map(|range| &range.outputs);
            Ok::<_, siltstone::Error>(outputs.map(|table| table.id).collect())
        };
        self.sim.block_on(process, look).expect("it ends").expect("a healthy store")
    }

    /// Checks that nothing is lost, nothing is missing, and nothing unreferenced is left.
    fn check(&self, rows: &Pairs) {
        let (process, env) = self.process("checker", 0);
        let checked = self.sim.block_on(process, async move {
            let how = ReaderOptions { options: options(), ..ReaderOptions::default() };
            let reader = Reader::open(env.clone(), how).await?;
            let found = rest(reader.scan(ScanRange::all())?).await?;
            reader.close().await?;
            // Objects that become unreferenced in one round are deleted in the next.
            for _ in 0..3 {
                gc::round(&env).await?;
            }
            let report = verify(&env, Duration::from_secs(5), &Progress::default()).await?;
            Ok::<_, siltstone::Error>((found, report))
        });
        let (found, report) = checked.unwrap().unwrap();
        assert_eq!(found, *rows);
        assert_eq!(report.problem_count, 0, "{:?}", report.problems);
        let tables = report.orphans.iter().filter(|one| one.name.to_string().ends_with(".sst"));
        assert_eq!(tables.count(), 0, "{:?}", report.orphans);
    }
}

/// A compactor or worker in a separate process.
struct Runner {
    process: ProcessId,
    ended: Ended,
    heard: Heard,
}

impl Runner {
    fn ended(&self) -> Option<ErrorKind> {
        let ended = self.ended.lock();
        ended.as_ref().map(|ran| ran.as_ref().expect_err("it was not stopped").kind())
    }

    fn merged(&self) -> usize {
        let heard = self.heard.lock();
        heard.iter().filter(|event| matches!(event, CompactorEvent::Merged(_))).count()
    }
}

async fn compact_once(env: Env) -> Result<bool> {
    let how = CompactorOptions { options: options(), ..CompactorOptions::default() };
    CompactorProcess::open(env, how, |_| {}).await?.compact().await
}

/// The data for a progress bar: the bytes to read from the first moment on; at the end all were
/// read.
#[test]
fn a_compactor_says_how_far_it_is() {
    let world = World::new();
    world.filled();
    let (process, env) = world.process("watched", 0);
    let (before, after) = world
        .sim
        .block_on(process, async move {
            let how = CompactorOptions { options: options(), ..CompactorOptions::default() };
            let compactor = CompactorProcess::open(env, how, |_| {}).await?;
            let before = compactor.bytes();
            assert!(compactor.compact().await?, "there was something to compact");
            Ok::<_, siltstone::Error>((before, compactor.bytes()))
        })
        .expect("it ends")
        .expect("a healthy store");
    assert!(before.0 < before.1, "{before:?}");
    assert!(after.0 >= after.1, "{after:?}");
    assert_eq!(before.1, after.1);
}

#[test]
fn every_crash_of_a_compactor_without_a_writer() {
    let (mut operation, mut points, mut most) = (0, 0, 0);
    loop {
        operation += 1;
        let mut over = false;
        for point in [CrashPoint::Before, CrashPoint::AnswerLost, CrashPoint::After] {
            let world = World::new();
            let rows = world.filled();
            let (dying, env) = world.process("dying", 1);
            world.bucket.crash_at(dying, operation, point);
            match world.sim.block_on(dying, compact_once(env)) {
                Ok(ended) => over = ended.expect("a healthy store"),
                Err(Stopped::Killed) => {}
                Err(stopped) => panic!("crash {operation}: {stopped:?}"),
            }
            world.sim.kill(dying);
            let recorded = world.recorded();
            most = most.max(recorded.len());
            let (next, env) = world.process("next", -1);
            let again = env.clone();
            world.sim.block_on(next, compact_once(env)).unwrap().unwrap();
            let state = world.until_compacted();
            let named: Vec<SstId> = state.tables().map(|table| table.id).collect();
            let kept = recorded.iter().all(|table| named.contains(table));
            assert!(kept, "crash {operation}: what was recorded is done again");
            assert!(state.compactor_is_released());
            let more = world.sim.block_on(next, compact_once(again)).unwrap().unwrap();
            assert!(!more, "crash {operation}: something is left to compact");
            world.check(&rows);
            points += 1;
        }
        if over {
            break;
        }
    }
    println!("{operation} store operations, {points} crashes, {most} recorded tables at most");
    assert!(operation > 20 && most > 3);
}

/// A coordinator and two workers, one of which dies at a store operation. Returns whether it lived
/// long enough, and the number of recorded tables at that time.
fn team(victim: usize, operation: u64, point: CrashPoint) -> (bool, usize) {
    let world = World::new();
    let rows = world.filled();
    let coordinator = world.start("coordinator", 0, Some(2));
    let workers = [world.start("worker", 1, None), world.start("worker", -1, None)];
    let dying = [&coordinator, &workers[0], &workers[1]][victim].process;
    world.bucket.crash_at(dying, operation, point);
    for _ in 0..3000 {
        world.sim.run_for(Duration::from_millis(20)).unwrap();
        if !world.sim.is_alive(dying) {
            break;
        }
    }
    let died = !world.sim.is_alive(dying);
    let recorded = world.recorded();
    if died && victim == 0 {
        world.start("coordinator", 1, Some(2));
    }
    let state = world.until_compacted();
    let named: Vec<SstId> = state.tables().map(|table| table.id).collect();
    let kept = recorded.iter().all(|table| named.contains(table));
    assert!(kept, "{victim} died at {operation}: what was recorded is done again");
    world.sim.kill(dying);
    for runner in [&coordinator, &workers[0], &workers[1]] {
        assert!(runner.ended.lock().is_none(), "{:?}", runner.ended);
        world.sim.kill(runner.process);
    }
    world.check(&rows);
    (died, recorded.len())
}

#[test]
fn every_crash_of_a_coordinator_and_of_workers() {
    for victim in 0..3 {
        let (mut points, mut most) = (0, 0);
        for operation in 1..=60 {
            let lost = operation % 2 == 0;
            let point = if lost { CrashPoint::AnswerLost } else { CrashPoint::After };
            let (died, recorded) = team(victim, operation, point);
            assert!(died, "{victim} makes fewer than {operation} operations");
            points += 1;
            most = most.max(recorded);
        }
        println!("process {victim}: {points} crashes, {most} recorded tables at most");
        assert!(most > 1, "{most} recorded tables at most show nothing");
    }
}

#[test]
fn a_paused_worker_finds_its_claim_gone() {
    let mut taken = 0;
    for millis in (0..600).step_by(40) {
        let world = World::new();
        let rows = world.filled();
        let _coordinator = world.start("coordinator", 0, Some(2));
        let worker = world.start("worker", 1, None);
        let other = world.start("worker", -1, None);
        world.sim.run_for(Duration::from_millis(millis)).unwrap();
        world.sim.pause(worker.process);
        let before = worker.merged();
        let state = world.until_compacted();
        let waited = world.sim.elapsed();
        world.sim.resume(worker.process);
        world.sim.run_for(Duration::from_secs(30)).unwrap();
        // It continues to look for work, and nothing of its earlier work is visible.
        assert!(worker.ended.lock().is_none());
        assert_eq!(worker.merged(), before, "a lost range counts as merged");
        assert_eq!(world.until_compacted().runs, state.runs);
        if waited > TIMEOUT + Duration::from_millis(millis) {
            taken += 1;
            assert!(other.merged() + before > 0);
        }
        world.check(&rows);
    }
    assert!(taken > 0, "no claim had to be taken");
}

#[test]
fn the_newer_of_two_compactors_stays_and_the_writer_goes_on() {
    let world = World::new();
    let (writer, env) = world.process("writer", 0);
    let db = world.sim.block_on(writer, async move { open(&env).await }).unwrap().unwrap();
    let writing = |rounds: std::ops::Range<u32>| {
        let db = db.clone();
        let wrote = world.sim.block_on(writer, async move { write(&db, rounds).await });
        wrote.unwrap().expect("a compactor never stops a writer");
    };
    writing(0..6);
    let older = world.start("older", 1, Some(0));
    world.until_compacted();
    writing(6..12);
    let newer = world.start("newer", -1, Some(0));
    // The older one had planned with the layers of that time: the layers that the two leave may be
    // too few for a plan.
    world.until_left(2);
    // The older one learns of it with its next action.
    for round in 0..10 {
        writing(12 + round * 4..16 + round * 4);
        world.sim.run_for(Duration::from_secs(2)).unwrap();
    }
    assert_eq!(older.ended(), Some(ErrorKind::Fenced));
    assert!(newer.ended.lock().is_none());
    // And the other way round: back to a new one in the older's place.
    let again = world.start("again", 1, Some(0));
    for round in 0..10 {
        writing(52 + round * 4..56 + round * 4);
        world.sim.run_for(Duration::from_secs(2)).unwrap();
    }
    assert_eq!(newer.ended(), Some(ErrorKind::Fenced));
    assert!(again.ended.lock().is_none());
    let rows = world.sim.block_on(writer, async move {
        let rows = rest(db.scan(ScanRange::all())?).await?;
        db.close().await?;
        Ok::<_, siltstone::Error>(rows)
    });
    world.sim.kill(again.process);
    world.check(&rows.unwrap().unwrap());
}

/// A compactor in a separate process takes over from the writer's and ends, unnoticed by the
/// writer: a manual compaction continues, with or without new data.
#[test]
fn a_compaction_by_hand_after_another_one_goes_on() {
    for rounds in [6..6, 6..8] {
        let world = World::new();
        let (writer, env) = world.process("writer", 0);
        let db = world.sim.block_on(writer, async move {
            let db = open(&env).await?;
            write(&db, 0..3).await?;
            assert!(db.compact().await?);
            write(&db, 3..6).await?;
            Ok::<_, siltstone::Error>(db)
        });
        let db = db.unwrap().unwrap();
        let (other, outside) = world.process("other", 1);
        assert!(world.sim.block_on(other, compact_once(outside)).unwrap().unwrap());
        let rows = world.sim.block_on(writer, async move {
            write(&db, rounds).await?;
            db.compact().await?;
            let rows = rest(db.scan(ScanRange::all())?).await?;
            db.close().await?;
            Ok::<_, siltstone::Error>(rows)
        });
        world.check(&rows.unwrap().unwrap());
    }
}

#[test]
fn idle_compactors_and_workers_poll_seldom() {
    let world = World::new();
    world.filled();
    let how = |workers| CompactorOptions { workers, ..CompactorOptions::default() };
    for worker in [false, true] {
        let (process, env) = world.process("idle", 0);
        world.sim.spawn(process, "idle", async move {
            let one = CompactorProcess::open(env, how(0), |_| {}).await.unwrap();
            let ran = if worker { one.work().await } else { one.run().await };
            panic!("it was not stopped: {ran:?}");
        });
        world.sim.run_for(Duration::from_secs(120)).unwrap();
        let before = world.bucket.operations(process);
        world.sim.run_for(Duration::from_secs(3000)).unwrap();
        let asked = world.bucket.operations(process) - before;
        assert!(asked > 30 && asked <= 300, "worker {worker}: {asked} requests in 3000 s");
    }
}
