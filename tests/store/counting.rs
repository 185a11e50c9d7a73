//! The figures of a store in `stats()`: every request once, including failures.

use crate::conformance::runtime;
use bytes::Bytes;
use siltstone::store::counting::{CountingStore, Requests};
use siltstone::store::local::LocalStore;
use siltstone::store::{PutAnswer, Store};
use siltstone_base::name::prefix;
use siltstone_base::{ErrorKind, ObjectName, SstId, WalId};
use siltstone_tests::faults::{Bucket, Fault, FaultPlan};
use siltstone_tests::sim::Sim;
use std::sync::Arc;

const NAME: ObjectName = ObjectName::Wal(WalId(1));
const TABLE: ObjectName = ObjectName::Compacted(SstId(1));

/// Every kind of request once, for any result.
async fn requests(store: Arc<dyn Store>) {
    let _ = store.put_if_absent(NAME, Bytes::from_static(b"four")).await;
    let _ = store.get(NAME, Some(1..3)).await;
    let _ = store.list(prefix::WAL, None).await;
    let _ = store.delete(NAME).await;
    if let Ok(mut upload) = store.upload(TABLE).await {
        let _ = upload.write(Bytes::from_static(b"eleven byte")).await;
        let _ = upload.finish().await;
    }
}

fn world() -> (Sim, Arc<Bucket>, Arc<dyn Store>, Arc<Requests>) {
    let sim = Sim::new(9);
    let bucket = Bucket::new(&sim, FaultPlan::none().with(Fault::BrownOut, 1000));
    let (store, counts) = CountingStore::wrap(bucket.store(sim.process("client", 0)));
    (sim, bucket, store, counts)
}

#[test]
fn requests_and_bytes_are_counted_by_kind() {
    let (sim, bucket, store, counts) = world();
    bucket.heal();
    sim.block_on(sim.process("other", 0), requests(store)).unwrap();
    let totals = counts.totals();
    assert_eq!((totals.gets, totals.lists, totals.deletes), (1, 1, 1));
    // A create, and an upload of one chunk.
    assert_eq!((totals.puts, totals.upload_chunks), (2, 1));
    assert_eq!((totals.bytes_read, totals.bytes_written), (2, 15));
    assert_eq!((totals.failed, totals.transient), (0, 0));
}

#[test]
fn failures_are_counted_and_those_that_time_cures_apart() {
    let (sim, bucket, store, counts) = world();
    let broken = Arc::clone(&store);
    sim.block_on(sim.process("other", 0), requests(broken)).unwrap();
    let totals = counts.totals();
    assert_eq!((totals.gets, totals.lists, totals.deletes, totals.bytes_read), (1, 1, 1, 0));
    // One for each kind of request: an upload that fails to begin ends there.
    assert_eq!((totals.failed, totals.transient), (5, 5));
    bucket.heal();
    let wrong = async move {
        let refused = store.get(NAME, Some(3..3)).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Invalid);
        assert!(matches!(store.put_if_absent(NAME, Bytes::new()).await, PutAnswer::Created));
        assert!(matches!(store.put_if_absent(NAME, Bytes::new()).await, PutAnswer::Exists));
    };
    sim.block_on(sim.process("third", 0), wrong).unwrap();
    let totals = counts.totals();
    // Losing a race for a name is an answer, not a failure.
    assert_eq!((totals.failed, totals.transient), (6, 5));
}

#[test]
fn deletes_in_one_request_are_counted_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let (runtime, effects) = runtime();
    let local = LocalStore::new(folder.path(), effects).unwrap();
    let (store, counts) = CountingStore::wrap(local);
    runtime.block_on(async {
        let mut upload = store.upload(TABLE).await.unwrap();
        upload.write_now(b"seven b").unwrap().unwrap();
        upload.write_now(b"four").unwrap().unwrap();
        upload.finish().await.unwrap();
    });
    let totals = counts.totals();
    assert_eq!((totals.puts, totals.upload_chunks, totals.bytes_written), (1, 2, 11));
    // A store that accepts nothing immediately has accepted nothing.
    let (sim, bucket, store, counts) = world();
    bucket.heal();
    let refused = async move {
        let mut upload = store.upload(TABLE).await.unwrap();
        assert!(upload.write_now(b"four").is_none());
    };
    sim.block_on(sim.process("other", 0), refused).unwrap();
    assert_eq!((counts.totals().upload_chunks, counts.totals().bytes_written), (0, 0));
}
