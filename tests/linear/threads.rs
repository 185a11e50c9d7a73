//! Threads of one process on one handle, while its memtables are flushed and its tables merged.

use crate::checker::{History, Op, Ret};
use crate::{condition, draw, number_in, options, seen_in, setting, stored};
use siltstone::store::memory::MemoryStore;
use siltstone::{Accept, Answer, Commit, Database, Error, ErrorKind, OpenOptions, Result, task};
use siltstone_tests::sim::Rng;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use tokio::runtime::{Builder, Runtime};

const THREADS: u64 = 4;
/// Operations of a thread on one key: the checker's work grows steeply with their number.
const EACH: u64 = 12;

fn accepted(runtime: &Runtime, mut write: impl FnMut() -> Result<Accept>) {
    while let Accept::Pressure(room) = write().unwrap() {
        runtime.block_on(room).unwrap();
    }
}

fn answered<T>(runtime: &Runtime, answer: Result<Answer<T>>) -> Result<T> {
    match answer? {
        Answer::Ready(value) => Ok(value),
        Answer::Pending(future) => runtime.block_on(future),
    }
}

fn judged(answer: Result<Commit, Error>) -> Ret {
    match answer {
        Ok(_) => Ret::Done,
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
            Ret::Conflict
        }
    }
}

fn carried_out(runtime: &Runtime, db: &Database, key: &[u8], op: &Op) -> Ret {
    match op {
        Op::Get => {
            let value = answered(runtime, db.get(key)).unwrap();
            Ret::Value(value.map(|value| number_in(&value)))
        }
        Op::Put(value) => {
            accepted(runtime, || db.put(key, &stored(*value), None));
            Ret::Done
        }
        Op::Delete => {
            accepted(runtime, || db.delete(key));
            Ret::Done
        }
        Op::PutIfAbsent(value) => {
            judged(answered(runtime, db.put_if(key, &stored(*value), None, condition(None))))
        }
        Op::PutIf(expected, value) => {
            let answer = db.put_if(key, &stored(*value), None, condition(*expected));
            judged(answered(runtime, answer))
        }
        Op::DeleteIf(expected) => {
            judged(answered(runtime, db.delete_if(key, condition(*expected))))
        }
    }
}

/// `LINEAR_KEYS` (default 400) sets the number of keys, each with a separate history.
#[test]
fn every_key_of_a_handle_is_linearizable() {
    let runtime =
        Arc::new(Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap());
    let env = task::tokio_env(runtime.handle().clone(), MemoryStore::unnamed());
    let how = OpenOptions { options: options(), ..OpenOptions::default() };
    let db = runtime.block_on(Database::open(env, how)).unwrap();
    let (mut operations, mut conflicts) = (0, 0);
    for round in 0..setting("LINEAR_KEYS", 400).div_ceil(4) {
        let histories: Vec<History> = (0..4).map(|_| History::default()).collect();
        let next = Arc::new(AtomicU64::new(1));
        let threads: Vec<_> = (0..THREADS)
            .map(|number| {
                let (runtime, db) = (Arc::clone(&runtime), db.clone());
                let (histories, next) = (histories.clone(), Arc::clone(&next));
                thread::spawn(move || {
                    let mut rng = Rng::new(round * THREADS + number);
                    let (mut seen, mut conflicts) = ([None; 4], 0);
                    for _ in 0..EACH * 4 {
                        let which = rng.below(4) as usize;
                        let key = format!("key{round:04}/{which}");
                        let fresh = || next.fetch_add(1, Ordering::Relaxed);
                        let op = draw(&mut rng, seen[which], fresh);
                        let noted = histories[which].invoked(op.clone());
                        let ret = carried_out(&runtime, &db, key.as_bytes(), &op);
                        histories[which].returned(noted, ret.clone());
                        conflicts += u64::from(ret == Ret::Conflict);
                        seen[which] = seen_in(&op, &ret, seen[which]);
                    }
                    conflicts
                })
            })
            .collect();
        conflicts += threads.into_iter().map(|one| one.join().unwrap()).sum::<u64>();
        for (which, history) in histories.iter().enumerate() {
            operations += history.counts().0;
            assert!(history.is_linearizable(), "key {round}/{which}:\n{}", history.text());
        }
    }
    let compacted = db.stats().compactions;
    println!(
        "{operations} operations, {conflicts} conditions that failed, {compacted} compactions"
    );
    assert!(conflicts > 0);
    runtime.block_on(db.close()).unwrap();
}
