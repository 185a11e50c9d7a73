//! Writes that are slowed, stopped and woken, in virtual time (RFC 0022).

#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a test reports, and stops at what it did not expect"
)]

mod lines;
mod stopped;
mod sustained;

use siltstone::store::counting::Requests;
use siltstone::store::memory::MemoryStore;
use siltstone::{Accept, Batch, Codec, Database, Env, OpenOptions, Options, Result};
use siltstone_tests::latency::{Latencies, slow};
use siltstone_tests::sim::{ProcessId, Sim, SimHandle};
use std::sync::Arc;
use std::time::Duration;

const DEADLINE: Duration = Duration::from_secs(5);

/// Small tables and low limits: L0 is compacted beyond two layers, and full at four.
fn options() -> Options {
    let mut options = Options {
        l0_sst_size_bytes: 64 << 10,
        // Sizes follow from the rows.
        compression: Some(Codec::None),
        max_memtable_bytes: 256 << 10,
        l0_manifest_commit_interval: Duration::ZERO,
        deadline: DEADLINE,
        ..Options::default()
    };
    options.compaction.l0_compaction_threshold_ssts = 2;
    options.compaction.l0_max_ssts = 4;
    options
}

/// Options without a compactor.
fn alone() -> Options {
    Options { embedded_compactor: false, ..options() }
}

/// Two processes on one store.
struct World {
    sim: SimHandle,
    process: ProcessId,
    env: Env,
    /// The environment of another process.
    other: Env,
    requests: Arc<Requests>,
}

fn tell<F: Future<Output = ()> + Send + 'static>(story: impl FnOnce(Arc<World>) -> F) {
    let sim = Sim::new(3);
    let (process, second) = (sim.process("writer", 0), sim.process("other", 0));
    let store = MemoryStore::unnamed();
    let client = |process| {
        let clock = Arc::clone(&sim.effects(process).clock);
        let store = Arc::<MemoryStore>::clone(&store);
        let (store, requests) = slow(store, clock, Latencies::standard(), 5);
        (sim.env(process, store), requests)
    };
    let ((env, requests), (other, _)) = (client(process), client(second));
    let world = World { sim: (*sim).clone(), process, env, other, requests };
    let story = story(Arc::new(world));
    sim.block_on(process, story).expect("the story ends");
}

impl World {
    async fn open(&self, options: Options) -> Database {
        open(&self.env, options).await
    }

    fn now(&self) -> Duration {
        self.env.clock.monotonic()
    }

    /// Starts work beside the test; its result is awaited.
    fn beside<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> impl Future<Output = T> {
        let (done, wait) = futures::channel::oneshot::channel();
        self.sim.spawn(self.process, "beside", async move {
            drop(done.send(work.await));
        });
        async move { wait.await.expect("it ends") }
    }
}

async fn open(env: &Env, options: Options) -> Database {
    let how = OpenOptions { options, ..OpenOptions::default() };
    Database::open(env.clone(), how).await.unwrap()
}

fn key(n: u64) -> [u8; 8] {
    // Mixed, so that every table spans the whole range.
    n.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes()
}

/// Ten rows of about 1,000 bytes.
fn batch(number: u64) -> Batch {
    let mut batch = Batch::new();
    for row in 0..10 {
        batch.put(&key(number * 10 + row), &[number as u8; 1000], None).unwrap();
    }
    batch
}

/// Writes until one is stopped; returns the number of accepted ones, and the wait of the stopped
/// one.
async fn until_stopped(
    world: &World,
    db: &Database,
    from: u64,
) -> (u64, futures::future::BoxFuture<'static, Result<()>>) {
    let mut stopped = db.stats().stopped_writes;
    for number in from..from + 10_000 {
        loop {
            assert!(db.stats().l0_entries <= 4, "L0 has more layers than l0_max_ssts");
            match db.write(&batch(number)).unwrap() {
                Accept::Accepted(_) => break,
                Accept::Pressure(room) => {
                    let stats = db.stats();
                    // Stopped, and not for memory, which a flush is about to free.
                    if stats.stopped_writes > stopped && stats.memtable_bytes < 256 << 10 {
                        return (number, room);
                    }
                    stopped = stats.stopped_writes;
                    room.await.unwrap();
                }
            }
        }
        world.env.clock.sleep(Duration::from_millis(1)).await;
    }
    panic!("nothing was stopped")
}

/// Checks that all rows of `batches` exist.
async fn check(db: &Database, batches: u64) {
    for number in 0..batches {
        for row in 0..10 {
            let value = db.get(&key(number * 10 + row)).unwrap().wait().await.unwrap();
            assert_eq!(value.as_deref(), Some(&[number as u8; 1000][..]), "batch {number}");
        }
    }
}
