//! Readers: the effect of their leases, outages, logs that were collected under them.

use crate::place::{Place, keys_of, put, reader};
use parking_lot::Mutex;
use siltstone::admin::{create_checkpoint, delete_checkpoint};
use siltstone::{CheckpointOptions, Reader, Result, ScanRange};
use siltstone_tests::compact;
use std::sync::Arc;
use std::time::Duration;

/// 7, and a peer's 21: a compaction has removed the tables, and collectors have run; a reader in
/// another process continues to read the tables under its lease.
#[test]
fn bug_07_a_readers_lease_keeps_its_tables() {
    let place = Place::new(|plan| plan);
    place.flushes(&["a", "b"]);
    let (process, env) = place.process();
    let reader = place.run(process, reader(env, 3600)).expect("a healthy store");
    let scan = reader.scan(ScanRange::all()).expect("open");
    for keys in [&["c"][..], &["d"]] {
        place.flushes(keys);
        let (other, env) = place.process();
        place.run(other, async move { compact::everything(&env).await }).expect("a compaction");
        place.collect();
        place.collect();
    }
    assert_eq!(place.run(process, keys_of(scan)).expect("it is pinned"), ["a", "b"]);
    place.pass(30);
    let now = reader.scan(ScanRange::all()).expect("open");
    assert_eq!(place.run(process, keys_of(now)).expect("it is pinned"), ["a", "b", "c", "d"]);
}

/// A peer's 27: in an outage longer than its lifetime a reader's lease is revoked. It takes another
/// one when the store is back.
#[test]
fn peer_27_a_reader_outlives_an_outage() {
    let place = Place::new(|plan| plan);
    place.flushes(&["a"]);
    let (process, env) = place.process();
    let reader = place.run(process, reader(env, 10)).expect("a healthy store");
    // None of its requests succeed; others continue.
    place.sim.pause(process);
    place.pass(60);
    place.flushes(&["b"]);
    let (other, env) = place.process();
    place.run(other, async move { compact::everything(&env).await }).expect("a compaction");
    place.collect();
    place.collect();
    assert_eq!(place.newest().leases, [], "it was revoked");
    place.sim.resume(process);
    place.pass(30);
    let found = place.run(process, keys_of(reader.scan(ScanRange::all()).expect("open")));
    assert_eq!(found.expect("it reads again"), ["a", "b"]);
    let held = place.newest();
    assert_eq!(held.leases.len(), 1, "{:?}", held.leases);
}

/// A peer's 27 as well: the lifetime of a renewal counts from its sending, otherwise there is a
/// manifest per poll.
#[test]
fn peer_27_an_idle_reader_commits_twice_a_lifetime() {
    let place = Place::new(|plan| plan);
    place.flushes(&["a"]);
    let (process, env) = place.process();
    let _reader = place.run(process, reader(env, 100)).expect("a healthy store");
    let before = place.newest().id.get();
    place.pass(1000);
    let made = place.newest().id.get() - before;
    assert!((15..=21).contains(&made), "{made} manifests in ten lifetimes");
}

/// A peer's 28: the log that a reader walks is flushed and collected under it, at any step.
#[test]
fn peer_28_a_log_that_is_collected_under_a_reader() {
    let mut met = 0;
    for step in 1..30 {
        let place = Place::new(|plan| plan);
        let (writing, _, db) = place.open();
        for key in ["a", "b", "c"] {
            let commit = put(&db, key).expect("accepted");
            place.run(writing, async move { commit.wait(None).await }).expect("durable");
        }
        // The manifest knows the log's end, and nothing pins it.
        let (other, env) = place.process();
        let noted = async move {
            let (how, second) = (CheckpointOptions::default(), Duration::from_secs(1));
            let made = create_checkpoint(&env, &how, second).await?;
            delete_checkpoint(&env, &made.id.into(), second).await
        };
        place.run(other, noted).expect("a healthy store");
        let (process, env) = place.process();
        let opened: Arc<Mutex<Option<Result<Reader>>>> = Arc::default();
        let slot = Arc::clone(&opened);
        place.sim.spawn(process, "reader", async move {
            let reader = reader(env, 3600).await;
            *slot.lock() = Some(reader);
        });
        place.pause_at(process, step, || opened.lock().is_some());
        met += usize::from(opened.lock().is_none());
        let flushing = db.clone();
        place.run(writing, async move { flushing.flush_memtable().await }).expect("flushed");
        place.collect();
        place.sim.resume(process);
        place.pass(10);
        let reader = opened.lock().take().expect("it has opened");
        let reader = reader.unwrap_or_else(|error| panic!("step {step}: {error}"));
        let found = place.run(process, keys_of(reader.scan(ScanRange::all()).expect("open")));
        assert_eq!(found.expect("a healthy store"), ["a", "b", "c"], "step {step}");
    }
    assert!(met > 5, "{met} readers met a collection");
}
