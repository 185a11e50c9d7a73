//! The processes of the simulation: writers that overtake each other, a reader, collectors.

use crate::oracle::{Oracle, Rows, all_rows, view_at};
use parking_lot::Mutex;
use siltstone::gc::GcOptions;
use siltstone::{
    Accept, Batch, Commit, Database, Env, Error, ErrorKind, OpenOptions, Options, Reader,
    ReaderOptions, Scan, ScanRange, Snapshot, UnixMillis, built_in_operator,
};
use siltstone_tests::model::Model;
use siltstone_tests::sim::{ProcessId, Rng, SimHandle};
use siltstone_tests::{compact, gc};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

const KEYS: u64 = 24;

/// What all actors share.
pub(crate) struct World {
    pub(crate) sim: SimHandle,
    pub(crate) oracle: Oracle,
    pub(crate) options: Options,
    /// Whether range deletes, operands and expiry are written too.
    every_kind: bool,
    pub(crate) stop: AtomicBool,
    /// Numbers values, so that no two are equal.
    counter: AtomicU64,
    pub(crate) active: AtomicU64,
    /// Actors by process, so that those of a killed one can be counted out.
    tasks: Mutex<BTreeMap<ProcessId, u64>>,
    pub(crate) collected: AtomicU64,
    pub(crate) compacted: AtomicU64,
    pub(crate) taken_back: AtomicU64,
}

impl World {
    pub(crate) fn new(sim: SimHandle, options: Options, every_kind: bool) -> Arc<World> {
        Arc::new(World {
            sim,
            oracle: Oracle::default(),
            options,
            every_kind,
            stop: AtomicBool::new(false),
            counter: AtomicU64::new(0),
            active: AtomicU64::new(0),
            tasks: Mutex::default(),
            collected: AtomicU64::new(0),
            compacted: AtomicU64::new(0),
            taken_back: AtomicU64::new(0),
        })
    }

    /// How many actors of `process` have not ended.
    pub(crate) fn live_tasks(&self, process: ProcessId) -> u64 {
        self.tasks.lock().remove(&process).unwrap_or(0)
    }

    pub(crate) fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    fn key(n: u64) -> Vec<u8> {
        format!("key{:02}", n % KEYS).into_bytes()
    }

    fn batch(&self, epoch: u64, rng: &mut Rng) -> Batch {
        let mut batch = Batch::new();
        for _ in 0..=rng.below(5) {
            let key = World::key(rng.next_u64());
            if rng.chance(250) {
                batch.delete(&key).expect("a good key");
            } else if self.every_kind && rng.chance(80) {
                delete_range(&mut batch, [key, World::key(rng.next_u64())], rng);
            } else {
                let number = self.counter.fetch_add(1, Ordering::Relaxed);
                let mut value = format!("{epoch}/{number}/").into_bytes();
                value.resize(value.len() + rng.below(60) as usize, b'.');
                let written = match if self.every_kind { rng.below(10) } else { 9 } {
                    0..2 => batch.merge(&key, &value, None),
                    // Over before it was written, whatever a clock says; and never over.
                    2 => batch.put(&key, &value, Some(UnixMillis(1))),
                    3 => batch.put(&key, &value, Some(UnixMillis(u64::MAX))),
                    _ => batch.put(&key, &value, None),
                };
                written.expect("a good entry");
            }
        }
        batch
    }
}

/// Deletes from one of the keys to the other; every third ends directly behind a key.
fn delete_range(batch: &mut Batch, mut ends: [Vec<u8>; 2], rng: &mut Rng) {
    ends.sort();
    let [start, mut end] = ends;
    if start == end || rng.chance(333) {
        end.push(0);
    }
    batch.delete_range(&start, &end).expect("a good range");
}

/// Errors that faults may bring to a caller; anything else is a mistake of ours.
pub(crate) fn excusable(error: &Error) -> bool {
    use ErrorKind::{Closed, Conflict, Denied, Fenced, Timeout, Unavailable};
    matches!(error.kind(), Closed | Conflict | Denied | Fenced | Timeout | Unavailable)
}

fn is_over(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Closed | ErrorKind::Fenced)
}

/// Runs an actor and counts it as active until it ends.
pub(crate) fn start(
    world: &Arc<World>,
    process: ProcessId,
    name: &'static str,
    actor: impl Future<Output = Result<(), Error>> + Send + 'static,
) {
    let world = Arc::clone(world);
    world.active.fetch_add(1, Ordering::Relaxed);
    *world.tasks.lock().entry(process).or_default() += 1;
    let shared = Arc::clone(&world);
    world.sim.spawn(process, name, async move {
        if let Err(error) = actor.await
            && !excusable(&error)
        {
            shared.oracle.violation(format!("{name}: {error:?}"));
        }
        shared.active.fetch_sub(1, Ordering::Relaxed);
        if let Some(tasks) = shared.tasks.lock().get_mut(&process) {
            *tasks -= 1;
        }
    });
}

/// Every row of a scan, retrying what faults interrupt.
pub(crate) async fn rows_of(mut scan: Scan) -> Result<Rows, Error> {
    let mut rows = siltstone::Rows::new();
    let mut all = Vec::new();
    loop {
        let filled = scan.fill(&mut rows, 5, 1 << 10)?;
        all.extend(
            (0..rows.len())
                .filter_map(|row| rows.row(row).map(|(key, value)| (key.to_vec(), value.to_vec()))),
        );
        rows.clear();
        match filled {
            siltstone::Fill::End => return Ok(all),
            siltstone::Fill::Full => {}
            siltstone::Fill::NeedsBlocks => scan.fetch().await?,
        }
    }
}

/// A writer with the merge operator of all of them.
pub(crate) fn opening(options: &Options) -> OpenOptions {
    let merge_operator = built_in_operator("append");
    OpenOptions { options: options.clone(), merge_operator, ..OpenOptions::default() }
}

/// One writer process: opens, works, is fenced, closes or goes on until told to stop.
pub(crate) async fn writer(
    world: Arc<World>,
    process: ProcessId,
    env: Env,
    mut rng: Rng,
) -> Result<(), Error> {
    let options = Options { max_parallel_writes: 1 + rng.below(4), ..world.options.clone() };
    while !world.stopped() {
        let how = opening(&options);
        let db = match Database::open(env.clone(), how).await {
            Ok(db) => db,
            Err(error) if excusable(&error) && !is_over(&error) => {
                world.sim.sleep(Duration::from_millis(200)).await;
                continue;
            }
            Err(error) => return Err(error),
        };
        let goes_on = work(&world, process, &db, &mut rng).await;
        world.taken_back.fetch_add(db.stats().compactor_takeovers, Ordering::Relaxed);
        if !goes_on? {
            return Ok(());
        }
    }
    Ok(())
}

/// Works on an open handle; `true` after a clean close, `false` when told to stop.
async fn work(
    world: &Arc<World>,
    process: ProcessId,
    db: &Database,
    rng: &mut Rng,
) -> Result<bool, Error> {
    let epoch = db.stats().epoch;
    let snapshot = db.snapshot()?;
    let expected = world.oracle.opened(epoch, snapshot.seq());
    check_snapshot(world, "recovered state", epoch, &snapshot, &expected).await?;
    let mut held: Vec<(Snapshot, Model)> = Vec::new();
    while !world.stopped() {
        match rng.below(100) {
            0..50 => write(world, process, db, epoch, rng).await?,
            50..58 => {
                let last = db.snapshot()?.seq();
                if tolerate(db.flush().await)? {
                    world.oracle.acknowledged(epoch, last);
                }
            }
            58..63 => {
                let last = db.snapshot()?.seq();
                if tolerate(db.flush_memtable().await)? {
                    world.oracle.acknowledged(epoch, last);
                }
            }
            63..75 => check_get(world, db, epoch, rng).await?,
            75..80 => {
                let snapshot = db.snapshot()?;
                let expected = world.oracle.expected(epoch);
                check_snapshot(world, "scan", epoch, &snapshot, &expected).await?;
                held.push((snapshot, expected));
            }
            80..83 => {
                if let Some((snapshot, expected)) = held.pop() {
                    check_snapshot(world, "old snapshot", epoch, &snapshot, &expected).await?;
                }
            }
            83..84 => {
                let last = db.snapshot()?.seq();
                match db.close().await {
                    Ok(()) => {
                        world.oracle.acknowledged(epoch, last);
                        return Ok(true);
                    }
                    Err(error) if excusable(&error) => return Ok(!is_over(&error)),
                    Err(error) => return Err(error),
                }
            }
            _ => world.sim.sleep(Duration::from_millis(rng.below(60))).await,
        }
    }
    for (snapshot, expected) in &held {
        check_snapshot(world, "old snapshot", epoch, snapshot, expected).await?;
    }
    match db.close().await {
        Ok(()) => Ok(false),
        Err(error) if excusable(&error) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Whether the call succeeded; troubles of the store are let pass, the end of the handle is not.
fn tolerate(result: Result<(), Error>) -> Result<bool, Error> {
    match result {
        Ok(()) => Ok(true),
        Err(error) if excusable(&error) && !is_over(&error) => Ok(false),
        Err(error) => Err(error),
    }
}

async fn write(
    world: &Arc<World>,
    process: ProcessId,
    db: &Database,
    epoch: u64,
    rng: &mut Rng,
) -> Result<(), Error> {
    let batch = world.batch(epoch, rng);
    match db.write(&batch)? {
        Accept::Accepted(commit) => {
            world.oracle.accepted(epoch, &batch, commit.seq());
            if rng.chance(400) {
                wait_in_background(world, process, epoch, commit);
            }
        }
        Accept::Pressure(relief) => {
            tolerate(relief.await)?;
        }
    }
    Ok(())
}

fn wait_in_background(world: &Arc<World>, process: ProcessId, epoch: u64, commit: Commit) {
    let seq = commit.seq();
    let shared = Arc::clone(world);
    start(world, process, "waiter", async move {
        commit.wait(None).await?;
        shared.oracle.acknowledged(epoch, seq);
        Ok(())
    });
}

async fn check_get(world: &World, db: &Database, epoch: u64, rng: &mut Rng) -> Result<(), Error> {
    let keys: Vec<_> = (0..1 + rng.below(4)).map(|_| World::key(rng.next_u64())).collect();
    let expected = world.oracle.expected(epoch);
    let got = match db.get_many(keys.clone())?.wait().await {
        Ok(got) => got,
        Err(error) => return tolerate(Err(error)).map(drop),
    };
    for (key, got) in keys.iter().zip(got) {
        let want = expected.get(key, view_at(siltstone::Seq::MAX)).expect("appending is no error");
        if got.as_deref() != want.as_deref() {
            world.oracle.violation(format!("epoch {epoch}: get of {key:?} is wrong"));
        }
    }
    Ok(())
}

async fn check_snapshot(
    world: &World,
    what: &str,
    epoch: u64,
    snapshot: &Snapshot,
    expected: &Model,
) -> Result<(), Error> {
    // Reads may be interrupted by faults; what they answer must be right.
    for _ in 0..50 {
        match rows_of(snapshot.scan(ScanRange::all())).await {
            Ok(rows) => {
                if rows != all_rows(expected, snapshot.seq()) {
                    world.oracle.violation(format!("epoch {epoch}: {what} is wrong"));
                }
                return Ok(());
            }
            Err(error) if excusable(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// A reader process: follows, and records what it sees. Mostly with a checkpoint, which may live
/// for so short a time that it is revoked; without one, or then, a scan may lose its tables.
pub(crate) async fn reader(world: Arc<World>, env: Env, mut rng: Rng) -> Result<(), Error> {
    let mut last = siltstone::Seq::NONE;
    while !world.stopped() {
        let mut options = Options { reader_checkpoint: rng.chance(800), ..world.options.clone() };
        if rng.chance(300) {
            options.checkpoint_lifetime =
                options.manifest_poll_interval * 2 + Duration::from_millis(1 + rng.below(2000));
        }
        let lasts = options.reader_checkpoint
            && options.checkpoint_lifetime >= Options::default().checkpoint_lifetime;
        let how = ReaderOptions { options, ..ReaderOptions::default() };
        let reader = match Reader::open(env.clone(), how).await {
            Ok(reader) => reader,
            Err(error) if excusable(&error) || error.kind() == ErrorKind::NotFound => {
                world.sim.sleep(Duration::from_millis(100)).await;
                continue;
            }
            Err(error) => return Err(error),
        };
        for _ in 0..rng.below(40) {
            if world.stopped() {
                break;
            }
            if rng.chance(500) {
                tolerate(reader.refresh().await)?;
            }
            // The scan holds its view; the number is read around it.
            let before = reader.seq();
            let scan = reader.scan(ScanRange::all())?;
            let after = reader.seq();
            match rows_of(scan).await {
                Ok(rows) if before == after => world.oracle.seen(before, rows),
                Ok(_) => {}
                Err(error) if excusable(&error) => {}
                Err(error) if error.kind() == ErrorKind::Expired && !lasts => {}
                Err(error) => return Err(error),
            }
            if before < last {
                world.oracle.violation(format!("a reader went back from {last} to {before}"));
            }
            last = before;
            world.sim.sleep(Duration::from_millis(rng.below(400))).await;
        }
        reader.close().await?;
        // A reader that opens anew sees everything durable, and so all that this one saw.
    }
    Ok(())
}

/// Rewrites everything now and then, and collects with no grace at all. One process does both,
/// since the test's compactor keeps no job record; and while a commit of its own may still land, it
/// does not collect.
pub(crate) async fn rewriter(world: Arc<World>, env: Env, mut rng: Rng) -> Result<(), Error> {
    let mut settled = true;
    while !world.stopped() {
        world.sim.sleep(Duration::from_millis(50 + rng.below(900))).await;
        if !settled || rng.chance(400) {
            let compacted = compact::everything(&env).await;
            settled = compacted.is_ok();
            world.compacted.fetch_add(compacted.unwrap_or(0) as u64, Ordering::Relaxed);
        }
        if settled {
            collect(&world, &env, Duration::ZERO).await;
        }
    }
    Ok(())
}

/// Collects, with little grace or none, beside the writers' own compactors and collectors.
pub(crate) async fn collector(world: Arc<World>, env: Env, mut rng: Rng) -> Result<(), Error> {
    while !world.stopped() {
        world.sim.sleep(Duration::from_millis(50 + rng.below(900))).await;
        let grace = if rng.chance(700) { 0 } else { rng.below(3000) };
        collect(&world, &env, Duration::from_millis(grace)).await;
    }
    Ok(())
}

/// Whatever a round could not do, a later one does.
async fn collect(world: &World, env: &Env, min_age: Duration) {
    let options = GcOptions { min_age, ..gc::AT_ONCE };
    if let Ok(report) = siltstone::gc::once(env, &options, false).await {
        world.collected.fetch_add(report.total().deleted, Ordering::Relaxed);
    }
}
