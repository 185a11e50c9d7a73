//! The contract, checked for every store.

use crate::contract;
use crate::records::in_dynamodb;
use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use siltstone::env::Effects;
use siltstone::store::local::LocalStore;
use siltstone::store::memory::MemoryStore;
use siltstone::store::two_phase::TwoPhaseStore;
use siltstone::store::two_phase::memory::MemoryRecords;
use siltstone::store::two_phase::records::RecordStore;
use siltstone::store::two_phase::sql::SqlRecords;
use siltstone::store::{Listed, PutAnswer, Store, Upload};
use siltstone::task;
use siltstone_base::{ObjectName, Result, WalId};
use siltstone_tests::faults::{Bucket, FaultPlan};
use siltstone_tests::moto::Moto;
use siltstone_tests::python_server::PythonServer;
use siltstone_tests::recording::RecordingStore;
use siltstone_tests::sim::Sim;
use std::sync::Arc;
use tokio::runtime::{Builder, Runtime};

pub(crate) fn runtime() -> (Runtime, Effects) {
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let effects = task::tokio_effects(runtime.handle().clone());
    (runtime, effects)
}

/// A store in moto's bucket.
pub(crate) fn over_moto(moto: &Moto, path: &str, effects: &Effects) -> Arc<dyn Store> {
    moto.store(BUCKET, path, effects)
}

pub(crate) const BUCKET: &str = "quarry";

#[test]
fn memory_keeps_the_contract() {
    let (runtime, _) = runtime();
    runtime.block_on(contract::check(MemoryStore::unnamed()));
}

/// A store without conditional creates: each one overwrites.
#[derive(Debug)]
struct Overwriting(Arc<MemoryStore>);

impl Store for Overwriting {
    fn get(
        &self,
        name: ObjectName,
        range: Option<std::ops::Range<u64>>,
    ) -> BoxFuture<'_, Result<Option<Bytes>>> {
        self.0.get(name, range)
    }
    fn put_if_absent(&self, name: ObjectName, bytes: Bytes) -> BoxFuture<'_, PutAnswer> {
        async move {
            let mut upload = self.0.upload(name).await.unwrap();
            upload.write(bytes).await.unwrap();
            upload.finish().await.map_or_else(PutAnswer::Refused, |()| PutAnswer::Created)
        }
        .boxed()
    }
    fn upload(&self, name: ObjectName) -> BoxFuture<'_, Result<Box<dyn Upload>>> {
        self.0.upload(name)
    }
    fn list(
        &self,
        prefix: &'static str,
        after: Option<ObjectName>,
    ) -> BoxFuture<'_, Result<Vec<Listed>>> {
        self.0.list(prefix, after)
    }
    fn delete(&self, name: ObjectName) -> BoxFuture<'_, Result<()>> {
        self.0.delete(name)
    }
}

#[test]
fn two_phase_creates_keep_the_contract() {
    let (runtime, effects) = runtime();
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite://{}/records", folder.path().display());
    let sqlite = SqlRecords::new(&url, effects.clone()).unwrap();
    let mut records: Vec<Arc<dyn RecordStore>> =
        vec![Arc::new(MemoryRecords::default()), Arc::new(sqlite)];
    let (mariadb, dynamodb) = (PythonServer::mariadb(), PythonServer::dynamodb());
    if let Some(server) = &mariadb {
        records.push(Arc::new(SqlRecords::new(server.line(), effects.clone()).unwrap()));
    }
    records.extend(dynamodb.as_ref().map(|server| in_dynamodb(server, &effects)));
    for records in records {
        let store = Arc::new(Overwriting(MemoryStore::unnamed()));
        runtime.block_on(contract::check(TwoPhaseStore::new(store, records, effects.clone())));
    }
}

#[test]
fn encrypted_stores_keep_the_contract() {
    let (runtime, effects) = runtime();
    let folder = tempfile::tempdir().unwrap();
    let local = folder.path().display().to_string();
    let options = [("encryption_key".to_owned(), "5e".repeat(32))].into_iter().collect();
    for url in ["memory://encrypted", &local] {
        let store = siltstone::store::url::parse(url, &options, [], &effects).unwrap();
        runtime.block_on(contract::check(store));
    }
}

#[test]
fn a_local_folder_keeps_the_contract() {
    let (runtime, effects) = runtime();
    let folder = tempfile::tempdir().unwrap();
    let store = LocalStore::new(folder.path(), effects).unwrap();
    // Foreign files that are not objects, in folders of objects.
    for stranger in ["manifest", "wal/boundary", "compacted/deep/er"] {
        std::fs::create_dir_all(folder.path().join(stranger)).unwrap();
    }
    for stranger in ["manifest/notes.txt", "wal/1.sst", "compacted/deep/er/x", "README"] {
        std::fs::write(folder.path().join(stranger), b"not ours").unwrap();
    }
    runtime.block_on(contract::check(store));
    assert!(folder.path().join("manifest/notes.txt").exists());
}

#[test]
fn the_simulated_store_keeps_the_contract_once_it_is_healed() {
    let sim = Sim::new(1);
    let mut rng = sim.split_rng();
    let bucket = Bucket::new(&sim, FaultPlan::random(&mut rng));
    bucket.heal();
    let process = sim.process("client", 0);
    sim.block_on(process, contract::check(bucket.store(process))).unwrap();
    assert!(bucket.injected().is_empty());
}

#[test]
fn a_recorded_store_keeps_the_contract() {
    let (runtime, _) = runtime();
    runtime.block_on(contract::check(RecordingStore::new(MemoryStore::unnamed())));
}

#[test]
fn s3_keeps_the_contract() {
    let Some(moto) = Moto::start_or_skip(BUCKET) else { return };
    let (runtime, effects) = runtime();
    let root = over_moto(&moto, "", &effects);
    let deep = over_moto(&moto, "deep/er", &effects);
    let beside = over_moto(&moto, "deep/er2", &effects);
    runtime.block_on(async {
        // Objects beside a database are not in it, even if the paths are similar.
        let answer = beside.put_if_absent(ObjectName::Wal(WalId(77)), "x".into()).await;
        assert!(matches!(answer, PutAnswer::Created), "{answer:?}");
        contract::check(Arc::clone(&deep)).await;
        contract::check(root).await;
    });
    assert_eq!(format!("{deep:?}"), "s3://quarry/deep/er");
}
