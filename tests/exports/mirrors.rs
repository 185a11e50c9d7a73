//! The content of a mirror, and the copies of a later export.

use super::*;
use bytes::Bytes;
use siltstone::{Database, OpenOptions, OpenSchema};

#[test]
fn a_mirror_opens_by_itself() {
    run("alone", async |places| {
        let (source, target) = (places.parent("source").await, places.env("mirror"));
        let report = export(&source, &target).await.unwrap();
        let tables = manifest(&source).await.tables().count() as u64;
        assert!(report.tables_moved > tables && report.tables_shared == 0, "{report:?}");
        assert!(report.bytes > 0);
        lose(&source).await;
        assert_eq!(read(&target).await.unwrap(), parents_rows());
        let state = manifest(&target).await;
        assert!(state.ancestors.is_empty() && state.mirror.as_ref().unwrap().job.is_none());
        assert!(!names(&target).await.iter().any(|name| matches!(name, ObjectName::Wal(_))));
        check_whole(&target).await;
        assert_eq!(read(&target).await.unwrap(), parents_rows());
    });
}

/// X1: the pin is removed.
#[test]
fn the_source_is_pinned_for_as_long_as_it_is_read() {
    run("pin", async |places| {
        let (source, target) = (places.parent("source").await, places.env("mirror"));
        let before = manifest(&source).await.checkpoints.len();
        export(&source, &target).await.unwrap();
        assert_eq!(manifest(&source).await.checkpoints.len(), before);
    });
}

#[test]
fn a_second_export_moves_what_is_new() {
    run("increments", async |places| {
        let (source, target) = (places.env("source"), places.env("mirror"));
        let db = open(&source).await.unwrap();
        fill(&db, 0..ROWS, 1).await;
        db.flush_memtable().await.unwrap();
        let first = export(&source, &target).await.unwrap();
        let again = export(&source, &target).await.unwrap();
        assert_eq!(again, ExportReport { tables_shared: first.tables_moved, ..again });
        assert_eq!((again.tables_moved, again.bytes), (0, 0));
        fill(&db, 0..5, 2).await;
        db.flush_memtable().await.unwrap();
        let third = export(&source, &target).await.unwrap();
        assert_eq!((third.tables_moved, third.tables_shared), (1, first.tables_moved));
        // Rows of the log are copied once, whether or not others follow.
        fill(&db, 5..6, 3).await;
        let fourth = export(&source, &target).await.unwrap();
        assert_eq!(fourth.tables_moved, 1, "{fourth:?}");
        assert_eq!(export(&source, &target).await.unwrap().tables_moved, 0);
        fill(&db, 6..7, 3).await;
        let fifth = export(&source, &target).await.unwrap();
        assert_eq!((fifth.tables_moved, fifth.tables_shared), (1, fourth.tables_shared + 1));
        let mut expected: Pairs = (0..ROWS).map(|n| (key(n), value(1))).collect();
        expected[..5].iter_mut().for_each(|row| row.1 = value(2));
        expected[5..7].iter_mut().for_each(|row| row.1 = value(3));
        assert_eq!(read(&target).await.unwrap(), expected);
        // A compaction at the source creates new tables, and the collector deletes the old ones.
        db.flush_memtable().await.unwrap();
        compact(&source).await.unwrap();
        export(&source, &target).await.unwrap();
        let held = names(&target).await.len();
        check_whole(&target).await;
        assert!(names(&target).await.len() < held);
        assert_eq!(read(&target).await.unwrap(), expected);
        db.close().await.unwrap();
    });
}

/// The log's tables are merged before there are too many for look-ups.
#[test]
fn tables_of_the_log_do_not_pile_up() {
    run("log", async |places| {
        let (source, target) = (places.env("source"), places.env("mirror"));
        let db = open(&source).await.unwrap();
        for n in 0..20 {
            fill(&db, n..n + 1, 1).await;
            export(&source, &target).await.unwrap();
            assert!(manifest(&target).await.l0.len() <= 8);
        }
        let expected: Pairs = (0..20).map(|n| (key(n), value(1))).collect();
        assert_eq!(read(&target).await.unwrap(), expected);
        db.close().await.unwrap();
        check_whole(&target).await;
    });
}

/// X3: tables of ancestors are copied too, with their visible ranges.
#[test]
fn a_clone_is_exported_whole() {
    run("of a clone", async |places| {
        let (grand, parent) = (places.parent("grand").await, places.env("parent"));
        let cut = CloneParent {
            env: grand.clone(),
            checkpoint: None,
            start: Some(key(10)),
            end: Some(key(40)),
        };
        admin::clone(&parent, &[cut], &options()).await.unwrap();
        let db = open(&parent).await.unwrap();
        fill(&db, 20..22, 30).await;
        db.close().await.unwrap();
        let target = places.env("mirror");
        export(&parent, &target).await.unwrap();
        let expected = read(&parent).await.unwrap();
        assert_eq!(expected.len(), 30);
        lose(&grand).await;
        lose(&parent).await;
        assert_eq!(read(&target).await.unwrap(), expected);
        check_whole(&target).await;
    });
}

/// A mirror is a source like others, and so is a clone of one.
#[test]
fn mirrors_are_cloned_and_exported() {
    run("of a mirror", async |places| {
        let (source, mirror) = (places.parent("source").await, places.env("mirror"));
        export(&source, &mirror).await.unwrap();
        let (clone, again) = (places.env("clone"), places.env("again"));
        let parent = CloneParent { env: mirror.clone(), checkpoint: None, start: None, end: None };
        admin::clone(&clone, &[parent], &options()).await.unwrap();
        let db = open(&clone).await.unwrap();
        fill(&db, 0..1, 50).await;
        db.close().await.unwrap();
        compact(&clone).await.unwrap();
        let mut expected = parents_rows();
        expected[0].1 = value(50);
        assert_eq!(read(&clone).await.unwrap(), expected);
        export(&mirror, &again).await.unwrap();
        lose(&mirror).await;
        assert_eq!(read(&again).await.unwrap(), parents_rows());
    });
}

/// X3, S3: a following reader of the mirror learns that it went back.
#[test]
fn an_older_checkpoint_is_a_new_history() {
    run("back", async |places| {
        let (source, target) = (places.env("source"), places.env("mirror"));
        let db = open(&source).await.unwrap();
        fill(&db, 0..9, 1).await;
        db.flush_memtable().await.unwrap();
        let old = db.checkpoint(&CheckpointOptions::default()).await.unwrap();
        let kept = read(&source).await.unwrap();
        export(&source, &target).await.unwrap();
        let follower = Reader::open(
            target.clone(),
            ReaderOptions { options: options(), ..Default::default() },
        )
        .await
        .unwrap();
        fill(&db, 0..9, 2).await;
        export(&source, &target).await.unwrap();
        follower.refresh().await.unwrap();
        let newest = some(&mut follower.scan(ScanRange::all()).unwrap(), 100).await.unwrap();
        assert_eq!(newest, read(&source).await.unwrap(), "it follows from head to head");
        export_at(&source, &target, Some(&old.id.into())).await.unwrap();
        assert_eq!(follower.refresh().await.unwrap_err().kind(), ErrorKind::Expired);
        assert_eq!(read(&target).await.unwrap(), kept);
        // Tables that left the head are copied again.
        export(&source, &target).await.unwrap();
        assert_eq!(read(&target).await.unwrap(), read(&source).await.unwrap());
        check_whole(&target).await;
        assert_eq!(read(&target).await.unwrap(), read(&source).await.unwrap());
        drop(follower);
        db.close().await.unwrap();
    });
}

/// X4: after that it accepts writes, compacts, collects, and can be exported.
#[test]
fn a_promoted_mirror_is_a_database_like_others() {
    run("promoted", async |places| {
        let (source, target) = (places.parent("source").await, places.env("mirror"));
        export(&source, &target).await.unwrap();
        lose(&source).await;
        admin::promote(&target, Duration::from_secs(10)).await.unwrap();
        let db = open(&target).await.unwrap();
        fill(&db, 0..5, 9).await;
        db.flush_memtable().await.unwrap();
        let mut expected = parents_rows();
        expected[..5].iter_mut().for_each(|row| row.1 = value(9));
        assert_eq!(all(&db).await.unwrap(), expected);
        db.close().await.unwrap();
        compact(&target).await.unwrap();
        check_whole(&target).await;
        let staged = names(&target).await;
        let staged = staged.iter().any(|name| matches!(name, ObjectName::IngestSst(..)));
        assert!(!staged, "what was exported is compacted and collected");
        assert_eq!(read(&target).await.unwrap(), expected);
        export(&target, &places.env("another")).await.unwrap();
        assert_eq!(read(&places.env("another")).await.unwrap(), expected);
    });
}

#[test]
fn an_import_is_a_database_of_its_own() {
    run("import", async |places| {
        let (source, mirror) = (places.parent("source").await, places.env("mirror"));
        export(&source, &mirror).await.unwrap();
        lose(&source).await;
        let target = places.env("target");
        let report = import(&mirror, &target).await.unwrap();
        assert!(report.tables_moved > 0);
        let db = open(&target).await.unwrap();
        fill(&db, 0..1, 9).await;
        db.close().await.unwrap();
        assert_eq!(read(&mirror).await.unwrap(), parents_rows());
        let mut expected = parents_rows();
        expected[0].1 = value(9);
        assert_eq!(read(&target).await.unwrap(), expected);
    });
}

/// A reader of an older head keeps it.
#[test]
fn a_scan_outlives_its_head() {
    run("scan", async |places| {
        let (source, target) = (places.parent("source").await, places.env("mirror"));
        export(&source, &target).await.unwrap();
        let how = ReaderOptions { options: options(), ..ReaderOptions::default() };
        let reader = Reader::open(target.clone(), how).await.unwrap();
        let mut scan = reader.scan(ScanRange::all()).unwrap();
        let mut rows = some(&mut scan, 5).await.unwrap();
        compact(&source).await.unwrap();
        export(&source, &target).await.unwrap();
        gc::round(&target).await.unwrap();
        gc::round(&target).await.unwrap();
        rows.extend(some(&mut scan, usize::MAX).await.unwrap());
        assert_eq!(rows, parents_rows());
    });
}

/// A table's columns are copied with each head, and cannot be changed at the mirror before it is
/// promoted.
#[test]
fn a_mirror_of_a_table_has_its_columns_and_keeps_them() {
    run("columns", async |places| {
        let limit = Duration::from_secs(10);
        let text = |text: &'static str| Bytes::from_static(text.as_bytes());
        let columns = |env: Env| async move {
            let state = manifest(&env).await;
            (state.settings.key_schema.clone(), state.schema.clone())
        };
        let (source, target) = (places.env("source"), places.env("mirror"));
        let schema = OpenSchema { keys: "k".to_owned(), text: text("k\n1"), agrees: |_, _| Ok(()) };
        let how = OpenOptions { options: options(), schema: Some(schema), ..Default::default() };
        let db = Database::open(source.clone(), how).await.unwrap();
        fill(&db, 0..9, 1).await;
        export(&source, &target).await.unwrap();
        assert_eq!(columns(target.clone()).await, (Some("k".to_owned()), Some(text("k\n1"))));
        let refused = admin::evolve_schema(&target, text("k\n1"), text("k\nx"), limit).await;
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::Conflict);

        db.evolve(text("k\n1"), text("k\n2")).await.unwrap();
        export(&source, &target).await.unwrap();
        assert_eq!(columns(target.clone()).await, columns(source.clone()).await);
        assert_eq!(columns(target.clone()).await.1, Some(text("k\n2")));
        assert_eq!(read(&target).await.unwrap(), read(&source).await.unwrap());

        lose(&source).await;
        admin::promote(&target, limit).await.unwrap();
        admin::evolve_schema(&target, text("k\n2"), text("k\n3"), limit).await.unwrap();
        assert_eq!(columns(target.clone()).await.1, Some(text("k\n3")));
        std::mem::forget(db);
    });
}
