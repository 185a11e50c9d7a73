//! The deletes of a collector. It has no grace period here, so that only its rules keep an object.

use crate::compactor::{self, compacting};
use crate::place::{Place, open, options, put};
use bytes::Bytes;
use parking_lot::Mutex;
use siltstone::gc::{GcClass, GcOptions};
use siltstone::{Database, OpenOptions, Options, Result};
use siltstone_base::{ObjectName, SstId};
use siltstone_tests::gc::AT_ONCE;
use siltstone_tests::reachable::difference;
use std::sync::Arc;
use std::time::Duration;

/// Every referenced object exists.
fn check(place: &Place, told: &str) {
    let found = difference(&place.bucket.objects()).expect("sound objects");
    assert_eq!(found.dangling, vec![], "{told}");
}

/// 6, and a peer's 24: only its record references the outputs of a running compaction.
#[test]
fn bug_06_outputs_of_a_running_compaction_stay() {
    let mut paused = 0;
    for step in (1..80).step_by(3) {
        let place = Place::new(|plan| plan);
        let rows = compactor::filled(&place);
        let (process, env) = place.process();
        let ended = Arc::new(Mutex::new(None));
        let slot = Arc::clone(&ended);
        place.sim.spawn(process, "compactor", async move {
            let compacted = compacting(env).await;
            *slot.lock() = Some(compacted);
        });
        place.pause_at(process, step, || ended.lock().is_some());
        paused += usize::from(ended.lock().is_none());
        place.collect();
        place.sim.resume(process);
        place.pass(30);
        let compacted = ended.lock().take().expect("it ends");
        assert!(compacted.unwrap_or_else(|error| panic!("step {step}: {error}")), "step {step}");
        check(&place, &format!("step {step}"));
        assert_eq!(compactor::rows(&place), rows, "step {step}");
    }
    assert!(paused > 10, "{paused} pauses are few");
}

/// 6, and a peer's 23 and 25: only the reservation references a table that was uploaded and is not
/// committed yet, for any duration and any time in its name.
#[test]
fn bug_06_a_table_just_uploaded_stays() {
    let mut paused = 0;
    for step in 1..30 {
        let place = Place::new(|plan| plan);
        let (process, _, db) = place.open();
        put(&db, "a").expect("accepted");
        let began = place.bucket.operations(process);
        let ended = Arc::new(Mutex::new(None));
        let (slot, flushing) = (Arc::clone(&ended), db.clone());
        place.sim.spawn(process, "flush", async move {
            let flushed = flushing.flush_memtable().await;
            *slot.lock() = Some(flushed);
        });
        place.pause_at(process, began + step, || ended.lock().is_some());
        paused += usize::from(ended.lock().is_none());
        place.collect();
        place.sim.resume(process);
        place.pass(30);
        ended.lock().take().expect("it ends").expect("flushed");
        check(&place, &format!("step {step}"));
        place.sim.kill(process);
        assert_eq!(place.recovered(), ["a"], "step {step}");
    }
    assert!(paused > 3, "{paused} pauses are few");
}

/// The order of a round: objects that arrived during the round are in what it reads last, or were
/// not listed. It sleeps at every step while a flush and a compaction run.
#[test]
fn peer_24_a_slow_round_deletes_nothing_that_came() {
    let mut paused = 0;
    for step in 1..30 {
        let place = Place::new(|plan| plan);
        let mut rows = compactor::filled(&place);
        let (process, env) = place.process();
        let ended = Arc::new(Mutex::new(None));
        let slot = Arc::clone(&ended);
        place.sim.spawn(process, "collector", async move {
            let round = siltstone::gc::once(&env, &AT_ONCE, false).await;
            *slot.lock() = Some(round);
        });
        place.pause_at(process, step, || ended.lock().is_some());
        paused += usize::from(ended.lock().is_none());
        let (other, env) = place.process();
        assert!(place.run(other, compacting(env)).expect("a healthy store"));
        place.flushes(&["zz"]);
        rows.push((b"zz".to_vec(), b"value".to_vec()));
        place.sim.resume(process);
        place.pass(30);
        ended.lock().take().expect("it ends").expect("a healthy store");
        check(&place, &format!("step {step}"));
        assert_eq!(compactor::rows(&place), rows, "step {step}");
    }
    assert!(paused > 5, "{paused} pauses are few");
}

/// 8, and a peer's 25: the age of an object is by the store's clock. A collector whose clock is ten
/// days ahead deletes nothing early, nor objects of a process whose clock is ten days behind. A
/// table that can no longer be referenced needs no age, by any clock.
#[test]
fn bug_08_no_clock_of_a_process_makes_an_object_old() {
    const DAYS: i64 = 10 * 24 * 3_600_000;
    let grace = GcOptions { min_age: Duration::from_secs(600), ..AT_ONCE };
    let place = Place::new(|plan| plan);
    // Names are made a while after the beginning of time, so that none has an earlier time.
    let (process, env) = place.skewed(-DAYS);
    let wrote: Result<()> = place.run(process, async move {
        let how = Options { embedded_gc: false, ..options() };
        let db =
            Database::open(env, OpenOptions { options: how, ..OpenOptions::default() }).await?;
        for key in ["a", "b", "c"] {
            put(&db, key)?;
            db.flush_memtable().await?;
        }
        db.compact().await?;
        db.close().await
    });
    wrote.expect("a healthy store");
    // A left-over of a compactor that died in its first upload.
    let (_, env) = place.skewed(-DAYS);
    let orphan = ObjectName::Compacted(SstId(env.new_ulid()));
    place.bucket.insert(orphan, Bytes::from_static(b"half a table"));
    let round = || {
        let (process, env) = place.skewed(DAYS);
        let round = async move { siltstone::gc::once(&env, &grace, false).await };
        place.run(process, round).expect("a healthy store")
    };
    let early = round();
    assert_eq!(early.total().deleted, 1, "{early:?}");
    let there = |name| place.bucket.objects().iter().any(|(there, _)| *there == name);
    assert!(!there(orphan));
    place.pass(700);
    assert!(round().classes[&GcClass::Tables].deleted > 0);
    check(&place, "after the grace period");
    let (process, env) = place.process();
    let found = place.run(process, async move { crate::place::keys(&open(env).await?).await });
    assert_eq!(found.expect("all of it is there"), ["a", "b", "c"]);
}
