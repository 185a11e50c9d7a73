//! A damaged object of the log cuts it there (rule Y2).

use super::{DEADLINE, Harm, World, expected, is_conflict, key, mend, open, options, put, tell};
use siltstone::verify::verify;
use siltstone::{Database, Env, ErrorKind, OpenOptions, Options, Progress, Result, Seq};
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

/// A life that closes cleanly and leaves the `written` rows in the log, once L0 has half of its
/// tables; before, they go into a table.
async fn closed_life(env: Env, written: Range<u64>) -> Result<()> {
    let options = Options { l0_sst_size_bytes: 1 << 20, embedded_compactor: false, ..options() };
    let how = OpenOptions { create: true, options, ..OpenOptions::default() };
    let db = Database::open(env, how).await?;
    for row in written {
        put(&db, &key(row)).await?;
    }
    db.close().await
}

/// A clean close records where the log ends (rule F2), so a missing end is damage, also if nothing
/// of the log is left. Before, the database opened without the rows.
#[test]
fn an_end_that_a_clean_close_knows() {
    const IN_TABLES: u64 = 8;
    const ROWS: u64 = 13;
    for lost in 1.. {
        let world = World::new(lost as u64);
        world.run("writers", |env| async move {
            for row in 0..IN_TABLES {
                closed_life(env.clone(), row..row + 1).await?;
            }
            closed_life(env, IN_TABLES..ROWS).await
        });
        let mut log = log(&world);
        let first = log.iter().rposition(|(_, seq)| seq.get() == IN_TABLES).expect("a life") + 1;
        assert_eq!(log.last().expect("rows in the log").1, Seq(ROWS));
        if log.len() - first < lost {
            assert_eq!(lost as u64, ROWS - IN_TABLES + 2, "the rows and a fence");
            return;
        }
        let gone = log.split_off(log.len() - lost);
        for (id, _) in &gone {
            world.harm(ObjectName::Wal(*id), Harm::Removed);
        }
        let kept = log.iter().map(|(_, seq)| seq.get()).max().unwrap_or(0);
        assert!(!world.opens(), "{kept} of {ROWS} rows are left");
        let told = world.run("teller", |env| async move { tell(&env).await });
        assert_eq!((told.needed, told.seq_kept), (true, Seq(kept)));
        assert!(told.objects_unknown >= gone.len() as u64, "{told:?}");
        let report = world.run("verifier", |env| async move {
            verify(&env, DEADLINE, &Progress::default()).await
        });
        assert_eq!(report.problems[0].object, ObjectName::Wal(gone[0].0));
        world.run("mender", |env| async move { mend(&env).await });
        world.goes_on_with(&expected(kept));
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
