//! The log, its fences, and processes that wait for a writer.

use crate::place::{Place, keys, keys_of, open, options, put};
use futures::FutureExt;
use siltstone::{
    Accept, Batch, Database, ErrorKind, FillOutcome, OpenOptions, Options, Rows, ScanRange,
};
use siltstone_tests::compact;
use siltstone_tests::faults::{Fault, FaultPlan};
use siltstone_tests::sim::Stopped;
use std::sync::Arc;
use std::time::Duration;

/// 1: a WAL slot is freed, a zombie creates it again and acknowledges; a replay never sees it.
#[test]
fn bug_01_a_freed_slot_is_not_acknowledged() {
    let place = Place::new(|plan| plan);
    let (a, _, zombie) = place.open();
    let early = put(&zombie, "early").expect("accepted");
    place.run(a, async move { early.wait(None).await }).expect("durable");
    let late = put(&zombie, "late").expect("accepted");
    place.sim.pause(a);
    // Two writers open and close, one after the other; their left-overs are collected.
    for key in ["b", "c"] {
        let (process, _, db) = place.open();
        let commit = put(&db, key).expect("accepted");
        place
            .run(process, async move {
                commit.wait(None).await?;
                db.flush_memtable().await
            })
            .expect("flushed");
        place.sim.kill(process);
    }
    let (process, env) = place.process();
    place.run(process, async move { open(env).await?.close().await }).expect("closes");
    place.collect();
    place.collect();
    place.sim.resume(a);
    let acknowledged = place.run(a, async move { late.wait(None).await });
    let found = place.recovered();
    assert_eq!(acknowledged.map_err(|e| e.kind()), Err(ErrorKind::Fenced), "found {found:?}");
    assert_eq!(found, ["b", "c", "early"]);
}

/// 2 and 4: an opener is overtaken at every step of its opening, and the objects that it could meet
/// are collected before it continues. It must end, or own the database correctly.
#[test]
fn bug_02_and_04_an_overtaken_opener_does_not_acknowledge() {
    for step in 1..24 {
        let place = Place::new(|plan| plan);
        let (first, env, db) = place.open();
        let commit = put(&db, "first").expect("accepted");
        place.run(first, async move { commit.wait(None).await }).expect("durable");
        place.sim.kill(first);
        drop((env, db));

        let (slow, env) = place.process();
        let opened = Arc::new(parking_lot::Mutex::new(None));
        let slot = Arc::clone(&opened);
        place.sim.spawn(slow, "slow opener", async move {
            let db = open(env).await;
            *slot.lock() = Some(db);
        });
        while place.bucket.operations(slow) < step && opened.lock().is_none() {
            place.sim.run_for(Duration::from_millis(1)).expect("time goes on");
        }
        place.sim.pause(slow);

        // The overtaking writer leaves more ids behind than the slow one has walked.
        let (fast, _, db) = place.open();
        let mut commits = Vec::new();
        for n in 0..4 {
            let commit = put(&db, &format!("fast{n}")).expect("accepted");
            let waiting = commit.clone();
            place.run(fast, async move { waiting.wait(None).await }).expect("durable");
            commits.push(commit);
        }
        let flushing = db.clone();
        place.run(fast, async move { flushing.flush_memtable().await }).expect("flushed");
        place.collect();
        place.sim.resume(slow);
        place.sim.run_for(Duration::from_secs(120)).expect("time goes on");

        let slow_db = opened.lock().take();
        let mut promised = vec!["fast0", "fast1", "fast2", "fast3", "first"];
        if let Some(Ok(slow_db)) = slow_db
            && let Ok(commit) = put(&slow_db, "slow")
            && place.run(slow, async move { commit.wait(None).await }).is_ok()
        {
            promised.push("slow");
        }
        if let Ok(commit) = put(&db, "still")
            && place.run(fast, async move { commit.wait(None).await }).is_ok()
        {
            promised.push("still");
        }
        assert!(promised.len() < 7, "step {step}: two writers acknowledge");
        let found = place.recovered();
        for key in promised {
            assert!(found.iter().any(|k| k == key), "step {step}: {key} lost of {found:?}");
        }
    }
}

/// 5: the claim landed, its answer was lost, and the opener takes itself for a rival.
#[test]
fn bug_05_a_lost_answer_is_not_a_rival() {
    for fault in [Fault::PutAnswerLost, Fault::PutResent, Fault::PutFalseExists] {
        let place = Place::new(|plan| plan.with(fault, 600));
        let (process, env) = place.process();
        let found = place.run(process, async move {
            let db = open(env.clone()).await?;
            put(&db, "a")?.wait(None).await?;
            db.close().await?;
            let again = OpenOptions {
                take_over: Some(false),
                options: options(),
                ..OpenOptions::default()
            };
            keys(&Database::open(env, again).await?).await
        });
        assert_eq!(found.expect("opens"), ["a"], "{fault:?}");
    }
}

/// 7: a collector deletes the tables of a running scan: the manifest had no pin, or a commit that
/// was planned before a compaction released it.
#[test]
fn bug_07_tables_of_a_scan_are_not_collected() {
    let place = Place::new(|plan| plan);
    let (process, env, db) = place.open();
    let db = Arc::new(db);
    let writes = |key: &'static str| {
        let db = Arc::clone(&db);
        place.run(process, async move {
            put(&db, key)?;
            db.flush_memtable().await
        })
    };
    writes("a").expect("a flush");
    let scan = db.scan(ScanRange::all()).expect("open");
    place.run(process, async move { compact::everything(&env).await }).expect("a compaction");
    place.collect();
    // The writer does not know of the compaction: its flush meets it.
    writes("b").expect("a flush");
    place.collect();
    assert_eq!(place.run(process, keys_of(scan)).expect("all of it is there"), ["a"]);
    let now = Arc::clone(&db);
    let now = place.run(process, async move { keys(&now).await });
    assert_eq!(now.expect("all of it is there"), ["a", "b"]);
}

/// 9: the range to replay consists of the objects met before the fence. Objects that an older
/// writer lands between the fence and the first id of the new writer belong to no history.
#[test]
fn bug_09_objects_beyond_the_fence_are_ignored() {
    let place = Place::new(|plan| plan);
    let (a, _, old) = place.open();
    let first = put(&old, "first").expect("accepted");
    place.run(a, async move { first.wait(None).await }).expect("durable");
    // Two objects of the old writer are in flight; the first hangs, the second lands.
    place.bucket.set_plan(FaultPlan::none().with(Fault::PutLandsLate, 1000));
    for key in ["x", "y"] {
        let commit = put(&old, key).expect("accepted");
        place.sim.spawn(a, "wait", async move {
            let _ = commit.wait(None).await;
        });
        place.sim.run_for(Duration::from_millis(300)).expect("time goes on");
    }
    place.bucket.heal();
    place.sim.kill(a);
    let (b, _, db) = place.open();
    let own = put(&db, "own").expect("accepted");
    place.run(b, async move { own.wait(None).await }).expect("durable");
    let process = place.process().0;
    let looking = db.clone();
    let before = place.run(process, async move { keys(&looking).await }).expect("reads");
    // Every request in flight lands.
    place.sim.run_for(Duration::from_secs(900)).expect("time goes on");
    place.sim.kill(b);
    assert_eq!(place.recovered(), before);
    assert!(before.contains(&"own".to_owned()));
}

/// 10: a replay skips rows that are in tables already.
#[test]
fn bug_10_replay_skips_what_is_in_tables() {
    let place = Place::new(|plan| plan);
    let (a, _, db) = place.open();
    place
        .run(a, async move {
            put(&db, "flushed")?;
            // It freezes immediately, and waits; the next write goes to the same WAL object.
            let mut flush = Box::pin(db.flush_memtable());
            assert!((&mut flush).now_or_never().is_none());
            let tail = put(&db, "tail")?;
            flush.await?;
            tail.wait(None).await
        })
        .expect("durable");
    place.sim.kill(a);
    let (process, env) = place.process();
    let entries = place.run(process, async move { Ok(open(env).await?.stats().memtable_entries) });
    assert_eq!(entries.expect("opens"), 1);
}

/// 12: writers that wait for room wake when the handle is fenced.
#[test]
fn bug_12_a_fence_wakes_those_who_wait() {
    let place = Place::new(|plan| plan);
    let (a, env) = place.process();
    let small = Options {
        l0_sst_size_bytes: 1024,
        max_memtable_bytes: 4096,
        deadline: Duration::from_secs(86_400),
        ..options()
    };
    let how = OpenOptions { options: small, ..OpenOptions::default() };
    let db = place.run(a, Database::open(env, how)).expect("opens");
    // From now on none of its requests succeed: it fills up, and waits.
    place.bucket.break_for(Duration::from_secs(5));
    let mut batch = Batch::new();
    batch.put(b"k", &[0; 1000], None).expect("a good entry");
    let relief = loop {
        match db.write(&batch).expect("open") {
            Accept::Accepted(_) => {}
            Accept::Pressure(relief) => break relief,
        }
    };
    place.sim.pause(a);
    place.sim.run_for(Duration::from_secs(6)).expect("time goes on");
    let _newer = place.open();
    place.sim.resume(a);
    let ended = place.sim.block_on(a, relief);
    assert_ne!(ended.as_ref().err(), Some(&Stopped::Deadlock));
    assert_eq!(ended.expect("it ends").map_err(|e| e.kind()), Err(ErrorKind::Fenced));
}

/// 13: a dropped wait, and then a dropped handle, lose nothing.
#[test]
fn bug_13_dropping_a_future_or_a_handle_loses_no_write() {
    let place = Place::new(|plan| plan);
    let (a, _, db) = place.open();
    let mut dropped = Vec::new();
    for key in ["a", "b", "c"] {
        let commit = put(&db, key).expect("accepted");
        dropped.push(commit.wait(None));
    }
    place.sim.run_for(Duration::from_millis(2)).expect("time goes on");
    drop(dropped);
    let flushing = db.clone();
    let flush = Box::pin(async move { flushing.flush_memtable().await });
    drop(flush);
    // Accepted, and only in the buffer when the handle is dropped.
    put(&db, "d").expect("accepted");
    drop(db);
    place.sim.run_for(Duration::from_secs(10)).expect("time goes on");
    place.sim.kill(a);
    assert_eq!(place.recovered(), ["a", "b", "c", "d"]);
}

/// 14: empty ranges of every kind.
#[test]
fn bug_14_empty_ranges_are_empty() {
    let place = Place::new(|plan| plan);
    let (a, _, db) = place.open();
    for key in ["a", "b", "c"] {
        put(&db, key).expect("accepted");
    }
    let flushing = db.clone();
    place.run(a, async move { flushing.flush_memtable().await }).expect("flushed");
    put(&db, "d").expect("accepted");
    let key = |key: &str| Some(key.as_bytes().to_vec());
    let ranges = [
        (key("b"), key("b")),
        (key("c"), key("a")),
        (key("x"), None),
        (None, key("a")),
        (key("bb"), key("bc")),
        (key(""), key("")),
    ];
    for (start, end) in ranges {
        for reverse in [false, true] {
            let range = ScanRange { start: start.clone(), end: end.clone(), reverse, limit: None };
            let mut scan = db.scan(range.clone()).expect("open");
            let filled = place.run(a, async move {
                let mut rows = Rows::new();
                while scan.fill(&mut rows, 10, 1 << 20)? == FillOutcome::NeedsBlocks {
                    scan.fetch().await?;
                }
                Ok(rows.len())
            });
            assert_eq!(filled.expect("an answer"), 0, "{range:?}");
        }
    }
    // An empty database opens, scans, flushes and closes.
    let empty = Place::new(|plan| plan);
    assert_eq!(empty.recovered(), Vec::<String>::new());
    assert_eq!(empty.recovered(), Vec::<String>::new());
}

/// 15: the attempt id settles an ambiguous answer; it is not guessed.
#[test]
fn bug_15_an_ambiguous_put_is_resolved() {
    for fault in [Fault::PutAnswerLost, Fault::PutLostOnTheWay, Fault::PutResent] {
        let place = Place::new(|plan| plan);
        let (a, _, db) = place.open();
        place.bucket.set_plan(FaultPlan::none().with(fault, 700));
        for n in 0..20 {
            let commit = put(&db, &format!("key{n:02}")).expect("accepted");
            place.run(a, async move { commit.wait(None).await }).expect("durable");
        }
        place.bucket.heal();
        place.sim.kill(a);
        assert_eq!(place.recovered().len(), 20, "{fault:?}");
    }
}

/// A peer's 47: writers that wait for room in L0 wake when a compactor, here in another process,
/// has made it.
#[test]
fn peer_47_room_wakes_those_who_wait() {
    let place = Place::new(|plan| plan);
    let (process, env) = place.process();
    let mut full = Options {
        embedded_compactor: false,
        deadline: Duration::from_secs(3600),
        manifest_poll_interval: Some(Duration::from_secs(1)),
        ..options()
    };
    full.compaction.l0_compaction_threshold_ssts = 2;
    full.compaction.l0_max_ssts = 4;
    let how = OpenOptions { options: full, ..OpenOptions::default() };
    let db = place.run(process, Database::open(env, how)).expect("opens");
    let room = loop {
        match db.put(b"k", b"value", None).expect("open") {
            Accept::Accepted(_) => {}
            // Slowed down, before L0 is full.
            Accept::Pressure(room) if db.stats().l0_entries < 4 => {
                place.run(process, room).expect("it goes on");
            }
            Accept::Pressure(room) => break room,
        }
        let flushing = db.clone();
        place.run(process, async move { flushing.flush_memtable().await }).expect("flushed");
    };
    let woken = Arc::new(parking_lot::Mutex::new(None));
    let told = Arc::clone(&woken);
    place.sim.spawn(process, "writer", async move {
        let ended = room.await;
        *told.lock() = Some(ended);
    });
    place.pass(5);
    assert!(woken.lock().is_none(), "there is no room yet");
    let (other, env) = place.process();
    place.run(other, async move { compact::everything(&env).await }).expect("a compaction");
    place.pass(5);
    assert_eq!(woken.lock().take().map(|ended| ended.is_ok()), Some(true));
}
