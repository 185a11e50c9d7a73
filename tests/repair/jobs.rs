//! The newest record of compaction jobs is damaged: nothing can be compacted or collected until a
//! repair continues without its jobs.

use super::{Harm, World, expected, key, killed, mend, open, options, put, tell};
use siltstone::repair::RepairReport;
use siltstone::{CompactorOptions, CompactorProcess, Database, Env, ErrorKind, Options, Result};
use siltstone_base::ObjectName;
use siltstone_tests::faults::CrashPoint;

const HARMS: [Harm; 3] = [Harm::Flipped, Harm::Truncated, Harm::Emptied];

/// The newest record, if there is one.
pub(crate) fn record(world: &World) -> Option<ObjectName> {
    let is_record = |name: &ObjectName| matches!(name, ObjectName::Compactions(_));
    world.objects().into_keys().filter(is_record).max()
}

async fn compact(env: &Env) -> Result<()> {
    let how = CompactorOptions { options: options(), ..CompactorOptions::default() };
    CompactorProcess::open(env.clone(), how, |_| {}).await?.compact().await.map(drop)
}

/// Tables in several layers; no compactor has run.
pub(crate) fn layered(world: &World, rows: u64) {
    world.run("writer", move |env| async move {
        let how = Options { embedded_compactor: false, ..options() };
        let how = siltstone::OpenOptions { options: how, ..Default::default() };
        let db = Database::open(env, how).await?;
        for row in 0..rows {
            put(&db, &key(row)).await?;
            db.flush_memtable().await?;
        }
        db.close().await
    });
}

fn is_compacted(world: &World) -> bool {
    match world.try_run("compactor", |env| async move { compact(&env).await }) {
        Ok(()) => true,
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::Corruption, "{error}");
            assert!(error.to_string().contains("siltstone repair"), "{error}");
            false
        }
    }
}

fn mended(world: &World, name: ObjectName, harm: Harm) -> RepairReport {
    let bytes = world.objects()[&name].clone();
    let told = world.run("teller", |env| async move { tell(&env).await });
    assert!(told.needed && !told.done && told.damage[0].object == name, "{told:?}");
    assert_eq!((told.rows_lost, told.objects_cut_off, told.manifests_void), (0, 0, 0));
    let done = world.run("mender", |env| async move { mend(&env).await });
    assert!(done.done && !done.tables_stay, "{done:?}");
    let copied = |(name, copy): (ObjectName, _)| {
        matches!(name, ObjectName::DamagedCompactions(..)).then_some(copy)
    };
    let copies: Vec<_> = world.objects().into_iter().filter_map(copied).collect();
    assert_eq!(copies, [bytes], "{harm:?}");
    done
}

/// A compactor is killed at every request, and then the newest record is damaged in every way: all
/// rows exist, and everything is compacted and collected in the end.
#[test]
fn a_record_of_any_job_is_harmed() {
    const ROWS: u64 = 6;
    let mut repaired = 0;
    for operation in 1.. {
        let harm = HARMS[operation as usize % HARMS.len()];
        let world = World::new(operation);
        layered(&world, ROWS);
        let (dying, env) = world.process("dying");
        world.bucket.crash_at(dying, operation, CrashPoint::After);
        let ended = world.sim.block_on(dying, async move { compact(&env).await });
        let is_over = killed(ended).is_some();
        world.sim.kill(dying);
        if let Some(name) = record(&world) {
            world.harm(name, harm);
            assert!(!is_compacted(&world));
            mended(&world, name, harm);
            assert!(is_compacted(&world));
            repaired += 1;
        }
        world.goes_on_with(&expected(ROWS));
        if is_over {
            break;
        }
    }
    println!("{repaired} repaired");
    assert!(repaired > 10);
}

/// The writer lives on, and its compactor continues by itself.
#[test]
fn a_live_writer_is_not_ended() {
    for harm in HARMS {
        let world = World::new(7);
        layered(&world, 3);
        assert!(is_compacted(&world));
        let (living, env) = world.process("living");
        let db = world.sim.block_on(living, async move { open(&env, false).await });
        let db = db.expect("it ends").expect("a healthy store");
        let name = record(&world).expect("a compactor ran");
        world.harm(name, harm);
        let done = mended(&world, name, harm);
        assert_eq!(done.seq_kept.get(), 3);
        let wrote = world.sim.block_on(living, async move {
            put(&db, &key(3)).await?;
            db.flush_memtable().await?;
            db.compact().await?;
            db.close().await
        });
        wrote.expect("it ends").expect("nothing has ended the writer");
        world.goes_on_with(&expected(4));
    }
}

/// The record is damaged with the newest manifest and the log.
#[test]
fn everything_is_harmed() {
    let world = World::new(3);
    layered(&world, 4);
    assert!(is_compacted(&world));
    super::logs::lived_on(&world, 4..8);
    let (name, log) = (record(&world).expect("a compactor ran"), super::logs::log(&world));
    world.harm(name, Harm::Flipped);
    world.harm(ObjectName::Manifest(super::manifests::newest(&world)), Harm::Flipped);
    world.harm(ObjectName::Wal(log[log.len() - 2].0), Harm::Truncated);
    let kept = log[log.len() - 3].1.get();
    let told = world.run("teller", |env| async move { tell(&env).await });
    assert_eq!((told.damage.len(), told.seq_kept.get()), (3, kept), "{told:?}");
    world.run("mender", |env| async move { mend(&env).await });
    assert!(is_compacted(&world));
    world.goes_on_with(&expected(kept));
}
