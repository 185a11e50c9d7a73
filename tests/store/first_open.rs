//! First opens over the S3 server of the tests: what a failed one leaves, and the round trips.

use crate::conformance::runtime;
use bytes::Bytes;
use siltstone::{Database, ErrorKind, OpenOptions, Reader, ReaderOptions};
use siltstone_base::{ManifestId, ObjectName};
use siltstone_test_server::fault::Rule;
use siltstone_test_server::log::round_trips;
use siltstone_test_server::pace::{Latency, LatencyModel};
use siltstone_test_server::{Kind, ServerConfig};
use siltstone_tests::s3_server;

/// Opens a database that is created if there is none, perhaps with a fault. Returns the kind of the
/// error, and the keys that are there afterwards.
fn failed_open(fault: Option<Rule>, before: Option<ObjectName>) -> (ErrorKind, Vec<String>) {
    let (runtime, effects) = runtime();
    let server = s3_server::start(ServerConfig::default());
    let store = s3_server::store(&server, "db", &effects);
    if let Some(name) = before {
        let bytes = Bytes::from_static(b"not a manifest");
        runtime.block_on(store.put_if_absent(name, bytes));
    }
    if let Some(fault) = fault {
        server.inject(fault);
    }
    let opened =
        runtime.block_on(Database::open(effects.with_store(store), OpenOptions::default()));
    (opened.unwrap_err().kind(), server.keys(s3_server::BUCKET))
}

/// One of a few such openings leaves nothing of its own. On a machine that stalls, the create of
/// the record is sent twice, and the second answer hides that the record is new: it stays, and
/// harms nothing.
fn leaves(fault: Option<&Rule>, before: Option<ObjectName>, expected: &(ErrorKind, Vec<String>)) {
    let left: Vec<_> = (0..5)
        .map(|_| failed_open(fault.cloned(), before))
        .take_while(|left| left != expected)
        .collect();
    assert!(left.len() < 5, "{left:?}");
}

#[test]
fn a_store_that_ignores_conditions_is_left_empty() {
    let fault = Rule::parse("ignore-conditions").unwrap();
    assert_eq!(failed_open(Some(fault), None), (ErrorKind::Unsupported, Vec::new()));
}

#[test]
fn the_record_of_the_proof_goes_if_the_listing_beside_it_fails() {
    let fault = Rule::parse("refuse=403:AccessDenied").unwrap().on(Kind::List);
    leaves(Some(&fault), None, &(ErrorKind::Denied, Vec::new()));
}

/// A boundary whose database is gone, and which does not say so.
#[test]
fn the_record_of_the_proof_goes_if_something_else_is_left() {
    let boundary = ObjectName::ManifestBoundary(ManifestId(7));
    let keys = vec![format!("db/{boundary}")];
    leaves(None, Some(boundary), &(ErrorKind::Corruption, keys));
}

/// The round trips that RFC 0004 lists, with the proof of the store's conditions.
#[test]
fn openings_take_few_round_trips() {
    let (runtime, effects) = runtime();
    let fixed = Latency::fixed(100);
    let latency = LatencyModel { get: fixed, put: fixed, list: fixed, ..LatencyModel::fixed() };
    let server = s3_server::start(ServerConfig { latency, ..ServerConfig::default() });
    // Each opening is that of a process that knows nothing of the store.
    let env = || effects.clone().with_store(s3_server::store(&server, "db", &effects));
    let trips = || round_trips(&server.log().take());
    for expected in [8, 6, 6] {
        let opened = Database::open(env(), OpenOptions::default());
        let db = runtime.block_on(opened).unwrap();
        assert_eq!(trips(), expected);
        if expected == 6 {
            drop(db.put(b"key", b"row", None).unwrap());
        }
        runtime.block_on(db.close()).unwrap();
        trips();
    }
    let mut readers = Vec::new();
    // The first one commits a lease.
    for expected in [7, 4] {
        let opened = Reader::open(env(), ReaderOptions::default());
        readers.push(runtime.block_on(opened).unwrap());
        assert_eq!(trips(), expected);
    }
}
