//! The contract of transactional stores, checked for each kind: two unique keys decide every race
//! (rules T3 and T4).

use crate::conformance::runtime;
use futures::future::join_all;
use siltstone::env::Effects;
use siltstone::store::options::StoreOptions;
use siltstone::store::two_phase::dynamodb::DynamoRecords;
use siltstone::store::two_phase::memory::MemoryRecords;
use siltstone::store::two_phase::records::{InsertOutcome, Record, RecordStore};
use siltstone::store::two_phase::sql::SqlRecords;
use siltstone_base::{AttemptId, ObjectName, WalId};
use siltstone_tests::python_server::PythonServer;
use std::sync::Arc;

/// Rounds of each race.
const ROUNDS: u64 = 25;

fn destination(number: u64) -> ObjectName {
    ObjectName::Wal(WalId(number))
}

fn source(number: u128) -> ObjectName {
    ObjectName::TwoPhaseSource(AttemptId(number), 7)
}

/// Records of DynamoDB in its emulator.
pub(crate) fn in_dynamodb(server: &PythonServer, effects: &Effects) -> Arc<dyn RecordStore> {
    let keys = [("access_key_id", "test-key"), ("secret_access_key", "test-secret")];
    let text = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
    let options: StoreOptions = keys.map(text).into_iter().collect();
    let place = format!("records?region=us-east-1&endpoint=http://127.0.0.1:{}", server.line());
    Arc::new(DynamoRecords::new(&place, &options, &[], effects.clone()).unwrap())
}

async fn check(records: &dyn RecordStore) {
    let (one, other) = places(records).await;
    steps(records, one, other).await;
    ends(records, one).await;
    races(records, one).await;
}

/// A location has one namespace, and differs from one with another case or a space.
async fn places(records: &dyn RecordStore) -> (u128, u128) {
    let place = "s3://quarry/Straße";
    assert_eq!(records.bind(place, 5).await.unwrap(), 5);
    assert_eq!(records.bind(place, 6).await.unwrap(), 5);
    assert_eq!(records.bind("s3://quarry/straße", 7).await.unwrap(), 7);
    assert_eq!(records.bind("s3://quarry/Straße ", 8).await.unwrap(), 8);
    assert_eq!(records.location_of(5).await.unwrap().as_deref(), Some(place));
    assert_eq!(records.location_of(99).await.unwrap(), None);
    records.rebind(5, "s3://quarry/moved").await.unwrap();
    assert_eq!(records.location_of(5).await.unwrap().as_deref(), Some("s3://quarry/moved"));
    assert_eq!(records.bind("s3://quarry/moved", 9).await.unwrap(), 5);
    // The old place is free for another database.
    assert_eq!(records.bind(place, 10).await.unwrap(), 10);
    let bound = join_all((20..28).map(|fresh| records.bind("s3://quarry/raced", fresh))).await;
    let bound: Vec<_> = bound.into_iter().flatten().collect();
    assert!(!bound.is_empty() && bound.iter().all(|one| *one == bound[0]), "{bound:?}");
    (5, 7)
}

async fn steps(records: &dyn RecordStore, one: u128, other: u128) {
    let record = Record { destination: destination(1), source: source(1), complete: false };
    let insert = |namespace, number, from| {
        let name = destination(number);
        async move { records.insert(namespace, name, source(from)).await.unwrap() }
    };
    assert_eq!(records.get(one, record.destination).await.unwrap(), None);
    assert_eq!(insert(one, 1, 1).await, InsertOutcome::Inserted);
    assert_eq!(insert(one, 1, 2).await, InsertOutcome::Taken);
    assert_eq!(insert(other, 1, 2).await, InsertOutcome::Inserted);
    assert_eq!(records.get(one, record.destination).await.unwrap(), Some(record));
    assert_eq!(records.list(one, false).await.unwrap(), [record]);
    assert_eq!(records.list(one, true).await.unwrap(), []);
    assert!(!records.revoke(one, record.source).await.unwrap());
    // Another record of the name is not meant.
    records.complete(one, Record { source: source(2), ..record }).await.unwrap();
    records.remove(one, vec![record.destination]).await.unwrap();
    assert_eq!(records.get(one, record.destination).await.unwrap(), Some(record));
    for _ in 0..2 {
        records.complete(one, record).await.unwrap();
        let complete = Record { complete: true, ..record };
        assert_eq!(records.get(one, record.destination).await.unwrap(), Some(complete));
        assert_eq!(records.list(one, false).await.unwrap(), []);
        assert_eq!(records.list(one, true).await.unwrap(), [complete]);
    }
    assert_eq!(insert(one, 1, 3).await, InsertOutcome::Taken);
    records.remove(one, vec![destination(44), record.destination]).await.unwrap();
    assert_eq!(records.get(one, record.destination).await.unwrap(), None);
    assert_eq!(insert(one, 1, 3).await, InsertOutcome::Inserted);
    assert_eq!(records.list(other, false).await.unwrap().len(), 1);
}

/// Revoked sources, and records that are removed in either state.
async fn ends(records: &dyn RecordStore, namespace: u128) {
    for _ in 0..2 {
        assert!(records.revoke(namespace, source(10)).await.unwrap());
        let outcome = records.insert(namespace, destination(10), source(10)).await.unwrap();
        assert_eq!(outcome, InsertOutcome::Revoked);
    }
    assert_eq!(records.get(namespace, destination(10)).await.unwrap(), None);
    let record = Record { destination: destination(11), source: source(11), complete: false };
    for complete in [false, true] {
        records.insert(namespace, record.destination, record.source).await.unwrap();
        if complete {
            records.complete(namespace, record).await.unwrap();
        }
        let found = records.get(namespace, record.destination).await.unwrap().unwrap();
        records.purge(namespace, Record { source: source(12), ..found }).await.unwrap();
        assert_eq!(records.get(namespace, record.destination).await.unwrap(), Some(found));
        records.purge(namespace, found).await.unwrap();
        assert_eq!(records.get(namespace, record.destination).await.unwrap(), None);
    }
    let left = records.list(namespace, false).await.unwrap();
    assert_eq!(left.iter().map(|one| one.destination).collect::<Vec<_>>(), [destination(1)]);
}

async fn races(records: &dyn RecordStore, namespace: u128) {
    for round in 0..ROUNDS {
        let name = destination(1000 + round);
        let from = |number: u64| source(u128::from(10_000 + 100 * round + number));
        let creates = (0..8).map(|number| records.insert(namespace, name, from(number)));
        let outcomes = join_all(creates).await;
        let won = outcomes.iter().filter(|one| matches!(one, Ok(InsertOutcome::Inserted))).count();
        let found = records.get(namespace, name).await.unwrap();
        // An outcome that is an error is unknown: the record tells.
        assert!(won <= 1 && found.is_some(), "{outcomes:?}");
        if won == 0 {
            assert!(outcomes.iter().any(Result::is_err), "{outcomes:?}");
        }

        let (name, raced) = (destination(2000 + round), from(50));
        let insert = records.insert(namespace, name, raced);
        let revokes = [0; 2].map(|_| records.revoke(namespace, raced));
        let (insert, revokes) = futures::join!(insert, join_all(revokes));
        let found = records.get(namespace, name).await.unwrap();
        for revoked in revokes.into_iter().flatten() {
            assert_eq!(revoked, found.is_none(), "{insert:?}");
        }
        if let Ok(outcome) = insert {
            assert_eq!(outcome == InsertOutcome::Inserted, found.is_some());
        }
    }
}

#[test]
fn memory_keeps_the_contract_of_records() {
    let (runtime, _) = runtime();
    runtime.block_on(check(&MemoryRecords::default()));
}

#[test]
fn sqlite_keeps_the_contract_of_records() {
    let (runtime, effects) = runtime();
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite://{}/records", folder.path().display());
    runtime.block_on(check(&SqlRecords::new(&url, effects).unwrap()));
}

#[test]
fn mariadb_keeps_the_contract_of_records() {
    let Some(server) = PythonServer::mariadb() else { return };
    let (runtime, effects) = runtime();
    runtime.block_on(check(&SqlRecords::new(server.line(), effects).unwrap()));
}

#[test]
fn dynamodb_keeps_the_contract_of_records() {
    let Some(server) = PythonServer::dynamodb() else { return };
    let (runtime, effects) = runtime();
    runtime.block_on(check(&*in_dynamodb(&server, &effects)));
}
