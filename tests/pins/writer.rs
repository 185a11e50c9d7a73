//! The writer's checkpoint and its floor (rule C1).

use crate::{POLL, ROWS, delete_half, expected, load, some, tell, value, work, write};
use siltstone::store::counting::RequestTotals;
use siltstone::{Batch, ErrorKind, ScanRange};
use siltstone_tests::{compact, gc};
use std::collections::BTreeSet;
use std::time::Duration;

#[test]
fn a_paused_scan_of_the_writer_gives_its_snapshot() {
    tell(async |world| {
        let db = world.open().await;
        load(&db, 0).await;
        let mut scan = db.scan(ScanRange::all()).unwrap();
        let snapshot = db.snapshot().unwrap();
        let mut rows = some(&mut scan, 10).await.unwrap();

        // Here the writer does not even learn of it.
        world.rewrite().await;
        load(&db, 1).await;
        world.rewrite().await;
        // Here it takes up the new tables, and releases the old ones.
        work(&world, &db).await;
        delete_half(&db).await;
        world.rewrite().await;
        work(&world, &db).await;

        rows.extend(some(&mut scan, usize::MAX).await.unwrap());
        assert_eq!(rows, expected(0));
        let mut again = snapshot.scan(ScanRange::all());
        assert_eq!(some(&mut again, usize::MAX).await.unwrap(), expected(0));
        let now = some(&mut db.scan(ScanRange::prefix(b"key")).unwrap(), usize::MAX).await;
        assert_eq!(now.unwrap().len() as u64, ROWS / 2);

        // The old versions are not read any more: after a while they are garbage, automatically.
        assert!(!world.unnamed_tables().await.is_empty());
        drop((scan, snapshot, again));
        world.pause(POLL * 3).await;
        gc::round(&world.env).await.unwrap();
        assert_eq!(world.unnamed_tables().await, BTreeSet::new());
        assert_eq!(world.owners().await.len(), 1);
        db.close().await.unwrap();
        assert_eq!(world.owners().await, vec![]);
    });
}

/// Puts, flushes, scans: the checkpoint costs no request.
#[test]
fn a_flush_swaps_the_checkpoint_in_its_own_commit() {
    tell(async |world| {
        let opening = world.requests_of(async { drop(world.open().await) }).await;
        // The look that finds nothing also shows the remaining objects.
        assert_eq!((opening.puts, opening.lists), (4, 5), "{opening:?}");
        let db = world.open().await;
        let mut scans = Vec::new();
        for round in 0..3 {
            let mut batch = Batch::new();
            batch.put(b"key", &value(0, round), None).unwrap();
            write(&db, &batch).await;
            let flush = async { db.flush_memtable().await.unwrap() };
            let flushing = world.requests_of(flush).await;
            // The table, the manifest, and the listing after it.
            assert_eq!((flushing.puts, flushing.lists), (2, 1), "{flushing:?}");
            scans.push(db.scan(ScanRange::all()).unwrap());
            let manifest = world.manifest().await;
            let [only] = manifest.checkpoints.as_slice() else { panic!("{manifest:?}") };
            assert_eq!(only.manifest_id, manifest.id);
            assert!(!only.pins_wal(only.replay_from));
        }
        drop(scans);
        let idle = world.requests_of(world.pause(Duration::from_secs(600))).await;
        assert_eq!(idle, RequestTotals::default());
    });
}

/// A compaction costs a writer that has learned of it and flushes nothing two commits: one takes up
/// the new tables, and one releases the old ones when they are no longer read.
#[test]
fn a_compaction_costs_an_idle_writer_two_commits() {
    tell(async |world| {
        let db = world.open().await;
        load(&db, 0).await;
        let scan = db.scan(ScanRange::all()).unwrap();
        compact::everything(&world.env).await.unwrap();
        let before = world.manifest().await.id;
        work(&world, &db).await;
        world.pause(POLL * 5).await;
        let manifest = world.manifest().await;
        assert_eq!(manifest.id, before.next());
        assert_eq!(manifest.checkpoints.len(), 2);
        drop(scan);
        world.pause(POLL * 5).await;
        let manifest = world.manifest().await;
        assert_eq!(manifest.id, before.plus(2));
        assert_eq!(manifest.checkpoints.len(), 1);
        let idle = world.requests_of(world.pause(Duration::from_secs(600))).await;
        assert_eq!(idle, RequestTotals::default());
    });
}

/// The floor never passes a snapshot or the flushed data, and rises with the next commit.
#[test]
fn the_floor_is_the_oldest_snapshot() {
    tell(async |world| {
        let db = world.open().await;
        load(&db, 0).await;
        let snapshot = db.snapshot().unwrap();
        load(&db, 1).await;
        let manifest = world.manifest().await;
        assert_eq!(manifest.floor, snapshot.seq());
        assert!(manifest.flushed_seq > manifest.floor);
        drop(snapshot);
        load(&db, 2).await;
        let manifest = world.manifest().await;
        assert_eq!(manifest.floor, manifest.flushed_seq);
    });
}

/// A scan may outlive its handle. Its checkpoint does not: missing tables then raise the correct
/// error, not Corruption.
#[test]
fn a_scan_of_an_ended_writer_says_why_its_tables_are_gone() {
    tell(async |world| {
        let db = world.open().await;
        load(&db, 0).await;
        let mut closed = db.scan(ScanRange::all()).unwrap();
        db.close().await.unwrap();
        world.rewrite().await;
        let error = some(&mut closed, usize::MAX).await.map(|rows| rows.len()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Expired, "{error}");

        let older = world.open().await;
        let mut overtaken = older.scan(ScanRange::all()).unwrap();
        let newer = world.open().await;
        load(&newer, 1).await;
        world.rewrite().await;
        // The newer one read the same tables; now it releases them.
        work(&world, &newer).await;
        world.pause(POLL * 5).await;
        gc::round(&world.env).await.unwrap();
        let error = some(&mut overtaken, usize::MAX).await.map(|rows| rows.len()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Fenced, "{error}");
    });
}

/// A compaction between claim and first read: the tree begins with the tables that the claim
/// pinned.
#[test]
fn a_new_writer_reads_what_its_claim_pins() {
    tell(async |world| {
        let db = world.open().await;
        load(&db, 0).await;
        drop(db);
        for _ in 0..3 {
            let opening = world.open();
            // Opening takes several round trips, and so does the compaction: they interleave.
            let compacting = async {
                compact::everything(&world.env).await.unwrap();
            };
            let (db, ()) = futures::join!(opening, compacting);
            gc::round(&world.env).await.unwrap();
            let rows = some(&mut db.scan(ScanRange::all()).unwrap(), usize::MAX).await.unwrap();
            assert_eq!(rows, expected(0));
        }
    });
}
