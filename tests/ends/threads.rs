//! Two threads that meet within one step of a task, which virtual time never interrupts. It takes
//! many rounds, because nothing forces them to meet.

use super::*;
use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use siltstone::store::passed_on;
use siltstone::store::{PutAnswer, Store};
use siltstone::{Isolation, Transaction, admin, task};
use siltstone_base::ObjectName;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use tokio::runtime::{Builder, Runtime};

/// Number of rounds of two threads that begin together.
const ROUNDS: u64 = 300;

/// A store that may refuse objects of the log permanently.
struct Refusing {
    store: Arc<dyn Store>,
    refuses: AtomicBool,
}

impl fmt::Debug for Refusing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.store.fmt(f)
    }
}

impl Store for Refusing {
    passed_on!(store: get, upload, list, delete);

    fn put_if_absent(&self, name: ObjectName, bytes: Bytes) -> BoxFuture<'_, PutAnswer> {
        if self.refuses.load(Ordering::Acquire) && matches!(name, ObjectName::Wal(_)) {
            return async { PutAnswer::Refused(Error::invalid("refused for good")) }.boxed();
        }
        self.store.put_if_absent(name, bytes)
    }
}

fn runtime() -> Runtime {
    Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

fn env_of(runtime: &Runtime, store: Arc<dyn Store>) -> Env {
    task::tokio_env(runtime.handle().clone(), store)
}

/// A writer that writes its log only when it is asked to, or closed.
fn opened(runtime: &Runtime, store: Arc<dyn Store>) -> Database {
    let options = Options {
        flush_interval: Duration::from_secs(3600),
        embedded_compactor: false,
        embedded_gc: false,
        ..Options::default()
    };
    let how = OpenOptions { options, ..OpenOptions::default() };
    runtime.block_on(Database::open(env_of(runtime, store), how)).unwrap()
}

/// The log's task ends the handle, the flush task ends because the handle is dead, and the close,
/// which waits for that end, took it for a success: it returned Ok, and recorded a clean close,
/// although an accepted row was lost.
#[test]
fn a_close_whose_log_is_refused_is_no_success() {
    let runtime = runtime();
    for round in 0..1500 {
        let refuses = AtomicBool::default();
        let store = Arc::new(Refusing { store: MemoryStore::unnamed(), refuses });
        let db = opened(&runtime, store.clone());
        assert!(matches!(db.put(b"k", b"v", None), Ok(Accept::Accepted(_))));
        store.refuses.store(true, Ordering::Release);
        let closed = runtime.block_on(db.close());
        drop(db);
        store.refuses.store(false, Ordering::Release);
        let look = env_of(&runtime, store);
        let newest = runtime.block_on(admin::manifest(&look, None, DEADLINE)).unwrap();
        assert!(closed.is_err() && !newest.closed_cleanly(), "round {round}: {closed:?}");
    }
}

/// Two clones of one transaction are committed at once: one commit. Both threads spin, so that they
/// begin within a few nanoseconds.
#[test]
fn a_transaction_is_committed_once() {
    let runtime = runtime();
    let db = opened(&runtime, MemoryStore::unnamed());
    let slot: Mutex<Option<Transaction>> = Mutex::default();
    let (round, done, won) = (AtomicU64::default(), AtomicU64::default(), AtomicU64::default());
    let commits = || {
        for number in 1..=ROUNDS {
            while round.load(Ordering::Acquire) < number {
                std::hint::spin_loop();
            }
            let transaction = slot.lock().clone().unwrap();
            if let Ok(Some(Accept::Accepted(_))) = transaction.commit() {
                won.fetch_add(1, Ordering::Relaxed);
            }
            done.fetch_add(1, Ordering::AcqRel);
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(commits);
        scope.spawn(commits);
        for number in 1..=ROUNDS {
            let transaction = db.transaction(Isolation::Serializable).unwrap();
            transaction.put(b"k", b"v", None).unwrap();
            *slot.lock() = Some(transaction);
            round.store(number, Ordering::Release);
            while done.load(Ordering::Acquire) < 2 * number {
                std::thread::yield_now();
            }
        }
    });
    assert_eq!(won.into_inner(), ROUNDS);
    runtime.block_on(db.close()).unwrap();
}
