//! Many short lives of a writer: the few rows of each stay in the log once L0 has many tables, and
//! are put into a table with those of others.

use crate::{World, get, put, quiet, tell};
use siltstone::{Accept, Env, Options};
use siltstone_tests::latency::{Latencies, slow};
use siltstone_tests::places::manifest;
use std::sync::Arc;
use std::time::Duration;

/// Lives that are too short for a compaction.
const LIVES: usize = 96;
/// More than a memtable that may stay in the log.
const MUCH: usize = 2 << 20;

/// One life, which writes one row. Returns the number of tables in L0 after it.
async fn life(world: &World, key: &str) -> usize {
    let db = world.open(quiet()).await;
    put(&db, key);
    db.close().await.expect("a healthy store");
    manifest(&world.env).await.l0.len()
}

#[test]
fn short_lives_do_not_fill_l0() {
    tell(async |world| {
        let mut seen = Vec::new();
        for n in 0..LIVES {
            seen.push(life(&world, &format!("key {n}")).await);
        }
        // One table per life up to half of the limit of L0; then one table in twelve lives.
        assert_eq!(seen[..8], [1, 2, 3, 4, 5, 6, 7, 8]);
        assert_eq!((seen[8], seen[15]), (8, 8));
        assert!(seen[LIVES - 1] < 16, "{seen:?}");
        let state = manifest(&world.env).await;
        assert!(state.closed_cleanly());
        assert!(state.kept_fences.len() <= 1, "a fence for each life: {:?}", state.kept_fences);
        // Every row exists, for the next writer and for a reader.
        let (db, reader) = (world.open(quiet()).await, world.open_reader(quiet()).await);
        for n in 0..LIVES {
            let key = format!("key {n}");
            assert!(get(&db, &key).await.is_some(), "{key}");
            let read = reader.get(key.as_bytes()).expect("open").wait().await.expect("healthy");
            assert!(read.is_some(), "{key}");
        }
        assert!(db.stats().unflushed_wal_objects <= 24);
        reader.close().await.expect("nothing is written");
        db.close().await.expect("a healthy store");
    });
}

/// A life on a store with latency is shorter than a compaction. Before, each close gave up the job
/// that had begun, so none was ever done, and L0 grew until writes stopped.
#[test]
fn short_lives_finish_their_compactions() {
    tell(async |world| {
        let clock = Arc::clone(&world.env.clock);
        let (store, _) = slow(Arc::clone(&world.env.store), clock, Latencies::fixed(), 5);
        let world = World { env: Env { store, ..world.env.clone() }, ..world };
        let options = || Options { embedded_compactor: true, ..quiet() };
        let (mut most, mut longest) = (0, Duration::ZERO);
        for n in 0..LIVES {
            let db = world.open(options()).await;
            put(&db, &format!("key {n}"));
            let begun = world.env.clock.monotonic();
            db.close().await.expect("a healthy store");
            longest = longest.max(world.env.clock.monotonic() - begun);
            most = most.max(manifest(&world.env).await.l0.len());
        }
        let state = manifest(&world.env).await;
        assert!(!state.runs.is_empty() && most <= 9, "up to {most} tables in L0");
        assert!(longest < Duration::from_secs(2), "a close took {longest:?}");
    });
}

/// Lives without writes add nothing.
#[test]
fn idle_lives_do_not_make_the_log_longer_for_ever() {
    tell(async |world| {
        for n in 0..10 {
            life(&world, &format!("key {n}")).await;
        }
        for _ in 0..40 {
            world.open(quiet()).await.close().await.expect("a healthy store");
        }
        let state = manifest(&world.env).await;
        assert_eq!(state.l0.len(), 9, "what was left is in a table");
        assert!(state.kept_fences.len() <= 1, "{:?}", state.kept_fences);
    });
}

/// Requested flushes, and large memtables, are put into tables in any case.
#[test]
fn a_flush_and_a_large_life_are_in_tables() {
    tell(async |world| {
        for n in 0..9 {
            life(&world, &format!("key {n}")).await;
        }
        let left = manifest(&world.env).await;
        assert_eq!(left.l0.len(), 8);

        let db = world.open(quiet()).await;
        db.flush_memtable().await.expect("a healthy store");
        db.close().await.expect("a healthy store");
        let flushed = manifest(&world.env).await;
        assert_eq!(flushed.l0.len(), 9);
        assert!(flushed.flushed_seq > left.flushed_seq);

        let db = world.open(quiet()).await;
        let value = vec![7; MUCH];
        let put = db.put(b"large", &value, None).expect("an open handle");
        assert!(matches!(put, Accept::Accepted(_)));
        db.close().await.expect("a healthy store");
        assert_eq!(manifest(&world.env).await.l0.len(), 10);
    });
}

/// A slow writer that stays open: its rows are in a table within an hour, so that neither recovery
/// nor a held log grows with time.
#[test]
fn a_row_waits_at_most_an_hour_for_its_table() {
    tell(async |world| {
        let db = world.open(quiet()).await;
        put(&db, "old").wait(None).await.expect("a healthy store");
        world.pause(Duration::from_secs(25 * 60)).await;
        assert_eq!(manifest(&world.env).await.l0.len(), 0, "it is too early");
        put(&db, "young").wait(None).await.expect("a healthy store");
        world.pause(Duration::from_secs(40 * 60)).await;
        let flushed = manifest(&world.env).await;
        assert_eq!(flushed.l0.len(), 1);
        world.pause(Duration::from_secs(120 * 60)).await;
        let idle = manifest(&world.env).await;
        assert_eq!(idle.l0.len(), 1, "an idle writer flushes nothing");
        assert!(get(&db, "old").await.is_some() && get(&db, "young").await.is_some());
        db.close().await.expect("a healthy store");
    });
}
