//! The contract over the S3 server of the tests, by the real client with signatures.

use crate::conformance::runtime;
use crate::contract;
use futures::future::join_all;
use siltstone::Progress;
use siltstone::probe::{ProbeOptions, probe};
use siltstone::store::PutAnswer;
use siltstone::store::retry::with_retries;
use siltstone_base::name::prefix;
use siltstone_base::{ErrorKind, JobId, ObjectName, SstId, WalId};
use siltstone_test_server::fault::Rule;
use siltstone_test_server::pace::LatencyModel;
use siltstone_test_server::{Kind, ServerConfig};
use siltstone_tests::s3_server;
use std::sync::Arc;
use std::time::Duration;

#[test]
fn the_test_server_keeps_the_contract() {
    let (runtime, effects) = runtime();
    let server = s3_server::start(ServerConfig::default());
    let [root, deep, beside] =
        ["", "deep/er", "deep/er2"].map(|path| s3_server::store(&server, path, &effects));
    runtime.block_on(async {
        let answer = beside.put_if_absent(ObjectName::Wal(WalId(77)), "x".into()).await;
        assert!(matches!(answer, PutAnswer::Created), "{answer:?}");
        contract::check(Arc::clone(&deep)).await;
        contract::check(root).await;
        deep.ensure_conditions().await.unwrap();
    });
}

/// A tag of a listing proves a manifest only if the boundaries are listed after it.
#[test]
fn a_listing_out_of_order_has_no_tags() {
    let (runtime, effects) = runtime();
    let server = s3_server::start(ServerConfig::default());
    let store = s3_server::store(&server, "db", &effects);
    let tags = || {
        let listed = runtime.block_on(store.list(prefix::WAL, None)).unwrap();
        listed.into_iter().map(|object| object.tag).collect::<Vec<_>>()
    };
    for id in 1..=4 {
        let put = store.put_if_absent(ObjectName::Wal(WalId(id)), format!("{id}").into());
        runtime.block_on(put);
        let read = runtime.block_on(store.get_tagged(ObjectName::Wal(WalId(id)))).unwrap();
        let (_, tag) = read.unwrap();
        assert!(tag.is_some() && tags().last() == Some(&tag), "{tag:?}");
    }
    server.inject(Rule::parse("messy-list").unwrap().on(Kind::List));
    assert!(tags().iter().all(Option::is_none));
}

#[test]
fn exactly_one_of_clients_that_create_one_name_wins() {
    const CLIENTS: usize = 8;
    let (runtime, effects) = runtime();
    let server = s3_server::start(ServerConfig::default());
    // Handles of their own, as of different processes.
    let stores: Vec<_> = (0..CLIENTS).map(|_| s3_server::store(&server, "db", &effects)).collect();
    for race in 1..=100 {
        let name = ObjectName::Wal(WalId(race));
        let creates = stores
            .iter()
            .enumerate()
            .map(|(client, store)| store.put_if_absent(name, format!("client {client}").into()));
        let answers = runtime.block_on(join_all(creates));
        let won: Vec<usize> =
            (0..CLIENTS).filter(|client| matches!(answers[*client], PutAnswer::Created)).collect();
        let lost = answers.iter().filter(|answer| matches!(answer, PutAnswer::Exists)).count();
        assert_eq!((won.len(), lost), (1, CLIENTS - 1), "{answers:?}");
        let stored = runtime.block_on(stores[0].get(name, None)).unwrap().unwrap();
        assert_eq!(stored, format!("client {}", won[0]));
    }
}

/// A store that serves 16 requests at once and refuses others: the client finds out how many it may
/// send. Without a limit, these reads took 9,000 requests; with it, 2,600, most of them refused in
/// the first round.
#[test]
fn a_store_that_throttles_gets_as_many_requests_as_it_serves() {
    const READS: u64 = 2000;
    let (runtime, effects) = runtime();
    let latency = LatencyModel::fixed();
    let server = s3_server::start(ServerConfig { busy_above: 16, latency, ..Default::default() });
    let store = s3_server::store(&server, "db", &effects);
    let env = effects.with_store(Arc::clone(&store));
    let name = ObjectName::Wal(WalId(1));
    runtime.block_on(async {
        assert!(matches!(store.put_if_absent(name, "x".into()).await, PutAnswer::Created));
        server.log().clear();
        let read =
            |_| with_retries(&env, Duration::from_secs(60), "read", || store.get(name, None));
        for read in join_all((0..READS).map(read)).await {
            assert_eq!(read.unwrap().as_deref(), Some(&b"x"[..]));
        }
    });
    let sent = server.log().count(Kind::Get);
    println!("{sent} requests for {READS} reads");
    assert!(sent < READS * 2, "{sent}");
}

#[test]
fn a_wrong_secret_is_denied() {
    let (runtime, effects) = runtime();
    let server = s3_server::start(ServerConfig::default());
    let wrong = [("secret_access_key", "canary-secret")];
    let store = s3_server::store_with(&server, "db", &wrong, &effects);
    let error = runtime.block_on(store.get(ObjectName::Wal(WalId(1)), None)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Denied);
    assert!(!error.to_string().contains("canary"), "{error}");
}

#[test]
fn tables_are_copied_and_uploads_survive_faults() {
    let (runtime, effects) = runtime();
    let server = s3_server::start(ServerConfig::default());
    let [from, to] = ["from", "to"].map(|path| s3_server::store(&server, path, &effects));
    let table = ObjectName::Compacted(SstId(1));
    let bytes = bytes::Bytes::from(vec![b'q'; 40 << 20]);
    for (kind, fault) in [
        (Kind::CreateUpload, "refuse=503:SlowDown"),
        (Kind::Part, "reset-after"),
        (Kind::Complete, "refuse=500:InternalError"),
        (Kind::Complete, "error-in-success"),
        (Kind::Copy, "apply-then-refuse=503:SlowDown"),
    ] {
        server.inject(Rule::parse(fault).unwrap().on(kind).count(1));
    }
    runtime.block_on(async {
        let mut upload = from.upload(table).await.unwrap();
        upload.write(bytes.clone()).await.unwrap();
        upload.finish().await.unwrap();
        let copied = ObjectName::IngestSst(JobId(2), SstId(2));
        assert!(
            to.neighbours()
                .copy_from(&from.place().location().unwrap(), table, copied)
                .await
                .unwrap()
        );
        assert_eq!(to.get(copied, None).await.unwrap(), Some(bytes));
    });
    assert_eq!(server.pending_uploads(), 0);
    assert_eq!(server.injected().values().sum::<u64>(), 5, "{:?}", server.injected());
}

#[test]
fn the_probe_finds_a_server_that_breaks_conditions() {
    let options = ProbeOptions {
        rounds: 4,
        largest_object: ProbeOptions::LEAST_LARGEST_OBJECT,
        deadline: Duration::from_secs(30),
    };
    for fault in ["", "ignore-conditions", "late-write=20"] {
        let (runtime, effects) = runtime();
        let server = s3_server::start(ServerConfig::default());
        if let Ok(rule) = Rule::parse(fault) {
            server.inject(rule);
        }
        let env = effects.clone().with_store(s3_server::store(&server, "db", &effects));
        let progress = Progress::default();
        let report = runtime.block_on(probe(&env, &options, &progress)).unwrap();
        assert_eq!(report.is_ok(), fault.is_empty(), "{fault}: {report:?}");
        assert_eq!(server.keys(s3_server::BUCKET), [""; 0], "the probe removes its objects");
    }
}
