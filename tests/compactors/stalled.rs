//! An embedded compactor that another process stopped (RFC 0021): it takes the epoch back from a
//! stalled one when its writer needs it, never from a working one, and a wrong judgement does no
//! harm.

use super::{Pairs, Runner, TIMEOUT, World, compact_once, options, rest};
use parking_lot::Mutex;
use siltstone::{
    Accept, Batch, CompactionOptions, Database, Error, ErrorKind, OpenOptions, Options, ScanRange,
    Stats,
};
use siltstone_manifest::Manifest;
use siltstone_tests::gc;
use siltstone_tests::sim::ProcessId;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// Keys that are overwritten repeatedly.
const KEYS: u64 = 300;
/// The `patience` of RFC 0021 in these tests: a timeout and sixteen polls of 20 ms.
const PATIENCE: Duration = TIMEOUT.saturating_add(Duration::from_millis(320));

/// A writer with its own compactor, slowed from four layers on and stopped at six.
fn embedded() -> Options {
    let base = options();
    Options {
        embedded_compactor: true,
        l0_sst_size_bytes: 8 << 10,
        max_memtable_bytes: 64 << 10,
        manifest_poll_interval: Some(Duration::from_millis(100)),
        compaction: CompactionOptions {
            l0_max_ssts: 6,
            target_sst_bytes: 4 << 10,
            ..base.compaction.clone()
        },
        ..base
    }
}

/// So slow that one merge of L0 takes many times the patience.
fn crawling() -> Options {
    let mut options = embedded();
    options.compaction.compaction_bytes_per_second = Some(1500);
    options
}

/// A writer with few pauses.
struct Load {
    process: ProcessId,
    db: Database,
    /// Number of accepted batches.
    written: Arc<AtomicU64>,
    errors: Arc<Mutex<Vec<Error>>>,
    rests: Arc<AtomicBool>,
    stop: Arc<AtomicBool>,
}

fn batch(number: u64) -> Batch {
    let mut batch = Batch::new();
    for (key, value) in pairs(number) {
        batch.put(&key, &value, None).unwrap();
    }
    batch
}

fn pairs(number: u64) -> impl Iterator<Item = (Vec<u8>, Vec<u8>)> {
    let key = move |row: u64| format!("key{:04}", (number * 10 + row) * 7 % KEYS).into_bytes();
    (0..10).map(move |row| (key(row), [number.to_be_bytes(), row.to_be_bytes()].concat().repeat(6)))
}

impl World {
    fn load(&self, options: Options) -> Load {
        let (process, env) = self.process("writer", 0);
        let how = OpenOptions { options, ..OpenOptions::default() };
        let opened = self.sim.block_on(process, async move { Database::open(env, how).await });
        let load = Load {
            process,
            db: opened.unwrap().unwrap(),
            written: Arc::default(),
            errors: Arc::default(),
            rests: Arc::default(),
            stop: Arc::default(),
        };
        let (db, sim) = (load.db.clone(), (*self.sim).clone());
        let (written, stop) = (Arc::clone(&load.written), Arc::clone(&load.stop));
        let (errors, rests) = (Arc::clone(&load.errors), Arc::clone(&load.rests));
        self.sim.spawn(process, "load", async move {
            let mut number = 0;
            while !stop.load(Ordering::Relaxed) {
                if !rests.load(Ordering::Relaxed) {
                    match db.write(&batch(number)).unwrap() {
                        Accept::Accepted(_) => number += 1,
                        Accept::Pressure(room) => {
                            let ended = room.await;
                            errors.lock().extend(ended.err());
                        }
                    }
                }
                written.store(number, Ordering::Relaxed);
                sim.sleep(Duration::from_millis(5)).await;
            }
        });
        load
    }

    fn run_millis(&self, millis: u64) {
        self.sim.run_for(Duration::from_millis(millis)).unwrap();
    }

    /// Runs until `reached` holds, which it must within `limit`; returns the time that this took.
    fn until(&self, limit: Duration, what: &str, mut reached: impl FnMut() -> bool) -> Duration {
        let began = self.sim.elapsed();
        while !reached() {
            assert!(self.sim.elapsed() - began < limit, "not within {limit:?}: {what}");
            self.run_millis(20);
        }
        self.sim.elapsed() - began
    }

    fn manifest(&self) -> Arc<Manifest> {
        let (process, env) = self.process("observer", 0);
        let newest = self.sim.block_on(process, async move { gc::newest(&env).await });
        newest.unwrap().unwrap().expect("a database")
    }

    /// An external compactor that has taken the epoch, or is about to.
    fn takes_over(&self, options: Options) -> Runner {
        let before = self.manifest().compactor_epoch;
        let outside = self.start_with("outside", 1, Some(0), options);
        self.until(Duration::from_secs(20), "it takes over", || {
            self.manifest().compactor_epoch > before
        });
        outside
    }

    /// Stops the writer; everything must exist, and nothing else.
    fn ends(&self, load: Load) {
        load.stop.store(true, Ordering::Relaxed);
        self.run_millis(40_000);
        let (db, written) = (load.db.clone(), load.written.load(Ordering::Relaxed));
        let rows = self.sim.block_on(load.process, async move {
            let rows = rest(db.scan(ScanRange::all())?).await?;
            db.close().await?;
            Ok::<_, Error>(rows)
        });
        let rows: Pairs = rows.unwrap().unwrap();
        let expected: BTreeMap<_, _> = (0..written).flat_map(pairs).collect();
        assert_eq!(rows, expected.into_iter().collect::<Pairs>());
        // The started job of a dead compactor is in its record until another one ends it.
        let (last, env) = self.process("last", 0);
        self.sim.block_on(last, compact_once(env)).unwrap().unwrap();
        self.check(&rows);
    }
}

impl Load {
    fn written(&self) -> u64 {
        self.written.load(Ordering::Relaxed)
    }

    fn stats(&self) -> Stats {
        self.db.stats()
    }

    /// Whether L0 is full.
    fn is_full(&self) -> bool {
        self.stats().l0_entries >= 6
    }
}

#[test]
fn the_epoch_of_a_dead_compactor_comes_back_and_its_work_is_kept() {
    let mut most = 0;
    for millis in (0..1200).step_by(75) {
        let world = World::new();
        let load = world.load(embedded());
        world.until(Duration::from_secs(20), "it compacts", || load.stats().compactions > 0);
        // How much of the embedded one's work is recorded by then is random: this covers any moment
        // of it.
        world.run_millis(millis / 5);
        let outside = world.takes_over(crawling());
        world.run_millis(millis);
        world.sim.kill(outside.process);
        let (dead, recorded) = (world.manifest().compactor_epoch, world.recorded());
        most = most.max(recorded.len());
        world.until(Duration::from_secs(120), "L0 is full", || load.is_full());
        // Up to a quarter of the patience late, and a job of its own must first be seen to end.
        let limit = PATIENCE * 2 + TIMEOUT;
        let took = world.until(limit, "taken back", || load.stats().compactor_takeovers == 1);
        let named = world.manifest();
        assert!(named.compactor_epoch > dead && took < limit);
        let before = load.written();
        world.until(Duration::from_secs(20), "writes go on", || load.written() > before + 50);
        assert_eq!(load.stats().compactor_takeovers, 1);
        assert_eq!(load.stats().compactor_silent_seconds, 0.0);
        assert!(load.db.compaction_error().is_none());
        let again: Vec<_> = world.recorded();
        assert!(recorded.iter().all(|table| !again.contains(table)), "the old job has not ended");
        assert!(load.errors.lock().is_empty(), "{:?}", load.errors.lock());
        world.ends(load);
    }
    assert!(most > 1, "{most} recorded tables at most show nothing");
}

#[test]
fn one_that_works_keeps_the_epoch_however_long_it_takes() {
    for workers in [0, 2] {
        let world = World::new();
        let load = world.load(Options { deadline: Duration::from_secs(3000), ..embedded() });
        world.until(Duration::from_secs(20), "it compacts", || load.stats().compactions > 0);
        let outside = world.start_with("outside", 1, Some(workers), crawling());
        let worker = (workers > 0).then(|| world.start_with("worker", -1, None, crawling()));
        world.until(Duration::from_secs(60), "L0 is full", || load.is_full());
        let (before, began) = (load.written(), world.sim.elapsed());
        world.until(Duration::from_secs(600), "writes go on", || load.written() > before + 100);
        let waited = world.sim.elapsed() - began;
        assert!(waited > PATIENCE * 4, "{waited:?} is no long wait");
        assert_eq!(load.stats().compactor_takeovers, 0);
        assert!(outside.ended.lock().is_none(), "{:?}", outside.ended);
        // A coordinator dies; the worker lives, and its merging is a heartbeat.
        world.sim.kill(outside.process);
        if let Some(worker) = worker {
            assert!(worker.ended.lock().is_none());
            world.sim.kill(worker.process);
        }
        world.until(Duration::from_secs(200), "taken back", || {
            load.stats().compactor_takeovers == 1
        });
        world.ends(load);
    }
}

#[test]
fn an_idle_one_that_lives_is_left_alone() {
    let world = World::new();
    let load = world.load(embedded());
    world.until(Duration::from_secs(20), "it compacts", || load.stats().compactions > 0);
    let outside = world.takes_over(embedded());
    let epoch = world.manifest().compactor_epoch;
    for round in 0..20 {
        // Its pauses grow while nothing is written.
        load.rests.store(round % 2 == 0, Ordering::Relaxed);
        world.run_millis(10_000);
    }
    assert_eq!(world.manifest().compactor_epoch, epoch);
    assert_eq!(load.stats().compactor_takeovers, 0);
    assert!(load.written() > 1500, "{} batches", load.written());
    assert!(outside.ended.lock().is_none());
    world.sim.kill(outside.process);
    world.ends(load);
}

#[test]
fn one_that_was_paused_is_fenced_and_a_new_one_takes_over_once() {
    for millis in (0..900).step_by(90) {
        let world = World::new();
        let load = world.load(embedded());
        world.until(Duration::from_secs(20), "it compacts", || load.stats().compactions > 0);
        let outside = world.takes_over(crawling());
        world.run_millis(millis);
        world.sim.pause(outside.process);
        let recorded = world.recorded();
        world.until(Duration::from_secs(120), "taken back", || {
            load.stats().compactor_takeovers == 1
        });
        let before = load.written();
        world.until(Duration::from_secs(20), "writes go on", || load.written() > before + 50);
        world.sim.resume(outside.process);
        world.until(Duration::from_secs(60), "it ends", || outside.ended().is_some());
        assert_eq!(outside.ended(), Some(ErrorKind::Fenced));
        let again = world.recorded();
        assert!(recorded.iter().all(|table| !again.contains(table)), "the old job has not ended");
        // A supervisor restarts it: it has the epoch now, and keeps it.
        let anew = world.takes_over(embedded());
        let epoch = world.manifest().compactor_epoch;
        world.run_millis(30_000);
        assert_eq!(world.manifest().compactor_epoch, epoch);
        assert_eq!(load.stats().compactor_takeovers, 1);
        assert!(anew.ended.lock().is_none());
        assert!(load.errors.lock().is_empty(), "{:?}", load.errors.lock());
        world.sim.kill(anew.process);
        world.ends(load);
    }
}

#[test]
fn without_an_embedded_compactor_nothing_is_taken_back_and_writers_are_told() {
    for compacts in [true, false] {
        let world = World::new();
        let deadline = Duration::from_secs(1);
        let load = world.load(Options { embedded_compactor: compacts, deadline, ..embedded() });
        if compacts {
            world.until(Duration::from_secs(20), "it compacts", || load.stats().compactions > 0);
        }
        let outside = world.start_with("outside", 1, Some(0), crawling());
        world.until(Duration::from_secs(60), "L0 is full", || load.is_full());
        world.sim.kill(outside.process);
        let epoch = world.manifest().compactor_epoch;
        world.run_millis(1000 * 60);
        let errors = load.errors.lock().clone();
        let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
        let told = |text: &str| texts.iter().any(|one| one.contains(text));
        if compacts {
            assert!(
                told("another compactor has taken over and has been stalled for 1."),
                "{texts:?}"
            );
            assert!(told("once it has been stalled for 2.3 s"), "{texts:?}");
            assert_eq!(load.stats().compactor_takeovers, 1);
        } else {
            assert!(told("embedded_compactor is off") && texts.len() > 30, "{texts:?}");
            assert_eq!(world.manifest().compactor_epoch, epoch);
            assert_eq!(load.stats().compactor_takeovers, 0);
        }
        world.ends(load);
    }
}

/// A compactor that is not needed makes no requests: neither without work, nor idle below the
/// pressure.
#[test]
fn a_stopped_compactor_that_is_not_needed_asks_for_nothing() {
    let world = World::new();
    let mut options = embedded();
    // There are no requests for ingest jobs, for which it would look.
    options.writes.ingest_poll_interval = None;
    let load = world.load(options);
    world.until(Duration::from_secs(20), "it compacts", || load.stats().compactions > 0);
    let outside = world.takes_over(embedded());
    world.run_millis(2000);
    load.stop.store(true, Ordering::Relaxed);
    world.run_millis(10_000);
    world.sim.kill(outside.process);
    // Rows in memory are flushed within an hour.
    world.run_millis(3_700_000);
    let before = world.bucket.operations(load.process);
    world.run_millis(3_600_000);
    assert_eq!(world.bucket.operations(load.process) - before, 0, "requests in an idle hour");
    assert_eq!(load.stats().compactor_silent_seconds, 0.0);
    world.ends(load);
}
