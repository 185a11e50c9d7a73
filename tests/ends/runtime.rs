//! A runtime that ends before the handles that were opened on it: a program that drops it, an
//! interpreter that exits. Their tasks are dropped at any point.

#![expect(clippy::disallowed_methods, reason = "real threads, and a runtime that really ends")]

use crate::{DEADLINE, put, quiet};
use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use siltstone::store::memory::MemoryStore;
use siltstone::store::passed_on;
use siltstone::store::{PutAnswer, Store};
use siltstone::{Database, ErrorKind, OpenOptions, Reader, ReaderOptions, ScanRange, task};
use siltstone_base::ObjectName;
use std::fmt;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};

/// Stops answering creates on command; reports when one was requested.
struct Mute {
    store: Arc<dyn Store>,
    asked: Mutex<Option<Sender<()>>>,
}

impl fmt::Debug for Mute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.store.fmt(f)
    }
}

impl Store for Mute {
    passed_on!(store: get, upload, list, delete);

    fn put_if_absent(&self, name: ObjectName, bytes: Bytes) -> BoxFuture<'_, PutAnswer> {
        match &*self.asked.lock() {
            Some(asked) => {
                let _ = asked.send(());
                futures::future::pending().boxed()
            }
            None => self.store.put_if_absent(name, bytes),
        }
    }
}

/// Waits on a separate runtime: the one of the handles is about to end.
fn block_on<T>(work: impl Future<Output = T>) -> T {
    let here = tokio::runtime::Builder::new_current_thread().build().expect("a thread");
    here.block_on(work)
}

/// Before, the waits continued, for a timer that had ended with the runtime.
#[test]
fn a_runtime_that_ends_ends_every_wait() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("threads");
    let mute = Arc::new(Mute { store: MemoryStore::unnamed(), asked: Mutex::default() });
    let store: Arc<Mute> = Arc::clone(&mute);
    let env = task::tokio_env(runtime.handle().clone(), store);
    let (how, follows) = (
        OpenOptions { options: quiet(), ..OpenOptions::default() },
        ReaderOptions { options: quiet(), ..ReaderOptions::default() },
    );
    let db = block_on(Database::open(env.clone(), how)).expect("a healthy store");
    let reader = block_on(Reader::open(env, follows)).expect("a healthy store");
    block_on(put(&db, "a").wait(None)).expect("a healthy store");
    let (tell, told) = channel();
    *mute.asked.lock() = Some(tell);
    let commit = put(&db, "b");
    let waits = std::thread::spawn(move || block_on(commit.wait(Some(DEADLINE * 60))));
    told.recv().expect("it is on its way");
    let (asked, closes) = (db.clone(), db.clone());
    let closing = std::thread::spawn(move || block_on(closes.close()));
    runtime.shutdown_background();
    for ended in [waits.join(), closing.join()] {
        let error = ended.expect("no panic").expect_err("it will not come");
        assert_eq!(error.kind(), ErrorKind::Closed);
    }
    let ended = [
        block_on(asked.close()).expect_err("it did not close well"),
        asked.put(b"late", b"", None).expect_err("a write"),
        reader.get(b"a").expect_err("a read"),
        reader.scan(ScanRange::all()).expect_err("a scan"),
    ];
    for error in ended {
        assert_eq!(error.kind(), ErrorKind::Closed);
    }
    let text = block_on(asked.flush()).expect_err("a flush").to_string();
    assert!(text.contains("runtime"), "{text}");
}
