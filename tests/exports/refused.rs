//! Refusals of an export and of a mirror.

use super::*;
use siltstone::destroy;

const DEADLINE: Duration = Duration::from_secs(10);

fn conflict<T>(done: Result<T>) -> String {
    let error = done.err().expect("refused");
    assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
    text(&error)
}

/// X4.
#[test]
fn a_mirror_takes_no_writes() {
    run("writes", async |places| {
        let (source, target) = (places.parent("source").await, places.env("mirror"));
        export(&source, &target).await.unwrap();
        let before = manifest(&target).await.id;
        assert!(conflict(open(&target).await).contains("promote it"));
        assert!(conflict(compact(&target).await).contains("mirror"));
        let kept = admin::create_checkpoint(&target, &CheckpointOptions::default(), DEADLINE).await;
        let kept = CheckpointName::Id(kept.unwrap().id);
        assert!(conflict(admin::restore(&target, &kept, &options()).await).contains("mirror"));
        assert_eq!(manifest(&target).await.id, before.next(), "the checkpoint alone");
        admin::delete_checkpoint(&target, &kept, DEADLINE).await.unwrap();
        destroy(&target, false, DEADLINE).await.unwrap();
        let left = names(&target).await;
        let boundary = |name: &ObjectName| {
            matches!(name, ObjectName::ManifestBoundary(_) | ObjectName::WalBoundary(_))
        };
        assert!(left.iter().all(boundary), "{left:?}");
        // The place can be used again.
        export(&source, &target).await.unwrap();
        assert_eq!(read(&target).await.unwrap(), parents_rows());
    });
}

/// X4: nothing is written to a wrong target.
#[test]
fn other_places_are_left_alone() {
    run("places", async |places| {
        let (source, other) = (places.parent("source").await, places.parent("other").await);
        let target = places.env("mirror");
        let before = manifest(&other).await.id;
        assert!(conflict(export(&source, &other).await).contains("no mirror"));
        assert_eq!(manifest(&other).await.id, before);
        export(&source, &target).await.unwrap();
        assert!(conflict(export(&other, &target).await).contains("of another database"));
        let into = ExportPlaces { source: &source, target: &target };
        let import = admin::import(into, None, &options(), &Progress::default()).await;
        assert!(conflict(import).contains("exports keep"));
        admin::promote(&target, DEADLINE).await.unwrap();
        assert!(conflict(export(&source, &target).await).contains("promoted"));
        assert!(conflict(admin::promote(&source, DEADLINE).await).contains("no mirror"));
        let itself = export(&source, &source).await.unwrap_err();
        assert_eq!(itself.kind(), ErrorKind::Invalid, "{itself}");
        let nothing = export(&places.env("nothing"), &places.env("nowhere")).await.unwrap_err();
        assert_eq!(nothing.kind(), ErrorKind::NotFound);
        assert!(names(&places.env("nowhere")).await.is_empty());
        let gone = CheckpointName::Name("gone".to_owned());
        let gone = export_at(&source, &places.env("nowhere"), Some(&gone)).await.unwrap_err();
        assert_eq!(gone.kind(), ErrorKind::Expired);
        assert!(names(&places.env("nowhere")).await.is_empty());
    });
}

/// A table that is damaged at rest never becomes part of a head.
#[test]
fn damage_is_not_copied() {
    run("damage", async |places| {
        let (source, target) = (places.parent("source").await, places.env("mirror"));
        export(&source, &target).await.unwrap();
        let db = open(&source).await.unwrap();
        fill(&db, 0..9, 7).await;
        db.flush_memtable().await.unwrap();
        db.close().await.unwrap();
        let table = manifest(&source).await.l0[0].tables[0].clone();
        let bytes = source.store.get(table.name(), None).await.unwrap().unwrap();
        let mut damaged = bytes.to_vec();
        damaged[100] ^= 1;
        source.store.delete(table.name()).await.unwrap();
        source.store.put_if_absent(table.name(), damaged.into()).await;
        let error = export(&source, &target).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corruption);
        assert!(text(&error).contains(&table.id.to_string()), "{error}");
        assert_eq!(read(&target).await.unwrap(), parents_rows(), "the head before");
        // After the repair it continues.
        source.store.delete(table.name()).await.unwrap();
        source.store.put_if_absent(table.name(), bytes).await;
        export(&source, &target).await.unwrap();
        assert_eq!(read(&target).await.unwrap(), read(&source).await.unwrap());
        check_whole(&target).await;
    });
}
