//! Rounds: the objects that they leave, in all cases, beside others, and with all kinds of clocks.

use crate::{World, all, expected, fill, open, options};
use siltstone::gc::{GcClass, GcOptions};
use siltstone_tests::faults::{CrashPoint, Fault, FaultPlan};
use siltstone_tests::gc::AT_ONCE;
use siltstone_tests::reachable::Difference;
use siltstone_tests::sim::Stopped;
use std::sync::Arc;
use std::time::Duration;

#[test]
fn exactly_the_reachable_objects_are_left() {
    let world = World::new(1, FaultPlan::none());
    world.live();
    assert!(world.difference().garbage.len() > 30, "{:?}", world.difference());
    let report = world.collect();
    assert_eq!(world.difference(), Difference::default());
    assert_eq!((report.revoked, report.unleased), (0, 1));
    for class in [GcClass::Manifests, GcClass::Wal, GcClass::Tables, GcClass::Records] {
        assert!(report.classes[&class].deleted > 0, "{class:?}: {report:?}");
    }
    // There is nothing left to do, and it does nothing.
    let again = world.collect();
    assert_eq!(again.total().deleted, 0, "{again:?}");
    world.check();
}

/// An observer of a round sees how many objects are to be deleted, and at the end that all of them
/// were.
#[test]
fn a_round_says_how_far_it_is() {
    let world = World::new(1, FaultPlan::none());
    world.live();
    let round = |dry| {
        world.run("collector", move |env| async move {
            let progress = Arc::default();
            let report = siltstone::gc::once_watched(&env, &AT_ONCE, dry, &progress).await?;
            Ok((progress.so_far(), report.total().deleted))
        })
    };
    let (far, would_go) = round(true);
    assert!(would_go > 30);
    assert_eq!(far, (0, 0), "a dry round deletes nothing");
    let (far, gone) = round(false);
    assert_eq!(far, (gone, gone));
    assert_eq!(round(false), ((0, 0), 0));
}

/// A collector is killed before, after, and during every request of a round. No reference is broken
/// then, and the next round leaves exactly the reachable objects.
#[test]
fn every_crash_of_a_round() {
    let mut crashes = 0;
    for operation in 1.. {
        for point in [CrashPoint::Before, CrashPoint::AnswerLost, CrashPoint::After] {
            let world = World::new(1, FaultPlan::none());
            world.live();
            let (dying, env) = world.process("dying", 0);
            world.bucket.crash_at(dying, operation, point);
            let round = world
                .sim
                .block_on(dying, async move { siltstone::gc::once(&env, &AT_ONCE, false).await });
            match round {
                Ok(round) => {
                    round.expect("a healthy store");
                    assert!(crashes > 100, "{crashes} crashes are few");
                    println!("{crashes} crashes of a round");
                    return;
                }
                Err(Stopped::Killed) => crashes += 1,
                Err(stopped) => panic!("{operation} {point:?}: {stopped:?}"),
            }
            world.sim.kill(dying);
            assert_eq!(world.difference().dangling, vec![], "{operation} {point:?}");
            world.collect();
            assert_eq!(world.difference(), Difference::default(), "{operation} {point:?}");
            if operation % 10 == 0 {
                world.check();
            }
        }
    }
}

/// Any number of collectors at once, in any relative progress, beside a writer that compacts.
#[test]
fn collectors_do_no_harm_to_one_another() {
    for seed in 1..=10 {
        let world = World::new(seed, FaultPlan::none());
        world.live();
        world.bucket.set_plan(FaultPlan::none().with(Fault::DeleteLate, 300));
        let mut collectors = Vec::new();
        for skew in [-900_000, 0, 900_000] {
            let (process, env) = world.process("collector", skew);
            collectors.push(process);
            world.sim.spawn(process, "collector", async move {
                loop {
                    drop(siltstone::gc::once(&env, &AT_ONCE, false).await);
                    env.clock.sleep(Duration::from_millis(30)).await;
                }
            });
        }
        world.run("busy", |env| async move {
            let db = open(&env, options()).await?;
            for _ in 0..3 {
                fill(&db, 4).await?;
                db.compact().await?;
                assert_eq!(all(&db).await?, expected(4));
            }
            db.close().await
        });
        world.bucket.heal();
        collectors.into_iter().for_each(|process| world.sim.kill(process));
        world.pause(Duration::from_secs(120));
        assert_eq!(world.difference().dangling, vec![], "seed {seed}");
        world.check();
        world.collect();
        assert_eq!(world.difference(), Difference::default(), "seed {seed}");
    }
}

/// A delete that the collector has abandoned lands at any later time; the writer continues
/// meanwhile.
#[test]
fn late_deletes_hit_nothing_alive() {
    for seed in 1..=20 {
        let mut plan = FaultPlan::none().with(Fault::DeleteLate, 1000);
        plan.lateness = (Duration::from_millis(1), Duration::from_secs(30));
        let world = World::new(seed, plan);
        world.live();
        let report = world.collect();
        assert!(report.total().failed > 10 && report.trouble.is_some(), "{report:?}");
        world.run("busy", |env| async move {
            let db = open(&env, options()).await?;
            fill(&db, 4).await?;
            db.compact().await?;
            db.close().await
        });
        world.bucket.heal();
        world.pause(Duration::from_secs(60));
        world.check();
        world.collect();
        assert_eq!(world.difference(), Difference::default(), "seed {seed}");
    }
}

/// Planted bug 8: the store's clock counts. A collector that is ten days ahead deletes nothing
/// early, and one that is behind deletes the same objects.
#[test]
fn no_process_clock_makes_an_object_old() {
    const DAYS: i64 = 10 * 24 * 3_600_000;
    let grace = GcOptions { min_age: Duration::from_secs(600), ..AT_ONCE };
    for skew in [DAYS, -DAYS] {
        let world = World::new(1, FaultPlan::none());
        world.live();
        let round = || {
            let (process, env) = world.process("collector", skew);
            let round = async move { siltstone::gc::once(&env, &grace, false).await };
            world.sim.block_on(process, round).expect("it ends").expect("a healthy store")
        };
        let early = round();
        assert_eq!(early.total().deleted, 0, "{early:?}");
        assert!(early.total().young > 30, "{early:?}");
        world.pause(Duration::from_secs(600));
        let late = round();
        assert!(late.classes[&GcClass::Tables].deleted > 0, "{late:?}");
        world.check();
    }
}
