//! Opening, following and feeds on a distant store, by a virtual clock: requests in flight, calls
//! that end by their deadline, and readers that end because of an error.

#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test reports, and stops at what it did not expect"
)]

mod deadlines;
mod ended;
mod readahead;

use siltstone::store::Store;
use siltstone::store::memory::MemoryStore;
use siltstone::{Accept, Database, Env, OpenOptions, Options, Reader, ReaderOptions};
use siltstone_base::ObjectName;
use siltstone_tests::latency::{Latencies, Latency, slow};
use siltstone_tests::recording::{Recorded, RecordingStore, Request};
use siltstone_tests::sim::{Sim, SimHandle};
use std::sync::Arc;
use std::time::Duration;

pub(crate) const LIMIT: Duration = Duration::from_secs(60);
pub(crate) const HOUR: Duration = Duration::from_secs(3600);

/// 25 ms per read, 28 ms per listing and create.
pub(crate) const FAR: Latencies =
    Latencies { list: Latency::fixed(Duration::from_millis(28)), ..Latencies::fixed() };

/// Options with requests only by calls.
pub(crate) fn quiet() -> Options {
    Options {
        flush_interval: Duration::from_millis(1),
        manifest_poll_interval: Some(Duration::from_secs(250)),
        embedded_compactor: false,
        embedded_gc: false,
        ..Options::default()
    }
}

/// A log of many objects, near and far away.
pub(crate) struct World {
    pub(crate) near: Env,
    pub(crate) far: Env,
    pub(crate) recorded: Arc<RecordingStore>,
}

/// The figures of calls on the distant store.
#[derive(Debug)]
pub(crate) struct Cost {
    pub(crate) took: Duration,
    pub(crate) gets: usize,
    pub(crate) lists: usize,
    /// Listings that return all of the log after a position.
    pub(crate) log_lists: usize,
    pub(crate) most_in_flight: usize,
}

impl World {
    pub(crate) async fn writer(&self, env: &Env) -> Database {
        let how = OpenOptions { options: quiet(), take_over: Some(true), ..OpenOptions::default() };
        Database::open(env.clone(), how).await.unwrap()
    }

    pub(crate) async fn reader(&self) -> Reader {
        let how = ReaderOptions { options: quiet(), ..ReaderOptions::default() };
        Reader::open(self.far.clone(), how).await.unwrap()
    }

    pub(crate) async fn put(&self, db: &Database, n: u64, bytes: usize) {
        let accepted = db.put(&n.to_be_bytes(), &vec![b'v'; bytes], None).unwrap();
        let Accept::Accepted(commit) = accepted else { panic!("there is room") };
        commit.wait(None).await.unwrap();
    }

    /// A writer that dies and leaves `objects` in its log.
    pub(crate) async fn crashed(&self, objects: u64, bytes: usize) {
        let db = self.writer(&self.near).await;
        for n in 0..objects {
            self.put(&db, n, bytes).await;
        }
    }

    pub(crate) async fn measured<T>(&self, work: impl Future<Output = T>) -> (T, Cost) {
        drop(self.recorded.take());
        let began = self.far.clock.monotonic();
        let done = work.await;
        let took = self.far.clock.monotonic() - began;
        let mut cost = Cost { took, gets: 0, lists: 0, log_lists: 0, most_in_flight: 0 };
        let mut in_flight = 0;
        for recorded in self.recorded.take() {
            match recorded {
                Recorded::Asked(Request::Get(ObjectName::Wal(_), _)) => {
                    in_flight += 1;
                    cost.gets += 1;
                }
                Recorded::Answered(Request::Get(ObjectName::Wal(_), _)) => in_flight -= 1,
                Recorded::Asked(Request::List(prefix, _)) => {
                    cost.lists += 1;
                    cost.log_lists += usize::from(prefix == "wal/");
                }
                _ => {}
            }
            cost.most_in_flight = cost.most_in_flight.max(in_flight);
        }
        (done, cost)
    }
}

pub(crate) fn tell<F: Future<Output = ()> + Send + 'static>(
    latencies: Latencies,
    story: impl FnOnce(Arc<World>, SimHandle) -> F,
) {
    let sim = Sim::new(11);
    let process = sim.process("reads", 0);
    let store = MemoryStore::unnamed();
    let near: Arc<dyn Store> = Arc::<MemoryStore>::clone(&store);
    let clock = Arc::clone(&sim.effects(process).clock);
    let (far, _) = slow(store, clock, latencies, 5);
    let recorded = RecordingStore::new(far);
    let far: Arc<dyn Store> = Arc::<RecordingStore>::clone(&recorded);
    let world = World { near: sim.env(process, near), far: sim.env(process, far), recorded };
    let story = story(Arc::new(world), (*sim).clone());
    sim.block_on(process, story).expect("the story ends");
}
