//! Readers of old versions: a scan that is paused while everything is rewritten and collected
//! without a grace period returns exactly its snapshot, in the writer and in a reader (RFC 0017).

#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test reports, and stops at what it did not expect"
)]

mod by_hand;
mod carried;
mod fleet;
mod looking;
mod reader;
mod trouble;
mod writer;

use siltstone::store::counting::{RequestTotals, Requests};
use siltstone::store::memory::MemoryStore;
use siltstone::{
    Accept, Batch, Database, Env, Error, FillOutcome, OpenOptions, Options, Rows, Scan, Writes,
};
use siltstone_base::{CheckpointId, ObjectName, SstId, WalId, name::prefix};
use siltstone_manifest::{CheckpointOwner, Edit, Manifest, NewCheckpoint};
use siltstone_tests::latency::{Latencies, slow};
use siltstone_tests::sim::{ProcessId, Sim, SimHandle};
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
        // Nothing stays in memory: every read goes to the store.
        block_cache_bytes: 0,
        metadata_cache_bytes: 0,
        manifest_poll_interval: Some(POLL),
        // The tests compact and collect explicitly, and there are no looks for ingest jobs.
        embedded_gc: false,
        writes: Writes { ingest_poll_interval: None, ..Writes::default() },
        ..Options::default()
    }
}

/// A store in virtual time, and two processes on it.
struct World {
    sim: SimHandle,
    env: Env,
    requests: Arc<Requests>,
    /// The process of the readers; it can be paused.
    reading: ProcessId,
    reader_env: Env,
    reader_requests: Arc<Requests>,
}

fn tell<F: Future<Output = ()> + Send + 'static>(story: impl FnOnce(World) -> F) {
    let sim = Sim::new(7);
    let (process, reading) = (sim.process("all others", 0), sim.process("reader", 0));
    let store = MemoryStore::unnamed();
    let client = |process| {
        let clock = Arc::clone(&sim.effects(process).clock);
        let (store, requests) =
            slow(Arc::<MemoryStore>::clone(&store), clock, Latencies::fixed(), 5);
        (sim.env(process, store), requests)
    };
    let ((env, requests), (reader_env, reader_requests)) = (client(process), client(reading));
    let sim_handle = (*sim).clone();
    let world = World { sim: sim_handle, env, requests, reading, reader_env, reader_requests };
    let story = story(world);
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

    /// Owners of the present checkpoints.
    async fn owners(&self) -> Vec<CheckpointOwner> {
        self.manifest().await.checkpoints.iter().map(|one| one.owner).collect()
    }

    /// The last object of the log.
    async fn last_of_the_log(&self) -> Option<WalId> {
        let listed = self.env.store.list(prefix::WAL, None).await.unwrap();
        let ids = listed.into_iter().filter_map(|object| match object.name {
            ObjectName::Wal(id) => Some(id),
            _ => None,
        });
        ids.max()
    }

    /// The manifest knows the end of the log, and nothing pins it.
    async fn note_the_log(&self) {
        let id = CheckpointId(7_777);
        let wal_id_last_seen = self.last_of_the_log().await;
        let new = NewCheckpoint { id, wal_id_last_seen, ..NewCheckpoint::default() };
        for edit in [Edit::AddCheckpoint(new), Edit::RemoveCheckpoint { id }] {
            gc::commit(&self.env, edit, self.manifest().await).await.unwrap();
        }
    }

    /// Tables in the store that the newest manifest does not reference.
    async fn unnamed_tables(&self) -> BTreeSet<SstId> {
        let listed = self.env.store.list(prefix::COMPACTED, None).await.unwrap();
        let named: BTreeSet<SstId> = self.manifest().await.tables().map(|table| table.id).collect();
        let ids = listed.into_iter().filter_map(|object| match object.name {
            ObjectName::Compacted(id) => Some(id),
            _ => None,
        });
        ids.filter(|id| !named.contains(id)).collect()
    }

    /// Rewrites everything and collects without a grace period, twice.
    async fn rewrite(&self) {
        for _ in 0..2 {
            compact::everything(&self.env).await.unwrap();
            gc::round(&self.env).await.unwrap();
        }
    }

    async fn requests_of(&self, work: impl Future<Output = ()>) -> RequestTotals {
        counted(&self.requests, work).await
    }

    /// The requests of the process of the readers.
    async fn reader_requests_of(&self, work: impl Future<Output = ()>) -> RequestTotals {
        counted(&self.reader_requests, work).await
    }
}

async fn counted(requests: &Requests, work: impl Future<Output = ()>) -> RequestTotals {
    let before = requests.totals();
    work.await;
    let after = requests.totals();
    RequestTotals {
        gets: after.gets - before.gets,
        puts: after.puts - before.puts,
        lists: after.lists - before.lists,
        ..RequestTotals::default()
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

/// Every row, in separate tables.
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

/// Deletes half of the rows.
async fn delete_half(db: &Database) {
    let mut batch = Batch::new();
    for n in (0..ROWS).filter(|n| n % 2 == 0) {
        batch.delete(&key(n)).unwrap();
    }
    write(db, &batch).await;
    db.flush_memtable().await.unwrap();
}

/// Writes for so long that the writer looks for a newer manifest, by a listing too: without a grace
/// period the next number is freed before it is probed.
async fn work(world: &World, db: &Database) {
    for n in 0..20 {
        let mut batch = Batch::new();
        batch.put(format!("zz{n}").as_bytes(), b"z", None).unwrap();
        write(db, &batch).await;
        world.pause(POLL).await;
    }
}

type Pairs = Vec<(Vec<u8>, Vec<u8>)>;

/// At most `most` more rows.
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
            FillOutcome::End => break,
            FillOutcome::Full => {}
            FillOutcome::NeedsBlocks => scan.fetch().await?,
        }
    }
    Ok(all)
}

fn expected(round: u64) -> Pairs {
    (0..ROWS).map(|n| (key(n), value(n, round))).collect()
}
