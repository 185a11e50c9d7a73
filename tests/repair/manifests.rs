//! The newest manifest is damaged, or an older one is missing (rule Y3).

use super::logs::lived;
use super::{Harm, World, expected, is_conflict, key, mend, open, put, tell};
use siltstone::repair::collect_after;
use siltstone::{CheckpointOptions, ErrorKind, Reader, ReaderOptions, admin};
use siltstone_base::{ManifestId, ObjectName};
use std::time::Duration;

pub(crate) fn newest(world: &World) -> ManifestId {
    let ids = world.objects().into_keys().filter_map(|name| match name {
        ObjectName::Manifest(id) => Some(id),
        _ => None,
    });
    ids.max().expect("a database")
}

/// A history that ends after this many steps, each of which commits; returns the number of
/// acknowledged rows.
fn lived_until(world: &World, steps: usize) -> u64 {
    let (process, env) = world.process("writer");
    let rows = world.sim.block_on(process, async move {
        let mut db = open(&env, true).await?;
        let mut rows = 0;
        for step in 0..steps {
            match step {
                0 | 2 | 5 => {
                    put(&db, &key(rows)).await?;
                    put(&db, &key(rows + 1)).await?;
                    rows += 2;
                }
                1 | 3 => db.flush_memtable().await?,
                4 => drop(db.checkpoint(&CheckpointOptions::default()).await?),
                6 => {
                    db.close().await?;
                    db = open(&env, false).await?;
                    put(&db, &key(rows)).await?;
                    rows += 1;
                }
                _ => drop(db.compact().await?),
            }
        }
        std::mem::forget(db);
        Ok::<_, siltstone::Error>(rows)
    });
    world.sim.kill(process);
    rows.expect("it ends").expect("a healthy store")
}

/// The newest manifest damaged at every stage of a history, in every way: all rows exist.
#[test]
fn the_newest_harmed() {
    let (mut repaired, mut opened) = (0, 0);
    for steps in 0..=8 {
        for harm in Harm::EVERY {
            let world = World::new(steps as u64);
            let rows = lived_until(&world, steps);
            let harmed = newest(&world);
            world.harm(ObjectName::Manifest(harmed), harm);
            let told = world.run("teller", |env| async move { tell(&env).await });
            if !told.needed {
                assert_eq!(harm, Harm::Removed, "{steps}");
                is_conflict(world.try_run("mender", |env| async move { mend(&env).await }));
                world.goes_on_with(&expected(rows));
                opened += 1;
                continue;
            }
            assert_eq!(told.seq_kept.get(), rows, "{harm:?} {steps}: {told:?}");
            let done = world.run("mender", |env| async move { mend(&env).await });
            assert!(done.tables_stay && done.manifests_void == 1);
            assert!(done.manifest_id >= harmed, "{done:?}");
            assert_eq!(done.aside.is_some(), harm != Harm::Removed);
            world.goes_on_with(&expected(rows));
            repaired += 1;
        }
    }
    println!("{repaired} repaired, {opened} opened as they were");
    assert!(repaired > 27 && opened > 0);
}

/// A missing manifest with later ones behind it: those contain everything, and a boundary makes
/// them count.
#[test]
fn an_older_one_is_missing() {
    let world = World::new(1);
    let rows = lived_until(&world, 8);
    world.harm(ObjectName::Manifest(ManifestId(newest(&world).get() - 2)), Harm::Removed);
    assert!(!world.opens());
    let done = world.run("mender", |env| async move { mend(&env).await });
    assert!(done.done && done.manifests_void == 0 && done.damage.len() == 1, "{done:?}");
    world.goes_on_with(&expected(rows));
}

/// The first manifests of a young database are missing: every process says so, and a repair makes
/// the later ones count.
#[test]
fn the_first_ones_are_missing() {
    for (steps, missing) in [(2, 1), (6, 1), (6, 2), (8, 3)] {
        let world = World::new(steps as u64);
        // Databases count from 1. Where a place may be emptied, any manifest may begin a run.
        world.bucket.stays();
        let rows = lived_until(&world, steps);
        for id in 1..=missing {
            world.harm(ObjectName::Manifest(ManifestId(id)), Harm::Removed);
        }
        world.run("opener", |env| async move {
            let opened = [open(&env, true).await.err(), open(&env, false).await.err()];
            let reader = Reader::open(env.clone(), ReaderOptions::default()).await.err();
            let newest = admin::manifest(&env, None, Duration::from_secs(9)).await.err();
            for error in opened.into_iter().chain([reader, newest]) {
                let error = error.expect("a manifest is missing");
                assert_eq!(error.kind(), ErrorKind::Corruption, "{error}");
                assert!(error.to_string().contains("without its first manifest"), "{error}");
            }
            Ok(())
        });
        let done = world.run("mender", |env| async move { mend(&env).await });
        assert!(done.done && done.manifests_void == 0 && done.damage.len() == 1, "{done:?}");
        world.goes_on_with(&expected(rows));
    }
}

/// Several of the newest damaged, one of them missing, and an object of the log as well.
#[test]
fn more_than_one_is_harmed() {
    let world = World::new(1);
    lived(&world, 10);
    let last = newest(&world);
    world.harm(ObjectName::Manifest(last), Harm::Flipped);
    world.harm(ObjectName::Manifest(ManifestId(last.get() - 1)), Harm::Removed);
    let log = super::logs::log(&world);
    world.harm(ObjectName::Wal(log[log.len() - 2].0), Harm::Emptied);
    let kept = log[log.len() - 3].1.get();
    let told = world.run("teller", |env| async move { tell(&env).await });
    assert_eq!((told.manifests_void, told.seq_kept.get()), (2, kept), "{told:?}");
    world.run("mender", |env| async move { mend(&env).await });
    world.goes_on_with(&expected(kept));
}

/// A process that has the damaged one in memory, and commits first, has repaired it.
#[test]
fn a_live_writer_mends_it_or_is_fenced() {
    for seed in 1..=20 {
        let world = World::new(seed);
        let (living, env) = world.process("living");
        let db = world.sim.block_on(living, async move {
            let db = open(&env, true).await?;
            for row in 0..4 {
                put(&db, &key(row)).await?;
            }
            db.flush_memtable().await?;
            Ok::<_, siltstone::Error>(db)
        });
        let db = db.expect("it ends").expect("a healthy store");
        world.harm(ObjectName::Manifest(newest(&world)), Harm::Flipped);
        let (done, told) = std::sync::mpsc::channel();
        world.sim.spawn(living, "living", async move {
            for row in 4..40 {
                if put(&db, &key(row)).await.is_err() || db.flush_memtable().await.is_err() {
                    break;
                }
                done.send(row).expect("there is a receiver");
            }
            std::mem::forget(db);
        });
        let (process, env) = world.process("mender");
        world.sim.spawn(process, "mender", async move {
            env.clock.sleep(Duration::from_millis(seed * 7)).await;
            if let Err(error) = mend(&env).await {
                let kinds = [ErrorKind::Conflict, ErrorKind::Fenced];
                assert!(kinds.contains(&error.kind()), "{error}");
            }
        });
        world.sim.run_for(Duration::from_secs(60)).expect("time goes on");
        let acknowledged = told.try_iter().last().map_or(4, |row| row + 1);
        world.sim.kill(living);
        let found = world.run("opener", |env| async move {
            let db = open(&env, false).await?;
            super::keys(&db).await
        });
        assert!(found.len() as u64 >= acknowledged, "{seed}: {found:?} of {acknowledged}");
        assert_eq!(found, expected(found.len() as u64));
    }
}

/// Tables that only the lost manifest referenced stay until they are released by a call.
#[test]
fn tables_stay_until_told() {
    let world = World::new(1);
    lived_until(&world, 4);
    world.harm(ObjectName::Manifest(newest(&world)), Harm::Flipped);
    let tables = |world: &World| {
        let names = world.objects().into_keys();
        names.filter(|name| matches!(name, ObjectName::Compacted(_))).collect::<Vec<_>>()
    };
    let before = tables(&world);
    world.run("mender", |env| async move { mend(&env).await });
    world.run("collector", |env| async move { siltstone_tests::gc::round(&env).await });
    assert!(before.iter().all(|name| tables(&world).contains(name)));
    world.run("told", |env| async move { collect_after(&env, super::DEADLINE).await });
    world.run("collector", |env| async move { siltstone_tests::gc::round(&env).await });
    assert!(!before.iter().all(|name| tables(&world).contains(name)));
    world.goes_on_with(&expected(4));
}

/// An idle database: closed, and collected without a grace period. The newest manifest is the only
/// one above the boundary, and is damaged in every way, for every history before the close.
#[test]
fn the_only_one_harmed() {
    for steps in 1..=9 {
        for harm in Harm::EVERY {
            let world = World::new(steps as u64);
            let rows = lived_until(&world, steps);
            world.run("closer", |env| async move { open(&env, false).await?.close().await });
            world.run("collector", |env| async move { siltstone_tests::gc::round(&env).await });
            world.harm(ObjectName::Manifest(newest(&world)), harm);
            let opened = world.try_run("opener", |env| async move { open(&env, true).await });
            assert_eq!(opened.err().map(|error| error.kind()), Some(ErrorKind::Corruption));
            let told = world.run("teller", |env| async move { tell(&env).await });
            assert_eq!((told.manifests_void, told.seq_kept.get()), (1, rows), "{steps}: {told:?}");
            assert_eq!((told.tables_unnamed, told.damage.len()), (0, 1), "{steps}: {told:?}");
            let done = world.run("mender", |env| async move { mend(&env).await });
            assert_eq!(done.aside.is_some(), harm != Harm::Removed);
            world.goes_on_with(&expected(rows));
        }
    }
}

/// Four rows in tables, two of them in a checkpoint's; merged, closed and collected.
pub(crate) fn at_rest_with_a_checkpoint(world: &World) {
    world.run("writer", |env| async move {
        let db = open(&env, true).await?;
        put(&db, &key(0)).await?;
        put(&db, &key(1)).await?;
        db.flush_memtable().await?;
        db.checkpoint(&CheckpointOptions::default()).await?;
        put(&db, &key(2)).await?;
        put(&db, &key(3)).await?;
        db.flush_memtable().await?;
        db.compact().await?;
        db.close().await
    });
    world.run("collector", |env| async move { siltstone_tests::gc::round(&env).await });
}

/// The one before it is damaged too: the repair continues from a pinned version, and reports the
/// rest.
#[test]
fn a_checkpoint_goes_on() {
    for harm in Harm::EVERY {
        let world = World::new(3);
        at_rest_with_a_checkpoint(&world);
        let last = newest(&world);
        world.harm(ObjectName::Manifest(last), harm);
        world.harm(ObjectName::Manifest(ManifestId(last.get() - 1)), Harm::Emptied);
        let opened = world.try_run("opener", |env| async move { open(&env, true).await });
        assert_eq!(opened.err().map(|error| error.kind()), Some(ErrorKind::Corruption));
        let told = world.run("teller", |env| async move { tell(&env).await });
        assert!(told.manifests_void > 1, "{told:?}");
        assert_eq!((told.seq_kept.get(), told.tables_unnamed), (2, 1), "{told:?}");
        assert!(told.bytes_unnamed > 0 && told.objects_unknown > 0, "{told:?}");
        let done = world.run("mender", |env| async move { mend(&env).await });
        assert_eq!(done.checkpoints_dropped, [], "{done:?}");
        let (flushed, kept) = world.run("looker", |env| async move {
            let newest = siltstone_tests::gc::newest(&env).await?.expect("a manifest");
            Ok((newest.flushed_seq, newest.checkpoints.len()))
        });
        assert_eq!(kept, 1, "the checkpoint");
        assert!(flushed.get() > 4, "no number is given twice: {flushed}");
        world.goes_on_with(&expected(2));
    }
}

/// A table of the previous manifest is missing: it cannot be the base, and there is no other.
#[test]
fn a_manifest_that_lacks_a_table_is_no_base() {
    let world = World::new(4);
    lived_until(&world, 4);
    world.run("closer", |env| async move { open(&env, false).await?.close().await });
    world.run("collector", |env| async move { siltstone_tests::gc::round(&env).await });
    world.harm(ObjectName::Manifest(newest(&world)), Harm::Flipped);
    let table = world.objects().into_keys().find(|name| matches!(name, ObjectName::Compacted(_)));
    world.harm(table.expect("a table"), Harm::Truncated);
    let error = world.try_run("teller", |env| async move { tell(&env).await }).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corruption);
}

/// If no manifest is left above the boundary, there is no base.
#[test]
fn nothing_is_left() {
    let world = World::new(1);
    lived_until(&world, 0);
    let all: Vec<ObjectName> = world.objects().into_keys().collect();
    for name in all.into_iter().filter(|name| matches!(name, ObjectName::Manifest(_))) {
        world.harm(name, Harm::Flipped);
    }
    let error = world.try_run("teller", |env| async move { tell(&env).await }).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corruption);
    assert!(error.to_string().contains("restore the newest one"), "{error}");
}
