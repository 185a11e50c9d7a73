//! A restore killed before, after and during every request; and several at once (rule S1).

use super::{DEADLINE, World, expected, fill, keys, killed, named, open, options, put};
use siltstone::{Env, Error, ErrorKind, Options, Reader, ReaderOptions, Readers, Result, admin};
use siltstone_tests::faults::CrashPoint;
use std::time::Duration;

const POINTS: [CrashPoint; 3] = [CrashPoint::Before, CrashPoint::AnswerLost, CrashPoint::After];

async fn restore(env: &Env) -> Result<()> {
    admin::restore(env, &"kept".parse().expect("a name"), &options()).await
}

/// Rows in tables and in the log, a checkpoint of both, and then other rows; the writer was killed.
fn lived(world: &World) {
    let (process, env) = world.process("first");
    let filled = world.sim.block_on(process, async move {
        let db = fill(&env, "old").await?;
        db.checkpoint(&named("kept")).await?;
        for (row, key) in expected("old").iter().enumerate() {
            drop(db.delete(key.as_bytes())?);
            put(&db, &format!("undone{row:03}")).await?;
            if row == 5 {
                db.compact().await?;
            }
        }
        std::mem::forget(db);
        Ok::<_, Error>(())
    });
    filled.expect("it ends").expect("a healthy store");
    world.sim.kill(process);
}

fn rows(world: &World) -> Vec<String> {
    world.run("opener", |env| async move {
        let db = open(&env, false).await?;
        let found = keys(&db).await?;
        db.compact().await?;
        assert_eq!(keys(&db).await?, found);
        db.close().await?;
        siltstone_tests::gc::round(&env).await?;
        Ok(found)
    })
}

fn is_sound(world: &World) {
    let report = world.run("verifier", |env| async move {
        siltstone::verify::verify(&env, DEADLINE, &siltstone::Progress::default()).await
    });
    assert_eq!(report.problem_count, 0, "{:?}", report.problems);
}

/// All of it, or nothing; the next process repeats it.
#[test]
fn every_crash_of_a_restore() {
    let undone: Vec<String> = (0..12).map(|row| format!("undone{row:03}")).collect();
    let (mut crashes, mut stood) = (0, [0, 0]);
    for operation in 1.. {
        for point in POINTS {
            let world = World::new(operation);
            lived(&world);
            let (dying, env) = world.process("dying");
            world.bucket.crash_at(dying, operation, point);
            let ended = world.sim.block_on(dying, async move { restore(&env).await });
            if let Some(ended) = killed(ended) {
                ended.expect("a healthy store");
                assert_eq!(rows(&world), expected("old"));
                is_sound(&world);
                if point != CrashPoint::Before {
                    // A request that was abandoned, as in a read-ahead, has no end at which to die.
                    continue;
                }
                println!("{crashes} crashes of a restore: {} before, {} after", stood[0], stood[1]);
                assert!(crashes > 30 && stood.iter().all(|count| *count > 0));
                return;
            }
            crashes += 1;
            world.sim.kill(dying);
            let found = rows(&world);
            let restored = found == expected("old");
            assert!(restored || found == undone, "{operation} {point:?}: {found:?}");
            stood[usize::from(restored)] += 1;
            world.run("again", |env| async move { restore(&env).await });
            assert_eq!(rows(&world), expected("old"), "{operation} {point:?}");
            if operation % 4 == 0 {
                is_sound(&world);
            }
        }
    }
}

/// The earlier claim is Fenced; the final state is the checkpoint's.
#[test]
fn several_restorers_and_a_live_writer() {
    for seed in 1..=20 {
        let world = World::new(seed);
        lived(&world);
        let (living, env) = world.process("living");
        world.sim.spawn(living, "living", async move {
            let Ok(db) = open(&env, false).await else { return };
            for row in 0..200 {
                if put(&db, &format!("late{row}")).await.is_err() {
                    return;
                }
            }
        });
        for turn in 0..3 {
            let (process, env) = world.process("restorer");
            world.sim.spawn(process, "restorer", async move {
                env.clock.sleep(Duration::from_millis(seed * turn)).await;
                if let Err(error) = restore(&env).await {
                    assert_eq!(error.kind(), ErrorKind::Fenced, "{error}");
                }
            });
        }
        world.sim.run_for(Duration::from_secs(60)).expect("time goes on");
        world.run("last", |env| async move { restore(&env).await });
        assert_eq!(rows(&world), expected("old"), "seed {seed}");
        is_sound(&world);
    }
}

/// A checkpoint would no longer contain the rows acknowledged before the restore: the handle gets
/// an error, and ends, instead of returning a checkpoint of the restored state.
#[test]
fn a_fenced_handle_makes_no_checkpoint() {
    let world = World::new(7);
    lived(&world);
    let (living, env) = world.process("living");
    let db = world.sim.block_on(living, async move {
        let db = open(&env, false).await?;
        put(&db, "late").await?;
        Ok::<_, Error>(db)
    });
    let db = db.expect("it ends").expect("a healthy store");
    world.run("restorer", |env| async move { restore(&env).await });
    let refused = world.sim.block_on(living, async move {
        let refused = db.checkpoint(&named("late")).await;
        assert_eq!(put(&db, "later").await.expect_err("ended").kind(), ErrorKind::Fenced);
        refused
    });
    let refused = refused.expect("it ends").expect_err("it holds no late row");
    assert_eq!(refused.kind(), ErrorKind::Fenced, "{refused}");
    let made =
        world.run("lister", |env| async move { admin::list_checkpoints(&env, DEADLINE).await });
    assert!(made.iter().all(|one| one.name.as_deref() != Some("late")), "{made:?}");
    assert_eq!(rows(&world), expected("old"));
}

/// S3: a following reader ends, unless it follows restores; with and without a lease.
#[test]
fn a_reader_that_follows_is_told() {
    for (follow_restores, reader_lease) in
        [(false, true), (false, false), (true, true), (true, false)]
    {
        let world = World::new(7);
        lived(&world);
        let (process, env) = world.process("reader");
        let readers = Readers { follow_restores, ..Readers::default() };
        let how = Options { readers, reader_lease, ..options() };
        let how = ReaderOptions { options: how, ..ReaderOptions::default() };
        let reader = world.sim.block_on(process, Reader::open(env, how));
        let reader = reader.expect("it ends").expect("a healthy store");
        world.run("restorer", |env| async move { restore(&env).await });
        world.run("next", |env| async move {
            let db = open(&env, false).await?;
            put(&db, "later").await?;
            std::mem::forget(db);
            Ok(())
        });
        let seen = world.sim.block_on(process, async move {
            let refreshed = reader.refresh().await;
            if follow_restores {
                refreshed?;
                let [old, later, undone] = [&b"old000"[..], b"later", b"undone000"].map(|key| {
                    let answer = reader.get(key);
                    async { answer?.wait().await.map(|value| value.is_some()) }
                });
                assert_eq!((old.await?, later.await?, undone.await?), (true, true, false));
                return Ok(());
            }
            let mut told = vec![refreshed.unwrap_err()];
            told.push(reader.refresh().await.unwrap_err());
            told.push(reader.get(b"old000").map(drop).unwrap_err());
            for error in told {
                assert_eq!(error.kind(), ErrorKind::Expired, "{error}");
                assert!(error.to_string().contains("follow_restores"), "{error}");
            }
            Ok::<_, Error>(())
        });
        seen.expect("it ends").expect("a healthy store");
    }
}
