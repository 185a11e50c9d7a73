//! A damaged object of the log cuts it there (rule Y2).

use super::{Harm, World, expected, is_conflict, key, mend, open, put, tell};
use siltstone::{ErrorKind, Seq};
use siltstone_base::{ObjectName, WalId};
use siltstone_sst::wal;
use std::ops::Range;

/// Rows in tables and in the log, of two writers; the second was killed, or is alive as `living`.
pub(crate) fn lived(world: &World, rows: u64) {
    for (begin, end) in [(0, rows / 2), (rows / 2, rows)] {
        lived_on(world, begin..end);
    }
}

/// One writer, which was killed.
pub(crate) fn lived_on(world: &World, written: Range<u64>) {
    let (process, env) = world.process("writer");
    let filled = world.sim.block_on(process, async move {
        let db = open(&env, written.start == 0).await?;
        for row in written {
            put(&db, &key(row)).await?;
            if row == 2 {
                db.flush_memtable().await?;
            }
        }
        std::mem::forget(db);
        Ok::<_, siltstone::Error>(())
    });
    filled.expect("it ends").expect("a healthy store");
    world.sim.kill(process);
}

/// The log, ascending: its objects, and the last sequence number of each; none for a fence.
pub(crate) fn log(world: &World) -> Vec<(WalId, Seq)> {
    let objects = world.objects().into_iter().filter_map(|(name, bytes)| match name {
        ObjectName::Wal(id) => Some((id, wal::decode(bytes, id).expect("sound").last_seq)),
        _ => None,
    });
    objects.collect()
}

/// Every object of the log, damaged in every way: it is reported, then the rows before it are kept.
#[test]
fn every_object_harmed() {
    const ROWS: u64 = 10;
    let (mut repaired, mut opened) = (0, 0);
    for place in 0.. {
        for harm in Harm::EVERY {
            let world = World::new(place as u64);
            lived(&world, ROWS);
            let log = log(&world);
            let Some((id, _)) = log.get(place).copied() else {
                println!("{repaired} repaired, {opened} opened as they were");
                assert!(repaired > 20 && opened > 0);
                return;
            };
            world.harm(ObjectName::Wal(id), harm);
            let told = world.run("teller", |env| async move { tell(&env).await });
            let before = world.objects();
            assert!(!told.done);
            if !told.needed {
                is_conflict(world.try_run("mender", |env| async move { mend(&env).await }));
                assert_eq!(world.objects(), before, "nothing is written where it is refused");
                assert!(world.opens(), "{harm:?} {id}");
                opened += 1;
                continue;
            }
            assert!(!world.opens(), "{harm:?} {id}: {told:?}");
            let kept = log[..place].iter().map(|(_, seq)| seq.get()).max().unwrap_or(0).max(3);
            assert_eq!(told.seq_kept.get(), kept, "{harm:?} {id}");
            let done = world.run("mender", |env| async move { mend(&env).await });
            assert!(done.done && done.seq_kept == told.seq_kept);
            assert_eq!(done.damage[0].object, ObjectName::Wal(id));
            for (name, bytes) in before {
                assert_eq!(world.objects().get(&name), Some(&bytes), "{name} is as it was");
            }
            let copies = world.objects().into_iter();
            let copies = copies.filter(|(name, _)| matches!(name, ObjectName::DamagedWal(..)));
            assert_eq!(copies.count() as u64, done.objects_cut_off);
            world.goes_on_with(&expected(kept));
            repaired += 1;
        }
    }
}

/// Known losses are counted.
#[test]
fn lost_writes_are_told() {
    let world = World::new(1);
    lived(&world, 10);
    let log = log(&world);
    let place = log.iter().position(|(_, seq)| seq.get() == 7).expect("row 7");
    world.harm(ObjectName::Wal(log[place].0), Harm::Flipped);
    let told = world.run("teller", |env| async move { tell(&env).await });
    assert_eq!((told.seq_kept, told.seq_lost, told.rows_lost), (Seq(6), Seq(10), 3));
    assert_eq!((told.objects_cut_off, told.objects_unknown), (4, 1));
}

/// No number of the cut part is used again, and readers that had seen one get an error.
#[test]
fn numbers_go_on_behind_what_was_lost() {
    let world = World::new(2);
    lived(&world, 10);
    let log = log(&world);
    world.harm(ObjectName::Wal(log[log.len() - 2].0), Harm::Truncated);
    world.run("mender", |env| async move { mend(&env).await });
    let next = world.run("next", |env| async move {
        let db = open(&env, false).await?;
        let accepted = db.put(b"later", b"row", None)?;
        let siltstone::Accept::Accepted(commit) = accepted else { panic!("there is room") };
        db.close().await?;
        Ok(commit.seq())
    });
    assert!(next > Seq(10 + (1 << 31)), "{next:?}");
}

/// A writer that is alive, and one that sleeps, are fenced: they acknowledge nothing once the log
/// was cut.
#[test]
fn an_old_writer_is_fenced() {
    for seed in 1..=10 {
        let world = World::new(seed);
        let (living, env) = world.process("living");
        let db = world.sim.block_on(living, async move {
            let db = open(&env, true).await?;
            for row in 0..8 {
                put(&db, &key(row)).await?;
            }
            Ok::<_, siltstone::Error>(db)
        });
        let db = db.expect("it ends").expect("a healthy store");
        let log = log(&world);
        world.harm(ObjectName::Wal(log[4].0), Harm::Flipped);
        if seed % 2 == 0 {
            world.sim.pause(living);
        }
        world.run("mender", |env| async move { mend(&env).await });
        world.sim.resume(living);
        let ended = world.sim.block_on(living, async move { put(&db, "undead").await });
        let error = ended.expect("it ends").expect_err("it is fenced");
        assert_eq!(error.kind(), ErrorKind::Fenced, "{error}");
        let kept = log[..4].iter().map(|(_, seq)| seq.get()).max().unwrap_or(0);
        world.goes_on_with(&expected(kept));
    }
}
