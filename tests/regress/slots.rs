//! Numbered names: freed slots, listings, and the base of a commit.

use crate::place::{Place, keys, keys_of, open, put, reader};
use parking_lot::Mutex;
use siltstone::{CheckpointOptions, Reader, Result, ScanRange, admin};
use siltstone_base::{ManifestId, ObjectName};
use siltstone_tests::faults::FaultPlan;
use siltstone_tests::{compact, gc};
use std::sync::Arc;
use std::time::Duration;

/// More than the store operations of an opening reader.
const STEPS: u64 = 40;

/// Others commit, and every manifest but the newest is freed.
fn others_go_on(place: &Place) {
    place.flushes(&["b", "c"]);
    let (process, env) = place.process();
    place.run(process, async move { compact::everything(&env).await }).expect("a compaction");
    place.collect();
    place.collect();
}

/// Rewrites everything, and deletes unpinned objects.
fn tables_go(place: &Place) {
    place.flushes(&["z"]);
    let (process, env) = place.process();
    place.run(process, async move { compact::everything(&env).await }).expect("a compaction");
    place.collect();
}

/// 3, and a peer's 2 and 26: a manifest was listed, and freed before it was read; or its successor
/// was, and a create lands in the empty slot. A reader that sleeps at any step of its opening holds
/// a checkpoint that every process sees, or none.
#[test]
fn bug_03_a_checkpoint_in_a_freed_slot_is_not_believed() {
    let mut slept = 0;
    for step in 1..STEPS {
        let place = Place::new(|plan| plan);
        place.flushes(&["a"]);
        let (sleeper, env) = place.process();
        let opened: Arc<Mutex<Option<Result<Reader>>>> = Arc::default();
        let slot = Arc::clone(&opened);
        place.sim.spawn(sleeper, "sleeper", async move {
            let reader = reader(env, 3600).await;
            *slot.lock() = Some(reader);
        });
        place.pause_at(sleeper, step, || opened.lock().is_some());
        let late = opened.lock().is_none();
        others_go_on(&place);
        place.sim.resume(sleeper);
        for _ in 0..20_000 {
            if opened.lock().is_none() {
                place.sim.run_for(Duration::from_millis(1)).expect("time goes on");
            }
        }
        assert!(place.bucket.operations(sleeper) < 2 * STEPS, "step {step}: it goes in circles");
        let reader = opened.lock().take().expect("it has opened").expect("a healthy store");
        let scan = reader.scan(ScanRange::all()).expect("open");
        tables_go(&place);
        let found = place.run(sleeper, keys_of(scan));
        let found = found.unwrap_or_else(|error| panic!("step {step}: {error}"));
        if late {
            slept += 1;
            assert!(found == ["a"] || found == ["a", "b", "c"], "step {step}: {found:?}");
        }
    }
    assert!(slept > 5, "{slept} sleepers are few");
}

/// 16, and a peer's 3: a process must not rely later on facts from an earlier listing, boundaries
/// above all. Nothing that the store may change is cached.
#[test]
fn bug_16_an_object_listed_once_is_listed_again() {
    for step in 0..12 {
        let place = Place::new(|plan| plan);
        place.flushes(&["a"]);
        let (process, env) = place.process();
        let reader = place.run(process, reader(env, 3600)).expect("a healthy store");
        place.flushes(&["aa"]);
        // It sleeps at some point while it takes those tables up.
        let operations = place.bucket.operations(process) + step;
        place.pause_at(process, operations, || false);
        others_go_on(&place);
        place.sim.resume(process);
        // Numbers are freed immediately here: one look in sixteen is a listing.
        place.pass(30);
        let scan = reader.scan(ScanRange::all()).expect("open");
        tables_go(&place);
        let found = place.run(process, keys_of(scan)).expect("all of it is there");
        assert_eq!(found, ["a", "aa", "b", "c"], "step {step}");
    }
}

/// 22: the largest number of a listing is the latest only if the next one does not exist.
#[test]
fn bug_22_a_stale_listing_is_read_on_from() {
    let stale = |plan: FaultPlan| {
        let mut plan = plan.with_stale_lists(1000);
        plan.staleness = Duration::from_secs(3600);
        plan
    };
    let place = Place::new(stale);
    place.flushes(&["a"]);
    place.flushes(&["b"]);
    let (process, env) = place.process();
    let reader = place.run(process, reader(env, 3600)).expect("a healthy store");
    let found = place.run(process, keys_of(reader.scan(ScanRange::all()).expect("open")));
    assert_eq!(found.expect("a healthy store"), ["a", "b"]);
    assert_eq!(place.recovered(), ["a", "b"]);
}

/// A peer's 14 and 15: a commit that met others' commits preserves their changes. Here a writer
/// that knows of neither flushes beside a reader's lease and a compaction.
#[test]
fn peer_14_a_commit_keeps_what_others_committed() {
    let place = Place::new(|plan| plan);
    let (process, _, db) = place.open();
    let db = Arc::new(db);
    let flushes = |key: &'static str| {
        let db = Arc::clone(&db);
        let flushed = place.run(process, async move {
            put(&db, key)?;
            db.flush_memtable().await
        });
        flushed.expect("a healthy store");
    };
    flushes("a");
    let (reading, env) = place.process();
    let reader = place.run(reading, reader(env, 3600)).expect("a healthy store");
    let scan = reader.scan(ScanRange::all()).expect("open");
    let before = place.newest();
    flushes("b");
    let after = place.newest();
    let since = &before.since_leases;
    assert!(since.len() == 1 && after.since_leases == *since, "{after:?}");
    // A compactor, and a writer that does not know of it.
    let (other, env) = place.process();
    let compacting = env.clone();
    place.run(other, async move { compact::everything(&compacting).await }).expect("a compaction");
    let run = place.newest().runs.clone();
    flushes("c");
    assert_eq!(place.newest().runs, run, "a flush takes a compaction back");
    place.run(other, async move { gc::round(&env).await }).expect("a round");
    assert_eq!(place.run(reading, keys_of(scan)).expect("it is pinned"), ["a"]);
    let now = Arc::clone(&db);
    let found = place.run(process, async move { keys(&now).await });
    assert_eq!(found.expect("all of it is there"), ["a", "b", "c"]);
    drop(db);
    place.sim.kill(process);
    let (process, env) = place.process();
    let opened = place.run(process, async move { keys(&open(env).await?).await });
    assert_eq!(opened.expect("all of it is there"), ["a", "b", "c"]);
}

/// Manifest 1 names the number that follows it, and is freed like any other. Two processes create
/// the database, and one loses: its create is in flight until the winner's manifest 1 is freed, and
/// lands in its place. A writer that listed before the boundary existed, and reads 1 after that,
/// takes the number after the loser's, which does not exist, for the end: it must not report that
/// its database is gone.
#[test]
fn a_first_manifest_in_a_freed_slot_says_nothing_of_what_follows() {
    const FIRST: ObjectName = ObjectName::Manifest(ManifestId::FIRST);
    let mut slept = 0;
    for step in 1..2 * STEPS {
        let place = Place::new(|plan| plan);
        let is_there =
            |place: &Place| place.bucket.objects().iter().any(|(name, _)| *name == FIRST);
        // The rival has listed, and has the store's time: its next request is the create.
        let (rival, env) = place.process();
        place.sim.spawn(rival, "rival", async move { drop(open(env).await) });
        place.pause_at(rival, 4, || false);
        let (sleeper, env) = place.process();
        let ended: Arc<Mutex<Option<Result<()>>>> = Arc::default();
        let slot = Arc::clone(&ended);
        place.sim.spawn(sleeper, "sleeper", async move {
            let work = async {
                let db = open(env).await?;
                put(&db, "a")?;
                db.flush_memtable().await?;
                put(&db, "b")?;
                db.close().await
            };
            *slot.lock() = Some(work.await);
        });
        place.pause_at(sleeper, step, || ended.lock().is_some());
        if place.bucket.manifests().len() < 2 {
            continue;
        }
        slept += u64::from(ended.lock().is_none());
        // Others commit, and no writer is among them.
        let (other, env) = place.process();
        let kept = place.run(other, async move {
            let how = CheckpointOptions::default();
            admin::create_checkpoint(&env, &how, Duration::from_secs(5)).await
        });
        kept.expect("a healthy store");
        place.collect();
        assert!(!is_there(&place), "step {step}: it is freed");
        place.sim.resume(rival);
        while !is_there(&place) {
            place.sim.run_for(Duration::from_millis(1)).expect("time goes on");
        }
        place.sim.kill(rival);
        place.sim.resume(sleeper);
        place.pass(10);
        let ended = ended.lock().take().expect("it ends");
        assert!(ended.is_ok(), "step {step}: {ended:?}");
        assert_eq!(place.recovered(), ["a", "b"], "step {step}");
    }
    assert!(slept > 20, "{slept} sleepers are few");
}
