//! Exactly one of several racing creates of one name wins, and the object has its bytes.

use crate::conformance::{BUCKET, over_moto, runtime};
use bytes::Bytes;
use futures::future::join_all;
use siltstone::store::local::LocalStore;
use siltstone::store::memory::MemoryStore;
use siltstone::store::{PutAnswer, Store};
use siltstone_base::{ObjectName, WalId};
use siltstone_tests::faults::{Bucket, FaultPlan};
use siltstone_tests::moto::Moto;
use siltstone_tests::sim::Sim;
use std::sync::{Arc, Barrier};
use tokio::runtime::Handle;

const RACERS: usize = 8;

fn body(racer: usize, round: u64) -> Bytes {
    Bytes::from(format!("racer {racer} of round {round}"))
}

/// Threads that start together, each with its own view of the same objects.
#[allow(clippy::disallowed_methods, reason = "a race needs threads")]
fn race(handle: &Handle, rounds: u64, stores: &[Arc<dyn Store>]) {
    for round in 1..=rounds {
        let name = ObjectName::Wal(WalId(round));
        let start = Barrier::new(stores.len());
        let answers: Vec<PutAnswer> = std::thread::scope(|scope| {
            let racers: Vec<_> = stores
                .iter()
                .enumerate()
                .map(|(racer, store)| {
                    let start = &start;
                    scope.spawn(move || {
                        start.wait();
                        handle.block_on(store.put_if_absent(name, body(racer, round)))
                    })
                })
                .collect();
            racers.into_iter().map(|racer| racer.join().unwrap()).collect()
        });
        let winners: Vec<usize> = (0..answers.len())
            .filter(|racer| matches!(answers[*racer], PutAnswer::Created))
            .collect();
        assert_eq!(winners.len(), 1, "round {round}: {answers:?}");
        let losers = answers.iter().filter(|answer| matches!(answer, PutAnswer::Exists)).count();
        assert_eq!(losers, stores.len() - 1, "round {round}: {answers:?}");
        for store in stores {
            let found = handle.block_on(store.get(name, None)).unwrap();
            assert_eq!(found, Some(body(winners[0], round)));
        }
    }
}

#[test]
fn in_memory() {
    let (runtime, _) = runtime();
    let store: Arc<dyn Store> = MemoryStore::unnamed();
    race(runtime.handle(), 300, &vec![store; RACERS]);
}

#[test]
fn in_a_local_folder() {
    let (runtime, effects) = runtime();
    let folder = tempfile::tempdir().unwrap();
    // The folder does not exist yet: its creation is part of the race.
    let root = folder.path().join("db");
    let open = |_| -> Arc<dyn Store> { LocalStore::new(&root, effects.clone()).unwrap() };
    let stores: Vec<_> = (0..RACERS).map(open).collect();
    race(runtime.handle(), 100, &stores);
}

#[test]
fn in_s3() {
    let Some(moto) = Moto::start_or_skip(BUCKET) else { return };
    let (runtime, effects) = runtime();
    let stores: Vec<_> = (0..4).map(|_| over_moto(&moto, "race", &effects)).collect();
    race(runtime.handle(), 20, &stores);
}

#[test]
fn in_the_simulation() {
    for seed in 0..50 {
        let sim = Sim::new(seed);
        let bucket = Bucket::new(&sim, FaultPlan::none());
        let process = sim.process("racers", 0);
        let store = bucket.store(process);
        let name = ObjectName::Wal(WalId(1));
        let racers = async move {
            let creates = (0..RACERS).map(|racer| store.put_if_absent(name, body(racer, seed)));
            join_all(creates).await
        };
        let answers = sim.block_on(process, racers).unwrap();
        let won = answers.iter().filter(|answer| matches!(answer, PutAnswer::Created)).count();
        assert_eq!(won, 1, "seed {seed}");
    }
}
