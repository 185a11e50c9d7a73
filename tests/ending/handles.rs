//! Live handles of a destroyed database, and refusals.

use super::says_destroyed;
use super::{DEADLINE, World, destroy, expected, fill, keys, named, open, options, put};
use siltstone::{
    CompactorOptions, CompactorProcess, Error, ErrorKind, Reader, ReaderOptions, admin,
};
use std::time::Duration;

fn reading() -> ReaderOptions {
    ReaderOptions { options: options(), ..ReaderOptions::default() }
}

/// D1: a handle ends by a typed error, at its next write or look, and acknowledges nothing more,
/// even after its place was used again.
#[test]
fn a_live_writer_ends() {
    for used_again in [false, true] {
        let world = World::new(7);
        let (living, env) = world.process("living");
        let db = world.sim.block_on(living, async move { fill(&env, "old").await });
        let db = db.expect("it ends").expect("a healthy store");
        world.run("destroyer", |env| async move { destroy(&env, false).await });
        if used_again {
            world.run("next", |env| async move { fill(&env, "new").await?.close().await });
        }
        let late = world.sim.block_on(living, async move {
            for row in 0..200 {
                if let Err(error) = put(&db, &format!("late{row}")).await {
                    return (row, error);
                }
            }
            panic!("it writes on");
        });
        let (rows, error) = late.expect("it ends");
        assert_eq!(rows, 0, "the fence stands where its next object goes: {error}");
        // The write meets the fence. If the place was used again, a look that is sent beside the
        // write may find the next database first.
        let told = match error.kind() {
            ErrorKind::Fenced => true,
            ErrorKind::NotFound => used_again,
            _ => false,
        };
        assert!(told, "{error}");
        if used_again {
            let found = world.run("reader", |env| async move {
                let db = open(&env, false).await?;
                let found = keys(&db).await?;
                db.close().await?;
                Ok(found)
            });
            assert_eq!(found, expected("new"));
        }
    }
}

/// A following reader ends by a typed error; so do a compactor and every later opener.
#[test]
fn everybody_is_told() {
    let world = World::new(7);
    world.lived();
    let (reading_process, env) = world.process("reader");
    let reader = world.sim.block_on(reading_process, Reader::open(env, reading()));
    let reader = reader.expect("it ends").expect("a healthy store");
    world.run("destroyer", |env| async move { destroy(&env, true).await });
    // Each look reports it. Once a second one confirms it, the reader has ended.
    let reader = world.sim.block_on(reading_process, async move {
        for _ in 0..4 {
            assert!(says_destroyed(&reader.refresh().await.unwrap_err()));
        }
        let read = reader.get(b"old0").map(drop);
        assert!(says_destroyed(&read.unwrap_err()));
        reader
    });
    let reader = reader.expect("it ends");
    for create in [false, true] {
        let refused = world.try_run("opener", move |env| async move { open(&env, create).await });
        assert!(says_destroyed(&refused.map(drop).unwrap_err()));
    }
    let refused = world.try_run("reader", |env| async move { Reader::open(env, reading()).await });
    assert!(says_destroyed(&refused.map(drop).unwrap_err()));
    let refused = world.try_run("compactor", |env| async move {
        let how = CompactorOptions { options: options(), ..CompactorOptions::default() };
        CompactorProcess::open(env, how, |_| {}).await
    });
    assert!(says_destroyed(&refused.map(drop).unwrap_err()));
    let refused = world.try_run("checkpoint", |env| async move {
        admin::create_checkpoint(&env, &named("late"), DEADLINE).await
    });
    assert!(says_destroyed(&refused.unwrap_err()));

    world.run("destroyer", |env| async move { destroy(&env, false).await });
    let sought = world.sim.block_on(reading_process, async move { reader.refresh().await });
    let error = sought.expect("it ends").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
    for work in [
        world.try_run("opener", |env| async move { open(&env, false).await }).map(drop),
        world.try_run("reader", |env| async move { Reader::open(env, reading()).await }).map(drop),
        world.try_run("destroyer", |env| async move { destroy(&env, false).await }),
        world.try_run("destroyer", |env| async move { destroy(&env, true).await }),
    ] {
        let error = work.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
        assert!(error.to_string().contains("no database here"), "{error}");
    }
    world.is_used_again();
}

/// A hard destroy is refused before it affects any process; a soft one is not.
#[test]
fn the_dependents_are_named_and_no_writer_is_fenced() {
    let world = World::new(7);
    let (living, env) = world.process("living");
    let db = world.sim.block_on(living, async move { fill(&env, "old").await });
    let db = db.expect("it ends").expect("a healthy store");
    let kept = world.run("checkpoint", |env| async move {
        admin::create_checkpoint(&env, &named("nightly"), DEADLINE).await
    });
    let refused = world.try_run("destroyer", |env| async move { destroy(&env, false).await });
    let error = refused.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict);
    let told = error.to_string();
    assert!(told.contains("nightly") && told.contains(&kept.id.to_string()), "{told}");
    let wrote = world.sim.block_on(living, async move {
        put(&db, "still").await?;
        db.close().await
    });
    wrote.expect("it ends").expect("no process has ended it");
    world.run("tidy", move |env| async move {
        admin::delete_checkpoint(&env, &kept.id.into(), DEADLINE).await
    });
    world.run("destroyer", |env| async move { destroy(&env, false).await });
    assert!(world.is_empty(), "{:?}", world.names());
}

/// Many at once: one fences, the others find it done or are Fenced; everything is deleted.
#[test]
fn many_destroyers_leave_nothing() {
    for seed in 1..=20 {
        let world = World::new(seed);
        world.lived();
        for _ in 0..3 {
            let (process, env) = world.process("destroyer");
            let pause = Duration::from_millis(seed);
            world.sim.spawn(process, "destroyer", async move {
                env.clock.sleep(pause).await;
                let ended: Result<(), Error> = destroy(&env, false).await;
                if let Err(error) = ended {
                    use ErrorKind::{Fenced, NotFound};
                    assert!(matches!(error.kind(), Fenced | NotFound), "{error}");
                }
            });
        }
        world.sim.run_for(Duration::from_secs(60)).expect("time goes on");
        assert!(world.is_empty(), "seed {seed}: {:?}", world.names());
        world.is_used_again();
    }
}
