//! Copies within a store: of creates that are recorded and not copied yet, and of objects that do
//! not exist.

use crate::conformance::runtime;
use crate::server::{TABLE, WAL, serve, status};
use bytes::Bytes;
use futures::FutureExt;
use futures::future::{BoxFuture, ready};
use siltstone::env::Effects;
use siltstone::store::memory::MemoryStore;
use siltstone::store::two_phase::TwoPhaseStore;
use siltstone::store::two_phase::memory::MemoryRecords;
use siltstone::store::{CopyAnswer, Listed, Neighbours, Place, PutAnswer, Store, Upload};
use siltstone_base::{Error, ErrorKind, ObjectName, Result};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether the objects named as [`WAL`] can be written.
#[derive(Debug, Default)]
struct Stuck(AtomicBool);

/// A store that copies objects by itself, between places in the memory of this process.
#[derive(Debug)]
struct CopyingStore {
    store: Arc<MemoryStore>,
    stuck: Arc<Stuck>,
}

impl CopyingStore {
    fn named(name: &str, stuck: &Arc<Stuck>) -> Arc<CopyingStore> {
        Arc::new(CopyingStore { store: MemoryStore::named(name), stuck: Arc::clone(stuck) })
    }
}

impl Store for CopyingStore {
    fn get(
        &self,
        name: ObjectName,
        range: Option<Range<u64>>,
    ) -> BoxFuture<'_, Result<Option<Bytes>>> {
        self.store.get(name, range)
    }

    fn get_clamped(
        &self,
        name: ObjectName,
        range: Range<u64>,
    ) -> BoxFuture<'_, Result<Option<Bytes>>> {
        self.store.get_clamped(name, range)
    }

    fn put_if_absent(&self, name: ObjectName, bytes: Bytes) -> BoxFuture<'_, PutAnswer> {
        self.store.put_if_absent(name, bytes)
    }

    fn upload(&self, name: ObjectName) -> BoxFuture<'_, Result<Box<dyn Upload>>> {
        if name == WAL && self.stuck.0.load(Ordering::Relaxed) {
            return ready(Err(Error::unavailable("stuck"))).boxed();
        }
        self.store.upload(name)
    }

    fn list(
        &self,
        prefix: &'static str,
        after: Option<ObjectName>,
    ) -> BoxFuture<'_, Result<Vec<Listed>>> {
        self.store.list(prefix, after)
    }

    fn delete(&self, name: ObjectName) -> BoxFuture<'_, Result<()>> {
        self.store.delete(name)
    }

    fn place(&self) -> &dyn Place {
        self
    }

    fn neighbours(&self) -> &dyn Neighbours {
        self
    }
}

impl Place for CopyingStore {
    fn location(&self) -> Option<String> {
        self.store.place().location()
    }
}

impl Neighbours for CopyingStore {
    fn neighbour(&self, location: &str) -> Result<Arc<dyn Store>> {
        let name = location.strip_prefix("memory://").unwrap();
        Ok(CopyingStore::named(name, &self.stuck))
    }

    fn copy_from(&self, location: &str, from: ObjectName, to: ObjectName) -> CopyAnswer<'_> {
        let source = MemoryStore::named(location.strip_prefix("memory://").unwrap());
        async move {
            let Some(bytes) = source.get(from, None).await? else {
                return Err(Error::new(ErrorKind::NotFound, "the source is missing"));
            };
            let mut upload = self.store.upload(to).await?;
            upload.write(bytes).await?;
            upload.finish().await.map(|()| true)
        }
        .boxed()
    }
}

/// A store in which [`WAL`] is recorded and not at its name, and another one of its records.
async fn recorded(at: &str, effects: &Effects) -> (Arc<TwoPhaseStore>, Arc<TwoPhaseStore>) {
    let stuck = Arc::new(Stuck(AtomicBool::new(true)));
    let records = Arc::new(MemoryRecords::default());
    let open = |name: &str| {
        TwoPhaseStore::new(CopyingStore::named(name, &stuck), records.clone(), effects.clone())
    };
    let store = open(at);
    let answer = store.put_if_absent(WAL, Bytes::from_static(b"bytes")).await;
    assert!(matches!(answer, PutAnswer::Created), "{answer:?}");
    let below = MemoryStore::named(at);
    assert_eq!(below.get(WAL, None).await.unwrap(), None, "the copy must not have been made");
    stuck.0.store(false, Ordering::Relaxed);
    (store, open(&format!("{at}-elsewhere")))
}

#[test]
fn a_copy_by_the_store_finds_a_create_that_is_only_recorded() {
    let (runtime, effects) = runtime();
    runtime.block_on(async {
        let (store, _) = recorded("copies-here", &effects).await;
        let location = store.place().location().unwrap();
        assert!(store.copy_from(&location, WAL, TABLE).await.unwrap());
        assert_eq!(store.get(TABLE, None).await.unwrap().as_deref(), Some(&b"bytes"[..]));
        let (store, elsewhere) = recorded("copies-there", &effects).await;
        let location = store.place().location().unwrap();
        assert!(elsewhere.copy_from(&location, WAL, TABLE).await.unwrap());
        assert_eq!(elsewhere.get(TABLE, None).await.unwrap().as_deref(), Some(&b"bytes"[..]));
    });
}

#[test]
fn a_clamped_read_finds_a_create_that_is_only_recorded() {
    let (runtime, effects) = runtime();
    runtime.block_on(async {
        let (store, _) = recorded("clamped", &effects).await;
        let read = store.get_clamped(WAL, 1..100).await.unwrap();
        assert_eq!(read.as_deref(), Some(&b"ytes"[..]));
    });
}

#[test]
fn a_copy_without_a_source_names_the_source() {
    let server = serve(vec![status("404 Not Found", "<Code>NoSuchKey</Code>")]);
    let copy = |store: &dyn Store| {
        let location = store.place().location().unwrap();
        server.runtime.block_on(store.neighbours().copy_from(&location, WAL, TABLE))
    };
    let error = copy(&*server.store).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    let text = error.to_string();
    assert!(text.contains("source of a copy") && text.contains(&WAL.to_string()), "{text}");
    assert!(!text.contains("bucket does not exist"), "{text}");
    // A missing bucket stays what it is.
    let server = serve(vec![status("404 Not Found", "<Code>NoSuchBucket</Code>")]);
    let location = server.store.place().location().unwrap();
    let copied =
        server.runtime.block_on(server.store.neighbours().copy_from(&location, WAL, TABLE));
    let text = copied.unwrap_err().to_string();
    assert!(text.contains("bucket does not exist"), "{text}");
}
