//! The engine's collector beside everything else: killed at every request, two at once, late and
//! denied deletes, wrong clocks, listings that lack the newest, scans that were paused. What it
//! leaves is compared with what is reachable (`tests/support/reachable.rs`).

#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a test reports, and stops at what it did not expect"
)]

use futures::future::BoxFuture;
use parking_lot::Mutex;
use siltstone::gc::{GcClass, GcOptions, GcReport};
use siltstone::store::counting::{Requests, count};
use siltstone::store::{Listed, Store, lies_under};
use siltstone::verify::verify;
use siltstone::{
    Batch, Database, Env, Error, ErrorKind, Fill, Gc, OpenOptions, Options, Progress, Reader,
    ReaderOptions, Result, Rows, Scan, ScanRange,
};
use siltstone_base::id::NUMBERS_A_MILLI;
use siltstone_base::{AttemptId, DatabaseId, Epoch, ManifestId, ObjectId, ObjectName, UnixMillis};
use siltstone_manifest::compaction::Compactions;
use siltstone_tests::faults::{Bucket, CrashPoint, Fault, FaultPlan};
use siltstone_tests::gc::AT_ONCE;
use siltstone_tests::passed_on;
use siltstone_tests::reachable::{Difference, difference};
use siltstone_tests::sim::{ProcessId, Sim, Stopped};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

const ROWS: u32 = 40;
const POLL: Duration = Duration::from_millis(50);

fn options() -> Options {
    Options {
        flush_interval: Duration::from_millis(5),
        l0_sst_size_bytes: 4096,
        block_bytes: 256,
        block_cache_bytes: 0,
        metadata_cache_bytes: 0,
        l0_manifest_commit_interval: Duration::ZERO,
        manifest_poll_interval: Some(POLL),
        embedded_gc: false,
        ..Options::default()
    }
}

async fn open(env: &Env, options: Options) -> Result<Database> {
    Database::open(env.clone(), OpenOptions { options, ..OpenOptions::default() }).await
}

async fn fill(db: &Database, round: u8) -> Result<()> {
    for part in 0..3 {
        let mut batch = Batch::new();
        for n in (0..ROWS).filter(|n| n % 3 == part) {
            batch.put(format!("key{n:03}").as_bytes(), &[round; 30], None)?;
        }
        let siltstone::Accept::Accepted(commit) = db.write(&batch)? else { continue };
        commit.wait(None).await?;
        db.flush_memtable().await?;
    }
    Ok(())
}

type Pairs = Vec<(Vec<u8>, Vec<u8>)>;

async fn rows_of(scan: &mut Scan, limit: usize) -> Result<Pairs> {
    let (mut rows, mut all) = (Rows::new(), Vec::new());
    while all.len() < limit {
        let filled = scan.fill(&mut rows, limit - all.len(), 1 << 20)?;
        let pairs = (0..rows.len()).filter_map(|row| rows.row(row));
        all.extend(pairs.map(|(key, value)| (key.to_vec(), value.to_vec())));
        rows.clear();
        match filled {
            Fill::End => break,
            Fill::Full => {}
            Fill::NeedsBlocks => scan.fetch().await?,
        }
    }
    Ok(all)
}

async fn all_of(db: &Database) -> Result<Pairs> {
    rows_of(&mut db.scan(ScanRange::all())?, usize::MAX).await
}

fn expected(round: u8) -> Pairs {
    (0..ROWS).map(|n| (format!("key{n:03}").into_bytes(), vec![round; 30])).collect()
}

/// A simulated world with one store.
struct World {
    sim: Sim,
    bucket: Arc<Bucket>,
}

impl World {
    fn new(seed: u64, plan: FaultPlan) -> World {
        let sim = Sim::new(seed);
        let bucket = Bucket::new(&sim, plan);
        World { sim, bucket }
    }

    fn process(&self, name: &'static str, skew_millis: i64) -> (ProcessId, Env) {
        let process = self.sim.process(name, skew_millis);
        (process, self.sim.env(process, self.bucket.store(process)))
    }

    /// Runs `work` in a process of its own, to its end.
    fn run<T: Send + 'static, F: Future<Output = Result<T>> + Send + 'static>(
        &self,
        name: &'static str,
        work: impl FnOnce(Env) -> F,
    ) -> T {
        let (process, env) = self.process(name, 0);
        self.sim.block_on(process, work(env)).expect("it ends").expect("a healthy store")
    }

    fn pause(&self, time: Duration) {
        self.sim.run_for(time).expect("time goes on");
    }

    /// One round with no grace.
    fn collect(&self) -> GcReport {
        self.run("collector", |env| async move { siltstone::gc::once(&env, &AT_ONCE, false).await })
    }

    fn difference(&self) -> Difference {
        difference(&self.bucket.objects()).expect("sound objects")
    }

    /// A life with everything in it: a writer that was killed amid its work, a reader that was
    /// killed, a second writer that merges, writes over it, merges again, and closes.
    fn live(&self) {
        let (killed, env) = self.process("first", 0);
        let first = self.sim.block_on(killed, async move {
            let db = open(&env, options()).await?;
            fill(&db, 1).await?;
            db.compact().await?;
            fill(&db, 2).await?;
            std::mem::forget(db);
            Ok::<_, Error>(())
        });
        first.expect("it ends").expect("a healthy store");
        let (reading, env) = self.process("reader", 0);
        let options = Options { checkpoint_lifetime: Duration::from_secs(1), ..options() };
        let how = ReaderOptions { options, ..ReaderOptions::default() };
        let reader = self.sim.block_on(reading, Reader::open(env, how));
        std::mem::forget(reader.expect("it ends").expect("a healthy store"));
        self.sim.kill(killed);
        self.sim.kill(reading);
        self.run("second", |env| async move {
            let db = open(&env, options_of_second()).await?;
            fill(&db, 3).await?;
            db.compact().await?;
            fill(&db, 4).await?;
            db.compact().await?;
            db.close().await
        });
        // The killed reader's checkpoint expires.
        self.pause(Duration::from_secs(2));
    }

    /// Everything is right, and reads give what was written last.
    fn check(&self) {
        assert_eq!(self.difference().dangling, vec![]);
        let report = self.run("verifier", |env| async move {
            verify(&env, Duration::from_secs(10), &Progress::default()).await
        });
        assert_eq!(report.problem_count, 0, "{:?}", report.problems);
        let rows = self.run("last", |env| async move {
            let db = open(&env, options()).await?;
            let rows = all_of(&db).await?;
            db.close().await?;
            Ok(rows)
        });
        assert_eq!(rows, expected(4));
    }
}

fn options_of_second() -> Options {
    Options { max_parallel_writes: 1, ..options() }
}

#[test]
fn what_is_left_is_what_is_reachable() {
    let world = World::new(1, FaultPlan::none());
    world.live();
    assert!(world.difference().garbage.len() > 30, "{:?}", world.difference());
    let report = world.collect();
    assert_eq!(world.difference(), Difference::default());
    assert_eq!(report.revoked, 1);
    for class in [GcClass::Manifests, GcClass::Wal, GcClass::Tables, GcClass::Records] {
        assert!(report.classes[&class].deleted > 0, "{class:?}: {report:?}");
    }
    // Nothing is left to do, and it does nothing.
    let again = world.collect();
    assert_eq!(again.total().deleted, 0, "{again:?}");
    world.check();
}

/// Whoever watches a round sees how many objects go, and in the end that all of them went.
#[test]
fn a_round_says_how_far_it_is() {
    let world = World::new(1, FaultPlan::none());
    world.live();
    let round = |dry| {
        world.run("collector", move |env| async move {
            let progress = Arc::default();
            let report = siltstone::gc::once_watched(&env, &AT_ONCE, dry, &progress).await?;
            Ok((progress.so_far(), report.total().deleted))
        })
    };
    let (far, would_go) = round(true);
    assert!(would_go > 30);
    assert_eq!(far, (0, 0), "a dry round deletes nothing");
    let (far, gone) = round(false);
    assert_eq!(far, (gone, gone));
    assert_eq!(round(false), ((0, 0), 0));
}

/// A collector is killed before, after, and amid every request of a round. Nothing dangles then,
/// and the next round leaves what is reachable.
#[test]
fn every_crash_of_a_round() {
    let mut crashes = 0;
    for operation in 1.. {
        for point in [CrashPoint::Before, CrashPoint::AnswerLost, CrashPoint::After] {
            let world = World::new(1, FaultPlan::none());
            world.live();
            let (dying, env) = world.process("dying", 0);
            world.bucket.crash_at(dying, operation, point);
            let round = world
                .sim
                .block_on(dying, async move { siltstone::gc::once(&env, &AT_ONCE, false).await });
            match round {
                Ok(round) => {
                    round.expect("a healthy store");
                    assert!(crashes > 100, "{crashes} crashes are few");
                    println!("{crashes} crashes of a round");
                    return;
                }
                Err(Stopped::Killed) => crashes += 1,
                Err(stopped) => panic!("{operation} {point:?}: {stopped:?}"),
            }
            world.sim.kill(dying);
            assert_eq!(world.difference().dangling, vec![], "{operation} {point:?}");
            world.collect();
            assert_eq!(world.difference(), Difference::default(), "{operation} {point:?}");
            if operation % 10 == 0 {
                world.check();
            }
        }
    }
}

/// Any number of collectors at once, whichever is ahead, beside a writer that compacts.
#[test]
fn collectors_do_no_harm_to_one_another() {
    for seed in 1..=10 {
        let world = World::new(seed, FaultPlan::none());
        world.live();
        world.bucket.set_plan(FaultPlan::none().with(Fault::DeleteLate, 300));
        let mut collectors = Vec::new();
        for skew in [-900_000, 0, 900_000] {
            let (process, env) = world.process("collector", skew);
            collectors.push(process);
            world.sim.spawn(process, "collector", async move {
                loop {
                    drop(siltstone::gc::once(&env, &AT_ONCE, false).await);
                    env.clock.sleep(Duration::from_millis(30)).await;
                }
            });
        }
        world.run("busy", |env| async move {
            let db = open(&env, options()).await?;
            for _ in 0..3 {
                fill(&db, 4).await?;
                db.compact().await?;
                assert_eq!(all_of(&db).await?, expected(4));
            }
            db.close().await
        });
        world.bucket.heal();
        collectors.into_iter().for_each(|process| world.sim.kill(process));
        world.pause(Duration::from_secs(120));
        assert_eq!(world.difference().dangling, vec![], "seed {seed}");
        world.check();
        world.collect();
        assert_eq!(world.difference(), Difference::default(), "seed {seed}");
    }
}

/// A delete that the collector has given up lands when it will; the writer goes on meanwhile.
#[test]
fn late_deletes_hit_nothing_alive() {
    for seed in 1..=20 {
        let mut plan = FaultPlan::none().with(Fault::DeleteLate, 1000);
        plan.lateness = (Duration::from_millis(1), Duration::from_secs(30));
        let world = World::new(seed, plan);
        world.live();
        let report = world.collect();
        assert!(report.total().failed > 10 && report.trouble.is_some(), "{report:?}");
        world.run("busy", |env| async move {
            let db = open(&env, options()).await?;
            fill(&db, 4).await?;
            db.compact().await?;
            db.close().await
        });
        world.bucket.heal();
        world.pause(Duration::from_secs(60));
        world.check();
        world.collect();
        assert_eq!(world.difference(), Difference::default(), "seed {seed}");
    }
}

/// Planted bug 8: what counts is the store's clock. A collector that is ten days ahead deletes
/// nothing early, and one that is behind deletes all the same.
#[test]
fn no_process_clock_makes_an_object_old() {
    const DAYS: i64 = 10 * 24 * 3_600_000;
    let grace = GcOptions { min_age: Duration::from_secs(600), ..AT_ONCE };
    for skew in [DAYS, -DAYS] {
        let world = World::new(1, FaultPlan::none());
        world.live();
        let round = || {
            let (process, env) = world.process("collector", skew);
            let round = async move { siltstone::gc::once(&env, &grace, false).await };
            world.sim.block_on(process, round).expect("it ends").expect("a healthy store")
        };
        let early = round();
        assert_eq!(early.total().deleted, 0, "{early:?}");
        assert!(early.total().young > 30, "{early:?}");
        world.pause(Duration::from_secs(600));
        let late = round();
        assert!(late.classes[&GcClass::Tables].deleted > 0, "{late:?}");
        world.check();
    }
}

/// A store that refuses some deletes, and whose listings lack some objects, or show some that are
/// gone.
#[derive(Debug)]
struct Stubborn {
    store: Arc<dyn Store>,
    refused: BTreeSet<ObjectName>,
    unlisted: BTreeSet<ObjectName>,
    gone: BTreeSet<ObjectName>,
}

impl Stubborn {
    fn over(store: &Arc<dyn Store>) -> Stubborn {
        let (refused, unlisted, gone) = Default::default();
        Stubborn { store: Arc::clone(store), refused, unlisted, gone }
    }
}

impl Store for Stubborn {
    passed_on!(store: get, put_if_absent, upload);

    fn list(
        &self,
        prefix: &'static str,
        after: Option<ObjectName>,
    ) -> BoxFuture<'_, Result<Vec<Listed>>> {
        Box::pin(async move {
            let mut listed = self.store.list(prefix, after).await?;
            listed.retain(|object| !self.unlisted.contains(&object.name));
            for name in self.gone.iter().filter(|name| lies_under(**name, prefix)) {
                listed.push(Listed { name: *name, bytes: 1, modified: UnixMillis(1) });
            }
            listed.sort_by_key(|object| object.name);
            Ok(listed)
        })
    }

    fn delete(&self, name: ObjectName) -> BoxFuture<'_, Result<()>> {
        if self.refused.contains(&name) {
            let denied = Error::new(ErrorKind::Denied, "kept by a retention rule");
            return Box::pin(std::future::ready(Err(denied)));
        }
        self.store.delete(name)
    }
}

/// A round over a store of that kind.
fn round_over(
    world: &World,
    refused: BTreeSet<ObjectName>,
    unlisted: BTreeSet<ObjectName>,
) -> GcReport {
    world.run("collector", |env| async move {
        let store = Stubborn { refused, unlisted, ..Stubborn::over(&env.store) };
        let store = Arc::new(store);
        siltstone::gc::once(&Env { store, ..env }, &AT_ONCE, false).await
    })
}

/// G4: a denied delete stops none but those that are numbered above it.
#[test]
fn a_denied_delete_stops_no_other() {
    let world = World::new(1, FaultPlan::none());
    world.live();
    let garbage = world.difference().garbage;
    let table = |name: &&ObjectName| matches!(name, ObjectName::Compacted(_));
    let table = *garbage.iter().find(table).expect("a dead table");
    let wal = |name: &&ObjectName| matches!(name, ObjectName::Wal(_));
    let wal = *garbage.iter().find(wal).expect("a dead WAL object");
    let report = round_over(&world, BTreeSet::from([table, wal]), BTreeSet::new());
    assert_eq!(report.total().denied, 2, "{report:?}");
    assert!(report.trouble.as_ref().is_some_and(|error| error.kind() == ErrorKind::Denied));
    assert!(report.classes[&GcClass::Tables].deleted > 0);
    let left = world.difference().garbage;
    assert!(left.contains(&table) && left.contains(&wal), "{left:?}");
    assert!(left.iter().all(|name| *name == table || matches!(name, ObjectName::Wal(_))));
    world.check();
    world.collect();
    assert_eq!(world.difference().garbage, vec![]);
}

/// Planted bug 22: a listing that lacks the newest manifest and the newest record. Both are found
/// by reading on, and what they name stays.
#[test]
fn a_listing_that_lacks_the_newest_costs_nothing() {
    let world = World::new(1, FaultPlan::none());
    world.live();
    let names: BTreeSet<ObjectName> =
        world.bucket.objects().into_iter().map(|(name, _)| name).collect();
    let newest = |wanted: fn(&ObjectName) -> bool| names.iter().copied().filter(wanted).max();
    let unlisted = [
        newest(|name| matches!(name, ObjectName::Manifest(_))),
        newest(|name| matches!(name, ObjectName::Compactions(_))),
    ];
    let report = round_over(&world, BTreeSet::new(), unlisted.into_iter().flatten().collect());
    assert!(report.classes[&GcClass::Tables].deleted > 0, "{report:?}");
    world.check();
    world.collect();
    assert_eq!(world.difference(), Difference::default());
}

/// A listing that goes on to show the first manifest, which is gone, and not what says so: asked
/// for again with pauses, and no longer than a request may take. Before, without a pause and
/// without an end.
#[test]
fn a_listing_that_goes_on_to_show_what_is_gone_has_an_end() {
    let world = World::new(1, FaultPlan::none());
    world.live();
    world.collect();
    let (first, mut unlisted) = (ObjectName::Manifest(ManifestId::FIRST), BTreeSet::new());
    for (name, _) in world.bucket.objects() {
        assert_ne!(name, first, "it was freed");
        if matches!(name, ObjectName::ManifestBoundary(_)) {
            unlisted.insert(name);
        }
    }
    let (error, took, asked) = world.run("collector", |env| async move {
        let gone = BTreeSet::from([first]);
        let stale = Stubborn { unlisted, gone, ..Stubborn::over(&env.store) };
        let (env, requests) = count(Env { store: Arc::new(stale), ..env });
        let began = env.clock.monotonic();
        let error = siltstone::gc::once(&env, &AT_ONCE, false).await.expect_err("no newest");
        Ok((error, env.clock.monotonic() - began, total(&requests)))
    });
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(error.to_string().contains(&first.to_string()), "{error}");
    assert!(took >= AT_ONCE.deadline && took < 2 * AT_ONCE.deadline, "{took:?}");
    assert!(asked < 100, "{asked} requests");
    world.check();
}

/// Somebody else deletes the records of jobs, and leaves the boundary, which says that there are
/// some: collectors and compactors tell it, and reads and writes go on. Before, they listed and
/// read without an end.
#[test]
fn records_that_somebody_deleted_are_told() {
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
    // As the text says.
    world.bucket.remove(boundary);
    world.collect();
    world.check();
}

/// A record of a database that was made later in the same place says that this one was deleted. One
/// of a database before it says nothing: it goes, as garbage.
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

/// The embedded collector with no grace, beside a compactor that rewrites everything: paused scans
/// of the writer and of a reader give exactly their snapshots, what only they kept goes when they
/// have ended, and then nothing is asked of the store any more.
#[test]
fn paused_scans_give_their_snapshots_and_an_idle_database_is_left_alone() {
    let world = World::new(1, FaultPlan::none());
    let (reading, reader_env) = world.process("reader", 0);
    let scanned: Arc<Mutex<Option<Pairs>>> = Arc::default();
    let told = Arc::clone(&scanned);
    let (process, env) = world.process("writer", 0);
    let sim = world.sim.clone();
    let work = async move {
        let (env, requests) = count(env);
        let eager = Options {
            embedded_gc: true,
            gc: Gc {
                interval: Duration::from_millis(100),
                min_age: Duration::ZERO,
                ..Gc::default()
            },
            ..options()
        };
        let db = open(&env, eager).await?;
        fill(&db, 1).await?;
        let brief = Options { checkpoint_lifetime: Duration::from_secs(10), ..options() };
        let how = ReaderOptions { options: brief, ..ReaderOptions::default() };
        let reader = Reader::open(reader_env.clone(), how).await?;
        let (mut mine, mut theirs) = (db.scan(ScanRange::all())?, reader.scan(ScanRange::all())?);
        let mut first = rows_of(&mut mine, 5).await?;
        let mut second = rows_of(&mut theirs, 5).await?;
        for round in 2..5 {
            fill(&db, round).await?;
            db.compact().await?;
            env.clock.sleep(Duration::from_secs(1)).await;
        }
        first.extend(rows_of(&mut mine, usize::MAX).await?);
        second.extend(rows_of(&mut theirs, usize::MAX).await?);
        assert_eq!((first, second), (expected(1), expected(1)));
        drop((mine, theirs));
        reader.close().await?;
        env.clock.sleep(Duration::from_secs(30)).await;
        let before = total(&requests);
        env.clock.sleep(Duration::from_secs(600)).await;
        assert_eq!(total(&requests), before, "an idle database is asked for");
        *told.lock() = Some(all_of(&db).await?);
        std::mem::forget(db);
        Ok::<_, Error>(())
    };
    sim.block_on(process, work).expect("it ends").expect("a healthy store");
    assert_eq!(scanned.lock().take(), Some(expected(4)));
    // By the embedded collector alone, beside an open handle.
    assert_eq!(world.difference(), Difference::default());
    world.sim.kill(process);
    world.sim.kill(reading);
    world.check();
}

/// With the defaults, after a burst of work: at most one request in ten seconds.
#[test]
fn the_last_rounds_before_rest_are_within_the_bound() {
    let world = World::new(1, FaultPlan::none());
    world.run("writer", |env| async move {
        let (env, requests) = count(env);
        let defaults = Options { l0_sst_size_bytes: 4096, ..Options::default() };
        let db = open(&env, defaults).await?;
        fill(&db, 1).await?;
        fill(&db, 2).await?;
        db.compact().await?;
        env.clock.sleep(Duration::from_secs(5)).await;
        let mut asked = Vec::new();
        for _ in 0..4 {
            let before = total(&requests);
            env.clock.sleep(Duration::from_secs(600)).await;
            asked.push(total(&requests) - before);
        }
        println!("requests in each ten minutes of rest: {asked:?}");
        assert!(asked.iter().all(|asked| *asked <= 60), "{asked:?}");
        assert_eq!(asked[2..], [0, 0]);
        db.close().await
    });
}

fn total(requests: &Requests) -> u64 {
    let totals = requests.totals();
    totals.gets + totals.puts + totals.lists + totals.deletes + totals.upload_chunks
}

/// Whenever the objects of a database are removed under it, the work on it ends.
#[test]
fn a_database_that_vanishes_ends_the_work() {
    for operations in 1..40 {
        let world = World::new(1, FaultPlan::none());
        world.live();
        // No checkpoint is left to revoke: a commit amid the removal would make a manifest anew.
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
