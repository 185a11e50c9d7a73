//! Crash enumeration: fixed workloads, and for every store operation n of each the process dies
//! before it, after it with the answer lost, and after it. For every n, the next opener must find
//! everything that was acknowledged, as a prefix of the accepted writes, and nothing else.

#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a test reports, and stops at what it did not expect"
)]

use parking_lot::Mutex;
use siltstone::{
    Accept, Batch, CompactionOptions, Database, Env, FillOutcome, OpenOptions, Options, Result,
    Rows, Scan, ScanRange, Seq,
};
use siltstone_base::SstId;
use siltstone_tests::faults::{Bucket, CrashPoint, FaultPlan};
use siltstone_tests::gc;
use siltstone_tests::model::{Model, View};
use siltstone_tests::separate_log::LogBuckets;
use siltstone_tests::sim::{ProcessId, Sim, Stopped};
use std::sync::Arc;
use std::time::Duration;

/// The work of the dying process, as far as it got.
#[derive(Default)]
struct Done {
    accepted: Vec<(Seq, Vec<u8>)>,
    acknowledged: Seq,
}

type Books = Arc<Mutex<Done>>;

fn options() -> Options {
    Options {
        flush_interval: Duration::from_millis(20),
        l0_sst_size_bytes: 4096,
        block_bytes: 256,
        l0_manifest_commit_interval: Duration::ZERO,
        manifest_poll_interval: Some(Duration::from_millis(50)),
        compaction: CompactionOptions {
            target_sst_bytes: 300,
            min_move_bytes: 0,
            compaction_ranges: Some(2),
            ..CompactionOptions::default()
        },
        ..Options::default()
    }
}

async fn open(env: &Env) -> Result<Database> {
    Database::open(env.clone(), OpenOptions { options: options(), ..OpenOptions::default() }).await
}

async fn write(db: &Database, books: &Books, round: u32, wait: bool) -> Result<()> {
    let mut batch = Batch::new();
    for k in 0..3u32 {
        batch.put(
            format!("key{:02}", (round * 7 + k) % 20).as_bytes(),
            &[round as u8; 40],
            None,
        )?;
    }
    batch.delete(format!("key{:02}", (round * 5) % 20).as_bytes())?;
    let Accept::Accepted(commit) = db.write(&batch)? else { return Ok(()) };
    let first = commit.seq().minus(u64::from(batch.ops()) - 1);
    books.lock().accepted.push((first, batch.as_bytes().to_vec()));
    if wait {
        commit.wait(None).await?;
        books.lock().acknowledged = commit.seq();
    }
    Ok(())
}

/// Few writes, each waited for; a flush; a clean close.
async fn waiting(env: Env, books: Books) -> Result<()> {
    let db = open(&env).await?;
    for round in 0..6 {
        write(&db, &books, round, true).await?;
    }
    db.flush_memtable().await?;
    for round in 6..9 {
        write(&db, &books, round, true).await?;
    }
    db.close().await
}

/// Writes of a writer without a log: waits flush, and so does the close.
async fn unlogged(env: Env, books: Books) -> Result<()> {
    for first in [0, 5] {
        let mut options = options();
        options.writes.wal_enabled = false;
        let how = OpenOptions { options, ..OpenOptions::default() };
        let db = Database::open(env.clone(), how).await?;
        for round in first..first + 4 {
            write(&db, &books, round, round % 2 == 1).await?;
        }
        write(&db, &books, first + 4, false).await?;
        let last = db.snapshot()?.seq();
        db.close().await?;
        books.lock().acknowledged = last;
    }
    // A writer with a log goes on.
    let db = open(&env).await?;
    write(&db, &books, 10, true).await
}

/// Many writes in flight, flushes in between, waits only at the end.
async fn streaming(env: Env, books: Books) -> Result<()> {
    let db = open(&env).await?;
    for round in 0..60 {
        write(&db, &books, round, false).await?;
        if round % 10 == 9 {
            env.clock.sleep(Duration::from_millis(25)).await;
        }
    }
    let last = db.snapshot()?.seq();
    db.flush().await?;
    books.lock().acknowledged = last;
    db.flush_memtable().await?;
    db.close().await
}

/// Opened, closed and opened again; then dropped without a close.
async fn reopening(env: Env, books: Books) -> Result<()> {
    for round in 0..3 {
        let db = open(&env).await?;
        write(&db, &books, round, true).await?;
        if round < 2 {
            db.close().await?;
        }
    }
    Ok(())
}

/// Layers with common keys, merged into tables of a few rows, twice; the second time some tables
/// are moved unchanged.
async fn compacting(env: Env, books: Books) -> Result<()> {
    let db = open(&env).await?;
    for round in 0..12 {
        write(&db, &books, round, true).await?;
        if round % 3 == 2 {
            db.flush_memtable().await?;
        }
    }
    db.compact().await?;
    for round in 12..15 {
        write(&db, &books, round, true).await?;
    }
    db.compact().await?;
    write(&db, &books, 15, true).await?;
    db.close().await
}

async fn rows_of(mut scan: Scan) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
    let (mut rows, mut all) = (Rows::new(), Vec::new());
    loop {
        let filled = scan.fill(&mut rows, 100, 1 << 20)?;
        all.extend(
            (0..rows.len())
                .filter_map(|row| rows.row(row).map(|(key, value)| (key.to_vec(), value.to_vec()))),
        );
        rows.clear();
        match filled {
            FillOutcome::End => return Ok(all),
            FillOutcome::Full => {}
            FillOutcome::NeedsBlocks => scan.fetch().await?,
        }
    }
}

/// The stores of a database.
struct Stores {
    bucket: Arc<Bucket>,
    logs: Option<Arc<LogBuckets>>,
}

/// A store of a database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Main,
    /// The separate store of the log.
    Log,
}

impl Stores {
    fn new(sim: &Sim, log: Log) -> Stores {
        let logs = (log == Log::Separate).then(|| LogBuckets::new(sim));
        Stores { bucket: Bucket::new(sim, FaultPlan::none()), logs }
    }

    fn crash_at(&self, side: Side, process: ProcessId, operation: u64, point: CrashPoint) {
        match side {
            Side::Main => self.bucket.crash_at(process, operation, point),
            Side::Log => self.logs.as_ref().unwrap().crash_at(process, operation, point),
        }
    }

    fn operations(&self, side: Side, process: ProcessId) -> u64 {
        match side {
            Side::Main => self.bucket.operations(process),
            Side::Log => self.logs.as_ref().map_or(0, |logs| logs.operations(process)),
        }
    }

    fn env(&self, sim: &Sim, process: ProcessId) -> Env {
        let env = sim.env(process, self.bucket.store(process));
        match &self.logs {
            None => env,
            Some(logs) => logs.under(env, process),
        }
    }
}

/// The place of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Log {
    Beside,
    Separate,
}

/// Runs `workload`, which dies as specified; then another process opens and checks. Returns the
/// number of operations of the first process on each store.
fn run<F: Future<Output = Result<()>> + Send + 'static>(
    workload: fn(Env, Books) -> F,
    log: Log,
    crash: Option<(Side, u64, CrashPoint)>,
) -> [u64; 2] {
    let sim = Sim::new(7);
    let stores = Stores::new(&sim, log);
    let books = Books::default();
    let dying = sim.process("dying", 0);
    if let Some((side, operation, point)) = crash {
        stores.crash_at(side, dying, operation, point);
    }
    let env = stores.env(&sim, dying);
    match sim.block_on(dying, workload(env, Arc::clone(&books))) {
        Ok(ended) => ended.expect("a healthy store"),
        Err(Stopped::Killed) => {}
        Err(stopped) => panic!("crash {crash:?}: the workload hangs: {stopped:?}"),
    }
    let operations = [Side::Main, Side::Log].map(|side| stores.operations(side, dying));
    sim.kill(dying);

    let next = sim.process("next", 0);
    let env = stores.env(&sim, next);
    let recovered = sim.block_on(next, async move {
        let db = open(&env).await?;
        let snapshot = db.snapshot()?;
        let rows = rows_of(snapshot.scan(ScanRange::all())).await?;
        // A started compaction is ended, and nothing of it is visible.
        db.compact().await?;
        assert_eq!(rows_of(db.scan(ScanRange::all())?).await?, rows);
        assert!(!db.compact().await?, "a compaction leaves something to compact");
        // It must also be able to continue.
        let books = Books::default();
        write(&db, &books, 99, true).await?;
        db.close().await?;
        Ok::<_, siltstone::Error>((snapshot.seq(), rows))
    });
    let (seq, rows) = match recovered {
        Ok(Ok(recovered)) => recovered,
        other => panic!("crash {crash:?}: the next opener fails: {other:?}"),
    };
    let books = books.lock();
    assert!(seq >= books.acknowledged, "crash {crash:?}: {} lost, {seq} found", books.acknowledged);
    let mut model = Model::default();
    let mut ends = vec![Seq::NONE];
    for (first, bytes) in &books.accepted {
        ends.push(model.apply(*first, bytes).expect("a batch"));
    }
    assert!(ends.contains(&seq), "crash {crash:?}: {seq} is not the end of a batch");
    let expected = model.scan(None, None, false, View::at(seq)).expect("no operator");
    assert_eq!(rows, expected, "crash {crash:?}: not a prefix");
    operations
}

fn enumerate<F: Future<Output = Result<()>> + Send + 'static>(
    name: &str,
    workload: fn(Env, Books) -> F,
    log: Log,
) {
    let all = run(workload, log, None);
    let mut points = 0;
    for (side, operations) in [Side::Main, Side::Log].into_iter().zip(all) {
        for operation in 1..=operations {
            for point in [CrashPoint::Before, CrashPoint::AnswerLost, CrashPoint::After] {
                run(workload, log, Some((side, operation, point)));
                points += 1;
            }
        }
    }
    let operations: u64 = all.iter().sum();
    assert!(operations > 10, "{name}: {operations} operations are no workload");
    assert_eq!(all[1] > 3, log == Log::Separate, "{name}: {all:?}");
    println!("{name}: {operations} store operations, {points} crashes, 0 lost");
}

/// Tables recorded by unfinished jobs, and those of the newest manifest.
async fn recorded_and_named(env: &Env) -> Result<(Vec<SstId>, Vec<SstId>)> {
    let Some(state) = gc::newest(env).await? else { return Ok((vec![], vec![])) };
    let record = gc::newest_record(env, state.database).await?;
    let finished = record.finished(&state);
    let left = record.jobs.iter().filter(|job| !finished.contains(&job.id));
    let outputs = left.flat_map(|job| &job.ranges).flat_map(|range| &range.outputs);
    let recorded = outputs.map(|table| table.id).collect();
    Ok((recorded, state.tables().map(|table| table.id).collect()))
}

/// Layers with common keys, merged once; no close.
async fn merging(env: Env) -> Result<()> {
    let db = open(&env).await?;
    for round in 0..12 {
        write(&db, &Books::default(), round, true).await?;
        if round % 3 == 2 {
            db.flush_memtable().await?;
        }
    }
    db.compact().await.map(|_| ())
}

/// Dies at every store operation of a compaction: recorded tables are not merged again.
#[test]
fn a_compaction_is_resumed_behind_what_is_recorded() {
    let mut most = 0;
    for operation in 1.. {
        let sim = Sim::new(7);
        let bucket = Bucket::new(&sim, FaultPlan::none());
        let dying = sim.process("dying", 0);
        bucket.crash_at(dying, operation, CrashPoint::After);
        let env = sim.env(dying, bucket.store(dying));
        if sim.block_on(dying, merging(env)).is_ok() {
            break;
        }
        sim.kill(dying);
        let next = sim.process("next", 0);
        let env = sim.env(next, bucket.store(next));
        let resumed = sim.block_on(next, async move {
            let (recorded, _) = recorded_and_named(&env).await?;
            let db = open(&env).await?;
            db.compact().await?;
            let (left, named) = recorded_and_named(&env).await?;
            assert!(left.is_empty(), "a job is left");
            Ok::<_, siltstone::Error>((recorded, named))
        });
        let (recorded, named) = resumed.unwrap().unwrap();
        assert!(recorded.iter().all(|table| named.contains(table)), "crash {operation}");
        most = most.max(recorded.len());
    }
    assert!(most >= 2, "{most} recorded tables at most show nothing");
}

#[test]
fn every_crash_of_waiting_writes() {
    enumerate("waiting", waiting, Log::Beside);
}

#[test]
fn every_crash_of_streaming_writes() {
    enumerate("streaming", streaming, Log::Beside);
}

#[test]
fn every_crash_of_compacting() {
    enumerate("compacting", compacting, Log::Beside);
}

#[test]
fn every_crash_of_reopening() {
    enumerate("reopening", reopening, Log::Beside);
}

/// The identity of the log is created before the manifest that names it: every order of the two,
/// with a death between them, is among these.
#[test]
fn every_crash_of_waiting_writes_beside_a_separate_log() {
    enumerate("waiting, separate log", waiting, Log::Separate);
}

#[test]
fn every_crash_of_reopening_beside_a_separate_log() {
    enumerate("reopening, separate log", reopening, Log::Separate);
}

#[test]
fn every_crash_of_writers_without_a_log() {
    enumerate("unlogged", unlogged, Log::Beside);
}
