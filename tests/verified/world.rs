//! A parent and its clone, with one of everything.

pub(crate) use super::LIMIT;
use bytes::Bytes;
use siltstone::admin::{self, CloneParent};
use siltstone::changes::{self, ChangesFrom, ChangesOptions, Consumer};
use siltstone::ingest::{IngestJob, JOB_LIFETIME};
use siltstone::tables::{Duplicates, PartOptions, PushResult};
use siltstone::{
    Accept, Batch, CheckpointName, CheckpointOptions, CheckpointScope, CompactionOptions, Database,
    Env, Kind, OpenOptions, Options, ReadAt, Reader, ReaderOptions, Result, ScanRange, Writes,
};
use siltstone_base::ObjectName;
use siltstone_tests::faults::{FaultPlan, Places};
use siltstone_tests::gc::round;
use siltstone_tests::scans::{Pairs, all, rest};
use siltstone_tests::sim::Sim;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Objects by their names.
pub(crate) type Objects = BTreeMap<ObjectName, Bytes>;

pub(crate) const PARENT: &str = "parent";
pub(crate) const CLONE: &str = "clone";
/// A checkpoint of the parent, and one of the clone.
const KEPT: &str = "kept";

/// Small tables and blocks; a batch of 200 bytes skips the memtable.
pub(crate) fn options() -> Options {
    Options {
        flush_interval: Duration::from_millis(20),
        l0_sst_size_bytes: 4096,
        block_bytes: 256,
        l0_manifest_commit_interval: Duration::ZERO,
        manifest_poll_interval: Some(Duration::from_millis(50)),
        embedded_gc: false,
        deadline: LIMIT,
        writes: Writes { skip_memtable_bytes: Some(200), ..Writes::default() },
        compaction: CompactionOptions {
            target_sst_bytes: 600,
            min_move_bytes: 0,
            ..CompactionOptions::default()
        },
        ..Options::default()
    }
}

/// The same, for a writer that leaves everything in the log.
fn slow() -> Options {
    Options { l0_manifest_commit_interval: Duration::from_secs(3600), ..options() }
}

pub(crate) async fn open(env: &Env, options: Options) -> Result<Database> {
    let how =
        OpenOptions { options, take_over: Some(true), create: true, ..OpenOptions::default() };
    Database::open(env.clone(), how).await
}

fn key(n: u32) -> Vec<u8> {
    format!("key{n:03}").into_bytes()
}

pub(crate) async fn put(db: &Database, rows: std::ops::Range<u32>, value: &[u8]) -> Result<()> {
    for n in rows {
        match db.put(&key(n), value, None)? {
            Accept::Accepted(commit) => commit.wait(None).await?,
            Accept::Pressure(room) => room.await?,
        }
    }
    Ok(())
}

pub(crate) async fn ingest(
    env: &Env,
    db: &Database,
    rows: std::ops::Range<u32>,
    value: &[u8],
) -> Result<()> {
    let job = IngestJob::begin(env, JOB_LIFETIME, None, LIMIT).await?;
    let mut writer = job.writer(
        env,
        PartOptions {
            options: options(),
            duplicates: Duplicates::KeepLast,
            sort_memory_bytes: 1 << 20,
            scratch: std::env::temp_dir(),
            table_bytes: 200,
        },
    )?;
    for n in rows {
        assert_eq!(writer.push(Kind::Put, &key(n), value, None)?, PushResult::Room);
    }
    let part = writer.finish().await?;
    let request = job.commit(env, &[part], LIMIT).await?;
    db.ingest(&request).await?.wait(None).await
}

pub(crate) async fn large(db: &Database, rows: std::ops::Range<u32>, value: &[u8]) -> Result<()> {
    let mut batch = Batch::new();
    for n in rows {
        batch.put(&key(n), value, None)?;
    }
    let large = db.write_large(&batch)?.expect("it skips the memtable");
    large.await?.wait(None).await
}

async fn keep(db: &Database) -> Result<()> {
    let scope = CheckpointScope::Durable;
    let name = Some(KEPT.to_owned());
    db.checkpoint(&CheckpointOptions { scope, name, ..CheckpointOptions::default() })
        .await
        .map(drop)
}

/// The parent: tables in a run and in L0; a checkpoint whose log has rows, an ingest and a large
/// batch, all of which are in tables by now; a consumer that has not read them yet; and a log with
/// the same again, whose writer died.
async fn make_parent(env: Env) -> Result<()> {
    let db = open(&env, options()).await?;
    put(&db, 0..20, b"first").await?;
    db.flush_memtable().await?;
    db.compact().await?;
    put(&db, 15..25, b"second").await?;
    db.flush_memtable().await?;
    let consumer = Some(Consumer::new("index"));
    let how = ChangesOptions { since: ChangesFrom::Newest, consumer, until: None, before: None };
    drop(changes::changes(&env, how, LIMIT).await?);
    db.close().await?;
    let db = open(&env, slow()).await?;
    put(&db, 30..33, b"logged").await?;
    ingest(&env, &db, 40..44, b"brought").await?;
    large(&db, 50..80, b"large").await?;
    put(&db, 33..35, b"logged").await?;
    keep(&db).await?;
    std::mem::forget(db);
    let db = open(&env, options()).await?;
    db.flush_memtable().await?;
    db.compact().await?;
    db.close().await?;
    round(&env).await?;
    let db = open(&env, slow()).await?;
    put(&db, 0..3, b"third").await?;
    ingest(&env, &db, 10..14, b"brought again").await?;
    large(&db, 60..90, b"large again").await?;
    put(&db, 3..5, b"third").await?;
    std::mem::forget(db);
    Ok(())
}

/// The clone: its initial state, its own rows, a checkpoint.
async fn make_clone(env: Env, parent: Env) -> Result<()> {
    let of = CloneParent { env: parent, checkpoint: None, start: None, end: None };
    admin::clone(&env, &[of], &options()).await?;
    let db = open(&env, options()).await?;
    put(&db, 2..4, b"of the clone").await?;
    db.flush_memtable().await?;
    put(&db, 5..6, b"of the clone").await?;
    keep(&db).await?;
    put(&db, 6..7, b"of the clone").await?;
    db.close().await
}

/// Both databases, each with its objects.
#[derive(Clone, Default)]
pub(crate) struct Pair {
    pub(crate) parent: Objects,
    pub(crate) clone: Objects,
}

pub(crate) struct World {
    pub(crate) sim: Sim,
    places: Arc<Places>,
}

impl World {
    pub(crate) fn new(seed: u64) -> World {
        World { sim: Sim::new(seed), places: Arc::default() }
    }

    pub(crate) fn holding(pair: &Pair) -> World {
        let world = World::new(11);
        for (name, objects) in [(PARENT, &pair.parent), (CLONE, &pair.clone)] {
            let bucket = world.places.bucket(&world.sim, name, FaultPlan::none());
            objects.iter().for_each(|(name, bytes)| bucket.insert(*name, bytes.clone()));
        }
        world
    }

    /// Runs `work` in a separate process, which ends with it.
    pub(crate) fn run<T, W>(&self, work: impl FnOnce(Env, Env) -> W) -> Result<T>
    where
        T: Send + 'static,
        W: Future<Output = Result<T>> + Send + 'static,
    {
        let process = self.sim.process("a process", 0);
        let env = |name| {
            let bucket = self.places.bucket(&self.sim, name, FaultPlan::none());
            self.sim.env(process, bucket.store(process))
        };
        let done = self.sim.block_on(process, work(env(PARENT), env(CLONE)));
        self.sim.kill(process);
        done.expect("it ends")
    }

    pub(crate) fn objects(&self) -> Pair {
        let of = |name| {
            let bucket = self.places.bucket(&self.sim, name, FaultPlan::none());
            bucket.objects().into_iter().collect()
        };
        Pair { parent: of(PARENT), clone: of(CLONE) }
    }

    pub(crate) fn made() -> World {
        World::made_from_saved().0
    }

    /// The same, and the parent's state before the clone was made.
    pub(crate) fn made_from_saved() -> (World, Objects) {
        let world = World::new(3);
        world.run(|parent, _| make_parent(parent)).unwrap();
        let saved = world.objects().parent;
        world.run(|parent, clone| make_clone(clone, parent)).unwrap();
        let collected = |parent, clone| async move {
            round(&parent).await?;
            round(&clone).await
        };
        world.run(collected).unwrap();
        (world, saved)
    }
}

async fn read(env: Env, at: Option<&str>) -> Result<Pairs> {
    let options = Options { reader_lease: false, ..options() };
    let at = at.map(|name| ReadAt::Checkpoint(CheckpointName::Name(name.to_owned())));
    let how = ReaderOptions { options, at, ..ReaderOptions::default() };
    rest(Reader::open(env, how).await?.scan(ScanRange::all())?).await
}

async fn write(env: Env) -> Result<Pairs> {
    let db = open(&env, options()).await?;
    let found = all(&db).await?;
    // Reads objects now that a background task would otherwise read later.
    db.flush_memtable().await?;
    db.close().await?;
    Ok(found)
}

/// The keys and values that the consumer receives.
async fn consume(env: Env) -> Result<Pairs> {
    let consumer = Some(Consumer::new("index"));
    let how = ChangesOptions { since: ChangesFrom::Kept, consumer, until: None, before: None };
    let mut feed = changes::changes(&env, how, LIMIT).await?;
    let mut found = Pairs::new();
    while let Some(changed) = feed.read(100, 1 << 20).await? {
        let row = |at| Some((changed.keys.get(at)?.to_vec(), changed.values.get(at)?.to_vec()));
        found.extend((0..changed.len()).filter_map(row));
    }
    Ok(found)
}

/// All readers of the parent, then all readers of the clone: those that write are last.
pub(crate) fn look(world: &World) -> [Vec<(&'static str, Result<Pairs>)>; 2] {
    let parent = vec![
        ("a reader", world.run(|env, _| read(env, None))),
        ("a reader at a checkpoint", world.run(|env, _| read(env, Some(KEPT)))),
    ];
    let mut clone = vec![
        ("a reader", world.run(|_, env| read(env, None))),
        ("a reader at a checkpoint", world.run(|_, env| read(env, Some(KEPT)))),
    ];
    let mut parent = parent;
    parent.push(("a consumer", world.run(|env, _| consume(env))));
    parent.push(("a writer", world.run(|env, _| write(env))));
    clone.push(("a writer", world.run(|_, env| write(env))));
    [parent, clone]
}
