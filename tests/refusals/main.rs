//! Refusals of a store, and how early and with which text they are reported (rule E4); the amount
//! of data per request, and its time limit.

#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test stops at what it did not expect"
)]

mod compactor;
mod conditions;
mod lengths;
mod log;
mod store;
mod tables;

use siltstone::{Accept, Codec, Database, Env, Error, ErrorKind, OpenOptions, Options, Result};
use siltstone_tests::sim::{ProcessId, Sim, SimHandle};
use std::sync::Arc;
use std::time::Duration;
use store::{Ask, Client, Refusal, Shaped};

const DEADLINE: Duration = Duration::from_secs(5);
/// The text of a store's error, which must be in the caller's error.
const WORDS: &str = "said the store";

/// Permanent kinds of refusal.
const FOR_GOOD: [ErrorKind; 5] = [
    ErrorKind::Invalid,
    ErrorKind::NotFound,
    ErrorKind::Unsupported,
    ErrorKind::Corruption,
    ErrorKind::Internal,
];

struct World {
    sim: SimHandle,
    process: ProcessId,
    store: Arc<Shaped>,
    env: Env,
}

/// Runs `story` in virtual time.
fn tell<F: Future<Output = ()> + Send + 'static>(story: impl FnOnce(Arc<World>) -> F) {
    let sim = Sim::new(5);
    let process = sim.process("process", 0);
    let store = Shaped::new(&sim);
    let env = sim.env(process, Arc::new(Client(Arc::clone(&store))));
    let world = Arc::new(World { sim: (*sim).clone(), process, store, env });
    sim.block_on(process, story(world)).expect("the story ends");
}

impl World {
    fn now(&self) -> Duration {
        self.sim.elapsed()
    }

    async fn open(&self, options: Options) -> Result<Database> {
        Database::open(self.env.clone(), OpenOptions { options, ..OpenOptions::default() }).await
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

    /// Refuses this operation, for names with this prefix, from now on.
    fn refuse(&self, asked: Ask, names: &'static str, refusal: Refusal) {
        self.store.refuse(move |ask, name| {
            (ask == asked && name.starts_with(names)).then(|| refusal.clone())
        });
    }
}

/// Options without compaction and collection: only the test sends requests.
fn options() -> Options {
    Options {
        deadline: DEADLINE,
        // Sizes follow from the rows.
        compression: Some(Codec::None),
        l0_manifest_commit_interval: Duration::ZERO,
        embedded_compactor: false,
        embedded_gc: false,
        ..Options::default()
    }
}

/// Options with which writes soon wait for a flush.
fn small() -> Options {
    Options { l0_sst_size_bytes: 16 << 10, max_memtable_bytes: 64 << 10, ..options() }
}

fn put(db: &Database, key: &str, value: &[u8]) -> Result<siltstone::Commit> {
    match db.put(key.as_bytes(), value, None)? {
        Accept::Accepted(commit) => Ok(commit),
        Accept::Pressure(_) => Err(Error::internal("pressure in a small test")),
    }
}

/// The store's error for a full disk.
fn full() -> Error {
    Error::unavailable(WORDS)
}

fn denied() -> Error {
    Error::new(ErrorKind::Denied, WORDS)
}

async fn get(db: &Database, key: &str) -> Option<Vec<u8>> {
    let found = db.get(key.as_bytes()).unwrap().wait().await.unwrap();
    found.map(|value| value.to_vec())
}
