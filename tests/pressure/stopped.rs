//! Writes that wait for room: the events that wake them, and the errors if there is none.

use crate::{DEADLINE, World, alone, batch, check, key, lines, open, options, tell, until_stopped};
use siltstone::{Accept, Batch, Database, Error, ErrorKind, Options};
use siltstone_base::ObjectName;
use siltstone_tests::{compact, gc};
use std::time::Duration;

/// L0 is filled exactly to its limit; the error of the write names the remedy, which works.
#[test]
fn without_a_compactor_writes_stop_at_l0_max_and_are_told_why() {
    tell(async |world| {
        let db = world.open(alone()).await;
        let (written, room) = until_stopped(&world, &db, 0).await;
        let began = world.now();
        let error = room.await.unwrap_err();
        assert_eq!(world.now() - began, DEADLINE);
        assert_eq!(error.kind(), ErrorKind::Timeout);
        let text = error.to_string();
        for said in ["L0 has 4 layers (l0_max_ssts 4)", "embedded_compactor is off", "compact()"] {
            assert!(text.contains(said), "{text}");
        }
        let full = db.stats();
        assert_eq!((full.l0_entries, full.pressure), (4, 1.0));
        assert!(full.waited_for_l0_seconds >= DEADLINE.as_secs_f64());
        check(&db, written).await;
        assert!(db.compact().await.unwrap());
        assert!(matches!(db.write(&batch(written)), Ok(Accept::Accepted(_))));
        check(&db, written + 1).await;
        db.close().await.unwrap();
    });
}

/// Stopped for memory while the last flush is running, and for L0 once that has landed: the waiting
/// time is attributed to each for its duration, and the second is reported, too.
#[test]
fn a_wait_whose_cause_changes_is_counted_and_told_as_both() {
    lines::keep();
    tell(async |world| {
        // A batch fills the memory by itself, for any earlier slowdown, and the wait is over before
        // there is a look for the result of a compactor elsewhere.
        let deadline = Duration::from_millis(500);
        let options = Options { max_memtable_bytes: 64 << 10, deadline, ..alone() };
        let db = world.open(options).await;
        let mut written = 0;
        let (before, error) = loop {
            let mut large = Batch::new();
            for row in written * 10..(written + 10) * 10 {
                large.put(&key(row), &[(row / 10) as u8; 1000], None).unwrap();
            }
            let Accept::Pressure(room) = db.write(&large).unwrap() else {
                written += 10;
                continue;
            };
            let before = db.stats();
            if let Err(error) = room.await {
                break (before, error);
            }
        };
        assert_eq!(before.l0_entries, 3, "stopped before L0 is full");
        let after = db.stats();
        let memory = after.waited_for_memory_seconds - before.waited_for_memory_seconds;
        let l0 = after.waited_for_l0_seconds - before.waited_for_l0_seconds;
        assert!(memory > 0.0 && l0 > 0.0, "{memory} s and {l0} s");
        assert!((memory + l0 - deadline.as_secs_f64()).abs() < 1e-6, "{memory} s and {l0} s");
        assert!(error.to_string().contains("L0 has 4 layers"), "{error}");
        let told = lines::kept();
        for why in ["writes are stopped: 1", "writes are stopped: L0 has 4 layers"] {
            assert_eq!(told.iter().filter(|line| line.starts_with(why)).count(), 1, "{told:?}");
        }
        check(&db, written).await;
        db.close().await.unwrap();
    });
}

/// L0 is full although the compactor is fast, because no writer lived long enough to compact: the
/// text names that remedy too.
#[test]
fn writers_that_close_soon_are_told_to_stay_open() {
    lines::keep();
    tell(async |world| {
        let db = world.open(alone()).await;
        let (written, _) = until_stopped(&world, &db, 0).await;
        db.close().await.unwrap();
        let db = world.open(options()).await;
        let Accept::Pressure(room) = db.write(&batch(written)).unwrap() else {
            panic!("there is room")
        };
        let told = lines::kept();
        let remedy = "keep the writer open longer, or run `siltstone compact`";
        // Other tests of this program log beside it.
        let is_it = |line: &&String| line.starts_with("writes are stopped: L0 has");
        assert!(told.iter().filter(is_it).any(|line| line.ends_with(remedy)), "{told:?}");
        room.await.unwrap();
        db.close().await.unwrap();
    });
}

/// Memtables without room in L0 stay in memory until there is room, and nothing of them is lost.
#[test]
fn flushes_wait_while_l0_is_full() {
    tell(async |world| {
        let large = Options { l0_sst_size_bytes: 1 << 20, max_memtable_bytes: 1 << 20, ..alone() };
        let db = world.open(large).await;
        let mut written = 0;
        for layer in 0..4 {
            // Three layers, and then as much as three memtables of the next writer.
            for _ in 0..if layer < 3 { 1 } else { 20 } {
                assert!(matches!(db.write(&batch(written)), Ok(Accept::Accepted(_))));
                written += 1;
                // A memtable of the next writer ends with an object of the WAL.
                db.flush().await.unwrap();
            }
            if layer < 3 {
                db.flush_memtable().await.unwrap();
            }
        }
        let db = world.open(alone()).await;
        world.env.clock.sleep(Duration::from_secs(10)).await;
        let full = db.stats();
        assert!(full.frozen_memtables >= 2, "{full:?}");
        assert_eq!(full.l0_entries, 4);
        check(&db, written).await;
        assert!(db.compact().await.unwrap());
        let done = db.stats();
        assert_eq!((done.frozen_memtables, done.l0_entries), (0, 0));
        check(&db, written).await;
        db.close().await.unwrap();
    });
}

#[test]
fn closing_wakes_who_waits_and_flushes_past_a_full_l0() {
    tell(async |world| {
        let db = world.open(alone()).await;
        let (written, room) = until_stopped(&world, &db, 0).await;
        let waiter = world.beside(room);
        let began = world.now();
        db.close().await.unwrap();
        assert_eq!(waiter.await.unwrap_err().kind(), ErrorKind::Closed);
        assert!(world.now() - began < Duration::from_secs(1));
        let state = gc::newest(&world.env).await.unwrap().unwrap();
        assert!(state.closed_cleanly());
        assert_eq!(state.flushed_seq.0, written * 10);
        // The next one stops at the same point, and reports it; reads work as before.
        let db = world.open(alone()).await;
        check(&db, written).await;
        assert!(matches!(db.write(&batch(written)), Ok(Accept::Pressure(_))));
        db.close().await.unwrap();
    });
}

/// A writer that is stopped sends nothing, so it meets no fence: it must look.
#[test]
fn a_successor_wakes_who_waits() {
    tell(async |world| {
        let db = world.open(alone()).await;
        let (_, room) = until_stopped(&world, &db, 0).await;
        let waiter = world.beside(room);
        world.env.clock.sleep(Duration::from_millis(10)).await;
        let successor = open(&world.other, alone()).await;
        let began = world.now();
        assert_eq!(waiter.await.unwrap_err().kind(), ErrorKind::Fenced);
        assert!(world.now() - began <= Duration::from_secs(2));
        assert_eq!(db.write(&batch(0)).unwrap_err().kind(), ErrorKind::Fenced);
        successor.close().await.unwrap();
    });
}

/// The result of a compactor elsewhere is noticed within about a poll, with about one request per
/// poll.
#[test]
fn a_compactor_in_another_process_is_noticed() {
    tell(async |world| {
        let options = Options { deadline: Duration::from_secs(60), ..alone() };
        let db = world.open(options).await;
        let (written, room) = until_stopped(&world, &db, 0).await;
        let waiter = world.beside(room);
        world.env.clock.sleep(Duration::from_secs(2)).await;
        let before = world.requests.totals();
        world.env.clock.sleep(Duration::from_secs(20)).await;
        let after = world.requests.totals();
        let asked = (after.gets + after.lists) - (before.gets + before.lists);
        assert!((15..=25).contains(&asked), "{asked} requests in 20 s of waiting");
        compact::everything(&world.other).await.unwrap();
        let began = world.now();
        waiter.await.unwrap();
        assert!(world.now() - began <= Duration::from_millis(1500));
        assert!(matches!(db.write(&batch(written)), Ok(Accept::Accepted(_))));
        check(&db, written + 1).await;
        db.close().await.unwrap();
    });
}

async fn told(world: &World, db: &Database, from: u64) -> Error {
    let (_, room) = until_stopped(world, db, from).await;
    room.await.unwrap_err()
}

#[test]
fn a_compactor_that_was_fenced_is_named() {
    tell(async |world| {
        let db = world.open(options()).await;
        let mut written = 0;
        // It has an epoch once it has compacted.
        while db.stats().compactions == 0 {
            match db.write(&batch(written)).unwrap() {
                Accept::Accepted(_) => written += 1,
                Accept::Pressure(room) => room.await.unwrap(),
            }
            world.env.clock.sleep(Duration::from_millis(5)).await;
        }
        compact::everything(&world.other).await.unwrap();
        let text = told(&world, &db, written).await.to_string();
        assert!(text.contains("another compactor has taken over"), "{text}");
        assert_eq!(db.compaction_error().unwrap().kind(), ErrorKind::Fenced);
        db.close().await.unwrap();
    });
}

#[test]
fn a_compaction_that_fails_is_told_with_its_error() {
    tell(async |world| {
        let db = world.open(alone()).await;
        let (written, _) = until_stopped(&world, &db, 0).await;
        db.close().await.unwrap();
        let state = gc::newest(&world.env).await.unwrap().unwrap();
        let lost = state.l0.last().unwrap().tables[0].id;
        world.env.store.delete(ObjectName::Compacted(lost)).await.unwrap();
        let db = world.open(options()).await;
        let Accept::Pressure(room) = db.write(&batch(written)).unwrap() else {
            panic!("L0 is full");
        };
        let text = room.await.unwrap_err().to_string();
        assert!(text.contains("compaction fails") && text.contains("gone"), "{text}");
        let stats = db.stats();
        assert!(stats.compaction_failures > 0, "{stats:?}");
        assert_eq!(db.compaction_error().unwrap().kind(), ErrorKind::Corruption);
        let log = db.compaction_log();
        assert!(log.last().unwrap().error.as_ref().unwrap().contains("gone"), "{log:?}");
        assert!(log.last().unwrap().to_string().contains("failed after"));
        db.close().await.unwrap();
    });
}

#[test]
fn pending_bytes_stop_writes_where_they_have_a_limit() {
    tell(async |world| {
        let mut options = alone();
        options.compaction.l0_max_ssts = 100;
        options.compaction.max_pending_compaction_bytes = Some(400 << 10);
        let db = world.open(options).await;
        let mut written = 0;
        let error = loop {
            match db.write(&batch(written)).unwrap() {
                Accept::Accepted(_) => written += 1,
                Accept::Pressure(room) => match room.await {
                    Ok(()) => {}
                    Err(error) => break error,
                },
            }
        };
        assert_eq!(error.kind(), ErrorKind::Timeout);
        let text = error.to_string();
        assert!(text.contains("(max_pending_compaction_bytes 409600)"), "{text}");
        let stats = db.stats();
        assert!(stats.pending_compaction_bytes >= 400 << 10);
        assert!(stats.waited_for_compaction_seconds >= DEADLINE.as_secs_f64());
        assert!(db.compact().await.unwrap());
        assert!(matches!(db.write(&batch(written)), Ok(Accept::Accepted(_))));
        check(&db, written + 1).await;
        db.close().await.unwrap();
    });
}

/// An abandoned wait no longer counts, and causes no look for compactions.
#[test]
fn a_wait_that_is_dropped_leaves_nothing_behind() {
    tell(async |world| {
        let mut options = alone();
        options.writes.ingest_poll_interval = None;
        let db = world.open(options).await;
        let (_, room) = until_stopped(&world, &db, 0).await;
        drop(room);
        world.env.clock.sleep(Duration::from_secs(3)).await;
        let before = world.requests.totals();
        world.env.clock.sleep(Duration::from_secs(60)).await;
        assert_eq!(world.requests.totals(), before);
        db.close().await.unwrap();
    });
}
