//! Transactions and conditions: the reads, races, and the effect of a dropped call.

use crate::place::{Place, options};
use futures::future::{Either, join, select};
use siltstone::store::memory::MemoryStore;
use siltstone::{
    Accept, Condition, Database, Env, Error, ErrorKind, FillOutcome, Isolation, OpenOptions,
    Options, Result, Rows, ScanRange, Transaction, task,
};
use siltstone_tests::sim::ProcessId;
use std::pin::pin;
use std::thread;
use std::time::Duration;

struct Bank {
    place: Place,
    process: ProcessId,
    env: Env,
    db: Database,
}

impl Bank {
    /// Nothing of a table stays in memory: a reader asks the store, and others continue meanwhile.
    fn new() -> Bank {
        let place = Place::new(|plan| plan);
        let (process, env) = place.process();
        let options = Options {
            block_cache_bytes: 0,
            metadata_cache_bytes: 0,
            embedded_compactor: false,
            embedded_gc: false,
            ..options()
        };
        let how = OpenOptions { options, ..OpenOptions::default() };
        let db = place.run(process, Database::open(env.clone(), how)).expect("opens");
        Bank { place, process, env, db }
    }

    fn run<T: Send + 'static>(&self, work: impl Future<Output = Result<T>> + Send + 'static) -> T {
        self.place.run(self.process, work).expect("a healthy store")
    }

    fn put(&self, key: &str, value: &str) {
        assert!(matches!(
            self.db.put(key.as_bytes(), value.as_bytes(), None),
            Ok(Accept::Accepted(_))
        ));
    }

    fn flush(&self) {
        let db = self.db.clone();
        self.run(async move { db.flush_memtable().await });
    }

    fn get(&self, key: &str) -> Option<String> {
        let answer = self.db.get(key.as_bytes()).expect("open");
        let value = self.run(async move { answer.wait().await });
        value.map(|value| String::from_utf8_lossy(&value).into_owned())
    }

    fn count(&self, transaction: &Transaction, start: &str, end: &str) -> usize {
        let [start, end] = [start, end].map(|key| Some(key.as_bytes().to_vec()));
        let mut scan =
            transaction.scan(ScanRange { start, end, ..ScanRange::default() }).expect("open");
        self.run(async move {
            let mut rows = Rows::new();
            while scan.fill(&mut rows, 100, 1 << 20)? == FillOutcome::NeedsBlocks {
                scan.fetch().await?;
            }
            Ok(rows.len())
        })
    }
}

fn is_conflict<T>(answer: Result<T>) -> bool {
    match answer {
        Ok(_) => false,
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
            true
        }
    }
}

/// A peer's 29: a scan has read its gaps as well, and the tombstones in them, in tables and in the
/// memtable. A write into a gap is a conflict, and so is write skew between two that count.
#[test]
fn peer_29_a_scan_reads_its_gaps() {
    for flushed in [false, true] {
        let bank = Bank::new();
        for key in ["call/ada", "call/ben", "call/gone"] {
            bank.put(key, "on");
        }
        assert!(matches!(bank.db.delete(b"call/gone"), Ok(Accept::Accepted(_))));
        if flushed {
            bank.flush();
        }
        for comes in ["call/a", "call/bea", "call/gone", "call/zoe"] {
            let transaction = bank.db.transaction(Isolation::Serializable).expect("open");
            bank.count(&transaction, "call/", "call0");
            transaction.put(b"count", b"2", None).expect("open");
            assert!(matches!(bank.db.delete(comes.as_bytes()), Ok(Accept::Accepted(_))));
            assert!(is_conflict(transaction.commit()), "{comes} came, flushed: {flushed}");
        }
        // Two see each other on call, and go off call.
        let both = [(); 2].map(|()| bank.db.transaction(Isolation::Serializable).expect("open"));
        for (transaction, own) in both.iter().zip(["call/ada", "call/ben"]) {
            assert_eq!(bank.count(transaction, "call/", "call0"), 2);
            transaction.delete(own.as_bytes()).expect("open");
        }
        assert!(!is_conflict(both[0].commit()) && is_conflict(both[1].commit()));
    }
}

async fn changes(db: Database, to: &'static str) -> Result<()> {
    let changed = db.put_if(b"k", to.as_bytes(), None, Condition::Value(b"1".to_vec()))?;
    changed.wait().await.map(drop)
}

/// A peer's 30: a conditional change is dropped after this many milliseconds, at any point: it has
/// happened and was reported, or nothing has, and the next one finds its expected value. Among two
/// concurrent ones one learns that the other was faster.
#[test]
fn peer_30_a_dropped_change_has_happened_or_has_not() {
    let mut dropped = 0;
    for millis in 0..40 {
        let bank = Bank::new();
        bank.put("k", "1");
        bank.flush();
        let (db, clock) = (bank.db.clone(), bank.env.clock.clone());
        let first = bank.run(async move {
            let first = pin!(changes(db, "2"));
            match select(first, clock.sleep(Duration::from_millis(millis))).await {
                Either::Left((done, _)) => Ok(Some(done)),
                Either::Right(_) => Ok(None),
            }
        });
        dropped += u32::from(first.is_none());
        let happened = first.is_some();
        assert!(first.is_none_or(|done| done.is_ok()));
        let db = bank.db.clone();
        let second = bank.place.run(bank.process, changes(db, "3"));
        assert_eq!(is_conflict(second), happened, "after {millis} ms");
        assert_eq!(bank.get("k").as_deref(), Some(if happened { "2" } else { "3" }));
    }
    assert!((1..40).contains(&dropped), "{dropped} were dropped");

    for millis in 0..20 {
        let bank = Bank::new();
        bank.put("k", "1");
        bank.flush();
        let (one, two, clock) = (bank.db.clone(), bank.db.clone(), bank.env.clock.clone());
        let late = async move {
            clock.sleep(Duration::from_millis(millis)).await;
            changes(two, "3").await
        };
        let ended = bank.run(async move { Ok(join(changes(one, "2"), late).await) });
        let (first, second) = (is_conflict(ended.0), is_conflict(ended.1));
        assert_ne!(first, second, "one of both, {millis} ms apart");
        assert_eq!(bank.get("k").as_deref(), Some(if second { "2" } else { "3" }));
    }
}

/// A peer's 31: the number with which a transaction begins is taken, and published, in one step:
/// commits beside it are seen, or conflict. Threads increment one counter.
#[test]
fn peer_31_a_commit_while_a_transaction_begins_is_not_missed() {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let env = task::tokio_env(runtime.handle().clone(), MemoryStore::unnamed());
    let db = runtime.block_on(Database::open(env, OpenOptions::default())).unwrap();
    let threads: Vec<_> = (0..4)
        .map(|_| {
            let db = db.clone();
            thread::spawn(move || (0..20_000).filter(|_| counts_up(&db).is_ok()).count())
        })
        .collect();
    let counted: usize = threads.into_iter().map(|one| one.join().unwrap()).sum();
    let answer = db.get(b"counter").unwrap();
    let value = runtime.block_on(answer.wait()).unwrap().expect("it was counted");
    assert_eq!(value.as_ref(), counted.to_string().as_bytes());
    runtime.block_on(db.close()).unwrap();
}

/// Once, unless another process was faster; without a wait, because all of it is in memory.
fn counts_up(db: &Database) -> Result<(), Error> {
    let transaction = db.transaction(Isolation::Serializable)?;
    let siltstone::Answer::Ready(value) = transaction.get(b"counter")? else {
        return Err(Error::internal("it is in memory"));
    };
    let count = value.map_or(0, |value| std::str::from_utf8(&value).unwrap().parse().unwrap());
    let next: u64 = count;
    transaction.put(b"counter", (next + 1).to_string().as_bytes(), None)?;
    match transaction.commit()? {
        Some(Accept::Accepted(_)) => Ok(()),
        _ => Err(Error::internal("no room for a counter")),
    }
}
