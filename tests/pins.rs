//! Who still reads what: a scan that is paused while everything is rewritten and collected with no
//! grace gives exactly its snapshot, in the writer and in a reader (RFC 0017).

#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test reports, and stops at what it did not expect"
)]

use siltstone::store::counting::{RequestTotals, Requests};
use siltstone::store::memory::MemoryStore;
use siltstone::{
    Accept, Batch, Database, Env, Error, ErrorKind, Fill, OpenOptions, Options, Rows, Scan,
    ScanRange,
};
use siltstone_base::{ObjectName, SstId, name::prefix};
use siltstone_manifest::{CheckpointOwner, Manifest};
use siltstone_tests::latency::{Latencies, slow};
use siltstone_tests::sim::Sim;
use siltstone_tests::{compact, gc};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

const ROWS: u64 = 400;
const LAYERS: u64 = 4;
const POLL: Duration = Duration::from_secs(1);

fn options() -> Options {
    Options {
        block_bytes: 256,
        // Nothing stays in memory: what is read is read from the store.
        block_cache_bytes: 0,
        metadata_cache_bytes: 0,
        manifest_poll_interval: POLL,
        ..Options::default()
    }
}

/// A store in virtual time.
struct World {
    env: Env,
    requests: Arc<Requests>,
}

fn tell<F: Future<Output = ()> + Send + 'static>(story: impl FnOnce(World) -> F) {
    let sim = Sim::new(7);
    let process = sim.process("all of them", 0);
    let clock = Arc::clone(&sim.effects(process).clock);
    let (store, requests) = slow(MemoryStore::unnamed(), clock, Latencies::fixed(), 5);
    let story = story(World { env: sim.env(process, store), requests });
    sim.block_on(process, story).expect("the story ends");
}

impl World {
    async fn open(&self) -> Database {
        let how = OpenOptions { options: options(), ..OpenOptions::default() };
        Database::open(self.env.clone(), how).await.unwrap()
    }

    async fn pause(&self, time: Duration) {
        self.env.clock.sleep(time).await;
    }

    async fn manifest(&self) -> Arc<Manifest> {
        gc::newest(&self.env).await.unwrap().unwrap()
    }

    /// Owners of the checkpoints that are present.
    async fn owners(&self) -> Vec<CheckpointOwner> {
        self.manifest().await.checkpoints.iter().map(|one| one.owner).collect()
    }

    /// Tables in the store that the newest manifest does not name.
    async fn unnamed_tables(&self) -> BTreeSet<SstId> {
        let listed = self.env.store.list(prefix::COMPACTED, None).await.unwrap();
        let named: BTreeSet<SstId> = self.manifest().await.tables().map(|table| table.id).collect();
        let ids = listed.into_iter().filter_map(|object| match object.name {
            ObjectName::Compacted(id) => Some(id),
            _ => None,
        });
        ids.filter(|id| !named.contains(id)).collect()
    }

    /// Rewrites everything and collects with no grace, twice over.
    async fn rewrite(&self) {
        for _ in 0..2 {
            compact::everything(&self.env).await.unwrap();
            gc::round(&self.env).await.unwrap();
        }
    }

    async fn requests_of(&self, work: impl Future<Output = ()>) -> RequestTotals {
        let before = self.requests.totals();
        work.await;
        let after = self.requests.totals();
        RequestTotals {
            gets: after.gets - before.gets,
            puts: after.puts - before.puts,
            lists: after.lists - before.lists,
            ..RequestTotals::default()
        }
    }
}

fn key(n: u64) -> Vec<u8> {
    format!("key{n:06}").into_bytes()
}

fn value(n: u64, round: u64) -> Vec<u8> {
    format!("{round}/{n}/{}", "v".repeat(40)).into_bytes()
}

async fn write(db: &Database, batch: &Batch) {
    match db.write(batch).unwrap() {
        Accept::Accepted(commit) => commit.wait(None).await.unwrap(),
        Accept::Pressure(_) => panic!("there is room"),
    }
}

/// Every row, in tables of their own.
async fn load(db: &Database, round: u64) {
    for layer in 0..LAYERS {
        let mut batch = Batch::new();
        for n in (0..ROWS).filter(|n| n % LAYERS == layer) {
            batch.put(&key(n), &value(n, round), None).unwrap();
        }
        write(db, &batch).await;
        db.flush_memtable().await.unwrap();
    }
}

/// Half of the rows go.
async fn delete_half(db: &Database) {
    let mut batch = Batch::new();
    for n in (0..ROWS).filter(|n| n % 2 == 0) {
        batch.delete(&key(n)).unwrap();
    }
    write(db, &batch).await;
    db.flush_memtable().await.unwrap();
}

/// Writes for so long that the writer looks for a newer manifest, by a listing too: with no grace
/// the next number is freed before it is looked for.
async fn work(world: &World, db: &Database) {
    for n in 0..20 {
        let mut batch = Batch::new();
        batch.put(format!("zz{n}").as_bytes(), b"z", None).unwrap();
        write(db, &batch).await;
        world.pause(POLL).await;
    }
}

type Pairs = Vec<(Vec<u8>, Vec<u8>)>;

/// At most `most` rows more.
async fn some(scan: &mut Scan, most: usize) -> Result<Pairs, Error> {
    let (mut rows, mut all) = (Rows::new(), Pairs::new());
    while all.len() < most {
        let filled = scan.fill(&mut rows, (most - all.len()).min(7), 1 << 10)?;
        all.extend(
            (0..rows.len())
                .filter_map(|n| rows.row(n).map(|(key, value)| (key.to_vec(), value.to_vec()))),
        );
        rows.clear();
        match filled {
            Fill::End => break,
            Fill::Full => {}
            Fill::NeedsBlocks => scan.fetch().await?,
        }
    }
    Ok(all)
}

fn expected(round: u64) -> Pairs {
    (0..ROWS).map(|n| (key(n), value(n, round))).collect()
}

#[test]
fn a_paused_scan_of_the_writer_gives_its_snapshot() {
    tell(async |world| {
        let db = world.open().await;
        load(&db, 0).await;
        let mut scan = db.scan(ScanRange::all()).unwrap();
        let snapshot = db.snapshot().unwrap();
        let mut rows = some(&mut scan, 10).await.unwrap();

        // Here the writer does not even hear of it.
        world.rewrite().await;
        load(&db, 1).await;
        world.rewrite().await;
        // Here it takes the new tables up, and lets go of them again.
        work(&world, &db).await;
        delete_half(&db).await;
        world.rewrite().await;
        work(&world, &db).await;

        rows.extend(some(&mut scan, usize::MAX).await.unwrap());
        assert_eq!(rows, expected(0));
        let mut again = snapshot.scan(ScanRange::all());
        assert_eq!(some(&mut again, usize::MAX).await.unwrap(), expected(0));
        let now = some(&mut db.scan(ScanRange::prefix(b"key")).unwrap(), usize::MAX).await;
        assert_eq!(now.unwrap().len() as u64, ROWS / 2);

        // Nobody reads the old versions any more: after a while they are garbage, by themselves.
        assert!(!world.unnamed_tables().await.is_empty());
        drop((scan, snapshot, again));
        world.pause(POLL * 3).await;
        gc::round(&world.env).await.unwrap();
        assert_eq!(world.unnamed_tables().await, BTreeSet::new());
        assert_eq!(world.owners().await.len(), 1);
        db.close().await.unwrap();
        assert_eq!(world.owners().await, vec![]);
    });
}

/// Puts, flushes, scans: what the checkpoint costs is nothing.
#[test]
fn a_flush_swaps_the_checkpoint_in_its_own_commit() {
    tell(async |world| {
        let opening = world.requests_of(async { drop(world.open().await) }).await;
        assert_eq!((opening.puts, opening.lists), (3, 5), "{opening:?}");
        let db = world.open().await;
        let mut scans = Vec::new();
        for round in 0..3 {
            let mut batch = Batch::new();
            batch.put(b"key", &value(0, round), None).unwrap();
            write(&db, &batch).await;
            let flush = async { db.flush_memtable().await.unwrap() };
            let flushing = world.requests_of(flush).await;
            // The table, the manifest, and the look behind it.
            assert_eq!((flushing.puts, flushing.lists), (2, 1), "{flushing:?}");
            scans.push(db.scan(ScanRange::all()).unwrap());
            let manifest = world.manifest().await;
            let [only] = manifest.checkpoints.as_slice() else { panic!("{manifest:?}") };
            assert_eq!(only.manifest_id, manifest.id);
            assert!(!only.pins_wal(only.replay_from));
        }
        drop(scans);
        let idle = world.requests_of(world.pause(Duration::from_secs(600))).await;
        assert_eq!(idle, RequestTotals::default());
    });
}

/// A compaction costs a writer that has heard of it and flushes nothing two commits: one takes the
/// new tables up, and one lets go of the old ones when nobody reads them any more.
#[test]
fn a_compaction_costs_an_idle_writer_two_commits() {
    tell(async |world| {
        let db = world.open().await;
        load(&db, 0).await;
        let scan = db.scan(ScanRange::all()).unwrap();
        compact::everything(&world.env).await.unwrap();
        let before = world.manifest().await.id;
        work(&world, &db).await;
        world.pause(POLL * 5).await;
        let manifest = world.manifest().await;
        assert_eq!(manifest.id, before.next());
        assert_eq!(manifest.checkpoints.len(), 2);
        drop(scan);
        world.pause(POLL * 5).await;
        let manifest = world.manifest().await;
        assert_eq!(manifest.id, before.plus(2));
        assert_eq!(manifest.checkpoints.len(), 1);
        let idle = world.requests_of(world.pause(Duration::from_secs(600))).await;
        assert_eq!(idle, RequestTotals::default());
    });
}

/// The floor never passes a snapshot, never what is flushed, and rises with the next commit.
#[test]
fn the_floor_is_the_oldest_snapshot() {
    tell(async |world| {
        let db = world.open().await;
        load(&db, 0).await;
        let snapshot = db.snapshot().unwrap();
        load(&db, 1).await;
        let manifest = world.manifest().await;
        assert_eq!(manifest.floor, snapshot.seq());
        assert!(manifest.flushed_seq > manifest.floor);
        drop(snapshot);
        load(&db, 2).await;
        let manifest = world.manifest().await;
        assert_eq!(manifest.floor, manifest.flushed_seq);
    });
}

/// A scan may outlive its handle. Its checkpoint does not: what it lacks then is told for what it
/// is, and not as damage.
#[test]
fn a_scan_of_an_ended_writer_says_why_its_tables_are_gone() {
    tell(async |world| {
        let db = world.open().await;
        load(&db, 0).await;
        let mut closed = db.scan(ScanRange::all()).unwrap();
        db.close().await.unwrap();
        world.rewrite().await;
        let error = some(&mut closed, usize::MAX).await.map(|rows| rows.len()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Expired, "{error}");

        let older = world.open().await;
        let mut overtaken = older.scan(ScanRange::all()).unwrap();
        let newer = world.open().await;
        load(&newer, 1).await;
        world.rewrite().await;
        // The newer one read the same tables; now it lets go of them.
        work(&world, &newer).await;
        world.pause(POLL * 5).await;
        gc::round(&world.env).await.unwrap();
        let error = some(&mut overtaken, usize::MAX).await.map(|rows| rows.len()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Fenced, "{error}");
    });
}

/// A compaction between claim and first read: the tree begins as what the claim pinned.
#[test]
fn a_new_writer_reads_what_its_claim_pins() {
    tell(async |world| {
        let db = world.open().await;
        load(&db, 0).await;
        drop(db);
        for _ in 0..3 {
            let opening = world.open();
            // Opening takes several round trips, the compaction as many: they interleave.
            let compacting = async {
                compact::everything(&world.env).await.unwrap();
            };
            let (db, ()) = futures::join!(opening, compacting);
            gc::round(&world.env).await.unwrap();
            let rows = some(&mut db.scan(ScanRange::all()).unwrap(), usize::MAX).await.unwrap();
            assert_eq!(rows, expected(0));
        }
    });
}
