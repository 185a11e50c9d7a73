//! Objects that a clone references stay as long as it does, and are deleted afterwards (rules K4,
//! K5).

use super::*;
use siltstone::{CheckpointId, CheckpointOptions, ErrorKind, ReadAt};
use siltstone_base::name::prefix;

const DEADLINE: Duration = Duration::from_secs(9);

#[test]
fn a_paused_scan_outlives_compaction_and_collection_on_both_sides() {
    run("paused", async |places| {
        let (parent, env) = (places.parent("parent").await, places.env("clone"));
        clone(&env, &parent).await.unwrap();
        let (ours, theirs) = (open(&env).await.unwrap(), open(&parent).await.unwrap());
        let mut scan = ours.scan(ScanRange::all()).unwrap();
        let mut seen = some(&mut scan, 3).await.unwrap();
        for round in 20..23 {
            for (db, env) in [(&ours, &env), (&theirs, &parent)] {
                fill(db, 0..ROWS, round).await;
                db.flush_memtable().await.unwrap();
                rewrite(env).await;
            }
        }
        seen.extend(some(&mut scan, usize::MAX).await.unwrap());
        assert_eq!(seen, parents_rows());
        drop(scan);
        ours.close().await.unwrap();
        theirs.close().await.unwrap();
    });
}

#[test]
fn only_the_clone_ends_its_pin() {
    run("pins", async |places| {
        let (parent, env) = (places.parent("parent").await, places.env("clone"));
        clone(&env, &parent).await.unwrap();
        let made = manifest(&env).await;
        let pin = made.ancestors[0].checkpoint;
        let deleted = admin::delete_checkpoint(&parent, &pin.into(), DEADLINE).await;
        let life = Some(Duration::from_secs(1));
        let refreshed = admin::refresh_checkpoint(&parent, &pin.into(), life, DEADLINE).await;
        for refused in [deleted.unwrap_err(), refreshed.map(drop).unwrap_err()] {
            assert_eq!(refused.kind(), ErrorKind::Conflict);
            assert!(text(&refused).contains(&made.database.to_string()), "{refused}");
        }
    });
}

async fn pins_of(parent: &Env, clone: &Env) -> usize {
    let database = manifest(clone).await.database;
    let pins = manifest(parent).await;
    let owner = siltstone::CheckpointOwner::Clone(database);
    pins.checkpoints.iter().filter(|one| one.owner == owner).count()
}

#[test]
fn a_clone_that_names_nothing_of_its_parent_lets_it_go() {
    run("detached", async |places| {
        let (parent, env) = (places.parent("parent").await, places.env("clone"));
        clone(&env, &parent).await.unwrap();
        gc::round(&env).await.unwrap();
        assert_eq!((manifest(&env).await.ancestors.len(), pins_of(&parent, &env).await), (1, 1));
        rewrite(&env).await;
        assert_eq!((manifest(&env).await.ancestors.len(), pins_of(&parent, &env).await), (0, 0));
        assert_eq!(read(&env).await.unwrap(), parents_rows());
        // It no longer needs the parent.
        let db = open(&parent).await.unwrap();
        forget(&db, 0..ROWS);
        db.close().await.unwrap();
        rewrite(&parent).await;
        assert_eq!(read(&env).await.unwrap(), parents_rows());
    });
}

/// K5: with only the newest manifest as a check, tables of a reader at a checkpoint would be
/// deleted.
#[test]
fn a_checkpoint_of_the_clone_keeps_the_parent() {
    run("checkpointed", async |places| {
        let (parent, env) = (places.parent("parent").await, places.env("clone"));
        clone(&env, &parent).await.unwrap();
        let how = CheckpointOptions::default();
        let kept = admin::create_checkpoint(&env, &how, DEADLINE).await.unwrap();
        rewrite(&env).await;
        let db = open(&parent).await.unwrap();
        forget(&db, 0..ROWS);
        db.close().await.unwrap();
        rewrite(&parent).await;
        assert_eq!((manifest(&env).await.ancestors.len(), pins_of(&parent, &env).await), (1, 1));
        let at = Some(ReadAt::Checkpoint(kept.id.into()));
        let how = ReaderOptions { options: options(), at, ..ReaderOptions::default() };
        let reader = Reader::open(env.clone(), how).await.unwrap();
        let rows = some(&mut reader.scan(ScanRange::all()).unwrap(), usize::MAX).await.unwrap();
        assert_eq!(rows, parents_rows());
        reader.close().await.unwrap();
        admin::delete_checkpoint(&env, &kept.id.into(), DEADLINE).await.unwrap();
        rewrite(&env).await;
        assert_eq!((manifest(&env).await.ancestors.len(), pins_of(&parent, &env).await), (0, 0));
    });
}

/// K5: a crash between the two commits leaves the entry, and the next round handles it again.
#[test]
fn a_pin_that_is_gone_is_as_good_as_removed() {
    run("half detached", async |places| {
        let (parent, env) = (places.parent("parent").await, places.env("clone"));
        clone(&env, &parent).await.unwrap();
        let made = manifest(&env).await;
        compact(&env).await.unwrap();
        let (pin, clone) = (made.ancestors[0].checkpoint, made.database);
        let release =
            siltstone_manifest::Edit::Pin(siltstone_manifest::PinEdit::Release { pin, clone });
        gc::commit(&parent, release, manifest(&parent).await).await.unwrap();
        rewrite(&env).await;
        assert_eq!(manifest(&env).await.ancestors, []);
    });
}

/// The parent was deleted and created again: its tables are not the clone's.
#[test]
fn another_database_in_the_place_of_the_parent_is_told() {
    run("made anew", async |places| {
        let (parent, env) = (places.parent("parent").await, places.env("clone"));
        clone(&env, &parent).await.unwrap();
        let named: Vec<_> = manifest(&env).await.tables().map(|table| table.id).collect();
        for folder in [prefix::MANIFEST, prefix::WAL, prefix::COMPACTIONS] {
            for object in parent.store.list(folder, None).await.unwrap() {
                parent.store.delete(object.name).await.unwrap();
            }
        }
        assert_eq!(read(&env).await.unwrap(), parents_rows(), "the tables are there still");
        for id in named {
            parent.store.delete(siltstone_base::ObjectName::Compacted(id)).await.unwrap();
        }
        let gone = read(&env).await.unwrap_err();
        assert!(text(&gone).contains("memory://made anew/parent"), "{gone}");
        assert_ne!(CheckpointId::NONE, manifest(&env).await.ancestors[0].checkpoint);
    });
}

/// D3: the process that ends a clone releases its pins, and a parent waits for that.
#[test]
fn a_clone_that_is_destroyed_lets_its_ancestors_go() {
    run("ended", async |places| {
        let (parent, env) = (places.parent("parent").await, places.env("clone"));
        let grandchild = places.env("grandchild");
        clone(&env, &parent).await.unwrap();
        clone(&grandchild, &env).await.unwrap();
        for barred in [&parent, &env] {
            let refused = siltstone::destroy(barred, false, DEADLINE).await.unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::Conflict, "{refused}");
        }
        siltstone::destroy(&parent, true, DEADLINE).await.unwrap();
        gc::round(&parent).await.unwrap();
        assert_eq!(read(&grandchild).await.unwrap(), parents_rows());
        assert_eq!(pins_of(&parent, &env).await, 1);

        let ended = manifest(&grandchild).await.database;
        siltstone::destroy(&grandchild, false, DEADLINE).await.unwrap();
        let owner = siltstone::CheckpointOwner::Clone(ended);
        for ancestor in [&parent, &env] {
            let pins = &manifest(ancestor).await.checkpoints;
            assert!(pins.iter().all(|one| one.owner != owner), "{pins:?}");
        }
        assert_eq!(read(&env).await.unwrap(), parents_rows());
        // Softly: by a collector.
        siltstone::destroy(&env, true, DEADLINE).await.unwrap();
        assert_eq!(pins_of(&parent, &env).await, 1);
        gc::round(&env).await.unwrap();
        assert_eq!(manifest(&parent).await.checkpoints, []);
        gc::round(&parent).await.unwrap();
        assert!(gc::newest(&parent).await.unwrap().is_none());
    });
}

/// D4: a clone that is created in an emptied place counts from the numbers used there.
#[test]
fn a_clone_is_made_where_a_database_was_destroyed() {
    run("in its place", async |places| {
        let (parent, env) = (places.parent("parent").await, places.parent("clone").await);
        let before = manifest(&env).await;
        siltstone::destroy(&env, false, DEADLINE).await.unwrap();
        for _ in 0..2 {
            clone(&env, &parent).await.unwrap();
            let made = manifest(&env).await;
            assert!(made.id > before.id && made.replay_from > before.replay_from);
            assert_eq!(read(&env).await.unwrap(), parents_rows());
            let db = open(&env).await.unwrap();
            fill(&db, 0..ROWS, 9).await;
            db.close().await.unwrap();
            rewrite(&env).await;
            assert_eq!(read(&env).await.unwrap().len(), ROWS as usize);
            siltstone::destroy(&env, false, DEADLINE).await.unwrap();
        }
    });
}
