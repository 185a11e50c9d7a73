//! The disk space of a database (RFC 0020): garbage is limited in bytes as well as in time,
//! finished work leaves only live data, and a full store is freed by deletes that first write
//! nothing.

#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a test reports, and stops at what it did not expect"
)]

use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use siltstone::gc::{GcClass, GcReport};
use siltstone::ingest::IngestJob;
use siltstone::store::passed_on;
use siltstone::store::{PutAnswer, Store, Upload};
use siltstone::verify::verify;
use siltstone::{
    Accept, Batch, CheckpointOptions, Database, Env, Error, ErrorKind, OpenOptions, Options,
    Progress, Reader, ReaderOptions, Result, admin::create_checkpoint, destroy,
};
use siltstone_base::{ObjectName, SstId};
use siltstone_tests::faults::{Bucket, FaultPlan};
use siltstone_tests::gc::AT_ONCE;
use siltstone_tests::reachable::difference;
use siltstone_tests::sim::Sim;
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// The defaults are for disks; tests use a thousandth of them.
const SCALE: usize = 1024;
const MIB: u64 = 1 << 20;
const VALUE: usize = 1000;

/// The default options, with sizes scaled down and times unchanged, and a tree of a limited size.
fn scaled() -> Options {
    let defaults = Options::default();
    let mut options = Options {
        flush_bytes: defaults.flush_bytes / SCALE,
        l0_sst_size_bytes: defaults.l0_sst_size_bytes / SCALE,
        max_memtable_bytes: defaults.max_memtable_bytes / SCALE,
        block_bytes: 1024,
        block_cache_bytes: 0,
        ..defaults
    };
    options.gc.max_garbage_bytes = Some((256 << 20) / SCALE as u64);
    options.compaction.target_sst_bytes = 65_536;
    // By default tiered runs may contain a row many times: that is the tree, not garbage.
    options.compaction.max_space_amplification = Some(1.5);
    options
}

/// As [`scaled`], but garbage goes by its age alone.
fn by_age() -> Options {
    let mut options = scaled();
    options.gc.max_garbage_bytes = Some(1 << 40);
    options
}

/// The content of a store: every object, and the sent parts of unfinished uploads.
#[derive(Debug, Default)]
struct Weight {
    objects: BTreeMap<ObjectName, u64>,
    /// Including parts in flight.
    staged: u64,
    most: u64,
    /// Objects and bytes of each class, at their maximum.
    at_most: BTreeMap<GcClass, (usize, u64)>,
    /// Maximum number of bytes; none: no limit.
    room: Option<u64>,
    /// Further bytes for the small objects of a collector, as a writer keeps them in a folder.
    reserve: u64,
    refused: u64,
}

impl Weight {
    fn now(&self) -> u64 {
        self.objects.values().sum::<u64>() + self.staged
    }

    /// Without manifests and records, which do not become smaller with the tables.
    fn scaled(&self) -> u64 {
        let classes = self.classes();
        let of = |class| classes.get(&class).map_or(0, |(_, bytes)| *bytes);
        of(GcClass::Wal) + of(GcClass::Tables) + self.staged
    }

    fn classes(&self) -> BTreeMap<GcClass, (usize, u64)> {
        let mut classes = BTreeMap::new();
        for (name, bytes) in &self.objects {
            let class: &mut (usize, u64) = classes.entry(GcClass::of(*name)).or_default();
            *class = (class.0 + 1, class.1 + bytes);
        }
        classes
    }

    /// Checks that there is room for this many more bytes.
    fn takes(&mut self, name: ObjectName, bytes: u64) -> Result<()> {
        let is_small = matches!(
            name,
            ObjectName::ManifestBoundary(_)
                | ObjectName::WalBoundary(_)
                | ObjectName::CompactionsBoundary(_)
                | ObjectName::ProbeScratch(_)
        );
        let reserve = if is_small { self.reserve } else { 0 };
        if self.room.is_some_and(|room| self.now() + bytes > room + reserve) {
            self.refused += 1;
            let full = io::Error::from(io::ErrorKind::StorageFull);
            return Err(Error::unavailable("no space left on the file system").caused_by(full));
        }
        self.staged += bytes;
        let now = self.scaled();
        if now > self.most {
            (self.most, self.at_most) = (now, self.classes());
        }
        Ok(())
    }
}

/// A store that measures its content, and has limited room.
#[derive(Debug)]
struct Weighed {
    store: Arc<dyn Store>,
    weight: Arc<Mutex<Weight>>,
}

fn weighed(env: Env, weight: &Arc<Mutex<Weight>>) -> Env {
    let store = Weighed { store: Arc::clone(&env.store), weight: Arc::clone(weight) };
    Env { store: Arc::new(store), ..env }
}

impl Store for Weighed {
    passed_on!(store: get, list);

    fn put_if_absent(&self, name: ObjectName, bytes: Bytes) -> BoxFuture<'_, PutAnswer> {
        async move {
            let length = bytes.len() as u64;
            if let Err(full) = self.weight.lock().takes(name, length) {
                return PutAnswer::Refused(full);
            }
            let answer = self.store.put_if_absent(name, bytes).await;
            let mut weight = self.weight.lock();
            weight.staged -= length;
            if matches!(answer, PutAnswer::Created) {
                weight.objects.insert(name, length);
            }
            answer
        }
        .boxed()
    }

    fn upload(&self, name: ObjectName) -> BoxFuture<'_, Result<Box<dyn Upload>>> {
        async move {
            let (upload, weight) = (self.store.upload(name).await?, Arc::clone(&self.weight));
            let upload: Box<dyn Upload> =
                Box::new(WeighedUpload { upload: Some(upload), weight, name, sent: 0 });
            Ok(upload)
        }
        .boxed()
    }

    fn delete(&self, name: ObjectName) -> BoxFuture<'_, Result<()>> {
        async move {
            self.store.delete(name).await?;
            self.weight.lock().objects.remove(&name);
            Ok(())
        }
        .boxed()
    }
}

struct WeighedUpload {
    upload: Option<Box<dyn Upload>>,
    weight: Arc<Mutex<Weight>>,
    name: ObjectName,
    sent: u64,
}

/// An upload that is dropped, failed or aborted leaves nothing, as in a local folder.
impl Drop for WeighedUpload {
    fn drop(&mut self) {
        self.weight.lock().staged -= self.sent;
    }
}

impl Upload for WeighedUpload {
    fn write(&mut self, chunk: Bytes) -> BoxFuture<'_, Result<()>> {
        async move {
            let bytes = chunk.len() as u64;
            self.weight.lock().takes(self.name, bytes)?;
            self.sent += bytes;
            self.upload.as_mut().expect("an upload under way").write(chunk).await
        }
        .boxed()
    }

    fn finish(mut self: Box<Self>) -> BoxFuture<'static, Result<()>> {
        async move {
            self.upload.take().expect("an upload under way").finish().await?;
            self.weight.lock().objects.insert(self.name, self.sent);
            Ok(())
        }
        .boxed()
    }

    fn abort(mut self: Box<Self>) -> BoxFuture<'static, Result<()>> {
        async move { self.upload.take().expect("an upload under way").abort().await }.boxed()
    }
}

struct World {
    sim: Sim,
    bucket: Arc<Bucket>,
    weight: Arc<Mutex<Weight>>,
}

impl World {
    fn new() -> World {
        let sim = Sim::new(1);
        let bucket = Bucket::new(&sim, FaultPlan::none());
        World { sim, bucket, weight: Arc::default() }
    }

    /// Runs `work` in a separate process, over the measured store, to its end.
    fn run<T: Send + 'static, F: Future<Output = Result<T>> + Send + 'static>(
        &self,
        work: impl FnOnce(Env) -> F,
    ) -> Result<T> {
        let process = self.sim.process("process", 0);
        let env = weighed(self.sim.env(process, self.bucket.store(process)), &self.weight);
        self.sim.block_on(process, work(env)).expect("it ends")
    }

    /// One round without a grace period.
    fn collect(&self) -> Result<GcReport> {
        self.run(|env| async move { siltstone::gc::once(&env, &AT_ONCE, false).await })
    }

    fn weight(&self) -> u64 {
        self.weight.lock().now()
    }

    /// Writes some rows. After that the store has no room.
    fn fill_up(&self) {
        self.run(|env| async move {
            let db = open(&env, Options { embedded_gc: false, ..scaled() }).await?;
            overwrite(&db, &env, 0, 500).await?;
            db.close().await
        })
        .expect("a healthy store");
        self.weight.lock().room = Some(self.weight());
    }

    fn check(&self) {
        let report = self.run(|env| async move {
            verify(&env, Duration::from_secs(30), &Progress::default()).await
        });
        let report = report.expect("a healthy store");
        assert_eq!(report.problem_count, 0, "{:?}", report.problems);
    }
}

async fn open(env: &Env, options: Options) -> Result<Database> {
    Database::open(env.clone(), OpenOptions { options, ..OpenOptions::default() }).await
}

fn key(n: u64) -> Vec<u8> {
    format!("key{n:09}").into_bytes()
}

/// The value of round `round` under key `n`: incompressible.
fn value(round: u64, n: u64) -> Vec<u8> {
    let mut state = round << 32 | n | 1 << 63;
    let step = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    std::iter::repeat_with(step).take(VALUE).collect()
}

/// Writes all of `rows`, as fast as the database accepts them.
async fn overwrite(db: &Database, env: &Env, round: u64, rows: u64) -> Result<()> {
    let mut last = None;
    for n in 0..rows {
        let mut batch = Batch::new();
        batch.put(&key(n), &value(round, n), None)?;
        loop {
            match db.write(&batch)? {
                Accept::Accepted(commit) => {
                    last = Some(commit);
                    break;
                }
                Accept::Pressure(relief) => relief.await?,
            }
        }
        if n % 16 == 0 {
            // 320 KB/s, scaled: requests take some milliseconds even for small objects.
            env.clock.sleep(Duration::from_millis(50)).await;
        }
    }
    match last {
        Some(commit) => commit.wait(None).await,
        None => Ok(()),
    }
}

/// Unneeded bytes of tables and of the WAL.
fn garbage(bucket: &Bucket) -> u64 {
    let objects = bucket.objects();
    let garbage = difference(&objects).expect("sound objects").garbage;
    let bytes: BTreeMap<ObjectName, usize> =
        objects.iter().map(|(name, bytes)| (*name, bytes.len())).collect();
    let counts = |name: &&ObjectName| matches!(GcClass::of(**name), GcClass::Wal | GcClass::Tables);
    let garbage = garbage.iter().filter(counts).filter_map(|name| bytes.get(name));
    garbage.sum::<usize>() as u64
}

/// The interval at which garbage is sampled.
const SAMPLE: Duration = Duration::from_millis(50);

/// The samples of garbage.
#[derive(Clone, Copy, Debug, Default)]
struct Garbage {
    /// The maximum.
    most: u64,
    /// Number of consecutive samples with more than half a MiB, and its maximum.
    over: u32,
    longest: u32,
}

/// The garbage during `rounds` overwrites of `live` bytes.
fn garbage_of(options: Options, live: u64, rounds: u64) -> (World, Garbage) {
    let world = World::new();
    let most: Arc<Mutex<Garbage>> = Arc::default();
    let (sampler, bucket, told) =
        (world.sim.process("sampler", 0), Arc::clone(&world.bucket), Arc::clone(&most));
    let env = world.sim.env(sampler, world.bucket.store(sampler));
    world.sim.spawn(sampler, "sample", async move {
        loop {
            env.clock.sleep(SAMPLE).await;
            let now = garbage(&bucket);
            let mut seen = told.lock();
            seen.most = seen.most.max(now);
            seen.over = if now > MIB / 2 { seen.over + 1 } else { 0 };
            seen.longest = seen.longest.max(seen.over);
        }
    });
    let work = world.run(|env| async move {
        let db = open(&env, options).await?;
        for round in 0..rounds {
            overwrite(&db, &env, round, live / VALUE as u64).await?;
        }
        std::mem::forget(db);
        Ok(())
    });
    work.expect("a healthy store");
    world.sim.kill(sampler);
    println!("at most {:?}", world.weight.lock().at_most);
    let most = *most.lock();
    (world, most)
}

/// Twenty overwrites within the grace period. A compaction supersedes all of its inputs at one
/// moment; apart from that there is never more garbage than permitted plus the bytes written during
/// a round, scaled half a GiB. By age alone nothing of it would have been deleted.
#[test]
fn garbage_is_bounded_by_bytes_at_every_moment() {
    let (live, rounds) = (MIB, 20);
    let (world, seen) = garbage_of(scaled(), live, rounds);
    println!("{seen:?}, of {live} bytes alive");
    // A merge into the last run has at most one and a half of its size, plus newer data.
    assert!(seen.most < 2 * live + MIB / 2, "{seen:?}");
    println!("more than half a MiB for {:?} at most", SAMPLE * seen.longest);
    world.check();
    let (_, unbounded) = garbage_of(by_age(), live, rounds);
    println!("{unbounded:?} by age alone");
    assert!(unbounded.most > 20 * live, "{unbounded:?}");
}

/// Options unscaled: six overwrites, then a check of the folder as by a user.
#[test]
fn compact_and_close_leave_what_is_alive() {
    let live = 8 * MIB;
    let options =
        || Options { l0_sst_size_bytes: 2 << 20, flush_bytes: 1 << 20, ..Options::default() };
    let world = World::new();
    let weight = Arc::clone(&world.weight);
    let sizes = world
        .run(|env| async move {
            let db = open(&env, options()).await?;
            for round in 0..6 {
                overwrite(&db, &env, round, live / VALUE as u64).await?;
            }
            let before = weight.lock().now();
            db.compact().await?;
            let compacted = weight.lock().now();
            overwrite(&db, &env, 6, live / VALUE as u64).await?;
            db.close().await?;
            Ok((before, compacted))
        })
        .expect("a healthy store");
    println!("{sizes:?} and {} bytes", world.weight());
    assert!(sizes.0 > 6 * live, "{sizes:?}");
    assert!(sizes.1 < live + live / 2, "{sizes:?}");
    // Besides the run there are later writes, in L0.
    assert!(world.weight() < 2 * live + live / 2, "{} bytes", world.weight());
    world.check();
}

/// A program that repeatedly opens, writes a little and closes leaves no pile of objects: a round
/// runs after a number of new manifests, of any process.
#[test]
fn short_lives_leave_no_heap() {
    let world = World::new();
    for round in 0..60 {
        let mut age = scaled();
        age.gc.min_age = Duration::ZERO;
        let life = world.run(|env| async move {
            let db = open(&env, age).await?;
            overwrite(&db, &env, round, 10).await?;
            db.close().await
        });
        life.expect("a healthy store");
        let manifests = world.bucket.objects().into_iter();
        let manifests = manifests.filter(|(name, _)| matches!(name, ObjectName::Manifest(_)));
        assert!(manifests.count() < 100, "after {round} lives");
    }
}

/// An idle database makes no request, for any amount of garbage: garbage that stays for its age is
/// awaited once.
#[test]
fn a_bound_on_bytes_asks_nothing_of_an_idle_store() {
    let world = World::new();
    let (process, counted) = (world.sim.process("writer", 0), Arc::clone(&world.bucket));
    let env = weighed(world.sim.env(process, world.bucket.store(process)), &world.weight);
    let work = async move {
        let mut options = scaled();
        // There are no requests for ingest jobs, for which it would look.
        options.writes.ingest_poll_interval = None;
        let db = open(&env, options).await?;
        for round in 0..4 {
            overwrite(&db, &env, round, 1000).await?;
        }
        let mut asked = Vec::new();
        for _ in 0..4 {
            let before = counted.operations(process);
            env.clock.sleep(Duration::from_secs(600)).await;
            asked.push(counted.operations(process) - before);
        }
        std::mem::forget(db);
        Ok::<_, Error>(asked)
    };
    let asked = world.sim.block_on(process, work).expect("it ends").expect("a healthy store");
    println!("requests in each ten minutes of rest: {asked:?}");
    assert!(asked.iter().skip(2).all(|asked| *asked == 0), "{asked:?}");
}

/// Not a byte is free: unreferenced objects are deleted without a write, and then there is room for
/// the boundaries that free the rest.
#[test]
fn a_round_frees_a_full_store() {
    let world = World::new();
    world
        .run(|env| async move {
            let db = open(&env, Options { embedded_gc: false, ..scaled() }).await?;
            for round in 0..4 {
                overwrite(&db, &env, round, 500).await?;
            }
            db.compact().await?;
            db.close().await?;
            // Uploaded by a compactor that was replaced before it could commit.
            let mut upload = env.store.upload(ObjectName::Compacted(SstId(7))).await?;
            upload.write(Bytes::from(vec![7; 4096])).await?;
            upload.finish().await
        })
        .expect("a healthy store");
    let full = world.weight();
    world.weight.lock().room = Some(full);
    let report = world.collect().expect("it needs no room at first");
    assert!(world.weight.lock().refused > 0 && report.trouble.is_none(), "{report:?}");
    let deleted = |class| report.classes.get(&class).map_or(0, |class| class.deleted);
    assert!(deleted(GcClass::Wal) > 10 && deleted(GcClass::Manifests) > 3, "{report:?}");
    assert!(world.weight() < full / 2, "{} of {full} bytes", world.weight());
    assert_eq!(difference(&world.bucket.objects()).expect("sound objects").garbage, vec![]);
    world.check();
}

/// If every delete waits for a boundary, and there is no room for one, a round ends immediately
/// with the store's error.
#[test]
fn a_round_that_can_free_nothing_says_why() {
    let world = World::new();
    world.fill_up();
    let before = world.sim.elapsed();
    let error = world.collect().expect_err("no room");
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.to_string().contains("no space left"), "{error}");
    assert!(world.sim.elapsed() - before < Duration::from_secs(10), "it waits");
    world.check();
}

/// A full store: readers read without a lease at once, and calls that must write name the reason.
#[test]
fn a_full_store_is_read_and_named() {
    let world = World::new();
    world.fill_up();
    let before = world.sim.elapsed();
    let row = world.run(|env| async move {
        let reader = Reader::open(env.clone(), ReaderOptions::default()).await?;
        let row = reader.get(&key(7))?.wait().await?;
        reader.refresh().await?;
        reader.close().await?;
        Ok(row)
    });
    assert_eq!(row.expect("a row").expect("a row").as_ref(), value(0, 7));
    assert!(world.sim.elapsed() - before < Duration::from_secs(5), "it waits");
    let limit = Duration::from_secs(30);
    let refusals = world.run(move |env| async move {
        Ok([
            create_checkpoint(&env, &CheckpointOptions::default(), limit).await.map(drop),
            IngestJob::begin(&env, Duration::from_secs(60), None, limit).await.map(drop),
            destroy(&env, true, limit).await,
        ])
    });
    for refused in refusals.expect("it ends") {
        let error = refused.expect_err("no room");
        assert!(error.to_string().contains("no space left"), "{error}");
    }
    world.check();
}

/// A disk of a few times the live data: with the default grace period it is full within a minute,
/// and then garbage is deleted at any age. Nothing acknowledged is lost, and writing continues.
#[test]
fn a_full_store_is_freed_of_what_is_young() {
    // With four blocks for boundaries, as a writer keeps them in a folder. In another store without
    // room for a boundary, only a larger store helps.
    for spare in [1_000, 3_333, 50_001] {
        let (live, rounds) = (MIB, 20);
        let world = World::new();
        world.weight.lock().room = Some(6 * live + spare);
        world.weight.lock().reserve = 4 * 4096;
        let rows = live / VALUE as u64;
        world
            .run(move |env| async move {
                let db = open(&env, by_age()).await?;
                for round in 0..rounds {
                    overwrite(&db, &env, round, rows).await?;
                }
                for n in (0..rows).step_by(37) {
                    let found = db.get(&key(n))?.wait().await?;
                    assert_eq!(found.expect("a row").as_ref(), value(rounds - 1, n), "{n}");
                }
                std::mem::forget(db);
                Ok(())
            })
            .expect("it goes on");
        let refused = world.weight.lock().refused;
        println!("{refused} requests found no room");
        assert!(refused > 0);
        world.check();
    }
}
